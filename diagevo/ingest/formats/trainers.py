"""The rollout files of trainers, one function each: the content of a step's file (for AReaL, a folder). Each
raises ConfigError for anything not in its format, with file and line, and CutLine if the file is incomplete.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import templated, text_of, unmarked, unpadded
from diagevo.ingest.formats.rows import (
    ANOTHER,
    BatchedReward,
    Reward,
    Row,
    answer,
    named,
    number,
    scored,
    step_of,
    terms,
    total,
    with_reward,
)
from diagevo.ingest.formats.table_reader import Columns, TableReader, decoded
from diagevo.ingest.json_lines import typed
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.text.numbers import count
from diagevo.text.turns import Turn, joined

CALLBACK = "diagevo.integrations.trl's RoundCallback sees every training batch and no evaluation"
_KEY = re.compile(r"(.+)_(\d{1,9})_(\d{1,9})", re.DOTALL)
"""verl's newer trainer names an output {prompt}_{session}_{index}; its older one names none."""


class VerlRow(Row):
    """A rollout, or one output of an agent loop's session."""

    input: str
    output: str
    gts: Any = None
    uid: str | int | None = None
    step: int | None = None


def verl(file: Path, step: int, reward: str | None, tables: TableReader) -> RolloutStep:
    """verl's `trainer.rollout_data_dir`. In an agent loop a session is one rollout, however many outputs it
    has."""
    found: list[tuple[int, VerlRow]] = list(typed(file, with_reward(VerlRow, reward or "score")))
    if other := next(((n, row.step) for n, row in found if row.step not in (None, step)), None):
        raise ConfigError(
            f"{file}, line {other[0]}: its step is {other[1]}, and the file is named after step {step}",
            hint="name each file STEP.jsonl, as verl does; rows of several steps in one file: diagevo ingest"
            " jsonl FILE --map prompt=input,response=output,reward=score,answer=gts",
        )
    keys = [_KEY.fullmatch(row.uid) if isinstance(row.uid, str) else None for _, row in found]
    sessions: dict[Any, dict[int, tuple[int, VerlRow]]] = {}
    parted = all(keys) and len({row.uid for _, row in found}) == len(found)
    for key, line in zip(keys, found, strict=True):
        if parted and key is not None:
            sessions.setdefault((key[1], key[2]), {})[int(key[3])] = line
        else:
            sessions[line[1].uid, line[0]] = {0: line}
    rollouts = [
        _session(file, [turns[index] for index in sorted(turns)], group)
        for (group, _), turns in sessions.items()
    ]
    return step_of(step, file.name, rollouts)


def _session(
    file: Path, turns: Sequence[tuple[int, VerlRow]], group: str | int | None
) -> IngestedRollout | None:
    """A session's outputs in order, with the text between them: verl credits the last one's score."""
    (line, first), (_, last) = turns[0], turns[-1]
    response = unmarked(first.output)
    if len(turns) > 1:
        found = [Turn("assistant", response)]
        for (_, before), (_, now) in pairwise(turns):
            begun, others = templated(now.input.removeprefix(before.input + before.output).strip())
            found += [Turn("environment", begun), *others, Turn("assistant", unmarked(now.output))]
        response = joined(turn for turn in found if turn.text)
    expected = answer(f"{file}, line {line}", first.gts)
    return scored(last.reward, unmarked(first.input), response, expected, group)


class ArealRow(Row):
    task_id: int
    prompt: str
    completion: str


