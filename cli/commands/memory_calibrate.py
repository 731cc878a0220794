"""`diagevo memory calibrate`: thresholds from judged pairs."""

from typing import Any

from diagevo.text.numbers import count

from .. import options
from ..call import Call
from ..opening import config_of, opened
from ..render.result import Result
from ..render.table import columns

CALIBRATIONS = columns(
    "threshold, model, current: current: 2, proposed: proposed: 2, same: judged same, "
    "same_kept: of them above: 2, different: judged different, different_kept: of them above: 2, "
    "unrelated_kept: unrelated above: 2"
)


@options.command(
    "memory calibrate",
    reads=options.CONFIGURATION,
    rows=True,
    example="""diagevo memory calibrate
    diagevo memory calibrate --set 'roles.embedder={engine: sentence-transformers, model: all-MiniLM-L6-v2}'
    """,
)
def calibrate(call: Call) -> Result[Any]:
    """Propose θ_dup and θ_merge for an embedding model.

    They come from pairs that the diagnostician has judged. The proposal lets 95 of 100 pairs through that
    were judged the same. Another model: --set roles.embedder.…, or -c FILE. Writes nothing.
    """
    from diagevo.diagnosis.calibrate import calibrate as propose
    from diagevo.diagnosis.embedder import embedder_for

    with opened(call) as history:
        config = config_of(call, history)
        found = propose(history.log, history.run_id, embedder_for(config.roles.embedder), config.memory)
    notes = [
        f"{line.threshold}: no pair was judged the same, so nothing is proposed"
        if line.proposed is None
        else f"{line.threshold}: {count(line.same, 'pair')} judged the same: too few to rely on"
        for line in found
        if line.proposed is None or not line.enough
    ]
    return Result(found, CALIBRATIONS, run=history.run_id, notes=notes)
