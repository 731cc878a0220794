"""An evaluation in a notebook: its file read into a run, diagnosed, with results as polars frames."""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, get_args

from diagevo.errors import ConfigError
from diagevo.memory.compare.prompts_in_both import prompts_in_both
from diagevo.memory.compare.run_slices import SlicedRun, slice_named
from diagevo.memory.frames import RunFrames, frame_of
from diagevo.memory.history import History, open_history
from diagevo.memory.places import RUN_ID
from diagevo.memory.read.pass_rates import PassRates, pass_rates
from diagevo.memory.read.responses import Chosen, Responses
from diagevo.text.escaping import visible
from diagevo.text.numbers import count, percent
from diagevo.view.evaluated import Evaluated
from diagevo.view.response_pages import NAMES, records

if TYPE_CHECKING:
    import polars

    from diagevo.ingest.recording import IngestSummary

SHOWN = 10
"""Maximum causes of a run that a notebook shows."""


class NotebookRun(RunFrames):
    """An evaluation, or another trainer's rollouts, in the log: each method gives a polars frame, which needs
    the extra `polars`. Made by `diagevo.load`; the frames of `diagevo.read` are there too.
    """

    def __init__(self, url: str, run: str, *, summary: "IngestSummary | None" = None) -> None:
        """For a run in the database. `summary` is the result of reading its file."""
        self.summary = summary
        self._url = url
        self._begin(run)

    def _begin(self, run: str) -> None:
        super().__init__(open_history(self._url, run))
        self._found: Responses | None = None

    def close(self) -> None:
        """Close the connections to the database."""
        if self._found is not None:
            self._found.close()
        super().close()

    def diagnose(
        self,
        *,
        local: bool = False,
        model: str | None = None,
        base_url: str | None = None,
        again: bool = False,
        all_failed: bool = False,
        max_calls: int | None = None,
    ) -> Self:
        """Find the causes of the failures, as `diagevo diagnose` does. Called again, it continues where it
        stopped.

        Args:
            local: By arithmetic and contrast, without a language model.
            model: A served model's name, remembered by the run.
            base_url: Its OpenAI-compatible endpoint, ending in /v1.
            again: Whether diagnosed failures are diagnosed
            again. all_failed: Whether prompts that no response passed are diagnosed too, against their
            answers. max_calls: Maximum calls to a language model.

        Returns:
            This run, as it is now.

        Raises:
            ConfigError: No usable diagnostician is named.
            NotFoundError: No failure has a response to compare it with.
            ServiceError: The language model does not answer.
        """
        from diagevo.config.loading import apply_overrides, own_layers
        from diagevo.config.resume_overrides import confirmed
        from diagevo.config.sources import from_settings
        from diagevo.ingest.diagnosing import diagnose, role_settings
        from diagevo.memory.opening import open_memory

        typed = role_settings(model, base_url, local=local)
        typed += ("ingest.all_failed=true",) if all_failed else ()
        history = self._run
        stored: dict[str, Any] = dict(history.configuration().config)
        if history.log.imported(history.run_id) is not None:
            layers = own_layers(settings=typed)
            words = {path: value for layer in reversed(layers) for path, value in layer.values.items()}
            stored = confirmed(stored, history.run_id, words)
        config = apply_overrides(stored, from_settings(typed), history.run_id)
        run = history.run_id
        self.close()
        try:
            with open_memory(self._url, run, create=False) as memory:
                diagnose(memory, config, all_failed=all_failed, again=again, max_calls=max_calls, keep=typed)
        finally:
            self._begin(run)
        return self

    def passed(self) -> "polars.DataFrame":
        """Pass rates of all responses, by model and by tag, worst first, with Wilson's 95%
        interval over prompts.

        Returns:
            `kind` ("all", "model" or "tag"), `name`, `pass_rate`, `low`, `high`, `passes`, `responses`,
            `prompts`.
        """
        found = Evaluated.of(self._rates())
        kinds = (
            [] if found is None else [("all", [found.whole]), ("model", found.models), ("tag", found.tags)]
        )
        rows = [
            (kind, of.name, of.pass_rate, *of.interval, of.passes, of.responses, of.prompts)
            for kind, several in kinds
            for of in several
        ]
        columns = "kind name pass_rate low high passes responses prompts"
        return frame_of(columns, rows, low="Float64", high="Float64", prompts="Int64")

    def causes(self, *, round: int | None = None) -> "polars.DataFrame":
        """One row per cause, as in `RunFrames.causes`, with the failures counted under it now, their share
        of all failures, and their prompts.

        Args:
            round: As of the commit of this round; then without the current counts.
        """
        frame = super().causes(round=round)
        if round is not None:
            return frame
        rates = self._rates()
        counted = [(one.cause_id, one.failures, one.share, one.groups) for one in rates.causes]
        today = frame_of("cause_id failures share prompts", counted, share="Float64", prompts="Int64")
        found = frame.join(today, on="cause_id", how="left")
        return found.sort("failures", descending=True, nulls_last=True)

    def responses(
        self,
        words: str = "",
        *,
        verdict: str = "",
        cause: str = "",
        tag: str = "",
        model: str = "",
        step: int | None = None,
    ) -> "polars.DataFrame":
        """The responses whose texts the log keeps, as the view lists them.

        Args:
            words: All must be in the response, its prompt or its feedback; quoted text is a phrase.
            verdict: "passed" or "failed".
            cause: The id of a cause; "none" for failures without one.
            tag: Of its prompt.
            model: If the file names several.
            step: The training step.

        Raises:
            ConfigError: `words` has no word, or the search takes too long.
        """
        if self._found is None:
            self._found = Responses(self._run)
        wanted = Chosen(words, verdict, cause, tag, "" if step is None else str(step), model)
        total = self._found.count(wanted)
        rows = [
            tuple(row.values()) for part in records(self._run, self._found, wanted, total) for row in part
        ]
        return frame_of(" ".join(NAMES), rows, reward="Float64", sample="Int64")

    def compare(self, first: str, second: str) -> "polars.DataFrame":
        """Each prompt that passed more or less often in the second of two models, steps or runs.

        Args:
            first: `model=NAME`, `step=7`, another run of the database, or `RUN:model=NAME`.
            second: Likewise.

        Returns:
            `prompt`, `first`, `second` (pass rates), `change`, and `cause_id` in the second; largest drop
            first.

        Raises:
            NotFoundError: There is none with this name.
        """
        histories: list[History] = []
        try:
            slices = []
            for name in map(slice_named, (first, second)):
                history = self._run
                if name.run not in (None, history.run_id):
                    histories.append(history := open_history(self._url, name.run))
                at = None if name.round is None else history.as_of(name.round)
                slices.append(SlicedRun(history).at(name.address, at))
            found = prompts_in_both(*slices)
        finally:
            for history in histories:
                history.close()
        changed = [*found.drops, *reversed(found.rises)]
        rows = [(o.prompt, *o.pass_rates, o.pass_rates[1] - o.pass_rates[0], o.cause_id) for o in changed]
        columns = "prompt first second change cause_id"
        return frame_of(columns, rows, first="Float64", second="Float64", change="Float64")

    def __repr__(self) -> str:
        passed = Evaluated.of(self._rates())
        said = "no response has a reward" if passed is None else str(passed)
        return f"<{self._run.run_id}: {said}>"

    def _repr_html_(self) -> str:
        """The pass rate, and the largest causes, for a notebook."""
        rates = self._rates()
        rows = "".join(
            f"<tr><td>{escape(one.cause_id)}</td><td>{one.failures:,}</td><td>{percent(one.share)}</td>"
            f"<td style='text-align:left'>{escape(visible(one.description, one_line=True))}</td></tr>"
            for one in rates.causes[:SHOWN]
        )
        head = "<tr><th>cause</th><th>failures</th><th>of all</th><th style='text-align:left'>what</th></tr>"
        told = f"<p>{escape(visible(repr(self)[1:-1], one_line=True))}</p>"
        if rows:
            told += f"<table>{head}{rows}</table>"
        if (more := len(rates.causes) - SHOWN) > 0:
            told += f"<p>{count(more, 'more cause')}: causes()</p>"
        if not rates.causes and rates.failed:
            told += "<p>No cause yet: diagnose(local=True)</p>"
        elif rates.without_cause:
            told += f"<p>{rates.without_cause:,} of {count(rates.failed, 'failure')} without a cause</p>"
        return told

    def _rates(self) -> PassRates:
        found = pass_rates(self._run)
        if found is None:
            run = self._run.run_id
            raise ConfigError(
                f"run {run} has no rollouts of another trainer", hint=f"diagevo.read(run={run!r})"
            )
        return found


