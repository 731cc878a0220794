"""The train command around the run: names, resuming, plans, signals. The rounds are tests/run's."""

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from diagevo.cli.commands.stopping import stopped_by_signals  # pyright: ignore[reportMissingImports]  (cli/, as installed)

import diagevo
from diagevo.config.loading import of_profile
from diagevo.config.resources import ClusterNode
from diagevo.memory.events import CheckpointEvaluated
from diagevo.planning.run_plan import plan_run
from diagevo.progress import StopFlag
from tests.cli.program import STARTED, clean_environment, invoke
from tests.forked import Forked
from tests.memory.audit.played import play

TINY = (
    "--set=round={candidates: 24, challenger_votes: 2}",
    "--set=challenger_grpo={max_steps: 1, batch_questions: 2, group: 2, micro_batch: 4}",
    "--set=solver_grpo={max_steps: 1, batch_questions: 4, group: 4, micro_batch: 16}",
    "--set=validation={questions: null}",
)


def test_the_first_signal_asks_and_the_second_ends_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    stop = StopFlag()
    before = signal.getsignal(signal.SIGINT)
    with stopped_by_signals(stop):
        signal.raise_signal(signal.SIGINT)
        assert bool(stop)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "stopping at the next safe point" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_is_the_same_question(capsys: pytest.CaptureFixture[str]) -> None:
    stop = StopFlag()
    with stopped_by_signals(stop):
        signal.raise_signal(signal.SIGTERM)
    assert bool(stop)
    told = capsys.readouterr().err
    assert "SIGTERM" in told
    assert told.endswith("finished before the next safe point: everything is done\n")


@pytest.mark.slow
def test_a_run_stops_at_ctrl_c_with_75_keeps_its_round_and_goes_on(tmp_path: Path) -> None:
    command = [*STARTED, "train", "--rounds", "1", "--display", "plain", "--run", "a", *TINY]
    process = subprocess.Popen(command, cwd=tmp_path, env=clean_environment(), stderr=subprocess.PIPE)
    assert process.stderr is not None
    written = b""
    for line in process.stderr:
        written += line
        if b"candidates: started" in line:
            process.send_signal(signal.SIGINT)
            break
    written += process.stderr.read()
    assert b"\r" not in written
    assert b"\x1b" not in written
    said = written.decode()
    assert process.wait(timeout=300) == 75, said
    assert "continue with: diagevo train --resume" in said
    assert (tmp_path / "runs" / "a" / "config.yaml").read_text().startswith("profile: embedded\n")
    env = clean_environment(DIAGEVO_HOME=str(tmp_path / "runs"))
    with Forked("tests.preloaded:program", ["train", "--resume", "--display", "json"], env=env) as resumed:
        with ThreadPoolExecutor(1) as reader:
            errors = reader.submit(resumed.stderr.read)
            told = resumed.stdout.read()
        assert resumed.wait(None) == 0, errors.result()
    assert not {*"\r\x1b"} & {*told, *errors.result()}
    events = [json.loads(line) for line in told.splitlines()]
    assert "challenger" not in [e.get("stage") for e in events if e["event"] == "stage_started"]
    assert [e["figures"]["round"] for e in events if e["event"] == "round_finished"] == [1]


def test_a_resumed_run_changes_memory_hardware_and_patience_and_never_what_it_computes() -> None:
    config = of_profile("embedded").config.model_dump(mode="json")
    play("runs/diagevo.db", "half", root=Path("runs"), rounds=1, config=config)
    for options in (["--seed", "3"], ["--profile", "embedded"], ["--config", "other.yaml"]):
        done = invoke("train", "--resume", *options)
        assert done.exit_code == 2
        assert "a resumed run uses the configuration in its log" in done.stderr
    asked = ("train", "--plan", "--run", "half", "--resume", "--set")
    done = invoke(*asked, "filter.tau=2")
    assert done.exit_code == 2
    assert "filter.tau cannot change when a run is resumed" in done.stderr
    assert "diagevo runs fork half@N --set filter.tau=…" in done.stderr
    given = ("hardware.processes=2", "--set", "hardware.device=cpu", "--json")
    plan = json.loads(invoke(*asked, *given).stdout)["data"]
    assert plan["devices"].startswith("2 × cpu")


