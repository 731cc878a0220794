"""Exports of evaluation tools, each written by the tool's own code (`data/exports`), counted by hand."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from diagevo.errors import ConfigError
from diagevo.ingest.formats import Format, read
from diagevo.ingest.formats.recognised import recognised
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from tests.cli.program import invoke
from tests.ingest.conftest import DATA

EXPORTS = DATA / "exports"


def step(format: Format, file: Path, **chosen: Any) -> RolloutStep:
    [found] = read(format, file, on_cut=pytest.fail, **chosen)
    return found


def rewards(found: RolloutStep, prompt: str) -> list[float]:
    return [rollout.reward for rollout in found.rollouts if prompt in rollout.prompt]


def test_promptfoo_counts_its_own_verdict() -> None:
    """promptfoo 0.121: four tests, three times, the fourth an error of the provider each time."""
    found = step("promptfoo", EXPORTS / "promptfoo.json")
    document = json.loads((EXPORTS / "promptfoo.json").read_text())
    assert (len(found.rollouts), found.unscored) == (9, 3)
    assert sum(rollout.reward for rollout in found.rollouts) == document["results"]["stats"]["successes"]
    assert rewards(found, "12 + 30") == [1, 1, 0]
    wrong = next(rollout for rollout in found.rollouts if rollout.reward == 0)
    assert wrong == IngestedRollout(
        prompt="system: You are terse.\n\nuser: What is 12 + 30?",
        response="I think it is 41.",
        reward=0.0,
        answer="42",
        feedback='Expected output "I think it is 41." to equal "42"',
        model="off-by-one",
    )
    assert set(rewards(step("promptfoo", EXPORTS / "promptfoo.json", reward="score"), "7 * 6")) == {0.5, 1}


def test_openais_evals_count_what_matched() -> None:
    """evals 3.0.1: its `LocalRecorder` and `record_and_check_match`; three prompts, three times."""
    found = step("openai-evals", EXPORTS / "openai_evals.jsonl")
    lines = [json.loads(line) for line in (EXPORTS / "openai_evals.jsonl").read_text().splitlines()]
    [accuracy] = [line["final_report"]["accuracy"] for line in lines if "final_report" in line]
    assert (len(found.rollouts), found.unscored) == (9, 0)
    assert sum(rollout.reward for rollout in found.rollouts) == 6 == round(9 * accuracy)
    assert rewards(found, "2 + 2") == [1, 0, 0]
    assert rewards(found, "12 + 30") == [1, 0, 1]
    wrong = found.rollouts[1]
    assert (wrong.prompt, wrong.response) == (
        "system: Answer with a number.\n\nuser: What is 2 + 2?",
        "It is 4.",
    )
    assert wrong.answer == "4"


def test_deepeval_counts_the_test_or_a_metric() -> None:
    """deepeval 4.3: six test cases, two of them failed, with two metrics of which one is a custom one."""
    found = step("deepeval", EXPORTS / "deepeval.json")
    assert [rollout.reward for rollout in found.rollouts] == [1, 0, 1, 1, 0, 1]
    assert found.rollouts[1] == IngestedRollout(
        prompt="What is 12 + 30?",
        response="I think it is 41.",
        reward=0.0,
        answer="42",
        feedback="Judged: the answer is off by one\n"
        "Exact Match: The actual and expected outputs are different.",
        tags=("arithmetic",),
    )
    judged = step("deepeval", EXPORTS / "deepeval.json", reward="Judged")
    assert [rollout.reward for rollout in judged.rollouts] == [1, 0.5, 1, 1, 0.5, 1]


def test_langsmith_counts_the_named_feedback() -> None:
    """langsmith 0.15: four examples, three times, each third answer wrong."""
    file = EXPORTS / "langsmith.csv"
    with pytest.raises(ConfigError, match=r"several scores: correct, judged") as several:
        step("langsmith", file)
    assert "--reward" in str(several.value.hint)
    found = step("langsmith", file, reward="correct")
    assert [rollout.reward for rollout in found.rollouts] == [1, 1, 0] * 4
    assert len({rollout.group for rollout in found.rollouts}) == 4
    assert found.rollouts[2].answer == "99"
    assert found.rollouts[2].prompt == "What is 100 - 1?"
    assert step("langsmith", file, reward="judged").rollouts[2].reward == 0.5


def test_langfuse_reads_the_items_of_an_experiment() -> None:
    """langfuse 5.0's own types: six items of four prompts, one without output and scores."""
    found = step("langfuse", EXPORTS / "langfuse.json", reward="correct")
    assert ([rollout.reward for rollout in found.rollouts], found.unscored) == ([1, 0, 1, 0, 1], 1)
    assert found.rollouts[1] == IngestedRollout(
        prompt="What is 12 + 30?",
        response="I think it is 41.",
        reward=0.0,
        answer="42",
        group="i0",
        feedback="judged: off by one",
    )
    assert found.rollouts[0].response == "42"


