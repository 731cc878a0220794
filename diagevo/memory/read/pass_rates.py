"""Pass rates of an ingested run, by its trainer's own check: by step, by prompt, by cause of the
failures."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import sqrt

from diagevo.memory.history import AsOf, History
from diagevo.memory.read.asking import filled, select_rows
from diagevo.memory.read.counts import counted
from diagevo.text.escaping import visible
from diagevo.text.numbers import count
from diagevo.text.steps import common_head

DROPS = 20
"""Maximum prompts that are listed."""
NAMED = 1000
"""Maximum prompts that a statement names one by one; with more, all are read."""
SHOWN = 60
"""Characters of a prompt in a sentence."""


@dataclass(frozen=True, slots=True)
class StepRate:
    """`v_step`: the groups of one step. `contrast`: with passes and failures."""

    step: int
    round: int
    groups: int
    all_passed: int
    contrast: int
    all_failed: int
    rollouts: int
    passes: int
    pass_rate: float


@dataclass(frozen=True, slots=True)
class CauseRate:
    """`v_cause_rate`: the failures that are counted under a cause, and the groups in which they are."""

    cause_id: str
    description: str
    failures: int
    groups: int
    rollouts: int
    passes: int
    pass_rate: float
    share: float
    """Share of all failed rollouts, including slips and undiagnosed ones."""


@dataclass(frozen=True, slots=True)
class TagRate:
    """`v_tag`: the groups whose prompt has this tag."""

    tag: str
    groups: int
    rollouts: int
    passes: int
    pass_rate: float


@dataclass(frozen=True, slots=True)
class PromptRate:
    """`v_prompt`: the rollouts of a prompt, and how many passed in its first and its last step."""

    question: str
    """Its digest."""
    prompt: str
    rollouts: int
    passes: int
    failures: int
    without_cause: int
    first_step: int
    first_pass_rate: float
    last_step: int
    last_pass_rate: float


@dataclass(frozen=True, slots=True)
class PromptDrop:
    """A prompt that passed less often in the last step that had it than in the first."""

    question: str
    """Its digest."""
    prompt: str
    first_step: int
    first_pass_rate: float
    last_step: int
    last_pass_rate: float
    cause_id: str | None
    """The cause of most of its last failures that have one."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """`v_rollouts`."""

    prompts: int
    rollouts: int
    passes: int
    never_passed: int
    unanswered: int
    without_cause: int
    came_back: int
    first_pass_rate: float | None
    last_pass_rate: float | None
    squared_changes: float | None
    dropped: int


@dataclass(frozen=True, slots=True)
class _Prompt:
    """`v_group`."""

    prompt: str


@dataclass(frozen=True, slots=True)
class PassRates:
    source: str
    """The source of the last rollouts."""
    failures: int
    """Observed ones, of all opened rounds."""
    steps: tuple[StepRate, ...]
    causes: tuple[CauseRate, ...]
    """Most frequent first, without dismissed ones."""
    dismissed: tuple[CauseRate, ...]
    prompts: int
    """Prompts that recurred in a later step."""
    again: tuple[float, float] | None
    """Their mean pass rate, the first and the last time."""
    again_se: float | None
    """The standard error of its change, paired by prompt; None for a single prompt."""
    dropped: int
    """Of them those that passed less often in the last step than in the first."""
    drops: tuple[PromptDrop, ...]
    """Those that fell most, up to `DROPS`."""
    asked: int
    """Prompts, each once."""
    rollouts: int
    failed: int
    """Rollouts that did not pass, comparable or not."""
    without_cause: int
    """Of them those that no cause explains."""
    uncompared: int
    """Those of them with neither a response that passed nor a known answer to compare with."""
    never: int
    """Prompts of which no rollout passed."""
    unexplained: tuple[PromptRate, ...]
    """Those with most failures that no cause explains, up to `DROPS`."""
    unexplained_prompts: int
    """How many there are."""
    tags: tuple[TagRate, ...]
    """Lowest pass rate first."""
    head: int
    """Length of the common beginning of all prompts, such as examples: lists leave it out."""

    @property
    def incomparable(self) -> str | None:
        """Why no failure can be compared with a response that passed; None if one can, or nothing failed."""
        if not self.failed or any(step.contrast for step in self.steps):
            return None
        once = self.rollouts == sum(step.groups for step in self.steps)
        why = "every prompt was answered once" if once else "in no group did some pass and some fail"
        failed = f"{self.failed:,} of {count(self.rollouts, 'rollout')} failed"
        return f"{failed}, and none can be compared, as {why}"

    @property
    def left(self) -> str | None:
        """How many failures have no cause, and why; None if all have one."""
        if not self.without_cause:
            return None
        text = f"{self.without_cause:,} of {count(self.failed, 'rollout')} that failed have no cause"
        if self.uncompared:
            text += f", {self.uncompared:,} of them where none of their group passed"
        if self.never:
            text += f"; {count(self.never, 'prompt')} never passed"
        worst = self.unexplained[0]
        asked = visible(worst.prompt[self.head :], one_line=True)
        asked = asked if len(asked) <= SHOWN else f"{asked[: SHOWN - 1]}…"
        failed = f"{worst.failures:,} of {worst.rollouts:,} failed"
        return f"{text}. The most on one prompt are {worst.without_cause:,}, on “{asked}” ({failed})"


def steps(history: History) -> list[StepRate]:
    """The pass rate of each step, in order."""
    return select_rows(history, "v_step", StepRate, order="round, step")


def pass_rates(history: History) -> PassRates | None:
    """The pass rates of a whole run; None if it has no ingested rollouts."""
    if history.ingested is None:
        return None
    [whole] = select_rows(history, "v_rollouts", _Whole)
    failures, against_answers = observed(history, history.end)
    fell = select_rows(
        history,
        "v_prompt",
        PromptRate,
        "last_step > first_step AND last_pass_rate < first_pass_rate",
        order="last_pass_rate - first_pass_rate, question",
        limit=DROPS,
    )
    causes = last_causes(history, [one.question for one in fell])
    drops = (filled(PromptDrop, one, cause_id=causes.get(one.question)) for one in fell)
    unexplained = select_rows(
        history,
        "v_prompt",
        PromptRate,
        "without_cause > 0",
        order="without_cause DESC, position",
        limit=DROPS,
    )
    first = select_rows(history, "v_group", _Prompt, order="position", limit=DROPS)
    again = whole.first_pass_rate, whole.last_pass_rate
    gone = {cause.cause_id for cause in history.state(history.end).left_out()}
    rates = _causes(history, whole.rollouts - whole.passes)
    return PassRates(
        source=history.ingested,
        failures=failures,
        steps=tuple(steps(history)),
        causes=tuple(one for one in rates if one.cause_id not in gone),
        dismissed=tuple(one for one in rates if one.cause_id in gone),
        prompts=whole.came_back,
        again=None if again[0] is None or again[1] is None else (again[0], again[1]),
        again_se=_standard_error(whole),
        dropped=whole.dropped,
        drops=tuple(drops),
        asked=whole.prompts,
        rollouts=whole.rollouts,
        failed=whole.rollouts - whole.passes,
        without_cause=whole.without_cause,
        uncompared=whole.unanswered - against_answers,
        never=whole.never_passed,
        unexplained=tuple(unexplained),
        unexplained_prompts=_prompts_without_cause(history),
        tags=tuple(select_rows(history, "v_tag", TagRate, order="pass_rate, tag")),
        head=common_head({one.prompt for one in (*unexplained, *fell, *first)}),
    )


@dataclass(frozen=True, slots=True)
class _Number:
    n: int


def _prompts_without_cause(history: History) -> int:
    counted = "(SELECT run_id, count(*) AS n FROM v_prompt WHERE without_cause > 0 GROUP BY run_id) counted"
    return sum(one.n for one in select_rows(history, counted, _Number))


def _standard_error(whole: _Whole) -> float | None:
    n = whole.came_back
    if n < 2 or whole.first_pass_rate is None or whole.last_pass_rate is None:
        return None
    mean, squares = whole.last_pass_rate - whole.first_pass_rate, whole.squared_changes or 0.0
    return sqrt(max(0.0, squares - n * mean * mean) / (n - 1) / n)


@dataclass(frozen=True, slots=True)
class _Rate:
    cause_id: str
    failures: int
    questions: int
    responses: int
    first: int
    pass_rate: float


def _causes(history: History, failed: int) -> list[CauseRate]:
    known = history.state(history.end).causes
    return [
        CauseRate(
            cause_id=one.cause_id,
            description=known[one.cause_id].description,
            failures=one.failures,
            groups=one.questions,
            rollouts=one.responses,
            passes=one.first,
            pass_rate=one.pass_rate,
            share=one.failures / failed,
        )
        for one in select_rows(
            history, "v_cause_rate", _Rate, order="failures DESC, length(cause_id), cause_id"
        )
    ]


def observed(history: History, as_of: AsOf) -> tuple[int, int]:
    """Failures of the rounds that counted then, and how many of them are compared with the known answer
    because no response passed."""
    rounds = counted(history, as_of)
    return sum(one.observed for one in rounds), sum(one.against_answers for one in rounds)


@dataclass(frozen=True, slots=True)
class _CauseOf:
    question: str
    question_id: str
    cause_id: str


def last_causes(
    history: History, questions: Sequence[str], until: int = 2**31 - 1, groups: Container[str] | None = None
) -> dict[str, str]:
    """By prompt, the cause of most failures of its last group that has any, up to a round; `groups` chooses
    some by their question ids."""
    if not questions:
        return {}
    wanted, among = set(questions), "round <= :until"
    names = {f"question{place}": digest for place, digest in enumerate(questions)}
    if len(names) <= NAMED:
        among += f" AND question IN ({', '.join(f':{name}' for name in names)})"
    else:
        names = {}
    place = "round, length(question_id), question_id, failures, length(cause_id) DESC, cause_id DESC"
    found = select_rows(history, "v_cause_question", _CauseOf, among, {"until": until, **names}, order=place)
    chosen = (one for one in found if groups is None or one.question_id in groups)
    return {one.question: one.cause_id for one in chosen if one.question in wanted}  # the last one stays
