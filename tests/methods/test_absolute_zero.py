"""Absolute Zero: rewards by hand, tasks, and what a run of it leaves in the log."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from pydantic import ValidationError

from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic.sentence_tasks import SentenceTasks, filled, of_sentence, taken_apart, task_turns
from diagevo.arithmetic.truth import answer
from diagevo.config.models import Config
from diagevo.equations.proposers import MeasuredProposal, learnability, proposer_reward
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import History, open_history
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.absolute_zero import AbsoluteZero, ProposerReward
from diagevo.methods.tasks import KINDS, ProgramTask, read_task
from diagevo.training.phase import Rollout
from tests.methods import asked
from tests.methods.logged_rewards import compared
from tests.once import once
from tests.run.program import Moment, killed, played
from tests.run.test_round import of

WORLD = SentenceTasks()
PROGRAM = "tests.methods.asked:program"
RESUMED = ["--resume", "--rounds", "2"]
DOUBLE = ProgramTask("deduction", "double {} , add {} and double again", ("3 2",), ("16",))


@pytest.mark.parametrize(
    ("accuracy", "learnable", "reward"),
    [
        (Fraction(0), Fraction(0), -0.5),
        (Fraction(1, 8), Fraction(7, 8), 0.875),
        (Fraction(1, 2), Fraction(1, 2), 0.5),
        (Fraction(7, 8), Fraction(1, 8), 0.125),
        (Fraction(1), Fraction(0), -0.5),
    ],
)
def test_a_task_earns_one_less_the_accuracy_and_nothing_at_either_end(
    accuracy: Fraction, learnable: Fraction, reward: float
) -> None:
    assert learnability(accuracy) == learnable
    assert proposer_reward(accuracy) == reward


def test_no_valid_task_earns_minus_one() -> None:
    assert proposer_reward(None) == -1.0


def test_a_task_is_the_same_from_its_text() -> None:
    task = ProgramTask("induction", "def f(a):\n    return 'ü'", ("1", '"x"'), ("'ü'", "'ü'"), "a hint")
    assert read_task(task.text()) == task


def test_an_induction_shows_the_first_half_and_is_labelled_by_the_other() -> None:
    task = ProgramTask("induction", "p", ("1", "2", "3", "4", "5"), ("a", "b", "c", "d", "e"))
    assert (task.shown, task.label) == (2, "[c, d, e]")


class TestSentences:
    def test_a_deduction_is_the_sentence_and_its_value(self) -> None:
        task = WORLD.read("deduction", "<question> Square 3 , add 2 and take away 4 </question>", [DOUBLE])
        assert isinstance(task, ProgramTask)
        assert (task.inputs, task.outputs, task.label) == (("3 2 4",), ("7",), "7")
        assert WORLD.question(task) == "Square 3 , add 2 and take away 4"
        given = [r"\boxed{7}", r"\boxed{007}", r"\boxed{8}", "7", r"\boxed{x}"]
        assert WORLD.answers([(task, text) for text in given]) == ["7", "7", "8", None, "x"]

    def test_any_number_that_gives_the_result_is_right_in_an_abduction(self) -> None:
        """Swapped digits forget a zero: 5 and 50 both give 5, so two inputs have the output 17."""
        task = WORLD.read("abduction", "<question>swap the digits of 50 and add 12</question>", [])
        assert isinstance(task, ProgramTask)
        assert WORLD.question(task) == "find the number : swap the digits of {} and add 12 , giving 17"
        given = [r"\boxed{50}", r"\boxed{5}", r"\boxed{6}", r"\boxed{-5}", r"\boxed{5000}", ""]
        found = WORLD.answers([(task, text) for text in given])
        assert found == ["17", "17", "18", "no number: -5", "no number: 5000", None]

    def test_an_induction_is_right_for_any_wording_of_the_family_and_wrong_for_another(self) -> None:
        shown = [ProgramTask("induction", DOUBLE.program, DOUBLE.inputs, DOUBLE.outputs)]
        said = "<question>twice 5 , plus 7 , then all of it twice</question>"
        task = WORLD.read("induction", said, shown)
        assert isinstance(task, ProgramTask)
        assert task.inputs[:2] == ("3 2", "5 7")
        assert task.outputs[:2] == ("16", "34")
        assert WORLD.question(task) == "find the procedure : 3 , 2 giving 16 ; 5 , 7 giving 34"
        hidden = [str(2 * (2 * a + b)) for a, b in (map(int, each.split()) for each in task.inputs[2:])]
        assert task.label == f"[{', '.join(hidden)}]"
        right, other, fewer = (
            r"\boxed{double 1 , add 1 and double again}",
            r"\boxed{what is the perimeter of a 3 by 4 rectangle}",
            r"\boxed{square 3 , add 2 and take away 4}",
        )
        assert WORLD.answers([(task, right)]) == [task.label]
        sums = [str(2 * (a + b)) for a, b in (map(int, each.split()) for each in task.inputs[2:])]
        assert WORLD.answers([(task, other)]) == [f"[{', '.join(sums)}]"]
        [wrong] = WORLD.answers([(task, fewer)])
        assert wrong is not None
        assert wrong.startswith("no procedure of so many numbers")

    @pytest.mark.parametrize(
        ("kind", "said", "why"),
        [
            ("deduction", "double 3", "unreadable"),
            ("deduction", "<question>double 3</question>", "outside_world"),
            ("abduction", "<question>solve x/0-1=2</question>", "outside_world"),
            ("induction", "<question>swap the digits of 12 and add 3</question>", "unreadable"),
        ],
    )
    def test_what_is_no_task_has_a_reason(self, kind: Any, said: str, why: str) -> None:
        assert WORLD.read(kind, said, [DOUBLE]) == why

    def test_a_sentence_taken_apart_and_filled_is_the_sentence(self) -> None:
        for turns in task_turns(3, 300):
            for sentence in str(turns[0]["content"]).partition(" : ")[2].split(" ; "):
                if answer(sentence) is not None:
                    assert filled(*taken_apart(sentence)) == sentence

    def test_the_documents_are_of_every_form_and_a_number_is_right_in_three_of_five(self) -> None:
        turns = list(task_turns(3, 600))
        asks = Counter(str(t[0]["content"]).split(" : ")[0] for t in turns if " : " in str(t[0]["content"]))
        assert asks.keys() == {
            "ask for the result",
            "ask for the number",
            "ask for the procedure",
            "find the number",
            "find the procedure",
        }
        deduced = [t for t in turns if answer(str(t[0]["content"])) is not None]
        right = [extract_boxed(str(t[1]["content"])) == answer(str(t[0]["content"])) for t in deduced]
        assert 0.6 < sum(right) / len(deduced) < 0.9
        assert all("=" in str(t[1]["content"]) for t in deduced)
        found = [t for t in turns if str(t[0]["content"]).startswith("find the number")]
        led = []
        for prompt, said in found:
            blank, _, gives = (
                str(prompt["content"]).removeprefix("find the number : ").rpartition(" , giving ")
            )
            filled_in = blank.replace("{}", extract_boxed(str(said["content"])) or "")
            led.append(answer(filled_in) == gives.replace("minus ", "-"))
        assert 0.45 < sum(led) / len(found) < 0.8


class Context:
    """As much of a run as the method asks for."""

    def __init__(self, replies: list[list[str]] | None = None) -> None:
        self.config = asked.config()
        self.tasks = WORLD
        self.templates = SimpleNamespace(solver=lambda question: question)
        self.replies = replies or []
        self.asked: list[list[str]] = []

    def is_held_out(self, question: str) -> bool:
        return "50" in question

    def fits(self, prompt: str) -> bool:
        return len(prompt) < 80

    def seed(self, *_: object) -> int:
        return 5

    def respond(self, sampler: Any, questions: list[str], n: int, seed: int) -> list[list[Any]]:
        self.asked.append(questions)
        return [[Rollout("", 0, 0, text, False) for text in group] for group in self.replies]


def _double(kind: Any, number: int) -> str:
    return of_sentence(kind, f"double {number} , add 2 and double again").text()


def _draws(count: int) -> list[Draw]:
    return [Draw(index, "free") for index in range(count)]


def test_draws_are_dealt_to_the_kinds_in_turn_and_show_tasks_of_their_kind() -> None:
    past = [_double(kind, number) for number in (3, 4, 5) for kind in KINDS[:2]]
    asks = AbsoluteZero(Context()).asks(_draws(30), 1, lambda: past, 1)  # type: ignore[arg-type]
    assert [ask.part for ask in asks] == [*KINDS] * 10
    shown = [[read_task(text) for text in ask.given] for ask in asks]
    assert all({task.kind for task in each} == {ask.part} for ask, each in zip(asks, shown, strict=True))
    assert [len(each) for each in shown] == [2, 2, 1] * 10
    assert {task.inputs[0] for each in shown for task in each} == {"3 2", "4 2", "5 2"}
    assert asks == AbsoluteZero(Context()).asks(_draws(30), 1, lambda: past, 1)  # type: ignore[arg-type]


def test_the_buffer_holds_the_newest_and_begins_with_the_worlds_own() -> None:
    context = Context()
    context.config = Config.model_validate({**asked.values(), "absolute_zero": {"shown": 6, "buffer": 2}})
    past = [_double("deduction", number) for number in range(3, 9)]
    method = AbsoluteZero(context)  # type: ignore[arg-type]
    [ask] = method.asks(_draws(1), 1, lambda: past, 1)
    assert {read_task(text).inputs[0] for text in ask.given} == {"7 2", "8 2"}
    begun = method.asks(_draws(3), 1, list, 1)
    assert [read_task(ask.given[0]).program for ask in begun] == [DOUBLE.program] * 3


def test_a_proposal_that_may_not_be_used_has_a_reason() -> None:
    method = AbsoluteZero(Context())  # type: ignore[arg-type]
    ask = method.asks(_draws(1), 1, list, 1)[0]
    found = method.read(ask, "<question>square 3 , add 2 and take away 4</question>")
    assert found.question == "square 3 , add 2 and take away 4"
    assert (found.answer, found.label_from) == ("7", "executor")
    assert read_task(found.task or "").inputs == ("3 2 4",)
    assert method.read(ask, "<question>swap the digits of 50 and add 1</question>").invalid == "held_out"
    long = "first double 3 , add 2 and double again ; second square 3 , add 2 and take away 4 ; add both"
    assert method.read(ask, f"<question>{long}</question>").invalid == "too_long"
    assert method.read(ask, "").invalid == "unreadable"


def test_the_challengers_reward_is_the_solvers_accuracy_on_its_tasks() -> None:
    """Of four answers to each of three tasks 1, 4 and 0 are right; one completion has no task."""
    once_right = [r"\boxed{7}", r"\boxed{8}", "", r"\boxed{9}"]
    replies = [once_right, [r"\boxed{50}", r"\boxed{5}"] * 2, [r"\boxed{1}"] * 4]
    context = Context(replies)
    context.is_held_out = lambda question: False  # type: ignore[method-assign]
    shown = ProgramTask("deduction", DOUBLE.program, ("3 2",), ("16",))
    given = {f"u{i}": [replace(shown, kind=kind).text()] for i, kind in enumerate(KINDS)}
    reward = ProposerReward(context, None, 1, given)  # type: ignore[arg-type]
    said = [
        ("u0", "<question>square 3 , add 2 and take away 4</question>"),
        ("u1", "<question>swap the digits of 50 and add 12</question>"),
        ("u0", "<question>nothing</question>"),
        ("u2", "<question>double 9 , add 9 and double again</question>"),
    ]
    rollouts = [Rollout(row, 0, 1, text, False) for row, text in said]
    measures = reward.measure(rollouts)
    counts = [(1, 4), (4, 4), (None, 0), (0, 4)]
    assert measures == [MeasuredProposal(*each)._asdict() for each in counts]
    assert reward.rewards(rollouts, measures) == [0.75, -0.5, -1.0, -0.5]
    assert len(context.asked[0]) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schedule": {"policy": "frequency"}}, "aims at no cause"),
        ({"round": {"true_labels": True}}, "from the executor"),
        ({"roles": {**asked.values()["roles"], "solver": {"model": "another/model"}}}, "trains one model"),
    ],
)
def test_settings_that_contradict_the_method_are_refused(change: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({**asked.values(), **change})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a` of two rounds."""

    def make(home: Path) -> None:
        told = played(home, asked.written(home), main=PROGRAM)
        assert told.code == 0, told.stderr[-3000:]

    return once(tmp_path_factory, "absolute-zero", make)


