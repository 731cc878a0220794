"""One field of one event changed, the chain sealed again: it is found, or a fact that decides nothing."""

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

import diagevo
from diagevo.diagnosis.embedder import HashingEmbedder, identity
from diagevo.ingest.recording import IngestSummary, Recorder
from diagevo.ingest.rollout_steps import RolloutStep
from diagevo.ingest.rounds import Rounds
from diagevo.memory.events import (
    EVENT_TYPES,
    Artifact,
    CheckpointEvaluated,
    FailureDiagnosed,
    FailureObserved,
    GroupRewards,
    Mark,
    MeasuredReward,
    Model,
    PhaseMeasured,
    RunConfigured,
    StepTrained,
    WrittenPair,
    WrongStep,
)
from diagevo.memory.events.records import Recorded
from diagevo.memory.memory import Memory
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState
from tests.ingest.conftest import DIMENSION, SETTINGS, step
from tests.ingest.test_recording import diagnose
from tests.memory.audit.one_field import Field, Told
from tests.memory.audit.played import C1, CONFIG, Player, play
from tests.memory.audit.random_play import play_randomly
from tests.memory.play import candidate, failure, opened, other, three_rounds

pytestmark = pytest.mark.slow


def _records(memory: Memory) -> list[Recorded]:
    return list(memory.log.read(memory.run_id))


def _by_hand(folder: Path) -> list[Recorded]:
    play(f"sqlite:///{folder}/log.db", "played", root=folder)
    with diagevo.open(f"sqlite:///{folder}/log.db", "played", root=folder) as memory:
        return _records(memory)


def _at_random(folder: Path, seed: int) -> list[Recorded]:
    url = f"sqlite:///{folder}/log.db"
    play_randomly(url, "random", seed, root=folder, rounds=3, pool=8)
    with diagevo.open(url, "random", root=folder) as memory:
        return _records(memory)


def _ingested(folder: Path) -> list[Recorded]:
    """Two rounds of another trainer's groups, and a third that waits."""
    with diagevo.open(f"sqlite:///{folder}/log.db", "ingested", root=folder) as memory:
        memory.configure(
            RunConfigured(
                config={"ingest": SETTINGS.model_dump()},
                models={"diagnostician": Model(name="hand", revision="1")},
                embedder=identity(HashingEmbedder(DIMENSION)),
                version="1",
                prompts={"extract.txt": "5" * 64},
            )
        )
        steps = [step(number, a="+-+-", b="----", c="++++", d="-++") for number in range(1, 5)]
        Recorder(memory, SETTINGS).record(steps, IngestSummary())
        diagnose(memory, {"a": C1, "d": "reads the question only to its half"})
        explained = [
            replace(rollout, feedback=f"a judge on {place}", tags=("signs", "sums"))
            for place, rollout in enumerate(step(5, a="-+--").rollouts)
        ]
        fifth = RolloutStep(5, "5.jsonl", explained)
        Recorder(memory, SETTINGS).record([fifth, step(6, b="++")], IngestSummary())
        return _records(memory)


def _superseded(folder: Path) -> list[Recorded]:
    """Another trainer's rounds: the second diagnosed again, then the training resumed before step 3."""
    with diagevo.open(f"sqlite:///{folder}/log.db", "superseded", root=folder) as memory:
        steps = [step(number, a="+-+-", b="----", d="-++") for number in range(1, 5)]
        Recorder(memory, SETTINGS).record(steps, IngestSummary())
        diagnose(memory, {"a": C1, "d": "reads the question only to its half"})
        Rounds(memory).supersede(2, "the diagnostician was another one")
        diagnose(memory, {"a": C1, "d": C1})
        Recorder(memory, SETTINGS, resumed=True).record([step(3, a="--+-", d="+-+")], IngestSummary())
        diagnose(memory, {"a": C1, "d": "forgets what it was asked"})
        failed = memory.log.chosen("superseded", [FailureObserved], (memory.state.round, memory.state.round))
        memory.assign([fact.event.failure_id for fact in failed], min(memory.state.causes), "ada")
        return _records(memory)


def _without_stages(folder: Path) -> list[Recorded]:
    """A trainer of somebody's own, that records no stages and not how many responses it asks for. Nobody
    answered its last question."""
    with opened(folder) as memory:
        three_rounds(memory)
        memory.open_round(4)
        targeted = [candidate("r4.q0", 4, cause="c1"), candidate("r4.q1", 4, cause="c3")]
        memory.score([*targeted, candidate("of my own", 0)])
        memory.observe([failure("r4.q0.a0")])
        memory.diagnosed([other("r4.q0.a0", "unresolved")])
        memory.commit()
        return _records(memory)


