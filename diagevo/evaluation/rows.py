"""Rows of a data set: from a local file (JSONL, JSON, CSV, Parquet) or from the Hugging Face hub."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError, MissingDependencyError, extra

Row = Mapping[str, Any]

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Hub:
    """A split of a data set on the hub (or of a folder that `datasets` can read)."""

    id: str
    split: str
    config: str | None = None


def rows_of_file(path: Path) -> Sequence[Row]:
    """Every row of a local file, by its suffix. Raises ConfigError where it cannot be read."""
    if not path.is_file():
        raise ConfigError(f"no such data file: {path}", hint="name a .jsonl, .json, .csv or .parquet file")
    try:
        rows = _read(path)
    except (OSError, ValueError, csv.Error) as error:  # ValueError: bad JSON, and bytes that are not UTF-8
        raise ConfigError(
            f"{path} cannot be read: {error}", hint="does its content match its name?"
        ) from error
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise ConfigError(f"{path}, row {number}: not an object with columns but {str(row)[:60]!r}")
    return rows


def _read(path: Path) -> list[Any]:
    match path.suffix:
        case ".jsonl":
            return list(_json_lines(path))
        case ".json":
            rows = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(rows, list):
                raise ValueError("it does not hold a list of rows")
            return rows
        case ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        case ".parquet":
            return _parquet(path)
        case suffix:
            raise ConfigError(
                f"{path}: rows cannot be read from {suffix or 'a file without a suffix'}",
                hint="name a .jsonl, .json, .csv or .parquet file",
            )


def _parquet(path: Path) -> list[Any]:
    with extra("polars", f"reading {path}"):
        import polars

    try:
        return polars.read_parquet(path).to_dicts()
    except polars.exceptions.PolarsError as error:
        raise ValueError(str(error).splitlines()[0]) from error


def _json_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise ConfigError(f"{path}, line {number}: not a JSON row ({error.msg})") from error


def rows_of_hub(hub: Hub) -> Sequence[Row]:
    """Every row of a hub split. Needs the `datasets` package and, the first time, the network."""
    with extra("train", f"reading {hub.id} from the hub instead of a local file (--data),"):
        from datasets import load_dataset
    try:
        rows: Any = load_dataset(hub.id, hub.config, split=hub.split)
        return list(rows)
    except (
        Exception
    ) as error:  # datasets raises its own, huggingface_hub's, the system's and the network's errors
        raise MissingDependencyError(
            f"{hub.id} ({hub.split}) could not be loaded: {type(error).__name__}: {error}",
            hint="log in if the set is gated, unset HF_HUB_OFFLINE, or name a local copy: --data FOLDER, "
            "in a run validation.data",
        ) from error


def find_file(source: Path, name: str) -> Path:
    """`source` itself, or the one file for `name` in the folder `source`: NAME.suffix or NAME_….suffix."""
    if not source.is_dir():
        return source
    exact = [source / f"{name}{suffix}" for suffix in SUFFIXES]
    found = [path for path in exact if path.is_file()]
    if not found:
        found = sorted(path for suffix in SUFFIXES for path in source.glob(f"{name}_*{suffix}"))
    if len(found) != 1:
        listed = ", ".join(path.name for path in found) or "none"
        raise ConfigError(
            f"{source} should hold one file for {name}; found {listed}",
            hint=f"call it {name}.jsonl (.json, .csv, .parquet), or name it: --data {name}=FILE",
        )
    return found[0]
