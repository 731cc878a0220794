"""`diagevo eval`: measure checkpoints and models on the benchmarks, and compare what was measured."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError

from . import options, render
from .options import Call
from .render import Column

if TYPE_CHECKING:
    from diagevo.evaluation.judge import Judge
    from diagevo.evaluation.questions import Loaded
    from diagevo.evaluation.store import Evaluation, EvaluationStore
    from diagevo.memory.database import Database
    from diagevo.memory.history import History

    from .subjects import Measured

app = options.group("eval", "Measure models on the benchmarks and compare what was measured.")

BENCHMARKS = (
    Column("name"),
    Column("title"),
    Column("group"),
    Column("questions", align="right"),
    Column("metric"),
    Column("kind"),
    Column("hub"),
    Column("licence"),
)
EVALUATIONS = (
    Column("evaluation_id", "id"),
    Column("benchmark"),
    Column("run"),
    Column("round", align="right"),
    Column("model"),
    Column("answered"),
    Column("score", align="right"),
    Column("score_se", "± s.e.", "right"),
    Column("judge"),
    Column("finished_at", "finished"),
)
Names = Annotated[
    list[str],
    typer.Argument(metavar="BENCHMARK…", help="Names from `eval list --benchmarks`, `held-out`, or `all`."),
]
Model = Annotated[
    str | None, typer.Option("--model", help="A folder, builtin:arithmetic, or a name an endpoint serves.")
]
Url = Annotated[str | None, typer.Option("--base-url", help="OpenAI-compatible endpoint of the model.")]
KeyEnv = Annotated[str, typer.Option("--key-env", help="Environment variable that holds the key.")]
Rounds = Annotated[
    str, typer.Option("--round", metavar="N", help="Round(s) of the run: 3, 1,3, `all` or `best`.")
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="[NAME=]PATH", help="A local file, or a folder of files, in place of the hub."
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only so many questions, spread evenly.")]
Samples = Annotated[int | None, typer.Option("--samples", min=1, help="Samples a question.")]
Temperature = Annotated[float | None, typer.Option("--temperature", min=0.0, help="0 is greedy.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of draws, shuffled options and subsets.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Questions asked at once and saved together.")]
JudgeModel = Annotated[
    str | None, typer.Option("--judge", metavar="MODEL", help="Language model behind the rule.")
]
JudgeUrl = Annotated[str | None, typer.Option("--judge-url", help="OpenAI-compatible endpoint of the judge.")]
Swapped = Annotated[
    bool, typer.Option("--swapped-judge", help="Hand over reference and answer swapped, as peers' code does.")
]


@contextmanager
def database(call: Call) -> Iterator["Database"]:
    from diagevo.memory.database import Database
    from diagevo.memory.migrate import prepare

    opened = Database(call.database)
    try:
        prepare(opened, create=True)
        yield opened
    finally:
        opened.close()


def line_of(found: "Evaluation") -> dict[str, Any]:
    metrics = found.metrics or {}
    judge = found.conditions["judge"]
    return {
        "evaluation_id": found.evaluation_id,
        "benchmark": found.benchmark,
        "run": found.run_id,
        "round": found.round,
        "model": found.model,
        "answered": f"{found.answered}/{found.questions}",
        "score": metrics.get("score"),
        "score_se": metrics.get("score_se"),
        "judge": "rule" if judge is None else judge["model"],
        "finished_at": found.finished_at,
        "metrics": found.metrics,
        "conditions": found.conditions,
    }


@options.command(
    app,
    "list",
    group="eval",
    rows=True,
    example="""diagevo eval list
    diagevo eval list --benchmarks
    diagevo eval list --run a --json""",
)
def list_(
    call: Call,
    benchmarks: Annotated[bool, typer.Option("--benchmarks", help="The benchmarks there are.")] = False,
) -> None:
    """What was measured, or with --benchmarks what can be."""
    if benchmarks:
        from diagevo.evaluation.benchmarks import BENCHMARKS as ENTRIES

        render.rows(
            call,
            BENCHMARKS,
            [
                {
                    "name": e.name,
                    "title": e.title,
                    "group": e.group,
                    "questions": e.questions,
                    "metric": e.metric,
                    "kind": ", ".join(dict.fromkeys(p.kind for p in e.parts)),
                    "hub": ", ".join(f"{p.hub.id}@{p.hub.split}" for p in e.parts),
                    "licence": ", ".join(dict.fromkeys(p.licence for p in e.parts)),
                }
                for e in ENTRIES
            ],
        )
        return
    from diagevo.evaluation.store import EvaluationStore

    with database(call) as opened:
        found = EvaluationStore(opened).list(call.run)
    if not found:
        render.say(call, "nothing was measured yet; begin: diagevo eval run math500 --round best")
    render.rows(call, EVALUATIONS, [line_of(e) for e in found])


@options.command(
    app,
    "run",
    group="eval",
    rows=True,
    example="""diagevo eval run math500 gsm8k --run a --round best --data folder-of-jsonl
    diagevo eval run all --run a --judge gpt-4o --judge-url https://api.openai.com/v1
    diagevo eval run held-out --run a --round all
    diagevo eval run gsm8k --model Qwen/Qwen3-8B --base-url http://127.0.0.1:8000/v1""",
)
def run(
    call: Call,
    names: Names,
    model: Model = None,
    base_url: Url = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    round: Rounds = "best",
    prompts: Annotated[Path | None, typer.Option("--prompts", help="Folder of prompt templates.")] = None,
    data: Data = None,
    limit: Limit = None,
    samples: Samples = None,
    temperature: Temperature = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", min=1, help="Longest response of --model. [4096]")
    ] = None,
    seed: Seed = 0,
    batch: Batch = 64,
    judge: JudgeModel = None,
    judge_url: JudgeUrl = None,
    judge_key_env: Annotated[
        str, typer.Option("--judge-key-env", help="Key of the judge.")
    ] = "OPENAI_API_KEY",
    swapped_judge: Swapped = False,
) -> None:
    """Ask, judge and sum up. The same command again goes on where it was stopped and asks nothing twice.

    Without --model it measures the solver of a run. The defaults are the paper's protocol: greedy, AMC by 32
    samples at T = 1.
    """
    from diagevo.evaluation.evaluate import procedure_of
    from diagevo.evaluation.store import EvaluationStore
    from diagevo.selfplay.equivalence import AnswerChecker

    from . import subjects

    with ExitStack() as stack:
        opened = stack.enter_context(database(call))
        history = None if model is not None else stack.enter_context(_history(call))
        loaded = list(_loaded(names, data or [], seed, limit, history))
        store = EvaluationStore(opened)
        checker = stack.enter_context(AnswerChecker())
        grader = _judge(stack, opened, judge, judge_url, judge_key_env, swapped_judge)
        done: list[Evaluation] = []
        if history is None:
            assert model is not None
            measured = [subjects.model(model, base_url, key_env, prompts, max_new_tokens)]
        else:
            config = subjects.stored_config(history)
            named = subjects.rounds_named(history, config, round)
            measured = [subjects.checkpoint(call, history, number) for number in named]
        for each in measured:
            with each as ready:
                for questions in loaded:
                    procedure = procedure_of(
                        questions,
                        top_p=ready.top_p,
                        max_new_tokens=ready.max_new_tokens,
                        seed=seed,
                        batch=batch,
                        samples=samples,
                        temperature=temperature,
                    )
                    asked_judge = grader if questions.benchmark.judged else None
                    done.append(measure(call, store, ready, questions, checker, procedure, asked_judge))
        render.rows(call, EVALUATIONS, [line_of(e) for e in done])


