"""The part of a machine that does not play the run itself: ranks of its own in every phase of it."""

import time
from collections.abc import Callable
from pathlib import Path

from diagevo.errors import ConfigError
from diagevo.sampling.supervised import SupervisedProcess, ending
from diagevo.training.launch_spec import NAME, LaunchSpec
from diagevo.training.ranks import start_ranks

_LOOK = 0.5  # seconds between two looks for a new phase
_LEAVE = 30.0  # seconds that ranks get to end by themselves once their phase is over


def join(
    folder: Path, machine: int, *, is_played: Callable[[], bool | None], say: Callable[[str], None]
) -> None:
    """Start the ranks of `machine` in each phase of the run in `folder`, until nobody plays it any more.

    Waits for a run that is not played yet, or of which `is_played` cannot tell yet (None). What goes wrong in
    a phase is told; the machine that plays the run decides what follows. Raises ConfigError where the run
    does not count on this machine.
    """
    seen, waited = "", False
    while is_played() is not True:
        if not waited:
            say("waiting for the run to be played")
            waited = True
        time.sleep(2 * _LOOK)
    while is_played() is not False:
        found = _newest(folder)
        if found is None or found[1].key == seen:
            time.sleep(_LOOK)
            continue
        spec_file, spec = found
        seen = spec.key
        if machine >= spec.hardware.machines:
            raise ConfigError(
                f"there is no machine {machine}: the run trains on machines 0 to"
                f" {spec.hardware.machines - 1}",
                hint="hardware.machines of the run says how many",
            )
        phase = spec_file.parent.relative_to(folder)
        say(f"joining {phase}")
        ranks = start_ranks(spec_file, spec, machine)
        try:
            _wait(ranks, spec_file)
            for rank in ranks:
                if (status := rank.status()) != 0:
                    how = "had to be ended" if status is None else ending(status)
                    say(f"{phase}: a rank {how}; its log: {rank.log}")
        finally:
            for rank in ranks:
                rank.stop()


def _newest(folder: Path) -> tuple[Path, LaunchSpec] | None:
    """The phase that is being played, from the file that lies there meanwhile (see launch.py)."""
    files: list[tuple[float, Path]] = []
    for file in folder.glob(f"rounds/*/*/{NAME}"):
        try:
            files.append((file.stat().st_mtime, file))
        except FileNotFoundError:
            continue
    if not files:
        return None
    _, newest = max(files)
    try:
        return newest, LaunchSpec.read(newest)
    except FileNotFoundError:
        return None


def _wait(ranks: list[SupervisedProcess], spec_file: Path) -> None:
    """Until all ranks have ended, or a while after the phase is over or one of them has failed."""
    leave: float | None = None
    while any(rank.status() is None for rank in ranks):
        over = not spec_file.exists() or any(rank.status() not in (None, 0) for rank in ranks)
        if over and leave is None:
            leave = time.monotonic() + _LEAVE
        if leave is not None and time.monotonic() > leave:
            return
        time.sleep(_LOOK)
