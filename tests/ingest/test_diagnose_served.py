"""`diagevo diagnose` in a process of its own, with a served diagnostician that is slow, broken or gone."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import STARTED, clean_environment, invoke
from tests.diagnosis.server import Answer, Server

pytestmark = pytest.mark.slow

SLIP = '{"matched_cause_id": null, "error_cause": null}'
CAUSE = "forgets to check each candidate against the domain of the original equation"
NEW = json.dumps({"matched_cause_id": None, "error_cause": CAUSE})
GROUPS = 6


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Six groups of one pass and two failures: twelve failures in one round."""
    with (tmp_path / "own.jsonl").open("w") as out:
        for group in range(GROUPS):
            for sample, reward in enumerate((1, 0, 0)):
                text = {"prompt": f"question {group}", "response": f"answer {group} {sample}"}
                out.write(json.dumps({"step": 1, **text, "reward": reward}) + "\n")
    env = {"DIAGEVO_HOME": str(tmp_path)}
    assert invoke("ingest", "jsonl", tmp_path / "own.jsonl", "--run", "own", env=env).exit_code == 0
    return tmp_path


def command(server: Server, *more: str) -> list[str]:
    served = {"engine": "openai", "model": "asked", "base_url": server.url}
    given = [f"roles.diagnostician.{name}={value}" for name, value in served.items()]
    settings = [word for value in (*given, "diagnosis.workers=1") for word in ("--set", value)]
    return [*STARTED, "diagnose", "--run", "own", *settings, *more]


def diagnose(home: Path, server: Server, *more: str) -> subprocess.CompletedProcess[str]:
    env = clean_environment(DIAGEVO_HOME=str(home), OPENAI_API_KEY="none")
    return subprocess.run(
        command(server, *more), env=env, cwd=home, capture_output=True, text=True, check=False
    )


def most_asked(server: Server) -> int:
    return max(server.seen.values())


def test_the_cost_is_told_before_anything_is_asked(home: Path) -> None:
    """Twelve failures: twelve extractions, and for each a call on duplicates and one on its node, if it is
    new."""
    said = home / "said.txt"
    told: list[str] = []

    def behave(request: dict[str, Any], before: int) -> Answer:
        told.append(said.read_text("utf-8"))
        return Answer(SLIP)

    with Server(behave) as server:
        planned = diagnose(home, server, "--plan", "--json")
        assert server.requests == []
        with said.open("w") as stderr:
            env = clean_environment(DIAGEVO_HOME=str(home), OPENAI_API_KEY="none")
            subprocess.run(command(server), env=env, cwd=home, stderr=stderr, check=True)
    [plan] = json.loads(planned.stdout)["data"]
    assert (plan["rounds"], plan["failures"], plan["calls"], plan["model"]) == (1, 12, 36, "asked")
    assert plan["input_tokens"] > 12 * 700
    assert "12 failures in 1 round, asked of asked: up to about 36 calls" in told[0]
    assert len(told) == 12


def test_a_cap_is_kept_and_again_goes_on(home: Path) -> None:
    with Server(lambda request, before: Answer(SLIP)) as server:
        first = diagnose(home, server, "--max-calls", "5")
        assert (first.returncode, len(server.requests)) == (75, 5), first.stderr
        assert "diagevo diagnose --run own" in first.stderr
        second = diagnose(home, server, "--max-calls", "5")
        assert (second.returncode, len(server.requests)) == (75, 10), second.stderr
        last = diagnose(home, server, "--max-calls", "5", "--json")
        assert (last.returncode, len(server.requests), most_asked(server)) == (0, 12, 1), last.stderr
    assert [row["round"] for row in json.loads(last.stdout)["data"]] == [1]


def test_the_cap_of_the_run_holds_beside_that_of_the_call(home: Path) -> None:
    with Server(lambda request, before: Answer(SLIP)) as server:
        done = diagnose(home, server, "--max-calls", "9", "--set", "diagnosis.max_calls=4")
    assert (done.returncode, len(server.requests)) == (75, 4), done.stderr


def test_what_a_killed_diagnosis_was_told_is_not_asked_again(home: Path) -> None:
    """Killed while it waits for the fifth reply: that one alone is asked twice."""
    running: list[subprocess.Popen[str]] = []

    def behave(request: dict[str, Any], before: int) -> Answer:
        if len(server.requests) == 5:
            os.kill(running[0].pid, signal.SIGKILL)
            running[0].wait()
        return Answer(SLIP)

    with Server(behave) as server:
        env = clean_environment(DIAGEVO_HOME=str(home), OPENAI_API_KEY="none")
        running.append(subprocess.Popen(command(server), env=env, cwd=home, stdout=-3, stderr=-3, text=True))
        assert running[0].wait() == -signal.SIGKILL
        done = diagnose(home, server)
        assert done.returncode == 0, done.stderr
        assert sorted(server.seen.values()) == [1] * 11 + [2]
    assert invoke("memory", "verify", "--deep", env={"DIAGEVO_HOME": str(home)}).exit_code == 0


def test_what_waits_between_extraction_and_its_node_is_counted_and_may_be_capped(home: Path) -> None:
    """Twelve times a new cause: after twelve calls nothing is undiagnosed, and all twelve are unsettled."""
    with Server(lambda request, before: Answer(NEW)) as server:
        assert diagnose(home, server, "--max-calls", "12").returncode == 75
        planned = diagnose(home, server, "--plan", "--json")
        [plan] = json.loads(planned.stdout)["data"]
        assert (plan["failures"], plan["calls"]) == (0, 24)
        again = diagnose(home, server, "--max-calls", "1")
        assert (again.returncode, len(server.requests)) == (75, 13), again.stderr


def test_a_busy_and_a_failing_service_are_asked_again_and_each_failure_counts_once(home: Path) -> None:
    """429 with its own pause, then 500, then the reply."""

    def behave(request: dict[str, Any], before: int) -> Answer:
        if before or len(server.seen) > 2:
            return Answer(SLIP)
        limited = len(server.seen) == 1
        return Answer(status=429, headers=(("Retry-After", "0"),)) if limited else Answer(status=500)

    with Server(behave) as server:
        done = diagnose(home, server, "--json")
        assert done.returncode == 0, done.stderr
        assert sorted(server.seen.values()) == [1] * 10 + [2, 2]
    [row] = json.loads(done.stdout)["data"]
    assert (row["round"], row["undiagnosed"]) == (1, 0)


def test_a_service_that_refuses_ends_the_command_and_loses_nothing(home: Path) -> None:
    def behave(request: dict[str, Any], before: int) -> Answer:
        return Answer("wrong key", status=401) if len(server.requests) == 4 else Answer(SLIP)

    with Server(behave) as server:
        refused = diagnose(home, server)
        assert refused.returncode == 6, refused.stderr
        assert "401" in refused.stderr
        assert diagnose(home, server).returncode == 0
        assert sorted(server.seen.values()) == [1] * 11 + [2]
