"""Files as the trainers wrote them (`make.py`), and as they stand while they are written."""

import json
import shutil
from pathlib import Path
from typing import get_args

import polars
import pytest

from diagevo.errors import ConfigError
from diagevo.ingest.formats import EVALUATIONS, TRAINERS, Format, prime_rl, read, reader_of
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.rollout_steps import RolloutGroup, RolloutStep, grouped
from tests.ingest.conftest import DATA


def steps(format: Format, path: Path, **options) -> list[RolloutStep]:
    cut: list[str] = []
    found = list(read(format, path, on_cut=cut.append, **options))
    assert cut == []
    return found


def sizes(found: list[RolloutStep]) -> list[list[tuple[int, int]]]:
    """By step and group: rollouts, and how many passed."""
    return [[(len(g.rewards), sum(r >= 0.5 for r in g.rewards)) for g in grouped(s.rollouts)] for s in found]


def test_trls_own_files_are_read_with_groups_and_rewards() -> None:
    found = steps("trl", DATA / "trl")
    assert [s.number for s in found] == [1, 2, 3, 4, 5, 6]
    assert {size for groups in sizes(found) for size, _ in groups} == {4}
    assert {len(groups) for groups in sizes(found)} == {4}
    first = found[0].rollouts[0]
    assert first.prompt in {
        q["prompt"][0]["content"] for q in json.loads((DATA / "questions.json").read_text())
    }


@pytest.mark.parametrize("folder", ["rollouts", "with_uid"])
def test_verls_own_files_have_the_same_groups_as_trls(folder: str) -> None:
    found = steps("verl", DATA / "verl" / folder)
    assert sizes(found) == sizes(steps("trl", DATA / "trl"))
    ours, theirs = (grouped(all_[0].rollouts)[0] for all_ in (found, steps("trl", DATA / "trl")))
    assert (ours.prompt, ours.rewards) == (theirs.prompt, theirs.rewards)
    assert ours.answer == "1"


def test_a_batch_that_trl_logs_again_counts_once(tmp_path: Path) -> None:
    for number in (1, 2):
        shutil.copy(
            DATA / "trl" / "completions_00001.parquet", tmp_path / f"completions_{number:05d}.parquet"
        )
    assert [s.number for s in steps("trl", tmp_path)] == [1]


def test_of_several_functions_of_trl_the_reward_is_one_or_their_sum(tmp_path: Path) -> None:
    """The columns as `trl.rewards` names its functions, and one that a function logged beside them."""
    file = tmp_path / "completions_00001.parquet"
    table = polars.DataFrame(
        {"prompt": ["a"] * 2, "completion": ["b"] * 2, "accuracy_reward": [1.0, None], "length": [7.0, 8.0]}
    )
    table.with_columns(advantage=0.0).write_parquet(file)
    [step] = steps("trl", tmp_path)
    assert ([r.reward for r in step.rollouts], step.unscored) == ([1.0], 1)
    table.with_columns(think_format_reward=1.0, advantage=0.0).write_parquet(file)
    with pytest.raises(ConfigError, match="2 columns that could be the reward") as refused:
        steps("trl", tmp_path)
    assert "--reward accuracy_reward+think_format_reward" in str(refused.value.hint)
    [step] = steps("trl", tmp_path, reward="accuracy_reward+0.5*think_format_reward")
    assert [r.reward for r in step.rollouts] == [1.5, 0.5]


def test_one_step_is_read_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(verl(1))
    (tmp_path / "2.jsonl").write_text("no JSON\n" + verl(2))
    stream = read("verl", tmp_path, on_cut=lambda name: None)
    assert next(stream).number == 1
    with pytest.raises(ConfigError, match=r"2\.jsonl, line 1 is not JSON"):
        next(stream)


