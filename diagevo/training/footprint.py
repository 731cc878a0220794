"""What each GPU holds at its fullest, stage by stage, from the configuration and the models' shapes. Pure.

Weights, gradients and AdamW's moments are float32, arithmetic is bfloat16. Under FSDP (or ZeRO-3) every rank
holds its part of them, a layer at a time is gathered, and gradients are shared out after every micro-batch.
Gradient checkpointing keeps each layer's input and computes one layer again; the head's logits exist in tiles
alone. What a token of a layer takes (`_layer_work`) was counted on the CPU, where tests compare it with what
is allocated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from diagevo.config.models import Config, GRPOConfig
from diagevo.config.serving import options_of, serving, training_gpus
from diagevo.training.shapes import Shape

CARDS: Mapping[int, float] = {24: 23.6e9, 40: 42.3e9, 48: 47.6e9, 80: 84.9e9, 141: 150.0e9}
"""Bytes that torch finds on a card sold with so many GB: the least of those on sale."""
ROOM = 0.95  # of a card; the rest goes to what the allocator cannot use
_PROCESS = 600_000_000  # CUDA's own, in each process
_ENGINE = 1_000_000_000  # of vLLM beside weights, cache and work: its process and its graphs
_CHUNK = 8192  # tokens of one forward pass of vLLM


@dataclass(frozen=True, slots=True)
class Engine:
    """A vLLM, which takes its share of a GPU and fills what it does not need with its cache."""

    name: str
    share: float
    needed: int
    """Bytes of its weights and its work."""
    token: int
    """Bytes of a token in its cache."""
    longest: int
    """Tokens of the longest sequence; its cache must hold one."""

    def tokens(self, card: float) -> int:
        """What its cache holds on a card of so many bytes."""
        return max(0, int((self.share * card - self.needed) / self.token))


@dataclass(frozen=True, slots=True)
class Load:
    """What a GPU holds at one moment of a stage."""

    stage: str
    gpus: tuple[int, ...]
    parts: Mapping[str, int] = field(default_factory=dict)
    engines: tuple[Engine, ...] = ()

    def peak(self, card: float) -> int:
        return sum(self.parts.values()) + int(sum(engine.share for engine in self.engines) * card)

    def fits(self, card: float) -> bool:
        return self.peak(card) <= ROOM * card and all(
            engine.tokens(card) >= engine.longest for engine in self.engines
        )


def loads(config: Config, challenger: Shape, solver: Shape, diagnostician: Shape | None = None) -> list[Load]:
    """Each stage's fullest moments. `diagnostician`: counted where it is served on this machine."""
    hardware = config.hardware
    training = training_gpus(hardware)
    found: list[Load] = []
    if config.round.train_challenger:
        beside = _beside(config, solver)
        found += _phase("challenger", training, config, config.challenger_grpo, challenger, beside)
        if hardware.serve == "vllm" and not beside.engines:
            found.append(_server("challenger: votes", config, solver, beside_training=True))
    found += _phase("solver", training, config, config.solver_grpo, solver, Load("", ()))
    bigger = max(challenger, solver, key=lambda shape: shape.weights)
    if hardware.serve == "vllm":
        found.append(_server("candidates, votes", config, bigger, beside_training=False))
    else:
        parts = {"process": _PROCESS} | _sampler(config, bigger)
        found.append(Load("candidates, votes", training[:1], parts))
    if not config.diagnosis.enabled:
        return found
    if diagnostician is not None and _is_here(config.roles.diagnostician.base_url):
        engine = _engine(
            "diagnostician", 0.9, diagnostician, 256, 8192 + config.roles.diagnostician.max_tokens
        )
        found.append(Load("diagnosis, by your server", (), engines=(engine,)))
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
    """Bytes of a rank at the fullest moment of an update of `rows` completions at once.

    `number`: bytes of one in the arithmetic.
    """
    trained = shape.weights if lora is None else shape.adapters(lora)
    parts = resident(shape, ranks=ranks, sharded=sharded, lora=lora, reference=reference)
    split = ranks if sharded else 1
    parts["gradients"] = 4 * trained // split
    if sharded:
        parts["gathered"] = number * (shape.outer + 5 * shape.layer)
    elif ranks > 1:
        parts["buckets"] = 4 * trained
    tokens, between = rows * (prompt + new), number if sharded else 4
    kept = tokens * shape.hidden * (shape.layers * between + 8 + between)
    head = rows * new * shape.hidden * (4 + number) + (
        4 * shape.vocabulary * shape.hidden if lora is None else 0
    )
    casts = number * shape.weights if lora is None and not sharded and number < 4 else 0
    parts["activations"] = kept + max(_layer_work(shape, tokens, number), head, casts)
    return parts