def test_phoenix_reads_the_runs_of_an_experiment() -> None:
    """arize-phoenix 20.26: four examples, three times, the fourth an error of the task each time."""
    found = step("phoenix", EXPORTS / "phoenix.json", reward="correct")
    assert (len(found.rollouts), found.unscored) == (9, 3)
    assert sum(rollout.reward for rollout in found.rollouts) == 6
    wrong = [rollout for rollout in found.rollouts if rollout.reward == 0]
    assert {rollout.response for rollout in wrong} == {"I think it is 41."}
    assert {rollout.feedback for rollout in wrong} == {"judged: the answer is off by one"}
    assert {(rollout.prompt, rollout.answer) for rollout in found.rollouts} == {
        ("What is 12 + 30?", "42"),
        ("What is 7 * 6?", "42"),
        ("What is 100 - 1?", "99"),
    }
    assert len({rollout.group for rollout in found.rollouts}) == 3


def test_weave_reads_the_calls_that_predict_and_score() -> None:
    """weave 0.54: three rows, three times. Its client wrote the calls; the rows were put in the place of the
    references, as its server does where it is asked to expand them."""
    with pytest.raises(ConfigError, match=r"several scores: correct\.correct, judged"):
        step("weave", EXPORTS / "weave.jsonl")
    found = step("weave", EXPORTS / "weave.jsonl", reward="correct.correct")
    assert (len(found.rollouts), sum(rollout.reward for rollout in found.rollouts)) == (9, 6)
    assert {(rollout.prompt, rollout.answer, rollout.model) for rollout in found.rollouts} == {
        ("What is 12 + 30?", "42", "model"),
        ("What is 7 * 6?", "42", "model"),
        ("What is 100 - 1?", "99", "model"),
    }
    with pytest.raises(ConfigError, match="a reference to a row") as refused:
        step("weave", EXPORTS / "weave_refs.jsonl")
    assert "expand_columns" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("format", "text", "said"),
    [
        ("promptfoo", '{"results": []}', "has no results.results"),
        ("promptfoo", '{"results": {"results": [{"success": true}]}}', "has no prompt, testCase"),
        ("deepeval", '{"testCases": 3}', "has no testCases"),
        ("deepeval", "[1]", "is not an object"),
        ("langfuse", '{"data": [3]}', "data.0 has no experimentItemId"),
        ("langfuse", '{"data": [{"experimentItemId": "a", "input": "x"', "is not JSON|ends inside"),
        ("langsmith", "a,b\n1,2\n", "has no example_id"),
    ],
)
def test_what_is_no_export_is_refused(tmp_path: Path, format: Format, text: str, said: str) -> None:
    file = tmp_path / ("a.csv" if "," in text and "{" not in text and "[" not in text else "a.json")
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        step(format, file)
    assert refused.value.hint


def test_a_score_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match="no score kind: success, Judged, Exact Match"):
        step("deepeval", EXPORTS / "deepeval.json", reward="kind")


