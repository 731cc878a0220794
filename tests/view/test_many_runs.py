"""Many runs on one page: arms by their settings, curves, and runs paired by seed, worked out by hand."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import diagevo
from diagevo.memory.log.database import Database
from diagevo.memory.read.runs import list_runs
from diagevo.view.page import Site
from diagevo.view.run_comparison import Many, many
from tests.memory.audit.played import CONFIG, play
from tests.view.conftest import serving
from tests.view.six_runs import measure

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCORES = {("usual", 1): 0.70, ("usual", 2): 0.72, ("low-k", 1): 0.60, ("low-k", 2): 0.64, ("low-k", 3): 0.9}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings; seeds 1 and 2 in both, 3 in the second alone; measured after round 1, where all are."""
    home = tmp_path_factory.mktemp("many")
    url = f"sqlite:///{home / 'diagevo.db'}"
    for (arm, seed), score in SCORES.items():
        k = "1/4" if arm == "low-k" else "1/2"
        config = CONFIG | {"seed": seed, "schedule": {"k": k}}
        play(url, f"{arm}.{seed}", root=home, rounds=1, config=config)
        with diagevo.open(url, f"{arm}.{seed}", root=home) as memory:
            measure(memory, 1, score)
    return home


@pytest.fixture(scope="module")
def database(home: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{home / 'diagevo.db'}")
    yield opened
    opened.close()


@pytest.fixture
def found(database: Database, home: Path) -> Many:
    site = Site(database, live=False)
    return many([(site.history(line.run_id), line) for line in list_runs(database, home)])


def test_runs_of_the_same_settings_are_an_arm_named_by_what_sets_it_apart(found: Many) -> None:
    assert [(arm.name, arm.runs) for arm in found.arms] == [
        ("schedule.k 0.5", {1: "usual.1", 2: "usual.2"}),
        ("schedule.k 0.25", {1: "low-k.1", 2: "low-k.2", 3: "low-k.3"}),
    ]


def test_arms_are_compared_over_the_seeds_of_both(found: Many) -> None:
    """−.10 and −.08: mean −.09, standard error .01, and 12.706 of them (t of one degree of freedom)."""
    pytest.importorskip("scipy")
    [pair] = found.pairings
    assert (pair.seeds, pair.round) == (2, 1)
    assert pair.means == pytest.approx((0.71, 0.62))
    assert pair.difference is not None
    low, high = pair.difference.low, pair.difference.high
    assert (low, high) == pytest.approx((-0.09 - 0.12706, -0.09 + 0.12706), abs=1e-5)
    assert (pair.difference.better, pair.difference.worse) == (0, 2)


def test_a_box_hides_and_shows_the_curve_of_its_run_by_keyboard(
    page: "Page", database: Database, home: Path
) -> None:
    url = f"sqlite:///{home / 'diagevo.db'}"
    with diagevo.open(url, "usual.1", root=home) as memory:
        measure(memory, 0, 0.5)
    with serving(database) as served:
        page.goto(served.opening)
        curve = page.locator("svg.wide [data-line='usual.1']")
        assert curve.is_visible()
        colours = {
            run: page.locator(f"svg.wide [data-line='{run}']").get_attribute("class")
            for run in ("usual.1", "usual.2", "low-k.1", "low-k.3")
        }
        assert colours["usual.1"] == colours["usual.2"] != colours["low-k.1"] == colours["low-k.3"]
        page.locator("[data-run='usual.1']").focus()
        page.keyboard.press("Space")
        assert not curve.is_visible()
        assert page.locator("svg.wide [data-line='usual.2']").is_visible()
        page.keyboard.press("Space")
        assert curve.is_visible()
