"""A start whose solver errs in two families alone: `python -m studies.narrow 1440 DOCUMENTS QUESTIONS`.

A small model learns few families well in so many documents: six of the fourteen. It is taught what is right
in four of them, and two with mistakes at their full chances; the challenger writes the six alike. So a cause
that is true points to two families, and one that is drawn at random mostly elsewhere: what causes say can
matter here (docs/reference/study-lm.md).
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from diagevo.arithmetic.corpus import documents
from diagevo.arithmetic.families import family
from diagevo.arithmetic.grammar import FAMILIES, parse
from diagevo.arithmetic.heldout import held_out
from diagevo.sampling.sampler import Message

NARROW = ("minutes", "doubling")
RIGHT = ("mirror", "fence", "coins", "jumps")
SHARE = 0.2
"""The challenger's part of the documents, before those of other families are left out."""
QUESTIONS = 30
"""Of each of the two families, which alone are measured."""
SEED = 11
_FREE = {name: float(name in NARROW + RIGHT) for name in FAMILIES}


def narrow_documents(seed: int) -> Iterator[list[Message]]:
    """Endless chat turns; the solver's of a narrow family come with mistakes at their full chances."""
    wrong = (turns for turns in _turns(seed, 1.0) if _is_narrow(turns))
    for turns in _turns(seed + 1, 0.0):
        yield next(wrong) if _is_narrow(turns) else turns


def narrow_questions() -> Iterator[tuple[str, str]]:
    """Held-out questions with their answers, the first of each family."""
    taken: Counter[str | None] = Counter()
    for question, answer in held_out():
        if (name := family(question)) in NARROW and taken[name] < QUESTIONS:
            taken[name] += 1
            yield question, answer


def _turns(seed: int, scale: float) -> Iterator[list[Message]]:
    for prompt, completion in documents(seed, scale, free=_FREE, share=SHARE):
        turns: list[Message] = [*prompt, {"role": "assistant", "content": completion}]
        written = completion.removeprefix("<question> ").removesuffix(" </question>")
        parts = parse(turns[-2]["content"]) or parse(written) or ()
        if all(part.family in NARROW + RIGHT for part in parts):
            yield turns


def _is_narrow(turns: list[Message]) -> bool:
    """Of the solver: a prompt of the challenger's is no question of the world."""
    return family(turns[-2]["content"]) in NARROW


def main(count: str, documents_file: str, questions_file: str) -> None:
    turns = islice(narrow_documents(SEED), int(count))
    _write(documents_file, [{"messages": each} for each in turns])
    _write(questions_file, [{"question": q, "answer": a} for q, a in narrow_questions()])


def _write(file: str, rows: list[dict[str, object]]) -> None:
    Path(file).write_text(
        "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
