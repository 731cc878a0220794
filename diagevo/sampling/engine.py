"""The vLLM of a training process, one per run, shared by policies in turns: the training one samples its
rollouts with it, and frozen ones vote, write candidates and are validated.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.config.resources import lora_slots
from diagevo.errors import WrongTrainingError
from diagevo.progress import StopFlag
from diagevo.sampling.device import numbers_of, uses_cpu
from diagevo.sampling.model_folder import (
    NOTHING,
    adapter_scaling,
    base_of,
    check_model_folder,
    encode_prompts,
    end_ids,
    load_tokenizer,
)
from diagevo.sampling.openai_sampler import request_seed
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams

POLICY, FROZEN = 1, 2
"""Adapter ids in an engine: the training policy's, and a frozen one's."""
_BATCHED = 4096  # tokens of one forward pass


def lora_request(number: int, folder: Path, *, again: bool = False) -> Any:
    """In vLLM's terms: an adapter by its number, `again` read from its folder."""
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

    return LoRARequest(f"adapter-{number}", number, str(folder.resolve()), load_inplace=again)


def drop_prefixes(llm: Any) -> None:
    """Drop cached prefixes of other weights. Raises WrongTrainingError if the engine keeps them: it does
    so during a request, and only returns False."""
    if llm.reset_prefix_cache() is False:
        raise WrongTrainingError(
            "vLLM did not reset its prefix cache, which belongs to other weights",
            hint="resume from the last checkpoint: diagevo train --resume; if it happens again, "
            "--set hardware.colocate_vllm=false",
        )


