"""`eval run, show, compare` with a served model and local files."""

import csv
import io
import json
import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import polars
import pytest

from diagevo.evaluation.benchmarks import BENCHMARKS
from diagevo.sampling.service import RETRIES
from tests.cli.program import STARTED, clean_environment
from tests.diagnosis.server import Answer, Server
from tests.evaluation.published import write
from tests.memory.audit import played

from .conftest import Ask, question_of, rows

pytestmark = [pytest.mark.server, pytest.mark.slow]
NINE = [entry.name for entry in BENCHMARKS if entry.group != "validation"]


def run_all(ask: Ask, server: Server, folder: Path, *more: str):
    names = more or ("all",)
    return ask(
        "eval", "run", *names, "--model", "m", "--base-url", server.url, "--data", str(folder), "--json"
    )


def test_all_nine_are_asked_by_the_papers_protocol(ask: Ask, knowing: Server, folder: Path) -> None:
    found = rows(run_all(ask, knowing, folder))
    assert [(line["benchmark"], line["answered"], line["score"]) for line in found] == [
        (name, "2/2", 1.0) for name in NINE
    ]
    by_temperature = Counter(request["temperature"] for request in knowing.requests)
    assert by_temperature == {1.0: 64, 0.0: 16}  # AMC: 2 questions × 32 samples; the other eight greedily
    assert {r["top_p"] for r in knowing.requests if r["temperature"]} == {0.99}
    assert {line["conditions"]["whole"] for line in found} == {False}  # two questions are a part of each set


def test_mean_at_32_is_32_draws_with_32_seeds(ask: Ask, folder: Path) -> None:
    """Every fourth answer to 504 is right, and none to 1.5: 8/32 and 0/32."""

    def sometimes(request: dict[str, Any], before: int) -> Answer:
        return Answer(r"\boxed{504}" if "seat" in question_of(request) and before % 4 == 0 else "no idea")

    with Server(sometimes) as server:
        [line] = rows(run_all(ask, server, folder, "amc"))
    assert line["conditions"]["metric"] == "mean@32"
    assert line["score"] == (8 / 32 + 0) / 2
    seeds: dict[str, set[int]] = {}
    for request in server.requests:
        seeds.setdefault(question_of(request), set()).add(request["seed"])
    assert [len(found) for found in seeds.values()] == [32, 32]
    assert len(set.union(*seeds.values())) == 64
    shown = rows(ask("eval", "show", line["evaluation_id"], "--wrong", "2", "--json"))
    responses = shown["wrong"][0]["responses"]
    assert Counter(responses) == {r"\boxed{504}": 8, "no idea": 24}


def test_the_validation_set_is_read_from_its_two_files_by_name(
    ask: Ask, knowing: Server, folder: Path, tmp_path: Path
) -> None:
    files = [f"--data={name}={folder / f'{name}.jsonl'}" for name in ("mmlu_val", "math_train")]
    served = ["--model", "m", "--base-url", knowing.url]
    [line] = rows(ask("eval", "run", "validation", *served, *files, "--json"))
    assert (line["score"], line["answered"]) == (1.0, "3/3")
    assert line["conditions"]["source"] == "math_train.jsonl, mmlu_val.jsonl"


def test_the_same_command_again_asks_nothing(ask: Ask, knowing: Server, folder: Path) -> None:
    first = rows(run_all(ask, knowing, folder, "gsm8k", "bbeh"))
    asked = len(knowing.requests)
    assert rows(run_all(ask, knowing, folder, "gsm8k", "bbeh")) == first
    assert len(knowing.requests) == asked == 4


def test_show_and_list_and_compare_fit_their_schemas(ask: Ask, knowing: Server, folder: Path) -> None:
    [right] = rows(run_all(ask, knowing, folder, "mmlu_pro"))
    with Server(lambda request, before: Answer(r"\boxed{B}")) as other:
        [half] = rows(run_all(ask, other, folder, "mmlu_pro"))
    assert (half["score"], half["metrics"]["by_rule"]) == (0.5, 0.5)

    listed = rows(ask("eval", "show", "--json"))
    assert {line["evaluation_id"] for line in listed} == {right["evaluation_id"], half["evaluation_id"]}
    benchmarks = rows(ask("eval", "show", "--benchmarks", "--json"))
    assert [line["name"] for line in benchmarks] == [entry.name for entry in BENCHMARKS]

    one = ("eval", "show", half["evaluation_id"][:6], "--wrong", "5")
    shown = rows(ask(*one, "--json"))
    assert [wrong["reference"] for wrong in shown["wrong"]] == ["J"]
    assert shown["categories"]["math"] == {"value": 1.0, "standard_error": 0.0, "questions": 1}
    text = ask(*one).stdout
    assert "reference J; answered B" in text
    assert "Which is last?" in text

    pair = ("eval", "compare", half["evaluation_id"], right["evaluation_id"])
    compared = rows(ask(*pair, "--json"))
    assert compared["paired"]["difference"] == 0.5
    assert (compared["paired"]["better"], compared["paired"]["worse"]) == (1, 0)
    assert list(compared["conditions"]) == ["revision"]  # another server
    # differences 0 and 1: mean 0.5, error 0.5, t(0.975, 1) = 12.7062
    assert "difference +0.5000 ± 0.5000  [-5.8531, +6.8531] at 0.95 confidence" in ask(*pair).stdout


