"""`diagevo eval run, labels`: evaluate a model on benchmarks, and measure how many pseudo-labels are
right."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError, ServiceError
from diagevo.progress import StopFlag
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import database, opened, stored_config
from ..render import console as render
from ..render.result import Result
from ..render.table import columns
from ..screens.rounds import premises, worlds_of
from .evaluate import EVALUATIONS, row_of
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from diagevo.evaluation.benchmarks import Benchmark, Loaded
    from diagevo.evaluation.evaluate import EvaluatedModel
    from diagevo.evaluation.judge import Judge
    from diagevo.evaluation.store import Evaluation
    from diagevo.memory.history import History
    from diagevo.memory.log.database import Database

ACCURACY = columns("round, sampled, checked, accuracy, standard_error: ± s.e., source")


@options.command(
    "eval run",
    reads=["-c", "--set"],
    rows=True,
    example="""diagevo eval run math500 gsm8k --run a --round best --data folder-of-jsonl
    diagevo eval run all --run a --judge gpt-4o --judge-url https://api.openai.com/v1
    diagevo eval run held-out --run a --round all
    diagevo eval run selfplay --run a --round 0
    diagevo eval run selfplay.r3 --run a --round 3
    diagevo eval run gsm8k --model Qwen/Qwen3-8B --base-url http://127.0.0.1:8000/v1""",
)
def run(
    call: CommandContext,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="BENCHMARK",
            help="Names from `eval show --benchmarks`, `held-out`, `all`, or `selfplay`: the run's own "
            "questions, also `selfplay.r3`.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(help="A folder, builtin:arithmetic (or -methods), or the name of a served model."),
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint of the model.")] = None,
    key_env: Annotated[str, typer.Option(help="Environment variable that holds the key.")] = "OPENAI_API_KEY",
    round: Annotated[
        str | None,
        typer.Option(metavar="N", help="Round(s) of the run: 3, 1,3, `all` or `best`. [best]"),
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="Folder of prompt templates.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]PATH", help="A local file or folder of files instead of the hub."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many questions, evenly spread.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Samples per question.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is greedy.")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum response length of --model, in tokens. [4096]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for sampling, shuffled options and subsets.")] = 0,
    batch: Annotated[
        int,
        typer.Option(min=1, help="Questions asked at once; a local model's answers are stored together."),
    ] = 64,
    judge: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Judge model, asked where the rule finds no match."),
    ] = None,
    judge_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint of the judge.")] = None,
    judge_key_env: Annotated[
        str, typer.Option(help="Environment variable that holds the judge's key.")
    ] = "OPENAI_API_KEY",
) -> Result[Any]:
    """Evaluate a model on benchmarks.

    After an interruption the same command continues; nothing is asked twice.

    Without --model it evaluates the solver of a run. Decoding is greedy by default; AMC takes 32 samples with
    T=1. The paper grades mathematics as simple-evals does, with GPT-4o as judge. Here a rule decides alone,
    unless --judge names a model for the answers it rejects, and the prompts are the run's own.

    `selfplay` has the questions that self-play wrote, of each round: 200 at most, 12 samples at T = 1, judged
    by the answers of `eval labels` or the truth that the world computes. At --round 0 they measure how
    difficult a round was.
    """
    from diagevo.answers.equivalence import AnswerChecker
    from diagevo.evaluation.evaluate import evaluate, procedure_of
    from diagevo.evaluation.store import EvaluationStore

    from . import subjects

    of_model = {"--base-url": base_url, "--prompts": prompts, "--max-new-tokens": max_new_tokens}
    given = [option for option, value in of_model.items() if value is not None]
    if model is None and given:
        raise ConfigError(f"{given[0]} applies only with --model", hint="name a model: --model MODEL")
    if model is not None and (round is not None or "--run" in call.typed):
        raise ConfigError(
            "--run and --round select a run's solver, --model another model",
            hint="leave one or the other out",
        )
    stop = StopFlag()
    with ExitStack() as stack:
        opened_ = stack.enter_context(database(call, create=model is not None))
        history = None if model is not None else stack.enter_context(opened(call))
        rounds = [] if history is None else subjects.solvers_named(history, round or "best")
        loaded = list(_loaded(call, names, data or [], seed, limit, history))
        store, checker = EvaluationStore(opened_), stack.enter_context(AnswerChecker())
        grader = _judge(stack, opened_, judge, judge_url, judge_key_env, stop)
        done: list[Evaluation] = []
        if model is not None:
            measured = [subjects.model(model, base_url, key_env, prompts, max_new_tokens, stop)]
        else:
            assert history is not None
            measured = [subjects.checkpoint(call, history, number, stop) for number in rounds]
        for each in measured:
            with each as ready:
                for questions in loaded:
                    procedure = procedure_of(
                        questions, ready, seed=seed, batch=batch, samples=samples, temperature=temperature
                    )
                    with _announced(call, questions, ready, stop):
                        finished = evaluate(
                            store,
                            ready,
                            questions,
                            checker,
                            procedure,
                            judge=grader if questions.benchmark.judged else None,
                            on_progress=_every_tenth(call),
                            should_stop=lambda: bool(stop),
                        )
                    done.append(finished)
        notes = premises(worlds_of(opened_, done))
        run_id = None if history is None else history.run_id
        return Result([row_of(e) for e in done], EVALUATIONS, run=run_id, notes=notes)