@pytest.mark.parametrize("until", ["0", "two", "1:lunch", "-1", ":solver"])
def test_a_place_to_stop_that_is_none_is_refused(until: str) -> None:
    done = invoke("train", "--plan", f"--until={until}")
    assert done.exit_code == 2
    done = invoke("train", f"--until={until}")
    assert done.exit_code == 2
    assert "challenger, candidates, votes, solver, diagnosis" in done.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize("option", ["--until=2", "--max-hours=1", "--display=plain"])
def test_what_a_plan_cannot_use_is_refused(option: str) -> None:
    done = invoke("train", "--plan", option)
    name = option.partition("=")[0]
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"error: --plan runs nothing, and {name} applies to a run\nhint: leave one out\n"


def test_a_plan_runs_nothing_and_writes_nothing() -> None:
    done = invoke("train", "--plan", "--profile", "qwen3-8b", "--json")
    assert done.exit_code == 0, done.stderr
    plan = json.loads(done.stdout)["data"]
    assert plan["completions"] == 5 * (135_168 + 8_000 + 96_000 + 24_576)
    assert plan["devices"] == "8 × cuda, which train and sample in turns; vLLM has 38% of each"
    assert plan["seconds"] is None
    # Five rounds of two policies in float32, and three checkpoints with AdamW's moments inside a phase.
    assert plan["disk_bytes"] == (10 + 3 * 3) * 4 * 8_190_735_360
    assert list(Path().iterdir()) == []
    assert json.loads(json.dumps(plan_run(of_profile("qwen3-8b").config))) == plan  # as a library has it


def test_a_plan_for_a_cluster_that_does_not_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    done = invoke("train", "--plan", "--set", "hardware.cluster=ray", "--json")
    placement = json.loads(done.stdout)["data"]["placement"]
    assert placement["cluster"].startswith("not known: no Ray cluster answers at 127.0.0.1:1: ")
    run = invoke("train", "--set", "hardware.cluster=ray")
    assert (run.exit_code, "RAY_ADDRESS=HOST:6379" in run.stderr) == (6, True)


def _validated(seconds: float) -> CheckpointEvaluated:
    return CheckpointEvaluated(
        role="solver",
        checkpoint="a",
        benchmark="validation",
        questions=1,
        conditions={},
        metrics={},
        seconds=seconds,
    )


def test_a_plan_takes_the_time_of_an_earlier_run_of_the_same_settings() -> None:
    """Runs of other trainers, in the same database and with our settings, measure nothing for ours."""
    play("runs/diagevo.db", "another-trainer", root=Path("runs"), rounds=1)
    config = of_profile("embedded").config
    seconds = {"challenger": 8.0, "candidates": 1.0, "votes": 4.0, "solver": 6.0, "diagnosis": 1.0}
    with diagevo.open("runs/diagevo.db", "measured", root=Path("runs"), config=config) as memory:
        memory.open_round(1)
        for stage, taken in seconds.items():
            memory.start_stage(stage)
            memory.complete_stage(stage, seconds=taken)
        memory.evaluated(_validated(60.0), 0)
        memory.evaluated(_validated(10.0), 1)
    with diagevo.open("runs/diagevo.db", "ingested", root=Path("runs"), config=config) as memory:
        memory.open_round(1)
    with diagevo.open("runs/diagevo.db", "just-begun", root=Path("runs"), config=config) as memory:
        memory.open_round(1)
        memory.evaluated(_validated(99.0), 0)
    plan = json.loads(invoke("train", "--plan", "--rounds", "3", "--seed", "9", "--json").stdout)["data"]
    assert {row["stage"]: row["seconds"] for row in plan["stages"]} == seconds
    assert plan["seconds"] == 60.0 + 3 * (20.0 + 10.0)
    left = json.loads(invoke("train", "--plan", "--run", "measured", "--resume", "--json").stdout)["data"]
    assert left["seconds"] == 60.0 + 5 * 30.0, "no round is committed"
    other = json.loads(invoke("train", "--plan", "--set", "round.candidates=7", "--json").stdout)["data"]
    assert other["seconds"] is None
    fewer = ("train", "--plan", "--rounds", "3", "--set", "validation.limit=5", "--json")
    validated = json.loads(invoke(*fewer).stdout)["data"]
    assert validated["seconds"] == 3 * 20.0, "no validation like this one was measured"


