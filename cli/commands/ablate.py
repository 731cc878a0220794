"""`diagevo ablate`: plan the paper's ablations, run them, and compare the results."""

import shlex
from dataclasses import asdict
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import database, there_is_none
from ..render import console as render
from ..render.result import Result
from ..render.table import columns
from ..screens.rounds import premises

if TYPE_CHECKING:
    from diagevo.evaluation.ablation import Plan

RUNS = columns("index, run, variant, seed, committed: rounds, state")


COMPARED = columns(
    "variant, seeds, score, difference, low: from, high: to, effect: effect d, p: p: 4, p_holm: p (Holm): 4"
)


Name = Annotated[
    str | None, typer.Argument(metavar="[PLAN]", help="The plan; may be omitted if there is only one.")
]


@options.command(
    "ablate plan",
    reads=options.CONFIGURATION,
    rows=True,
    without=("--run", "--db"),
    example="""diagevo ablate plan paper --variants all --seeds 0,1,2
    diagevo ablate plan small --variants full,free-only,no-filter --seeds 0,1 --rounds 3
    diagevo ablate plan ks --variants full,k-0.2,k-1.0,k-2.0 --eval "all --data folder-of-jsonl\"""",
)
def plan(
    call: CommandContext,
    name: Annotated[str, typer.Argument(metavar="PLAN", help="Name of the plan, and prefix of its runs.")],
    variants: Annotated[str, typer.Option(help="Comma-separated names, or `all` for the paper's.")] = "all",
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds.")] = "0,1,2",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of every run.")] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            "--eval", metavar="ARGUMENTS", help="Arguments of `eval run`, for each run's best checkpoint."
        ),
    ] = None,
) -> Result[Any]:
    """Write an ablation plan.

    `-c`, `--profile` and `--set` go to every run; a variant's settings come on top."""
    from diagevo.config.loading import resolve
    from diagevo.errors import ConfigError
    from diagevo.evaluation.ablation import VARIANTS, make_plan, variant

    papers = [v.name for v in VARIANTS if v.table != "control"]
    names = papers if variants == "all" else variants.split(",")
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds {seeds}: not whole numbers", hint="for example --seeds 0,1,2") from error
    if min(numbers) < 0:
        raise ConfigError(f"--seeds {seeds}: a seed is at least 0", hint="for example --seeds 0,1,2")
    arguments = [f"--set={setting}" for setting in call.settings]
    if call.profile is not None:
        arguments.append(f"--profile={call.profile}")
    if call.config is not None:
        arguments.append(f"--config={call.config.resolve()}")
    base = call.load_config()
    made = make_plan(
        name,
        names,
        numbers,
        rounds=rounds or base.round.rounds,
        arguments=arguments,
        benchmarks=_measured(evaluate),
    )
    for name_ in dict.fromkeys(names):
        settings = (*call.settings, *(f"{key}={value}" for key, value in variant(name_).settings.items()))
        resolve(file=call.config, settings=settings, profile=call.profile)
    file = made.save(call.home)
    render.say(call, f"{count(len(made.runs), 'run')} planned in {file}; next: diagevo ablate run {name}")
    return Result([{"index": i, **asdict(planned)} for i, planned in enumerate(made.runs)], RUNS[:4])


def _measured(arguments: str | None) -> list[str]:
    """The arguments of `eval run`, with benchmarks that must exist."""
    from diagevo.evaluation.benchmarks import benchmark

    words = shlex.split(arguments or "")
    for word in takewhile(lambda word: not word.startswith("-"), words):
        if word not in ("all", "held-out"):
            benchmark(word)
    return words


@options.command(
    "ablate run",
    rows=True,
    without=("--run",),
    example="""diagevo ablate run small
    diagevo ablate run small --status""",
)
def run(
    call: CommandContext,
    name: Name = None,
    status: Annotated[
        bool, typer.Option("--status", help="Run nothing; show the state of every run.")
    ] = False,
) -> Result[Any]:
    """Run a plan's runs, one after another.

    Each uses the commands that you would type, with their output on stderr. Nothing is done twice. Only
    one such call at a time: for two at once, make two plans.
    """
    from diagevo.evaluation.ablation import load_plan, play, states

    chosen = load_plan(call.home, name)
    if status:
        return _status(call, chosen)
    with database(call, create=True) as opened:
        for state in states(opened, chosen):
            planned = state.planned
            render.say(call, f"{planned.run}: {planned.variant}, seed {planned.seed}")
            play(chosen, state, call.db)
    return _status(call, chosen)


def _status(call: CommandContext, chosen: "Plan") -> Result[Any]:
    from diagevo.evaluation.ablation import states

    if there_is_none(call):
        found = states(None, chosen)
    else:
        with database(call) as opened:
            found = states(opened, chosen)
    rows = [
        {"index": i, **asdict(s.planned), "committed": f"{s.committed}/{s.rounds}", "state": s.state}
        for i, s in enumerate(found)
    ]
    return Result(rows, RUNS)


@options.command(
    "ablate compare",
    rows=True,
    without=("--run",),
    example="""diagevo ablate compare small
    diagevo ablate compare paper --against full --metric greedy""",
)
def compare(
    call: CommandContext,
    name: Name = None,
    against: Annotated[
        str, typer.Option(metavar="VARIANT", help="The variant that the others are compared with.")
    ] = "full",
    metric: Annotated[str, typer.Option(help="A validation metric after the last round.")] = "mean_at_k",
) -> Result[Any]:
    """Compare every variant with one of them, paired by seed.

    Shows the difference with its 95% interval, the effect size and p by Holm."""
    from diagevo.errors import NotFoundError
    from diagevo.evaluation import ablation
    from diagevo.evaluation.ablation import load_plan
    from diagevo.memory.history import History

    chosen = load_plan(call.home, name)
    variants = list(dict.fromkeys(planned.variant for planned in chosen.runs))
    if against not in variants:
        raise NotFoundError(
            f"the plan {chosen.name} has no variant {against}", hint="there are: " + ", ".join(variants)
        )
    with database(call) as opened:
        scores = ablation.last_scores(opened, chosen, metric)
        played = [p.run for p in chosen.runs if p.seed in scores.get(p.variant, {})]
        worlds = [History(opened, run).in_force().config.get("world") for run in played[:1]]
    done = sum(len(of_variant) for of_variant in scores.values())
    render.say(
        call, f"{metric} after round {chosen.rounds}, against {against}: {done} of {len(chosen.runs)} runs"
    )
    return Result(ablation.compare(scores, against, variants), COMPARED, notes=premises(worlds))
