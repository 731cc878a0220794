"""Four rounds played by hand through the memory's own verbs, with every figure worked out beside them.

| after round | c1 | c2 | c3 | c4 | F | ε of the next |
|---|---|---|---|---|---|---|
| 1 | Active 2 | Active 1 | Active 1 | – | 4 = F₁ | 1/3 |
| 2 | Mastered 0 | Active 3 | Active 2 | – | 5 | 4/(4+10) = 2/7 |
| 3 | Active 1 | Active 3 | Mastered 0 | Active 1 | 5 | 2/7 |
| 4 | Active 1 | Mastered 0 | Active 1 | Active 1 | 3 | 4/(4+6) = 2/5 |

Round 1 creates c1 under n1, c2 under n2, c3 under n3, and counts a second failure of c1 by deduplication.
Round 2 promotes c1 (mean p1 18/24), gives c2 two recurrences and c3 a deduplication, abandons a solver
attempt, and merges n3 into n1. Round 3 promotes c2 (17/24) and c3 (9/12); c2 is reactivated in the same round
(two recurrences and a deduplication at 0.71), c1 by a recurrence that chose the stitched partner; c4 is new
under n2. Round 4 promotes c2 (11/12) and reactivates c3 through a stitched question.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import diagevo
from diagevo.memory.events import (
    CandidateScored,
    Embedder,
    Model,
    ModelCall,
    NodePairJudged,
    RunConfigured,
    SimilarCause,
    SimilarNode,
)
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.memory import Memory
from tests.memory.play import candidate, diagnosis, failure, migrated, settle_duplicate, settle_new

C1 = "forgets to carry the ten into the next column when two digits add to more than nine"
C2 = "drops the minus sign of one factor when a product of negative numbers is formed"
C3 = "borrows from the wrong column when the upper digit is smaller than the lower one"
C4 = "multiplies exponents instead of adding them when powers of one base are multiplied"
NODES = {"n1": "Column arithmetic", "n2": "Signs and powers", "n3": "Column subtraction"}
CONFIG = {
    "seed": 7,
    "filter": {"variant": "double", "p_low": "1/4", "p_high": "3/4", "tau": "8/5"},
    "memory": {"theta_up": "7/10", "theta_dup": 0.5, "theta_merge": 0.5},
    "schedule": {"k": "1/2"},
}
VECTORS: Mapping[str, tuple[float, ...]] = {
    C1: (1, 0, 0, 0),
    C2: (0, 1, 0, 0),
    C3: (0.6, 0, 0.8, 0),
    C4: (0, 0.6, 0, 0.8),
}


def embed(texts: Sequence[str]) -> np.ndarray:
    """(n, 4): the hand-made vectors; any other text points its own way."""
    return np.array([VECTORS.get(t, (0.5, 0.5, 0.5, 0.5)) for t in texts], dtype=np.float32)


class Player:
    """Says in one line what happens in a round."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def text(self, words: str) -> str:
        return self.memory.artifacts.put(words)

    def configure(self, config: dict | None = None) -> None:
        self.memory.configure(
            RunConfigured(
                config=CONFIG if config is None else config,
                models={"solver": Model(name="hand", revision="1")},
                embedder=Embedder(name="by-hand", dimension=4, revision="1"),
                version=diagevo.__version__,
            )
        )

    def open(self, number: int) -> None:
        self.round = number
        self.memory.open_round(number)
        for stage in ("challenger", "candidates"):
            self.memory.start_stage(stage)
            self.memory.complete_stage(stage, seconds=1.0)
        self.memory.start_stage("votes")

    def question(
        self,
        number: int,
        votes: Sequence[tuple[str, int]],
        verdict: str,
        cause: str | None = None,
        stitched: str | None = None,
    ) -> CandidateScored:
        counts = sorted((count for _, count in votes), reverse=True)
        label = next((a for a, count in votes if count == counts[0]), None) if votes else None
        name = f"r{self.round}.q{number}"
        return candidate(
            name,
            cause=cause,
            partner=stitched,
            question=self.text(f"Question {number} of round {self.round}: what is it?"),
            votes=list(votes),
            first=counts[0] if counts else 0,
            second=counts[1] if len(counts) > 1 else 0,
            label=label,
            verdict=verdict,
            reference=self.text(f"A reference of {name}") if verdict == "kept" else None,
            label_true=None if label is None else number != 2,
            invalid_reason="held_out" if verdict == "invalid" else None,
            undecided=int(verdict == "contested"),
        )

    def score(self, *candidates: CandidateScored) -> None:
        self.memory.score(candidates)
        self.memory.complete_stage("votes", seconds=2.0)
        self.memory.start_stage("solver")

    def fail(self, failure_id: str, *, attempt: int = 1, step: int = 1, right: bool | None = None) -> None:
        trajectory = self.text(f"The wrong way of {failure_id}, attempt {attempt}")
        reference = self.text(f"A reference of {failure_id.rpartition('.')[0]}")
        texts = {"trajectory": trajectory, "reference": reference}
        self.memory.observe([failure(failure_id, attempt=attempt, step=step, right=right, **texts)])

    def call(self, about: str, reply: str) -> ModelCall:
        return ModelCall(
            model="hand-diagnostician",
            prompt=digest_of("the template"),
            request=self.text(f"What about {about}?"),
            reply=self.text(reply),
            input_tokens=10,
            output_tokens=3,
        )

    def diagnose(
        self,
        failure_id: str,
        verdict: str,
        *,
        cause: str | None = None,
        description: str | None = None,
        attempt: int = 1,
    ) -> None:
        call = self.call(failure_id, f"{verdict}: {cause or description}")
        told = {"cause_id": cause, "description": description, "call": call}
        self.memory.diagnosed([diagnosis(failure_id, verdict, attempt, self.memory, **told)])

    def recurs(self, failure_id: str, cause: str, *, attempt: int = 1) -> None:
        self.diagnose(failure_id, "recurrence", cause=cause, attempt=attempt)

    def settle_recurrence(self, failure_id: str) -> None:
        self.memory.settle(failure_id)

    def settle_duplicate(self, failure_id: str, cause: str, similarity: float) -> None:
        call = self.call(f"duplicates of {failure_id}", f"the same as {cause}")
        found = [SimilarCause(cause, similarity)]
        settle_duplicate(self.memory, failure_id, cause, similar=found, call=call)

    def settle_new(
        self,
        failure_id: str,
        *,
        nearest: tuple[str, float] | None = None,
        node: str | None = None,
        label: str | None = None,
        shortlist: Sequence[tuple[str, float]] = (),
    ) -> None:
        settle_new(
            self.memory,
            failure_id,
            label=label,
            node=node,
            nearest=SimilarCause(*nearest) if nearest else None,
            shortlist=[SimilarNode(*found) for found in shortlist],
            call=self.call(f"the node of {failure_id}", node or label or ""),
        )

    def trained(self) -> None:
        self.memory.complete_stage("solver", seconds=3.0, reward=self.round / 8)
        self.memory.start_stage("diagnosis")

    def merge(self, a: str, b: str, similarity: float, label: str | None) -> None:
        self.memory.judge_nodes(
            NodePairJudged(
                nodes=(a, b),
                similarity=similarity,
                merge=label is not None,
                label=label,
                call=self.call(f"{a} and {b}", label or "two skills"),
            )
        )

    def commit(self) -> None:
        self.memory.complete_stage("diagnosis", seconds=0.5)
        self.memory.commit()