def resident(
    shape: Shape, *, ranks: int = 1, sharded: bool = False, lora: int | None = None, reference: bool = True
) -> dict[str, int]:
    """Bytes that a rank holds through a whole phase."""
    split = ranks if sharded else 1
    adapters = 0 if lora is None else shape.adapters(lora)
    trained = adapters or shape.weights
    return {
        "weights": 4 * (shape.weights + adapters) // split,
        "Adam": 8 * trained // split,
        "reference": 4 * shape.weights // split if reference and lora is None else 0,
    }


def checkpoint(shape: Shape, lora: int | None = None) -> int:
    """Bytes of a resumable checkpoint on disk: what trains, and AdamW's two moments of it."""
    return 12 * (shape.weights if lora is None else shape.adapters(lora))


def _phase(
    role: str, gpus: tuple[int, ...], config: Config, settings: GRPOConfig, shape: Shape, beside: Load
) -> Iterator[Load]:
    hardware, sampling, lora = config.hardware, config.sampling, config.training.lora
    how = {
        "ranks": hardware.ranks,
        "sharded": hardware.accelerate_config is not None,
        "lora": lora,
        "reference": settings.beta > 0,
    }
    longest = sampling.max_prompt_tokens + sampling.max_new_tokens
    share = -(-settings.batch_questions * settings.group // hardware.ranks)
    others = {"process": _PROCESS} | dict(beside.parts)
    rollouts, engines = others | resident(shape, **how), beside.engines
    if hardware.colocate_vllm:
        own = _engine("rollouts", hardware.vllm_memory, shape, share, longest)
        yield Load(f"{role}: rollouts", gpus, rollouts, (*engines, own))
    else:
        rows = min(share, hardware.rows_at_once)
        # Keys come out of a rotation in float32, values in bfloat16.
        rollouts["cache"] = rows * longest * shape.cached * 3
        rollouts["logits"] = 26 * rows * shape.vocabulary
        rollouts["casts"] = 2 * (shape.weights if lora is None else shape.layer)
        yield Load(f"{role}: rollouts", gpus, rollouts, engines)
    rows = min(settings.micro_batch, share)
    parts = update(shape, rows=rows, prompt=sampling.max_prompt_tokens, new=sampling.max_new_tokens, **how)
    if hardware.colocate_vllm:
        others["vLLM asleep"] = _ENGINE
    yield Load(f"{role}: update", gpus, others | parts, engines)


def _beside(config: Config, solver: Shape) -> Load:
    """What answers for the frozen solver on the GPUs that train the challenger, if anything does."""
    hardware = config.hardware
    if hardware.serve == "transformers":
        return Load("", (), {f"solver's {name}": size for name, size in _sampler(config, solver).items()})
    served = serving(hardware, config.sampling, beside_training=True)
    if not set(served.gpus or range(served.copies)) & set(training_gpus(hardware)):
        return Load("", ())
    return Load("", (), engines=_server("", config, solver, beside_training=True).engines)


def _server(stage: str, config: Config, shape: Shape, *, beside_training: bool) -> Load:
    served = serving(config.hardware, config.sampling, beside_training=beside_training)
    longest = config.sampling.max_prompt_tokens + config.sampling.max_new_tokens
    given = options_of(config.hardware).get("--tensor-parallel-size", "1")
    split = int(given) if given.isdecimal() else 1
    engine = _engine("server", served.memory, shape, served.capacity // served.copies, longest, split)
    return Load(stage, served.gpus or tuple(range(served.copies * split)), engines=(engine,))


def _engine(name: str, share: float, shape: Shape, rows: int, longest: int, split: int = 1) -> Engine:
    work = _ENGINE + 12 * rows * shape.vocabulary + 12 * _CHUNK * shape.intermediate // split
    return Engine(name, share, 2 * shape.weights // split + work, 2 * shape.cached // split, longest)


def _sampler(config: Config, shape: Shape) -> dict[str, int]:
    """Of our own decoding loop with weights in bfloat16."""
    rows = config.hardware.rows_at_once
    longest = config.sampling.max_prompt_tokens + config.sampling.max_new_tokens
    cache = 2 * rows * longest * shape.cached
    return {"weights": 2 * shape.weights, "cache": cache, "logits": 26 * rows * shape.vocabulary}


def _layer_work(shape: Shape, tokens: int, number: int) -> int:
    """Computing a layer again and its gradients: per token, and its weights once more."""
    narrow = (12.5 + 4 * number) * shape.hidden + (4 + 3 * number) * (shape.query + shape.key)
    return int(tokens * (5.75 * number * shape.intermediate + narrow)) + number * shape.layer


def _is_here(url: str | None) -> bool:
    return url is not None and urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
