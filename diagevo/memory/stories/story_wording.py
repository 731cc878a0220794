"""Stories as lines, the single wording of each turn: the terminal lays the lines out, and a page links their
ids."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import assert_never

from diagevo.memory.stories.cause_story import (
    Added,
    Assigned,
    CauseStory,
    Counted,
    Created,
    Dismissed,
    Merged,
    Promoted,
    Reactivated,
    Reinstated,
    Renamed,
    Sampled,
    Superseded,
    Turn,
    Unassigned,
    Vote,
)
from diagevo.memory.stories.examples import Example
from diagevo.memory.stories.failures import FailureStory, QuestionStory
from diagevo.memory.stories.nodes import Member, NodeJudgement
from diagevo.text.escaping import one_line
from diagevo.text.lines import Line, listed, sub
from diagevo.text.numbers import count, number, percent

SHOWN, FEEDBACK = 80, 400
"""Maximum characters of a text in a line; of a failure's feedback."""
LABEL_FROM = {
    "human": "a person, not the votes",
    "proposer": "the challenger itself, not the votes",
    "executor": "its program, which was run",
    "document": "the votes of responses that were shown its document",
}
Examples = Mapping[str, Example]


def turn_lines(turn: Turn, examples: Examples, shown: int | None = None, *, rest: str = "") -> Iterator[Line]:
    """The line of a turn, with this many of its failures below it. `rest`: where the others are."""
    at = turn.position
    match turn:
        case Created():
            e = turn.evidence
            node = f"new node {turn.node_id}" if turn.new_node else turn.node_id
            near = nearest(e)
            text = f"{e.failure_id} · new cause under {node}" + (f" ({near})" if near else "")
            yield Line("created", text + against(e), at, words=_in_words(e, examples))
        case Sampled():
            yield Line("asked" if turn.rewards else "sampled", _sampled(turn), at)
        case Promoted():
            votes = f"Σ{'passes' if turn.rewards else 'votes'} {turn.agreeing}/{turn.responses}"
            if Fraction(turn.agreeing, turn.responses or 1) == turn.consistency:
                mean = f"{votes} = {number(turn.consistency)}"
            else:
                mean = f"{votes}, mean p₁ {number(turn.consistency)}"
            over = count(turn.questions, "question")
            text = f"{mean} ≥ {number(turn.threshold, 2)} over {over}, closed f = {turn.closed_frequency}"
            yield Line("promoted", text, at)
            yield from map(_vote, turn.votes)
        case Counted():
            text = f"{count(turn.failures, 'failure')} ({_ways(turn)}){_false(turn)} → f = {turn.frequency}"
            yield Line("counted", text, at)
            yield from evidence_lines(turn.evidence, turn.failures, examples, shown, rest=rest)
        case Reactivated():
            undone = f"undoing the promotion of round {turn.promoted_round}"
            if turn.promoted_round == turn.round:
                undone = "promoted this round"
            new = f"{count(turn.failures, 'new failure')} ({_ways(turn)})"
            text = f"{new}{_false(turn)} → Active, f = {turn.frequency}, {undone}"
            yield Line("reactivated", text, at)
            yield from evidence_lines(turn.evidence, turn.failures, examples, shown, rest=rest)
        case Merged():
            near = "" if turn.similarity is None else f", cosine {turn.similarity:.2f}, judged one skill"
            text = f"node {turn.absorbed} into {turn.survivor}{near}"
            yield Line("merged", text, at, words=f" “{turn.label}”")
        case Renamed():
            yield Line("renamed", position=at, words=f"from “{turn.before}” to “{turn.after}”")
        case Dismissed():
            text = f"{count(turn.frequency, 'failure')} left out, by {turn.by} on {turn.at[:10]}"
            yield Line("dismissed", text, at, words=f": {turn.because}")
        case Reinstated():
            text = f"by {turn.by} on {turn.at[:10]} → {turn.state.capitalize()}, f = {turn.frequency}"
            yield Line("reinstated", text, at)
        case Added():
            node = f"new node {turn.node_id}" if turn.new_node else turn.node_id
            text = f"by {turn.by} on {turn.at[:10]} for {turn.evidence.failure_id}, under {node}"
            yield Line("added", text, at, words=_in_words(turn.evidence, examples))
        case Assigned():
            by = f"{turn.failure_id} {'again ' if turn.undo else ''}by {turn.by} on {turn.at[:10]}"
            text = f"{by} → {turn.state.capitalize()}, f = {turn.frequency}"
            yield Line("assigned", text, at, words="" if turn.note is None else f": {turn.note}")
        case Unassigned():
            by = f"{turn.failure_id} by {turn.by} on {turn.at[:10]}"
            yield Line("taken out", f"{by} → {turn.state.capitalize()}, f = {turn.frequency}", at)
        case Superseded():
            rounds = f"round {turn.first} was"
            if turn.first != turn.round:
                rounds = f"rounds {turn.first} to {turn.round} were"
            now = f"again {turn.state.capitalize()}, f = {turn.frequency}"
            if turn.state == "superseded":
                now = "this cause no longer exists"
            yield Line("superseded", f"{rounds} superseded; {now}", at)


