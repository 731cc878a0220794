"""The role that `memory query` runs as on PostgreSQL: it may read the tables and views, and do nothing else.

A SELECT can call functions that a read-only transaction does not hold back: `pg_reload_conf()`,
`pg_terminate_backend(…)`, `lo_export(…)`. PostgreSQL refuses them to a role without their rights. The role
cannot log in; what runs as it runs inside the two functions of revision 0004, which it owns.
"""

from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

ROLE = "diagevo_reader"
FUNCTIONS = ("diagevo_open(text, text)", "diagevo_page(refcursor, integer)")


def install(connection: Connection) -> None:
    """Make the role, let it read, and give it the functions. Where the rights for it are missing, the
    functions stay with whoever upgraded, and `db check` says so."""
    with _tried(connection):
        connection.execute(text(f"CREATE ROLE {ROLE} NOLOGIN"))
    with _tried(connection):
        schema, user, everywhere = connection.execute(
            text(
                "SELECT quote_ident(current_schema()), quote_ident(current_user), rolsuper"
                " FROM pg_roles WHERE rolname = current_user"
            )
        ).one()
        if not everywhere:  # only a member of a role can make it an owner; perhaps this is one already
            with _tried(connection):
                connection.execute(text(f"GRANT {ROLE} TO {user}"))
        connection.execute(text(f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {ROLE}"))
        connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {ROLE}"))
        for function in FUNCTIONS:
            connection.execute(text(f"ALTER FUNCTION {function} OWNER TO {ROLE}"))
            connection.execute(text(f"GRANT EXECUTE ON FUNCTION {function} TO {user}"))
        connection.execute(text(f"REVOKE CREATE ON SCHEMA {schema} FROM {ROLE}"))


@contextmanager
def _tried(connection: Connection) -> Generator[None]:
    """A step that may be refused: the role is there already, or the rights are not."""
    try:
        with connection.begin_nested():
            yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) not in ("42710", "42501", "42704"):
            raise


def owner(connection: Connection) -> tuple[str, bool] | None:
    """Whose rights a query has, and whether that is a superuser; None where the functions are missing."""
    found = connection.execute(
        text(
            "SELECT rolname, rolsuper FROM pg_proc JOIN pg_roles ON pg_roles.oid = proowner"
            " WHERE pg_proc.oid = to_regprocedure(:open) AND prosecdef"
        ),
        {"open": FUNCTIONS[0]},
    ).one_or_none()
    return None if found is None else (found.rolname, found.rolsuper)
