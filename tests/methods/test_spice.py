"""SPICE as DARC implements it again: rewards by hand, what is read, and what a run leaves in the log."""

import json
import math
import re
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import is_held_out, truth
from diagevo.arithmetic.corpus import worked_lines
from diagevo.arithmetic.numbers_judge import NumbersJudge
from diagevo.arithmetic.worked_answers import WorkedAnswers, answered_turns
from diagevo.config.loading import resolve
from diagevo.config.models import CorpusConfig
from diagevo.config.paper import deviations
from diagevo.equations.filter import counted
from diagevo.equations.proposers import MeasuredProposal, question_reward
from diagevo.errors import ConfigError
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import open_history
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.answered_questions import AnsweredQuestion, JsonQuestions
from diagevo.methods.document_corpus import Corpus, SourceDocument
from diagevo.methods.interface import SolverRewards
from diagevo.methods.spice import Spice, VarianceReward
from diagevo.training.phase import Rollout
from tests.methods import documented
from tests.methods.logged_rewards import compared
from tests.once import once
from tests.run.program import Moment, killed, played

PROGRAM = "tests.methods.documented:program"
RESUMED = ["--resume", "--rounds", "2"]
ENDS = math.exp(-3.125)
"""v = 0: (0 − 1/4)² = 1/16, over 2 · 1/100."""


@pytest.mark.parametrize(
    ("accuracy", "related", "reward"),
    [
        (Fraction(1, 2), True, 1.0),  # v = 1/4
        (Fraction(0), True, ENDS),
        (Fraction(1), True, ENDS),
        (Fraction(1, 8), True, 0.3720342),  # v = 7/64: (9/64)² = 81/4096, over 1/50, is 0.988769…
        (Fraction(7, 8), True, 0.3720342),
        (Fraction(1, 4), True, 0.8225775),  # v = 3/16: (1/16)² = 1/256, over 1/50, is 0.1953125
        (Fraction(1, 2), False, 0.0),
        (Fraction(0), False, 0.0),
        (None, True, -1.0),
        (None, False, -1.0),
    ],
)
def test_a_question_earns_by_the_variance_of_being_right_nothing_unrelated_and_less_unread(
    accuracy: Fraction | None, related: bool, reward: float
) -> None:
    assert question_reward(accuracy, related) == pytest.approx(reward, rel=1e-6)


OBJECT: dict[str, Any] = {
    "analysis": "one step",
    "question": " How far does a stone fall in 2 s? ",
    "intermediate_results": {"fall": "half of g times four"},
    "answer": 20,
    "solving_time_estimate": 1.5,
    "required_concepts": ["fall"],
    "potential_errors": ["forgetting the half"],
}
CHOICE = "Which falls?\nA) a stone\n B. a leaf\n(C) both\nD: none"


def said(**changed: Any) -> str:
    return json.dumps({**OBJECT, **changed})


@pytest.mark.parametrize(
    ("kind", "completion", "answer"),
    [
        ("integer", said(), "20"),
        ("integer", f"\n {said(answer=-7)} ", "-7"),
        ("float", said(answer=2.5), "2.5"),
        ("float", said().replace(": 20", ": 20.0"), "20.0"),
        ("float", said().replace(": 20", ": 2.50e3"), "2500.0"),
        ("categorical", said(question=CHOICE, answer=" b"), "B"),
    ],
)
def test_an_object_with_its_fields_and_an_answer_of_its_kind_is_read(
    kind: Any, completion: str, answer: str
) -> None:
    found = JsonQuestions().read(completion, kind)
    assert isinstance(found, AnsweredQuestion)
    assert found.answer == answer
    assert found.text in (OBJECT["question"].strip(), CHOICE)