def test_a_file_that_ends_inside_a_line_is_left_for_the_next_time(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(verl(1))
    (tmp_path / "2.jsonl").write_text(verl(2)[:-5])
    cut: list[str] = []
    assert [s.number for s in read("verl", tmp_path, on_cut=cut.append)] == [1]
    assert cut == ["2.jsonl"]


def test_a_step_is_taken_once_a_later_one_has_begun(tmp_path: Path) -> None:
    """The training writes a step more each time it is waited for, and ends with the third."""
    (tmp_path / "1.jsonl").write_text(verl(1)[:-5])
    written = iter([(1, verl(1)), (2, verl(2)), (3, verl(3))])
    seen: list[int] = []
    waited: list[list[int]] = []

    def wait() -> bool:
        waited.append(list(seen))
        for number, text in written:
            (tmp_path / f"{number}.jsonl").write_text(text)
            return True
        return False

    for step in read("verl", tmp_path, wait=wait, on_cut=lambda name: None):
        seen.append(step.number)  # noqa: PERF401  (`wait` looks at it in between)
    assert seen == [1, 2, 3]
    assert waited == [[], [], [1], [1, 2]]


def test_a_cut_last_line_of_plain_rollouts_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    whole = plain(1) + plain(2)
    file.write_text(whole[:-9])
    rest = iter([whole[-9:]])

    def wait() -> bool:
        for text in rest:
            with file.open("a") as out:
                out.write(text)
            return True
        return False

    found = list(read("jsonl", file, wait=wait, on_cut=lambda name: None))
    assert [(s.number, len(s.rollouts)) for s in found] == [(1, 1), (2, 1)]


def test_a_rollout_without_a_reward_is_counted_and_in_no_group(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(verl(1) + verl(1, score="NaN"))
    [step] = steps("verl", tmp_path)
    assert (len(step.rollouts), step.unscored) == (1, 1)


@pytest.mark.parametrize(
    ("format", "name", "text", "said"),
    [
        (
            "verl",
            "1.jsonl",
            '{"input":"a","output":"b"}\n',
            r"1\.jsonl, line 1: Object missing required field `score`",
        ),
        (
            "verl",
            "1.jsonl",
            '{"input":"a","output":"b","score":"1"}\n',
            r"line 1: Expected .*, got `str` - at `\$\.score`",
        ),
        ("verl", "1.jsonl", '{"output":"b","score":1}\n', "line 1: Object missing required field `input`"),
        ("verl", "1.jsonl", "[1]\n", "line 1: Expected `object`, got `array`"),
        ("verl", "one.jsonl", "{}\n", "has no rollout file"),
        ("jsonl", "a.jsonl", '{"prompt":"a","reward":1}\n', r"a\.jsonl, line 1 has no response"),
        (
            "jsonl",
            "a.jsonl",
            '{"prompt":"a","response":"b","reward":1}\n{"prompt":"a","response":"b","reward":1,"step":1}\n',
            "line 2 has a step, unlike the rows before it",
        ),
        (
            "jsonl",
            "a.jsonl",
            '{"step":true,"prompt":"","response":"","reward":1}\n',
            "its step is not a whole number from 0 .*: True",
        ),
        (
            "jsonl",
            "a.jsonl",
            f'{{"step":{2**63},"prompt":"","response":"","reward":1}}\n',
            "its step is not a whole number from 0 to .*: 9223372036854775808",
        ),
        ("nemo-rl", "train_data_step1.jsonl", '{"content":["a"],"rewards":[1]}\n', "no prompt and answer"),
        ("trl", "completions_00001.parquet", "PAR1....PAR1", r"00001\.parquet cannot be read as Parquet"),
    ],
)
def test_what_is_no_such_file_is_told_with_its_place(
    tmp_path: Path, format: Format, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        steps(format, tmp_path)
    assert refused.value.hint


def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(plain(2) + plain(1))
    with pytest.raises(ConfigError, match="line 2: step 1 comes after step 2"):
        steps("jsonl", tmp_path)


def test_nemo_rls_groups_are_told_apart_by_their_prompts_tokens(tmp_path: Path) -> None:
    """Messages without roles; the first two are the prompt where a system prompt is the same for all."""

    def row(tokens: list[int], *content: str, reward: float) -> str:
        mask = [[0, 0, 1, 1]]
        return json.dumps(
            {"content": [list(content)], "rewards": [reward], "token_ids": [tokens], "token_loss_mask": mask}
        )

    lines = [
        row([1, 2, 8, 8], "Be brief.", "2 + 2?", "4", "correct", reward=1.0),
        row([1, 2, 9, 9], "Be brief.", "2 + 2?", "5", "wrong", reward=0.0),
        row([1, 3, 8, 8], "Be brief.", "3 + 3?", "6", "correct", reward=1.0),
    ]
    (tmp_path / "train_data_step7.jsonl").write_text("\n".join(lines) + "\n")
    [step] = steps("nemo-rl", tmp_path)
    assert [(g.prompt, g.responses) for g in grouped(step.rollouts)] == [
        (
            "Be brief.\n\n2 + 2?",
            [f"assistant: {a}\n\nenvironment: {b}" for a, b in (("4", "correct"), ("5", "wrong"))],
        ),
        ("Be brief.\n\n3 + 3?", ["assistant: 6\n\nenvironment: correct"]),
    ]


def test_a_group_that_prime_rl_never_trained_on_is_taken_once_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups 3 and 6 fail and pass as a whole, so they advance nothing and are in no `effective`."""
    assert not {"g3", "g6"} & set(known_groups())
    monkeypatch.setattr(prime_rl, "LATE", 3)
    late = known_groups()
    assert (late["g3"].prompt, late["g3"].rewards) == ("Question 3", [0.0] * 4)
    assert late["g6"].rewards == [1.0] * len(late["g6"].rewards)


def known_groups() -> dict[str | None, RolloutGroup]:
    return {g.name: g for s in steps("prime-rl", DATA / "prime_rl") for g in grouped(s.rollouts)}


def verl(step: int, score: str = "1.0") -> str:
    return f'{{"input": "a", "output": "b", "gts": "7", "score": {score}, "step": {step}}}\n'


def plain(step: int) -> str:
    return f'{{"step": {step}, "prompt": "a", "response": "b", "reward": 1}}\n'


@pytest.mark.parametrize("value", [5, {"role": "user"}, [1], ["a", {"role": "user", "content": "b"}], None])
def test_a_prompt_that_is_neither_text_nor_messages_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="neither a text nor messages"):
        messages(value)


@pytest.mark.parametrize("format", get_args(Format))
def test_every_format_has_a_reader_and_a_row_in_the_table_of_formats(format: Format) -> None:
    """Readers are named by a text, which nobody checks before the format is used."""
    if format in TRAINERS:
        assert callable(reader_of(TRAINERS[format][2]))
    elif format in EVALUATIONS:
        assert callable(reader_of(EVALUATIONS[format]))
    else:
        assert format in ("jsonl", "prime-rl")  # which have a case of their own
    page = Path(__file__).parents[2] / "docs/howto/ingest.md"
    assert f"\n| `{format}` |" in page.read_text(encoding="utf-8")
