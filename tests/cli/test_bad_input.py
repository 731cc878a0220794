"""What goes wrong in practice: each gets what, where and the next step, its exit code, and loses nothing.

The first runs in a process of its own, as a user's would; the others in this one.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import diagevo
from diagevo.config.loading import of_profile
from diagevo.memory.events import Embedder, Model, RunConfigured
from tests.cli.program import invoke, run
from tests.memory.audit.played import play


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """A folder with a database that holds one committed round."""
    play(str(tmp_path / "runs" / "diagevo.db"), "played", root=tmp_path / "runs", rounds=1)
    return tmp_path


def _events(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "runs" / "diagevo.db")) as database:
        return database.execute("SELECT count(*) FROM event").fetchone()[0]


def test_a_misspelt_key_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "diagevo.yaml").write_text("profile: embedded\nfilter:\n  tua: 2\n")
    done = run("train", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "error: diagevo.yaml, line 3: there is no key filter.tua\nhint: the closest is filter.tau\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["diagevo.yaml"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["memory", "why", "{}"], 3),
        (["memory", "why", "c{}"], 3),
        (["memory", "why", "r{}.q1"], 3),
        (["memory", "show", "--run", "{}"], 3),
        (["runs", "fork", "played@1", "--name", "{}"], 2),
        (["runs", "import", "{}"], 2),
        (["memory", "log", "--type", "{}"], 2),
        (["config", "show", "--set", "{}=1"], 2),
        (["{}"], 2),
    ],
)
def test_no_error_repeats_an_argument_of_two_megabytes(played: Path, command: list[str], code: int) -> None:
    done = invoke(*(word.format("1" * 2**21) for word in command), env={"DIAGEVO_HOME": f"{played / 'runs'}"})
    assert done.exit_code == code
    assert "characters)" in done.stderr
    assert len(done.output) < 11_000


@pytest.mark.parametrize("command", [["memory", "show"], ["memory", "verify"], ["train", "--resume"]])
def test_a_run_that_does_not_exist(played: Path, command: list[str]) -> None:
    before = _events(played)
    done = invoke(*command, "--run", "nobody")
    assert done.exit_code == 3
    assert "nobody" in done.stderr
    assert "played" in done.stderr  # which runs there are
    assert _events(played) == before


def test_a_run_named_like_a_file_of_the_database(played: Path) -> None:
    """Its folder would stand where SQLite's log has to be, and no command could open the database again."""
    assert invoke("runs", "export", "played", "-o", played / "bundle").exit_code == 0
    for command in (
        ["train", "--rounds", "1", "--run", "diagevo.db-wal"],
        ["runs", "fork", "played@1", "--name", "diagevo.db-wal"],
        ["runs", "import", played / "bundle", "--name", "diagevo.db-wal"],
    ):
        done = invoke(*command)
        assert done.exit_code == 2, done.output
        assert "cannot name a run here: " in done.stderr
        assert not (played / "runs" / "diagevo.db-wal").is_dir()
    assert "played" in invoke("runs", "list").stdout


@pytest.mark.parametrize(
    "command", [["memory", "show"], ["runs", "list"], ["train"], ["db", "upgrade"], ["train", "--resume"]]
)
def test_a_database_of_a_newer_version(played: Path, command: list[str]) -> None:
    file = played / "runs" / "diagevo.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    before = _events(played)
    done = invoke(*command)
    assert done.exit_code == 5, done.stderr
    assert "is at revision 9999, newer than this version's" in done.stderr
    assert "hint: install the newer version of DiagEvo" in done.stderr
    assert _events(played) == before


def test_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("this is no database at all, but a text of some length\n" * 40)
    before = (tmp_path / "notes.db").read_bytes()
    done = invoke("memory", "show", "--db", "notes.db")
    assert done.exit_code == 5, done.stderr
    assert "notes.db" in done.stderr
    assert (tmp_path / "notes.db").read_bytes() == before


