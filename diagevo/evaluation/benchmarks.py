"""The nine benchmarks of the paper and its validation set of 600, each a declarative entry.

An entry says where the rows are (a hub split; a local file may stand in), which columns hold what, how the
question is put, how the answer is read out of a response, what counts as right and under which licence the
set is published. Source: the paper's "Evaluation Data and Protocol" and "Evaluation Protocol and Baseline
Score Validation"; hub ids and columns as the released code of its peers uses them.
"""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.rows import Hub, Row, find_file, rows_of_file, rows_of_hub
from diagevo.selfplay.answers import boxed_answer

Group = Literal["mathematics", "general", "validation"]
Kind = Literal["answer", "choice", "text"]
"""answer: a boxed mathematical answer, compared by answer agreement; choice: a letter; text: exact match."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CHOICE_INSTRUCTION = r"Choose one option and put only its letter within \boxed{}."
TEXT_INSTRUCTION = r"Put only the final answer, in the form that the question asks for, within \boxed{}."


@dataclass(frozen=True, slots=True)
class Question:
    """One question as it is asked: `text` is what the solver's prompt holds, options included."""

    text: str
    reference: str
    category: str | None
    kind: Kind
    options: int = 0
    """How many letters a choice has."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one source: where they are, how they are read, and which of them are wanted."""

    name: str
    hub: Hub
    question: str | tuple[str, ...]
    gold: Callable[[Row], str]
    kind: Kind
    licence: str
    category: str | tuple[str, ...] = ()
    choices: Callable[[Row, random.Random], tuple[list[str], int]] | None = None
    """The options in the order they are shown, and the index of the right one."""
    keep: Callable[[Row], bool] | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is measured and how. `draw`: questions of each part, evenly over its categories; None: all."""

    name: str
    title: str
    group: Group
    parts: tuple[Part, ...]
    questions: int
    """Size of the full set, to tell a whole measurement from a partial one."""
    samples: int = 1
    temperature: float = 0.0
    judged: bool = False
    """Whether the paper's protocol puts a language model behind the rule."""
    draw: int | None = None

    @property
    def metric(self) -> str:
        return "accuracy" if self.samples == 1 else f"mean@{self.samples}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The questions of a benchmark in a fixed order, and a digest of exactly these."""

    benchmark: Benchmark
    questions: tuple[Question, ...]
    source: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        content = json.dumps([[q.text, q.reference, q.kind] for q in self.questions], ensure_ascii=False)
        object.__setattr__(self, "digest", hashlib.sha256(content.encode()).hexdigest())


def _pick(row: Row, columns: str | tuple[str, ...]) -> Any:
    for column in (columns,) if isinstance(columns, str) else columns:
        if row.get(column) is not None:
            return row[column]
    raise ConfigError(f"a row has none of the columns {columns}; it has {', '.join(map(str, row))}")


def _as_list(value: Any) -> list[Any]:
    """A list column; a CSV file holds it as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ConfigError(f"a list is needed as JSON, not {value[:60]!r}") from error
    return list(value)


def column(*names: str) -> Callable[[Row], str]:
    def gold(row: Row) -> str:
        value = _pick(row, names)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return str(value).strip()

    return gold


def after_hashes(row: Row) -> str:
    """GSM8K keeps the answer behind `#### ` at the end of the solution."""
    return str(_pick(row, "answer")).rsplit("#### ", 1)[-1].strip()


def first_final_answer(row: Row) -> str:
    """OlympiadBench lists its answers; the first is the reference, as in its peers' code."""
    return str(_as_list(_pick(row, "final_answer"))[0]).strip()


def boxed_solution(row: Row) -> str:
    """MATH's train split keeps the answer in the box of its solution; a local file may have it apart."""
    if row.get("answer") is not None:
        return str(row["answer"]).strip()
    answer = boxed_answer(str(_pick(row, "solution")))
    if answer is None:
        raise ConfigError(f"a MATH solution has no box: {str(row.get('problem'))[:80]!r}")
    return answer


