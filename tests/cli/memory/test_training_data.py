"""What failed as data to train on: the failures of two rounds played by hand, and TRL's own trainers."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import Result

from diagevo.memory.transfer.training_data import write_training_data
from tests.cli.memory.conftest import Ask
from tests.cli.program import invoke
from tests.memory.audit.played import C1, play


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of the hand-played run: r2.q2 has a false label, an attempt of r2 was abandoned."""
    home = tmp_path_factory.mktemp("home")
    play(f"sqlite:///{home / 'diagevo.db'}", "played", root=home, rounds=2)
    return home


@pytest.fixture
def ask(home: Path) -> Ask:
    return lambda *given: invoke("runs", "export", "played", *given, env={"DIAGEVO_HOME": str(home)})


def rows(ask: Ask, *given: str) -> list[dict[str, Any]]:
    assert (told := ask(*given, "-o", "data.jsonl")).exit_code == 0, told.output
    return [json.loads(line) for line in Path("data.jsonl").read_text().splitlines()]


def test_each_failure_stands_beside_the_response_that_passed(ask: Ask) -> None:
    found = rows(ask, "--as", "dpo")
    assert [row["failure_id"] for row in found] == [
        *(f"r1.q0.a{n}" for n in range(3)),
        *(f"r1.q3.a{n}" for n in (4, 5, 6)),
        "r2.q3.a1",
    ]
    assert [row["cause_id"] for row in found] == ["c1", "c1", "c2", "c3", None, None, "c3"]
    assert found[0] == {
        "prompt": [{"role": "user", "content": "Question 0 of round 1: what is it?"}],
        "chosen": [{"role": "assistant", "content": "A reference of r1.q0"}],
        "rejected": [{"role": "assistant", "content": "The wrong way of r1.q0.a0, attempt 1"}],
        "cause_id": "c1",
        "cause": C1,
        "question_id": "r1.q0",
        "failure_id": "r1.q0.a0",
        "run": "played",
    }
    assert found[-1]["rejected"][0]["content"] == "The wrong way of r2.q3.a1, attempt 2"


def test_a_question_is_one_row_and_a_false_label_teaches_nothing(ask: Ask) -> None:
    taught = rows(ask, "--as", "sft")
    assert [row["question_id"] for row in taught] == ["r1.q0", "r1.q3", "r2.q3"]
    assert [message["role"] for message in taught[0]["messages"]] == ["user", "assistant"]
    Path("data.jsonl").unlink()
    asked = rows(ask, "--as", "prompts")
    assert [(row["question_id"], row["answer"]) for row in asked] == [
        ("r1.q0", "4"),
        ("r1.q3", "7"),
        ("r2.q2", "5"),
        ("r2.q3", "8"),
    ]


def test_a_cause_and_every_form_have_the_same_rows(ask: Ask) -> None:
    of_cause = rows(ask, "--as", "dpo", "--cause", "carry the ten")
    assert [row["failure_id"] for row in of_cause] == ["r1.q0.a0", "r1.q0.a1"]
    assert ask("--as", "dpo", "--cause", "c1", "-o", "data.parquet").exit_code == 0
    assert ask("--as", "dpo", "--cause", "c1", "-o", "folder").exit_code == 0
    assert pl.read_parquet("data.parquet").to_dicts() == of_cause
    assert pl.read_parquet("folder/train.parquet").to_dicts() == of_cause


@pytest.mark.parametrize("kind", ["sft", "dpo", "prompts"])
def test_every_failure_has_a_row_or_a_reason(home: Path, ask: Ask, kind: str) -> None:
    """r2.q2 has a false label, and one of its two failures gives the true answer."""
    env = {"DIAGEVO_HOME": str(home)}
    of_log = invoke("memory", "query", "SELECT count(*) FROM v_failure", "--format", "csv", env=env).stdout
    made = json.loads(ask("--as", kind, "-o", "a.jsonl", "--json").stdout)["data"]
    assert made["failures"] == int(of_log.split()[-1]) == 9
    left_out = {one["why"]: one["failures"] for one in made["left_out"]}
    assert made["rows"] + sum(left_out.values()) == 9
    text = ask("--as", kind, "-o", "b.jsonl").stdout
    assert all(f"{one['failures']}  {one['why']}; {one['next']}" in text for one in made["left_out"])
    left = {"sft": (4, 2), "dpo": (0, 2), "prompts": (5, 0)}[kind]
    reasons = "on a question that has its row", "held against a false label"
    assert tuple(left_out.get(why, 0) for why in reasons) == left


