"""`memory what-if`: options that go together, the filter each round had, the line that plays again."""

import csv
import io
import json
import shlex
from pathlib import Path

import polars
import pytest

from diagevo.config.loading import of_profile, resolve
from diagevo.config.writing import to_yaml
from diagevo.memory.events import Artifact
from diagevo.memory.transfer.fork import changed_keys
from tests.cli_memory.conftest import Ask
from tests.contracts.databases import Store
from tests.memory_audit.played import CONFIG, Player, play

OF_TRAIN = of_profile("embedded").config.model_copy(update={"seed": 9}).model_dump(mode="json")


@pytest.fixture
def trained(home: Path) -> Path:
    """The home with a run `t` that `train` could have configured: the profile, but for its seed."""
    play(f"sqlite:///{home / 'diagevo.db'}", "t", root=home, config=OF_TRAIN)
    return home


def _line(said: str) -> list[str]:
    """The words of the line that a remark says to run."""
    return shlex.split(said.partition("run: diagevo ")[2].splitlines()[0])


def test_a_fork_is_judged_by_each_rounds_own_filter(change: Ask, home: Path) -> None:
    change("runs", "fork", "--round", "2", "--set", "filter.tau=4", "--name", "b")
    with Store(f"sqlite:///{home / 'diagevo.db'}", home).open("b") as memory:
        player = Player(memory)
        player.open(3)
        player.score(player.question(0, [("1", 8), ("2", 4)], "contested"))
        player.trained()
        player.commit()
    same = change("memory", "what-if", "--p-low", "1/4", "--run", "b", "--json")
    rows = json.loads(same.stdout)["data"]
    assert {row["status"] for row in rows} == {"exact"}
    assert [(r["kept"], r["was_kept"]) for r in rows if r["kind"] == "retention"] == [(2, 2), (3, 3), (0, 0)]
    curve = change("memory", "what-if", "--sweep", "tau", "--run", "b")
    assert "recorded with τ = 1.6 in rounds 1 to 2, τ = 4 in round 3" in curve.stderr


def test_a_rerun_of_a_forks_first_round_keeps_what_the_fork_changed(change: Ask, home: Path) -> None:
    change("runs", "fork", "--round", "2", "--set", "filter.tau=4", "--name", "b")
    with Store(f"sqlite:///{home / 'diagevo.db'}", home).open("b") as memory:
        player = Player(memory)
        player.open(3)
        player.score(player.question(0, [("1", 2)], "too_hard"))
        player.trained()
        player.commit()
    line = _line(change("memory", "what-if", "--p-low", "1/6", "--run", "b").stderr)
    assert line == ["runs", "fork", "b", "--round", "2", "--set", "filter.tau=4", "--set", "filter.p_low=1/6"]
    made = json.loads(change(*line, "--json").stdout)["data"]
    assert made["changed"] == ["filter.p_low", "filter.tau"]


