"""Peak memory of each GPU, stage by stage, from the configuration and the models' shapes.

Trained weights, gradients and AdamW's moments are float32; arithmetic and the base of adapters bfloat16.
Under FSDP every rank holds its shard, one layer at a time is gathered, and gradients are reduce-scattered
after every micro-batch. Gradient checkpointing keeps each layer's input and recomputes one layer; the head's
logits exist only in tiles. Tests compare an update with actual allocations, at the real sizes with tensors
without data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from diagevo.config.models import Config, GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.config.resources import gpus_of, lora_slots, mean_tokens, on_this_machine
from diagevo.planning.shapes import Shape, find_shape

CARDS: Mapping[int, float] = {24: 23.6e9, 40: 42.3e9, 48: 47.6e9, 80: 84.9e9, 141: 150.0e9}
"""Bytes that torch finds on a card with this nominal GB: the minimum of those on sale."""
MEMORY_FRACTION = 0.9  # of a card; the rest is lost to fragmentation
MIN_BATCH_CONCURRENCY = 64
"""Concurrent answers below which decoding is limited by memory bandwidth."""
DIAGNOSTICIAN = 0.3
"""Share of the last GPU used by your diagnostician, on a machine whose GPUs all train."""
SAME_SHAPE = "name models of one shape, or set hardware.colocate_vllm to false"
_PROCESS = 600_000_000  # CUDA's own, in each process
_NCCL = 1_000_000_000  # buffers of a process that trains with others
_HOST = 6_000_000_000  # of torch, CUDA's libraries and vLLM in a rank's process, outside of the GPU
_ENGINE = 1_000_000_000  # of vLLM besides weights, cache and activations: its process and its graphs
_CHUNK = 8192  # tokens of one forward pass of vLLM
_TILE = (4096, 32_768)  # tokens and vocabulary entries whose logits TRL's head computes at once


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """A vLLM, which takes its share of a GPU and uses the rest of it as cache."""

    name: str
    share: float
    needed: int
    """Bytes of its weights and activations."""
    token: int
    """Bytes of a token in its cache."""
    longest: int
    """Tokens of the longest sequence; its cache must hold one."""
    mean: int
    """Tokens of a mean-length sequence."""
    rows: int
    """Maximum sequences decoded at once."""
    yours: bool = False
    """Whether it is a server that the user starts."""

    def tokens(self, card: float) -> int:
        """Tokens that its cache holds on a card with this many bytes."""
        return max(0, int((self.share * card - self.needed) / self.token))

    def answers(self, card: float) -> int:
        """Mean-length answers that it decodes at once: more would wait for cache, or be preempted."""
        return min(self.rows, self.tokens(card) // self.mean)

    def more(self, card: float) -> str | None:
        """If its concurrency is low: how low, and the setting that helps."""
        found = self.answers(card)
        if found >= MIN_BATCH_CONCURRENCY or self.yours:
            return None
        setting = "hardware.vllm_memory" if found < self.rows else "hardware.rows_at_once or batch_questions"
        least = MIN_BATCH_CONCURRENCY
        return f"{found} answers of {self.mean} tokens at once, fewer than {least}: raise {setting}"


@dataclass(frozen=True, slots=True)
class Load:
    """The memory of a GPU at one moment of a stage."""

    stage: str
    gpus: tuple[int, ...]
    """GPUs of one machine; none if it is another's, or if Ray places it."""
    parts: Mapping[str, int] = field(default_factory=dict)
    engines: tuple[EngineLoad, ...] = ()
    placed: bool = False
    """On a cluster, by Ray: each rank's GPU holds the same."""

    def peak(self, card: float) -> int:
        return sum(self.parts.values()) + int(sum(engine.share for engine in self.engines) * card)

    def fits(self, card: float) -> bool:
        return self.peak(card) <= MEMORY_FRACTION * card and all(
            engine.tokens(card) >= engine.longest for engine in self.engines
        )


