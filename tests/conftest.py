"""What holds for every test. Ten times the examples of hypothesis: pytest --hypothesis-profile=deep"""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.forked import SERVER
from tests.once import shared
from tests.order import shares

if TYPE_CHECKING:
    from tests.contracts.databases import PostgresServer, PostgresStores, SQLiteStores, Store

settings.register_profile("untimed", settings(), deadline=None)  # a machine may be busy
settings.register_profile("deep", max_examples=1000, deadline=None)
settings.load_profile("untimed")

# The number of torch's threads decides the last bits of weights, which tests compare between processes. Set
# before anything imports torch; a program that a test starts inherits it.
os.environ["OMP_NUM_THREADS"] = "1"
# TRL imports MLflow wherever it is installed, which takes a sixth of its own time.
os.environ["DISABLE_MLFLOW_INTEGRATION"] = "TRUE"

# A shell that starts tests in the background ignores Ctrl-C for them; their programs would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

MEMORY = Path("/dev/shm")
if not os.environ.keys() & {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} and MEMORY.is_dir():
    # A third of the time was waiting for a disk to write what is soon deleted: three gigabytes at most.
    held = os.statvfs(MEMORY)
    if held.f_bavail * held.f_frsize > 6 * 2**30 and not held.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None

gc.disable()  # until all is imported
RUNS = Path(__file__).parents[1] / "runs"
SLOW = {"unbroken", "one_step", "watcher", "trained_home", "page"}
"""Fixtures that train, half a minute for the first test that asks for one, and the browser's."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and SLOW & set(item.fixturenames):
            item.add_marker("slow")
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        files = {item.path for item in items if item.get_closest_marker("slow")}
        items[:] = shares(
            [i for i in items if i.path in files], [i for i in items if i.path not in files], workers
        )


def pytest_collection_finish() -> None:
    """What was imported stays: a quarter of a small training was looking for garbage among it."""
    gc.enable()
    gc.freeze()


def _written() -> dict[Path, int]:
    """When each run in the checkout's own `runs`, and each file at its top, was written to last."""
    found = [RUNS, *RUNS.glob("*"), *RUNS.glob("*/*")]
    return {path: path.stat().st_mtime_ns for path in found if path.exists()}


@pytest.fixture(scope="session", autouse=True)
def _one_server_forks_for_all_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ[SERVER] = str(shared(tmp_path_factory) / "forks")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """openai's client pauses for ten milliseconds before it asks again, not for half a second."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)


@pytest.fixture(scope="session")
def sqlite_stores(tmp_path_factory: pytest.TempPathFactory) -> "SQLiteStores":
    from tests.contracts.databases import SQLiteStores

    return SQLiteStores(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[PostgresServer]":
    from tests.contracts.databases import PostgresServer

    server = PostgresServer(tmp_path_factory.mktemp("pg"))
    server.set(max_wal_size=64, min_wal_size=32)  # megabytes of memory
    yield server
    server.stop()


@pytest.fixture
def postgres_stores(postgres_server: "PostgresServer") -> "Iterator[PostgresStores]":
    """For one test."""
    from tests.contracts.databases import PostgresStores

    stores = PostgresStores(postgres_server)
    yield stores
    stores.drop()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> "Store":
    """An empty, migrated database of one's own, on either."""
    name = "sqlite_stores" if request.param == "sqlite" else "postgres_stores"
    return request.getfixturevalue(name).new(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_is_written_into_the_runs_of_the_checkout() -> Iterator[None]:
    before = _written()
    yield
    assert _written() == before, f"a test that ran now has written into {RUNS}"


@pytest.fixture
def an_engine_inside() -> Iterator[None]:
    from tests.sampling.real_vllm import engine_inside

    with engine_inside():
        yield