def measure(
    call: Call,
    store: "EvaluationStore",
    ready: "Measured",
    loaded: "Loaded",
    checker: Any,
    procedure: Any,
    judge: "Judge | None",
) -> "Evaluation":
    from diagevo.evaluation.evaluate import evaluate

    size, full = len(loaded.questions), loaded.benchmark.questions
    part = "" if size == full else f" (a part: the whole set has {full})"
    render.say(
        call, f"{loaded.benchmark.title}: {size} questions from {loaded.source}{part}; {ready.subject.model}"
    )
    shown = [0]

    def progress(done: int, total: int) -> None:
        if done * 10 // total > shown[0]:
            shown[0] = done * 10 // total
            render.say(call, f"  {done} of {total}")

    return evaluate(
        store,
        ready.sampler,
        loaded,
        ready.templates,
        checker,
        subject=ready.subject,
        procedure=procedure,
        judge=judge,
        on_progress=progress,
    )


@contextmanager
def _history(call: Call) -> Iterator["History"]:
    from diagevo.memory.history import open_history

    history = open_history(call.database, call.run)
    try:
        yield history
    finally:
        history.close()


def _loaded(
    names: list[str], data: list[str], seed: int, limit: int | None, history: "History | None"
) -> Iterator["Loaded"]:
    """The questions of every benchmark named; all of them are found before the first is asked."""
    from diagevo.evaluation.benchmarks import BENCHMARKS as ENTRIES
    from diagevo.evaluation.benchmarks import benchmark
    from diagevo.evaluation.loading import load

    sources: dict[str | None, list[Path]] = {}
    for given in data:
        name, _, path = given.rpartition("=")
        sources.setdefault(name or None, []).append(Path(path).expanduser())
    wanted = [e.name for e in ENTRIES if e.group != "validation"] if names == ["all"] else names
    for name in wanted:
        if name == "held-out":
            yield _held_out(history)
        else:
            files = sources.get(name) or sources.get(None) or []
            yield load(benchmark(name), files, seed=seed, limit=limit)


