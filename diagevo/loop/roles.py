"""Who plays: models, services and worlds, made from the configuration.

This is the one place that knows every kind of role: built-in worlds, model folders and services meet here.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diagevo.answers.equivalence import AnswerChecker
from diagevo.config.models import Config, PolicyRole
from diagevo.diagnosis.diagnostician import Diagnostician
from diagevo.diagnosis.embedder import Embedder, embedder_for
from diagevo.errors import ConfigError, MissingDependencyError, extra
from diagevo.evaluation.benchmarks import Loaded, benchmark
from diagevo.evaluation.question_files import labelled, limited, load
from diagevo.loop.players import SolverReward, plays_here
from diagevo.memory.memory import Memory
from diagevo.memory.nearest.index import lancedb
from diagevo.methods.anchors import Anchor, read_anchors, usable
from diagevo.methods.answered_questions import AnsweredQuestions, JsonQuestions
from diagevo.methods.context import PlayContext, World
from diagevo.methods.document_corpus import Corpus, SourceDocument, shown_documents
from diagevo.methods.document_questions import DocumentQuestions, TextQuestions
from diagevo.methods.interface import Method, SolverRewards
from diagevo.methods.registry import method_of
from diagevo.methods.relatedness import RelatednessJudge, ServedJudge
from diagevo.methods.tasks import TaskWorld
from diagevo.planning.footprint import SAME_SHAPE, shape_mismatch
from diagevo.planning.shapes import SMALL, config_file
from diagevo.private import private
from diagevo.progress import StopFlag
from diagevo.sampling.engine import Engine, EngineSampler
from diagevo.sampling.hub import folder_of
from diagevo.sampling.model_folder import check_model_folder, encode_prompts, load_tokenizer
from diagevo.sampling.sampler import Prompt, Resumable, Sampler
from diagevo.sampling.transformers_sampler import TransformersSampler, loaded
from diagevo.selfplay.questions import PromptTemplates
from diagevo.text.escaping import json_text
from diagevo.training.phase import Reward, RewardSpec
from diagevo.training.warm_start import read_documents
from diagevo.training.workers import Workers, WorkersSampler

BUILTIN = "builtin:arithmetic"
BENCHMARK = "benchmark:"
"""Beginning of `validation.questions` where the set is a benchmark's."""


