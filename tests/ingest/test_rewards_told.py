"""Who reads an ingested run is told that its votes are rewards, and nothing asks Equation 3 about them."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.frames import RunFrames
from diagevo.memory.history import open_history
from tests.cli.program import invoke
from tests.ingest.conftest import ingest_verl


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    ingest_verl(home)
    return home


def said(home: Path, *arguments: str | Path) -> str:
    done = invoke(*arguments, env={"DIAGEVO_HOME": str(home)})
    assert done.exit_code == 0, done.stderr
    return done.stdout


def data(home: Path, *arguments: str | Path) -> Any:
    return json.loads(said(home, *arguments, "--json"))["data"]


def test_the_view_and_the_frame_of_candidates_say_it(home: Path) -> None:
    rows = data(home, "memory", "query", "SELECT votes_are, count(*) AS n FROM v_candidate GROUP BY 1")
    assert rows == [{"votes_are": "rewards", "n": 24}]
    with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", "v")) as history:
        frame = RunFrames(history).candidates()
    assert frame["votes_are"].unique().to_list() == ["rewards"]


def test_the_story_of_a_question_says_it(home: Path) -> None:
    assert "by rewards of its trainer, not by agreement" in said(home, "memory", "why", "r1.q0")
    assert data(home, "memory", "why", "r1.q0")["votes_are"] == "rewards"


def test_no_threshold_moves_a_question(home: Path) -> None:
    """Under Equation 3, τ = 6/5 would drop 12 groups of the three rounds."""
    rows = data(home, "memory", "what-if", "--tau", "1.2")
    kept = [(row["kept"], row["was_kept"]) for row in rows if row["kind"] == "retention"]
    assert kept == [(8, 8), (6, 6), (5, 5)]
    assert {row["kind"] for row in rows} == {"retention", "replay"}


@pytest.mark.slow
def test_the_pages_say_it_and_their_sliders_move_no_question(home: Path, tmp_path: Path) -> None:
    said(home, "view", "--export", tmp_path / "site")
    overview = (tmp_path / "site" / "v" / "index.html").read_text("utf-8")
    assert "its votes are rewards, not answers that agree" in overview
    page = next(tmp_path.rglob("r1.q0.html")).read_text("utf-8")
    assert "Counted by the rewards of its trainer, not by agreement." in page
    assert "Rewards of 4 responses" in page
    [round_] = [file for file in tmp_path.rglob("1.html") if "rounds" in file.parts]
    assert "the share of rollouts that passed their trainer's own check" in round_.read_text("utf-8")
    [sliders] = tmp_path.rglob("what-if.js")
    told = json.loads(sliders.read_text("utf-8").partition(" = ")[2].rstrip().removesuffix(";"))
    votes = [vote for round_ in told["rounds"] for vote in round_["votes"]]
    assert votes
    assert all(vote[4] for vote in votes)  # first, second, responses, valid, rewards
