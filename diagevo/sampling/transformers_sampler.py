"""A sampler in this process: a model folder, transformers, on the CPU or on one GPU."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from diagevo.config.models import HardwareConfig
from diagevo.errors import ConfigError, MissingDependencyError
from diagevo.progress import StopFlag
from diagevo.sampling.decoding import Decoding, draw, row_key
from diagevo.sampling.device import uses_cpu
from diagevo.sampling.model_folder import (
    NOTHING,
    base_of,
    check_model_folder,
    encode_prompts,
    end_ids,
    load_tokenizer,
)
from diagevo.sampling.sampler import Answers, Completion, Prompt, SamplingParams


def loaded(
    policy: Path, hardware: HardwareConfig, *, template_kwargs: Mapping[str, Any], stop: StopFlag
) -> "TransformersSampler":
    """A policy in this process, as a run's configuration says."""
    return TransformersSampler(
        policy,
        device="cpu" if uses_cpu(hardware) else "cuda",
        dtype=None if hardware.precision == "auto" else hardware.precision,
        rows_at_once=hardware.rows_at_once,
        template_kwargs=template_kwargs,
        stop=stop,
    )


class TransformersSampler:
    """Implements `Sampler`. The same prompts, n, params and seed give the same completions.

    A completion depends on (seed, its prompt's text, its place among the samples of that text), not on the
    other prompts of the call: a prompt given twice gets different samples, half a batch gets the same ones.
    """

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "cpu",
        dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None,
        rows_at_once: int = 256,
        threads: int | None = None,
        template_kwargs: Mapping[str, Any] = NOTHING,
        stop: StopFlag | None = None,
    ) -> None:
        """`dtype` None: float32 on the CPU, bfloat16 on a GPU. `threads` None: torch's number, 1 on a GPU.

        Raises MissingDependencyError for a bad folder or a GPU that is not there.
        """
        import torch
        from transformers.models.auto.modeling_auto import AutoModelForCausalLM

        check_model_folder(folder)
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise MissingDependencyError(
                f"device {device} was requested, but no CUDA device is there.", hint="Use cpu."
            )
        dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
        self.folder = folder
        self._rows_at_once = rows_at_once
        self._stop = StopFlag() if stop is None else stop
        self._threads = 1 if device != "cpu" else threads or torch.get_num_threads()
        self._tokenizer = load_tokenizer(folder, template_kwargs)
        base = base_of(folder)
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                str(base or folder), dtype=dtype, use_safetensors=True
            )
            if base is not None:
                from peft import PeftModel

                model = PeftModel.from_pretrained(model, str(folder))
        except Exception as error:  # a damaged folder raises whatever its parser does
            raise MissingDependencyError(
                f"The model in {folder} cannot be loaded ({error}).",
                hint="Check that config.json and the weights belong together and were written whole.",
            ) from error
        self._model = model.to(device).eval()
        self._end_ids = end_ids(folder, self._tokenizer)
        self._context = getattr(self._model.config, "max_position_embeddings", None)

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        answers: Answers | None = None,
        before: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """`before`: of a call that was cut into parts, samples of each prompt's text that precede its own."""
        if self._model is None:
            raise RuntimeError("the sampler is closed")
        prompt_ids = encode_prompts(self._tokenizer, prompts)
        self._refuse_long(prompt_ids, params)
        seen: Counter[tuple[int, ...]] = Counter()
        keys = []
        for place, ids in enumerate(prompt_ids):
            first = before[place] if before else seen[tuple(ids)]
            keys.append([row_key(seed, ids, first + g) for g in range(n)])
            seen[tuple(ids)] += n
        found = answers or Answers(len(prompts), n)
        draw(
            self._model,
            prompt_ids,
            keys,
            self._decoding(params),
            known=found.rows,
            before_batch=self._stop.check if found.kept else lambda: None,
            on_batch=lambda rows: found.add(
                {row: self._completion(drawn.ids) for row, drawn in rows.items()}
            ),
        )
        return found.groups()

    def close(self) -> None:
        """Drop the model, so that its memory is given back."""
        import torch

        self._model = None
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # Others hold the GPU after us: ranks, servers.

    def _decoding(self, params: SamplingParams) -> Decoding:
        return Decoding(
            temperature=params.temperature,
            top_p=params.top_p,
            max_new_tokens=params.max_new_tokens,
            end_ids=self._end_ids,
            pad_id=self._tokenizer.pad_token_id,
            rows_at_once=self._rows_at_once,
            threads=self._threads,
            stop=self._stop,
        )

    def _refuse_long(self, prompt_ids: Sequence[Sequence[int]], params: SamplingParams) -> None:
        longest = max(map(len, prompt_ids), default=None)
        if (
            longest is not None
            and self._context is not None
            and longest + params.max_new_tokens > self._context
        ):
            raise ConfigError(
                f"a prompt of {longest} tokens and {params.max_new_tokens} new ones do not fit into the "
                f"context of the model in {self.folder}, {self._context} tokens.",
                hint="Lower sampling.max_new_tokens or shorten the prompt.",
            )

    def _completion(self, ids: list[int]) -> Completion:
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        return Completion(text=text, tokens=len(ids), truncated=ids[-1] not in self._end_ids)
