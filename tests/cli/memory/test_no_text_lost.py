"""No text is lost on the way: a run that was exported and imported says what the original says, whatever kind
of event names a text."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from msgspec.structs import replace

from diagevo.config.models import IngestConfig
from diagevo.ingest.recording import IngestSummary, Recorder
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.memory.events import (
    EVENT_TYPES,
    Digest,
    Embedder,
    FailureDiagnosed,
    FailureObserved,
    GroupIngested,
    RunConfigured,
    Value,
)
from diagevo.memory.events.named_texts import NAMING, named_texts
from diagevo.memory.history import History, open_history
from diagevo.memory.log.artifacts import ARTIFACT
from diagevo.memory.opening import open_memory
from diagevo.memory.stories.failures import failure_story
from diagevo.memory.stories.references import Reference
from tests.cli.program import invoke
from tests.ingest.conftest import DATA, diagnose_by_rules
from tests.memory.audit.forging import rows_of, write_rows
from tests.memory.audit.played import play
from tests.memory.play import candidate

SQL = Path(__file__).parents[3] / "examples" / "sql_eval.jsonl"
pytestmark = pytest.mark.slow

WITH_CAUSES = ("played", "waiting", "said")
RUNS = (*WITH_CAUSES, "executed")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hand-played run, with calls of a model; verl's rollouts, which wait for their diagnosis, with one
    of whose failures the file says something; an evaluation diagnosed without a model, with an assigned
    failure; a candidate of another method, whose writer was shown a text and whose task was executed."""
    home = tmp_path_factory.mktemp("original")
    play(f"sqlite:///{home / 'diagevo.db'}", "played", root=home)
    said(home, "ingest", "verl", DATA / "verl" / "rollouts", "--run", "waiting", "--steps-per-round", "2")
    with open_memory(f"sqlite:///{home / 'diagevo.db'}", "waiting", create=False) as memory:
        judged = IngestedRollout("judged", "too long", 0.0, feedback="off topic")
        recorder = Recorder(memory, IngestConfig(steps_per_round=2))
        recorder.record([RolloutStep(99, "judged.jsonl", [judged])], IngestSummary())
    said(home, "ingest", "jsonl", SQL, "--run", "said")
    said(home, "diagnose", "--local", "--run", "said")
    with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", "said")) as history:
        first = next(fact.event.failure_id for fact in history.events(FailureObserved))
    said(home, "memory", "assign", first, "--new", "of my own", "--run", "said")
    said(home, "memory", "assign", first, "--undo", "--run", "said")
    with open_memory(f"sqlite:///{home / 'diagevo.db'}", "executed") as memory:
        embedder = Embedder(name="none", dimension=8, revision="")
        config = {"method": "absolute-zero", "filter": {"variant": "none"}}
        memory.configure(RunConfigured(config=config, models={}, embedder=embedder, version="1"))
        memory.open_round(1)
        question, reference, shown, task = map(memory.artifacts.put, ("asked", "agreed", "shown", "a task"))
        texts = {"question": question, "reference": reference, "given": [shown], "task": task}
        unknown = {"truth": None, "label_true": None, "label_from": "executor"}
        memory.score([replace(candidate("r1.q0", 8), **texts, **unknown)])
    return home


def said(home: Path, *arguments: str | Path) -> str:
    done = invoke(*arguments, env={"DIAGEVO_HOME": str(home)})
    assert done.exit_code == 0, done.output
    # A copy has the heads of commits and of its end, and not those of stages.
    return re.sub(r"\d+ chain heads?", "chain heads", done.stdout.replace(str(home), "HOME"))


def digests(annotation: Any, where: str = "") -> Iterator[str]:
    """The fields of a type that name a text, however deep: `.failed.trajectory`."""
    if annotation == Digest:
        yield where
    elif isinstance(annotation, type) and issubclass(annotation, Value):
        for name, hint in get_type_hints(annotation, include_extras=True).items():
            yield from digests(hint, f"{where}.{name}")
    else:
        for inner in get_args(annotation):
            yield from digests(inner, where)


def histories(home: Path) -> Iterator[History]:
    for run in RUNS:
        with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", run)) as history:
            yield history


