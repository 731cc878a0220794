"""Whatever a writer takes, every reader reads: the fold, verify, an export and an import. All else is
refused, and nothing of it is written."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from diagevo.errors import ConfigError, DiagEvoError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import (
    EVENT_TYPES,
    CheckpointEvaluated,
    Event,
    FailedRollout,
    GroupIngested,
    NodeCreated,
    PhaseMeasured,
    StepTrained,
    records,
)
from diagevo.memory.events.records import (
    GENESIS,
    Chain,
    Recorded,
    UnstorableText,
    pending,
    storable_event,
)
from diagevo.memory.history import History
from diagevo.memory.log import artifacts
from diagevo.memory.log import log as log_module
from diagevo.memory.log.database import Database
from diagevo.memory.memory import Memory
from diagevo.memory.read.views import ABOUT
from diagevo.memory.state import projection
from diagevo.memory.transfer import bundle_file
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from tests.contracts.databases import Store
from tests.memory.audit.played import Player
from tests.memory.play import candidate, failure, migrated, new_cause, settle_new

EDGES = sorted(
    {sign * 2**bits + off for bits in (0, 31, 53, 63, 64) for off in (-1, 0, 1) for sign in (1, -1)}
)
TEXTS = st.text(st.characters(), max_size=8) | st.sampled_from(
    [
        "\0",
        "\\u0000",
        "\\\0",
        "\ud800",
        "\udfff\ud800",
        "\u2028",
        "c1",
        "n1",
        "r1.q0",
        "1/2",
        "a\nb",
        "-:",
        "",
    ]
)
WHOLE = st.sampled_from(EDGES) | st.integers(0, 5)
NUMBERS = st.floats() | st.sampled_from([-0.0, 1e308, 5e-324, 1e12]) | WHOLE
CLOCKS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Of a field of an event, within its bounds and at their edges; mostly of its type."""
    match kind:
        case msgspec.inspect.Metadata(type=inner):
            return values(inner)
        case msgspec.inspect.StrType(pattern=pattern) if pattern and "0-9a-f" in pattern:
            return st.just("0f" * 32)
        case msgspec.inspect.StrType(pattern=str()):
            return st.sampled_from(["1/2", "0", "7/3", "-1"])
        case msgspec.inspect.StrType(min_length=64):
            return st.sampled_from(["0f" * 32, "0F" * 32, "é" * 64])
        case msgspec.inspect.StrType():
            return TEXTS
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType(ge=low, le=high):
            return st.sampled_from([low or 0, (low or 0) + 1, high or 2**63 - 1]) | WHOLE
        case msgspec.inspect.FloatType(ge=None, le=None):
            return NUMBERS
        case msgspec.inspect.FloatType(ge=low, le=high):
            return st.floats(low, high)
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType(values=known):
            return st.sampled_from(known)
        case msgspec.inspect.UnionType(types=kinds):
            return st.one_of(*map(values, kinds))
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=2)
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=2).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*map(values, items))
        case msgspec.inspect.DictType(value_type=of):
            return st.dictionaries(TEXTS, values(of), max_size=2)
        case msgspec.inspect.AnyType():
            return JSON
        case msgspec.inspect.StructType(cls=cls):
            return events(cls)
        case _:
            raise NotImplementedError(kind)


def events(cls: type[Any]) -> st.SearchStrategy[Any]:
    shape = msgspec.inspect.type_info(cls)
    assert isinstance(shape, msgspec.inspect.StructType)
    if cls.__name__ == "Artifact":
        return st.builds(cls, path=st.just("rounds/1"), sha256=st.just("0" * 64))
    return st.builds(cls, **{field.name: values(field.type) for field in shape.fields})


ANY = st.one_of(*map(events, EVENT_TYPES.values()))


class Clock(datetime):
    """What a machine takes for now; the last one stays."""

    shown: list[datetime]

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.shown.pop(0) if len(cls.shown) > 1 else cls.shown[0]


