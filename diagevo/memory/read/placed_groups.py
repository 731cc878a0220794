"""The groups of another trainer's rollouts in the order of the log, by the ids of their questions."""

from dataclasses import dataclass

from diagevo.memory.events import MODEL
from diagevo.memory.history import History
from diagevo.memory.read.asking import select_rows


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """`v_group` with its tags: the rollouts of one prompt in one step, of one model."""

    position: int
    round: int
    step: int
    question: str
    """The prompt's digest."""
    rollouts: int
    passes: int
    tags: tuple[str, ...]

    @property
    def model(self) -> str | None:
        return next((tag.removeprefix(MODEL) for tag in self.tags if tag.startswith(MODEL)), None)

    @property
    def classes(self) -> tuple[str, ...]:
        """Its tags, the model aside."""
        return tuple(tag for tag in self.tags if not tag.startswith(MODEL))


def placed_groups(history: History) -> dict[str, PlacedGroup]:
    """All that count, by question id: `r1.q7` is the eighth of its round."""
    tagged = """(SELECT g.run_id, g.position, g.round, g.step, g.question, g.rollouts, g.passes, t.tags
        FROM v_group g JOIN ingested_group t ON t.position = g.position) tagged"""
    places: dict[int, int] = {}
    found: dict[str, PlacedGroup] = {}
    for group in select_rows(history, tagged, PlacedGroup, order="position"):
        place = places[group.round] = places.get(group.round, -1) + 1
        found[f"r{group.round}.q{place}"] = group
    return found
