"""PostgreSQL: how long a session waits for another, how long it may block others, and who holds the lock. A
program that hangs inside a transaction (stopped, swapped out, its machine gone) would stop every run. So the
server ends an idle transaction, and waiting sessions continue by themselves. A lock held by a program with
other settings is waited for a little longer; then the error names its holder.
"""

import os
import socket
from typing import Any

from diagevo.errors import StoreError

IDLE_SECONDS = 60
"""A write transaction runs its statements milliseconds apart. One that was idle for this long was stopped, or
its machine is gone. Read transactions block nobody, and have no limit."""

LOCK_SECONDS = 90
"""How long to wait for a lock. More than IDLE_SECONDS: a hung holder of our own has been ended by then."""

KEEPALIVES = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A lost server is detected within a minute, and so is a lost client (`bound`); with the system's defaults
it takes two hours."""

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
"""Who holds the log: sessions that wait themselves, or only read, come last."""


def this_process() -> str:
    """The name of this process, on the server and in a lock file."""
    return f"diagevo {os.getpid()} on {socket.gethostname()}"[:63]  # PostgreSQL would truncate it there


def session(options: dict[str, Any]) -> dict[str, Any]:
    """`options` of a connection, with ours where the user's URL sets none."""
    return {"fallback_application_name": this_process(), **KEEPALIVES, **options}


def bound(connection: Any) -> None:
    """Give a new session its limits. Its cursors are planned to be read to the end, as ours are: for a
    fast first row the server would scan the events of every later run."""
    connection.autocommit = True  # what is set in a transaction ends with it
    connection.execute(
        f"SET lock_timeout = '{LOCK_SECONDS}s'; SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';"
        " SET cursor_tuple_fraction = 1;"
        " SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
    )
    connection.autocommit = False


def explained(engine: Any, where: str, error: Any) -> StoreError | None:
    """The message for either timeout; None for any other error."""
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
