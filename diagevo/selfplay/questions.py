"""Prompts of challenger and solver, built from template files, and the question in a challenger's completion.

The built-in templates in `prompts/` say in our own words what the paper's appendix requires of each prompt:
role, difficulty, the `<question>` block, and the three modes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diagevo.sampling.sampler import Message, Prompt
from diagevo.selfplay.templates import fill, load_templates

if TYPE_CHECKING:
    from diagevo.memory.state.projected_schedule import Draw

FIELDS: Mapping[str, tuple[str, ...]] = {
    "challenger_system": (),
    "challenger_free": (),
    "challenger_targeted": ("skill_node", "error_cause"),
    "challenger_stitched": ("skill_node", "active_cause", "mastered_cause"),
    "solver_system": (),
    "solver_user": ("question",),
}
"""Template names with the fields each is given; anything else in angle brackets is plain text."""
BOXED = "challenger_system_boxed"
ANCHORED = "challenger_anchored"
RANDOM_PAIR = "challenger_stitched_random"
_RANDOM_FIELDS = ("skill_node", "active_cause", "mastered_node", "mastered_cause")
"""For a random pair: two areas, where a pair of one node shares one."""

_TAG = re.compile(r"<(/?)question>")


def parse_question(text: str) -> str | None:
    """The last non-empty `<question>…</question>` block of a completion, stripped; None if there is none.

    A block runs from an opening tag to the next closing tag with no opening tag between them: of nested
    blocks the innermost counts, and an opening tag that is never closed does not. Linear time.
    """
    question = None
    start: int | None = None
    for tag in _TAG.finditer(text):
        if not tag.group(1):
            start = tag.end()
        elif start is not None:
            question = text[start : tag.start()].strip() or question
            start = None
    return question


def _messages(system: str, user: str) -> Prompt:
    turns: list[Message] = [{"role": "system", "content": system}] if system else []
    return [*turns, {"role": "user", "content": user}]


@dataclass(frozen=True)
class PromptTemplates:
    """The six templates of self-play by name (`FIELDS`), without their trailing newlines."""

    texts: Mapping[str, str]

    @classmethod
    def load(
        cls,
        folder: Path | None = None,
        *,
        boxed: bool = False,
        random_pairs: bool = False,
        anchored: bool = False,
    ) -> PromptTemplates:
        """The built-in templates, each replaced by `folder`/NAME.txt if that file exists. `boxed`: the
        built-in challenger is asked for an answer with the question. `random_pairs`: a pair is said to come
        from two areas, in the folder's challenger_stitched_random.txt, its challenger_stitched.txt, or the
        built-in one. `anchored`: also the prompt that shows examples. Raises ConfigError."""
        loaded = load_templates("diagevo.selfplay", FIELDS, folder)

        def own(name: str) -> bool:
            return folder is not None and (folder / f"{name}.txt").is_file()

        if boxed and not own("challenger_system"):
            loaded["challenger_system"] = load_templates("diagevo.selfplay", {BOXED: ()})[BOXED]
        if random_pairs and (own(RANDOM_PAIR) or not own("challenger_stitched")):
            other = load_templates("diagevo.selfplay", {RANDOM_PAIR: _RANDOM_FIELDS}, folder)
            loaded["challenger_stitched"] = other[RANDOM_PAIR]
        if anchored:
            loaded |= load_templates("diagevo.selfplay", {ANCHORED: ("examples",)}, folder)
        return cls({name: text.rstrip("\r\n") for name, text in loaded.items()})

    def digest(self, name: str) -> str:
        """SHA-256 of a template's text, hexadecimal: the log's record of it."""
        return hashlib.sha256(self.texts[name].encode()).hexdigest()

    def challenger(self, draw: Draw) -> Prompt:
        """The challenger's prompt for a draw of the schedule: free, one cause, or an Active/Mastered pair.

        The system message is the same in every mode; an empty system template means none at all.
        """
        given = {
            "free": {},
            "targeted": {"skill_node": draw.node, "error_cause": draw.cause},
            "stitched": {
                "skill_node": draw.node,
                "active_cause": draw.cause,
                "mastered_cause": draw.stitched_cause,
            },
        }[draw.mode]
        values: dict[str, str] = {}
        for field, value in given.items():
            if value is None:
                raise ValueError(f"draw {draw.index} is {draw.mode} but gives no {field}")
            values[field] = value
        if draw.stitched_node is not None:
            values["mastered_node"] = draw.stitched_node
        return _messages(self.texts["challenger_system"], fill(self.texts[f"challenger_{draw.mode}"], values))

    def anchored(self, draw: Draw, examples: Sequence[str]) -> Prompt:
        """The challenger's prompt for a free draw that shows examples; without any, the one of every draw."""
        if not examples:
            return self.challenger(draw)
        shown = {"examples": "\n\n".join(examples)}
        return _messages(self.texts["challenger_system"], fill(self.texts[ANCHORED], shown))

    def solver(self, question: str) -> Prompt:
        """The solver's prompt for a question. It never shows anything from the memory."""
        return _messages(self.texts["solver_system"], fill(self.texts["solver_user"], {"question": question}))
