"""Read-only SQL over a log. Writing is refused by the database itself, not by looking at the text."""

from collections.abc import Generator
from contextlib import contextmanager

from diagevo.memory.audit.answer import PERSON, Limits, QueryResult
from diagevo.memory.log.database import Database

VIEWS: dict[str, str] = {
    "v_round": "a committed round a row: F, its reference, ε of the next, counts, the hash of the state;"
    " superseded_at, where it counts no more",
    "v_superseded": "a superseding a row: rounds first to last count no more since, and why",
    "v_cause": "a cause a row, as of the last commit, with its node",
    "v_node": "a skill node a row; an absorbed one names its survivor",
    "v_cause_history": "a cause and round a row: state, frequency and p after that commit",
    "v_candidate": "a scored question a row: mode, aim, votes and what they are, verdict, why invalid, truth",
    "v_failure": "an observed failure a row, void ones included: question, stage, step; is its label true",
    "v_diagnosis": "a diagnosis a row: verdict, cause or description",
    "v_match": "a failure counted under a stored cause a row: by recurrence or deduplication",
    "v_promotion": "a promotion a row: mean p1, threshold, closed frequency",
    "v_reactivation": "a reactivation a row, with the promotion it undid",
    "v_question": "a scored question a row, its text and those of its causes; votes, label, truth",
    "v_trajectory": "an observed failure a row with its texts; label, truth, the cause it was counted under",
    "v_group": "a group of another trainer's rollouts a row: its step, prompt, rollouts, passes and outcome",
    "v_step": "a step of another trainer a row: its groups by outcome, rollouts, passes and pass rate",
    "v_event": "an event a row, its payload as JSON text",
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