def _measured(folder: Path) -> list[Recorded]:
    """What no other history has: true labels, measurements, a lost attempt, a diagnosis asked for again, an
    embedder that changes."""
    with diagevo.open(f"sqlite:///{folder}/log.db", "measured", root=folder) as memory:
        player = Player(memory)
        player.configure({**CONFIG, "round": {"true_labels": True, "responses": 12}})
        memory.evaluated(
            CheckpointEvaluated(
                role="solver",
                checkpoint="rounds/001/solver",
                benchmark="math500",
                questions=4,
                conditions={"samples": 1},
                metrics={"score": 0.5},
            ),
            0,
        )
        player.open(1)
        known = player.question(0, [("7", 5), ("8", 3)], "kept")
        unknown = player.question(1, [("7", 5), ("8", 4)], "no_label")
        told = [
            replace(known, label="8", truth="8", given=memory.artifacts.put_many(["a document"])),
            replace(unknown, label=None, label_true=None, truth="9"),
            replace(player.question(2, [("3", 3), ("4", 3), ("5", 3)], "contested"), truth="3"),
        ]
        player.score(*told)
        for attempt, reason in ((1, "the node was lost"), (2, None)):
            player.fail("r1.q0.a1", attempt=attempt, step=2, right=False)
            memory.step_trained(
                StepTrained(
                    stage="solver",
                    attempt=attempt,
                    step=1,
                    groups=[GroupRewards(prompt="r1.q0", rewards=[1.0, -1.0])],
                    loss=0.5,
                    entropy=1.5,
                    grad_norm=0.25,
                    kl=0.125,
                )
            )
            memory.phase_measured(
                PhaseMeasured(
                    stage="solver",
                    attempt=attempt,
                    steps=2,
                    first_kl=0.0,
                    sampling_gap=None,
                    reward_lowest=-1.0,
                    reward_highest=1.0,
                    completions=8,
                    cut_off=1,
                    attention="sdpa",
                    findings=["cut_off"],
                )
            )
            if reason is not None:
                memory.abandon_stage("solver", after_step=0, seconds=3.5, reason=reason)
                memory.start_stage("solver")
        player.diagnose("r1.q0.a1", "unresolved", attempt=2)
        memory.diagnosed(
            [
                FailureDiagnosed(
                    failure_id="r1.q0.a1",
                    attempt=2,
                    supplied=[],
                    verdict="new_cause",
                    cause_id=None,
                    description=C1,
                    asked=2,
                    cause_key="contrast: -carry",
                    level=3,
                    evidence=[Mark(line=0, text="leaves out the carry")],
                    step=WrongStep(line=1, text="7 + 5 = 2", why="first difference", shown=False),
                    pair=WrittenPair(
                        line=1,
                        start=8,
                        wrote="2",
                        passed=memory.artifacts.put_many(["7 + 5 = 12"])[0],
                        passed_line=0,
                        passed_start=8,
                        should="12",
                    ),
                )
            ]
        )
        memory.complete_stage(
            "solver",
            [Artifact(path="rounds/001/solver", sha256="7" * 64)],
            seconds=4.5,
            parts={"extraction": 0.5},
            reward=0.25,
        )
        memory.start_stage("diagnosis")
        player.settle_new("r1.q0.a1", label="Signs")
        player.commit()
        embedder = HashingEmbedder(DIMENSION)
        memory.change_embedder(identity(embedder), embedder.embed)
        player.open(2)
        player.score(replace(known, question_id="r2.q0", drawn_round=1, truth="7"))
        player.trained()
        player.commit()
        memory.rename("c1", "a correction of an auditor")
        memory.rename("c1", "another correction")
        memory.dismiss("c1", "the grader is wrong", "ada")
        memory.reinstate("c1", "ada")
        memory.add_cause("in words of one's own", "r1.q0.a1", "ada")
        memory.assign(["r1.q0.a1"], "c2", "ada", "why")
        memory.assign(["r1.q0.a1"], "c1", "bob")
        memory.unassign(["r1.q0.a1"], "bob")
        return _records(memory)


