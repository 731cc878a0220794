"""Where a database is: what cannot be one is refused before it is opened, and no password repeated."""

import pytest

from diagevo.errors import ConfigError
from diagevo.memory.log.location import database_url, shown


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("postgresql://h:abc/db", "the address in postgresql://h:abc/db cannot be read"),
        ("postgresql://[::1/db", "the address in postgresql://[::1/db cannot be read"),
        ("postgresql://h:99999999/db", "the port in postgresql://h:99999999/db is out of range"),
        (f"postgresql://h:{'9' * 5000}/db", "the address in postgresql://h:"),
        ("://x", "not a database: ://x"),
        ("postgresql:db", "not a database: postgresql:db"),
        ("sqlite:/x.db", "not a database: sqlite:/x.db"),
        ("foo://x", "foo is not supported"),
        ("mysql://h/db", "mysql is not supported"),
        ("postgresql+foo://h/db", "postgresql+foo is not supported"),
        ("postgresql+psycopg2://h/db", "postgresql+psycopg2 is not supported"),
        ("sqlite+aiosqlite:///x.db", "sqlite+aiosqlite is not supported"),
        ("sqlite://host/x.db", "not an SQLite file: sqlite://host/x.db"),
        ("sqlite:///x.db?timeout=abc", "not an SQLite file: sqlite:///x.db?timeout=abc"),
        ("sqlite://", "a log in memory would be lost"),
        ("sqlite:///a%00b/../\0", "cannot name a database"),
        ("postgresql://u%00@h/db", "postgresql://u%00@h/db holds a NUL"),
        ("sqlite:///\udcff.db", "cannot name a database"),
        (" ", "cannot name a database"),
        ("x" * 300, f"{'x' * 200}… (300 characters) cannot name a file: File name too long"),
        ("postgresql://h/db?foo=1", 'postgresql://h/db?foo=1: invalid connection option "foo"'),
        ("postgresql://h/db?connect_timeout=abc", "bad value for connect_timeout: 'abc'"),
        ("postgresql://h/db?port=abc", "non-integer port"),
        ("postgresql://h:1/db?host=a,b&port=1", "number of hosts and ports don't match"),
    ],
)
def test_what_is_no_database_is_refused_with_the_reason_and_the_next_step(location: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        database_url(location)
    assert said in refused.value.message
    assert refused.value.hint
    assert len(refused.value.message) < 400


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://u:Tr0ub4do@h:abc/db",
        "postgresql://u:p@Tr0ub4do@h/db",  # the @ is not escaped: the rest would be taken for the host's name
        "postgresql://h/db?sslpassword=Tr0ub4do&foo=1",
        "foo+bar://u:Tr0ub4do@h/db",
        "sqlite:///x.db?password=Tr0ub4do",
        "postgresql:u:Tr0ub4do@h/db",
    ],
)
def test_a_refused_location_is_told_without_its_password(location: str) -> None:
    with pytest.raises(ConfigError) as refused:
        database_url(location)
    assert "Tr0ub4do" not in str(refused.value)


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("postgresql://u:Tr0ub4do@h/db", "postgresql+psycopg://u:***@h/db"),
        ("postgres://u@h/db?password=Tr0ub4do", "postgresql+psycopg://u@h/db?password=***"),
        ("postgresql://u@h/db?sslpassword=Tr0ub4do", "postgresql+psycopg://u@h/db?sslpassword=***"),
        ("postgresql://u@[::1]:5432/db", "postgresql+psycopg://u@[::1]:5432/db"),
        ("runs/a.db", "sqlite:///runs/a.db"),
    ],
)
def test_a_database_is_shown_without_any_password(location: str, told: str) -> None:
    assert shown(database_url(location)) == told
