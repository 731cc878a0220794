"""The nine benchmarks of the paper and its validation set of 600, each a declarative entry.

An entry says where the rows are (a hub split or a local file), what its columns mean, how the question is
asked, how the answer is read from a response, what counts as right and under which licence the set is
published. Source: the paper's "Evaluation Data and Protocol" and "Evaluation Protocol and Baseline
Score Validation"; hub ids and columns as the released code of its peers uses them.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from diagevo.answers.extraction import boxed_answer
from diagevo.errors import ConfigError, NotFoundError
from diagevo.text.escaping import utf8

Row = Mapping[str, Any]
Group = Literal["mathematics", "general", "validation"]
Kind = Literal["answer", "vote", "choice", "text"]
"""answer: a boxed mathematical answer, compared by answer agreement; vote: the same, read as self-play reads
its votes, from the last box only; choice: a letter; text: exact match."""

Choices = Callable[[Row, random.Random], tuple[list[str], int]]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CHOICE_INSTRUCTION = r"Choose one option and put only its letter within \boxed{}."
TEXT_INSTRUCTION = r"Put only the final answer, in the form that the question asks for, within \boxed{}."


@dataclass(frozen=True, slots=True)
class Hub:
    """A split of a data set on the hub (or of a folder that `datasets` can read)."""

    id: str
    split: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question as asked: `text` is the part in the solver's prompt, including options."""

    text: str
    reference: str
    """Empty for a question without an answer: then no response is right."""
    category: str | None
    kind: Kind
    options: int = 0
    """Number of options of a choice."""


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """Rows of one source: where they are, how they are read, and which of them are used."""

    name: str
    hub: Hub
    question: str | tuple[str, ...]
    gold: Callable[[Row], str]
    licence: str
    kind: Kind = "answer"
    category: str | tuple[str, ...] = ()
    """The category that results are grouped by, if a row has one; a sampled benchmark must have it."""
    choices: Choices | None = None
    """The options in the order they are shown, and the index of the right one."""
    keep: Callable[[Row], bool] | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is measured and how.

    `draw`: number of questions sampled from each part, evenly over its categories; None: all.
    """

    name: str
    title: str
    group: Group
    parts: tuple[QuestionSource, ...]
    questions: int
    """Size of the full set, to distinguish full from partial measurements."""
    samples: int = 1
    temperature: float = 0.0
    judged: bool = False
    """Whether the paper's protocol adds a language model after the rule."""
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
        object.__setattr__(self, "digest", hashlib.sha256(utf8(content)).hexdigest())


def pick(row: Row, columns: str | tuple[str, ...]) -> Any:
    """The value of the first of these columns that the row has."""
    names = (columns,) if isinstance(columns, str) else columns
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise ConfigError(f"no column {' or '.join(names)}; there are: {', '.join(map(str, row))}")


def _as_list(value: Any) -> list[Any]:
    """A list column; in a CSV file it is JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ConfigError(f"a list is needed as JSON, not {value[:60]!r}") from error
    if not isinstance(value, Sequence):
        raise ConfigError(f"a list is needed, not {value!r}")
    return list(value)


def column(*names: str) -> Callable[[Row], str]:
    return lambda row: str(pick(row, names)).strip()


def number(name: str) -> Callable[[Row], str]:
    """AMC keeps whole numbers as floats: 27.0 is shown as 27."""

    def gold(row: Row) -> str:
        value = float(pick(row, name))
        return str(int(value) if value.is_integer() else value)

    return gold


def after_hashes(row: Row) -> str:
    """GSM8K has the answer after `#### ` at the end of the solution."""
    return str(pick(row, "answer")).rsplit("#### ", 1)[-1].strip()


def first_final_answer(row: Row) -> str:
    """OlympiadBench lists its answers; the first is the reference, as in its peers' code."""
    return str(_as_list(pick(row, "final_answer"))[0]).strip()


def boxed_solution(row: Row) -> str:
    """MATH's train split has the answer in the box of its solution; a local file may have it separately."""
    if row.get("answer") is not None:
        return str(row["answer"]).strip()
    answer = boxed_answer(str(pick(row, "solution")))
    if answer is None:
        raise ConfigError(f"a MATH solution has no box: {str(row.get('problem'))[:80]!r}")
    return answer


def listed(options: str, index: Callable[[Row], int]) -> Choices:
    return lambda row, _: ([str(option) for option in _as_list(pick(row, options))], index(row))