def listed(
    options: str, index: Callable[[Row], int]
) -> Callable[[Row, random.Random], tuple[list[str], int]]:
    return lambda row, _: ([str(option) for option in _as_list(_pick(row, options))], index(row))


def shuffled_gpqa(row: Row, rng: random.Random) -> tuple[list[str], int]:
    """GPQA keeps the right answer apart from the wrong ones: shuffled, so that its place says nothing."""
    right = str(_pick(row, "Correct Answer")).strip()
    options = [right, *(str(_pick(row, f"Incorrect Answer {i}")).strip() for i in (1, 2, 3))]
    order = rng.sample(range(4), 4)
    return [options[i] for i in order], order.index(0)


def _letter(name: str) -> Callable[[Row], int]:
    return lambda row: LETTERS.index(str(_pick(row, name)).strip())


def _level_three_or_four(row: Row) -> bool:
    return str(_pick(row, "level")).removeprefix("Level ").strip() in ("3", "4")


def _no_gold(row: Row) -> str:
    """The reference of a choice is the letter that its options give."""
    return ""


MATH_TRAIN = Part(
    name="math_train",
    hub=Hub("DigitalLearningGmbH/MATH-lighteval", "train"),
    question="problem",
    gold=boxed_solution,
    kind="answer",
    licence="MIT",
    category=("type", "subject"),
    keep=_level_three_or_four,
)
MMLU_VALIDATION = Part(
    name="mmlu_val",
    hub=Hub("cais/mmlu", "validation", "all"),
    question="question",
    gold=_no_gold,
    kind="choice",
    licence="MIT",
    category="subject",
    choices=listed("choices", lambda row: int(_pick(row, "answer"))),
)


def _single(
    title: str,
    group: Group,
    part: Part,
    questions: int,
    *,
    samples: int = 1,
    temperature: float = 0.0,
    judged: bool = False,
) -> Benchmark:
    return Benchmark(part.name, title, group, (part,), questions, samples, temperature, judged)


BENCHMARKS: tuple[Benchmark, ...] = (
    _single(
        "AMC",
        "mathematics",
        Part(
            "amc", Hub("zwhe99/amc23", "test"), "question", column("answer"), "answer", "not stated upstream"
        ),
        40,
        samples=32,
        temperature=1.0,
        judged=True,
    ),
    _single(
        "Minerva Math",
        "mathematics",
        Part(
            "minerva",
            Hub("zwhe99/simplerl-minerva-math", "test"),
            ("problem", "question"),
            column("answer"),
            "answer",
            "not stated upstream",
        ),
        272,
        judged=True,
    ),
    _single(
        "MATH-500",
        "mathematics",
        Part(
            "math500",
            Hub("HuggingFaceH4/MATH-500", "test"),
            "problem",
            column("answer"),
            "answer",
            "MIT",
            category="subject",
        ),
        500,
        judged=True,
    ),
    _single(
        "GSM8K",
        "mathematics",
        Part("gsm8k", Hub("openai/gsm8k", "test", "main"), "question", after_hashes, "answer", "MIT"),
        1319,
        judged=True,
    ),
    _single(
        "OlympiadBench",
        "mathematics",
        Part(
            "olympiadbench",
            Hub("zwhe99/simplerl-OlympiadBench", "test"),
            "question",
            first_final_answer,
            "answer",
            "Apache-2.0",
            category="subfield",
        ),
        675,
        judged=True,
    ),
    _single(
        "MMLU-Pro",
        "general",
        Part(
            "mmlu_pro",
            Hub("TIGER-Lab/MMLU-Pro", "test"),
            "question",
            _no_gold,
            "choice",
            "Apache-2.0",
            category="category",
            choices=listed("options", _letter("answer")),
        ),
        12032,
    ),
    _single(
        "SuperGPQA",
        "general",
        Part(
            "supergpqa",
            Hub("m-a-p/SuperGPQA", "train"),
            "question",
            _no_gold,
            "choice",
            "ODC-BY",
            category="discipline",
            choices=listed("options", _letter("answer_letter")),
        ),
        26529,
    ),
    _single(
        "GPQA-Diamond",
        "general",
        Part(
            "gpqa_diamond",
            Hub("Idavidrein/gpqa", "train", "gpqa_diamond"),
            "Question",
            _no_gold,
            "choice",
            "CC-BY-4.0, gated: its authors ask that it is not put online in plain text",
            category="High-level domain",
            choices=shuffled_gpqa,
        ),
        198,
    ),
    _single(
        "BBEH",
        "general",
        Part(
            "bbeh",
            Hub("MrLight/bbeh-eval", "train"),
            ("question", "input"),
            column("answer", "target"),
            "text",
            "CC-BY-4.0",
            category="task",
        ),
        4520,
    ),
    Benchmark(
        "validation",
        "Validation (MATH train, MMLU validation)",
        "validation",
        (MATH_TRAIN, MMLU_VALIDATION),
        600,
        draw=300,
    ),
)


