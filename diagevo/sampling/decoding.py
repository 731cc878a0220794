"""The decoding loop: many rows at once, one prefill a prompt, finished rows dropped.

A row's random numbers come from a generator of its own, keyed by the caller, so a row is drawn the same
whatever else is in its batch (up to the rounding of a matrix product).
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_BLOCK = 64  # uniform numbers drawn from a row's generator at a time
_DROP_ABOVE = 0.1  # share of finished rows at which they leave the batch


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to draw. `temperature` 0 is greedy; `ended` looks at a row's ids for stop strings."""

    temperature: float
    top_p: float
    max_new_tokens: int
    end_ids: tuple[int, ...]
    pad_id: int
    rows_at_once: int = 256
    ended: Callable[[list[int]], bool] | None = None


@dataclass(slots=True)
class _Row:
    prompt: int
    sample: int
    generator: np.random.Generator
    ids: list[int] = field(default_factory=list)


def row_key(seed: int, prompt_ids: Sequence[int], sample: int) -> bytes:
    """Key of one row's generator: 16 bytes of a hash over seed, prompt and sample."""
    digest = hashlib.blake2b(f"{seed}/{sample}/".encode(), digest_size=16)
    digest.update(np.asarray(prompt_ids, dtype=np.int64).tobytes())
    return digest.digest()


def decode(
    model: Any, prompts: Sequence[Sequence[int]], keys: Sequence[Sequence[bytes]], decoding: Decoding
) -> list[list[list[int]]]:
    """Continue each prompt once a key. Returns the new ids of each, the end mark included where it was drawn.

    `prompts`: token ids, none empty. `keys[i]`: one 16-byte key for each sample of prompt i.
    """
    rows_P_G = [
        [
            _Row(p, g, np.random.Generator(np.random.Philox(key=int.from_bytes(key))))
            for g, key in enumerate(row)
        ]
        for p, row in enumerate(keys)
    ]
    by_length = sorted(range(len(prompts)), key=lambda p: len(prompts[p]))
    queue = [row for p in by_length for row in rows_P_G[p]]
    for start in range(0, len(queue), decoding.rows_at_once):
        _decode_batch(model, prompts, queue[start : start + decoding.rows_at_once], decoding)
    return [[row.ids for row in rows] for rows in rows_P_G]


def _decode_batch(model: Any, prompts: Sequence[Sequence[int]], rows: list[_Row], decoding: Decoding) -> None:
    """Fill in the ids of `rows` (sorted so that rows of one prompt are neighbours)."""
    import torch

    with torch.no_grad():
        logits, cache, mask = _prefill(model, prompts, rows, decoding.pad_id)
        padded = not bool(mask.all())
        position = mask.sum(1)
        uniforms = np.empty((len(rows), 0))
        for step in range(decoding.max_new_tokens):
            column = step % _BLOCK
            if column == 0 and decoding.temperature > 0:
                uniforms = np.stack([row.generator.random(_BLOCK) for row in rows])
            drawn = _draw(logits, uniforms[:, column] if decoding.temperature > 0 else None, decoding)
            going = _append(rows, drawn.tolist(), decoding)
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
    ids = torch.tensor(
        [[pad_id] * (width - len(prompts[p])) + list(prompts[p]) for p in counts], device=device
    )
    mask = torch.tensor(
        [[0] * (width - len(prompts[p])) + [1] * len(prompts[p]) for p in counts], device=device
    )
    cache = DynamicCache(config=model.config)
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    repeats = torch.tensor(list(counts.values()), device=device)
    same = len(set(counts.values())) == 1
    if same:
        cache.batch_repeat_interleave(int(repeats[0]))
    else:
        cache.batch_select_indices(torch.arange(len(counts), device=device).repeat_interleave(repeats))
    return (
        output.logits[:, -1].repeat_interleave(repeats, dim=0),
        cache,
        mask.repeat_interleave(repeats, dim=0),
    )


def _append(rows: list[_Row], drawn: list[int], decoding: Decoding) -> list[int]:
    """Add the drawn ids to the rows that are under way; return the indices of those that go on.

    A finished row stays in the batch until enough of them are dropped together; what it draws is ignored.
    """
    going = []
    for index, (row, token) in enumerate(zip(rows, drawn, strict=True)):
        if row.ids and _finished(row, decoding):
            continue
        row.ids.append(token)
        if not _finished(row, decoding):
            going.append(index)
    return going


def _finished(row: _Row, decoding: Decoding) -> bool:
    return row.ids[-1] in decoding.end_ids or (decoding.ended is not None and decoding.ended(row.ids))


def _draw(logits: "torch.Tensor", uniforms: np.ndarray | None, decoding: Decoding) -> "torch.Tensor":
    """One token a row by inverse CDF over the nucleus. `logits` (R, V), `uniforms` (R,) in [0, 1) or greedy.

    The nucleus is the smallest set of most probable tokens whose mass reaches top_p, as in transformers and vLLM.
    """
    import torch

    if uniforms is None:
        return logits.argmax(dim=-1)
    probabilities = torch.softmax(logits.float() / decoding.temperature, dim=-1)
    ranked, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    mass = ranked.double().cumsum(dim=-1)
    inside = mass - ranked < decoding.top_p
    inside[:, 0] = True
    total = torch.where(inside, ranked.double(), 0.0).sum(dim=-1)
    target = torch.from_numpy(uniforms).to(total.device) * total
    rank = torch.searchsorted(mass, target[:, None], right=True).squeeze(1)
    rank = torch.minimum(rank, inside.sum(dim=-1) - 1)
    return tokens.gather(1, rank[:, None]).squeeze(1)
