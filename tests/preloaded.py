"""What a program that trains imports, which is most of its start (forked.py). None of it starts threads."""

import os
from importlib.metadata import entry_points

os.environ["HF_HUB_OFFLINE"] = "1"  # Hugging Face's packages look once, when they are imported.

import transformers

import diagevo.run
import diagevo.sampling.transformers_sampler
import diagevo.training.trainer

LOADED = (diagevo.run, diagevo.sampling, diagevo.training.trainer, transformers.AutoModelForCausalLM)


[_diagevo] = entry_points(group="console_scripts", name="diagevo")
app = _diagevo.load()


def program() -> None:
    """The program `diagevo`."""
    app()
