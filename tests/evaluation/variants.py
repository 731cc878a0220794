"""What a played run shows of its variant, read from its log, and what each variant must show.

`python -m tests.evaluation.variants FOLDER [NAME…]` plays small runs of the arithmetic world and checks them.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from diagevo.config.loading import resolve
from diagevo.config.models import Config
from diagevo.evaluation.ablation import VARIANTS, variant
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from tests.run.small import play

SIZE = (
    "profile=embedded",
    "round={candidates: 64, responses: 12, challenger_votes: 2, rounds: 3}",
    "challenger_grpo={max_steps: 1, batch_questions: 4, group: 4}",
    "solver_grpo={max_steps: 2, batch_questions: 12, group: 4}",
    "validation={limit: 4, samples: 1}",
)
OWN_SIZE = {
    "r-zero": (
        "round={candidates: 64, rounds: 2}",
        "challenger_grpo={max_steps: 1, batch_questions: 4}",
        "solver_grpo={max_steps: 2, batch_questions: 12}",
        "validation={limit: 4, samples: 1}",
    )
}
"""Of a variant whose votes and groups are its own: what is said beside its settings counts before them."""


@dataclass(frozen=True)
class Facts:
    """Of a run's log, by round from 1."""

    epsilons: list[Fraction]
    modes: list[Counter[str]]
    scored: list[events.CandidateScored]
    failures: list[int]
    challenger_trained: bool
    promoted: int
    reactivated: int
    pairs: list[tuple[str, str]]
    """The nodes of a stitched question's two causes, as they were when it was drawn."""

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(event.verdict for event in self.scored)


def config_of(*names: str) -> Config:
    settings = [f"{k}={v}" for name in names for k, v in variant(name).settings.items()]
    size = OWN_SIZE.get(names[0], SIZE[1:])
    return resolve(settings=(*size, *settings), profile="embedded", environ={}).config


def facts(home: Path, run: str) -> Facts:
    history = open_history(str(home / "diagevo.db"), run, root=home)
    try:
        opened = [r.event for r in history.events(events.RoundOpened)]
        scored = list(history.events(events.CandidateScored))
        stages = [r.event for r in history.events(events.StageCompleted)]
        commits = [r.event for r in history.events(events.RoundCommitted)]
        rounds = range(1, len(opened) + 1)
        states = {number: history.state(history.as_of(round=number - 1)) for number in rounds[1:]}
        candidates = [(r.round, e) for r in scored if isinstance(e := r.event, events.CandidateScored)]

        def node(number: int, cause: str | None) -> str:
            return states[number].causes[cause or ""].node_id

        return Facts(
            epsilons=[Fraction(e.epsilon) for e in opened if isinstance(e, events.RoundOpened)],
            modes=[Counter(e.mode for number, e in candidates if number == n) for n in rounds],
            scored=[e for _, e in candidates],
            failures=[e.failures for e in commits if isinstance(e, events.RoundCommitted)],
            challenger_trained=any(
                e.stage == "challenger" and bool(e.artifacts)
                for e in stages
                if isinstance(e, events.StageCompleted)
            ),
            promoted=len(list(history.events(events.CausePromoted))),
            reactivated=len(list(history.events(events.CauseReactivated))),
            pairs=[
                (node(number, e.cause_id), node(number, e.stitched_cause_id))
                for number, e in candidates
                if e.stitched_cause_id is not None
            ],
        )
    finally:
        history.close()


def fixed(free: int) -> Callable[[Facts], bool]:
    return lambda f: f.epsilons == [Fraction(1), Fraction(free, 10), Fraction(free, 10)]


def scheduled(k: str) -> Callable[[Facts], bool]:
    """Equation 1: ε of a round from the failures of the one before; round 1 is the reference."""
    return lambda f: (
        f.epsilons
        == [
            Fraction(1),
            *(
                Fraction(f.failures[0], 1) / (f.failures[0] + open_ / Fraction(k))
                for open_ in f.failures[:-1]
            ),
        ]
    )


def kept_by(tau: str) -> Callable[[Facts], bool]:
    """Every readable label was judged by the range and by this τ."""

    def holds(event: events.CandidateScored) -> bool:
        inside = Fraction(1, 4) <= Fraction(event.first, event.responses) <= Fraction(3, 4)
        clear = event.first >= Fraction(tau) * event.second
        return (event.verdict == "kept") == (inside and clear)

    return lambda f: (
        f.verdicts["kept"] > 0 and all(holds(e) for e in f.scored if e.verdict not in ("invalid", "no_label"))
    )


MUST: dict[str, Callable[[Facts], bool]] = {
    "full": lambda f: (
        f.challenger_trained
        and f.modes[1]["targeted"] > 0
        and f.promoted > 0
        and scheduled("1/2")(f)
        and kept_by("8/5")(f)
        and all(a == b for a, b in f.pairs)
    ),
    "frozen-challenger": lambda f: not f.challenger_trained and f.modes[1]["targeted"] > 0,
    "free-only": lambda f: f.epsilons == [1, 1, 1] and all(set(m) == {"free"} for m in f.modes),
    "targeted-only": lambda f: f.epsilons == [1, 0, 0] and all("free" not in m for m in f.modes[1:]),
    "no-state-updates": lambda f: (f.promoted, f.reactivated, f.pairs) == (0, 0, []) and f.failures[0] > 0,
    "no-stitching": lambda f: f.promoted > 0 and f.pairs == [],
    "random-stitching": lambda f: any(a != b for a, b in f.pairs),
    "no-filter": lambda f: set(f.verdicts) <= {"kept", "invalid", "no_label"} and f.verdicts["kept"] > 64,
    "absolute-only": lambda f: (
        f.verdicts["contested"] == 0
        and f.verdicts["too_easy"] > 0
        and any(e.verdict == "kept" and 5 * e.first < 8 * e.second for e in f.scored)
    ),
    "fixed-7-3": fixed(7),
    "fixed-5-5": fixed(5),
    "fixed-3-7": fixed(3),
    "k-0.2": scheduled("1/5"),
    "k-1.0": scheduled("1"),
    "k-2.0": scheduled("2"),
    "tau-1.2": kept_by("6/5"),
    "tau-2.0": kept_by("2"),
    "r-zero": lambda f: (
        f.epsilons == [1, 1]
        and all(set(m) == {"free"} for m in f.modes)
        and f.failures == [0, 0]
        and {e.responses for e in f.scored} == {10}
        and f.verdicts["contested"] == 0
        and all((e.verdict == "kept") == (3 <= e.first <= 7) for e in f.scored if e.label is not None)
    ),
    "free-absolute": lambda f: MUST["free-only"](f) and MUST["absolute-only"](f),
}


if __name__ == "__main__":
    folder, *chosen = sys.argv[1:]
    for name in chosen or [v.name for v in VARIANTS]:
        began = time.monotonic()
        play(Path(folder), config_of(name), run_id=name)
        found = facts(Path(folder), name)
        said = "as it says" if MUST[name](found) else "WRONG"
        print(f"{name}: {said}; {time.monotonic() - began:.0f} s")
        print(f"  ε {', '.join(map(str, found.epsilons))}; F {found.failures}")
        print(f"  {[dict(sorted(counted.items())) for counted in found.modes]}; {dict(found.verdicts)}")
        print(
            f"  promoted {found.promoted}, reactivated {found.reactivated}, stitched {len(found.pairs)},"
            f" across nodes {sum(a != b for a, b in found.pairs)};"
            f" challenger trained: {found.challenger_trained}",
            flush=True,
        )