def test_the_curve_of_tau_comes_in_every_format(ask: Ask, tmp_path: Path) -> None:
    def curve(*arguments: str | Path) -> str:
        done = ask("memory", "what-if", "--sweep", "tau", *arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    file = tmp_path / "curve.parquet"
    rows = list(csv.DictReader(io.StringIO(curve("--format", "csv"))))
    assert (rows[0]["tau"], rows[0]["tau_exact"], rows[0]["kept"]) == ("1.0", "1", "12")
    assert (rows[-1]["tau"], rows[-1]["tau_exact"]) == ("", "any")
    curve("--format", "parquet", "-o", file)
    assert polars.read_parquet(file)["tau"].to_list()[-1] is None
    assert polars.read_parquet(file)["tau_exact"].to_list() == [row["tau_exact"] for row in rows]
    assert json.loads(curve("--json"))["data"][-1]["tau"] == "any"
    assert json.loads(curve("--format", "jsonl").splitlines()[-1])["tau"] == "any"
    assert curve("--format", "md").splitlines()[-1].startswith("| any | exact |")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sweep", "tau", "--k", "1"], "--sweep tau draws what the filter keeps, and --k changes nothing"),
        (["--sweep", "tau", "--drop", "c1", "--theta-up", "1"], "and --theta-up, --drop change nothing"),
        (["--sweep", "tau", "--tau", "2"], "--sweep tau and --tau both give tau"),
        (["--sweep", "k=1", "--k", "2"], "--sweep k=1 and --k both give k"),
        (["--sweep", "p-low=0.3", "--p-low", "0.2"], "--sweep p-low=0.3 and --p-low both give p_low"),
        (["--k", "1e400"], "k is 1e400: it must be above 0 and at most 1e308"),
        (["--sweep", "k=1e308,1e309"], "k is 1e309: it must be above 0 and at most 1e308"),
        (["--tau", "1e999999999"], "tau is 1e999999999: it must be at least 1 and at most 1e308"),
        (["--p-low", "0.8"], "p_low 4/5 is above p_high 3/4 in round 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Ask, arguments: list[str], said: str) -> None:
    done = ask("memory", "what-if", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_band_goes_with_the_curve(ask: Ask) -> None:
    done = ask("memory", "what-if", "--sweep", "tau", "--p-low", "1/2", "--round", "1", "--format", "jsonl")
    # Of 6:3, 4:4 and 7:2 in round 1 the second is too hard.
    assert [json.loads(line)["kept"] for line in done.stdout.splitlines()] == [2, 1, 0]


def test_a_change_is_named_as_it_was_given(ask: Ask) -> None:
    shown = [
        json.loads(line)["change"]
        for number in ("1e-300", "1/3", "0.50")
        for line in ask(
            "memory", "what-if", "--k", number, "--round", "1", "--format", "jsonl"
        ).stdout.splitlines()
    ]
    assert shown == ["k = 1e-300", "k = 1/3", "k = 0.50"]


def test_a_run_from_its_first_round_on_is_played_again_as_its_log_has_it(change: Ask, trained: Path) -> None:
    def rerun() -> list[str]:
        return _line(change("memory", "what-if", "--p-low", "0.6", "--run", "t").stderr)

    alone = rerun()
    assert alone == ["train", "--profile", "embedded", "--set", "seed=9", "--set", "filter.p_low=3/5"]
    played = resolve(profile=alone[2], settings=[alone[4], alone[6]]).config.model_dump(mode="json")
    assert changed_keys(OF_TRAIN, played) == ("filter.p_low",)
    Path("diagevo.yaml").write_text("filter:\n  tau: 2\n")
    assert rerun() == [*alone[:5], "--set", "filter.tau=8/5", *alone[5:]]
    Path("diagevo.yaml").write_text("no: key\n")
    assert {"seed=9", "filter.tau=8/5", "filter.p_low=3/5", "round.responses=12"} <= set(rerun())
    Path("diagevo.yaml").unlink()
    kept = trained / "t" / "config.yaml"
    kept.write_text(to_yaml(of_profile("embedded").config.model_copy(update={"seed": 9})))
    assert rerun() == ["train", "-c", str(kept), "--set", "filter.p_low=3/5"]


def test_a_rerun_says_where_a_run_of_another_database_is(change: Ask, home: Path) -> None:
    database = home / "diagevo.db"
    line = _line(change("memory", "what-if", "--tau", "2", "--db", database).stderr)
    assert line == ["runs", "fork", "played", "--round", "3", "--db", str(database), "--set", "filter.tau=2"]


def test_a_run_of_another_trainer_has_no_line_that_trains_it(ask: Ask) -> None:
    assert "roles" not in CONFIG
    said = ask("memory", "what-if", "--p-low", "0.6").stderr
    assert "`train` cannot play it: the configuration in the log is another trainer's" in said
    assert said.count("the solver would have trained on other questions") == 1


def test_a_fork_that_lacks_the_policies_it_goes_on_from_is_told_which(change: Ask, home: Path) -> None:
    with Store(f"sqlite:///{home / 'diagevo.db'}", home).open("w") as memory:
        player = Player(memory)
        player.configure()
        for number in (1, 2):
            player.open(number)
            memory.score([player.question(0, [("1", 6), ("2", 6 - number)], "contested")])
            memory.complete_stage("votes", seconds=1.0)
            memory.start_stage("solver")
            left = Artifact(path=f"rounds/00{number}/solver", sha256="0" * 64)
            memory.complete_stage("solver", [left], seconds=1.0)
            memory.start_stage("diagnosis")
            player.commit()

    def said() -> str:
        return change("memory", "what-if", "--tau", "3/2", "--run", "w").stderr

    solver = home / "w" / "rounds" / "001" / "solver"
    line = "run: diagevo runs fork w --round 1 --set filter.tau=3/2"
    assert f"questions; put back {solver}, then {line}" in said()
    solver.mkdir(parents=True)
    assert f"questions; {line}" in said()
