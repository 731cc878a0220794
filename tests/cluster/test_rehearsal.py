"""The rehearsal of a run on simulated nodes: the shipped shape plays, what would fail there fails here."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.loading import resolve
from diagevo.config.models import Config
from diagevo.config.shipped import PROFILES
from diagevo.doctor import Check
from diagevo.planning.footprint import CARDS
from diagevo.planning.shapes import KNOWN
from diagevo.rehearsal import _at_once, rehearse
from diagevo.training.ranks import worker_command
from tests.cluster import forked_rank
from tests.cluster.nodes import cluster
from tests.forked import server_address
from tests.sampling.tiny_model import CHAT_TEMPLATE, make_tiny_model, make_tiny_tokenizer
from tests.training.forked_ranks import ForkedRank

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SIMULATED = (
    "hardware.device=auto",
    "hardware.threads=1",
    "hardware.accelerate_config=null",
    "hardware.fsdp_size=null",
    "hardware.colocate_vllm=false",
)
"""What a machine without GPUs cannot do. Which rank has which place is as on a node."""


@pytest.fixture(autouse=True)
def _ranks_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    program = [sys.executable, str(Path(forked_rank.__file__)), server_address()]
    monkeypatch.setattr("diagevo.training.ranks.worker_command", lambda spec: [*program, str(spec)])


def shape(model: Path, *settings: str) -> Config:
    named = [f"roles.{role}.model={model}" for role in ("challenger", "solver")]
    given: Any = {"profile": "qwen3-8b-2x8", "environ": {"XDG_CONFIG_HOME": "/nowhere"}}
    return resolve(settings=[*named, *SIMULATED, *settings], **given).config


def played(config: Config, home: Path) -> dict[str, Check]:
    return {check.name.removeprefix("rehearsal: "): check for check in rehearse(config, home)}


def test_the_shipped_shape_trains_and_answers_on_all_gpus_of_two_nodes(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    with cluster(2, gpus=8):
        found = played(shape(model, "hardware.processes=16"), tmp_path / "runs")
    assert {name: check.state for name, check in found.items()} == dict.fromkeys(
        ("models", "prompts", "turn end", "thinking", "training", "answers"), "ok"
    ), found
    assert found["training"].found == "2 steps in 16 ranks, votes between rollouts and update"
    assert found["answers"].found == "12 answers"
    assert list((tmp_path / "runs").iterdir()) == [], "nothing stays"


CHATML = (
    "{%- for m in messages -%}{{ '<|s|>' + m['role'] + '\n' + m['content'] + '<|u|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|s|>assistant\n' }}{%- endif -%}"
)
THINKS = "{%- if enable_thinking is defined and enable_thinking is false -%}{{ '()' }}{%- endif -%}"


def told(home: Path, monkeypatch: pytest.MonkeyPatch, template: str, *settings: str) -> dict[str, Check]:
    """What is found before anything is played, of a model with this template."""
    for part in ("_train", "_answer"):
        monkeypatch.setattr(f"diagevo.rehearsal.{part}", lambda *_: "played")
    model = make_tiny_model(home / "model")
    tokenizer = make_tiny_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(str(model))
    return played(shape(model, *settings), home / "runs")


def test_a_turn_end_that_ends_no_reply_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The template of a base model, whose tokenizer knows the end of a text alone."""
    assert told(tmp_path / "now", monkeypatch, CHATML)["turn end"].state == "ok"
    only_eos = "diagevo.rehearsal.end_ids"
    monkeypatch.setattr(only_eos, lambda folder, tokenizer: [tokenizer.eos_token_id])
    found = told(tmp_path / "then", monkeypatch, CHATML)["turn end"]
    assert found.state == "missing"
    assert found.found == "the template ends a turn with '<|u|>', which ends no reply: the model writes on"


def test_a_template_that_lets_a_model_think_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(tmp_path / "a", monkeypatch, CHAT_TEMPLATE + THINKS)["thinking"]
    assert found.state == "missing"
    setting = "sampling.chat_template_kwargs={enable_thinking: false}"
    assert found.fix.startswith(f"--set {setting}")
    assert told(tmp_path / "b", monkeypatch, CHAT_TEMPLATE + THINKS, setting)["thinking"].state == "ok"


def test_few_answers_at_once_fail_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one GPU of 24 GB had them beside a server of its own. A larger one has room for more."""
    monkeypatch.setattr("diagevo.rehearsal._card", lambda: CARDS[24])
    monkeypatch.setattr("diagevo.rehearsal.shapes_of", lambda _: (KNOWN["Qwen/Qwen3-0.6B-Base"],) * 2)
    one = ["cluster=local", "processes=1", "device=cuda", "colocate_vllm=true"]
    of_24 = ["vllm_memory=0.3", "rows_at_once=256"]
    small = [
        f"{role}_grpo.{key}"
        for role in ("challenger", "solver")
        for key in ("batch_questions=64", "micro_batch=2")
    ]
    asked = [*(f"hardware.{setting}" for setting in (*one, *of_24)), *small]
    found = told(tmp_path / "here", monkeypatch, CHAT_TEMPLATE, *asked)["at once"]
    assert (found.state, found.fix) == ("missing", "raise hardware.vllm_memory")
    assert "46 answers of 768 tokens at once, fewer than 64" in found.found
    monkeypatch.setattr("diagevo.rehearsal._card", lambda: None)
    found = told(tmp_path / "elsewhere", monkeypatch, CHAT_TEMPLATE, *asked)["at once"]
    assert found.state == "ok"
    assert found.found.endswith(", on a GPU of 40 GB")


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in ("embedded", "smollm2-135m")])
def test_on_the_card_that_it_is_for_a_profile_decodes_enough_at_once(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = CARDS[24] if "24gb" in profile else CARDS[80]
    monkeypatch.setattr("diagevo.rehearsal._card", lambda: card)
    config = resolve(profile=profile, environ={"XDG_CONFIG_HOME": "/nowhere"}).config
    [check] = _at_once(config)
    assert check.state == "ok", check


EIGHT = ("qwen3-4b", "octothinker-8b")
"""What places nothing otherwise than `qwen3-8b`."""


def test_the_papers_profiles_have_one_placement() -> None:
    given: Any = {"environ": {"XDG_CONFIG_HOME": "/nowhere"}}
    found = {name: resolve(profile=name, **given).config.hardware for name in (*EIGHT, "qwen3-8b")}
    assert len({hardware.model_dump_json() for hardware in found.values()}) == 1


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in (*EIGHT, "qwen3-8b-2x8")])
def test_every_other_profile_passes_it_as_far_as_a_machine_without_gpus_goes(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> ForkedRank:
        return ForkedRank(argv, log=log, env=env)

    monkeypatch.setattr("diagevo.training.ranks.SupervisedProcess", start)
    monkeypatch.setattr("diagevo.training.ranks.worker_command", worker_command)  # and not a cluster's
    model = make_tiny_model(tmp_path / "model")
    named = [f"roles.{role}.model={model}" for role in ("challenger", "solver") if profile != "embedded"]
    settings = [*named, "validation.questions=null", *SIMULATED]
    environ = {"XDG_CONFIG_HOME": "/nowhere"}
    config = resolve(settings=settings, profile=profile, environ=environ).config
    found = played(config, tmp_path / "runs")
    assert {name: check.found for name, check in found.items() if check.state != "ok"} == {}
    ranks = "8 ranks" if profile == "qwen3-8b" else "one process"
    assert found["training"].found == f"2 steps in {ranks}, votes between rollouts and update"
