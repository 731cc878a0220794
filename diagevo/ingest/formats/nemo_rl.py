"""NeMo-RL's `train_data_step*.jsonl`: content is the messages' texts without their roles, and the mask says
where the first answer begins."""

from hashlib import blake2b
from pathlib import Path

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import unmarked
from diagevo.ingest.formats.rows import BatchedReward, Row, number, step_of, with_reward
from diagevo.ingest.lines import typed
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep
from diagevo.text.turns import Turn, joined


class NemoRow(Row):
    """A rollout. The writer puts each field into a list of its own, as a batch of one."""

    content: list[str | list[str]]
    filtered_rewards: BatchedReward | msgspec.UnsetType = msgspec.UNSET
    """With `use_dynamic_sampling`: the rewards of these rollouts. `rewards` are then of the whole batch
    before the filter, so they stand beside other rollouts."""
    token_ids: list[int | list[int]] | None = None
    token_loss_mask: list[float | bool | list[float | bool]] | None = None


def load(file: Path, step: int, *, reward: str | None) -> RolloutStep:
    """The rollouts of a step, told apart by their prompts' tokens."""
    field = reward or "rewards"
    found: list[tuple[str, list[str], float | None]] = []
    row: NemoRow
    for line, row in typed(file, with_reward(NemoRow, field, BatchedReward)):
        content = [unmarked(text) for text in _flat(row.content) if isinstance(text, str)]
        if len(content) < 2 or len(content) < len(_flat(row.content)):
            raise ConfigError(
                f"{file}, line {line} has no prompt and answer in content:"
                " NeMo-RL's TransferQueue path leaves the prompt out",
                hint="turn that path off for the run, or write the plain JSONL",
            )
        given = row.reward
        if field == "rewards" and not isinstance(row.filtered_rewards, msgspec.UnsetType):
            given = row.filtered_rewards
        found.append((_asked(row), content, number(given)))
    prompts, firsts = {key for key, _, _ in found if key}, {content[0] for _, content, _ in found}
    asked = 2 if len(firsts) < len(prompts) else 1  # a system prompt of its own, the same for several prompts
    return step_of(
        step,
        file.name,
        [
            None
            if value is None
            else IngestedRollout(
                "\n\n".join(content[:asked]), _taken(content[asked:]), value, None, key or None
            )
            for key, content, value in found
        ],
    )


def _taken(content: list[str]) -> str:
    """The turns of the policy, and what the environment says after each but the last."""
    if len(content) == 1:
        return content[0]
    return joined(Turn(("assistant", "environment")[i % 2], text) for i, text in enumerate(content))


def _flat(values: list) -> list:
    """What a batch of one holds."""
    return values[0] if len(values) == 1 and isinstance(values[0], list) else values


def _asked(row: NemoRow) -> str:
    """The prompt's tokens, hashed: those before the first one that is trained on. "" where none are there."""
    if row.token_ids is None or row.token_loss_mask is None:
        return ""
    tokens, mask = _flat(row.token_ids), _flat(row.token_loss_mask)
    first = next((place for place, trained in enumerate(mask) if trained), len(mask))
    return blake2b(str(tokens[:first]).encode(), digest_size=16).hexdigest()
