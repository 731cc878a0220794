"""`diagevo memory schedule --dataset`: a weight for each prompt of a data set, and its next epoch."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.text.numbers import number

from ..call import Call
from ..render import console as render
from ..render.result import Result
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.memory.history import AsOf, History

SHOWN = 60
"""Characters of a prompt in a table."""
WEIGHTS = columns("line, weight: weight: 6, cause, stitched, prompt", prompt=lambda prompt: prompt[:SHOWN])


def weigh(call: Call, history: "History", as_of: "AsOf", file: Path) -> Result[Any] | None:
    """The weights of a data set's prompts for the round after `as_of`; with `-o` the next epoch of it."""
    from diagevo.ingest.dataset import read_dataset
    from diagevo.ingest.weights import weigh as weighed

    state = history.state(as_of)
    ingested: dict[str, Any] = (state.config or {}).get("ingest") or {}
    dataset = read_dataset(file, (ingested.get("map") or {}).get("prompt"))
    schedule = state.schedule()
    found = weighed(history.log, state, schedule, dataset)
    count, aimed = len(found.prompts), sum(1 for each in found.prompts if each.cause is not None)
    notes = [
        f"{found.matched:,} of {count:,} prompts were rolled out, {aimed:,} aim at a cause; weights sum to 1"
    ]
    if found.unreached:
        share = number(found.unreached)
        notes.append(f"{share} of F is of causes without a prompt here: that share is spread evenly")
    if found.never:
        notes.append(
            f"{found.never:,} of them never passed, and so aim at no cause: they have the even share;"
            f" where the answer is known: diagevo diagnose --run {history.run_id} --again --all-failed"
        )
    if call.output is not None and call.format in ("parquet", "jsonl"):
        seed = f"{state.settings.seed}.{schedule.round}"
        places = dataset.next_epoch([each.weight for each in found.prompts], seed)
        columns = {
            "diagevo_weight": [float(each.weight) for each in found.prompts],
            "diagevo_cause": [each.cause for each in found.prompts],
        }
        dataset.write(call.output, places, columns)
        different = len(set(places))
        notes.append(f"{call.output}: {len(places):,} rows, {different:,} of them different")
        render.say(call, "\n".join(notes))
        return None
    return Result(
        [asdict(each) for each in found.prompts], WEIGHTS, run=history.run_id, as_of=as_of, notes=notes
    )
