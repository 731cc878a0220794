"""Ablations: each variant is a few settings on top of one configuration, run with several seeds.

The variants are the paper's: component ablations, fixed ratios of free to targeted prompts, and sweeps of k
and τ. A plan is a file; its runs are ordinary runs of the database, so that they can be resumed, and the
tables are made from their records.

Variants are compared with one of them, paired by seed: runs of one seed share their starting weights and
their validation questions. The test is Student's paired t over the seeds, two-sided; Holm's correction
covers all variants of the plan, including those with too few pairs yet."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import msgspec

from diagevo.errors import (
    ConfigError,
    DiagEvoError,
    MissingDependencyError,
    NotFoundError,
    ServiceError,
    StoppedSafely,
    StoreError,
    extra,
)
from diagevo.evaluation.protocol import estimate
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.places import check_name
from diagevo.memory.read.round_figures import validations
from diagevo.private import private, private_folder
from diagevo.progress import handling_stops
from diagevo.text.redaction import holds_secret, masked

Table = Literal["ablation", "fixed", "k", "tau", "labels", "main", "control"]
"""`labels`: the first line of Figure 3c, which is in no table. `main`: a row of the main table. `control`:
not from the paper, for the embedded profile: other possible explanations of a difference."""
STOPPED = (StoppedSafely.exit_code, 130, -signal.SIGINT, -signal.SIGTERM)
"""Exit codes of a run's process after a stop request; the signal's if it had hardly begun."""
FAILURES = (ConfigError, NotFoundError, MissingDependencyError, StoreError, ServiceError)


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings by dotted path, and the paper's table of the variant."""

    name: str
    title: str
    table: Table
    settings: Mapping[str, str]


def _fixed(free: int) -> Variant:
    settings = {"schedule.policy": "fixed", "schedule.fixed_epsilon": f"{free}/10"}
    return Variant(f"fixed-{free}-{10 - free}", f"Fixed {free}:{10 - free}", "fixed", settings)


FREE = {"schedule.policy": "free", "diagnosis.enabled": "false"}
"""Without the memory there is no diagnostician to ask."""
FULL = Variant("full", "DiagEvo (full)", "ablation", {})
VARIANTS: tuple[Variant, ...] = (
    FULL,
    Variant("frozen-challenger", "Frozen challenger", "ablation", {"round.train_challenger": "false"}),
    Variant("free-only", "Pure free exploration", "ablation", FREE),
    Variant("targeted-only", "Pure cause-targeted generation", "ablation", {"schedule.policy": "targeted"}),
    Variant("no-state-updates", "No state updates", "ablation", {"memory.state_updates": "false"}),
    Variant("no-stitching", "No cross-state stitching", "ablation", {"schedule.stitching": "off"}),
    Variant("random-stitching", "Random-pair stitching", "ablation", {"schedule.stitching": "random"}),
    Variant("no-filter", "No filtering", "ablation", {"filter.variant": "none"}),
    Variant(
        "absolute-only", "Absolute confidence constraint only", "ablation", {"filter.variant": "absolute"}
    ),
    _fixed(7),
    _fixed(5),
    _fixed(3),
    *(Variant(f"k-{k}", f"k = {k}", "k", {"schedule.k": k}) for k in ("0.2", "1.0", "2.0")),
    Variant(
        "free-absolute", "Pure free, absolute constraint", "labels", FREE | {"filter.variant": "absolute"}
    ),
    Variant("r-zero", "R-Zero", "main", {"method": "r-zero"}),
    *(Variant(f"tau-{tau}", f"τ = {tau}", "tau", {"filter.tau": tau}) for tau in ("1.2", "2.0")),
    Variant("free-640", "Pure free, twice the candidates", "control", FREE | {"round.candidates": "640"}),
    Variant("full-160", "Full, half the candidates", "control", {"round.candidates": "160"}),
    Variant(
        "no-filter-4-steps",
        "No filtering, four solver steps a round",
        "control",
        {"filter.variant": "none", "solver_grpo.max_steps": "4"},
    ),
    *(
        Variant(f"promotion-{n}", f"Promoted by {n} questions", "control", {"memory.promotion_questions": n})
        for n in ("3", "5")
    ),
    Variant("placebo", "Causes drawn at random", "control", {"roles.diagnostician.engine": "rules:placebo"}),
    Variant("true-labels", "True labels", "control", {"round.true_labels": "true"}),
    Variant("free-800", "Pure free, 2.5 times the candidates", "control", FREE | {"round.candidates": "800"}),
    *(
        Variant(name.lower(), title, "control", {"schedule.policy": f"examples/{name.lower()}.py:{name}"})
        for name, title in (("Learnability", "Causes by p(1 − p)"), ("Bandit", "Nodes by learning progress"))
    ),
)