def benchmark(name: str) -> Benchmark:
    for entry in BENCHMARKS:
        if entry.name == name:
            return entry
    raise NotFoundError(f"no benchmark {name!r}", hint="there are: " + ", ".join(b.name for b in BENCHMARKS))


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
    sources: Iterable[Path] = (),
    *,
    seed: int = 0,
    limit: int | None = None,
) -> Loaded:
    """Read a benchmark's questions from local files (one a part, or a folder) where given, else the hub.

    `seed` orders shuffled options and the validation draw; `limit` keeps a spread of so many questions.
    """
    sources = list(sources)
    if sources and len(sources) == 1:
        sources = [find_file(sources[0], part.name) for part in entry.parts]
    if sources and len(sources) != len(entry.parts):
        raise ConfigError(f"{entry.name} has {len(entry.parts)} parts; {len(sources)} files were named")
    questions: list[Question] = []
    for number, part in enumerate(entry.parts):
        rows = rows_of_file(sources[number]) if sources else rows_of_hub(part.hub)
        read = questions_of(part, rows, seed)
        if entry.draw is not None:
            read = [read[i] for i in spread([q.category for q in read], entry.draw, seed)]
        questions.extend(read)
    if limit is not None and limit < len(questions):
        questions = [questions[i] for i in spread([q.category for q in questions], limit, seed)]
    if not questions:
        raise ConfigError(f"{entry.name}: the source holds no question")
    named = [path.name for path in sources] or [f"{p.hub.id}@{p.hub.split}" for p in entry.parts]
    return Loaded(entry, tuple(questions), ", ".join(named))


def questions_of(part: Part, rows: Sequence[Row], seed: int) -> list[Question]:
    """The part's questions in the order of their rows. One generator serves all shuffles of a part."""
    rng = random.Random(f"{seed}.{part.name}")
    read: list[Question] = []
    for number, row in enumerate(rows, start=1):
        if part.keep is not None and not part.keep(row):
            continue
        try:
            read.append(_question(part, row, rng))
        except (ConfigError, ValueError, IndexError, KeyError) as error:
            raise ConfigError(f"{part.name}, row {number}: {error}") from error
    return read


def _question(part: Part, row: Row, rng: random.Random) -> Question:
    text = str(_pick(row, part.question)).strip()
    category = None
    if part.category:
        category = str(_pick(row, part.category))
    if part.choices is None:
        question = Question(text, part.gold(row), category, part.kind)
        return replace(question, text=f"{text}\n\n{TEXT_INSTRUCTION}") if part.kind == "text" else question
    options, right = part.choices(row, rng)
    shown = "\n".join(f"({letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))
    asked = f"{text}\n\n{shown}\n\n{CHOICE_INSTRUCTION}"
    return Question(asked, LETTERS[right], category, "choice", len(options))