def shapes_of(config: Config) -> tuple[Shape, Shape, Shape | None] | None:
    """Challenger, solver, diagnostician; None if a policy's config.json is not here."""
    roles = config.roles
    challenger, solver = find_shape(roles.challenger.model), find_shape(roles.solver.model)
    if challenger is None or solver is None:
        return None
    return challenger, solver, find_shape(roles.diagnostician.model)


def card_for(found: Sequence[Load]) -> int | None:
    """The smallest card on sale, in GB, on which everything fits with enough decode concurrency; else the
    smallest on which it fits, if any."""
    fitting = [card for card, size in CARDS.items() if all(load.fits(size) for load in found)]
    roomy = (card for card in fitting if low_concurrency(found, CARDS[card]) is None)
    return next(roomy, next(iter(fitting), None))


def low_concurrency(found: Sequence[Load], card: float) -> str | None:
    """The first stage with low decode concurrency on such a card, and what helps."""
    engines = ((load.stage, engine.more(card)) for load in found for engine in load.engines)
    return next((f"{stage}: {words}" for stage, words in engines if words is not None), None)


def memory_advice(config: Config) -> str:
    """What reduces a run's GPU memory, cheapest first."""
    hardware = config.hardware
    share = "the share of vLLM (hardware.vllm_memory)" if hardware.colocate_vllm else "hardware.rows_at_once"
    found = f"lower micro_batch of challenger_grpo and solver_grpo, or {share}"
    if hardware.accelerate_config is not None:
        return f"{found}; or train on more GPUs (hardware.processes)"
    adapters = "" if config.training.lora else "train adapters (training.lora=32), or "
    return f"{found}; or {adapters}on more GPUs (hardware.processes with accelerate_config=fsdp)"


def shape_mismatch(config: Config) -> str | None:
    """Why one vLLM cannot serve challenger and solver in turns; None if it can."""
    if not config.hardware.colocate_vllm:
        return None
    shapes = shapes_of(config)
    if shapes is None or shapes[0] == shapes[1]:
        return None
    return "one vLLM answers for challenger and solver in turns, and their shapes differ"


def gpu_memory_plan(
    config: Config, challenger: Shape, solver: Shape, diagnostician: Shape | None = None
) -> list[Load]:
    """Each stage's peaks. `diagnostician`: included if it is served on this machine."""
    hardware = config.hardware
    found: list[Load] = []
    if config.round.train_challenger:
        # Without a vLLM each process holds the frozen solver beside the challenger.
        parts = {} if hardware.colocate_vllm else _sampler(config, solver)
        beside = {f"solver's {name}": size for name, size in parts.items()}
        found += _phase("challenger", config, config.challenger_grpo, challenger, beside)
    found += _phase("solver", config, config.solver_grpo, solver, {})
    bigger = max(challenger, solver, key=lambda shape: shape.weights)
    gpus, placed = _gpus(hardware)
    parts, engines = {"process": _PROCESS}, ()
    if hardware.colocate_vllm:
        engines = (_own(config, bigger, hardware.rows_at_once),)
    else:
        parts |= _sampler(config, bigger)
    found.append(Load("candidates, votes", gpus, parts, engines, placed))
    if not config.diagnosis.enabled or diagnostician is None:
        return found
    if on_this_machine(config.roles.diagnostician.base_url):
        asked = SamplingConfig(max_prompt_tokens=8192, max_new_tokens=config.roles.diagnostician.max_tokens)
        alone = placed or hardware.processes == 1
        share = 0.9 if alone else DIAGNOSTICIAN
        served = _engine("diagnostician", share, diagnostician, 256, asked, yours=True)
        if alone:
            found.append(Load("diagnosis, by your server", (), engines=(served,)))
        else:
            found += [
                Load(
                    f"{each.stage}, beside your diagnostician", gpus[-1:], each.parts, (*each.engines, served)
                )
                for each in tuple(found)
            ]
    return found