def _held_out(history: "History | None") -> "Loaded":
    """The run's own validation questions; the arithmetic world's where no run is named."""
    from diagevo.evaluation.sources import labelled

    if history is None:
        from diagevo.arithmetic import held_out

        return labelled(
            "held-out", "Held-out questions, arithmetic world", held_out(), source="arithmetic world"
        )
    from diagevo.memory.opening import runs_folder
    from diagevo.roles import Roles

    from . import subjects

    config = subjects.stored_config(history)
    logs = runs_folder(history.database) / history.run_id / "logs"
    questions = Roles(config, logs).questions
    if not questions:
        raise ConfigError("the run has no validation questions", hint="set validation.questions in a new run")
    source = config.validation.questions or ""
    world = f", {config.world} world" if config.world else ""
    return labelled("held-out", f"Held-out questions{world}", questions, source=source)


def _judge(
    stack: ExitStack, opened: "Database", name: str | None, url: str | None, key_env: str, swapped: bool
) -> "Judge | None":
    if name is None:
        if url is not None or swapped:
            raise ConfigError("a judge needs a model", hint="name it: --judge MODEL --judge-url URL")
        return None
    if url is None:
        raise ConfigError("a judge needs an endpoint", hint="name it: --judge-url URL")
    from diagevo.evaluation.judge import Judge
    from diagevo.memory.artifacts import Artifacts

    from .subjects import endpoint

    sampler = endpoint(name, url, key_env)
    stack.callback(sampler.close)
    return Judge(sampler, name, Artifacts(opened), swapped=swapped)


@options.command(
    app,
    "show",
    group="eval",
    example="""diagevo eval show e3f1
    diagevo eval show e3f1 --wrong 5
    diagevo eval show e3f1 --json""",
)
def show(
    call: Call,
    evaluation: Annotated[
        str, typer.Argument(metavar="ID", help="An evaluation, or the beginning of its id.")
    ],
    wrong: Annotated[
        int, typer.Option("--wrong", min=0, help="Show so many questions answered wrongly.")
    ] = 0,
) -> None:
    """One evaluation: its conditions, figures and categories, and what was answered wrongly."""
    from diagevo.evaluation.evaluate import by_category
    from diagevo.evaluation.store import EvaluationStore

    with database(call) as opened:
        store = EvaluationStore(opened)
        found = store.find(evaluation)
        results = store.results(found.evaluation_id)
    categories = by_category(results)
    missed = [result for result in results if result.score is not None and result.score < 1]
    lines = [f"{found.evaluation_id}  {found.benchmark}  {found.model}  {found.answered}/{found.questions}"]
    lines += [f"  {name:<14} {value:.4f}" for name, value in (found.metrics or {}).items()]
    lines += [f"  {name:<14} {value}" for name, value in found.conditions.items()]
    if len(categories) > 1:
        lines.append("by category:")
        lines += [f"  {value:.3f} ± {se:.3f}  {n:>5}  {name}" for name, (value, se, n) in categories.items()]
    for result in missed[:wrong]:
        answers = ", ".join(answer or "no answer" for answer in result.extracted)
        lines += [f"question {result.question}: {result.prompt[-1]['content']}"]
        lines += [f"  reference {result.reference}; answered {answers}"]
    data = line_of(found) | {"categories": categories, "wrong": missed[:wrong]}
    render.document(call, data, "\n".join(lines), run=found.run_id)


@options.command(
    app,
    "compare",
    group="eval",
    example="""diagevo eval compare e3f1 e9a0
    diagevo eval compare e3f1 e9a0 --confidence 0.99 --json""",
)
def compare(
    call: Call,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="The evaluation compared with.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The evaluation compared.")],
    confidence: Annotated[float, typer.Option("--confidence", min=0.5, max=0.9999)] = 0.95,
) -> None:
    """The difference of two evaluations on the same questions, paired by question, with its interval."""
    from diagevo.evaluation.evaluate import compare as compare_
    from diagevo.evaluation.evaluate import different_conditions
    from diagevo.evaluation.store import EvaluationStore

    with database(call) as opened:
        store = EvaluationStore(opened)
        a, b = store.find(first), store.find(second)
        result = compare_(store, a, b, confidence)
    differ = different_conditions(a, b)
    text = [
        f"{a.benchmark}, {result.questions} questions, paired",
        f"  {a.evaluation_id}  {result.first:.4f}  {a.model}",
        f"  {b.evaluation_id}  {result.second:.4f}  {b.model}",
        f"  difference {result.difference:+.4f} ± {result.standard_error:.4f}"
        f"  [{result.low:+.4f}, {result.high:+.4f}] at {confidence:.0%}",
        f"  {result.better} questions better, {result.worse} worse; exact sign test p = {result.p_value:.3g}",
        "they differ in: " + (", ".join(differ) or "nothing"),
    ]
    render.document(call, {"paired": result, "conditions": differ}, "\n".join(text))
