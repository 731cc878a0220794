"""The nine benchmarks of the paper and its validation set of 600, each a declarative entry.

An entry says where the rows are (a hub split; a local file may stand in), which columns hold what, how the
question is put, how the answer is read out of a response, what counts as right and under which licence the
set is published. Source: the paper's "Evaluation Data and Protocol" and "Evaluation Protocol and Baseline
Score Validation"; hub ids and columns as the released code of its peers uses them.
"""

from diagevo.errors import NotFoundError
from diagevo.evaluation.columns import (
    after_hashes,
    boxed_solution,
    column,
    first_final_answer,
    letter,
    level_three_or_four,
    listed,
    no_gold,
    number,
    pick,
    shuffled_gpqa,
)
from diagevo.evaluation.questions import Benchmark, Group, QuestionSource
from diagevo.evaluation.rows import Hub

MATH_TRAIN = QuestionSource(
    name="math_train",
    hub=Hub("DigitalLearningGmbH/MATH-lighteval", "train"),
    question="problem",
    gold=boxed_solution,
    kind="answer",
    licence="MIT",
    category=("type", "subject"),
    keep=level_three_or_four,
)
MMLU_VALIDATION = QuestionSource(
    name="mmlu_val",
    hub=Hub("cais/mmlu", "validation", "all"),
    question="question",
    gold=no_gold,
    kind="choice",
    licence="MIT",
    category="subject",
    choices=listed("choices", lambda row: int(pick(row, "answer"))),
)


def _single(
    title: str,
    group: Group,
    part: QuestionSource,
    questions: int,
    *,
    samples: int = 1,
    temperature: float = 0.0,
    judged: bool = False,
) -> Benchmark:
    return Benchmark(
        name=part.name,
        title=title,
        group=group,
        parts=(part,),
        questions=questions,
        samples=samples,
        temperature=temperature,
        judged=judged,
    )


BENCHMARKS: tuple[Benchmark, ...] = (
    _single(
        "AMC",
        "mathematics",
        QuestionSource(
            "amc", Hub("zwhe99/amc23", "test"), "question", number("answer"), "answer", "not stated upstream"
        ),
        40,
        samples=32,
        temperature=1.0,
        judged=True,
    ),
    _single(
        "Minerva Math",
        "mathematics",
        QuestionSource(
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
        QuestionSource(
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
        QuestionSource(
            "gsm8k", Hub("openai/gsm8k", "test", "main"), "question", after_hashes, "answer", "MIT"
        ),
        1319,
        judged=True,
    ),
    _single(
        "OlympiadBench",
        "mathematics",
        QuestionSource(
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
        QuestionSource(
            "mmlu_pro",
            Hub("TIGER-Lab/MMLU-Pro", "test"),
            "question",
            no_gold,
            "choice",
            "Apache-2.0",
            category="category",
            choices=listed("options", letter("answer")),
        ),
        12032,
    ),
    _single(
        "SuperGPQA",
        "general",
        QuestionSource(
            "supergpqa",
            Hub("m-a-p/SuperGPQA", "train"),
            "question",
            no_gold,
            "choice",
            "ODC-BY",
            category="discipline",
            choices=listed("options", letter("answer_letter")),
        ),
        26529,
    ),
    _single(
        "GPQA-Diamond",
        "general",
        QuestionSource(
            "gpqa_diamond",
            Hub("Idavidrein/gpqa", "train", "gpqa_diamond"),
            "Question",
            no_gold,
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
        QuestionSource(
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
