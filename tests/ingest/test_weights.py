"""Which prompts come back: Equation 2 over a training's own data set, found again through chat templates."""

import json
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from diagevo.errors import ConfigError
from diagevo.ingest.dataset import PromptDataset, read_dataset
from diagevo.ingest.rounds import LastFailures
from diagevo.ingest.weights import weights
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.memory import Memory
from tests.cli.program import invoke
from tests.ingest.conftest import configured, step
from tests.ingest.test_recording import diagnose, record

TEMPLATES = {
    "ChatML": "<|im_start|>system\nBrief.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant",
    "ChatML, decoded without its marks": "system\nBe brief.\nuser\n{}\nassistant\n",
    "Llama 3": "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant",
    "Mistral": "<s>[INST] {} [/INST]",
    "Gemma": "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "ingest's own words": "system: Be brief.\n\nuser: {}",
}


def dataset(folder: Path, *prompts: Any) -> PromptDataset:
    file = folder / "train.jsonl"
    file.write_text(
        "".join(json.dumps({"prompt": prompt, "id": n}) + "\n" for n, prompt in enumerate(prompts))
    )
    return read_dataset(file)


def test_weights_follow_equation_2_over_the_prompts_of_a_file(memory: Memory, tmp_path: Path) -> None:
    """After round 1: f(c1) = 2, f(c2) = 1, F = F₁ = 3, so ε₂ = 1/3. Three prompts: a aims at c1, d at c2, new
    at nothing. Even share 1/9; a: 1/9 + 2/3·2/3 = 5/9, d: 1/9 + 2/3·1/3 = 3/9."""
    record(memory, step(1, a="+--", d="+-"))
    diagnose(memory, {"a": "sign", "d": "carry"})
    last = LastFailures()
    last.read(memory.log, memory.run_id, [1])
    found = dataset(tmp_path, "a", "d", "new")
    assert found.match({digest_of(text): text for text in "ad"}) == 2
    given, unreached = weights(memory.schedule(2), last, found)
    assert [(w.cause, w.weight) for w in given] == [
        ("c1", Fraction(5, 9)),
        ("c2", Fraction(3, 9)),
        (None, Fraction(1, 9)),
    ]
    assert unreached == 0
    alone = dataset(tmp_path, "new")
    alone.match({digest_of("a"): "a"})
    [new], unreached = weights(memory.schedule(2), last, alone)
    assert (new.weight, unreached) == (1, 1)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_messages_are_found_in_prompts_that_went_through_a_template(template: str, tmp_path: Path) -> None:
    questions = ["What is 2 + 2?", "Add 2 and 2.\nThen double it.", "What is 2", "a question never asked"]
    chats = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": q}] for q in questions]
    logged = {digest_of(text): text for q in questions[:3] if (text := template.format(q).strip())}
    found = dataset(tmp_path, *chats)
    assert found.match(logged) == 3
    assert found.digests == [*logged, None]


def test_a_short_prompt_is_not_found_inside_another_one(tmp_path: Path) -> None:
    asked = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>"
    assert dataset(tmp_path, "2", "What").match({digest_of(asked): asked}) == 0


def test_the_next_epoch_has_as_many_rows_and_each_as_often_as_its_weight_says(tmp_path: Path) -> None:
    found = dataset(tmp_path, "a", "b", "c", "d")
    share = [Fraction(1, 2), Fraction(1, 4), Fraction(3, 16), Fraction(1, 16)]
    epochs = [found.next_epoch(share, str(seed)) for seed in range(400)]
    assert {len(epoch) for epoch in epochs} == {4}
    assert {(epoch.count(0), epoch.count(1)) for epoch in epochs} == {(2, 1)}
    assert 0.19 < sum(epoch.count(3) for epoch in epochs) / 400 < 0.31  # 4 · 1/16
    assert found.next_epoch(share, "7") == epochs[7]