@pytest.mark.parametrize(
    ("folder", "format"),
    [
        ("exports/promptfoo.json", "promptfoo"),
        ("exports/deepeval.json", "deepeval"),
        ("exports/langsmith.csv", "langsmith"),
        ("exports/langfuse.json", "langfuse"),
        ("exports/phoenix.json", "phoenix"),
        ("exports/weave.jsonl", "weave"),
        ("verl/rollouts", "verl"),
        ("trl", "trl"),
        ("nemo_rl/plain", "nemo-rl"),
        ("prime_rl", "prime-rl"),
        ("prime_rl/rollouts", "prime-rl"),
        ("slime/plain", "slime"),
        ("areal/alone", "areal"),
        ("lm_eval", "lm-eval"),
        ("inspect", "inspect"),
        ("exports/openai_evals.jsonl", "openai-evals"),
    ],
)
def test_what_a_tool_wrote_is_recognised(folder: str, format: Format) -> None:
    found, why = recognised(DATA / folder)
    assert found == format
    assert why


def test_what_fits_nothing_or_two_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"prompt": "p", "response": "r", "reward": 1}\n')
    with pytest.raises(ConfigError, match=r"may be of 2 formats: verl: 1\.jsonl is .*; jsonl: ") as two:
        recognised(tmp_path)
    assert "diagevo ingest verl" in str(two.value.hint)
    (tmp_path / "1.jsonl").rename(tmp_path / "rows.jsonl")
    assert recognised(tmp_path)[0] == "jsonl"
    (tmp_path / "rows.jsonl").write_text('{"question": "p", "said": "r"}\n')
    with pytest.raises(ConfigError, match="no known format: its first row has question, said") as none:
        recognised(tmp_path)
    assert "--map" in str(none.value.hint)
    with pytest.raises(ConfigError, match="there is no"):
        recognised(tmp_path / "none")


def test_a_parquet_file_is_recognised_by_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pl.DataFrame({"prompt": ["a"], "response": ["b"], "reward": [1.0]}).write_parquet(file)
    assert recognised(file) == recognised(tmp_path) == ("jsonl", "its first row has prompt, response, reward")
    pl.DataFrame({"asked": ["a"], "said": ["b"]}).write_parquet(file)
    with pytest.raises(ConfigError, match="no known format: its first row has asked, said") as none:
        recognised(file)
    assert "--map" in str(none.value.hint)
    pl.DataFrame({"prompt": []}, schema={"prompt": pl.String}).write_parquet(file)
    with pytest.raises(ConfigError, match="no known format: its first row has prompt"):
        recognised(file)


def test_a_parquet_file_that_is_none_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pl.DataFrame({"prompt": ["a"], "response": ["b"], "reward": [1.0]}).write_parquet(file)
    whole = file.read_bytes()
    for damaged in (whole[:-9], b"PAR1junkjunkPAR1", b"", b"prompt,response\n"):
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"rows\.parquet"):
            recognised(file)


def test_a_path_alone_is_ingested_and_says_as_what(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    done = invoke("ingest", EXPORTS / "promptfoo.json", "--run", "evals", "--db", url)
    assert done.exit_code == 0, done.stderr
    assert "note: taken for promptfoo: it has results.results.prompt" in done.stderr
    named = invoke("ingest", "promptfoo", EXPORTS / "promptfoo.json", "--run", "evals", "--db", url)
    assert "(0 new)" in named.stdout
    none = invoke("ingest", "--run", "evals", "--db", url)
    assert (none.exit_code, none.stderr.partition("\n")[0]) == (
        2,
        "error: the path of the rollouts is missing",
    )
    mapped = tmp_path / "rows.jsonl"
    mapped.write_text('{"q": "p", "a": "r", "ok": true}\n{"q": "p", "a": "s", "ok": false}\n')
    done = invoke("ingest", mapped, "--run", "own", "--map", "prompt=q,response=a,reward=ok", "--db", url)
    assert done.exit_code == 0, done.stderr
