"""What a solver learned, compared with the base model, and what free exploration wrote."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from diagevo.evaluation.protocol import AT_BEST, colder
from diagevo.memory.events import CandidateScored
from diagevo.memory.history import History
from diagevo.memory.read.round_figures import MEAN, validations

SCORES = {MEAN: "mean@k", "greedy": "greedy", AT_BEST: "at its best T"}


def score_rows(history: History) -> list[dict[str, Any]]:
    """The scores after each round, by name, including lower temperatures."""
    found = validations(history)
    return [row for number in sorted(found) if MEAN in found[number] for row in _rows(number, found[number])]


def _rows(number: int, found: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    solver = f"after round {number}" if number else "base model"
    yield {"solver": solver} | dict(found)
    for metric, heat in colder(found).items():
        of_it = {name: value for name, value in found.items() if name.partition("/")[0] == metric}
        yield {"solver": f"{solver}, {heat}"} | {
            name.replace(metric, MEAN): value for name, value in of_it.items()
        }


def score_names(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Which scores they have with their headings, those at a temperature by category too."""
    if not rows:
        return {}
    categories = [name.partition("/")[2] for name in rows[0] if name.startswith("greedy/")]
    return {
        f"{metric}/{category}".strip("/"): f"{heading} {category}".strip()
        for metric, heading in SCORES.items()
        if metric in rows[0]
        for category in ("", *(categories if metric != AT_BEST else ()))
    }


def families_in(written: Mapping[int, Counter[str]]) -> list[str]:
    """Most written first."""
    return [name for name, _ in sum(written.values(), Counter[str]()).most_common()]


def premise(world: object) -> str | None:
    """The premise of a world's results; None if there is no such world."""
    if world != "arithmetic":
        return None
    from diagevo.arithmetic import PREMISE

    return PREMISE


def free_questions(history: History) -> dict[int, Counter[str]]:
    """Valid free questions by round and family; none if no world knows families."""
    if premise(history.world) is None:
        return {}
    from diagevo.arithmetic.families import family

    written: dict[int, Counter[str]] = {}
    for fact in history.events(CandidateScored):
        scored = fact.event
        if scored.mode == "free" and scored.verdict != "invalid":
            name = family(history.text(scored.question) or "")
            if name is not None:
                written.setdefault(fact.round, Counter())[name] += 1
    return written
