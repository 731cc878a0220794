"""`diagevo diagnose`: ask the diagnostician for what waits in an ingested run, or again."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from diagevo.errors import ConfigError, NotFoundError, ServiceError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import config_of, opened
from ..render import console as render
from ..render.result import Result
from ..render.table import columns
from ..screens.display import repeating
from ..screens.ingested import LARGEST, answer, suspicious
from .diagnosticians import check_rules, compare, diagnostician_of
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.diagnosis.cause_extraction import Progress
    from diagevo.diagnosis.chat import Usage
    from diagevo.diagnosis.diagnostician import Diagnostician
    from diagevo.ingest.cost import Cost
    from diagevo.ingest.local import LocalCauses
    from diagevo.memory.events import RoundCommitted
    from diagevo.memory.history import History
    from diagevo.memory.memory import Memory
    from diagevo.memory.read.pass_rates import CauseRate

LOCAL = "local"
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
            help="Also diagnose where every response failed, against the known answer; remembered.",
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
            "--round and --dry-run are about what was diagnosed before",
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
    typed = _role_settings(model, base_url, local=local)
    typed += ("ingest.all_failed=true",) if all_failed else ()
    call = replace(call, settings=(*call.settings, *typed))
    if dry_run:
        return compare(call, sample=20 if sample is None else sample, round=round)
    from diagevo.ingest.cost import cost
    from diagevo.ingest.rounds import Rounds
    from diagevo.memory.events import DuplicateJudged
    from diagevo.memory.history import History
    from diagevo.memory.opening import open_memory
    from diagevo.memory.read.pass_rates import pass_rates
    from diagevo.memory.stories.failures import contradicted_causes

    with opened(call) as history:
        run, config = history.run_id, config_of(call, history)
    with open_memory(call.database, run, create=False) as memory:
        if memory.played_by_train:
            raise ConfigError(
                f"run {run} is played by diagevo train: its rounds are its own",
                hint=f"start again from one of its rounds: diagevo runs fork {run}@N",
            )
        check_rules(config, run)
        local = config.roles.diagnostician.engine == LOCAL
        if all_failed and not local:
            _check_answers(memory, since=(round or 1) if again else None)
        every = all_failed or local or config.ingest.all_failed
        if plan:
            since = (round or 1) if again else None
            found = cost(memory, config, all_failed=every, again=since)
            return Result([asdict(found)], columns(", ".join(asdict(found))), run=run)
        waits = cost(memory, config, all_failed=every, quick=True)
        if not again and not waits.rounds:
            next_ = f"to ask again: diagevo diagnose --run {run} --again"
            if not memory.state.began:
                next_ = f"its rollouts come with: diagevo ingest FORMAT PATH --run {run}"
            return Result([], ROUNDS, f"{run}: nothing waits for a diagnosis; {next_}\n", run=run)
        if not again and not local:
            _check_comparable(memory, waits)
        engine = config.roles.diagnostician.engine
        if max_calls is not None and engine != "openai":
            raise ConfigError(f"{engine} makes no calls to cap", hint="leave --max-calls out")
        reporter = _Reporter(call, local=local)
        with repeating(0.2, reporter.waiting):
            first = _first_again(memory, config, round) if again else None
            if typed:
                _keep(memory, typed)
            if first is not None:
                _supersede(call, memory, config, first)
            if every:
                Rounds(memory).observe_all_failed()
            reporter.at = "comparing the responses" if local else "reading the failures"
            diagnostician = _diagnostician(memory, config, max_calls)
            found = cost(memory, config, all_failed=every)
            reporter.say(_announced(run, found))
            rows = _diagnose(reporter, memory, config, diagnostician) if found.rounds else []
        text, notes = None, []
        history = History(memory.log.database, run)
        if rows and (rates := pass_rates(history)) is not None:
            undiagnosed = sum(row["undiagnosed"] for row in rows)
            shown = _evidence(history, memory, rates.causes[:LARGEST])
            text = answer(run, rates, shown, contradicted_causes(history), undiagnosed)
            asked = [one.event for one in history.events(DuplicateJudged) if one.event.call is not None]
            same = sum(one.duplicate for one in asked)
            notes += suspicious(run, rates, len(asked), same, undiagnosed)
            if rates.left is not None:
                notes.append(f"{rates.left}; all such prompts: diagevo runs show {run}")
        as_of = memory.state
    return Result(rows, ROUNDS, text, run=run, as_of=as_of, notes=notes)


def _evidence(history: "History", memory: "Memory", causes: "Sequence[CauseRate]") -> dict[str, str]:
    """What each cause rests on in a failure that is like most of its round."""
    from diagevo.memory.events import FailureDiagnosed
    from diagevo.memory.stories.examples import typical

    found: dict[str, str] = {}
    for each in causes:
        cause = memory.state.causes[each.cause_id]
        first = history.find(FailureDiagnosed, cause.created_round, f"{cause.failure_id}.1.1")
        if first is None:
            continue
        event = first.event
        if event.pair is not None:
            same = history.events(FailureDiagnosed, round=cause.created_round)
            event = typical(one.event for one in same if one.event.cause_key == first.event.cause_key)
        shown = (
            [f"{event.step.text}: {event.step.why}"] if event.step is not None and event.step.shown else []
        )
        if marks := [mark.text for mark in event.evidence] or shown:
            found[each.cause_id] = marks[0]
    return found


def _role_settings(model: str | None, base_url: str | None, *, local: bool) -> tuple[str, ...]:
    """What --model, --base-url and --local mean, as --set would say it."""
    if local:
        if model is not None or base_url is not None:
            raise ConfigError("--local asks no model", hint="leave --model and --base-url out, or --local")
        return (f"roles.diagnostician.engine={LOCAL}",)
    given = {"model": model, "base_url": base_url}
    words = tuple(f"roles.diagnostician.{name}={value}" for name, value in given.items() if value is not None)
    return ("roles.diagnostician.engine=openai", *words) if words else ()


def _check_comparable(memory: "Memory", found: "Cost") -> None:
    """Raise NotFoundError where responses failed, and what waits has none to compare."""
    from diagevo.memory.history import History
    from diagevo.memory.read.pass_rates import pass_rates

    if not found.rounds or found.failures:
        return
    rates = pass_rates(History(memory.log.database, memory.run_id))
    if rates is not None and rates.incomparable is not None:
        raise NotFoundError(
            f"nothing to diagnose in run {memory.run_id}: {rates.incomparable}",
            hint="sample each prompt several times; where the answer is known, ask a language model:"
            " diagnose --all-failed --model M --base-url URL;"
            f" to list the prompts that failed: diagevo runs show {memory.run_id}",
        )


def _check_answers(memory: "Memory", since: int | None) -> None:
    """Raise ConfigError where --all-failed has nothing to ask about."""
    from diagevo.ingest.rounds import Rounds, answered

    groups = Rounds(memory).all_failed(since=since)
    if not groups:
        raise ConfigError(
            f"run {memory.run_id} has no {'' if since else 'waiting '}group in which every response failed",
            hint="to include diagnosed rounds, add --again; otherwise leave out --all-failed",
        )
    if not any(map(answered, groups)):
        raise ConfigError(
            f"no answer is known for the {count(len(groups), 'group')} in which every response failed,"
            " so there is nothing to compare with",
            hint="ingest files that have it into another run: --map answer=FIELD --run NAME",
        )


def _keep(memory: "Memory", typed: tuple[str, ...]) -> None:
    """Record them, so that the same command without them goes on."""
    from diagevo.config.sources import from_settings

    stored: Mapping[str, Any] = memory.state.config or {}
    memory.reconfigure(from_settings(typed).nested(stored))


def _first_again(memory: "Memory", config: "Config", first: int | None) -> int | None:
    """The round from which on all are diagnosed again; None where there is none. Raises where the
    diagnostician cannot be read, before anything is recorded."""
    from diagevo.ingest.local import LocalCauses
    from diagevo.ingest.rounds import Rounds

    counted = [began.round for began in memory.state.began]
    first = first or next(iter(counted), None)
    if first in counted and config.roles.diagnostician.engine == "openai":
        probed = _diagnostician(memory, config, None)
        assert not isinstance(probed, LocalCauses)
        Rounds(memory).probe(first, probed)
    return first


def _supersede(call: CommandContext, memory: "Memory", config: "Config", first: int) -> None:
    """Let rounds from `first` on be diagnosed again."""
    from diagevo.ingest.rounds import Rounds

    role = config.roles.diagnostician
    by = role.model if role.engine == "openai" else role.engine
    event = Rounds(memory).supersede(first, f"diagnosed again by {by}")
    which = f"round {first} is" if event.last == first else f"rounds {first} to {event.last} are"
    back = f"F = {event.failures}, {count(len(event.causes), 'cause')}"
    render.say(call, f"{memory.run_id}: {which} superseded, back to {back}; asking again")


def _announced(run: str, found: "Cost") -> str:
    if not found.rounds:
        return f"{run}: nothing waits for a diagnosis"
    text = f"{run}: {count(found.failures, 'failure')} in {count(found.rounds, 'round')}"
    if found.against_answers:
        text += f" ({found.against_answers:,} where no response passed, against the known answer)"
    if not found.model:
        return f"{text}, by {found.diagnostician}: no language model is asked"
    return (
        f"{text}, asked of {found.model}: up to about {count(found.calls, 'call')},"
        f" about {found.input_tokens:,} tokens to read for the extractions"
    )


AFTER = {"extraction": "settlement", "settlement": "consolidation", "consolidation": "the commit"}
"""What follows a part of a diagnosis that is done."""


class _Reporter:
    """Prints how far a diagnosis is: with `--verbose` at once, else whenever SILENCE has passed."""

    def __init__(self, call: CommandContext, *, local: bool) -> None:
        self.call = call
        self._after = AFTER | ({"settlement": "the commit"} if local else {})
        self.at = "reading the failures"
        """What is under way."""
        self._began = self._spoke = time.monotonic()

    def say(self, text: str) -> None:
        self._spoke = time.monotonic()
        render.say(self.call, text)

    def progress(self, done: "Progress") -> None:
        self.at = f"{done.phase}: {done.done} of {done.total}"
        if self.call.verbose or self._silent:
            self.say(self.at)
        if done.done == done.total:
            self.at = f"{done.phase} done, {self._after[done.phase]} under way"

    @property
    def _silent(self) -> bool:
        return time.monotonic() - self._spoke >= render.SILENCE

    def waiting(self) -> None:
        if self._silent:
            self.say(f"{self.at}, {time.monotonic() - self._began:.0f} s so far")


def _diagnose(
    reporter: _Reporter, memory: "Memory", config: "Config", diagnostician: "Diagnostician | LocalCauses"
) -> list[dict[str, Any]]:
    from diagevo.diagnosis.embedder import embedder_for, identity
    from diagevo.ingest.rounds import Rounds
    from diagevo.memory.history import History

    embedder = embedder_for(config.roles.embedder)
    memory.check_embedder(identity(embedder))
    rows: list[dict[str, Any]] = []
    stop, evaluation = StopFlag(), History(memory.log.database, memory.run_id).evaluation

    def committed(number: int, event: "RoundCommitted") -> None:
        reporter.at = "reading the next round"
        figures = structs.asdict(event)
        del figures["state_hash"]
        rows.append({"round": number, **figures})
        if not evaluation:  # which has one round and no curriculum: its answer follows
            figures_ = f"F = {event.failures}, {event.active} Active, {count(event.nodes, 'node')}"
            reporter.say(f"round {number}: {figures_}")

    again = f"continue with: diagevo diagnose --run {memory.run_id}"
    with stopped_by_signals(stop):
        try:
            Rounds(memory).diagnose(
                diagnostician,
                embedder,
                config.diagnosis,
                config.memory,
                reporter.progress,
                should_stop=lambda: bool(stop),
                on_commit=committed,
            )
        except StoppedSafely as stopped:
            raise StoppedSafely(stopped.message, hint=again) from stopped
        except ServiceError as error:
            raise ServiceError(
                error.message, hint=f"{error.hint.rstrip('.')}; {again}" if error.hint else again
            ) from error
        finally:
            _note_stored(reporter.call, getattr(diagnostician, "usage", {}))
    return rows


def _note_stored(call: CommandContext, usage: "Mapping[str, Usage]") -> None:
    stored = sum(kind.stored for kind in usage.values())
    if stored:
        calls = sum(kind.calls for kind in usage.values())
        render.say(call, f"{count(stored, 'reply', 'replies')} came from the store, {calls} from the service")


def _diagnostician(
    memory: "Memory", config: "Config", max_calls: int | None
) -> "Diagnostician | LocalCauses":
    """The configured one; replies are kept, so that nothing is asked twice."""
    engine = config.roles.diagnostician.engine
    if engine == LOCAL:
        from diagevo.ingest.local import LocalCauses
        from diagevo.ingest.rounds import LAST, Rounds

        return LocalCauses(memory, (group for _, group in Rounds(memory).groups(1, LAST)))
    if engine != "openai":
        return diagnostician_of(config, memory.artifacts)
    from diagevo.diagnosis.chat import budget_of, spent

    settings = config.diagnosis
    if max_calls is not None:
        calls, _ = spent(memory.log, memory.run_id)
        most = min(calls + max_calls, settings.max_calls or calls + max_calls)
        settings = settings.model_copy(update={"max_calls": most})
    budget = budget_of(memory.log, memory.run_id, settings)
    return diagnostician_of(config, memory.artifacts, settings=settings, budget=budget)
