"""Long runs and long texts: what a page reads and holds is bounded. Steps are counted, not seconds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.event

import diagevo
from diagevo.memory.events import Embedder, RunConfigured
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from diagevo.view.charts import Series, chart
from diagevo.view.export import export
from diagevo.view.page import ROWS, TEXT, Site
from diagevo.view.site import View
from diagevo.view.stories import STEPS, side_by_side
from tests.memory.audit.long_run import LongRun
from tests.memory.audit.played import CONFIG, Player
from tests.memory.audit.random_play import play_randomly

pytestmark = pytest.mark.slow
FAILURES = 5_000
MOST = 300_000
"""Bytes of a page of a long run."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A run whose one cause has more than 5,000 failures, in rounds of about 4,000 events."""
    folder = tmp_path_factory.mktemp("long")
    run = LongRun(folder, 29_000, per_round=4_000, causes=1)
    yield run.database
    run.close()


@contextmanager
def _asked(database: Database, *about: str) -> Iterator[list[tuple[str, ...]]]:
    """The statements and their values, all or those that name one of these types of event."""
    asked: list[tuple[str, ...]] = []

    def ask(_c: Any, _cursor: Any, statement: str, given: Any, _context: Any, _many: bool) -> None:
        if not about or set(about) & set(map(str, given)):
            asked.append((statement, *map(str, given)))

    sqlalchemy.event.listen(database.engine, "before_cursor_execute", ask)
    try:
        yield asked
    finally:
        sqlalchemy.event.remove(database.engine, "before_cursor_execute", ask)


def test_the_overview_of_a_long_run_tells_of_all_its_rounds_and_reads_hardly_an_event(long: Database) -> None:
    with _asked(long, "CandidateScored", "FailureObserved", "CauseMatched") as asked:
        text = View(Site(long, live=True)).render("long/index.html")
    assert len(asked) < 5, "one failure is shown"
    assert " in rounds 1 to " in text
    assert len(text.encode()) < MOST


def test_the_what_if_page_of_a_long_run_reads_no_question_and_its_sliders_each_once_until_the_run_goes_on(
    long: Database,
) -> None:
    view = View(Site(long, live=True))
    with _asked(long, "CandidateScored", "CauseMatched") as asked:
        text = view.render("long/what-if.html")
    assert not asked
    assert len(text.encode()) < MOST
    with _asked(long, "CandidateScored", "CauseMatched") as asked:
        moved = view.sliders("long")
    assert len(asked) == text.count("data-round="), "once a round; 35 replays are of what was read then"
    assert len(moved.encode()) < MOST
    with _asked(long, "CandidateScored", "CauseMatched") as asked:
        assert view.sliders("long") == moved
    assert not asked


def test_a_busy_cause_is_told_by_a_number_of_questions_to_the_log_that_its_failures_do_not_raise(
    long: Database,
) -> None:
    with _asked(long) as asked:
        View(Site(long, live=True)).render("long/causes/c1.html")
    # A turn of failures: five steps of the causation of three, and the labels of its questions by 500.
    rounds, failures = 9, 5_500
    assert len(asked) < 30 + rounds * 6 + failures / 500, [one for one, *_ in asked]


