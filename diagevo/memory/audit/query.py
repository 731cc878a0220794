"""Read-only SQL over a log. Writing is refused by the database itself, not by looking at the text."""

from collections.abc import Generator
from contextlib import contextmanager

from diagevo.memory.audit.query_result import PERSON, Limits, QueryResult
from diagevo.memory.log.database import Database

VIEWS: dict[str, str] = {
    "v_round": "one row per committed round: F, its reference, ε of the next, counts, the hash of the state;"
    " superseded_at, if it no longer counts",
    "v_superseded": "one row per superseding: rounds first to last no longer count, and why",
    "v_cause": "one row per cause, as of the last commit, with its node",
    "v_node": "one row per skill node; an absorbed one names its survivor",
    "v_cause_history": "one row per cause and round: state, frequency and p after that commit",
    "v_candidate": "one row per scored question: mode, aim, votes and what they are, verdict, "
    "why invalid, truth",
    "v_failure": "one row per observed failure, void ones included: question, stage, step; "
    "whether its label is true",
    "v_diagnosis": "one row per diagnosis: verdict, cause or description",
    "v_match": "one row per failure counted under a stored cause: by recurrence or deduplication",
    "v_promotion": "one row per promotion: mean p1, threshold, closed frequency",
    "v_reactivation": "one row per reactivation, with the promotion it undid",
    "v_question": "one row per scored question, with its text and those of its causes; votes, label, truth",
    "v_trajectory": "one row per observed failure, with its texts; label, truth, the cause it "
    "was counted under",
    "v_group": "one row per group of another trainer's rollouts: its step, prompt, rollouts, "
    "passes and outcome",
    "v_step": "one row per step of another trainer: its groups by outcome, rollouts, passes and pass rate",
    "v_prompt": "one row per prompt of another trainer: its pass rate in the first and in the last step that"
    " had it",
    "v_event": "one row per event, its payload as JSON text",
}
"""The stable views and what a row of each is. `run_id` is a column of every one."""


@contextmanager
def query(
    database: Database, sql: str, *, run_id: str | None = None, limits: Limits = PERSON
) -> Generator[QueryResult]:
    """Run one statement that reads; `:run` in it is the run's name. Rows stream while the context is open.

    Raises ConfigError where the database refuses the statement (a write, several statements, bad SQL), or it
    takes more than the limits allow.
    """
    if database.dialect == "sqlite":
        from diagevo.memory.audit.query_sqlite import ask
    else:
        from diagevo.memory.audit.query_postgres import ask  # psycopg is an extra
    with ask(database, sql, run_id, limits) as answer:
        yield answer


def view_columns(database: Database) -> dict[str, tuple[str, ...]]:
    """The columns of each stable view, as the database has them."""
    found: dict[str, tuple[str, ...]] = {}
    for view in VIEWS:
        with query(database, f"SELECT * FROM {view} WHERE 1 = 0") as answer:
            found[view] = answer.columns
    return found
