"""The screens of `memory why`: the story of a cause, a failure or a question in words."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ..render.console import number, visible
from ..render.layout import Line, count, lay, listed, percent, sub, wrapped

if TYPE_CHECKING:
    from diagevo.memory.audit.failures import Asked, FailureStory
    from diagevo.memory.audit.nodes import Judged, Member, NodeStory
    from diagevo.memory.audit.questions import QuestionStory
    from diagevo.memory.audit.why import CauseStory, Counted, Reactivated, Sampled, Turn, Vote

SCREEN = 23
"""Lines of a story on a terminal of 24, which keeps one for the prompt."""
_BESIDE = 28
"""Columns that the label and the position of a line take at most."""


def cause_screen(
    story: "CauseStory",
    *,
    columns: int | None,
    everything: bool,
    full: bool,
    never: str | None = None,
) -> str:
    """The story of a cause. Without `everything` only the latest turns, so that it fits on one screen.
    `never` is said in the place of turns that were asked for and never came."""
    blocks = [list(_turn(turn)) for turn in story.turns]
    if never is not None and not blocks:
        blocks = [[Line("never", never)]]
    hidden = 0
    if not everything:
        hidden = max(0, len(blocks) - SCREEN)
        del blocks[1 : 1 + hidden]
        while len(blocks) > 2 and not _fits(_cause(story, blocks, hidden, columns, brief=True)):
            del blocks[1]  # how it came into being stays
            hidden += 1
    texts = _all_texts(story, columns) if full else ""
    return _cause(story, blocks, hidden, columns, brief=not everything, full=full) + texts


def _cause(
    story: "CauseStory",
    blocks: list[list[Line]],
    hidden: int,
    columns: int | None,
    *,
    brief: bool,
    full: bool = False,
) -> str:
    state = story.state.upper() if story.how != "reactivated" else "REACTIVATED"
    since = f"{state} {'since' if story.how == 'created' else 'in'} round {story.since}"
    title, node = f"{story.cause_id}  {story.description}", f" in {story.node_id}  {story.node_label}"
    lines = [*(line for block in blocks for line in block), *_effect(story)]
    if brief:
        title, node, lines = _cut(title, columns, 2), _cut(node, columns), _cut_lines(lines, columns, 2)
    asked = "" if full else " --full: trajectories, prompts and replies\n"
    if hidden:
        asked = "" if full else "; trajectories, prompts and replies (--full)"
        asked = f" left out: {count(hidden, 'turn')} (--all){asked}\n"
    return _head(title, since, columns) + f"{visible(node, one_line=True)}\n" + lay(lines, columns) + asked


def _fits(text: str) -> bool:
    return text.count("\n") <= SCREEN


def _cut(text: str, columns: int | None, rows: int = 1) -> str:
    """`text` in so many rows of a terminal, or whole in a pipe; a row breaks at a word, hence the margin."""
    from rich.cells import cell_len, chop_cells

    if columns is None:
        return visible(text, one_line=True)
    room = max(24, columns * rows - 12 * (rows - 1))
    start = visible(
        text[: 4 * room], one_line=True
    )  # a sign may have no width; nobody writes three such a letter
    if len(text) <= 4 * room and cell_len(start) <= room:
        return start
    return chop_cells(start, room - 1)[0] + "…"


def _cut_lines(lines: list[Line], columns: int | None, rows: int) -> list[Line]:
    """Lines of so many rows beside their labels and positions."""
    room = None if columns is None else columns - _BESIDE
    return [replace(line, text=_cut(line.text, room, rows)) for line in lines]


def _head(title: str, mark: str, columns: int | None) -> str:
    from rich.cells import cell_len

    title = visible(title, one_line=True)
    gap = 6 if columns is None else columns - cell_len(title) - len(mark)
    if gap < 2:
        return f"{wrapped(title, '', columns)}{mark}\n"
    return f"{title}{' ' * gap}{mark}\n"


def _turn(turn: "Turn") -> Iterator[Line]:
    from diagevo.memory.audit.why import Counted, Created, Merged, Promoted, Reactivated, Sampled

    when = f"r{turn.round}"
    match turn:
        case Created():
            e = turn.evidence
            node = f"new node {turn.node_id}" if turn.new_node else turn.node_id
            text = f"{e.failure_id} · new cause under {node} ({_nearest(e)})"
            yield Line("created", f"{when}  {text}", turn.position)
        case Sampled():
            yield Line("sampled", f"{when}  {_sampled(turn)}", turn.position)
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
            yield from _evidence(turn.evidence, turn.failures)
        case Reactivated():
            undone = f"undoing the promotion of round {turn.promoted_round}"
            if turn.promoted_round == turn.round:
                undone = "promoted this round"
            new = f"{count(turn.failures, 'new failure')} ({_ways(turn)})"
            text = f"{new}{_false(turn)} → Active, f = {turn.frequency}, {undone}"
            yield Line("reactivated", f"{when}  {text}", turn.position)
            yield from _evidence(turn.evidence, turn.failures)
        case Merged():
            near = "" if turn.similarity is None else f", cosine {turn.similarity:.2f}, judged one skill"
            text = f"{when}  node {turn.absorbed} into {turn.survivor} “{turn.label}”{near}"
            yield Line("merged", text, turn.position)


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


def marked(story: "FailureStory") -> str:
    """What the truth says of a failure: that its label is false, or that its answer is right."""
    truth = "" if story.truth is None else f", the truth is {story.truth}"
    if story.right:
        return f" · RIGHT: it gives the true answer{'' if story.truth is None else f' {story.truth}'}"
    return f" · the label {story.label} is false{truth}" if story.label_true is False else ""


def _sampled(turn: "Sampled") -> str:
    p = f"p{sub(turn.round)} = {turn.frequency}/{turn.failures} = {percent(turn.probability)}"
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


def _nearest(e: "FailureStory") -> str:
    if e.nearest is None:
        return "the first cause of all"
    near = f"nearest: {e.nearest.cause_id} at {e.nearest.similarity:.2f}"
    if e.judged:
        return f"{near}, above {e.theta_dup:.2f}, judged another"
    return f"{near}, not above {e.theta_dup:.2f}"


def _evidence(stories: tuple["FailureStory", ...], total: int) -> Iterator[Line]:
    for story in stories:
        position = story.positions.get("CauseMatched") or story.positions.get("CauseCreated")
        yield Line(story.failure_id, how_counted(story) + marked(story), position, depth=1)
    if total > len(stories):
        yield Line("", f"and {total - len(stories)} more: --all", depth=1)


def how_counted(story: "FailureStory") -> str:
    """Why a failure was put down to its cause."""
    if story.outcome == "recurrence":
        if story.mode == "stitched":
            asked = f"the question was stitched ({story.target} + {story.stitched})"
        else:
            asked = f"the question aimed at {story.target}"
        return f"recurrence: {asked}, the reply chose {story.chosen}"
    if story.outcome == "deduplication":
        near = "" if story.similarity is None else f"cosine {story.similarity:.2f} > {story.theta_dup:.2f}, "
        return f"deduplication: {near}judged the same"
    if story.outcome == "created":
        return f"a new cause ({_nearest(story)})"
    if story.void:
        return f"void: attempt {story.attempt} of {story.stage} was abandoned before this step, no count"
    if story.verdict is None:
        return "not diagnosed"
    return {
        "slip": "a slip: no skill behind it, no count",
        "unresolved": "unresolved: no readable reply, no count",
    }.get(story.verdict, f"{story.verdict}, not counted yet")


def _effect(story: "CauseStory") -> list[Line]:
    effect = story.effect
    if effect is None:
        return []
    t = sub(effect.round)
    if story.state == "mastered":
        text = f"p{t}({story.cause_id}) = 0: a Mastered cause is not aimed at; it may be stitched to others"
        return [Line("effect", text)]
    p = f"p{t}({story.cause_id}) = {percent(effect.probability)}"
    if effect.epsilon == effect.epsilon_without:
        return [Line("effect", f"ε{t} {number(effect.epsilon, 2)} with it and without it, {p}")]
    digits = 2
    while number(effect.epsilon, digits) == number(effect.epsilon_without, digits):
        digits += 1
    before, after = number(effect.epsilon_without, digits), number(effect.epsilon, digits)
    return [Line("effect", f"ε{t} {before} without it → {after}, {p}")]


def _all_texts(story: "CauseStory", columns: int | None) -> str:
    from diagevo.memory.audit.why import Counted, Created, Merged, Reactivated

    out = []
    for turn in story.turns:
        match turn:
            case Created():
                out.append(failure_texts(turn.evidence, columns))
            case Counted() | Reactivated():
                out += [failure_texts(e, columns) for e in turn.evidence]
            case Merged() if turn.call is not None:
                out.append(_call(turn.call, columns))
    return "".join(out)


def failure_texts(story: "FailureStory", columns: int | None) -> str:
    """Question, reference, trajectory, prompts and replies of one failure."""
    texts = story.texts
    if texts is None:
        return ""
    mark = marked(story).removeprefix(" · ")
    label = visible(mark or f"label {story.label or '–'}", one_line=True)
    out = [f"\n{story.failure_id}  ({label})\n"]
    for name, text in (
        ("question", texts.question),
        ("reference, agreeing with the label", texts.reference),
        ("trajectory, right but against the label" if story.right else "failed trajectory", texts.trajectory),
    ):
        out.append(f" {name}\n{wrapped(text if text is not None else '(not kept)', '   ', columns)}")
    return "".join(out) + "".join(_call(call, columns) for call in texts.calls)


def _call(call: "Asked", columns: int | None) -> str:
    cost = f"{call.input_tokens} + {call.output_tokens} tokens, {count(call.tries, 'try', 'tries')}"
    out = f" {call.purpose}, asked of {visible(call.model, one_line=True)} ({cost})\n"
    out += wrapped(call.request if call.request is not None else "(not kept)", "   ", columns)
    out += " reply\n"
    return out + wrapped(call.reply if call.reply is not None else "(none)", "   ", columns)


def failure_screen(story: "FailureStory", columns: int | None) -> str:
    """What became of one failure, from the question to the count."""
    at = story.positions.get
    drawn = {"free": "free exploration", "targeted": f"aimed at {story.target}"}.get(
        story.mode or "", f"stitched ({story.target} + {story.stitched})"
    )
    lines = [
        Line("question", f"{story.question_id}, {drawn}, label {story.label}", at("CandidateScored")),
        Line("observed", f"{story.stage}, attempt {story.attempt}, step {story.step}", at("FailureObserved")),
    ]
    if mark := marked(story):
        lines.append(Line("truth", mark.removeprefix(" · ")))
    if story.verdict is not None:
        shown = ", ".join(f"{s.cause_id} ({s.state})" for s in story.supplied) or "none"
        said = {"recurrence": f"recurrence of {story.chosen}", "new_cause": f"new: {story.description}"}.get(
            story.verdict, story.verdict
        )
        flags = f" [{', '.join(story.flags)}]" if story.flags else ""
        lines.append(Line("diagnosed", f"{said}{flags} (causes shown: {shown})", at("FailureDiagnosed")))
    if story.duplicate is not None:
        above = ", ".join(f"{c.cause_id} {c.similarity:.2f}" for c in story.candidates)
        text = f"the same as {story.cause_id}" if story.duplicate else f"no duplicate ({_nearest(story)})"
        text += f"; above {story.theta_dup:.2f}: {above}" if above else ""
        lines.append(Line("judged", text, at("DuplicateJudged")))
    if at("NodeAssigned") is not None:
        near = listed([f"{n.node_id} {n.similarity:.2f}" for n in story.shortlist]) or "empty"
        where = f"a new node “{story.new_label}”" if story.new_label else f"node {story.node_id}"
        lines.append(Line("assigned", f"{where} (shortlist: {near})", at("NodeAssigned")))
    end = at("CauseMatched") or at("CauseCreated")
    result = f"{story.cause_id} · {how_counted(story)}" if story.cause_id else how_counted(story)
    lines.append(Line("counted", result, end))
    return f"{story.failure_id}\n" + lay(lines, columns) + failure_texts(story, columns)


def question_screen(story: "QuestionStory", columns: int | None) -> str:
    """How a question came to be drawn, how it was voted on, and what failed on it."""
    t = sub(story.round)
    if story.mode == "free":
        drawn = f"free exploration, ε{t} = {number(story.epsilon)}"
    else:
        partner = f" + {story.stitched_cause_id} (Mastered, same node)" if story.stitched_cause_id else ""
        p = "" if story.probability is None else f", p{t} = {percent(story.probability)}"
        drawn = f"aimed at {story.cause_id}{partner}, 1 − ε{t} = {number(1 - story.epsilon)}{p}"
    answers = ", ".join(f"{answer} × {votes}" for answer, votes in story.votes[:6]) or "no vote"
    if len(story.votes) > 6:
        answers += f" and {len(story.votes) - 6} more"
    rewards = story.votes_are == "rewards"
    if rewards:
        drawn = "its trainer's prompt" + ("" if story.cause_id is None else f", {_returned(story)}")
        answers += " by rewards of its trainer, not by agreement"
    if story.drawn_round is not None:
        drawn += f"; drawn by the schedule of round {story.drawn_round}"
    lines = [
        Line("drawn", f"{story.mode}: {drawn}", story.opened),
        Line(
            "rewards" if rewards else "votes", f"{answers} (of {story.responses} responses)", story.position
        ),
        Line("verdict", f"{story.verdict.replace('_', ' ')}: {story.reason}", story.position),
    ]
    if story.undecided:
        lines.append(
            Line("undecided", f"{count(story.undecided, 'pair')} of answers, compared without a verdict")
        )
    if story.label_true is not None:
        truth = "" if story.truth is None or story.label_true else f", the truth is {story.truth}"
        word = "true" if story.label_true else "false"
        lines.append(Line("truth", f"the label {story.label} is {word}{truth}"))
    lines += [
        Line(
            e.failure_id,
            how_counted(e) + (f" → {e.cause_id}" if e.cause_id else "") + (marked(e) if e.right else ""),
            e.positions.get("CauseMatched") or e.positions.get("CauseCreated"),
            depth=1,
        )
        for e in story.failures
    ]
    text = wrapped(story.question if story.question is not None else "(text not kept)", "   ", columns)
    return (
        f"{story.question_id}\n{text}"
        + lay(lines, columns)
        + "".join(failure_texts(e, columns) for e in story.failures)
    )


def _returned(story: "QuestionStory") -> str:
    partner = f" and Mastered {story.stitched_cause_id}" if story.stitched_cause_id else ""
    return f"back again: its last failures were put down to {story.cause_id}{partner}"


def node_screen(story: "NodeStory", columns: int | None, *, everything: bool) -> str:
    """What made a node, what came under it, and which pairs were judged. Without `everything` the latest
    causes and pairs, so that it fits on one screen."""
    members = [_member(m, story.node_id) for m in story.members]
    pairs = [_judged(pair) for pair in story.pairs]
    if not everything:
        del members[1 : max(1, len(members) - SCREEN)], pairs[: max(0, len(pairs) - SCREEN)]
        while len(members) + len(pairs) > 2 and not _fits(_node(story, members, pairs, columns, brief=True)):
            if len(pairs) >= len(members):
                del pairs[0]
            else:
                del members[1]  # the first is why the node is there
    calls = "".join(_call(pair.call, columns) for pair in story.pairs if pair.call is not None)
    told = _node(story, members, pairs, columns, brief=not everything)
    return told + calls + failure_texts(story.evidence, columns)


def _node(
    story: "NodeStory", members: list[Line], pairs: list[Line], columns: int | None, *, brief: bool
) -> str:
    mark = (
        f"MERGED into {story.merged_into}"
        if story.merged_into
        else count(len(story.members), "cause").upper()
    )
    born = f"r{story.round}  “{story.created_label}” for {story.evidence.failure_id}"
    title, lines = f"{story.node_id}  {story.label}", [Line("created", born, story.position)]
    if brief:
        title, lines = _cut(title, columns, 2), _cut_lines(lines, columns, 2)
        members, pairs = _cut_lines(members, columns, 1), _cut_lines(pairs, columns, 1)
    left = (
        count(len(story.members) - len(members), "cause") if len(story.members) > len(members) else "",
        count(len(story.pairs) - len(pairs), "pair") if len(story.pairs) > len(pairs) else "",
    )
    out = _head(title, mark, columns) + lay([*lines, *members, *pairs], columns)
    return out + (f" left out: {' and '.join(filter(None, left))} (--all)\n" if any(left) else "")


def _member(member: "Member", node_id: str) -> Line:
    origin = "" if member.created_under == node_id else f" (from {member.created_under})"
    return Line("cause", f"r{member.round}  {member.cause_id}{origin}  {member.description}", member.position)


def _judged(pair: "Judged") -> Line:
    said = f"one skill: {pair.survivor} “{pair.label}”" if pair.merged else "two skills"
    text = f"r{pair.round}  with {pair.other}, cosine {pair.similarity:.2f}: {said}"
    return Line("merged" if pair.merged else "kept apart", text, pair.position)