def test_a_cause_with_five_thousand_failures_has_pages_that_hold_each_once(
    long: Database,
) -> None:
    view = View(Site(long, live=True))
    first = view.render("long/causes/c1.html")
    counted = int(first.split("Failures counted under it (")[1].split(")")[0])
    assert counted > FAILURES
    last = -(-counted // ROWS)
    assert f"part 1 of {last}" in first
    rows = [
        view.render(f"long/causes/c1{part}.html").split("Failures counted")[1].count("<tr><td>")
        for part in ("", ".p2", f".p{last}")
    ]
    assert rows == [ROWS, ROWS, counted - ROWS * (last - 1)]
    assert len(first.encode()) < MOST


def test_an_export_of_a_long_run_is_as_long_as_it_was_asked_for(long: Database, tmp_path: Path) -> None:
    written, left_out = export(long, tmp_path / "pages", most=12)
    assert written == len(list((tmp_path / "pages").rglob("*.html"))) == 12
    assert left_out > 12


def test_texts_of_ten_megabytes_are_cut_and_the_page_says_so(tmp_path: Path) -> None:
    huge = "<b>\u202e1;\n" * 1_500_000  # 10.5 million characters, every line a step
    url = f"sqlite:///{tmp_path / 'log.db'}"

    long = huge[: 2 * TEXT]

    class Huge(Player):
        def text(self, words: str) -> str:
            return super().text(words + (huge if "r1.q0.a0" in words else long))

    with diagevo.open(url, "huge", root=tmp_path) as memory:
        p = Huge(memory)
        memory.configure(
            RunConfigured(
                config=CONFIG,
                models={},
                embedder=Embedder(name="e", dimension=4, revision=""),
                version=diagevo.__version__,
            )
        )
        p.open(1)
        p.score(p.question(0, [(long, 8), ("2", 4)], "kept"))
        p.fail("r1.q0.a0")
        p.diagnose("r1.q0.a0", "new_cause", description=long)
        p.trained()
        p.settle_new("r1.q0.a0", nearest=None, label=long)
        p.commit()
    database = Database(url)
    view = View(Site(database, live=True))
    paths = ("index", "causes", "causes/c1", "nodes/n1", "rounds/1", "questions/r1.q0", "failures/r1.q0.a0")
    for path in (*paths, "log", "what-if"):
        text = view.render(f"huge/{path}.html")
        assert len(text) < 30 * TEXT, path
        assert "<b>" not in text
        assert "\u202e" not in text
    assert "more characters in the log" in view.render("huge/questions/r1.q0.html")
    assert "Long texts are cut here" in view.render("huge/failures/r1.q0.a0.html")
    database.close()


def test_two_texts_are_compared_step_by_step_up_to_a_number_of_steps() -> None:
    sides = side_by_side("9*9=81;81+38=119;119-53=66", "9*9=81;81+38=118;118-53=65")
    assert [side.same for side in sides] == [True, False, False]
    assert (sides[1].left, sides[1].right) == ("81+38=119;", "81+38=118;")
    assert [side.left for side in side_by_side("one;two\nthree", "")] == ["one;two", "three"]
    assert len(side_by_side("a\n" * 100_000, "b\n" * 100_000)) == STEPS
    assert len(side_by_side(";" * 100_000, "")) == STEPS


def test_a_chart_of_many_steps_draws_the_means_of_those_that_follow_each_other() -> None:
    values = [None if step == 3 else float(step) for step in range(1, 502)]
    drawn = chart("reward", range(1, 502), [Series("solver", values)], over="step")
    assert drawn is not None
    assert drawn.title == "reward: means of 3 steps"
    assert drawn.rows[:3] == (("step", "solver"), ("1–3", "1.5"), ("4–6", "5"))
    assert len(drawn.rows) == 1 + 167
    assert drawn.drawings[0].lines[0].marks[1].label == "step 4–6: solver 5"
    assert [label for _, label in drawn.drawings[0].across][:2] == ["1", "37"]
    few = chart("reward", range(1, 201), [Series("solver", values[:200])], over="step")
    assert few is not None
    assert (few.title, len(few.rows)) == ("reward", 201)


def test_what_a_run_was_is_kept_until_it_goes_on_and_who_writes_it_is_asked_each_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    database = Database(url)
    prepare(database, create=True)
    play_randomly(url, "a", 1, root=tmp_path, rounds=2, pool=6)
    site = Site(database, live=True)
    at_rest = site.story("a")
    with diagevo.open(url, run="a", root=tmp_path) as memory:
        memory.open_round(3)
        held = site.story("a")
        assert (at_rest.line.open_round, held.line.open_round) == (None, 3)
        assert held.rounds is not at_rest.rounds
        assert held.line.writer
    left = site.story("a")
    assert left.line.writer is None
    assert left.rounds is held.rounds
    database.close()
