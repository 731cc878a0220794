"""A run in progress, in words: its lines on every display."""

from collections.abc import Mapping
from fractions import Fraction

from diagevo.progress import RoundFigures, RunProgress
from diagevo.text.lines import listed
from diagevo.text.numbers import fraction, number

REASONS = ("invalid", "no_label", "too_easy", "too_hard", "contested")


def how_far(run: RunProgress) -> str:
    """Progress of the stage: "85/314, mean reward 0.210, 0:04 so far, 0:06 left"."""
    now = run.now
    parts = [f"{now.done:,}/{now.total:,}"] if now.total is not None else []
    parts += [now.detail] if now.detail else []
    parts.append(f"{clock(run.elapsed())} so far")
    left = run.stage_left()
    return ", ".join(parts + ([f"{clock(left)} left"] if left else []))


def named(round: int, stage: str) -> str:
    """A stage of a round; round 0 is the model that the run starts from."""
    return f"round {round} {stage}" if round else f"base model {stage}"


def clock(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def note(summary: Mapping[str, object]) -> str:
    """A stage's summary in one line: "kept 210, too easy 130, reward -0.031"."""
    parts: list[str] = []
    for key, value in summary.items():
        if isinstance(value, Mapping):
            parts += [note({str(k): v}) for k, v in value.items()]
        elif isinstance(value, float | Fraction):
            parts.append(f"{key} {number(value)}")
        elif value is not None:
            parts.append(f"{key.replace('_', ' ')} {value}")
    return ", ".join(parts)


def invalid(reasons: Mapping[str, int]) -> str:
    """Why candidates were invalid: "66 held out, 21 outside world"."""
    return ", ".join(
        f"{n} {why.replace('_', ' ')}" for why, n in sorted(reasons.items(), key=lambda r: -r[1])
    )


def round_line(done: RoundFigures) -> str:
    """A committed round in one line."""
    found = {verdict.replace("_", " "): done.verdicts.get(verdict, 0) for verdict in REASONS}
    dropped = [f"{n} {verdict}" for verdict, n in found.items() if n]
    if done.invalid:
        dropped[0] += f" ({invalid(done.invalid)})"
    parts = [f"kept {done.kept}/{done.candidates}" + (f" (dropped: {', '.join(dropped)})" if dropped else "")]
    if done.labels_true is not None:
        parts.append(f"labels true {done.labels_true:.3f}")
    if done.against_false_labels:
        false = f"{done.against_false_labels} of {done.failures_judged} failures against a false label"
        parts.append(false + (f" ({done.right} of them right)" if done.right else ""))
    if done.without_box:
        parts.append(f"without a box {done.without_box:.3f}")
    if done.undecided:
        parts.append(f"undecided comparisons {done.undecided}")
    if done.mean_at_k is not None:
        parts.append(f"mean@k {done.mean_at_k:.3f}")
    if done.greedy is not None:
        parts.append(f"greedy {done.greedy:.3f}")
    if done.mean_at_k_best is not None:
        parts.append(f"at its best temperature {done.mean_at_k_best:.3f}")
    if done.solver_reward is not None:
        parts.append(f"reward {done.solver_reward:.3f}")
    parts += [
        f"F {done.failures}",
        f"z {fraction(done.z)}",
        f"ε next {fraction(done.epsilon_next)}",
        f"Active {done.active}, Mastered {done.mastered}, nodes {done.nodes}",
    ]
    if done.promoted:
        parts.append(f"promoted {len(done.promoted)}")
    if done.reactivated:
        parts.append(f"reactivated {listed(done.reactivated, 6)}")
    return " · ".join(parts)