def test_the_plan_of_a_run_that_is_resumed_prices_the_rounds_that_are_left() -> None:
    """Embedded: 2 x 16 x 8 questions with 6 votes, 320 candidates, 12 votes each, 12 x 32 questions of which
    320 are there, 8 answers each: 8,512 completions a round."""
    config = of_profile("embedded").config.model_dump(mode="json")
    play("runs/diagevo.db", "half", root=Path("runs"), rounds=1, config=config)
    asked = ("train", "--plan", "--run", "half", "--resume", "--rounds", "3")
    assert json.loads(invoke(*asked, "--json").stdout)["data"]["completions"] == 2 * 8_512
    shown = invoke(*asked).stdout
    assert shown.startswith("profile embedded, 3 rounds, 1 of them played; each round at most:\n")
    assert "\nwhat is left  at most 17,024 completions" in shown
    play("runs/diagevo.db", "done", root=Path("runs"), rounds=2, config=config)
    done = invoke("train", "--plan", "--run", "done", "--resume", "--rounds", "1").stdout
    assert done.startswith("profile embedded, 2 rounds, 2 of them played; ")


def test_a_plan_says_where_no_failure_is_diagnosed() -> None:
    shown = invoke("train", "--plan", "--set", "diagnosis.enabled=false").stdout
    told = next(line for line in shown.splitlines() if line.startswith("diagnosis"))
    assert told.endswith("off: at most 2560 failures are recorded, and none is diagnosed")


def test_a_plan_says_what_a_gpu_holds_and_on_which_cards_that_fits() -> None:
    """8B on eight GPUs: 16 bytes a weight are 16 GB, 4 of gradients 4; 0.38 of a card is vLLM's."""
    memory = json.loads(invoke("train", "--plan", "--profile", "qwen3-8b", "--json").stdout)["data"]["memory"]
    assert (memory["card"], memory["fits"]) == (
        80,
        {"24": False, "40": False, "48": False, "80": True, "141": True},
    )
    rollouts, update = memory["stages"][:2]
    weights = 8_190_735_360
    assert (rollouts["stage"], rollouts["gpus"]) == ("challenger: rollouts, votes", [*range(8)])
    assert [rollouts["parts"][name] for name in ("weights", "Adam", "reference")] == [
        4 * weights // 8,
        8 * weights // 8,
        4 * weights // 8,
    ]
    assert update["parts"]["gradients"] == 4 * weights // 8
    assert rollouts["peak_bytes"] == sum(rollouts["parts"].values()) + rollouts["engines"][0]["bytes"]
    shown = invoke("train", "--plan", "--profile", "qwen3-8b").stdout
    assert "\nfits          GPUs of 80, 141 GB; not of 24, 40, 48\n" in shown
    assert "\ntime          about 12.3 h: 2.5 h a round; no earlier run" in shown
    gpus = re.findall(r"^(\w.*?) +(0-7|7) +\d+\.\d ", shown, re.MULTILINE)
    stages = [stage for stage, name in gpus if name == "0-7"]
    assert [stage for stage, name in gpus if name == "7"] == [
        f"{stage}, beside your diagnostician" for stage in stages
    ]
    assert len(stages) == 5, "every stage has all GPUs"


def test_a_plan_for_a_cluster_says_what_the_gpus_of_ranks_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    asked = ["train", "--plan", "--profile", "qwen3-8b", "--set", "hardware.cluster=ray"]
    memory = json.loads(invoke(*asked, "--json").stdout)["data"]["memory"]
    assert [(stage["stage"], stage["placed"]) for stage in memory["stages"]] == [
        ("challenger: rollouts, votes", True),
        ("challenger: update", True),
        ("solver: rollouts", True),
        ("solver: update", True),
        ("candidates, votes", True),
        ("diagnosis, by your server", False),
    ]
    shown = invoke(*asked).stdout
    assert re.search(r"\nchallenger: rollouts, votes +each rank's +50\.2 ", shown)
    assert re.search(r"\ncandidates, votes +each rank's +32\.9 ", shown)


@pytest.mark.parametrize(("share", "setting"), [("0.3", "vllm_memory"), ("0.45", "")])
def test_a_plan_warns_where_few_answers_have_room_and_names_what_helps(share: str, setting: str) -> None:
    """0.6B on 24 GB: of 7.1 GB of vLLM 1.2 are weights and 1.8 work; 114,688 bytes a token, 768 tokens an
    answer: 4.1 GB are 35,900 tokens and 46 answers."""
    asked = ["train", "--plan", "--profile", "qwen3-0.6b-24gb", f"--set=hardware.vllm_memory={share}"]
    warned = [line for line in invoke(*asked).stdout.splitlines() if line.startswith("few at once")]
    few = f"46 answers of 768 tokens at once, fewer than 64: raise hardware.{setting}"
    assert warned == ([f"few at once   of 24 GB: challenger: rollouts, votes: {few}"] if setting else [])


