"""What can happen to a memory: the event catalogue.

Every event is a frozen msgspec struct; the name of its class is its stored tag. Fractions are strings
("1/3"), counts are integers, similarities are floats rounded to six places, texts are digests of artifacts.
Ids: causes `c42`, nodes `n7`, questions `r3.q318`, failures `r3.q318.a5`. Round, run, position and time
belong to the envelope (`records.Recorded`), never to the payload.

An event is validated by encoding it and decoding it strictly (`records.recordable`): when it is appended, not
when it is made.

Facts are what happened outside; consequences follow from facts and the state, and are rechecked on replay.

Long, but one file: what can happen is read and searched as one list, each event beside its version.
"""

from enum import Flag, auto
from pathlib import PurePosixPath
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from diagevo.equations.states import CauseState
from diagevo.text.fractions import RECORDED
from diagevo.text.numbers import count

LARGEST = 2**31 - 1
"""A number that fits PostgreSQL's INTEGER, the type of counts in the views."""
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
"""0 or more."""
Ordinal = Annotated[int, Meta(ge=1, le=LARGEST)]
"""1 or more: numbered from 1."""
Position = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""A position of the log."""
Amount = Annotated[float, Meta(ge=0, le=1e12)]
"""0 or more, such as seconds."""
Cosine = Annotated[float, Meta(ge=-1, le=1)]
"""A similarity, from -1 to 1."""
Share = Annotated[float, Meta(ge=0, le=1)]
"""From 0 to 1, such as an accuracy or its standard error."""
Ratio = Annotated[str, Meta(pattern=RECORDED)]
"""An exact fraction: "1/3"."""
Digest = Annotated[str, Meta(min_length=64, max_length=64)]
"""SHA-256 of a text that is stored beside the log, in lowercase hex. Export, import and `verify --deep` find
the texts of an event by its fields of this type (`named_texts.py`, which also checks the digits)."""
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 of a file, in lowercase hex."""
Mode = Literal["free", "targeted", "stitched"]
Votes = Literal["answers", "rewards"]
LabelSource = Literal["votes", "proposer", "human", "executor", "document"]
"""Where a label comes from: the majority of the votes (under `round.true_labels` the world), the answer that
the challenger wrote beside its question, the person who labelled the item, what its program gave, or the
majority of responses that were shown its document, which are the votes then."""
Evidence = Literal["response", "answer", "nothing"]
"""What a failure is compared with: a response that agrees or passed, or, if none did, the known answer;
nothing, if there is neither for its prompt (its reference is the empty text)."""
CandidateVerdict = Literal["kept", "too_easy", "too_hard", "contested", "no_label", "invalid"]
DiagnosisVerdict = Literal["recurrence", "new_cause", "slip", "unresolved"]
Via = Literal["recurrence", "deduplication"]
InvalidReason = Literal[
    "unreadable",
    "unanswered",
    "outside_world",
    "held_out",
    "too_long",
    "banned",
    "not_executable",
    "not_deterministic",
    "near_duplicate",
]
"""Why a completion gives no question: it is unreadable, lacks the writer's own answer where one is
required, has no answer in the world, is in the validation set, or is longer than a prompt may be; for a
program: it may not run, does not reach a value within its limits, or gives several; for a question: it is too
similar to one that stays."""
PhaseFinding = Literal["wrong_reference", "stale_sampler", "wrong_sampler", "constant_reward", "cut_off"]
"""Problems that a training phase found in itself; the first three end it."""


ROUNDS = "rounds"
"""The folder, within the run's, that its stages write to."""
WARM_START_FILES = ("warm-start.jsonl", "warm-start", "warm-start-work")
"""What a warm start writes next to it: documents, the model, and its checkpoint."""


