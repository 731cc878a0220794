"""PostgreSQL: how long a session waits for another one, how long it may hold it up, and who does.

A program that stands still inside a transaction (stopped, swapped out, its machine gone) would stop every
run. So the server ends a transaction that nobody goes on with, and whoever waits goes on by itself. A lock of
a program with other settings is waited for a little longer; then the error names it.
"""

import os
import socket
from typing import Any

from diagevo.errors import StoreError

IDLE_SECONDS = 60
"""A writing transaction is statements in a row, with milliseconds between them. One that stood still for this
long was stopped, or its machine is gone. Reading transactions hold nobody up, and have no bound."""

LOCK_SECONDS = 90
"""How long a lock is waited for. More than IDLE_SECONDS: one of our own holders has been ended by then."""

KEEPALIVES = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A server that is gone is noticed within a minute, and so does the server notice (`bound`); by the system's
own settings, after two hours."""

LOCK_NOT_AVAILABLE = "55P03"
IDLE_ENDED = "25P03"
"""SQLSTATEs of the two limits."""

_HOLDERS = """SELECT pid, application_name, host(client_addr), xact_start::timestamptz(0)::text, state
FROM pg_stat_activity AS session
JOIN LATERAL (
    SELECT bool_and(mode = 'AccessShareLock') AS reads FROM pg_locks
    WHERE pg_locks.pid = session.pid AND granted AND relation IN (to_regclass('log'), to_regclass('event'))
    HAVING count(*) > 0
) AS held ON true
WHERE pid <> pg_backend_pid() AND datname = current_database()
ORDER BY coalesce(wait_event_type, '') = 'Lock', reads, xact_start LIMIT 1"""
"""Who holds the log: a session that itself waits, or only reads, comes last."""


def this_process() -> str:
    """What this process is called, to the server and in a lock's file."""
    return f"diagevo {os.getpid()} on {socket.gethostname()}"[:63]  # PostgreSQL would cut it there


def session(options: dict[str, Any]) -> dict[str, Any]:
    """`options` of a connection, with ours where the user's URL says nothing."""
    return {"fallback_application_name": this_process(), **KEEPALIVES, **options}


def bound(connection: Any) -> None:
    """Give a new session its limits. Its cursors are planned to be read to their end, as ours are: for a
    quick first row the server would walk through the events of every later run."""
    connection.autocommit = True  # what is set in a transaction ends with it
    connection.execute(
        f"SET lock_timeout = '{LOCK_SECONDS}s'; SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';"
        " SET cursor_tuple_fraction = 1;"
        " SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
    )
    connection.autocommit = False


def explained(engine: Any, where: str, error: Any) -> StoreError | None:
    """The error of one of the two limits, in words; None for any other."""
    if getattr(error, "sqlstate", None) == IDLE_ENDED or "idle-in-transaction timeout" in str(error):
        return StoreError(
            f"this process was idle for {IDLE_SECONDS} s inside a transaction, and {where} ended it",
            hint="nothing of the transaction was written; start the command again",
        )
    if getattr(error, "sqlstate", None) != LOCK_NOT_AVAILABLE:
        return None
    with engine.connect() as connection:
        found = connection.exec_driver_sql(_HOLDERS).one_or_none()
    if found is None:
        return StoreError(
            f"the log in {where} was locked for {LOCK_SECONDS} s, and is free now", hint="try again"
        )
    pid, name, address, since, state = found
    who = f"session {pid} ({name or 'without a name'}{f', from {address}' if address else ''})"
    return StoreError(
        f"the log in {where} is held by {who}, in a transaction since {since or 'it is not said when'}"
        f" and {state or 'of another user'}",
        hint=f"let it finish, or end it: SELECT pg_terminate_backend({pid})",
    )