def test_half_an_epoch_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "next.jsonl").write_text("of yesterday")
    (tmp_path / "data.jsonl").write_text('{"prompt": "a?"}\n{"prompt": "b?"}\n')
    whole = Path.write_text

    def full(file: Path, text: str, **how: Any) -> int:
        whole(file, text[:9], **how)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ConfigError, match="No space left"):
        read_dataset(tmp_path / "data.jsonl").write(tmp_path / "next.jsonl", [0, 1], {})
    assert (tmp_path / "next.jsonl").read_text() == "of yesterday"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_table_keeps_its_columns_and_types(tmp_path: Path) -> None:
    rows = [
        {"data_source": "gsm8k", "prompt": [{"role": "user", "content": q}], "extra_info": {"index": n}}
        for n, q in enumerate(["one", "two"])
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "train.parquet")
    found = read_dataset(tmp_path / "train.parquet")
    found.write(
        tmp_path / "next.parquet", [1, 1], {"diagevo_weight": [0.0, 1.0], "diagevo_cause": [None, "c1"]}
    )
    written = pl.read_parquet(tmp_path / "next.parquet")
    assert written.drop("diagevo_weight", "diagevo_cause").to_dicts() == [rows[1], rows[1]]
    assert dict(written.schema) == {
        **pl.DataFrame(rows).schema,
        "diagevo_weight": pl.Float64(),
        "diagevo_cause": pl.String(),
    }


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", '{"prompt": "x"}\n{"text": "y"}\n', "row 2 has none of prompt"),
        ("a.jsonl", '{"prompt": 3}\n', "row 1: neither a text nor messages"),
        ("a.json", '[{"prompt": "x"}, 3]', "row 2 is not an object"),
        ("a.jsonl", '{"prompt": "x"', "ends inside a line"),
        ("a.parquet", "PAR1", "cannot be read"),
        ("a.jsonl", "", "has no prompts"),
    ],
)
def test_what_is_no_data_set_is_refused_with_its_place(
    name: str, content: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=told):
        read_dataset(tmp_path / name)


def test_a_saved_data_set_of_datasets_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([{"question": "one"}, {"question": "two"}]).save_to_disk(tmp_path / "saved")
    assert [prompt.user for prompt in read_dataset(tmp_path / "saved").prompts] == ["one", "two"]


