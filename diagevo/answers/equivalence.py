r"""Which answers agree: decided here where numbers and simple terms decide it, by math-verify for the rest.

`agree` is symmetric, deterministic and bounded in time. What a worker process cannot settle within its CPU
time, and what is too large to be handed to one, is "not equal" and counted; so is, in a vote, what would be
asked after its pairs together have taken `QUESTION` times that. The rules, where graders differ:

- A text with a box states its last box that says something; boxes before it count where only signs, or one
  "and"/"or" and a few words, stand between. A text that is one formula states it, whatever its delimiters
  hold, line breaks too. In other prose math-verify looks for the answer.
- What is not read whole is not compared: answers with a command or a word that nobody here understands
  (5 ⊕ 7, 1+2+…+n) agree if they are spelled alike.
- Names of functions, constants and operators in letters are what they name: arctan(2), alpha/beta, abs(-3),
  (-inf, 3), 3 times 4. Where other words stand around them they are words (the alpha particle), but a name
  with its argument in brackets is a function everywhere.
- 2^{3}4 is 32 and not 2^{34}; 12 5 is neither 125 nor 60; thin spaces part thousands.
- The words around an answer name it: "the minimum is 6" and rank A = 3 agree with 6 and 3, but not with "the
  maximum is 6" and nullity A = 3. "At least 3" is not 3. In a text that ends in `#### 18` or in bold, that is
  the answer. "For all n" may be left out where n is in the answer.
- The type comes before arithmetic: 5-7 is a range, 2023-01-05 a date, v1.10 a version, BAC and A1 are codes,
  3 R 2 is a division with remainder, 3 mod 7 a residue (and 10 mod 7 the same one). Spaced and falling, 7 - 5
  is a difference. A date like 1/5/2023 agrees with itself alone: which is the month, nobody knows.
- A letter that a sum binds or that has a power is no unit: Σ k² is not Σ k. The labels of parts are no
  factors: (a) 5 (b) 3 is the pair (5, 3). 3 by 4 is a size, not 12. "x > 1 and x < 2" is (1, 2).
- Text is compared after NFKC; powers, fractions and accents in Unicode are what they are in LaTeX. 0x1F,
  0.(3), 0.333…, "twenty-five", 5k, 2 dozen and 3 lakh are numbers.
- Numbers are compared as fractions: 649 is 3245/5, 0.5 is 1/2. A decimal also agrees with what rounds to it
  at the sixth place: 0.333333 is 1/3, 0.33 is not, 0.6054 is not cos(π/10)^10. A tolerance of one
  question's own (a benchmark's precision of 1e-4, of 1e34) is not known here; answers that need one differ.
  1/3 ≈ 0.33 agrees with 1/3 and with 0.33, and with another such pair if the exact sides agree.
- 28% agrees with 28 and with 0.28: questions ask for a percentage either way. 28 and 0.28 differ. Of what is
  counted it is a share: 50% is 1/2 of the total, but 5% is no 5 apples. Percentage points are no percentage.
- Units of one dimension are converted: 500 cm is 5 m, 1 hour 30 minutes is 90 minutes, 0 °C is 32 °F, 5 m is
  no 5 s and $5 no €5. An answer without a unit agrees with one that has any. Other words behind a number are
  compared: 12 ways is 12 different ways, not 12 apples. 204_5 agrees with 204 and 204_5, not with 204_6.
- 1,000 and 1 000 are a thousand, "1, 000" is a list; 1,22 may be 1.22 or a list of two, and 12,34,567 a
  number or a list of three. Between semicolons 1,5 is a decimal; 1.234,56 is 1234.56.
- A bare list and a set have no order and no multiplicity: 4, 10, -2 is 10, 4, -2. Brackets and dots keep the
  order, and (1, 2) is neither [1, 2] nor {1, 2}; [[1, 2], [3, 4]] is a matrix. A bare list may stand for a
  tuple in its order: 1, 3 is (1, 3). A set within a set is no item of it: {{1}} is not {1}.
- x = 5 agrees with 5, a chain of equations with its last side; x = 1 is not y = 1; an equation between terms
  (a + 3z = 0) is not its right side, unless names alone stand on its left (a + b = 7). Unknowns keep their
  names: f(x) is not f(y). z may be complex: |z|² is not z².
- An inequality is its interval in both directions: -2 ≤ x ≤ 7 is x ∈ [-2, 7] is [-2, 7]. "k ∈ ℤ" may be left
  out where k numbers the solutions; any other domain may not.
- Text answers agree by their words, whatever their case; a single letter keeps its case, and a sign behind a
  letter counts (A-). A and B is not A or B, A × B of capitals or vectors is not B × A, ~p is not p. 2:4 is
  1:2 unless both are clock times; 15:00 is 3:00 PM.
- A term is what it is worth: 2√2 is √8, (x+1)² is x²+2x+1. What is divided by zero is no number.

These rules are not transitive (5 cm and 5 m both agree with 5), so a vote makes groups in which every two
answers agree (`votes.count`), the same ones whatever the order in which the answers came.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from types import TracebackType
from typing import TypeVar

from diagevo.answers.algebra import AlgebraPool, Ended
from diagevo.answers.comparison import decide, expressions
from diagevo.answers.notation import brief, has_content
from diagevo.answers.votes import Votes, count
from diagevo.progress import StopFlag

Item = TypeVar("Item")
Result = TypeVar("Result")

CACHED_PAIRS = 500_000
"""Pairs remembered before the oldest are forgotten; a round asks for some hundred thousand at most."""

QUESTION = 6
"""Comparisons' worth of CPU time that the pairs of one question may take; honest ones take less than one."""


