"""Whatever a writer takes, every reader reads: the fold, verify, an export and an import. All else is refused, and
nothing of it is written."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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
)
from diagevo.memory.events.records import GENESIS, Chain, Recorded, UnstorableText, pending, storable_event
from diagevo.memory.history import History
from diagevo.memory.log import log as log_module
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.log.database import Database
from diagevo.memory.memory import Memory
from diagevo.memory.read.views import ABOUT
from diagevo.memory.state import projection
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.audit.played import Player
from tests.memory.play import candidate, failure, migrated, new_cause, settle_new

EDGES = sorted({sign * 2**bits + off for bits in (0, 31, 53, 63, 64) for off in (-1, 0, 1) for sign in (1, -1)})
TEXTS = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["\0", "\\u0000", "\\\0", "\ud800", "\udfff\ud800", "\u2028", "c1", "n1", "r1.q0", "1/2", "a\nb", "-:", ""]
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


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        position=1, run_id="a", sequence=1, recorded_at=log_module.now(), previous_hash=GENESIS, hash="", **own
    )
    row = msgspec.structs.replace(row, hash=row.computed_hash)
    chain = Chain()
    chain.follows(row)
    assert pending("a", round, chain.read(row)) == envelope


def _group(draw: Any, player: Player) -> GroupIngested:
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4))
    missed = [sample for sample, reward in enumerate(rewards) if reward < 0.5]
    passed = [player.text(f"right {sample}") for sample, reward in enumerate(rewards) if reward >= 0.5]
    return GroupIngested(
        step=draw(st.sampled_from([0, 1]) | WHOLE),
        group=draw(st.sampled_from([0, 1]) | WHOLE),
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


def _step(memory: Memory, draw: Any) -> None:
    """The next verb of a round, its texts, numbers and ids drawn: some fit, most are at an edge."""
    player, opened = Player(memory), memory.state.open
    at = opened.number if opened else memory.state.round + 1
    question = draw(st.sampled_from([f"r{at}.q0", f"r{at}.q1"]) | TEXTS)
    failed = draw(st.sampled_from([f"{question}.a0", f"{question}.a1"]) | TEXTS)
    texts = {"trajectory": player.text(draw(TEXTS)), "reference": player.text("b")}
    verbs: dict[str, Callable[[], object]] = {
        "open": lambda: memory.open_round(draw(st.just(at) | WHOLE), seed=draw(st.none() | WHOLE)),
        "score": lambda: memory.score(
            [candidate(question, question=player.text(draw(TEXTS)), truth=draw(st.none() | TEXTS))]
        ),
        "observe": lambda: memory.observe([failure(failed, step=draw(WHOLE), **texts)]),
        "diagnose": lambda: memory.diagnosed([new_cause(failed, draw(TEXTS))]),
        "settle": lambda: settle_new(memory, failed, label=draw(TEXTS)),
        "start": lambda: memory.start_stage(draw(st.just("solver") | TEXTS)),
        "complete": lambda: memory.complete_stage(
            draw(st.just("solver") | TEXTS),
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
        "ingested": lambda: memory.ingested([_group(draw, player)], draw(st.just(at) | WHOLE)),
    }
    verbs[draw(st.sampled_from(sorted(verbs)))]()


def _readable(memory: Memory, folder: Path) -> None:
    """Every reader takes what stands in the log, and finds the state that the writer has."""
    log, run = memory.log, memory.run_id
    replayed = projection.load(log, run, snapshots=False)
    assert replayed.hash() == memory.state.hash()
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


def _played(store: Store, data: st.DataObject, clocks: list[datetime], monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, *clocks)
    with store.open() as memory, TemporaryDirectory() as folder:
        memory.open_round(1)
        for _ in range(data.draw(st.integers(1, 12))):
            before = memory.log.head("a")
            try:
                _step(memory, data.draw)
            except DiagEvoError:
                assert memory.log.head("a") == before
        _readable(memory, Path(folder))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), clocks=st.lists(CLOCKS, min_size=1, max_size=6))
def test_a_run_that_can_be_written_can_be_read(
    data: st.DataObject, clocks: list[datetime], sqlite_stores: SQLiteStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory() as folder:
        _played(sqlite_stores.new(Path(folder)), data, clocks, monkeypatch)
