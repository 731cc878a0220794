"""Writes the draws of the next round to a file, for a training in another process whose rollouts are
followed. The file is JSON, replaced atomically with each commit. `integrations/next_draws.py` reads it in the
trainer.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from diagevo.errors import ConfigError, ServiceError, StoppedSafely
from diagevo.ingest.dataset import PromptDataset
from diagevo.ingest.weights import weigh
from diagevo.memory.memory import Memory
from diagevo.memory.state.projected_schedule import Schedule
from diagevo.private import atomic_file
from diagevo.text.escaping import json_text

DRAWS = 4096
"""Draws in the file: eight steps of 512 prompts. In a longer round they repeat."""


class Steering:
    """Diagnoses the rounds of a followed training, and keeps the draws of the next one in `file`.

    Args:
        file: Where they are
        written. dataset: The training's data set: each draw names a row of it. None: draws without rows.
        diagnose: Diagnoses and commits the open round.
        check: Refuses a configuration without a usable diagnostician, before anything is
        recorded. say: Receives messages.
    """

    def __init__(
        self,
        file: Path,
        dataset: PromptDataset | None,
        diagnose: Callable[[Memory], object],
        check: Callable[[Mapping[str, Any]], object],
        say: Callable[[str], None],
    ) -> None:
        self._file, self._dataset, self._diagnose, self.check, self._say = file, dataset, diagnose, check, say

    def play(self, memory: Memory) -> bool:
        """Diagnose and commit the open round, and serve the next draws. An unreachable service does not end
        a followed training: returns False, and the round waits for the next step. The same holds after
        Ctrl-C."""
        try:
            self._diagnose(memory)
        except (ServiceError, StoppedSafely) as error:
            self._say(f"round {memory.state.last_opened} waits for the next step: {error.message}")
            return False
        self.serve(memory)
        return True

    def serve(self, memory: Memory) -> None:
        """Rewrite the file. Raises ConfigError if it cannot be written, or no row was rolled out."""
        schedule = memory.schedule(memory.state.round + 1)
        found = served(memory, schedule, self._dataset)
        try:
            with atomic_file(self._file) as part:
                part.write_text(f"{json_text(found)}\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{self._file} cannot be written: {error}", hint="name a file in a folder that can be written"
            ) from error
        self._say(f"round {schedule.round}: ε = {schedule.epsilon}, its draws are in {self._file}")


def served(memory: Memory, schedule: Schedule, dataset: PromptDataset | None) -> dict[str, Any]:
    """The content of the file: ε, p and the causes of a round, and its draws in order."""
    rows, aiming = Random(f"{memory.state.settings.seed}.{schedule.round}.rows"), dict[str, list[int]]()
    if dataset is not None and schedule.causes:
        for place, each in enumerate(weigh(memory.log, memory.state, schedule, dataset).rows):
            if each.cause is not None:
                aiming.setdefault(each.cause, []).append(place)

    def row(cause_id: str | None) -> int | None:
        """A row that aims at the cause; any row if none does or the draw is free."""
        if dataset is None:
            return None
        places = aiming.get(cause_id or "") or range(len(dataset.rows))
        return places[rows.randrange(len(places))]

    return {
        "run": memory.run_id,
        "round": schedule.round,
        "epsilon": str(schedule.epsilon),
        "causes": [
            {
                "cause_id": cause.cause_id,
                "description": cause.description,
                "node": cause.node,
                "state": memory.state.causes[cause.cause_id].state,
                "frequency": cause.frequency,
                "p": None if cause.mastered else str(schedule.shares[cause.cause_id].p),
            }
            for cause in schedule.causes
        ],
        "draws": [
            {
                "mode": draw.mode,
                "cause_id": draw.cause_id,
                "stitched_cause_id": draw.stitched_cause_id,
                "row": row(draw.cause_id),
            }
            for draw in schedule.draw(DRAWS, seed=memory.state.settings.seed)
        ],
    }
