"""Whatever a caller gives a verb of `Memory` is taken, and then every reader reads it; or it is refused with
an error of ours, and nothing of it is written. The verbs are those that the class has."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import convert, structs

import diagevo
from diagevo.errors import DiagEvoError, NotFoundError, OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import (
    UNNAMED,
    Artifact,
    CandidateScored,
    CheckpointEvaluated,
    DuplicateJudged,
    Embedder,
    Event,
    FailureDiagnosed,
    FailureObserved,
    GroupIngested,
    IdGiven,
    NodeAssigned,
    NodePairJudged,
    PhaseMeasured,
    RunConfigured,
    StepTrained,
)
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.memory import Memory
from diagevo.memory.read.views import ABOUT
from diagevo.memory.stories.references import resolve
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.training_data import TrainingData
from diagevo.view.page import Site
from diagevo.view.site import View
from tests.contracts.databases import SQLiteStores
from tests.memory.play import candidate, failure, migrated, new_cause, other, settle_new
from tests.memory.play import text as put

NOT_TOLD = {"claim", "atomic", "close", "rebuild_index", "policy"}
"""Given nothing, or a state of the memory's own."""
VECTORS = {"vectors", "similar_causes", "similar_nodes", "node_pairs", "change_embedder"}
"""Given arrays and functions, of which numpy says what is wrong; they append what was given to no event but
the embedder's, which `check_embedder` and `configure` are given too."""
VERBS = {
    name: verb
    for name, verb in inspect.getmembers(Memory, inspect.isfunction)
    if not name.startswith("_") and name not in NOT_TOLD | VECTORS
}
ROUND = ("open_round", "score", "start_stage", "observe", "complete_stage", "diagnosed", "settle", "commit")

# fmt: off
JUNK: st.SearchStrategy[Any] = st.sampled_from([
    None, "", " \n", "\0", "\ud800", "3", "solv", "keep", "0f" * 32, b"x", 3.5, float("nan"), float("inf"),
    True, -1, 0, 2**31, 2**70, (), {}, {"a": 1}, {1: "a"}, {"a": {1}}, [], [{}], ["r1.q0"], object(), Memory,
])
IDS = st.sampled_from([
    "r1.q0", "r1.q0.a0", "r1.q1", "r1.q1.a0", "r2.q0", "r2.q0.a0", "c1", "n1", "n2", "gsm8k-17", "r1.q2.x",
    "r1.q007", "r9.q0", "a.b.c", "", " ", "\0", "r1.q0.a0\n", "r1.q" + "9" * 30,
    "gsm8k/17 a?#%", "../..", "问题 e\u0301 \u202e", "\n-x", "é" * 500, "é" * 501,
])
OWN = [None, "gsm8k/17 a?#%", "c1", "../..", "问题 e\u0301 \u202e", "\n-x.html", "é" * 500]
"""Ids of a trainer that all goes well with; None for ours."""
# fmt: on
WORDS = st.sampled_from(["drops a carry", "add", " ", "", "a\0b", "\ud800"])
NUMBERS = st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**63])


def _rows(of: type[Event], values: dict[str, Any]) -> Event:
    return convert(values, of)


def _group(step: int, rewards: list[float]) -> Event:
    failed = [place for place, reward in enumerate(rewards) if reward < 0.5]
    passed = [put("right") for reward in rewards if reward >= 0.5]
    missed = [{"sample": place, "trajectory": put("wrong")} for place in failed]
    reference = passed[0] if passed and failed else None
    values = {"step": step, "group": 0, "question": put("asked"), "answer": None, "rewards": rewards}
    values |= {"passes": len(passed), "reference": reference, "failed": missed, "source": "mine"}
    return _rows(GroupIngested, values | {"passed": passed if failed else passed[:1]})