@pytest.mark.parametrize(
    ("kind", "completion", "why"),
    [
        ("integer", "", "unreadable"),
        ("integer", f"Here it is: {said()}", "unreadable"),
        ("integer", f"```json\n{said()}\n```", "unreadable"),
        ("integer", f"{said()}{said()}", "unreadable"),
        ("integer", f"[{said()}]", "unreadable"),
        ("integer", "[" * 100_000, "unreadable"),
        ("integer", said().replace(": 20", f": {'9' * 5000}"), "unreadable"),
        ("integer", said(extra=1), "unreadable"),
        ("integer", json.dumps({k: v for k, v in OBJECT.items() if k != "analysis"}), "unreadable"),
        ("integer", said(analysis=None), "unreadable"),
        ("integer", said(question="  "), "unreadable"),
        ("integer", said(intermediate_results={}), "unreadable"),
        ("integer", said(intermediate_results={"a": 1}), "unreadable"),
        ("integer", said(solving_time_estimate="1"), "unreadable"),
        ("integer", said(solving_time_estimate=float("nan")), "unreadable"),
        ("integer", said(required_concepts=[]), "unreadable"),
        ("integer", said(potential_errors=["a"] * 11), "unreadable"),
        ("integer", said(answer="20"), "unanswered"),
        ("integer", said(answer=20.0), "unanswered"),
        ("integer", said(answer=True), "unanswered"),
        ("integer", said().replace(": 20", f": {'9' * 400}"), "unanswered"),
        ("float", said(), "unanswered"),
        ("float", said().replace(": 20", ": 2e1"), "unanswered"),
        ("float", said().replace(": 20", ": 1.0e999"), "unanswered"),
        ("float", said().replace(": 20", ": NaN"), "unanswered"),
        ("categorical", said(question=CHOICE, answer="E"), "unanswered"),
        ("categorical", said(question=CHOICE, answer=1), "unanswered"),
        ("categorical", said(question=CHOICE[:-8], answer="A"), "unreadable"),
        ("categorical", said(answer="A"), "unreadable"),
    ],
)
def test_what_is_not_of_the_form_has_a_reason(kind: Any, completion: str, why: str) -> None:
    assert JsonQuestions().read(completion, kind) == why


def test_a_longer_question_is_cut_and_a_document_is_never_a_template() -> None:
    found = JsonQuestions().read(said(question="x" * 1999 + " y"), "integer")
    assert isinstance(found, AnsweredQuestion)
    assert found.text == "x" * 1999
    [turn] = JsonQuestions().asks("<answer> {0} <document>", "integer")
    assert "<answer> {0} <document>" in turn["content"]
    assert "as a JSON number" in turn["content"]


class Context:
    """As much of a run as the method asks for."""

    def __init__(self, documents: list[SourceDocument], replies: list[list[str]] | None = None) -> None:
        self.config = documented.config()
        self.answered = JsonQuestions()
        named = [(f"document {number}", document) for number, document in enumerate(documents)]
        self.corpus = Corpus(named, "here", CorpusConfig(), lambda _: False)
        self.replies = replies or []
        self.asked: list[str] = []
        self.judged: list[tuple[str, str]] = []
        self.room = 5000

    def fits(self, prompt: Any) -> bool:
        return len(prompt[0]["content"]) <= self.room

    def refusal(self, question: str) -> str | None:
        return "held_out" if "Hamlet" in question else None

    def seed(self, *_: object) -> int:
        return 5

    def respond(self, sampler: Any, questions: list[str], n: int, seed: int) -> list[list[Any]]:
        self.asked = questions
        return [[Rollout("", 0, 0, text, False) for text in group] for group in self.replies]

    def right(self, given: list[tuple[None, str, str]]) -> list[bool | None]:
        boxes = [(extract_boxed(text), label) for _, text, label in given]
        return [None if box is None else box == label for box, label in boxes]

    def related(self, pairs: list[tuple[str, str]]) -> list[bool]:
        self.judged = pairs
        return ["stone" in question for _, question in pairs]


DOCUMENTS = [SourceDocument("m" * 3000, "mathematics"), SourceDocument("g" * 40, "general")]


