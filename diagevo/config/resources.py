"""The resources of a run: the placement of its ranks on a Ray cluster, the assumed servers, and the
work of its stages. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from diagevo.config.models import Config, GRPOConfig, HardwareConfig, SamplingConfig

Bundle = dict[str, int]
"""The resources of one process, by Ray's names: GPU, CPU."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine of a cluster."""

    address: str
    cpus: int
    gpus: int
    memory: int = 0
    """Bytes available to processes; 0: unknown."""


def on_gpus(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> bool:
    """Whether a run's models are on GPUs; `auto`: if the cluster has any."""
    return hardware.device == "cuda" or (hardware.device == "auto" and any(node.gpus for node in nodes))


def rank_bundles(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> list[Bundle]:
    """One bundle per rank: a GPU, or its CPU threads."""
    each = {"GPU": 1} if on_gpus(hardware, nodes) else {"CPU": hardware.threads or 1}
    return [each] * hardware.processes


def refusal(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> tuple[str, str] | None:
    """Why the ranks cannot start on these nodes, and the fix; None if they can."""
    kind = "GPU" if on_gpus(hardware, nodes) else "CPU"
    [each, *_] = rank_bundles(hardware, nodes)
    places = sum((node.gpus if kind == "GPU" else node.cpus) // each[kind] for node in nodes)
    if places >= hardware.processes:
        return None
    ranks = describe_bundles(rank_bundles(hardware, nodes))
    fewer = f"set hardware.processes to {places}, or " if places else ""
    there = sum(node.gpus if kind == "GPU" else node.cpus for node in nodes)
    return f"the run takes {ranks}; the nodes have {there}", f"{fewer}add nodes"


def describe_bundles(bundles: Sequence[Bundle]) -> str:
    """Bundles in words, e.g. "4 × 2 GPU"."""
    kinds = [" + ".join(f"{n} {kind}" for kind, n in bundle.items()) for bundle in bundles]
    return ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds)) or "none"


def describe_nodes(nodes: Sequence[ClusterNode]) -> str:
    """Nodes in words, e.g. "10.0.0.1 (8 GPU, 96 CPU)"."""
    return ", ".join(f"{n.address} ({f'{n.gpus} GPU, ' if n.gpus else ''}{n.cpus} CPU)" for n in nodes)


_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def gpus_of(hardware: HardwareConfig) -> tuple[int, ...]:
    """The GPUs of one machine that train and sample; none on the CPU."""
    return () if hardware.device == "cpu" else tuple(range(hardware.processes))


def mean_tokens(sampling: SamplingConfig) -> int:
    """Mean tokens of prompt and answer assumed by a plan: an eighth of the longest."""
    return max(1, (sampling.max_prompt_tokens + sampling.max_new_tokens) // 8)


def on_this_machine(url: str | None) -> bool:
    """Whether an endpoint is on this machine, so that it uses one of its GPUs."""
    return url is not None and urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def lora_slots(rank: int) -> int:
    """vLLM's maximum adapter rank for adapters of `rank`."""
    return next((allowed for allowed in _LORA_RANKS if allowed >= rank), rank)


@dataclass(frozen=True, slots=True)
class StageWork:
    """The maximum work of one stage of a round."""

    stage: str
    steps: int | None
    """Optimizer steps; None if nothing trains."""
    completions: int
    """Responses drawn from the policies."""
    calls: int
    """Calls of the diagnostician; all of them are upper bounds."""
    seconds: float | None
    """Measured in an earlier run with the same settings; None if there is none."""
    about: str


def rollouts(settings: GRPOConfig) -> int:
    """Completions of one policy's phase, at most."""
    return settings.max_steps * settings.batch_questions * settings.group


def passes(settings: GRPOConfig, lora: int | None) -> tuple[int, int]:
    """Of an update, each two operations a weight and token: forward passes, of the policy, of the reference,
    and of the policy that drew where a step has several updates; and backward ones, to the activations, and
    to the weights but where adapters train."""
    return 1 + (settings.beta > 0) + (settings.updates > 1), 1 + (lora is None)


def votes_a_question(config: Config) -> int:
    """Answers of the frozen solver to each question drawn in the challenger's training. DARC has as many
    with the document in sight as without."""
    return config.round.challenger_votes * (2 if config.method == "darc" else 1)


def rounds_left(config: Config, stage: str, played: int) -> int:
    """How many remaining rounds include a stage. DARC's rounds train one role each."""
    first, last = 0, config.round.rounds
    if config.method == "darc" and stage == "challenger":
        last = config.darc.questioner_rounds
    elif config.method == "darc":
        first = config.darc.questioner_rounds
    return max(0, last - max(first, played))


def workload(config: Config, measured: Mapping[str, float]) -> list[StageWork]:
    """Each stage of one round. `measured`: seconds of a round's stages in an earlier run."""
    play, challenger, solver = config.round, config.challenger_grpo, config.solver_grpo
    train = play.train_challenger
    questions = rollouts(challenger) if train else 0
    lessons = min(solver.max_steps * solver.batch_questions, play.candidates)
    answers = lessons * solver.group
    per_question = config.diagnosis.failures_per_question
    failures = answers if per_question is None else min(answers, lessons * per_question)
    votes = votes_a_question(config)
    asked = config.diagnosis.enabled and config.roles.diagnostician.engine == "openai"

    def stage(name: str, steps: int | None, completions: int, about: str, calls: int = 0) -> StageWork:
        return StageWork(name, steps, completions, calls, measured.get(name), about)

    return [
        stage(
            "challenger",
            challenger.max_steps if train else 0,
            questions * (1 + votes),
            f"{questions} questions, {votes} votes each",
        ),
        stage("candidates", None, play.candidates, "a fresh pool under the same schedule"),
        stage("votes", None, play.candidates * play.responses, f"{play.responses} answers a candidate"),
        stage("solver", solver.max_steps, answers, f"one pass over at most {lessons} kept questions"),
        stage(
            "diagnosis",
            None,
            0,
            f"at most {failures} failures: extraction, and for new causes deduplication and a node"
            if config.diagnosis.enabled
            else f"off: at most {failures} failures are recorded, and none is diagnosed",
            failures * 3 if asked else 0,
        ),
    ]
