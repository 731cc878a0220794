"""Several runs, models or steps beside each other: what passed of each, by tag, and on how many of its
prompts each failed by a cause."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from diagevo.evaluation.protocol import share_interval
from diagevo.memory.compare.matched_causes import plain_words
from diagevo.memory.compare.run_slices import RunSlice
from diagevo.memory.read.placed_groups import PlacedGroup
from diagevo.text.numbers import percent

COLUMNS = 12
"""That stand beside each other, at most."""


@dataclass(frozen=True, slots=True)
class SliceShare:
    """A share with its interval. Responses to one prompt are no independent evidence: prompts are units."""

    part: int
    whole: int
    prompts: int

    @property
    def share(self) -> float:
        return self.part / self.whole

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95%."""
        return share_interval(self.share, self.prompts)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{percent(self.share)} ({percent(low)} to {percent(high)})"


@dataclass(frozen=True, slots=True)
class SliceRow:
    """A line of the table, with a cell a column; None where the column has no such prompt."""

    name: str
    cause_id: str | None
    """Where a column's run has such a cause, in the last of them."""
    run: str | None
    cells: tuple[SliceShare | None, ...]


@dataclass(frozen=True, slots=True)
class SliceTable:
    columns: tuple[RunSlice, ...]
    whole: SliceRow
    tags: tuple[SliceRow, ...]
    """Lowest pass rate of any column first."""
    causes: tuple[SliceRow, ...]
    """Largest share of any column first: of the prompts asked, those with a failure of this cause. Causes of
    several runs are one if their words are, but for counts."""


def slice_table(columns: Sequence[RunSlice]) -> SliceTable:
    """Of up to COLUMNS slices."""
    columns = tuple(columns[:COLUMNS])
    by_tag = [_by_tag(of.groups.values()) for of in columns]
    tags = [
        SliceRow(tag, None, None, tuple(None if tag not in of else _passed(of[tag]) for of in by_tag))
        for tag in sorted(set().union(*by_tag))
    ]
    tags.sort(key=lambda row: min(cell.share for cell in row.cells if cell is not None))
    whole = SliceRow("all", None, None, tuple(_passed(of.groups.values()) for of in columns))
    return SliceTable(columns, whole, tuple(tags), tuple(_causes(columns)))


def _by_tag(groups: Iterable[PlacedGroup]) -> dict[str, list[PlacedGroup]]:
    found: dict[str, list[PlacedGroup]] = {}
    for group in groups:
        for tag in group.classes:
            found.setdefault(tag, []).append(group)
    return found


def _passed(groups: Iterable[PlacedGroup]) -> SliceShare | None:
    groups = list(groups)
    rollouts = sum(group.rollouts for group in groups)
    if not rollouts:
        return None
    prompts = len({group.question for group in groups})
    return SliceShare(sum(group.passes for group in groups), rollouts, prompts)


def _causes(columns: Sequence[RunSlice]) -> Iterator[SliceRow]:
    words: dict[str, tuple[str, str, str]] = {}
    """Of each cause: as it is described in the last run that has it, that run, and its id there."""
    failed: list[dict[str, set[str]]] = []
    for of in columns:
        keys: dict[str, str] = {}
        for rate in of.cause_rates():
            keys[rate.cause_id] = key = plain_words(rate)
            words[key] = rate.description, of.history.run_id, rate.cause_id
        within: dict[str, set[str]] = {}
        for one in of.caused():
            within.setdefault(keys[one.cause_id], set()).add(one.question)
        failed.append(within)
    asked = [len({group.question for group in of.groups.values()}) for of in columns]
    rows = [
        SliceRow(
            description,
            cause_id,
            run,
            tuple(
                SliceShare(len(of.get(key, ())), prompts, prompts) if prompts else None
                for of, prompts in zip(failed, asked, strict=True)
            ),
        )
        for key, (description, run, cause_id) in words.items()
    ]
    yield from sorted(rows, key=lambda row: -max(cell.share for cell in row.cells if cell is not None))
