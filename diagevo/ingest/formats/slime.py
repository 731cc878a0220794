"""slime's `--save-debug-rollout-data` and `--dump-details`: a file a rollout step, which torch saved."""

from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import ChatMessage, unmarked, written
from diagevo.ingest.formats.rows import Reward, answer, number, step_of, terms, total
from diagevo.ingest.formats.tables import TableReader, decoded
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep


class SlimeSample(msgspec.Struct):
    """A sample: a rollout, or with others of its `rollout_id` a part of one."""

    prompt: str | list[ChatMessage]
    response: str
    label: Any = None
    reward: Reward | dict[str, Any] = None
    group_index: int | None = None
    rollout_id: int | None = None


class KeyedReward(msgspec.Struct):
    """A reward of several."""

    reward: Reward


def load(file: Path, step: int, *, tables: TableReader, reward: str | None) -> RolloutStep:
    """The rollouts of a file. Raises CutLine where it is not whole, and ConfigError."""
    _, lines = tables.read(file, SlimeSample.__struct_fields__)
    decoder = msgspec.json.Decoder(SlimeSample)
    parts: dict[tuple[int | None, int], list[tuple[str, SlimeSample]]] = {}
    for row, text in enumerate(lines, start=1):
        sample = decoded(file, row, text, decoder)
        alone = -row if sample.rollout_id is None else sample.rollout_id
        parts.setdefault((sample.group_index, alone), []).append((f"{file}, row {row}", sample))
    return step_of(step, file.name, [_rollout(found, reward) for found in parts.values()])


def _rollout(parts: list[tuple[str, SlimeSample]], reward: str | None) -> IngestedRollout | None:
    """One execution, which may have left several samples: the last one's reward counts."""
    (_, first), (place, last) = parts[0], parts[-1]
    value = _value(place, last.reward, reward)
    if value is None:
        return None
    prompt = unmarked(first.prompt) if isinstance(first.prompt, str) else written(first.prompt)
    response = "\n\n".join(unmarked(sample.response) for _, sample in parts if sample.response)
    group = None if first.group_index is None else str(first.group_index)
    return IngestedRollout(prompt, response, value, answer(place, first.label), group)


def _value(place: str, given: Reward | dict[str, Any], reward: str | None) -> float | None:
    if not isinstance(given, dict):
        if reward is not None and given is not None:
            hint = "leave --reward out"
            raise ConfigError(f"{place}: its reward is one number, and has no {reward}", hint=hint)
        return number(given)
    hint = f"as in slime's --reward-key: --reward KEY, of {', '.join(given)}"
    if reward is None:
        raise ConfigError(f"{place} has several rewards", hint=hint)
    values: list[tuple[float, float | None]] = []
    for weight, name in terms(reward):
        if name not in given:
            raise ConfigError(f"{place} has no reward {name}", hint=hint)
        try:
            part = msgspec.convert({"reward": given[name]}, KeyedReward).reward
        except (msgspec.ValidationError, RecursionError) as error:
            raise ConfigError(f"{place}: its reward {name} is not a number", hint=hint) from error
        values.append((weight, number(part)))
    return total(values)
