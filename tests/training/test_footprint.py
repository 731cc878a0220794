"""What a plan says of a GPU's memory: the weights of models, the table of an 8B, profiles and cards.

Beside what is really allocated: test_real_sizes.py, and under FSDP on two ranks test_sharded.py.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from diagevo.config.loading import resolve
from diagevo.config.models import Config, HardwareConfig, SamplingConfig
from diagevo.config.shipped import PROFILES
from diagevo.planning.disk import disk_bytes
from diagevo.planning.footprint import (
    CARDS,
    Load,
    _engine,
    checkpoint,
    gpu_memory_plan,
    host_memory_bytes,
    resident,
    shapes_of,
    update,
)
from diagevo.planning.shapes import KNOWN, find_shape, shape_of
from diagevo.sampling import decoding
from tests.training import phase

EIGHT_B = KNOWN["Qwen/Qwen3-8B-Base"]
GB = 1e9


def of(profile: str, *settings: str) -> Config:
    return resolve(settings=list(settings), profile=profile, environ={"XDG_CONFIG_HOME": "/nowhere"}).config


def planned(config: Config) -> list[Load]:
    shapes = shapes_of(config)
    assert shapes is not None
    return gpu_memory_plan(config, *shapes)


def test_the_models_of_the_profiles_have_the_weights_that_are_published() -> None:
    assert {name.split("/")[1]: shape.weights for name, shape in KNOWN.items()} == {
        "Qwen3-0.6B-Base": 596_049_920,
        "Qwen3-1.7B-Base": 1_720_574_976,
        "Qwen3-4B-Base": 4_022_468_096,
        "Qwen3-4B-Instruct-2507": 4_022_468_096,
        "Qwen3-8B-Base": 8_190_735_360,
        "OctoThinker-8B-Hybrid-Base": 8_030_261_248,
    }


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("qwen3", {"head_dim": 16}),
        ("qwen3", {"head_dim": 8, "tie_word_embeddings": True, "attention_bias": True}),
        ("qwen2", {}),
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("mistral", {"head_dim": 16}),
    ],
)
def test_a_config_says_how_many_weights_the_model_has(kind: str, more: dict[str, Any]) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 11}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
    config = AutoConfig.for_model(kind, **(sizes | heads | more))
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    shape = shape_of(config.to_dict())
    assert shape is not None
    assert shape.weights == sum(p.numel() for p in model.parameters())
    layer = sum(p.numel() for p in model.model.layers[0].parameters())
    assert (shape.layer, shape.layers) == (layer, 3)


def test_a_model_that_is_not_counted_here_is_not_guessed() -> None:
    assert shape_of({"model_type": "mamba"}) is None
    assert find_shape("somebody/model") is None
    small = find_shape("builtin:arithmetic")
    assert small is not None
    assert small.weights < 1_000_000


def test_an_8b_on_four_gpus_takes_what_was_reckoned_by_hand() -> None:
    """Weights, Adam and reference 33 GB; cache of 0.3 and of 0.5 of a card; activations of 8 rows 17 to 25:
    there a layer's work was reckoned smaller than what is allocated."""
    state = resident(EIGHT_B, ranks=4, sharded=True)
    assert sum(state.values()) / GB == pytest.approx(32.8, abs=0.05)
    assert sum(resident(KNOWN["Qwen/Qwen3-4B-Base"], ranks=4, sharded=True).values()) / GB == pytest.approx(
        16.1, abs=0.05
    )
    engines = [_engine("", share, EIGHT_B, 512, SamplingConfig()) for share in (0.3, 0.5)]
    assert EIGHT_B.cached * 2 == 147_456
    assert [round(engine.tokens(85.5e9), -3) for engine in engines] == [42_000, 158_000]
    short, long = (
        update(EIGHT_B, rows=8, prompt=prompt, new=4096, ranks=4, sharded=True)["activations"] / GB
        for prompt in (200, 2048)
    )
    assert 17 <= short <= 17 * 1.3
    assert 25 <= long <= 25 * 1.3
    assert checkpoint(EIGHT_B) / GB == pytest.approx(98.3, abs=0.05)


def test_adapters_train_a_hundredth_on_one_base_in_bfloat16() -> None:
    """Rank 32 on seven matrices: 4096 to 4096 twice, to 1024 twice, to 12288 three times."""
    assert EIGHT_B.adapters(32) == 36 * 32 * (2 * 8192 + 2 * 5120 + 3 * 16384)
    parts = resident(EIGHT_B, lora=32)
    adapters = EIGHT_B.adapters(32)
    assert parts == {
        "base": 2 * EIGHT_B.weights,
        "weights": 4 * adapters,
        "Adam": 8 * adapters,
        "reference": 4 * adapters,
    }


def test_an_engine_of_adapters_holds_two_of_them_beside_one_base() -> None:
    """The policy's and the frozen one's, each in a slot of vLLM's."""
    config = of("qwen3-8b-lora-80gb", "training.lora=24")
    plain = of("qwen3-8b-lora-80gb", "training.lora=null")
    for stage in ("challenger: rollouts, votes", "candidates, votes"):
        [inside], [without] = (
            next(load.engines for load in planned(each) if load.stage == stage) for each in (config, plain)
        )
        assert inside.needed - without.needed == 2 * 2 * EIGHT_B.adapters(32), stage
    assert host_memory_bytes(config, EIGHT_B, EIGHT_B, 1) == 2 * EIGHT_B.weights + 6_000_000_000