def evidence_lines(
    stories: Sequence[FailureStory], total: int, examples: Examples, shown: int | None, *, rest: str = ""
) -> Iterator[Line]:
    """This many of a turn's failures, and how many more there are."""
    if shown == 0:
        return
    for story in stories[:shown]:
        position = story.positions.get("CauseMatched") or story.positions.get("CauseCreated")
        text = how_counted(story) + against(story)
        yield Line(story.failure_id, text, position, 1, mark_of(story), _in_words(story, examples))
    if (left := total - len(stories[:shown])) > 0:
        yield Line("", f"and {left} more{rest}", depth=1)


def effect_lines(story: CauseStory) -> list[Line]:
    """A cause's effect on the next round's schedule."""
    effect = story.effect
    if effect is None:
        return []
    t = sub(effect.round)
    match story.state:
        case "mastered":
            why = "a Mastered cause is not aimed at; it may be stitched to others"
            return [Line("effect", f"p{t}({story.cause_id}) = 0: {why}")]
        case "dismissed":
            why = "a dismissed cause is not aimed at, and its failures leave F"
            return [Line("effect", f"p{t}({story.cause_id}) = 0: {why}")]
        case "active" | "superseded":
            pass
        case _:
            assert_never(story.state)
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


def failure_lines(story: FailureStory) -> list[Line]:
    """The history of one failure, from the question to the count."""
    at = story.positions.get
    drawn = {"free": "free exploration", "targeted": f"aimed at {story.target}"}.get(
        story.mode or "", f"stitched ({story.target} + {story.stitched})"
    )
    seen = f"{story.stage}, attempt {story.attempt}, step {story.step}"
    if story.votes_are == "rewards":
        drawn = "its trainer's prompt" + ("" if story.target is None else f", aimed at {story.target}")
        seen = f"step {story.step} of its trainer{against(story)}"
    label = ", no label" if story.label is None else f", label {story.label}"
    lines = [
        Line("question", f"{story.question_id}, {drawn}", at("CandidateScored"), words=label),
        Line("observed", seen, at("FailureObserved")),
    ]
    if story.feedback is not None:
        said = textwrap.shorten(one_line(story.feedback), FEEDBACK, placeholder="…")
        lines.append(Line("feedback", words=said))
    if (mark := mark_of(story)) and story.contradicted is None:
        lines.append(Line("truth", mark=mark))
    if story.verdict is not None:
        named = {"recurrence": f"recurrence of {story.chosen}", "new_cause": "new cause"}
        shown = ", ".join(f"{s.cause_id} ({s.state})" for s in story.supplied) or "none"
        flags = f" [{', '.join(story.flags)}]" if story.flags else ""
        given = "" if story.local else f" (causes shown: {shown})"
        text = f"{named.get(story.verdict, story.verdict)}{flags}{given}"
        words = f": {story.description}" if story.verdict == "new_cause" else ""
        lines.append(Line("diagnosed", text, at("FailureDiagnosed"), words=words))
    if story.contradicted is not None:
        lines.append(Line("but", mark=story.contradicted))
    if story.duplicate is not None and not story.local:
        above = ", ".join(f"{c.cause_id} {c.similarity:.2f}" for c in story.candidates)
        text = f"the same as {story.cause_id}" if story.duplicate else f"no duplicate ({nearest(story)})"
        text += f"; above {story.theta_dup:.2f}: {above}" if above else ""
        lines.append(Line("judged", text, at("DuplicateJudged")))
    if at("NodeAssigned") is not None and not story.local:
        near = listed([f"{n.node_id} {n.similarity:.2f}" for n in story.shortlist]) or "empty"
        where = "a new node" if story.new_label else f"node {story.node_id}"
        words = f" “{story.new_label}”" if story.new_label else ""
        lines.append(Line("assigned", f"{where} (shortlist: {near})", at("NodeAssigned"), words=words))
    result = " · ".join(filter(None, (story.diagnosed, how_counted(story))))
    lines.append(Line("counted", result, at("CauseMatched") or at("CauseCreated")))
    for move in story.moves:
        by = f"by {move.by} on {move.at[:10]}"
        if move.cause_id is None:
            lines.append(Line("taken out", f"of its cause, {by}", move.position))
        else:
            text = f"{'again ' if move.undo else ''}to {move.cause_id}, {by}"
            lines.append(Line("assigned", text, move.position, words=f": {move.note}" if move.note else ""))
    return lines + _own_id(story)


