"""The rollout files of verl, TRL, NeMo-RL and prime-rl, and a plain JSONL: `read` gives steps, in order.

One step is in memory at a time. A step whose file is still written is left for later: with `wait` until a
later step has begun, else where its file ends inside a line.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from diagevo.errors import ConfigError
from diagevo.ingest.lines import CutLine, Wait, rows
from diagevo.ingest.rollouts import Rollout, Step
from diagevo.texts import json_text

Format = Literal["verl", "trl", "nemo-rl", "prime-rl", "jsonl"]
Rows = Iterator[tuple[int, dict[str, Any]]]
OnCut = Callable[[str], None]
_ANOTHER = "name the format that wrote it: verl, trl, nemo-rl, prime-rl or jsonl"


def read(
    format: Format, path: Path, *, reward: str | None = None, wait: Wait | None = None, on_cut: OnCut
) -> Iterator[Step]:
    """The steps of the files at `path`, by number.

    `reward` names the field that is the reward, where it is not the format's own. `wait` follows a training
    that still writes. `on_cut` is told the name of a file that is left out because it ends inside a line.
    Raises ConfigError where there is nothing of the format, or a line that is not.
    """
    if not path.exists():
        raise ConfigError(f"there is no {path}", hint="name a folder of rollout files, or one of them")
    match format:
        case "jsonl":
            yield from _plain(path, reward or "reward", wait, on_cut)
        case "verl":
            yield from _steps(
                path, ["*.jsonl"], r"(\d+)\.jsonl", partial(_verl, reward=reward or "score"), wait, on_cut
            )
        case "nemo-rl":
            name = r"train_data_step(\d+)\.jsonl"
            found = partial(_nemo, reward=reward or "rewards")
            yield from _steps(path, ["train_data_step*.jsonl"], name, found, wait, on_cut)
        case "prime-rl":
            globs = [f"{root}step_*/train/*/traces.jsonl" for root in ("", "rollouts/")]
            name = r".*step_(\d+)/train/(?:all|effective)/traces\.jsonl"
            yield from _steps(path, globs, name, partial(_prime, reward=reward), wait, on_cut)
        case "trl":
            globs = ["completions_*.parquet", "completions/completions_*.parquet"]
            name = r".*completions_(\d+)\.parquet"
            yield from _once(_steps(path, globs, name, partial(_trl, reward=reward), wait, on_cut))


def _steps(
    path: Path,
    globs: Sequence[str],
    name: str,
    load: Callable[[Path, int], Step],
    wait: Wait | None,
    on_cut: OnCut,
) -> Iterator[Step]:
    """A file a step. While somebody waits, the newest file may grow: it is read once a newer one is there."""
    done = -1
    while True:
        files = _by_step(path, globs, name)
        if not files and wait is None:
            raise ConfigError(
                f"{path} has no rollout file: expected {' or '.join(globs)}",
                hint="name the folder that the trainer writes to, or the format that it writes",
            )
        more = [number for number in sorted(files) if number > done]
        growing = wait is not None
        for number in more[:-1] if growing else more:
            yield from _whole(load, files[number], number, on_cut)
            done = number
        if wait is None:
            return
        if not wait():
            wait = None  # take what is there, and end


def _whole(load: Callable[[Path, int], Step], file: Path, number: int, on_cut: OnCut) -> Iterator[Step]:
    try:
        yield load(file, number)
    except CutLine:
        on_cut(file.name)


def _by_step(path: Path, globs: Sequence[str], name: str) -> dict[int, Path]:
    """Files by their step's number. prime-rl has two of a step: `all` (which sorts first) has every group."""
    files = [path] if path.is_file() else sorted(file for glob in globs for file in path.glob(glob))
    found: dict[int, Path] = {}
    for file in files:
        match = re.fullmatch(name, file.absolute().as_posix() if "/" in name else file.name)
        if match is not None and file.is_file():
            found.setdefault(int(match[1]), file)
    return found


def _number(file: Path, line: int, row: dict[str, Any], field: str) -> float | None:
    """The reward; None where there is none."""
    if field not in row:
        known = ", ".join(sorted(row))
        raise ConfigError(f"{file}, line {line} has no field {field}", hint=f"--reward FIELD; it has {known}")
    value = row[field]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise ConfigError(
            f"{file}, line {line}: {field} is no number, but a {type(value).__name__}",
            hint="name the field that is the reward: --reward FIELD",
        )
    return float(value) if math.isfinite(value) else None


def _text(file: Path, line: int, row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str):
        raise ConfigError(f"{file}, line {line} has no text {field}", hint=_ANOTHER)
    return value