def test_on_a_cluster_ranks_hold_what_they_hold_on_one_machine() -> None:
    """But for the diagnostician, which has no GPU of theirs."""
    here = planned(of("qwen3-8b"))
    placed = planned(of("qwen3-8b", "hardware.cluster=ray"))
    beside = [load.stage for load in here if "diagnostician" in load.stage]
    assert beside == [f"{load.stage}, beside your diagnostician" for load in here[:5]]
    assert [(load.stage, load.peak(84.9e9)) for load in placed] == [
        (load.stage, load.peak(84.9e9)) for load in here if load.stage not in beside
    ] + [("diagnosis, by your server", int(0.9 * 84.9e9))]
    assert [load.placed for load in placed] == [True] * 5 + [False]
    assert not any(load.gpus for load in placed), "Ray chooses which"
    assert [load.gpus for load in here] == [tuple(range(8))] * 5 + [(7,)] * 5


def test_a_head_that_is_the_embedding_is_on_the_disk_twice_where_ranks_are_sharded() -> None:
    """Ten finished policies; not in three checkpoints of weights and two moments. As two real ranks write
    them: test_sharded.py."""
    weights, head = 4_022_468_096, 151_936 * 2560
    assert disk_bytes(of("qwen3-4b")) == 4 * (10 * (weights + head) + 3 * 3 * weights)
    alone = of("qwen3-4b", "hardware.accelerate_config=null", "hardware.processes=1")
    assert disk_bytes(alone) == 4 * (10 + 3 * 3) * weights


def test_without_vllm_a_rank_holds_the_frozen_solver_too_and_decodes_by_itself() -> None:
    settings = ["hardware.cluster=ray", "hardware.colocate_vllm=false"]
    found = planned(of("qwen3-0.6b-24gb", *settings, "hardware.rows_at_once=8"))
    assert [(load.stage, load.placed) for load in found] == [
        ("challenger: rollouts", True),
        ("challenger: update", True),
        ("solver: rollouts", True),
        ("solver: update", True),
        ("candidates, votes", True),
    ]
    assert found[0].parts["solver's weights"] == found[4].parts["weights"] == 2 * 596_049_920
    assert found[4].parts["cache"] == 2 * 8 * 6144 * 57_344


CARD_OF = {
    "embedded": None,
    "smollm2-135m": None,
    "qwen3-0.6b-24gb": 24,
    "qwen3-1.7b-80gb": 80,
    "qwen3-8b-lora-80gb": 80,
}


@pytest.mark.parametrize("profile", [name for name in PROFILES if CARD_OF.get(name, 80)])
def test_a_profile_fits_the_card_that_it_names(profile: str) -> None:
    config = of(profile)
    card = CARD_OF.get(profile, 80)
    assert card is not None
    found = planned(config)
    assert [(load.stage, load.peak(CARDS[card]) / GB) for load in found if not load.fits(CARDS[card])] == []
    gpus = {gpu for load in found for gpu in load.gpus}
    machine = 0 if config.hardware.cluster == "ray" else 1 if profile in CARD_OF else 8
    assert len(gpus) == machine, "with the diagnostician, all of the machine; Ray chooses which"
    assert [load.stage for load in found for engine in load.engines if engine.more(CARDS[card])] == []


def test_twice_the_rows_of_an_update_do_not_fit_the_card() -> None:
    config = of("qwen3-8b", "solver_grpo.micro_batch=16", "challenger_grpo.micro_batch=16")
    assert not all(load.fits(CARDS[80]) for load in planned(config))


def test_a_diagnostician_beside_the_challenger_is_counted_too() -> None:
    """An update of eight rows takes 55.5 GB; the diagnostician's 25.5 have no room in 0.95 of 84.9."""
    full = [
        load for load in planned(of("qwen3-8b", "challenger_grpo.micro_batch=8")) if not load.fits(84.9e9)
    ]
    assert [(load.stage, load.gpus) for load in full] == [
        ("challenger: update, beside your diagnostician", (7,))
    ]


def test_rows_decoded_at_once_are_counted() -> None:
    """0.6B without vLLM: 256 rows of 6,144 tokens at 172 kB are 270 GB of cache, 8 rows are 8."""
    settings = ["hardware.colocate_vllm=false"]
    many = planned(of("qwen3-0.6b-24gb", *settings, "hardware.rows_at_once=256"))
    few = planned(of("qwen3-0.6b-24gb", *settings, "hardware.rows_at_once=8"))
    assert many[0].parts["cache"] == 256 * 6144 * 3 * 57_344
    assert few[0].parts["cache"] * 32 == many[0].parts["cache"]


def test_no_more_rows_are_decoded_at_once_than_the_setting_says(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six completions a step, two at once."""
    decode_batch, sizes = decoding._decode_batch, []

    def noted(model: Any, prompts: Any, rows: Any, how: Any) -> None:
        sizes.append(len(rows))
        decode_batch(model, prompts, rows, how)

    monkeypatch.setattr(decoding, "_decode_batch", noted)
    hardware = HardwareConfig(device="cpu", rows_at_once=2)
    phase.trained(tiny_model, tmp_path, rows=phase.ROWS[:2], hardware=hardware)
    assert sizes == [2, 2, 2]
