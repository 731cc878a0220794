"""The runs of the study as `results.jsonl`, one JSON line a run: each round's scores, the hash of the memory
after its last commit, and what it was played from: commit, base weights, the head of its chain."""

import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.evaluation.ablation import VARIANTS, Plan

if TYPE_CHECKING:
    from diagevo.memory.history import History

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"

BESIDE = {"study-long": ", ten rounds", "study-weights": ", other weights"}
"""What the arms of the two smaller plans, of three seeds, are called beside those of the study."""
COURSES = ("full, ten rounds", "free-only, ten rounds", "free-absolute")
"""The arms whose rounds are told one by one."""
PLANNED = 5 * len(VARIANTS) + 12


def collect(plan: Plan, url: str) -> list[dict[str, Any]]:
    """Every run of a plan that has begun: its scores by round, and what a replay is known by."""
    from diagevo.evaluation.ablation import states
    from diagevo.memory.history import open_history
    from diagevo.memory.log.database import Database
    from diagevo.memory.read.round_figures import rounds, validations

    found: list[dict[str, Any]] = []
    database = Database(url)
    begun = [state for state in states(database, plan) if state.committed]
    database.close()
    for state in begun:
        history = open_history(url, state.planned.run)
        commit = history.commit(state.committed)
        last = history.log.by_id(history.run_id, commit.event_id)
        first = next(history.log.read(history.run_id, limit=1))
        found.append(
            {
                "run": state.planned.run,
                "variant": state.planned.variant,
                "seed": state.planned.seed,
                "rounds": state.committed,
                "of": plan.rounds,
                "version": history.configuration().version,
                "state_hash": commit.event.state_hash,
                "chain_head": last.hash,
                "weights_sha256": history.configuration().models["solver"].revision,
                "commit": commit_before(datetime.fromisoformat(first.recorded_at)),
                "committed_at": last.recorded_at,
                "kept": sum(line.kept for line in rounds(history)),
                "scores": {str(n): scores for n, scores in sorted(validations(history).items())},
            }
        )
        if arm_of(found[-1]) in COURSES:
            found[-1]["course"] = course(history)
        history.close()
    return found


PROVENANCE = ("commit", "weights_sha256", "chain_head")
"""What every row says of its run: without them a replay that differs cannot be explained."""


def commit_before(began: datetime) -> str | None:
    """The commit that is checked out, marked where files differ from it; None where a run that began then is
    older than it, as it was played from another. Results and pages, which studies write, do not count."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(HERE), *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    head, written = git("log", "-1", "--format=%H %ct").split()
    if datetime.fromtimestamp(int(written), UTC) > began:
        return None
    ours = (":(top)", ":(top,exclude)docs", ":(top,exclude)*.md", ":(top,exclude)studies/*.jsonl")
    return head + ("-dirty" if git("status", "--porcelain", "--", *ours) else "")


def course(history: "History") -> dict[str, dict[str, Any]]:
    """What moved ε in each round, and what was asked: candidates, kept questions and true labels of those by
    mode, failures, promotions and reactivations, F and the next ε after the commit, and how many of the
    valid free questions are of the head."""
    from diagevo.arithmetic.families import GROUPS
    from diagevo.memory.events import CandidateScored, CausePromoted, CauseReactivated
    from diagevo.memory.read.round_figures import rounds
    from diagevo.view.scores import free_questions

    free, lines = free_questions(history), {line.round: line for line in rounds(history)}
    promoted = Counter(recorded.round for recorded in history.events(CausePromoted))
    reactivated = Counter(recorded.round for recorded in history.events(CauseReactivated))
    asked: dict[tuple[int, str], list[CandidateScored]] = {}
    for fact in history.events(CandidateScored):
        asked.setdefault((fact.round, fact.event.mode), []).append(fact.event)
    found: dict[str, dict[str, Any]] = {}
    for commit in history.commits:
        families = free.get(commit.round, Counter[str]())
        modes = {mode: of for (round, mode), of in sorted(asked.items()) if round == commit.round}
        kept = {mode: [each for each in of if each.verdict == "kept"] for mode, of in modes.items()}
        found[str(commit.round)] = {
            "asked": {mode: len(of) for mode, of in modes.items()},
            "kept": {mode: len(of) for mode, of in kept.items()},
            "true": {mode: sum(each.label_true is True for each in of) for mode, of in kept.items()},
            "failures": lines[commit.round].failures_judged or 0,
            "promoted": promoted[commit.round],
            "reactivated": reactivated[commit.round],
            "F": commit.event.failures,
            "epsilon_next": float(Fraction(commit.event.epsilon_next)),
            "free_valid": families.total(),
            "free_head": sum(families[name] for name in GROUPS["head"]),
        }
    return found


def joined(
    before: list[dict[str, Any]], now: list[dict[str, Any]], planned: Sequence[str]
) -> list[dict[str, Any]]:
    """The runs of both, in the plans' order; of one in both the one that is further. Raises ValueError where
    a run that was played again has come to another memory, or a new one does not say from what it was played.
    """
    found = {run["run"]: run for run in before}
    for run in now:
        other = found.get(run["run"])
        if other is None or run["rounds"] > other["rounds"]:
            if missing := [name for name in PROVENANCE if not run.get(name)]:
                raise ValueError(
                    f"{run['run']} has no {', '.join(missing)}: collect it from the commit it was played from"
                )
            found[run["run"]] = run
        elif run["rounds"] == other["rounds"] and run["state_hash"] != other["state_hash"]:
            raise ValueError(f"{run['run']} was played again and has come to another memory than before")
    return [found[name] for name in planned if name in found]


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(runs: Sequence[Mapping[str, Any]], path: Path = RESULTS) -> None:
    path.write_text("".join(json.dumps(run) + "\n" for run in runs), encoding="utf-8")


def planned_runs() -> list[str]:
    """The names of the runs of the three plans, as they were committed."""
    plans = (json.loads((HERE / f"{name}.json").read_bytes()) for name in ("study", *BESIDE))
    return [run["run"] for plan in plans for run in plan["runs"]]


def plan_of(arm: str) -> str:
    return next((plan for plan, suffix in BESIDE.items() if arm.endswith(suffix)), "study")


def arm_of(run: Mapping[str, Any]) -> str:
    plan, _, _ = run["run"].partition(".")
    return run["variant"] + BESIDE.get(plan, "")
