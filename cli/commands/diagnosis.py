"""`diagevo memory calibrate, recheck`: thresholds from judged pairs, and recorded decisions asked again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.shown import count, percent

from .. import listing, options
from ..opening import config_of, opened
from ..options import Call
from ..render import console as render
from ..render.rows import print_rows
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.diagnosis.diagnostician import Diagnostician
    from diagevo.diagnosis.recheck import Recheck
    from diagevo.memory.audit.history import History

CALIBRATIONS = (
    Column("threshold"),
    Column("model"),
    Column("current", align="right", digits=2),
    Column("proposed", align="right", digits=2),
    Column("same", "judged same", align="right"),
    Column("same_kept", "of them above", align="right", digits=2),
    Column("different", "judged different", align="right"),
    Column("different_kept", "of them above", align="right", digits=2),
    Column("unrelated_kept", "unrelated above", align="right", digits=2),
)
RECHECKS = (
    Column("decision"),
    Column("subject"),
    Column("recorded"),
    Column("answered"),
    Column("effect"),
    Column("failures", "F", align="right"),
    Column("failures_then", "F then", align="right"),
    Column("epsilon", "ε", align="right"),
    Column("epsilon_then", "ε then", align="right"),
)
"""What a person reads of a disagreement; json, jsonl, csv and parquet hold every decision that was asked."""


def _calibrations() -> Any:
    from diagevo.diagnosis.calibrate import Calibration

    return list[Calibration]


def _rechecks() -> Any:
    from diagevo.diagnosis.recheck import Recheck

    return list[Recheck]


@options.command(
    listing.memory,
    "calibrate",
    reads=options.CONFIGURATION,
    group="memory",
    rows=True,
    data=_calibrations,
    example="""diagevo memory calibrate
    diagevo memory calibrate --set 'roles.embedder={engine: sentence-transformers, model: all-MiniLM-L6-v2}'
    """,
)
def calibrate(call: Call) -> None:
    """Propose θ_dup and θ_merge for the embedding model, from pairs that the diagnostician has judged.

    The proposal lets 95 of 100 pairs through that were judged the same. Another model: --set
    roles.embedder.…, or -c FILE. Writes nothing.
    """
    from diagevo.diagnosis.calibrate import calibrate as propose
    from diagevo.diagnosis.embedder import embedder_for

    with opened(call) as history:
        config = config_of(call, history)
        found = propose(history.log, history.run_id, embedder_for(config.roles.embedder), config.memory)
    print_rows(call, CALIBRATIONS, found, run=history.run_id)
    for line in found:
        if line.proposed is None:
            render.say(call, f"{line.threshold}: no pair was judged the same, so nothing is proposed")
        elif not line.enough:
            render.say(
                call, f"{line.threshold}: {count(line.same, 'pair')} judged the same: too few to rely on"
            )


@options.command(
    listing.memory,
    "recheck",
    reads=options.CONFIGURATION,
    group="memory",
    rows=True,
    data=_rechecks,
    example="""diagevo memory recheck --sample 50
    diagevo memory recheck --round 3 --set roles.diagnostician.model=Qwen/Qwen3-30B-A3B-Instruct-2507""",
)
def recheck(
    call: Call,
    *,
    round: Annotated[
        int | None, typer.Option("--round", metavar="N", min=1, help="Only decisions of round N.")
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=1, help="Decisions of each kind that are asked.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", help="Which decisions: the same seed, the same ones.")] = 0,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 where an answer differs.")] = False,
) -> None:
    """Ask the diagnostician again about recorded decisions, and say what each disagreement would do to F and
    ε.

    Another diagnostician: --set roles.diagnostician.…, or -c FILE. Writes nothing.
    """
    from diagevo.diagnosis.extraction import Cancellable
    from diagevo.diagnosis.recheck import recheck as ask

    with opened(call) as history:
        asked = _diagnostician(config_of(call, history), history)
        try:
            found = ask(history, asked, sample=sample, seed=seed, round=round)
        finally:
            if isinstance(asked, Cancellable):
                asked.cancel()
    differing = [line for line in found if not line.agrees]
    shown = differing if call.format in ("table", "md") else found
    title = f"{history.run_id}, asked {asked.name} again: {_summary(found)}"
    print_rows(call, RECHECKS, shown, run=history.run_id, title=title)
    if exit_code and differing:
        raise typer.Exit(1)


def _summary(found: "list[Recheck]") -> str:
    """extract 19 of 20 (95%), duplicate 18 of 20 (90%), …"""
    from diagevo.diagnosis.recheck import agreement

    parts = [
        f"{line.decision} {line.agreed} of {line.asked} ({percent(line.agreed / line.asked)})"
        for line in agreement(found)
        if line.asked
    ]
    return f"agrees on {', '.join(parts)}" if parts else "there is no decision to ask about"


def _diagnostician(config: "Config", history: "History") -> "Diagnostician":
    """The configured diagnostician; a language model is really asked, and its replies are not kept."""
    role = config.roles.diagnostician
    if role.engine != "openai":
        from diagevo.arithmetic.diagnostician import by_rules

        return by_rules(role.engine, config.seed)
    from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
    from diagevo.diagnosis.recheck import Unrecorded
    from diagevo.memory.log.artifacts import Artifacts

    own = config.prompts is not None and config.prompts != "builtin:arithmetic"
    prompts = Path(str(config.prompts)).expanduser() if own else None
    return OpenAIDiagnostician(role, config.diagnosis, Unrecorded(Artifacts(history.database)), prompts)
