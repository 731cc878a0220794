"""Rollouts that have nothing to compare, or little, as foreign trainers write them: what is true is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.history import open_history
from diagevo.memory.read.counts import counts
from diagevo.memory.read.pass_rates import pass_rates
from diagevo.memory.read.runs import run_story
from diagevo.view.outcomes import helped
from tests.cli.program import invoke

SHEEP = "A farmer has 17 sheep. All but 9 die. How many are left?"
CAPITAL = "What is the capital of Australia?"


def rows(prompt: str, right: str, wrong: str, passed: str, **more: Any) -> list[dict[str, Any]]:
    """A rollout a sign of `passed`: rows("…", "9", "8", "+-")."""
    return [
        {"prompt": prompt, "response": right if sign == "+" else wrong, "reward": float(sign == "+")} | more
        for sign in passed
    ]


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *words: str, run: str = "own") -> Any:
        return invoke(*words, "--run", run, env={"DIAGEVO_HOME": str(self.path)})

    def ingest(self, found: list[dict[str, Any]], *words: str, run: str = "own") -> Any:
        file = self.path / f"{run}.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in found))
        return self.run("ingest", "jsonl", str(file), *words, run=run)

    def runs(self) -> list[dict[str, Any]]:
        listed = invoke("runs", "list", "--json", env={"DIAGEVO_HOME": str(self.path)})
        return json.loads(listed.stdout).get("data", [])  # where nothing was recorded, no database

    def history(self) -> Any:
        return open_history(f"sqlite:///{self.path / 'diagevo.db'}", "own")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_prompts_that_were_answered_once_are_no_absence_of_failures(home: Home) -> None:
    once = [
        *rows(SHEEP, "9", "8", "-"),
        *rows(CAPITAL, "Canberra", "Sydney", "-"),
        *rows("2+2", "4", "5", "+"),
    ]
    assert "answered once" in home.ingest(once).stderr
    told = home.run("diagnose", "--local")
    assert told.exit_code == 0, told.output
    assert "2 of 2 rollouts that failed have no cause" in told.stderr
    assert SHEEP in home.run("runs", "show").stdout


def test_prompt_and_response_the_wrong_way_round_are_asked_about(home: Home) -> None:
    turned = [
        row | {"prompt": row["response"], "response": row["prompt"]}
        for row in rows(SHEEP, "17 - 8 = 9", "17 - 9 = 8", "++--")
    ]
    assert "Are prompt and response swapped (--map)" in home.ingest(turned).stderr


@pytest.mark.parametrize(("low", "high"), [(10.0, 100.0), (0.1, 0.4)])
def test_a_reward_of_another_scale_is_refused_and_leaves_no_run(home: Home, low: float, high: float) -> None:
    scaled = [row | {"reward": high if row["reward"] else low} for row in rows(SHEEP, "9", "8", "+--+")]
    told = home.ingest(scaled)
    assert told.exit_code == 2
    assert f"seen {low:g} to {high:g}" in told.stderr
    assert f"--pass-at {high:g}" in told.stderr
    assert home.runs() == []
    assert home.ingest(scaled, "--pass-at", f"{high:g}").exit_code == 0
    assert [line["pass_rate"] for line in home.runs()] == [0.5]


def test_rollouts_without_a_reward_leave_no_run(home: Home) -> None:
    unscored = [row | {"reward": None} for row in rows(SHEEP, "9", "8", "--")]
    assert home.ingest(unscored).exit_code == 2
    assert home.runs() == []


def test_a_field_that_looks_like_the_step_is_told(home: Home) -> None:
    two = [row | {"global_step": step} for step in (10, 20) for row in rows(SHEEP, "9", "8", "+-")]
    told = home.ingest(two)
    assert "1 step" in told.stdout
    assert "--map step=global_step" in told.stderr
    again = home.ingest(two, "--map", "step=global_step", run="mapped")
    assert "2 steps" in again.stdout
    assert "global_step" not in again.stderr
    assert "--steps-per-round 1" in again.stderr


def test_a_prompt_that_always_failed_is_in_the_answer_and_named(home: Home) -> None:
    """Six of eight failures have nothing to be compared with, and two are like no other."""
    found = [
        *rows(SHEEP, "9", "17 - 9 = 8", "---", step=1),
        *rows(CAPITAL, "It is Canberra.", "It is Sydney.", "+-", step=1),
        *rows("Compute 17 * 8.", "17 * 8 = 136", "17 * 8 = 126", "+-", step=1),
        *rows("Compute 12 * 9.", "12 * 9 = 108", "12 * 9 = 98", "+-", step=1),
        *rows(SHEEP, "9", "17 - 9 = 8", "---", step=2),
    ]
    home.ingest(found)
    told = home.run("diagnose", "--local")
    left = "of 9 rollouts that failed have no cause, 6 of them where none of their group passed"
    assert left in told.stderr
    assert "6 of 6 failed" in told.stderr
    assert left in home.run("memory", "show").stderr
    rates = pass_rates(home.history())
    assert rates is not None
    assert (rates.failed, rates.uncompared, rates.never) == (9, 6, 1)
    assert rates.without_cause == 9 - sum(cause.failures for cause in rates.causes)
    assert rates.unexplained[0].prompt == SHEEP


def test_whether_it_helped_is_told_of_prompts_that_came_back(home: Home) -> None:
    """Two prompts: 1/4 then 3/4, and 2/4 then 3/4: +37.5 points, standard error 12.5."""
    home.ingest(
        [
            *rows(SHEEP, "9", "8", "+---", step=1),
            *rows(CAPITAL, "Canberra", "Sydney", "++--", step=1),
            *rows(SHEEP, "9", "8", "+++-", step=2),
            *rows(CAPITAL, "Canberra", "Sydney", "+++-", step=2),
        ]
    )
    history = home.history()
    verdict = next(helped(history, counts(history), run_story(history))).text
    assert "differ from step to step" not in verdict
    assert "On the 2 prompts that came back, the pass rate rose" in verdict
    assert (
        "37.5% the first time to 75.0% the last, +37.5 points (+13.0 to +62.0, paired by prompt)" in verdict
    )


LLAMA = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou help.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)
CHATML = "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(("asked", "end"), [(CHATML, "<|im_end|>"), (LLAMA, "<|eot_id|>")])
def test_marks_of_a_chat_template_are_in_no_prompt_and_no_cause(home: Home, asked: str, end: str) -> None:
    folder = home.path / "verl"
    folder.mkdir()
    for step in (1, 2):
        found = [
            *rows("Compute 17 * 8.", f"17 * 8 = 136{end}", f"17 * 8 = 126{end}", "+-"),
            *rows("Compute 12 * 9.", f"12 * 9 = 108{end}", f"12 * 9 = 98{end}", "+-"),
        ]
        lines = [
            {"input": asked.format(row["prompt"]), "output": row["response"], "score": row["reward"]}
            for row in found
        ]
        (folder / f"{step}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert home.run("ingest", "verl", str(folder)).exit_code == 0
    assert home.run("diagnose", "--local").exit_code == 0
    story = home.run("memory", "why", "c1", "--full").stdout
    assert "17 * 8 = 126" in story
    assert "<|" not in story + home.run("memory", "show").stdout
    question = home.run("memory", "why", "r1.q0", "--full").stdout
    assert "   system: You help.\n\n   user: Compute 17 * 8.\n" in question


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"step": "ten"}, "line 1: its step is not a whole number from 0 to 2^31 - 1: ten"),
        ({"reward": [1.0, 0.0]}, "line 1: its reward is not one number: [1.0, 0.0]"),
        ({"response": ["9", "8"]}, "line 1: its response is not a text or messages: ['9', '8']"),
        ({"response": 5}, "line 1: its response is not a text or messages: 5"),
    ],
)
def test_a_field_of_another_shape_is_named_with_what_is_expected(
    home: Home, changed: dict[str, Any], said: str
) -> None:
    told = home.ingest([row | changed for row in rows(SHEEP, "9", "8", "+-")])
    assert told.exit_code == 2
    assert said in " ".join(told.stderr.split())
    assert f"--map {next(iter(changed))}=" in told.stderr
    assert home.runs() == []


def test_a_step_may_be_written_as_text(home: Home) -> None:
    told = home.ingest([row | {"step": "10"} for row in rows(SHEEP, "9", "8", "+-")])
    assert told.exit_code == 0, told.output


def test_another_scale_is_refused_whatever_the_number_of_rollouts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than `HELD` none is kept: the files are read again."""
    monkeypatch.setattr("diagevo.ingest.session.HELD", 3)
    scaled = [
        row | {"step": step, "reward": 10.0 * step} for step in (1, 2) for row in rows(SHEEP, "9", "8", "-+")
    ]
    refused = home.ingest(scaled, "--map", "step=step")
    assert (refused.exit_code, home.runs()) == (2, []), refused.output
    assert "all of 4 rollouts passed: a reward of 0.5 or more passes, seen 10 to 20" in refused.stderr
    late = home.ingest(
        [*scaled, *(row | {"step": 3, "reward": 0.0} for row in scaled[:1])], "--pass-at", "0.5"
    )
    assert "3 steps (3 new), 5 rollouts in 3 groups" in late.stdout


def test_all_that_pass_are_recorded_whatever_their_number(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagevo.ingest.session.HELD", 3)
    told = home.ingest([row | {"step": step} for step in (1, 2) for row in rows(SHEEP, "9", "8", "++")])
    assert "2 steps (2 new), 4 rollouts in 2 groups" in told.stdout
    assert told.stderr.count("all of 4 rollouts passed") == 1


@pytest.mark.parametrize("number", [4, 20_000])
def test_marks_from_0_to_10_ask_what_passes(home: Home, number: int) -> None:
    marks = [
        {"prompt": f"question {n // 2}", "response": f"answer {n}", "reward": (0, 3, 7, 10)[n % 4]}
        for n in range(number)
    ]
    refused = home.ingest(marks)
    assert refused.exit_code == 2
    assert "rewards range from 0 to 10, and 0.5 or more would pass" in refused.stderr
    assert "--pass-at" in refused.stderr
    assert home.ingest(marks[:4], "--pass-at", "7", run="told").exit_code == 0
