"""Diagnoses an ingested run: what waits, what that costs, and committing its rounds, or diagnosing them
again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.config.models import Config
from diagevo.config.sources import from_settings
from diagevo.diagnosis.cause_extraction import Progress
from diagevo.errors import ConfigError, NotFoundError, ServiceError, StoppedSafely
from diagevo.ingest.cost import Cost, cost
from diagevo.ingest.local import LocalCauses
from diagevo.ingest.rollout_steps import LAST
from diagevo.ingest.rounds import Rounds, answered
from diagevo.memory.events import FailureDiagnosed, RoundCommitted, RoundsSuperseded
from diagevo.memory.history import History
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.memory import Memory
from diagevo.memory.read.pass_rates import CauseRate, pass_rates
from diagevo.memory.stories.examples import typical
from diagevo.progress import StopFlag
from diagevo.text.numbers import count

if TYPE_CHECKING:
    from diagevo.diagnosis.chat import Usage
    from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician

LOCAL = "local"


class DiagnosisObserver:
    """Receives the progress of a diagnosis. This one ignores it."""

    def superseded(self, event: RoundsSuperseded) -> None:
        """Earlier diagnoses no longer count; the same groups are diagnosed again."""

    def begins(self, found: Cost) -> None:
        """What is waiting, before the first request."""

    def progress(self, done: Progress) -> None:
        """The progress of a phase of a round's diagnosis."""

    def committed(self, number: int, event: RoundCommitted) -> None:
        """A round is committed."""

    def ended(self, usage: Mapping[str, "Usage"]) -> None:
        """Usage of the language model, by kind of request; also called if the diagnosis was stopped."""


def estimate(
    memory: Memory, config: Config, *, all_failed: bool = False, again: bool = False, first: int | None = None
) -> Cost:
    """What `diagnose` would cost with these arguments; raises the same errors."""
    since = (first or 1) if again else None
    return cost(memory, config, all_failed=_checked(memory, config, all_failed, since), again=since)


def diagnose(
    memory: Memory,
    config: Config,
    *,
    all_failed: bool = False,
    again: bool = False,
    first: int | None = None,
    max_calls: int | None = None,
    keep: tuple[str, ...] = (),
    observer: DiagnosisObserver | None = None,
    stop: StopFlag | None = None,
) -> dict[int, RoundCommitted] | None:
    """Diagnose the ingested rounds that wait, and commit each. Called again, it continues where it stopped.

    Args:
        memory: of an ingested run.
        config: names the diagnostician: a served model, or `local`, by arithmetic and by contrast.
        all_failed: whether groups without a response that passed are diagnosed too, against their answer.
        again: whether diagnosed rounds are superseded and diagnosed again.
        first: the first of these; None is the run's first.
        max_calls: of a language model, before StoppedSafely is raised.
        keep: settings (KEY.PATH=VALUE) to be recorded, so that a later diagnosis has them.
        observer: is called as the diagnosis proceeds.
        stop: ends it at a safe point, with StoppedSafely.

    Returns:
        The commits by round, or None if nothing is waiting.

    Raises:
        ConfigError: the run was not ingested, or the configuration names no diagnostician that can diagnose
        it.
        NotFoundError: no group that waits has both responses that failed and one to compare with.
        ServiceError: the language model does not answer, or its replies are unreadable.
        StoppedSafely: the cap was reached, or `stop` was set.
    """
    every = _checked(memory, config, all_failed, (first or 1) if again else None)
    local = config.roles.diagnostician.engine == LOCAL
    if not again:
        waits = cost(memory, config, all_failed=every, quick=True)
        if not waits.rounds:
            return None
        if not local:
            _check_comparable(memory, waits)
    if max_calls is not None and local:
        raise ConfigError(f"{LOCAL} makes no calls to cap", hint="leave --max-calls out")
    observer, stop = observer or DiagnosisObserver(), stop or StopFlag()
    rounds = Rounds(memory)
    superseded = _first_again(rounds, config, first) if again else None
    if keep:
        memory.reconfigure(from_settings(keep).nested(memory.state.config or {}))
    if superseded is not None:
        role = config.roles.diagnostician
        by = role.engine if local else role.model
        observer.superseded(rounds.supersede(superseded, f"diagnosed again by {by}"))
    if every:
        rounds.observe_all_failed()
    diagnostician = diagnostician_for(memory, config, max_calls)
    found = cost(memory, config, all_failed=every)
    observer.begins(found)
    return _diagnosed(rounds, config, diagnostician, observer, stop) if found.rounds else {}


def role_settings(model: str | None, base_url: str | None, *, local: bool) -> tuple[str, ...]:
    """--model, --base-url and --local as values of --set."""
    if local:
        if model is not None or base_url is not None:
            raise ConfigError("--local asks no model", hint="leave --model and --base-url out, or --local")
        return ("roles.diagnostician.engine=local",)
    given = {"model": model, "base_url": base_url}
    words = tuple(f"roles.diagnostician.{name}={value}" for name, value in given.items() if value is not None)
    return ("roles.diagnostician.engine=openai", *words) if words else ()


