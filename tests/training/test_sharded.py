"""FSDP2 for real, on ranks of the CPU: what a rank loads, the reference, the weights and a resumed phase."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diagevo.errors import ConfigError
from diagevo.planning.footprint import checkpoint, update
from diagevo.planning.shapes import find_shape
from tests.forked import Forked
from tests.sampling.tiny_model import make_tiny_model
from tests.training import phase
from tests.training.forked_ranks import play_ranks
from tests.training.sharded import as_the_file_says

pytestmark = pytest.mark.slow
LONG = "100"
"""Tokens that a completion may have: so many that the ranks end at different ones. A policy that is gathered
at each token then waits for a rank that has ended."""


@dataclass(frozen=True)
class Played:
    start: Path
    folder: Path
    parts: int
    """That the reference is sharded into."""
    kls: list[float]
    """Of each step."""
    gap: float
    """Between the sampler's log-probabilities and the trainer's."""
    held: dict[str, int]
    """Bytes that rank 0 held of what it trains."""
    longest: list[int]
    """Of the completions of the first step, a rank each; none where it was played before."""
    update: list[int]
    """The most bytes of an update above them; its rows, the longest prompt and the longest completion."""


def told_by(start: Path, folder: Path, **more: str) -> dict[str, list[str]]:
    """What rank 0 of RANKS printed. Raises CalledProcessError where a rank did not end well."""
    ranks, environment = int(more.get("RANKS", "2")), {**os.environ, **more}
    arguments = [str(start), str(folder)]
    printed = play_ranks("tests.training.sharded:main", arguments, environment, ranks=ranks)
    lines = [line.split(maxsplit=1) for line in printed.splitlines()]
    return {line[0]: line[1].split() for line in lines if len(line) == 2}


def play(start: Path, folder: Path, **more: str) -> Played:
    told = told_by(start, folder, **more)
    sizes = told["BYTES"]
    return Played(
        start=start,
        folder=folder,
        parts=int(told["PARTS"][0]),
        kls=[float(kl) for kl in told["KL"]],
        gap=float(told["GAP"][0]),
        longest=[int(length) for length in told.get("LONGEST", [])],
        update=[int(word) for word in told["UPDATE"]],
        held={name: int(size) for name, size in zip(sizes[::2], sizes[1::2], strict=True)},
    )


def apart(a: Path, b: Path) -> float:
    """The largest difference of two phases' weights, or of two files'.

    A sharded phase saves tied weights under both of their names.
    """
    files = (path / "final/model.safetensors" if path.is_dir() else path for path in (a, b))
    first, second = map(load_file, files)
    for weights in (first, second):
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


TIED, UNTIED = (
    pytest.mark.parametrize("played", [tied], ids=[name], indirect=True, scope="module")
    for name, tied in {"tied": True, "untied": False}.items()
)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A sharded phase, whose ranks draw completions of different lengths."""
    folder = tmp_path_factory.mktemp("sharded")
    start = make_tiny_model(folder / "model", tied=request.param, scale=0.15)
    return play(start, folder / "played", **as_the_file_says(), LONG=LONG)


def test_a_sharded_phase_is_the_phase_of_whole_models(played: Played, tmp_path: Path) -> None:
    """Its reference is the starting weights on every rank, and its sampler is the policy."""
    alone = play(played.start, tmp_path / "whole", LONG=LONG)
    assert played.longest[0] != played.longest[1], "else a policy gathered at each token would do too"
    assert (played.parts, alone.parts) == (6, 0), "two layers, embedding, norm, head, and the rest"
    assert len(played.kls) == len(alone.kls) == 3
    for phase_ in (played, alone):
        assert abs(phase_.kls[0]) < 1e-6, "the policy of the first step is its own reference"
        assert phase_.gap < 1e-5, "measured, and rounding"
    assert played.kls[2] > 1e-3, "it moved"
    assert played.kls == pytest.approx(alone.kls, abs=1e-4)
    assert apart(played.folder, alone.folder) < 1e-6


