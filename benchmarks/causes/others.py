"""Failures that others labelled, from a folder of their repositories: nothing of them is shipped.

- `EIC`: LittleCirc1e/EIC, `data/generated_cases_*` (arXiv:2406.00755): correct solutions of GSM8K and
  MathQA into which a language model put one of nine errors, with the step.
- `MR-GSM8K`: dvlab-research/MR-GSM8K, `eval_results/gpt4-grading` (arXiv:2312.17080): solutions of models
  whose first wrong step people labelled; of original and of reversed questions.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.causes.rows import LabelledRow

EIC = {"GSM8K": "generated_cases_GSM8K", "MathQA": "generated_cases_MathQA"}
OTHER_STEPS = "wrong_step_calculation_error"
"""Cases sorted by step, not by error."""


def sets(folder: Path) -> Iterator[tuple[str, list[LabelledRow]]]:
    """Each set that the folder has, with its name."""
    for part, name in EIC.items():
        files = sorted((folder / "EIC" / "data" / name).glob("*/*/generated_cases_clean.jsonl"))
        if found := [row for file in files if OTHER_STEPS not in file.parts for row in _eic(file)]:
            yield f"EIC, {part}", found
    files = sorted((folder / "MR-GSM8K" / "eval_results" / "gpt4-grading").glob("*_eval_results.json"))
    labelled = {case["uuid"]: case for file in files for case in json.loads(file.read_text(encoding="utf-8"))}
    for kind in ("original", "reversed"):
        if found := [row for case in labelled.values() if case["question_type"] == kind for row in _mr(case)]:
            yield f"MR-GSM8K, {kind}", found


def _eic(file: Path) -> Iterator[LabelledRow]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        if not line.strip():
            continue
        case = json.loads(line)
        question, group = case["question"], f"{file.parts[-3]} {number}"
        yield LabelledRow(question, case["original_solution"], 1.0, group)
        wrong = case["wrong_step"] - 1
        yield LabelledRow(question, case["transformed_solution"], 0.0, group, file.parts[-3], wrong)


def _mr(case: dict) -> Iterator[LabelledRow]:
    """Steps that people judged wrong, beside the true solution. The label is empty: they name no types."""
    if case["model_output_solution_correctness"] != "wrong":
        return
    wrong = case["model_output_solution_first_error_step"]
    steps = [re.sub(r"\s*\n\s*", " ", step) for step in case["model_output_steps"]]
    group, question = case["uuid"], case["question"]
    yield LabelledRow(question, case["ground_truth_solution"], 1.0, group)
    yield LabelledRow(
        question, "\n".join(steps), 0.0, group, "", wrong - 1 if isinstance(wrong, int) else None
    )