def question_lines(story: QuestionStory) -> list[Line]:
    """How a question was drawn, and how it was voted on."""
    t = sub(story.round)
    if story.mode == "free":
        drawn = f"free exploration, ε{t} = {number(story.epsilon)}"
    else:
        partner = f" + {story.stitched_cause_id} (Mastered, same node)" if story.stitched_cause_id else ""
        p = "" if story.probability is None else f", p{t} = {percent(story.probability)}"
        drawn = f"aimed at {story.cause_id}{partner}, 1 − ε{t} = {number(1 - story.epsilon)}{p}"
    rewards = story.votes_are == "rewards"
    if story.label_from == "human":
        drawn = "an item that a person labelled"
    if rewards and not story.steered:
        drawn = "its trainer's prompt"
        if story.cause_id is not None:
            partner = f" and Mastered {story.stitched_cause_id}" if story.stitched_cause_id else ""
            drawn += f", back again: its last failures were assigned to {story.cause_id}{partner}"
    if story.drawn_round is not None:
        drawn += f"; drawn by the schedule of round {story.drawn_round}"
    answers = listed([f"{answer} × {votes}" for answer, votes in story.votes], 6) or "no vote"
    if rewards:
        answers += " by rewards of its trainer, not by agreement"
    answers += f" (of {story.responses} responses)"
    # The filter's verdict on rewards is not the trainer's own check.
    verdict = story.reason if rewards else f"{story.verdict.replace('_', ' ')}: {story.reason}"
    lines = [
        Line("drawn", drawn, story.opened),
        Line("rewards" if rewards else "votes", position=story.position, words=answers),
        Line("verdict", position=story.position, words=verdict),
    ]
    if story.shown:
        shown = textwrap.shorten(one_line("; ".join(story.shown)), FEEDBACK, placeholder="…")
        lines.insert(1, Line("shown", words=shown))
    if story.label_from != "votes":
        lines.append(Line("label from", LABEL_FROM[story.label_from]))
    if story.undecided:
        text = f"{count(story.undecided, 'pair')} of answers, compared without a verdict"
        lines.append(Line("undecided", text))
    if story.label_true is None:
        lines += [] if story.label is None or rewards else [Line("label", words=story.label)]
    else:
        truth = "" if story.truth is None or story.label_true else f", the truth is {story.truth}"
        label = f"the label {story.label} is {'true' if story.label_true else 'false'}{truth}"
        lines.append(Line("truth", words=label) if story.label_true else Line("truth", mark=label))
    return lines + _own_id(story)


def _own_id(story: QuestionStory | FailureStory) -> list[Line]:
    return [] if story.own_id is None else [Line("own id", words=story.own_id)]


def failed_on(story: FailureStory) -> Line:
    """A failure below its question."""
    said = next((move for move in story.moves[-1:] if move.cause_id is not None and not move.undo), None)
    how = how_counted(story) if said is None else f"assigned by {said.by}"
    text = " → ".join(filter(None, (how, story.cause_id)))
    position = story.positions.get("CauseMatched") or story.positions.get("CauseCreated")
    return Line(story.failure_id, text, position, 1, mark_of(story) if story.right else "")


def member_line(member: Member, node_id: str) -> Line:
    """A cause of a node."""
    origin = "" if member.created_under == node_id else f" (from {member.created_under})"
    text = f"r{member.round}  {member.cause_id}{origin}"
    return Line("cause", text, member.position, words=f"  {member.description}")


def pair_line(pair: NodeJudgement) -> Line:
    """A node that was compared with this one."""
    text = f"r{pair.round}  with {pair.other}, cosine {pair.similarity:.2f}: "
    text += f"one skill: {pair.survivor}" if pair.merged else "two skills"
    words = f" “{pair.label}”" if pair.merged else ""
    return Line("merged" if pair.merged else "kept apart", text, pair.position, words=words)


def in_words(example: Example | None) -> str | None:
    """A failure in words: the question, and the evidence for its cause, the step computed to be wrong, or
    else the first that differs."""
    if example is None or (example.evidence is None and None in (example.actual, example.expected)):
        return None
    question, actual, expected, wrong, evidence = (
        textwrap.shorten(one_line(text or ""), SHOWN, placeholder="…")
        for text in (example.question, example.actual, example.expected, example.wrong, example.evidence)
    )
    if evidence:
        return f"{question}: {evidence}"
    if wrong:
        return f"{question}: {actual}: {wrong}"
    if example.against != "response":
        return f"{question}: ends {actual}" + (f"; expected {expected}" if expected else "")
    return f"{question}: first difference {actual}, instead of {expected}"


