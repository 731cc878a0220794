"""Detects the format of a path by what only its writer produces: file names, and fields of the first row."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, cast

from diagevo.errors import ConfigError
from diagevo.ingest.formats import TRAINERS, Format, files_of, prime_rl
from diagevo.ingest.formats.eval_exports import EXPORTS, documents, is_of
from diagevo.ingest.formats.table_reader import TableReader
from diagevo.ingest.json_lines import CutLine
from diagevo.text.lines import listed

_OWN = ("prompt", "response", "reward")
_TABLES = {".parquet", ".arrow"}
_READ = {".json", ".jsonl", ".csv", ".tsv"}


def recognised(path: Path) -> tuple[Format, str]:
    """The one format that fits, and why.

    Raises ConfigError if none or several do.
    """
    if not path.exists():
        raise ConfigError(f"there is no {path}", hint="name a folder of rollout files, or one of them")
    row = _first_row(path)
    found = dict(_fitting(path, row))
    if len(found) == 1:
        return next(iter(found.items()))
    name = quote(str(path))
    if found:
        fits = "; ".join(f"{format}: {why}" for format, why in found.items())
        first = next(iter(found))
        raise ConfigError(
            f"{path} may be of {len(found)} formats: {fits}",
            hint=f"name the one that it is: diagevo ingest {first} {name}",
        )
    if not row:
        hint = f"diagevo ingest FORMAT {name}, of the formats that diagevo ingest --help lists"
        raise ConfigError(f"{path} has no known format", hint=hint)
    fields = listed(sorted(row), 20)
    raise ConfigError(
        f"{path} has no known format: its first row has {fields}",
        hint=f"say where each field stands: diagevo ingest jsonl {name}"
        f" --map prompt=FIELD,response=FIELD,reward=FIELD (of {fields})",
    )


def _fitting(path: Path, row: Mapping[str, Any]) -> Iterator[tuple[Format, str]]:
    named: dict[Format, tuple[Sequence[str], str]] = {f: of[:2] for f, of in TRAINERS.items()}
    named["prime-rl"] = prime_rl.GLOBS, prime_rl.NAME
    for format, (globs, name) in named.items():
        if files := files_of(path, globs, name):
            yield format, f"{next(iter(files.values())).name} is named as its steps are"
    logs: Mapping[Format, Sequence[str]] = {
        "lm-eval": ("samples_*.jsonl", "*/samples_*.jsonl"),
        "inspect": ("*.eval",),
    }
    for format, globs in logs.items():
        if file := next((f for glob in globs for f in _matching(path, glob)), None):
            yield format, f"{file.name} is named as its logs are"
    if {"version", "status", "eval"} <= row.keys():
        yield "inspect", "it has version, status and eval"
    if isinstance(row.get("spec"), dict) and "run_id" in row["spec"]:
        yield "openai-evals", "its first row is the spec of a run"
    for tool, export in EXPORTS.items():
        if is_of(row, export):
            yield cast("Format", tool), f"it has {'.'.join((*export.within, ''))}{', '.join(export.fields)}"
    if all(name in row for name in _OWN):
        yield "jsonl", f"its first row has {', '.join(_OWN)}"


def _matching(path: Path, glob: str) -> Iterator[Path]:
    if path.is_file():
        return iter([path] if path.match(glob.rpartition("/")[2]) else [])
    return iter(sorted(path.glob(glob)))


def _first_row(path: Path) -> Mapping[str, Any]:
    """The first row of the first JSON file or table; empty if none can be read."""
    files = [path] if path.is_file() else sorted(path.iterdir())
    for file in files:
        if file.suffix in _TABLES and file.is_file():
            try:
                with TableReader() as tables:
                    columns, _ = tables.read(file, [])
                    return dict.fromkeys(columns.columns)
            except CutLine as error:
                raise ConfigError(f"{file} is not whole", hint="wait until it is written") from error
        if file.suffix in _READ and file.is_file():
            try:
                return next((row for _, row in documents(file)), {})
            except ConfigError:
                return {}
    return {}
