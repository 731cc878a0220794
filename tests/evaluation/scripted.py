"""A sampler that answers from a script: it stands for a model whose every answer is known."""

from collections.abc import Callable, Sequence

from diagevo.sampling.sampler import Completion, Prompt, SamplingParams


class ScriptedSampler:
    """Answers the user's message by `script(message, sample, params)`; counts what it was asked."""

    def __init__(self, script: Callable[[str, int, SamplingParams], str]) -> None:
        self.script = script
        self.asked: list[str] = []

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        messages = [prompt[-1]["content"] for prompt in prompts]
        self.asked.extend(messages)
        texts = [[self.script(message, i, params) for i in range(n)] for message in messages]
        return [[Completion(text, len(text.split()), False) for text in group] for group in texts]

    def close(self) -> None:
        pass


class SameText:
    """Answers agree when they are the same text."""

    def agree_many(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        return [a == b for a, b in pairs]


class BarePrompts:
    """The question alone, with no instruction around it."""

    def solver(self, question: str) -> Prompt:
        return [{"role": "user", "content": question}]
