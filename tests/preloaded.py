"""What a program that trains imports, which is most of its start (forked.py). None of it starts threads: what
another thread holds locked at a fork stays locked in the child."""

import ctypes
import gc
import os
import signal
from importlib.metadata import entry_points
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # Hugging Face's packages look once, when they are imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # pyarrow's, which datasets imports
os.environ["DISABLE_MLFLOW_INTEGRATION"] = "TRUE"  # TRL would import it, and it polars, which starts three

import transformers
from diagevo.cli.screens.display import JsonDisplay  # pyright: ignore[reportMissingImports]  (cli/, as installed)

import diagevo.loop.run
import diagevo.sampling.transformers_sampler
import diagevo.training.trainer

LOADED = (diagevo.loop.run, diagevo.sampling, diagevo.training.trainer, transformers.AutoModelForCausalLM)


[_diagevo] = entry_points(group="console_scripts", name="diagevo")
app = _diagevo.load()
gc.freeze()  # no program looks for garbage among it
THREADS = len(os.listdir("/proc/self/task"))


def say_threads() -> None:
    """Print how many the process has that programs are forked from."""
    print(THREADS)


def program() -> None:
    """The program `diagevo`; with the disks that the process HOLDER sees, where there is one.

    STANDS_STILL: events, as "votes:stage_progress". It stops itself at the line of each.
    """
    if holder := os.environ.get("HOLDER"):
        libc = ctypes.CDLL(None, use_errno=True)
        for kind in ("user", "mnt"):
            with open(f"/proc/{holder}/ns/{kind}") as namespace:
                if libc.setns(namespace.fileno(), 0):
                    raise OSError(ctypes.get_errno(), f"the {kind} namespace of process {holder}")
    _stand_still_at(os.environ.get("STANDS_STILL", "").split())
    app()


def _stand_still_at(moments: list[str]) -> None:
    heard = JsonDisplay.on_event

    def heard_and_stopped(display: JsonDisplay, event: str, **what: Any) -> None:
        heard(display, event, **what)
        if (moment := f"{what.get('stage')}:{event}") in moments:
            moments.remove(moment)
            os.kill(os.getpid(), signal.SIGSTOP)

    JsonDisplay.on_event = heard_and_stopped
