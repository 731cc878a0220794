"""Which answers agree: decided here where numbers and simple terms decide it, by math-verify for the rest.

`agree` is symmetric, deterministic and bounded in time: what a worker process cannot settle within its CPU time
counts as "not equal", and is counted. `docs/equivalence.md` says what agrees with what, and why.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from diagevo.selfplay.algebra import AlgebraPool, Outcome
from diagevo.selfplay.answers import extract_boxed, extract_choice
from diagevo.selfplay.comparison import decide, expressions
from diagevo.selfplay.votes import Votes, count

__all__ = ["AnswerChecker", "agree", "extract_boxed", "extract_choice"]

CACHED_PAIRS = 500_000
"""Pairs remembered before the oldest are forgotten; a round asks for some hundred thousand at most."""


class _NeedsAlgebra(Exception):
    """The pair cannot be decided without a worker process."""


class AnswerChecker:
    """Answer agreement with a cache and a pool of worker processes, for any number of threads.

    Worker processes start with the first pair that needs one and end with `close` or the `with` block. Every
    verdict depends on the two texts alone, so a partition is the same with one worker and with many.
    """

    def __init__(self, workers: int | None = None, seconds: float = 3.0) -> None:
        """`workers`: processes, by default one a core up to eight. `seconds`: CPU time a comparison may take."""
        self.workers = workers or min(8, os.cpu_count() or 1)
        self.seconds = seconds
        self._verdicts: dict[tuple[str, str], bool] = {}
        self._lock = threading.Lock()
        self._pool = AlgebraPool(self.workers, seconds)
        self._process = os.getpid()
        self.timeouts = 0
        """Pairs called "not equal" because their comparison ran out of time."""
        self.crashes = 0
        """Pairs called "not equal" because worker processes died over them twice (out of memory, say)."""
        self.refused = 0
        """Pairs called "not equal" because they are too large to be handed to a computer-algebra system."""
        self.asked = 0
        """Pairs that needed a worker process."""

    def __enter__(self) -> AnswerChecker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes. The cache stays, and a later comparison starts them again."""
        if self._process == os.getpid():
            self._pool.close()

    def agree(self, a: str, b: str) -> bool:
        """Whether two answers are the same. Symmetric. See `docs/equivalence.md` for the rules."""
        return self._agree(a, b, wait=True)

    def agree_many(self, pairs: Iterable[tuple[str, str]]) -> list[bool]:
        """`agree` for each pair, in order, on all workers at once."""
        pairs = list(pairs)
        return self._each(pairs, lambda pair, wait: self._agree(*pair, wait=wait))

    def group(self, answers_per_question: Sequence[Sequence[str | None]]) -> list[Votes]:
        """The votes of each question from its extracted answers in sample order (None: no box, no vote)."""
        return self._each(
            answers_per_question,
            lambda answers, wait: count(answers, lambda a, b: self._agree(a, b, wait=wait)),
        )

    def _each(self, items, work):
        """`work` on each item: at once where no worker process is needed, else side by side."""
        results = []
        later: list[int] = []
        for i, item in enumerate(items):
            try:
                results.append(work(item, False))
            except _NeedsAlgebra:
                results.append(None)
                later.append(i)
        if len(later) == 1 or self.workers == 1:
            for i in later:
                results[i] = work(items[i], True)
        elif later:
            with ThreadPoolExecutor(self.workers, thread_name_prefix="answers") as threads:
                for i, result in zip(later, threads.map(lambda i: work(items[i], True), later), strict=True):
                    results[i] = result
        return results

    def _agree(self, a: str, b: str, *, wait: bool) -> bool:
        if a == b:
            return bool(a.strip())
        pair = (a, b) if a < b else (b, a)
        verdict = self._verdicts.get(pair)
        if verdict is None:
            verdict = decide(*pair)
            if verdict is None:
                if not wait:
                    raise _NeedsAlgebra
                verdict = self._ask(*pair)
            with self._lock:
                self._verdicts[pair] = verdict
                if len(self._verdicts) > CACHED_PAIRS:
                    del self._verdicts[next(iter(self._verdicts))]
        return verdict

    def _ask(self, a: str, b: str) -> bool:
        texts = expressions(a, b)
        if texts is None:
            outcome = None
        else:
            if self._process != os.getpid():  # a fork: the parent's pipes are not ours
                self._process = os.getpid()
                self._pool = AlgebraPool(self.workers, self.seconds)
            outcome = self._pool.compare(*texts)
        with self._lock:
            self.asked += texts is not None
            self.refused += texts is None
            self.timeouts += outcome is Outcome.TIMEOUT
            self.crashes += outcome is Outcome.CRASH
        return outcome is Outcome.AGREE


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