@pytest.mark.parametrize("processes", [16, 24])
def test_a_plan_names_idle_gpus_and_refuses_ranks_for_which_there_are_none(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [ClusterNode(f"10.0.0.{k}", 96, 8) for k in (1, 2)]
    monkeypatch.setattr("diagevo.planning.run_plan.connected", lambda: None)
    monkeypatch.setattr("diagevo.planning.run_plan.nodes_of", lambda _: nodes)
    asked = ["train", "--plan", "--profile", "qwen3-8b-2x8"]
    done = invoke(*asked, f"--set=hardware.processes={processes}")
    if processes == 24:
        assert done.exit_code == 2
        assert "the run takes 24 × 1 GPU; the nodes have 16 (10.0.0.1 (8 GPU, 96 CPU)" in done.stderr
        assert "hint: set hardware.processes to 16, or add nodes" in done.stderr
        return
    lines = done.stdout.splitlines()
    assert "ranks         16 × 1 GPU" in lines
    assert any(line.startswith("time          about ") for line in lines)
    assert any(line.endswith("nor is the network between nodes:") for line in lines)
    half = invoke(*asked, "--set=hardware.processes=8").stdout.splitlines()
    assert "ranks         8 × 1 GPU, 8 GPUs idle" in half


def test_models_of_two_shapes_cannot_share_a_vllm() -> None:
    asked = ["train", "--plan", "--profile", "qwen3-8b", "--set=roles.solver.model=Qwen/Qwen3-4B-Base"]
    done = invoke(*asked)
    assert done.exit_code == 2
    assert "in turns, and their shapes differ" in done.stderr
    assert "name models of one shape, or set hardware.colocate_vllm to false" in done.stderr
    assert invoke(*asked, "--set=hardware.colocate_vllm=false").exit_code == 0


def test_a_plan_for_a_cluster_is_made_without_ray_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = invoke("train", "--plan", "--set", "hardware.cluster=ray", "--json")
    placement = json.loads(done.stdout)["data"]["placement"]
    assert placement["cluster"] == "not known: hardware.cluster: ray needs ray, which is not installed"


def test_a_plan_says_what_to_change_where_it_does_not_fit() -> None:
    large = ["--set", "solver_grpo.micro_batch=16"]
    shown = invoke("train", "--plan", "--profile", "qwen3-0.6b-24gb", *large).stdout
    assert "\nfits          GPUs of 40, 48, 80, 141 GB; not of 24\n" in shown
    assert "\nto use less   lower micro_batch of challenger_grpo and solver_grpo" in shown
    unknown = ["--set", "roles.solver.model=somebody/model"]
    shown = invoke("train", "--plan", "--profile", "qwen3-8b", *unknown).stdout
    assert "memory        unknown: the models' config.json is not here; download them first" in shown


def test_a_plan_for_people_has_a_line_a_stage() -> None:
    shown = invoke("train", "--plan").stdout
    assert [line.split()[0] for line in shown.splitlines()[3:8]] == [
        "challenger",
        "candidates",
        "votes",
        "solver",
        "diagnosis",
    ]
    assert "no earlier run of these settings has measured" in shown
    assert "a round;" in shown  # an estimate


def test_an_existing_runs_name_is_refused_and_its_log_untouched(tmp_path: Path) -> None:
    play("runs/diagevo.db", "taken", root=Path("runs"), rounds=1)
    before = json.loads(invoke("memory", "verify", "--run", "taken", "--json").stdout)["data"]["events"]
    done = invoke("train", "--run", "taken", "--display", "none")
    assert done.exit_code == 2
    assert "run taken exists already" in done.stderr
    assert "diagevo train --run taken --resume" in done.stderr
    after = json.loads(invoke("memory", "verify", "--run", "taken", "--json").stdout)["data"]["events"]
    assert after == before


def test_a_run_that_does_not_exist_cannot_be_resumed_and_the_others_are_named() -> None:
    done = invoke("train", "--resume")
    assert (done.exit_code, done.stderr) == (
        3,
        "error: there is no run to resume\nhint: start one: diagevo train\n",
    )
    play("runs/diagevo.db", "here", root=Path("runs"), rounds=1)
    done = invoke("train", "--run", "there", "--resume")
    assert (done.exit_code, done.stderr) == (3, "error: there is no run there\nhint: did you mean here?\n")
