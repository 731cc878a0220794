"""The logs of evaluations: lm-eval's samples, the records of OpenAI's evals, and Inspect's through its own
reader.

All logs of one model are one step. An lm-eval evaluation has one response per document, so groups come from
running the same evaluation several times, each with its own seed; a row appears once for each of the task's
filters. In Inspect the epochs of a sample are a group.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile, is_zipfile

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages, text_of
from diagevo.ingest.formats.own_rows import worded
from diagevo.ingest.formats.rows import Reward, answer, named, number, step_of
from diagevo.ingest.json_lines import TIMES, UNPACKED, CutLine, regular, rows
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep

# A separate extra, which the checks run without.
# pyright: reportMissingImports=false

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample


class SampleRow(msgspec.Struct):
    """A document with one filter's result; each of its metrics is a field of that name."""

    doc_id: int
    arguments: dict[str, dict[str, Any]]
    resps: list[Any]
    filter: str
    metrics: list[str]
    target: Any = None


class RecordedEvent(msgspec.Struct):
    """An event of a sample in OpenAI's evals: it was asked (`sampling`), graded (`match`) or measured
    (`metrics`)."""

    sample_id: str | None
    type: str
    data: dict[str, Any]


class Results(msgspec.Struct):
    """lm-eval's results of a whole evaluation, next to its samples."""

    model_name: str | None = None


def lm_eval(path: Path, reward: str | None) -> Iterator[RolloutStep]:
    """`samples_TASK_DATE.jsonl` of `--log_samples`, one document per line, with its metrics.

    `reward` is a metric as named in lm-eval's results, `exact_match,strict-match`; None: the only one. Raises
    ConfigError if there are several, or several models, or a row has no response.
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
    known: dict[tuple[str, str], str] = {}  # where each metric of a filter appears first
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
    matching = [each for each in known if name in ("", each[0]) and filter_ in ("", each[1])]
    if len(matching) != 1:
        names = "; ".join(",".join(each) for each in known) or "none"
        place = known[matching[-1]] if matching else path
        found_instead = (
            f"another metric, {','.join(matching[-1])}" if matching else f"no metric {reward or ''}".rstrip()
        )
        raise ConfigError(f"{place} has {found_instead}", hint=f"name one, --reward METRIC,FILTER: {names}")
    yield step_of(1, named(files), found)


def _models(files: list[Path]) -> list[str]:
    """The models named in the `results_DATE.json` next to them. Raises ConfigError for an invalid one."""
    found: set[str] = set()
    for file in {each.with_name(f"results_{each.stem.rpartition('_')[2]}.json") for each in files}:
        if not file.exists():
            continue  # only the samples were copied
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
            f"{place} has no {metric}",
            hint=f"its metrics: {', '.join(sample.metrics) or 'none'}; name one: --reward METRIC",
        )
    try:
        value = number(msgspec.convert(row[metric], Reward))
    except msgspec.ValidationError as error:
        hint = f"name another: --reward METRIC, of {', '.join(sample.metrics)}"
        raise ConfigError(f"{place}: {metric} is not a number", hint=hint) from error
    response = _response(place, sample.resps)
    if value is None or response is None:
        return None
    given = next(iter(sample.arguments.values()), {}).get("arg_0")
    prompt = _prompt(place, given)
    return IngestedRollout(prompt, response, value, answer(place, sample.target), f"{task}/{sample.doc_id}")


def _response(place: str, resps: list[Any]) -> str | None:
    """The response; None if the document was answered several times, because the metric covers all of
    them."""
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


def _prompt(place: str, given: Any) -> str:
    """A text, or for a chat model its messages as JSON."""
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str):
        try:
            given = msgspec.json.decode(given[0])
        except (msgspec.DecodeError, RecursionError):
            given = given[0]
    return text_of(place, given)


def openai_evals(path: Path, reward: str | None) -> Iterator[RolloutStep]:
    """Files of `oaieval --record_path`: the run's `spec`, events of samples, a `final_report`.

    `reward` is a field of a sample's match or metrics; None: whether it matched. Raises ConfigError for any
    other file, and for a sample that was asked several times if nothing says which answer was graded.
    """
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"{path} has no .jsonl file", hint="name the file of oaieval --record_path")
    found: list[IngestedRollout | None] = []
    for file in files:
        models: list[str] = []
        samples: dict[str, list[RecordedEvent]] = {}
        try:
            for line, row in rows(file):
                place = f"{file}, line {line}"
                if isinstance(spec := row.get("spec"), dict):
                    models = [str(each) for each in spec.get("completion_fns") or []]
                elif "final_report" not in row and (event := _event(place, row)).sample_id is not None:
                    samples.setdefault(event.sample_id, []).append(event)
        except CutLine as error:
            hint = "let the evaluation end, or remove its file"
            raise ConfigError(f"{file} ends inside a line", hint=hint) from error
        found += [_recorded(f"{file}, {name}", events, reward, models) for name, events in samples.items()]
    yield step_of(1, named(files), found)


def _event(place: str, row: dict[str, Any]) -> RecordedEvent:
    try:
        return msgspec.convert(row, RecordedEvent)
    except (msgspec.ValidationError, RecursionError) as error:
        hint = "name the file of oaieval --record_path, or the format that wrote this one"
        raise ConfigError(f"{place}: {error}", hint=hint) from error


def _recorded(
    place: str, events: list[RecordedEvent], reward: str | None, models: list[str]
) -> IngestedRollout | None:
    graded: dict[str, Any] = {}
    for event in events:
        if event.type in ("match", "metrics"):
            graded |= event.data
    if reward is not None and graded and reward not in graded:
        hint = f"name another: --reward FIELD, of {', '.join(sorted(graded))}"
        raise ConfigError(f"{place} has no {reward}", hint=hint)
    try:
        value = number(msgspec.convert(graded.get(reward or "correct"), Reward))
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{place}: {reward or 'correct'} is not a number",
            hint=f"name another field: --reward FIELD, of {', '.join(sorted(graded))}",
        ) from error
    samplings = [event.data for event in events if event.type == "sampling"]
    if len(samplings) > 1 and len(models) > 1:
        samplings = samplings[:1]  # the last model graded the first one's answer
    if len(samplings) > 1:
        answer_ = graded.get("sampled")
        samplings = [s for s in samplings if answer_ is not None and s.get("sampled") in (answer_, [answer_])]
        if len(samplings) != 1:
            raise ConfigError(
                f"{place} has several samplings, and nothing says which answer was graded",
                hint="write a row of your own for each answer that was graded: prompt, response, reward",
            )
    sampled = samplings[0].get("sampled") if samplings else None
    if isinstance(sampled, list):
        sampled = sampled[0] if len(sampled) == 1 else None
    if value is None or sampled is None:
        return None
    prompt, response = text_of(place, samplings[0].get("prompt")), text_of(place, sampled)
    expected = graded.get("expected")
    expected = expected[0] if isinstance(expected, list) and len(expected) == 1 else expected
    return IngestedRollout(
        prompt, response, value, answer(place, expected), model=models[0] if models else None
    )


def inspect(path: Path, reward: str | None) -> Iterator[RolloutStep]:
    """Logs in `.eval` or `.json`.

    `reward` is a scorer, or a `scorer.key` whose value has several; None: the only one. Raises ConfigError
    if there are several, or several models, or Inspect cannot read it.
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
            found += [_of_inspect(file, sample, reward, log.eval.task) for sample in samples]
        except ConfigError:
            raise
        except Exception as error:  # whatever a damaged file makes Inspect raise
            raise ConfigError(
                f"{file}: Inspect cannot read it: {error}", hint="see: inspect log dump FILE"
            ) from error
    if len(models) > 1:
        names = ", ".join(sorted(models))
        raise ConfigError(f"{path} has evaluations of several models: {names}", hint="name the logs of one")
    yield step_of(1, named(files), found)


