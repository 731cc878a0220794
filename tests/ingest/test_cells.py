"""Tables as Excel, pandas, LibreOffice and Numbers write them are read as they were, or refused by name."""

import csv
import io
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagevo.errors import ConfigError
from diagevo.ingest.formats import read
from diagevo.ingest.rollout_steps import IngestedRollout
from tests.ingest.conftest import complaint

TEXTS = ["plain", 'a, "b"; c\td', "two\nlines", "Grüße – “€ 5”", "۵ می‌شود", "👩‍🚀", "=1+1", "[x]", "{y}"]
REWARDS: dict[str, float | None] = {"1": 1.0, "0": 0.0, "TRUE": 1.0, "FALSE": 0.0, "0.5": 0.5, "": None}
ROWS = [
    {"prompt": TEXTS[n % 9], "response": f"{TEXTS[(n + 4) % 9]} {n}", "reward": list(REWARDS)[n % 6]}
    for n in range(18)
]
EXPECTED = [
    IngestedRollout(row["prompt"], row["response"], value)
    for row in ROWS
    if (value := REWARDS[row["reward"]]) is not None
]
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be-marked", "utf-32"]
NEWLINES = {"unix": "\n", "windows": "\r\n", "old mac": "\r"}


def rollouts(file: Path) -> list[IngestedRollout]:
    found = read("jsonl", file, on_cut=pytest.fail)
    return [each for step in found for each in step.rollouts]


def encoded(text: str, encoding: str) -> bytes:
    return ("\ufeff" + text).encode("utf-16-be") if encoding == "utf-16-be-marked" else text.encode(encoding)


def sheet(rows: list[dict[str, str]], delimiter: str, newline: str, **more: Any) -> str:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, lineterminator=newline, **more)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_a_sheet_is_read_whatever_parts_ends_and_encodes_it(
    tmp_path: Path, delimiter: str, suffix: str
) -> None:
    """Excel writes `;`, a mark and CRLF in Europe, and UTF-16 with tabs as “Unicode text”."""
    file = tmp_path / f"a.{suffix}"
    for encoding, newline, quoting in itertools.product(
        ENCODINGS, NEWLINES.values(), [csv.QUOTE_MINIMAL, csv.QUOTE_ALL]
    ):
        if newline == "\r" and quoting == csv.QUOTE_MINIMAL:
            continue  # Python's writer leaves a cell with the other line's end bare
        file.write_bytes(encoded(sheet(ROWS, DELIMITERS[delimiter], newline, quoting=quoting), encoding))
        assert rollouts(file) == EXPECTED, (encoding, newline, quoting)


