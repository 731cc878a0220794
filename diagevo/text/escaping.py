"""Text that somebody else wrote: what a database can keep, and what may be shown.

Models, users and servers write anything. `storable` stands before every database; `visible` and what is made
of it before every terminal, page, picture, spreadsheet and Markdown table. Nothing else changes a text.
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
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they turn the direction of what follows
    "\xad\u034f\u070f\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2028\u2029\ud800-\udfff" + _NONCHARACTERS + "]"
)
"""What no screen shows as it is: it is obeyed, or has no width, or is no character."""
_JOINERS = "\u200c\u200d\u2060"
"""Of these, what Persian, the scripts of India and emoji are written with. A file keeps them."""
_IN_FILES = re.compile(f"(?![{_JOINERS}]){_UNSEEN.pattern}")


def storable(text: str) -> str:
    """`text` as SQLite and PostgreSQL both keep it. U+FFFD stands for NUL, which PostgreSQL does not take,
    and for half a surrogate pair, which has no UTF-8. All else stays exact."""
    return text if text.isascii() and "\0" not in text else _UNSTORABLE.sub(REPLACEMENT, text)


def utf8(text: str) -> bytes:
    """The bytes of a text that is kept by its digest."""
    return storable(text).encode()


def visible(text: str, *, one_line: bool = False) -> str:
    """`text` with everything unseen shown: a model's output must not steer a terminal, nor hide in it."""
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
    """`text` where it has at most so many characters, else its beginning, and how long it is."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def one_line(text: str) -> str:
    """A description or label as a phrase: words with one space between them, nothing unseen."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def json_text(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """JSON with everything unseen escaped: a program reads the text exactly, a terminal obeys nothing."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=default)
    return _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], written)


_FORMULA = re.compile(rf"[\s{_JOINERS}]*[=+\-@＝＋－＠]|\t")
"""A spreadsheet reads the wide forms too."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?(/\d+)?")


def csv_text(text: str) -> str:
    """A text for a cell of a CSV file. A spreadsheet would run one that begins like a formula: an apostrophe
    before it makes it text. A text that is a number stays one."""
    shown = _visible(_IN_FILES, text, one_line=False)
    formula = _FORMULA.match(shown.lstrip("'")) and not _NUMBER.fullmatch(shown)
    return f"'{shown}" if formula else shown


def from_csv(text: str) -> str:
    """The text of a cell that `csv_text` may have written."""
    return text[1:] if text[:1] == "'" and csv_text(text[1:]) == text else text


_MARKUP = re.compile(r"[\\`*\[\]<>|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")


def markdown_text(text: str) -> str:
    """A text for a cell of a Markdown table: one line, and nothing in it is markup."""
    return _MARKUP.sub(r"\\\g<0>", _visible(_IN_FILES, text, one_line=True))