class Value(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A part of a payload: frozen, no unknown fields. It holds values only and cannot be part of a cycle, so
    the garbage collector need not walk a million of them."""


class ModelCall(Value, frozen=True):
    """One request to a model: the model, the request, the reply and the cost."""

    model: str
    prompt: str
    """Hash of the prompt templates, which are not stored."""
    request: Digest
    """The request's text."""
    reply: Digest | None
    """The raw reply's text; null where no reply came."""
    input_tokens: Count = 0
    output_tokens: Count = 0
    tries: Count = 1


class Origin(Value, frozen=True):
    """The origin of a forked run."""

    run: str
    position: Position


HASHING = "hashing"
"""The name of the embedder that needs no model: its vectors are made on demand."""


class Embedder(Value, frozen=True):
    """The embedding model of a run's vectors."""

    name: str
    dimension: Count
    revision: str


UNNAMED = Embedder(name="unnamed", dimension=0, revision="")
"""The embedding model of a run that never named one: whatever comes first, of any dimension."""


class Model(Value, frozen=True):
    """A model in a role."""

    name: str
    revision: str


class Weight(Value, frozen=True):
    """A cause's share of the targeted draw, as its frequency."""

    cause_id: str
    frequency: Count


class Artifact(Value, frozen=True):
    """A file or folder that a stage produced."""

    path: str
    """Relative to the run's folder: in `rounds/`, or one of the warm start's. Other names there are the
    program's own: its lock, its chain heads."""
    sha256: Sha256

    def __post_init__(self) -> None:
        given = PurePosixPath(self.path)
        first, *more = given.parts or ("",)
        own = (first == ROUNDS and more and ".." not in more) or self.path in WARM_START_FILES
        if not own or str(given) != self.path:
            raise ValueError(f"{self.path!r} is not a path in {ROUNDS}/, where a stage keeps its files")


class SuppliedCause(Value, frozen=True):
    """A cause shown to the diagnostician, with its state as committed in the round before."""

    cause_id: str
    state: CauseState


class Cause(Value, frozen=True):
    """An error cause e = (d, h, s, f) of Equation 4; its vector h is kept by the text (`log/vectors.py`)."""

    cause_id: str
    description: str
    node_id: str
    state: CauseState
    frequency: Count
    created_round: Ordinal
    failure_id: str
    promotion: str | None
    """event_id of its last promotion."""

    @property
    def number(self) -> int:
        return number_of(self.cause_id)


class Node(Value, frozen=True):
    """A skill node and its causes, in order of arrival."""

    node_id: str
    label: str
    causes: tuple[str, ...]

    @property
    def number(self) -> int:
        return number_of(self.node_id)


class SimilarCause(Value, frozen=True):
    """A stored cause and its cosine to a description."""

    cause_id: str
    similarity: Cosine


class SimilarNode(Value, frozen=True):
    """A skill node and its cosine to a cause."""

    node_id: str
    similarity: Cosine


class Trait(Flag):
    """What an event means to readers of the log.

    Each event declares its own; there are no lists of types elsewhere.
    """

    NONE = 0
    ROWS = auto()
    """It changes rows of a projection."""
    STANDING = auto()
    """The rows of causes and nodes are rewritten after it."""
    TAIL = auto()
    """It belongs to the commit before it: a fork of that round includes it."""
    STEP = auto()
    """A step of a replay: it changes the memory or the settings in force."""
    TURN = auto()
    """An entry in the history of the cause that it names; of every cause if it names none."""


class Event(Value, frozen=True):
    """Base of all events."""

    schema_version: ClassVar[int] = 1
    identity: ClassVar[tuple[str, ...]]
    """Fields that are unique in a run together with the round and the type."""
    traits: ClassVar[Trait]

    def key(self) -> str:
        """The business key: the values of `identity`, and the seed of `event_id`."""
        return ".".join([str(getattr(self, name)) for name in self.identity])

    def subject(self) -> str:
        """Its subject: an id, a stage, or nothing."""
        return str(getattr(self, self.identity[0])) if self.identity else ""

    def sentence(self) -> str:
        """Its content, in one line."""
        raise NotImplementedError


class RunConfigured(Event, frozen=True):
    """The configuration of the following rounds, resolved and without secrets."""

    identity = ("number",)
    traits = Trait.STEP
    config: dict[str, Any]
    models: dict[str, Model]
    embedder: Embedder
    version: str
    origin: Origin | None = None
    number: Ordinal = 1
    """1 for the first; a fork and a change of the embedder record a further configuration."""
    prompts: dict[str, str] = {}
    """SHA-256 of each prompt template, which is not stored, by its file's name; empty if the trainer named
    none."""

    def subject(self) -> str:
        return ""

    def sentence(self) -> str:
        model, origin = self.embedder, self.origin
        forked = "" if origin is None else f", forked from {origin.run} at #{origin.position}"
        return f"version {self.version}, embeddings {model.name} ({model.dimension} numbers){forked}"


class RoundOpened(Event, frozen=True):
    """A round begins, with the schedule that follows from the last commit (Equations 1 and 2)."""

    identity = ()
    traits = Trait.ROWS | Trait.STEP
    epsilon: Ratio
    failures: Count
    reference_failures: Count | None
    k: Ratio
    seed: int
    weights: list[Weight]

    def sentence(self) -> str:
        return f"ε = {self.epsilon}, F = {self.failures}, {len(self.weights)} Active, seed {self.seed}"


class StageStarted(Event, frozen=True):
    """An attempt at a stage of the round begins."""

    identity = ("stage", "attempt")
    traits = Trait.NONE
    stage: str
    attempt: Ordinal

    def sentence(self) -> str:
        return f"attempt {self.attempt}"


class StageCompleted(Event, frozen=True):
    """The attempt is done; these are the files that it produced."""

    schema_version = 2
    identity = ("stage", "attempt")
    traits = Trait.NONE
    stage: str
    attempt: Ordinal
    artifacts: list[Artifact] = []
    seconds: Amount | None = None
    """Wall time of the attempt, for the report's time breakdown."""
    parts: dict[str, Amount] = {}
    """Seconds of it by what they went to: extraction (where it was waited for), deduplication, assignment,
    consolidation. No part of it: extraction `beside training`; `cpu`, the CPU time that it took here and in
    processes that ended; and before it, `orchestration` since the stage before, and `scheduling`: the last
    commit and the opening of the round."""
    reward: float | None = None
    """Of a stage that trains: mean reward over its completions, whatever attempts they came in; in older logs
    with four digits. In version 1 the mean over the steps of the last attempt: a smaller last batch weighed
    as much as a whole one."""

    def sentence(self) -> str:
        took = "" if self.seconds is None else f", {self.seconds:.1f} s"
        return f"attempt {self.attempt}{took}"


class StageAbandoned(Event, frozen=True):
    """The attempt is given up; what it observed after a step will be observed again."""

    identity = ("stage", "attempt")
    traits = Trait.NONE
    stage: str
    attempt: Ordinal
    after_step: Count
    """Observations of this attempt past this step are void."""
    seconds: Amount | None = None
    """From its start to the last event that it left: at least so long it ran."""
    reason: str | None = None
    """What was lost, if the run continued by itself; None if its process ended."""

    def sentence(self) -> str:
        why = f"; {self.reason}" if self.reason else ""
        return f"attempt {self.attempt}: what it observed after step {self.after_step} is void{why}"


class MeasuredReward(Value, frozen=True):
    """What a completion of the challenger was measured as, where its reward follows from that."""

    right: Count | None
    """Answers of the frozen solver that are right; null for a completion that has nothing it may be asked."""
    answers: Count
    """Of so many."""
    related: bool
    """Whether the judge says that the question belongs to its document; true where none is asked."""
    level: Count
    """The difficulty that was asked for, from 1; 0: the method has none."""
    document: str
    """SHA-256 of the document that a difficulty was asked for; empty: the method has no difficulties."""


class GroupRewards(Value, frozen=True):
    """The rewards of one prompt's completions, in the order of their samples."""

    prompt: str
    """A question's id, or that of a draw that the challenger practised on."""
    rewards: list[float]


class StepTrained(Event, frozen=True):
    """One step of training: the rewards of its completions, from which its advantages follow, and what its
    update measured. It changes no state. Of several attempts at a step the last counts."""

    schema_version = 2
    identity = ("stage", "attempt", "step")
    traits = Trait.NONE
    stage: str
    attempt: Ordinal
    step: Ordinal
    groups: list[GroupRewards]
    loss: float | None
    """Null here and below: not a number, or not measured."""
    entropy: float | None
    """Mean over the completions' tokens, in nats."""
    grad_norm: float | None
    """Before it is clipped."""
    kl: float | None
    """Mean over the tokens to the phase's starting weights, also after the first of several updates."""
    measured: list[MeasuredReward] = []
    """What each reward follows from, group after group; empty where it does not follow from so little."""

    def sentence(self) -> str:
        rewards = [reward for group in self.groups for reward in group.rewards]
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        done = f"attempt {self.attempt}, step {self.step}{loss}"
        return f"{done}, mean of {len(rewards)} rewards {fmean(rewards):.3g}" if rewards else done


class PhaseMeasured(Event, frozen=True):
    """A training phase's measurements of itself, as a whole or up to where it ended. It changes no
    state."""

    identity = ("stage", "attempt")
    traits = Trait.NONE
    stage: str
    attempt: Ordinal
    steps: Count
    """Steps measured, those before a checkpoint that the attempt was resumed from too."""
    first_kl: float | None
    """KL to the reference at the first step, where both are the same weights. Null: no reference, or no
    number."""
    sampling_gap: Amount | None
    """Mean difference of the sampler's and the trainer's log-probabilities, in the worst step. Null: no
    number."""
    reward_lowest: float
    reward_highest: float
    completions: Count
    cut_off: Count
    """Completions that reached the limit of tokens without an end."""
    attention: str
    """The attention implementation used in training."""
    findings: list[PhaseFinding] = []

    def sentence(self) -> str:
        parts = [f"attempt {self.attempt}, {self.steps} steps"]
        if self.first_kl is not None:
            parts.append(f"KL at step 1 {self.first_kl:.3g}")
        if self.sampling_gap is not None:
            parts.append(f"log-prob gap {self.sampling_gap:.3g}")
        parts.append(f"reward {self.reward_lowest:g} to {self.reward_highest:g}")
        parts.append(f"{self.cut_off} of {self.completions} cut off")
        return ", ".join([*parts, *(f"found: {name.replace('_', ' ')}" for name in self.findings)])


class CandidateScored(Event, frozen=True):
    """The votes on one question of the pool, and whether it is kept (Equation 3)."""

    identity = ("question_id",)
    traits = Trait.NONE
    schema_version = 3
    question_id: str
    question: Digest
    """The question's text (the raw completion where it is invalid)."""
    mode: Mode
    cause_id: str | None
    stitched_cause_id: str | None
    responses: Count
    """N: the denominator of p1, responses without a vote included."""
    votes: list[tuple[str, Count]]
    """Answers with their counts, in order of first appearance."""
    first: Count
    second: Count
    label: str | None
    verdict: CandidateVerdict
    reference: Digest | None
    """The agreeing construction response kept for diagnosis."""
    truth: str | None = None
    """The true answer, in worlds that can compute it. A question that has none there is invalid, and under
    `round.true_labels` the label is the truth; apart from that the loop never reads it."""
    label_true: bool | None = None
    """Whether the label agrees with the truth, where there is one."""
    invalid_reason: InvalidReason | None = None
    """Why it is invalid; null for the others."""
    undecided: Count = 0
    """Pairs of its answers that count as different only because comparing them reached no verdict."""
    votes_are: Votes = "answers"
    """What was counted: answers that agree, or rewards of another trainer (`passed` and `failed`, and `first`
    are the passes). p1 of rewards is accuracy under that trainer's check, not self-consistency."""
    drawn_round: Ordinal | None = None
    """Round whose schedule the prompt was drawn from, where it is an earlier one: a trainer draws ahead."""
    label_from: LabelSource = "votes"
    """A label of `votes` or `document` follows from its votes; any other is a fact."""
    given: list[Digest] = []
    """The texts that the challenger was shown, such as a document or examples."""
    task: Digest | None = None
    """The whole task, where the question hides a part of it: answers were executed, and `votes` are what they
    led to."""
    part: str = ""
    """The kind of its task, where its method has several."""

    def sentence(self) -> str:
        partner = "" if self.stitched_cause_id is None else f" + {self.stitched_cause_id}"
        aim = "free" if self.mode == "free" else f"{self.cause_id}{partner}"
        counted = f"{self.first} and {self.second} of {self.responses}"
        if self.votes_are == "rewards":
            counted = f"{self.first} of {self.responses} rewards passed"
        return f"{self.verdict}: {aim}, {counted}"


class FailedRollout(Value, frozen=True):
    """A rollout that did not pass, by its place in its group."""

    sample: Count
    trajectory: Digest
    """The response."""


class Feedback(Value, frozen=True):
    """The files' feedback on a rollout: a judge's rationale, a test log."""

    sample: Count
    text: Digest


class GroupDraw(Value, frozen=True):
    """What a round's schedule drew a prompt for; no cause for a free one."""

    round: Ordinal
    """A trainer draws ahead: it may be an earlier round than its group's."""
    cause_id: str | None
    stitched_cause_id: str | None


MODEL = "model="
"""What the tag of a model begins with (`GroupIngested.tags`), where a file names several."""


class GroupIngested(Event, frozen=True):
    """The rollouts of one prompt in one step of another trainer, as its files have them. It changes no state:
    it waits for its round, which is opened when the rounds before it are committed."""

    traits = Trait.ROWS
    schema_version = 2
    step: Count
    group: Count
    """Place in the step, by first appearance."""
    question: Digest
    """The prompt: it identifies a recurring prompt."""
    answer: str | None
    """The expected answer, where the files have one."""
    rewards: list[float]
    """By sample."""
    passes: Count
    reference: Digest | None
    """The first response that passed, where others did not; None for a group without a contrast."""
    failed: list[FailedRollout]
    """Rollouts that did not pass. Version 1 kept them only with a reference or a known answer."""
    source: str
    """Name of the file."""
    draw: GroupDraw | None = None
    """Where a schedule of this memory drew the prompt."""
    attempt: Ordinal = 1
    """One more each time that the training was resumed from a checkpoint. The first step of an attempt voids
    the groups of earlier attempts from that step on."""
    passed: list[Digest] = []
    """Responses that passed, by sample: all of a group with a contrast, the first where all passed. Version 1
    kept the reference alone."""
    feedback: list[Feedback] = []
    """Of the responses that are kept, where the files have any; at first only of those that did not pass."""
    tags: list[str] = []
    """The files' tags of the prompt."""

    def key(self) -> str:
        return f"{self.step}.{self.group}" + (f".{self.attempt}" if self.attempt > 1 else "")

    def subject(self) -> str:
        return f"s{self.step}.g{self.group}"

    def sentence(self) -> str:
        return f"{self.source}: {self.passes} of {len(self.rewards)} rewards passed"


class CausePromoted(Event, frozen=True):
    """Active → Mastered: the mean p1 over the questions aimed at the cause reached θ_up (Equations 6, 7)."""

    identity = ("cause_id",)
    traits = Trait.STEP | Trait.TURN
    cause_id: str
    questions: Ordinal
    consistency: Ratio
    threshold: Ratio
    closed_frequency: Count

    def sentence(self) -> str:
        return f"mean p₁ {self.consistency} ≥ {self.threshold}, closed f = {self.closed_frequency}"


class FailureObserved(Event, frozen=True):
    """A failed response of training, beside a response that agrees with the label, or the known answer."""

    schema_version = 5
    identity = ("failure_id", "stage", "attempt")
    traits = Trait.NONE
    failure_id: str
    question_id: str
    stage: str
    attempt: Ordinal
    step: Count
    trajectory: Digest
    """The failed response."""
    reference: Digest
    """The construction response it is compared with; the known answer where `against` says so."""
    right: bool | None = None
    """Whether it gives the true answer, in worlds that can compute it: then the label that it failed against
    is false. The loop never reads it; exports of training data leave such a failure out."""
    against: Evidence = "response"
    feedback: Digest | None = None
    """The files' feedback on it: a judge's rationale, a test log."""

    def sentence(self) -> str:
        known = ", against the known answer" if self.against == "answer" else ""
        return f"{self.stage}, attempt {self.attempt}, step {self.step}{known}"


class Mark(Value, frozen=True):
    """The evidence for a cause in one failure."""

    line: int | None
    """Of the response, from 0; None where it is no line of it."""
    text: str


class WrongStep(Value, frozen=True):
    """The step in which a failure diverges from a pass."""

    line: int
    """Of the response, from 0."""
    text: str
    why: str
    shown: bool
    """Whether it was computed to be wrong; else it is the first difference."""


class WrittenPair(Value, frozen=True):
    """The place in a failure that its cause is about, beside a response that passed. Lines and characters
    count from 0; what is not there is empty, and stands where it would be."""

    line: int
    start: int
    wrote: str
    passed: Digest
    """That response: the nearest one. The known answer where none passed and it is structured output."""
    passed_line: int
    passed_start: int
    should: str


class FailureDiagnosed(Event, frozen=True):
    """The diagnostician's verdict on a failure: a known cause, a new one, a slip, or nothing readable."""

    schema_version = 3
    identity = ("failure_id", "attempt", "asked")
    traits = Trait.NONE
    failure_id: str
    attempt: Ordinal
    """Attempt of the stage whose observation this answers."""
    supplied: list[SuppliedCause]
    verdict: DiagnosisVerdict
    cause_id: str | None
    description: str | None
    flags: list[str] = []
    call: ModelCall | None = None
    asked: Ordinal = 1
    """1 for the first diagnosis; an unresolved failure may be asked again."""
    cause_key: str | None = None
    """The key of a cause found without a model, independent of its wording."""
    level: int | None = None
    """1: not a reasoning mistake; 2: false when computed; 3: in contrast to passes; None: a model's."""
    evidence: list[Mark] = []
    step: WrongStep | None = None
    pair: WrittenPair | None = None

    def sentence(self) -> str:
        return f"{self.verdict}: {self.cause_id or self.description or ''}".rstrip(": ")


class DuplicateJudged(Event, frozen=True):
    """Whether a new description is an already stored cause."""

    identity = ("failure_id",)
    traits = Trait.NONE
    failure_id: str
    candidates: list[SimilarCause]
    """Causes above the threshold, best first; empty if there was none and no model was asked."""
    nearest: SimilarCause | None
    duplicate: bool
    cause_id: str | None
    capped: Count = 0
    """Number of candidates above the threshold cut by the cap."""
    call: ModelCall | None = None

    def sentence(self) -> str:
        return f"the same as {self.cause_id}" if self.duplicate else "no duplicate"


class NodeAssigned(Event, frozen=True):
    """The skill node of a new cause: a stored one or a new one."""

    identity = ("failure_id",)
    traits = Trait.NONE
    failure_id: str
    shortlist: list[SimilarNode]
    node_id: str | None
    new_label: str | None
    flags: list[str] = []
    call: ModelCall | None = None

    def sentence(self) -> str:
        return self.node_id or f"a new node: {self.new_label}"


class NodeCreated(Event, frozen=True):
    """A new skill node."""

    identity = ("node_id",)
    traits = Trait.STEP
    node_id: str
    label: str

    def sentence(self) -> str:
        return self.label


class CauseCreated(Event, frozen=True):
    """A new cause: Active, with frequency 1."""

    identity = ("cause_id",)
    traits = Trait.ROWS | Trait.STEP | Trait.TURN
    cause_id: str
    description: str
    node_id: str
    failure_id: str

    def sentence(self) -> str:
        return f"{self.failure_id} under {self.node_id}: {self.description}"


class CauseMatched(Event, frozen=True):
    """A failure counted under a stored cause: its frequency grows by one (Equation 8)."""

    identity = ("failure_id",)
    traits = Trait.ROWS | Trait.STEP | Trait.TURN
    cause_id: str
    failure_id: str
    via: Via
    similarity: Cosine | None

    def subject(self) -> str:
        return self.cause_id

    def sentence(self) -> str:
        near = "" if self.similarity is None else f" at {self.similarity:.2f}"
        return f"{self.failure_id} by {self.via}{near}"


class CauseReactivated(Event, frozen=True):
    """Mastered → Active, by the first new failure since the promotion (Equation 8)."""

    identity = ("cause_id",)
    traits = Trait.STEP | Trait.TURN
    cause_id: str
    failure_id: str
    promotion: str
    """event_id of the promotion that this undoes."""

    def sentence(self) -> str:
        return f"{self.failure_id} undoes its promotion"


class NodePairJudged(Event, frozen=True):
    """Whether two similar nodes are one skill."""

    traits = Trait.NONE
    nodes: tuple[str, str]
    similarity: Cosine
    merge: bool
    label: str | None = None
    """The merged label where the answer is yes."""
    flags: list[str] = []
    call: ModelCall | None = None

    def key(self) -> str:
        return ".".join(self.nodes)

    def subject(self) -> str:
        return " ".join(self.nodes)

    def sentence(self) -> str:
        return f"cosine {self.similarity:.2f}: " + ("one skill" if self.merge else "two skills")


class NodesMerged(Event, frozen=True):
    """Two nodes became one; causes keep their states and frequencies."""

    identity = ("survivor", "absorbed")
    traits = Trait.STEP
    survivor: str
    absorbed: str
    label: str

    def sentence(self) -> str:
        return f"{self.absorbed} is part of it now: {self.label}"


class RoundCommitted(Event, frozen=True):
    """The round is over: F, ε of the next round, counts, and the hash of the state."""

    identity = ()
    traits = Trait.ROWS | Trait.STANDING | Trait.STEP
    failures: Count
    reference_round: Ordinal | None
    reference_failures: Count | None
    epsilon_next: Ratio
    active: Count
    mastered: Count
    nodes: Count
    state_hash: str
    undiagnosed: Count = 0
    """Valid observations that were never diagnosed or stayed unresolved: they are not counted."""

    def sentence(self) -> str:
        return (
            f"F = {self.failures}, ε next = {self.epsilon_next}, {self.active} Active, "
            f"{self.mastered} Mastered, {count(self.nodes, 'node')}"
        )


class RoundsSuperseded(Event, frozen=True):
    """The diagnoses of rounds `first` to `last` no longer count; their groups are processed again as the
    rounds that follow. Carries the memory that round `first` was opened with."""

    identity = ("first", "last")
    traits = Trait.ROWS | Trait.STANDING | Trait.STEP | Trait.TURN
    first: Ordinal
    last: Ordinal
    """The last round that was opened; it need not have been committed."""
    reason: str
    failures: Count
    reference_round: Ordinal | None
    reference_failures: Count | None
    epsilon: Ratio
    causes: list[Cause]
    nodes: list[Node]
    absorbed: dict[str, tuple[str, str]]
    """Merged nodes: the survivor, and the label they had."""
    refused: dict[str, str]
    """Pairs of nodes judged to be different, with a fingerprint of their contents."""

    def subject(self) -> str:
        return ""

    def sentence(self) -> str:
        rounds = f"round {self.first}" if self.first == self.last else f"rounds {self.first} to {self.last}"
        back = f"back to F = {self.failures}, {count(len(self.causes), 'cause')}"
        return f"{rounds} superseded, {back}: {self.reason}"


class CauseRenamed(Event, frozen=True):
    """An auditor corrects a cause's description, between rounds. Its id, state and frequency stay, and so
    does its vector, which is that of the original description."""

    identity = ("number",)
    traits = Trait.STANDING | Trait.TAIL | Trait.STEP | Trait.TURN
    number: Ordinal
    """1 for the first renaming of the run."""
    cause_id: str
    description: str
    """The new words."""
    before: str

    def subject(self) -> str:
        return self.cause_id

    def sentence(self) -> str:
        return f"{self.description} (before: {self.before})"


class CauseDismissed(Event, frozen=True):
    """An auditor records, between rounds, that a cause is not the model's fault: it leaves F, ε, p and
    the schedule. Its later failures are still counted under it, and do not bring it back."""

    identity = ("number",)
    traits = Trait.STANDING | Trait.TAIL | Trait.STEP | Trait.TURN
    number: Ordinal
    """1 for the first dismissal or reinstatement of the run."""
    cause_id: str
    because: str
    by: str
    """Who said so."""

    def subject(self) -> str:
        return self.cause_id

    def sentence(self) -> str:
        return f"{self.because} ({self.by})"


class CauseReinstated(Event, frozen=True):
    """A dismissal is undone: the cause is Active again, or Mastered if it has no failure to count."""

    identity = ("number",)
    traits = Trait.STANDING | Trait.TAIL | Trait.STEP | Trait.TURN
    number: Ordinal
    """As of a dismissal: both are counted together."""
    cause_id: str
    by: str

    def subject(self) -> str:
        return self.cause_id

    def sentence(self) -> str:
        return f"no longer dismissed ({self.by})"


class CauseAdded(Event, frozen=True):
    """Somebody names a cause in their own words, between rounds. It is Active and no failure is counted under
    it yet: p is 0."""

    identity = ("cause_id",)
    traits = Trait.STANDING | Trait.TAIL | Trait.STEP | Trait.TURN
    cause_id: str
    description: str
    node_id: str
    label: str | None
    """The label of a new node; None if the cause goes under a stored one."""
    failure_id: str
    """The failure that it was named for."""
    by: str
    """Who said so."""

    def sentence(self) -> str:
        return f"under {self.node_id}: {self.description} ({self.by})"


class PlacedFailure(Value, frozen=True):
    """A failure that somebody assigns, with its question's counts."""

    failure_id: str
    round: Ordinal
    """The round in which it was observed."""
    trajectory: Digest
    question: Digest
    responses: Count
    first: Count
    """Responses that agree or passed."""


class FailureAssigned(Event, frozen=True):
    """Somebody assigns a failure to a cause, between rounds. It is counted there as a match of its own
    round would be (Equation 8): f grows, and a Mastered cause is Active again, unless the cause was promoted
    after that round."""

    identity = ("number",)
    traits = Trait.ROWS | Trait.STANDING | Trait.TAIL | Trait.STEP | Trait.TURN
    number: Ordinal
    """1 for the first assignment of the run, or the first failure that was taken out of a cause."""
    cause_id: str
    failure: PlacedFailure
    by: str
    """Who said so."""
    note: str | None = None
    undo: bool = False
    """Whether this undoes an earlier assignment: the failure is back under its diagnosed cause."""

    def subject(self) -> str:
        return self.cause_id

    def sentence(self) -> str:
        note = "" if self.note is None else f": {self.note}"
        return f"{self.failure.failure_id} is of {self.cause_id} ({self.by}){note}"


class FailureUnassigned(Event, frozen=True):
    """Somebody removes a failure from the cause that it was counted under, between rounds: f falls, unless
    the cause was promoted after the failure's round. A cause without failures is Mastered if it was ever
    promoted; otherwise it stays Active, and p is 0."""

    identity = ("number",)
    traits = Trait.ROWS | Trait.STANDING | Trait.TAIL | Trait.STEP | Trait.TURN
    number: Ordinal
    """As of an assignment: both are counted together."""
    cause_id: str
    failure: PlacedFailure
    by: str

    def subject(self) -> str:
        return self.cause_id

    def sentence(self) -> str:
        return f"{self.failure.failure_id} is not of {self.cause_id} ({self.by})"


class IdGiven(Event, frozen=True):
    """A question or failure of the round also has its trainer's own id. It changes no state."""

    identity = ("named",)
    traits = Trait.NONE
    named: str
    """`r3.q318` or `r3.q318.a5`."""
    own_id: str

    def sentence(self) -> str:
        return f"its trainer calls it {self.own_id}"


class CheckpointEvaluated(Event, frozen=True):
    """A measurement of a policy after a round (round 0: before any training). It changes no state."""

    schema_version = 2
    identity = ("role", "benchmark")
    traits = Trait.TAIL
    role: Literal["solver", "challenger"]
    checkpoint: str
    """Folder of the policy, relative to the run's folder, or the model's name."""
    benchmark: str
    questions: Count
    conditions: dict[str, Any]
    """The conditions of the measurement: samples, temperature, top-p, seed."""
    metrics: dict[str, Share]
    seconds: Amount | None = None
    """Wall time of a validation, as far as the process that ended it measured."""

    def sentence(self) -> str:
        metrics = ", ".join(f"{name} {value:.3f}" for name, value in sorted(self.metrics.items()))
        return f"{self.benchmark}: {metrics}"


EVENT_TYPES: dict[str, type[Event]] = {event.__name__: event for event in Event.__subclasses__()}
"""Every event by its stored tag."""


def having(traits: Trait) -> frozenset[str]:
    """The types of event that have any of the traits."""
    return frozenset(name for name, event in EVENT_TYPES.items() if event.traits & traits)


def number_of(id_: str) -> int:
    """c42 → 42: the order of causes and nodes."""
    return int(id_[1:])
