"""Questions to evaluate on, in a fixed order: of a benchmark, from a local file (JSONL, JSON, CSV,
Parquet) or the Hugging Face hub; or your own labelled set."""

import csv
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError, MissingDependencyError, extra
from diagevo.evaluation.benchmarks import (
    CHOICE_INSTRUCTION,
    LETTERS,
    TEXT_INSTRUCTION,
    Benchmark,
    Hub,
    Kind,
    Loaded,
    Question,
    QuestionSource,
    Row,
    pick,
)

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")


def spread(categories: Sequence[str | None], size: int, seed: int) -> list[int]:
    """Indices of `size` rows, spread over the categories as evenly as possible, in order. Seeded.

    The remainder goes to random categories; if a category has too few rows, others fill in.
    """
    rng = random.Random(seed)
    rows_by_category: dict[str, list[int]] = defaultdict(list)
    for index, category in enumerate(categories):
        rows_by_category[category or ""].append(index)
    piles = [rng.sample(rows, len(rows)) for _, rows in sorted(rows_by_category.items())]
    rng.shuffle(piles)
    chosen: list[int] = []
    while len(chosen) < size and any(piles):
        for pile in piles:
            if pile and len(chosen) < size:
                chosen.append(pile.pop())
    return sorted(chosen)


def load(
    entry: Benchmark,
    sources: Sequence[Path] = (),
    *,
    seed: int = 0,
    limit: int | None = None,
) -> Loaded:
    """Read a benchmark's questions from local files (one per part, or a folder) if given, else the hub.

    `seed` controls shuffled options and the validation sample; `limit` keeps an even sample of this many
    questions.
    """
    files = _files(entry, sources)
    questions: list[Question] = []
    for number, part in enumerate(entry.parts):
        rows = rows_of_file(files[number]) if files else rows_of_hub(part.hub)
        read = questions_of(part, rows, seed)
        if entry.draw is not None:
            if any(question.category is None for question in read):
                wanted = part.category if isinstance(part.category, str) else " or ".join(part.category)
                raise ConfigError(
                    f"{part.name}: rows without the column {wanted}",
                    hint="questions are sampled evenly over its values: every row needs it",
                )
            read = [read[i] for i in spread([q.category for q in read], entry.draw, seed)]
        questions.extend(read)
    if not questions:
        raise ConfigError(f"{entry.name}: the source holds no question")
    named = [path.name for path in files] or [f"{p.hub.id}@{p.hub.split}" for p in entry.parts]
    return limited(Loaded(entry, tuple(questions), ", ".join(named)), limit, seed)


def limited(loaded: Loaded, limit: int | None, seed: int) -> Loaded:
    """At most `limit` of the questions, spread over the categories as evenly as possible."""
    if limit is None or limit >= len(loaded.questions):
        return loaded
    chosen = spread([question.category for question in loaded.questions], limit, seed)
    return Loaded(loaded.benchmark, tuple(loaded.questions[i] for i in chosen), loaded.source)


def _files(entry: Benchmark, sources: Sequence[Path]) -> list[Path]:
    """A file for each part: named one by one, or found in a folder; none if none is named."""
    if len(sources) == 1 and sources[0].is_dir():
        return [find_file(sources[0], part.name) for part in entry.parts]
    if sources and len(sources) != len(entry.parts):
        parts = [part.name for part in entry.parts]
        raise ConfigError(
            f"{entry.name} is read from one file for each of {', '.join(parts)}, not from {len(sources)}",
            hint="name a folder, or " + " ".join(f"--data {part}=FILE" for part in parts),
        )
    return list(sources)


def questions_of(part: QuestionSource, rows: Sequence[Row], seed: int) -> list[Question]:
    """The part's questions in row order. One generator serves all shuffles of a part."""
    rng = random.Random(f"{seed}.{part.name}")
    read: list[Question] = []
    for number, row in enumerate(rows, start=1):
        try:
            if part.keep is None or part.keep(row):
                read.append(_question(part, row, rng))
        except (ConfigError, ValueError, IndexError) as error:
            raise ConfigError(
                f"{part.name}, row {number}: {error}",
                hint=f"the columns must be those of {part.hub.id} ({part.hub.split})",
            ) from error
    return read


def _question(part: QuestionSource, row: Row, rng: random.Random) -> Question:
    text = str(pick(row, part.question)).strip()
    if not text:
        raise ValueError("the question is empty")
    names = (part.category,) if isinstance(part.category, str) else part.category
    category = next((str(row[name]) for name in names if row.get(name) is not None), None)
    if part.choices is None:
        question = Question(text, part.gold(row), category, part.kind)
        if not question.reference:
            raise ValueError("the reference answer is empty")
        return replace(question, text=f"{text}\n\n{TEXT_INSTRUCTION}") if part.kind == "text" else question
    options, right = part.choices(row, rng)
    if not 0 <= right < len(options):
        raise ValueError(f"the right option is number {right + 1} of {len(options)}")
    shown = "\n".join(f"({letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))
    asked = f"{text}\n\n{shown}\n\n{CHOICE_INSTRUCTION}"
    return Question(asked, LETTERS[right], category, "choice", len(options))


def labelled(
    name: str,
    title: str,
    pairs: Sequence[tuple[str, str]],
    *,
    samples: int = 8,
    temperature: float = 1.0,
    source: str,
    kind: Kind = "answer",
    group: Callable[[str], str | None] = lambda _: None,
) -> Loaded:
    """Pairs of question and reference answer as a benchmark; `group` names the grouping of results."""
    entry = Benchmark(
        name=name,
        title=title,
        group="validation",
        parts=(),
        questions=len(pairs),
        samples=samples,
        temperature=temperature,
    )
    return Loaded(entry, tuple(Question(q, a, group(q), kind) for q, a in pairs), source)


def rows_of_file(path: Path) -> Sequence[Row]:
    """Every row of a local file, by its suffix. Raises ConfigError if it cannot be read."""
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
