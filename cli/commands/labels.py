"""`diagevo eval labels`: how many pseudo-labels are right."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from diagevo.text.numbers import count

from .. import options
from ..call import Call
from ..opening import opened
from ..render import console as render
from ..render.result import Result
from ..render.table import columns
from .evaluate_run import Seed

ACCURACY = columns("round, sampled, checked, accuracy, standard_error: ± s.e., source")


@options.command(
    "eval labels",
    rows=True,
    example="""diagevo eval labels --run a
    diagevo eval labels --run a --check labels.csv""",
)
def labels(
    call: Call,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="A new file gets the unchecked questions: `answer` takes the right answer, or none. An "
            "existing file is read back.",
        ),
    ] = None,
    round: Annotated[str, typer.Option("--round", metavar="N", help="Round(s): 3, 1,3 or `all`.")] = "all",
    questions: Annotated[int, typer.Option(min=1, help="Questions a round.")] = 200,
    seed: Seed = 0,
) -> Result[Any]:
    """Measure how many pseudo-labels are right.

    Questions are drawn once from each round. Where the world computes the truth, it is the reference answer.
    Else the answers come from a file (--check), filled in by a human or by a model that a human checks.
    """
    from diagevo.answers.equivalence import AnswerChecker
    from diagevo.evaluation.oracle import Oracle

    from .subjects import rounds_named

    with opened(call) as history:
        oracle = Oracle(history.database, history.run_id)
        rounds = [number for number in rounds_named(history, round) if number]
        if check is None or not check.exists():
            for number in rounds:
                oracle.sample(history, number, questions, seed)
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