class Roles(PlayContext):
    """Who plays, each made where it is first used. `check` makes them all, so that what is missing is found
    before anything is written."""

    def __init__(
        self,
        config: Config,
        logs: Path,
        say: Callable[[str], None] = lambda _: None,
        stop: StopFlag | None = None,
    ) -> None:
        """`logs`: folder for the output of processes that are started. `say`: receives a line for each one
        that is lost. `stop` ends what samples, trains and compares."""
        self.config, self.logs, self.say = config, logs, say
        self.stop = StopFlag() if stop is None else stop
        self.closing = ExitStack()

    def __enter__(self) -> "Roles":
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes that train, sample and compare."""
        self.closing.close()

    def check(self) -> "Roles":
        """Raises ConfigError, MissingDependencyError or NotFoundError for a role that cannot run."""
        config = self.config
        arithmetic = {config.roles.challenger.model, config.roles.solver.model} & SMALL.keys() or BUILTIN in (
            config.prompts,
            config.validation.questions,
            config.warm_start.documents,
            config.anchors.file if config.method == "r-few" else None,
            config.corpus.file if config.method in ("spice", "darc") else None,
        )
        if arithmetic and config.world != "arithmetic":
            raise ConfigError("the arithmetic model and prompts need its world", hint="set world: arithmetic")
        _check_warm_start(config)
        _need_reporters(config.hardware.report_to)
        if config.memory.index == "lancedb":
            lancedb("memory.index lancedb")  # reported here if it is missing
        shown = ("corpus", "judge") if config.method in ("darc", "spice") else ()
        for role in ("challenger", "solver", "templates", "validation", "embedder", "method", *shown):
            getattr(self, role)
        if (why := shape_mismatch(config)) is not None:
            raise ConfigError(why, hint=SAME_SHAPE)
        return self

    @cached_property
    def checker(self) -> AnswerChecker:
        return self.closing.enter_context(AnswerChecker(stop=self.stop))

    @cached_property
    def world(self) -> World | None:
        if self.config.world != "arithmetic":
            return None
        from diagevo.arithmetic import truth

        return truth

    @cached_property
    def tasks(self) -> TaskWorld:
        if self.config.world == "arithmetic":
            from diagevo.arithmetic.sentence_tasks import SentenceTasks

            return SentenceTasks()
        from diagevo.methods.python_tasks import PythonTasks

        return PythonTasks(self.config.absolute_zero)

    @cached_property
    def questions(self) -> DocumentQuestions:
        if self.config.world == "arithmetic":
            from diagevo.arithmetic.worked_questions import WorkedQuestions

            return WorkedQuestions()
        return TextQuestions()

    @cached_property
    def answered(self) -> AnsweredQuestions:
        if self.config.world == "arithmetic":
            from diagevo.arithmetic.worked_answers import WorkedAnswers

            return WorkedAnswers()
        return JsonQuestions()

    @cached_property
    def method(self) -> Method:
        return method_of(self)

    @cached_property
    def anchors(self) -> list[Anchor]:
        named = self.config.anchors.file
        assert named is not None
        if named == BUILTIN:
            from diagevo.arithmetic.corpus import labelled_items

            return usable((Anchor(*item) for item in labelled_items()), named, self.refusal)
        return usable(read_anchors(Path(named).expanduser()), named, self.refusal)

    @cached_property
    def corpus(self) -> Corpus:
        settings = self.config.corpus
        assert settings.file is not None
        if settings.file == BUILTIN:
            from diagevo.arithmetic.corpus import worked_lines

            lines = enumerate(worked_lines(), 1)
            found = ((f"document {number}", SourceDocument(line, "mathematics")) for number, line in lines)
        else:
            found = shown_documents(Path(settings.file).expanduser())
        corpus = Corpus(found, settings.file, settings, self.is_held_out)
        self.closing.callback(corpus.close)
        return corpus

    @cached_property
    def judge(self) -> RelatednessJudge:
        role = self.config.roles.judge
        if role.engine == "rules:arithmetic":
            from diagevo.arithmetic.numbers_judge import NumbersJudge

            return NumbersJudge()
        return ServedJudge(role, self.stop)

    @cached_property
    def challenger(self) -> Path:
        return _model_folder(self.config.roles.challenger, self.stop)

    @cached_property
    def solver(self) -> Path:
        return _model_folder(self.config.roles.solver, self.stop)

    @cached_property
    def templates(self) -> PromptTemplates:
        return templates_of(self.config)

    @cached_property
    def validation(self) -> Loaded | None:
        return validation_of(self.config)

    @cached_property
    def embedder(self) -> Embedder:
        return embedder_for(self.config.roles.embedder)

    @cached_property
    def workers(self) -> Workers:
        config = self.config
        workers = Workers(self.solver, config.sampling, config.training, logs=self.logs)
        self.closing.callback(workers.close)
        return workers

    def challenger_reward(self, solver: Path, round_: int, given: Mapping[str, Sequence[str]]) -> RewardSpec:
        arguments = {
            "config": self.config.model_dump(mode="json"),
            "solver": str(solver.resolve()),
            "round_": round_,
            "given": {row: list(texts) for row, texts in given.items()},
        }
        return RewardSpec("diagevo.loop.roles:challenger_reward", arguments)

    def solver_reward(self, given: Mapping[str, Any]) -> RewardSpec:
        arguments = {"config": self.config.model_dump(mode="json"), **given}
        return RewardSpec("diagevo.loop.roles:solver_reward", arguments)

    def diagnostician(self, memory: Memory) -> Diagnostician:
        role = self.config.roles.diagnostician
        if role.engine == "local":
            raise ConfigError(
                "roles.diagnostician.engine local groups the failures of ingested runs",
                hint="set it to openai, with a served model",
            )
        if role.engine != "openai":
            from diagevo.arithmetic.rule_diagnostician import by_rules

            return by_rules(role.engine, self.config.seed)
        from diagevo.diagnosis.chat import budget_of
        from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician

        settings = self.config.diagnosis
        budget = budget_of(memory.log, memory.run_id, settings)
        prompts = _prompt_folder(self.config.prompts)
        return OpenAIDiagnostician(role, settings, memory.artifacts, prompts, budget=budget)

    def prompt_digests(self) -> dict[str, str]:
        """Digests of the templates, and of the labelled items that prompts show."""
        return prompt_digests(self.config) | self.method.shown()

    def is_held_out(self, question: str) -> bool:
        """Whether the validation set has this question (in its world: in any wording, or joined)."""
        if self.config.world == "arithmetic":
            from diagevo.arithmetic import is_held_out

            return is_held_out(question)
        return question in self._held_out

    def fits(self, prompt: Prompt) -> bool:
        [ids] = encode_prompts(self._tokenizer, [prompt])
        return len(ids) <= self.config.sampling.max_prompt_tokens

    @cached_property
    def _held_out(self) -> frozenset[str]:
        return (
            frozenset() if self.validation is None else frozenset(q.text for q in self.validation.questions)
        )

    @cached_property
    def _tokenizer(self) -> Any:
        """The solver's; training never changes it."""
        return load_tokenizer(self.solver, self.config.sampling.chat_template_kwargs)

    def write_documents(self, file: Path) -> None:
        settings = self.config.warm_start
        assert settings.documents is not None
        staging = file.with_name(f".staging-{file.name}")
        if settings.documents == BUILTIN:
            from diagevo.arithmetic.corpus import chat_turns
            from diagevo.arithmetic.sentence_tasks import task_turns
            from diagevo.arithmetic.worked_answers import answered_turns
            from diagevo.arithmetic.worked_questions import level_turns

            seed, count = (
                self.seed("warm start documents"),
                settings.steps * settings.batch_documents,
            )
            if self.config.method == "absolute-zero":
                turns = task_turns(seed, count)
            elif self.config.method == "darc":
                turns = level_turns(seed, count)
            elif self.config.method == "spice":
                turns = answered_turns(seed, count)
            else:
                shown = self.config.anchors.shown if self.config.method == "r-few" else 0
                turns = chat_turns(seed, count, shown=shown)
            with open(staging, "w", encoding="utf-8", opener=private) as lines:
                lines.writelines(f"{json_text({'messages': each})}\n" for each in turns)
        else:
            shutil.copyfile(Path(settings.documents).expanduser(), staging)
        staging.replace(file)

    def open_sampler(self, policy: Path) -> Resumable:
        if plays_here(self.config.hardware):
            return self.loaded(policy)
        template = self.config.sampling.chat_template_kwargs
        return WorkersSampler(self.workers, policy, self.config.hardware, template, self.say, self.stop)

    def loaded(self, policy: Path) -> TransformersSampler:
        """A policy in this process, with our own decoding."""
        template = self.config.sampling.chat_template_kwargs
        return loaded(policy, self.config.hardware, template_kwargs=template, stop=self.stop)


