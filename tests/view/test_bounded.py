"""Every page that is served ends in time, whatever query it waits for: a page says so, and what to do."""

import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import Connection

from diagevo.errors import StoreError
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.log.database import Database
from diagevo.view import site
from diagevo.view.page import Site
from diagevo.view.site import ROUTES, View
from tests.contracts.databases import PostgresStores
from tests.view.conftest import TOKEN, serving
from tests.view.test_responses import Home

ROWS = [
    {"prompt": f"{n} + 1", "response": f"{n + 1 + (s == 1)}", "reward": int(s != 1)}
    for n in range(6)
    for s in range(3)
]
PATHS = (
    *("index", "own/index", "own/diagnostics", "own/report", "own/against/other", "own/compare", "own/live"),
    *("own/causes", "own/causes/c1", "own/nodes/n1", "own/rounds/1", "own/questions/r1.q0"),
    *(
        "own/failures/r1.q0.a1",
        "own/responses",
        f"own/prompts/{digest_of('0 + 1')}",
        "own/what-if",
        "own/log",
    ),
    *("own/verify",),
)
"""A page of each route."""
SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)"
    " SELECT count(*) FROM n",
    "postgresql": "SELECT pg_sleep(60)",
}
"""A minute."""


def fill(home: Home) -> None:
    """Two evaluations; a cause of the first is what a person said."""
    for run in ("other", "own"):
        home.ingest(run, ROWS)
        home.run("diagnose", "--run", run, "--local")
    home.run("memory", "assign", "r1.q0.a1", "--new", "adds one too many", "--run", "own")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    home = Home(tmp_path_factory.mktemp("bounded"))
    fill(home)
    opened = Database(home.db)
    yield opened
    opened.close()


class Reads:
    """Counts what is read of a database; the one that is `slow` waits for a query of a minute first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.slow = 0, -1
        read = Database.read

        @contextmanager
        def counted(database: Database) -> Generator[Connection]:
            with read(database) as connection:
                self.count += 1
                if self.count == self.slow:
                    connection.exec_driver_sql(SLOW[database.dialect]).fetchall()
                yield connection

        monkeypatch.setattr(Database, "read", counted)


def given_up(reads: Reads, make: Callable[[], object]) -> None:
    """With the last query slow that `make` waits for."""
    reads.count, reads.slow = 0, -1
    make()
    assert reads.count > 0
    reads.count, reads.slow = 0, reads.count
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(site, "SECONDS", 1.0)
        with pytest.raises(StoreError, match=r"given up: its queries took longer than 1 seconds") as told:
            make()
    assert 1 <= time.monotonic() - began < 20
    assert told.value.hint is not None
    assert told.value.hint.startswith("ask where nothing is given up: diagevo ")
    reads.count, reads.slow = 0, -1
    make()  # the connection is as good as before


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [pattern for pattern, *_ in ROUTES])
def test_every_page_is_given_up_where_a_query_takes_too_long(
    database: Database, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = [path for path in PATHS if re.fullmatch(pattern, path)]
    given_up(Reads(monkeypatch), lambda: View(Site(database, live=True)).render(f"{path}.html"))


def test_what_is_served_beside_a_page_is_given_up_too(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(monkeypatch)
    given_up(reads, lambda: View(Site(database, live=True)).sliders("own"))
    given_up(reads, lambda: View(Site(database, live=True)).written("own", "csv", {}))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["index", "own/index", "own/responses"])
def test_postgresql_gives_up_too(
    tmp_path: Path, postgres_stores: PostgresStores, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgres_stores.new(tmp_path)
    fill(Home(tmp_path, store.url))
    database = Database(store.reading)
    given_up(Reads(monkeypatch), lambda: View(Site(database, live=True)).render(f"{path}.html"))
    database.close()


def test_the_browser_is_told_what_took_too_long_and_what_to_do(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(database) as served, httpx.Client(base_url=served.base, trust_env=False) as client:
        assert client.get(f"own/causes.html?token={quote(TOKEN)}", follow_redirects=True).status_code == 200
        monkeypatch.setattr(site, "SECONDS", 0.0)
        told = client.get("own/causes.html")
        assert told.status_code == 409
        assert "own/causes.html was given up: its queries took longer than 0 seconds" in told.text
        assert "diagevo memory show --run own" in told.text
        monkeypatch.undo()
        assert client.get("own/causes.html").status_code == 200


def test_a_folder_of_pages_may_take_its_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "SECONDS", 0.0)
    assert "<h1>" in View(Site(database, live=False)).render("own/causes.html")
