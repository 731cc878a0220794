"""The rollout files of trainers, the logs of evaluations, and rows of one's own: `read` gives steps, in
order.

One step is in memory at a time. A step whose file is still written is left for later: with `wait` until a
later step has begun, else where its file ends inside a line. Each format has one type for its rows, and what
is not of that type is refused with its file and line.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from diagevo.errors import ConfigError
from diagevo.ingest.formats import (
    areal,
    inspect_log,
    lm_eval,
    nemo_rl,
    plain,
    prime_rl,
    slime,
    trl,
    verl,
)
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.formats.rows import step_number
from diagevo.ingest.formats.tables import TableReader
from diagevo.ingest.lines import CutLine, Wait
from diagevo.ingest.rollouts import RolloutStep
from diagevo.text.numbers import count

__all__ = ["Format", "messages", "read"]

Format = Literal["verl", "trl", "nemo-rl", "prime-rl", "slime", "areal", "lm-eval", "inspect", "jsonl"]
Told = Callable[[str], None]


def read(
    format: Format,
    path: Path,
    *,
    reward: str | None = None,
    mapped: Mapping[str, str] | None = None,
    wait: Wait | None = None,
    on_cut: Told,
    on_note: Told = lambda _: None,
) -> Iterator[RolloutStep]:
    """The steps of the files at `path`, by number.

    `reward` names the field that is the reward, where it is not the format's own, `mapped` where the
    fields of `jsonl` stand. `wait` follows a training
    that still writes. `on_cut` is told the name of a file that is left out because it ends inside a line,
    `on_note` at the end what the files cannot tell. Raises ConfigError where there is nothing of the format,
    or a line that is not.
    """
    if not path.exists():
        raise ConfigError(f"there is no {path}", hint="name a folder of rollout files, or one of them")
    match format:
        case "jsonl":
            yield from plain.read(path, reward, mapped, wait, on_cut, on_note)
        case "lm-eval" | "inspect":
            if wait is not None:
                hint = "ingest it once it has ended, without --follow"
                raise ConfigError("an evaluation is read whole", hint=hint)
            yield from (lm_eval if format == "lm-eval" else inspect_log).read(path, reward)
        case "verl":
            load = partial(verl.load, reward=reward)
            yield from _steps(path, ["*.jsonl"], r"(\d+)\.jsonl", load, wait, on_cut)
        case "areal":
            if wait is not None:
                hint = "ingest it once it has ended, without --follow"
                raise ConfigError("AReaL still writes to a version when the next has begun", hint=hint)
            load = partial(areal.load, reward=reward)
            yield from _steps(path, ["[0-9]*", "rollout/[0-9]*"], r".*/(\d+)", load, wait, on_cut)
        case "slime":
            name = r"(?!.*eval_\d+\.pt).*?(\d+)\.pt"
            with TableReader() as tables:
                load = partial(slime.load, tables=tables, reward=reward)
                yield from _steps(path, ["*.pt", "rollout_data/*.pt"], name, load, wait, on_cut)
        case "nemo-rl":
            load = partial(nemo_rl.load, reward=reward)
            globs = ["train_data_step*.jsonl"]
            yield from _steps(path, globs, r"train_data_step(\d+)\.jsonl", load, wait, on_cut)
        case "prime-rl":
            globs = [f"{root}step_*/train/effective/traces.jsonl" for root in ("", "rollouts/")]
            name = r".*step_(\d+)/train/effective/traces\.jsonl"
            reader = prime_rl.EpisodeReader(reward)
            yield from _steps(path, globs, name, reader.load, wait, on_cut)
            if reader.waiting:
                on_note(
                    f"{count(reader.waiting, 'group')} of prime-rl arrived, and no step has "
                    f"trained on them yet: they are read once one has, or after {prime_rl.LATE} steps"
                )
        case "trl":
            globs = ["completions_*.parquet", "completions/completions_*.parquet"]
            name = r".*completions_(\d+)\.parquet"
            with TableReader() as tables:
                load = partial(trl.load, tables=tables, reward=reward)
                yield from trl.once(_steps(path, globs, name, load, wait, on_cut), on_note)


def _steps(
    path: Path,
    globs: Sequence[str],
    name: str,
    load: Callable[[Path, int], RolloutStep],
    wait: Wait | None,
    on_cut: Told,
) -> Iterator[RolloutStep]:
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


def _whole(
    load: Callable[[Path, int], RolloutStep], file: Path, number: int, on_cut: Told
) -> Iterator[RolloutStep]:
    try:
        step = load(file, number)
    except CutLine:
        on_cut(file.name)
    except OSError as error:
        hint = "check that you may read it"
        raise ConfigError(f"{file} cannot be read: {error}", hint=hint) from error
    else:
        yield step


def _by_step(path: Path, globs: Sequence[str], name: str) -> dict[int, Path]:
    """Files by their step's number. Raises ConfigError where one of their names is no file's."""
    files = [path] if path.is_file() else sorted(file for glob in globs for file in path.glob(glob))
    found: dict[int, Path] = {}
    for file in files:
        match = re.fullmatch(name, file.absolute().as_posix() if "/" in name else file.name)
        if match is not None:
            found.setdefault(step_number(file, match[1]), file)
    return found
