"""The screens of `memory show`, `replay` and `schedule`: the paper's arithmetic in words and figures."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from diagevo.equations.policy import BUILT_IN
from diagevo.equations.states import part_in_schedule
from diagevo.text.lines import sub
from diagevo.text.numbers import count, number

from ..render.console import row_of, visible
from ..render.layout import wrapped
from ..render.table import Column, columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diagevo.memory.audit.verification import Verification
    from diagevo.memory.compare.replay import NodeLine, Rebuilt
    from diagevo.memory.read.pass_rates import CauseRate, PassRates

_TERMS = 12
"""Maximum terms shown of a sum."""

CAUSES = columns("id: cause, node, state, frequency: f, probability: p, description")
COUNTED = (*CAUSES[:4], *columns("failures: all failures"), *CAUSES[4:])
"""For an ingested run: f starts over with a promotion, and its trainer promotes nothing."""
EVALUATED = columns("id: cause, failures, share: of all, groups: in groups, description")
"""For an evaluation, which has no curriculum."""
MOST = 10
"""Maximum causes on a screen of an ingested run."""
STEPS = columns("position: #, type: event, subject, before, after, failures: F")
SCHEDULE = columns(
    "cause, frequency: f, probability: p, drawn: (1 − ε)·p: 4, partners: stitched to one of, description"
)


def replayed(memory: "Rebuilt") -> list[Column]:
    """Columns of `memory replay`: the heading of p is the policy's formula for it."""
    return [*CAUSES[:4], Column("sum", f"p = {memory.formulas.p}"), *CAUSES[4:]]


def sums(memory: "Rebuilt") -> list[str]:
    """F, F₁, z and ε of the next round, each with its numbers filled in."""
    t = memory.open_round or memory.round
    r = memory.reference_round
    terms = [str(c.frequency) for c in memory.causes if part_in_schedule(c.state) == "target"]
    shown = " + ".join(terms[:_TERMS]) + (f" + … ({len(terms)} in all)" if len(terms) > _TERMS else "")
    over = f"F{sub(t)} = Σ f{sub(t)}(e) over {count(memory.active, 'Active cause')}"
    lines = [f"{over} = {shown} = {memory.failures}" if len(terms) > 1 else f"{over} = {memory.failures}"]
    if r is None or memory.reference_failures is None:
        lines.append("F₁ is not set yet: no round had F > 0")
    else:
        if r != t:
            first = "" if r == 1 else " (the first round with F > 0 stands for F₁)"
            lines.append(f"F{sub(r)} = {memory.reference_failures}{first}")
        z = memory.z
        lines.append(
            f"z{sub(t)} = F{sub(t)}/F{sub(r)} = {memory.failures}/{memory.reference_failures} = {number(z)}"
        )
    return [*lines, _epsilon(memory, t)]


def _epsilon(memory: "Rebuilt", t: int) -> str:
    e, value = f"ε{sub(t + 1)}", memory.epsilon_next
    if memory.failures == 0:
        return f"{e} = 1, because F{sub(t)} = 0: free exploration alone, and no p"
    formulas = memory.formulas
    if formulas.epsilon is None or formulas.epsilon_numbers is None:
        return f"{e} = {value}, {_by(memory)}schedule.policy = {memory.policy}"
    steps = [formulas.epsilon, formulas.epsilon_numbers]
    if (first := memory.reference_failures) and (whole := first / value).denominator == 1:
        steps.append(f"{first}/{whole}")  # as the paper's formula gives it, before it is reduced
    return f"{e} = {' = '.join(dict.fromkeys((*steps, str(value), number(value))))}"


def _by(memory: "Rebuilt") -> str:
    """Where ε comes from: an ablation, or the user's own class, which is called at a commit."""
    if memory.policy in BUILT_IN:
        return "held by "
    return "as recorded of " if memory.open_round is None else "until the commit asks "


def with_failures(memory: "Rebuilt", rates: "PassRates") -> list[dict]:
    """Rows of causes with the failures of all rounds, most frequent first."""
    known = {cause.cause_id: cause for cause in rates.causes}
    parts = ((c, part_in_schedule(c.state)) for c in memory.causes)
    shown = (c for c, part in parts if part == "partner" or (part == "target" and c.frequency))
    rows = [row_of(c) | _counted(known.get(c.id)) for c in shown]
    return sorted(rows, key=lambda row: -row["failures"])


def _counted(cause: "CauseRate | None") -> dict[str, Any]:
    if cause is None:
        return {"failures": 0, "share": 0.0, "groups": 0}
    return {"failures": cause.failures, "share": cause.share, "groups": cause.groups}


def held(rates: "PassRates") -> str:
    """One line of an evaluation: how many failures have causes."""
    explained = rates.failed - rates.without_cause - sum(one.failures for one in rates.dismissed)
    failed = count(rates.failed, "failure")
    return f"{explained:,} of {failed} have {count(len(rates.causes), 'cause')}"


def left_out(state: str, failures: "Mapping[str, int]") -> str:
    """One line: how many failures the causes in this state have, and where it says why."""
    number = count(sum(failures.values()), "failure")
    return f"{state}: {', '.join(failures)} ({number}); diagevo memory why {next(iter(failures))}"


