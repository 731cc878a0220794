"""verl's `trainer.rollout_data_dir`: a file a step."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import templated, unmarked
from diagevo.ingest.formats.rows import Row, answer, number, step_of, with_reward
from diagevo.ingest.lines import typed
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep
from diagevo.text.turns import Turn, joined


class VerlRow(Row):
    """A rollout, or one output of an agent loop's session."""

    input: str
    output: str
    gts: Any = None
    uid: str | int | None = None
    step: int | None = None


_KEY = re.compile(r"(.+)_(\d{1,9})_(\d{1,9})", re.DOTALL)
"""verl's newer trainer names an output {prompt}_{session}_{index}; its older one names none."""


def load(file: Path, step: int, *, reward: str | None) -> RolloutStep:
    """The rollouts of a step; of an agent loop a session is one, whatever number of outputs it has."""
    found: list[tuple[int, VerlRow]] = list(typed(file, with_reward(VerlRow, reward or "score")))
    if other := next(((n, row.step) for n, row in found if row.step not in (None, step)), None):
        raise ConfigError(
            f"{file}, line {other[0]}: its step is {other[1]}, and the file is named after step {step}",
            hint="name each file STEP.jsonl, as verl does; rows of several steps in one file: diagevo ingest"
            " jsonl FILE --map prompt=input,response=output,reward=score,answer=gts",
        )
    keys = [_KEY.fullmatch(row.uid) if isinstance(row.uid, str) else None for _, row in found]
    if all(keys) and len({row.uid for _, row in found}) == len(found):
        sessions: dict[tuple[str, str], dict[int, tuple[int, VerlRow]]] = {}
        for key, line in zip(keys, found, strict=True):
            assert key is not None
            sessions.setdefault((key[1], key[2]), {})[int(key[3])] = line
        rollouts = [
            _rollout(file, [turns[index] for index in sorted(turns)], uid)
            for (uid, _), turns in sessions.items()
        ]
    else:
        rollouts = [_rollout(file, [(n, row)], None if row.uid is None else str(row.uid)) for n, row in found]
    return step_of(step, file.name, rollouts)


def _rollout(file: Path, turns: Sequence[tuple[int, VerlRow]], group: str | None) -> IngestedRollout | None:
    """A session's outputs in order, with what came between them: verl credits the last one's score."""
    (line, first), (_, last) = turns[0], turns[-1]
    value = number(last.reward)
    if value is None:
        return None
    response = unmarked(first.output)
    if len(turns) > 1:
        found = [Turn("assistant", response)]
        for (_, before), (_, now) in pairwise(turns):
            begun, others = templated(now.input.removeprefix(before.input + before.output).strip())
            found += [Turn("environment", begun), *others, Turn("assistant", unmarked(now.output))]
        response = joined(turn for turn in found if turn.text)
    return IngestedRollout(
        unmarked(first.input), response, value, answer(f"{file}, line {line}", first.gts), group
    )
