"""`diagevo eval labels` and `diagevo eval selfplay`: how right the pseudo-labels, how hard the questions."""

from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diagevo.errors import ConfigError
from diagevo.progress import StopFlag
from diagevo.text.numbers import count

from .. import options
from ..call import Call
from ..opening import opened
from ..render import console as render
from ..render.result import Result
from ..render.table import columns
from ..screens.accuracy import premises, worlds_of
from .evaluate import EVALUATIONS, row_of
from .evaluate_run import Batch, KeyEnv, Seed, measure

if TYPE_CHECKING:
    from diagevo.evaluation.oracle import Oracle

ACCURACY = columns("round, sampled, proposed, checked, accuracy, standard_error: ± s.e., source")
Rounds = Annotated[str, typer.Option("--round", metavar="N", help="Round(s): 3, 1,3 or `all`.")]


def _accuracy(oracle: "Oracle") -> Result[Any]:
    from diagevo.answers.equivalence import AnswerChecker

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
    nothing = "no label was compared with a true answer yet: --model M --base-url URL proposes answers, and "
    nothing += "--check FILE.csv asks a human"
    notes = [] if any(line.accuracy for line in lines) else [nothing]
    return Result(rows, ACCURACY, run=oracle.run_id, notes=notes)


@options.command(
    "eval labels",
    rows=True,
    example="""diagevo eval labels --run a
    diagevo eval labels --run a --model Qwen3-Max --base-url http://127.0.0.1:8000/v1
    diagevo eval labels --run a --check labels.csv""",
)
def labels(
    call: Call,
    model: Annotated[
        str | None, typer.Option(help="Have this model of --base-url propose answers by majority vote.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint.")] = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    samples: Annotated[
        int | None, typer.Option(min=1, help="--model: responses a question. [default: 16]")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="--model: longest response, in tokens. [default: 8192]")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="A new file gets the unchecked questions for a human: `answer` takes ok, the right answer, "
            "or none. An existing file is read back.",
        ),
    ] = None,
    round: Rounds = "all",
    questions: Annotated[int, typer.Option(min=1, help="Questions a round.")] = 200,
    seed: Seed = 0,
) -> Result[Any]:
    """Measure how many pseudo-labels are right.

    Questions are drawn once from each round. Where the world computes the truth, it is the reference answer.
    Else a model proposes one (--model) and a human checks it (--check). What is proposed already is not asked
    again.
    """
    from diagevo.answers.equivalence import AnswerChecker
    from diagevo.evaluation.oracle import Oracle
    from diagevo.sampling.sampler import SamplingParams
    from diagevo.selfplay.questions import PromptTemplates

    from .subjects import endpoint, rounds_named

    if (model is None) != (base_url is None):
        raise ConfigError(
            "--model and --base-url go together",
            hint="use the name by which the endpoint knows the model",
        )
    if model is None and (samples, max_new_tokens) != (None, None):
        raise ConfigError(
            "--samples and --max-new-tokens are about what a model proposes",
            hint="add --model and --base-url",
        )
    with opened(call) as history:
        oracle = Oracle(history.database, history.run_id)
        rounds = [number for number in rounds_named(history, round) if number]
        if check is None or not check.exists():
            for number in rounds:
                oracle.sample(history, number, questions, seed)
        if model is not None and base_url is not None:
            with AnswerChecker() as checker, closing(endpoint(model, base_url, key_env)) as sampler:
                proposed = oracle.propose(
                    sampler,
                    model,
                    PromptTemplates.load(),
                    checker,
                    params=SamplingParams(1.0, 1.0, max_new_tokens or 8192),
                    samples=samples or 16,
                    on_progress=lambda done, total: render.say(call, f"  {done} of {total}"),
                )
            render.say(
                call, f"{count(proposed, 'answer')} proposed; next: diagevo eval labels --check FILE.csv"
            )
        if check is not None and check.exists():
            taken, empty = oracle.import_(check)
            render.say(call, f"{count(taken, 'answer')} read, {count(empty, 'row')} still empty")
        elif check is not None:
            with render.writing(check):
                written = oracle.export(check, rounds)
            text = (
                f"{count(written, 'question')} in {check}; write ok, the right answer, or none into `answer`,"
            )
            render.say(call, f"{text} then the same command again")
        return _accuracy(oracle)


@options.command(
    "eval selfplay",
    reads=["-c", "--set"],
    rows=True,
    example="""diagevo eval selfplay --solver start --run a
    diagevo eval selfplay --solver own --run a
    diagevo eval selfplay --solver own --run free-only --of a""",
)
def selfplay(
    call: Call,
    solver: Annotated[
        Literal["start", "own"],
        typer.Option(help="The fixed starting model (difficulty), or each round's (label accuracy)."),
    ] = "start",
    of: Annotated[
        str | None, typer.Option(metavar="RUN", help="Use this run's questions, so that runs share them.")
    ] = None,
    round: Rounds = "all",
    questions: Annotated[int, typer.Option(min=1, help="Maximum questions per round.")] = 200,
    samples: Annotated[int, typer.Option(min=1, help="Responses a question.")] = 12,
    temperature: Annotated[float, typer.Option(min=0.0)] = 1.0,
    seed: Seed = 0,
    batch: Batch = 64,
) -> Result[Any]:
    """Measure a solver on the questions of a run.

    Answers are judged by those of `eval labels`, or by the truth where the world computes it."""
    from diagevo.answers.equivalence import AnswerChecker
    from diagevo.evaluation.evaluate import procedure_of
    from diagevo.evaluation.sources import self_play_questions
    from diagevo.evaluation.store import EvaluationStore

    from . import subjects

    stop = StopFlag()
    with opened(call) as history, AnswerChecker() as checker, ExitStack() as stack:
        asked = history if of is None else stack.enter_context(opened(call, of))
        store, done = EvaluationStore(history.database), []
        for number in filter(None, subjects.solvers_named(history, round)):
            loaded = self_play_questions(
                asked,
                number,
                of=None if asked.run_id == history.run_id else asked.run_id,
                size=questions,
                samples=samples,
                temperature=temperature,
                seed=seed,
            )
            with subjects.checkpoint(call, history, number if solver == "own" else 0, stop) as ready:
                procedure = procedure_of(
                    loaded, top_p=ready.top_p, max_new_tokens=ready.max_new_tokens, seed=seed, batch=batch
                )
                done.append(measure(call, store, ready, loaded, checker, procedure, stop))
        notes = premises(worlds_of(history.database, done))
        return Result([row_of(found) for found in done], EVALUATIONS, run=history.run_id, notes=notes)
