"""The tables of an ingested run: pass rates by round, by step and by cause."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from diagevo.text.escaping import visible
from diagevo.text.numbers import count, number
from diagevo.text.steps import common_head

from ..render.console import row_of
from ..render.result import Rows
from ..render.table import Column, columns
from .memory import held, left_out

if TYPE_CHECKING:
    from diagevo.memory.compare.matched_causes import MatchedCause
    from diagevo.memory.compare.prompts_in_both import PromptsInBoth
    from diagevo.memory.read.pass_rates import PassRates
    from diagevo.memory.read.runs import RunStory
    from diagevo.view.evaluated import Evaluated, Passed

ROUNDS = columns(
    "round, candidates: groups, all_passed: all passed, kept: with both, all_failed: all failed, "
    "rollouts, passes: passed, pass_rate: pass rate, failed, observed: compared"
)
STEPS = columns("step, round, groups, rollouts, passes: passed, pass_rate: pass rate")
CAUSES = columns(
    "cause_id: cause, failures, share: of all, groups: in groups, pass_rate: their pass rate, description"
)
TAGS = columns("tag, groups, rollouts, passes: passed, pass_rate: pass rate")
PASSED = columns(
    "name: of, pass_rate: pass rate, low: 95% from, high: to, passes: passed, responses, prompts"
)
MATCHED = columns("what, a, b, description: cause, reason: why they are one")
"""Causes of two evaluations."""
STAYED = ("stayed", "gone", "came")
DROPS = columns(
    "first_step: step, first_pass_rate: pass rate, last_step: then step, "
    "last_pass_rate: pass rate, cause_id: cause, prompt"
)
UNEXPLAINED = columns("rollouts, passes: passed, failures, without_cause: without a cause, prompt")
LARGEST = 5
"""Causes shown at the end of a diagnosis."""
CROWD = 10
"""Minimum causes, or questions to a judge, for the warning that hardly any were merged: with fewer it means
nothing."""
WIDE = 100
SHOWN = 12
"""The last steps, and the causes with most failures, that are shown."""
FALLEN = 5
"""Prompts that are shown: those that fell most, and those with most failures without a cause."""


def answer(
    run: str,
    rates: "PassRates",
    evidence: "Mapping[str, str]",
    contradicted: "Mapping[str, str]",
    undiagnosed: int,
) -> str:
    """The end of `diagnose`: the largest causes, each with an example, and what is left. `contradicted`: the
    evidence against a cause. `undiagnosed`: failures asked about in vain, or not at all."""
    failed = rates.failed
    if not rates.causes:
        return (
            f"no pattern found in {count(rates.failures - undiagnosed, 'failure')}: diagevo runs show {run}\n"
        )
    lines = [held(rates)]
    for cause in rates.causes[:LARGEST]:
        share = f"{cause.share:.0%}"
        where = f"{count(cause.failures, 'failure')} in {count(cause.groups, 'group')}"
        words = visible(cause.description, one_line=True)
        lines.append(f"{share:>5}  {cause.cause_id}  {words} ({where})")
        if cause.cause_id in contradicted:
            lines.append(f"       {contradicted[cause.cause_id]}")
        if cause.cause_id in evidence:
            lines.append(
                f"       {shorten(visible(evidence[cause.cause_id], one_line=True), WIDE, placeholder='…')}"
            )
    if (more := len(rates.causes) - LARGEST) > 0:
        lines.append(f"       {count(more, 'more cause')}: diagevo memory show --run {run}")
    if rates.dismissed:
        number = sum(one.failures for one in rates.dismissed)
        share = f"{number / max(failed, 1):.0%}"
        gone = left_out("dismissed", {one.cause_id: one.failures for one in rates.dismissed})
        lines.append(f"{share:>5}  {gone} --run {run}")
    if rates.without_cause:
        share = f"{rates.without_cause / max(failed, 1):.0%}"
        lines.append(
            f"{share:>5}  no pattern ({count(rates.without_cause, 'failure')}): diagevo runs show {run}"
        )
    lines.append(f"next: diagevo memory why {rates.causes[0].cause_id} --run {run}")
    return "\n".join(lines) + "\n"


def suspicious(run: str, rates: "PassRates", judged: int, same: int, undiagnosed: int) -> Iterator[str]:
    """Signs of a poor diagnosis by a model: unreadable replies, and equal causes counted separately.
    `judged`: the pairs of causes that it compared, `same`: those it merged."""
    again = f"diagevo diagnose --run {run} --again"
    if undiagnosed:
        yield (
            f"{count(undiagnosed, 'failure')} without a diagnosis: the reply was unreadable, or the question"
            f" has more failures than diagnosis.failures_per_question; to try again: {again}"
        )
    explained = sum(cause.failures for cause in rates.causes)
    if judged >= CROWD and not same:
        yield (
            f"the model compared {judged:,} pairs of causes and found no two the same; to try another model:"
            f" {again} --model M"
        )
    if len(rates.causes) >= CROWD and 2 * len(rates.causes) > explained:
        yield (
            f"{count(len(rates.causes), 'cause')} for {count(explained, 'failure')}: hardly any two failures"
            " share one, so the counts do not show what often goes wrong (see memory.theta_dup, or the model)"
        )
    by_words: dict[str, list[str]] = {}
    for cause in rates.causes:
        by_words.setdefault(cause.description, []).append(cause.cause_id)
    for alike in by_words.values():
        if len(alike) > 1:
            yield f"{' and '.join(alike)} have the same description but are counted separately"


def pass_rates(story: "RunStory") -> list[str | Rows]:
    """The tables, and the commands that show what they leave out."""
    rates = story.pass_rates
    if rates is None:
        return []
    rounds = [
        row_of(line)
        | {"all_passed": line.verdicts.get("too_easy", 0), "all_failed": line.verdicts.get("too_hard", 0)}
        | {"failed": line.rollouts - line.passes}
        for line in story.rounds
    ]
    steps, causes = rates.steps[-SHOWN:], rates.causes[:SHOWN]
    tables = [(ROUNDS, rounds), (STEPS, steps), (TAGS, rates.tags[:SHOWN])]
    hidden_tags = len(rates.tags) - SHOWN
    if (found := evaluated(story)) is not None:
        tables = [(PASSED, [_passed("model", one) for one in found.models])]
        tables += [(PASSED, [_passed("tag", one) for one in found.tags[:SHOWN]])]
        hidden_tags = len(found.tags) - SHOWN
    parts: list[str | Rows] = [Rows(shown, rows) for shown, rows in (*tables, (CAUSES, causes)) if rows]
    run = story.line.run_id
    if hidden := len(rates.steps) - len(steps):
        listed = f'diagevo memory query "SELECT * FROM v_step WHERE run_id = :run" --run {run}'
        parts.append(f"{hidden} earlier steps: {listed}")
    if hidden := len(rates.causes) - len(causes):
        parts.append(f"{hidden} more causes: diagevo runs show {run} --json")
    if hidden_tags > 0:
        parts.append(f"{hidden_tags} more tags: diagevo runs show {run} --json")
    if rates.left is not None:
        rows = _beyond(rates.head, rates.unexplained[:FALLEN])
        parts += [f"{rates.incomparable or rates.left}", Rows(UNEXPLAINED, rows)]
        if (hidden := rates.unexplained_prompts - len(rows)) > 0:
            asked = "SELECT * FROM v_prompt WHERE run_id = :run AND without_cause > 0"
            parts.append(f'{count(hidden, "more prompt")}: diagevo memory query "{asked}" --run {run}')
    if rates.dropped:
        again = f"{rates.dropped:,} of {count(rates.prompts, 'prompt')} that came back passed less often"
        listed = f'diagevo memory query "SELECT * FROM v_prompt WHERE run_id = :run" --run {run}'
        parts += [f"{again}; all: {listed}", Rows(DROPS, _beyond(rates.head, rates.drops[:FALLEN]))]
    return parts


def evaluated(story: "RunStory") -> "Evaluated | None":
    """The summary of an evaluation; None for a run with a curriculum."""
    from diagevo.view.evaluated import Evaluated

    rates = story.pass_rates
    return Evaluated.of(rates) if story.line.evaluation and rates is not None else None


def _passed(kind: str, of: "Passed") -> dict[str, Any]:
    low, high = of.interval
    return row_of(of) | {"name": f"{kind} {of.name}", "pass_rate": of.pass_rate, "low": low, "high": high}


def next_lines(story: "RunStory") -> list[str]:
    """What to do next with an evaluation, one command per line, ready to copy."""
    from diagevo.view.evaluated import next_steps

    if not story.line.evaluation:
        return []
    lines = [f"next: {one.command}  # {one.purpose}\n" for one in next_steps(story)]
    return ["".join(lines)] if lines else []


def matched(
    found: "Sequence[MatchedCause]", runs: tuple[str, str], kinds: tuple[str, str, str] = STAYED
) -> list[str | Rows]:
    """The causes of two evaluations: those in both, with why they are one, and those of only one. `kinds`:
    the names of these groups."""
    rows: list[dict[str, Any]] = []
    for one in found:
        what = kinds[0] if one.first and one.second else kinds[1] if one.first else kinds[2]
        shown = one.second or one.first
        assert shown is not None
        failures = {
            "a": one.first.failures if one.first else 0,
            "b": one.second.failures if one.second else 0,
        }
        rows.append(
            {"what": what, **failures, "description": shown.description, "reason": one.reason or None}
        )
    headed = [
        replace(column, heading=dict(zip("ab", runs, strict=True)).get(column.key, column.heading))
        for column in MATCHED
    ]
    return [Rows(headed, rows)] if rows else []


def _beyond(head: int, lines: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows without the beginning that all prompts share."""
    rows = [row_of(line) for line in lines]
    return [row | {"prompt": f"…{row['prompt'][head:]}"} for row in rows] if head else rows


