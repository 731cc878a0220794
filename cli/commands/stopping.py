"""What Ctrl-C and SIGTERM do to a command that stops at a safe point."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from diagevo.progress import StopFlag, handling_stops


@contextmanager
def stopped_by_signals(stop: StopFlag, *, waits: bool = False) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks for a safe stop, the second ends the program at once. `waits`: the
    command waits for input, so a stop is its normal end."""

    def ask(number: int, _frame: FrameType | None) -> None:
        again = bool(stop)
        stop.set()
        if again:
            raise KeyboardInterrupt
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        print(
            f"\n{name}: stopping at the next safe point; repeat to stop at once",
            file=sys.stderr,
            flush=True,
        )

    with handling_stops(ask):
        yield
    if stop and not waits:
        print("finished before the next safe point: everything is done", file=sys.stderr)
