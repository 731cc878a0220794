"""Texts that are no configuration are refused at their line."""

from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagevo.config.loading import resolve
from diagevo.config.yaml_text import read
from diagevo.errors import ConfigError
from diagevo.text.fractions import fraction

NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1\nx: " + "[" * 800, "nested too deeply"),
        ("- " * 5000, "nested too deeply"),
        ("seed:\n  " + "9" * 5000, "line 2: a number of thousands of digits"),
        ("x: 2001-13-13", "line 1: month must be in 1..12"),
        ("x: !!int z", "line 1: invalid literal for int"),
        ("#" * 70_000, ": longer than 64 KiB"),
        ("é" * 40_000, ": longer than 64 KiB"),
        ("a: 1\nb: 2\na: 3", 'line 3: found duplicate key "a"'),
        ("a: *b", "line 1: found undefined alias 'b'"),
        ("a: \0", "unacceptable character #x0000"),
        ('x: 1\na: "m\\0"', "line 2: a text with a NUL or half a surrogate pair"),
        ('a:\n  - "\\ud800"', "line 2: a text with a NUL or half a surrogate pair"),
        ("%YAML 9.9\n", "unsupported YAML, such as a line that begins with %"),
        ("?  [? ]", "or a list as a key"),
        ("a: !!int ", "line 1: no value of its type (tag:yaml.org,2002:int)"),
        ("a: !!bool x", "line 1: no value of its type (tag:yaml.org,2002:bool)"),
    ],
)
def test_yaml_that_cannot_be_read_is_refused_at_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text, "mine.yaml")
    assert refused.value.message.startswith("mine.yaml")
    assert said in refused.value.message
    assert refused.value.hint


SIGNS = " \n-?:ab&*[]{},'\"|>#@`~1x!%\t\r\0\x85\ufeff\ud800"
WORDS = ["a: ", "- ", "? ", "&a ", "*a", "<<: ", "!!int ", "!!set ", "!!omap ", "%YAML 1.2\n", "%TAG ! x:\n"]


@settings(max_examples=300)
@given(st.lists(st.sampled_from([*WORDS, *SIGNS]), max_size=12))
def test_any_text_is_a_value_or_refused(pieces: list[str]) -> None:
    with suppress(ConfigError):
        read("".join(pieces), "mine.yaml")


def test_an_alias_works_and_one_inside_what_it_names_is_refused(tmp_path: Path) -> None:
    text = "x: &x {a: 1, b: 2}\ny: *x\nz:\n  <<: *x\n  b: 3\n"
    assert read(text, "mine.yaml")[0] == {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 2}, "z": {"a": 1, "b": 3}}
    (tmp_path / "m.yaml").write_text("filter: &a\n  tau: *a\n")
    with pytest.raises(ConfigError, match=r"m\.yaml, line 2"):
        resolve(file=tmp_path / "m.yaml", environ=NOWHERE, folder=tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        "'1e99999999'",
        "'1e-99999999'",
        "'1e9_999_999'",
        "'1/1e99999999'",
        "'1e309'",
        "1e99999999",
        "9" * 700,
        f"'{'9' * 700}'",
        f"0x{'f' * 9000}",
        "'1/0'",
        ".inf",
        "true",
    ],
)
def test_a_ratio_that_is_no_number_of_ours_is_refused_wherever_it_stands(tmp_path: Path, value: str) -> None:
    for name, where in (
        ("m.yaml", f"filter:\n  tau: {value}\n"),
        ("m.json", f'{{"filter": {{"tau": {value}}}}}'),
    ):
        (tmp_path / name).write_text(where.replace("'", '"'))
    given = [
        {"settings": [f"filter.tau={value}"]},
        {"environ": {**NOWHERE, "DIAGEVO_FILTER__TAU": value}},
        {"file": tmp_path / "m.yaml"},
        {"file": tmp_path / "m.json"},
    ]
    for places, start in zip(
        given, ("--set filter.tau", "DIAGEVO_FILTER__TAU", "m.yaml, line 2", "m.json, line 1"), strict=True
    ):
        with pytest.raises(ConfigError) as refused:
            resolve(**{"environ": NOWHERE, "folder": tmp_path, **places})
        assert start in refused.value.message
        assert "filter.tau" in refused.value.message or "FILTER__TAU" in refused.value.message
        assert refused.value.hint
        assert len(refused.value.message) < 400


@pytest.mark.parametrize("seed", [str(2**63), "9" * 4000, f"'{'9' * 4000}'", f"0x{'f' * 400}"])
def test_an_integer_that_the_log_cannot_keep_is_refused(tmp_path: Path, seed: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set seed"):
        resolve(settings=[f"seed={seed}"], environ=NOWHERE, folder=tmp_path)


def test_a_device_that_never_ends_is_no_configuration() -> None:
    with pytest.raises(ConfigError, match="/dev/zero is not a configuration"):
        resolve(file=Path("/dev/zero"), environ=NOWHERE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.7", Fraction(7, 10)),
        ("8/5", Fraction(8, 5)),
        ("1e-6", Fraction(1, 1_000_000)),
        (" .5 ", Fraction(1, 2)),
        ("1e+002", Fraction(100)),
        ("-3", Fraction(-3)),
        ("1e308", Fraction(10**308)),
    ],
)
def test_a_number_is_what_was_written(text: str, value: Fraction) -> None:
    assert fraction(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "1e99999999",
        "1e-99999999",
        "1e9_9",
        "9" * 601,
        "1/0",
        "1/00",
        "٣",
        "1e٩٩٩٩٩٩٩٩",
        "nan",
        "inf",
        "",
        "1e",
    ],
)
def test_what_is_no_number_or_too_large_a_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        fraction(text)
