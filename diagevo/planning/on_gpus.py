"""The time of a round on GPUs, part by part: arithmetic on the assumptions below. No torch.

Every rank keeps a vLLM, so that each part uses all GPUs. The diagnostician reads failures while the solver
trains; the GPUs wait for what is left then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagevo.config.models import Config, GRPOConfig
from diagevo.config.resources import mean_tokens, passes, rollouts, votes_a_question, workload
from diagevo.planning.footprint import CARDS, Load, checkpoint
from diagevo.planning.shapes import Shape

FAST: Mapping[int, tuple[str, float, float]] = {
    24: ("RTX 4090", 1.01e12, 165e12),
    40: ("A100", 1.56e12, 312e12),
    48: ("L40S", 0.86e12, 362e12),
    80: ("H100", 3.35e12, 989e12),
    141: ("H200", 4.8e12, 989e12),
}
"""By gigabytes: a card, its memory bandwidth in bytes a second, its bfloat16 operations a second (data
sheets)."""
LINKS: Mapping[int, float] = {24: 32e9, 40: 300e9, 48: 32e9, 80: 450e9, 141: 450e9}
"""Bytes a second between cards of a machine: PCIe 4 or NVLink, one way (data sheets)."""
DECODING, READING, TRAINING, SENDING = 0.6, 0.5, 0.4, 0.7
"""Shares reached: decoding, of the memory bandwidth; prompts and updates, of the operations; exchanges
between ranks, of the link."""
STEP = 0.004  # seconds of a decoding step besides reading memory
START = 90.0  # seconds until the ranks of a phase are ready
SYNC = 10.0  # seconds: a policy's weights into the engines, checked
DISK = 1e9  # bytes a second
COPY = 5e9  # bytes a second from a GPU to the memory of its machine
ASKED, REPLY = 2600, 150  # tokens of a call of the diagnostician, and of its reply
SERVED = 64  # replies that the diagnostician generates at once


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a round."""

    part: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """Cards of one kind, and their workload."""

    card: int
    gpus: int
    prompt: int
    """Mean tokens assumed by the plan."""
    answer: int
    longest: int
    """Maximum tokens of an answer."""
    row: int
    """Tokens of prompt and answer that a row of a micro-batch has room for."""
    shards: int | None = None
    """GPUs that share a model's training state; None if each has all of it."""
    lora: int | None = None

    def drawn(self, prompts: int, each: int, rows: int, shape: Shape) -> float:
        """Seconds for `each` answers to this many prompts, with one engine per GPU that decodes `rows` at
        once. The last answers are the longest, and are decoded alone."""
        _, bandwidth, operations = FAST[self.card]
        weights, reading = 2 * shape.weights, READING * operations
        alone = weights / (DECODING * bandwidth) + STEP
        cache = rows * (self.prompt + self.answer / 2) * 2 * shape.cached
        full = alone + cache / (DECODING * bandwidth) + rows * weights / reading
        return (
            prompts * self.prompt * weights / reading / self.gpus
            + prompts * each * self.answer / (self.gpus * rows) * full
            + (self.longest - self.answer) * alone
        )

    def updated(self, settings: GRPOConfig, shape: Shape) -> float:
        """Seconds of a phase's updates. Communication overlaps computation: the slower counts.

        Checkpointing repeats the policy's forward pass. Attention's operations per token grow with the number
        of earlier
        tokens: half the length on average, one product with keys and one with values.
        """
        tokens = rollouts(settings) * (self.prompt + self.answer)
        forward, backward = passes(settings, self.lora)
        forward += 1
        attention = 2 * shape.layers * shape.query * (self.prompt + self.answer)
        operations = tokens * (2 * shape.weights * (forward + backward) + attention * (forward + 2))
        computed = operations / (TRAINING * FAST[self.card][2]) / self.gpus
        return max(computed, self._exchanged(settings, shape, tokens, forward))

    def _exchanged(self, settings: GRPOConfig, shape: Shape, tokens: int, forward: int) -> float:
        """Shards are gathered in bfloat16 for each pass over a micro-batch, of which the backward one shares
        its with checkpointing, and their gradients are sent in float32; ranks with whole models add theirs up
        once an update, which sends them twice."""
        updates = settings.max_steps * settings.updates
        if self.shards is not None:
            micro_batches = max(updates, tokens / self.gpus / (settings.micro_batch * self.row))
            sent = micro_batches * shape.weights * (2 * forward + 4) * (self.shards - 1) / self.shards
        else:
            trained = shape.weights if self.lora is None else shape.adapters(self.lora)
            sent = updates * trained * 8 * (self.gpus - 1) / self.gpus
        return sent / (SENDING * LINKS[self.card])

    def asked(self, calls: int, shape: Shape) -> float:
        """Seconds of this many calls to a diagnostician on one GPU."""
        _, bandwidth, operations = FAST[self.card]
        weights = 2 * shape.weights
        step = weights / (DECODING * bandwidth) + STEP
        return calls * (ASKED * weights / (READING * operations) + REPLY * step / SERVED)


