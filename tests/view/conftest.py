"""A served site and an exported folder of the hand-played run and of the hostile one, and a browser."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from diagevo.memory.log.database import Database
from diagevo.view.export import export
from diagevo.view.server import application
from diagevo.view.server import served as as_served
from tests.attack import hostile
from tests.memory.audit.played import play

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(
    (p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None
)
TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class Served:
    """A running server: `base` ends in a slash, `opening` is the address with the token."""

    base: str

    @property
    def opening(self) -> str:
        return f"{self.base}?token={TOKEN}"


@contextmanager
def serving(database: Database) -> Iterator[Served]:
    """uvicorn on a free port, as the command starts it."""
    app = application(database, host="127.0.0.1", token=TOKEN)
    server = as_served(app, port=0, log_level="error")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the server ended before it began"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(f"http://127.0.0.1:{port}/")
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hand-played run `played` and the hostile run `a`, in one database."""
    home = tmp_path_factory.mktemp("viewed")
    url = f"sqlite:///{home / 'diagevo.db'}"
    play(url, "played", root=home)
    hostile.play(url, home)
    return home


@pytest.fixture(scope="session")
def database(folder: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{folder / 'diagevo.db'}")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def served(database: Database) -> Iterator[Served]:
    with serving(database) as server:
        yield server


@pytest.fixture(scope="session")
def exported(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("exported") / "pages"
    export(database, to)
    return to


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Of a module: while Playwright is there, no other test of the process can have an event loop."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    """A page that fails its test by a console error, an error of a script, or a request to elsewhere."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(120_000)
    opened = context.new_page()
    faults: list[str] = []
    opened.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "request",
        lambda r: (
            faults.append(f"asked {r.url}") if not r.url.startswith(("http://127.0.0.1", "file:")) else None
        ),
    )
    opened.on("dialog", lambda dialog: dialog.dismiss())
    opened.on("dialog", lambda dialog: faults.append(f"dialog {dialog.message}"))
    yield opened
    context.close()
    assert not faults, faults