def test_failures_of_another_trainer_that_stand_beside_nothing_are_told(tmp_path: Path) -> None:
    """Of five rollouts that failed, two are in a group in which none passed."""
    rows = [("a", 1), ("a", 0), ("b", 1), ("b", 0), ("b", 0), ("c", 0), ("c", 0)]
    written = [
        json.dumps({"prompt": prompt, "response": f"{prompt}{n}", "reward": reward})
        for n, (prompt, reward) in enumerate(rows)
    ]
    Path("own.jsonl").write_text("\n".join(written) + "\n")
    assert invoke("ingest", "jsonl", "own.jsonl", "--run", "own").exit_code == 0
    said = invoke("runs", "export", "own", "--as", "dpo", "-o", "a.jsonl").stdout
    assert "a.jsonl: 3 rows of own" in said
    lines = said.splitlines()
    assert lines[1] == "left out of 5 failures:"
    assert lines[2].split("; ") == [
        "        2  on prompts that no response passed",
        "ask the model for more responses, or take their questions: --as prompts",
    ]
    # A later round has not been looked at yet: another group with a pass and a failure.
    more = json.dumps({"step": 20, "prompt": "d", "response": "d7", "reward": 0})
    more += "\n" + json.dumps({"step": 20, "prompt": "d", "response": "d8", "reward": 1})
    stepped = [json.dumps({"step": 1} | json.loads(line)) for line in written]
    Path("own.jsonl").write_text("\n".join(stepped) + "\n" + more + "\n")
    assert invoke("ingest", "jsonl", "own.jsonl", "--run", "two", "--steps-per-round", "1").exit_code == 0
    said = invoke("runs", "export", "two", "--as", "dpo", "-o", "b.jsonl").stdout
    assert "left out of 6 failures" in said
    assert "1  in a round that waits for its diagnosis; diagevo diagnose --run two --local" in said


def test_a_failure_stands_beside_the_nearest_response_that_passed() -> None:
    """Of each prompt the first response that passed is unlike the failure, the second one but for a word."""
    written = [
        json.dumps({"prompt": f"count {n}", "response": response, "reward": reward})
        for n in range(24)
        for response, reward in (
            (f"The total may be had by a window over all rows of t{n}, with distinct.", 1),
            (f"select count(distinct x) from t{n} where y = {n}", 1),
            (f"select count(x) from t{n} where y = {n}", 0),
        )
    ]
    Path("own.jsonl").write_text("\n".join(written) + "\n")
    assert invoke("ingest", "jsonl", "own.jsonl", "--run", "own").exit_code == 0
    for before, n in (("first", 0), ("nearest", 1)):
        file = Path(f"{before}.jsonl")
        assert invoke("runs", "export", "own", "--as", "dpo", "-o", file).exit_code == 0
        found = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(found) == 24
        texts = [json.loads(line)["response"] for line in written]
        assert [row["chosen"][0]["content"] for row in found] == texts[n::3]
        assert [row["rejected"][0]["content"] for row in found] == texts[2::3]
        assert invoke("diagnose", "--run", "own", "--local").exit_code == 0


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (("--as", "dpo", "-o", "data.csv"), 2, "is not .jsonl, .parquet or a folder"),
        (("--as", "dpo", "-o", "there.jsonl"), 2, "exists already"),
        (("--as", "dpo"), 2, "give one of them"),
        (("--as", "dpo", "--round", "1", "-o", "a.jsonl"), 2, "give one of them"),
        (("--cause", "c1", "-o", "a.jsonl"), 2, "--as sft, dpo or prompts"),
        (("--as", "dpo", "--cause", "c9", "-o", "a.jsonl"), 3, "c9"),
    ],
)
def test_what_cannot_be_written_is_refused(ask: Ask, given: tuple[str, ...], code: int, told: str) -> None:
    Path("there.jsonl").write_text("mine")
    refused: Result = ask(*given)
    assert (refused.exit_code, told in refused.stderr) == (code, True), refused.output
    assert Path("there.jsonl").read_text() == "mine"
    assert not Path("a.jsonl").exists()


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_half_of_the_pairs_are_never_written(name: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, pl.exceptions.PolarsError)):
        write_training_data([{"prompt": "a?"}, {"prompt": {1, object()}}], tmp_path / name)
    assert list(tmp_path.iterdir()) == []


