"""FSDP2 for real, on two ranks of the CPU: the reference, the weights and a resumed phase."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from diagevo.errors import ConfigError
from diagevo.training.footprint import update
from diagevo.training.ranks import accelerate_file
from diagevo.training.shapes import find_shape
from tests.sampling.tiny_model import make_tiny_model
from tests.training import phase
from tests.training.forked_ranks import play_ranks

pytestmark = pytest.mark.slow


def _as_the_file_says() -> dict[str, str]:
    """What `accelerate launch` hands on of our own file."""
    said = yaml.safe_load(accelerate_file(Path("fsdp")).read_text())["fsdp_config"]
    handed = {name.upper(): str(value).lower() for name, value in said.items()}
    handed["FSDP_AUTO_WRAP_POLICY"] = said["fsdp_auto_wrap_policy"]
    handed["FSDP_STATE_DICT_TYPE"] = said["fsdp_state_dict_type"]
    return handed | {"ACCELERATE_USE_FSDP": "true", "SHARDED": "1"}


def play(start: Path, folder: Path, **more: str) -> list[float]:
    """How many parts the reference is sharded into, then the KL of each step.

    Raises CalledProcessError where a rank did not end well.
    """
    arguments = [str(start), str(folder)]
    printed = play_ranks("tests.training.sharded:main", arguments, {**os.environ, **more})
    lines = [line.split(maxsplit=1) for line in printed.splitlines()]
    told = {line[0]: line[1] for line in lines if line and line[0] in ("KL", "PARTS", "BYTES")}
    (folder / "bytes").write_text(told.get("BYTES", ""))
    return [float(word) for word in [told["PARTS"], *told["KL"].split()]]


def held(folder: Path) -> dict[str, int]:
    """Bytes that rank 0 held of what it trains."""
    words = (folder / "bytes").read_text().split()
    return {name: int(size) for name, size in zip(words[::2], words[1::2], strict=True)}


def apart(a: Path, b: Path) -> float:
    """The largest difference of weights. A sharded phase saves tied weights under both of their names."""
    from safetensors.torch import load_file

    first, second = (load_file(folder / "final/model.safetensors") for folder in (a, b))
    for weights in (first, second):
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[float]]:
    """A model with tied weights, a sharded phase from it, and the phase's KL."""
    folder = tmp_path_factory.mktemp("sharded")
    start = make_tiny_model(folder / "model")
    return start, folder / "played", play(start, folder / "played", **_as_the_file_says())


def test_the_reference_is_the_starting_weights_on_every_rank(
    played: tuple[Path, Path, list[float]], tmp_path: Path
) -> None:
    start, sharded, (parts, *kls) = played
    _, *alone = play(start, tmp_path / "whole")
    assert parts == 3, "two layers and the rest: never the whole reference at once"
    assert len(kls) == len(alone) == 3
    assert abs(kls[0]) < 1e-6, "the policy of the first step is its own reference"
    assert abs(alone[0]) < 1e-6
    assert kls[2] > 1e-3, "it moved"
    assert kls == pytest.approx(alone, abs=1e-4)
    assert apart(sharded, tmp_path / "whole") < 1e-6


def test_a_rank_holds_the_bytes_that_the_plan_says(played: tuple[Path, Path, list[float]]) -> None:
    """Half of everything. Of 89 rows of the vocabulary the first rank holds 45."""
    start, sharded, _ = played
    shape = find_shape(str(start))
    assert shape is not None
    planned = update(shape, rows=1, prompt=1, new=1, ranks=2, sharded=True)
    found = held(sharded)
    assert found["weights"] == found["reference"] == found["gradients"] == planned["weights"] + 2 * 32
    assert found["Adam"] == 2 * found["weights"]
    assert {name: size / planned[name] for name, size in found.items()} == pytest.approx(
        dict.fromkeys(found, 1.0), rel=0.002
    )


def test_the_reference_of_a_model_with_a_head_of_its_own_is_right_too(tmp_path: Path) -> None:
    start = make_tiny_model(tmp_path / "model", tied=False)
    _, first, *_ = play(start, tmp_path / "sharded", **_as_the_file_says())
    assert abs(first) < 1e-6


def test_a_sharded_phase_that_was_killed_goes_on_bit_for_bit(
    played: tuple[Path, Path, list[float]], tmp_path: Path
) -> None:
    start, straight, _ = played
    with pytest.raises(subprocess.CalledProcessError):
        play(start, tmp_path / "killed", **_as_the_file_says(), KILL="2")
    assert not (tmp_path / "killed/final").exists()
    saved = tmp_path / "killed/work/checkpoint-2"
    assert (saved / "pytorch_model_fsdp.bin").is_file()
    assert not list(saved.glob("*.safetensors")), "the weights are there once"
    play(start, tmp_path / "killed", **_as_the_file_says(), RESUME="1")
    assert apart(tmp_path / "killed", straight) == 0.0


def test_a_file_of_accelerate_that_would_empty_the_reference_is_refused(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, tmp_path: Path
) -> None:
    for name in ("ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING"):
        monkeypatch.setenv(name, "true")
    with pytest.raises(ConfigError, match="fsdp_cpu_ram_efficient_loading is true"):
        phase.play(tiny_model, tmp_path, resume=False)