def areal(folder: Path, step: int, reward: str | None, tables: TableReader) -> RolloutStep:
    """AReaL's `rollout/{version}/{task}.jsonl`: a task has the samples of one prompt, in the folder of the
    last policy version that wrote to them. If each task has one sample, those of a prompt are its group."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: (len(file.stem), file.stem))
    if not files:
        raise ConfigError(f"{folder} has no rollout file: expected TASK.jsonl", hint=ANOTHER)
    type_ = with_reward(ArealRow, reward or "reward")
    tasks: list[list[Any]] = [[row for _, row in typed(file, type_)] for file in files]
    grouped = any(len(rows) > 1 for rows in tasks)
    found: list[IngestedRollout | None] = []
    for rows in tasks:
        prompt = _common_prompt([row.prompt for row in rows])
        for row in rows:
            prompt_text = prompt or row.prompt
            response = unmarked((row.prompt + row.completion)[len(prompt_text) :])
            group = row.task_id if grouped else None
            found.append(scored(row.reward, unmarked(prompt_text), response, group=group))
    return step_of(step, f"{folder.name}/{named(files)}", found)


def _common_prompt(prompts: list[str]) -> str:
    """The prompt of a task's samples. AReaL counts a prompt's end from the number of trained tokens,
    so the first turns of a multi-turn answer are in `prompt`: then it is the lines that all samples begin
    with."""
    first, last = min(prompts, default=""), max(prompts, default="")
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first if common == len(first) else first[: first.rfind("\n", 0, common) + 1]


class NemoRow(Row):
    """A rollout. The writer wraps each field in a list, as a batch of one."""

    content: list[str | list[str]]
    filtered_rewards: BatchedReward | msgspec.UnsetType = msgspec.UNSET
    """With `use_dynamic_sampling`: the rewards of these rollouts. `rewards` then cover the whole batch
    before the filter, so they do not match these rollouts."""
    token_ids: list[int | list[int]] | None = None
    token_loss_mask: list[float | bool | list[float | bool]] | None = None


def nemo_rl(file: Path, step: int, reward: str | None, tables: TableReader) -> RolloutStep:
    """NeMo-RL's `train_data_step*.jsonl`: content is the messages' texts without their roles, and the mask
    marks where the first answer begins. Groups differ by their prompts' tokens."""
    field = reward or "rewards"
    found: list[tuple[str, list[str], BatchedReward]] = []
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
        found.append((_prompt_tokens(row), content, given))
    prompts, firsts = {key for key, _, _ in found if key}, {content[0] for _, content, _ in found}
    # A system prompt shared by several prompts belongs to the prompt.
    prompt_turns = 2 if len(firsts) < len(prompts) else 1
    rollouts = [
        scored(given, "\n\n".join(content[:prompt_turns]), _turns(content[prompt_turns:]), group=key or None)
        for key, content, given in found
    ]
    return step_of(step, file.name, rollouts)


def _turns(content: list[str]) -> str:
    """The policy's turns, and the environment's text after each but the last."""
    if len(content) == 1:
        return content[0]
    return joined(Turn(("assistant", "environment")[i % 2], text) for i, text in enumerate(content))


def _flat(values: list) -> list:
    """The content of a batch of one."""
    return values[0] if len(values) == 1 and isinstance(values[0], list) else values


def _prompt_tokens(row: NemoRow) -> str:
    """The prompt's tokens, hashed: those before the first one that is trained on. "" if there are none."""
    if row.token_ids is None or row.token_loss_mask is None:
        return ""
    tokens, mask = _flat(row.token_ids), _flat(row.token_loss_mask)
    first = next((place for place, trained in enumerate(mask) if trained), len(mask))
    return blake2b(str(tokens[:first]).encode(), digest_size=16).hexdigest()


class SlimeSample(msgspec.Struct):
    """A sample: a rollout, or part of one with others of its `rollout_id`."""

    prompt: Any
    response: str
    label: Any = None
    reward: Reward | dict[str, Any] = None
    group_index: int | None = None
    rollout_id: int | None = None


def slime(file: Path, step: int, reward: str | None, tables: TableReader) -> RolloutStep:
    """slime's `--save-debug-rollout-data` and `--dump-details`, which torch saved. If an execution left
    several samples, the last one's reward counts."""
    _, lines = tables.read(file, SlimeSample.__struct_fields__)
    decoder = msgspec.json.Decoder(SlimeSample)
    executions: dict[tuple[int | None, int], list[tuple[str, SlimeSample]]] = {}
    for row, text in enumerate(lines, start=1):
        sample = decoded(file, row, text, decoder)
        alone = -row if sample.rollout_id is None else sample.rollout_id
        executions.setdefault((sample.group_index, alone), []).append((f"{file}, row {row}", sample))
    found: list[IngestedRollout | None] = []
    for parts in executions.values():
        (_, first), (place, last) = parts[0], parts[-1]
        value = _keyed(place, last.reward, reward)
        response = "\n\n".join(unmarked(sample.response) for _, sample in parts if sample.response)
        found.append(
            scored(
                value, text_of(place, first.prompt), response, answer(place, first.label), first.group_index
            )
        )
    return step_of(step, file.name, found)