def _answer(value: Any) -> str | None:
    """An expected answer as text; what is no text is written as JSON."""
    return value if value is None or isinstance(value, str) else json_text(value)


def _step_of(number: int, source: str, found: Sequence[Rollout | None]) -> Step:
    scored = [rollout for rollout in found if rollout is not None]
    return Step(number, source, scored, len(found) - len(scored))


_OUTPUT = re.compile(r"(.+)_\d+_\d+", re.DOTALL)
"""verl's newer trainer names an output {prompt}_{rollout}_{output}; its older one names none."""


def _verl(file: Path, number: int, *, reward: str) -> Step:
    """`trainer.rollout_data_dir`: input, output, gts, score, step, and uid where there is one."""

    def rollout(line: int, row: dict[str, Any]) -> Rollout | None:
        value, uid = _number(file, line, row, reward), row.get("uid")
        if value is None:
            return None
        if isinstance(uid, str) and (output := _OUTPUT.fullmatch(uid)):
            uid = output[1]
        prompt, response = _text(file, line, row, "input"), _text(file, line, row, "output")
        return Rollout(prompt, response, value, _answer(row.get("gts")), None if uid is None else str(uid))

    return _step_of(number, file.name, [rollout(line, row) for line, row in rows(file)])


def _nemo(file: Path, number: int, *, reward: str) -> Step:
    """NeMo-RL's `train_data_step*.jsonl`: content is the messages' texts without their roles, and the mask
    says where the first answer begins."""
    found: list[tuple[str, list[str], float | None]] = []
    for line, row in rows(file):
        content = row.get("content")
        if isinstance(content, list) and len(content) == 1 and isinstance(content[0], list):
            content = content[0]
        if not isinstance(content, list) or len(content) < 2 or not all(isinstance(t, str) for t in content):
            raise ConfigError(
                f"{file}, line {line} has no prompt and answer in content:"
                " NeMo-RL's TransferQueue path leaves the prompt out",
                hint="turn that path off for the run, or write the plain JSONL",
            )
        found.append((_asked(row), content, _number(file, line, row, reward)))
    prompts, firsts = {key for key, _, _ in found if key}, {content[0] for _, content, _ in found}
    asked = 2 if len(firsts) < len(prompts) else 1  # a system prompt of its own, the same for several prompts
    return _step_of(
        number,
        file.name,
        [
            None
            if value is None
            else Rollout("\n\n".join(content[:asked]), "\n\n".join(content[asked:]), value, None, key or None)
            for key, content, value in found
        ],
    )


def _asked(row: dict[str, Any]) -> str:
    """The prompt's tokens, hashed: those before the first one that is trained on. "" where none are there."""
    tokens, mask = row.get("token_ids"), row.get("token_loss_mask")
    if not isinstance(tokens, list) or not isinstance(mask, list):
        return ""
    tokens = tokens[0] if tokens and isinstance(tokens[0], list) else tokens
    mask = mask[0] if mask and isinstance(mask[0], list) else mask
    first = next((place for place, trained in enumerate(mask) if trained), len(mask))
    return blake2b(str(tokens[:first]).encode(), digest_size=16).hexdigest()


def _prime(file: Path, number: int, *, reward: str | None) -> Step:
    """prime-rl's `step_N/train/all/traces.jsonl`: an episode a line, a trace an agent, its messages as a
    graph."""
    found: list[Rollout | None] = []
    for line, episode in rows(file):
        group = episode.get("group")
        name = str(group.get("id")) if isinstance(group, dict) else None
        traces = episode.get("traces") or []
        if not episode.get("ok") or not traces:
            found.append(None)
            continue
        trained = [trace for trace in traces if trace.get("agent", {}).get("trainable", True)]
        found += [_trace(file, line, trace, name, reward) for trace in trained]
    return _step_of(number, f"step_{number}/{file.name}", found)


def _trace(
    file: Path, line: int, trace: dict[str, Any], group: str | None, reward: str | None
) -> Rollout | None:
    rewards = trace.get("rewards")
    nodes = trace.get("nodes")
    if not isinstance(rewards, dict) or not isinstance(nodes, list) or not nodes:
        raise ConfigError(f"{file}, line {line} holds a trace without rewards or nodes", hint=_ANOTHER)
    if reward is not None and reward not in rewards:
        known = ", ".join(sorted(rewards))
        raise ConfigError(f"{file}, line {line} has no reward {reward}", hint=f"its rewards: {known}")
    given = [value for name, value in rewards.items() if reward in (None, name)]
    if not given or any(value is None for value in given):
        return None
    total = sum(float(value["score"]) * float(value.get("weight", 1)) for value in given)
    path: list[dict[str, Any]] = []
    place: int | None = len(nodes) - 1
    while place is not None and len(path) <= len(nodes):
        path.append(nodes[place])
        place = nodes[place].get("parent")
    path.reverse()
    first = next((i for i, node in enumerate(path) if node.get("sampled")), len(path))
    data = trace.get("task", {}).get("data", {})
    answer = data.get("answer") if isinstance(data, dict) else None
    prompt, response = (messages([n["message"] for n in part]) for part in (path[:first], path[first:]))
    return Rollout(prompt, response, total, _answer(answer), group)