def challenger_reward(
    config: Mapping[str, Any],
    solver: str,
    round_: int,
    given: Mapping[str, Sequence[str]],
    stop: StopFlag,
    engine: Engine | None = None,
) -> Reward:
    """The challenger's reward in a training process (`Roles.challenger_reward`)."""
    roles = Roles(Config.model_validate(config), Path(), stop=stop)
    return roles.method.challenger_reward(who_votes(roles, Path(solver), engine), round_, given)


def solver_reward(
    config: Mapping[str, Any],
    labels: Mapping[str, str],
    earned: Mapping[str, Sequence[Any]],
    tasks: Mapping[str, str],
    stop: StopFlag,
    engine: Engine | None = None,
) -> SolverReward:
    """The solver's reward in a training process, which needs no engine."""
    roles = Roles(Config.model_validate(config), Path(), stop=stop)
    return SolverReward(roles, labels, {row: SolverRewards(*each) for row, each in earned.items()}, tasks)


def who_votes(roles: Roles, solver: Path, engine: Engine | None) -> Sampler:
    """In a training process, the sampler of the rollouts also draws the votes, taking turns."""
    if engine is None:
        return roles.loaded(solver)
    template = roles.config.sampling.chat_template_kwargs
    return EngineSampler(solver, engine, template_kwargs=template, stop=roles.stop)


