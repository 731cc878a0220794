"""Two rows of every benchmark, written for the tests with the columns of its hub set, in any file format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars

from diagevo.evaluation.benchmarks import benchmark

Row = dict[str, Any]

ROWS: dict[str, list[Row]] = {
    "amc": [
        {"id": 0, "question": "How many ways to seat 3 of 9?", "answer": 504.0, "url": "https://x.test/0"},
        {"id": 1, "question": "What is 3 halves of 1?", "answer": 1.5, "url": "https://x.test/1"},
    ],
    "minerva": [
        {"problem": "Speed after 2 s at 3 m/s²?", "solution": r"so \boxed{6}", "type": "Physics", "idx": 0,
         "answer": "6"},
        {"problem": "Mass of two?", "solution": r"so \boxed{2m}", "type": "Physics", "idx": 1,
         "answer": "2m"},
    ],
    "math500": [
        {"problem": "What is $1+1$?", "solution": r"It is $\boxed{2}$.", "answer": "2", "subject": "Algebra",
         "level": 1, "unique_id": "test/algebra/1.json"},
        {"problem": "Halve $\\frac12$.", "solution": r"$\boxed{\frac14}$", "answer": r"\frac14",
         "subject": "Prealgebra", "level": 2, "unique_id": "test/prealgebra/2.json"},
    ],
    "gsm8k": [
        {"question": "Ann has 2 pens and buys 3. How many?", "answer": "2+3=<<2+3=5>>5\n#### 5"},
        {"question": "A house costs $1,000 and two, more. In all?", "answer": "1,000+2\n#### 1,002"},
    ],
    "olympiadbench": [
        {"id": 1, "subfield": "Algebra", "context": None, "question": "Find $x$.", "solution": ["x = 4"],
         "final_answer": ["$4$", "$-4$"], "is_multiple_answer": True, "unit": None,
         "answer_type": "Numerical", "error": None},
        {"id": 2, "subfield": "Geometry", "context": None, "question": "Find $r$.", "solution": ["r = 2"],
         "final_answer": ["2"], "is_multiple_answer": False, "unit": None, "answer_type": "Numerical",
         "error": None},
    ],
    "mmlu_pro": [
        {"question_id": 1, "question": "Which is even?", "options": ["1", "2", "3"], "answer": "B",
         "answer_index": 1, "cot_content": "", "category": "math", "src": "own"},
        {"question_id": 2, "question": "Which is last?", "options": [str(i) for i in range(10)],
         "answer": "J", "answer_index": 9, "cot_content": "", "category": "other", "src": "own"},
    ],
    "supergpqa": [
        {"uuid": "a", "question": "Which bends light?", "options": ["glass", "vacuum"], "answer": "glass",
         "answer_letter": "A", "discipline": "Science", "field": "Physics", "subfield": "Optics",
         "difficulty": "easy", "is_calculation": False},
        {"uuid": "b", "question": "Which is a fish?", "options": ["cat", "dog", "cod"], "answer": "cod",
         "answer_letter": "C", "discipline": "Agronomy", "field": "Aquaculture", "subfield": "Aquaculture",
         "difficulty": "easy", "is_calculation": False},
    ],
    "gpqa_diamond": [
        {"Record ID": "r1", "Question": "Which one is right?", "Correct Answer": "this\n",
         "Incorrect Answer 1": "that", "Incorrect Answer 2": "those", "Incorrect Answer 3": "these",
         "Explanation": "-", "Subdomain": "Optics", "High-level domain": "Physics"},
        {"Record ID": "r2", "Question": "And here?", "Correct Answer": "yes", "Incorrect Answer 1": "no",
         "Incorrect Answer 2": "never", "Incorrect Answer 3": "maybe", "Explanation": "-",
         "Subdomain": "Genetics", "High-level domain": "Biology"},
    ],
    "bbeh": [
        {"question": "Is it so? Say yes, no or unknown.", "answer": "unknown", "task": "boardgame qa"},
        {"question": "Sort b, a.", "answer": "a, b", "task": "word sorting"},
    ],
    "math_train": [
        {"problem": "What is $5-1$?", "level": "Level 3", "solution": r"$\boxed{4}$", "type": "Algebra"},
        {"problem": "What is $5-5$?", "level": "Level 5", "solution": r"$\boxed{0}$", "type": "Algebra"},
    ],
    "mmlu_val": [
        {"question": "Which is a prime?", "subject": "abstract_algebra", "choices": ["4", "5", "6", "8"],
         "answer": 1},
        {"question": "Which is a bone?", "subject": "anatomy", "choices": ["rib", "eye", "ear", "toe"],
         "answer": 0},
    ],
}  # fmt: skip
"""By the name of a benchmark, or of a part of the validation set."""


def write(path: Path, rows: Sequence[Row]) -> Path:
    """Rows as a file of the format that the path's suffix names. A list in CSV is JSON, as in its export."""
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        case ".json":
            path.write_text(json.dumps(rows), encoding="utf-8")
        case ".parquet":
            polars.DataFrame(list(rows)).write_parquet(path)
        case ".csv":
            flat = [{k: json.dumps(v) if isinstance(v, list) else v for k, v in r.items()} for r in rows]
            polars.DataFrame(flat).write_csv(path)
        case suffix:
            raise ValueError(suffix)
    return path


def write_folder(folder: Path, suffix: str) -> Path:
    """A file for every part of every benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in ROWS.items():
        write(folder / f"{name}.{suffix}", rows)
    return folder


def right_answers(name: str, folder: Path) -> dict[str, str]:
    """By question as it is asked: a response that gives the reference answer."""
    from diagevo.evaluation.question_files import load

    return {q.text: rf"\boxed{{{q.reference}}}" for q in load(benchmark(name), [folder]).questions}