def test_rows_come_in_every_format_and_a_pipe_gets_no_escape(
    ask: Ask, knowing: Server, folder: Path, tmp_path: Path
) -> None:
    rows(run_all(ask, knowing, folder, "gsm8k", "supergpqa"))
    assert len(list(csv.DictReader(io.StringIO(ask("eval", "show", "--format", "csv").stdout)))) == 2
    lines = ask("eval", "show", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["score"] for line in lines] == [1.0, 1.0]
    assert ask("eval", "show", "--format", "md").stdout.startswith("| id | benchmark |")
    file = tmp_path / "rows.parquet"
    assert ask("eval", "show", "--format", "parquet", "-o", file).exit_code == 0
    assert sorted(polars.read_parquet(file)["benchmark"].to_list()) == ["gsm8k", "supergpqa"]
    for command in (["eval", "show"], ["eval", "show", "--benchmarks"]):
        said = ask(*command)
        assert not {"\x1b", "\r"} & set(said.stdout + said.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["gsm9k"], 3, "no benchmark 'gsm9k'"),
        (["gsm8k", "--data", "nowhere.jsonl"], 2, "no such data file: nowhere.jsonl"),
        (["gsm8k", "--data", "gms8k=x.jsonl"], 2, "gms8k is not a benchmark or a part of one"),
        (["amc", "--data", "{folder}/gsm8k.jsonl"], 2, "amc, row 1"),
        (["validation", "--data", "{folder}/mmlu_val.jsonl"], 2, "one file for each of math_train, mmlu_val"),
        (["gsm8k", "--data", "{folder}", "--samples", "4"], 2, "4 greedy samples are one answer repeated"),
        (["gsm8k", "--data", "{folder}", "--judge-url", "http://127.0.0.1:9/v1"], 2, "a judge needs a model"),
        (["gsm8k", "--data", "{folder}", "--judge", "gpt-4o"], 2, "a judge needs an endpoint"),
        (
            ["gsm8k", "--data", "{folder}", "--judge", "j", "--judge-url", "127.0.0.1:9/v1"],
            2,
            "127.0.0.1:9/v1 is not a URL",
        ),
        (["gsm8k"], 4, "openai/gsm8k (test) could not be loaded"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(
    ask: Ask, knowing: Server, folder: Path, arguments: list[str], code: int, says: str
) -> None:
    given = [part.format(folder=folder) for part in arguments]
    result = ask("eval", "run", *given, "--model", "m", "--base-url", knowing.url)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert says in result.stderr
    assert knowing.requests == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["eval", "run", "held-out", "--run", "nobody"], 3, "there is no run nobody"),
        (["eval", "run", "held-out", "--run", "a", "--round", "9"], 3, "round 9"),
        (["eval", "run", "held-out", "--run", "a", "--round", "two"], 2, "not a round: two"),
        (["eval", "run", "held-out", "--prompts", "p"], 2, "--prompts applies only with --model"),
        (["eval", "run", "held-out", "--model", "m", "--round", "1"], 2, "select a run's solver"),
        (["eval", "run", "held-out", "--model", "m", "--base-url", "host/v1"], 2, "host/v1 is not a URL"),
        (["eval", "run", "selfplay.r1@a", "--round", "0"], 3, "no benchmark 'selfplay.r1@a'"),
        (["eval", "run", "selfplay.rx", "--round", "0"], 3, "no benchmark 'selfplay.rx'"),
        (["eval", "run", "selfplay", "--model", "m"], 2, "selfplay is a run's questions"),
        (["eval", "show", "--run", "nobody"], 3, "there is no run nobody"),
        (["eval", "show", "e123"], 3, "there is no evaluation e123"),
        (["eval", "compare", "e1", "e2"], 3, "there is no evaluation e1"),
    ],
)
def test_what_is_not_there_is_named(
    ask: Ask, trained: Path, arguments: list[str], code: int, says: str
) -> None:
    result = ask(*arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    failed = json.loads(ask(*arguments, "--json").stdout)["error"]
    assert failed["kind"] in ("not_found", "config")


def test_another_trainers_run_has_no_model_to_measure(ask: Ask, home: Path) -> None:
    played.play(f"sqlite:///{home / 'diagevo.db'}", "hand", root=home, rounds=1)
    result = ask("eval", "run", "held-out", "--run", "hand", "--round", "1")
    assert result.exit_code == 2
    assert "is not one of `diagevo train`" in result.stderr


@pytest.mark.parametrize("command", [["show"], ["show", "e1"], ["compare", "e1", "e2"]])
def test_reading_makes_no_database(ask: Ask, home: Path, command: list[str]) -> None:
    result = ask("eval", *command)
    assert result.exit_code == 5
    assert "there is no database" in result.stderr
    assert not home.exists()


def test_an_ambiguous_id_lists_what_it_could_be(ask: Ask, knowing: Server, folder: Path) -> None:
    rows(run_all(ask, knowing, folder, "gsm8k", "bbeh"))
    result = ask("eval", "show", "e")
    assert result.exit_code == 2
    assert "e could be e" in result.stderr


QUICK = (("Retry-After-Ms", "1"),)


def test_a_failing_model_exits_6_and_what_it_answered_is_kept(ask: Ask, folder: Path, tmp_path: Path) -> None:
    """The second question fails at every try; the first is not asked again."""
    down = True

    def behave(request: dict[str, Any], before: int) -> Answer:
        if down and "house" in question_of(request):
            return Answer("overloaded", status=503, headers=QUICK)
        return Answer(r"\boxed{5}")

    with Server(behave) as server:
        failed = run_all(ask, server, folder, "gsm8k")
        assert failed.exit_code == 6, failed.output
        assert json.loads(failed.stdout)["error"]["kind"] == "service"
        assert "answers so far are kept" in failed.stderr
        assert [line["answered"] for line in rows(ask("eval", "show", "--json"))] == ["1/2"]
        down = False
        [line] = rows(run_all(ask, server, folder, "gsm8k"))
    assert (line["answered"], line["score"]) == ("2/2", 0.5)
    assert Counter(question_of(r)[:3] for r in server.requests) == {"Ann": 1, "A h": 1 + RETRIES + 1}


def test_an_endpoint_that_is_not_there_exits_6(ask: Ask, folder: Path) -> None:
    with Server(lambda request, before: Answer("x")) as server:
        url = server.url
    with Server(lambda request, before: Answer("x", manner="html")) as page:
        for where in (url, page.url):
            result = ask("eval", "run", "bbeh", "--model", "m", "--base-url", where, "--data", str(folder))
            assert result.exit_code == 6, result.output
            assert "hint: " in result.stderr


TWELVE = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(12)]


