"""Documents of a warm start whose solver errs in three families alone: `python -m studies.narrow 960 FILE`.

Elsewhere it is always right. So a cause that is true points to few families, and one that is drawn at random
mostly points elsewhere: what causes say can matter here (docs/reference/study-lm.md).
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from diagevo.arithmetic.corpus import WARM_SHARE, documents
from diagevo.arithmetic.families import family
from diagevo.sampling.sampler import Message

NARROW = ("minutes", "compare", "window")
"""Families of the tail, which free exploration hardly writes: `mean_at_k/tail` is their score."""
SEED = 11


def narrow_documents(seed: int) -> Iterator[list[Message]]:
    """Endless chat turns; the solver's of a narrow family come with mistakes at their full chances."""
    wrong = (turns for turns in _turns(seed, 1.0) if _is_narrow(turns))
    for turns in _turns(seed + 1, 0.0):
        yield next(wrong) if _is_narrow(turns) else turns


def _turns(seed: int, scale: float) -> Iterator[list[Message]]:
    for prompt, completion in documents(seed, scale, share=WARM_SHARE):
        yield [*prompt, {"role": "assistant", "content": completion}]


def _is_narrow(turns: list[Message]) -> bool:
    """Of the solver: a prompt of the challenger's is no question of the world."""
    return family(turns[-2]["content"]) in NARROW


def main(count: str, file: str) -> None:
    with Path(file).open("w", encoding="utf-8") as lines:
        lines.writelines(
            f"{json.dumps({'messages': turns}, ensure_ascii=False)}\n"
            for turns in islice(narrow_documents(SEED), int(count))
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
