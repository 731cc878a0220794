"""How much work a run is, from its configuration alone: what `train --plan` prints."""

from collections.abc import Mapping
from dataclasses import dataclass

from diagevo.config.models import Config, GRPOConfig


@dataclass(frozen=True, slots=True)
class StageWork:
    """The most that one stage of a round can take."""

    stage: str
    steps: int | None
    """Optimizer steps; None where nothing trains."""
    completions: int
    """Responses drawn from the policies."""
    calls: int
    """Calls of the diagnostician; all of them are upper bounds."""
    seconds: float | None
    """As measured in an earlier run of the same settings; None where there is none."""
    about: str


@dataclass(frozen=True, slots=True)
class GPUUse:
    """What the two sets of GPUs do in one stage; None where they are idle."""

    stage: str
    train: str | None
    serve: str | None


def gpu_schedule(config: Config) -> list[GPUUse]:
    """Who holds which GPUs, stage by stage; empty where nothing asks for one, or where Ray places."""
    hardware = config.hardware
    if hardware.device != "cuda" or hardware.cluster == "ray":
        return []
    own = "vLLM" if hardware.colocate_vllm else "transformers"
    trains = f"GRPO of the {{}}, rollouts by {own}"
    if hardware.accelerate_config is not None:
        trains += f", {hardware.accelerate_config.name}"
    server = "vLLM" if hardware.serve == "vllm" else "transformers in the run's own process"
    votes = f"{server}: the frozen solver votes"
    beside = trains.format("challenger")
    writes, answers, validates = (
        f"{server}: the {who}"
        for who in ("challenger writes", "frozen solver answers", "updated solver answers")
    )
    # A server has the GPUs of training too where nothing trains.
    others = set(hardware.train_gpus or range(hardware.processes)) - set(hardware.serve_gpus)
    also = hardware.serve == "vllm" and bool(hardware.serve_gpus) and bool(others)
    if hardware.serve != "vllm":
        beside, votes = f"{beside}; each process holds the frozen solver too", None
    rows = [
        GPUUse("challenger", beside, votes)
        if config.round.train_challenger
        else GPUUse("challenger", None, None),
        GPUUse("candidates", writes if also else None, writes),
        GPUUse("votes", answers if also else None, answers),
        GPUUse("solver", trains.format("solver"), None),
        GPUUse("diagnosis", None, None),
    ]
    if config.validation.questions is not None:
        rows.append(GPUUse("validation", validates if also else None, validates))
    return rows


def rollouts(settings: GRPOConfig) -> int:
    """Completions of one policy's phase, at most."""
    return settings.max_steps * settings.batch_questions * settings.group


def workload(config: Config, measured: Mapping[str, float]) -> list[StageWork]:
    """Each stage of one round. `measured`: seconds of a round's stages in an earlier run."""
    play, challenger, solver = config.round, config.challenger_grpo, config.solver_grpo
    questions = rollouts(challenger) if play.train_challenger else 0
    lessons = min(solver.max_steps * solver.batch_questions, play.candidates)
    answers = lessons * solver.group
    per_question = config.diagnosis.failures_per_question
    failures = answers if per_question is None else min(answers, lessons * per_question)
    votes = config.round.challenger_votes
    asked = config.diagnosis.enabled and config.roles.diagnostician.engine == "openai"
    rows = [
        (
            "challenger",
            challenger.max_steps if play.train_challenger else 0,
            questions * (1 + votes),
            0,
            f"{questions} questions, {votes} votes each",
        ),
        ("candidates", None, play.candidates, 0, "a fresh pool under the same schedule"),
        ("votes", None, play.candidates * play.responses, 0, f"{play.responses} answers a candidate"),
        ("solver", solver.max_steps, answers, 0, f"one pass over at most {lessons} kept questions"),
        (
            "diagnosis",
            None,
            0,
            failures * 3 if asked else 0,
            f"at most {failures} failures: extraction, and for new causes deduplication and a node"
            if config.diagnosis.enabled
            else f"off: at most {failures} failures are recorded, and none is diagnosed",
        ),
    ]
    return [
        StageWork(stage, steps, completions, calls, measured.get(stage), about)
        for stage, steps, completions, calls, about in rows
    ]
