"""Evaluations of the shipped model, as lm-eval and Inspect logged them, against what their answers are."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from diagevo.answers.extraction import extract_boxed
from diagevo.errors import ConfigError
from diagevo.ingest.formats import Format, read
from diagevo.ingest.rollout_steps import RolloutGroup, grouped
from tests.cli.program import invoke
from tests.ingest.conftest import DATA

# pyright: reportMissingImports=false
# `make test-inspect` has inspect_ai.
INSPECT = find_spec("inspect_ai") is not None
with_inspect = pytest.mark.skipif(not INSPECT, reason="needs inspect_ai: make test-inspect")
ANSWERS: dict[str, str] = {
    each["prompt"][0]["content"]: each["answer"]
    for each in json.loads((DATA / "questions.json").read_text(encoding="utf-8"))
}


def groups(format: Format, path: Path, reward: str | None = None) -> list[RolloutGroup]:
    (step,) = read(format, path, reward=reward, on_cut=pytest.fail)
    assert (step.number, step.unscored) == (1, 0)
    return grouped(step.rollouts)


def asked(group: RolloutGroup) -> str:
    """The question of this group."""
    (found,) = [question for question in ANSWERS if question in group.prompt]
    return found


def refused(format: Format, path: Path, reward: str | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        groups(format, path, reward)
    return f"{error.value.message}; {error.value.hint}"


def test_evaluations_of_lm_eval_are_groups_of_their_documents() -> None:
    found = groups("lm-eval", DATA / "lm_eval", "exact_match,boxed")
    assert [asked(group) for group in found] == list(ANSWERS)
    for group in found:
        right = ANSWERS[asked(group)]
        assert group.answer == right
        assert group.rewards == [float(extract_boxed(text) == right) for text in group.responses]
    assert [len(group.rewards) for group in found] == [4] * 8
    assert 0 < sum(sum(group.rewards) for group in found) < 32


def test_another_filter_of_lm_eval_gives_its_own_rewards() -> None:
    for group in groups("lm-eval", DATA / "lm_eval", "exact_match,last"):
        last = [re.findall("-?[0-9]+", text)[-1:] for text in group.responses]
        assert group.rewards == [float(each == [ANSWERS[asked(group)]]) for each in last]


@pytest.mark.parametrize("reward", [None, "exact_match"])
def test_which_filter_counts_is_asked(reward: str | None) -> None:
    said = refused("lm-eval", DATA / "lm_eval", reward)
    assert "another metric, exact_match,last" in said
    assert "exact_match,boxed; exact_match,last" in said


def test_a_metric_that_is_none_is_refused() -> None:
    assert "has no acc; its metrics: exact_match" in refused("lm-eval", DATA / "lm_eval", "acc")
    assert "has no metric exact_match,strict" in refused("lm-eval", DATA / "lm_eval", "exact_match,strict")


def test_two_models_are_two_runs(tmp_path: Path) -> None:
    for model in ("small", "large"):
        shutil.copytree(DATA / "lm_eval", tmp_path / model)
    assert "several models: large, small; name the folder of one" in refused("lm-eval", tmp_path)
    assert len(groups("lm-eval", tmp_path / "small", "exact_match,last")) == 8


def rewritten(tmp_path: Path, **fields: Any) -> Path:
    """A row of lm-eval with other fields, alone in a file."""
    file = min((DATA / "lm_eval").iterdir())
    row = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
    other = tmp_path / file.name
    other.write_text(json.dumps(row | fields) + "\n", encoding="utf-8")
    return other


def test_choices_have_no_response(tmp_path: Path) -> None:
    file = rewritten(tmp_path, resps=[[["-3.25", "False"]], [["-0.5", "True"]]])
    assert f"{file}, line 1 holds likelihoods of choices, and no response" in refused("lm-eval", file)


def test_a_metric_of_several_responses_is_no_reward_of_one(tmp_path: Path) -> None:
    file = rewritten(tmp_path, resps=[["a", "b", "c"]])
    (step,) = read("lm-eval", file, on_cut=pytest.fail)
    assert (list(step.rollouts), step.unscored) == ([], 1)


def test_messages_of_a_chat_model_are_its_prompt(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "solve x/8-2=6"}]
    file = rewritten(tmp_path, arguments={"gen_args_0": {"arg_0": [json.dumps(turns)], "arg_1": {}}})
    (group,) = groups("lm-eval", file)
    assert group.prompt == "system: Be brief.\n\nuser: solve x/8-2=6"


def test_a_file_that_ends_inside_a_line_is_refused_whole(tmp_path: Path) -> None:
    file = min((DATA / "lm_eval").iterdir())
    (tmp_path / file.name).write_bytes(file.read_bytes()[:-20])
    said = refused("lm-eval", tmp_path, "exact_match,boxed")
    assert "ends inside a line; let the evaluation end" in said


def test_the_program_reads_them_and_says_where_nothing_can_be_compared(tmp_path: Path) -> None:
    env = {"DIAGEVO_HOME": str(tmp_path)}
    more = ("--reward", "exact_match,boxed")
    four = invoke("ingest", "lm-eval", DATA / "lm_eval", "--run", "four", *more, env=env)
    assert four.exit_code == 0
    assert "four: 1 step (1 new), 32 rollouts in 8 groups" in four.stdout
    one = invoke("ingest", "lm-eval", min((DATA / "lm_eval").iterdir()), "--run", "one", *more, env=env)
    assert "every question was answered once: nothing to compare" in one.output
    followed = invoke("ingest", "lm-eval", DATA / "lm_eval", "--run", "f", "--follow", env=env)
    assert followed.exit_code == 2
    assert "an evaluation is read whole" in followed.output


def test_two_evaluations_are_compared_prompt_by_prompt(tmp_path: Path) -> None:
    """Two evaluations each, against what the files themselves say."""
    env, files = {"DIAGEVO_HOME": str(tmp_path)}, sorted((DATA / "lm_eval").iterdir())
    passed: list[dict[str, float]] = []
    for name, chosen in (("before", files[:2]), ("after", files[2:])):
        (tmp_path / name).mkdir()
        passed.append(dict.fromkeys(ANSWERS, 0.0))
        for file in chosen:
            shutil.copy(file, tmp_path / name)
            for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                if row["filter"] == "boxed":
                    passed[-1][row["doc"]["prompt"][0]["content"]] += row["exact_match"] / 2
        more = ("--run", name, "--reward", "exact_match,boxed")
        assert invoke("ingest", "lm-eval", tmp_path / name, *more, env=env).exit_code == 0
    before, after = passed
    fell = {question for question in ANSWERS if after[question] < before[question]}
    rose = {question for question in ANSWERS if after[question] > before[question]}
    assert fell
    found = json.loads(invoke("runs", "diff", "before..after", "--json", env=env).stdout)["data"]["prompts"]
    assert (found["prompts"], found["less"], found["more"]) == (8, len(fell), len(rose))
    assert found["pass_rates"] == [sum(rates.values()) / 8 for rates in passed]
    for drop in found["drops"]:
        (question,) = [each for each in fell if each in drop["prompt"]]
        assert drop["pass_rates"] == [before[question], after[question]]
    assert len(found["drops"]) == len(fell)
    shown = invoke("runs", "diff", "before..after", env=env).stdout
    assert f"in after, {len(fell)} passed less often and {len(rose)} more often" in shown


@with_inspect
def test_epochs_of_inspect_are_groups_of_their_samples() -> None:
    found = groups("inspect", DATA / "inspect")
    assert [group.prompt for group in found] == list(ANSWERS)
    for group in found:
        right = rf"\boxed{{{ANSWERS[group.prompt]}}}"
        assert group.answer == right
        assert group.rewards == [float(right in text) for text in group.responses]
    assert [len(group.rewards) for group in found] == [4] * 8
    assert 0 < sum(sum(group.rewards) for group in found) < 32


def record(folder: Path, *events: tuple[str, str, dict[str, Any]], models: list[str]) -> Path:
    """A file as `evals.record.LocalRecorder` writes it: https://github.com/openai/evals."""
    lines: list[dict[str, Any]] = [{"spec": {"completion_fns": models, "eval_name": "sums.dev.v0"}}]
    for n, (sample, type_, data) in enumerate(events):
        common = {"run_id": "24", "event_id": n, "created_by": "", "created_at": "2026"}
        lines.append({"sample_id": sample, "type": type_, "data": data} | common)
    lines.append({"final_report": {"accuracy": 0.5}})
    file = folder / "24.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


