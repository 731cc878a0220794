"""A run's first minutes with tiny models of the same architecture and tokenizer, in the run's own placement.
It finds faults that would cost hours on a node: that every rank and engine gets its GPU, that they find each
other, that prompts have the right format and replies an end, that votes are drawn between rollouts and
update.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from diagevo.config.models import Config, EmbedderRole, PolicyRole, ValidationConfig, WarmStartConfig
from diagevo.doctor import Check
from diagevo.errors import DiagEvoError
from diagevo.loop.players import play, plays_here
from diagevo.loop.roles import Roles, who_votes
from diagevo.planning.footprint import CARDS, card_for, gpu_memory_plan, shapes_of
from diagevo.planning.shapes import SMALL, config_file
from diagevo.private import private_folder
from diagevo.progress import StopFlag, playing
from diagevo.sampling.engine import Engine
from diagevo.sampling.hub import folder_of
from diagevo.sampling.model_folder import encode_prompts, end_ids, load_tokenizer
from diagevo.sampling.sampler import Prompt, Sampler, SamplingParams
from diagevo.training.phase import Phase, Reward, RewardSpec, Rollout, TrainingRow, no_update

STEPS = 2
QUESTIONS = ("What is 2 + 2?", "A train of 120 m passes a pole in 6 s. How fast is it?", "Solve x^2 = 9.")
_NEW = 16  # tokens of a rehearsed reply
_REPLY = "It is 4."


def rehearse(config: Config, home: Path) -> Iterator[Check]:
    """Yields each check as it runs.

    `home`: the folder of the runs, which all nodes share; nothing stays there.
    """
    private_folder(home)
    folder = Path(tempfile.mkdtemp(prefix=".rehearsal-", dir=home))
    try:
        yield from _played("models", lambda: _make(config, folder))
        if not (folder / "solver").is_dir():
            return
        prompts = list(_played("prompts", lambda: _prompts(config, folder)))
        yield from prompts
        if prompts[-1].state != "ok":
            return
        yield from _texts(config, folder / "solver")
        yield from _at_once(config)
        with Roles(_tiny(config, folder), folder / "logs") as roles:
            yield from _played("training", lambda: _train(roles, folder))
            yield from _played("answers", lambda: _answer(roles, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _played(part: str, play: Callable[[], str]) -> Iterator[Check]:
    with playing(f"rehearsal: {part}"):
        try:
            yield Check(f"rehearsal: {part}", "ok", play())
        except DiagEvoError as error:
            yield Check(f"rehearsal: {part}", "missing", error.message, error.hint or "")


def _make(config: Config, folder: Path) -> str:
    """Two layers with the width of a few heads, random weights, and the model's own tokenizer."""
    made = [
        f"{_small(_source(role), folder / name)} of {role.model}"
        for name, role in (("challenger", config.roles.challenger), ("solver", config.roles.solver))
    ]
    return "; ".join(dict.fromkeys(made))


def _source(role: PolicyRole) -> Path:
    """The folder of config.json and the tokenizer; from the hub they are fetched without the weights."""
    found = config_file(role.model)
    if found is not None and (role.model in SMALL or Path(role.model).expanduser().is_dir()):
        return found.parent
    return folder_of(role.model, role.revision, StopFlag(), weights=False)


def _small(source: Path, folder: Path) -> str:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    shape: Any = AutoConfig.from_pretrained(str(source))
    width = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    shape.num_attention_heads, shape.num_key_value_heads, shape.num_hidden_layers = 4, 2, 2
    shape.hidden_size, shape.intermediate_size = 4 * width, 8 * width
    if getattr(shape, "layer_types", None):
        shape.layer_types = shape.layer_types[:2]
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(shape, dtype=torch.float32)
    model.save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(source)).save_pretrained(str(folder))
    if (source / "generation_config.json").is_file():
        shutil.copyfile(source / "generation_config.json", folder / "generation_config.json")
    return f"{type(model).__name__} of {model.num_parameters() / 1e6:.1f} M weights, with the tokenizer"