def spans(
    config: Config,
    found: Sequence[Load],
    card: int,
    shape: Shape,
    diagnostician: Shape | None,
    questions: int,
) -> list[Span]:
    """The parts of a round on GPUs of `card` GB. `found`: each stage's memory; `questions`: of a
    validation."""
    play, one, two = config.round, config.challenger_grpo, config.solver_grpo
    mean, sampling, hardware = mean_tokens(config.sampling), config.sampling, config.hardware
    pace = Pace(
        card=card,
        gpus=hardware.processes,
        prompt=mean // 4,
        answer=mean - mean // 4,
        longest=sampling.max_new_tokens,
        row=sampling.max_prompt_tokens + sampling.max_new_tokens,
        shards=None if hardware.accelerate_config is None else hardware.fsdp_size or hardware.processes,
        lora=config.training.lora,
    )
    rows = {load.stage: max(1, load.engines[0].answers(CARDS[card])) for load in found if load.engines}
    free = rows["candidates, votes"]
    parts: list[Span] = []
    if play.train_challenger and one.max_steps:
        beside = rows["challenger: rollouts, votes"]
        votes = pace.drawn(one.batch_questions * one.group, votes_a_question(config), beside, shape)
        parts += [
            *_phase("challenger", config, one, pace, beside, shape),
            Span("challenger: votes", one.max_steps * (2 * SYNC + votes)),
        ]
    parts.append(Span("candidates", SYNC + pace.drawn(play.candidates, 1, free, shape)))
    parts.append(Span("votes", SYNC + pace.drawn(play.candidates, play.responses, free, shape)))
    solver = list(_phase("solver", config, two, pace, rows["solver: rollouts"], shape))
    parts += solver
    [calls] = [work.calls for work in workload(config, {}) if work.stage == "diagnosis"]
    if calls and diagnostician is not None:
        waited = pace.asked(calls, diagnostician) - sum(span.seconds for span in solver)
        parts.append(Span("waiting for the diagnostician", max(0.0, waited)))
    if questions:
        heats, n = 1 + len(config.validation.temperatures), config.validation.samples
        sampled = heats * pace.drawn(questions, n, free, shape) + pace.drawn(questions, 1, free, shape)
        parts.append(Span("validation", SYNC + sampled))
    return parts


def _phase(
    role: str, config: Config, settings: GRPOConfig, pace: Pace, rows: int, shape: Shape
) -> Iterator[Span]:
    steps, drawn = settings.max_steps, pace.drawn(settings.batch_questions, settings.group, rows, shape)
    updated = pace.updated(settings, shape)
    saved = checkpoint(shape, config.training.lora)
    copies = pace.gpus if config.hardware.accelerate_config is not None else 1
    saves, between = -(-steps // settings.save_steps), settings.save_steps * (SYNC + drawn + updated / steps)
    # Written during the following steps; the last one, and the policy, after them.
    late = (saves - 1) * max(0.0, saved / DISK - between) + (saved + saved / 3) / DISK
    yield Span(
        f"{role}: start, loads", START + SYNC + 8 * shape.weights / DISK
    )  # the policy and its reference
    yield Span(f"{role}: rollouts", steps * (SYNC + drawn))
    yield Span(f"{role}: updates", updated)
    yield Span(f"{role}: saving", saves * saved / COPY / copies + late)
