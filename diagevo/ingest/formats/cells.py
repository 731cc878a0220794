"""CSV and TSV as written by spreadsheets, pandas and others."""

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError
from diagevo.ingest.json_lines import LONGEST, lines_of, regular

_DECIMAL_COMMA = re.compile(r"[+-]?(?:0|[0-9]+),[0-9]+(?:e[+-]?[0-9]+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+")


def cells(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row of a CSV or TSV file that begins with the names of its columns, with the line that it ends in.
    Raises ConfigError, with file and line."""
    regular(file)
    csv.field_size_limit(LONGEST)
    before, texts = 0, _texts(file)
    first = next(texts, "")
    named = re.fullmatch(r"sep=(.)\s*", first)  # a line only for Excel
    while first.isspace() or before < (named is not None):
        before, first = before + 1, next(texts, "")
    delimiter = named[1] if named else _delimiter(first, "\t," if ".tsv" in file.suffixes else ",\t")
    found = csv.reader(chain([first], texts), strict=True, delimiter=delimiter)
    try:
        # pandas leaves out the name of its index, and spreadsheets that of an emptied column.
        names = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(next(found, []))]
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise ConfigError(
                f"{file} has two columns {twice}", hint="name each column once, in the first line"
            )
        for row in found:
            if row and len(row) != len(names):
                raise ConfigError(
                    f"{file}, line {found.line_num + before} has {len(row)} cells for {len(names)} columns",
                    hint=f'put a cell that has a "{delimiter}" or a line break in quotes',
                )
            if any(row):
                yield found.line_num + before, dict(zip(names, row, strict=True))
    except csv.Error as error:
        hint = "put a cell that has a quote or a carriage return in quotes, and write a quote in it twice"
        raise ConfigError(f"{file}, line {found.line_num + before} is not CSV: {error}", hint=hint) from error


def _texts(file: Path) -> Iterator[str]:
    """The lines of a file as text; old Macs and some exports end them with only a carriage return."""
    lines = (line for _, _, line in lines_of(file))
    first = next(lines, b"").removeprefix(codecs.BOM_UTF8)
    alone = b"\r" in first.rstrip(b"\r\n")
    for line in chain([first], lines):
        yield from re.findall(r"[^\r]*(?:\r\n?|\Z)", line.decode()) if alone else [line.decode()]


def _delimiter(header: str, usual: str) -> str:
    """The delimiter that splits the header into most names: comma, tab, or what spreadsheets use where the
    comma is the decimal sign."""

    def names(delimiter: str) -> int:
        return len(next(csv.reader([header], delimiter=delimiter), []))

    return max(f"{usual};|", key=names)  # the first on ties


def reward_of(value: Any) -> Any:
    """A spreadsheet's reward: an empty cell is none, and half of Europe writes 0,5. 1,000 is refused: it
    means one there, and a thousand elsewhere."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    comma = _DECIMAL_COMMA.fullmatch(text) and not _THOUSANDS.fullmatch(text)
    return text.replace(",", ".") if comma else text or None
