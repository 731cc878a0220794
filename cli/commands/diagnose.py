"""`diagevo diagnose`: diagnose what is waiting in an ingested run, or diagnose it again."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from msgspec import structs

from diagevo.errors import ConfigError
from diagevo.progress import StopFlag

from .. import options
from ..call import CommandContext
from ..opening import config_of, opened
from ..render.result import Result
from ..render.table import columns
from ..screens.ingested import LARGEST, answer, suspicious

ROUNDS = columns(
    "round, failures: F, epsilon_next: ε next, active: Active, mastered: Mastered, nodes, undiagnosed"
)


@options.command(
    "diagnose",
    reads=options.CONFIGURATION,
    rows=True,
    example="""diagevo diagnose --run math --model Qwen/Qwen3-8B --base-url http://127.0.0.1:8000/v1
diagevo diagnose --run math --local
diagevo diagnose --run math --all-failed
diagevo diagnose --run math --plan
diagevo diagnose --run math --again --round 3 --model gpt-5.2
diagevo diagnose --run math --again --dry-run --sample 50""",
)
def diagnose(
    call: CommandContext,
    *,
    model: Annotated[
        str | None, typer.Option(metavar="M", help="The served model to ask; remembered.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Its OpenAI-compatible endpoint, ending in /v1; remembered."),
    ] = None,
    local: Annotated[
        bool,
        typer.Option(
            "--local", help="Find causes without a model, by arithmetic and by contrast; remembered."
        ),
    ] = False,
    all_failed: Annotated[
        bool,
        typer.Option(
            "--all-failed",
            help="Also diagnose groups where every response failed, against the known answer; remembered.",
        ),
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only estimate the cost.")] = False,
    max_calls: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop safely after N calls; run again to continue.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Diagnose again; earlier diagnoses are superseded, never deleted.")
    ] = False,
    round: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="With --again: from round N on; with --dry-run, round N only."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --again: ask about a sample, compare, and write nothing.")
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="With --dry-run: decisions of each kind. [default: 20]"),
    ] = None,
) -> Result[Any]:
    """Diagnose the ingested rounds that are waiting, and commit each.

    Prints the cost first. After an interruption or a cap, run the same command again: nothing is asked twice.
    The key is read from the environment variable named by roles.diagnostician.api_key_env.
    """
    for wrong, what, fix in (
        (
            not again and (dry_run or round is not None),
            "--round and --dry-run apply to earlier diagnoses",
            "add --again, or leave them out",
        ),
        (
            not dry_run and sample is not None,
            "--sample applies to a comparison",
            "add --dry-run, or leave it out",
        ),
        (dry_run and max_calls is not None, "a dry run asks only for its --sample", "leave --max-calls out"),
        (dry_run and local, "a dry run compares a model's answers", "leave --local or --dry-run out"),
    ):
        if wrong:
            raise ConfigError(what, hint=fix)
    from diagevo.ingest.diagnosing import role_settings

    typed = role_settings(model, base_url, local=local)
    typed += ("ingest.all_failed=true",) if all_failed else ()
    call = replace(call, settings=(*call.settings, *typed))
    from .diagnosticians import Reporter, compare

    if dry_run:
        return compare(call, sample=20 if sample is None else sample, round=round)
    from diagevo.ingest import diagnosing
    from diagevo.memory.events import DuplicateJudged
    from diagevo.memory.history import History
    from diagevo.memory.opening import open_memory
    from diagevo.memory.read.pass_rates import pass_rates
    from diagevo.memory.stories.failures import contradicted_causes

    with opened(call) as history:
        run, config = history.run_id, config_of(call, history)
    chosen: Mapping[str, Any] = {"all_failed": all_failed, "again": again, "first": round}
    with open_memory(call.database, run, create=False) as memory:
        if plan:
            found = asdict(diagnosing.estimate(memory, config, **chosen))
            return Result([found], columns(", ".join(found)), run=run)
        stop, curriculum = StopFlag(), not History(memory.log.database, run).evaluation
        local = config.roles.diagnostician.engine == diagnosing.LOCAL
        with Reporter(call, run, stop, local=local, curriculum=curriculum) as reporter:
            done = diagnosing.diagnose(
                memory, config, **chosen, max_calls=max_calls, keep=typed, observer=reporter, stop=stop
            )
        if done is None:
            next_ = f"to ask again: diagevo diagnose --run {run} --again"
            if not memory.state.began:
                next_ = f"its rollouts come with: diagevo ingest FORMAT PATH --run {run}"
            return Result([], ROUNDS, f"{run}: nothing waits for a diagnosis; {next_}\n", run=run)
        rows = [{"round": number, **structs.asdict(event)} for number, event in done.items()]
        for row in rows:
            del row["state_hash"]
        text, notes, history = None, [], History(memory.log.database, run)
        if rows and (rates := pass_rates(history)) is not None:
            undiagnosed = sum(row["undiagnosed"] for row in rows)
            marks = diagnosing.evidence(history, memory, rates.causes[:LARGEST])
            text = answer(run, rates, marks, contradicted_causes(history), undiagnosed)
            asked = [one.event for one in history.events(DuplicateJudged) if one.event.call is not None]
            same = sum(one.duplicate for one in asked)
            notes += suspicious(run, rates, len(asked), same, undiagnosed)
            if rates.left is not None:
                notes.append(f"{rates.left}; all such prompts: diagevo runs show {run}")
        as_of = memory.state
    return Result(rows, ROUNDS, text, run=run, as_of=as_of, notes=notes)