def set_clock(monkeypatch: pytest.MonkeyPatch, *shown: datetime) -> None:
    Clock.shown = list(shown)
    monkeypatch.setattr(log_module, "datetime", Clock)


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event=ANY, round=WHOLE, clock=CLOCKS)
@example(event=NodeCreated("n1", "l"), round=2**31, clock=datetime(2026, 1, 1, tzinfo=UTC))
@example(event=NodeCreated("n1", "l"), round=-1, clock=datetime(2026, 1, 1, tzinfo=UTC))
@example(event=NodeCreated("n1", "l"), round=1, clock=datetime(1970, 1, 1, tzinfo=UTC))
def test_an_event_that_can_be_written_can_be_read(
    event: Event, round: int, clock: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        try:
            envelope = pending("a", round, event)
        except UnstorableText:
            envelope = pending("a", round, storable_event(event))
    except ConfigError:
        return
    set_clock(monkeypatch, clock)
    own = {**msgspec.structs.asdict(envelope), "causation_id": None}
    row = Recorded(
        position=1,
        run_id="a",
        sequence=1,
        recorded_at=log_module.now(),
        previous_hash=GENESIS,
        hash="",
        **own,
    )
    row = msgspec.structs.replace(row, hash=row.computed_hash)
    chain = Chain()
    chain.follows(row)
    assert pending("a", round, chain.read(row)) == envelope


def mostly(fit: str) -> st.SearchStrategy[str]:
    return st.sampled_from([fit] * 6 + ["", "\0", "c1", "r1.q9"])


def _group(draw: Any, player: Player) -> GroupIngested:
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4))
    missed = [sample for sample, reward in enumerate(rewards) if reward < 0.5]
    passed = [player.text(f"right {sample}") for sample, reward in enumerate(rewards) if reward >= 0.5]
    return GroupIngested(
        step=draw(WHOLE),
        group=0,
        question=player.text(draw(TEXTS)),
        answer=draw(st.none() | TEXTS),
        rewards=rewards,
        passes=len(passed),
        reference=passed[0] if passed and missed else None,
        failed=[FailedRollout(sample, player.text(f"wrong {sample}")) for sample in missed],
        source=draw(TEXTS),
        passed=passed if missed else passed[:1],
        tags=draw(st.lists(TEXTS, max_size=2)),
    )


ROUND = ("score", "start", "observe", "diagnose", "complete", "settle", "commit")


def _step(memory: Memory, draw: Any, verb: str | None = None) -> None:
    """A verb, its texts, numbers and ids drawn: most ids fit, most texts and numbers are at an edge."""
    player, opened = Player(memory), memory.state.open
    at = opened.number if opened else memory.state.round + 1
    question = draw(mostly(f"r{at}.q0"))
    failed = draw(mostly(f"{question}.a0"))
    player.text("reference")
    texts = {"trajectory": player.text(draw(TEXTS)), "reference": player.text("b")}
    verbs: dict[str, Callable[[], object]] = {
        "open": lambda: memory.open_round(draw(st.just(at) | WHOLE), seed=draw(st.none() | WHOLE)),
        "score": lambda: memory.score(
            [candidate(question, question=player.text(draw(TEXTS)), truth=draw(st.none() | TEXTS))]
        ),
        "observe": lambda: memory.observe([replace(failure(failed), step=draw(WHOLE), **texts)]),
        "diagnose": lambda: memory.diagnosed([new_cause(failed, draw(TEXTS))]),
        "settle": lambda: settle_new(memory, failed, label=draw(TEXTS)),
        "start": lambda: memory.start_stage(draw(mostly("solver"))),
        "complete": lambda: memory.complete_stage(
            draw(mostly("solver")),
            seconds=draw(NUMBERS),
            parts={draw(TEXTS): draw(NUMBERS)},
            reward=draw(NUMBERS),
        ),
        "abandon": lambda: memory.abandon_stage(
            "solver", after_step=draw(WHOLE), seconds=draw(NUMBERS), reason=draw(TEXTS)
        ),
        "step": lambda: memory.step_trained(draw(events(StepTrained))),
        "measured": lambda: memory.phase_measured(draw(events(PhaseMeasured))),
        "commit": memory.commit,
        "rename": lambda: memory.rename("c1", draw(TEXTS)),
        "supersede": lambda: memory.supersede(draw(st.just(1) | WHOLE), draw(TEXTS)),
        "reconfigure": lambda: memory.reconfigure({**memory.config, "note": draw(JSON)}),
        "evaluated": lambda: memory.evaluated(draw(events(CheckpointEvaluated)), draw(st.just(0) | WHOLE)),
        "ingested": lambda: memory.ingested([_group(draw, player)], draw(st.just(at + 5) | WHOLE)),
    }
    verbs[verb or draw(st.sampled_from(sorted(verbs)))]()