STEP = {"stage": "solver", "attempt": 1, "step": 1, "groups": [], "loss": 0.5, "entropy": None}
PHASE = {
    "stage": "solver",
    "attempt": 1,
    "steps": 1,
    "first_kl": None,
    "sampling_gap": None,
    "completions": 1,
}
EVALUATED = {"role": "solver", "checkpoint": "m", "benchmark": "mine", "questions": 1, "conditions": {}}
FIT: dict[type, st.SearchStrategy[Any]] = {
    CandidateScored: st.builds(candidate, IDS, st.sampled_from([6, 9, 12, 0])),
    FailureObserved: st.builds(failure, IDS) | st.builds(lambda a, b: failure(a, question_id=b), IDS, IDS),
    FailureDiagnosed: st.builds(new_cause, IDS, WORDS),
    DuplicateJudged: st.builds(DuplicateJudged, IDS, st.just([]), st.none(), st.booleans(), st.none() | IDS),
    NodeAssigned: st.builds(NodeAssigned, IDS, st.just([]), st.none() | IDS, st.none() | WORDS),
    NodePairJudged: st.builds(
        NodePairJudged, st.tuples(IDS, IDS), st.just(0.7), st.booleans(), st.none() | WORDS
    ),
    GroupIngested: st.builds(_group, st.integers(0, 3), st.lists(st.sampled_from([0.0, 1.0]), min_size=1)),
    StepTrained: st.just(_rows(StepTrained, STEP | {"grad_norm": None, "kl": None})),
    PhaseMeasured: st.just(
        _rows(
            PhaseMeasured,
            PHASE | {"reward_lowest": 0.0, "reward_highest": 1.0, "cut_off": 0, "attention": "a"},
        )
    ),
    CheckpointEvaluated: st.just(_rows(CheckpointEvaluated, EVALUATED | {"metrics": {"mean@1": 0.5}})),
    RunConfigured: st.just(RunConfigured(config={}, models={}, embedder=UNNAMED, version="0")),
    Embedder: st.builds(Embedder, WORDS, NUMBERS, WORDS),
    Artifact: st.sampled_from([Artifact("rounds/1", "0" * 64)]),
}


@st.composite
def _changed(draw: st.DrawFn, cls: type) -> Any:
    """An event that fits, or with one field that may not."""
    event = draw(FIT[cls])
    if draw(st.integers(0, 3)) or cls is Artifact:
        return event
    return structs.replace(event, **{draw(st.sampled_from(event.__struct_fields__)): draw(JUNK)})


def _of(hint: Any) -> st.SearchStrategy[Any]:
    """What fits an annotation, by its type."""
    origin = get_origin(hint)
    if hint in FIT:
        return _changed(hint)
    if origin in (Union, UnionType):
        return st.one_of(*map(_of, get_args(hint)))
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    if origin is Sequence:
        return st.lists(_of(get_args(hint)[0]), max_size=2)
    if origin is Mapping:
        return st.dictionaries(WORDS, NUMBERS | JUNK, max_size=1)
    known = {
        int: NUMBERS,
        float: NUMBERS | st.just(0.5),
        str: IDS | WORDS,
        bool: st.booleans(),
        NoneType: st.none(),
    }
    return known[hint]