def update(
    shape: Shape,
    *,
    rows: int,
    prompt: int,
    new: int,
    ranks: int = 1,
    sharded: bool = False,
    lora: int | None = None,
    reference: bool = True,
    number: int = 2,
) -> dict[str, int]:
    """Peak bytes of a rank in an update of `rows` completions at once.

    `number`: bytes per number in the arithmetic.
    """
    trained = shape.weights if lora is None else shape.adapters(lora)
    parts = resident(shape, ranks=ranks, sharded=sharded, lora=lora, reference=reference, number=number)
    split = ranks if sharded else 1
    parts["gradients"] = 4 * trained // split
    head, whole = shape.vocabulary * shape.hidden, lora is None
    if sharded:
        # The head stays gathered; of the layers this one, the next, and gradients on their way.
        parts["gathered"] = number * (head + 3 * shape.layer)
    elif ranks > 1:
        parts["buckets"] = 4 * trained
    # Between layers: in the arithmetic's numbers where weights are held in them.
    tokens, between = rows * (prompt + new), 4 if whole and not sharded else number
    kept = tokens * shape.hidden * (shape.layers * between + 8 + between)
    mask = tokens * (prompt + new) * (1 + number)  # of padding, for torch's own attention
    tile = number * min(tokens, _TILE[0]) * min(shape.vocabulary, _TILE[1])
    # The gradient of a head that is the embedding too waits for the embedding's.
    waiting = between * head if whole and shape.tied else 0
    added = 0 if whole else number * tokens * shape.intermediate  # by an adapter to a matrix's output
    layer = _layer_work(shape, tokens, number, between) + waiting + added
    scores = rows * new * shape.hidden * (4 + number) + tile
    if whole:
        scores += (4 + number if sharded and number < 4 else 4) * head
    if sharded:
        scores -= 2 * number * shape.layer  # meanwhile one layer is gathered, and not three
    casts = number * shape.weights + tile if whole and not sharded and number < 4 else 0
    parts["activations"] = kept + mask + max(layer, scores, casts)
    return parts


def resident(
    shape: Shape,
    *,
    ranks: int = 1,
    sharded: bool = False,
    lora: int | None = None,
    reference: bool = True,
    number: int = 2,
) -> dict[str, int]:
    """Bytes that a rank holds throughout a phase. An adapter's reference is another adapter."""
    split = ranks if sharded else 1
    trained = shape.weights if lora is None else shape.adapters(lora)
    return {
        "base": 0 if lora is None else number * shape.weights,
        "weights": 4 * trained // split,
        "Adam": 8 * trained // split,
        "reference": 4 * trained // split if reference else 0,
    }


def host_memory_bytes(config: Config, challenger: Shape, solver: Shape, ranks: int) -> int:
    """Peak bytes of host memory for `ranks` ranks. Under FSDP each reads its shard of the models onto its
    GPU; otherwise every rank reads the whole policy and reference, in float32, and the base of adapters in
    bfloat16. A checkpoint's content is copied first, by one rank or in shards."""
    found, hardware = 0, config.hardware
    for settings, shape in ((config.challenger_grpo, challenger), (config.solver_grpo, solver)):
        size, saved = ranks * 4 * shape.weights * (2 if settings.beta > 0 else 1), checkpoint(shape)
        if hardware.accelerate_config is not None:
            size, saved = 0, ranks * saved // (hardware.fsdp_size or hardware.processes)
        elif config.training.lora is not None:
            size, saved = ranks * 2 * shape.weights, checkpoint(shape, config.training.lora)
        found = max(found, size, saved)
    return found + ranks * _HOST


def checkpoint(shape: Shape, lora: int | None = None) -> int:
    """Bytes of a resumable checkpoint on disk: the trained weights, and AdamW's two moments."""
    return 12 * (shape.weights if lora is None else shape.adapters(lora))


