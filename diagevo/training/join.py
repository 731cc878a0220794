"""Another machine's part of training: `python -m diagevo.training.join RUN MACHINE`, until it is interrupted.

RUN is the run's folder, on a disk that all machines share; `diagevo train` runs on machine 0. Whenever a
phase begins there, this starts the ranks of this machine, and ends them with it. All machines need the same
secret in DIAGEVO_LAUNCH_KEY.
"""

import sys
import time
from pathlib import Path

from diagevo.errors import DiagEvoError
from diagevo.sampling.supervised import SupervisedProcess
from diagevo.training.job import JOB_FILE, Job, connection_key
from diagevo.training.ranks import start_ranks

POLL_SECONDS = 0.5


def _announced(run: Path) -> tuple[Path, int] | None:
    """The job of the phase that is played now, and when it was written."""
    jobs = [(file, file.stat().st_mtime_ns) for file in run.glob(f"rounds/*/*/{JOB_FILE}")]
    return max(jobs, key=lambda job: job[1], default=None)


def join(run: Path, machine: int) -> None:
    key = connection_key()
    playing: tuple[Path, int] | None = None
    ranks: list[SupervisedProcess] = []
    try:
        while True:
            if (job := _announced(run)) != playing:
                for rank in ranks:
                    rank.stop()
                playing, ranks = job, []
                if job is not None:
                    file, _ = job
                    ranks = start_ranks(file, Job.read(file).hardware, file.parent, key, machine)
                    print(f"machine {machine}: {file.parent}", file=sys.stderr, flush=True)
            time.sleep(POLL_SECONDS)
    finally:
        for rank in ranks:
            rank.stop()


def main() -> int:
    try:
        join(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
    except (IndexError, ValueError):
        print("usage: python -m diagevo.training.join RUN_FOLDER MACHINE", file=sys.stderr)
        return 2
    except DiagEvoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
