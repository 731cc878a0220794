"""Calls that are broken off in the midst and taken up again, against the same calls left alone."""

import json
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from diagevo.errors import StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling import decoding
from diagevo.sampling.cached_sampler import CachedSampler
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams
from diagevo.sampling.service import Service
from diagevo.sampling.transformers_sampler import TransformersSampler
from tests.sampling.loopback import chat_server

PROMPTS: list[Prompt] = [[{"role": "user", "content": f"{i}+{i * i}?"}] for i in range(6)]
PARAMS = SamplingParams(max_new_tokens=12)
N, SEED = 2, 7
ROWS = {(place, sample) for place in range(6) for sample in range(2)}


class Batches(list[set[tuple[int, int]]]):
    """The rows of each batch that was decoded to its end; `stop` is set with the first."""

    stop: StopFlag | None = None


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Batches:
    batches = Batches()
    original = decoding._decode_batch

    def noting(model: Any, prompts: Any, rows: list[Any], settings: Any) -> None:
        original(model, prompts, rows, settings)
        batches.append({(row.prompt, row.sample) for row in rows})
        if batches.stop is not None and not batches.stop:
            batches.stop.set()

    monkeypatch.setattr(decoding, "_decode_batch", noting)
    return batches


def ask(
    model: Path,
    file: Path,
    stop: StopFlag | None = None,
    threads: int = 1,
    **changes: Any,
) -> list[list[Completion]]:
    sampler = TransformersSampler(model, rows_at_once=4, threads=threads, stop=stop)
    with CachedSampler(sampler, file, model) as kept:
        return kept.sample(PROMPTS, **{"n": N, "params": PARAMS, "seed": SEED, **changes})


def alone(model: Path, threads: int = 1) -> list[list[Completion]]:
    sampler = TransformersSampler(model, rows_at_once=4, threads=threads)
    return sampler.sample(PROMPTS, n=N, params=PARAMS, seed=SEED)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_that_was_stopped_between_two_batches_asks_for_the_rest_alone(
    tiny_model: Path, tmp_path: Path, decoded: Batches, threads: int
) -> None:
    decoded.stop, file = StopFlag(), tmp_path / "answers.jsonl"
    with pytest.raises(StoppedSafely, match="stopped in sampling: ") as stopped:
        ask(tiny_model, file, decoded.stop, threads)
    assert 1 <= len(decoded) <= threads, "of three batches: those that were under way came to their end"
    assert f" {4 * len(decoded)} of 12 answers are kept" in stopped.value.message
    decoded.stop = None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = ask(tiny_model, file, threads=threads)
    assert len(decoded) == 3
    assert sum(map(len, decoded)) == len(ROWS), "no row was drawn twice"
    assert set.union(*decoded) == ROWS
    assert found == alone(tiny_model, threads)
    asked = len(decoded)
    assert ask(tiny_model, file, threads=threads) == found
    assert len(decoded) == asked, "what is all there is only read"


def test_a_last_line_that_is_half_written_is_asked_again_and_nothing_else(
    tiny_model: Path, tmp_path: Path, decoded: Batches
) -> None:
    file = tmp_path / "answers.jsonl"
    whole = ask(tiny_model, file)
    written = file.read_bytes()
    os.truncate(file, len(written) - 9)
    decoded.clear()
    assert ask(tiny_model, file) == whole
    last = {(p, g) for p, g, *_ in json.loads(written.splitlines()[-1])["rows"]}
    assert decoded == [last]
    assert file.read_bytes() == written


@pytest.mark.parametrize("other", [{"seed": 8}, {"n": 1}, {"params": SamplingParams(0.0, max_new_tokens=12)}])
def test_answers_to_another_call_are_not_taken(
    tiny_model: Path, tmp_path: Path, decoded: Batches, other: dict[str, Any]
) -> None:
    file = tmp_path / "answers.jsonl"
    ask(tiny_model, file)
    decoded.clear()
    ask(tiny_model, file, **other)
    assert sum(map(len, decoded)) == 6 * other.get("n", N)
    decoded.clear()
    ask(tiny_model, file)
    ask(tiny_model, file, **other)
    assert decoded == [], "one file keeps both"


