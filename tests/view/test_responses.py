"""The responses of a run: searched, filtered, beside each other, and taken along as a file."""

import csv
import io
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import httpx
import polars
import pytest
from lxml import html

from diagevo.errors import ConfigError
from diagevo.memory.history import open_history
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.log.database import Database
from diagevo.memory.read import responses
from diagevo.memory.read.responses import Chosen, Responses, excerpt, phrases
from diagevo.text.escaping import storable, visible
from diagevo.view.page import Site
from diagevo.view.response_pages import NAMES
from diagevo.view.site import View
from tests.attack.hostile import KINDS
from tests.cli.program import invoke
from tests.contracts.databases import PostgresStores
from tests.view.conftest import TOKEN, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXAMPLE = Path(__file__).parents[2] / "examples" / "sql_eval.jsonl"
QUERIES = (
    *(
        '"',
        '""',
        "*",
        "a*",
        "NEAR(",
        "NEAR(a b, 2)",
        "a OR",
        "OR",
        "AND NOT",
        "-a",
        "^a",
        "body : a",
        "body:",
    ),
    *(
        "(",
        "{a b}",
        "'; DROP TABLE response; --",
        "a\0b",
        "\ud800",
        "😀",
        "   ",
        "?",
        ":run",
        "%",
        "é" * 9000,
    ),
    *KINDS,
)