def _in_words(story: FailureStory, examples: Examples) -> str:
    words = in_words(examples.get(story.failure_id))
    return "" if words is None else f" · {words}"


def mark_of(story: FailureStory) -> str:
    """The truth about a failure: that its label is false, or that its answer is right."""
    truth = "" if story.truth is None else f", the truth is {story.truth}"
    if story.contradicted is not None:
        return f"CONTRADICTED: {story.contradicted}"
    if story.right:
        return f"RIGHT: it gives the true answer{'' if story.truth is None else f' {story.truth}'}"
    return f"the label {story.label} is false{truth}" if story.label_true is False else ""


def against(story: FailureStory) -> str:
    """That no response passed, where a failure is compared with the known answer alone."""
    return {
        "answer": ", no response passed: compared with the known answer",
        "near": ", no response passed: beside one that passed on a prompt like it",
    }.get(story.against, "")


def how_counted(story: FailureStory) -> str:
    """Why a failure was assigned to its cause."""
    if story.outcome == "recurrence":
        if story.mode == "stitched":
            asked = f"the question was stitched ({story.target} + {story.stitched})"
        else:
            asked = f"the question aimed at {story.target}"
        return f"recurrence: {asked}, the reply chose {story.chosen}"
    if story.outcome == "deduplication":
        near = "" if story.similarity is None else f"cosine {story.similarity:.2f} > {story.theta_dup:.2f}, "
        return f"deduplication: {near}judged the same" if near else "" if story.local else "deduplication"
    if story.outcome == "created":
        near = nearest(story)
        return f"a new cause ({near})" if near else "" if story.local else "a new cause"
    if story.void:
        return f"void: attempt {story.attempt} of {story.stage} was abandoned before this step, no count"
    if story.verdict is None:
        return "not diagnosed"
    return {
        "slip": "no pattern, no count" if story.local else "a slip: no skill behind it, no count",
        "unresolved": "unresolved: no readable reply, no count",
    }.get(story.verdict, f"{story.verdict}, not counted yet")


def nearest(e: FailureStory) -> str:
    """The stored cause nearest to a new one, and the verdict on it."""
    if e.nearest is None:
        return "" if e.local else "the first cause of all"
    near = f"nearest: {e.nearest.cause_id} at {e.nearest.similarity:.2f}"
    if e.judged:
        return f"{near}, above {e.theta_dup:.2f}, judged a different cause"
    return f"{near}, not above {e.theta_dup:.2f}"


def _ways(turn: Counted | Reactivated) -> str:
    """How the failures of a turn came to be counted: 2 recurrences, 1 deduplication."""
    parts = (
        count(turn.recurrences, "recurrence") if turn.recurrences else "",
        count(turn.deduplications, "deduplication") if turn.deduplications else "",
    )
    return ", ".join(part for part in parts if part)


def _false(turn: Counted | Reactivated) -> str:
    """How many of its failures are held against a false label, where one is."""
    false = turn.against_false_labels
    return f", {false} against a false label" if false else ""


def _vote(vote: Vote) -> Line:
    """A question that counted for a promotion: its majority, and what the truth says of it."""
    true = {True: ", true", False: ", false", None: ""}[vote.label_true]
    label = "no label" if vote.label is None else f"label {vote.label}"
    share = number(Fraction(vote.agreeing, vote.responses or 1))
    words = f", {label}{true}; {vote.mode}, {vote.verdict.replace('_', ' ')}"
    words += "" if vote.question is None else f": {vote.question}"
    text = f"{vote.agreeing}/{vote.responses} = {share}"
    return Line(vote.question_id, text, vote.position, 1, words=words)


def _sampled(turn: Sampled) -> str:
    kept, mean = turn.verdicts.get("kept", 0), ""
    if turn.consistency is not None:
        reached = "≥" if turn.consistency >= turn.threshold else "<"
        called = "mean pass rate" if turn.rewards else "mean p₁"
        mean = f", {called} {number(turn.consistency)} {reached} {number(turn.threshold, 2)}"
    if turn.rewards:  # prompts that another trainer repeated: nobody drew them by p
        if not turn.questions:
            return "no prompt that aims at it came"
        came = f"{count(turn.questions, 'prompt')} that {'aims' if turn.questions == 1 else 'aim'} at it"
        return f"{came}, {kept} with passes and failures{mean}"
    p = f"p{sub(turn.round)} = {turn.sum} = {percent(turn.probability)}"
    share = f"{p} of the {percent(1 - turn.epsilon)} targeted"
    if not turn.questions:
        return f"{share}, no question drawn"
    stitched = f" ({turn.stitched} stitched)" if turn.stitched else ""
    return f"{share}: {count(turn.questions, 'question')}{stitched}, {kept} kept{mean}"