def _phase(
    role: str, config: Config, settings: GRPOConfig, shape: Shape, beside: Mapping[str, int]
) -> Iterator[Load]:
    hardware, sampling, lora = config.hardware, config.sampling, config.training.lora
    gpus, placed = _gpus(hardware)
    how = {
        "ranks": hardware.fsdp_size or hardware.processes,
        "sharded": hardware.accelerate_config is not None,
        "lora": lora,
        "reference": settings.beta > 0,
    }
    longest = sampling.max_prompt_tokens + sampling.max_new_tokens
    share = -(-settings.batch_questions * settings.group // hardware.processes)
    others = {"process": _PROCESS + _NCCL * (hardware.processes > 1)} | dict(beside)
    rollouts = others | resident(shape, **how)
    if hardware.colocate_vllm:
        own = _own(config, shape, min(share, hardware.rows_at_once))
        if lora is not None:  # until the engine exists the trainer holds the base by itself
            yield Load(f"{role}: start", gpus, others | {"base": rollouts.pop("base")}, (own,), placed)
        votes, engines = ", votes" if role == "challenger" else "", (own,)
        yield Load(f"{role}: rollouts{votes}", gpus, rollouts, engines, placed)
    else:
        rows = min(share, hardware.rows_at_once)
        # Keys come out of a rotation in float32, values in bfloat16.
        rollouts["cache"] = rows * longest * shape.cached * 3
        rollouts["logits"] = 26 * rows * shape.vocabulary
        rollouts["casts"] = 2 * (shape.weights if lora is None else shape.layer)
        engines = ()
        yield Load(f"{role}: rollouts", gpus, rollouts, placed=placed)
    rows = min(settings.micro_batch, share)
    parts = update(shape, rows=rows, prompt=sampling.max_prompt_tokens, new=sampling.max_new_tokens, **how)
    if hardware.colocate_vllm and lora is None:
        others["vLLM asleep"], engines = _ENGINE, ()
    if engines:
        parts.pop("base")
    yield Load(f"{role}: update", gpus, others | parts, engines, placed)


def _gpus(hardware: HardwareConfig) -> tuple[tuple[int, ...], bool]:
    """Of the ranks; by Ray's choice, where it places them."""
    on_cluster = hardware.cluster == "ray"
    return () if on_cluster else gpus_of(hardware), on_cluster


def _own(config: Config, shape: Shape, rows: int) -> EngineLoad:
    """A rank's engine."""
    lora = config.training.lora
    return _engine(
        "vLLM" if lora is None else "vLLM and base",
        config.hardware.vllm_memory,
        shape,
        rows,
        config.sampling,
        adapters=0 if lora is None else 2 * shape.adapters(lora_slots(lora)),
    )


def _engine(
    name: str,
    share: float,
    shape: Shape,
    rows: int,
    sampling: SamplingConfig,
    *,
    adapters: int = 0,
    yours: bool = False,
) -> EngineLoad:
    """`adapters`: total numbers of the adapters, which it holds besides its weights."""
    work = _ENGINE + 12 * rows * shape.vocabulary + 12 * _CHUNK * shape.intermediate
    return EngineLoad(
        name,
        share,
        2 * (shape.weights + adapters) + work,
        2 * shape.cached,
        longest=sampling.max_prompt_tokens + sampling.max_new_tokens,
        mean=mean_tokens(sampling),
        rows=rows,
        yours=yours,
    )


def _sampler(config: Config, shape: Shape) -> dict[str, int]:
    """Memory of our own decoding loop with weights in bfloat16."""
    rows = config.hardware.rows_at_once
    longest = config.sampling.max_prompt_tokens + config.sampling.max_new_tokens
    cache = 2 * rows * longest * shape.cached
    return {"weights": 2 * shape.weights, "cache": cache, "logits": 26 * rows * shape.vocabulary}


def _layer_work(shape: Shape, tokens: int, number: int, between: int) -> int:
    """Recomputing a layer and its gradients: per token, plus another copy of its weights. `between`: bytes
    per number between layers.
    """
    narrow = (8.5 + between + 4 * number) * shape.hidden + (4 + 3 * number) * (shape.query + shape.key)
    return int(tokens * (5.75 * number * shape.intermediate + narrow)) + number * shape.layer