def _keyed(place: str, given: Reward | dict[str, Any], reward: str | None) -> Reward:
    """The named reward, or the only one."""
    if not isinstance(given, dict):
        if reward is not None and given is not None:
            hint = "leave --reward out"
            raise ConfigError(f"{place}: its reward is one number, and has no {reward}", hint=hint)
        return given
    hint = f"as in slime's --reward-key: --reward KEY, of {', '.join(given)}"
    if reward is None:
        raise ConfigError(f"{place} has several rewards", hint=hint)
    values: list[tuple[float, float | None]] = []
    for weight, name in terms(reward):
        if name not in given:
            raise ConfigError(f"{place} has no reward {name}", hint=hint)
        try:
            values.append((weight, number(msgspec.convert(given[name], Reward))))
        except (msgspec.ValidationError, RecursionError) as error:
            raise ConfigError(f"{place}: its reward {name} is not a number", hint=hint) from error
    return total(values)


class TrlRow(Row):
    prompt: Any
    completion: Any
    answer: Any = None
    solution: Any = None


def trl(file: Path, step: int, reward: str | None, tables: TableReader) -> RolloutStep:
    """TRL's `log_completions`: one file per logging step, with prompt, completion, one column per reward
    function, extras and the advantage."""
    columns, lines = tables.read(file, ("prompt", "completion", "answer", "solution"))
    decoder = msgspec.json.Decoder(with_reward(TrlRow, _reward_column(file, columns, reward)))
    found: list[IngestedRollout | None] = []
    for line, text in enumerate(lines, start=1):
        row: TrlRow = decoded(file, line, text, decoder)
        place = f"{file}, row {line}"
        expected = answer(place, row.solution if row.answer is None else row.answer)
        prompt, completion = (text_of(place, unpadded(text)) for text in (row.prompt, row.completion))
        found.append(scored(row.reward, prompt, completion, expected))
    return step_of(step, file.name, found)


def _reward_column(file: Path, columns: Columns, reward: str | None) -> str:
    """The reward column, or the sum of several."""
    names = columns.columns
    if not {"prompt", "completion", "advantage"} <= set(names):
        raise ConfigError(
            f"{file} has no prompt, completion and advantage: it was not written by TRL's log_completions",
            hint=ANOTHER,
        )
    after = names[names.index("completion") + 1 :]
    numbers = [name for name in after if name != "advantage" and name in columns.numbers]
    if reward is None:
        found = [name for name in numbers if name.endswith("_reward")] or numbers  # others are logged beside
        if len(found) == 1:
            return found[0]
        hint = "say which: --reward COLUMN"
        if len(found) > 1:
            hint += f"; with the weights of the training, which no file has: --reward {'+'.join(found)}"
        raise ConfigError(
            f"{file} has {len(found)} columns that could be the reward: {', '.join(found) or 'none'}",
            hint=hint,
        )
    for _, name in terms(reward):
        if name not in numbers:
            raise ConfigError(
                f"{file} has no reward {name}", hint=f"name one: --reward COLUMN, of {', '.join(numbers)}"
            )
    return reward


def without_repeats(steps: Iterator[RolloutStep], on_note: Callable[[str], None]) -> Iterator[RolloutStep]:
    """Drops steps that log a batch again: TRL writes its last generation at every logging step. At the end,
    notes what the files cannot tell."""
    before: Sequence[IngestedRollout] = ()
    numbers: list[int] = []
    steps_of: dict[bytes, list[int]] = {}
    for step in steps:
        numbers.append(step.number)
        if step.rollouts != before:
            if step.rollouts:
                prompts = "\0".join(sorted({rollout.prompt for rollout in step.rollouts}))
                digest = blake2b(prompts.encode(), digest_size=16).digest()
                steps_of.setdefault(digest, []).append(step.number)
            yield step
        before = step.rollouts
    for again in steps_of.values():
        if len(again) > 1:
            more = f" and {len(again) - 5} more" if len(again) > 5 else ""
            on_note(
                f"steps {', '.join(map(str, again[:5]))}{more} have the same prompts: TRL logs an evaluation "
                "into the file of its step, in place of the training batch; if these are evaluations, "
                f"leave these files out ({CALLBACK})"
            )
    apart = Counter(b - a for a, b in pairwise(numbers))
    if apart and (usual := apart.most_common(1)[0][0]) > 1:
        on_note(
            f"the files are {count(usual, 'step')} apart: TRL logs the last batch of each logging step, so up"
            f" to {usual - 1} of {usual} batches are in no file; logging_steps=1 logs all ({CALLBACK})"
        )
