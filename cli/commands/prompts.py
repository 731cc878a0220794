"""`diagevo memory schedule --prompts`: a weight for each prompt of a data set."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.text.numbers import number

from ..call import Call
from ..opening import where
from ..render import console as render
from ..render.result import Result
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.memory.history import AsOf, History

WEIGHTS = (
    Column("line", align="right"),
    Column("weight", align="right", digits=6),
    Column("cause"),
    Column("stitched"),
    Column("prompt", show=lambda prompt: prompt[:SHOWN]),
)
SHOWN = 60
"""Characters of a prompt in a table."""


def weigh(call: Call, history: "History", as_of: "AsOf", file: Path) -> Result[Any]:
    """The weights of a file's prompts for the round after `as_of`."""
    from diagevo.ingest.aims import LastFailures
    from diagevo.ingest.weights import prompts_of, weights

    prompts = prompts_of(file)
    last = LastFailures()
    last.read(history.log, history.run_id, history.state(as_of).counted(range(1, as_of.round + 1)))
    schedule = history.state(as_of).next_schedule()
    found, unreached = weights(schedule, last, prompts)
    aimed = sum(1 for weight in found if weight.cause is not None)
    render.say(call, f"{aimed} of {len(found)} prompts aim at a cause; weights sum to 1")
    if unreached:
        share = number(unreached)
        render.say(call, f"causes with {share} of F have no prompt here: their share is spread evenly")
    return Result([asdict(each) for each in found], WEIGHTS, run=history.run_id, as_of=where(as_of))
