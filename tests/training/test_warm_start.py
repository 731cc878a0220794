"""Supervised steps before the first round: what is learned from, and that a stop changes nothing."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from diagevo.config.models import HardwareConfig, WarmStartConfig
from diagevo.errors import ConfigError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.model_folder import encode_prompts, load_tokenizer
from diagevo.training.checkpoints import find
from diagevo.training.warm_start import WarmStart, play_warm_start, read_documents
from tests.forked import Forked

EIGHT = {"steps": 8, "save_steps": 2}
TURNS = [("1+1?", "It is 2."), ("2+2?", "It is 4, as we know."), ("3*3?", "9"), ("What of 7-2?", "5 is left")]


def written(file: Path, end: str = "") -> Path:
    rows = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a + end}]}
        for q, a in TURNS * 2
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def warm(model: Path, folder: Path, **settings: float) -> WarmStart:
    folder.mkdir(exist_ok=True)
    return WarmStart(
        start=model,
        documents=written(folder / "documents.jsonl"),
        settings=WarmStartConfig(documents="x", **{"steps": 4, "batch_documents": 4, **settings}),
        hardware=HardwareConfig(device="cpu"),
        output=folder / "warm",
        work=folder / "work",
        seed=3,
    )


def test_the_loss_is_that_of_the_completions_alone(tiny_model: Path, tmp_path: Path) -> None:
    """Of all eight documents in one step, against the log-probabilities of the untouched model."""
    told: list[tuple[int, float]] = []
    settings = {"steps": 1, "batch_documents": 8, "micro_batch": 2}
    play_warm_start(
        warm(tiny_model, tmp_path, **settings), lambda step, loss: told.append((step, loss)), StopFlag()
    )
    tokenizer = load_tokenizer(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    losses: list[torch.Tensor] = []
    for question, answer in TURNS * 2:
        [prompt] = encode_prompts(tokenizer, [[{"role": "user", "content": question}]])
        said = tokenizer(answer, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logps = model(torch.tensor([prompt + said])).logits[0].log_softmax(-1)
        losses += [-logps[len(prompt) + i - 1, token] for i, token in enumerate(said)]
    assert told == [(1, pytest.approx(float(torch.stack(losses).mean()), rel=2e-4))]


def test_a_stop_costs_nothing_and_ends_with_the_same_weights(tiny_model: Path, tmp_path: Path) -> None:
    play_warm_start(warm(tiny_model, tmp_path / "straight"), lambda step, loss: None, StopFlag())
    steps: list[int] = []

    def stop_after_two(step: int, loss: float) -> None:
        steps.append(step)
        if step == 2:
            raise StoppedSafely("stopped, as asked", hint="")

    with pytest.raises(StoppedSafely):
        play_warm_start(warm(tiny_model, tmp_path / "stopped"), stop_after_two, StopFlag())
    assert not (tmp_path / "stopped" / "warm").exists()
    play_warm_start(warm(tiny_model, tmp_path / "stopped"), lambda step, loss: steps.append(step), StopFlag())
    assert steps == [1, 2, 3, 4]
    straight, stopped = (
        load_file(tmp_path / name / "warm" / "model.safetensors") for name in ("straight", "stopped")
    )
    assert straight.keys() == stopped.keys()
    assert all(torch.equal(straight[name], stopped[name]) for name in straight)
    start = load_file(tiny_model / "model.safetensors")
    assert any(not torch.equal(start[name], straight[name]) for name in start)


def test_checkpoints_may_lie_further_apart_from_a_stop_on(tiny_model: Path, tmp_path: Path) -> None:
    def stop_after_two(step: int, loss: float) -> None:
        if step == 2:
            raise StoppedSafely("stopped, as asked", hint="")

    with pytest.raises(StoppedSafely):
        play_warm_start(warm(tiny_model, tmp_path, steps=8, save_steps=1), stop_after_two, StopFlag())
    seldom = warm(tiny_model, tmp_path, steps=8, save_steps=4)
    play_warm_start(seldom, lambda step, loss: None, StopFlag())
    assert sorted(folder.name for folder in seldom.work.glob("checkpoint-*")) == [
        "checkpoint-4",
        "checkpoint-8",
    ]


def die() -> None:
    """Play until a step, and so many seconds on: a kill that nothing hears."""
    after, seconds, model, folder = sys.argv[1:]

    def stepped(step: int, loss: float) -> None:
        if step == int(after):
            threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()

    play_warm_start(warm(Path(model), Path(folder), **EIGHT), stepped, StopFlag())


@pytest.mark.slow
def test_killed_at_any_moment_it_loses_only_what_was_not_saved(tiny_model: Path, tmp_path: Path) -> None:
    """At every second step: in the midst of a step, of a checkpoint, of its publication, of the last."""
    play_warm_start(warm(tiny_model, tmp_path / "straight", **EIGHT), lambda step, loss: None, StopFlag())
    killed = warm(tiny_model, tmp_path / "killed", **EIGHT)
    for after, seconds in ((1, 0.0), (3, 0.01), (4, 0.02), (5, 0.04), (6, 0.1)):
        arguments = [str(after), str(seconds), str(tiny_model), str(tmp_path / "killed")]
        with (
            (tmp_path / "log").open("a") as log,
            Forked("tests.training.test_warm_start:die", arguments, env=os.environ, into=log) as process,
        ):
            assert process.wait(None) in (-signal.SIGKILL, 0), (tmp_path / "log").read_text()
        saved = find(killed.work, StopFlag()).step
        assert saved > after - 4  # the last counts at the latest before the next is written
    steps: list[int] = []
    play_warm_start(killed, lambda step, loss: steps.append(step), StopFlag())
    assert steps == list(range(saved + 1, 9))
    straight, resumed = (
        load_file(w / "warm" / "model.safetensors") for w in (tmp_path / "straight", tmp_path / "killed")
    )
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_other_documents_than_those_it_began_with_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    def stop(step: int, loss: float) -> None:
        raise StoppedSafely("stopped, as asked", hint="")

    with pytest.raises(StoppedSafely):
        play_warm_start(warm(tiny_model, tmp_path), stop, StopFlag())
    again = warm(tiny_model, tmp_path)
    written(again.documents, end=" Or so.")
    with pytest.raises(ConfigError, match="another documents"):
        play_warm_start(again, lambda step, loss: None, StopFlag())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2 is not a list of chat turns"),
        ('{"prompt": "1+1?"}', "line 2 is not a list of chat turns"),
        ('{"messages": "1+1?"}', "line 2 is not a list of chat turns"),
        ('{"messages": [{"role": "user", "content": "1+1?"}]}', "line 2 does not end with a turn"),
        ('{"messages": [{"role": "assistant", "content": "2"}]}', "line 2 does not end with a turn"),
        (
            '{"messages": [{"role": "user", "content": 2}, {"role": "assistant", "content": "2"}]}',
            "line 2 does not",
        ),
    ],
)
def test_a_line_that_is_no_document_is_named(line: str, told: str, tmp_path: Path) -> None:
    file = written(tmp_path / "documents.jsonl")
    file.write_text(f"{file.read_text(encoding='utf-8').splitlines()[0]}\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=told):
        read_documents(file)


def test_a_file_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds no document"):
        read_documents(tmp_path / "empty.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_documents(tmp_path / "nowhere.jsonl")