def _check_parts(file: Path) -> None:
    """Inspect's reader checks no checksums, and accepts whatever a part unpacks to."""
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


def _of_inspect(file: Path, sample: "EvalSample", reward: str | None, task: str) -> IngestedRollout | None:
    place = f"{file}, sample {sample.id} of epoch {sample.epoch}"
    turns = sample.messages
    first = next((i for i, turn in enumerate(turns) if turn.role == "assistant"), None)
    if sample.error is not None or not sample.scores or first is None:
        return None
    value = score_of(place, {name: score.value for name, score in sample.scores.items()}, reward)
    if value is None:
        return None
    given = turns[:first] or sample.input
    prompt = messages(given if isinstance(given, str) else [_message(turn) for turn in given])
    response = messages([_message(turn) for turn in turns[first:]])
    target = sample.target  # Inspect uses "" for none, and a single answer may be in a list
    expected = target[0] if isinstance(target, list) and len(target) == 1 else target or None
    return IngestedRollout(prompt, response, value, answer(place, expected), f"{task}/{sample.id}")


def score_of(place: str, scores: Mapping[str, Any], reward: str | None) -> float | None:
    """The score that `reward` names, or the only one. A word counts as in Inspect: C is 1, P a half, I and N
    are 0; Inspect counts an unknown one as 0, but here it is refused."""
    known: dict[str, Any] = {}
    for name, value in scores.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        known |= {f"{name}.{key}" if key else name: each for key, each in parts}
    if reward is None and len(known) == 1:
        reward = next(iter(known))
    if reward not in known:
        found_instead = "several scores" if reward is None else f"no score {reward}"
        raise ConfigError(
            f"{place} has {found_instead}: {', '.join(known)}",
            hint=f"name one: --reward SCORER, of {', '.join(known)}",
        )
    value = known[reward]
    if value is None or isinstance(value, list):
        return None
    return worded(place, value, "--reward SCORER") if isinstance(value, str) else number(value)


def _message(turn: Any) -> dict[str, Any]:
    """A message in OpenAI's form, which distinguishes a tool call from text."""
    content: list[Any] = []
    thought: list[str] = []
    for part in [turn.content] if isinstance(turn.content, str) else turn.content:
        if isinstance(part, str):
            content.append(part)
        elif part.type == "reasoning":
            known = (part.reasoning, getattr(part, "summary", None))
            thought.append("\n".join(text for text in known if text))
        elif part.type == "text" and not getattr(part, "citations", None):
            content.append(part.text)
        else:
            content.append(part.model_dump(mode="json", exclude_none=True))
    calls = getattr(turn, "tool_calls", None) or []
    failed = getattr(turn, "error", None)
    return {
        "role": turn.role,
        "content": "\n".join(content) if all(isinstance(part, str) for part in content) else content,
        "reasoning_content": "\n".join(thought) or None,
        "name": getattr(turn, "function", None),
        "tool_calls": [{"name": call.function, "arguments": call.arguments} for call in calls],
        "error": None if failed is None else failed.message,
    }
