"""Inspect's logs, `.eval` or `.json`, by its own reader: the epochs of a sample are a group."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile, is_zipfile

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.formats.plain import worded
from diagevo.ingest.formats.rows import answer, named, number, step_of
from diagevo.ingest.lines import TIMES, UNPACKED, regular
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep

# An extra of its own, which the checks run without.
# pyright: reportMissingImports=false

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample


def read(path: Path, reward: str | None) -> Iterator[RolloutStep]:
    """All evaluations of one model, as one step.

    `reward` is a scorer, or a `scorer.key` whose value has several; None: the only one. Raises ConfigError
    where there are several, or several models, or what Inspect cannot read.
    """
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        raise ConfigError(
            "reading Inspect's logs needs inspect_ai", hint="pip install 'diagevo[inspect]'"
        ) from error

    files = [path] if path.is_file() else sorted([*path.glob("*.eval"), *path.glob("*.json")])
    files = [file for file in files if file.name != "logs.json"]  # Inspect's list of a bundled folder
    if not files:
        raise ConfigError(
            f"{path} has no .eval file", hint="name the folder: inspect eval … --log-dir FOLDER"
        )
    found: list[IngestedRollout | None] = []
    models: set[str] = set()
    for file in files:
        regular(file)
        try:
            _check_parts(file)
            log = read_eval_log(str(file), resolve_attachments="full")
            models.add(log.eval.model)
            samples = log.samples or []
            if samples and not any(sample.scores for sample in samples):
                raise ConfigError(f"{file} has no scores", hint=f"score it: inspect score {file}")
            found += [_rollout(file, sample, reward, log.eval.task) for sample in samples]
        except ConfigError:
            raise
        except Exception as error:  # whatever a damaged file makes Inspect say
            raise ConfigError(
                f"{file}: Inspect cannot read it: {error}", hint="see: inspect log dump FILE"
            ) from error
    if len(models) > 1:
        names = ", ".join(sorted(models))
        raise ConfigError(f"{path} has evaluations of several models: {names}", hint="name the logs of one")
    yield step_of(1, named(files), found)


def _check_parts(file: Path) -> None:
    """Inspect's reader looks at no checksum, and takes whatever a part unpacks to."""
    if not is_zipfile(file):
        return
    most = max(UNPACKED, TIMES * file.stat().st_size)
    with ZipFile(file) as log:
        for part in log.infolist():
            with log.open(part) as stream:
                while piece := stream.read(2**20):
                    most -= len(piece)
                    if most < 0:
                        raise ConfigError(
                            f"{file}: unpacked it is more than {TIMES} times as large",
                            hint="if you trust it: inspect log convert --to json",
                        )


def _rollout(file: Path, sample: "EvalSample", reward: str | None, task: str) -> IngestedRollout | None:
    place = f"{file}, sample {sample.id} of epoch {sample.epoch}"
    turns = sample.messages
    first = next((i for i, turn in enumerate(turns) if turn.role == "assistant"), None)
    if sample.error is not None or not sample.scores or first is None:
        return None
    value = _value(place, {name: score.value for name, score in sample.scores.items()}, reward)
    if value is None:
        return None
    given = turns[:first] or sample.input
    prompt = messages(given if isinstance(given, str) else [_message(turn) for turn in given])
    response = messages([_message(turn) for turn in turns[first:]])
    target = sample.target  # Inspect's word for none is "", and a single answer may stand in a list
    expected = target[0] if isinstance(target, list) and len(target) == 1 else target or None
    return IngestedRollout(prompt, response, value, answer(place, expected), f"{task}/{sample.id}")


def _value(place: str, scores: dict[str, Any], reward: str | None) -> float | None:
    """The score as Inspect counts it: C is 1, P a half, I and N are 0. A word that it does not know is 0
    to it, and refused here."""
    known: dict[str, Any] = {}
    for name, value in scores.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        known |= {f"{name}.{key}" if key else name: each for key, each in parts}
    if reward is None and len(known) == 1:
        reward = next(iter(known))
    if reward not in known:
        said = "several scores" if reward is None else f"no score {reward}"
        raise ConfigError(f"{place} has {said}: {', '.join(known)}", hint="name one: --reward SCORER")
    value = known[reward]
    if value is None or isinstance(value, list):
        return None
    return worded(place, value, "--reward SCORER") if isinstance(value, str) else number(value)


def _message(turn: Any) -> dict[str, Any]:
    """A message in the form of OpenAI's, which tells a tool's call from a text."""
    content: list[str] = []
    thought: list[str] = []
    for part in [turn.content] if isinstance(turn.content, str) else turn.content:
        if isinstance(part, str):
            content.append(part)
        elif part.type == "reasoning":
            thought.append(part.reasoning)
        elif part.type == "text":
            content.append(part.text)
    calls = getattr(turn, "tool_calls", None) or []
    return {
        "role": turn.role,
        "content": "\n".join(content),
        "reasoning_content": "\n".join(thought) or None,
        "name": getattr(turn, "function", None),
        "tool_calls": [{"name": call.function, "arguments": call.arguments} for call in calls],
    }
