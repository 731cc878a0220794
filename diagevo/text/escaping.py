"""Untrusted text: what a database can store, and what may be shown.

Models, users and servers write anything. `storable` guards every database; `visible` and the functions built
on it guard every terminal, page, picture, spreadsheet and Markdown table. Nothing else changes a text.
"""

import json
import re
from collections.abc import Callable
from typing import Any

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
REPLACEMENT = "\ufffd"

_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(
    f"{chr(0x10000 * plane + 0xFFFE)}{chr(0x10000 * plane + 0xFFFF)}" for plane in range(17)
)
_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f"  # controls
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they change the direction of the following text
    "\xad\u034f\u070f\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2028\u2029\ud800-\udfff" + _NONCHARACTERS + "]"
)
"""Characters that no screen shows: control characters, zero-width ones, and non-characters."""
_JOINERS = "\u200c\u200d\u2060"
"""Those of them needed by Persian, Indian scripts and emoji. A file keeps them."""
_IN_FILES = re.compile(f"(?![{_JOINERS}]){_UNSEEN.pattern}")


def storable(text: str) -> str:
    """`text` in a form that SQLite and PostgreSQL both store. U+FFFD replaces NUL, which PostgreSQL
    refuses, and half a surrogate pair, which has no UTF-8. Everything else stays exact."""
    return text if text.isascii() and "\0" not in text else _UNSTORABLE.sub(REPLACEMENT, text)


def utf8(text: str) -> bytes:
    """The bytes of a text stored by its digest."""
    return storable(text).encode()


def visible(text: str, *, one_line: bool = False) -> str:
    """`text` with invisible characters shown: a model's output must not control a terminal, nor hide in
    it."""
    return _visible(_UNSEEN, text, one_line=one_line)


def _visible(unseen: re.Pattern[str], text: str, *, one_line: bool) -> str:
    shown = unseen.sub(_symbol, text)
    return shown.replace("\t", " ").replace("\n", " ⏎ ") if one_line else shown


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 32:
        return chr(0x2400 + code)
    if code == 127:
        return "␡"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortened(text: str, most: int = 80) -> str:
    """`text` if it has at most this many characters, otherwise its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def one_line(text: str) -> str:
    """A description or label as a phrase: words with single spaces, nothing invisible."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def json_text(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """JSON with invisible characters escaped: a program reads the exact text, a terminal obeys nothing."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=default)
    return _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], written)


_FORMULA = re.compile(rf"[\s{_JOINERS}]*[=+\-@＝＋－＠]|\t")
"""A spreadsheet also accepts the full-width forms."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?(/\d+)?")


def csv_text(text: str) -> str:
    """A text for a CSV cell. A spreadsheet would execute one that begins like a formula: a leading
    apostrophe makes it text. A text that is a number stays one."""
    shown = _visible(_IN_FILES, text, one_line=False)
    formula = _FORMULA.match(shown.lstrip("'")) and not _NUMBER.fullmatch(shown)
    return f"'{shown}" if formula else shown


def from_csv(text: str) -> str:
    """The text of a cell that `csv_text` may have written."""
    return text[1:] if text[:1] == "'" and csv_text(text[1:]) == text else text


_MARKUP = re.compile(r"[\\`*\[\]<>|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")


def markdown_text(text: str) -> str:
    """A text for a cell of a Markdown table: one line, without markup."""
    return _MARKUP.sub(r"\\\g<0>", _visible(_IN_FILES, text, one_line=True))
