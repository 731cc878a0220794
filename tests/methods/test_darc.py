"""DARC: who learns when, what is shown and read, labels and rewards, and what a run leaves in the log."""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from pydantic import ValidationError

from diagevo.arithmetic.corpus import worked_line, worked_lines
from diagevo.arithmetic.grammar import Part, parse
from diagevo.arithmetic.heldout import in_zone
from diagevo.arithmetic.numbers_judge import NumbersJudge
from diagevo.arithmetic.worked_questions import WorkedQuestions, level_turns
from diagevo.config.resources import rounds_left, votes_a_question
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.loop.players import SolverReward, load_written, save_written
from diagevo.loop.roles import Roles
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import Embedder, RunConfigured
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import History, open_history
from diagevo.memory.state.projected_schedule import Draw
from diagevo.memory.stories.failures import question_story
from diagevo.memory.stories.references import Reference
from diagevo.memory.stories.story_wording import question_lines
from diagevo.methods.darc import Darc, QuestionerReward
from diagevo.methods.document_questions import FIELDS, TextQuestions, in_form, read_object
from diagevo.methods.interface import Ask, SolverRewards, Written
from diagevo.planning.on_cpu import seconds
from diagevo.planning.run_plan import plan_run
from diagevo.planning.shapes import find_shape
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams
from diagevo.training.phase import Rollout, TrainingRow
from diagevo.training.plan import plan_phase
from tests.memory.play import candidate, opened
from tests.methods import levels
from tests.methods.logged_rewards import compared
from tests.once import once
from tests.run.program import Moment, killed, played
from tests.run.test_round import of

PROGRAM = "tests.methods.levels:program"
RESUMED = ["--resume", "--rounds", "3"]
GIVEN = ("start at {} : 7 , 2 , 5 ; 2*5=10 ; 7+10=17", "level 2", "integer")


def draws(count: int) -> list[Draw]:
    return [Draw(index, "free") for index in range(count)]


@pytest.fixture
def darc(tmp_path: Path) -> Iterator[Darc]:
    with Roles(levels.config(), tmp_path) as roles:
        assert isinstance(roles.method, Darc)
        yield roles.method


def test_the_first_rounds_are_the_questioners_and_the_others_the_solvers(darc: Darc) -> None:
    assert [darc.learns(round_) for round_ in (1, 2, 3, 4)] == [("challenger",)] + [("solver",)] * 3
    config = levels.config()
    assert [rounds_left(config, "challenger", n) for n in range(4)] == [1, 0, 0, 0]
    assert [rounds_left(config, "votes", n) for n in range(4)] == [2, 2, 1, 0]
    assert votes_a_question(config) == 10  # five with the document, five without


def test_a_plan_counts_the_time_of_each_roles_rounds() -> None:
    """Of three rounds one trains the questioner, for 100 s; a round of the solver takes 65 s in four stages,
    and each ends with a validation of 7 s."""
    measured: dict[str, float] = {"challenger": 100, "candidates": 10, "votes": 20, "solver": 30}
    measured |= {"diagnosis": 5, "validation": 7}
    assert plan_run(levels.config(), measured)["seconds"] == 100 + 2 * 65 + 3 * 7
    assert plan_run(levels.config(), measured, played=1)["seconds"] == 2 * 65 + 2 * 7
    one, two = levels.config(), levels.config(darc={"questioner_rounds": 2})
    shape = find_shape(one.roles.solver.model)
    assert shape is not None
    # Means of a round: (c + 2s) / 3 + v, (2c + s) / 3 + v; and s + v once the questioner has learned.
    first, second = (seconds(config, shape, 1e9, 7)[1] for config in (one, two))
    assert seconds(one, shape, 1e9, 7, played=1)[1] == pytest.approx(2 * first - second)
    assert second != first


def test_while_the_questioner_learns_a_document_has_every_level_in_turn(darc: Darc) -> None:
    asks = darc.asks(draws(9), 7, list, 1)
    assert asks == darc.asks(draws(9), 7, list, 1) != darc.asks(draws(9), 8, list, 1)
    assert [ask.part for ask in asks] == ["level 1", "level 2", "level 3"] * 3
    documents = [ask.given[0] for ask in asks]
    assert documents[0::3] == documents[1::3] == documents[2::3]
    assert set(documents) <= set(worked_lines())
    [turn] = asks[1].prompt
    assert turn["content"] == f"ask a question , level 2 : {documents[1]}"


