"""The screens of `memory why`: the lines of a story, laid out to fit, with its texts below."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagevo.equations.states import part_in_schedule
from diagevo.memory.history import AsOf, History
from diagevo.memory.stories.cause_story import (
    Added,
    Assigned,
    CauseStory,
    Counted,
    Created,
    Dismissed,
    Merged,
    Reactivated,
    Reinstated,
    Renamed,
    Superseded,
    Turn,
    Unassigned,
)
from diagevo.memory.stories.examples import Example, examples_of
from diagevo.memory.stories.failures import FailureStory, ModelExchange, QuestionStory, contradicted_causes
from diagevo.memory.stories.nodes import NodeStory
from diagevo.memory.stories.story_wording import (
    effect_lines,
    evidence_lines,
    failed_on,
    failure_lines,
    in_words,
    mark_of,
    member_line,
    pair_line,
    question_lines,
    turn_lines,
)
from diagevo.memory.stories.why import Story, failures_in
from diagevo.text.lines import Line
from diagevo.text.numbers import count
from diagevo.text.thoughts import answered, thought

from ..render.console import visible
from ..render.layout import ROWS, SCREEN, cut, cut_lines, fits, heading, lay, width, wrapped


def screen(history: History, story: Story, as_of: AsOf, *, everything: bool, full: bool) -> str:
    """A story as it stood at a point, with its failures in words."""
    columns = width()
    causes = {cause.cause_id: cause.description for cause in history.state(as_of).causes.values()}
    match story:
        case CauseStory():
            shown = cause_screen(
                story,
                columns=columns,
                everything=everything,
                full=full,
                examples=examples_of(history, failures_in(story)),
                evaluation=history.evaluation,
            )
            against = contradicted_causes(history).get(story.cause_id) if as_of == history.end else None
            return shown if against is None else f"{against}\n{shown}"
        case NodeStory():
            return node_screen(story, columns, everything=everything)
        case QuestionStory():
            return question_screen(story, columns, examples_of(history, story.failures), causes)
        case FailureStory():
            example = examples_of(history, [story]).get(story.failure_id)
            return failure_screen(story, columns, example, causes.get(story.cause_id or ""))


def cause_screen(
    story: CauseStory,
    *,
    columns: int | None,
    everything: bool,
    full: bool,
    examples: Mapping[str, Example],
    evaluation: bool = False,
) -> str:
    """The story of a cause, its failures in words where `examples` has them. For an `evaluation` the
    curriculum is left out.

    Without `everything` it fits on one screen: single failures are left out first, then the oldest turns, and
    only then a text is cut to two rows."""
    texts = _all_texts(story, columns) if full else ""
    if evaluation:
        lines, mark = _evaluated(story, examples)
        hint = "" if full else " --full: questions, responses, prompts and replies\n"
        return (
            heading(f"{story.cause_id}  {story.description}", mark, columns)
            + lay(lines, columns)
            + hint
            + texts
        )
    turns = story.turns if everything else (*story.turns[:1], *story.turns[1:][-SCREEN:])
    blocks, rows, shown = [list(_turn(turn, examples)) for turn in turns], None, None
    if not everything:
        rows = ROWS[0]
        for shown in (None, 1, 0):
            blocks = [list(_turn(turn, examples, shown)) for turn in turns]
            if fits(_cause(story, blocks, columns, rows)):
                break
        while len(blocks) > 2 and not fits(_cause(story, blocks, columns, rows)):
            del blocks[1]  # its creation stays
        if not fits(_cause(story, blocks, columns, rows)):
            rows = ROWS[1]
    return _cause(story, blocks, columns, rows, full=full, single=shown != 0) + texts


def _cause(
    story: CauseStory,
    blocks: list[list[Line]],
    columns: int | None,
    rows: int | None,
    *,
    full: bool = False,
    single: bool = True,
) -> str:
    """With texts of at most this many rows. Turns that are not in `blocks` are counted; `single`: whether
    they have single failures."""
    hidden = max(0, len(story.turns) - len(blocks))
    state = (story.how if story.how == "reactivated" and story.state != "superseded" else story.state).upper()
    since = f"{state} {'since' if story.how == 'created' else 'in'} round {story.since}"
    title, node = f"{story.cause_id}  {story.description}", f"in {story.node_id}  {story.node_label}"
    lines = [*(line for block in blocks for line in block), *effect_lines(story)]
    if rows is not None:
        title, node = cut(title, columns, rows), cut(node, columns, rows // 2)
        lines = cut_lines(lines, columns, rows)
    left = [count(hidden, "turn")] if hidden else []
    left += [] if single else ["single failures"]
    hint = "" if full else " --full: trajectories, prompts and replies\n"
    if left:
        texts = "" if full else f"; {'trajectories, prompts and replies' if single else 'texts'} (--full)"
        hint = f" left out: {', '.join(left)} (--all){texts}\n"
    node = wrapped(visible(node, one_line=True), " ", columns)
    return heading(title, since, columns) + node + lay(lines, columns) + hint


def _turn(turn: Turn, examples: Mapping[str, Example], shown: int | None = None) -> Iterator[Line]:
    for line in turn_lines(turn, examples, shown, rest=": --all"):
        yield line if line.depth else replace(line, text=f"r{turn.round}  {line.text}")


def _evaluated(story: CauseStory, examples: Mapping[str, Example]) -> tuple[list[Line], str]:
    """The failures of a cause, changes of its description, and how many failures it has."""
    lines: list[Line] = []
    failures = 0
    for turn in story.turns:
        match turn:
            case Created():
                failures += 1
                lines.extend(evidence_lines((turn.evidence,), 1, examples, None))
            case Counted() | Reactivated():
                failures += turn.failures
                lines.extend(evidence_lines(turn.evidence, turn.failures, examples, None, rest=": --all"))
            case Assigned() | Unassigned():
                failures += 1 if isinstance(turn, Assigned) else -1
                lines.extend(_turn(turn, examples))
            case Added() | Renamed() | Dismissed() | Reinstated() | Superseded():
                lines.extend(_turn(turn, examples))
            case _:
                pass
    gone = story.state == "superseded" or part_in_schedule(story.state) is None
    mark = story.state.upper() if gone else count(failures, "failure").upper()
    return lines, mark


def _all_texts(story: CauseStory, columns: int | None) -> str:

    out = []
    for turn in story.turns:
        match turn:
            case Created() | Added():
                out.append(failure_texts(turn.evidence, columns))
            case Counted() | Reactivated():
                out += [failure_texts(e, columns) for e in turn.evidence]
            case Merged() if turn.call is not None:
                out.append(call_texts(turn.call, columns))
            case _:
                pass
    return "".join(out)


def node_screen(story: NodeStory, columns: int | None, *, everything: bool) -> str:
    """How a node was created, what was assigned to it, and which pairs were judged. Without `everything` the
    latest causes and pairs, so that it fits on one screen."""
    members = [member_line(member, story.node_id) for member in story.members]
    pairs = [pair_line(pair) for pair in story.pairs]
    rows = None
    if not everything:
        whole = (rows for rows in ROWS if fits(_node(story, members, pairs, columns, rows)))
        rows = next(whole, ROWS[-1])
        del members[1 : max(1, len(members) - SCREEN)], pairs[: max(0, len(pairs) - SCREEN)]
        while len(members) + len(pairs) > 2 and not fits(_node(story, members, pairs, columns, rows)):
            if len(pairs) >= len(members):
                del pairs[0]
            else:
                del members[1]  # the first is why the node exists
    calls = "".join(call_texts(pair.call, columns) for pair in story.pairs if pair.call is not None)
    return _node(story, members, pairs, columns, rows) + calls + failure_texts(story.evidence, columns)


def _node(
    story: NodeStory, members: list[Line], pairs: list[Line], columns: int | None, rows: int | None
) -> str:
    """With texts of at most this many rows, half as many for causes and pairs."""
    mark = (
        f"MERGED into {story.merged_into}"
        if story.merged_into
        else count(len(story.members), "cause").upper()
    )
    born = f"r{story.round}  “{story.created_label}” for {story.evidence.failure_id}"
    title, lines = f"{story.node_id}  {story.label}", [Line("created", born, story.position)]
    if rows is not None:
        among = [*lines, *members, *pairs]
        title, lines = cut(title, columns, rows), cut_lines(lines, columns, rows, among)
        members, pairs = (cut_lines(each, columns, rows // 2, among) for each in (members, pairs))
    left = (
        count(len(story.members) - len(members), "cause") if len(story.members) > len(members) else "",
        count(len(story.pairs) - len(pairs), "pair") if len(story.pairs) > len(pairs) else "",
    )
    out = heading(title, mark, columns) + lay([*lines, *members, *pairs], columns)
    return out + (f" left out: {' and '.join(filter(None, left))} (--all)\n" if any(left) else "")


def question_screen(
    story: QuestionStory,
    columns: int | None,
    examples: Mapping[str, Example],
    causes: Mapping[str, str],
) -> str:
    """How a question was drawn, how it was voted on, and what failed on it. `causes`: their descriptions."""
    lines = question_lines(story)
    if (aim := causes.get(story.cause_id or "")) is not None:
        lines.insert(1, Line("cause", aim))
    for e in story.failures:
        words = in_words(examples.get(e.failure_id)), causes.get(e.cause_id or "")
        lines += [failed_on(e), *(Line("", text, depth=1) for text in words if text is not None)]
    text = wrapped(story.question if story.question is not None else "(text not kept)", "   ", columns)
    texts = "".join(failure_texts(e, columns) for e in story.failures)
    return f"{story.question_id}\n{text}{lay(lines, columns)}{texts}"


def failure_screen(
    story: FailureStory, columns: int | None, example: Example | None, cause: str | None
) -> str:
    """The history of one failure, from the question to the count. `cause`: the description it was
    counted under."""
    lines = failure_lines(story)
    if words := in_words(example):
        lines.insert(2, Line("in words", words))
    if cause is not None:
        lines.append(Line("cause", cause))
    return f"{story.failure_id}\n" + lay(lines, columns) + failure_texts(story, columns)


def failure_texts(story: FailureStory, columns: int | None) -> str:
    """Question, reference, trajectory, prompts and replies of one failure."""
    texts = story.texts
    if texts is None:
        return ""
    label = visible(mark_of(story) or f"label {story.label or '–'}", one_line=True)
    out = [f"\n{story.failure_id}  ({label})\n"]
    reference = "reference, agreeing with the label"
    if story.against == "near":
        reference = "passed, on a prompt like this; no response passed"
    elif story.against == "answer":
        reference = "known answer; no response passed"
    elif story.votes_are == "rewards":
        reference = "reference, which passed"
    for name, text in (
        ("question", texts.question),
        (reference, texts.reference),
        ("trajectory, right but against the label" if story.right else "failed trajectory", texts.trajectory),
        *([] if story.feedback is None else [("feedback", story.feedback)]),
    ):
        shown = answered(text).strip() if text is not None else "(not kept)"
        out.append(f" {name}\n{wrapped(shown, '   ', columns)}")
    for name, text in (("failed", texts.trajectory), ("reference", texts.reference)):  # after what is read
        if words := thought(text or ""):
            out.append(f" reasoning, {name}\n{wrapped(words, '   ', columns)}")
    return "".join(out) + "".join(call_texts(call, columns) for call in texts.calls)


def call_texts(call: ModelExchange, columns: int | None) -> str:
    """A request to a model, its cost, and the reply."""
    cost = f"{call.input_tokens} + {call.output_tokens} tokens, {count(call.tries, 'try', 'tries')}"
    out = f" {call.purpose}, by {visible(call.model, one_line=True)} ({cost})\n"
    out += wrapped(call.request if call.request is not None else "(not kept)", "   ", columns)
    out += " reply\n"
    return out + wrapped(call.reply if call.reply is not None else "(none)", "   ", columns)