class _NeedsAlgebra(Exception):
    """The pair cannot be decided without a worker process."""


class AnswerChecker:
    """Answer agreement with a cache and a pool of worker processes, for any number of threads.

    Worker processes start with the first pair that needs one and end with `close` or the `with` block. Every
    verdict depends on the two texts alone, so a partition is the same with one worker and with many.
    """

    def __init__(
        self, workers: int | None = None, seconds: float = 5.0, stop: StopFlag | None = None
    ) -> None:
        """`workers`: processes, by default one a core, eight at most. `seconds`: CPU time of a comparison.
        `stop`: once it is overdue no other comparison is begun, and StoppedSafely is raised."""
        self.workers = workers or min(8, os.cpu_count() or 1)
        self.seconds = seconds
        self._stop = StopFlag() if stop is None else stop
        self._verdicts: dict[tuple[str, str], tuple[bool, float]] = {}
        """With the CPU seconds that each took: a vote comes out the same where its pairs are known."""
        self._lock = threading.Lock()
        self._pool = AlgebraPool(self.workers, seconds)
        self._process = os.getpid()
        self._undecided: set[tuple[str, str]] = set()
        """Pairs called "not equal" because comparing them came to no verdict."""

    def __enter__(self) -> AnswerChecker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def undecided(self, votes: Iterable[Votes]) -> int:
        """Pairs of groups that stand apart only because their comparison came to no verdict: it ran out of
        time or memory, or was too large to begin with."""
        pairs = (pair for each in votes for pair in combinations(sorted(head for head, _ in each.votes), 2))
        return sum((brief(a), brief(b)) in self._undecided for a, b in pairs) if self._undecided else 0

    def close(self) -> None:
        """End the worker processes. The cache stays, and a later comparison starts them again."""
        if self._process == os.getpid():
            self._pool.close()

    def agree(self, a: str, b: str) -> bool:
        """Whether two answers are the same. Symmetric. The rules stand at the head of this module."""
        return self._agree(a, b, wait=True)[0]

    def agree_many(self, pairs: Iterable[tuple[str, str]]) -> list[bool]:
        """`agree` for each pair, in order, on all workers at once."""
        pairs = list(pairs)
        return self._each(pairs, lambda pair, wait: self._agree(*pair, wait=wait)[0])

    def group(self, answers_per_question: Sequence[Sequence[str | None]]) -> list[Votes]:
        """The votes of each question from its extracted answers in sample order. None is no vote, and so is
        an answer that says nothing. The partition is the same in every order of the answers."""
        return self._each(answers_per_question, self._vote)

    def _vote(self, answers: Sequence[str | None], wait: bool) -> Votes:
        left = QUESTION * self.seconds

        def same(a: str, b: str) -> bool:
            nonlocal left
            verdict, seconds = self._agree(a, b, wait=wait, spent=left <= 0)
            left -= seconds
            return verdict

        return count([a if a is not None and has_content(a) else None for a in answers], same)

    def _each(self, items: Sequence[Item], work: Callable[[Item, bool], Result]) -> list[Result]:
        """`work` on each item: at once where no worker process is needed, else side by side."""
        results: dict[int, Result] = {}
        later: list[int] = []
        for i, item in enumerate(items):
            try:
                results[i] = work(item, False)
            except _NeedsAlgebra:
                later.append(i)
        if len(later) == 1 or self.workers == 1:
            for i in later:
                results[i] = work(items[i], True)
        elif later:
            with ThreadPoolExecutor(self.workers, thread_name_prefix="answers") as threads:
                results.update(zip(later, threads.map(lambda i: work(items[i], True), later), strict=True))
        return [results[i] for i in range(len(items))]

    def _agree(self, a: str, b: str, *, wait: bool, spent: bool = False) -> tuple[bool, float]:
        """The verdict and the CPU seconds of a worker that it took. `spent`: it may take none."""
        if a == b:
            return has_content(a), 0.0
        pair = (a, b) if a < b else (b, a)
        key = (brief(pair[0]), brief(pair[1]))
        known = self._verdicts.get(key)
        if known is None:
            verdict = decide(*pair)
            if verdict is None and not wait:
                raise _NeedsAlgebra
            known = None if verdict is None else (verdict, 0.0)
        if spent and (known is None or known[1]):
            self._undecided.add(key)
            return False, 0.0
        if known is None:
            known = self._ask(pair, key)
        with self._lock:
            self._verdicts[key] = known
            if len(self._verdicts) > CACHED_PAIRS:
                del self._verdicts[next(iter(self._verdicts))]
        return known

    def _ask(self, pair: tuple[str, str], key: tuple[str, str]) -> tuple[bool, float]:
        self._stop.check_overdue()
        ended, seconds = None, 0.0
        texts = expressions(*pair)
        if texts is not None:
            if self._process != os.getpid():  # a fork: the parent's pipes are not ours
                self._process = os.getpid()
                self._pool = AlgebraPool(self.workers, self.seconds)
            ended, seconds = self._pool.compare(*texts)
        if ended not in (Ended.AGREE, Ended.DIFFER):
            self._undecided.add(key)
        return ended is Ended.AGREE, seconds


_shared: AnswerChecker | None = None
_shared_lock = threading.Lock()


def agree(a: str, b: str) -> bool:
    """Whether two answers, or two texts that state one, agree: a shared checker with one worker process."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = AnswerChecker(workers=1)
            atexit.register(_shared.close)
    return _shared.agree(a, b)
