"""Bundles that cannot be read or written: each says what is wrong with which file, and the next step."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import ConfigError, DiagEvoError, StoreError
from diagevo.memory.audit.history import History
from diagevo.memory.transfer.bundle import check_bundle, export_bundle, import_bundle


def refusal(kind: type[DiagEvoError], work: Callable[..., Any], *given: Any) -> str:
    """The message of the error; every one has a hint."""
    with pytest.raises(kind) as caught:
        work(*given)
    assert caught.value.hint
    return caught.value.message


@pytest.fixture
def bundle(my_history: History, tmp_path: Path) -> Path:
    export_bundle(my_history, my_history.end, tmp_path / "out")
    return tmp_path / "out"


def test_a_folder_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    assert (
        refusal(ConfigError, check_bundle, tmp_path) == f"{tmp_path} is not a bundle: it has no manifest.json"
    )


def test_what_a_manifest_lacks_is_named(bundle: Path) -> None:
    manifest = bundle / "manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text("{}")
    said = f"the manifest of {bundle} cannot be read: it lacks "
    every = "format, form, run_id, events, round, head, version, files"
    assert refusal(StoreError, check_bundle, bundle) == said + every
    del values["head"], values["round"]
    manifest.write_text(json.dumps(values))
    assert refusal(StoreError, check_bundle, bundle) == f"{said}round, head"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "Expected `object`, got `array`"),
        ("{", "Input data was truncated"),
        ('{"files": 3}', "it lacks"),
        ('{"format": "diagevo.bundle/9"}', "is a diagevo.bundle/9, this version reads diagevo.bundle/1"),
    ],
)
def test_a_manifest_that_is_none_is_said_to_be_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert said in refusal(StoreError, check_bundle, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("events", "many", "Expected `int`, got `str` - at `$.events`"),
        ("form", "csv", "Invalid enum value 'csv' - at `$.form`"),
        ("files", {"events.jsonl": 3}, "Expected `object`, got `int` - at `$.files"),
        ("files", {"events.jsonl": {}}, "Object missing required field `rows` - at `$.files"),
        ("files", {}, "must name events.jsonl, replies.jsonl, texts.jsonl, vectors.jsonl, and nothing else"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(bundle: Path, key: str, value: Any, said: str) -> None:
    manifest = bundle / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {key: value}))
    assert said in refusal(StoreError, check_bundle, bundle)


def test_a_missing_and_a_changed_file_are_named(bundle: Path, my_history: History) -> None:
    texts = bundle / "texts.jsonl"
    texts.write_text(texts.read_text() + "\n")
    said = f"{texts} is not what was exported: its digest differs from the manifest's"
    assert refusal(StoreError, import_bundle, bundle, my_history.database, "copy") == said
    texts.unlink()
    said = f"the bundle {bundle} lacks texts.jsonl"
    assert refusal(StoreError, import_bundle, bundle, my_history.database, "copy") == said
    texts.mkdir()
    assert f"{texts} cannot be read" in refusal(StoreError, check_bundle, bundle)
    assert my_history.log.runs() == ["played"]


def test_a_place_that_takes_no_bundle_is_named(my_history: History, tmp_path: Path) -> None:
    """A file stands where a folder is needed: that stops root too, as a read-only folder would not."""
    (tmp_path / "file").write_text("keep me")
    for folder in (tmp_path / "file", tmp_path / "file" / "deep"):
        said = refusal(StoreError, export_bundle, my_history, my_history.end, folder)
        assert said.startswith(f"the bundle {folder} cannot be written: ")
    assert (tmp_path / "file").read_text() == "keep me"