def test_each_draw_shows_a_document_and_asks_for_its_kind_of_answer() -> None:
    context = Context(DOCUMENTS)
    method = Spice(context)  # type: ignore[arg-type]
    draws = [Draw(index, "free") for index in range(1000)]
    asks = method.asks(draws, 3, list, 1)
    assert asks == method.asks(draws, 3, list, 1)
    kinds = Counter((ask.given[0][:1], ask.part) for ask in asks)
    assert kinds.keys() == {("m", "integer"), ("m", "float"), ("g", "categorical")}
    mathematics = kinds["m", "integer"] + kinds["m", "float"]
    assert 440 < mathematics < 560
    assert 0.53 < kinds["m", "integer"] / mathematics < 0.67
    for ask in asks[:20]:
        assert ask.given[1] == ask.part
        assert ask.given[0] in ask.prompt[0]["content"]


def test_a_document_keeps_as_much_of_its_beginning_as_a_prompt_has_room_for() -> None:
    context = Context([SourceDocument("".join(f"{i} " for i in range(3000)), "general")])
    context.room = 4000
    [ask] = Spice(context).asks([Draw(0, "free")], 1, list, 1)  # type: ignore[arg-type]
    assert len(ask.prompt[0]["content"]) <= 4000 < len(ask.prompt[0]["content"]) * 8 // 7
    assert context.corpus[0].text.startswith(ask.given[0])
    context.room = 100
    with pytest.raises(ConfigError, match="no document fits"):
        Spice(context).asks([Draw(0, "free")], 1, list, 1)  # type: ignore[arg-type]


def test_the_challenger_is_measured_without_the_document_and_by_the_judge() -> None:
    """Of four answers to each of three questions 1, 2 and 4 are right; the second is unrelated."""
    right, wrong = r"so \boxed{20}", r"\boxed{21}"
    context = Context(DOCUMENTS, [[right, wrong, "20", wrong], [right, right, "", wrong], [right] * 4])
    given = {"r1.u0": ["a stone falls", "integer"], "r1.u1": ["a leaf falls", "integer"]}
    reward = VarianceReward(context, None, 1, given)  # type: ignore[arg-type]
    completions = [
        ("r1.u0", said()),
        ("r1.u0", said(question="Who wrote Hamlet?")),
        ("r1.u1", said(question="How long does a leaf fall?")),
        ("r1.u1", "no object"),
        ("r1.u1", said(question="How long does a stone fall?")),
    ]
    rollouts = [Rollout(row, 0, 1, text, False) for row, text in completions]
    measures = reward.measure(rollouts)
    assert measures == [
        MeasuredProposal(*each)._asdict() for each in [(1, 4), (None,), (2, 4, False), (None,), (4, 4)]
    ]
    assert [document for document, _ in context.judged] == ["a stone falls", "a leaf falls", "a leaf falls"]
    assert not any("falls" in question for question in context.asked)
    assert json.loads(json.dumps(measures)) == measures  # they go between processes
    assert reward.rewards(rollouts, measures) == pytest.approx([0.8225775, -1.0, 0.0, -1.0, ENDS])


def test_a_candidate_is_labelled_by_its_writer_related_or_not() -> None:
    context = Context([DOCUMENTS[1]])
    method = Spice(context)  # type: ignore[arg-type]
    [ask] = method.asks([Draw(0, "free")], 1, list, 1)
    found = method.read(ask, said(question=CHOICE, answer="C"))
    assert (found.question, found.answer, found.label_from, found.invalid) == (CHOICE, "C", "proposer", None)
    assert (found.given, found.part) == ((DOCUMENTS[1].text, "categorical"), "categorical")
    invalid = method.read(ask, said(answer="C"))
    assert (invalid.question, invalid.invalid, invalid.label_from) == (None, "unreadable", "votes")
    assert method.read(ask, said(question=f"Hamlet? {CHOICE}", answer="C")).invalid == "held_out"
    assert method.solver_rewards(None) == SolverRewards(1.0, 0.0, malformed=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"corpus": {"file": None}}, "needs corpus.file"),
        ({"roles": {"judge": {"engine": None}}}, "roles.judge.engine openai"),
        ({"schedule": {"policy": "frequency"}}, "aims at no cause"),
        ({"round": {"true_labels": True}}, "from the challenger"),
        ({"roles": {"solver": {"model": "another/model"}}}, "trains one model"),
        ({"world": None, "prompts": None}, "the rule of a world"),
    ],
)
def test_what_spice_cannot_be_played_with_is_refused(change: Any, said: str) -> None:
    values = documented.values()
    for section, changed in change.items():
        values[section] = {**values[section], **changed} if isinstance(changed, dict) else changed
    with pytest.raises(ValidationError, match=said):
        type(documented.config()).model_validate(values)


