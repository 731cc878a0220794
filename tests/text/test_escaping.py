"""What may be stored and what may be shown (`diagevo/text/escaping.py`), case by case."""

import csv
import io
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.text.escaping import csv_text, json_text, markdown_text, one_line, storable, utf8, visible

NONCHARACTERS = {
    *range(0xFDD0, 0xFDF0),
    *(16**4 * plane + last for plane in range(17) for last in (0xFFFE, 0xFFFF)),
}
SEEN_FORMATS = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Signs of Arabic and Kaithi that stand before a number: of the category Cf, and drawn."""


def test_what_neither_utf8_nor_postgresql_has_becomes_the_replacement_character() -> None:
    assert storable("a\0b\ud83dc\udfffd") == "a\ufffdb\ufffdc\ufffdd"


def test_all_else_is_stored_exactly() -> None:
    every = "".join(chr(code) for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    assert storable(every) == every
    assert storable(text := "f(x) = \x1b[31m \u202e 😀") is text


def test_a_text_that_is_kept_by_its_digest_loses_only_what_no_database_shows() -> None:
    assert utf8("a\0\x1b\ufffe\ud800") == b"a\xef\xbf\xbd\x1b\xef\xbf\xbe\xef\xbf\xbd"


def test_whatever_a_screen_obeys_or_hides_is_shown() -> None:
    """Every character of the categories Cc, Cf, Cs, Zl and Zp, and every noncharacter, but for line feed, tab
    and signs that are drawn."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        unseen = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") or code in NONCHARACTERS
        if unseen and character not in "\n\t" and character not in SEEN_FORMATS:
            shown = visible(character)
            assert shown != character, hex(code)
            assert shown.isprintable(), hex(code)
        elif character.isalnum() and character not in "\u115f\u1160\u3164\uffa0":
            assert visible(character) == character


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", "␛[31mred␇"),
        ("a\0b\r\n", "a␀b␍\n"),
        ("\x9b2J \x7f", "\\x9b2J ␡"),
        ("a\u202eb\u200bc\ufeff", "a\\u202eb\\u200bc\\ufeff"),
        ("\ufffe\ud800\U000e0041\U0001ffff", "\\ufffe\\ud800\\U000e0041\\U0001ffff"),
        ("x² ≤ π, 日本, é, 😀", "x² ≤ π, 日本, é, 😀"),
    ],
)
def test_a_character_is_shown_as_a_symbol_or_by_its_number(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_one_line_of_a_screen_keeps_where_the_lines_ended() -> None:
    assert visible("a\tb\nc", one_line=True) == "a b ⏎ c"


def test_a_phrase_has_single_spaces_and_nothing_unseen() -> None:
    assert one_line(" a\n\u202eb\u200b \ufffe\0c\ud800\x1b ") == "a b c"


def test_json_holds_a_text_exactly_and_shows_nothing_unseen() -> None:
    hostile = "".join(map(chr, [*range(0x250), 0x202E, 0x200B, 0xFEFF, 0xFFFE, 0xE0041, 0x1F600])) + "\ud800"
    written = json_text({"a": hostile}, indent=2)
    assert json.loads(written) == {"a": hostile}
    assert visible(written) == written
    assert "😀" in written


@pytest.mark.parametrize(
    "text",
    [
        "=cmd|'/c calc'!A1",
        "+1+1",
        "-2+3+cmd|' /C calc'!A0",
        "@SUM(1)",
        "\t=1",
        " =1",
        "\n=1",
        "＝1+1",
        '=HYPERLINK("http://x")',
        "\ttext",
        "-x",
    ],
)
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert csv_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-3", "+3.5", "-1/3", "-1e-06", "7", "a=b", "x - y", "", "'quoted", "(-3)"])
def test_a_number_stays_a_number_and_a_plain_text_itself(text: str) -> None:
    assert csv_text(text) == text


def test_a_cell_holds_no_control_character_and_stays_one_cell() -> None:
    buffer = io.StringIO()
    csv.writer(buffer).writerow([csv_text('a\0b\x1b[2J"c\r\nd,e')])
    assert list(csv.reader(io.StringIO(buffer.getvalue(), newline=""))) == [['a␀b␛[2J"c␍\nd,e']]


@pytest.mark.parametrize("text", ["می\u200cشود", "👩\u200d🚀", "क्\u200dष", "a\u2060b"])
def test_a_file_keeps_what_words_are_written_with(text: str) -> None:
    """A terminal shows it: there nobody would see it."""
    assert csv_text(text) == markdown_text(text) == text
    assert "\\u20" in visible(text)


@given(st.text(st.sampled_from("\u200c\u200d\u2060\u200b\u202e\ufeff\x1ba=")))
def test_of_what_is_unseen_a_file_keeps_nothing_else(text: str) -> None:
    for shown in (csv_text(text), markdown_text(text)):
        assert not set(shown) & set("\u200b\u202e\ufeff\x1b")
        assert [each for each in shown if each in "\u200c\u200d\u2060"] == [
            each for each in text if each in "\u200c\u200d\u2060"
        ]
    assert not re.match("[\u200c\u200d\u2060]*=", csv_text(text))


def test_markdown_shows_a_text_and_reads_nothing_in_it() -> None:
    hostile = r"a|b \| *c* _d_ `e` [f](http://x) <script> ~~g~~ $h$ &amp; snake_case p<1" "\n\x1b"
    assert markdown_text(hostile) == (
        r"a\|b \\\| \*c\* \_d\_ \`e\` \[f\](http://x) \<script\> \~\~g\~\~ \$h\$ \&amp; snake_case p\<1"
        " ⏎ ␛"
    )
