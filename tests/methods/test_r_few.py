"""R-Few, after its description: examples in prompts, labelled items in the pool and what they earn, what is
refused, and a round that was killed."""

import json
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.arithmetic import held_out, truth
from diagevo.arithmetic.corpus import chat_turns, labelled_items
from diagevo.equations.filter import counted, verdict
from diagevo.equations.rewards import weighted_rewards
from diagevo.equations.settings import Filter
from diagevo.errors import ConfigError
from diagevo.loop.roles import Roles
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.interface import SolverRewards
from tests.memory.play import candidate
from tests.run.program import RESUMED, Moment, assert_same_end, first, killed, played
from tests.run.small import small_config

R_FEW: dict[str, Any] = {
    "anchors": {"file": "builtin:arithmetic", "shown": 1, "practised": 12},
    "schedule": {"policy": "free"},
    "filter": {"variant": "absolute", "p_low": "3/10", "p_high": "7/10"},
    "round": {"responses": 10, "candidates": 24},
}
QUESTION = "start at 7 and make 2 jumps of 5"


def few(**more: Any) -> Any:
    """The small configuration under r-few, whose model reads one example without a warm start."""
    config = small_config(**{**R_FEW, **more})
    return type(config).model_validate(config.model_dump(mode="json") | {"method": "r-few"})


