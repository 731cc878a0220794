"""`diagevo diagnose` with a served diagnostician that is slow, broken or gone."""

import json
import re
import signal
import subprocess
import threading
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from diagevo.diagnosis.chat import Budget
from diagevo.errors import StoppedSafely
from tests.cli.program import STARTED, clean_environment, invoke
from tests.diagnosis.server import Answer, Server
from tests.ingest.test_all_failed import REPLY

pytestmark = pytest.mark.slow

SLIP = '{"matched_cause_id": null, "error_cause": null}'
CAUSE = "forgets to check each candidate against the domain of the original equation"
NEW = json.dumps({"matched_cause_id": None, "error_cause": CAUSE})
GROUPS = 6
KEYED = {"OPENAI_API_KEY": "none"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six groups of one pass and two failures: twelve failures in one round."""
    monkeypatch.chdir(tmp_path)
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
    return ["diagnose", "--run", "own", *settings, *more]


def diagnose(home: Path, server: Server, *more: str) -> Result:
    return invoke(*command(server, *more), env=KEYED | {"DIAGEVO_HOME": str(home)})


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
            subprocess.run([*STARTED, *command(server)], env=env, cwd=home, stderr=stderr, check=True)
    [plan] = json.loads(planned.stdout)["data"]
    assert (plan["rounds"], plan["failures"], plan["calls"], plan["model"]) == (1, 12, 36, "asked")
    assert plan["input_tokens"] > 12 * 700
    assert "12 failures in 1 round, asked of asked: up to about 36 calls" in told[0]
    assert len(told) == 12


@pytest.mark.parametrize(("silence", "last"), [(0.0, ["extraction: 12 of 12"]), (3600.0, [])])
def test_a_long_diagnosis_tells_how_far_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch, silence: float, last: list[str]
) -> None:
    monkeypatch.setattr("diagevo.cli.render.console.SILENCE", silence)
    with Server(lambda request, before: Answer(SLIP)) as server:
        told = diagnose(home, server).stderr
    # The heartbeat's lines end in the seconds, and come whenever the machine is slow.
    assert re.findall(r"^extraction: \d+ of \d+$", told, re.MULTILINE)[-1:] == last
    assert "\r" not in told


def test_a_server_that_thinks_is_waited_for_aloud(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reply comes once it was said that it is waited for."""
    said = threading.Event()

    def say(_: object, text: str) -> None:
        if text.endswith("s so far"):
            said.set()

    def behave(request: dict[str, Any], before: int) -> Answer:
        said.wait(60)
        return Answer(SLIP)

    monkeypatch.setattr("diagevo.cli.render.console.SILENCE", 0.0)
    monkeypatch.setattr("diagevo.cli.render.console.say", say)
    with Server(behave) as server:
        assert diagnose(home, server).exit_code == 0
    assert said.is_set()


def test_a_cap_is_kept_and_again_goes_on(home: Path) -> None:
    with Server(lambda request, before: Answer(SLIP)) as server:
        first = diagnose(home, server, "--max-calls", "5")
        assert (first.exit_code, len(server.requests)) == (75, 5), first.stderr
        assert "diagevo diagnose --run own" in first.stderr
        second = diagnose(home, server, "--max-calls", "5")
        assert (second.exit_code, len(server.requests)) == (75, 10), second.stderr
        last = diagnose(home, server, "--max-calls", "5", "--json")
        assert (last.exit_code, len(server.requests), most_asked(server)) == (0, 12, 1), last.stderr
    assert [row["round"] for row in json.loads(last.stdout)["data"]] == [1]


def test_replies_that_are_under_way_when_the_cap_is_met_are_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three are asked first. The fourth is overtaken by two, which are answered once it is refused."""
    take, asks, taken = Budget.take, count(1), count(1)
    spent, refused = threading.Event(), threading.Event()

    def overtaken(budget: Budget) -> None:
        if next(asks) == 4:
            spent.wait()
        try:
            take(budget)
        except StoppedSafely:
            refused.set()
            raise
        if next(taken) == 5:
            spent.set()

    def behave(request: dict[str, Any], before: int) -> Answer:
        if len(server.requests) > 3:
            refused.wait()
        return Answer(SLIP)

    monkeypatch.setattr(Budget, "take", overtaken)
    wide = ("--set", "diagnosis.workers=12")
    with Server(behave) as server:
        first = diagnose(home, server, *wide, "--max-calls", "5")
        assert (first.exit_code, len(server.requests)) == (75, 5), first.stderr
        last = diagnose(home, server, *wide)
        assert (last.exit_code, len(server.requests), most_asked(server)) == (0, 12, 1), last.stderr


def test_the_cap_of_the_run_holds_beside_that_of_the_call(home: Path) -> None:
    with Server(lambda request, before: Answer(SLIP)) as server:
        done = diagnose(home, server, "--max-calls", "9", "--set", "diagnosis.max_calls=4")
    assert (done.exit_code, len(server.requests)) == (75, 4), done.stderr


def test_what_a_killed_diagnosis_was_told_is_not_asked_again(home: Path) -> None:
    """Killed while it waits for the fifth reply: that one alone is asked twice."""
    running = Future[subprocess.Popen[bytes]]()

    def kill() -> None:
        running.result().kill()
        running.result().wait()

    with Server(lambda request, before: Answer(SLIP), at=(5, kill)) as server:
        env = clean_environment(DIAGEVO_HOME=str(home), OPENAI_API_KEY="none")
        running.set_result(
            subprocess.Popen([*STARTED, *command(server)], env=env, cwd=home, stdout=-3, stderr=-3)
        )
        assert running.result().wait() == -signal.SIGKILL
        done = diagnose(home, server)
        assert done.exit_code == 0, done.stderr
        assert sorted(server.seen.values()) == [1] * 11 + [2]
    assert invoke("memory", "verify", "--deep", env={"DIAGEVO_HOME": str(home)}).exit_code == 0


def step_two(home: Path, *responses: str) -> None:
    """Write step 2 into the file, behind step 1: a group that is always the same, and one of these, of which
    the first passes."""
    file = home / "own.jsonl"
    lines = [line for line in file.read_text().splitlines() if json.loads(line)["step"] == 1]
    for prompt, told in (("question 8", ("yes", "no", "never")), ("question 9", responses)):
        for place, response in enumerate(told):
            row = {"step": 2, "prompt": prompt, "response": response, "reward": int(place == 0)}
            lines.append(json.dumps(row))
    file.write_text("\n".join(lines) + "\n")


def test_a_resumed_training_is_diagnosed_again_and_what_was_answered_before_is_not_asked(home: Path) -> None:
    """Step 2 is written again, so that round 2 is played again as round 3: of its four failures the two that
    are new are asked about."""

    def ingest(*more: str) -> Any:
        words = ("ingest", "jsonl", home / "own.jsonl", "--run", "own", *more)
        return invoke(*words, env={"DIAGEVO_HOME": str(home)})

    step_two(home, "right", "wrong", "false")
    assert ingest().exit_code == 0
    with Server(lambda request, before: Answer(SLIP)) as server:
        assert diagnose(home, server).exit_code == 0
        assert len(server.requests) == 12 + 4
        step_two(home, "correct", "bad", "worse")
        refused = ingest()
        assert refused.exit_code == 5, refused.output
        assert "the same training, resumed from a checkpoint: --resumed" in refused.stderr
        assert (again := ingest("--resumed")).exit_code == 0, again.output
        done = diagnose(home, server)
        assert done.exit_code == 0, done.stderr
        assert (len(server.requests), most_asked(server)) == (12 + 4 + 2, 1)
    assert events(home, "RoundsSuperseded") == 1
    assert events(home, "FailureDiagnosed") == 12 + 4 + 4
    assert invoke("memory", "verify", "--deep", env={"DIAGEVO_HOME": str(home)}).exit_code == 0


def test_what_waits_between_extraction_and_its_node_is_counted_and_may_be_capped(home: Path) -> None:
    """Twelve times a new cause: after twelve calls nothing is undiagnosed, and all twelve are unsettled."""
    with Server(lambda request, before: Answer(NEW)) as server:
        assert diagnose(home, server, "--max-calls", "12").exit_code == 75
        planned = diagnose(home, server, "--plan", "--json")
        [plan] = json.loads(planned.stdout)["data"]
        assert (plan["failures"], plan["calls"]) == (0, 24)
        again = diagnose(home, server, "--max-calls", "1")
        assert (again.exit_code, len(server.requests)) == (75, 13), again.stderr


def test_a_service_that_refuses_ends_the_command_and_loses_nothing(home: Path) -> None:
    def behave(request: dict[str, Any], before: int) -> Answer:
        return Answer("wrong key", status=401) if len(server.requests) == 4 else Answer(SLIP)

    with Server(behave) as server:
        refused = diagnose(home, server)
        assert refused.exit_code == 6, refused.stderr
        assert "401" in refused.stderr
        assert diagnose(home, server).exit_code == 0
        assert sorted(server.seen.values()) == [1] * 11 + [2]


WRONG = '{"cause": "<b>bold</b>", "confidence": 0.9}'


def told(home: Path, *words: str) -> list[dict[str, Any]]:
    shown = invoke(*words, "--run", "own", "--json", env={"DIAGEVO_HOME": str(home)})
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)["data"]


def events(home: Path, type_: str) -> int:
    [row] = told(home, "memory", "query", f"SELECT count(*) AS n FROM v_event WHERE type = '{type_}'")
    return row["n"]


def test_replies_with_wrong_fields_end_it_after_three_failures_and_the_mended_server_is_asked(
    home: Path,
) -> None:
    """Three failures, each with two retries: nine requests, nothing recorded. Then all twelve are asked."""
    with Server(lambda request, before: Answer(WRONG)) as server:
        done = diagnose(home, server)
        assert (done.exit_code, len(server.requests)) == (6, 9), done.stderr
        assert "the first 3 replies of the diagnostician could not be read" in done.stderr
        assert "matched_cause_id" in done.stderr
        assert '{"cause": "<b>bold</b>", "confidence": 0.9}' in done.stderr
        assert "continue with: diagevo diagnose --run own" in done.stderr
        assert (events(home, "FailureDiagnosed"), events(home, "RoundCommitted")) == (0, 0)
        server.requests.clear()
        server.behave = lambda request, before: Answer(SLIP)
        mended = diagnose(home, server, "--json")
        assert (mended.exit_code, len(server.requests)) == (0, 12), mended.stderr
    [row] = json.loads(mended.stdout)["data"]
    assert (row["round"], row["undiagnosed"]) == (1, 0)
    assert "came from the store" not in mended.stderr


def test_ten_in_a_row_end_it_later_too_and_are_asked_again(home: Path) -> None:
    """The first two of twelve are read; the other ten cannot be."""

    def behave(request: dict[str, Any], before: int) -> Answer:
        return Answer(SLIP if len(server.seen) <= 2 else "I think it is a slip.")

    with Server(behave) as server:
        done = diagnose(home, server, "--set", "diagnosis.retries=0")
        assert (done.exit_code, len(server.requests)) == (6, 12), done.stderr
        assert "10 replies in a row of the diagnostician could not be read" in done.stderr
        assert (events(home, "FailureDiagnosed"), events(home, "RoundCommitted")) == (2, 0)
        server.behave = lambda request, before: Answer(SLIP)
        assert diagnose(home, server, "--set", "diagnosis.retries=0").exit_code == 0
        assert len(server.requests) == 22


def test_a_reply_here_and_there_that_cannot_be_read_is_unresolved(home: Path) -> None:
    """The second of every three: 4 of 12 are unresolved, and the round is committed."""

    def behave(request: dict[str, Any], before: int) -> Answer:
        return Answer("hm" if len(server.seen) % 3 == 2 else SLIP)

    with Server(behave) as server:
        done = diagnose(home, server, "--json", "--set", "diagnosis.retries=0")
    assert done.exit_code == 0, done.stderr
    [row] = json.loads(done.stdout)["data"]
    assert row["undiagnosed"] == 4


def test_an_unreadable_reply_of_another_run_is_never_used(home: Path) -> None:
    """The same rollouts as another run: what could not be read is asked for, what could is not."""

    def behave(request: dict[str, Any], before: int) -> Answer:
        return Answer("hm" if len(server.seen) % 3 == 2 and not before else SLIP)

    env = {"DIAGEVO_HOME": str(home)}
    assert invoke("ingest", "jsonl", home / "own.jsonl", "--run", "other", env=env).exit_code == 0
    with Server(behave) as server:
        assert diagnose(home, server, "--set", "diagnosis.retries=0").exit_code == 0
        assert len(server.requests) == 12
        done = diagnose(home, server, "--set", "diagnosis.retries=0", "--run", "other")
        assert (done.exit_code, len(server.requests)) == (0, 16), done.stderr
    assert "8 replies came from the store, 4 from the service" in done.stderr


def test_two_options_name_the_server_once(home: Path) -> None:
    """README, "With a training that you already run", to the letter."""

    def asked(*words: str) -> Result:
        return invoke("diagnose", "--run", "own", *words, env=KEYED | {"DIAGEVO_HOME": str(home)})

    refused = asked()
    assert refused.exit_code == 2
    assert "rules:arithmetic knows only the mistakes of its own world" in refused.stderr
    assert "diagevo diagnose --run own --model M --base-url URL" in refused.stderr
    assert asked("--set", "roles.diagnostician.engine=rules:arithmetic").exit_code == 2
    assert events(home, "FailureDiagnosed") == 0
    with Server(lambda request, before: Answer(SLIP)) as server:
        first = asked("--model", "mine", "--base-url", server.url, "--max-calls", "5")
        assert (first.exit_code, len(server.requests)) == (75, 5), first.stderr
        again = asked()
        assert (again.exit_code, len(server.requests)) == (0, 12), again.stderr
    assert {request["model"] for request in server.requests} == {"mine"}
    assert invoke("memory", "verify", "--deep", env={"DIAGEVO_HOME": str(home)}).exit_code == 0


def test_again_supersedes_and_asks_the_better_server(home: Path) -> None:
    """Twelve slips become twelve failures of one cause; asked of the first model a third time, all its
    replies are stored ones."""

    def better(request: dict[str, Any], before: int) -> Answer:
        kind = request["response_format"]["json_schema"]["name"]
        replies = {
            "extract": NEW,
            "duplicate": '{"duplicate": true, "matched_cause_id": "c1"}',
            "assign": '{"create_new_node": true, "new_node_label": "checks of the domain of each candidate '
            'solution against the equation", "assigned_node": null}',
        }
        return Answer(replies[kind])

    with Server(lambda request, before: Answer(SLIP)) as server:
        assert diagnose(home, server).exit_code == 0
        server.behave = lambda request, before: Answer("<html>")
        configured = events(home, "RunConfigured")
        unread = diagnose(home, server, "--again", "--model", "unreadable")
        assert unread.exit_code == 6
        assert (events(home, "RoundsSuperseded"), events(home, "RunConfigured")) == (0, configured)
        server.behave = better
        done = diagnose(home, server, "--again", "--set", "roles.diagnostician.model=other", "--json")
        assert done.exit_code == 0, done.stderr
        [row] = json.loads(done.stdout)["data"]
        assert (row["round"], row["failures"], row["active"]) == (2, 12, 1)
        assert "round 1 is superseded" in done.stderr
        before = len(server.requests)
        third = diagnose(home, server, "--again", "--round", "2", "--json")
        assert (third.exit_code, len(server.requests)) == (0, before), third.stderr
        assert "12 replies came from the store, 0 from the service" in third.stderr
        assert json.loads(third.stdout)["data"][0]["round"] == 3
        gone = diagnose(home, server, "--again", "--round", "1")
        assert gone.exit_code == 3
        assert "round 1 of run own is superseded by round 2" in gone.stderr
    assert invoke("memory", "verify", "--deep", env={"DIAGEVO_HOME": str(home)}).exit_code == 0
    assert [line["round"] for line in told(home, "memory", "query", "SELECT round FROM v_round")] == [1, 2, 3]


def test_a_plan_of_asking_again_has_every_failure_in_it_and_writes_nothing(home: Path) -> None:
    with Server(lambda request, before: Answer(SLIP)) as server:
        [first] = json.loads(diagnose(home, server, "--plan", "--json").stdout)["data"]
        assert diagnose(home, server).exit_code == 0
        asked, recorded = len(server.requests), events(home, "FailureDiagnosed")
        [left] = json.loads(diagnose(home, server, "--plan", "--json").stdout)["data"]
        [again] = json.loads(diagnose(home, server, "--again", "--plan", "--json").stdout)["data"]
        assert (first["failures"], left["failures"], again["failures"]) == (12, 0, 12)
        assert len(server.requests) == asked
    assert (events(home, "FailureDiagnosed"), events(home, "RoundsSuperseded")) == (recorded, 0)


def test_a_dry_run_writes_nothing_and_unreadable_agrees_with_nothing(home: Path) -> None:
    with Server(lambda request, before: Answer(SLIP)) as server:
        assert diagnose(home, server).exit_code == 0
        before = events(home, "FailureDiagnosed")
        same = diagnose(home, server, "--again", "--dry-run", "--sample", "5")
        assert "extract 5 of 5 (100.0%)" in same.stdout + same.stderr
        server.behave = lambda request, before: Answer("hm")
        other = diagnose(home, server, "--again", "--dry-run", "--sample", "5")
        assert other.exit_code == 0
        assert "extract 0 of 5 (0.0%)" in other.stdout + other.stderr
    assert (events(home, "FailureDiagnosed"), events(home, "RoundsSuperseded")) == (before, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--round", "1"], "add --again"),
        (["--dry-run"], "add --again"),
        (["--again", "--sample", "3"], "add --dry-run"),
        (["--again", "--dry-run", "--max-calls", "3"], "leave --max-calls out"),
    ],
)
def test_options_that_say_nothing_alone_are_refused(home: Path, words: list[str], said: str) -> None:
    done = invoke("diagnose", "--run", "own", *words, env={"DIAGEVO_HOME": str(home)})
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_server_of_which_most_replies_cannot_be_read_ends_it(home: Path) -> None:
    """Of every six extractions one can be read, so there are never ten in a row: 40 failures, ended at 20."""
    rows = [
        {"prompt": f"p{group}", "response": f"response {group} {sample}", "reward": int(sample == 0)}
        for group in range(20)
        for sample in range(3)
    ]
    Path("more.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    env = {"DIAGEVO_HOME": str(home)}
    assert invoke("ingest", "jsonl", "more.jsonl", "--run", "more", env=env).exit_code == 0

    def behave(request: dict[str, Any], before: int) -> Answer:
        return Answer(SLIP if len(server.seen) % 6 == 1 else "hm")

    with Server(behave) as server:
        done = diagnose(home, server, "--set", "diagnosis.retries=0", "--run", "more")
        assert done.exit_code == 6, done.stderr
        assert 20 <= len(server.requests) < 40  # some were under way
        assert "16 of 20 replies of the diagnostician could not be read" in done.stderr
        assert "15 of these failures are recorded as unresolved" in done.stderr
        assert "continue with: diagevo diagnose --run more" in done.stderr
        server.behave = lambda request, before: Answer(SLIP)
        gone_on = diagnose(home, server, "--set", "diagnosis.retries=0", "--run", "more")
    assert gone_on.exit_code == 0
    unresolved = "SELECT count(*) FROM v_diagnosis WHERE run_id = 'more' AND verdict = 'unresolved'"
    told = invoke("memory", "query", unresolved, "--format", "csv", env=env).stdout.split()[-1]
    assert f"no pattern found in {40 - int(told)} failures" in gone_on.stdout
    assert f"{told} failures without a diagnosis: the reply was unreadable" in gone_on.stderr


def test_a_judge_that_keeps_every_cause_apart_is_noticed_and_same_words_need_none(home: Path) -> None:
    """Twelve failures, of which two are put in the same words: eleven causes, and no pair is one."""
    words = iter("aabcdefghijk")

    def behave(request: dict[str, Any], before: int) -> Answer:
        extracts = "Attempt That Failed" in request["messages"][-1]["content"]
        found = {"error_cause": f"{CAUSE} {next(words)}"} if extracts else {}
        return Answer(json.dumps(REPLY | found))

    with Server(behave) as server:
        done = diagnose(home, server, "--set", "memory.theta_dup=0.1")
    assert done.exit_code == 0, done.stderr
    env = {"DIAGEVO_HOME": str(home)}
    causes = json.loads(invoke("memory", "query", "SELECT * FROM v_cause", "--json", env=env).stdout)["data"]
    assert sorted(cause["description"][-1] for cause in causes) == list("abcdefghijk")
    assert "the model compared 10 pairs of causes and found no two the same" in done.stderr
    assert "11 causes for 12 failures: hardly any two failures share one" in done.stderr