ASKED = {"prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2?"}]}


def test_records_of_openais_evals_are_joined_by_their_sample(tmp_path: Path) -> None:
    """A sample that was asked and not graded has no reward."""
    file = record(
        tmp_path,
        ("s.0", "sampling", ASKED | {"sampled": ["It is 5."]}),
        ("s.1", "sampling", ASKED | {"sampled": "It is 4."}),
        ("s.1", "match", {"correct": True, "expected": ["4"], "picked": "4"}),
        ("s.0", "match", {"correct": False, "expected": "4", "picked": None}),
        ("s.2", "sampling", ASKED | {"sampled": ["It is"]}),
        models=["gpt"],
    )
    (step,) = read("openai-evals", tmp_path, on_cut=pytest.fail)
    assert step.unscored == 1
    (group,) = grouped(step.rollouts)
    assert (group.prompt, group.answer) == ("system: Add.\n\nuser: 2 + 2?", "4")
    assert (group.responses, group.rewards) == (["It is 5.", "It is 4."], [0.0, 1.0])
    assert "name its format: diagevo ingest openai-evals" in refused("jsonl", file)


def test_what_openais_evals_graded_is_the_reward(tmp_path: Path) -> None:
    """Where a model graded another's answer, both were asked; the grader is the last that `spec` names."""
    graded = (
        ("s.0", "sampling", ASKED | {"sampled": ["It is 5."]}),
        ("s.0", "sampling", {"prompt": "Is 5 right?", "sampled": ["No."]}),
        ("s.0", "metrics", {"choice": "No", "score": 0.25}),
    )
    file = record(tmp_path, *graded, models=["gpt", "grader"])
    (group,) = groups("openai-evals", file, "score")
    assert (group.responses, group.rewards) == (["It is 5."], [0.25])
    assert "has no accuracy; name another: --reward FIELD, of choice, score" in refused(
        "openai-evals", file, "accuracy"
    )
    assert "nothing says which answer was graded" in refused(
        "openai-evals", record(tmp_path, *graded, models=["gpt"]), "score"
    )
    matched = ("s.0", "match", {"correct": False, "sampled": "It is 5."})
    (group,) = groups("openai-evals", record(tmp_path, *graded[:2], matched, models=["gpt"]))
    assert (group.responses, group.rewards) == (["It is 5."], [0.0])


