"""The vLLM inside a training process, lent to a frozen policy between two draws of the policy that trains."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diagevo.progress import StopFlag
from diagevo.sampling.decoding import heard_in_steps
from diagevo.sampling.model_folder import (
    NOTHING,
    base_of,
    check_model_folder,
    encode_prompts,
    end_ids,
    load_tokenizer,
)
from diagevo.sampling.openai_sampler import request_seed
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams

POLICY, FROZEN = 1, 2
"""Numbers of adapters in such an engine: of the policy that trains, and of the one that is frozen."""


def lora_request(number: int, folder: Path, *, again: bool = False) -> Any:
    """In vLLM's terms: an adapter by its number, `again` read from its folder."""
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

    return LoRARequest(f"adapter-{number}", number, str(folder.resolve()), load_inplace=again)


class TrainersVLLM:
    """Implements `Sampler`, once it has the engine of its trainer.

    Each call loads the frozen weights into the engine. The trainer sends its own before its next draw, as it
    does after every step, so the engine holds one model at a time. Both have one architecture. Where the
    trainer trains an adapter, both have one base, which stays, and the frozen policy's adapter lies beside
    the trainer's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        template_kwargs: Mapping[str, Any] = NOTHING,
        stop: StopFlag | None = None,
    ) -> None:
        self._folder = check_model_folder(folder)
        self._tokenizer = load_tokenizer(folder, template_kwargs)
        self._stop = StopFlag() if stop is None else stop
        self.engine: Any = None
        """vLLM's `LLM`."""

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        if not prompts:
            return []
        from vllm import SamplingParams as Wanted  # pyright: ignore[reportMissingImports]

        ids: Any = [{"prompt_token_ids": each} for each in encode_prompts(self._tokenizer, prompts)]
        ends = end_ids(self._folder, self._tokenizer)
        adapters = {"lora_request": self._adapter()} if self._adapters else {}
        with self._awake():
            found = self.engine.generate(
                ids,
                [
                    Wanted(
                        n=n,
                        temperature=params.temperature,
                        top_p=params.top_p,
                        max_tokens=params.max_new_tokens,
                        stop_token_ids=list(ends),
                        seed=request_seed(seed, place),
                    )
                    for place in range(len(ids))
                ],
                use_tqdm=False,
                **adapters,
            )
        return [
            [
                Completion(text=each.text, tokens=len(each.token_ids), truncated=each.finish_reason != "stop")
                for each in sorted(answered.outputs, key=lambda each: each.index)
            ]
            for answered in found
        ]

    @property
    def _adapters(self) -> bool:
        return self.engine.llm_engine.vllm_config.lora_config is not None

    def _adapter(self) -> Any:
        """None: the base alone, before the first phase."""
        return None if base_of(self._folder) is None else lora_request(FROZEN, self._folder)

    def close(self) -> None:
        """The engine is the trainer's."""

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """With the frozen weights. Asleep it keeps neither weights nor cache: the memory is the update's."""
        core = self.engine.llm_engine
        sleeps = core.vllm_config.model_config.enable_sleep_mode
        if sleeps:
            self.engine.wake_up()
        if not self._adapters:
            self.engine.apply_model(self._load)
        self.engine.reset_prefix_cache()
        try:
            with heard_in_steps(core, self._stop):
                yield
        finally:
            self.engine.reset_prefix_cache()
            if sleeps:
                self.engine.sleep(level=2)

    def _load(self, model: Any) -> None:
        model.load_weights(_tensors(self._folder))


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """By name; one after the other, so that the model is never held in the memory of the host."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (no mapping)
                yield name, tensors.get_tensor(name)