def test_answers_of_other_weights_are_not_taken(tiny_model: Path, tmp_path: Path, decoded: Batches) -> None:
    file, policy = tmp_path / "answers.jsonl", tmp_path / "policy"
    copytree(tiny_model, policy)
    ask(policy, file)
    os.utime(policy / "model.safetensors", (1, 1))
    decoded.clear()
    ask(policy, file)
    assert sum(map(len, decoded)) == len(ROWS)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_overdue_stop_breaks_a_batch_off_before_its_next_layer(
    tiny_model: Path, tmp_path: Path, threads: int
) -> None:
    stop, file = StopFlag(), tmp_path / "answers.jsonl"
    sampler = TransformersSampler(tiny_model, rows_at_once=4, threads=threads, stop=stop)
    passed = [0]
    after: list[int] = []
    lock = threading.Lock()

    def count(*_: object) -> None:
        with lock:
            if stop.overdue:
                after.append(passed[0])
            passed[0] += 1
            if passed[0] == 5:  # in the midst of a batch: each is 12 tokens long
                stop.set()
                stop.set()

    model: Any = sampler._model
    model.model.layers[-1].register_forward_hook(count)
    with pytest.raises(StoppedSafely), CachedSampler(sampler, file, tiny_model) as kept:
        kept.sample(PROMPTS, n=N, params=PARAMS, seed=SEED)
    assert passed[0] >= 5
    assert len(after) <= threads - 1, "but for a layer that the other thread was in already"
    assert ask(tiny_model, file, threads=threads) == alone(tiny_model, threads)


class Server:
    """A model behind HTTP that counts what it is asked; it sets `stop` while it answers the third."""

    def __init__(self, stop: StopFlag, times: int = 1) -> None:
        self.stop, self.times = stop, times
        self.asked: list[str] = []
        self.released = threading.Event()

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        self.asked.append(prompts[0][-1]["content"])
        if len(self.asked) == 3:
            for _ in range(self.times):
                self.stop.set()
            if self.times == 2:
                self.released.wait(60)
        return [
            [Completion(f"{prompt[-1]['content']} {i}", 2, False) for i in range(n)] for prompt in prompts
        ]

    def close(self) -> None:
        pass


@pytest.mark.server
@pytest.mark.parametrize(("times", "kept_first"), [(1, 3), (2, 2)])
def test_requests_under_way_are_finished_or_broken_off_and_no_answer_is_asked_for_twice(
    tmp_path: Path, times: int, kept_first: int
) -> None:
    """Asked once, the third request comes to its end; asked twice, nothing is waited for."""
    stop, file, policy = StopFlag(), tmp_path / "answers.jsonl", tmp_path / "policy"
    policy.mkdir()
    server = Server(stop, times)
    with chat_server(server) as url:
        asked = OpenAISampler(Service(url, retries=0), "m", workers=1, stop=stop)
        with (
            pytest.raises(StoppedSafely, match=f"{kept_first * N} of 12 answers are kept"),
            CachedSampler(asked, file, policy) as kept,
        ):
            kept.sample(PROMPTS, n=N, params=PARAMS, seed=SEED)
        server.released.set()
        assert len(server.asked) == 3, "nothing was asked for after the flag"
        server.stop, before = StopFlag(), list(server.asked)
        with CachedSampler(OpenAISampler(Service(url, retries=0), "m", workers=1), file, policy) as kept:
            found = kept.sample(PROMPTS, n=N, params=PARAMS, seed=SEED)
    assert server.asked[len(before) :] == [f"{i}+{i * i}?" for i in range(kept_first, 6)]
    assert [[c.text for c in group] for group in found] == [
        [f"{i}+{i * i}? {sample}" for sample in range(N)] for i in range(6)
    ]


def test_a_stop_waits_for_what_is_under_way_a_while_and_asked_again_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("diagevo.progress.time.monotonic", lambda: now[0])
    stop = StopFlag()
    stop.check()
    stop.set()
    now[0] += 19.9
    stop.check_overdue()
    with pytest.raises(StoppedSafely, match="stopped before lunch, as asked"):
        stop.check("before lunch")
    now[0] += 0.1
    with pytest.raises(StoppedSafely):
        stop.check_overdue()
    impatient = StopFlag()
    impatient.set()
    impatient.set()
    with pytest.raises(StoppedSafely):
        impatient.check_overdue()
