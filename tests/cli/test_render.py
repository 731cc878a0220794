"""One way to print: six formats, exact fractions, no markup, no control characters."""

import csv
import io
import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from diagevo.cli.render.console import dump  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from typer.testing import CliRunner

from diagevo.errors import ConfigError
from tests.cli import sample
from tests.cli.program import invoke, run
from tests.cli.sample import HOSTILE, app
from tests.cli.terminal import on_terminal
from tests.memory.play import opened


def _printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_in_a_pipe_rows_are_aligned_text_without_ansi_or_carriage_returns() -> None:
    assert _printed("list") == (
        "id   probability  what\n"
        "c1         0.333  [bold]x[/bold] ␛[31mred | pipe ⏎ second line\n"
        "c22            –  é\n"
    )


def test_json_is_the_envelope_with_exact_fractions() -> None:
    said = json.loads(_printed("list", "--json"))
    assert said["schema"] == "diagevo.list/1"
    assert (said["run"], said["as_of"]) == ("a", {"round": 3, "position": 812})
    assert said["data"][0]["p"] == {"exact": "1/3", "value": 1 / 3}
    assert said["data"][0]["what"] == HOSTILE


def test_format_json_is_the_same_as_json() -> None:
    assert _printed("list", "--format", "json") == _printed("list", "--json")


def test_jsonl_is_one_object_a_line() -> None:
    lines = [json.loads(line) for line in _printed("list", "--format", "jsonl").splitlines()]
    assert [line["id"] for line in lines] == ["c1", "c22"]


def test_csv_has_a_float_and_an_exact_column_for_a_fraction() -> None:
    [first, second] = csv.DictReader(io.StringIO(_printed("list", "--format", "csv")))
    assert (first["p"], first["p_exact"]) == ("0.3333333333333333", "1/3")
    assert first["more"] == '{"n": 1}'
    assert first["what"] == HOSTILE.replace("\x1b", "␛")
    assert second["p"] == second["p_exact"] == ""


def test_markdown_escapes_the_pipe() -> None:
    lines = _printed("list", "--format", "md").splitlines()
    assert lines[1] == "|---|---:|---|"
    assert "red \\| pipe ⏎ second" in lines[2]


@pytest.mark.parametrize("form", ["table", "csv", "md"])
def test_a_heading_that_a_query_names_is_shown_as_any_text(tmp_path: Path, form: str) -> None:
    with opened(tmp_path) as memory:
        memory.open_round(1)
    sql = 'SELECT 1 AS "\x1b[31mred\u202e", 2 AS "=1+1"'
    told = invoke("memory", "query", sql, "--format", form, "--db", tmp_path / "log.db")
    heading = told.stdout.splitlines()[0]
    assert "\x1b" not in heading
    assert "\u202e" not in heading
    assert {"table": "␛[31mred\\u202e  =1+1", "csv": "␛[31mred\\u202e,'=1+1"}.get(form, heading) == heading


def test_parquet_needs_a_file_and_holds_every_key(tmp_path: Path) -> None:
    import polars

    file = tmp_path / "rows.parquet"
    assert _printed("list", "--format", "parquet", "-o", str(file)) == ""
    frame = polars.read_parquet(file)
    assert frame.columns == ["id", "p", "p_exact", "what", "more"]
    assert frame["p_exact"].to_list() == ["1/3", None]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    from diagevo.errors import ConfigError

    blocked = tmp_path / "file"
    blocked.write_text("")
    done = CliRunner().invoke(app, ["list", "-o", str(blocked / "rows.csv")])
    assert isinstance(done.exception, ConfigError)
    assert str(blocked) in done.exception.message


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "md", "txt", "parquet"])
def test_what_ends_half_way_leaves_the_file_that_was_there(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged() -> Iterator[dict[str, Any]]:
        yield from [{"id": "c1", "p": None, "what": "x", "more": {}}] * 2000
        raise ConfigError("the last one cannot be read")

    def write() -> Exception | None:
        monkeypatch.setattr(sample, "ROWS", damaged())
        told = CliRunner().invoke(app, ["list", "-o", str(file)])
        assert isinstance(told.exception, ConfigError), told.output
        return told.exception

    file = tmp_path / f"rows.{ending}"
    write()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").write_text("of yesterday")
    (tmp_path / "kept").chmod(0o640)
    file.symlink_to("kept")
    write()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "kept", file]
    assert file.read_text() == "of yesterday"
    monkeypatch.undo()
    CliRunner().invoke(app, ["list", "-o", str(file)])
    assert file.is_symlink()
    assert file.read_bytes() != b"of yesterday"
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_device_or_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    CliRunner().invoke(app, ["list", "--format", "csv", "-o", str(pipe)])
    assert os.read(held, 3) == b"id,"
    os.close(held)
    assert list(tmp_path.iterdir()) == [pipe]
    assert _printed("list", "--format", "csv", "-o", os.devnull) == ""


