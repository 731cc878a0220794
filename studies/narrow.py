"""A start whose solver errs in two families alone: `python -m studies.narrow 1600 DOCUMENTS QUESTIONS`.

Elsewhere it is taught what is right, and the challenger to write all families alike. So a cause that is true
points to few families, and one that is drawn at random mostly elsewhere: what causes say can matter here
(docs/reference/study-lm.md). Of the questions the two families are the only ones of the middle:
`mean_at_k/middle` is their score.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from diagevo.arithmetic.corpus import ALIKE, documents
from diagevo.arithmetic.families import family, group
from diagevo.arithmetic.heldout import held_out
from diagevo.sampling.sampler import Message

NARROW = ("quotient", "doubling")
SHARE = 0.25
"""The challenger's part of the documents."""
QUESTIONS, ELSEWHERE = 30, 2
"""Of each of the two families, and of each family of head and tail."""
SEED = 11


def narrow_documents(seed: int) -> Iterator[list[Message]]:
    """Endless chat turns; the solver's of a narrow family come with mistakes at their full chances."""
    wrong = (turns for turns in _turns(seed, 1.0) if _is_narrow(turns))
    for turns in _turns(seed + 1, 0.0):
        yield next(wrong) if _is_narrow(turns) else turns


def narrow_questions() -> Iterator[tuple[str, str]]:
    """Held-out questions with their answers, the first of each family."""
    taken: Counter[str] = Counter()
    for question, answer in held_out():
        name = str(family(question))
        if group(question) != "middle" or name in NARROW:
            taken[name] += 1
            if taken[name] <= (QUESTIONS if name in NARROW else ELSEWHERE):
                yield question, answer


def _turns(seed: int, scale: float) -> Iterator[list[Message]]:
    for prompt, completion in documents(seed, scale, free=ALIKE, share=SHARE):
        yield [*prompt, {"role": "assistant", "content": completion}]


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
