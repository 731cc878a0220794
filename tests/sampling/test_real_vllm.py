"""A real vLLM server on the CPU: which weights it serves, and what becomes of it when it dies."""

import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from diagevo.errors import ServiceError
from diagevo.sampling.model_folder import load_tokenizer
from diagevo.sampling.sampler import Prompt, Sampler, SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.sampling.vllm_server import VLLMServer
from tests.sampling.processes import members, until
from tests.sampling.real_vllm import CPU_OPTIONS, REAL_VLLM, make_far_adapter, make_wide_model

pytestmark = REAL_VLLM
PROMPTS: list[Prompt] = [[{"role": "user", "content": text}] for text in ("1+1?", "Why?", "So {x}.")]
GREEDY = SamplingParams(temperature=0.0, max_new_tokens=16)


def greedy(sampler: Sampler) -> list[str]:
    return [group[0].text for group in sampler.sample(PROMPTS, n=1, params=GREEDY, seed=0)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model before and after an update, without a chat template: vLLM must be given the plain one."""
    home = tmp_path_factory.mktemp("models")
    return (
        make_wide_model(home / "old", chat_template=False),
        make_wide_model(home / "new", chat_template=False, seed=1),
    )


def test_a_server_serves_the_weights_of_its_folder_also_after_its_engine_was_killed(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = (greedy(TransformersSampler(folder)) for folder in folders)
    assert all(a != b for a, b in zip(old, new, strict=True))
    with VLLMServer(folders[1], log=tmp_path / "server.log", options=CPU_OPTIONS) as server:
        assert greedy(server) == new
        before, url = server.pid, server.url
        assert before is not None
        [engine] = [pid for pid, name in members(before).items() if "EngineCore" in name]
        os.kill(engine, signal.SIGKILL)
        assert greedy(server) == new
        assert server.url == url
        after = server.pid
        assert after not in (None, before)
        until(lambda: not members(before))
    until(lambda: not members(after or 0))


def test_a_policy_with_an_adapter_is_served_with_it_and_not_merged(tmp_path: Path) -> None:
    base, policy = make_wide_model(tmp_path / "base"), tmp_path / "policy"
    make_far_adapter(base, policy).merge_and_unload().save_pretrained(str(tmp_path / "merged"))
    load_tokenizer(base).save_pretrained(str(tmp_path / "merged"))
    merged = greedy(TransformersSampler(tmp_path / "merged"))
    assert all(a != b for a, b in zip(merged, greedy(TransformersSampler(base)), strict=True))
    with VLLMServer(policy, log=tmp_path / "server.log", options=CPU_OPTIONS) as server:
        assert greedy(server) == merged


def test_weights_that_were_not_written_whole_are_reported_with_the_log(tmp_path: Path) -> None:
    cut = make_wide_model(tmp_path / "cut")
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ServiceError, match="SafetensorError") as caught:
        VLLMServer(cut, log=tmp_path / "server.log", options=CPU_OPTIONS)
    assert str(tmp_path / "server.log") in (caught.value.hint or "")


def test_why_a_new_server_and_no_new_weights_in_a_running_one(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """vLLM's own way leaves the old head. Where this test fails, servers may take new weights as they run."""
    development = {"VLLM_SERVER_DEV_MODE": "1"}
    with VLLMServer(folders[0], log=tmp_path / "log", options=CPU_OPTIONS, env=development) as server:
        assert greedy(server) == greedy(TransformersSampler(folders[0]))
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(folders[1])}}
        httpx.post(f"{server.url}/collective_rpc", json=call, timeout=60, trust_env=False).raise_for_status()
        assert greedy(server) != greedy(TransformersSampler(folders[1]))


def test_what_was_compiled_is_found_again_by_the_path_and_not_by_the_weights(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """Where this fails, servers need no link to their policy."""
    config: Any = import_module("vllm.config").ModelConfig

    def compiled(model: Path) -> str:
        return config(model=str(model), dtype="float32").compute_hash()

    assert compiled(folders[0]) != compiled(folders[1])
    link, found = tmp_path / "link", []
    for folder in folders:
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        found.append(compiled(link))
    assert found[0] == found[1]
