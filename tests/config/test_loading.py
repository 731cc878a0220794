"""Where values come from, in which order, and what is said about a wrong one."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.loading import of_file, of_profile, resolve
from diagevo.config.shipped import PROFILES
from diagevo.config.sources import keys, variable
from diagevo.errors import ConfigError


def _resolve(tmp_path: Path, environ: Mapping[str, str] | None = None, **options: Any):
    quiet = {"XDG_CONFIG_HOME": str(tmp_path / "user")}
    return resolve(environ=quiet | dict(environ or {}), folder=tmp_path, **options)


def _file(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_each_place_is_stronger_than_the_next(tmp_path: Path) -> None:
    """One key written everywhere: taking the strongest place away uncovers the next, down to the default."""
    user = _file(tmp_path, "seed: 2\n", "user/diagevo/config.yaml")
    local = _file(tmp_path, "seed: 3\n", "diagevo.yaml")
    named = _file(tmp_path, "seed: 4\n")
    environ = {"DIAGEVO_SEED": "5"}
    seen = [_resolve(tmp_path, environ, settings=["seed=6"], file=named)]
    seen.append(_resolve(tmp_path, environ, file=named))
    seen.append(_resolve(tmp_path, file=named))
    seen.append(_resolve(tmp_path))
    local.unlink()
    seen.append(_resolve(tmp_path))
    user.unlink()
    seen.append(_resolve(tmp_path))
    assert [found.config.seed for found in seen] == [6, 5, 4, 3, 2, 0]
    assert [found.sources["seed",].where for found in seen] == [
        "--set seed",
        "DIAGEVO_SEED",
        f"{named}, line 1",
        f"{local}, line 1",
        f"{user}, line 1",
        "default",
    ]


def test_the_profile_is_below_every_file_and_above_the_defaults(tmp_path: Path) -> None:
    found = _resolve(tmp_path, file=_file(tmp_path, "round: {candidates: 7}\n"))
    assert found.config.round.candidates == 7
    assert found.config.solver_grpo.batch_questions == 32
    assert found.sources["solver_grpo", "batch_questions"].where.startswith("profile embedded, line ")
    assert found.sources["filter", "tau"].where == "default"


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        ({"profile": "qwen3-4b"}, {"DIAGEVO_PROFILE": "qwen3-8b"}, "qwen3-4b"),
        ({}, {"DIAGEVO_PROFILE": "qwen3-8b"}, "qwen3-8b"),
        ({}, {}, "octothinker-8b"),
    ],
)
def test_the_profile_is_chosen_by_the_strongest_place(
    tmp_path: Path, options: dict[str, str], environ: dict[str, str], expected: str
) -> None:
    _file(tmp_path, "profile: octothinker-8b\n", "diagevo.yaml")
    found = _resolve(tmp_path, environ, **options)
    assert found.config.profile == expected
    assert found.config.roles.solver.model == of_profile(expected).config.roles.solver.model


def test_one_key_of_a_section_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    found = _resolve(tmp_path, profile="qwen3-8b", settings=["solver_grpo.learning_rate=2e-6"])
    assert found.config.solver_grpo.max_steps == 12
    assert found.config.challenger_grpo.max_steps == 6
    assert found.config.solver_grpo.learning_rate == 2e-6


def test_numbers_are_what_was_written(tmp_path: Path) -> None:
    """PyYAML reads 1e-6 as text; a ratio must be the written decimal, not its nearest double."""
    text = "solver_grpo:\n  learning_rate: 1e-6\nmemory: {theta_up: 0.7}\nfilter: {tau: 8/5, p_low: 0.1}\n"
    config = of_file(_file(tmp_path, text)).config
    assert config.solver_grpo.learning_rate == 0.000001
    assert config.memory.theta_up == Fraction(7, 10)
    assert (config.filter.tau, config.filter.p_low) == (Fraction(8, 5), Fraction(1, 10))


def test_text_stays_text(tmp_path: Path) -> None:
    environ = {"DIAGEVO_ROLES__SOLVER__MODEL": "1e3", "DIAGEVO_SCHEDULE__STITCHING": "off"}
    config = _resolve(tmp_path, environ).config
    assert config.roles.solver.model == "1e3"
    assert config.schedule.stitching == "off"


def test_a_section_may_be_a_variable_or_a_setting(tmp_path: Path) -> None:
    config = _resolve(tmp_path, {"DIAGEVO_FILTER": "{tau: 2}"}, settings=["memory={shortlist: 3}"]).config
    assert (config.filter.tau, config.memory.shortlist) == (Fraction(2), 3)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert _resolve(tmp_path, {"DIAGEVO_SEED": ""}).sources["seed",].where == "default"


def _refusal(tmp_path: Path, **where: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        _resolve(tmp_path, **where)
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "key", "nearest"),
    [
        ("filter:\n  p_low: 0.2\n  tua: 2\n", 3, "filter.tua", "filter.tau"),
        ("\nmemroy:\n  theta_up: 0.8\n", 2, "memroy", "memory"),
        ("rounds: 3\n", 1, "rounds", "round.rounds"),
        ("tau: 2\n", 1, "tau", "filter.tau"),
        ("roles:\n  solver: {modle: x}\n", 2, "roles.solver.modle", "roles.solver.model"),
    ],
)
def test_a_misspelt_key_is_named_with_its_file_its_line_and_the_nearest_right_one(
    tmp_path: Path, text: str, line: int, key: str, nearest: str
) -> None:
    file = _file(tmp_path, text)
    error = _refusal(tmp_path, file=file)
    assert error.message == f"{file}, line {line}: there is no key {key}"
    assert error.hint == f"the closest is {nearest}"
    assert error.exit_code == 2


def test_a_misspelt_variable_is_an_error_and_the_nearest_is_a_variable(tmp_path: Path) -> None:
    error = _refusal(tmp_path, environ={"DIAGEVO_FILTER__TUA": "2"})
    assert error.message == "the variable DIAGEVO_FILTER__TUA: there is no key filter.tua"
    assert error.hint == "the closest is DIAGEVO_FILTER__TAU"


def test_the_variables_of_the_command_line_are_no_keys(tmp_path: Path) -> None:
    environ = {"DIAGEVO_HOME": "x", "DIAGEVO_DB": "x", "DIAGEVO_RUN": "x", "DIAGEVO_PROFILE": "embedded"}
    assert _resolve(tmp_path, environ).config.profile == "embedded"


def test_every_key_has_a_variable_that_reaches_it() -> None:
    assert variable(("roles", "embedder", "base_url")) == "DIAGEVO_ROLES__EMBEDDER__BASE_URL"
    assert len({variable(path) for path in keys()}) == len(keys())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1\nfilter: {}\nseed: 2\n", "line 3: found duplicate key"),
        ("filter: [\n", "line 2: expected the node content"),
        ("- a\n", "the configuration must be a section of keys"),
        ("filter: 3\n", "line 1: filter must be a section of keys"),
        (
            "seed: 1\nround:\n  rounds: 0\n",
            "line 3: round.rounds: Input should be greater than or equal to 1",
        ),
        ("filter: {tau: much}\n", "line 1: filter.tau: a number like 0.7 or a fraction like 7/10 is needed"),
        ("filter: {tau: .nan}\n", "line 1: filter.tau: a number like 0.7"),
        ("\nfilter: {p_low: 0.9}\n", "line 2: filter: filter.p_low must not be above filter.p_high"),
        ("schedule:\n  policy: fixed\n", "line 2: schedule: schedule.fixed_epsilon is needed"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = _file(tmp_path, text)
    message = _refusal(tmp_path, file=file).message
    assert message.startswith(str(file))
    assert said in message


def test_two_wrong_values_are_both_named(tmp_path: Path) -> None:
    message = _refusal(tmp_path, settings=["seed=-1", "filter.tau=0"]).message
    assert "--set seed" in message
    assert "--set filter.tau" in message


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    assert "none.yaml cannot be read: No such file" in _refusal(tmp_path, file=tmp_path / "none.yaml").message
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"seed: \xff\n")
    assert "is not UTF-8 text" in _refusal(tmp_path, file=binary).message


def test_an_unknown_profile_lists_the_known_ones(tmp_path: Path) -> None:
    error = _refusal(tmp_path, profile="qwen")
    assert error.message == "there is no profile qwen"
    assert error.hint == f"one of: {', '.join(PROFILES)}"


@pytest.mark.parametrize("url", ["http://me@host/v1", "https://host/v1?api_key=secret1"])
def test_a_url_must_carry_neither_name_nor_key(tmp_path: Path, url: str) -> None:
    error = _refusal(tmp_path, settings=[f"roles.embedder.base_url={url}"])
    assert "must not carry a name, password or key" in error.message
    assert url not in str(error)


def test_a_model_is_refused_where_the_engine_has_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--set roles.embedder.model: the engine hashing has no model"):
        _resolve(tmp_path, settings=["roles.embedder.model=nosuchmodel"])
    file = _file(tmp_path, "roles:\n  embedder:\n    model: nosuchmodel\n")
    with pytest.raises(ConfigError, match=r", line 3: roles.embedder.model: the engine hashing has no"):
        _resolve(tmp_path, file=file)
    both = ["roles.embedder.engine=hashing", "roles.embedder.model=nosuchmodel"]
    with pytest.raises(ConfigError, match=r"^--set roles.embedder.model: the engine hashing has no model"):
        _resolve(tmp_path, profile="qwen3-4b", settings=both)


def test_the_model_of_an_engine_that_gave_way_is_no_mistake(tmp_path: Path) -> None:
    found = _resolve(tmp_path, profile="qwen3-4b", settings=["roles.embedder.engine=hashing"])
    assert found.config.roles.embedder.model == "text-embedding-v4"
    kept = _file(tmp_path, "roles:\n  embedder:\n    engine: hashing\n    model: text-embedding-v4\n")
    assert _resolve(tmp_path, file=kept).config.roles.embedder.model == "text-embedding-v4"


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("roles.solver.model=https://u:Tr0ub4do@host/model", "roles.solver.model"),
        ("validation.data=https://host/set?sig=Tr0ub4do", "validation.data"),
        ("prompts=hf_Tr0ub4doTr0ub4doTr0", "prompts"),
        ("roles.embedder.base_url=http://me:Tr0ub4do@host/v1", "roles.embedder.base_url"),
        ("roles.embedder.base_url=https://host/v1?secret=Tr0ub4do", "roles.embedder.base_url"),
        ("roles.embedder.base_url=https://host/v1?sig=Tr0ub4do", "roles.embedder.base_url"),
        ("roles.embedder.base_url=https://host/v1?password=Tr0ub4do", "roles.embedder.base_url"),
        ("roles.embedder.api_key_env=hf_Tr0ub4doTr0ub4doTr0", "roles.embedder.api_key_env"),
        ("roles.embedder.api_key_env=sk-Tr0ub4do", "roles.embedder.api_key_env"),
        ("roles.embedder.api_key_env=[hf_Tr0ub4doTr0ub4doTr0]", "roles.embedder.api_key_env"),
    ],
)
def test_a_secret_in_any_value_is_refused_and_not_repeated(tmp_path: Path, setting: str, key: str) -> None:
    name, _, value = setting.partition("=")
    section = "".join(f"{'  ' * depth}{part}:\n" for depth, part in enumerate(name.split(".")))
    file = _file(tmp_path, section.rstrip() + f" {value}\n")
    depth = len(name.split("."))
    for error, where in (
        (_refusal(tmp_path, settings=[setting]), f"--set {key}"),
        (
            _refusal(tmp_path, environ={variable(tuple(name.split("."))): value}),
            variable(tuple(name.split("."))),
        ),
        (_refusal(tmp_path, file=file), f"{file}, line {depth}"),
    ):
        assert error.message.startswith(where)
        assert error.hint
        assert "Tr0ub4do" not in str(error)


@pytest.mark.parametrize(
    "text", ["<svg a:b>\n  <path d: e: f>\n", "import os\nx: 1\n", "# Title\n\na: b: c\n"]
)
def test_a_file_that_is_no_configuration_is_not_told_to_mend_its_yaml(tmp_path: Path, text: str) -> None:
    file = _file(tmp_path, text, "picture.svg")
    error = _refusal(tmp_path, file=file)
    assert error.message == f"{file} is not a configuration: no line begins with one of its keys"
    assert error.hint == "name another file, or make one: diagevo init"
    broken = _file(tmp_path, f"seed: 1\n{text}")
    assert _refusal(tmp_path, file=broken).hint == "fix the YAML there"


def test_adapters_in_one_engine_have_one_base(tmp_path: Path) -> None:
    """The vLLM in the challenger's trainer votes as the solver; without it each has an engine of its own."""
    settings = ["training.lora=8", "roles.solver.model=another"]
    with pytest.raises(ConfigError, match=r"needs roles.challenger and roles.solver to be one"):
        _resolve(tmp_path, settings=[*settings, "hardware.colocate_vllm=true"])
    _resolve(tmp_path, settings=settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], "hardware.fsdp_size needs FSDP: set hardware.accelerate_config to fsdp"),
        (
            ["hardware.accelerate_config=fsdp", "hardware.processes=6"],
            "--set hardware.processes: hardware.processes must be a multiple of hardware.fsdp_size",
        ),
    ],
)
def test_groups_that_cannot_share_the_training_state_are_refused(
    tmp_path: Path, settings: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        _resolve(tmp_path, settings=["hardware.fsdp_size=4", *settings])


@pytest.mark.parametrize(
    ("profile", "key", "value"),
    [
        ("qwen3-4b", "hardware.fsdp_size", "3"),
        ("qwen3-8b-lora-80gb", "hardware.accelerate_config", "fsdp"),
        ("smollm2-135m", "roles.solver.model", "another"),
        ("qwen3-4b", "round.true_labels", "true"),
    ],
)
def test_what_does_not_go_with_the_profile_is_told_of_the_one_who_set_it(
    tmp_path: Path, profile: str, key: str, value: str
) -> None:
    said = _refusal(tmp_path, profile=profile, settings=["seed=1", f"{key}={value}"]).message
    assert said.startswith(f"--set {key}: ")
