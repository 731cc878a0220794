"""The screen of a cause: its turns, and what it does to the schedule now."""

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from diagevo.text.numbers import count, number, percent

from ...render.console import visible
from ...render.layout import ROWS, SCREEN, Line, cut, cut_lines, fits, heading, lay, sub, wrapped
from .failure import call_texts, failure_texts, held, how_counted, marked, nearest, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diagevo.memory.audit.cause_story import CauseStory, Counted, Reactivated, Sampled, Turn, Vote
    from diagevo.memory.audit.examples import Example
    from diagevo.memory.audit.failures import FailureStory


def cause_screen(
    story: "CauseStory",
    *,
    columns: int | None,
    everything: bool,
    full: bool,
    examples: "Mapping[str, Example]",
    evaluation: bool = False,
) -> str:
    """The story of a cause, its failures in words where `examples` has them. Of an `evaluation` without what
    a curriculum makes of it.

    Without `everything` it fits on one screen: single failures are left out first, then the oldest turns, and
    only then a text is cut to two rows."""
    if evaluation:
        lines, mark = _evaluated(story, examples)
        said = "" if full else " --full: questions, responses, prompts and replies\n"
        told = heading(f"{story.cause_id}  {story.description}", mark, columns) + lay(lines, columns) + said
        return told + (_all_texts(story, columns) if full else "")
    turns = story.turns if everything else (*story.turns[:1], *story.turns[1:][-SCREEN:])
    blocks, rows, shown = [list(_turn(turn, examples)) for turn in turns], None, None
    if not everything:
        rows = ROWS[0]
        for shown in (None, 1, 0):
            blocks = [list(_turn(turn, examples, shown)) for turn in turns]
            if fits(_cause(story, blocks, columns, rows)):
                break
        while len(blocks) > 2 and not fits(_cause(story, blocks, columns, rows)):
            del blocks[1]  # how it came into being stays
        if not fits(_cause(story, blocks, columns, rows)):
            rows = ROWS[1]
    return _cause(story, blocks, columns, rows, full=full, untold=shown == 0) + (
        _all_texts(story, columns) if full else ""
    )