def load(
    path: Path,
    run: str | None,
    url: str,
    format: str | None,
    map: Mapping[str, str] | None,
    chosen: Mapping[str, Any],
) -> NotebookRun:
    """The implementation of `diagevo.load`."""
    from diagevo.config.loading import resolve
    from diagevo.ingest.formats import Format
    from diagevo.ingest.formats.own_rows import FIELDS
    from diagevo.ingest.formats.recognised import recognised
    from diagevo.ingest.recording import IngestSummary
    from diagevo.ingest.session import IngestSession
    from diagevo.progress import StopFlag

    if map is not None and (unknown := map.keys() - FIELDS):
        raise ConfigError(
            f"there is no field {', '.join(sorted(unknown))}", hint=f"one of {', '.join(FIELDS)}"
        )
    if format is not None and format not in get_args(Format):
        raise ConfigError(f"there is no format {format}", hint=f"one of {', '.join(get_args(Format))}")
    run = _named(path) if run is None else run
    summary = IngestSummary()
    if format is None:
        format, why = ("jsonl", "map is given") if map is not None else recognised(path)
        summary.notes.append(f"taken for {format}: {why}")
    options = {name: value for name, value in {**chosen, "map": map}.items() if value is not None}
    session = IngestSession(
        url,
        run,
        options,
        lambda: resolve().config,
        stop=StopFlag(),
        follow=False,
        resumed=False,
        say=lambda _: None,
    )
    with session:
        session.take_files(cast("Format", format), path, summary)
    return NotebookRun(url, run, summary=summary)


def _named(path: Path) -> str:
    """A run's name derived from a file's."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name.partition(".")[0]).strip("-._")[:100]
    if not RUN_ID.fullmatch(name):
        raise ConfigError(f"{path} gives no name to a run", hint='name it: run="evals"')
    return name