def anchored(tmp_path: Path, *rows: object) -> Roles:
    (tmp_path / "anchors.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return Roles(few(anchors={"file": str(tmp_path / "anchors.jsonl"), "shown": 2}), tmp_path)


def _band() -> Filter:
    band = few().filter
    return Filter(band.p_low, band.p_high, band.tau, band.variant)


@given(st.lists(st.booleans()), st.floats(0, 10))
def test_a_right_answer_earns_one_and_the_weight_and_a_wrong_one_nothing(
    agrees: list[bool], weight: float
) -> None:
    assert weighted_rewards([True, False], 2.0) == [3.0, 0.0]  # by hand: 1 + 2, of a labelled item
    assert weighted_rewards([True, False], 0.0) == [1.0, 0.0]
    earned = weighted_rewards(agrees, weight)
    assert [reward > 0 for reward in earned] == agrees


@pytest.mark.parametrize(
    ("first", "kept"), [(2, "too_hard"), (3, "kept"), (7, "kept"), (8, "too_easy")], ids=str
)
def test_the_band_is_three_to_seven_of_ten(first: int, kept: str) -> None:
    assert verdict(first, 0, 10, True, _band()) == kept


def test_a_prompt_shows_none_to_so_many_items_and_the_log_can_say_which(tmp_path: Path) -> None:
    method = Roles(few(anchors={"file": "builtin:arithmetic", "shown": 2}), tmp_path).method
    draws = [Draw(index, "free") for index in range(300)]
    asks = method.asks(draws, 7, list, 1)
    assert asks == method.asks(draws, 7, list, 1)
    assert asks != method.asks(draws, 8, list, 1)
    shown = Counter(len(ask.given) for ask in asks)
    assert sorted(shown) == [0, 1, 2]
    assert min(shown.values()) > 60  # of 300, each as likely
    assert {question for ask in asks for question in ask.given} == {q for q, _ in labelled_items()}
    for ask in asks:
        [turn] = ask.prompt
        examples = " : " + "\n\n".join(ask.given) if ask.given else ""
        assert turn["content"] == f"ask a question{examples}"


def test_labelled_items_join_the_pool_with_their_own_answers_and_a_right_one_earns_more(
    tmp_path: Path,
) -> None:
    method = Roles(few(), tmp_path).method
    items = method.human(24, 3)
    assert [item.draw.index for item in items] == list(range(24, 36))
    assert {(item.question, item.answer) for item in items} <= set(labelled_items())
    assert {item.label_from for item in items} == {"human"}
    voted = candidate("r1.q0")
    assert method.solver_rewards(voted) == SolverRewards(1, 0, malformed=0)
    assert method.solver_rewards(candidate("r1.q1", label_from="human")) == SolverRewards(3, 0, malformed=0)


def test_the_built_in_items_are_true_and_none_is_held_out() -> None:
    items = labelled_items()
    assert len(dict(items)) == 32
    assert all(truth.answer(question) == answer for question, answer in items)
    assert not {question for question, _ in items} & {question for question, _ in held_out()}


def test_a_warm_start_shows_examples_too() -> None:
    asked = [turns[0]["content"] for turns in chat_turns(1, 400, shown=2)]
    assert {text.count("\n\n") for text in asked if text.startswith("ask a question : ")} == {0, 1}
    assert not any(turns[0]["content"].startswith("ask a question :") for turns in chat_turns(1, 400))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no items"),
        ([{"question": QUESTION}], "line 1 is not a labelled question"),
        ([{"question": QUESTION, "answer": "17"}, ["x"]], "line 2 is not a labelled question"),
        ([{"question": QUESTION, "answer": 17}], "the answer of"),
        ([{"question": "  ", "answer": "17"}], "the question of"),
        ([{"question": QUESTION, "answer": "17"}] * 2, "item 2, is item 1 too"),
        ([{"question": "who wrote Hamlet?", "answer": "17"}], "item 1, is outside the world"),
        ([dict(zip(("question", "answer"), held_out()[0], strict=True))], "would be measured"),
        ([{"question": QUESTION + " " + "9" * 4000, "answer": "17"}], "max_prompt_tokens"),
    ],
)
def test_items_that_cannot_be_practised_are_refused_before_anything_is_written(
    tmp_path: Path, rows: list[object], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        anchored(tmp_path, *rows).check()
    assert said in refused.value.message
    assert "anchors.file" in refused.value.message


def test_a_file_of_items_that_is_gone_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Roles(few(anchors={"file": str(tmp_path / "none.jsonl")}), tmp_path).check()
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        Roles(few(anchors={"file": str(tmp_path / "bytes.jsonl")}), tmp_path).check()


@pytest.mark.parametrize(
    ("sections", "said"),
    [({"anchors": {"file": None}}, "needs anchors.file"), ({"schedule": {"policy": "frequency"}}, "free")],
)
def test_what_r_few_cannot_be_played_with_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        few(**sections)


def test_a_question_that_is_data_is_never_a_template(tmp_path: Path) -> None:
    roles = Roles(few(), tmp_path)
    [turn] = roles.templates.anchored(Draw(0, "free"), ["<examples> {0} %s"])
    assert turn["content"] == "ask a question : <examples> {0} %s"


KILLS = [
    ("challenger", "stage_progress"),
    ("candidates", "stage_started"),
    ("votes", "stage_started"),
    ("solver", "stage_progress"),
    ("diagnosis", "stage_progress"),
]


def _first(home: Path) -> list[str]:
    arguments = first(home, **R_FEW)
    values = json.loads((home / "small.yaml").read_text())
    (home / "small.yaml").write_text(json.dumps(values | {"method": "r-few"}), encoding="utf-8")
    return arguments


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_where_an_unbroken_one_does_and_sql_gives_every_verdict(
    tmp_path: Path,
) -> None:
    homes = [tmp_path / name for name in ("unbroken", "killed")]
    for home in homes:
        home.mkdir()
    done = played(homes[0], _first(homes[0]))
    assert done.code == 0, done.stderr[-3000:]
    arguments = _first(homes[1])
    for stage, event in KILLS:
        told = played(homes[1], arguments, Moment(stage, event, killed))
        assert told.code == -signal.SIGKILL, told.stderr[-3000:]
        arguments = RESUMED
    assert played(homes[1], RESUMED).code == 0
    assert_same_end(homes[1], homes[0]).close()
    recompute(homes[0] / "diagevo.db")


def recompute(database: Path) -> None:
    """Every label and verdict, and every reward of the solver, from the payloads alone."""
    items, band = dict(labelled_items()), _band()
    with sqlite3.connect(database) as db:
        texts = {digest: text.decode() for digest, text in db.execute("SELECT digest, content FROM artifact")}
        rows = db.execute("SELECT type, payload FROM event WHERE round = 1 ORDER BY sequence").fetchall()
    scored = [json.loads(payload) for type_, payload in rows if type_ == "CandidateScored"]
    of = {one["question_id"]: one for one in scored}
    assert Counter(one["label_from"] for one in scored if one["verdict"] != "invalid")["human"] == 12
    for one in scored:
        if one["verdict"] == "invalid":
            continue
        answer, most, second, _ = counted([tuple(vote) for vote in one["votes"]])
        if one["label_from"] == "votes":
            assert one["label"] == answer
        elif one["label"] is not None:
            assert one["label"] == items[texts[one["question"]]]
        assert one["verdict"] == verdict(most, second, 10, one["label"] is not None, band)
        assert all(texts[digest] in items for digest in one["given"])
    for type_, payload in rows:
        step = json.loads(payload)
        if type_ == "StepTrained" and step["stage"] == "solver":
            for group in step["groups"]:
                right = 3.0 if of[group["prompt"]]["label_from"] == "human" else 1.0
                assert set(group["rewards"]) <= {right, 0.0}
    failed = [json.loads(payload) for type_, payload in rows if type_ == "FailureObserved"]
    assert {of[one["question_id"]]["verdict"] for one in failed} == {"kept"}
