"""The runs of a database, each in one line."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import select

from diagevo.memory.events import Origin, PhaseMeasured, RunConfigured, StageStarted
from diagevo.memory.history import History, expect
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.tables import EVENT, RUN
from diagevo.memory.log.writer_lock import writer
from diagevo.memory.read.pass_rates import PassRates, pass_rates, steps
from diagevo.memory.read.round_figures import MEAN, rounds, validations
from diagevo.progress import RoundFigures
from diagevo.text.redaction import redacted


@dataclass(frozen=True, slots=True)
class RunLine:
    """The status of a run."""

    run_id: str
    rounds: int
    """Number of committed rounds that count."""
    last_round: int
    """The last of them; 0 if there is none."""
    open_round: int | None
    stage: str | None
    """The stage under way in the open round."""
    events: int
    failures: int | None
    z: Fraction | None
    epsilon_next: Fraction | None
    active: int
    mastered: int
    nodes: int
    profile: str | None
    world: str | None
    """The world of its questions; null for open mathematics and for ingested prompts."""
    ingested: str | None
    """For an ingested run: the source of the last rollouts."""
    evaluation: bool
    """Whether these all belong to one step, without a curriculum."""
    origin: Origin | None
    imported: str | None
    """For an imported run: the head of the bundle."""
    began: str
    last_event: str
    position: int
    """The time of its last event."""
    mean_at_k: float | None
    greedy: float | None
    labels_true: float | None
    reward: float | None
    """The solver's scores and measurements in the last committed round."""
    pass_rate: float | None
    """The pass rate of all ingested rollouts that count."""
    writer: str | None
    """The process that holds the run's lock, in its own words."""


def list_runs(database: Database, root: Path | None = None) -> list[RunLine]:
    """Every run, most recently written first."""
    with database.view():
        lines = [run_line(History(database, run_id, root)) for run_id in Log(database).runs()]
    return sorted(lines, key=lambda line: -line.position)


def run_line(history: History) -> RunLine:
    """A run as in `runs list`."""
    database, run_id, log = history.database, history.run_id, history.log
    last = next(log.read(run_id, newest_first=True, limit=1))
    counted = history.commits
    commit = counted[-1] if counted else None
    gone = history.superseded()
    opened = next(log.read(run_id, types=["RoundOpened"], newest_first=True, limit=1), None)
    event = None if commit is None else commit.event
    running = (
        opened is not None
        and opened.round not in gone
        and (commit is None or opened.position > commit.position)
    )
    configurations = [one.event for one in history.configurations]
    configuration = configurations[-1] if configurations else None
    number = 0 if commit is None else commit.round
    found = next(iter(rounds(history, number)), None)
    measured = validations(history, number).get(number, {})
    with database.read() as connection:
        began = connection.execute(select(RUN.c.created_at).where(RUN.c.run_id == run_id)).scalar_one()
    return RunLine(
        run_id=run_id,
        rounds=len(counted),
        last_round=number,
        open_round=opened.round if opened is not None and running else None,
        stage=_stage(log, run_id, opened.round) if opened is not None and running else None,
        events=last.sequence,
        failures=None if event is None else event.failures,
        z=None if found is None else found.z,
        epsilon_next=None if found is None else found.epsilon_next,
        active=event.active if event else 0,
        mastered=event.mastered if event else 0,
        nodes=event.nodes if event else 0,
        profile=configuration.config.get("profile") if configuration else None,
        world=history.world,
        ingested=history.ingested,
        evaluation=history.evaluation,
        origin=next((one.origin for one in reversed(configurations) if one.origin is not None), None),
        imported=log.imported(run_id),
        began=began,
        last_event=last.recorded_at,
        position=last.position,
        mean_at_k=measured.get(MEAN),
        greedy=measured.get("greedy"),
        labels_true=None if found is None else found.labels_true,
        reward=None if found is None else found.solver_reward,
        pass_rate=_pass_rate(history),
        writer=writer(database, run_id, history.folder),
    )


def _pass_rate(history: History) -> float | None:
    found = steps(history)
    return sum(step.passes for step in found) / sum(step.rollouts for step in found) if found else None


def _stage(log: Log, run_id: str, round_: int) -> str | None:
    types = ["StageStarted", "StageCompleted", "StageAbandoned"]
    last = next(log.read(run_id, types=types, rounds=(round_, round_), newest_first=True, limit=1), None)
    if last is None or last.type != "StageStarted":
        return None
    return expect(last, StageStarted).stage


@dataclass(frozen=True, slots=True)
class PhaseLine:
    """A training phase's measurements of itself."""

    round: int
    measured: PhaseMeasured


@dataclass(frozen=True, slots=True)
class RunStory:
    """A run: its configuration, origin, rounds and phases of training."""

    line: RunLine
    configuration: RunConfigured
    configurations: int
    before: dict[str, float]
    """Validation before the first round."""
    rounds: tuple[RoundFigures, ...]
    """That count."""
    superseded: tuple[RoundFigures, ...]
    """Rounds that no longer count."""
    phases: tuple[PhaseLine, ...]
    """In order, including phases that stopped themselves."""
    shared: int | None
    """For a fork: the number of its first events shared with its parent, by their hashes. None if the
    parent is not here."""
    pass_rates: PassRates | None
    """Of a run of another trainer's rollouts."""


def run_story(history: History) -> RunStory:
    """One complete run, at one moment."""
    with history.database.view():
        history = History(history.database, history.run_id, history.root)  # its cache was from another moment
        configuration = history.configuration()
        lines = rounds(history, superseded=True)
        return RunStory(
            line=run_line(history),
            configuration=replace(configuration, config=redacted(configuration.config)),
            configurations=len(history.configurations),
            before=validations(history).get(0, {}),
            rounds=tuple(line for line in lines if line.superseded_by is None),
            superseded=tuple(line for line in lines if line.superseded_by is not None),
            phases=tuple(PhaseLine(r.round, r.event) for r in history.events(PhaseMeasured)),
            shared=_shared(history),
            pass_rates=pass_rates(history),
        )


def _shared(history: History) -> int | None:
    forks = [one for one in history.configurations if one.event.origin is not None]
    if not forks or (origin := forks[-1].event.origin) is None:
        return None
    last = forks[-1].sequence - 1
    ends = select(EVENT.c.run_id, EVENT.c.hash).where(EVENT.c.sequence == last)
    with history.database.read() as connection:
        found = connection.execute(ends.where(EVENT.c.run_id.in_([history.run_id, origin.run]))).all()
    hashes = {row.run_id: row.hash for row in found}
    if origin.run not in hashes:
        return None
    return last if hashes[origin.run] == hashes.get(history.run_id) else 0