SYSTEM = {"role": "system", "content": "Answer with one number."}


def asked_of(n: int) -> list[dict[str, str]]:
    """A conversation up to its second question."""
    first = {"role": "user", "content": f"What is {n} + 1?"}, {"role": "assistant", "content": f"{n + 1}"}
    return [SYSTEM, *first, {"role": "user", "content": "And one more?"}]


@pytest.fixture
def conversations(tmp_path: Path) -> Ask:
    """Of another trainer, four with a pass and a failure each."""
    rows = [
        {"prompt": asked_of(n), "response": [{"role": "assistant", "content": said}], "reward": reward}
        | {"answer": str(n + 2)}
        for n in range(4)
        for said, reward in ((f"{n + 2}", 1), (f"{n + 3}", 0))
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = {"DIAGEVO_HOME": str(tmp_path / "home")}
    assert (
        told := invoke("ingest", "jsonl", tmp_path / "own.jsonl", "--run", "own", env=env)
    ).exit_code == 0, told
    assert invoke("diagnose", "--run", "own", "--local", env=env).exit_code == 0
    return lambda *given: invoke("runs", "export", "own", *given, env=env)


def test_messages_stay_messages(conversations: Ask) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("dpo", "sft", "prompts"):
        found[kind] = rows(conversations, "--as", kind)
        Path("data.jsonl").unlink()
    pairs, taught, asked = found.values()
    for n in range(4):
        passed, failed = ([{"role": "assistant", "content": f"{n + more}"}] for more in (2, 3))
        assert pairs[n]["prompt"] == asked[n]["prompt"] == asked_of(n)
        assert (pairs[n]["chosen"], pairs[n]["rejected"]) == (passed, failed)
        assert taught[n]["messages"] == [*asked_of(n), *passed]
        assert asked[n]["answer"] == str(n + 2)


@pytest.mark.slow
@pytest.mark.parametrize("of", ["ask", "conversations"])
@pytest.mark.parametrize("kind", ["sft", "dpo", "prompts"])
def test_trls_trainer_takes_a_step_on_it(
    of: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    from diagevo.arithmetic import WEIGHTS

    assert request.getfixturevalue(of)("--as", kind, "-o", tmp_path / "hard").exit_code == 0
    data = datasets.load_dataset(str(tmp_path / "hard"), split="train", cache_dir=str(tmp_path / "cache"))
    seen: list[tuple[Any, str]] = []

    def right(prompts: list[Any], completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        """What GRPO's reward function is given: messages, and the column of answers."""
        seen.extend(zip(prompts, answer, strict=True))
        return [float(a in said[-1]["content"]) for a, said in zip(answer, completions, strict=True)]

    config, trainer, more = {
        "sft": (trl.SFTConfig, trl.SFTTrainer, {}),
        "dpo": (trl.DPOConfig, trl.DPOTrainer, {}),
        "prompts": (trl.GRPOConfig, trl.GRPOTrainer, {"reward_funcs": right}),
    }[kind]
    settings = config(
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        per_device_train_batch_size=2,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        **({"num_generations": 2, "max_completion_length": 8} if kind == "prompts" else {}),
    )
    trained = trainer(str(WEIGHTS), args=settings, train_dataset=data, **more)
    assert trained.train().global_step == 1
    if kind == "prompts":
        assert seen
        assert all((p, a) in [(row["prompt"], row["answer"]) for row in data] for p, a in seen)