def _check_warm_start(config: Config) -> None:
    """Checked before anything is written. Raises ConfigError."""
    documents = config.warm_start.documents
    if documents is None:
        return
    if not plays_here(config.hardware):
        raise ConfigError(
            "a warm start trains in this process, on a CPU alone",
            hint="train the model beforehand with TRL's SFTTrainer, and name its folder in roles",
        )
    if documents != BUILTIN:
        read_documents(Path(documents).expanduser())


def _need_reporters(names: Sequence[str]) -> None:
    for name in names:
        if find_spec(name) is None:
            raise MissingDependencyError(
                f"hardware.report_to names {name}, not installed here", hint=f"run: pip install {name}"
            )


def _model_folder(role: PolicyRole, stop: StopFlag) -> Path:
    """The folder of a role's starting weights; a hub id is looked up in the local cache, then on the hub."""
    if role.model in SMALL:
        return check_model_folder(Path(str(config_file(role.model))).parent)
    folder = Path(role.model).expanduser()
    if folder.exists() or role.model.count("/") != 1:
        return check_model_folder(folder)
    with extra("train", f"{role.model}, which is not a folder here but looks like a hub id,"):
        import huggingface_hub  # noqa: F401  (reported here where it is missing)
    return check_model_folder(folder_of(role.model, role.revision, stop))


def prompt_digests(config: Config) -> dict[str, str]:
    """Digest of each prompt template in use, of the players and of a diagnostician that is prompted."""
    folder = _prompt_folder(config.prompts)
    templates = templates_of(config)
    digests = {name: templates.digest(name) for name in templates.texts}
    if config.roles.diagnostician.engine == "openai":
        from diagevo.diagnosis.prompts import DiagnosisPrompts

        digests |= DiagnosisPrompts.load(folder, config.diagnosis.trajectory_characters).digests
    return digests


def templates_of(config: Config) -> PromptTemplates:
    return PromptTemplates.load(
        _prompt_folder(config.prompts),
        boxed=config.round.boxed_answers,
        random_pairs=config.schedule.stitching == "random",
        anchored=config.method == "r-few",
    )


def _prompt_folder(prompts: str | None) -> Path | None:
    if prompts == BUILTIN:
        from diagevo.arithmetic import PROMPTS

        return PROMPTS
    if prompts is None:
        return None
    folder = Path(prompts).expanduser()
    given = {file.name for file in folder.glob("*.txt")}
    known = {
        file.name
        for package in ("diagevo.selfplay", "diagevo.diagnosis")
        for file in (files(package) / "prompts").iterdir()
    }
    if folder.is_dir() and (not given or given - known):
        wrong = f"{min(given - known)}, which is none" if given else "none"
        raise ConfigError(
            f"prompts: a folder of templates is needed, and {folder} holds {wrong}",
            hint=f"templates: {', '.join(sorted(known))}",
        )
    return folder


def validation_of(config: Config) -> Loaded | None:
    """Labelled questions that training never sees: the world's held-out set, a benchmark, or a JSONL file."""
    settings = config.validation
    if settings.questions is None:
        return None
    if settings.questions.startswith(BENCHMARK):
        named = benchmark(settings.questions.removeprefix(BENCHMARK))
        folder = [] if settings.data is None else [Path(settings.data).expanduser()]
        return load(named, folder, limit=settings.limit)
    world = f", {config.world} world" if config.world else ""
    group: dict[str, Any] = {}
    if settings.questions == BUILTIN:
        from diagevo.arithmetic import families, held_out

        pairs, group = held_out(), {"group": families.group}
    else:
        pairs = _read_questions(Path(settings.questions).expanduser())
    named = f"Held-out questions{world}"
    found = labelled("held-out", named, pairs, samples=settings.samples, source=settings.questions, **group)
    return limited(found, settings.limit, seed=0)


def _read_questions(file: Path) -> list[tuple[str, str]]:
    hint = 'each line must be an object with "question" and "answer"'
    try:
        with open(file, encoding="utf-8", newline="\n") as source:  # a text may contain other line separators
            lines = list(source)
    except OSError as error:
        raise ConfigError(
            f"validation.questions: {file} cannot be read: {error.strerror}", hint=hint
        ) from error
    questions: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        try:
            row: dict[str, Any] = json.loads(line)
            questions.append((str(row["question"]), str(row["answer"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"validation.questions: {file}, line {number} is not a labelled question", hint=hint
            ) from error
    return questions
