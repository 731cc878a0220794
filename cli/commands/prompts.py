"""`diagevo memory schedule --dataset`: a weight for each prompt of a data set, and its next epoch."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError
from diagevo.text.escaping import one_line
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


def weigh(call: Call, history: "History", as_of: "AsOf", file: Path) -> Result[Any] | None:
    """The weights of a data set's prompts for the round after `as_of`; with `-o` the next epoch of it."""
    from diagevo.ingest.aims import LastFailures
    from diagevo.ingest.dataset import read_dataset
    from diagevo.ingest.rounds import ingested_prompts
    from diagevo.ingest.weights import weights

    dataset, logged = read_dataset(file), ingested_prompts(history.log, history.run_id)
    count = len(dataset.prompts)
    matched = dataset.match(logged)
    if not matched:
        example = next(iter(logged.values()), None)
        raise ConfigError(
            f"none of the {count:,} prompts of {file} was rolled out in run {history.run_id}"
            + ("" if example is None else f", whose first prompt is: {one_line(example)[:SHOWN]}…"),
            hint="name the data set that the training read, with prompt, question, problem or messages a row",
        )
    last = LastFailures()
    last.read(history.log, history.run_id, history.state(as_of).counted(range(1, as_of.round + 1)))
    schedule = history.state(as_of).next_schedule()
    found, unreached = weights(schedule, last, dataset)
    aimed = sum(1 for weight in found if weight.cause is not None)
    notes = [f"{matched:,} of {count:,} prompts were rolled out, {aimed:,} aim at a cause; weights sum to 1"]
    if unreached:
        notes.append(
            f"{number(unreached)} of F is of causes without a prompt here: that share is spread evenly"
        )
    if call.output is not None and call.format in ("parquet", "jsonl"):
        seed = f"{history.state(as_of).settings.seed}.{schedule.round}"
        places = dataset.next_epoch([each.weight for each in found], seed)
        columns = {
            "diagevo_weight": [float(each.weight) for each in found],
            "diagevo_cause": [each.cause for each in found],
        }
        dataset.write(call.output, places, columns)
        different = len(set(places))
        notes.append(f"{call.output}: {len(places):,} rows, {different:,} of them different")
        render.say(call, "\n".join(notes))
        return None
    return Result(
        [asdict(each) for each in found], WEIGHTS, run=history.run_id, as_of=where(as_of), notes=notes
    )
