"""Shared by the rows of every format: a reward, an expected answer, and the construction of row types."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.text.escaping import json_text

ANOTHER = "name the format that wrote it: diagevo ingest --help lists them"
Reward = float | bool | None
BatchedReward = Reward | Annotated[list[float | bool | None], msgspec.Meta(min_length=1, max_length=1)]
"""NeMo-RL's, in a one-element list."""
LAST_STEP = 2**31 - 1
"""The largest step that an event may have."""
_WEIGHTED = re.compile(r"\s*(-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)\s*\*(.*)", re.IGNORECASE)


class Row(msgspec.Struct, kw_only=True):
    """A rollout of a file, or a turn of one."""

    reward: BatchedReward = None


def terms(reward: str) -> list[tuple[float, str]]:
    """`a+0.1*b` as weights and fields; a field alone has weight 1. Raises ConfigError."""
    found: list[tuple[float, str]] = []
    for term in reward.split("+"):
        weighted = _WEIGHTED.fullmatch(term)
        found.append((float(weighted[1]), weighted[2].strip()) if weighted else (1.0, term.strip()))
    if any(not field or "*" in field.replace(".*", "") or not math.isfinite(w) for w, field in found):
        raise ConfigError(
            f"--reward {reward}: neither a field nor a sum of fields", hint="for example: --reward a+0.1*b"
        )
    return found


def total(parts: Iterable[tuple[float, float | None]]) -> float | None:
    """Weights times rewards, skipping missing ones, as trainers add theirs; None if all are missing."""
    there = [weight * value for weight, value in parts if value is not None]
    return sum(there) if there else None


def with_reward(row: type[Row], reward: str, type_: Any = Reward) -> type[Any]:
    """The row's type, with its reward, of `type_`, in this field, or the sum of these. Raises ConfigError
    if a field is not a reward."""
    parts = terms(reward)
    for _, field in parts:
        if field in row.__struct_encode_fields__ and field != "reward":
            raise ConfigError(f"{field} is not a reward", hint="name the reward field: --reward FIELD")
    weights = [weight for weight, _ in parts]
    if weights == [1.0]:
        rename = {"reward": parts[0][1]}
        return msgspec.defstruct(row.__name__, [("reward", type_)], bases=(row,), rename=rename, kw_only=True)
    names = [f"part{place}" for place in range(len(parts))]

    def add(self: Any) -> None:
        self.reward = total((w, number(getattr(self, name))) for w, name in zip(weights, names, strict=True))

    return msgspec.defstruct(
        row.__name__,
        [("reward", Any, None), *((name, type_) for name in names)],
        bases=(row,),
        rename={"reward": "(the sum)", **dict(zip(names, (field for _, field in parts), strict=True))},
        kw_only=True,
        namespace={"__post_init__": add},
    )


def number(value: BatchedReward) -> float | None:
    """The reward; None if missing: null, NaN or infinite."""
    if isinstance(value, list):
        value = value[0]
    return None if value is None or not math.isfinite(value) else float(value)


def scored(
    reward: BatchedReward,
    prompt: str,
    response: str,
    answer: str | None = None,
    group: str | int | None = None,
) -> IngestedRollout | None:
    """A rollout; None if it has no reward."""
    value = number(reward)
    return (
        None
        if value is None
        else IngestedRollout(prompt, response, value, answer, None if group is None else str(group))
    )


def answer(place: str, value: Any) -> str | None:
    """An expected answer as text; other values become JSON, and NaN in a table means none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None
    try:
        return json_text(value)
    except ValueError:
        return json.dumps(value, ensure_ascii=True)  # NaN or Infinity within
    except RecursionError as error:
        raise ConfigError(f"{place}: its answer is nested too deeply", hint=ANOTHER) from error


def step_number(file: Path, digits: str) -> int:
    """The step in a file's name. Raises ConfigError for one that no trainer can reach."""
    if len(digits) > 19 or int(digits) > LAST_STEP:
        raise ConfigError(
            f"{file.name[:40]}… names a step above 2^31 - 1",
            hint="no training runs that long: rename the file or move it away",
        )
    return int(digits)


def named(files: Sequence[Path]) -> str:
    """The source of a step made of several files."""
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def step_of(
    number: int, source: str, found: Sequence[IngestedRollout | None], repeated: int = 0
) -> RolloutStep:
    scored = [rollout for rollout in found if rollout is not None]
    return RolloutStep(number, source, scored, len(found) - len(scored), repeated)