def test_a_model_folder_that_is_none(played: Path) -> None:
    (played / "model").mkdir()
    before = _events(played)
    done = invoke("train", "--set", "roles.solver.model=model", "--display", "plain")
    assert done.exit_code == 4, done.stderr
    assert "model is not a model folder: it has no config.json" in done.stderr
    assert "save_pretrained" in done.stderr
    assert _events(played) == before


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A file stands where a folder is needed: that stops root too, as a read-only folder would not."""
    (tmp_path / "blocked").write_text("keep me")
    for command in (["train", "--display", "none"], ["init"]):
        done = invoke(*command, env={"DIAGEVO_HOME": "blocked/runs"})
        assert done.exit_code in (2, 5), done.stderr
        assert "blocked" in done.stderr
        assert "\nhint: " in done.stderr
    done = invoke("config", "show", "--format", "csv", "-o", "blocked/x.csv")
    assert done.exit_code == 2
    assert "cannot write blocked/x.csv" in done.stderr
    assert (tmp_path / "blocked").read_text() == "keep me"


STEP = [
    {"step": 1, "prompt": "2 + 2?", "response": "It is \\boxed{4}.", "reward": 1.0},
    {"step": 1, "prompt": "2 + 2?", "response": "It is \\boxed{5}.", "reward": 0.0},
]


@pytest.fixture
def rollouts(played: Path) -> Path:
    file = played / "rollouts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in STEP))
    return file


def test_rollouts_of_another_training_never_come_into_a_run_that_train_plays(
    played: Path, rollouts: Path
) -> None:
    with diagevo.open(str(played / "runs" / "diagevo.db"), run="ours", root=played / "runs") as memory:
        models = {"challenger": Model(name="a", revision="1"), "solver": Model(name="a", revision="1")}
        embedder = Embedder(name="hashing", dimension=64, revision="words-bigrams-1")
        config = of_profile("embedded").config.model_dump(mode="json")
        memory.configure(RunConfigured(config=config, models=models, embedder=embedder, version="test"))
    before = _events(played)
    done = invoke("ingest", "jsonl", rollouts, "--run", "ours")
    assert (done.exit_code, _events(played)) == (2, before)
    assert "run ours is played by diagevo train" in done.stderr
    assert "hint: ingest into another run" in done.stderr
    for asked in ([], ["--plan"], ["--again", "--local"]):
        done = invoke("diagnose", "--run", "ours", *asked)
        assert (done.exit_code, _events(played)) == (2, before)
        assert "run ours is played by diagevo train" in done.stderr


def test_a_run_that_another_process_plays_is_not_resumed_beside_it(played: Path) -> None:
    """Not even its validation, which writes nothing into the log for minutes."""
    config = of_profile("embedded").config.model_dump(mode="json")
    models = {"challenger": Model(name="a", revision="1"), "solver": Model(name="a", revision="1")}
    embedder = Embedder(name="hashing", dimension=512, revision="words-bigrams-1")
    with diagevo.open(str(played / "runs" / "diagevo.db"), run="ours", root=played / "runs") as memory:
        memory.configure(RunConfigured(config=config, models=models, embedder=embedder, version="test"))
        before = _events(played)
        done = invoke("train", "--run", "ours", "--resume", "--display", "plain")
        assert (done.exit_code, _events(played)) == (5, before)
    assert "error: run ours is being written by diagevo" in done.stderr
    assert "validation" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "nosuch/a.bundle"], "there is no folder nosuch"),
        (["-o", "nosuch/a.jsonl", "--as", "dpo"], "there is no folder nosuch"),
        (["--to", "trackio", "--as", "dpo"], "--as writes a file, --to a tracker"),
        (["-o", "a.bundle", "--project", "math"], "--project applies to a tracker"),
    ],
)
def test_a_run_is_exported_to_no_place_that_was_not_asked_for(
    played: Path, options: list[str], said: str
) -> None:
    before = {*played.iterdir()}
    done = invoke("runs", "export", "played", *options)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert {*played.iterdir()} == before


def test_train_does_not_go_on_with_a_run_that_was_ingested(played: Path, rollouts: Path) -> None:
    assert invoke("ingest", "jsonl", rollouts, "--run", "theirs").exit_code == 0
    before = _events(played)
    done = invoke("train", "--run", "theirs", "--resume", "--rounds", "2")
    assert (done.exit_code, _events(played)) == (2, before)
    assert "run theirs was not started by diagevo train" in done.stderr
    assert "hint: continue it with diagevo ingest" in done.stderr
    for words in ("train --plan --resume", "eval run held-out --round 0", "eval run selfplay --round 0"):
        done = invoke(*words.split(), "--run", "theirs")
        assert (done.exit_code, done.stdout, _events(played)) == (2, "", before), words
        assert "error: run theirs was ingested: " in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--steps-per-round", "9" * 19, "an integer of at most 18 digits"),
        ("--pass-at", "nan", "finite number"),
        ("--pass-at", "1e400", "finite number"),
    ],
)
def test_settings_that_no_run_can_have_leave_no_run_behind(
    played: Path, rollouts: Path, option: str, value: str, said: str
) -> None:
    before = _events(played)
    done = invoke("ingest", "jsonl", rollouts, "--run", "theirs", option, value)
    assert (done.exit_code, _events(played)) == (2, before)
    assert f"error: {option}: " in done.stderr
    assert said in done.stderr
    assert "hint: " in done.stderr


def test_a_file_that_may_hold_answers_is_not_written_over(played: Path) -> None:
    file = played / "checked.csv"
    file.write_text("the work of a day")
    done = invoke("eval", "labels", "--check", file, "--run", "played")
    assert (done.exit_code, file.read_text()) == (2, "the work of a day")
    assert "checked.csv lacks the column run_id" in done.stderr
    assert invoke("eval", "labels", "--check", played / "new.csv", "--round", "9").exit_code == 3
    assert not (played / "new.csv").exists()


def test_more_events_than_a_machine_can_count_are_all_of_them(played: Path) -> None:
    every = invoke("memory", "log", "--run", "played")
    assert invoke("memory", "log", "--run", "played", "-n", "9" * 30).stdout == every.stdout != ""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["memory", "log", "--round", "9"], 3, "run played has no event of round 9"),
        (["memory", "log", "--follow", "--at", "3"], 2, "--at ends at an old one"),
        (["memory", "verify", "--heads", "nowhere"], 2, "there is no file nowhere"),
        (["runs", "import", "rollouts.jsonl"], 2, "rollouts.jsonl cannot be read as a bundle"),
        (["config", "show", "--schema", "--format", "csv"], 2, "cannot be printed as csv"),
        (["eval", "labels", "--check", "."], 2, "name a file that diagevo eval labels --check wrote"),
    ],
)
def test_what_cannot_be_told_is_refused(
    played: Path, rollouts: Path, command: list[str], code: int, said: str
) -> None:
    done = invoke(*command)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "hint: " in done.stderr