def _earned(folder: Path) -> list[Recorded]:
    """A challenger of DARC: two difficulties of one document, the easier .2 too near, and one of another."""
    with diagevo.open(f"sqlite:///{folder}/log.db", "earned", root=folder) as memory:
        Player(memory).configure({**CONFIG, "method": "darc"})
        memory.open_round(1)
        memory.start_stage("challenger")
        easy = MeasuredReward(5, 10, related=True, level=1, document="6" * 64)
        moderate = replace(easy, level=2)
        elsewhere = replace(moderate, document="7" * 64)
        groups = [GroupRewards("r1.u0", [0.6, 0.9]), GroupRewards("r1.u1", [1.0])]
        measured = [easy, moderate, elsewhere]
        memory.step_trained(StepTrained("challenger", 1, 1, groups, 0.5, 1.5, 0.25, 0.125, measured))
        return _records(memory)


_MEASURED = "a measurement: nothing is decided by it"
_ASKED = "which model was asked, what it was shown and said, what that cost; `--deep` checks the texts"
_VECTORS = "a cosine, or what stands by it: vectors are in no chain"
_TEXT = "which text it is; `--deep` checks the text itself"
_CALL = ("", ".model", ".prompt", ".request", ".reply", ".input_tokens", ".output_tokens", ".tries")

UNKNOWABLE: dict[str, dict[str, str]] = {
    "RunConfigured": {
        "config": "a setting is found where a verdict, a promotion or ε would have come out otherwise",
        "embedder": _VECTORS,
        "embedder.name": _VECTORS,
        "embedder.dimension": _VECTORS,
        "embedder.revision": _VECTORS,
        "models": "who plays which role",
        "origin": "the run that was forked may be in another database",
        "prompts": "the templates are not kept",
        "version": "who wrote the run",
    },
    "RoundOpened": {"seed": "a trainer may draw with a seed of its own"},
    "StageCompleted": {
        "artifacts": "files outside the log",
        "artifacts.path": "files outside the log",
        "artifacts.sha256": "files outside the log",
        "seconds": _MEASURED,
        "parts": _MEASURED,
        "reward": _MEASURED,
    },
    "StageAbandoned": {
        "after_step": "a step is found where it makes other failures void",
        "seconds": _MEASURED,
        "reason": _MEASURED,
    },
    "StepTrained": {
        "step": _MEASURED,
        "groups": _MEASURED,
        "groups.prompt": _MEASURED,
        "groups.rewards": _MEASURED,
        "measured.related": "under DARC an unrelated question is refused before it is answered",
        "measured.document": "the document's name, if it has no second question to rank",
        **dict.fromkeys(("loss", "entropy", "grad_norm", "kl"), _MEASURED),
    },
    "PhaseMeasured": dict.fromkeys(
        (
            "steps",
            "first_kl",
            "sampling_gap",
            "reward_lowest",
            "reward_highest",
            "completions",
            "cut_off",
            "attention",
            "findings",
        ),
        _MEASURED,
    ),
    "CandidateScored": {
        "question_id": "the number of a question that nobody failed on",
        "question": _TEXT,
        "cause_id": "whose question it is: found where votes promote, or a failure was shown the cause",
        "responses": "where the configuration does not say N, answers without a box leave no trace",
        "votes": "the answers themselves, and the counts behind the second",
        "verdict": "of a question without a vote: whether nobody answered it or it was never asked",
        "reference": _TEXT,
        "truth": "a world's answer, where labels are majorities",
        "label_true": "agreement with the truth is not compared again",
        "invalid_reason": "why the completion has no question",
        "undecided": "comparisons are not made again",
        "drawn_round": "which earlier schedule it was drawn from",
        "given": "which texts the challenger was shown",
        "task": "of a question that was never asked, and which text it is",
        "part": "the kind of the task",
    },
    "GroupIngested": {
        "question": "of a group that waits for its round",
        "answer": "of a group that waits for its round, or has no label to compare",
        "attempt": "of a group that waits for its round, or which later one",
        "failed": "of a group in which all failed, while nobody asks about it",
        "draw": "what a steered trainer drew the prompt for, as the trainer says",
        "step": "of a group that waits for its round and is alone in its step",
        "rewards": "how far above or below `pass_at`",
        "passed": "which texts passed, beside the reference",
        **dict.fromkeys(("feedback", "feedback.sample", "feedback.text", "tags"), "what the file says"),
        "failed.trajectory": "of a group that waits for its round",
        "source": "the file's name",
    },
    "FailureObserved": {
        "failure_id": "the sample's number, where nobody was asked about the failure",
        "stage": "the name, where a trainer records no stages",
        "step": "the step, where the groups were not ingested",
        "trajectory": _TEXT,
        "right": _MEASURED,
        "feedback": "what the file says, of a group that waits or is not known",
    },
    "FailureDiagnosed": {
        "supplied": "a diagnostician may have been shown fewer causes",
        "description": "the words of a failure that was put down to a stored cause",
        "flags": _ASKED,
        "cause_key": "what a method that asks no model knows its cause by",
        "level": "on which level that method found it",
        **dict.fromkeys(("evidence", "evidence.line", "evidence.text"), "what it rests on"),
        **dict.fromkeys(("step", "step.line", "step.text", "step.why", "step.shown"), "where it is"),
        **dict.fromkeys(("pair", "pair.line", "pair.start", "pair.wrote"), "the place that it is about"),
        **dict.fromkeys(
            ("pair.passed", "pair.passed_line", "pair.passed_start", "pair.should"), "what passed there"
        ),
    }
    | {f"call{part}": _ASKED for part in _CALL},
    "IdGiven": {"own_id": "what its trainer calls it"},
    "CauseRenamed": {"description": "an auditor's words"},
    "CauseDismissed": {"because": "an auditor's words", "by": "whose they are"},
    "CauseReinstated": {"by": "whose word it is"},
    "CauseAdded": {"by": "whose words they are", "description": "a person's words"},
    "FailureAssigned": {
        "by": "whose word it is",
        "note": "a person's words",
        "undo": "of a failure that goes back to its diagnosed cause: whether that is confirmed",
    },
    "FailureUnassigned": {"by": "whose word it is"},
    "DuplicateJudged": {
        "candidates": _VECTORS,
        "nearest": _VECTORS,
        "nearest.cause_id": _VECTORS,
        "nearest.similarity": _VECTORS,
        "capped": _VECTORS,
    }
    | {f"call{part}": _ASKED for part in _CALL},
    "NodeAssigned": {
        "shortlist": _VECTORS,
        "shortlist.node_id": _VECTORS,
        "shortlist.similarity": _VECTORS,
        "flags": _ASKED,
    }
    | {f"call{part}": _ASKED for part in _CALL},
    "NodePairJudged": {
        "nodes": "which pair is not one skill",
        "similarity": _VECTORS,
        "label": "the survivor's own label, said or left out",
        "flags": _ASKED,
    }
    | {f"call{part}": _ASKED for part in _CALL},
    "RoundsSuperseded": {"reason": "why, in the words of who asked for it"},
    "CheckpointEvaluated": dict.fromkeys(
        ("role", "checkpoint", "benchmark", "questions", "conditions", "metrics", "seconds"), _MEASURED
    ),
}
"""What a change of one field may leave without a trace, with the reason. All else is found always."""