@contextmanager
def _announced(
    call: CommandContext, loaded: "Loaded", model: "EvaluatedModel", stop: StopFlag
) -> Iterator[None]:
    """Wraps one evaluation and prints its progress on stderr. The first Ctrl-C sets `stop`: it ends with
    all answers kept."""
    size, full = len(loaded.questions), loaded.benchmark.questions
    part = "" if size == full else f" (a part: the whole set has {full})"
    render.say(
        call, f"{loaded.benchmark.title}: {size} questions from {loaded.source}{part}; {model.subject.model}"
    )
    try:
        with stopped_by_signals(stop):
            yield
    except ServiceError:
        render.say(call, "answers so far are kept: run the same command again to continue")
        raise


def _every_tenth(call: CommandContext) -> Callable[[int, int], None]:
    """Reports progress ten times in all."""
    shown = [0]

    def progress(done: int, total: int) -> None:
        if done * 10 // total > shown[0]:
            shown[0] = done * 10 // total
            render.say(call, f"  {done} of {total}")

    return progress


def _loaded(
    call: CommandContext,
    names: list[str],
    data: list[str],
    seed: int,
    limit: int | None,
    history: "History | None",
) -> Iterator["Loaded"]:
    """The questions of every benchmark named; all are loaded before the first is asked."""
    from diagevo.evaluation.benchmarks import BENCHMARKS, benchmark
    from diagevo.evaluation.oracle import SELF_PLAY
    from diagevo.evaluation.question_files import limited, load

    wanted = [e.name for e in BENCHMARKS if e.group != "validation"] if names == ["all"] else names
    sources = _sources(data, {*(e.name for e in BENCHMARKS), *(p.name for e in BENCHMARKS for p in e.parts)})
    for name in dict.fromkeys(wanted):
        if name == "held-out" or (name == "validation" and not data and _has_own(history)):
            yield limited(_held_out(history), limit, seed)
        elif name.startswith(SELF_PLAY):
            yield from _self_play(history, name, limit or 200, seed)
        else:
            entry = benchmark(name)
            yield load(entry, _files_of(entry, sources), seed=seed, limit=limit)


def _self_play(history: "History | None", name: str, size: int, seed: int) -> Iterator["Loaded"]:
    """The questions of every committed round, or of one."""
    from diagevo.evaluation.oracle import self_play_named, self_play_questions

    number = self_play_named(name)
    if history is None:
        raise ConfigError(
            f"{name} is a run's questions", hint="measure its solver: --run RUN, without --model"
        )
    for commit in history.commits if number is None else [history.commit(number)]:
        yield self_play_questions(history, commit.round, size=size, seed=seed)


def _sources(data: list[str], names: set[str]) -> dict[str | None, list[Path]]:
    """--data, keyed by the name before its first "=" if that is a benchmark; a path may contain the sign
    too."""
    sources: dict[str | None, list[Path]] = {}
    for given in data:
        name, sign, path = given.partition("=")
        if sign and name not in names and not Path(given).expanduser().exists():
            raise ConfigError(
                f"--data {given}: {name} is not a benchmark or a part of one",
                hint="names: diagevo eval show --benchmarks",
            )
        named = sign and name in names
        sources.setdefault(name if named else None, []).append(Path(path if named else given).expanduser())
    return sources


