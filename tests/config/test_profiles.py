"""The profiles, the paper's values, and the files that are written."""

from fractions import Fraction
from importlib.resources import files
from typing import Any

import pytest

from diagevo.config.loading import of_file, of_profile, resolve
from diagevo.config.models import Config, HardwareConfig
from diagevo.config.paper import DIAGNOSTICIANS, NOT_METHOD, STATED, OneOf, deviations
from diagevo.config.resources import (
    ClusterNode,
    describe_bundles,
    describe_nodes,
    on_gpus,
    rank_bundles,
    refusal,
    workload,
)
from diagevo.config.shipped import PROFILES
from diagevo.config.sources import dotted, keys
from diagevo.config.writing import scalar, template, to_yaml
from diagevo.planning.footprint import gpu_memory_plan, shapes_of

PAPER_TABLES = {
    # GRPO optimization settings
    ("solver_grpo", "learning_rate"): 1e-6,
    ("solver_grpo", "weight_decay"): 1e-2,
    ("solver_grpo", "beta"): 1e-2,
    ("challenger_grpo", "learning_rate"): 1e-6,
    ("sampling", "temperature"): 1.0,
    ("sampling", "top_p"): 0.99,
    # DiagEvo-specific training configuration
    ("solver_grpo", "batch_questions"): 256,
    ("challenger_grpo", "batch_questions"): 256,
    ("solver_grpo", "group"): 8,
    ("challenger_grpo", "group"): 8,
    ("solver_grpo", "max_steps"): 12,
    ("challenger_grpo", "max_steps"): 6,
    ("round", "responses"): 12,
    ("round", "rounds"): 5,
    # reward, filtering, curriculum, memory maintenance
    ("reward", "repetition_weight"): 1.0,
    ("filter", "p_low"): Fraction(1, 4),
    ("filter", "p_high"): Fraction(3, 4),
    ("filter", "tau"): Fraction(8, 5),
    ("memory", "theta_up"): Fraction(7, 10),
    ("schedule", "k"): Fraction(1, 2),
    ("memory", "theta_dup"): 0.5,
    ("memory", "theta_merge"): 0.5,
    ("memory", "shortlist"): 5,
}
"""Copied from the paper's three tables by hand, apart from diagevo/config/paper.py."""


def _value(config: Config, path: tuple[str, str]) -> object:
    return getattr(getattr(config, path[0]), path[1])


@pytest.mark.parametrize("profile", ["qwen3-4b", "qwen3-8b", "octothinker-8b"])
def test_a_profile_of_the_paper_has_every_value_of_its_tables(profile: str) -> None:
    config = of_profile(profile).config
    assert {path: _value(config, path) for path in PAPER_TABLES} == PAPER_TABLES
    [prompts, attention] = deviations(of_profile(profile))
    assert (attention.key, attention.value, attention.paper) == (
        "hardware.attention",
        "auto",
        "flash_attention_2",
    )
    assert (prompts.key, prompts.value, prompts.kind) == ("prompts", "DiagEvo's own wording", "wording")


def test_the_three_base_models_are_the_papers() -> None:
    models = [of_profile(name).config.roles.solver.model for name in PROFILES[1:4]]
    assert models == [
        "Qwen/Qwen3-4B-Base",
        "Qwen/Qwen3-8B-Base",
        "OctoThinker/OctoThinker-8B-Hybrid-Base",
    ]


def test_a_changed_value_is_a_deviation_with_the_papers_value_beside_it() -> None:
    changed = resolve(
        settings=["filter.tau=2", "round.candidates=9"],
        profile="qwen3-8b",
        environ={"XDG_CONFIG_HOME": "/nowhere"},
    )
    prompts, candidates, tau, attention = deviations(changed)
    assert attention.key == "hardware.attention"
    assert prompts.key == "prompts"
    assert (tau.key, tau.value, tau.paper, tau.kind) == ("filter.tau", "2", "8/5", "paper")
    assert (candidates.key, candidates.kind) == ("round.candidates", "decided")
    assert tau.source.where == "--set filter.tau"