def play(url: str, run: str = "played", *, root: Path, rounds: int = 4, config: dict | None = None) -> None:
    """Play the first `rounds` rounds of the table above into a new run, as judged by its θ_dup."""
    if config is not None and "memory" in config:
        config = {**config, "memory": {**config["memory"], "theta_dup": CONFIG["memory"]["theta_dup"]}}
    with diagevo.open(migrated(url), run, root=root) as memory:
        player = Player(memory)
        player.configure(config)
        memory.vectors([C1, C2, C3, C4, *NODES.values()], embed)
        for one in (_first, _second, _third, _fourth)[:rounds]:
            one(player)


def _first(p: Player) -> None:
    p.open(1)
    p.score(
        p.question(0, [("4", 6), ("5", 3), ("6", 3)], "kept"),
        p.question(1, [("9", 12)], "too_easy"),
        p.question(2, [("1", 4), ("2", 4), ("3", 4)], "contested"),
        p.question(3, [("7", 7), ("8", 2)], "kept"),
        p.question(4, [], "invalid"),
    )
    for each in ("r1.q0.a0", "r1.q0.a1", "r1.q0.a2", "r1.q3.a4", "r1.q3.a5", "r1.q3.a6"):
        p.fail(each)
    p.diagnose("r1.q0.a0", "new_cause", description=C1)
    p.diagnose(
        "r1.q0.a1", "new_cause", description="loses the carried ten while adding two digits in a column"
    )
    p.diagnose("r1.q0.a2", "new_cause", description=C2)
    p.diagnose("r1.q3.a4", "new_cause", description=C3)
    p.diagnose("r1.q3.a5", "slip")
    p.diagnose("r1.q3.a6", "unresolved")
    p.trained()
    p.settle_new("r1.q0.a0", label=NODES["n1"])
    p.settle_duplicate("r1.q0.a1", "c1", 0.8)
    p.settle_new("r1.q0.a2", nearest=("c1", 0.1), label=NODES["n2"], shortlist=[("n1", 0.1)])
    p.settle_new("r1.q3.a4", nearest=("c1", 0.44), label=NODES["n3"], shortlist=[("n1", 0.44), ("n2", 0.05)])
    p.commit()


