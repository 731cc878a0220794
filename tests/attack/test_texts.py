"""Hostile texts in every field, read back through every command that reads, in every format.

Asserted of each: it ends with 0, nothing unseen reaches a terminal or a file of text, no text begins a
line of the screen, no markup and no formula is obeyed, the format is whole for another library, and the text
is known again.
"""

import csv
import io
import itertools
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import polars
import pytest
from lxml import html
from markdown_it import MarkdownIt
from typer.main import get_command

from diagevo.text.escaping import visible
from tests.attack.hostile import KINDS, WORD, play
from tests.cli.conftest import _a_folder_of_its_own  # noqa: F401  (a fixture)
from tests.cli.program import invoke, leaves, load
from tests.contracts.databases import PostgresServer, PostgresStores, Store

OURS = re.compile(r"\x1b\[(0|1|2|3|4|22|23|24)(;(0|1|2|3|4))*m")
"""Weight and slope, which Rich sets also without colours: the run holds none of these sequences."""
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r]")
FORGED = ("=2", "# g", "| h", '{"a"')
"""What stands after a line feed in one of the texts."""
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?(/\d+)?")
DOCUMENTS = (
    ("memory", "show", "--tree"),
    ("memory", "why", "c1", "--full"),
    ("memory", "why", "n1", "--full"),
    ("memory", "why", "r1.q0"),
    ("memory", "why", "r1.q0.a0", "--full"),
    ("runs", "diff", "0..2"),
    ("memory", "verify", "--deep"),
    ("runs", "show", "a"),
    ("eval", "show", "e"),
    ("eval", "compare", "e", "e"),
    ("config", "show"),
    ("db", "status"),
)
ROWS = (
    ("memory", "show"),
    ("memory", "replay", "--step"),
    ("memory", "log"),
    ("memory", "schedule"),
    ("memory", "what-if", "--k", "0.2"),
    ("memory", "query", "SELECT * FROM v_cause"),
    ("memory", "query", "SELECT * FROM v_candidate"),
    ("memory", "query", "SELECT * FROM v_diagnosis"),
    ("runs", "list"),
    ("eval", "show"),
)
ELSEWHERE = {
    "init, train, ingest: write": ("init", "train", "ingest"),
    "tests/view and tests/cli/test_mcp.py": ("view", "mcp"),
    "no text of a run": ("doctor", "config", "db", "ablate compare"),
    "ask a model as well, or write": (
        "memory calibrate",
        "memory rebuild",
        "memory rename",
        "memory dismiss",
        "memory assign",
        "memory label",
        "eval run",
    ),
    "read below": ("runs import", "report build"),
    "read below: two runs, drawn questions, plans": (
        "runs diff",
        "runs fork",
        "runs export",
        "eval labels",
    ),
    "ask a model": ("diagnose", "ablate plan", "ablate run"),
}


@pytest.fixture(scope="session")
def hostile_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("hostile")
    store = Store(f"sqlite:///{folder / 'diagevo.db'}", folder)
    play(store.url, folder)
    return store


