"""lm-eval's `--log_samples`: `samples_TASK_DATE.jsonl`, a document a line, with what its metrics gave.

An evaluation has one response a document, so groups come of the same evaluation run several times, each with
a seed of its own. A row stands once for each of the task's filters.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.formats.rows import Reward, answer, named, number, step_of
from diagevo.ingest.lines import CutLine, regular, rows
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep


class SampleRow(msgspec.Struct):
    """A document with one filter's result; each of its metrics is a field of that name."""

    doc_id: int
    arguments: dict[str, dict[str, Any]]
    resps: list[Any]
    filter: str
    metrics: list[str]
    target: Any = None


class Results(msgspec.Struct):
    """What lm-eval writes of a whole evaluation, beside its samples."""

    model_name: str | None = None


class Metric(msgspec.Struct):
    value: Reward


def read(path: Path, reward: str | None) -> Iterator[RolloutStep]:
    """All evaluations of one model, as one step.

    `reward` is a metric as lm-eval's results name it, `exact_match,strict-match`; None: the only one. Raises
    ConfigError where there are several, or several models, or a row holds no response.
    """
    files = (
        [path] if path.is_file() else sorted([*path.glob("samples_*.jsonl"), *path.glob("*/samples_*.jsonl")])
    )
    if not files:
        raise ConfigError(
            f"{path} has no samples_*.jsonl", hint="write them: lm_eval … --log_samples --output_path FOLDER"
        )
    folders = sorted({file.parent for file in files})
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise ConfigError(f"{path} has evaluations of several models: {names}", hint="name the folder of one")
    if len(models := _models(files)) > 1:
        hint = "move the files of each into a folder of its own, or name one file"
        raise ConfigError(f"{path} has evaluations of several models: {', '.join(models)}", hint=hint)
    name, _, filter_ = (reward or "").partition(",")
    found: list[IngestedRollout | None] = []
    known: dict[tuple[str, str], str] = {}  # where each metric of a filter stands first
    for file in files:
        regular(file)
        task = file.stem.removeprefix("samples_").rpartition("_")[0]
        try:
            for line, row in rows(file):
                place = f"{file}, line {line}"
                sample = _sample(place, row)
                for metric in sample.metrics:
                    known.setdefault((metric, sample.filter), place)
                if filter_ in ("", sample.filter):
                    found.append(_rollout(place, row, sample, name or next(iter(sample.metrics), ""), task))
        except CutLine as error:
            hint = "let the evaluation end, or remove its file"
            raise ConfigError(f"{file} ends inside a line", hint=hint) from error
    asked = [each for each in known if name in ("", each[0]) and filter_ in ("", each[1])]
    if len(asked) != 1:
        names = "; ".join(",".join(each) for each in known) or "none"
        place = known[asked[-1]] if asked else path
        said = f"another metric, {','.join(asked[-1])}" if asked else f"no metric {reward or ''}".rstrip()
        raise ConfigError(f"{place} has {said}", hint=f"name one, --reward METRIC,FILTER: {names}")
    yield step_of(1, named(files), found)


def _models(files: list[Path]) -> list[str]:
    """What the `results_DATE.json` beside them name as evaluated. Raises ConfigError for one that is none."""
    found: set[str] = set()
    for file in {each.with_name(f"results_{each.stem.rpartition('_')[2]}.json") for each in files}:
        if not file.exists():
            continue  # the samples alone were copied
        regular(file)
        try:
            results = msgspec.json.decode(file.read_bytes(), type=Results)
        except (OSError, ValueError, RecursionError) as error:
            hint = "let the evaluation end, or remove the file"
            raise ConfigError(f"{file} cannot be read: {error}", hint=hint) from error
        if results.model_name is not None:
            found.add(results.model_name)
    return sorted(found)


def _sample(place: str, row: dict[str, Any]) -> SampleRow:
    try:
        return msgspec.convert(row, SampleRow)
    except (msgspec.ValidationError, RecursionError) as error:
        hint = "name the format that wrote it, or the file of lm-eval's samples"
        raise ConfigError(f"{place}: {error}", hint=hint) from error


def _rollout(
    place: str, row: dict[str, Any], sample: SampleRow, metric: str, task: str
) -> IngestedRollout | None:
    if metric == "bypass":
        raise ConfigError(
            f"{place} was evaluated with --predict_only: nothing says whether it is right",
            hint="evaluate without --predict_only, or score the responses and ingest them as jsonl",
        )
    if metric not in row:
        raise ConfigError(
            f"{place} has no {metric}", hint=f"its metrics: {', '.join(sample.metrics) or 'none'}"
        )
    try:
        value = number(msgspec.convert({"value": row[metric]}, Metric).value)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{place}: {metric} is not a number", hint="name another metric: --reward METRIC,FILTER"
        ) from error
    response = _response(place, sample.resps)
    if value is None or response is None:
        return None
    asked = next(iter(sample.arguments.values()), {}).get("arg_0")
    prompt = _prompt(place, asked)
    return IngestedRollout(prompt, response, value, answer(place, sample.target), f"{task}/{sample.doc_id}")


def _response(place: str, resps: list[Any]) -> str | None:
    """The response; None where the document was answered several times, for the metric is of all together."""
    match resps:
        case [[str(response)]]:
            return response
        case [[str(), *_]]:
            return None
        case _:
            raise ConfigError(
                f"{place} holds likelihoods of choices, and no response",
                hint="evaluate a task that generates: output_type: generate_until",
            )


def _prompt(place: str, asked: Any) -> str:
    """A text, or for a chat model its messages as JSON."""
    if isinstance(asked, list) and len(asked) == 1 and isinstance(asked[0], str):
        try:
            asked = msgspec.json.decode(asked[0])
        except (msgspec.DecodeError, RecursionError):
            asked = asked[0]
    try:
        return messages(asked)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}", hint=error.hint) from error
