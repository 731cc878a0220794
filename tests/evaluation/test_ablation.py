import json
from pathlib import Path

import pytest

from diagevo.config.loading import resolve
from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.ablation import (
    FULL,
    VARIANTS,
    PlannedRun,
    RunState,
    load_plan,
    make_plan,
    train_command,
)
from diagevo.memory.transfer.fork import changed_keys


def test_every_variant_of_the_paper_is_there() -> None:
    by_table = {
        name: [v.name for v in VARIANTS if v.table == name] for name in ("ablation", "fixed", "k", "tau")
    }
    assert len(by_table["ablation"]) == 9  # the full method and eight components
    assert by_table["fixed"] == ["fixed-7-3", "fixed-5-5", "fixed-3-7"]
    assert by_table["k"] == ["k-0.2", "k-1.0", "k-2.0"]
    assert by_table["tau"] == ["tau-1.2", "tau-2.0"]


def test_the_plan_of_the_study_is_every_variant_with_five_seeds_that_chose_nothing(tmp_path: Path) -> None:
    (tmp_path / "ablations" / "study").mkdir(parents=True)
    committed = Path(__file__).parents[2] / "studies" / "study.json"
    (tmp_path / "ablations" / "study" / "plan.json").write_bytes(committed.read_bytes())
    found = load_plan(tmp_path, "study")
    names = list(dict.fromkeys(planned.variant for planned in found.runs))
    arguments = ["--profile=embedded", "--set=validation.samples=8"]
    assert found == make_plan("study", names, range(3, 8), rounds=5, arguments=arguments)
    assert sorted(names) == sorted(v.name for v in VARIANTS)  # what tells most is played first


def test_the_long_plan_is_full_and_free_for_ten_rounds(tmp_path: Path) -> None:
    (tmp_path / "ablations" / "study-long").mkdir(parents=True)
    committed = Path(__file__).parents[2] / "studies" / "study-long.json"
    (tmp_path / "ablations" / "study-long" / "plan.json").write_bytes(committed.read_bytes())
    both = ["full", "free-only"]
    wanted = make_plan("study-long", both, range(3, 6), rounds=10, arguments=["--profile=embedded"])
    assert load_plan(tmp_path, "study-long") == wanted


def test_controls_are_no_variants_of_the_paper() -> None:
    controls = [v.name for v in VARIANTS if v.table == "control"]
    assert controls == [
        *("free-640", "full-160", "no-filter-4-steps", "promotion-3", "promotion-5"),
        *("placebo", "true-labels", "free-800", "learnability", "bandit"),
    ]


# R-Zero is a method: one setting that stands for many.
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.table != "main"], ids=lambda v: v.name)
def test_a_variant_changes_what_it_names_and_nothing_else(variant) -> None:
    full = resolve(settings=(), environ={}).config.model_dump(mode="json")
    settings = tuple(f"{key}={value}" for key, value in variant.settings.items())
    changed = resolve(settings=settings, environ={}).config.model_dump(mode="json")
    assert set(changed_keys(full, changed)) == set(variant.settings)


def test_a_plan_is_every_variant_with_every_seed_and_is_kept(tmp_path: Path) -> None:
    plan = make_plan("p", ["full", "k-0.2"], [0, 1], rounds=3, arguments=["--set=round.candidates=9"])
    assert [(r.run, r.seed) for r in plan.runs] == [
        ("p.full.s0", 0),
        ("p.full.s1", 1),
        ("p.k-0.2.s0", 0),
        ("p.k-0.2.s1", 1),
    ]
    plan.save(tmp_path)
    assert load_plan(tmp_path, None) == plan
    plan.save(tmp_path)
    with pytest.raises(ConfigError, match="another plan p"):
        make_plan("p", ["full"], [0], rounds=3).save(tmp_path)
    with pytest.raises(NotFoundError, match="there are: p"):
        load_plan(tmp_path, "q")


def test_a_waiting_run_begins_with_its_settings_and_a_begun_one_resumes() -> None:
    plan = make_plan("p", ["fixed-7-3"], [4], rounds=3, arguments=["--profile=embedded"])
    waiting = train_command(plan, RunState(plan.runs[0], False, 0, 3))
    assert waiting[:3] == ["train", "--run", "p.fixed-7-3.s4"]
    assert "--seed" in waiting
    assert waiting[waiting.index("--seed") + 1] == "4"
    assert "--profile=embedded" in waiting
    assert "--set=schedule.fixed_epsilon=7/10" in waiting
    begun = train_command(plan, RunState(plan.runs[0], True, 1, 3))
    assert "--resume" in begun
    assert not any(part.startswith("--set") for part in begun)


def test_a_run_is_trained_only_when_its_last_round_is_committed() -> None:
    planned = PlannedRun("r", FULL.name, 0)
    assert RunState(planned, False, 0, 3).state == "waiting"
    assert RunState(planned, True, 2, 3).state == "begun"
    assert RunState(planned, True, 3, 3).state == "trained"


def test_a_plan_file_can_be_read_by_a_person(tmp_path: Path) -> None:
    file = make_plan("p", ["full"], [0], rounds=2).save(tmp_path)
    assert json.loads(file.read_text())["runs"] == [{"run": "p.full.s0", "variant": "full", "seed": 0}]