def start(home: Path, server: Server, data: Path, at_once: int) -> subprocess.Popen[str]:
    options = ["--model", "m", "--base-url", server.url, "--data", str(data), "--batch", str(at_once)]
    return subprocess.Popen(
        [*STARTED, "eval", "run", "gsm8k", *options, "--json"],
        env=clean_environment(DIAGEVO_HOME=str(home)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def doubled(request: dict[str, Any], before: int) -> Answer:
    return Answer(rf"\boxed{{{2 * int(question_of(request).split()[2])}}}")


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_killed_evaluation_asks_nothing_twice_but_what_was_in_flight(
    home: Path, tmp_path: Path, at_once: int
) -> None:
    data = write(tmp_path / "gsm8k.jsonl", TWELVE)
    victim = Future[subprocess.Popen[str]]()
    with Server(doubled, at=(7, lambda: victim.result().kill())) as server:
        first = start(home, server, data, at_once)
        victim.set_result(first)
        first.communicate()
        assert first.returncode == -signal.SIGKILL
        asked = Counter(question_of(request) for request in server.requests)
        assert len(asked) < 12
        again = start(home, server, data, at_once)
        said, errors = again.communicate()
    assert again.returncode == 0, errors
    [line] = json.loads(said)["data"]
    assert (line["answered"], line["score"]) == ("12/12", 1.0)
    times = Counter(question_of(request) for request in server.requests)
    assert len(times) == 12
    assert sum(times.values()) - 12 <= at_once


def test_a_stopped_evaluation_keeps_what_was_in_flight_too(home: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "gsm8k.jsonl", TWELVE)
    running, stopping = Future[subprocess.Popen[str]](), threading.Event()

    def in_flight(request: dict[str, Any], before: int) -> Answer:
        if len(server.requests) >= 5:
            stopping.wait(2)  # where another thread took the signal, the main one wakes with an answer
        return doubled(request, before)

    with Server(in_flight, at=(5, lambda: running.result().send_signal(signal.SIGINT))) as server:
        first = start(home, server, data, 2)
        running.set_result(first)
        assert first.stderr is not None
        assert any("stopping at the next safe point" in line for line in first.stderr)
        stopping.set()
        said, errors = first.communicate()
        assert first.returncode == 75, errors
        assert json.loads(said)["error"]["hint"] == "run the same command again to continue"
        assert len(server.requests) < 12
        again = start(home, server, data, 2)
        said, errors = again.communicate()
    assert again.returncode == 0, errors
    assert json.loads(said)["data"][0]["score"] == 1.0
    assert set(Counter(question_of(request) for request in server.requests).values()) == {1}
