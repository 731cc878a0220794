"""Rows of a published view as typed values, and values copied from others' fields."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from sqlalchemy import text
from sqlmodel import SQLModel

from diagevo.memory.history import History

R = TypeVar("R")


def select_rows(
    history: History,
    view: str,
    row: type[R],
    where: str = "",
    values: Mapping[str, Any] | None = None,
    *,
    order: str = "",
    limit: int | None = None,
    skip: int = 0,
) -> list[R]:
    """Rows of a view, of one run.

    Args:
        history: The run.
        view: The view's name, or a join, as in SQL's FROM.
        row: A dataclass, or a row class, whose fields are columns. A `Fraction` is parsed from its text, a
            flag from 0 and 1, other structures from JSON.
        where: A further condition.
        values: The values of its `:name` parameters.
        order: Columns, as SQL's ORDER BY takes them.
        limit: Maximum number of rows, after the first `skip`.
    """
    readers = _readers(row)
    query = f"SELECT {', '.join(readers)} FROM {view} WHERE run_id = :run"
    query += f" AND ({where})" if where else ""
    query += f" ORDER BY {order}" if order else ""
    query += "" if limit is None else f" LIMIT {limit} OFFSET {skip}"
    convert = [(name, read) for name, read in readers.items() if read is not None]
    found: list[R] = []
    with history.database.read() as connection:
        for cells in connection.execute(text(query), {"run": history.run_id, **(values or {})}):
            row_values = dict(zip(readers, cells, strict=True))
            for name, read in convert:
                if row_values[name] is not None:
                    row_values[name] = read(row_values[name])
            found.append(row(**row_values))
    return found


def filled(kind: type[R], source: object, **others: Any) -> R:
    """A value of a dataclass whose fields are those of the same name in `source`, but for `others`.

    Raises AttributeError if `source` lacks one, even if the dataclass has a default for it.
    """
    return kind(**{name: getattr(source, name) for name in _fields(kind) - others.keys()}, **others)


@cache
def _fields(kind: Any) -> frozenset[str]:
    return frozenset(one.name for one in fields(kind))


@cache
def _readers(row: type) -> dict[str, Callable[[Any], Any] | None]:
    """By column, the function that converts its cell; None if none is needed."""
    hints = get_type_hints(row)
    names = row.model_fields if issubclass(row, SQLModel) else hints
    return {name: _reader(hints[name]) for name in names}


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    if isinstance(kind, UnionType):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if kind in (str, int, float) or get_origin(kind) is Literal:
        return None
    if kind is Fraction or kind is bool:
        return kind
    return msgspec.json.Decoder(kind).decode