def variant(name: str) -> Variant:
    for known in VARIANTS:
        if known.name == name:
            return known
    raise NotFoundError(f"no variant {name!r}", hint="there are: " + ", ".join(v.name for v in VARIANTS))


@dataclass(frozen=True, slots=True)
class PlannedRun:
    run: str
    variant: str
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of an ablation. `arguments` are the options of `diagevo train` that all runs share."""

    name: str
    rounds: int
    arguments: tuple[str, ...]
    benchmarks: tuple[str, ...]
    """Arguments of `diagevo eval run` for each run's best checkpoint; empty: nothing is measured."""
    runs: tuple[PlannedRun, ...]

    def save(self, folder: Path) -> Path:
        """Write the plan. Raises ConfigError if another plan has this name."""
        if holds_secret(self.arguments):
            raise ConfigError(
                "the plan's options contain a password, key or token, and plans are stored",
                hint="put it into the environment",
            )
        file = _file(folder, self.name)
        content = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        if file.exists() and file.read_text(encoding="utf-8") != content:
            raise ConfigError(f"there is another plan {self.name}: {file}", hint="give this one another name")
        private_folder(file.parent)
        with open(file, "w", encoding="utf-8", opener=private) as plan:
            plan.write(content)
        return file


def _file(folder: Path, name: str) -> Path:
    return folder / "ablations" / name / "plan.json"


def plans(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in (folder / "ablations").glob("*/plan.json"))


def load_plan(folder: Path, name: str | None) -> Plan:
    """A plan by name, or the only one there is."""
    known = plans(folder)
    chosen = name or (known[0] if len(known) == 1 else None)
    if chosen is None or chosen not in known:
        said = "no plan is named" if name is None else f"there is no plan {name}"
        there = f"there are: {', '.join(known)}" if known else "none was made yet"
        raise NotFoundError(f"{said}; {there}", hint="make one: diagevo ablate plan NAME")
    file = _file(folder, chosen)
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    except (OSError, ValueError, RecursionError) as error:  # as are msgspec's
        raise StoreError(
            f"the plan {file} cannot be read: {error}", hint="recreate it: diagevo ablate plan NAME"
        ) from error
    for planned in plan.runs:
        check_name(planned.run)
    return plan


def make_plan(
    name: str,
    variants: Sequence[str],
    seeds: Sequence[int],
    *,
    rounds: int,
    arguments: Sequence[str] = (),
    benchmarks: Sequence[str] = (),
) -> Plan:
    """Every variant with every seed, variants together, in the order given."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", name) is None:
        raise ConfigError(
            f"{name!r} is not a valid name of a plan", hint="use letters, digits, dots and dashes"
        )
    runs = [PlannedRun(f"{name}.{variant(v).name}.s{seed}", v, seed) for v in variants for seed in seeds]
    return Plan(name, rounds, tuple(arguments), tuple(benchmarks), tuple(runs))


@dataclass(frozen=True, slots=True)
class RunState:
    planned: PlannedRun
    configured: bool
    committed: int
    rounds: int

    @property
    def state(self) -> str:
        if self.committed >= self.rounds:
            return "trained"
        return "begun" if self.configured else "waiting"


def states(database: Database | None, plan: Plan) -> list[RunState]:
    """The state of every run of the plan, from the log; none has begun if there is no database."""
    if database is None:
        return [RunState(planned, False, 0, plan.rounds) for planned in plan.runs]
    return [_state(History(database, planned.run), planned, plan.rounds) for planned in plan.runs]


def _state(history: History, planned: PlannedRun, rounds: int) -> RunState:
    commits = history.every_commit
    return RunState(planned, bool(history.configurations), commits[-1].round if commits else 0, rounds)


def train_command(plan: Plan, state: RunState) -> list[str]:
    """The arguments of `diagevo` that begin or resume a run."""
    planned = state.planned
    if state.configured:
        return ["train", "--run", planned.run, "--resume", "--rounds", str(plan.rounds), "--display", "plain"]
    settings = [f"--set={key}={value}" for key, value in variant(planned.variant).settings.items()]
    return [
        "train",
        *("--run", planned.run, "--rounds", str(plan.rounds), "--seed", str(planned.seed)),
        *plan.arguments,
        *settings,
        *("--display", "plain"),
    ]


def play(plan: Plan, state: RunState, location: str | None) -> None:
    """Train one run to its last round and measure it, with the commands that a user would type, as separate
    processes. Their output goes to stderr.

    `location` names the database, passed in their environment because it may contain a password. Raises
    StoppedSafely if a process stopped safely, and the error of the process's exit code if it failed.
    """
    if state.state != "trained":
        _call(train_command(plan, state), plan, location)
    if plan.benchmarks:
        _call(["eval", "run", *plan.benchmarks, "--run", state.planned.run], plan, location)


def _call(arguments: Sequence[str], plan: Plan, location: str | None) -> None:
    environment = dict(os.environ) if location is None else {**os.environ, "DIAGEVO_DB": location}
    program = [sys.executable, "-P", "-c", "from diagevo.cli.main import app; app()", *arguments]
    with (
        # In its own session, Ctrl-C reaches it only once: when passed on here.
        subprocess.Popen(program, env=environment, stdout=2, start_new_session=True) as process,
        handling_stops(lambda number, _frame: process.send_signal(number)),
    ):
        code = process.wait()
    again = f"continue with: diagevo ablate run {plan.name}"
    if code in STOPPED:
        raise StoppedSafely(f"the ablation {plan.name} stopped safely", hint=again)
    if code:
        kind = next((kind for kind in FAILURES if kind.exit_code == code), DiagEvoError)
        command = masked(f"diagevo {shlex.join(arguments)}")
        raise kind(f"this failed with exit code {code}: {command}", hint=f"fix it, then {again}")


CONFIDENCE = 0.95
_Figures = tuple[float | None, float | None, float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class VariantDifference:
    """A variant's score minus that of the baseline. None if there are too few pairs."""

    variant: str
    seeds: int
    """Pairs: seeds for which both runs have finished."""
    score: float | None
    difference: float | None
    low: float | None
    high: float | None
    """Bounds of the difference by Student's t at `CONFIDENCE`."""
    effect: float | None
    """The difference in standard deviations of the seeds' differences (Cohen's d of pairs)."""
    p: float | None
    p_holm: float | None