@with_inspect
def test_every_part_of_inspects_messages_is_kept(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageTool,
        ChatMessageUser,
        ContentImage,
        ContentReasoning,
        ContentText,
    )
    from inspect_ai.scorer import Score
    from inspect_ai.tool import ToolCallError

    (file,) = (DATA / "inspect").iterdir()
    log = read_eval_log(str(file))
    thought = ContentReasoning(reasoning="", summary="It adds.", redacted=True)
    turns = [
        ChatMessageUser(content=[ContentText(text="See."), ContentImage(image="https://a/b.png")]),
        ChatMessageAssistant(content=[thought, ContentText(text="4")]),
        ChatMessageTool(content="", function="add", error=ToolCallError("timeout", "too slow")),
    ]
    scores = {"graded": Score(value="C")}
    log.samples = [log.samples[0].model_copy(update={"messages": turns, "scores": scores})]
    write_eval_log(log, str(tmp_path / "parts.eval"))
    (group,) = groups("inspect", tmp_path)
    assert group.prompt.startswith("See.\n[image] ")
    assert "https://a/b.png" in group.prompt
    assert group.responses == ["assistant: It adds.\n4\n\ntool add: [error] too slow"]


@with_inspect
def test_turns_tools_and_several_scores_of_inspect(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageTool,
        ChatMessageUser,
        ContentReasoning,
        ContentText,
    )
    from inspect_ai.scorer import Score
    from inspect_ai.tool import ToolCall

    (file,) = (DATA / "inspect").iterdir()
    log = read_eval_log(str(file))
    call = ToolCall(id="1", function="add", arguments={"x": 2, "y": 2})
    parts = [ContentReasoning(reasoning="So four."), ContentText(text="It is 4.")]
    turns = [
        ChatMessageSystem(content="Use the tool."),
        ChatMessageUser(content="2 + 2?"),
        ChatMessageAssistant(content="", tool_calls=[call]),
        ChatMessageTool(content="the sum is 4", tool_call_id="1", function="add"),
        ChatMessageAssistant(content=parts),
    ]
    scores = {"graded": Score(value={"right": "C", "brief": 0.25})}
    log.samples = [log.samples[0].model_copy(update={"messages": turns, "target": ["4"], "scores": scores})]
    write_eval_log(log, str(tmp_path / "turns.eval"))
    (group,) = groups("inspect", tmp_path, "graded.right")
    assert group.prompt == "system: Use the tool.\n\nuser: 2 + 2?"
    assert group.responses == [
        'assistant: [tool call] add({"x": 2, "y": 2})\n\ntool add: the sum is 4\n\n'
        "assistant: So four.\nIt is 4."
    ]
    assert (group.rewards, group.answer) == ([1.0], "4")
    assert groups("inspect", tmp_path, "graded.brief")[0].rewards == [0.25]
    assert "several scores: graded.right, graded.brief" in refused("inspect", tmp_path)