@pytest.mark.parametrize(
    "setting",
    [
        "validation.questions=null",
        "validation.limit=9",
        "validation.metric=mean_at_k",
        "diagnosis.trajectory_characters=400",
        "roles.diagnostician.model=qwen-plus",
        "roles.diagnostician.max_tokens=64",
        "hardware.device=cpu",
        "hardware.attention=sdpa",
        "hardware.precision=float16",
        "method=r-zero",
    ],
)
def test_what_is_measured_asked_and_computed_with_is_compared_too(setting: str) -> None:
    changed = resolve(settings=[setting], profile="qwen3-8b", environ={"XDG_CONFIG_HOME": "/nowhere"})
    assert setting.partition("=")[0] in {deviation.key for deviation in deviations(changed)}


@pytest.mark.parametrize(
    "setting",
    [
        *(f"roles.diagnostician.model={model}" for model in DIAGNOSTICIANS.values),
        "hardware.vllm_memory=0.5",
        "hardware.processes=4",
        "seed=7",
    ],
)
def test_the_diagnosticians_that_the_paper_tested_and_where_a_run_goes_are_no_deviation(setting: str) -> None:
    changed = resolve(settings=[setting], profile="qwen3-8b", environ={"XDG_CONFIG_HOME": "/nowhere"})
    assert [found.key for found in deviations(changed)] == ["prompts", "hardware.attention"]


def test_true_labels_are_a_deviation() -> None:
    changed = resolve(settings=["round.true_labels=true"], environ={"XDG_CONFIG_HOME": "/nowhere"})
    [labels] = [found for found in deviations(changed) if found.key == "round.true_labels"]
    assert (labels.value, labels.paper, labels.kind) == (True, False, "paper")


def test_every_setting_is_either_compared_with_the_paper_or_named_as_no_part_of_the_method() -> None:
    settings = {dotted(path) for path in keys()}
    assert set(STATED) | set(NOT_METHOD) == settings
    assert not set(STATED) & set(NOT_METHOD)


def test_the_embedded_profile_says_where_it_leaves_the_paper() -> None:
    found = {deviation.key for deviation in deviations(of_profile("embedded"))}
    assert {"world", "roles.solver.model", "roles.diagnostician.engine", "solver_grpo.learning_rate"} <= found
    assert not found & {"schedule.k", "filter.tau", "filter.p_low", "round.responses", "solver_grpo.group"}


def test_what_the_paper_states_are_keys_and_the_defaults() -> None:
    """The models' own defaults are the paper's: only roles, which have none, and the hardware are taken from
    a profile, and FlashAttention is used where it is found."""
    defaults = of_profile("qwen3-8b").config.model_dump(mode="json")
    for key, (value, _) in STATED.items():
        section, _, name = key.rpartition(".")
        tree = defaults
        for part in section.split(".") if section else ():
            tree = tree[part]
        if isinstance(value, OneOf):
            assert tree[name] in value.values, key
        elif key == "hardware.attention":
            assert (tree[name], value) == ("auto", "flash_attention_2")
        else:
            assert tree[name] == (list(value) if isinstance(value, tuple) else value), key


@pytest.mark.parametrize("profile", PROFILES)
def test_the_commented_file_of_init_means_exactly_the_profile(profile: str, tmp_path) -> None:
    file = tmp_path / "diagevo.yaml"
    file.write_text(template(profile), encoding="utf-8")
    assert of_file(file).config == of_profile(profile).config


@pytest.mark.parametrize("profile", PROFILES)
def test_the_commented_file_shows_every_key_and_what_it_is_for(profile: str) -> None:
    lines = template(profile).splitlines()
    for path, info in keys().items():
        indent = "  " * (len(path) - 1)
        if path != ("profile",):
            assert any(line.startswith(f"{indent}# {path[-1]}: ") for line in lines), path
            assert f"{indent}# {info.description}" in lines


def test_uncommenting_every_key_changes_nothing(tmp_path) -> None:
    """So that each commented value is written as the loader reads it."""
    wanted = {path[-1] for path in keys()}
    lines = []
    for line in template("embedded").splitlines():
        bare = line.lstrip()
        name = bare.removeprefix("# ").partition(":")[0]
        if bare.startswith("# ") and name in wanted and "`" not in bare and not bare.endswith("."):
            line = line.replace("# ", "", 1)
        lines.append(line)
    file = tmp_path / "diagevo.yaml"
    file.write_text("\n".join(lines), encoding="utf-8")
    found = of_file(file)
    assert found.config == of_profile("embedded").config
    assert {source.kind for source in found.sources.values()} == {"file"}