def test_the_solvers_rounds_share_one_curriculum_that_only_gets_harder(
    darc: Darc, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, third = (darc.asks(draws(36), seed, list, round_) for seed, round_ in ((5, 2), (6, 3)))
    parts = [ask.part for ask in [*second, *third]]
    assert parts == sorted(parts)
    assert Counter(parts) == {"level 1": 24, "level 2": 24, "level 3": 24}
    shown = Counter(ask.given[0] for ask in [*second, *third])
    assert all(count % 3 == 0 for count in shown.values())  # each document has its three levels
    monkeypatch.setattr(Darc, "_documents", None)  # it was made once
    assert darc.asks(draws(36), 6, list, 3) == third
    assert darc.asks(draws(36), 9, list, 4) == second  # a run that goes on begins again
    assert darc.in_order


def test_rows_in_order_are_not_shuffled() -> None:
    rows = [TrainingRow(str(number), []) for number in range(7)]
    sizes: dict[str, Any] = {"batch_questions": 3, "max_steps": 2, "group": 2, "ranks": 1, "seed": 1}
    plan = plan_phase(rows, **sizes, in_order=True)
    assert [row.row_id for batch in plan.batches for row in batch] == list("012345")
    shuffled = plan_phase(rows, **sizes)
    assert [row.row_id for batch in shuffled.batches for row in batch] != list("012345")


def test_a_document_that_no_prompt_has_room_for_is_left_out_and_where_none_is_left_that_is_said(
    tmp_path: Path,
) -> None:
    rows = [{"text": "12 " * 200, "kind": "mathematics"}, {"text": "7 , 2", "kind": "mathematics"}]
    (tmp_path / "c.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with Roles(levels.config(corpus={"file": str(tmp_path / "c.jsonl")}), tmp_path) as roles:
        assert {ask.given[0] for ask in roles.method.asks(draws(6), 7, list, 1)} == {"7 , 2"}
    (tmp_path / "c.jsonl").write_text(json.dumps(rows[0]), encoding="utf-8")
    with (
        Roles(levels.config(corpus={"file": str(tmp_path / "c.jsonl")}), tmp_path) as roles,
        pytest.raises(ConfigError, match="do not fit a prompt"),
    ):
        roles.method.asks(draws(6), 7, list, 1)


def _object(**changes: Any) -> str:
    return json.dumps({**dict.fromkeys(FIELDS, ""), "question": "How many?", **changes})


@pytest.mark.parametrize(
    ("completion", "read"),
    [
        (_object(), "How many?"),
        (f"```json\n{_object()}\n```", "How many?"),
        (f"  ```{_object()}```\n", "How many?"),
        (_object(question="  How many? "), "How many?"),
        (_object(question=" "), None),
        (_object(question=7), None),
        (_object(more=1), None),
        ('{"question": "How many?"}', None),
        (f"{_object()} {_object()}", None),
        (f"Here it is: {_object()}", None),
        ("[]", None),
        ("{" * 100_000, None),
        ("", None),
    ],
)
def test_a_completion_is_one_object_with_exactly_these_fields(completion: str, read: str | None) -> None:
    assert TextQuestions().read(completion, "integer") == read


def test_a_choice_has_three_options_at_least() -> None:
    read = TextQuestions().read
    options = "Which?\nA) one\nB) two\n"
    assert read(_object(question=options), "categorical") is None
    assert read(_object(question=options + "(C) three"), "categorical") is None
    assert read(_object(question=options + " c. three"), "categorical") == options + " c. three"
    assert read(_object(question=options), "integer") is not None
    assert read_object("null") == {}


@pytest.mark.parametrize(
    ("answer", "kind", "is_one"),
    [
        (" 42 ", "integer", "42"),
        ("-7", "integer", "-7"),
        ("4.0", "integer", None),
        ("x", "integer", None),
        ("4.0", "float", "4.0"),
        ("4", "float", None),
        ("1e3", "float", None),
        ("B", "categorical", "B"),
        (r"\text{b}.", "categorical", "B"),
        ("(C) three", "categorical", "C"),
        ("A or B", "categorical", None),
        ("K", "categorical", None),
    ],
)
def test_a_label_has_the_kind_that_was_asked_for(answer: str, kind: Any, is_one: str | None) -> None:
    assert in_form(answer, kind) == is_one


def test_texts_are_data_in_every_prompt() -> None:
    [turn] = TextQuestions().asks("<level> {0} %s <answer>", 3, "float")
    assert "<level> {0} %s <answer>" in turn["content"]
    assert "At least three distant places" in turn["content"]
    assert "a number with a decimal point" in turn["content"]
    [turn] = TextQuestions().informed("<document>?", "<question>")
    assert turn["content"].index("<question>") < turn["content"].index("<document>?")


class Said:
    """A frozen solver that answers from two tables: with the document in sight, and without."""

    def __init__(self, informed: dict[str, list[str]], alone: dict[str, list[str]]) -> None:
        self.informed, self.alone = informed, alone
        self.calls: list[tuple[int, SamplingParams]] = []

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        self.calls.append((n, params))
        found: list[list[Completion]] = []
        for prompt in prompts:
            document, marked, question = prompt[-1]["content"].rpartition(" : ")
            table, asked = (self.informed, question) if marked else (self.alone, document + question)
            found.append([Completion(text, 1, False) for text in table[asked]])
        return found


def boxes(*answers: str) -> list[str]:
    return [f"so \\boxed{{{answer}}}" for answer in answers]


GOOD, EASY, COPY, FOREIGN = (
    "start at 5 and make 7 jumps of 2",
    "start at 2 and make 7 jumps of 5",
    "start at 7 and make 2 jumps of 5",
    "start at 90 and make 2 jumps of 3",
)


def test_a_questioner_earns_by_what_the_solver_says_with_and_without_the_document(darc: Darc) -> None:
    solver = Said(
        {
            GOOD: boxes("19", "19", "19", "18", "None"),
            EASY: boxes("37", "36", "36", "37", "1"),  # a tie: the first is the label
            FOREIGN: boxes("96"),
        },
        {
            GOOD: [*boxes("19", "18", "19.0", "none"), "no box"],  # 2 of the 4 with a box
            EASY: boxes("37", "37", "37", "37", "37"),
        },
    )
    given = {"u0": GIVEN, "u1": (GIVEN[0], "level 3", "integer"), "u2": ("another", "level 1", "integer")}
    reward = darc.challenger_reward(solver, 1, given)  # type: ignore[arg-type]
    assert isinstance(reward, QuestionerReward)
    said = [("u0", GOOD), ("u1", EASY), ("u0", COPY), ("u0", FOREIGN), ("u2", "nothing")]
    rollouts = [Rollout(row, 0, 1, f"<question>{text}</question>", False) for row, text in said]
    measures = reward.measure(rollouts)
    assert [(one["right"], one["answers"]) for one in measures] == [(2, 4), (5, 5), *[(None, 0)] * 3]
    assert [one["level"] for one in measures] == [2, 3, 2, 2, 1]
    assert len({one["document"] for one in measures}) == 2
    assert json.loads(json.dumps(measures)) == measures
    # Moderate .5 earns 1, hard 1 earns .2; 1 + .2 - .5 = .7 costs each .35, and nobody goes below 0.
    assert reward.rewards(rollouts, measures) == [0.65, 0.0, -1.0, -1.0, -1.0]
    assert [n for n, _ in solver.calls] == [5, 5]


@pytest.mark.parametrize(
    ("informed", "alone", "measured"),
    [
        (boxes("19"), boxes("18", "17"), 0),
        (boxes("19"), boxes("18", "19", "19", "19", "19"), 4),
        (boxes("19"), boxes("18", "17", "19", "1", "2"), 1),
        (boxes("19"), ["", "\\boxed{None}", "\\boxed{}"], None),  # nobody answers at all
        (boxes("x", "x", "19"), boxes("x"), None),  # a label of another kind
        (["", "\\boxed{none}"], boxes("19"), None),  # no label
    ],
)
def test_the_share_is_of_answers_in_a_box(
    darc: Darc, informed: list[str], alone: list[str], measured: int | None
) -> None:
    reward = darc.challenger_reward(Said({GOOD: informed}, {GOOD: alone}), 1, {"u0": GIVEN})  # type: ignore[arg-type]
    found = reward.measure([Rollout("u0", 0, 1, f"<question>{GOOD}</question>", False)])
    assert [one["right"] for one in found] == [measured]
    earned = reward.rewards([Rollout("u0", 0, 1, "", False)], found)
    assert earned == [{0: -0.1, 4: 0.7, 1: 0.7, None: -1.0}[measured]]


def test_a_copy_has_the_numbers_of_its_document_in_their_order() -> None:
    world = WorkedQuestions()
    for text, copied in ((COPY, 1), (GOOD, 0), (FOREIGN, 0), ("12 what", 0)):
        assert world.copied(worked_line(Part("jumps", (7, 2, 5))), text) == copied
    coins = worked_line(Part("coins", (57, 6, 9)))
    assert world.copied(coins, "pay for 6 books at 9 each from 57 coins , how many are left") == 1
    assert world.copied(coins, "pay for 57 books at 6 each from 9 coins , how many are left") == 0


def test_the_solver_labels_with_the_document_at_its_own_top_p(darc: Darc) -> None:
    solver = Said({GOOD: boxes("19", "None", "None", "None", "18", "19.0", "x", "y")}, {})
    asked = [darc.read(Ask(draws(1)[0], [], GIVEN, "level 2"), f"<question>{GOOD}</question>")]
    assert (asked[0].label_from, asked[0].part) == ("document", "level 2")
    [votes], [responses] = darc.vote(solver, asked, 8, 1)  # type: ignore[arg-type]
    assert votes.votes == (("19", 2), ("18", 1), ("x", 1), ("y", 1))
    assert (votes.label, votes.p1, len(responses)) == ("19", Fraction(1, 4), 8)
    assert solver.calls == [(8, SamplingParams(temperature=1.0, top_p=0.95, max_new_tokens=160))]


def test_the_student_earns_a_twentieth_for_form(darc: Darc, tmp_path: Path) -> None:
    earned = darc.solver_rewards(candidate("r2.q0", label_from="document"))
    assert earned == SolverRewards(1.0, 0.05, 0.0, beside=True)
    reward = SolverReward(darc.context, {"r2.q0": "17"}, {"r2.q0": earned}, {})
    texts = ["7+10=17 \\boxed{17}", "7+10=18 \\boxed{18}", "no box", "\\boxed{17}", " \\boxed{17}\n"]
    rollouts = [Rollout("r2.q0", place, 1, text, False) for place, text in enumerate(texts)]
    assert reward.rewards(rollouts, reward.measure(rollouts)) == [1.0, 0.05, 0.0, 0.0, 0.0]


def test_near_duplicates_are_not_admitted_and_stay_so_when_the_pool_is_read_again(
    darc: Darc, tmp_path: Path
) -> None:
    texts = [GOOD, "nothing", GOOD, "how many hours are 12 minutes", f"{GOOD} ?", EASY]
    asks = [Ask(draw, [], GIVEN, "level 2") for draw in draws(6)]

    def read(ask: Ask, text: str) -> Written:
        if text == "nothing":
            return Written(ask.draw, text, None, "unreadable", given=GIVEN)
        return Written(ask.draw, text, text, given=GIVEN)

    embedder = HashingEmbedder(256)
    alike = (embedder.embed([GOOD, f"{GOOD} ?"]) @ embedder.embed([EASY]).T).min()
    assert alike >= darc.context.config.darc.near  # the last one has the others fall
    written = [read(*each) for each in zip(asks, texts, strict=True)]
    admitted = darc.admit(written, embedder)
    fell = "near_duplicate"
    assert [each.invalid for each in admitted] == [fell, "unreadable", fell, None, fell, None]
    assert [each.question for each in admitted] == [None, None, None, texts[3], None, EASY]
    save_written(tmp_path / "pool.jsonl", admitted)
    reader: Any = SimpleNamespace(read=read)
    assert load_written(tmp_path / "pool.jsonl", asks, reader) == admitted
    assert darc.admit([written[1]], embedder) == [written[1]]


def test_warm_documents_have_the_forms_and_hold_nothing_that_is_measured() -> None:
    turns = list(level_turns(1, 400))
    assert turns == list(level_turns(1, 400)) != list(level_turns(2, 400))
    asked = [t for t in turns if t[0]["content"].startswith("ask a question , level ")]
    assert len(asked) == 200
    assert {t[0]["content"][23] for t in asked} == set("123")
    for prompt, reply in asked:
        [text] = re.findall("<question> (.*) </question>", reply["content"])
        assert not any(in_zone(part) for part in parse(text) or ())
        document = prompt["content"].partition(" : ")[2]
        assert NumbersJudge().related([(document, text)]) == [True]
        assert WorkedQuestions().copied(document, text) == 0
    informed = [t for t in turns if ";" in t[0]["content"] and t not in asked]
    assert len(informed) == 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"corpus": {"file": None}}, "needs corpus.file"),
        ({"schedule": {"policy": "frequency"}}, "aims at no cause"),
        ({"round": {"true_labels": True}}, "with the document in sight"),
        ({"round": {"rounds": 1}}, "below round.rounds"),
        ({"roles": {"judge": {"engine": None}}}, "related to its document"),
        ({"darc": {"questioner_rounds": 0}}, "greater than or equal to 1"),
    ],
)
def test_settings_that_contradict_the_method_are_refused(change: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        levels.config(**change)


def test_a_label_of_the_document_follows_from_its_votes_and_no_other_method_has_one(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "method": "darc",
        "filter": {"variant": "absolute", "p_low": "3/10", "p_high": "1"},
    }
    embedder = Embedder(name="none", dimension=8, revision="")
    found = candidate("r1.q0", 8, label_from="document")
    with opened(tmp_path) as memory:
        memory.configure(RunConfigured(config=config, models={}, embedder=embedder, version="1"))
        memory.open_round(1)
        for wrong, why in (
            (candidate("r1.q0", 8, label_from="document", label="8"), "not the answer that has the most"),
            (candidate("r1.q0", 8), "no label of its method comes from: votes"),
            (candidate("r1.q0", 8, label_from="document", verdict="too_easy"), "its votes give kept"),
        ):
            with pytest.raises(OutOfOrderError, match=why):
                memory.score([wrong])
        memory.score([found])
        assert verify(memory.log, "a", tmp_path / "a").ok
    history = open_history(f"sqlite:///{tmp_path / 'log.db'}", "a", root=tmp_path)
    lines = question_lines(question_story(history, Reference("question", "r1.q0"), history.end))
    told = {line.label: f"{line.text}{line.words}" for line in lines}
    history.close()
    assert told["label from"] == "the votes of responses that were shown its document"
    with opened(tmp_path / "other") as memory:
        memory.open_round(1)
        with pytest.raises(OutOfOrderError, match="comes from: document"):
            memory.score([found])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a`: a round of the questioner, and two of the solver."""

    def make(home: Path) -> None:
        told = played(home, levels.written(home), main=PROGRAM)
        assert told.code == 0, told.stderr[-3000:]

    return once(tmp_path_factory, "darc", make)


def _payloads(home: Path) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Payloads by type, each with its round, and texts by digest, with nothing but SQL."""
    engine = sqlalchemy.create_engine(f"sqlite:///{home / 'diagevo.db'}")
    with engine.connect() as connection:
        statement = sqlalchemy.text("SELECT type, round, payload FROM event ORDER BY position")
        rows = connection.execute(statement).all()
        stored = connection.execute(sqlalchemy.text("SELECT digest, content FROM artifact")).all()
    engine.dispose()
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, round_, payload in rows:
        found.setdefault(kind, []).append({**json.loads(payload), "round": round_})
    return found, {digest: content.decode() for digest, content in stored}


@pytest.mark.slow
def test_every_label_and_verdict_is_recomputed_from_raw_sql(run: Path) -> None:
    found, texts = _payloads(run)
    scored = found["CandidateScored"]
    assert Counter(one["round"] for one in scored) == {2: 36, 3: 36}
    parts = [one["part"] for one in scored]
    assert parts == sorted(parts)  # from easy to hard over both rounds
    valid = [one for one in scored if one["verdict"] != "invalid"]
    assert len(valid) > 20
    for one in scored:
        document, level, kind = (texts[digest] for digest in one["given"])
        assert (document in worked_lines(), level, kind) == (True, one["part"], "integer")
    for one in valid:
        most = max(count for _, count in one["votes"])
        label = next(answer for answer, count in one["votes"] if count == most)
        assert (one["label_from"], one["label"], one["responses"]) == ("document", label, 8)
        assert one["verdict"] == ("kept" if 10 * most >= 3 * 8 else "too_hard")
        assert one["label_true"] == (int(label) == int(one["truth"]))


@pytest.mark.slow
def test_near_duplicates_of_a_pool_are_those_of_two_plain_loops(run: Path) -> None:
    found, texts = _payloads(run)
    embedder = HashingEmbedder(256)
    for round_ in (2, 3):
        pool = [one for one in found["CandidateScored"] if one["round"] == round_]
        usable = [one for one in pool if one["invalid_reason"] in (None, "near_duplicate")]
        asked = [
            texts[one["question"]]
            if one["invalid_reason"] is None
            else re.findall("<question> (.*?) </question>", texts[one["question"]])[-1]
            for one in usable
        ]
        stays: list[int] = []
        vectors = embedder.embed(asked)
        for place in reversed(range(len(asked))):
            if all(float(vectors[place] @ vectors[other]) < 0.6 for other in stays):
                stays.append(place)
        assert {p for p, one in enumerate(usable) if one["invalid_reason"] is None} == set(stays)
        assert len(stays) < len(usable)


@pytest.mark.slow
def test_lessons_stay_in_order_and_what_earns_less_than_a_right_answer_is_a_failure(run: Path) -> None:
    found, _ = _payloads(run)
    steps = [step for step in found["StepTrained"] if step["stage"] == "solver"]
    for round_ in (2, 3):
        kept = [
            one["question_id"]
            for one in found["CandidateScored"]
            if one["round"] == round_ and one["verdict"] == "kept"
        ]
        taken = [group["prompt"] for s in steps if s["round"] == round_ for group in s["groups"]]
        assert taken == kept[: len(taken)]
    earned = {
        f"{group['prompt']}.a{sample}": reward
        for step in steps
        for group in step["groups"]
        for sample, reward in enumerate(group["rewards"])
    }
    assert set(earned.values()) <= {1.0, 0.05, 0.0}
    failed = {one["failure_id"] for one in found["FailureObserved"]}
    assert failed == {name for name, reward in earned.items() if reward < 1.0}
    assert any(earned[name] == 0.05 for name in failed)
    assert {one["round"] for one in found["FailureDiagnosed"]} <= {2, 3}
    learnt = [step for step in found["StepTrained"] if step["stage"] == "challenger"]
    assert {step["round"] for step in learnt} == {1}
    rewards = {reward for step in learnt for group in step["groups"] for reward in group["rewards"]}
    assert len(rewards) > 1
    assert all(reward in (-1.0, -0.1) or 0 <= reward <= 1 for reward in rewards)


KILLS = [
    ("challenger", "stage_progress"),
    ("candidates", "stage_started"),
    ("votes", "stage_started"),
    ("solver", "stage_progress"),
    ("diagnosis", "stage_started"),
]


@pytest.mark.slow
def test_the_challengers_rewards_follow_from_what_the_log_has_of_them(run: Path) -> None:
    assert compared(run / "diagevo.db", "darc") >= 12


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_where_an_unbroken_run_does(run: Path, tmp_path: Path) -> None:
    arguments = levels.written(tmp_path)
    for stage, event in KILLS:
        told = played(tmp_path, arguments, Moment(stage, event, killed), main=PROGRAM)
        assert told.code == -signal.SIGKILL, told.stderr[-3000:]
        arguments = RESUMED
    done = played(tmp_path, RESUMED, main=PROGRAM)
    assert done.code == 0, done.stderr[-3000:]
    ends: list[list[str]] = []
    for home in (run, tmp_path):
        with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", "a", root=home)) as history:
            report = verify(history.log, "a", home / "a", deep=True)
            assert report.ok, report.faults
            ends.append([history.commit(number).event.state_hash for number in (1, 2, 3)])
            assert_only_one_learns(history)
    assert ends[0] == ends[1]
    for weights in ("001/challenger", "002/solver", "003/solver"):
        path = f"a/rounds/{weights}/model.safetensors"
        assert (tmp_path / path).read_bytes() == (run / path).read_bytes(), weights


def assert_only_one_learns(history: History) -> None:
    done = Counter(event.stage for event in of(history, events.StageCompleted))
    assert done == {"challenger": 1, "candidates": 2, "votes": 2, "solver": 2, "diagnosis": 2}
    left = [artifact.path for _, artifact in history.policies(["challenger", "solver"], 3)]
    assert left == ["rounds/001/challenger", "rounds/002/solver", "rounds/003/solver"]
