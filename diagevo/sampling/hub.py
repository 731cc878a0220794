"""A model from the hub, fetched by `python -m diagevo.sampling.hub MODEL REVISION [PATTERN...]`.

A process can be ended at any moment, huggingface_hub's threads cannot. What was fetched so far stays.
"""

import subprocess
import sys
from pathlib import Path

from diagevo.errors import MissingDependencyError
from diagevo.progress import StopFlag

TEXTS = ("*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")
"""A model folder's files other than its weights."""


def folder_of(model: str, revision: str | None, stop: StopFlag, *, weights: bool = True) -> Path:
    """The folder of a model in the hub's cache, fetched if missing; only its configuration and tokenizer
    unless `weights`.

    Raises StoppedSafely as soon as `stop` is set, MissingDependencyError if the model is unavailable.
    """
    asked = [model, revision or "", *(() if weights else TEXTS)]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "diagevo.sampling.hub", *asked],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C comes to us alone
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    stop.check(f"while {model} was fetched from the hub")
        finally:
            process.kill()
    if process.returncode == 0:
        return Path(output.strip())
    raise MissingDependencyError(
        f"{model} is not a model folder here, and it could not be fetched from the hub: {output.strip()}",
        hint="name a folder written by save_pretrained, or download the model first",
    )


def main() -> int:
    from huggingface_hub import snapshot_download

    model, revision, *patterns = sys.argv[1:]
    try:
        print(snapshot_download(model, revision=revision or None, allow_patterns=patterns or None))
    except (OSError, ValueError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
