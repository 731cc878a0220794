"""`diagevo eval show, compare`: which benchmarks exist, what was measured, and how two measurements
differ."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError
from diagevo.text.escaping import json_text, visible
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import database
from ..render import console as render
from ..render.result import Result
from ..render.table import columns
from ..screens.rounds import premises, worlds_of

if TYPE_CHECKING:
    from diagevo.evaluation.store import Evaluation

BENCHMARKS = columns("name, title, group, questions, metric, kind, hub, licence")
EVALUATIONS = columns(
    "evaluation_id: id, benchmark, run, round, model, answered, score, score_se: ± s.e., judge, "
    "finished_at: finished"
)


def row_of(found: "Evaluation") -> dict[str, Any]:
    """An evaluation as the commands print it. Scores are shares in [0, 1], null until it has finished."""
    metrics, judge = found.metrics or {}, found.conditions["judge"]
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
    "eval show",
    rows=True,
    example="""diagevo eval show
    diagevo eval show --benchmarks
    diagevo eval show e3f1 --wrong 5
    diagevo eval show --run a --json""",
)
def show(
    call: CommandContext,
    evaluation: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="An evaluation's id, or the beginning of it.")
    ] = None,
    benchmarks: Annotated[bool, typer.Option("--benchmarks", help="List the benchmarks.")] = False,
    wrong: Annotated[int, typer.Option(min=0, help="Show this many of the wrong answers.")] = 0,
) -> Result[Any]:
    """List evaluations, or show one.

    With --benchmarks, lists the benchmarks. With ID, shows one evaluation: its conditions, figures and
    categories, and the wrong answers.
    """
    if evaluation is not None:
        if benchmarks or "--run" in call.typed:
            raise ConfigError(f"{evaluation} is one evaluation", hint="leave out --benchmarks and --run")
        return _show_one(call, evaluation, wrong)
    if wrong:
        raise ConfigError("--wrong applies to one evaluation", hint="name it: diagevo eval show ID --wrong N")
    return _show_benchmarks() if benchmarks else _show_all(call)


def _show_benchmarks() -> Result[Any]:
    from diagevo.evaluation.benchmarks import BENCHMARKS as ENTRIES

    lines = [
        {name: getattr(e, name) for name in ("name", "title", "group", "questions", "metric")}
        | {
            "kind": ", ".join(dict.fromkeys(p.kind for p in e.parts)),
            "hub": ", ".join(f"{p.hub.id}@{p.hub.split}" for p in e.parts),
            "licence": ", ".join(dict.fromkeys(p.licence for p in e.parts)),
        }
        for e in ENTRIES
    ]
    return Result(lines, BENCHMARKS)


def _show_all(call: CommandContext) -> Result[Any]:
    from diagevo.evaluation.store import EvaluationStore
    from diagevo.memory.history import resolve_run
    from diagevo.memory.read.runs import list_runs

    with database(call) as opened:
        run = None if call.run is None else resolve_run(opened, call.run)
        found = EvaluationStore(opened).list(run)
        played = list_runs(opened) if not found else []
        worlds = worlds_of(opened, found)
    if not found:
        of_world = any(line.world == "arithmetic" and run in (None, line.run_id) for line in played)
        questions = "held-out" if of_world else "math500"
        render.say(call, f"no evaluations yet; start one: diagevo eval run {questions} --round best")
    return Result([row_of(e) for e in found], EVALUATIONS, run=run, notes=premises(worlds))


def _show_one(call: CommandContext, evaluation: str, wrong: int) -> Result[Any]:
    from diagevo.evaluation.answer_scoring import by_category
    from diagevo.evaluation.store import EvaluationStore

    with database(call) as opened:
        store = EvaluationStore(opened)
        found = store.find(evaluation)
        results = store.results(found.evaluation_id)
        worlds = worlds_of(opened, [found])
    categories = by_category(results)
    every = [result for result in results if result.score is not None and result.score < 1]
    missed = every[:wrong]
    lines = [f"{found.evaluation_id}  {found.benchmark}  {found.model}  {found.answered}/{found.questions}"]
    lines += [f"  {name:<14} {value:.4f}" for name, value in (found.metrics or {}).items()]
    lines += [f"  {name:<14} {_condition(value)}" for name, value in found.conditions.items()]
    if len(categories) > 1:
        lines.append("by category:")
        lines += [
            f"  {known.value:.3f} ± {known.standard_error:.3f}  {known.questions:>5}  {name}"
            for name, known in categories.items()
        ]
    for result in missed:
        answers = ", ".join(answer or "no answer" for answer in result.extracted)
        lines += [f"question {result.question}: {result.prompt[-1]['content']}"]
        lines += [f"  reference {result.reference}; answered {answers}"]
    if (hidden := len(every) - len(missed)) > 0:
        rest = f"diagevo eval show {found.evaluation_id} --wrong {len(every)}"
        lines += [f"{count(hidden, 'more question' if missed else 'question')} not fully right: {rest}"]
    data = row_of(found) | {"categories": categories, "wrong": missed}
    text = "\n".join(visible(line, one_line=True) for line in lines)
    return Result(data, text=text, run=found.run_id, notes=premises(worlds))


def _condition(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


@options.command(
    "eval compare",
    without=("--run",),
    example="""diagevo eval compare e3f1 e9a0
    diagevo eval compare e3f1 e9a0 --json""",
)
def compare(
    call: CommandContext,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="The baseline evaluation.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The evaluation to compare with it.")],
) -> Result[Any]:
    """Compare two evaluations on the same questions.

    The difference is paired by question, with its 95% confidence interval."""
    from diagevo.evaluation.answer_scoring import compare as compare_
    from diagevo.evaluation.answer_scoring import different_conditions
    from diagevo.evaluation.store import EvaluationStore

    with database(call) as opened:
        store = EvaluationStore(opened)
        a, b = store.find(first), store.find(second)
        result = compare_(store, a, b)
        worlds = worlds_of(opened, [a, b])
    differ = different_conditions(a, b)
    text = [
        f"{a.benchmark}, {count(result.questions, 'question')}, paired",
        f"  {a.evaluation_id}  {result.first:.4f}  {a.model}",
        f"  {b.evaluation_id}  {result.second:.4f}  {b.model}",
        f"  difference {result.difference:+.4f} ± {result.standard_error:.4f}"
        f"  [{result.low:+.4f}, {result.high:+.4f}] at {result.confidence:.4g} confidence",
        f"  {count(result.better, 'question')} better, {result.worse} worse;"
        f" exact sign test p = {result.p_value:.3g}",
        "they differ in: " + (", ".join(differ) or "nothing"),
    ]
    shown = "\n".join(visible(line, one_line=True) for line in text)
    return Result({"paired": result, "conditions": differ}, text=shown, notes=premises(worlds))
