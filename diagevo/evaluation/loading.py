"""Questions of a benchmark from local files or the hub, in a fixed order."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from diagevo.errors import ConfigError
from diagevo.evaluation.columns import pick
from diagevo.evaluation.questions import (
    CHOICE_INSTRUCTION,
    LETTERS,
    TEXT_INSTRUCTION,
    Benchmark,
    Loaded,
    Question,
    QuestionSource,
)
from diagevo.evaluation.rows import Row, find_file, rows_of_file, rows_of_hub


def spread(categories: Sequence[str | None], size: int, seed: int) -> list[int]:
    """Indices of `size` rows, as evenly over the categories as they allow, in their order. Seeded.

    The remainder goes to categories drawn at random; where a category has too few rows, others fill in.
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
    """Read a benchmark's questions from local files (one a part, or a folder) where given, else the hub.

    `seed` orders shuffled options and the validation draw; `limit` keeps a spread of so many questions.
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
    """At most `limit` of the questions, as evenly over the categories as they allow."""
    if limit is None or limit >= len(loaded.questions):
        return loaded
    chosen = spread([question.category for question in loaded.questions], limit, seed)
    return Loaded(loaded.benchmark, tuple(loaded.questions[i] for i in chosen), loaded.source)


def _files(entry: Benchmark, sources: Sequence[Path]) -> list[Path]:
    """A file for each part: named one by one, or found in a folder; none where none is named."""
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
    """The part's questions in the order of their rows. One generator serves all shuffles of a part."""
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