def test_a_written_configuration_reads_back_the_same(tmp_path) -> None:
    config = resolve(
        settings=["filter.tau=5/3", "memory.theta_dup=1e-3"], environ={"XDG_CONFIG_HOME": "/nowhere"}
    ).config
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config), encoding="utf-8")
    assert of_file(file).config == config


@pytest.mark.parametrize(
    "text", ["yes", "null", "1e3", "a: b", "- x", "#c", "012", "", "é x", "~", "1/2", "a/b"]
)
def test_a_text_is_quoted_where_yaml_would_read_something_else(text: str) -> None:
    from ruamel.yaml import YAML

    assert YAML(typ="safe", pure=True).load(f"key: {scalar(text)}\n") == {"key": text}


def test_the_plan_counts_completions_of_the_papers_round() -> None:
    """6 steps × 256 × 8 questions with 10 votes each; 8,000 candidates with 12; 12 × 256 × 8 rollouts."""
    rows = {row.stage: row for row in workload(of_profile("qwen3-8b").config, {"votes": 30.0})}
    assert rows["challenger"].completions == 12_288 + 122_880
    assert rows["candidates"].completions == 8_000
    assert rows["votes"].completions == 96_000
    assert rows["solver"].completions == 24_576
    assert rows["diagnosis"].calls == 3 * 24_576
    assert (rows["votes"].seconds, rows["solver"].seconds) == (30.0, None)


@pytest.mark.parametrize("profile", PROFILES)
def test_no_gpu_of_a_profile_is_idle_in_any_stage(profile: str) -> None:
    """Every stage is played by all ranks: on one GPU, on a node's eight, on the sixteen of two nodes."""
    config = of_profile(profile).config
    hardware, shapes = config.hardware, shapes_of(config)
    if hardware.cluster == "ray":
        nodes = [ClusterNode(name, 96, 8) for name in ("a", "b")]
        assert sum(place["GPU"] for place in rank_bundles(hardware, nodes)) == 16
    elif hardware.device == "cuda":
        assert shapes is not None
        gpus = tuple(range(1 if "gb" in profile else 8))
        found = [load for load in gpu_memory_plan(config, *shapes) if "diagnos" not in load.stage]
        assert {load.gpus for load in found} == {gpus}


R_ZERO = {
    ("schedule", "policy"): "free",
    ("diagnosis", "enabled"): False,
    ("filter", "variant"): "absolute",
    ("filter", "p_low"): Fraction(1, 4),
    ("filter", "p_high"): Fraction(3, 4),
    ("round", "candidates"): 8000,
    ("round", "responses"): 10,
    ("round", "challenger_votes"): 10,
    ("round", "boxed_answers"): True,
    ("challenger_grpo", "max_steps"): 5,
    ("challenger_grpo", "batch_questions"): 128,
    ("challenger_grpo", "group"): 4,
    ("solver_grpo", "max_steps"): 15,
    ("solver_grpo", "batch_questions"): 128,
    ("solver_grpo", "group"): 5,
}
"""Copied by hand from the table in docs/reference/fidelity.md."""


@pytest.mark.parametrize("base", ["qwen3-4b", "qwen3-8b", "octothinker-8b"])
def test_r_zero_changes_its_own_values_and_no_others(base: str) -> None:
    """What the paper states of both, and the hardware, stay as in the profile below."""
    found = resolve(settings=["method=r-zero"], profile=base, environ={"XDG_CONFIG_HOME": "/nowhere"})
    assert {path: _value(found.config, path) for path in R_ZERO} == R_ZERO
    before, after = (c.model_dump() for c in (of_profile(base).config, found.config))
    changed = {
        (s, k)
        for s in before
        if isinstance(before[s], dict)
        for k in before[s]
        if before[s][k] != after[s][k]
    }
    assert changed <= set(R_ZERO)


