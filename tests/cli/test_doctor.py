"""The doctor: what is missing, and the fix."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diagevo import doctor
from diagevo.config.models import HardwareConfig
from tests.cli.program import invoke
from tests.serving import Asked, proxied, reply, serving


def _findings(*arguments: str, code: int) -> dict[str, dict[str, str]]:
    done = invoke("doctor", *arguments, "--json")
    assert done.exit_code == code, done.stdout + done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["data"]}


def test_a_fresh_folder_lacks_a_database_and_is_told_the_command() -> None:
    found = _findings(code=0)
    assert (found["database"]["state"], found["database"]["fix"]) == ("warn", "diagevo init")
    assert found["core packages"]["state"] == "ok"


def test_after_init_the_database_is_checked() -> None:
    invoke("init")
    assert _findings(code=0)["database: schema"]["state"] == "ok"


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server that asks for a key."""

    def models(asked: Asked) -> None:
        known = asked.authorization == "Bearer sesame" and asked.path == "/v1/models"
        reply(asked, b"", 200 if known else 401)

    with serving(models) as server:
        yield f"{server.url}/v1"


def test_training_needs_endpoints_that_answer_and_take_the_key(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    settings = [
        f"--set=roles.diagnostician={{engine: openai, base_url: '{endpoint}', api_key_env: MY_KEY}}",
        "--set=roles.embedder={engine: openai, model: some-model, base_url: 'http://127.0.0.1:9/v1'}",
        "--set=memory.theta_dup=0.5",
    ]
    found = _findings("--for", "train", *settings, code=4)
    assert found["diagnostician"]["state"] == "ok"
    assert "does not answer" in found["embedder"]["found"]
    assert found["thresholds"]["state"] == "warn"
    assert "text-embedding-v4" in found["thresholds"]["fix"]
    monkeypatch.setenv("MY_KEY", "wrong")
    found = _findings("--for", "train", *settings, code=4)
    assert found["diagnostician"]["fix"] == "export MY_KEY=…"


def test_a_service_is_looked_for_on_the_way_that_a_run_takes(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One on this machine is asked directly, another one through the proxy of the environment."""
    monkeypatch.setenv("MY_KEY", "sesame")
    settings = [
        f"--set=roles.diagnostician={{engine: openai, base_url: '{endpoint}', api_key_env: MY_KEY}}",
        "--set=roles.embedder={engine: openai, model: some-model, base_url: 'http://service.example/v1'}",
        "--set=memory.theta_dup=0.5",
    ]
    with proxied(monkeypatch) as asked:
        found = _findings("--for", "train", *settings, code=0)
    assert found["diagnostician"]["found"] == f"{endpoint} answers"
    assert [one.path for one in asked] == ["http://service.example/v1/models"]


@pytest.fixture
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node as the paper's, as torch tells of it."""
    for name, value in {"is_available": True, "device_count": 8, "is_bf16_supported": True}.items():
        monkeypatch.setattr(f"torch.cuda.{name}", lambda *_, value=value, **__: value)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "Card")
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda _: SimpleNamespace(total_memory=85_000_000_000)
    )


def test_without_gpus_the_papers_profile_misses_them_and_vllm() -> None:
    found = _findings("--for", "train", "--profile", "qwen3-8b", code=4)
    assert found["GPU"]["state"] == "missing"
    assert found["GPU"]["found"].endswith("the configuration wants 8")
    assert (found["attention"]["state"], found["attention"]["fix"]) == (
        "warn",
        "pip install 'diagevo[flash]'",
    )
    assert found["vllm"]["fix"] == ("pip install 'diagevo[vllm]', or --set hardware.colocate_vllm=false")


