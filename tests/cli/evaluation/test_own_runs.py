"""Evaluation of a run's own checkpoints: held-out questions, self-play questions, the oracle."""

import csv
import hashlib
import json
from pathlib import Path

import pytest

from diagevo.arithmetic import PREMISE
from diagevo.memory.history import open_history
from tests.memory.audit import played

from .conftest import Ask, rows

EIGHT = 8
"""Held-out questions of the small run."""


def test_the_checkpoints_of_a_run_are_measured_by_round(ask: Ask, trained: Path) -> None:
    found = rows(ask("eval", "run", "held-out", "--round", "all", "--json"))
    assert [(line["round"], line["answered"]) for line in found] == [
        (n, f"{EIGHT}/{EIGHT}") for n in (0, 1, 2)
    ]
    assert {line["run"] for line in found} == {"a"}
    assert len({line["conditions"]["revision"] for line in found}) == 3  # three different weights
    assert not any(line["conditions"]["whole"] for line in found)  # eight of the world's 560
    best = rows(ask("eval", "run", "held-out", "--limit", "3", "--json"))
    assert [(line["answered"], line["conditions"]["whole"]) for line in best] == [("3/3", False)]
    own = rows(ask("eval", "run", "validation", "--limit", "3", "--json"))
    assert own == best  # answered before: the run's own questions, and no data set of the hub
    pair = [found[0]["evaluation_id"], found[2]["evaluation_id"]]
    compared = rows(ask("eval", "compare", *pair, "--json"))
    assert compared["paired"]["questions"] == EIGHT
    assert {"model", "revision", "round"} <= set(compared["conditions"])
    for shown in (["show"], ["show", pair[0]], ["compare", *pair]):
        assert PREMISE in ask("eval", *shown).stderr


def test_the_world_fills_in_the_oracle_and_selfplay_asks_as_many_as_it_is_told(
    ask: Ask, trained: Path
) -> None:
    drawn = rows(ask("eval", "labels", "--json"))
    assert [line["round"] for line in drawn] == [1, 2]
    assert all(line["checked"] == line["sampled"] > 5 and line["source"] == "world" for line in drawn)

    options = ["--limit", "5", "--samples", "2", "--json"]
    start = rows(ask("eval", "run", "selfplay", "--round", "0", *options))
    [own] = rows(ask("eval", "run", "selfplay.r1", "--round", "1", *options))
    assert [(line["benchmark"], line["round"], line["answered"]) for line in [*start, own]] == [
        ("selfplay.r1", 0, "5/5"),
        ("selfplay.r2", 0, "5/5"),
        ("selfplay.r1", 1, "5/5"),
    ]
    assert start[0]["conditions"]["data"] == own["conditions"]["data"]  # the same five


@pytest.fixture
def unknown(home: Path) -> Path:
    """A hand-played run of a trainer with no world: nobody knows its answers yet."""
    played.play(f"sqlite:///{home / 'diagevo.db'}", "hand", root=home, rounds=1)
    return home


def test_no_reference_answers_says_how_to_get_them(ask: Ask, unknown: Path) -> None:
    result = ask("eval", "run", "selfplay.r1", "--round", "0")
    assert result.exit_code == 3
    assert "diagevo eval labels --run hand --round 1" in result.stderr


def test_questions_are_exported_answered_and_imported(ask: Ask, unknown: Path, tmp_path: Path) -> None:
    [line] = rows(ask("eval", "labels", "--json"))
    questions = line["sampled"]
    assert (line["checked"], line["accuracy"]) == (0, None)
    file = tmp_path / "check.csv"
    assert f"{questions} questions in {file}" in ask("eval", "labels", "--check", file).stderr
    checked = list(csv.DictReader(file.open(encoding="utf-8")))
    checked[0]["answer"], checked[1]["answer"] = "42", "none"
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, list(checked[0]))
        writer.writeheader()
        writer.writerows(checked)
    imported = ask("eval", "labels", "--check", file, "--json")
    [line] = rows(imported)
    assert (line["checked"], line["source"]) == (2, "human")
    assert f"2 answers read, {questions - 2} rows still empty" in imported.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--round", "7"], 3, "round 7"),
        (["--check", "no/such/folder/x.csv"], 2, "cannot write no/such/folder/x.csv"),
        (["--check", "."], 2, ". cannot be read"),
        (["--check", "bad.csv"], 2, "bad.csv lacks the column run_id"),
    ],
)
def test_bad_input_of_labels(
    ask: Ask, unknown: Path, tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    result = ask("eval", "labels", *arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert json.loads(ask("eval", "labels", *arguments, "--json").stdout)["error"]["message"]


def _prompts(home: Path, run: str) -> dict[str, str]:
    history = open_history(str(home / "diagevo.db"), run)
    try:
        return history.configuration().prompts
    finally:
        history.close()


def test_a_fork_with_other_prompts_has_their_digests(ask: Ask, trained: Path, tmp_path: Path) -> None:
    """Else it could not go on, or went on with any."""
    before = _prompts(trained, "a")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "solver_user.txt").write_text("Now: <question>\n", encoding="utf-8")

    def forked(name: str, *settings: str) -> dict[str, str]:
        given = [word for setting in settings for word in ("--set", setting)]
        made = ask("runs", "fork", "a@1", "--name", name, *given)
        assert made.exit_code == 0, made.output
        now = _prompts(trained, name)
        return {key: now[key] for key in now if now[key] != before[key]}

    assert forked("same") == {}
    assert forked("other-k", "schedule.k=1") == {}
    built_in = forked("built-in", "prompts=null")
    assert built_in.keys() <= before.keys()
    assert len(built_in) > 1
    own = forked("own", f"prompts={tmp_path / 'own'}")
    assert own["solver_user"] == hashlib.sha256(b"Now: <question>").hexdigest()
    boxed = forked("boxed", "prompts=null", "round.boxed_answers=true")
    assert boxed["challenger_system"] != built_in["challenger_system"]
    pairs = forked("pairs", "prompts=null", "schedule.stitching=random")
    assert {key for key in pairs if pairs[key] != built_in.get(key)} == {"challenger_stitched"}
    missing = ask("runs", "fork", "a@1", "--set", "prompts=nowhere")
    assert missing.exit_code == 2
    assert "nowhere" in missing.stderr