def test_a_methods_values_lie_below_what_is_said_beside_it_and_above_everything_under_it(tmp_path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("solver_grpo: {group: 6, max_steps: 3}\n", encoding="utf-8")
    elsewhere = {"XDG_CONFIG_HOME": "/nowhere"}
    found = resolve(file=file, settings=["method=r-zero", "solver_grpo.group=7"], environ=elsewhere)
    assert (found.config.solver_grpo.group, found.config.solver_grpo.max_steps) == (7, 15)
    assert found.sources["solver_grpo", "max_steps"].where == "method r-zero-arithmetic, line 24"
    file.write_text("method: r-zero\n", encoding="utf-8")
    assert resolve(file=file, settings=["method=diagevo"], environ=elsewhere).config.diagnosis.enabled


def test_weights_that_read_a_methods_prompts_stand_in_for_the_shipped_ones_alone(tmp_path) -> None:
    elsewhere = {"XDG_CONFIG_HOME": "/nowhere"}

    def models(**given: Any) -> tuple[str, str]:
        roles = resolve(environ=elsewhere, **given).config.roles
        return roles.challenger.model, roles.solver.model

    both = ("builtin:arithmetic-methods",) * 2
    for method in ("r-few", "absolute-zero", "spice", "darc"):
        assert models(settings=[f"method={method}"]) == both
        assert "SmolLM2" in models(settings=[f"method={method}"], profile="smollm2-135m")[1]
    assert models(settings=["method=r-zero"]) == ("builtin:arithmetic",) * 2
    file = tmp_path / "mine.yaml"
    file.write_text("roles: {challenger: {model: ./mine}, solver: {model: ./mine}}\n", encoding="utf-8")
    assert models(file=file, settings=["method=spice"]) == ("./mine", "./mine")


def test_in_the_arithmetic_world_r_zero_has_the_worlds_scale_and_prompts() -> None:
    found = resolve(settings=["method=r-zero"], profile="embedded", environ={"XDG_CONFIG_HOME": "/nowhere"})
    same = {"batch_questions", "candidates", "boxed_answers"}
    for (section, key), value in R_ZERO.items():
        if key not in same:
            assert _value(found.config, (section, key)) == value, key
    assert (found.config.solver_grpo.batch_questions, found.config.round.candidates) == (16, 320)
    assert (found.config.prompts, found.config.round.boxed_answers) == ("builtin:arithmetic", False)


def test_every_profile_that_ships_is_named() -> None:
    folder = files("diagevo.config") / "profiles"
    assert {file.name for file in folder.iterdir()} == {f"{name}.yaml" for name in PROFILES}


TWO = [ClusterNode("10.0.0.1", 96, 8), ClusterNode("10.0.0.2", 96, 8)]
CPUS = [ClusterNode("10.0.0.1", 4, 0), ClusterNode("10.0.0.2", 2, 0)]


def hardware(**changes: Any) -> HardwareConfig:
    return HardwareConfig.model_validate({"cluster": "ray", "processes": 4, **changes})


def test_a_rank_has_a_gpu_or_where_there_are_none_its_threads() -> None:
    assert rank_bundles(hardware(processes=16), TWO) == [{"GPU": 1}] * 16
    assert not on_gpus(hardware(), CPUS)
    assert rank_bundles(hardware(threads=3), CPUS) == [{"CPU": 3}] * 4
    assert on_gpus(hardware(device="cuda"), CPUS), "what is asked for is asked of the cluster"


def test_places_and_nodes_are_told_in_few_words() -> None:
    assert describe_bundles([{"GPU": 1}] * 4 + [{"GPU": 2}]) == "4 × 1 GPU, 1 × 2 GPU"
    assert describe_bundles([]) == "none"
    assert describe_nodes([TWO[0], CPUS[1]]) == "10.0.0.1 (8 GPU, 96 CPU), 10.0.0.2 (2 CPU)"


@pytest.mark.parametrize(
    ("changes", "nodes", "why", "fix"),
    [
        (
            {"processes": 17},
            TWO,
            "the run takes 17 × 1 GPU; the nodes have 16",
            "set hardware.processes to 16, or add nodes",
        ),
        (
            {"processes": 1, "device": "cuda"},
            CPUS,
            "the run takes 1 × 1 GPU; the nodes have 0",
            "add nodes",
        ),
        (
            {"processes": 4, "threads": 2},
            CPUS,
            "the run takes 4 × 2 CPU; the nodes have 6",
            "set hardware.processes to 3, or add nodes",
        ),
    ],
)
def test_what_cannot_start_is_refused_with_what_mends_it(
    changes: dict[str, Any], nodes: list[ClusterNode], why: str, fix: str
) -> None:
    assert refusal(hardware(**changes), nodes) == (why, fix)


def test_the_hint_can_be_followed() -> None:
    assert refusal(hardware(processes=16), TWO) is None
    assert refusal(hardware(processes=3, threads=2), CPUS) is None