def test_a_document_is_text_or_the_envelope() -> None:
    assert _printed("one") == "p [bold]x[/bold] ␛[31mred | pipe\nsecond line\n"
    said = json.loads(_printed("one", "--json"))
    assert said["data"] == {"p": {"exact": "2/3", "value": 2 / 3}, "path": "x"}


def test_a_number_that_is_not_finite_is_refused_in_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump({"x": float("nan")})


def _on_a_terminal(*arguments: str) -> str:
    program = f"from tests.cli.sample import app; app({list(arguments)!r})"
    shown, _ = on_terminal([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    return shown


def test_on_a_terminal_a_table_is_drawn_and_text_is_still_no_markup() -> None:
    shown = _on_a_terminal("list")
    assert "─" in shown
    assert "[bold]x[/bold] ␛[31mred" in shown
    assert "\x1b[1m" in shown


def test_without_colours_a_terminal_gets_no_colour_codes() -> None:
    shown = _on_a_terminal("list", "--no-color")
    assert "─" in shown
    assert "\x1b[3" not in shown


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "md"])
def test_a_format_follows_from_the_files_name(tmp_path: Path, ending: str) -> None:
    file, asked = tmp_path / f"rows.{ending}", tmp_path / "asked"
    CliRunner().invoke(app, ["list", "-o", str(file)])
    CliRunner().invoke(app, ["list", "--format", ending, "-o", str(asked)])
    assert file.read_bytes() == asked.read_bytes() != b""
    CliRunner().invoke(app, ["list", "--format", "table", "-o", str(file)])
    assert file.read_text().startswith("id ")


def test_an_ending_that_no_format_has_is_refused_unless_a_format_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.xlsx"
    refused = CliRunner().invoke(app, ["list", "-o", str(file)])
    assert isinstance(refused.exception, ConfigError)
    assert refused.exception.message == f"--output {file}: .xlsx is not the suffix of a format"
    assert (
        refused.exception.hint
        == "one of .json, .jsonl, .csv, .parquet, .md, .txt; or say which: --format table"
    )
    assert not file.exists()
    CliRunner().invoke(app, ["list", "--format", "csv", "-o", str(file)])
    assert file.read_text().startswith("id,")
    CliRunner().invoke(app, ["list", "-o", str(tmp_path / "rows.txt")])
    assert (tmp_path / "rows.txt").read_text().startswith("id ")


layout: Any = import_module("diagevo.cli.render.layout")


@pytest.mark.parametrize("columns", [None, 40, 80, 200])
@pytest.mark.parametrize("text", ["ab " * 2**14, "a" * 2**15, " " * 2**15, "界 " * 2**14])
def test_a_long_line_is_measured_once_and_not_once_a_word(
    text: str, columns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = 0
    real = layout._cells

    def counting(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return real(text)

    monkeypatch.setattr(layout, "_cells", counting)
    said = layout.lay([layout.Line("question", text, 7)], columns) + layout.wrapped(text, "  ", columns)
    assert measured < 10 * len(text)
    assert said.replace(" ", "").replace("\n", "").replace("question", "").replace(
        "#7", ""
    ) == 2 * text.replace(" ", "")


def test_a_sign_stays_with_its_two_sides_and_a_text_is_cut_between_words() -> None:
    assert layout.broken("2 of 9 against the label → f = 9", 28) == ["2 of 9 against the", "label → f = 9"]
    chain = "so p₁ = 7/12 < τ·p₂ = 8/5·1/2 holds"
    assert layout.broken(chain, 24) == ["so p₁ = 7/12 < τ·p₂", "= 8/5·1/2 holds"]
    assert layout.folded("after round 3: F = 143", 17) == "after round 3:\n    F = 143"
    assert layout.cut("slides by one in the times table", 30) == "slides by one in the times…"


def test_a_long_word_is_cut_behind_a_comma_or_a_slash_where_it_has_one() -> None:
    asked = "--variants full,free-only,no-filter"
    assert layout.broken(asked, 16) == ["--variants", "full,free-only,", "no-filter"]
    assert layout.broken("Qwen/Qwen3-4B-Instruct-2507", 24) == ["Qwen/", "Qwen3-4B-Instruct-2507"]


def test_words_wrap_under_themselves_and_a_word_too_long_is_cut() -> None:
    assert layout.broken("ab cd 界界 efghijk l", 5) == ["ab cd", "界界", "efghi", "jk l"]
    assert layout.broken("a  b ", 10) == ["a  b "]
    assert layout.broken("", 5) == [""]


@pytest.mark.parametrize("format", ["csv", "table", "jsonl"])
def test_json_and_another_format_are_not_both_asked_for(format: str, tmp_path: Path) -> None:
    refused = run("runs", "list", "--json", "--format", format, cwd=tmp_path)
    assert refused.returncode == 2
    assert f"--json and --format {format} are two formats" in refused.stdout