def _tiny(config: Config, folder: Path) -> Config:
    """The run's configuration, with other models, lengths and numbers of questions."""
    grpo = config.challenger_grpo
    batch = max(2, -(-config.hardware.processes // grpo.group))
    roles = config.roles.model_copy(
        update={
            **{role: PolicyRole(model=str(folder / role)) for role in ("challenger", "solver")},
            "embedder": EmbedderRole(engine="hashing", model="hashing", dimension=64),
        }
    )
    few = {"max_steps": STEPS, "batch_questions": batch, "save_steps": 1}
    return config.model_copy(
        update={
            "roles": roles,
            "challenger_grpo": grpo.model_copy(update=few),
            "sampling": config.sampling.model_copy(update={"max_new_tokens": _NEW}),
            "validation": ValidationConfig(),
            "warm_start": WarmStartConfig(),
        }
    )


def _asked(config: Config, folder: Path) -> list[Prompt]:
    templates = Roles(_tiny(config, folder), folder / "logs").templates
    return [templates.solver(question) for question in QUESTIONS]


def _prompts(config: Config, folder: Path) -> str:
    asked = _asked(config, folder)
    tokenizer = load_tokenizer(folder / "solver", config.sampling.chat_template_kwargs)
    lengths = [len(ids) for ids in encode_prompts(tokenizer, asked)]
    return f"of {min(lengths)} to {max(lengths)} tokens, at most {config.sampling.max_prompt_tokens}"


def _texts(config: Config, folder: Path) -> Iterator[Check]:
    """Whether a reply ends with its turn, and whether the template leaves it open if the model thinks
    first."""
    tokenizer = load_tokenizer(folder, config.sampling.chat_template_kwargs)
    turns = [{"role": "user", "content": QUESTIONS[0]}, {"role": "assistant", "content": _REPLY}]
    after = tokenizer.apply_chat_template(turns, tokenize=False).rpartition(_REPLY)[2].lstrip()
    mark = repr(after.strip().splitlines()[0] if after.strip() else tokenizer.eos_token)
    first, *_ = tokenizer(after or tokenizer.eos_token, add_special_tokens=False)["input_ids"]
    if first in end_ids(folder, tokenizer):
        yield Check("rehearsal: turn end", "ok", f"a reply ends with {mark}")
    else:
        fix = "name its id as eos_token_id in the model's generation_config.json"
        found = f"the template ends a turn with {mark}, which ends no reply: the model writes on"
        yield Check("rehearsal: turn end", "missing", found, fix)
    ways = [
        tokenizer.apply_chat_template(
            turns[:1], tokenize=False, add_generation_prompt=True, enable_thinking=thinks
        )
        for thinks in (True, False)
    ]
    if ways[0] == ways[1]:
        yield Check("rehearsal: thinking", "ok", "the prompt leaves no choice open")
    else:
        found = "the model thinks before it answers, unless the template is told otherwise"
        fix = "--set sampling.chat_template_kwargs={enable_thinking: false}, or true if that is meant"
        yield Check("rehearsal: thinking", "missing", found, fix)


def _at_once(config: Config) -> Iterator[Check]:
    shapes = shapes_of(config)
    if config.hardware.device != "cuda" or shapes is None:
        return
    found = gpu_memory_plan(config, *shapes)
    here, sold = _card(), card_for(found)
    if here is None and sold is None:
        yield Check("rehearsal: at once", "missing", "the run fits no card", "see: diagevo train --plan")
        return
    card = here or CARDS[sold or 0]
    engines = [(load.stage, engine) for load in found for engine in load.engines]
    few = [(stage, words) for stage, engine in engines if (words := engine.more(card)) is not None]
    for stage, words in few[:1]:
        found_, _, fix = words.partition(": ")
        yield Check("rehearsal: at once", "missing", f"{stage}: {found_}", fix)
    if engines and not few:
        least = min(engine.answers(card) for _, engine in engines)
        where = "" if here else f", on a GPU of {sold} GB"
        yield Check("rehearsal: at once", "ok", f"each engine has room for {least} answers or more{where}")


def _card() -> float | None:
    """Bytes of this machine's smallest GPU; None if it has none, like the head of a cluster."""
    import torch

    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    return min((torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus), default=None)


def _train(roles: Roles, folder: Path) -> str:
    """Two steps of the challenger, whose reward samples the frozen solver as in a real run."""
    config, hardware = roles.config, roles.config.hardware
    rows = [
        TrainingRow(f"r{k}", [{"role": "user", "content": QUESTIONS[k % len(QUESTIONS)]}])
        for k in range(STEPS * config.challenger_grpo.batch_questions)
    ]
    arguments = {"config": config.model_dump(mode="json"), "folder": str(folder.resolve())}
    steps: list[int] = []
    summary = play(
        roles,
        Phase(
            start=folder / "challenger",
            rows=tuple(rows),
            reward=RewardSpec("diagevo.rehearsal:reward", arguments),
            settings=config.challenger_grpo,
            sampling=config.sampling,
            hardware=hardware,
            training=config.training,
            output=folder / "trained",
            work=folder / "work",
            seed=0,
        ),
        reward(**arguments, stop=roles.stop) if plays_here(hardware) else cast(Reward, None),
        lambda step, rollouts, rewards: steps.append(step),
        no_update,
    )
    ranks = f"{hardware.processes} ranks" if hardware.processes > 1 else "one process"
    return f"{summary.steps} steps in {ranks}, votes between rollouts and update"


def _answer(roles: Roles, folder: Path) -> str:
    """Sampling as in stages without training."""
    asked = [roles.templates.solver(question) for question in QUESTIONS]
    with closing(roles.open_sampler(folder / "trained")) as sampler:
        groups = sampler.sample(asked, n=4, params=SamplingParams(max_new_tokens=_NEW), seed=0)
    return f"{sum(len(group) for group in groups)} answers"


class Rehearsed:
    """A reward that samples the frozen solver, in place of the challenger's."""

    def __init__(self, sampler: Sampler, asked: Sequence[Prompt]) -> None:
        self._sampler = sampler
        self._asked = asked

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]:
        votes = self._sampler.sample(self._asked, n=2, params=SamplingParams(max_new_tokens=_NEW), seed=0)
        return [len(votes)] * len(rollouts)

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Any]) -> list[float]:
        return [float(rollout.sample % 2) for rollout in rollouts]


def reward(config: Mapping[str, Any], folder: str, stop: StopFlag, engine: Engine | None = None) -> Rehearsed:
    """`Rehearsed` in a training process."""
    roles = Roles(Config.model_validate(config), Path(), stop=stop)
    asked = [roles.templates.solver(question) for question in QUESTIONS]
    return Rehearsed(who_votes(roles, Path(folder) / "solver", engine), asked)