def tried(records: list[Recorded], rng: random.Random, most: int) -> tuple[Counter[Field], Counter[Field]]:
    """How often each field was changed, at about `most` events a type, and how often that was found."""
    told, tries, found = Told(records), Counter[Field](), Counter[Field]()
    state = MemoryState(records[0].run_id)
    of_type = Counter(record.type for record in records)
    for place, record in enumerate(records):
        if rng.randrange(of_type[record.type]) < most:
            for change in told.changes(place, rng):
                tries[change.field] += 1
                found[change.field] += told.found(state, place, change)
        advance(state, told.fact(place))
    return tries, found


def test_one_changed_field_is_found_or_stands_on_the_list(tmp_path: Path) -> None:
    random_ones = [partial(_at_random, seed=seed) for seed in range(3)]
    tries, found = Counter[Field](), Counter[Field]()
    for number, make in enumerate(
        (_by_hand, _ingested, _superseded, _without_stages, _measured, _earned, *random_ones)
    ):
        place = tmp_path / str(number)
        place.mkdir()
        more_tries, more_found = tried(make(place), random.Random(number), 24)
        tries += more_tries
        found += more_found
    fields = {(type_, name) for type_, event in EVENT_TYPES.items() for name in event.__struct_fields__}
    assert fields <= tries.keys(), "every field is changed"
    listed = {(type_, name) for type_, names in UNKNOWABLE.items() for name in names}
    unseen = {field for field, count in tries.items() if found[field] < count}
    assert sorted(unseen - listed) == [], "a change that nobody finds is on the list"
    assert sorted(listed - unseen) == [], "what is always found is not on the list"
    print(
        f"{sum(tries.values())} changes of {len(tries)} fields: {len(tries) - len(listed)} are found always"
    )
