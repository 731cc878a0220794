"""Documents in a text: JSON, YAML, XML, CSV and Markdown tables, in a fence or not, as plain values.

Anything unparsable is text. Nothing is evaluated, no entity is resolved, and a document is bounded in
characters, values and depth.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from typing import Any
from xml.etree import ElementTree

from diagevo.answers.notation import nesting

LONGEST = 1_000_000
"""Maximum characters of a text searched for documents."""
MOST_VALUES, DEEPEST = 5_000, 32
"""Maximum values of a document; the rest counts as left out."""
MOST_NUMBER = 1e300
"""Beyond it a number is text."""
LONGEST_YAML = 50_000
"""Maximum characters of YAML: its parser takes a second for this many."""
DEEPEST_YAML = 300
"""Maximum nesting of brackets: the parser takes seconds for 2 kB of them."""
ATTEMPTS = 8
"""Maximum positions at which JSON within a sentence is tried: each failing one may read to the end."""
_OPENS = re.compile(r"^\s*(?:```|~~~)\s*([\w+-]*)\s*$")
_JSON = re.compile(r"\{\s*[\"}]|\[\s*\{\s*\"")
_RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_YAML = re.compile(r"^(?:\s*- |\s*(?:- )?[a-z_][a-z0-9_]*:(?: |$)|\s*#|\s*$|---$)")
_KEYED = re.compile(r"^[a-z_][a-z0-9_]*:(?: |$)", re.MULTILINE)
_HEAD = re.compile(r"[^\W\d][\w.()/%-]{0,39}")
LEFT_OUT = "…"
"""Replaces values that are deeper, or beyond MOST_VALUES."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document in some lines of a text, as dicts, lists, strings, numbers, booleans and None."""

    value: Any
    lines: range
    """Relative to the given lines."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Lines that begin like JSON but are not: they count as text."""

    line: int
    why: str


def read(lines: Sequence[str]) -> Document | Unreadable | None:
    """The last document of a text; if there is none, an almost valid one."""
    if sum(map(len, lines)) > LONGEST:
        return None
    found = unreadable = None
    for language, block in _fenced(lines):
        value = _parsed(language, lines[block.start + 1 : block.stop - 1])
        if isinstance(value, Unreadable):
            unreadable = Unreadable(block.start + 1 + value.line, value.why)
        elif value is not None:
            found = Document(_bounded(value), block)
    found = found or unreadable or _bare(lines)
    if isinstance(found, Document) and not isinstance(found.value, dict | list):
        return None
    return found


def _fenced(lines: Sequence[str]) -> Iterator[tuple[str, range]]:
    """The language and the lines of each closed fence, including its marks."""
    start, language = None, ""
    for place, line in enumerate(lines):
        if (mark := _OPENS.match(line)) is None:
            continue
        if start is None:
            start, language = place, mark[1].lower()
        else:
            yield language, range(start, place + 1)
            start = None


def _parsed(language: str, lines: Sequence[str]) -> Any:
    """The value of a fence; None if it contains no document."""
    text = "\n".join(lines).strip()
    match language:
        case "json" | "jsonc" | "json5" | "jsonl" | "":
            if not text.startswith(("{", "[")):
                return None if language else _table(lines) or _keyed(lines)
            value = _json(text)
            return None if isinstance(value, Unreadable) and not language else value
        case "yaml" | "yml":
            return _yaml(text)
        case "xml":
            return _xml(text)
        case "csv" | "tsv":
            return _csv(lines)
        case "markdown" | "md":
            return _table(lines)
        case _:
            return None


def _bare(lines: Sequence[str]) -> Document | Unreadable | None:
    """A document without a fence: the whole text, or JSON or a table within it."""
    text = "\n".join(lines)
    whole = text.strip()
    every = range(len(lines))
    if whole.startswith("<") and whole.endswith(">") and (value := _xml(whole)) is not None:
        return Document(_bounded(value), every)
    if whole.startswith(("{", "[")) and not isinstance(value := _json(whole), Unreadable):
        return Document(_bounded(value), every)
    values, start, stop = [], 0, 0
    for _ in range(ATTEMPTS if "{" in text else 0):
        if (begun := _JSON.search(text, stop)) is None:
            break
        try:
            value, end = json.JSONDecoder().raw_decode(text, begun.start())
        except (ValueError, RecursionError):
            stop = begun.start() + 1
            continue
        start, stop = begun.start() if not values else start, end
        values.append(value)
    if values:
        place = range(text.count("\n", 0, start), text.count("\n", 0, stop) + 1)
        return Document(_bounded(values[0] if len(values) == 1 else values), place)
    if whole.startswith(("{", "[{")) and isinstance(value := _json(whole), Unreadable):
        return value
    return _of_lines(lines)


