"""The views of another trainer's rollouts on both databases, counted by hand from three groups."""

import json
import re
from contextlib import closing

from diagevo.config.models import IngestConfig
from diagevo.ingest.recording import IngestSummary, Recorder
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.memory.audit.query import query
from diagevo.memory.log.database import Database
from tests.contracts.databases import Store
from tests.ingest.conftest import step
from tests.ingest.test_recording import diagnose

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


def test_a_response_is_a_row_with_its_texts_where_the_log_keeps_them(store: Store) -> None:
    """Of b all three passed, so the first is kept; c is in a step that waits for its round."""
    said = [
        IngestedRollout("a", "a0", 1.0, tags=("sql", "easy"), model="m1"),
        IngestedRollout("a", "a1", 0.25, tags=("sql", "easy"), model="m1", feedback="no such column"),
        IngestedRollout("a", "a2", 1.0, tags=("sql", "easy"), model="m1"),
        IngestedRollout("a", "other", 0.0, model="m2"),
        *(IngestedRollout("b", f"b{n}", 1.0, feedback="good" if n == 0 else None) for n in range(3)),
    ]
    steps = [RolloutStep(1, "1.jsonl", said), RolloutStep(2, "2.jsonl", [IngestedRollout("c", "c0", 0.0)])]
    rows = """SELECT round, step, question_id, sample, prompt, response, feedback, verdict, reward, model,
        tags, failure_id, cause_id FROM v_response WHERE run_id = :run ORDER BY position, sample"""
    group = (1, 1, "r1.q0")
    kept = [
        (*group, 0, "a", "a0", None, "passed", 1.0, "m1", ["sql", "easy"], None, None),
        (*group, 1, "a", "a1", "no such column", "failed", 0.25, "m1", ["sql", "easy"], "r1.q0.a1", "c1"),
        (*group, 2, "a", "a2", None, "passed", 1.0, "m1", ["sql", "easy"], None, None),
        (1, 1, "r1.q1", 0, "a", "other", None, "failed", 0.0, "m2", [], None, None),
        (1, 1, "r1.q2", 0, "b", "b0", "good", "passed", 1.0, None, [], None, None),
        (2, 2, "r2.q0", 0, "c", "c0", None, "failed", 0.0, None, [], None, None),
    ]
    with store.open("a") as memory:
        Recorder(memory, IngestConfig(steps_per_round=1)).record(steps, IngestSummary())
        diagnose(memory, {"a": "names no column"})
    with closing(Database(store.reading)) as database, query(database, rows, run_id="a") as found:
        assert [(*row[:10], json.loads(row[10]), *row[11:]) for row in map(tuple, found.rows)] == kept
    # As version 1 of the event has it: of the responses that passed the first, no feedback, no tags.
    store.rewrite(lambda row: re.sub(r',"(passed|feedback|tags)":\[[^]]*\]', "", row.payload))
    older = "SELECT sample, response, feedback FROM v_response WHERE run_id = :run ORDER BY position, sample"
    with closing(Database(store.reading)) as database, query(database, older, run_id="a") as found:
        assert [tuple(row) for row in found.rows] == [
            *((0, "a0", None), (1, "a1", None)),
            *((0, "other", None), (0, "c0", None)),
        ]
