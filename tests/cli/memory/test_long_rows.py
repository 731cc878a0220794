"""Rows that may be as long as the log are printed as they come, in every format."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import polars
import pytest
from diagevo.cli.call import CommandContext  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render import console as render  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render import rows as writer  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render.rows import print_rows  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render.table import columns  # pyright: ignore[reportMissingImports]  (cli/, as installed)

from diagevo.errors import ConfigError
from diagevo.memory.history import AsOf
from tests.cli.memory.conftest import Ask
from tests.cli.terminal import shown

COLUMNS = columns("n, text")
NUMBERS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {}) SELECT n FROM t"


@pytest.mark.parametrize("format", ["table", "md", "csv", "jsonl"])
def test_rows_are_written_while_later_ones_are_read(tmp_path: Path, format: str) -> None:
    """Into a file that has its name once it is whole."""
    file = tmp_path / "rows"
    written: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        for n in range(5000):
            if n == 4000:
                assert not file.exists()
                written.append(sum(part.stat().st_size for part in tmp_path.iterdir()))
            yield {"n": n, "text": "x" * 20}

    call = CommandContext(format=cast("Any", format), output=file)
    print_rows(call, COLUMNS, rows())
    assert written[0] > 20_000
    assert file.read_text().count("x" * 20) == 5000


def test_a_streamed_document_is_the_envelope_that_other_commands_print(tmp_path: Path) -> None:
    rows = [{"n": 1, "text": "one\ntwo\u2028three"}, {"n": None, "text": '[] "'}]
    for given in (rows, []):
        call = CommandContext(format="json", output=tmp_path / "rows.json", schema="diagevo.x/1")
        print_rows(call, COLUMNS, given, run="a", as_of=AsOf(3, 7, 7))
        whole = render.dump(render.envelope("diagevo.x/1", given, run="a", as_of=AsOf(3, 7, 7)))
        assert (tmp_path / "rows.json").read_text() == whole + "\n"


@pytest.mark.parametrize(
    ("late", "what"),
    [("abs(-9223372036854775808)", "integer overflow"), ("cast(x'ff' AS text)", "Could not decode to UTF-8")],
)
def test_a_row_that_fails_late_leaves_no_half_document(ask: Ask, late: str, what: str) -> None:
    sql = f"SELECT 1 AS x UNION ALL SELECT {late}"
    whole = ask("memory", "query", sql, "--json")
    assert whole.exit_code == 2
    assert what in json.loads(whole.stdout)["error"]["message"]
    lines = ask("memory", "query", sql, "--format", "jsonl")
    assert lines.exit_code == 2
    assert lines.stdout in ("", '{"x": 1}\n')  # some failures the database sees before the first row
    assert what in lines.stderr


def test_a_document_too_long_for_memory_waits_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "HELD", 1000)
    call = CommandContext(format="json", output=tmp_path / "rows.json")
    print_rows(call, COLUMNS, ({"n": n, "text": "one\r\ntwo ∑"} for n in range(500)))
    found = json.loads((tmp_path / "rows.json").read_text())["data"]
    assert (len(found), found[-1]) == (500, {"n": 499, "text": "one\r\ntwo ∑"})


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_an_infinity_is_null_in_json(ask: Ask, format: str) -> None:
    done = ask("memory", "query", "SELECT 9e999 AS big, -9e999 AS small, 1.5 AS x", "--format", format)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["data"][0] if format == "json" else told) == {"big": None, "small": None, "x": 1.5}


def test_a_table_takes_its_widths_from_the_first_page_and_cuts_nothing(tmp_path: Path) -> None:
    rows = [{"n": n, "text": "a"} for n in range(writer.PAGE)] + [{"n": 123_456, "text": "long"}]
    print_rows(CommandContext(output=tmp_path / "t"), COLUMNS, rows)
    lines = (tmp_path / "t").read_text().splitlines()
    assert lines[:2] == ["  n  text", "  0  a"]
    assert lines[-1] == "123456  long"


def test_every_format_holds_the_same_rows(ask: Ask, tmp_path: Path) -> None:
    sql = "SELECT position, type, cause_id FROM v_event ORDER BY position LIMIT 50"
    for format in ("csv", "parquet"):
        assert ask("memory", "query", sql, "--format", format, "-o", tmp_path / format).exit_code == 0
    whole = json.loads(ask("memory", "query", sql, "--json").stdout)["data"]
    lines = ask("memory", "query", sql, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == whole
    assert polars.read_parquet(tmp_path / "parquet").to_dicts() == whole
    assert polars.read_csv(tmp_path / "csv").to_dicts() == whole
    assert len(ask("memory", "query", sql).stdout.splitlines()) == 51


def test_parquet_of_no_rows_has_its_columns(ask: Ask, tmp_path: Path) -> None:
    sql = "SELECT position, type FROM v_event WHERE position < 0"
    assert ask("memory", "query", sql, "--format", "parquet", "-o", tmp_path / "p").exit_code == 0
    assert polars.read_parquet(tmp_path / "p").columns == ["position", "type"]


def test_a_column_of_two_types_is_text_in_parquet(ask: Ask, tmp_path: Path) -> None:
    sql = "SELECT CASE position WHEN 2 THEN 'two' ELSE position END AS p FROM v_event ORDER BY position"
    done = ask("memory", "query", sql, "--format", "parquet", "-o", tmp_path / "p")
    assert done.exit_code == 0, done.stderr
    assert polars.read_parquet(tmp_path / "p")["p"].to_list()[:3] == ["1", "two", "3"]


def test_a_type_that_comes_after_the_first_group_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP", 10)
    call = CommandContext(format="parquet", output=tmp_path / "p")
    with pytest.raises(ConfigError, match="a column has values of several types") as refused:
        print_rows(call, COLUMNS, ({"n": n if n < 15 else "late", "text": n} for n in range(20)))
    assert refused.value.hint == "csv and jsonl accept any value"


def test_parquet_of_several_groups_keeps_order_and_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP", 10)
    call = CommandContext(format="parquet", output=tmp_path / "p")
    more = {"half": 1, "yes": True, "big": 2**63, "none": None}
    print_rows(call, COLUMNS, ({"n": n, "text": f"{n}", **more, "half": n / 2 or 0} for n in range(25)))
    frame = polars.read_parquet(tmp_path / "p")
    assert frame["n"].to_list() == list(range(25))
    assert frame["half"].to_list() == [n / 2 for n in range(25)]
    types = ["Int64", "String", "Float64", "Boolean", "String", "String"]
    assert [str(type_) for type_ in frame.dtypes] == types
    assert frame["big"].to_list()[0] == "9223372036854775808"


def test_the_log_goes_out_in_every_format(ask: Ask, tmp_path: Path) -> None:
    for format in ("csv", "parquet", "md", "jsonl"):
        done = ask("memory", "log", "--format", format, "-o", tmp_path / format)
        assert done.exit_code == 0, done.stderr
    assert polars.read_parquet(tmp_path / "parquet").height == 139
    assert polars.read_csv(tmp_path / "csv").height == 139
    assert len((tmp_path / "md").read_text().splitlines()) == 141
    assert len(json.loads(ask("memory", "log", "--json").stdout)["data"]) == 139


def test_a_terminal_is_not_flooded_and_not_steered(played_home: Path) -> None:
    where = {"DIAGEVO_HOME": str(played_home)}
    out, _ = shown("memory", "query", NUMBERS.format(1500), env=where)
    assert "\n1000" in out
    assert "\n1001" not in out
    assert "only the first 1,000 rows; all of them with -o FILE, or in a pipe" in out
    hostile = "SELECT char(155) || '31mred' AS text"
    for format in ("table", "jsonl", "csv", "md", "json"):
        out, code = shown("memory", "query", hostile, "--format", format, env=where)
        assert code == 0
        assert "\x9b" not in out
        assert (r"\u009b31mred" if format.startswith("json") else r"\x9b31mred") in out