def _of_lines(lines: Sequence[str]) -> Document | None:
    marked = [place for place, line in enumerate(lines) if line.lstrip().startswith("|")]
    if len(marked) > 2 and (value := _table([lines[place] for place in marked])) is not None:
        return Document(_bounded(value), range(marked[0], marked[-1] + 1))
    if len(lines) < 3:
        return None
    value = _keyed(lines) if _is_keyed(lines) else _csv(lines)
    return None if value is None else Document(_bounded(value), range(len(lines)))


def _is_keyed(lines: Sequence[str]) -> bool:
    """Whether all lines look like YAML, and more than one begins with a key."""
    return all(_YAML.match(line) for line in lines) and len(_KEYED.findall("\n".join(lines))) > 1


def _keyed(lines: Sequence[str]) -> Any:
    return _yaml("\n".join(lines)) if _is_keyed(lines) else None


def _json(text: str) -> Any:
    """The value of a whole text; for JSON lines, the list of their values."""
    try:
        return json.loads(text)
    except RecursionError:
        return Unreadable(0, "too deep")
    except ValueError as error:
        rows = [line for line in text.splitlines() if line.strip()]
        if len(rows) > 1 and all(row.lstrip()[:1] == "{" and row.rstrip()[-1:] == "}" for row in rows):
            try:
                return [json.loads(row) for row in rows]
            except (ValueError, RecursionError):
                pass
        line = error.lineno - 1 if isinstance(error, json.JSONDecodeError) else 0
        why = error.msg if isinstance(error, json.JSONDecodeError) else "a number too long"
        return Unreadable(line, why)


@cache
def _loader() -> Any:
    from ruamel.yaml import YAML  # slow to import, and rarely needed

    return YAML(typ="safe")


def _yaml(text: str) -> Any:
    """Aliases share their value, and `_bounded` bounds what they repeat; merged keys would be copied."""
    from ruamel.yaml.error import YAMLError

    if len(text) > LONGEST_YAML or "<<" in text or nesting(text) > DEEPEST_YAML:
        return None
    try:
        found = _loader().load(text)
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError, KeyError):
        return None
    return found if isinstance(found, dict | list) else None


def _xml(text: str) -> Any:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None  # entities could name files and grow without end
    try:
        root = ElementTree.fromstring(text)
        return {root.tag: _element(root, 0)}
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None


def _element(element: ElementTree.Element, depth: int) -> Any:
    """Attributes and children as fields, same-named children as a list; its text if it has neither."""
    text = (element.text or "").strip()
    if not len(element) and not element.attrib:
        return text
    if depth > DEEPEST:
        return LEFT_OUT
    found: dict[str, Any] = {f"@{name}": value for name, value in element.attrib.items()}
    children: dict[str, list[Any]] = {}
    for each in element:
        children.setdefault(str(each.tag), []).append(_element(each, depth + 1))
    found |= {name: values[0] if len(values) == 1 else values for name, values in children.items()}
    return found | ({"text": text} if text else {})


def _table(lines: Sequence[str]) -> list[dict[str, str]] | None:
    """A Markdown table, recognized by the rule under its header."""
    rows = [line.strip() for line in lines if line.strip()]
    if len(rows) < 3 or not _RULE.match(rows[1]) or "|" not in rows[0]:
        return None
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if not _RULE.match(row)]
    head = cells[0]
    return [dict(zip(head, row, strict=False)) for row in cells[1:] if len(row) == len(head)] or None


def _csv(lines: Sequence[str]) -> list[dict[str, str]] | None:
    """Rows with as many cells as the header."""
    rows = [line for line in lines if line.strip()]
    if len(rows) < 2:
        return None
    sign = max("\t;,", key=rows[0].count)
    if not rows[0].count(sign):
        return None
    try:
        head, *cells = csv.reader(StringIO("\n".join(rows)), delimiter=sign)
    except (csv.Error, ValueError):
        return None
    if len(set(head)) < len(head) or any(len(row) != len(head) for row in cells):
        return None
    if not all(_HEAD.fullmatch(cell.strip()) for cell in head):
        return None
    return [{name.strip(): cell.strip() for name, cell in zip(head, row, strict=True)} for row in cells]


def _bounded(value: Any) -> Any:
    """At most MOST_VALUES values, DEEPEST deep; dates and similar values as text."""
    left = MOST_VALUES

    def kept(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if isinstance(value, dict | list | tuple) and depth == DEEPEST:
            return LEFT_OUT
        if isinstance(value, dict):
            found: dict[str, Any] = {}
            for name, each in value.items():
                if left <= 0:
                    break
                found[str(name)] = kept(each, depth + 1)
            return found
        if isinstance(value, list | tuple):
            items: list[Any] = []
            for each in value:
                if left <= 0:
                    break
                items.append(kept(each, depth + 1))
            return items
        if isinstance(value, int | float):
            return value if abs(value) < MOST_NUMBER else str(value)  # NaN too
        return value if value is None or isinstance(value, str) else str(value)

    return kept(value, 0)
