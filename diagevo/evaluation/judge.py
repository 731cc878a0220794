"""A language model behind the rule: it decides only what the rule refused, and every verdict is cached.

The judge sees the question, the reference answer as the reference and the model's answer as the answer. (The
released code of R-Zero and DARC hands the two over the other way round.)
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.evaluation.asking import as_answered
from diagevo.memory.log.artifacts import Artifacts, Reply, digest_of
from diagevo.sampling.sampler import Prompt, Sampler, SamplingParams

INSTRUCTION = """You compare two final answers to one question: a reference answer, which is to be taken \
as correct, and an answer to be graded. Decide whether the graded answer states the same result as the \
reference: another form of the same number, expression, set or phrase is the same; a different value, a \
missing part or an extra claim is not. Do not solve the question. Reply with one word: Yes or No."""


@dataclass(frozen=True, slots=True)
class Case:
    """An answer that the rule refused."""

    question: str
    reference: str
    answer: str


class Judge:
    """Asks `sampler` (any served model) at temperature 0, through the cache of replies in the database."""

    def __init__(self, sampler: Sampler, model: str, artifacts: Artifacts, *, at_once: int = 64) -> None:
        self.sampler = sampler
        self.model = model
        self.artifacts = artifacts
        self.at_once = at_once
        self.asked = 0
        """Requests that were not answered from the cache."""

    @property
    def conditions(self) -> dict[str, object]:
        """What its verdicts depend on, as an evaluation stores it."""
        return {"model": self.model, "prompt": digest_of(INSTRUCTION)}

    def prompt(self, case: Case) -> Prompt:
        content = (
            f"Question:\n{case.question}\n\nReference answer: {case.reference}"
            f"\nAnswer to grade: {case.answer}"
        )
        return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": content}]

    def same(self, cases: Sequence[Case]) -> list[bool | None]:
        """For each case whether the answers are the same; None where the reply is neither Yes nor No.

        Raises ServiceError where the model cannot be reached; what was answered before stays cached.
        """
        prompts = [self.prompt(case) for case in cases]
        requests = [digest_of(json.dumps(prompt, ensure_ascii=False)) for prompt in prompts]
        replies = {r: self.artifacts.recall_reply(self.model, r) for r in dict.fromkeys(requests)}
        missing = [r for r, reply in replies.items() if reply is None]
        by_request = dict(zip(requests, prompts, strict=True))
        params = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=16)
        asks = {request: (by_request[request], 0) for request in missing}
        for answered in as_answered(self.sampler, asks, n=1, params=params, at_once=self.at_once):
            for request, [completion] in answered.items():
                reply = Reply(completion.text, 0, completion.tokens)
                self.artifacts.remember_reply(self.model, request, reply)
                replies[request] = reply
                self.asked += 1
        return [verdict_of(replies[request]) for request in requests]


def verdict_of(reply: Reply | None) -> bool | None:
    """Yes or no, from the reply's first word."""
    words = (reply.text if reply is not None else "").strip().casefold().split()
    first = words[0].strip(".,:;!*\"'`") if words else ""
    return {"yes": True, "no": False}.get(first)