def in_both(
    found: "PromptsInBoth | None", names: tuple[str, str], points: str, run: str | None = None
) -> list[str | Rows]:
    """Results of two runs, models or steps on the same prompts, and the prompts that fell most. `points` is
    their address, within `run` if they are parts of one."""
    if found is None:
        return []
    a, b = names
    if not found.prompts:
        return [f"no prompt is in both {a} and {b}\n"]
    rates = " → ".join(number(rate) for rate in found.pass_rates)
    line = (
        f"{count(found.prompts, 'prompt')} in both: mean pass rate {rates}; in {b}, {found.less:,} passed"
        f" less often and {found.more:,} more often"
    )
    from diagevo.view.against import changed_by_chance

    alone = (f"{number:,} only in {run}" for number, run in zip(found.alone, names, strict=True) if number)
    line = "; ".join([line, *alone]) + "\n"
    if found.less or found.more:
        line += f"{changed_by_chance(found.less, found.more)}\n"
    sides = (Column("a", a), Column("b", b), *columns("cause_id: cause, prompt"))
    head = common_head({each.prompt for each in found.drops})
    drops = zip(_beyond(head, found.drops), found.drops, strict=True)
    rows = [row | {"a": each.pass_rates[0], "b": each.pass_rates[1]} for row, each in drops]
    more = len(rows) - SHOWN
    command = f"diagevo runs diff {quote(points)}" + (f" --run {run}" if run else "")
    hidden = [f"{more:,} more that passed less often: {command} --json"] if more > 0 else []
    return [line, Rows(sides, rows[:SHOWN]), *hidden] if rows else [line]
