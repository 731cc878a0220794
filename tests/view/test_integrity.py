"""What the pages say of a run's origin, and of whether its log is as it was written."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.history import open_history
from diagevo.memory.log import heads
from diagevo.memory.log.database import Database
from diagevo.memory.opening import open_memory
from diagevo.memory.read.runs import RunLine
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.view import page, pages
from diagevo.view.export import export
from diagevo.view.page import Site
from diagevo.view.site import View
from tests.memory.audit.played import play
from tests.memory.play import candidate


@pytest.fixture
def home(tmp_path: Path) -> Path:
    play(f"sqlite:///{tmp_path / 'log.db'}", root=tmp_path)
    return tmp_path


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    opened = Database(str(home / "log.db"))
    yield opened
    opened.close()


def _view(database: Database, home: Path) -> View:
    return View(Site(database, live=True))


def _replace_last_head(home: Path) -> None:
    file = home / "played" / heads.NAME
    *lines, last = file.read_text().splitlines()
    file.write_text("\n".join([*lines, json.dumps(json.loads(last) | {"hash": "0" * 64})]) + "\n")


def test_every_page_of_a_run_ends_with_its_chain_head(database: Database, home: Path) -> None:
    view = _view(database, home)
    head = view.site.head("played")
    assert len(head.hash) == 64
    for path in ("played/index.html", "played/causes/c1.html", "played/log.html", "played/verify.html"):
        assert f"<code>{head.hash}</code>" in view.render(path)
    assert "Chain head" not in view.render("index.html")


def test_the_runs_say_what_was_compared_and_verified_once_it_was(database: Database, home: Path) -> None:
    view = _view(database, home)
    assert ">kept head agrees</a>" in view.render("index.html")
    assert "As it was written" in view.render("played/verify.html")
    assert ">as written</a>" in view.render("index.html")


def test_a_head_that_the_log_does_not_have_is_a_fault_on_the_first_page(
    database: Database, home: Path
) -> None:
    _replace_last_head(home)
    view = _view(database, home)
    assert 'class="bad">FAULT</a>' in view.render("index.html")
    assert "<strong>FAULT</strong> head:" in view.render("played/verify.html")
    export(database, home / "pages", most=2)
    assert ">FAULT</" in (home / "pages" / "index.html").read_text()


def test_a_long_run_is_not_verified_by_looking_at_it(
    database: Database, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "VERIFIED", 10)
    text = _view(database, home).render("played/verify.html")
    assert "is the log&#39;s event" in text or "is the log's event" in text
    assert "As it was written" not in text
    _replace_last_head(home)
    assert "<strong>FAULT</strong>" in _view(database, home).render("played/verify.html")
    (home / "played" / heads.NAME).unlink()
    assert "a full rewrite would go unnoticed" in _view(database, home).render("played/verify.html")
    assert ">not verified</a>" in _view(database, home).render("index.html")


def test_a_run_that_came_in_a_bundle_says_so(database: Database, home: Path) -> None:
    history = open_history(str(home / "log.db"), "played", root=home)
    manifest = export_bundle(history, history.end, home / "bundle")
    history.close()
    import_bundle(home / "bundle", database, "back", root=home)
    view = _view(database, home)
    assert f"imported, bundle {manifest.head[:12]}…" in view.render("index.html")
    assert f"Imported from the bundle that ends in <code>{manifest.head[:12]}…</code>" in view.render(
        "back/index.html"
    )
    assert "mported" not in view.render("played/index.html")


def _commit(home: Path, number: int) -> None:
    with open_memory(f"sqlite:///{home / 'log.db'}", "played", root=home) as memory:
        memory.open_round(number)
        memory.score([candidate(f"r{number}.q0", 9)])
        memory.commit()


def test_an_export_beside_a_training_accuses_nobody(
    database: Database, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round is committed when the export has begun to read."""
    listed = pages.list_runs

    def then_commit(*asked: Any) -> list[RunLine]:
        lines = listed(*asked)
        with ThreadPoolExecutor(1) as other:
            other.submit(_commit, home, 5).result()
        return lines

    monkeypatch.setattr(pages, "list_runs", then_commit)
    export(database, home / "out")
    told = [(home / "out" / page).read_text() for page in ("index.html", "played/verify.html")]
    assert "FAULT" not in "".join(told)
    assert "As it was written" in told[1]


def test_what_two_pages_read_of_a_run_at_once_is_of_one_moment(database: Database, home: Path) -> None:
    """One begins before a round is committed, the other after it, and is not given the past of the first."""
    site = Site(database, live=True)
    with ThreadPoolExecutor(1) as other, database.view():
        first = site.history("played")
        _ = first.commits

        def second() -> tuple[int, int]:
            with database.view():
                seen = site.history("played")
                return seen.end.round, seen.commits[-1].round

        other.submit(_commit, home, 5).result()
        assert other.submit(second).result() == (5, 5)
    with database.view():
        assert site.history("played").commits[-1].round == 5
