"""The exports of evaluation tools: a document or a table, with one response and its scores per item. Each
tool has one function from an item to a rollout. One export is one step; the same prompt answered several
times is a group, whatever the tool calls the repetitions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError
from diagevo.ingest.formats.cells import cells, reward_of
from diagevo.ingest.formats.evaluations import score_of
from diagevo.ingest.formats.messages import text_of
from diagevo.ingest.formats.rows import answer, named, step_of
from diagevo.ingest.json_lines import CutLine, is_whole, rows, whole
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.text.escaping import json_text
from diagevo.text.lines import listed

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scored:
    """The content of an item. `scores` by name; None means a response that was not scored or is missing."""

    prompt: Any
    response: Any
    scores: Mapping[str, Any]
    expected: Any = None
    group: str | None = None
    feedback: Sequence[str] = ()
    tags: tuple[str, ...] = ()
    model: str | None = None
    passed: str | None = None
    """The tool's own verdict: the default score."""


@dataclass(frozen=True, slots=True)
class Export:
    """A tool's file: where its items are, the fields that all of them have, and the function that reads
    one."""

    within: tuple[str, ...]
    fields: tuple[str, ...]
    read: Callable[[Item], Scored]
    write: str
    """How to export it from the tool."""
    beside: Callable[[Item], bool] = lambda _: False
    """Whether an item is not a response."""


def _promptfoo(item: Item) -> Scored:
    response, provider, grading = (_object(item, name) for name in ("response", "provider", "gradingResult"))
    failed = [one for one in grading.get("componentResults") or () if isinstance(one, dict)]
    reasons = [one.get("reason") for one in failed if one.get("pass") is False] or [grading.get("reason")]
    equal = [one for one in _object(item, "testCase").get("assert") or () if isinstance(one, dict)]
    return Scored(
        prompt=_object(item, "prompt").get("raw"),
        response=response.get("output"),
        scores={"success": item["success"], "score": item.get("score"), **_object(item, "namedScores")},
        expected=next((one.get("value") for one in equal if one.get("type") == "equals"), None),
        feedback=[reason for reason in reasons if isinstance(reason, str) and item["success"] is False],
        model=provider.get("label") or provider.get("id"),
        passed="success",
    )


def _deepeval(item: Item) -> Scored:
    metrics = [one for one in item["metricsData"] or () if isinstance(one, dict)]
    failed = [one for one in metrics if one.get("success") is False and one.get("reason")]
    return Scored(
        prompt=item["input"],
        response=item.get("actualOutput"),
        scores={"success": item["success"], **{str(one.get("name")): one.get("score") for one in metrics}},
        expected=item.get("expectedOutput"),
        feedback=[f"{one['name']}: {one['reason']}" for one in failed],
        tags=tuple(str(tag) for tag in item.get("tags") or ()),
        passed="success",
    )


def _langsmith(item: Item) -> Scored:
    """Of `results.to_pandas()`, whose columns are `inputs.…`, `outputs.…`, `reference.…`, `feedback.…`."""
    parts = {
        name: {key.partition(".")[2]: value for key, value in item.items() if key.startswith(f"{name}.")}
        for name in ("inputs", "outputs", "reference", "feedback")
    }
    return Scored(
        prompt=_only(parts["inputs"]),
        response=_only(parts["outputs"]),
        scores={name: reward_of(value) for name, value in parts["feedback"].items()},
        expected=_only(parts["reference"]),
        group=item["example_id"],
    )


def _langfuse(item: Item) -> Scored:
    """An item of an experiment, as returned by the API with `fields=io,scores`."""
    scores = [one for one in item.get("scores") or () if isinstance(one, dict)]
    return Scored(
        prompt=_only(item["input"]),
        response=_only(item.get("output")),
        scores={str(one.get("name")): one.get("value") for one in scores},
        expected=_only(item.get("expectedOutput")),
        group=item["experimentItemId"],
        feedback=[f"{one.get('name')}: {one['comment']}" for one in scores if one.get("comment")],
    )


def _phoenix(item: Item) -> Scored:
    """A run of an experiment, in the server's JSON."""
    notes = [one for one in item["annotations"] or () if isinstance(one, dict)]
    return Scored(
        prompt=_only(item["input"]),
        response=_only(item.get("output")),
        scores={
            str(one.get("name")): one.get("label") if one.get("score") is None else one["score"]
            for one in notes
        },
        expected=_only(item.get("reference_output")),
        group=item["example_id"],
        feedback=[f"{one.get('name')}: {one['explanation']}" for one in notes if one.get("explanation")],
    )


_EXPECTED = ("expected", "expected_output", "target", "answer", "label", "reference", "ground_truth")
"""Names of a data set's fields that are not shown to the model."""


def _weave(item: Item) -> Scored:
    """A call of `Evaluation.predict_and_score`, with its data set row expanded. Fields not named as an
    expected answer are the prompt."""
    example, output = item["inputs"].get("example"), _object(item, "output")
    if not isinstance(example, dict):
        raise ConfigError(
            f"inputs.example is a reference to a row: {str(example)[:80]}",
            hint="export the calls with their rows: get_calls(expand_columns=['inputs.example'])",
        )
    expected = next((name for name in _EXPECTED if name in example), None)
    return Scored(
        prompt=_only({name: value for name, value in example.items() if name != expected}),
        response=_only(output.get("output")),
        scores=_object(output, "scores"),
        expected=None if expected is None else _only(example[expected]),
        model=str(item["inputs"].get("model") or "").rpartition("/")[2].partition(":")[0] or None,
    )


