"""A database's location: a path or a SQLAlchemy URL, refused with a reason if invalid; and its form for
messages."""

import errno
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from diagevo.errors import ConfigError, MissingDependencyError
from diagevo.text.escaping import shortened
from diagevo.text.redaction import masked, remember

DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
"""What each URL scheme means here."""

_LONGEST = 200
"""Maximum characters of a location in an error."""


def database_url(location: str) -> URL:
    """A SQLAlchemy URL, or the path of an SQLite file. Raises ConfigError if it is neither."""
    if "\0" in location or not _is_text(location) or not location.strip():
        raise ConfigError(
            f"{location!r} cannot name a database: it is empty, or holds a NUL or what is not UTF-8",
            hint="give another: --db FILE",
        )
    if "://" not in location:
        if re.match(r"(sqlite|postgres)[\w+]*:", location):
            raise ConfigError(
                f"not a database: {_redacted(location)}",
                hint="a URL has :// after its first word, as in sqlite:///FILE",
            )
        return _file(URL.create("sqlite", database=location), location)
    try:
        url = make_url(location)
    except ArgumentError as error:
        raise ConfigError(
            f"not a database: {_redacted(location)}", hint="give a path or a SQLAlchemy URL"
        ) from error
    except ValueError as error:  # of a port, or a host in brackets that do not close
        raise ConfigError(
            f"the address in {_redacted(location)} cannot be read",
            hint="write postgresql://USER@HOST:PORT/NAME with a number as the port, an IPv6 address in [ ]",
        ) from error
    if url.drivername not in DRIVERS:
        raise ConfigError(f"{url.drivername} is not supported", hint="use sqlite:///FILE or postgresql://")
    url = url.set(drivername=DRIVERS[url.drivername])
    if "\0" in "".join(map(str, (*url.translate_connect_args().values(), *url.query.values()))):
        raise ConfigError(f"{_redacted(location)} holds a NUL", hint="leave %00 out")
    return _file(url, location) if url.drivername == "sqlite" else _server(url, location)


def shown(url: URL) -> str:
    """The URL for messages, without a password anywhere in it."""
    return masked(url.render_as_string(hide_password=False))


def _is_text(location: str) -> bool:
    """Bytes on the command line that are not UTF-8 arrive as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in location)


def _redacted(location: str) -> str:
    return shortened(masked(location), _LONGEST)


def _file(url: URL, location: str) -> URL:
    """Raises ConfigError for a URL that cannot name a file."""
    if url.host or url.username or url.port or url.query:
        raise ConfigError(
            f"not an SQLite file: {_redacted(location)}",
            hint="write sqlite:///FILE, or sqlite:////FILE from the root, and nothing after it",
        )
    if url.database in (None, "", ":memory:"):
        raise ConfigError("a log in memory would be lost", hint="give a file: sqlite:///runs/diagevo.db")
    try:
        os.stat(Path(url.database or ""))
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):  # no file can exist there
            raise ConfigError(
                f"{_redacted(location)} cannot name a file: {error.strerror}", hint="give another: --db FILE"
            ) from error
    return url


def _server(url: URL, location: str) -> URL:
    """Raises ConfigError for a URL that PostgreSQL's driver would refuse."""
    if "@" in (url.host or ""):
        raise ConfigError(
            f"the password in {_redacted(location)} holds an @", hint="write it as %40, and a % as %25"
        )
    if url.port is not None and not 0 < url.port < 65536:
        raise ConfigError(
            f"the port in {_redacted(location)} is out of range", hint="a port is between 1 and 65535"
        )
    if find_spec("psycopg") is None:
        raise MissingDependencyError(
            "PostgreSQL needs psycopg, not installed here", hint="run: pip install 'diagevo[postgres]'"
        )
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo, timeout_from_conninfo
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    try:
        dialect: Any = PGDialect_psycopg()  # this method's argument has no type
        options = dialect.create_connect_args(url)[1]
        make_conninfo(**options)
        timeout_from_conninfo(options)
    except (ArgumentError, ProgrammingError, ValueError) as error:
        raise ConfigError(
            f"{_redacted(location)}: {masked(str(error)).strip()}",
            hint="what may stand in it: PostgreSQL's connection strings and SQLAlchemy's URLs",
        ) from error
    for name, value in url.query.items():
        if "pass" in name and isinstance(value, str):
            remember(value)
    remember(None if url.password is None else str(url.password))
    return url
