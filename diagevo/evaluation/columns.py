"""How a row of a published data set becomes a reference answer, options and a category."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from diagevo.answers.extraction import boxed_answer
from diagevo.errors import ConfigError
from diagevo.evaluation.questions import LETTERS
from diagevo.evaluation.rows import Row


def pick(row: Row, columns: str | tuple[str, ...]) -> Any:
    """The value of the first of the columns that the row has."""
    names = (columns,) if isinstance(columns, str) else columns
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise ConfigError(f"no column {' or '.join(names)}; there are: {', '.join(map(str, row))}")


def _as_list(value: Any) -> list[Any]:
    """A list column; a CSV file holds it as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ConfigError(f"a list is needed as JSON, not {value[:60]!r}") from error
    if not isinstance(value, Sequence):
        raise ConfigError(f"a list is needed, not {value!r}")
    return list(value)


def column(*names: str) -> Callable[[Row], str]:
    return lambda row: str(pick(row, names)).strip()


def number(name: str) -> Callable[[Row], str]:
    """AMC keeps whole numbers as floats: 27.0 is shown as 27."""

    def gold(row: Row) -> str:
        value = float(pick(row, name))
        return str(int(value) if value.is_integer() else value)

    return gold


def after_hashes(row: Row) -> str:
    """GSM8K keeps the answer behind `#### ` at the end of the solution."""
    return str(pick(row, "answer")).rsplit("#### ", 1)[-1].strip()


def first_final_answer(row: Row) -> str:
    """OlympiadBench lists its answers; the first is the reference, as in its peers' code."""
    return str(_as_list(pick(row, "final_answer"))[0]).strip()


def boxed_solution(row: Row) -> str:
    """MATH's train split keeps the answer in the box of its solution; a local file may have it apart."""
    if row.get("answer") is not None:
        return str(row["answer"]).strip()
    answer = boxed_answer(str(pick(row, "solution")))
    if answer is None:
        raise ConfigError(f"a MATH solution has no box: {str(row.get('problem'))[:80]!r}")
    return answer


def listed(
    options: str, index: Callable[[Row], int]
) -> Callable[[Row, random.Random], tuple[list[str], int]]:
    return lambda row, _: ([str(option) for option in _as_list(pick(row, options))], index(row))


def shuffled_gpqa(row: Row, rng: random.Random) -> tuple[list[str], int]:
    """GPQA keeps the right answer apart from the wrong ones: shuffled, so that its place says nothing."""
    right = str(pick(row, "Correct Answer")).strip()
    options = [right, *(str(pick(row, f"Incorrect Answer {i}")).strip() for i in (1, 2, 3))]
    order = rng.sample(range(4), 4)
    return [options[i] for i in order], order.index(0)


def letter(name: str) -> Callable[[Row], int]:
    def index(row: Row) -> int:
        value = str(pick(row, name)).strip()
        if len(value) != 1 or value not in LETTERS:
            raise ConfigError(f"column {name} should hold a letter, not {value[:60]!r}")
        return LETTERS.index(value)

    return index


def level_three_or_four(row: Row) -> bool:
    return str(pick(row, "level")).removeprefix("Level ").strip() in ("3", "4")


def no_gold(row: Row) -> str:
    """The reference of a choice is the letter that its options give."""
    return ""