def test_without_torch_its_pinned_version_is_to_be_installed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range makes pip choose a build with gigabytes of CUDA packages."""
    installed = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda name: None if name == "torch" else installed(name))
    fix = _findings("--for", "train", code=4)["torch"]["fix"]
    assert fix == "pip install torch==2.13.0, then pip install -c constraints.txt 'diagevo[train]'"


FETCHED = "flash_attention_2 of kernels on a GPU, fetched from the hub at first use, else sdpa"
ABSENT = "flash_attention_2 is configured; neither flash-attn nor kernels is installed"


@pytest.mark.parametrize(
    ("attention", "installed", "state", "found"),
    [
        ("auto", "", "warn", "sdpa: neither flash-attn nor kernels is installed"),
        ("auto", "flash-attn kernels", "ok", "flash_attention_2 of flash-attn on a GPU"),
        ("auto", "kernels", "ok", FETCHED),
        ("sdpa", "kernels", "ok", "sdpa, as configured"),
        ("flash_attention_2", "kernels", "ok", FETCHED),
        ("flash_attention_2", "", "missing", ABSENT),
    ],
)
def test_all_three_attentions_are_known(
    monkeypatch: pytest.MonkeyPatch, attention: Any, installed: str, state: str, found: str
) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: "1.0" if name in installed.split() else None)
    check = doctor._attention(HardwareConfig(device="cuda", attention=attention))
    assert (check.state, check.found) == (state, found)


@pytest.mark.usefixtures("eight_gpus")
def test_a_node_of_eight_gpus_suits_the_papers_profile() -> None:
    found = _findings("--for", "train", "--profile", "qwen3-8b", code=4)
    assert (found["GPU"]["state"], found["GPU"]["found"]) == ("ok", "8 × Card")
    assert "bfloat16" not in found
    fullest = "challenger: rollouts, votes, beside your diagnostician: 75.8 GB of 85.0 GB"
    assert (found["GPU memory"]["state"], found["GPU memory"]["found"]) == ("ok", fullest)


@pytest.mark.usefixtures("eight_gpus")
def test_what_does_not_fit_the_gpus_that_are_there_is_found() -> None:
    def about(*settings: str) -> dict[str, dict[str, str]]:
        return _findings("--for", "train", "--profile", "qwen3-8b", *settings, code=4)

    many = about("--set=hardware.processes=9")["GPU"]
    assert (many["state"], many["fix"]) == ("missing", "--set hardware.processes=8")
    full = about("--set=hardware.vllm_memory=0.9")["GPU memory"]
    fullest = "challenger: rollouts, votes, beside your diagnostician: 120.0 GB of 85.0 GB"
    assert (full["state"], full["found"]) == ("missing", fullest)
    assert "(hardware.vllm_memory)" in full["fix"]
    few = about("--set=hardware.vllm_memory=0.3")["GPU memory"]
    assert (few["state"], few["fix"]) == ("warn", "raise hardware.vllm_memory")
    assert few["found"].endswith("56 answers of 768 tokens at once, fewer than 64")


def test_a_disk_that_the_weights_of_a_run_will_fill_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """8.19e9 numbers of 4 bytes: five rounds of two policies, and three checkpoints of three times that."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=622e9))
    few = _findings("--for", "train", "--profile", "qwen3-8b", code=4)["disk for the run"]
    assert few["state"] == "missing"
    assert "up to 622.5 GB; 622.0 GB are free" in few["found"]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=623e9))
    assert _findings("--for", "train", "--profile", "qwen3-8b", code=4)["disk for the run"]["state"] == "ok"


def test_a_run_that_asks_nobody_needs_no_endpoint() -> None:
    found = _findings("--for", "train", NOWHERE, "--set=method=r-zero", code=0)
    assert found["diagnostician"]["found"] == "diagnosis.enabled is false: not asked"
    assert "thresholds" not in found


NOWHERE = "--set=roles.diagnostician={engine: openai, base_url: 'http://127.0.0.1:9/v1'}"


@pytest.mark.parametrize(
    ("purpose", "setting", "name", "said"),
    [
        ("train", NOWHERE, "thresholds", "compares words only"),  # the hashing embedder, and a model's words
        ("eval", "--set=roles.solver.model=nowhere", "solver model", "nowhere is not a model folder"),
        ("train", "--set=filter.tua=2", "configuration", "the closest is filter.tau"),
    ],
)
def test_what_no_run_can_use_is_a_finding(purpose: str, setting: str, name: str, said: str) -> None:
    found = _findings("--for", purpose, setting, code=4)[name]
    assert said in found["found"] + found["fix"]


def test_a_validation_set_that_cannot_be_read_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    expected = {
        str(tmp_path / "mine.jsonl"): ("ok", "mine.jsonl, 1 questions"),
        str(tmp_path / "none.jsonl"): ("missing", "cannot be read"),
        "null": ("warn", "so no checkpoint is chosen"),
        "benchmark:validation": ("warn", "from the hub"),
    }
    for questions, (state, said) in expected.items():
        code = 4 if state == "missing" else 0
        found = _findings("--for", "train", f"--set=validation.questions={questions}", code=code)
        assert (found["validation"]["state"], said in found["validation"]["found"]) == (state, True)


def test_a_cluster_that_does_not_answer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    found = _findings("--for", "train", "--set=hardware={cluster: ray, device: cuda}", code=4)
    assert found["cluster"]["state"] == "missing"
    assert "no Ray cluster answers at 127.0.0.1:1" in found["cluster"]["found"]
    assert "GPU" not in found, "this machine need not have any"
