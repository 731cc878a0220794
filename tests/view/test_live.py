"""A run under way, written by its own process and looked at from another."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from diagevo.progress import RoundSummary, Unobserved
from diagevo.progress_file import PROGRESS, Kept
from tests.view.conftest import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

TELLS = """
import sys, time
from fractions import Fraction
from pathlib import Path
from diagevo.progress import Unobserved
from diagevo.progress_file import Kept
told = Kept(Unobserved(), Path(sys.argv[1]))
told.round_started(3, 5, Fraction(31, 50), 1234)
told.stage_started(3, "challenger", 2, 40)
told.message("</li><script>alert(1)</script>")
sys.stdin.readline()
told.stage_finished(3, "challenger", 12.5, {"reward": 0.25})
"""


@pytest.fixture
def file(folder: Path) -> "Path":
    (folder / "played").mkdir(exist_ok=True)
    return folder / "played" / PROGRESS


def _summary() -> RoundSummary:
    return RoundSummary(
        round=3,
        candidates=8,
        verdicts={"kept": 5, "too_easy": 2, "contested": 1},
        failures=21,
        z=Fraction(1, 2),
        epsilon_next=Fraction(1, 3),
        active=4,
        mastered=2,
        nodes=1,
        reactivated=("c7",),
    )


def test_what_is_told_is_in_the_file_whole_and_passed_on(tmp_path: Path) -> None:
    heard: list[str] = []

    class Hears(Unobserved):
        def message(self, text: str) -> None:
            heard.append(text)

    told = Kept(Hears(), tmp_path / PROGRESS)
    told.round_started(3, 5, Fraction(31, 50), None)
    told.stage_started(3, "votes", 1, 100)
    told.stage_progress(3, "votes", 40, 100)
    told.message("asked postgresql://me:hunter2@h/db")
    now = json.loads((tmp_path / PROGRESS).read_text())
    assert (now["round"], now["rounds"], now["epsilon"], now["failures"]) == (3, 5, "31/50", None)
    assert now["stages"] == [
        {"stage": "votes", "attempt": 1, "done": 40, "total": 100, "detail": "", "seconds": None}
    ]
    assert heard == ["asked postgresql://me:hunter2@h/db"]
    assert "hunter2" not in (tmp_path / PROGRESS).read_text()
    told.round_finished(3, _summary())
    now = json.loads((tmp_path / PROGRESS).read_text())
    assert now["ended"]
    assert now["last"] == (
        "Round 3: 5 of 8 candidates kept (contested 1, too easy 2), F = 21, ε next = 1/3,"
        " 4 Active, 2 Mastered, reactivated: c7"
    )
    assert (tmp_path / PROGRESS).stat().st_mode & 0o077 == 0


def test_a_folder_that_takes_nothing_costs_the_picture_and_not_the_run(tmp_path: Path) -> None:
    told = Kept(Unobserved(), tmp_path / "nowhere" / PROGRESS)
    told.message("still told")


def test_a_run_of_another_process_appears_and_goes_on_without_a_reload(
    page: "Page", served: Served, file: Path
) -> None:
    page.goto(served.opening)
    page.goto(f"{served.base}played/live.html")
    assert "nothing is told yet" in page.locator("#where").inner_text()
    with subprocess.Popen(
        [sys.executable, "-c", TELLS, str(file)], stdin=subprocess.PIPE, text=True
    ) as teller:
        page.get_by_text("Round 3 of 5, ε = 31/50, F = 1234.").wait_for(timeout=30_000)
        assert "challenger, attempt 2" in page.locator("#stages").inner_text()
        assert page.locator("#told li").inner_text() == "</li><script>alert(1)</script>"
        teller.communicate("\n")
    page.get_by_text("12.5 s reward 0.25").wait_for(timeout=30_000)
    file.unlink()