def test_its_profile_deviates_from_its_source_in_nothing_that_a_setting_says(tmp_path: Path) -> None:
    served = ["roles.judge.engine=openai", "roles.judge.base_url=http://127.0.0.1:1/v1"]
    settings = ["method=spice", "corpus.file=documents.jsonl", *served]
    for profile in ("qwen3-4b", "qwen3-8b"):
        found = resolve(settings=settings, profile=profile, environ={"XDG_CONFIG_HOME": str(tmp_path)})
        stated = [one.key for one in deviations(found) if "spice" in one.stated]
        assert stated == []
        assert (found.config.challenger_grpo.updates, found.config.solver_grpo.advantage_scale) == (8, "none")


class TestWorkedAnswers:
    def test_a_question_comes_with_its_own_answer(self) -> None:
        world = WorkedAnswers()
        said = "<question> double 3 , add 2 and double again </question> 3*2=6;6+2=8;8*2=16;\\boxed{16}"
        assert world.read(said, "integer") == ("double 3 , add 2 and double again", "16")
        assert world.read(said.replace("\\boxed{16}", ""), "integer") == "unanswered"
        assert world.read(said.replace("16}", "x}"), "integer") == "unanswered"
        assert world.read("3*2=6;\\boxed{6}", "integer") == "unreadable"

    def test_a_warm_start_teaches_both_roles_related_questions_and_none_that_is_measured(self) -> None:
        turns, world, judge = list(answered_turns(3, 800)), WorkedAnswers(), NumbersJudge()
        assert turns == list(answered_turns(3, 800))
        begins = "ask a question with the result : "
        shown = [turn for turn in turns if str(turn[0]["content"]).startswith(begins)]
        assert len(shown) == 400
        right, same = 0, 0
        for asked, wrote in shown:
            found = world.read(str(wrote["content"]), "integer")
            assert isinstance(found, AnsweredQuestion)
            document = str(asked["content"]).removeprefix(begins)
            assert judge.related([(document, found.text)]) == [True]
            assert not is_held_out(found.text)
            right += truth.answer(found.text) == found.answer
            numbers = document.partition(" : ")[2].partition(" ; ")[0]
            same += re.findall(r"\d+", numbers) == re.findall(r"\d+", found.text)
        assert 0.4 < right / 400 < 0.95
        assert 0.4 < same / 400 < 0.8
        assert not any(is_held_out(str(turn[0]["content"])) for turn in turns)

    def test_its_prompts_are_in_the_models_words(self) -> None:
        from diagevo.arithmetic import WEIGHTS
        from diagevo.sampling.model_folder import encode_prompts, load_tokenizer

        tokenizer = load_tokenizer(WEIGHTS, {})
        prompts = [WorkedAnswers().asks(line, "integer") for line in worked_lines()]
        encoded = encode_prompts(tokenizer, prompts)
        unknown = tokenizer.convert_tokens_to_ids("<unk>")
        assert not any(unknown in ids for ids in encoded)
        assert max(map(len, encoded)) <= 128


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a` of two rounds."""

    def make(home: Path) -> None:
        told = played(home, documented.written(home), main=PROGRAM)
        assert told.code == 0, told.stderr[-3000:]

    return once(tmp_path_factory, "spice", make)


@pytest.mark.slow
def test_every_label_verdict_and_reward_follows_from_what_the_log_has(run: Path) -> None:
    """From raw SQL alone, and the rule by which these tests answer for the challenger."""
    with closing(sqlite3.connect(run / "diagevo.db")) as db:
        texts = {digest: text.decode() for digest, text in db.execute("SELECT digest, content FROM artifact")}
        rows = [
            (type_, round_, json.loads(payload))
            for type_, round_, payload in db.execute(
                "SELECT type, round, payload FROM event ORDER BY sequence"
            )
        ]
    of: dict[str, Any] = {one["question_id"]: one for type_, _, one in rows if type_ == "CandidateScored"}
    assert len(of) == 48
    documents, answered = set(worked_lines()), 0
    for one in of.values():
        shown = [texts[digest] for digest in one["given"]]
        assert shown[0] in documents
        assert shown[1:] == ["integer"] == [one["part"]]
        if one["verdict"] == "invalid":
            assert (one["label"], one["label_from"], one["votes"]) == (None, "votes", [])
            continue
        question = texts[one["question"]]
        _, most, second, _ = counted([tuple(vote) for vote in one["votes"]])
        assert (one["label_from"], one["label"]) == ("proposer", documented.own_answer(question))
        assert (one["first"], one["second"], one["verdict"]) == (most, second, "kept")
        assert one["label_true"] == (one["label"] == truth.answer(question))
        right = sum(count for answer, count in one["votes"] if answer == one["label"])
        reference = texts[one["reference"]]
        assert extract_boxed(reference) == one["label"]
        assert (reference == f"\\boxed{{{one['label']}}}") == (right == 0)
        answered += right > 0
    assert answered
    failures = [one for type_, _, one in rows if type_ == "FailureObserved"]
    for failure in failures:
        assert extract_boxed(texts[failure["trajectory"]]) != of[failure["question_id"]]["label"]
    wrong: Counter[str] = Counter()
    for type_, _, step in rows:
        for group in step["groups"] if type_ == "StepTrained" else ():
            if step["stage"] == "solver":
                assert set(group["rewards"]) <= {0.0, 1.0}
                wrong[group["prompt"]] += group["rewards"].count(0.0)
            else:
                possible = [-1.0, 0.0, ENDS, 0.8225775, 1.0]  # four answers a question
                assert all(min(abs(r - p) for p in possible) < 1e-6 for r in group["rewards"])
    assert +wrong == Counter(failure["question_id"] for failure in failures)
    assert any(type_ == "FailureDiagnosed" for type_, _, _ in rows)


@pytest.mark.slow
def test_the_challengers_rewards_follow_from_what_the_log_has_of_them(run: Path) -> None:
    assert compared(run / "diagevo.db", "spice") >= 1


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_where_an_unbroken_one_does(run: Path, tmp_path: Path) -> None:
    arguments = documented.written(tmp_path)
    for stage, event in [
        ("challenger", "stage_progress"),
        ("candidates", "stage_started"),
        ("votes", "stage_started"),
        ("solver", "stage_progress"),
        ("diagnosis", "stage_progress"),
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


@pytest.mark.slow
def test_a_judge_that_does_not_answer_ends_the_run_and_nothing_is_taken_for_related(tmp_path: Path) -> None:
    judge = {"engine": "openai", "base_url": "http://127.0.0.1:1/v1"}
    roles = {**documented.values()["roles"], "judge": judge}
    told = played(tmp_path, documented.written(tmp_path, roles=roles), main=PROGRAM)
    assert told.code == 6, told.stderr[-3000:]
    assert "http://127.0.0.1:1/v1 cannot be reached" in told.error()["message"]
    with closing(sqlite3.connect(tmp_path / "diagevo.db")) as db:
        [(steps,)] = db.execute("SELECT count(*) FROM event WHERE type = 'StepTrained'")
    assert steps == 0