@pytest.fixture
def history(run: Path) -> Iterator[History]:
    with closing(open_history(f"sqlite:///{run / 'diagevo.db'}", "a", root=run)) as found:
        yield found


@pytest.mark.slow
def test_all_that_a_run_on_the_arithmetic_world_says_follows_from_its_tasks(history: History) -> None:
    """Question, label and kind, made again from the task alone."""
    scored = of(history, events.CandidateScored)
    assert len(scored) == 72
    valid = [one for one in scored if one.verdict != "invalid"]
    assert {one.part for one in valid} >= {"deduction", "abduction"}
    for one in valid:
        task = read_task(history.text(one.task) or "")
        assert (one.label_from, one.label, one.part) == ("executor", task.label, task.kind)
        assert history.text(one.question) == WORLD.question(task)
        assert [answer(s) for s in WORLD.sentences(task)] == list(task.outputs)
        assert one.verdict == "kept"
    for one in scored:
        assert read_task(history.text(one.given[0]) or "").kind == one.part


@pytest.mark.slow
def test_the_second_round_shows_tasks_of_the_first(history: History) -> None:
    scored = of(history, events.CandidateScored)
    first = {history.text(one.task) for one in scored if one.question_id.startswith("r1.") and one.task}
    shown = {
        read_task(history.text(text) or "").inputs
        for one in scored
        if one.question_id.startswith("r2.") and one.part != "induction"
        for text in one.given
    }
    assert shown <= {read_task(text or "").inputs for text in first}
    assert len(shown) > 2