@with_inspect
def test_every_sample_of_a_log_is_read_and_one_without_scores_is_named(tmp_path: Path) -> None:
    """Also a sample that the log's own list does not name, and in a log that is not scored none."""
    from inspect_ai.log import read_eval_log, write_eval_log

    (file,) = (DATA / "inspect").iterdir()
    log = read_eval_log(str(file))
    first = log.samples[0]
    log.samples = [first.model_copy(update={"id": name}) for name in (first.id, "unlisted")]
    write_eval_log(log, str(tmp_path / "a.eval"))
    (step,) = read("inspect", tmp_path, on_cut=pytest.fail)
    assert [rollout.group for rollout in step.rollouts] == [
        f"{log.eval.task}/{first.id}",
        f"{log.eval.task}/unlisted",
    ]
    log.samples = [sample.model_copy(update={"scores": None}) for sample in log.samples]
    write_eval_log(log, str(tmp_path / "a.eval"))
    assert f"{tmp_path}/a.eval has no scores; score it: inspect score" in refused("inspect", tmp_path)


@with_inspect
def test_a_damaged_log_of_inspect_is_refused(tmp_path: Path) -> None:
    (file,) = (DATA / "inspect").iterdir()
    (tmp_path / "a.eval").write_bytes(file.read_bytes()[:5000])
    assert f"{tmp_path}/a.eval: Inspect cannot read it" in refused("inspect", tmp_path)


@with_inspect
def test_a_bit_that_inspect_would_read_over_is_found_by_the_checksum(tmp_path: Path) -> None:
    (file,) = (DATA / "inspect").iterdir()
    written = bytearray(file.read_bytes())
    written[859] ^= 1  # of a response, `=65` becomes `F65`
    (tmp_path / "a.eval").write_bytes(written)
    assert "Bad CRC-32 for file" in refused("inspect", tmp_path)


@with_inspect
def test_kilobytes_of_inspect_that_mean_gigabytes_are_refused(tmp_path: Path) -> None:
    from zipfile import ZIP_DEFLATED, ZipFile

    with ZipFile(tmp_path / "a.eval", "w", ZIP_DEFLATED) as log:
        log.writestr("header.json", b" " * 2**27)
    assert "a.eval: unpacked it is more than 100 times as large" in refused("inspect", tmp_path)


@with_inspect
@pytest.mark.parametrize("word", ["banana", "1_0", " c"])
def test_a_score_that_inspect_would_count_as_none_or_ten_is_refused(tmp_path: Path, word: str) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.scorer import Score

    (file,) = (DATA / "inspect").iterdir()
    log = read_eval_log(str(file))
    assert log.samples is not None
    log.samples = [sample.model_copy(update={"scores": {"s": Score(value=word)}}) for sample in log.samples]
    write_eval_log(log, str(tmp_path / "a.eval"))
    assert f"its reward is not a number: {word.strip()!r}" in refused("inspect", tmp_path)


@pytest.mark.skipif(INSPECT, reason="inspect_ai is here")
def test_without_inspect_its_extra_is_named() -> None:
    assert "pip install 'diagevo[inspect]'" in refused("inspect", DATA / "inspect")
