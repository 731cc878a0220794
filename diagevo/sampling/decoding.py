"""The decoding loop: many rows at once, one prefill per prompt, finished rows dropped. A row's random numbers
come from its own generator, keyed by the caller, so a row is the same whatever else is in its batch (up to
the rounding of a matrix product).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from diagevo.progress import StopFlag
from diagevo.sampling.sampler import Row

if TYPE_CHECKING:
    import torch

_BLOCK = 64  # uniform numbers drawn from a row's generator at a time
_DROP_ABOVE = 0.1  # share of finished rows at which they are removed from the batch


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to sample.

    `temperature` 0 is greedy. `threads`: concurrent batches, each on one core. For small models on a CPU that
    beats several cores per batch, which wait for each other after every small product. `stop`: once overdue,
    a batch is aborted.
    """

    temperature: float
    top_p: float
    max_new_tokens: int
    end_ids: tuple[int, ...]
    pad_id: int
    rows_at_once: int = 256
    threads: int = 1
    stop: StopFlag = field(default_factory=StopFlag)


@dataclass(slots=True)
class _Row:
    prompt: int
    sample: int
    generator: np.random.Generator
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """The new ids of one row, and the log-probability of each before the nucleus was cut (0 if greedy)."""

    ids: list[int]
    logps: list[float]


def row_key(seed: int, prompt_ids: Sequence[int], sample: int) -> bytes:
    """Key of one row's generator: 16 bytes of a hash over seed, prompt and sample."""
    digest = hashlib.blake2b(f"{seed}/{sample}/".encode(), digest_size=16)
    digest.update(np.asarray(prompt_ids, dtype=np.int64).tobytes())
    return digest.digest()