def _given(draw: Any, name: str, memory: Memory) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a verb: mostly of its types, and now and then too many, too few or anything."""
    hints = get_type_hints(VERBS[name])
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in list(inspect.signature(VERBS[name]).parameters.values())[1:]:
        if parameter.default is not parameter.empty and draw(st.booleans()):
            continue
        value = draw(JUNK if draw(st.integers(0, 9)) == 0 else _of(hints[parameter.name]))
        if parameter.kind is parameter.KEYWORD_ONLY or kwargs or parameter.default is not parameter.empty:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    if draw(st.integers(0, 19)) == 0:
        args = args[:-1] if draw(st.booleans()) else [*args, draw(JUNK)]
    return args, kwargs


def _natural(memory: Memory, own: str | None) -> dict[str, Any]:
    """What a caller does next where all is well, so that rounds come to their end, by an id of its own."""
    at = memory.state.open.number if memory.state.open else memory.state.round + 1
    question, failed = own or f"r{at}.q0", own or f"r{at}.q0.a0"
    return {
        "open_round": lambda: memory.open_round(at),
        "score": lambda: memory.score([candidate(question)]),
        "start_stage": lambda: memory.start_stage("solver"),
        "observe": lambda: memory.observe([failure(failed, question_id=question)]),
        "complete_stage": lambda: memory.complete_stage("solver"),
        "diagnosed": lambda: memory.diagnosed([new_cause(failed, f"cause {at}")]),
        "settle": lambda: settle_new(memory, failed, label="node"),
        "commit": memory.commit,
    }


KEEP: Any = "keep"


def _refusals(memory: Memory) -> dict[str, Any]:
    """What was taken, or crashed, and what is said of each now."""
    scored, failed, said = candidate("r1.q0"), failure("r1.q0.a0"), new_cause("r1.q0.a0", "drops a carry")
    change, another = structs.replace, failure("r1.q0.a1")
    diagnosed, observed = memory.diagnosed, memory.observe
    return {
        "the id 'r9.q0' would be another question's": lambda: memory.score(
            [change(scored, question_id="r9.q0")]
        ),
        "the id 'R1.Q0.A0 ' would be another": lambda: observed([change(another, failure_id="R1.Q0.A0 ")]),
        "the id '' is blank": lambda: memory.score([change(scored, question_id="")]),
        "is too long: 500 characters": lambda: memory.score([change(scored, question_id="é" * 501)]),
        "round 1 has no candidate gsm8k-17": lambda: observed([change(failed, question_id="gsm8k-17")]),
        "question is 0f0f": lambda: memory.score([change(scored, question="0f" * 32)]),
        "verdict is 'keep', not one of kept, too_easy": lambda: memory.score([change(scored, verdict=KEEP)]),
        "question is 'abc', not the digest of a text": lambda: memory.score([change(scored, question="abc")]),
        "trajectory is 0f0f": lambda: observed([change(another, trajectory="0f" * 32)]),
        "there is no stage 'solv'": lambda: observed([change(failed, stage="solv")]),
        "steps of training count from 1": lambda: observed([change(failed, step=0)]),
        "the description of r1.q0.a0 is blank": lambda: diagnosed([change(said, description=" \n")]),
        "round is '3', not an int": lambda: memory.open_round("3"),  # pyright: ignore[reportArgumentType]
        "round 1 is open": lambda: memory.open_round(3),
        "is a list of dict, not a list of FailureObserved": lambda: observed([{}]),  # pyright: ignore
        "event is of type dict, not RunConfigured": lambda: memory.configure({}),  # pyright: ignore
        "NodePairJudged.nodes is a object": lambda: memory.judge_nodes(
            NodePairJudged(nodes=cast("Any", object()), similarity=0.7, merge=True, label="\ud800")
        ),
        "n from 0": lambda: memory.schedule(1).draw(-1, seed=7),
        "1 of 1 failures are not diagnosed, first r1.q0.a0": memory.commit,
    }


def test_a_refusal_says_what_is_wrong_and_what_is_allowed(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    with sqlite_stores.new(tmp_path).open() as memory:
        memory.open_round(1)
        for words, verb in _refusals(memory).items():
            if words.startswith("the id 'R1"):
                memory.score([candidate("r1.q0")])
                memory.observe([failure("r1.q0.a0")])
            before = memory.log.head("a")
            with pytest.raises(DiagEvoError) as refused:
                verb()
            assert words in str(refused.value)
            assert memory.log.head("a") == before
        memory.diagnosed([other("r1.q0.a0", "unresolved")])
        assert memory.commit().undiagnosed == 1


def test_a_run_without_a_configuration_is_not_reconfigured(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    with sqlite_stores.new(tmp_path).open() as memory:
        with pytest.raises(OutOfOrderError, match="run a has no configuration yet"):
            memory.reconfigure({})
        assert memory.log.head("a").sequence == 0


def _read_by_all(memory: Memory, folder: Path) -> None:
    log, run = memory.log, memory.run_id
    if not memory.state.sequence:
        return
    assert verify(log, run, memory.folder, deep=True).faults == []
    if memory.state.open is not None:
        memory.undiagnosed(again=True)
        memory.unsettled()
    with memory.database.read() as connection:
        for view in ABOUT:
            connection.exec_driver_sql(f"SELECT * FROM {view}").fetchall()
    frames = diagevo.RunFrames(memory)
    tables = frames.causes, frames.history, frames.rounds, frames.candidates, frames.failures, frames.steps
    for table in (*tables, frames.groups, frames.events):
        table()
    for record in log.read(run):
        if isinstance(event := record.event, CandidateScored):
            assert memory.question(event.question_id) == event
            frames.why(event.question_id)
        elif isinstance(event, FailureObserved):
            frames.why(event.failure_id)
    for cause_id in memory.state.causes:
        frames.why(cause_id)
    history = History(memory.database, run, memory.root)
    _shown(memory, history, frames)
    written = export_bundle(history, history.as_of(None), folder / "bundle")
    other = Database(migrated(f"sqlite:///{folder / 'other.db'}"))
    try:
        assert import_bundle(folder / "bundle", other, root=folder / "other").hash == written.head
    finally:
        other.close()


def _shown(memory: Memory, history: History, frames: diagevo.RunFrames) -> None:
    """The pages, and whatever has an id of its trainer's own under that."""
    run, view = memory.run_id, View(Site(memory.database, live=True))
    for page in ("index", "causes", "diagnostics", "log"):
        view.render(f"{run}/{page}.html")
    for fact in memory.log.chosen(run, [CandidateScored, FailureObserved]):
        folder = "questions" if isinstance(fact.event, CandidateScored) else "failures"
        view.render(f"{run}/{folder}/{fact.event.subject()}.html")
    last = {
        (fact.event.named.count("."), fact.event.own_id): fact for fact in memory.log.chosen(run, [IdGiven])
    }
    for (dots, own_id), fact in last.items():
        named = fact.event.named
        kind, folder = ("question", "questions") if dots == 1 else ("failure", "failures")
        assert view.by_own_id(f"{run}/{folder}/{own_id}") == f"{run}/{folder}/{named}.html"
        if dots == 1:
            assert memory.question(own_id).question_id == named
        elif fact.round in memory.state.counted():
            assert memory.causes_of([own_id]).keys() == {own_id}
        ours = own_id in memory.state.causes or own_id in memory.state.nodes
        assert resolve(history, own_id, history.end, kind).id == named or ours
    with suppress(NotFoundError):  # where nothing failed
        for row in TrainingData(history, "dpo").rows():
            assert not last or {"own_question_id", "own_failure_id"} < row.keys()


@settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_what_a_verb_is_given_is_taken_and_read_by_all_or_refused_whole(
    data: st.DataObject, sqlite_stores: SQLiteStores
) -> None:
    draw = data.draw
    own = draw(st.sampled_from(OWN))
    with TemporaryDirectory() as folder, sqlite_stores.new(Path(folder)).open() as memory:
        for step in [*ROUND, *ROUND]:
            for name in draw(st.lists(st.sampled_from(sorted(VERBS)) | st.just(step), max_size=3)):
                args, kwargs = _given(draw, name, memory)
                before = memory.log.head("a"), memory.state.copy()
                refused = None
                try:
                    getattr(memory, name)(*args, **kwargs)
                except DiagEvoError as error:
                    refused = error.message
                if refused is not None:
                    assert (memory.log.head("a"), memory.state) == before, (name, refused)
            with suppress(DiagEvoError):  # one before it did so
                _natural(memory, own)[step]()
        _read_by_all(memory, Path(folder))
