"""Planned hours of an 8B round on eight GPUs, and in how many of them a GPU is idle. Arithmetic.

Two shapes on one set of assumptions: as the profile is now, where every stage has the GPUs, and as it was,
where four trained, three served the frozen solver beside them, and one was the diagnostician's. What a stage
draws and updates is what `diagevo train --plan` says, and so is how many answers an engine decodes at once.
`python -m benchmarks hours` prints both, and each stage of both to standard error.
"""

import sys
from dataclasses import dataclass

from benchmarks.rows import Row
from diagevo.config.loading import resolve
from diagevo.config.models import Config, GRPOConfig
from diagevo.config.serving import serving_gpus, training_gpus
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
BEFORE = (
    "hardware.processes=4",
    "hardware.train_gpus=[0,1,2,3]",
    "hardware.vllm_memory=0.5",
    "hardware.serve_gpus=[0,1,2,3,4,5,6]",
    "hardware.serve_memory=0.9",
    "hardware.rows_at_once=1024",
)
BESIDE = 3
"""GPUs that served the frozen solver while four trained."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a round, in seconds, and how many GPUs work in it."""

    stage: str
    seconds: float
    gpus: int


def drawn(prompts: int, each: int, engines: int, rows: int, longest: int, shape: Shape = MODEL) -> float:
    """Seconds for `each` answers to so many prompts, by engines that decode `rows` at once.

    The last answers are the longest, and come alone.
    """
    weights = 2 * shape.weights
    full = (weights + rows * (PROMPT + ANSWER / 2) * 2 * shape.cached) / BANDWIDTH + STEP
    full += rows * weights / FORWARD
    tail = (longest - ANSWER) * (weights / BANDWIDTH + STEP)
    return (
        prompts * PROMPT * weights / FORWARD / engines
        + prompts * each * ANSWER / (engines * rows) * full
        + tail
    )


def updated(completions: int, ranks: int, shape: Shape = MODEL) -> float:
    """Seconds of an update: forward, once more for checkpointing, backward; and the reference's forward."""
    return completions * (PROMPT + ANSWER) * 10 * shape.weights / TRAINING / ranks


def round_of(config: Config, beside: int | None) -> list[Span]:
    """`beside`: GPUs that serve the frozen solver while the others train; None: it takes turns with them."""
    found = {load.stage: load for load in loads(config, MODEL, MODEL)}
    [inside] = next(load for stage, load in found.items() if stage.startswith("solver: rollouts")).engines
    [server] = found["candidates, votes"].engines
    train, serve = len(training_gpus(config.hardware)), len(serving_gpus(config.hardware))
    longest, play = config.sampling.max_new_tokens, config.round

    def rollouts(settings: GRPOConfig) -> float:
        return SYNC + drawn(settings.batch_questions, settings.group, train, inside.answers(CARD), longest)

    one, two = config.challenger_grpo, config.solver_grpo
    asked = one.batch_questions * one.group
    voters = train if beside is None else beside
    rows = (inside if beside is None else server).answers(CARD)
    votes = drawn(asked, play.challenger_votes, voters, rows, longest) + (SWAP if beside is None else 0.0)
    free = server.answers(CARD)
    return [
        Span("challenger: rollouts", START + one.max_steps * rollouts(one), train),
        Span("challenger: votes", one.max_steps * votes, voters),
        Span("challenger: update", one.max_steps * updated(asked, train), train),
        Span("candidates", START + drawn(play.candidates, 1, serve, free, longest), serve),
        Span("votes", START + drawn(play.candidates, play.responses, serve, free, longest), serve),
        # The diagnostician reads failures meanwhile.
        Span("solver: rollouts", START + two.max_steps * rollouts(two), train + 1),
        Span("solver: update", two.max_steps * updated(two.batch_questions * two.group, train), train + 1),
    ]


def hours(spans: list[Span]) -> float:
    return sum(span.seconds for span in spans) / 3600


def idle(spans: list[Span], gpus: int = 8) -> float:
    """Share of the GPU-hours of a round in which a GPU has nothing to do."""
    return 1 - sum(span.seconds * span.gpus for span in spans) / (3600 * gpus * hours(spans))


def rows() -> list[Row]:
    elsewhere = {"XDG_CONFIG_HOME": "/nowhere"}
    now, then = (
        resolve(settings=list(settings), profile="qwen3-8b", environ=elsewhere).config
        for settings in ((), BEFORE)
    )
    after, before = round_of(now, None), round_of(then, BESIDE)
    for name, spans in (("before", before), ("now", after)):
        told = ", ".join(f"{s.stage} {s.seconds / 60:.0f} min on {s.gpus}" for s in spans)
        print(f"bench_hours, {name}: {told}", file=sys.stderr)
    ratio = hours(before) / hours(after)
    note = "planned by arithmetic on stated assumptions, not measured"
    share = 100 * idle(after), 100 * idle(before)
    return [
        Row("8B round on 8 GPUs", hours(after), "h", hours(before), "before", ratio, "", None, note),
        Row("GPU-hours idle in it", share[0], "%", share[1], "before", share[1] / share[0], "", None, note),
    ]