def shuffled_gpqa(row: Row, rng: random.Random) -> tuple[list[str], int]:
    """GPQA stores the right answer separately from the wrong ones: options are shuffled, so that its position
    reveals nothing."""
    right = str(pick(row, "Correct Answer")).strip()
    options = [right, *(str(pick(row, f"Incorrect Answer {i}")).strip() for i in (1, 2, 3))]
    order = rng.sample(range(4), 4)
    return [options[i] for i in order], order.index(0)


def letter(name: str) -> Callable[[Row], int]:
    def index(row: Row) -> int:
        value = str(pick(row, name)).strip()
        if len(value) != 1 or value not in LETTERS:
            raise ConfigError(f"column {name} should hold a letter, not {value[:60]!r}")
        return LETTERS.index(value)

    return index


def level_three_or_four(row: Row) -> bool:
    return str(pick(row, "level")).removeprefix("Level ").strip() in ("3", "4")


def no_gold(row: Row) -> str:
    """The reference of a choice follows from its options."""
    return ""


UNSTATED = "not stated upstream"
GATED = "CC-BY-4.0, gated: its authors ask that it is not put online in plain text"


def _mathematics(title: str, questions: int, part: QuestionSource, **more: Any) -> Benchmark:
    return Benchmark(part.name, title, "mathematics", (part,), questions, judged=True, **more)


def _general(title: str, questions: int, part: QuestionSource) -> Benchmark:
    return Benchmark(part.name, title, "general", (part,), questions)


def _choice(
    name: str, hub: Hub, licence: str, category: str, choices: Choices, question: str = "question"
) -> QuestionSource:
    return QuestionSource(
        name, hub, question, no_gold, licence, kind="choice", category=category, choices=choices
    )


MATH_TRAIN = QuestionSource(
    "math_train",
    Hub("DigitalLearningGmbH/MATH-lighteval", "train"),
    "problem",
    boxed_solution,
    "MIT",
    category=("type", "subject"),
    keep=level_three_or_four,
)
MMLU_VALIDATION = _choice(
    "mmlu_val",
    Hub("cais/mmlu", "validation", "all"),
    "MIT",
    "subject",
    listed("choices", lambda row: int(pick(row, "answer"))),
)
AMC = QuestionSource("amc", Hub("zwhe99/amc23", "test"), "question", number("answer"), UNSTATED)
MINERVA = QuestionSource(
    "minerva",
    Hub("zwhe99/simplerl-minerva-math", "test"),
    ("problem", "question"),
    column("answer"),
    UNSTATED,
)
MATH = QuestionSource(
    "math500", Hub("HuggingFaceH4/MATH-500", "test"), "problem", column("answer"), "MIT", category="subject"
)
GSM8K = QuestionSource("gsm8k", Hub("openai/gsm8k", "test", "main"), "question", after_hashes, "MIT")
OLYMPIAD = QuestionSource(
    "olympiadbench",
    Hub("zwhe99/simplerl-OlympiadBench", "test"),
    "question",
    first_final_answer,
    "Apache-2.0",
    category="subfield",
)
MMLU_PRO = _choice(
    "mmlu_pro",
    Hub("TIGER-Lab/MMLU-Pro", "test"),
    "Apache-2.0",
    "category",
    listed("options", letter("answer")),
)
SUPERGPQA = _choice(
    "supergpqa",
    Hub("m-a-p/SuperGPQA", "train"),
    "ODC-BY",
    "discipline",
    listed("options", letter("answer_letter")),
)
GPQA = _choice(
    "gpqa_diamond",
    Hub("Idavidrein/gpqa", "train", "gpqa_diamond"),
    GATED,
    "High-level domain",
    shuffled_gpqa,
    "Question",
)
BBEH = QuestionSource(
    "bbeh",
    Hub("MrLight/bbeh-eval", "train"),
    ("question", "input"),
    column("answer", "target"),
    "CC-BY-4.0",
    kind="text",
    category="task",
)
BENCHMARKS: tuple[Benchmark, ...] = (
    _mathematics("AMC", 40, AMC, samples=32, temperature=1.0),
    _mathematics("Minerva Math", 272, MINERVA),
    _mathematics("MATH-500", 500, MATH),
    _mathematics("GSM8K", 1319, GSM8K),
    _mathematics("OlympiadBench", 675, OLYMPIAD),
    _general("MMLU-Pro", 12032, MMLU_PRO),
    _general("SuperGPQA", 26529, SUPERGPQA),
    _general("GPQA-Diamond", 198, GPQA),
    _general("BBEH", 4520, BBEH),
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