@pytest.mark.parametrize("how", [as_the_file_says(), {}], ids=["sharded", "whole"])
def test_a_sampler_with_other_weights_ends_a_phase_of_several_ranks(
    how: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    stale = make_tiny_model(tmp_path / "stale", seed=1)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        play(tiny_model, tmp_path / "played", **how, STALE=str(stale))
    assert "WrongTrainingError: the log-prob gap between sampler and trainer is" in caught.value.stderr
    assert not (tmp_path / "played/final").exists()


def test_a_rank_holds_the_bytes_that_the_plan_says(played: Played) -> None:
    """Half of everything. Of 89 rows of the vocabulary the first rank holds 45."""
    shape = find_shape(str(played.start))
    assert shape is not None
    planned = update(shape, rows=1, prompt=1, new=1, ranks=2, sharded=True)
    found, halves = played.held, 1 if shape.tied else 2
    assert found["weights"] == found["reference"] == found["gradients"]
    assert found["weights"] == planned["weights"] + 2 * 32 * halves
    assert found["Adam"] == 2 * found["weights"]
    assert {name: size / planned[name] for name, size in found.items()} == pytest.approx(
        dict.fromkeys(found, 1.0), rel=0.003
    )


def test_a_rank_loads_no_more_than_its_part_of_the_policy_and_of_the_reference(tmp_path: Path) -> None:
    """170 MB each in float32. Their file has 16 bits: one of 32 would be mapped, and counted as nobody's."""
    from safetensors.torch import save_file

    start = make_tiny_model(tmp_path / "model", width=1536)
    weights = load_file(start / "model.safetensors")
    save_file(
        {name: w.bfloat16() for name, w in weights.items()}, start / "model.safetensors", {"format": "pt"}
    )
    told = told_by(start, tmp_path / "loaded", **as_the_file_says(), LOAD="1")
    part = 4 * sum(weight.numel() for weight in weights.values()) / 2
    assert 2 * part < int(told["LOADED"][0]) < 1.2 * 2 * part


def test_groups_that_each_hold_the_whole_state_train_as_one_does(tmp_path: Path) -> None:
    """HSDP, two groups of two, killed in step 3; what they saved, two ranks go on from.

    Of a norm of two values two of four ranks hold nothing.
    """
    start = make_tiny_model(tmp_path / "model", width=8, scale=0.15)
    groups = {
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2",
    }
    how, found = as_the_file_says(), [str(tmp_path / name) for name in ("all", "groups")]
    all_ = play(start, tmp_path / "four", RANKS="4", **how, GRADIENTS=found[0])
    with pytest.raises(subprocess.CalledProcessError) as killed:
        play(start, tmp_path / "halves", RANKS="4", **how, **groups, GRADIENTS=found[1], KILL="2")
    [told] = [line for line in killed.value.output.splitlines() if line.startswith("BYTES ")]
    _, weights, held, *_ = told.split()
    assert (weights, int(held)) == ("weights", pytest.approx(2 * all_.held["weights"], rel=0.05))
    assert apart(*map(Path, found)) < 1e-6
    play(start, tmp_path / "halves", **how)
    assert apart(tmp_path / "four", tmp_path / "halves") < 1e-6


def test_phases_share_the_meshes_of_their_process(tmp_path: Path) -> None:
    """Each mesh has communicators of NCCL, which hold memory of the card."""
    start = make_tiny_model(tmp_path / "start")
    pairs = {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2", "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2"}
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "ACCELERATE_USE_PARALLELISM_CONFIG": "true"}
    nowhere = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    env = {**os.environ, **as_the_file_says(), **pairs, **rank, **nowhere}
    with Forked("tests.training.sharded:count_groups", [str(start)], env=env) as ranked:
        printed, errors = ranked.stdout.read(), ranked.stderr.read()
        assert ranked.wait(60) == 0, errors
    counts = [line.split()[1] for line in printed.splitlines() if line.startswith("GROUPS")]
    assert len(counts) == 3
    assert len(set(counts)) == 1, counts


def test_an_update_takes_no_more_than_the_plan_says_and_not_much_less(played: Played) -> None:
    """The plan has three layers gathered; on the CPU, where nothing is sent meanwhile, it is one or two."""
    shape = find_shape(str(played.start))
    assert shape is not None
    most, rows, prompt, new = played.update
    planned = update(shape, rows=rows, prompt=prompt, new=new, ranks=2, sharded=True, number=4)
    assert 0.97 * most <= planned["gathered"] + planned["activations"] <= 1.25 * most


@TIED
def test_a_sharded_phase_that_was_killed_goes_on_bit_for_bit(played: Played, tmp_path: Path) -> None:
    how = as_the_file_says() | {"LONG": LONG}
    with pytest.raises(subprocess.CalledProcessError):
        play(played.start, tmp_path / "killed", **how, KILL="2")
    assert not (tmp_path / "killed/final").exists()
    saved = tmp_path / "killed/work/checkpoint-2"
    shape = find_shape(str(played.start))
    assert shape is not None
    shards = [file.stat().st_size for file in sorted(saved.glob("*.safetensors"))]
    assert len(shards) == 2, "each rank's, and none has all"
    assert max(shards) < 0.6 * checkpoint(shape)
    final = (played.folder / "final/model.safetensors").stat().st_size
    tied = shape.vocabulary * shape.hidden  # disk.py
    for size, written in ((sum(shards), checkpoint(shape)), (final, 4 * (shape.weights + tied))):
        assert 0 < size - written < 40_000, "and what the files say of them"
    said = how | {"FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}  # by a file of one's own: overruled
    play(played.start, tmp_path / "killed", **said)
    assert apart(tmp_path / "killed", played.folder) == 0.0


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_what_two_ranks_saved_other_numbers_of_ranks_read_bit_for_bit(tied: bool, tmp_path: Path) -> None:
    """Rank 1 is killed while it writes its part of the third checkpoint: the second counts."""
    start, how = make_tiny_model(tmp_path / "model", tied=tied), as_the_file_says()
    with pytest.raises(subprocess.CalledProcessError):
        play(start, tmp_path / "2", **how, WRITE="3", STATE=str(tmp_path / "saved"))
    assert phase.last_saved(tmp_path / "2/work") == 2
    for ranks, so in (("1", {}), ("3", how)):
        shutil.copytree(tmp_path / "2", tmp_path / ranks)
        play(start, tmp_path / ranks, **so, RANKS=ranks, STATE=str(tmp_path / f"read-{ranks}"))
        saved, read = (load_file(tmp_path / name) for name in ("saved", f"read-{ranks}"))
        assert len(saved) == 4 * len({name for name in saved if name.startswith("model.")}), "and its moments"
        assert saved.keys() == read.keys()
        assert all(torch.equal(saved[name], read[name]) for name in saved), ranks
        assert (tmp_path / ranks / "final").is_dir()


@UNTIED
def test_a_sharded_phase_whose_ranks_stop_while_they_draw_goes_on_bit_for_bit(
    played: Played, tmp_path: Path
) -> None:
    """Rank 1 breaks off between two layers, and step 2, which no checkpoint was due for, is saved."""
    how = as_the_file_says() | {"LONG": LONG}
    with pytest.raises(subprocess.CalledProcessError) as stopped:
        play(played.start, tmp_path / "stopped", **how, STOP="3")
    assert "StoppedSafely" in stopped.value.stderr
    assert phase.last_saved(tmp_path / "stopped/work") == 2
    play(played.start, tmp_path / "stopped", **how, STOP="4")  # which it does not have
    assert apart(tmp_path / "stopped", played.folder) == 0.0


def test_a_file_of_accelerate_for_the_first_version_of_fsdp_is_refused(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="version 1 of FSDP"):
        phase.play(tiny_model, tmp_path)