@pytest.mark.slow
def test_accuracy_and_rewards_are_recomputed_from_raw_sql(run: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{run / 'diagevo.db'}")
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT type, payload FROM event ORDER BY position")).all()
    engine.dispose()
    found = [(kind, json.loads(payload)) for kind, payload in rows]
    for kind, payload in found:
        if kind == "CandidateScored" and payload["verdict"] != "invalid":
            counts = dict(payload["votes"])
            assert len(counts) == len(payload["votes"])
            right = Fraction(counts.get(payload["label"], 0), payload["responses"])
            assert 0 <= right <= 1
    earned = {stage: Counter[float]() for stage in ("challenger", "solver")}
    for kind, payload in found:
        if kind == "StepTrained":
            assert all(len(group["rewards"]) == 1 for group in payload["groups"])
            earned[payload["stage"]].update(r for group in payload["groups"] for r in group["rewards"])
    assert earned["solver"].keys() <= {1.0, -0.5, -1.0}
    assert earned["challenger"].keys() <= {-1.0, -0.5, 0.25, 0.5, 0.75}
    assert len(earned["solver"]) > 1
    assert len(earned["challenger"]) > 1


@pytest.mark.slow
def test_both_roles_are_one_model_whose_weights_are_carried_on(run: Path, history: History) -> None:
    left = [artifact.path for _, artifact in history.policies(["challenger", "solver"], 2)]
    assert left == [f"rounds/00{n}/{role}" for n in (1, 2) for role in ("challenger", "solver")]


@pytest.mark.slow
def test_the_challengers_rewards_follow_from_what_the_log_has_of_them(run: Path) -> None:
    assert compared(run / "diagevo.db", "absolute-zero") >= 18


@pytest.mark.slow
def test_killed_in_each_stage_it_ends_where_an_unbroken_run_does(run: Path, tmp_path: Path) -> None:
    arguments = asked.written(tmp_path)
    for stage, event in [
        ("challenger", "stage_progress"),
        ("candidates", "stage_started"),
        ("votes", "stage_started"),
        ("solver", "stage_progress"),
        ("diagnosis", "stage_started"),
    ]:
        told = played(tmp_path, arguments, Moment(stage, event, killed), main=PROGRAM)
        assert told.code == -signal.SIGKILL, told.stderr[-3000:]
        arguments = RESUMED
    done = played(tmp_path, RESUMED, main=PROGRAM)
    assert done.code == 0, done.stderr[-3000:]
    ends: list[list[str]] = []
    for home in (run, tmp_path):
        with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", "a", root=home)) as opened:
            report = verify(opened.log, "a", home / "a", deep=True)
            assert report.ok, report.faults
            ends.append([opened.commit(number).event.state_hash for number in (1, 2)])
    assert ends[0] == ends[1]
    for number, role in product((1, 2), ("challenger", "solver")):
        weights = f"a/rounds/00{number}/{role}/model.safetensors"
        assert (tmp_path / weights).read_bytes() == (run / weights).read_bytes(), weights
