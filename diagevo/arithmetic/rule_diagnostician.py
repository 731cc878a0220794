"""The rule diagnostician: finds the earliest differing step of two trajectories and names its kind of slip.

It knows the grammar, so it needs no language model. It judges only what it is shown: the agreeing
trajectory counts as right, true or not, as for the paper's diagnostician.
"""

from collections.abc import Sequence
from hashlib import sha256
from random import Random

from diagevo.arithmetic.grammar import FAMILIES, JOIN, Instruction, Part, Step, parse, read_steps, right_step
from diagevo.arithmetic.slips import KINDS, Kind, recognise
from diagevo.arithmetic.wordings import CAUSES, LABELS, kind_of, skill, skill_of
from diagevo.diagnosis.diagnostician import (
    DuplicateJudgement,
    Extraction,
    FailurePair,
    KnownCause,
    NodeAssignment,
    NodeCandidate,
    NodeContents,
    PairJudgement,
)


def _choose(wordings: Sequence[str], *seeds: str) -> str:
    """One of the wordings, by a hash of the seeds: the same for the same failure in every process."""
    return wordings[sha256("\x1f".join(seeds).encode()).digest()[0] % len(wordings)]


def _plan(parts: Sequence[Part]) -> list[tuple[Part | None, Instruction | None]]:
    """Each step of a question in order, with the part it belongs to; the joining step belongs to none."""
    plan = [
        (part, instruction) for part in parts for instruction in FAMILIES[part.family].procedure(part.numbers)
    ]
    return [*plan, (None, None)] if len(parts) > 1 else list(plan)


def _goes_on(
    plan: Sequence[tuple[Part | None, Instruction | None]], place: int, before: Sequence[Step], found: Step
) -> bool:
    """Whether a found step already does what follows the part whose last step was due at `place`.

    That is the second part's first step, or the joining step. `before` are the right steps up to `place`.
    """
    if place + 1 >= len(plan):
        return False
    (part, _), (following, instruction) = plan[place], plan[place + 1]
    if following is part:
        return False
    if following is not None and instruction is not None:
        start = right_step(instruction, following.numbers, [])
        return (found.left, found.op, found.right) == (start.left, start.op, start.right)
    first = sum(owner is plan[0][0] for owner, _ in plan)
    answers = (before[first - 1].result, "+", before[-1].result) if before else None
    return (found.left, found.op, found.right) == answers


def earliest_slip(question: str, agreeing: str, disagreeing: str) -> Kind | None:
    """The kind of slip at the earliest differing step; None if no kind of that step explains it."""
    parts = parse(question)
    if parts is None:
        return None
    plan = _plan(parts)
    right_steps, found_steps = read_steps(agreeing), read_steps(disagreeing)
    for place in range(max(len(right_steps), len(found_steps))):
        right = right_steps[place] if place < len(right_steps) else None
        found = found_steps[place] if place < len(found_steps) else None
        if right == found:
            continue
        before = plan[place - 1][0] if 0 < place <= len(plan) else None
        if found and before and before.family == "jumps":
            last = right_steps[place - 1].result
            over = place == len(plan) or plan[place][0] is not before
            if over and (found.left, found.op, found.right) == (last, "+", before.numbers[2]):
                return Kind("jumps", "add", "count")
        if right is None or place >= len(plan):
            return None
        part, instruction = plan[place]
        family, name = (part.family, instruction.name) if part and instruction else (JOIN, "total")
        if found and _goes_on(plan, place, right_steps[:place], found):
            found = None
        return recognise(family, name, right, found)
    return None


def by_rules(engine: str, seed: int) -> "RuleDiagnostician":
    """The diagnostician of an engine that asks no model."""
    return PlaceboDiagnostician(seed) if engine == PlaceboDiagnostician.name else RuleDiagnostician()


class RuleDiagnostician:
    """Implements `Diagnostician` for the arithmetic world: no state, no calls. Unknown texts match none."""

    name = "rules:arithmetic"
    revision = "1"
    workers = 1

    def kind(self, pair: FailurePair) -> Kind | None:
        """What went wrong; None if no kind of slip is recognized."""
        return earliest_slip(pair.question, pair.agreeing, pair.disagreeing)

    def extract(self, pair: FailurePair) -> Extraction:
        """A recurrence if a supplied cause is of this kind, else a new cause; a slip if none is
        recognized."""
        kind = self.kind(pair)
        if kind is None:
            return Extraction(verdict="slip")
        for cause in pair.known:
            if kind_of(cause.found_as or "") == kind:
                return Extraction(verdict="recurrence", cause_id=cause.cause_id)
        description = _choose(CAUSES[kind], pair.question, pair.agreeing, pair.disagreeing)
        return Extraction(verdict="new_cause", description=description)

    def judge_duplicate(self, description: str, candidates: Sequence[KnownCause]) -> DuplicateJudgement:
        """A duplicate is a wording of the same kind."""
        kind = kind_of(description)
        for cause in candidates:
            if kind is not None and kind_of(cause.found_as or "") == kind:
                return DuplicateJudgement(duplicate=True, cause_id=cause.cause_id)
        return DuplicateJudgement(duplicate=False)

    def assign_node(self, description: str, shortlist: Sequence[NodeCandidate]) -> NodeAssignment:
        """The first node of the shortlist whose label names the cause's skill; else a new node for it."""
        kind = kind_of(description)
        if kind is None:
            return NodeAssignment(new_label=description)
        for node in shortlist:
            if skill_of(node.label) == skill(kind):
                return NodeAssignment(node_id=node.node_id)
        return NodeAssignment(new_label=_choose(LABELS[skill(kind)], description))

    def judge_pair(self, a: NodeContents, b: NodeContents) -> PairJudgement:
        """Two nodes are one if their labels name one skill; the merged node keeps the first's label."""
        merge = skill_of(a.label) is not None and skill_of(a.label) == skill_of(b.label)
        return PairJudgement(merge=merge, label=a.label if merge else None)


class PlaceboDiagnostician(RuleDiagnostician):
    """A control: as many causes as the rules see, each drawn at random. A gain with it comes from a growing
    memory, not from its content."""

    name = "rules:placebo"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def kind(self, pair: FailurePair) -> Kind | None:
        if super().kind(pair) is None:
            return None
        texts = (str(self._seed), pair.question, pair.agreeing, pair.disagreeing)
        return Random("\x1f".join(texts)).choice(KINDS)
