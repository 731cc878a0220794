"""The order in which an engine wakes, takes weights, drops prefixes and sleeps. Each wrong order is red.

On a stand-in that does on CPUs what vLLM does on a GPU alone: asleep it can do nothing, level 2 leaves
garbage for weights, prefixes outlive the weights that they were computed with, and stay while a request is
under way.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.errors import WrongTrainingError
from diagevo.sampling.engine import Engine, EngineSampler
from diagevo.sampling.engine_weights import checksum
from diagevo.sampling.sampler import Prompt, SamplingParams
from tests.sampling.tiny_model import VOCABULARY, make_tiny_model

PROMPTS: list[Prompt] = [[{"role": "user", "content": text}] for text in ("1+1?", "Why?")]
GREEDY = SamplingParams(temperature=0.0, max_new_tokens=8)


class Model:
    """Its parameters, which level 2 throws away."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = weights

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.weights.items()

    def load_weights(self, given: Iterator[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in given:
            self.weights[name].copy_(tensor)


class StandIn:
    """vLLM's `LLM` and its engine, of which an answer is the checksum of the weights that its prefix has."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.model = Model(weights)
        self.level = 0
        self.prefixes: dict[tuple[int, ...], int] = {}
        self.under_way: dict[str, tuple[int, ...]] = {}
        self.llm_engine = self
        runner = SimpleNamespace(model=self.model)
        self.model_executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))

    def _awake(self) -> None:
        if self.level:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def is_sleeping(self) -> bool:
        return self.level > 0

    def sleep(self, level: int) -> None:
        self._awake()
        self.level = level
        self.prefixes = {}
        if level == 2:
            for tensor in self.model.weights.values():
                tensor.fill_(7.0)

    def wake_up(self) -> None:
        self.level = 0

    def reset_prefix_cache(self) -> bool:
        if not self.under_way:
            self.prefixes = {}
        return not self.under_way

    def apply_model(self, function: Callable[[Model], None]) -> None:
        self._awake()
        function(self.model)

    def add_request(self, name: str, prompt: dict[str, list[int]], wanted: Any, lora_request: Any) -> None:
        self._awake()
        self.under_way[name] = tuple(prompt["prompt_token_ids"])

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            del self.under_way[name]

    def step(self) -> list[Any]:
        self._awake()
        name, ids = next(iter(self.under_way.items()))
        del self.under_way[name]
        now = sum(map(checksum, self.model.weights.values())) % len(VOCABULARY)
        token = self.prefixes.setdefault(ids, now)
        drawn = SimpleNamespace(index=0, token_ids=[token], finish_reason="stop")
        return [SimpleNamespace(request_id=name, finished=True, outputs=[drawn])]


class Sleeping(Engine):
    """As on a GPU."""

    gives_memory = True

    @property
    def sleeps(self) -> bool:
        return self.gives_memory


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("policies")
    return [make_tiny_model(folder / f"policy-{seed}", seed=seed) for seed in range(2)]


@pytest.fixture
def engine(policies: list[Path], monkeypatch: pytest.MonkeyPatch) -> Sleeping:
    vllm, params = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vllm.SamplingParams = lambda **given: given  # pyright: ignore[reportAttributeAccessIssue]
    params.RequestOutputKind = SimpleNamespace(FINAL_ONLY=1)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", params)
    found = Sleeping(policies[0], HardwareConfig(device="cpu"), SamplingConfig(), lora=None, rank=0)
    found.__dict__["llm"] = StandIn(load_file(policies[0] / "model.safetensors"))
    return found


def takes_turns(engine: Engine, policies: list[Path]) -> None:
    """Each policy answers as itself, also after the other and after a call that was broken off."""
    own = []
    for folder in policies:
        weights = load_file(folder / "model.safetensors").values()
        own.append(sum(map(checksum, weights)) % len(VOCABULARY))
    assert own[0] != own[1], "their answers tell them apart"
    samplers = [EngineSampler(folder, engine) for folder in policies]
    for turn in (0, 1, 1, 0, 1):
        with samplers[turn].drawing(1, GREEDY, 0) as drawing:
            drawing.ask(list(enumerate(PROMPTS)))
            drawing.step()  # the other is given up
        found = samplers[turn].sample(PROMPTS, n=1, params=GREEDY, seed=0)
        tokenizer = samplers[turn]._tokenizer
        assert [group[0].text for group in found] == [
            tokenizer.decode([own[turn]], skip_special_tokens=True)
        ] * 2
        assert engine.llm.is_sleeping() == engine.sleeps, "asleep, the memory is the update's"


@pytest.mark.parametrize("sleeps", [True, False])
def test_policies_take_turns_in_an_engine_whether_it_sleeps_between_them_or_not(
    sleeps: bool, engine: Sleeping, policies: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sleeping, "gives_memory", sleeps)
    takes_turns(engine, policies)


def _rests_but_believes_that_it_holds(self: Engine) -> None:
    self.llm.reset_prefix_cache()
    self.llm.sleep(level=2)


def _keeps_prefixes(self: Engine, policy: Path) -> None:
    self.wake()
    if self.holds != policy:
        self._load(policy)
    self.holds = policy


def _loads_asleep(self: Engine, policy: Path) -> None:
    self._load(policy)
    self.wake()
    self.llm.reset_prefix_cache()
    self.holds = policy


def _holds_before_it_loads(self: Engine, policy: Path) -> None:
    self.wake()
    before, self.holds = self.holds, policy
    if before is None and self.llm.prefixes:
        return
    self.llm.reset_prefix_cache()


WRONG: dict[str, dict[str, Any]] = {
    "asleep it is believed to hold what it held": {"rest": _rests_but_believes_that_it_holds},
    "it never wakes": {"wake": lambda self: None},
    "weights are sent to it asleep": {"hold": _loads_asleep},
    "prefixes of other weights are kept": {
        "gives_memory": False,
        "rest": lambda self: None,
        "hold": _keeps_prefixes,
    },
    "it is said to hold what was not loaded": {"hold": _holds_before_it_loads},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_order_is_noticed(
    wrong: str, engine: Sleeping, policies: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, function in WRONG[wrong].items():
        monkeypatch.setattr(Sleeping, name, function)
    with pytest.raises((AssertionError, RuntimeError, WrongTrainingError)):
        takes_turns(engine, policies)


def test_prefixes_that_are_not_dropped_end_the_phase(engine: Sleeping, policies: list[Path]) -> None:
    """As while a request is under way; vLLM says so by False alone."""
    engine.hold(policies[0])
    engine.llm.under_way["frozen-0"] = (1, 2)
    with pytest.raises(WrongTrainingError, match="did not reset its prefix cache"):
        engine.rest()
    with pytest.raises(WrongTrainingError, match="did not reset its prefix cache"):
        engine.hold(policies[1])
    assert engine.holds is None, "and is not believed to hold it"