class Engine:
    """vLLM's `LLM` on this rank's device, started at its first use and kept.

    It is started from the run's initial weights, whatever it serves first: vLLM caches compiled code by
    the model's path, and reuses it when a run is resumed.
    """

    def __init__(
        self, model: Path, hardware: HardwareConfig, sampling: SamplingConfig, *, lora: int | None, rank: int
    ) -> None:
        self._model = check_model_folder(model)
        self._hardware, self._sampling, self._lora, self._rank = hardware, sampling, lora, rank
        self.holds: Path | None = None
        """The frozen policy whose weights it has; None if it has others."""

    @property
    def sleeps(self) -> bool:
        """Whether it frees its memory for an update. With adapters it holds the base that both use."""
        return self._lora is None and not uses_cpu(self._hardware)

    @property
    def adapters(self) -> bool:
        return self._lora is not None

    @cached_property
    def llm(self) -> Any:
        from vllm import LLM  # pyright: ignore[reportMissingImports]

        adapters: dict[str, Any] = {}
        if self._lora is not None:
            adapters = {"enable_lora": True, "max_loras": 2, "max_lora_rank": lora_slots(self._lora)}
        return LLM(
            model=str(base_of(self._model) or self._model),
            dtype=numbers_of(self._hardware),
            gpu_memory_utilization=self._hardware.vllm_memory,
            max_model_len=self._sampling.max_prompt_tokens + self._sampling.max_new_tokens,
            max_num_seqs=self._hardware.rows_at_once,
            max_num_batched_tokens=max(_BATCHED, self._hardware.rows_at_once),
            enable_sleep_mode=self.sleeps,
            distributed_executor_backend="external_launcher",
            seed=self._rank,
            logprobs_mode="processed_logprobs",
            **adapters,
        )

    def wake(self) -> None:
        if self.sleeps and self.llm.llm_engine.is_sleeping():
            self.llm.wake_up()

    def rest(self) -> None:
        """Asleep it keeps neither weights nor cache: the update gets the memory."""
        drop_prefixes(self.llm)
        if self.sleeps:
            self.holds = None
            self.llm.sleep(level=2)

    def hold(self, policy: Path) -> None:
        """Load the weights of a frozen policy; if adapters train, the base stays, and only its adapter
        is loaded."""
        self.wake()
        if self.holds != policy and (not self.adapters or base_of(policy) is not None):
            self.holds = None
            self._load(policy)
        drop_prefixes(self.llm)
        self.holds = policy

    def _load(self, policy: Path) -> None:
        """Raises WrongTrainingError if they did not arrive."""
        from diagevo.sampling.engine_weights import EngineWeights

        if self.adapters:
            self.llm.llm_engine.add_lora(lora_request(FROZEN, policy, again=True))
        held, scaling = EngineWeights(self.llm, FROZEN), adapter_scaling(policy) if self.adapters else 1.0

        def noted() -> Iterator[tuple[str, Any]]:
            for name, tensor in _tensors(policy):
                held.note(name, tensor, scaling)
                yield name, tensor

        if self.adapters:
            deque(noted(), maxlen=0)
        else:
            self.llm.apply_model(lambda model: model.load_weights(noted()) and None)
        if apart := held.apart():
            raise WrongTrainingError(
                f"vLLM's weights differ from {policy} in {apart} of its tensors",
                hint="sample without it: hardware.colocate_vllm false",
            )

    def answers(self, mean: int) -> int:
        """How many answers with this mean number of tokens it decodes at once."""
        cache = self.llm.llm_engine.vllm_config.cache_config
        tokens = (cache.num_gpu_blocks or 0) * cache.block_size
        return max(1, min(self._hardware.rows_at_once, tokens // mean))


class EngineSampler:
    """Implements `Sampler` for a frozen policy with the shape of the training one.

    A trainer sends its own weights before its next sampling, as after every step.
    """

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        *,
        template_kwargs: Mapping[str, Any] = NOTHING,
        stop: StopFlag | None = None,
    ) -> None:
        self._folder = check_model_folder(folder)
        self._tokenizer = load_tokenizer(folder, template_kwargs)
        self._ends = list(end_ids(folder, self._tokenizer))
        self._stop = StopFlag() if stop is None else stop
        self.engine = engine

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        if not prompts:
            return []
        found: dict[int, list[Completion]] = {}
        with self.drawing(n, params, seed) as drawing:
            drawing.ask(list(enumerate(prompts)))
            while drawing.waits:
                found |= drawing.step()
        self.engine.rest()
        return [found[place] for place in range(len(prompts))]

    @contextmanager
    def drawing(self, n: int, params: SamplingParams, seed: int) -> Iterator["SamplingCall"]:
        """Answers requests made inside the block. Unanswered ones are cancelled at its end."""
        self.engine.hold(self._folder)
        drawing = SamplingCall(self, n, params, seed)
        try:
            yield drawing
        finally:
            drawing.give_up()

    def close(self) -> None:
        """The engine is the process's."""


class SamplingCall:
    """Requests of one call. Greedy samples are identical, and vLLM accepts only one."""

    def __init__(self, sampler: EngineSampler, n: int, params: SamplingParams, seed: int) -> None:
        self._sampler, self._n, self._params, self._seed = sampler, n, params, seed
        self._engine = sampler.engine.llm.llm_engine
        adapted = sampler.engine.adapters and base_of(sampler._folder) is not None
        self._adapter = lora_request(FROZEN, sampler._folder) if adapted else None
        self._asked: dict[str, int] = {}

    @property
    def waits(self) -> bool:
        return bool(self._asked)

    def ask(self, prompts: Sequence[tuple[int, Prompt]]) -> None:
        """By their positions in the call."""
        from vllm import SamplingParams as Wanted  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import RequestOutputKind  # pyright: ignore[reportMissingImports]

        greedy, params = self._params.temperature == 0, self._params
        encoded = encode_prompts(self._sampler._tokenizer, [prompt for _, prompt in prompts])
        for (place, _), ids in zip(prompts, encoded, strict=True):
            wanted = Wanted(
                n=1 if greedy else self._n,
                temperature=params.temperature,
                top_p=1.0 if greedy else params.top_p,
                max_tokens=params.max_new_tokens,
                stop_token_ids=self._sampler._ends,
                seed=request_seed(self._seed, place),
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            name = f"frozen-{place}"
            self._asked[name] = place
            self._engine.add_request(name, {"prompt_token_ids": ids}, wanted, lora_request=self._adapter)

    def step(self) -> dict[int, list[Completion]]:
        """One step of the engine: what it has finished, by position. Raises StoppedSafely once a stop is
        overdue."""
        self._sampler._stop.check_overdue()
        found: dict[int, list[Completion]] = {}
        for answered in self._engine.step():
            if answered.finished:
                outputs = sorted(answered.outputs, key=lambda each: each.index)
                drawn = [self._completion(each) for each in outputs]
                found[self._asked.pop(answered.request_id)] = (drawn * self._n)[: self._n]
        return found

    def give_up(self) -> None:
        if self._asked:
            self._engine.abort_request(list(self._asked))
            self._asked.clear()

    def _completion(self, drawn: Any) -> Completion:
        ids = list(drawn.token_ids)
        text = self._sampler._tokenizer.decode(ids, skip_special_tokens=True)
        return Completion(text=text, tokens=len(ids), truncated=drawn.finish_reason != "stop")


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """By name; one after the other, so that the whole model is never in host memory."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (no mapping)
                yield name, tensors.get_tensor(name)
