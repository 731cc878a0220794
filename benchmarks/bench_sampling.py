"""Tokens a CPU second of the samplers, on the shipped small model and one thread, beside plain `generate`."""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.rows import Row

PROMPTS = 64
SAMPLES = 12
NEW_TOKENS = 96


def rows() -> list[Row]:
    import torch

    from diagevo.arithmetic import PROMPTS as TEMPLATES
    from diagevo.arithmetic import WEIGHTS, held_out
    from diagevo.sampling.sampler import SamplingParams
    from diagevo.sampling.transformers_sampler import TransformersSampler
    from diagevo.selfplay.questions import PromptTemplates
    from tests.sampling.loopback import chat_server

    torch.set_num_threads(1)
    templates = PromptTemplates.load(TEMPLATES)
    questions = [question for question, _ in held_out()]
    prompts = [templates.solver(q) for q in questions[:: len(questions) // PROMPTS][:PROMPTS]]
    found = []
    for top_p in (0.99, 0.95):
        sampler = TransformersSampler(WEIGHTS, threads=1)
        params = SamplingParams(temperature=1.0, top_p=top_p, max_new_tokens=NEW_TOKENS)

        def ours(sampler: Any = sampler, params: SamplingParams = params) -> int:
            groups = sampler.sample(prompts, n=SAMPLES, params=params, seed=0)
            return sum(completion.tokens for group in groups for completion in group)

        def plain(sampler: Any = sampler, top_p: float = top_p) -> int:
            return _generated(sampler, prompts, top_p)

        measured, reference = _tokens_a_cpu_second(ours), _tokens_a_cpu_second(plain)
        ratio = measured / reference
        found.append(
            Row(
                f"transformers sampler, top-p {top_p}",
                measured,
                "tokens/CPU s",
                reference,
                "plain generate",
                ratio,
                "≥ 2 ×",
                ratio >= 2,
                f"{PROMPTS} prompts × {SAMPLES} samples",
            )
        )
        if top_p == 0.99:
            with chat_server(sampler) as url:
                served = _tokens_a_cpu_second(lambda url=url, params=params: _served(url, prompts, params))
            found.append(
                Row(
                    "OpenAI sampler, loopback server in this process",
                    served,
                    "tokens/CPU s",
                    measured,
                    "the same without HTTP",
                    served / measured,
                    "",
                    None,
                    "one prompt a request, as it arrives: no batch of prompts",
                )
            )
    return found


def _tokens_a_cpu_second(work: Callable[[], int]) -> float:
    """The best of three."""
    best = 0.0
    for _ in range(3):
        began = time.process_time()
        tokens = work()
        best = max(best, tokens / (time.process_time() - began))
    return best


def _generated(sampler: Any, prompts: Any, top_p: float) -> int:
    import torch

    from diagevo.sampling.model_folder import encode_prompts

    ids = encode_prompts(sampler._tokenizer, prompts)
    width = max(map(len, ids))
    padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    drawn = sampler._model.generate(
        input_ids=padded,
        attention_mask=mask,
        do_sample=True,
        top_p=top_p,
        top_k=0,
        max_new_tokens=NEW_TOKENS,
        num_return_sequences=SAMPLES,
    )[:, width:]
    ends = sampler._end_ids
    return sum(next((i + 1 for i, t in enumerate(row) if t in ends), len(row)) for row in drawn.tolist())


def _served(url: str, prompts: Any, params: Any) -> int:
    from diagevo.sampling.openai_sampler import OpenAISampler
    from diagevo.sampling.service import Service

    client = OpenAISampler(Service(url), "small", workers=2)
    groups = client.sample(prompts, n=SAMPLES, params=params, seed=0)
    client.close()
    return sum(completion.tokens for group in groups for completion in group)