EXPORTS: Mapping[str, Export] = {
    "promptfoo": Export(
        ("results", "results"),
        ("prompt", "testCase", "success", "vars"),
        _promptfoo,
        "promptfoo eval --output results.json",
    ),
    "deepeval": Export(
        ("testCases",),
        ("input", "metricsData", "success"),
        _deepeval,
        "DEEPEVAL_RESULTS_FOLDER=results deepeval test run …",
    ),
    "langsmith": Export(
        (), ("example_id", "execution_time"), _langsmith, "evaluate(…).to_pandas().to_csv('results.csv')"
    ),
    "langfuse": Export(
        ("data",),
        ("experimentItemId", "input"),
        _langfuse,
        "the API's experiment items, with fields=io,scores",
    ),
    "phoenix": Export(
        (),
        ("example_id", "repetition_number", "annotations", "input"),
        _phoenix,
        "GET /v1/experiments/ID/json of its server",
    ),
    "weave": Export(
        (),
        ("op_name", "inputs", "output", "trace_id"),
        _weave,
        "its calls as JSON, with inputs.example expanded",
        lambda item: "Evaluation.predict_and_score" not in str(item["op_name"]),
    ),
}


def read_export(tool: str, path: Path, reward: str | None) -> Iterator[RolloutStep]:
    """The step of an export's files, JSON or CSV.

    `reward` is a score as the tool names it; None: the tool's own verdict, or the only score. Raises
    ConfigError if there are several, or an item is not the tool's.
    """
    export = EXPORTS[tool]
    files = (
        [path]
        if path.is_file()
        else sorted([*path.glob("*.json"), *path.glob("*.jsonl"), *path.glob("*.csv")])
    )
    if not files:
        raise ConfigError(f"{path} has no .json, .jsonl or .csv file", hint=f"write it: {export.write}")
    found = [_rollout(place, export, item, reward) for file in files for place, item in items(file, export)]
    yield step_of(1, named(files), found)


promptfoo, deepeval, langsmith, langfuse, phoenix, weave = (
    partial(read_export, tool)
    for tool in ("promptfoo", "deepeval", "langsmith", "langfuse", "phoenix", "weave")
)


def items(file: Path, export: Export) -> Iterator[tuple[str, Item]]:
    """Each item with its place. Raises ConfigError if the file has none."""
    for place, row in documents(file):
        inner = _inside(row, export)
        if inner is not row and not isinstance(inner, list):
            raise ConfigError(
                f"{place} has no {'.'.join(export.within)}: fields {listed(sorted(row), 20)}",
                hint=f"write it: {export.write}",
            )
        for number, item in enumerate(inner if isinstance(inner, list) else [row]):
            where = place if inner is row else f"{place}, {'.'.join(export.within)}.{number}"
            if isinstance(item, dict) and _fits(item, export) and export.beside(item):
                continue
            if not isinstance(item, dict) or not _fits(item, export):
                raise ConfigError(
                    f"{where} has no {', '.join(export.fields)}", hint=f"write it: {export.write}"
                )
            yield where, item


def is_of(document: Mapping[str, Any], export: Export) -> bool:
    """Whether a document's first item has every field of the tool's."""
    inner = _inside(document, export)
    first = (inner[0] if inner else None) if isinstance(inner, list) else inner
    return isinstance(first, dict) and _fits(first, export)


def _inside(document: Any, export: Export) -> Any:
    """The list of a tool's items; None if the document has no such place."""
    for name in export.within:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def documents(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of a file of JSON or JSON Lines, or each row of a table, with its place."""
    if file.suffix in (".csv", ".tsv"):
        for line, row in cells(file):
            yield f"{file}, line {line}", row
        return
    try:
        for number, row in whole(file) if is_whole(file) else rows(file):
            yield f"{file}, row {number}", row
    except CutLine as error:
        raise ConfigError(
            f"{file} ends inside a line", hint="let the evaluation end, and export it again"
        ) from error


def _fits(item: Mapping[str, Any], export: Export) -> bool:
    return all(field in item for field in export.fields)


def _rollout(place: str, export: Export, item: Item, reward: str | None) -> IngestedRollout | None:
    try:
        one = export.read(item)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}", hint=error.hint) from error
    except (AttributeError, TypeError) as error:  # a list in place of an object, a number in place of a list
        raise _of_another_type(place, export, error) from error
    if one.response is None or not one.scores:
        return None
    try:
        value = score_of(place, one.scores, reward or one.passed)
    except TypeError as error:
        raise _of_another_type(place, export, error) from error
    if value is None:
        return None
    return IngestedRollout(
        prompt=text_of(place, one.prompt),
        response=text_of(place, one.response),
        reward=value,
        answer=answer(place, one.expected),
        group=None if one.group is None else str(one.group),
        feedback="\n".join(one.feedback) or None,
        tags=one.tags,
        model=one.model if isinstance(one.model, str) else None,
    )


def _of_another_type(place: str, export: Export, error: Exception) -> ConfigError:
    return ConfigError(f"{place} has a field of another type: {error}", hint=f"write it: {export.write}")


def _object(item: Item, name: str) -> Mapping[str, Any]:
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def _only(value: Any) -> Any:
    """The value of an object with one field; with several, the object itself, as JSON unless it is a
    conversation."""
    if isinstance(value, dict) and len(value) == 1:
        return _only(next(iter(value.values())))
    if isinstance(value, dict) and value and "messages" not in value and "role" not in value:
        return json_text(value)
    if isinstance(value, bool | int | float):
        return json_text(value)
    return None if value in ({}, "") else value