def draw(
    model: Any,
    prompts: Sequence[Sequence[int]],
    keys: Sequence[Sequence[bytes]],
    decoding: Decoding,
    *,
    known: Collection[Row] = (),
    before_batch: Callable[[], None] = lambda: None,
    on_batch: Callable[[Mapping[Row, SampledTokens]], None] = lambda rows: None,
) -> list[list[SampledTokens]]:
    """Continue each prompt once per key: the new ids of each, including the end mark if it was sampled.

    `prompts`: token ids, none empty. `keys[i]`: one 16-byte key for each sample of prompt i.
    Rows in `known` are skipped, and stay empty. The batches are those of the whole call, so that a row
    does not depend on what was known. `on_batch` gets each when done; `before_batch` may raise, and then
    no other is begun.
    """
    from diagevo.sampling.grouped_attention import grouped_attention

    rows_P_G = [
        [_Row(p, g, np.random.default_rng(int.from_bytes(key))) for g, key in enumerate(of_prompt)]
        for p, of_prompt in enumerate(keys)
    ]
    by_length = sorted(range(len(prompts)), key=lambda p: len(prompts[p]))
    queue = [row for p in by_length for row in rows_P_G[p]]
    batch_rows = min(decoding.rows_at_once, -(-len(queue) // decoding.threads)) or 1
    whole = [queue[start : start + batch_rows] for start in range(0, len(queue), batch_rows)]
    batches = [[row for row in batch if (row.prompt, row.sample) not in known] for batch in whole]

    def work(batch: list[_Row]) -> list[_Row]:
        before_batch()
        _decode_batch(model, prompts, batch, decoding)
        return batch

    with grouped_attention(model), _stoppable_in_layers(model, decoding.stop):
        for batch in _side_by_side(work, [batch for batch in batches if batch], decoding.threads):
            on_batch({(row.prompt, row.sample): SampledTokens(row.ids, row.logps) for row in batch})
    return [[SampledTokens(row.ids, row.logps) for row in rows] for rows in rows_P_G]


def _side_by_side(
    work: Callable[[list[_Row]], list[_Row]], batches: Sequence[list[_Row]], threads: int
) -> Iterator[list[_Row]]:
    """Each batch when done. After an error no other is begun; running ones are still yielded."""
    import torch

    if threads == 1:
        yield from map(work, batches)
        return
    failure: BaseException | None = None
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = [pool.submit(copy_context().run, work, batch) for batch in batches]
        try:
            for future in as_completed(futures):
                if future.cancelled():
                    continue
                if (error := future.exception()) is None:
                    yield future.result()
                    continue
                failure = failure or error
                for other in futures:
                    other.cancel()
        finally:
            for future in futures:
                future.cancel()
    if failure is not None:
        raise failure


@contextmanager
def _stoppable_in_layers(model: Any, stop: StopFlag) -> Iterator[None]:
    """Each layer checks the flag first: one pass of a slow model over many prompts takes minutes."""
    import torch

    stacks = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    layers = {id(layer): layer for stack in stacks for layer in stack}
    hooks = [
        module.register_forward_pre_hook(lambda *_: stop.check_overdue())
        for module in (model, *layers.values())
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def stoppable_in_steps(engine: Any, stop: StopFlag) -> Iterator[None]:
    """The same for vLLM's engine inside the trainer: before its next step."""
    step = engine.step

    def checked() -> Any:
        stop.check_overdue()
        return step()

    engine.step = checked
    try:
        yield
    finally:
        engine.step = step


def _decode_batch(model: Any, prompts: Sequence[Sequence[int]], rows: list[_Row], decoding: Decoding) -> None:
    """Fill in the ids of `rows` (sorted so that rows of one prompt are adjacent)."""
    import torch

    with torch.no_grad():
        logits, cache, mask = _prefill(model, prompts, rows, decoding.pad_id)
        padded = not bool(mask.all())
        position = mask.sum(1)
        uniforms = np.empty((len(rows), 0, 2))
        for step in range(decoding.max_new_tokens):
            column = step % _BLOCK
            if column == 0 and decoding.temperature > 0:
                uniforms = np.stack([row.generator.random((_BLOCK, 2)) for row in rows])
            drawn, logps = _draw(logits, uniforms[:, column] if decoding.temperature > 0 else None, decoding)
            going = _append(rows, drawn.tolist(), logps.tolist(), decoding)
            if not going:
                return
            if len(rows) - len(going) > _DROP_ABOVE * len(rows):
                kept = torch.tensor(going, device=drawn.device)
                cache.batch_select_indices(kept)
                rows = [rows[i] for i in going]
                drawn, mask, position, uniforms = drawn[kept], mask[kept], position[kept], uniforms[going]
            if step + 1 == decoding.max_new_tokens:
                return
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            output = model(
                input_ids=drawn[:, None],
                attention_mask=mask if padded else None,
                position_ids=position[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            position = position + 1
            logits = output.logits[:, -1]


def _prefill(
    model: Any, prompts: Sequence[Sequence[int]], rows: Sequence[_Row], pad_id: int
) -> tuple["torch.Tensor", Any, "torch.Tensor"]:
    """Logits (R, V) after each row's prompt, the cache of all rows, and the mask (R, prompt length)."""
    import torch
    from transformers import DynamicCache

    counts: dict[int, int] = {}
    for row in rows:
        counts[row.prompt] = counts.get(row.prompt, 0) + 1
    device = model.device
    width = max(len(prompts[p]) for p in counts)
    short = [width - len(prompts[p]) for p in counts]
    ids = torch.tensor(
        [[pad_id] * n + list(prompts[p]) for n, p in zip(short, counts, strict=True)], device=device
    )
    mask = torch.tensor([[0] * n + [1] * (width - n) for n in short], device=device)
    cache = DynamicCache(config=model.config)
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    place = torch.arange(len(counts), device=device).repeat_interleave(
        torch.tensor(list(counts.values()), device=device)
    )
    cache.batch_select_indices(place)
    return output.logits[place, -1], cache, mask[place]


def _append(rows: list[_Row], drawn: list[int], logps: list[float], decoding: Decoding) -> list[int]:
    """Add the sampled tokens to the unfinished rows; return the indices of those that continue.

    A finished row stays in the batch until enough of them are dropped together; its samples are ignored.
    """
    going = []
    for index, (row, token, logp) in enumerate(zip(rows, drawn, logps, strict=True)):
        if row.ids and _finished(row, decoding):
            continue
        row.ids.append(token)
        row.logps.append(logp)
        if not _finished(row, decoding):
            going.append(index)
    return going


def _finished(row: _Row, decoding: Decoding) -> bool:
    return row.ids[-1] in decoding.end_ids


def _draw(
    logits: "torch.Tensor", uniforms: np.ndarray | None, decoding: Decoding
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """One token per row, and its log-probability. `logits` (R, V); `uniforms` (R, 2) in [0, 1), None
    for greedy.

    The nucleus is the smallest set of most probable tokens whose mass reaches top_p, as elsewhere.
    The first number draws from the whole distribution; a token is in the nucleus where less than top_p lies
    above it. The few rows that fall outside draw again, from the nucleus alone, by the second number:
    together that is the nucleus's own distribution, p / mass(nucleus), and only those few rows need sorting.
    """
    import torch

    if uniforms is None:
        return logits.argmax(dim=-1), logits.new_zeros(len(logits))
    probabilities = torch.softmax(logits.float() / decoding.temperature, dim=-1)
    numbers = torch.from_numpy(uniforms).to(logits.device)
    tokens = _by_cumulative_mass(probabilities, numbers[:, :1])
    if decoding.top_p < 1:
        above = torch.where(probabilities > probabilities.gather(1, tokens), probabilities, 0).sum(dim=-1)
        outside = (above >= decoding.top_p).nonzero().squeeze(1)
        if len(outside):
            rest = probabilities[outside]
            ranked = rest.sort(dim=-1, descending=True).values
            size = (ranked.cumsum(dim=-1) - ranked < decoding.top_p).sum(dim=-1, keepdim=True).clamp(min=1)
            nucleus = torch.where(rest >= ranked.gather(1, size - 1), rest, 0)
            tokens[outside] = _by_cumulative_mass(nucleus, numbers[outside, 1:])
    return tokens.squeeze(1), probabilities.gather(1, tokens).squeeze(1).log()


def _by_cumulative_mass(weights: "torch.Tensor", numbers: "torch.Tensor") -> "torch.Tensor":
    """Token (R, 1) in whose slice of the cumulated weights (R, V) the number (R, 1) in [0, 1) falls."""
    import torch

    mass = weights.double().cumsum(dim=-1)
    found = torch.searchsorted(mass, numbers * mass[:, -1:], right=True)
    return found.clamp(max=weights.shape[-1] - 1)