def _cause(
    story: "CauseStory",
    blocks: list[list[Line]],
    columns: int | None,
    rows: int | None,
    *,
    full: bool = False,
    untold: bool = False,
) -> str:
    """With texts of at most so many rows. Turns that are not in `blocks` are counted; `untold`: their single
    failures are not in them."""
    hidden = max(0, len(story.turns) - len(blocks))
    state = story.state.upper() if story.how != "reactivated" else "REACTIVATED"
    if story.state == "superseded":
        state = "SUPERSEDED"
    since = f"{state} {'since' if story.how == 'created' else 'in'} round {story.since}"
    title, node = f"{story.cause_id}  {story.description}", f"in {story.node_id}  {story.node_label}"
    lines = [*(line for block in blocks for line in block), *_effect(story)]
    if rows is not None:
        title, node = cut(title, columns, rows), cut(node, columns, rows // 2)
        lines = cut_lines(lines, columns, rows)
    left = [count(hidden, "turn")] if hidden else []
    left += ["single failures"] if untold else []
    asked = "" if full else " --full: trajectories, prompts and replies\n"
    if left:
        texts = "" if full else f"; {'texts' if untold else 'trajectories, prompts and replies'} (--full)"
        asked = f" left out: {', '.join(left)} (--all){texts}\n"
    return (
        heading(title, since, columns)
        + wrapped(visible(node, one_line=True), " ", columns)
        + lay(lines, columns)
        + asked
    )


def _evaluated(story: "CauseStory", examples: "Mapping[str, Example]") -> tuple[list[Line], str]:
    """The failures of a cause and what became of its words, and how many failures it has."""
    from diagevo.memory.audit.cause_story import Counted, Created, Reactivated, Renamed, Superseded

    lines: list[Line] = []
    failures = 0
    for turn in story.turns:
        match turn:
            case Created():
                failures += 1
                lines.extend(_evidence((turn.evidence,), 1, examples, None))
            case Counted() | Reactivated():
                failures += turn.failures
                lines.extend(_evidence(turn.evidence, turn.failures, examples, None))
            case Renamed() | Superseded():
                lines.extend(_turn(turn, examples))
            case _:
                pass
    mark = "SUPERSEDED" if story.state == "superseded" else count(failures, "failure").upper()
    return lines, mark


def _turn(turn: "Turn", examples: "Mapping[str, Example]", shown: int | None = None) -> Iterator[Line]:
    """The line of a turn, with so many of its failures below it."""
    from diagevo.memory.audit.cause_story import (
        Counted,
        Created,
        Merged,
        Promoted,
        Reactivated,
        Renamed,
        Sampled,
        Superseded,
    )

    when = f"r{turn.round}"
    match turn:
        case Created():
            e = turn.evidence
            node = f"new node {turn.node_id}" if turn.new_node else turn.node_id
            near = nearest(e)
            text = f"{e.failure_id} · new cause under {node}" + (f" ({near})" if near else "")
            yield Line("created", f"{when}  {text}{_words(e, examples)}", turn.position)
        case Sampled():
            yield Line("asked" if turn.rewards else "sampled", f"{when}  {_sampled(turn)}", turn.position)
        case Promoted():
            votes = f"Σ{'passes' if turn.rewards else 'votes'} {turn.agreeing}/{turn.responses}"
            if Fraction(turn.agreeing, turn.responses or 1) == turn.consistency:
                mean = f"{votes} = {number(turn.consistency)}"
            else:
                mean = f"{votes}, mean p₁ {number(turn.consistency)}"
            over = count(turn.questions, "question")
            text = f"{mean} ≥ {number(turn.threshold, 2)} over {over}, closed f = {turn.closed_frequency}"
            yield Line("promoted", f"{when}  {text}", turn.position)
            yield from map(_vote, turn.votes)
        case Counted():
            text = f"{count(turn.failures, 'failure')} ({_ways(turn)}){_false(turn)} → f = {turn.frequency}"
            yield Line("counted", f"{when}  {text}", turn.position)
            yield from _evidence(turn.evidence, turn.failures, examples, shown)
        case Reactivated():
            undone = f"undoing the promotion of round {turn.promoted_round}"
            if turn.promoted_round == turn.round:
                undone = "promoted this round"
            new = f"{count(turn.failures, 'new failure')} ({_ways(turn)})"
            text = f"{new}{_false(turn)} → Active, f = {turn.frequency}, {undone}"
            yield Line("reactivated", f"{when}  {text}", turn.position)
            yield from _evidence(turn.evidence, turn.failures, examples, shown)
        case Merged():
            near = "" if turn.similarity is None else f", cosine {turn.similarity:.2f}, judged one skill"
            text = f"{when}  node {turn.absorbed} into {turn.survivor} “{turn.label}”{near}"
            yield Line("merged", text, turn.position)
        case Renamed():
            yield Line("renamed", f"{when}  from “{turn.before}” to “{turn.after}”", turn.position)
        case Superseded():
            rounds = (
                f"round {turn.first} counts"
                if turn.first == turn.round
                else f"rounds {turn.first} to {turn.round} count"
            )
            now = (
                "made there, it is gone"
                if turn.state == "superseded"
                else f"again {turn.state.capitalize()}, f = {turn.frequency}"
            )
            yield Line("superseded", f"{when}  {rounds} no more: {now}", turn.position)


def _ways(turn: "Counted | Reactivated") -> str:
    """How the failures of a turn came to be counted: 2 recurrences, 1 deduplication."""
    parts = (
        count(turn.recurrences, "recurrence") if turn.recurrences else "",
        count(turn.deduplications, "deduplication") if turn.deduplications else "",
    )
    return ", ".join(part for part in parts if part)


def _false(turn: "Counted | Reactivated") -> str:
    """What the truth says of the labels that they failed against, where one is false."""
    false = turn.against_false_labels
    return f", {false} against a false label" if false else ""


def _vote(vote: "Vote") -> Line:
    """A question that counted for a promotion: its majority, and what the truth says of it."""
    label = "no label" if vote.label is None else f"label {vote.label}"
    true = {True: ", true", False: ", false", None: ""}[vote.label_true]
    share = number(Fraction(vote.agreeing, vote.responses or 1))
    words = vote.verdict.replace("_", " ")
    text = f"{vote.agreeing}/{vote.responses} = {share}, {label}{true}; {vote.mode}, {words}"
    return Line(
        vote.question_id, text if vote.question is None else f"{text}: {vote.question}", vote.position, 1
    )


def _sampled(turn: "Sampled") -> str:
    if turn.rewards:
        return _returned(turn)
    p = f"p{sub(turn.round)} = {turn.sum} = {percent(turn.probability)}"
    share = f"{p} of the {percent(1 - turn.epsilon)} targeted"
    if not turn.questions:
        return f"{share}, no question drawn"
    kept = turn.verdicts.get("kept", 0)
    stitched = f" ({turn.stitched} stitched)" if turn.stitched else ""
    mean = ""
    if turn.consistency is not None:
        reached = "≥" if turn.consistency >= turn.threshold else "<"
        mean = f", mean p₁ {number(turn.consistency)} {reached} {number(turn.threshold, 2)}"
    return f"{share}: {count(turn.questions, 'question')}{stitched}, {kept} kept{mean}"


def _returned(turn: "Sampled") -> str:
    """What another trainer asked again of the cause: nobody drew it by p."""
    if not turn.questions:
        return "no prompt that aims at it came"
    came = f"{count(turn.questions, 'prompt')} that {'aims' if turn.questions == 1 else 'aim'} at it"
    kept = turn.verdicts.get("kept", 0)
    mean = ""
    if turn.consistency is not None:
        reached = "≥" if turn.consistency >= turn.threshold else "<"
        mean = f", mean pass rate {number(turn.consistency)} {reached} {number(turn.threshold, 2)}"
    return f"{came}, {kept} with passes and failures{mean}"


def _evidence(
    stories: tuple["FailureStory", ...], total: int, examples: "Mapping[str, Example]", shown: int | None
) -> Iterator[Line]:
    if shown == 0:
        return
    for story in stories[:shown]:
        position = story.positions.get("CauseMatched") or story.positions.get("CauseCreated")
        said = how_counted(story) + marked(story) + _words(story, examples)
        yield Line(story.failure_id, said.removeprefix(" · "), position, depth=1)
    if total > len(stories[:shown]):
        yield Line("", f"and {total - len(stories[:shown])} more: --all", depth=1)


def _words(story: "FailureStory", examples: "Mapping[str, Example]") -> str:
    words = told(examples.get(story.failure_id))
    return held(story) + ("" if words is None else f" · {words}")


def _effect(story: "CauseStory") -> list[Line]:
    effect = story.effect
    if effect is None:
        return []
    t = sub(effect.round)
    if story.state == "mastered":
        text = f"p{t}({story.cause_id}) = 0: a Mastered cause is not aimed at; it may be stitched to others"
        return [Line("effect", text)]
    p = f"p{t}({story.cause_id}) = {percent(effect.probability)}"
    if effect.epsilon_without is None:
        return [Line("effect", f"ε{t} {number(effect.epsilon, 2)} as recorded from its policy, {p}")]
    if effect.epsilon == effect.epsilon_without:
        return [Line("effect", f"ε{t} {number(effect.epsilon, 2)} with it and without it, {p}")]
    digits = 2
    while number(effect.epsilon, digits) == number(effect.epsilon_without, digits):
        digits += 1
    before, after = number(effect.epsilon_without, digits), number(effect.epsilon, digits)
    return [Line("effect", f"ε{t} {before} without it → {after}, {p}")]


def _all_texts(story: "CauseStory", columns: int | None) -> str:
    from diagevo.memory.audit.cause_story import Counted, Created, Merged, Reactivated

    out = []
    for turn in story.turns:
        match turn:
            case Created():
                out.append(failure_texts(turn.evidence, columns))
            case Counted() | Reactivated():
                out += [failure_texts(e, columns) for e in turn.evidence]
            case Merged() if turn.call is not None:
                out.append(call_texts(turn.call, columns))
    return "".join(out)