class Home:
    """A database in a folder, with the commands that write to it."""

    def __init__(self, path: Path, db: str | None = None) -> None:
        self.path, self.db = path, db or f"sqlite:///{path / 'diagevo.db'}"

    def run(self, *words: str | Path) -> str:
        done = invoke(*words, "--db", self.db, env={"DIAGEVO_HOME": str(self.path)})
        assert done.exit_code == 0, done.output
        return done.stdout

    def ingest(self, run: str, rows: list[dict[str, Any]], name: str = "own.jsonl") -> None:
        file = self.path / name
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        self.run("ingest", "jsonl", file, "--run", run)


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The example, diagnosed without a model."""
    home = Home(tmp_path_factory.mktemp("responses"))
    home.run("ingest", "jsonl", EXAMPLE, "--run", "sql")
    home.run("diagnose", "--run", "sql", "--local")
    return home


@pytest.fixture
def view(sql: Home) -> Iterator[View]:
    database = Database(sql.db)
    yield View(Site(database, live=True))
    database.close()


def cells(page: str) -> list[list[str]]:
    tree = html.document_fromstring(page)
    return [[cell.text_content() for cell in row.xpath("td")] for row in tree.xpath("//table/tbody/tr")]


def rows_of(parts: Iterator[bytes]) -> list[dict[str, Any]]:
    return json.loads(b"".join(parts))


def test_what_is_listed_is_what_the_file_has(view: View) -> None:
    """Counted from the file: of its 600 responses the log keeps those of the 70 prompts with both, and the
    first of the 30 that always passed."""
    rows = [json.loads(line) for line in EXAMPLE.read_text("utf-8").splitlines()]
    failed = [row for row in rows if row["reward"] == 0]
    asked = {row["prompt"].strip() for row in failed}
    kept = [row for row in rows if row["prompt"].strip() in asked]
    assert (len(rows), len(failed), len(asked)) == (600, 163, 70)
    every = rows_of(view.written("sql", "json", {}))
    assert len(every) == len(kept) + 30 == 450
    given = {(row["prompt"].strip(), row["response"], row["reward"]) for row in kept}
    assert {(row["prompt"], row["response"], row["reward"]) for row in every} >= given
    none = [row for row in failed if "distinct" not in row["response"].lower()]
    without = rows_of(view.written("sql", "json", {"verdict": "failed"}))
    assert len(without) == 163
    assert sum("distinct" not in row["response"].lower() for row in without) == len(none)
    page = view.render("sql/responses.html", {"verdict": "failed", "cause": "c1"})
    assert "35 responses of 450" in page
    assert "Of 600 responses the log keeps 450" in page
    assert len(cells(page)) == 35


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({}, "1 = 1"),
        ({"verdict": "failed", "cause": "c1"}, "verdict = 'failed' AND cause_id = 'c1'"),
        ({"verdict": "passed", "step": "1"}, "verdict = 'passed' AND step = 1"),
    ],
)
def test_sql_lists_what_the_page_does(sql: Home, view: View, query: dict[str, str], where: str) -> None:
    asked = (
        f"SELECT {', '.join(NAMES)} FROM v_response WHERE run_id = :run AND {where} ORDER BY position, sample"
    )
    rows = json.loads(sql.run("memory", "query", asked, "--run", "sql", "--format", "json"))["data"]
    every = rows_of(view.written("sql", "json", query))
    assert every
    assert [row | {"tags": json.loads(row["tags"])} for row in rows] == every


def test_words_are_found_in_a_response_its_prompt_or_its_feedback(tmp_path: Path) -> None:
    home = Home(tmp_path)
    said = [
        ("Which colour?", "azure sky", 1, None),
        ("Which colour?", "the sky is Azure", 0, "not a COLOUR name"),
        ("Which sign?", "plus", 0, "azure was expected"),
        ("Which sign?", "東京タワーは高い", 1, None),
        ("How many?", "<think>azure or not</think>naïve count(distinct x)", 0, None),
    ]
    home.ingest(
        "own", [dict(zip(("prompt", "response", "reward", "feedback"), row, strict=True)) for row in said]
    )
    history = open_history(home.db, "own")
    found = Responses(history)

    def places(words: str, **more: str) -> list[int]:
        texts = [row[1] for row in said]
        got = found.find(Chosen(words=words, **more), 0, 10)
        assert len(got) == found.count(Chosen(words=words, **more))
        return sorted(texts.index(history.texts([one.text])[one.text]) for one in got)

    assert places("azure") == [0, 1, 2, 4]
    assert places("AZURE sky") == [0, 1]
    assert places('"azure sky"') == [0]
    assert places("colour") == [0, 1]
    assert places("タワー") == [3], "a script that parts no words"
    assert places("naive") == [4], "with its accent or without"
    assert places("count(distinct") == [4]
    assert places("azure", verdict="failed") == [1, 2, 4]
    assert places("azur") == []
    assert places("", prompt=digest_of("Which sign?")) == [2, 3]
    history.close()


@pytest.mark.parametrize("words", QUERIES)
def test_no_words_are_an_operator_and_none_are_an_error(view: View, words: str) -> None:
    page = view.render("sql/responses.html", {"words": words})
    assert "<h1>Responses</h1>" in page
    if phrases(words):
        assert "there is no word" not in page
        rows_of(view.written("sql", "json", {"words": words}))


@pytest.mark.parametrize(
    "query",
    [
        *({"step": step} for step in ("x", "-1", "1e9", "9" * 40, "1; DROP TABLE response")),
        *({name: "' OR 1 --"} for name in ("verdict", "cause", "tag", "model", "prompt")),
    ],
)
def test_a_filter_that_nothing_has_finds_nothing(view: View, query: dict[str, str]) -> None:
    assert "None has all of that" in view.render("sql/responses.html", query)


def test_an_order_that_is_none_is_that_of_the_file(view: View) -> None:
    every = rows_of(view.written("sql", "json", {}))
    assert rows_of(view.written("sql", "json", {"sort": "1; DROP TABLE response"})) == every
    longest = rows_of(view.written("sql", "json", {"sort": "-length"}))
    lengths = [len(row["response"]) for row in longest]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths != [len(row["response"]) for row in every]


def test_a_search_that_takes_too_long_is_told(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    view.render("sql/responses.html", {})
    monkeypatch.setattr(responses, "STEPS", 1)
    monkeypatch.setattr(responses, "SECONDS", 0.0)
    found = view.site.responses("sql")
    with pytest.raises(ConfigError, match=r"not searched: interrupted \(at most 0 seconds\)"):
        found.count(Chosen(words="select"))
    monkeypatch.undo()
    assert found.count(Chosen(words="select")) > 0, "it searches on"


def test_searching_writes_nothing_and_the_log_verifies(sql: Home, view: View) -> None:
    def files() -> dict[str, str]:
        return {
            str(file.relative_to(sql.path)): sha256(file.read_bytes()).hexdigest()
            for file in sql.path.rglob("*")
            if file.is_file() and not file.name.endswith(("-shm", "-wal"))
        }

    before = files()
    view.render("sql/responses.html", {"words": "distinct"})
    assert files() == before
    sql.run("memory", "verify", "--run", "sql", "--deep")


def test_the_list_follows_the_run_and_what_a_person_says(tmp_path: Path) -> None:
    home = Home(tmp_path)
    rows = [
        {"prompt": f"{n} + 1", "response": f"{n + 1 + (s == 1)}", "reward": int(s != 1), "step": 1}
        for n in range(6)
        for s in range(3)
    ]
    home.ingest("own", rows)
    database = Database(home.db)
    view = View(Site(database, live=True))
    assert "18 responses" in view.render("own/responses.html", {})
    home.run("diagnose", "--run", "own", "--local")
    home.run("memory", "assign", "r1.q0.a1", "--new", "adds one too many", "--run", "own")
    found = rows_of(view.written("own", "json", {"words": '"0 + 1"', "verdict": "failed"}))
    assert [(row["failure_id"], row["cause"]) for row in found] == [("r1.q0.a1", "adds one too many")]
    later = [{"prompt": "0 + 1", "response": "later", "reward": 0, "step": 2}]
    home.ingest("own", [*rows, *later])
    page = view.render("own/responses.html", {"step": "2"})
    assert "1 response of 19" in page
    assert cells(page)[0][1].split()[0] == "later"
    database.close()


def test_a_run_that_plays_itself_lists_its_failures(database: Database) -> None:
    view = View(Site(database, live=True))
    failed = rows_of(view.written("played", "json", {}))
    assert failed
    assert {row["verdict"] for row in failed} == {"failed"}
    assert "the log keeps the failures" in view.render("played/responses.html", {})


def test_a_prompt_opens_with_all_of_its_responses(view: View) -> None:
    rows = [json.loads(line) for line in EXAMPLE.read_text("utf-8").splitlines()]
    failed = next(row for row in rows if row["reward"] == 0)
    own = [row for row in rows if row["prompt"] == failed["prompt"]]
    page = view.render(f"sql/prompts/{digest_of(failed['prompt'].strip())}.html")
    tree = html.document_fromstring(page)
    cards = tree.xpath("//article")
    assert [card.xpath("string(.//pre)").strip() for card in cards] == [
        row["response"].strip() for row in own
    ]
    said = [card.xpath("string(.//*[contains(@class, 'badge')])") for card in cards]
    assert said == ["passed" if row["reward"] else "failed" for row in own]
    assert f"{sum(row['reward'] for row in own):g} of {len(own)} responses passed" in page
    assert f"Feedback: {failed['feedback'].strip()}" in tree.text_content()


def test_hostile_texts_stay_texts_on_the_pages_and_in_the_files(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.ingest(
        "own",
        [
            {
                "prompt": f"{text} {n}",
                "response": f"{text}{s}",
                "reward": s,
                "feedback": text,
                "tags": [text],
                "model": f"{text}{n % 2}",
            }
            for n, text in enumerate(storable(kind) for kind in KINDS)
            for s in (0, 1)
        ],
    )
    database = Database(home.db)
    view = View(Site(database, live=True))
    pages = [view.render("own/responses.html", {"words": "mississippi"})]
    every = rows_of(view.written("own", "json", {}))
    assert len(every) == 2 * len(KINDS)
    pages += [view.render(f"own/prompts/{digest_of(row['prompt'])}.html") for row in every]
    pages += [view.render("own/index.html")]
    for page in pages:
        tree = html.document_fromstring(page)
        assert not tree.xpath("//img | //script[not(@src)] | //b | //*[@onerror]")
        assert visible(tree.text_content()) == tree.text_content()
    for row in every:  # each is found by its own tag and model
        tag = {"tag": row["tags"][0], "model": row["model"]}
        assert row in rows_of(view.written("own", "json", tag))
    table = list(csv.reader(io.StringIO(b"".join(view.written("own", "csv", {})).decode())))
    assert len(table) == 1 + len(every)
    assert not [cell for line in table[1:] for cell in line if cell.lstrip()[:1] in ("=", "+", "-", "@")]
    taken = polars.read_parquet(io.BytesIO(b"".join(view.written("own", "parquet", {}))))
    assert taken["response"].to_list() == [row["response"] for row in every]
    database.close()


def test_the_address_holds_the_filter_and_a_file_is_what_it_asks_for(sql: Home) -> None:
    database = Database(sql.db)
    query = urlencode({"words": 'count "distinct', "verdict": "failed"})
    with serving(database) as served, httpx.Client(base_url=served.base, trust_env=False) as client:
        first = client.get(f"sql/responses.html?{query}&token={quote(TOKEN)}", follow_redirects=True)
        assert first.status_code == 200
        assert str(first.url.query, "ascii") == query, "the token is gone, the filter stays"
        tree = html.document_fromstring(first.text)
        assert tree.xpath("string(//input[@name='words']/@value)") == 'count "distinct'
        assert tree.xpath("string(//select[@name='verdict']/option[@selected]/@value)") == "failed"
        total = int(tree.xpath("string(//p[@class='lead'])").split()[0])
        assert 0 < total <= 100
        assert len(tree.xpath("//table/tbody/tr")) == total
        for way in tree.xpath("//p[@class='lead']/a/@href"):
            file = client.get(f"sql/{way}")
            assert file.status_code == 200, way
            assert file.headers["content-disposition"].startswith('attachment; filename="sql-responses.')
            assert "default-src 'none'" in file.headers["content-security-policy"]
        assert len(client.get(f"sql/responses.json?{query}").json()) == total
        later = html.document_fromstring(client.get("sql/responses.html?verdict=passed").text)
        [more] = later.xpath("//nav[@class='pager'][1]/a/@href")
        assert more == "responses.p2.html?verdict=passed"
        assert client.get(f"sql/{more}").status_code == 200
        assert client.get("sql/responses.p9.html").status_code == 404
        assert client.get("nobody/responses.csv").status_code == 404
        assert client.get("sql/responses.json?words=*").status_code == 409
        assert client.get("sql/responses.xlsx").status_code == 404
    database.close()


def test_a_folder_of_pages_lists_them_without_a_search(sql: Home) -> None:
    sql.run("view", "--export", sql.path / "pages", "--run", "sql")
    folder = sql.path / "pages" / "sql"
    first = (folder / "responses.html").read_text("utf-8")
    assert "<form" not in first
    assert "Searching and filtering need the served pages" in first
    listed = [
        row
        for part in ("", *(f".p{n}" for n in range(2, 6)))
        for row in cells((folder / f"responses{part}.html").read_text("utf-8"))
    ]
    assert len(listed) == 450
    assert len(list((folder / "prompts").glob("*.html"))) == 100


def test_over_postgresql_the_same_is_found(tmp_path: Path, postgres_stores: PostgresStores) -> None:
    store = postgres_stores.new(tmp_path)
    home = Home(tmp_path, store.url)
    home.run("ingest", "jsonl", EXAMPLE, "--run", "sql")
    database = Database(store.reading)  # a role that may only read
    view = View(Site(database, live=True))
    assert "450 responses" in view.render("sql/responses.html", {})
    found = rows_of(view.written("sql", "json", {"words": "distinct", "verdict": "failed"}))
    assert found
    assert all("distinct" in f"{row['prompt']} {row['response']}".lower() for row in found)
    database.close()


def test_a_place_is_shown_around_what_was_found() -> None:
    text = f"{'a ' * 100}needle{' b' * 100}"
    before, found, after = excerpt(text, ["Needle"], 60)
    assert (before, found, after) == (f"…{'a ' * 10}", "needle", f"{' b' * 17}…")
    assert excerpt("short", ["absent"], 60) == ("short", "", "")
    assert excerpt("İİİ a needle", ["needle"], 60) == ("İİİ a ", "needle", "")  # İ is longer in small letters


def test_a_table_leaves_the_page_as_csv_and_json(page: "Page", sql: Home) -> None:
    sql.run("view", "--export", sql.path / "tables", "--run", "sql", "--pages", "5")
    page.goto((sql.path / "tables" / "sql" / "causes.html").as_uri())
    with page.expect_download() as csv_file:
        page.locator(".take button", has_text="CSV").first.click()
    table = list(csv.reader(csv_file.value.path().open(encoding="utf-8")))
    assert table[0] == ["cause", "description", "failures"]
    assert ["c1", "35"] in [[line[0], line[2]] for line in table]
    with page.expect_download() as json_file:
        page.locator(".take button", has_text="JSON").first.click()
    rows = json.loads(json_file.value.path().read_text("utf-8"))
    assert [list(row.values()) for row in rows] == table[1:]
