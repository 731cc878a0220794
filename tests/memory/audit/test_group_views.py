"""The views of another trainer's rollouts on both databases, counted by hand from three groups."""

from contextlib import closing

from diagevo.config.models import IngestConfig
from diagevo.ingest.recording import IngestSummary, Recorder
from diagevo.memory.audit.query import query
from diagevo.memory.log.database import Database
from tests.contracts.databases import Store
from tests.ingest.conftest import step

STEPS = (step(1, a="+--", b="++"), step(2, a="---"))


def test_a_group_and_a_step_are_a_row_with_what_passed(store: Store) -> None:
    with store.open("a") as memory:
        Recorder(memory, IngestConfig(steps_per_round=2)).record(STEPS, IngestSummary())
    with closing(Database(store.reading)) as database:
        groups = "SELECT round, step, place, prompt, answer, rollouts, passes, pass_rate, outcome, source"
        with query(database, f"{groups} FROM v_group WHERE run_id = :run", run_id="a") as found:
            assert [tuple(row) for row in found.rows] == [
                (1, 1, 0, "a", "7", 3, 1, 1 / 3, "contrast", "1.jsonl"),
                (1, 1, 1, "b", "7", 2, 2, 1.0, "all_passed", "1.jsonl"),
                (1, 2, 0, "a", "7", 3, 0, 0.0, "all_failed", "2.jsonl"),
            ]
        steps = "SELECT round, step, groups, all_passed, contrast, all_failed, rollouts, passes, pass_rate"
        steps += " FROM v_step WHERE run_id = :run ORDER BY step"
        with query(database, steps, run_id="a") as found:
            assert [tuple(row) for row in found.rows] == [
                (1, 1, 2, 1, 1, 0, 5, 3, 0.6),
                (1, 2, 1, 0, 0, 1, 3, 0, 0.0),
            ]
        prompts = "SELECT prompt, steps, rollouts, passes, first_step, first_pass_rate"
        prompts += ", last_step, last_pass_rate FROM v_prompt WHERE run_id = :run ORDER BY prompt"
        with query(database, prompts, run_id="a") as found:
            assert [tuple(row) for row in found.rows] == [
                ("a", 2, 6, 1, 1, 1 / 3, 2, 0.0),
                ("b", 1, 2, 2, 1, 1.0, 1, 1.0),
            ]