def _readable(memory: Memory, folder: Path) -> None:
    """Every reader takes what stands in the log, and finds the state that the writer has."""
    log, run = memory.log, memory.run_id
    replayed = projection.load(log, run, snapshots=False)
    assert replayed == memory.state
    assert verify(log, run, memory.folder, deep=True).faults == []
    with memory.database.read() as connection:
        for view in ABOUT:
            connection.exec_driver_sql(f"SELECT * FROM {view}").fetchall()
    history = History(memory.database, run, memory.root)
    bundle = folder / "bundle"
    written = export_bundle(history, history.as_of(None), bundle)
    other = Database(migrated(f"sqlite:///{folder / 'other.db'}"))
    try:
        assert import_bundle(bundle, other, root=folder / "other").hash == written.head == log.head(run).hash
    finally:
        other.close()


def _played(store: Store, data: st.DataObject) -> None:
    with store.open() as memory, TemporaryDirectory() as folder:
        memory.open_round(1)
        more = st.lists(st.sampled_from([*ROUND, None]), max_size=3)
        for verb in [*data.draw(more), *ROUND, *data.draw(more), "open", *ROUND, *data.draw(more)]:
            before = memory.log.head("a")
            try:
                _step(memory, data.draw, verb)
            except DiagEvoError:
                assert memory.log.head("a") == before
        _readable(memory, Path(folder))


def test_a_clock_that_was_wrong_is_named_by_verify_and_is_no_fault(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, off = datetime(2026, 11, 26, 9, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    with store.open() as memory:
        set_clock(monkeypatch, right)
        memory.open_round(1)
        memory.start_stage("votes")
        set_clock(monkeypatch, right - timedelta(seconds=59))  # another machine's
        memory.complete_stage("votes")
        assert verify(memory.log, "a", memory.folder).notes == []
        set_clock(monkeypatch, off)
        memory.start_stage("solver")
        report = verify(memory.log, "a", memory.folder)
        said = "a clock was wrong: the time of #5 is 1970-01-01 00:00:07 UTC"
        assert (report.faults, report.notes[0]) == ([], f"{said}; order is by position")
        set_clock(monkeypatch, right)
        memory.complete_stage("solver")
        set_clock(monkeypatch, off)
        memory.commit()
        _readable(memory, tmp_path)
        [note] = verify(memory.log, "a", memory.folder).notes
        assert note == f"{said}, and of 1 later event; order is by position"


@pytest.mark.slow
@pytest.mark.parametrize("stores", ["sqlite_stores", "postgres_stores"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), clocks=st.lists(CLOCKS, min_size=1, max_size=6))
def test_a_run_that_can_be_written_can_be_read(
    data: st.DataObject,
    clocks: list[datetime],
    stores: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TemporaryDirectory() as folder:
        set_clock(monkeypatch, *clocks)
        _played(request.getfixturevalue(stores).new(Path(folder)), data)


def test_the_longest_text_and_event_go_through_a_bundle_and_longer_ones_are_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played with a mebibyte in place of 64."""
    longest = 2**20 - (records.LONGEST - records.LONGEST_TEXT)
    for module in (records, artifacts):
        monkeypatch.setattr(module, "LONGEST_TEXT", longest)
    monkeypatch.setattr(bundle_file, "LONGEST", 2**20)
    with store.open() as memory:
        memory.open_round(1)
        assert memory.config == {}
        [first, _] = memory.log.read("a")
        room = longest - len(first.payload) - len('"note":""')
        memory.reconfigure({"note": "a" * (room - 2) + "é"})
        with pytest.raises(ConfigError, match="RunConfigured cannot be recorded: it has more than 983,040"):
            memory.reconfigure({"note": "a" * (room - 1) + "é"})
        question = memory.artifacts.put("é" * (longest // 2))
        with pytest.raises(ConfigError, match="a text of 983,041 bytes cannot be kept: éé"):
            memory.artifacts.put("é" * (longest // 2) + "a")
        memory.artifacts.put("reference")
        memory.score([candidate("r1.q0", question=question)])
        _readable(memory, tmp_path)
