"""Planned hours of an 8B round on eight GPUs, and in how many of them a GPU is idle. Arithmetic.

Two shapes on one set of assumptions: as the profile is now, where every stage has all GPUs and a run one
engine a GPU, and as it was, where four trained, three served the frozen solver beside them, one was the
diagnostician's, and each stage started its own. What a stage draws and updates is what `diagevo train
--plan` says, and so is how many answers an engine decodes at once.
`python -m benchmarks hours` prints both, and each stage of both to standard error.
"""

import sys
from dataclasses import dataclass

from benchmarks.rows import Row
from diagevo.config.loading import resolve
from diagevo.config.models import Config, GRPOConfig
from diagevo.config.serving import gpus_of
from diagevo.training.footprint import CARDS, loads
from diagevo.training.shapes import KNOWN, Shape

MODEL = KNOWN["Qwen/Qwen3-8B-Base"]
CARD = CARDS[80]
BANDWIDTH = 0.6 * 3.35e12  # bytes a second of an H100, of which decoding reaches so much
FORWARD = 0.5 * 989e12  # FLOP a second, in bfloat16, of prefill
TRAINING = 0.4 * 989e12
STEP = 0.004  # seconds of a decoding step beside reading memory
PROMPT, ANSWER = 192, 576  # tokens in the mean: together what the plan reckons with
START = 90.0  # seconds until an engine or the ranks of a stage are ready
SYNC = 10.0  # seconds a step: the policy's weights into the engines
SWAP = 20.0  # seconds a step: the frozen solver's weights into the engines, from the disk's cache


@dataclass(frozen=True, slots=True)
class Shape8:
    """Who has the eight GPUs."""

    train: int
    sample: int
    """In stages in which nothing trains."""
    beside: int | None
    """GPUs that serve the frozen solver while others train; None: it takes turns with the policy."""
    drawing: int
    """Answers that an engine of a GPU that trains decodes at once."""
    serving: int
    """Answers that an engine decodes at once where nothing trains."""
    starts_anew: bool
    """Whether each stage starts engines of its own."""
    diagnosing: int
    """GPUs that the diagnostician has to itself while the solver trains."""


BEFORE = Shape8(train=4, sample=7, beside=3, drawing=202, serving=494, starts_anew=True, diagnosing=1)
"""As `train --plan` said of it: 0.5 of a GPU that trains, 0.9 of one that serves."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a round, in seconds, and how many GPUs work in it."""

    stage: str
    seconds: float
    gpus: int


def drawn(prompts: int, each: int, engines: int, rows: int, longest: int, model: Shape = MODEL) -> float:
    """Seconds for `each` answers to so many prompts, by engines that decode `rows` at once.

    The last answers are the longest, and come alone.
    """
    weights = 2 * model.weights
    full = (weights + rows * (PROMPT + ANSWER / 2) * 2 * model.cached) / BANDWIDTH + STEP
    full += rows * weights / FORWARD
    tail = (longest - ANSWER) * (weights / BANDWIDTH + STEP)
    return (
        prompts * PROMPT * weights / FORWARD / engines
        + prompts * each * ANSWER / (engines * rows) * full
        + tail
    )


def updated(completions: int, ranks: int, model: Shape = MODEL) -> float:
    """Seconds of an update: forward, once more for checkpointing, backward; and the reference's forward."""
    return completions * (PROMPT + ANSWER) * 10 * model.weights / TRAINING / ranks


def now(config: Config) -> Shape8:
    found = {load.stage: load for load in loads(config, MODEL, MODEL)}
    [inside] = next(load for stage, load in found.items() if stage.startswith("solver: rollouts")).engines
    [free] = found["candidates, votes"].engines
    gpus = len(gpus_of(config.hardware))
    return Shape8(gpus, gpus, None, inside.answers(CARD), free.answers(CARD), starts_anew=False, diagnosing=0)


def round_of(config: Config, shape: Shape8) -> list[Span]:
    """Of a run that is under way: what starts once a run is not counted."""
    train, sample = shape.train, shape.sample
    longest, play = config.sampling.max_new_tokens, config.round
    start = START if shape.starts_anew else 0.0
    swap = SWAP if shape.beside is None else 0.0

    def rollouts(settings: GRPOConfig) -> float:
        return SYNC + drawn(settings.batch_questions, settings.group, train, shape.drawing, longest)

    one, two = config.challenger_grpo, config.solver_grpo
    asked, practised = one.batch_questions * one.group, two.batch_questions * two.group
    voters, rows = (train, shape.drawing) if shape.beside is None else (shape.beside, shape.serving)
    votes = drawn(asked, play.challenger_votes, voters, rows, longest) + swap
    free = shape.serving
    diagnosing = shape.diagnosing
    return [
        Span("challenger: rollouts", start + one.max_steps * rollouts(one), train),
        Span("challenger: votes", one.max_steps * votes, voters),
        Span("challenger: update", one.max_steps * updated(asked, train), train),
        Span("candidates", start + swap + drawn(play.candidates, 1, sample, free, longest), sample),
        Span("votes", start + swap + drawn(play.candidates, play.responses, sample, free, longest), sample),
        # The diagnostician reads failures meanwhile.
        Span("solver: rollouts", start + two.max_steps * rollouts(two), train + diagnosing),
        Span(
            "solver: update",
            two.max_steps * updated(practised, train),
            train + diagnosing,
        ),
    ]


def hours(spans: list[Span]) -> float:
    return sum(span.seconds for span in spans) / 3600


def idle(spans: list[Span], gpus: int = 8) -> float:
    """Share of the GPU-hours of a round in which a GPU has nothing to do."""
    return 1 - sum(span.seconds * span.gpus for span in spans) / (3600 * gpus * hours(spans))


def rows() -> list[Row]:
    config = resolve(profile="qwen3-8b", environ={"XDG_CONFIG_HOME": "/nowhere"}).config
    after, before = round_of(config, now(config)), round_of(config, BEFORE)
    for name, spans in (("before", before), ("now", after)):
        told = ", ".join(f"{s.stage} {s.seconds / 60:.0f} min on {s.gpus}" for s in spans)
        print(f"bench_hours, {name}: {told}", file=sys.stderr)
    ratio = hours(before) / hours(after)
    note = "planned by arithmetic on stated assumptions, not measured"
    share = 100 * idle(after), 100 * idle(before)
    return [
        Row("8B round on 8 GPUs", hours(after), "h", hours(before), "before", ratio, "", None, note),
        Row("GPU-hours idle in it", share[0], "%", share[1], "before", None, "", None, note),
    ]