def holm(p_values: Mapping[str, float], tests: int) -> dict[str, float]:
    """Holm's step-down correction for this many tests, some of which may be missing: these count as the
    largest."""
    corrected: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (tests - rank) * p_values[name]))
        corrected[name] = highest
    return corrected


def compare(
    scores: Mapping[str, Mapping[int, float]], against: str, variants: Sequence[str]
) -> list[VariantDifference]:
    """Every variant against the baseline, from scores by variant and seed."""
    base = scores.get(against, {})
    pairs = {
        name: [(scores[name][seed], base[seed]) for seed in sorted(scores.get(name, {}).keys() & base)]
        for name in variants
        if name != against
    }
    found = {name: _paired([a - b for a, b in both]) for name, both in pairs.items()}
    corrected = holm({name: p for name, (*_, p) in found.items() if p is not None}, len(pairs))
    return [
        VariantDifference(
            name,
            len(both),
            estimate([a for a, _ in both]).value if both else None,
            *found[name],
            p_holm=corrected.get(name),
        )
        for name, both in pairs.items()
    ]


def _paired(differences: Sequence[float]) -> _Figures:
    """Difference, its bounds, effect and p. One pair gives only a difference; identical differences have no
    deviation to normalize by."""
    if not differences:
        return None, None, None, None, None
    mean = estimate(differences)
    if len(differences) < 2 or mean.standard_error == 0:
        return mean.value, None, None, None, None
    with extra("eval", "a paired comparison"):
        from scipy import stats

    freedom = len(differences) - 1
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * mean.standard_error
    t = mean.value / mean.standard_error
    p = float(2 * stats.t.sf(abs(t), freedom))
    return mean.value, mean.value - half, mean.value + half, t / len(differences) ** 0.5, p


def last_scores(database: Database, plan: Plan, metric: str) -> dict[str, dict[int, float]]:
    """The validation score after the last round of each existing run, by variant and seed.

    Raises NotFoundError if runs finished and none recorded this metric.
    """
    scores: dict[str, dict[int, float]] = {}
    known: set[str] = set()
    for state in states(database, plan):
        if state.state != "trained":
            continue
        for metrics in validations(History(database, state.planned.run), plan.rounds).values():
            known |= metrics.keys()
            if metric in metrics:
                scores.setdefault(state.planned.variant, {})[state.planned.seed] = metrics[metric]
    if known and not scores:
        raise NotFoundError(
            f"no run of {plan.name} recorded {metric}", hint=f"--metric: one of {', '.join(sorted(known))}"
        )
    return scores
