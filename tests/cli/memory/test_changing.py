"""Commands that write: fork, import, rebuild; and text of models that must not steer a terminal."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from diagevo.cli.commands.runs_fork import _reconfigured  # pyright: ignore[reportMissingImports]  (cli/, as installed)

import diagevo
from diagevo.config.loading import of_profile
from diagevo.memory.transfer.fork import changed_keys
from tests.cli.memory.conftest import Ask
from tests.cli.program import STARTED, clean_environment, invoke
from tests.ingest.conftest import ingest_verl
from tests.memory.audit.played import CONFIG, Player


def test_a_fork_is_made_listed_and_verifies(change: Ask) -> None:
    result = change("runs", "fork", "2", "--set", "memory.theta_up=9/10")
    assert (
        "played-r2: 79 events, forked from played after round 2\n  changed: memory.theta_up" in result.stdout
    )
    assert "diagevo train --run played-r2 --resume" in result.stdout
    assert "without --run read played-r2 from now on; its parent: --run played\n" in result.stdout
    assert change("memory", "why", "c1").stderr == "run played-r2 after round 2\n"
    rows = json.loads(change("runs", "list", "--json").stdout)["data"]
    assert rows[0]["run_id"] == "played-r2"
    assert rows[0]["origin"] == {"run": "played", "position": 78}
    assert change("memory", "verify", "--run", "played-r2").exit_code == 0
    again = change("runs", "fork", "2", "--run", "played")
    assert again.stdout.startswith("played-r2-2:")
    assert "continue with: diagevo train --run played-r2-2 --resume\n" in again.stdout


def test_a_fork_of_a_database_that_was_named_names_it_too(change: Ask, home: Path) -> None:
    database = home / "a copy.db"
    (home / "diagevo.db").rename(database)
    made = change("runs", "fork", "2", "--db", str(database))
    assert f"continue with: diagevo train --run played-r2 --resume --db '{database}'\n" in made.stdout


def test_a_fork_of_an_ingested_run_goes_on_with_a_diagnosis(tmp_path: Path) -> None:
    ingest_verl(tmp_path)
    made = invoke("runs", "fork", "v@1", env={"DIAGEVO_HOME": str(tmp_path)})
    assert "\ncontinue with: diagevo diagnose --run v-r1\n" in made.stdout


def test_runs_diff_exits_1_where_asked(change: Ask) -> None:
    change("runs", "fork", "2", "--name", "b")
    same = change("runs", "diff", "played@2..b@2", "--exit-code")
    assert (same.exit_code, "the same up to round 2" in same.stdout) == (0, True)
    longer = change("runs", "diff", "played..b", "--exit-code")
    assert longer.exit_code == 1
    assert "the same up to round 2, where b ends" in longer.stdout
    assert change("runs", "diff", "2..3", "--run", "played", "--exit-code").exit_code == 1


def test_a_key_that_is_new_since_the_run_is_no_change_of_a_fork() -> None:
    stored = of_profile("embedded").config.model_dump(mode="json")
    del stored["hardware"]["restarts"]
    forked = _reconfigured(stored, ("memory.theta_up=0.8", "filter.tau=1.6"), "a")
    assert changed_keys(stored, forked) == ("memory.theta_up",)  # tau is 8/5 already


def test_a_fork_that_names_another_method_takes_its_values() -> None:
    stored = of_profile("embedded").config.model_dump(mode="json")
    forked = _reconfigured(stored, ("method=r-zero", "solver_grpo.group=8"), "a")
    assert (forked["round"]["responses"], forked["solver_grpo"]["group"]) == (10, 8)
    assert {"diagnosis.enabled", "schedule.policy"} <= set(changed_keys(stored, forked))


def test_a_diff_of_runs_lists_only_what_is_not_alike(change: Ask) -> None:
    change("runs", "fork", "3", "--name", "b")
    out = change("runs", "diff", "played@3..b@3").stdout
    assert "4 identical, 0 shared with different timing" in out
    assert len(out.splitlines()) == 8  # three of the comparison, a blank one, then a head and a line a round
    assert len(json.loads(change("runs", "diff", "played@3..b@3", "--json").stdout)["data"]["shared"]) == 4
    longer = change("runs", "diff", "played..b").stdout
    assert "4 identical, 0 shared with different timing up to round 3, 0 only in played" in longer
    assert len(longer.splitlines()) == 9


def test_a_diff_of_two_rounds_of_one_run_says_what_changed_and_what_was_learnt(ask: Ask) -> None:
    out = ask("runs", "diff", "played@2..played@3").stdout
    assert out == ask("runs", "diff", "2..3").stdout == ask("runs", "diff", "2..3", "--run", "played").stdout
    rows = [line.split() for line in out.splitlines()]
    assert ["c4", "created", "active", "1"] in [row[:4] for row in rows]
    assert rows[-2:] == [
        ["2", "–", "–", "–", "0.667", "0.250", "3", "5"],
        ["3", "–", "–", "–", "0.750", "0.375", "4", "5"],
    ]


def test_what_takes_long_says_that_it_goes_on(
    change: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle"
    assert "so far" not in change("memory", "verify").stderr

    @contextmanager
    def beating(_: float, beat: Callable[[], None]) -> Iterator[None]:
        """At the end of the block, as a busy machine lets no other thread run in a short one."""
        yield
        beat()

    monkeypatch.setattr("diagevo.cli.render.console.SILENCE", 0.0)
    monkeypatch.setattr("diagevo.cli.render.console.repeating", beating)
    for told, command in (
        ("verifying", ["memory", "verify"]),
        ("rebuilding the projections", ["memory", "rebuild"]),
        ("reading the rows", ["memory", "query", "SELECT * FROM v_event", "-o", tmp_path / "rows.csv"]),
        ("writing the bundle and checking it", ["runs", "export", "-o", bundle]),
        ("checking the bundle", ["runs", "import", bundle, "--check"]),
        ("reading the bundle", ["runs", "import", bundle, "--name", "copy"]),
        ("working on the database", ["db", "backup", tmp_path / "copy.db"]),
    ):
        done = change(*command)
        assert done.exit_code == 0, done.stderr
        assert f"{told}, 0 s so far\n" in done.stderr
        assert "so far" not in done.stdout
    assert "so far" not in change("memory", "verify", "-q").stderr


def test_a_bundle_goes_out_and_in(change: Ask, tmp_path: Path) -> None:
    out = change("runs", "export", "-o", tmp_path / "bundle")
    assert "139 events of played up to #139, verified\n  91 texts, 7 vectors\n" in out.stdout
    assert change("runs", "import", tmp_path / "bundle", "--check").exit_code == 0
    taken = change("runs", "import", tmp_path / "bundle")
    assert (taken.exit_code, "exists already" in taken.stderr) == (2, True)
    assert change("runs", "import", tmp_path / "bundle", "--name", "copy").exit_code == 0
    assert change("memory", "verify", "--run", "copy", "--deep").exit_code == 0
    new = change("runs", "import", tmp_path / "bundle", "--db", tmp_path / "new.db")
    assert new.exit_code == 0


def test_rebuild_mends_projections(change: Ask, home: Path) -> None:
    from tests.contracts.databases import Store

    Store(f"sqlite:///{home / 'diagevo.db'}", home).tamper("DELETE FROM cause")
    assert change("memory", "verify").exit_code == 1
    assert "4 rounds rewritten" in change("memory", "rebuild").stdout
    assert change("memory", "verify").exit_code == 0


def test_a_run_without_its_last_event_is_found_to_be_cut_not_missing(change: Ask, home: Path) -> None:
    from tests.contracts.databases import Store

    Store(f"sqlite:///{home / 'diagevo.db'}", home).tamper("DELETE FROM event WHERE position = 139")
    for command in (["memory", "verify"], ["memory", "verify", "--run", "played"]):
        done = change(*command)
        assert done.exit_code == 1, done.stderr
        assert "played: FAULTS FOUND" in done.stdout
        assert "the run's head is event 139, its last one is 138: the log's end is missing" in done.stdout
        assert "event 139, in round 4, ended the chain, and the database does not have it" in done.stdout


def test_text_of_models_is_shown_not_obeyed(change: Ask, home: Path) -> None:
    hostile = "[bold red]not markup[/] \x1b[31mnor colour\x07 of a very long name\r\nand a second line"
    with diagevo.open(f"sqlite:///{home / 'diagevo.db'}", "hostile", root=home) as memory:
        player = Player(memory)
        player.configure(CONFIG)
        player.open(1)
        player.score(player.question(0, [("1", 6)], "kept"))
        player.fail("r1.q0.a0")
        player.diagnose("r1.q0.a0", "new_cause", description=hostile)
        player.trained()
        player.settle_new("r1.q0.a0", label=hostile)
        player.commit()
    for arguments in (
        ["memory", "show"],
        ["memory", "show", "--tree"],
        ["memory", "why", "c1", "--full"],
        ["memory", "why", "r1.q0.a0"],
        ["memory", "why", "n1"],
        ["memory", "log"],
        ["memory", "replay"],
    ):
        result = change(*arguments, "--run", "hostile")
        assert result.exit_code == 0, result.stderr
        assert "[bold red]not markup[/]" in result.stdout
        assert not set(result.stdout) & set("\x1b\x07\r")


def test_follow_goes_on_with_events_as_they_are_written(home: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*STARTED, "memory", "log", "--follow", "--type", "RoundOpened"],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(DIAGEVO_HOME=str(home)),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    try:
        seen = [process.stdout.readline() for _ in range(4)]
        assert [line.split()[1] for line in seen] == ["r1", "r2", "r3", "r4"]
        with diagevo.open(f"sqlite:///{home / 'diagevo.db'}", "played", root=home) as memory:
            memory.open_round(5)
        assert process.stdout.readline().split()[:3] == ["#140", "r5", "RoundOpened"]
    finally:
        process.terminate()
        process.wait(timeout=30)
