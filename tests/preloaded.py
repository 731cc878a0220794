"""What a program that trains imports, which is most of its start (forked.py). None of it starts threads."""

import ctypes
import gc
import os
import signal
from importlib.metadata import entry_points
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # Hugging Face's packages look once, when they are imported.

import transformers
from diagevo.cli.screens.display import JsonDisplay  # pyright: ignore[reportMissingImports]  (cli/, as installed)

import diagevo.loop.run
import diagevo.sampling.transformers_sampler
import diagevo.training.trainer

LOADED = (diagevo.loop.run, diagevo.sampling, diagevo.training.trainer, transformers.AutoModelForCausalLM)


[_diagevo] = entry_points(group="console_scripts", name="diagevo")
app = _diagevo.load()
gc.freeze()  # no program looks for garbage among it


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
