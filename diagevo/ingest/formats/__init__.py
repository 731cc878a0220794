"""The rollout files of trainers, the logs of evaluations, and your own rows: `read` yields steps, in
order.

One step is in memory at a time. A step whose file is still being written is left for later: with `wait`
until a later step has begun, otherwise if its file ends inside a line. Each format has one type for its rows,
and a row that does not fit is refused with its file and line.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from diagevo.errors import ConfigError
from diagevo.ingest.formats.rows import step_number
from diagevo.ingest.json_lines import CutLine, Wait
from diagevo.ingest.rollout_steps import RolloutStep
from diagevo.text.numbers import count

__all__ = ["Format", "read"]

Format = Literal[
    "verl",
    "trl",
    "nemo-rl",
    "prime-rl",
    "slime",
    "areal",
    "lm-eval",
    "inspect",
    "promptfoo",
    "deepeval",
    "langsmith",
    "langfuse",
    "phoenix",
    "weave",
    "openai-evals",
    "jsonl",
]
Notify = Callable[[str], None]
TRAINERS: Mapping[Format, tuple[Sequence[str], str, str]] = {
    "verl": (["*.jsonl"], r"(\d+)\.jsonl", "trainers:verl"),
    "areal": (["[0-9]*", "rollout/[0-9]*"], r".*/(\d+)", "trainers:areal"),
    "slime": (["*.pt", "rollout_data/*.pt"], r"(?!.*eval_\d+\.pt).*?(\d+)\.pt", "trainers:slime"),
    "nemo-rl": (["train_data_step*.jsonl"], r"train_data_step(\d+)\.jsonl", "trainers:nemo_rl"),
    "trl": (
        ["completions_*.parquet", "completions/completions_*.parquet"],
        r".*completions_(\d+)\.parquet",
        "trainers:trl",
    ),
}
"""The globs of step files, the pattern of their names with the step's number, and the `module:function`
that reads one, imported when used. The pattern matches a whole name; one with a / matches a whole
path."""
EVALUATIONS: Mapping[Format, str] = {
    "lm-eval": "evaluations:lm_eval",
    "inspect": "evaluations:inspect",
    "openai-evals": "evaluations:openai_evals",
    "promptfoo": "eval_exports:promptfoo",
    "deepeval": "eval_exports:deepeval",
    "langsmith": "eval_exports:langsmith",
    "langfuse": "eval_exports:langfuse",
    "phoenix": "eval_exports:phoenix",
    "weave": "eval_exports:weave",
}
_LATER = "ingest it once it has ended, without --follow"


def read(
    format: Format,
    path: Path,
    *,
    reward: str | None = None,
    mapped: Mapping[str, str] | None = None,
    wait: Wait | None = None,
    on_cut: Notify,
    on_note: Notify = lambda _: None,
) -> Iterator[RolloutStep]:
    """The steps of the files at `path`, by number.

    `reward` names the reward field if not the format's default, `mapped` the paths of the fields of
    `jsonl`. `wait` follows a training that is still
    writing. `on_cut` receives the name of a file that is left out because it ends inside a line, `on_note` at
    the end what the files cannot tell. Raises ConfigError if there is nothing in the format, or an invalid
    line.
    """
    if not path.exists():
        raise ConfigError(f"there is no {path}", hint="name a folder of rollout files, or one of them")
    match format:
        case "jsonl":
            from diagevo.ingest.formats import own_rows

            yield from own_rows.read(path, reward, mapped, wait, on_cut, on_note)
        case _ if format in EVALUATIONS:
            if wait is not None:
                raise ConfigError("an evaluation is read whole", hint=_LATER)
            yield from reader_of(EVALUATIONS[format])(path, reward)
        case "prime-rl":
            from diagevo.ingest.formats import prime_rl

            reader = prime_rl.EpisodeReader(reward)
            yield from _steps(path, prime_rl.GLOBS, prime_rl.NAME, reader.load, wait, on_cut)
            if reader.waiting:
                on_note(
                    f"{count(reader.waiting, 'group')} of prime-rl arrived, and no step has "
                    f"trained on them yet: they are read once one has, or after {prime_rl.LATE} steps"
                )
        case _:
            if format == "areal" and wait is not None:
                raise ConfigError("AReaL still writes to a version when the next has begun", hint=_LATER)
            from diagevo.ingest.formats.table_reader import TableReader

            globs, name, function = TRAINERS[format]
            with TableReader() as tables:
                of_one = partial(reader_of(function), reward=reward, tables=tables)
                steps = _steps(path, globs, name, of_one, wait, on_cut)
                if format == "trl":
                    steps = reader_of("trainers:without_repeats")(steps, on_note)
                yield from steps


def reader_of(name: str) -> Callable[..., Any]:
    """The function that `module:function` names, in this package."""
    module, _, function = name.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function)


def _steps(
    path: Path,
    globs: Sequence[str],
    name: str,
    load: Callable[[Path, int], RolloutStep],
    wait: Wait | None,
    on_cut: Notify,
) -> Iterator[RolloutStep]:
    """One file per step. While waiting, the newest file may grow: it is read once a newer one exists."""
    done = -1
    while True:
        files = files_of(path, globs, name)
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
            wait = None  # take what exists, and end


def _whole(
    load: Callable[[Path, int], RolloutStep], file: Path, number: int, on_cut: Notify
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


def files_of(path: Path, globs: Sequence[str], name: str) -> dict[int, Path]:
    """Files by their step's number. Raises ConfigError if one of them is not a file."""
    files = [path] if path.is_file() else sorted(file for glob in globs for file in path.glob(glob))
    found: dict[int, Path] = {}
    for file in files:
        match = re.fullmatch(name, file.absolute().as_posix() if "/" in name else file.name)
        if match is not None:
            found.setdefault(step_number(file, match[1]), file)
    return found
