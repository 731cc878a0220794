"""Polars frames of a run."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import polars
import pytest

import diagevo
from diagevo.errors import NotFoundError, StoreError
from diagevo.ingest.recording import events_of
from diagevo.ingest.rollout_steps import RolloutGroup
from diagevo.memory.events import FailureObserved, GroupRewards, StepTrained
from diagevo.memory.frames import RunFrames
from diagevo.memory.history import History
from diagevo.memory.stories.why import story_of
from tests.contracts.databases import Store
from tests.memory.audit.conftest import RUN
from tests.memory.play import opened


def test_causes_as_of_any_round(history: History) -> None:
    frame = RunFrames(history).causes(round=3)
    assert frame["cause_id"].to_list() == ["c1", "c2", "c3", "c4"]
    assert frame["frequency"].to_list() == [1, 3, 0, 1]
    assert frame["probability_exact"].to_list() == ["1/5", "3/5", None, "1/5"]
    assert frame["probability"].to_list() == [0.2, 0.6, None, 0.2]


def test_rounds_have_f_z_and_epsilon(history: History) -> None:
    frame = RunFrames(history).rounds()
    assert frame["failures"].to_list() == [4, 5, 5, 3]
    assert frame["epsilon_next_exact"].to_list() == ["1/3", "2/7", "2/7", "2/5"]
    assert frame["z"].to_list() == [1.0, 1.25, 1.25, 0.75]


def test_candidates_carry_votes_and_texts(history: History) -> None:
    frame = RunFrames(history).candidates(round=3, texts=True)
    row = frame.row(0, named=True)
    assert (row["question_id"], row["mode"], row["p1"]) == ("r3.q0", "stitched", 0.75)
    assert row["question"] == "Question 0 of round 3: what is it?"
    assert json.loads(row["votes"]) == [["1", 9], ["2", 2]]
    assert len(RunFrames(history).candidates()) == 17


def test_events_of_a_type_are_those_of_the_log(history: History) -> None:
    frame = RunFrames(history).events(types=["CausePromoted"])
    assert frame["cause_id"].to_list() == ["c1", "c2", "c3", "c2"]
    assert frame["round"].to_list() == [2, 3, 3, 4]
    events = RunFrames(history).events()
    assert len(events) == 139
    stored = [datetime.fromisoformat(record.recorded_at) for record in history.log.read(RUN)]
    assert events["recorded_at"].to_list() == stored
    assert events.schema["recorded_at"] == polars.Datetime("us", "UTC")
    commits = RunFrames(history).rounds()["committed_at"].to_list()
    assert [when.tzname() for when in commits] == ["UTC"] * 4
    assert commits == sorted(commits)


def test_the_history_has_a_row_a_cause_and_round(history: History) -> None:
    frame = RunFrames(history).history()
    of_c2 = frame.filter(polars.col("cause_id") == "c2")
    assert of_c2["frequency"].to_list() == [1, 3, 3, 0]
    assert len(frame) == 3 + 3 + 4 + 4


def test_failures_have_their_texts_and_cause(history: History) -> None:
    frame = RunFrames(history).failures(cause="drops the minus sign")
    assert frame["failure_id"].to_list()[:3] == ["r1.q0.a2", "r2.q2.a0", "r2.q2.a1"]
    row = frame.row(0, named=True)
    assert (row["question"], row["cause_id"], row["via"]) == (
        "Question 0 of round 1: what is it?",
        "c2",
        "new cause",
    )
    assert (row["trajectory"], row["reference"]) == (
        "The wrong way of r1.q0.a2, attempt 1",
        "A reference of r1.q0",
    )
    stored = {
        (r.round, r.event.failure_id, r.event.step): r.event
        for r in history.log.read(RUN, types=["FailureObserved"])
        if isinstance(r.event, FailureObserved)
    }
    every = RunFrames(history).failures()
    assert all(key in stored for key in every.select("round", "failure_id", "step").iter_rows())
    with pytest.raises(NotFoundError):
        RunFrames(history).failures(cause="c99")


def test_steps_are_those_of_the_trainer_or_of_the_rollouts_that_were_ingested(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.open_round(1)
        memory.start_stage("solver")
        groups = [GroupRewards("r1.q0", [1.0, 0.0, 0.0, 1.0]), GroupRewards("r1.q1", [0.0, 0.0])]
        memory.step_trained(StepTrained("solver", 1, 1, groups, 0.5, None, 2.0, None))
        memory.ingested(events_of(memory.artifacts.put_many, 7, "mine", [_half()], 0.5), 2)
        [own, theirs] = RunFrames(memory).steps().iter_rows(named=True)
    shown = ("round", "stage", "step", "completions", "reward", "loss", "passes", "pass_rate")
    assert [own[name] for name in shown] == [1, "solver", 1, 6, pytest.approx(1 / 3), 0.5, None, None]
    assert [theirs[name] for name in shown] == [2, None, 7, 2, None, None, 1, 0.5]


def _half() -> RolloutGroup:
    return RolloutGroup("What is 1 + 1?", None, responses=["2", "3"], rewards=[1.0, 0.0])


@pytest.mark.parametrize(
    ("ref", "kind"),
    [("c2", "CauseStory"), ("n1", "NodeStory"), ("r3.q0", "QuestionStory"), ("r1.q0.a2", "FailureStory")],
)
def test_why_tells_the_story_of_what_it_names(history: History, ref: str, kind: str) -> None:
    story = RunFrames(history).why(ref)
    assert type(story).__name__ == kind
    assert story == story_of(history, ref, history.end, evidence=None, full=True)


def test_a_run_shows_itself_in_a_notebook_and_a_text_of_a_model_is_no_markup(history: History) -> None:
    frames = RunFrames(history)
    assert repr(frames) == f"<run {history.run_id}: round 4, 4 causes>"
    shown = frames._repr_html_()
    assert shown.startswith(f"<p>&lt;run {history.run_id}: round 4, 4 causes&gt;</p>")
    assert all(f"&quot;{cause}&quot;" in shown for cause in ("c1", "c2", "c3", "c4"))
    assert frames.groups().is_empty()


def test_a_mistyped_path_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no database"):
        diagevo.read(str(tmp_path / "typo.db"), "a")
    assert list(tmp_path.iterdir()) == []


def test_an_open_memory_gives_the_same_frames(mine: Store) -> None:
    with mine.open(RUN) as memory:
        assert RunFrames(memory).causes()["frequency"].to_list() == [1, 0, 1, 1]


def test_a_run_is_read_by_its_name_and_nothing_is_written(mine: Store) -> None:
    with diagevo.read(mine.url, RUN, root=mine.root) as run:
        assert run.causes()["frequency"].to_list() == [1, 0, 1, 1]
        assert len(run.events()) == 139
    with diagevo.read(mine.url) as latest:
        assert latest.rounds()["round"].to_list() == [1, 2, 3, 4]
    with pytest.raises(NotFoundError, match="there is no run other"):
        diagevo.read(mine.url, "other")


def test_a_run_without_rounds_has_columns_and_no_rows(mine: Store) -> None:
    with mine.open("empty") as memory:
        memory.open_round(1)
        for frame in (RunFrames(memory).rounds(), RunFrames(memory).causes(), RunFrames(memory).candidates()):
            assert frame.height == 0
            assert frame.width > 8


def test_asking_loads_no_polars_before_a_frame_is_wanted() -> None:
    code = """
import sys
from diagevo.memory.transfer import backup, bundle, fork
from diagevo.memory.audit import query
from diagevo.memory import frames
from diagevo.memory.compare import memory_diff
from diagevo.memory.compare import whatif
from diagevo.memory.stories import why
print([m for m in ("polars", "pyarrow", "lancedb", "torch") if m in sys.modules])
"""
    out = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