def test_the_runs_below_have_each_event_and_each_field_that_names_a_text(original: Path) -> None:
    """With a new one this fails: let one of the two runs have it."""
    there = {
        (record.type, "." + re.sub(r"\[\d+\]", "", field))
        for history in histories(original)
        for record in history.log.read(history.run_id)
        for field, _ in named_texts(record.event)
    }
    assert there == {(name, field) for name, event in EVENT_TYPES.items() for field in digests(event)}
    assert {event.__name__ for event in NAMING} == {name for name, _ in there}


def test_whatever_in_an_event_is_the_digest_of_a_stored_text_has_the_type_of_one(original: Path) -> None:
    """Found by its value alone, so that a field whose type does not say it is found too."""

    def values(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from values(inner)

    for history in histories(original):
        with history.database.read() as connection:
            stored = {row.digest for row in connection.execute(ARTIFACT.select())}
        for record in history.log.read(history.run_id):
            named = {d for _, d in named_texts(record.event)}
            assert stored & set(values(json.loads(record.payload))) == named, record.type


def test_a_copy_says_what_the_original_says(original: Path, tmp_path: Path) -> None:
    first, copy = Path(shutil.copytree(original, tmp_path / "first")), tmp_path / "copy"
    for run in RUNS:
        said(first, "runs", "export", run, "-o", tmp_path / f"{run}.bundle")
        said(copy, "runs", "import", tmp_path / f"{run}.bundle")
    causes = [f"c{number}" for number in range(1, 5)]
    for run in RUNS:
        verified = ["memory", "verify", "--deep", "--run", run]
        assert said(copy, *verified) == said(first, *verified)
    for home in (first, copy):
        diagnose_by_rules(f"sqlite:///{home / 'diagevo.db'}", "waiting")
    for arguments in (
        ["memory", "show", "--run", "waiting"],
        *(["memory", "why", cause, "--full", "--run", run] for run in WITH_CAUSES for cause in causes),
    ):
        assert said(copy, *arguments) == said(first, *arguments), arguments


def test_an_import_that_lacks_a_text_is_refused_and_says_which(original: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    said(original, "runs", "export", "waiting", "-o", bundle)
    with closing(open_history(f"sqlite:///{original / 'diagevo.db'}", "waiting")) as history:
        groups = history.events(GroupIngested)
        event, lost = next((g, g.event.failed[0].trajectory) for g in groups if g.event.failed)
    write_rows(bundle, "artifact", [row for row in rows_of(bundle, "artifact") if row["digest"] != lost])
    done = invoke("runs", "import", bundle, env={"DIAGEVO_HOME": str(tmp_path / "copy")})
    assert done.exit_code == 5
    assert f"event {event.sequence} of the bundle" in done.stderr
    assert f"GroupIngested of round {event.round}, names a text that the bundle lacks" in done.stderr
    assert f"failed[0].trajectory {lost}" in done.stderr
    assert "diagevo runs export RUN -o FILE" in done.stderr


def test_an_export_of_a_run_that_lost_a_text_is_refused(original: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(original, tmp_path / "home"))
    with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", "waiting")) as history:
        lost = next(history.events(GroupIngested)).event.question
        with history.database.write() as connection:
            connection.execute(ARTIFACT.delete().where(ARTIFACT.c.digest == lost))
    done = invoke("runs", "export", "waiting", "-o", tmp_path / "out", env={"DIAGEVO_HOME": str(home)})
    assert done.exit_code == 5
    assert f"the text {lost} is missing" in done.stderr
    assert "diagevo memory verify --deep" in done.stderr


def test_a_failure_is_shown_beside_the_pass_that_its_pair_is_about(original: Path) -> None:
    shown = 0
    with closing(open_history(f"sqlite:///{original / 'diagevo.db'}", "said")) as history:
        for fact in history.events(FailureDiagnosed):
            if (pair := fact.event.pair) is None:
                continue
            failure = Reference("failure", fact.event.failure_id)
            story = failure_story(history, failure, history.end, full=True)
            assert story.texts is not None
            assert story.texts.reference == history.text(pair.passed)
            shown += 1
    assert shown > 0