@pytest.fixture(scope="session")
def hostile_postgres(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = PostgresStores(postgres_server).new(tmp_path_factory.mktemp("hostile-pg"))
    play(store.url, store.root)
    return store


def _database(store: Store, arguments: tuple[str | Path, ...]) -> str:
    return store.reading if "query" in arguments else store.url


def ask(store: Store, *arguments: str | Path) -> str:
    """What a pipe gets."""
    result = invoke(*arguments, "--db", _database(store, arguments), env={"DIAGEVO_HOME": str(store.root)})
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    assert_seen(result.output, JOINERS if {"csv", "md"} & set(arguments) else "")
    return result.stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(store: Store, *arguments: str) -> str:
    """What a terminal gets, stdout and stderr together, without Rich's own weights."""
    screen = Terminal()
    with redirect_stdout(screen), redirect_stderr(screen), pytest.raises(SystemExit) as left:
        load()([*arguments, "--db", _database(store, arguments), "--no-color"])
    assert left.value.code == 0, (arguments, screen.getvalue())
    shown = OURS.sub("", screen.getvalue())
    assert_seen(shown)
    return shown


JOINERS = "\u200c\u200d\u2060"
"""Persian and emoji are written with them: tables for other programs keep them, screens show them."""


def assert_seen(text: str, kept: str = "") -> None:
    unseen = sorted({c for c in text if visible(c) != c} - set(kept))
    assert not unseen, f"{unseen} in {text[:300]!r}"


def test_every_command_is_read_here_or_left_out_for_a_reason() -> None:
    named = {" ".join(a[:2]) for a in (*DOCUMENTS, *ROWS)}
    left_out = tuple(name for names in ELSEWHERE.values() for name in names)
    for path, _ in leaves(get_command(load())):
        name = " ".join(path)
        assert name in named or name.startswith(left_out), name


@pytest.mark.parametrize("arguments", [*DOCUMENTS, *ROWS], ids=" ".join)
def test_a_terminal_a_pipe_and_json_show_everything_and_obey_nothing(
    hostile_sqlite: Store, arguments: tuple[str, ...]
) -> None:
    on_screen, piped = on_terminal(hostile_sqlite, *arguments), ask(hostile_sqlite, *arguments)
    document = ask(hostile_sqlite, *arguments, "--json")
    assert msgspec.json.decode(document) == json.loads(document)
    assert (WORD in document) <= (WORD in piped)
    for shown in (on_screen, piped):
        assert ("bold" in shown) <= ("[bold" in shown or "[/bold" in shown), "markup was read"
    for shown in (piped, on_screen if arguments in DOCUMENTS else ""):  # a row may wrap on a terminal
        assert [line for line in shown.splitlines() if line.startswith(FORGED)] == []


@pytest.mark.parametrize("arguments", ROWS, ids=" ".join)
def test_rows_are_whole_for_other_libraries_in_every_format(
    hostile_sqlite: Store, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    lines = ask(hostile_sqlite, *arguments, "--format", "jsonl").splitlines()
    exact = [msgspec.json.decode(line) for line in lines]
    written = ask(hostile_sqlite, *arguments, "--format", "csv")
    rows = list(csv.reader(io.StringIO(written, newline=""), strict=True))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(rows) == len(exact) + 1
    assert [c for row in rows for c in row if FORMULA.match(c) and not NUMBER.fullmatch(c)] == []
    again = polars.read_csv(io.BytesIO(written.encode()), infer_schema=False)
    assert again.height == len(exact)
    ask(hostile_sqlite, *arguments, "--format", "parquet", "-o", tmp_path / "rows.parquet")
    frame = polars.read_parquet(tmp_path / "rows.parquet")
    assert frame.height == len(exact)
    if "description" in frame.columns:
        assert frame["description"].to_list() == [row["description"] for row in exact]
    assert_one_plain_table(ask(hostile_sqlite, *arguments, "--format", "md"), len(exact))


def assert_one_plain_table(written: str, rows: int) -> None:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    blocks = parser.parse(written)
    assert {b.type for b in blocks} <= {
        f"{what}_{end}" for what in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")
    } | {"inline"}
    assert sum(b.type == "tr_open" for b in blocks) == rows + 1
    pieces = {piece.type for b in blocks for piece in b.children or ()}
    assert pieces <= {"text", "text_special"}


@pytest.mark.parametrize("arguments", [*DOCUMENTS, *ROWS], ids=" ".join)
def test_postgresql_gives_the_same_texts(
    hostile_postgres: Store, hostile_sqlite: Store, arguments: tuple[str, ...]
) -> None:
    if arguments[0] in ("memory", "report"):
        there, here = (ask(store, *arguments, "--json") for store in (hostile_postgres, hostile_sqlite))
        assert _without_times(there) == _without_times(here)
    else:
        ask(hostile_postgres, *arguments)


def _without_times(document: str) -> str:
    """Times, and the hashes over them, are each run's own."""
    return re.sub(r'"(\d{4}-\d\d-\d\dT[^"]*|[0-9a-f]{64})"', '""', document)


@pytest.mark.slow  # a picture a figure
def test_the_report_draws_and_its_pages_run_nothing_of_a_text(hostile_sqlite: Store, tmp_path: Path) -> None:
    ask(hostile_sqlite, "report", "build", "--run", "a", "--to", tmp_path / "report")
    for file in (tmp_path / "report").rglob("*.html"):
        tree = html.document_fromstring(file.read_text(encoding="utf-8"))
        scripts = [e.get("src") or e.get("type") for e in tree.findall(".//script")]
        assert {s and s.rpartition("/")[2] for s in scripts} <= {"view.js", "json"}
        assert {e.tag for e in tree.iter()}.isdisjoint({"iframe", "object", "embed"})
        pictures = [e.get("src") or "" for e in tree.findall(".//img")]
        assert [one for one in pictures if not (file.parent / one).is_file()] == []
        assert [a for e in tree.iter() for a in e.attrib if a.startswith("on")] == []
        assert_seen("".join(tree.xpath("//body//text()[not(ancestor::script)]")))
    overview = (tmp_path / "report" / "a" / "index.html").read_text(encoding="utf-8")
    assert WORD in overview
    assert "<img" in overview
    for file in sorted((tmp_path / "report").rglob("*")):
        match file.suffix:
            case ".svg":
                names = {e.tag.rpartition("}")[2] for e in ElementTree.parse(file).iter()}
                assert names.isdisjoint({"script", "foreignObject"})
            case ".csv":
                cells = [c for row in csv.reader(file.open(newline="", encoding="utf-8")) for c in row]
                assert [c for c in cells if FORMULA.match(c) and not NUMBER.fullmatch(c)] == []
            case ".json":
                msgspec.json.decode(file.read_bytes())
            case ".txt" | ".md":
                assert_seen(file.read_text(encoding="utf-8"), JOINERS if file.suffix == ".md" else "")


def test_a_bundle_brings_every_text_back(hostile_sqlite: Store, tmp_path: Path) -> None:
    ask(hostile_sqlite, "runs", "export", "a", "-o", tmp_path / "bundle")
    there = Store(f"sqlite:///{tmp_path / 'other' / 'diagevo.db'}", tmp_path / "other")
    (tmp_path / "other").mkdir()
    ask(there, "runs", "import", tmp_path / "bundle")
    shown = ("memory", "why", "c1", "--full", "--json")
    assert _without_times(ask(there, *shown)) == _without_times(ask(hostile_sqlite, *shown))
    ask(there, "memory", "verify", "--deep")


@pytest.fixture
def mine(hostile_sqlite: Store, tmp_path: Path) -> Store:
    """A copy of the hostile run, to be written to."""
    home = Path(shutil.copytree(hostile_sqlite.root, tmp_path / "home"))
    return Store(f"sqlite:///{home / 'diagevo.db'}", home)


def test_two_runs_are_compared_and_obey_nothing(mine: Store) -> None:
    ask(mine, "runs", "fork", "a@1", "--name", "b")
    read_everywhere(mine, ("runs", "diff", "a..b"))


@pytest.mark.slow
def test_questions_go_to_a_human_and_come_back_and_obey_nothing(mine: Store, tmp_path: Path) -> None:
    """A question and its label stand in the file as they are read in a spreadsheet; an answer is hostile."""
    ask(mine, "eval", "labels", "--check", tmp_path / "checked.csv", "--run", "a")
    with (tmp_path / "checked.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert rows
    assert all(WORD in row["question"] for row in rows)
    cells = [cell for row in rows for cell in row.values()]
    assert [c for c in cells if FORMULA.match(c) and not NUMBER.fullmatch(c)] == []
    assert_seen("".join(cells), JOINERS)
    with (tmp_path / "checked.csv").open("w", newline="", encoding="utf-8") as file:
        written = csv.DictWriter(file, list(rows[0]))
        written.writeheader()
        kinds = itertools.cycle(KINDS[1:])
        written.writerows(row | {"answer": next(kinds)} for row in rows)
    read_everywhere(mine, ("eval", "labels", "--check", str(tmp_path / "checked.csv"), "--run", "a"))
    ask(mine, "memory", "verify", "--deep")


def test_a_plan_that_somebody_wrote_is_shown_and_obeys_nothing(
    mine: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAGEVO_HOME", str(mine.root))
    plan = mine.root / "ablations" / "p" / "plan.json"
    plan.parent.mkdir(parents=True)
    runs = [{"run": f"p.{n}", "variant": text, "seed": 0} for n, text in enumerate(KINDS[1:])]
    said = " ".join(KINDS[1:])  # JSON has no half surrogate
    about = {"name": "p", "rounds": 2, "arguments": [said], "benchmarks": [said], "runs": runs}
    plan.write_text(json.dumps(about))
    read_everywhere(mine, ("ablate", "run", "p", "--status"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("{}", "cannot be read"),
        ('{"name": "p", "rounds": "2", "arguments": [], "benchmarks": [], "runs": []}', "cannot be read"),
        (
            '{"name": "p", "rounds": 2, "arguments": [], "benchmarks": [],'
            ' "runs": [{"run": "../../x", "variant": "full", "seed": 0}]}',
            "cannot name a run",
        ),
    ],
    ids=["cut", "deep", "empty", "a wrong type", "a way out"],
)
def test_a_plan_that_is_none_is_refused(mine: Store, content: str, says: str) -> None:
    plan = mine.root / "ablations" / "p" / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text(content)
    result = invoke("ablate", "run", "p", "--status", env={"DIAGEVO_HOME": str(mine.root)})
    assert (result.exit_code in (2, 5), says in result.output) == (True, True), result.output


def read_everywhere(store: Store, arguments: tuple[str, ...]) -> None:
    """On a terminal, in a pipe and as JSON."""
    shown = [on_terminal(store, *arguments), ask(store, *arguments)]
    json.loads(ask(store, *arguments, "--json"))
    for text in shown:
        assert ("bold" in text) <= ("[bold" in text or "[/bold" in text), "markup was read"


def test_a_row_of_a_story_reads_no_more_of_a_text_than_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte without an end of line, of which a terminal of 80 columns shows two rows."""
    read = 0

    def counting(text: str, *, one_line: bool = False) -> str:
        nonlocal read
        read += len(text)
        return visible(text, one_line=one_line)

    layout: Any = import_module("diagevo.cli.render.layout")
    monkeypatch.setattr(layout, "visible", counting)
    assert layout.cut("x" * 2**20, 80, 2) == "x" * 147 + "…"
    assert read == 4 * 148
    assert layout.cut("x" * 148, 80, 2) == "x" * 148
    assert layout.cut("e" + "\u0301" * 1000, 80, 2).endswith("…")


def test_an_argument_that_is_not_utf8_is_refused_by_its_place(hostile_sqlite: Store) -> None:
    for arguments in (["memory", "why", "c\udcff"], ["memory", "show", "--json", "--run", "\udcff"]):
        result = invoke(*arguments, env={"DIAGEVO_HOME": str(hostile_sqlite.root)})
        assert result.exit_code == 2, result.output
        assert "is not UTF-8" in result.output
        assert_seen(result.output)


def test_a_wide_digit_is_no_number_of_a_round(hostile_sqlite: Store) -> None:
    for command in (("memory", "why", "r².q1"), ("runs", "diff", "²..³")):
        result = invoke(*command, env={"DIAGEVO_HOME": str(hostile_sqlite.root)})
        assert result.exit_code == 3, result.output
        assert "²" in result.output