def diagnostician_for(
    memory: Memory, config: Config, max_calls: int | None = None
) -> "OpenAIDiagnostician | LocalCauses":
    """The configured diagnostician, for the rounds of an ingested run; a language model gets what is
    left of its budget and of `max_calls`."""
    if config.roles.diagnostician.engine == LOCAL:
        return LocalCauses(memory, (group for _, group in Rounds(memory).groups(1, LAST)))
    from diagevo.diagnosis.chat import budget_of, spent

    settings = config.diagnosis
    if max_calls is not None:
        calls, _ = spent(memory.log, memory.run_id)
        most = min(calls + max_calls, settings.max_calls or calls + max_calls)
        settings = settings.model_copy(update={"max_calls": most})
    budget = budget_of(memory.log, memory.run_id, settings)
    return served(config, memory.artifacts, settings=settings, budget=budget)


def evidence(history: History, memory: Memory, causes: Sequence[CauseRate]) -> dict[str, str]:
    """The evidence for each cause in a typical failure of its round."""
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
        step = event.step
        shown = [f"{step.text}: {step.why}"] if step is not None and step.shown else []
        if marks := [mark.text for mark in event.evidence] or shown:
            found[each.cause_id] = marks[0]
    return found


def check_rules(config: Config, run: str) -> None:
    """For an ingested run: raise ConfigError if a world's rules are to name its causes. It was not played
    there, and the rules call every foreign failure a slip."""
    engine = config.roles.diagnostician.engine
    if engine.startswith("rules:"):
        raise ConfigError(
            f"{engine} knows only the mistakes of its own world, and run {run} was not played in it",
            hint=f"name a served model, once: diagevo diagnose --run {run} --model M --base-url URL;"
            " or find causes without a model: --local",
        )


def served(config: Config, artifacts: Artifacts, **given: Any) -> "OpenAIDiagnostician":
    """The configured language model; `artifacts` stores its replies, so that nothing is asked twice."""
    from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician

    settings = given.pop("settings", config.diagnosis)
    own = config.prompts is not None and config.prompts != "builtin:arithmetic"
    prompts = Path(str(config.prompts)).expanduser() if own else None
    return OpenAIDiagnostician(config.roles.diagnostician, settings, artifacts, prompts, **given)


def _checked(memory: Memory, config: Config, all_failed: bool, since: int | None) -> bool:
    """Whether groups in which every response failed are diagnosed. Raises if the run cannot be diagnosed."""
    run = memory.run_id
    if memory.played_by_train:
        raise ConfigError(
            f"run {run} is played by diagevo train: its rounds are its own",
            hint=f"start again from one of its rounds: diagevo runs fork {run}@N",
        )
    check_rules(config, run)
    local = config.roles.diagnostician.engine == LOCAL
    if all_failed and not local:
        _check_answers(memory, since)
    return all_failed or local or config.ingest.all_failed


def _check_answers(memory: Memory, since: int | None) -> None:
    """Raise ConfigError if --all-failed has nothing to ask about."""
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


def _check_comparable(memory: Memory, found: Cost) -> None:
    """Raise NotFoundError if responses failed but none of the waiting ones can be compared."""
    if found.failures:
        return
    rates = pass_rates(History(memory.log.database, memory.run_id))
    if rates is not None and rates.incomparable is not None:
        raise NotFoundError(
            f"nothing to diagnose in run {memory.run_id}: {rates.incomparable}",
            hint="sample each prompt several times; where the answer is known, ask a language model:"
            " diagnose --all-failed --model M --base-url URL;"
            f" to list the prompts that failed: diagevo runs show {memory.run_id}",
        )


def _first_again(rounds: Rounds, config: Config, first: int | None) -> int | None:
    """The round from which all are diagnosed again; None if there is none. Raises if the
    diagnostician's replies cannot be read, before anything is recorded."""
    memory = rounds.memory
    counted = [began.round for began in memory.state.began]
    first = first or next(iter(counted), None)
    if first in counted and config.roles.diagnostician.engine != LOCAL:
        diagnostician = diagnostician_for(memory, config)
        assert not isinstance(diagnostician, LocalCauses)
        rounds.probe(first, diagnostician)
    return first


def _diagnosed(
    rounds: Rounds,
    config: Config,
    diagnostician: "OpenAIDiagnostician | LocalCauses",
    observer: DiagnosisObserver,
    stop: StopFlag,
) -> dict[int, RoundCommitted]:
    from diagevo.diagnosis.embedder import embedder_for, identity

    embedder = embedder_for(config.roles.embedder)
    rounds.memory.check_embedder(identity(embedder))
    done: dict[int, RoundCommitted] = {}

    def committed(number: int, event: RoundCommitted) -> None:
        done[number] = event
        observer.committed(number, event)

    go_on = f"continue with: diagevo diagnose --run {rounds.memory.run_id}"
    try:
        rounds.diagnose(
            diagnostician,
            embedder,
            config.diagnosis,
            config.memory,
            observer.progress,
            should_stop=lambda: bool(stop),
            on_commit=committed,
        )
    except StoppedSafely as stopped:
        raise StoppedSafely(stopped.message, hint=go_on) from stopped
    except ServiceError as error:
        hint = f"{error.hint.rstrip('.')}; {go_on}" if error.hint else go_on
        raise ServiceError(error.message, hint=hint) from error
    finally:
        observer.ended(getattr(diagnostician, "usage", {}))
    return done
