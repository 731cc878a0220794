"""On random histories of every kind the figures of screens, pages and frames are those of the events, counted
by an oracle that knows no view and no projection; on both databases."""

import json
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import text

from diagevo.memory.audit.verify import verify
from diagevo.memory.frames import RunFrames
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.read.counts import matrix
from diagevo.memory.read.pass_rates import PassRates, pass_rates
from diagevo.memory.read.round_figures import rounds
from diagevo.memory.transfer.rebuilding import rebuild_projections
from diagevo.view.page import Site
from diagevo.view.site import View
from tests.cli.program import invoke
from tests.contracts.databases import Store
from tests.memory.read.histories import histories
from tests.memory.read.oracle import Figures, figures


@pytest.mark.parametrize("seed", range(3))
def test_the_figures_of_screens_pages_and_frames_are_those_of_the_events(store: Store, seed: int) -> None:
    runs = histories(store, seed)
    with closing(Database(store.url)) as database:
        view = View(Site(database, live=True))
        for run in runs:
            history = History(database, run, store.root)
            right = figures(history.log.read(run))
            _rounds(history, right)
            _frames(history, right)
            _matrix(history, right)
            _shown(store, run, right)
            if history.ingested is not None:
                _rates(pass_rates(history), right)
                page = view.render(f"{run}/index.html")
                failed, named = len(right.failures), len(right.cause_of)
                assert not failed or f"{named:,} have a cause" in page
            assert verify(history.log, run, store.root / run).faults == []


def _rounds(history: History, right: Figures) -> None:
    lines = {line.round: line for line in rounds(history)}
    assert lines.keys() == right.rounds.keys()
    for number, expected in right.rounds.items():
        found = {name: getattr(lines[number], name) for name in expected}
        found |= {name: sorted(found[name]) for name in ("promoted", "reactivated")}
        assert found == expected


def _frames(history: History, right: Figures) -> None:
    frames = RunFrames(history)
    assert set(frames.failures()["failure_id"]) == right.failures
    assert frames.failures().height == len(right.failures)
    under = {row["failure_id"]: row["cause_id"] for row in frames.failures().to_dicts() if row["cause_id"]}
    assert under == right.cause_of
    assert frames.candidates()["question_id"].to_list() == right.questions
    groups = frames.groups()
    assert groups.height == sum(numbers[0] for numbers in right.steps.values())
    joined = groups.join(frames.rounds(), on="round")
    played = [numbers[0] for (number, _), numbers in right.steps.items() if number in right.rounds]
    assert joined.height == sum(played)


def _matrix(history: History, right: Figures) -> None:
    failures: dict[str, int] = {}
    found = matrix(history)
    assert (found.rounds, found.left_out) == (tuple(right.rounds), 0)
    for cause, cells in found.rows:
        failures[cause.cause_id] = sum(cell.failures for cell in cells if cell is not None)
    committed = {name: cause for name, cause in right.cause_of.items() if _round_of(name) in right.rounds}
    assert failures == {cause: list(committed.values()).count(cause) for cause in failures}
    assert set(committed.values()) <= failures.keys()


def _round_of(failure: str) -> int:
    return int(failure[1:].partition(".")[0])


def _rates(rates: PassRates | None, right: Figures) -> None:
    assert rates is not None
    steps = {
        (one.round, one.step): [one.groups, one.all_passed, one.all_failed, one.rollouts, one.passes]
        for one in rates.steps
    }
    assert steps == right.steps
    assert {
        one.cause_id: [one.failures, one.groups, one.rollouts, one.passes] for one in rates.causes
    } == right.causes
    assert {one.tag: [one.groups, one.rollouts, one.passes] for one in rates.tags} == right.tags
    prompts = list(right.prompts.values())
    assert rates.failures == len(right.failures)
    assert rates.rollouts == sum(one[0] for one in prompts)
    assert rates.failed == sum(one[0] - one[1] for one in prompts)
    assert rates.without_cause == sum(one[2] for one in prompts)
    assert rates.never == sum(one[1] == 0 for one in prompts)
    assert rates.dropped == right.dropped
    unexplained = {one.question: [one.rollouts, one.passes, one.without_cause] for one in rates.unexplained}
    assert unexplained == {name: one for name, one in right.prompts.items() if one[2]}
    again = None if rates.again is None else (*rates.again, rates.again_se)
    assert again == (None if right.again is None else pytest.approx(right.again))


def _data(store: Store, *words: str) -> Any:
    done = invoke(*words, "--db", store.url, "--json", env={"DIAGEVO_HOME": str(store.root)})
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["data"]


def _shown(store: Store, run: str, right: Figures) -> None:
    """`runs show`, as JSON."""
    shown = _data(store, "runs", "show", run)
    assert [line["round"] for line in shown["rounds"]] == list(right.rounds)
    for line in shown["rounds"]:
        expected = right.rounds[line["round"]]
        assert {name: line[name] for name in ("observed", "kept", "rollouts", "passes", "verdicts")} == {
            name: expected[name] for name in ("observed", "kept", "rollouts", "passes", "verdicts")
        }


def test_the_views_of_a_run_are_the_same_after_its_projections_are_made_again(store: Store) -> None:
    runs = histories(store, 3)
    asked = ("v_round", "v_step", "v_prompt", "v_cause_question", "v_group", "v_rollouts", "v_cause_history")

    def rows(database: Database, run: str, view: str) -> list[str]:
        columns = "round, observed, promoted_causes, superseded_by" if view == "v_round" else "*"
        asked = text(f"SELECT {columns} FROM {view} WHERE run_id = :run")
        with database.read() as connection:
            found = connection.execute(asked, {"run": run})
            # Rows lie in another order then, and the last digit of a sum is that of its order.
            return sorted(repr([round(v, 12) if isinstance(v, float) else v for v in row]) for row in found)

    with closing(Database(store.url)) as database:
        for run in runs:
            before = {view: rows(database, run, view) for view in asked}
            rebuild_projections(History(database, run))
            assert {view: rows(database, run, view) for view in asked} == before
