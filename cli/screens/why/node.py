"""The screen of a skill node: what made it, what came under it, and which pairs were judged."""

from typing import TYPE_CHECKING

from diagevo.text.numbers import count

from ...render.layout import ROWS, SCREEN, Line, cut, cut_lines, fits, heading, lay
from .failure import call_texts, failure_texts

if TYPE_CHECKING:
    from diagevo.memory.audit.nodes import Member, NodeJudgement, NodeStory


def node_screen(story: "NodeStory", columns: int | None, *, everything: bool) -> str:
    """What made a node, what came under it, and which pairs were judged. Without `everything` the latest
    causes and pairs, so that it fits on one screen."""
    members, pairs = [_member(m, story.node_id) for m in story.members], [_judged(p) for p in story.pairs]
    rows = None
    if not everything:
        whole = (rows for rows in ROWS if fits(_node(story, members, pairs, columns, rows)))
        rows = next(whole, ROWS[-1])
        del members[1 : max(1, len(members) - SCREEN)], pairs[: max(0, len(pairs) - SCREEN)]
        while len(members) + len(pairs) > 2 and not fits(_node(story, members, pairs, columns, rows)):
            if len(pairs) >= len(members):
                del pairs[0]
            else:
                del members[1]  # the first is why the node is there
    calls = "".join(call_texts(pair.call, columns) for pair in story.pairs if pair.call is not None)
    told = _node(story, members, pairs, columns, rows)
    return told + calls + failure_texts(story.evidence, columns)


def _node(
    story: "NodeStory", members: list[Line], pairs: list[Line], columns: int | None, rows: int | None
) -> str:
    """With texts of at most so many rows, half as many for causes and pairs."""
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


def _member(member: "Member", node_id: str) -> Line:
    origin = "" if member.created_under == node_id else f" (from {member.created_under})"
    return Line("cause", f"r{member.round}  {member.cause_id}{origin}  {member.description}", member.position)


def _judged(pair: "NodeJudgement") -> Line:
    said = f"one skill: {pair.survivor} “{pair.label}”" if pair.merged else "two skills"
    text = f"r{pair.round}  with {pair.other}, cosine {pair.similarity:.2f}: {said}"
    return Line("merged" if pair.merged else "kept apart", text, pair.position)