def _files_of(entry: "Benchmark", sources: dict[str | None, list[Path]]) -> list[Path]:
    """The files given for each of its parts, for the benchmark itself, or for every benchmark."""
    by_part = [sources.get(part.name, []) for part in entry.parts]
    if all(by_part):
        return [file for files in by_part for file in files]
    return sources.get(entry.name) or sources.get(None) or []


def _has_own(history: "History | None") -> bool:
    """Whether the named run has validation questions: then those are meant, not the paper's set."""
    return history is not None and stored_config(history).validation.questions is not None


def _held_out(history: "History | None") -> "Loaded":
    """The run's own validation questions; the arithmetic world's if no run is named."""
    from diagevo.evaluation.question_files import labelled

    if history is None:
        from diagevo.arithmetic import held_out
        from diagevo.arithmetic.families import group

        return labelled(
            "held-out",
            "Held-out questions, arithmetic world",
            held_out(),
            source="arithmetic world",
            group=group,
        )
    from diagevo.loop.roles import validation_of

    validation = validation_of(stored_config(history))
    if validation is None:
        raise ConfigError("the run has no validation questions", hint="set validation.questions in a new run")
    return validation


def _judge(
    stack: ExitStack,
    database: "Database",
    name: str | None,
    url: str | None,
    key_env: str,
    stop: StopFlag,
) -> "Judge | None":
    if name is None:
        if url is not None:
            raise ConfigError("a judge needs a model", hint="name it: --judge MODEL --judge-url URL")
        return None
    if url is None:
        raise ConfigError("a judge needs an endpoint", hint="name it: --judge-url URL")
    from diagevo.evaluation.judge import Judge
    from diagevo.memory.log.artifacts import Artifacts

    from .subjects import endpoint

    sampler = endpoint(name, url, key_env, stop)
    stack.callback(sampler.close)
    return Judge(sampler, name, Artifacts(database))


@options.command(
    "eval labels",
    rows=True,
    example="""diagevo eval labels --run a
    diagevo eval labels --run a --check labels.csv""",
)
def labels(
    call: CommandContext,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="A new file gets the unchecked questions: fill `answer` with the right answer, or "
            "none. An existing file is read back.",
        ),
    ] = None,
    round: Annotated[str, typer.Option(metavar="N", help="Round(s): 3, 1,3 or `all`.")] = "all",
) -> Result[Any]:
    """Measure how many pseudo-labels are right.

    200 questions, as in the paper, are drawn once from each round. Where the world computes the truth, it is
    the reference answer. Otherwise the answers come from a file (--check), filled in by a human or by a model
    that a human checks; not every question needs one.
    """
    from diagevo.answers.equivalence import AnswerChecker
    from diagevo.evaluation.oracle import Oracle

    from .subjects import rounds_named

    with opened(call) as history:
        oracle = Oracle(history.database, history.run_id)
        rounds = [number for number in rounds_named(history, round) if number]
        if check is None or not check.exists():
            for number in rounds:
                oracle.sample(history, number, 200, seed=0)
        if check is not None and check.exists():
            taken, empty = oracle.import_(check)
            render.say(call, f"{count(taken, 'answer')} read, {count(empty, 'row')} still empty")
        elif check is not None:
            with render.writing(check):
                written = oracle.export(check, rounds)
            text = f"{count(written, 'question')} in {check}; write the right answer, or none, into `answer`,"
            render.say(call, f"{text} then the same command again")
        with AnswerChecker() as checker:
            lines = oracle.accuracy(checker)
        rows = [
            asdict(line)
            | {
                "accuracy": None if line.accuracy is None else line.accuracy.value,
                "standard_error": None if line.accuracy is None else line.accuracy.standard_error,
            }
            for line in lines
        ]
        nothing = "no label was compared with a true answer yet: --check FILE.csv writes the questions"
        notes = [] if any(line.accuracy for line in lines) else [nothing]
        return Result(rows, ACCURACY, run=oracle.run_id, notes=notes)
