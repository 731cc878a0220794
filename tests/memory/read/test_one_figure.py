"""One ε and one p for a round, whoever tells them, in histories whose settings, causes and rounds changed
after a commit: what a round is drawn with, and under another name what the commit before it recorded."""

import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

import diagevo
from diagevo.integrations.trackers import figures
from diagevo.memory.compare.replay import describe, next_schedule
from diagevo.memory.events import RoundCommitted, RoundOpened
from diagevo.memory.history import History, open_history
from diagevo.memory.read.runs import list_runs, run_story
from diagevo.report.report_data import gather
from tests.cli.program import invoke
from tests.contracts.databases import Store
from tests.memory.read.histories import histories


def recorded(history: History, kind: type[Any], field: str) -> dict[int, Fraction]:
    """By round, from the events alone."""
    return {one.round: Fraction(getattr(one.event, field)) for one in history.events(kind)}


def asked(history: History, view: str, columns: str) -> list[tuple[Any, ...]]:
    query = f"SELECT {columns} FROM {view} WHERE run_id = '{history.run_id}'"
    with history.log.database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]


def shown(store: Store, run: str, *command: str) -> Any:
    found = invoke(*command, "--run", run, "--db", store.url, "--json", env={"DIAGEVO_HOME": str(store.root)})
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)["data"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_every_reader_gives_one_epsilon_and_one_p_for_a_round(store: Store, seed: int) -> None:
    changed = 0
    for run in histories(store, seed):
        history = open_history(store.url, run, root=store.root)
        drawn = recorded(history, RoundOpened, "epsilon")
        committed = recorded(history, RoundCommitted, "epsilon_next")
        for number, *both in asked(history, "v_round", "round, epsilon, epsilon_committed"):
            assert [Fraction(one) for one in both] == [drawn[number], committed[number]]

        # By the events, ε that the round after each one that counts is drawn with; of the last, by the state.
        state, now = history.state(history.end), describe(history.state(history.end))
        counting = [one.round for one in history.counted(history.end)]
        after = dict(pairwise(counting))
        last = now.epsilon_next if state.open is None else drawn[state.open.number]
        told = {number: drawn[after[number]] if number in after else last for number in counting}
        changed += sum(told[number] != committed[number] for number in counting)

        for lines in (run_story(history).rounds, gather(history).rounds):
            assert {line.round: line.epsilon_next for line in lines if line.round in told} == told
        tracked = [row for row in figures(history) if "epsilon_next" in row]
        assert {row["round"]: row["epsilon_next"] for row in tracked} == {
            n: float(e) for n, e in told.items()
        }
        frame = diagevo.read(store.url, run, root=store.root)
        rows = frame.rounds().select("round", "epsilon_next_exact").rows()
        assert {number: Fraction(one) for number, one in rows} == told
        [line] = [line for line in list_runs(history.database) if line.run_id == run]
        assert line.epsilon_next == (told[counting[-1]] if counting else line.epsilon_next)

        shares = {one.id: one.probability for one in now.causes if one.probability is not None}
        for command in (("memory", "show"), ("memory", "replay")):
            found = shown(store, run, *command)
            of = {one["id"]: one["probability"] for one in found["causes"]}
            assert Fraction(found["epsilon_next"]["exact"]) == now.epsilon_next
            assert {name: Fraction(p["exact"]) for name, p in of.items() if p} == shares
        recorded_p = frame.history().select("round", "cause_id", "probability_committed_exact").rows()
        asked_p = asked(history, "v_cause_history", "round, cause_id, probability_committed")
        assert set(recorded_p) == set(asked_p)
        if state.open is None:
            causes = frame.causes().select("cause_id", "probability_exact").rows()
            assert {name: Fraction(one) for name, one in causes if one} == shares
            schedule = next_schedule(now)
            assert schedule.epsilon == last
            assert {one.cause: one.probability for one in schedule.causes} == shares
        history.close()
        if state.open is None:
            with store.open(run) as memory:  # what is drawn then is what they told
                opened = memory.open_round(memory.state.round + 1)
            assert opened.epsilon == last
            assert {name: one.p for name, one in opened.shares.items()} == shares
    assert changed