def messages(value: Any) -> str:
    """A prompt or completion as text: itself, the content of its only message, or each under its role."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(m, dict) for m in value):
        raise ConfigError(f"neither a text nor messages: {str(value)[:80]}", hint=_ANOTHER)
    texts = [(str(m.get("role", "")), _content(m.get("content"))) for m in value]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in texts)


def _content(content: Any) -> str:
    """The text of a message; of one in parts, of its text parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _trl(file: Path, number: int, *, reward: str | None) -> Step:
    """TRL's `log_completions`: prompt, completion, a column a reward function, extras, advantage."""
    import polars

    try:
        frame = polars.read_parquet(file)
    except (polars.exceptions.PolarsError, OSError) as error:
        if file.read_bytes()[-4:] != b"PAR1":
            raise CutLine from error
        raise ConfigError(f"{file} is no Parquet file: {error}", hint=_ANOTHER) from error
    if not {"prompt", "completion", "advantage"} <= set(frame.columns):
        raise ConfigError(
            f"{file} has no prompt, completion and advantage: not of TRL's log_completions", hint=_ANOTHER
        )
    numbers = [
        name
        for name in frame.columns[frame.columns.index("completion") + 1 :]
        if name != "advantage" and frame[name].dtype.is_numeric()
    ]
    if reward is None and len(numbers) != 1:
        raise ConfigError(
            f"{file} has {len(numbers)} columns that may be the reward: {', '.join(numbers) or 'none'}",
            hint="say which: --reward COLUMN",
        )
    column = reward or numbers[0]
    if column not in numbers:
        raise ConfigError(f"{file} has no reward {column}", hint=f"its numbers: {', '.join(numbers)}")
    found: list[Rollout | None] = []
    for place, row in enumerate(frame.iter_rows(named=True), start=1):
        value = _number(file, place, row, column)
        prompt, response = messages(row["prompt"]), messages(row["completion"])
        answer = row.get("answer", row.get("solution"))
        found.append(None if value is None else Rollout(prompt, response, value, _answer(answer)))
    return _step_of(number, file.name, found)


def _once(steps: Iterator[Step]) -> Iterator[Step]:
    """Without the steps that log a batch again: TRL writes its last generation at every logging step."""
    before: Sequence[Rollout] = ()
    for step in steps:
        if step.rollouts != before:
            yield step
        before = step.rollouts


def _plain(path: Path, reward: str, wait: Wait | None, on_cut: OnCut) -> Iterator[Step]:
    """Rows in order of their steps: step, prompt, response, reward; answer and group where there are such."""
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"{path} has no rollout file: expected *.jsonl", hint=_ANOTHER)
    number, source, found = -1, "", []
    for file in files:
        stream = rows(file, wait if file == files[-1] else None)
        try:
            for line, row in stream:
                step = row.get("step")
                if type(step) is not int or not 0 <= step < 2**63:  # true is an int too
                    raise ConfigError(
                        f"{file}, line {line} has no whole number step",
                        hint="each line needs one, from 0 to 2^63 - 1: the trainer's step of its rollout",
                    )
                if step < number:
                    raise ConfigError(
                        f"{file}, line {line}: step {step} comes after step {number}",
                        hint="write the rollouts in order of their steps",
                    )
                if step != number and found:
                    yield _step_of(number, source, found)
                    found = []
                number, source = step, file.name
                found.append(_plain_rollout(file, line, row, reward))
        except CutLine:
            on_cut(file.name)
            return  # the step is not whole
    if found:
        yield _step_of(number, source, found)


def _plain_rollout(file: Path, line: int, row: dict[str, Any], reward: str) -> Rollout | None:
    value, group = _number(file, line, row, reward), row.get("group")
    if value is None:
        return None
    prompt, response = _text(file, line, row, "prompt"), _text(file, line, row, "response")
    return Rollout(prompt, response, value, _answer(row.get("answer")), None if group is None else str(group))