def test_the_command_weighs_a_data_set_and_writes_its_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts whose prompts went through a chat template; the data set of the training has messages."""
    monkeypatch.chdir(tmp_path)
    template = TEMPLATES["ChatML"]
    with configured(tmp_path) as memory:
        record(memory, step(1, **{template.format("a"): "+--", template.format("d"): "+-"}))
        diagnose(memory, {template.format("a"): "sign", template.format("d"): "carry"})
        ask = ["memory", "schedule", "--run", memory.run_id, "--db", memory.database.url, "--dataset"]
    rows = [{"prompt": [{"role": "user", "content": text}], "extra_info": {"index": text}} for text in "adnn"]
    pl.DataFrame(rows).write_parquet("train.parquet")
    told = invoke(*ask, "train.parquet", "--json")
    assert [row["cause"] for row in json.loads(told.stdout)["data"]] == ["c1", "c2", None, None]
    written = invoke(*ask, "train.parquet", "-o", "next.parquet")
    assert written.exit_code == 0, written.output
    assert "2 of 3 prompts in 4 rows were rolled out, 2 aim at a cause" in written.stderr
    epoch = pl.read_parquet("next.parquet")
    assert epoch.height == 4
    assert epoch.filter(pl.col("diagevo_cause") == "c1").height >= 2  # 4 · 19/36
    pl.DataFrame(rows[2:]).write_parquet("other.parquet")
    none = invoke(*ask, "other.parquet", "-o", "never.parquet")
    assert none.exit_code == 2
    assert "no prompt of other.parquet (2 rows) was rolled out" in none.stderr
    assert not Path("never.parquet").exists()


def test_a_prompt_that_never_passed_has_the_even_share_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with configured(tmp_path) as memory:
        record(memory, step(1, a="+--", f="--"))
        diagnose(memory, {"a": "sign"})
        ask = ["memory", "schedule", "--run", memory.run_id, "--db", memory.database.url, "--dataset"]
    Path("train.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in "af"))
    told = invoke(*ask, "train.jsonl", "--json")
    weights = [(row["cause"], row["weight"]["exact"]) for row in json.loads(told.stdout)["data"]]
    assert weights == [("c1", "5/6"), (None, "1/6")]  # ε₂ = 1/3, half of it each
    assert "1 of them never passed and so aim at no cause: they get the even share" in told.stderr


def test_a_sampler_draws_the_rows_of_a_data_set_by_their_weights(memory: Memory) -> None:
    """The weights of the first test, 5/9, 3/9 and 1/9; again in the next round from another seed."""
    trl = pytest.importorskip("diagevo.integrations.trl")
    record(memory, step(1, a="+--", d="+-"))
    diagnose(memory, {"a": "sign", "d": "carry"})
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in ("a", "d", "new")]
    drawn = trl.sampler(memory, rows)
    assert drawn.weights.tolist() == pytest.approx([5 / 9, 3 / 9, 1 / 9])
    assert (len(drawn), len(list(drawn))) == (3, 3)
    assert list(trl.sampler(memory, rows * 20)) == list(trl.sampler(memory, rows * 20))
    with pytest.raises(ConfigError, match=r"no prompt of the data set \(1 row\) was rolled out"):
        trl.sampler(memory, [{"prompt": "never"}])
    with pytest.raises(ConfigError, match="the data set has no rows"):
        trl.prompts(memory, [])


def test_a_prompt_for_a_draw_is_a_row_that_aims_at_its_cause(memory: Memory) -> None:
    """As above: ε₂ = 1/3 and p(c1) = 2/3. Free prompts are any of the three rows."""
    trl = pytest.importorskip("diagevo.integrations.trl_prompts")
    record(memory, step(1, a="+--", d="+-"))
    diagnose(memory, {"a": "sign", "d": "carry"})
    rows = [{"prompt": text, "mine": n} for n, text in enumerate(("a", "d", "new"))]
    stream = trl.prompts(memory, rows)
    trl.follow(memory)
    found = [(json.loads(row[trl.COLUMN]), row["mine"]) for row in islice(stream, 900)]
    by_cause = {
        cause: [mine for told, mine in found if told["cause_id"] == cause] for cause in ("c1", "c2", None)
    }
    assert {cause: set(mine) for cause, mine in by_cause.items()} == {"c1": {0}, "c2": {1}, None: {0, 1, 2}}
    assert {cause: len(mine) / 900 for cause, mine in by_cause.items()} == pytest.approx(
        {"c1": 4 / 9, "c2": 2 / 9, None: 3 / 9}, abs=0.05
    )
    assert [told["index"] for told, _ in found] == list(range(900))
    other = trl.prompts(memory, [{"prompt": "never"}])
    with pytest.raises(ConfigError, match=r"no prompt of the data set \(1 row\) was rolled out"):
        trl.follow(memory)
    assert next(iter(other))["prompt"] == "never"


def test_the_file_that_was_ingested_under_other_names_is_weighed_under_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"ask": ask, "said": said, "score": score}
        for ask in ("one?", "two?")
        for said, score in (("1", 1.0), ("2", 0.0))
    ]
    Path("mine.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mapped = ["--map", "prompt=ask,response=said,reward=score", "--run", "mine"]
    assert invoke("ingest", "jsonl", "mine.jsonl", *mapped).exit_code == 0
    assert invoke("diagnose", "--run", "mine", "--local").exit_code == 0
    told = invoke("memory", "schedule", "--run", "mine", "--dataset", "mine.jsonl")
    assert told.exit_code == 0, told.output
    assert "2 of 2 prompts in 4 rows were rolled out" in told.stderr