CELL = st.text(st.sampled_from("\",\r\n\t ;|'aé\u2028\u200c👩=0"), min_size=1, max_size=8)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(CELL, CELL), min_size=1, max_size=4),
    st.sampled_from(list(DELIMITERS.values())),
    st.sampled_from(ENCODINGS),
    st.sampled_from([("\r\n", csv.QUOTE_MINIMAL), ("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_NONNUMERIC)]),
)
def test_any_cell_comes_back(
    tmp_path: Path, texts: list[tuple[str, str]], delimiter: str, encoding: str, written: tuple[str, Any]
) -> None:
    newline, quoting = written
    rows = [{"prompt": prompt, "response": response, "reward": "1"} for prompt, response in texts]
    (tmp_path / "a.csv").write_bytes(encoded(sheet(rows, delimiter, newline, quoting=quoting), encoding))
    assert [(each.prompt, each.response) for each in rollouts(tmp_path / "a.csv")] == texts


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("more", [{}, {"sep": ";", "decimal": ","}, {"sep": "\t", "encoding": "utf-16"}])
def test_what_pandas_writes_is_read(tmp_path: Path, *, index: bool, more: dict[str, Any]) -> None:
    """With its index, whose column has no name, and empty cells where there is no reward."""
    table = pandas.DataFrame(ROWS).assign(reward=[REWARDS[row["reward"]] for row in ROWS])
    table.to_csv(tmp_path / "a.csv", index=index, **more)
    assert rollouts(tmp_path / "a.csv") == EXPECTED


def test_what_polars_writes_is_read(tmp_path: Path) -> None:
    table = polars.DataFrame(ROWS).with_columns(
        reward=polars.Series([REWARDS[row["reward"]] for row in ROWS])
    )
    table.write_csv(tmp_path / "a.csv", include_bom=True)
    table.write_csv(tmp_path / "b.csv", separator=";", decimal_comma=True)
    assert rollouts(tmp_path / "a.csv") == rollouts(tmp_path / "b.csv") == EXPECTED


def test_rows_and_columns_that_a_sheet_has_and_nobody_filled_are_left_out(tmp_path: Path) -> None:
    text = "sep=;\r\n\r\nprompt;response;reward;;\r\na;b;1;;\r\n;;;;\r\na;c;0,25;;\r\n;;;;\r\n"
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert rollouts(tmp_path / "a.csv") == [IngestedRollout("a", "b", 1.0), IngestedRollout("a", "c", 0.25)]
    (tmp_path / "a.csv").write_bytes(text.replace("0,25", "x").encode())
    assert "line 6: its reward is not a number: 'x'" in complaint(lambda: rollouts(tmp_path / "a.csv"))


@pytest.mark.parametrize("written", ["1,000", "12,345", "-1,000,000"])
def test_a_comma_that_may_be_a_decimals_or_a_thousands_is_refused(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.csv").write_text(f"prompt;response;reward\na;b;{written}\n")
    assert "its reward is not a number" in complaint(lambda: rollouts(tmp_path / "a.csv"))


WRITTEN = {
    "cp1252": "“Größe” – à l’école 5 €",
    "utf-16-le": "plain",
    "cp1251": "Привет мир",
    "koi8-r": "Привет мир",
    "cp1253": "Καλημέρα",
    "gb18030": "你好世界",
    "shift_jis": "こんにちは",
}


@pytest.mark.parametrize("encoding", WRITTEN)
def test_an_encoding_that_nothing_names_is_refused_and_the_hint_writes_it_anew(
    tmp_path: Path, encoding: str
) -> None:
    """An encoding without a mark is never guessed: the hint says CP1252 where it may be that, and leaves it
    open where words are beyond it."""
    file, named = (
        tmp_path / "a sheet.csv",
        {"cp1252": "CP1252", "utf-16-le": "UTF-16LE"}.get(encoding, "ENCODING"),
    )
    file.write_bytes(f"prompt,response,reward\n{WRITTEN[encoding]},b,1\n".encode(encoding))
    with pytest.raises(ConfigError) as refused:
        rollouts(file)
    hint = str(refused.value.hint)
    assert f"iconv -f {named} -t UTF-8" in hint
    subprocess.run(hint.rpartition(": ")[2].replace("ENCODING", encoding), shell=True, check=True)
    assert rollouts(tmp_path / "utf8-a sheet.csv") == [IngestedRollout(WRITTEN[encoding], "b", 1.0)]


WHOLE = [{"prompt": "é?", "response": n, "reward": n % 2} for n in range(3)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_json_over_several_lines_is_read(tmp_path: Path, suffix: str, encoding: str) -> None:
    """An object as an editor indents it, several as jq prints them, an array on one line or on many."""
    rows = [row | {"response": str(row["response"])} for row in WHOLE]
    expected = [IngestedRollout("é?", str(n), float(n % 2)) for n in range(3)]
    file = tmp_path / f"a.{suffix}"
    indented = "\n".join(json.dumps(row, indent=1, ensure_ascii=False) for row in rows)
    array = json.dumps(rows, ensure_ascii=False)
    for text in (indented, array, json.dumps(rows, indent=2), f"\n{array}\n"):
        file.write_bytes(text.encode(encoding))
        assert rollouts(file) == expected
    file.write_bytes(json.dumps(rows[0], indent=2).encode(encoding))
    assert rollouts(file) == expected[:1]


def test_a_line_that_is_wrong_is_told_and_a_cut_one_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": a}\n{"prompt": "b"}\n')
    assert "line 1 is not JSON" in complaint(lambda: rollouts(file))
    file.write_text('{\n "prompt": "a",\n "response": b\n}\n')
    assert "is not JSON: Expecting value: line 3" in complaint(lambda: rollouts(file))
    file.write_text('{"prompt": "a", ')
    cut: list[str] = []
    assert list(read("jsonl", file, on_cut=cut.append)) == []
    assert cut == ["a.jsonl"]


def test_names_of_columns_may_have_spaces_around_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt, response ,\xa0reward\na,b,1\n", encoding="utf-8")
    assert rollouts(tmp_path / "a.csv") == [IngestedRollout("a", "b", 1.0)]


def test_a_cell_may_hold_its_tags_as_json(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('prompt,response,reward,tags\na,b,1,"[""x"", ""y""]"\nc,d,0,x\n')
    assert [each.tags for each in rollouts(tmp_path / "a.csv")] == [("x", "y"), ("x",)]


def test_cells_that_were_merged_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt,response,reward\na,b,1\n,c,0\n,d,0\n")
    notes = list[str]()
    list(read("jsonl", tmp_path / "a.csv", on_cut=notes.append, on_note=notes.append))
    assert [note.partition(",")[0] for note in notes] == ["empty prompts: 2 of 3"]


def test_a_tables_reward_of_32_bits_is_the_decimal_that_it_was(tmp_path: Path) -> None:
    rewards = [0.9, 0.1, float("nan"), float("inf"), None, 1e-30]
    frame = polars.DataFrame({"prompt": "a", "response": "b", "reward": rewards})
    frame.with_columns(polars.col("reward").cast(polars.Float32)).write_parquet(tmp_path / "a.parquet")
    assert [each.reward for each in rollouts(tmp_path / "a.parquet")] == [0.9, 0.1, 1e-30]


def test_an_empty_reward_is_none_in_every_kind_of_table(tmp_path: Path) -> None:
    frame = polars.DataFrame({"prompt": "a", "response": "b", "reward": ["", "0,5", "1"]})
    frame.write_parquet(tmp_path / "a.parquet")
    assert [each.reward for each in rollouts(tmp_path / "a.parquet")] == [0.5, 1.0]
