"""An export with one value of another type is read or refused, and never a fault of the program."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagevo.errors import ConfigError
from diagevo.ingest.formats import Format, read
from tests.ingest.conftest import DATA

FILES: dict[Format, str] = {
    "promptfoo": "promptfoo.json",
    "deepeval": "deepeval.json",
    "langfuse": "langfuse.json",
    "phoenix": "phoenix.json",
    "weave": "weave.jsonl",
}
JUNK = st.sampled_from([None, "", "x", 3, 2.5, True, [], {}, [3], [None], [{}], {"a": {"b": 1}}, {"a": [1]}])


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


@pytest.mark.parametrize("format", FILES)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_value_of_another_type_is_read_or_refused(
    format: Format, data: st.DataObject, tmp_path: Path
) -> None:
    text = (DATA / "exports" / FILES[format]).read_text(encoding="utf-8")
    lines = FILES[format].endswith(".jsonl")
    document: Any = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    place = data.draw(st.sampled_from(places(document)[1:]))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = data.draw(JUNK)
    file = tmp_path / FILES[format]
    file.write_text(
        "".join(f"{json.dumps(row)}\n" for row in document) if lines else json.dumps(document),
        encoding="utf-8",
    )
    try:
        [step] = read(format, file, reward=data.draw(st.sampled_from([None, "correct"])), on_cut=pytest.fail)
    except ConfigError:
        return
    for rollout in step.rollouts:
        assert isinstance(rollout.prompt, str)
        assert isinstance(rollout.response, str)
        assert rollout.group is None or isinstance(rollout.group, str)
        assert rollout.model is None or isinstance(rollout.model, str)
