"""A run under way, written by its own process and looked at from another."""

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from diagevo.memory.log.database import Database
from diagevo.progress import PROGRESS, RoundFigures, RunProgress, StageProgress
from tests.run.program import first, start, stood_still
from tests.view.conftest import Served, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

TELLS = """
import sys, time
from fractions import Fraction
from pathlib import Path
from diagevo.progress import RunProgress, StageProgress
told = RunProgress("played", Path(sys.argv[1]))
told.round_started(3, 5, Fraction(31, 50), 1234)
told.stage_started(3, "challenger", 2, 40)
told.stage_progress(3, "challenger", StageProgress(1, 40, "mean reward 0.210", 0.21))
told.stage_progress(3, "challenger", StageProgress(2, 40, "mean reward 0.300", 0.3))
told.message("</li><script>alert(1)</script>")
sys.stdin.readline()
told.stage_finished(3, "challenger", 12.5, {"reward": 0.25})
"""


@pytest.fixture
def file(folder: Path) -> "Path":
    (folder / "played").mkdir(exist_ok=True)
    return folder / "played" / PROGRESS


def _figures() -> RoundFigures:
    return RoundFigures(
        round=3,
        position=900,
        kept=5,
        observed=9,
        created=0,
        promoted=(),
        committed_at="2026-01-01T00:00:00+00:00",
        invalid={},
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
    heard: list[object] = []

    class Hears(RunProgress):
        def on_event(self, event: str, **what: object) -> None:
            heard.append(what.get("text", event))

    told = Hears("played", tmp_path / PROGRESS)
    told.round_started(3, 5, Fraction(31, 50), None)
    told.stage_started(3, "votes", 1, 100)
    told.stage_progress(3, "votes", StageProgress(40, 100))
    told.message("asked postgresql://me:hunter2@h/db")
    now = json.loads((tmp_path / PROGRESS).read_text())
    assert (now["round"], now["rounds"], now["epsilon"], now["failures"]) == (3, 5, "31/50", None)
    assert now["stages"] == [
        {
            "stage": "votes",
            "attempt": 1,
            "done": 40,
            "total": 100,
            "detail": "",
            "rewards": [],
            "seconds": None,
        }
    ]
    assert heard == [
        "round_started",
        "stage_started",
        "stage_progress",
        "asked postgresql://me:hunter2@h/db",
    ]
    assert "hunter2" not in (tmp_path / PROGRESS).read_text()
    told.round_finished(3, _figures())
    now = json.loads((tmp_path / PROGRESS).read_text())
    assert now["ended"]
    assert now["last"] == (
        "Round 3: 5 of 8 candidates kept (contested 1, too easy 2), F = 21, ε next = 1/3,"
        " 4 Active, 2 Mastered, reactivated: c7"
    )
    assert (tmp_path / PROGRESS).stat().st_mode & 0o077 == 0


def test_rewards_are_kept_by_step_and_of_more_than_two_hundred_every_second(tmp_path: Path) -> None:
    told = RunProgress("played", tmp_path / PROGRESS)
    told.stage_started(3, "solver", 1, 900)
    for step in range(1, 202):
        told.stage_progress(3, "solver", StageProgress(step, 900, "", step / 1000))
    told.stage_finished(3, "solver", 1.0, {})
    rewards = json.loads((tmp_path / PROGRESS).read_text())["stages"][0]["rewards"]
    assert (rewards[0], rewards[1], rewards[-1]) == ([1, 0.001], [3, 0.003], [201, 0.201])
    assert len(rewards) == 101


def test_a_training_step_is_seen_at_once_however_soon_it_follows(tmp_path: Path) -> None:
    told = RunProgress("played", tmp_path / PROGRESS)
    told.stage_started(1, "solver", 1, 9)
    for step in (1, 2):
        told.stage_progress(1, "solver", StageProgress(step, 9, "", 0.5))
        assert json.loads((tmp_path / PROGRESS).read_text())["stages"][0]["done"] == step


def test_a_folder_that_takes_nothing_costs_the_picture_and_not_the_run(tmp_path: Path) -> None:
    told = RunProgress("played", tmp_path / "nowhere" / PROGRESS)
    told.message("still told")


def test_a_run_of_another_process_appears_and_goes_on_without_a_reload(
    page: "Page", served: Served, file: Path
) -> None:
    page.goto(served.opening)
    page.goto(f"{served.base}played/live.html")
    text = page.locator("main").inner_text()
    # Round 4 brings c3 back; its run has not told anything.
    assert "round 4, as committed: " in text
    assert page.locator("h2:has-text('reactivations') + ul a[href*='causes/']").first.inner_text() == "c3"
    assert "Round 4 is committed, and none is open." in page.locator("#where").inner_text()
    assert page.locator("h1").inner_text() == "At rest"
    with subprocess.Popen(
        [sys.executable, "-c", TELLS, str(file)], stdin=subprocess.PIPE, text=True
    ) as teller:
        page.get_by_text("Round 3 of 5, ε = 31/50, F = 1234.").wait_for()
        assert "challenger, attempt 2" in page.locator("#stages").inner_text()
        assert "mean reward 0.210 → 0.300 over steps 1 to 2" in page.locator("#stages").inner_text()
        points = page.locator(".curve polyline").get_attribute("points")
        assert points == "4.0,42.0 296.0,6.0"
        assert page.locator("#told li").inner_text() == "</li><script>alert(1)</script>"
        teller.communicate("\n")
    page.get_by_text("12.5 s: reward 0.25").wait_for()
    file.unlink()


@pytest.mark.slow
def test_a_run_that_another_process_plays_is_seen_from_its_training_to_its_commit(
    page: "Page", tmp_path: Path
) -> None:
    command = ("train", "--run", "a", *first(tmp_path), "--display", "json")
    still = "solver:stage_progress " * 2
    with start(tmp_path, *command, STANDS_STILL=still) as process:
        errors = ThreadPoolExecutor(1).submit(process.stderr.read)
        try:
            for line in process.stdout:
                told = json.loads(line)
                if (told["event"], told.get("stage")) == ("stage_progress", "solver"):
                    stood_still(process)
                    if told["done"] == 2:
                        break
                    process.send_signal(signal.SIGCONT)
            database = Database(f"sqlite:///{tmp_path / 'diagevo.db'}")
            with serving(database) as served:
                page.goto(served.opening)
                page.goto(f"{served.base}a/live.html")
                page.get_by_text("Round 1 of ").wait_for()
                stages = page.locator("#stages").inner_text()
                assert all(name in stages for name in ("challenger", "candidates", "votes", "solver"))
                assert "kept" in stages, "what the votes kept, and why not"
                assert page.locator(".curve").count() == 2, "of the challenger and of the solver"
                process.send_signal(signal.SIGCONT)
                process.stdout.read()
                assert process.wait(timeout=60) == 0, errors.result()
                page.get_by_text("Round 1 is committed.").wait_for()
                assert "candidates kept" in page.locator("#committed").inner_text()
                page.reload()
                assert "round 1, as committed" in page.locator("main").inner_text()
            database.close()
        finally:
            process.kill()