def _second(p: Player) -> None:
    p.open(2)
    p.score(
        p.question(0, [("1", 10), ("2", 2)], "too_easy", "c1"),
        p.question(1, [("3", 8), ("4", 4)], "kept", "c1"),
        p.question(2, [("5", 6), ("6", 2), ("7", 2)], "kept", "c2"),
        p.question(3, [("8", 3), ("9", 1)], "kept"),
    )
    p.fail("r2.q2.a7", step=1)
    p.fail("r2.q3.a1", step=3)
    p.memory.abandon_stage("solver", after_step=0)
    p.memory.start_stage("solver")
    for each in ("r2.q2.a0", "r2.q2.a1", "r2.q3.a1"):
        p.fail(each, attempt=2, right=each == "r2.q2.a0")
    p.recurs("r2.q2.a0", "c2", attempt=2)
    p.recurs("r2.q2.a1", "c2", attempt=2)
    p.diagnose("r2.q3.a1", "new_cause", description="takes the borrow from a column too far", attempt=2)
    p.trained()
    p.settle_recurrence("r2.q2.a0")
    p.settle_recurrence("r2.q2.a1")
    p.settle_duplicate("r2.q3.a1", "c3", 0.9)
    p.merge("n1", "n2", 0.51, None)
    p.merge("n1", "n3", 0.66, NODES["n1"])
    p.commit()


def _third(p: Player) -> None:
    p.open(3)
    p.score(
        p.question(0, [("1", 9), ("2", 2)], "kept", "c3", "c1"),
        p.question(1, [("3", 9), ("4", 1)], "kept", "c2"),
        p.question(2, [("5", 8), ("6", 3)], "kept", "c2"),
        p.question(3, [("8", 4), ("9", 1)], "kept"),
    )
    for each in ("r3.q0.a0", "r3.q1.a2", "r3.q2.a5", "r3.q3.a0", "r3.q3.a1"):
        p.fail(each)
    p.recurs("r3.q0.a0", "c1")
    p.recurs("r3.q1.a2", "c2")
    p.recurs("r3.q2.a5", "c2")
    p.diagnose("r3.q3.a0", "new_cause", description="ignores that two minus signs cancel in a product")
    p.diagnose("r3.q3.a1", "new_cause", description=C4)
    p.trained()
    p.settle_recurrence("r3.q0.a0")
    p.settle_recurrence("r3.q1.a2")
    p.settle_recurrence("r3.q2.a5")
    p.settle_duplicate("r3.q3.a0", "c2", 0.71)
    p.settle_new("r3.q3.a1", nearest=("c2", 0.48), node="n2", shortlist=[("n2", 0.48), ("n1", 0.02)])
    p.commit()


def _fourth(p: Player) -> None:
    p.open(4)
    p.score(
        p.question(0, [("1", 5), ("2", 3)], "kept", "c1", "c3"),
        p.question(1, [("3", 11), ("4", 1)], "too_easy", "c2"),
        p.question(2, [("5", 2), ("6", 2)], "too_hard", "c4"),
        p.question(3, [("8", 6), ("9", 1)], "kept"),
    )
    for each in ("r4.q0.a0", "r4.q3.a0"):
        p.fail(each)
    p.recurs("r4.q0.a0", "c3")
    p.diagnose("r4.q3.a0", "slip")
    p.trained()
    p.settle_recurrence("r4.q0.a0")
    p.commit()
