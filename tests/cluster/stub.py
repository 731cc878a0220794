"""A sampler that says who answered what, and waits where it is told to."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from diagevo.sampling.sampler import Completion, Prompt, SamplingParams


class Stub:
    """Answers "NUMBER: TEXT #BEFORE". Engine `slow` tells what it was asked in a file, and never answers."""

    def __init__(self, number: int, folder: Path, slow: int | None = None) -> None:
        self._number, self._folder, self._slow = number, folder, slow
        (folder / f"engine-{number}").write_text(str(os.getpid()))

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        before: Sequence[int] = (),
    ) -> list[list[Completion]]:
        texts = [prompt[0]["content"] for prompt in prompts]
        if self._number == self._slow:
            (self._folder / "slow-has").write_text("\n".join(texts))
            while True:
                time.sleep(0.1)
        answers = [f"{self._number}: {text} #{first}" for text, first in zip(texts, before, strict=True)]
        return [[Completion(answer, seed, False)] * n for answer in answers]

    def close(self) -> None:
        (self._folder / f"engine-{self._number}").unlink()


class Loaded:
    """Stands for a model that an engine has loaded; many engines would load it slowly on two cores."""

    def sample(self, prompts: Sequence[Prompt], *, n: int, **_: object) -> list[list[Completion]]:
        return [[Completion("4", 1, False)] * n for _ in prompts]

    def close(self) -> None: ...


def loaded(policy: Path, *_: object) -> Loaded:
    assert (policy / "model.safetensors").is_file(), sorted(map(str, policy.parent.rglob("*")))
    return Loaded()