def headline(run: str, memory: "Rebuilt") -> str:
    """One line: the state of the memory."""
    where = f"after round {memory.round}" if memory.round else "before the first commit"
    if (first := memory.superseded) is not None:
        gone = f"round {first} is" if first == memory.round else f"rounds {first} to {memory.round} are"
        where = f"before round {memory.round + 1} ({gone} superseded)"
    if memory.open_round is not None:
        where = f"inside round {memory.open_round}"
    t = sub((memory.open_round or memory.round) + 1)
    so_far, if_now = ("", "") if memory.open_round is None else (" so far", ", if it ended now")
    return (
        f"{run} {where}: {memory.active} Active, {memory.mastered} Mastered under "
        f"{count(memory.nodes, 'node')}; F = {memory.failures}{so_far}, "
        f"ε{t} = {number(memory.epsilon_next)}{if_now}"
    )


def replay_text(run: str, memory: "Rebuilt", position: int) -> str:
    """The head of `memory replay`."""
    source = f"rebuilt from {count(memory.events, 'event')} up to #{position}, nothing else read"
    head = f"{headline(run, memory)}\n{source}\n\n"
    t = memory.open_round or memory.round
    lines = sums(memory)
    if memory.failures:
        own = "" if memory.policy in BUILT_IN else f": {memory.formulas.p_words}"
        lines.append(f"p{sub(t + 1)}(e) = {memory.formulas.p_of_round}, below{own}")
    return head + "".join(f"  {line}\n" for line in lines) + f"\n  state hash {memory.state_hash}\n"


def by_configuration(memory: "Rebuilt", then: "Rebuilt | None") -> Iterator[str]:
    """Notes on a p that is not drawn from, and on a commit recorded under another configuration."""
    if memory.policy not in BUILT_IN and memory.failures:
        yield f"p = {memory.formulas.p}: {memory.formulas.p_words}"
    if then is not None:
        yield (
            f"settings or a dismissal changed this since round {memory.round} was committed: the views have"
            f" what was recorded then, epsilon_committed = {then.epsilon_next} and probability_committed"
            f" = {then.formulas.p}"
        )


def tree(memory: "Rebuilt", columns: int | None) -> str:
    from diagevo.memory.events import number_of

    by_id = {c.id: c for c in memory.causes}
    out = []
    for node in sorted(memory.skill_nodes, key=lambda n: (-n.failures, number_of(n.id))):
        shown = [by_id[c] for c in node.causes if c in by_id]
        if shown or not node.causes:
            out.append(f"{node_line(node)}\n")
        for index, c in enumerate(shown):
            last = index == len(shown) - 1
            p = "" if c.probability is None else f", p = {number(c.probability)}"
            mark = f"{c.id} {c.state.capitalize()}, f = {c.frequency}{p}: "
            text = wrapped(mark + c.description.replace("\n", " "), "│    ", columns)
            if last:
                text = text.replace("│ ", "  ")
            out.append(("└─ " if last else "├─ ") + text[5:].lstrip("│ "))
    return "".join(out) or "no causes yet\n"


def node_line(node: "NodeLine") -> str:
    label = visible(node.label, one_line=True)
    dismissed = f", {node.dismissed} dismissed" if node.dismissed else ""
    states = f"{node.active} Active, {node.mastered} Mastered{dismissed}"
    return f"{node.id}  {label}  ({states}, f = {node.failures})"


def scheduled(run: str, memory: "Rebuilt") -> str:
    """The head of `memory schedule`: how its prompts are divided."""
    e = memory.epsilon_next
    head = f"schedule of round {memory.round + 1} of {run}, as committed after round {memory.round}"
    if not memory.failures:
        return f"{head}: free exploration alone"
    head += f": of 1000 prompts about {round(1000 * e)} are free and {round(1000 * (1 - e))} aim at a cause"
    return f"{head}; p = {memory.formulas.p}, {memory.formulas.p_words}"


def verification_text(report: "Verification", fail: bool) -> str:
    """What `memory verify` found."""
    checked = [
        count(report.events, "event"),
        f"{count(report.rounds, 'commit')} replayed against the projections",
        f"{count(report.heads, 'chain head')} outside the database",
    ]
    if report.copied:
        checked.append(f"{count(report.copied, 'chain head')} of the copy")
    if report.texts:
        checked.append(f"{count(report.texts, 'text')} against their digests")
    lines = [
        f"{report.run_id}: {'FAULTS FOUND' if fail else 'as it was written'}",
        f"  checked: {', '.join(checked)}",
    ]
    lines.append(f"  chain head {report.head}")
    for fault in report.faults:
        named = [f"#{fault.position}" if fault.position else "", fault.event_id or ""]
        where = f" [{' '.join(filter(None, named))}]" if any(named) else ""
        lines.append(f"  FAULT {fault.check}: {fault.message}{where}")
    lines += [f"  note: {note}" for note in report.notes]
    return "\n".join(lines) + "\n"
