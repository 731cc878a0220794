"""The diagnostician's prompts: templates in files, model text fenced off as data.

Templates are `prompts/*.txt`; their fields are the paper's (`<problem>`, `<pseudo_label>`, …).

Text that a model wrote cannot leave its section, for three reasons:
- It stands between two lines that carry a fence. The fence is derived from the texts themselves (BLAKE2 of
  all of them) and derived again while it occurs in one of them; no text can contain what depends on the whole
  of it. It is not random, so the same question is the same request, and a stored reply is found again.
- Marks that chat templates read as special tokens (`<|im_end|>`, `</s>`, `[INST]`, …) are broken by a
  space, because a server tokenizes them anywhere.
- Descriptions and labels in lists are one line each, so that none can forge another entry.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Literal

from diagevo.diagnosis.diagnostician import FailurePair, NodeContents
from diagevo.memory.nearest.similarity import NodeCandidate
from diagevo.memory.state.model import KnownCause
from diagevo.sampling.sampler import Message
from diagevo.selfplay.templates import fill, load_templates
from diagevo.text.escaping import REPLACEMENT, one_line, storable

Decision = Literal["extract", "duplicate", "assign", "merge"]

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "extract_user": (
        "problem",
        "pseudo_label",
        "agreeing_response",
        "disagreeing_response",
        "known_causes_section",
    ),
    "task_user": (
        "problem",
        "answer_section",
        "passed_section",
        "disagreeing_response",
        "computed_section",
        "known_causes_section",
    ),
    "task_answer": ("expected_answer",),
    "task_computed": ("computed_findings",),
    "task_passed": ("agreeing_response",),
    "extract_known": ("known_cause_list",),
    "duplicate_user": ("new_cause", "candidate_cause_list"),
    "assign_user": ("new_cause", "candidate_node_list"),
    "merge_user": ("node_a_label", "node_a_causes", "node_b_label", "node_b_causes"),
    "retry": ("error",),
}
"""Fields that a template must contain.

System templates may contain `<data_rule>`, the data rule `<fence>`.
"""

_FILES: Mapping[Decision, tuple[str, ...]] = {
    "extract": (
        "extract_system",
        "extract_user",
        "task_system",
        "task_user",
        "task_answer",
        "task_passed",
        "task_computed",
        "extract_known",
        "data_rule",
        "retry",
    ),
    "duplicate": ("duplicate_system", "duplicate_user", "data_rule", "retry"),
    "assign": ("assign_system", "assign_user", "data_rule", "retry"),
    "merge": ("merge_system", "merge_user", "data_rule", "retry"),
}

_MARKS = re.compile(
    r"[<＜](?=[/|｜<＜A-Za-z_!?]|0x)"
    r"|[\[［](?=[|｜@]|/?[A-Za-z_]\w+[\]］]|e~\[)"
    r"|\](?=~)|◁"
)
"""Where a chat template's token may begin: `<|`, `<｜`, `</`, `<s>`, `<0x0A>`, `<<SYS>>`; `[INST]`,
`[gMASK]`, `[|endofturn|]`, `[@BOS@]`, `[e~[`; `]~b]`; `◁think▷`. And the full-width characters that some
tokenizers normalize."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Text:
    """Model text as shown: its pieces, and the number of characters left out between them."""

    pieces: tuple[str | int, ...]

    @classmethod
    def of(cls, text: str, limit: int, clean: Callable[[str], str], common: int = 0) -> "Text":
        """Keep at most `limit` characters: half of them from the end, and if the text shares its first
        `common` characters with another, most of the rest from where they diverge."""
        size = len(text)
        if size <= limit:
            return cls((clean(text),))
        head, tail = min(limit // 8, common), limit // 2
        until = common + limit - tail - head
        spans = [(0, head), (common, until), (size - tail, size)]
        if until >= size - tail:
            spans[1:] = [(size - limit + head, size)]
        pieces: list[str | int] = []
        shown = 0
        for start, end in spans:
            if start > shown:
                pieces.append(start - shown)
            pieces.append(clean(text[start:end]))
            shown = end
        return cls(tuple(piece for piece in pieces if piece != ""))

    def joined(self, gap: str) -> str:
        """The pieces, with `gap` for what was left out between them; its {} is the number of characters."""
        return "\n".join(gap.format(piece) if isinstance(piece, int) else piece for piece in self.pieces)


def plain(text: str) -> str:
    """Text that can be encoded, sent and shown: no lone surrogates, no control characters but tab and line
    feed, and no mark that a chat template would read as a token."""
    text = _CONTROL.sub(REPLACEMENT, storable(text).replace("\r\n", "\n").replace("\r", "\n"))
    return _MARKS.sub(lambda mark: mark[0] + " ", text)


def fence(texts: Sequence[Text]) -> str:
    """A mark that none of the texts contains, the same for the same texts."""
    pieces = [piece for text in texts for piece in text.pieces if isinstance(piece, str)]
    key = blake2b(digest_size=6)
    for piece in pieces:
        data = piece.encode()
        key.update(len(data).to_bytes(8, "big"))
        key.update(data)
    mark = key.hexdigest()
    while any(mark in piece for piece in pieces):
        mark = blake2b(mark.encode(), digest_size=6).hexdigest()
    return f"[{mark}]"


class DiagnosisPrompts:
    """The templates in use. Build with `load`."""

    def __init__(self, templates: Mapping[str, str], characters: int) -> None:
        self._templates = dict(templates)
        self._characters = characters
        self._digests = {decision: self._hash(names) for decision, names in _FILES.items()}

    @classmethod
    def load(cls, folder: Path | None, characters: int) -> "DiagnosisPrompts":
        """Read the built-in templates and those of `folder` that replace them. Models' texts are shortened to
        `characters` characters each. Raises ConfigError."""
        names = sorted({name for names in _FILES.values() for name in names})
        fields = {name: _FIELDS.get(name, ()) for name in names}
        templates = load_templates("diagevo.diagnosis", fields, folder)
        return cls(templates, characters)

    def digest(self, decision: Decision) -> str:
        """SHA-256 over all templates that the decision uses."""
        return self._digests[decision]

    @property
    def revision(self) -> str:
        """One short hash over all decisions' templates."""
        return sha256("".join(self._digests.values()).encode()).hexdigest()[:12]

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each template by its file's name."""
        return {name: sha256(text.encode()).hexdigest() for name, text in self._templates.items()}

    def _hash(self, names: Sequence[str]) -> str:
        total = sha256()
        for name in names:
            data = self._templates[name].encode()
            total.update(len(data).to_bytes(8, "big"))
            total.update(data)
        return total.hexdigest()

    def extract(self, pair: FailurePair) -> list[Message]:
        """Prompt 1. The section of known causes is omitted if the question was generated freely. If
        another trainer's check decided, the task's own templates are used; unknown values have no section."""
        common = _common(pair.agreeing, pair.disagreeing)
        values = {
            "problem": self._text(pair.question),
            "agreeing_response": self._text(pair.agreeing, common),
            "disagreeing_response": self._text(pair.disagreeing, common),
        }
        rewards = pair.votes_are == "rewards"
        values["expected_answer" if rewards else "pseudo_label"] = self._text(pair.label)
        findings = pair.computed.findings if pair.computed is not None else ()
        sections = {
            "computed_section": "task_computed" if findings else None,
            "answer_section": "task_answer" if pair.label else None,
            "passed_section": "task_passed" if pair.agreeing else None,
            "known_causes_section": "extract_known" if pair.known else None,
        }
        if findings:
            values["computed_findings"] = _listed(f"- {one_line(each)}" for each in findings)
        if pair.known:
            values["known_cause_list"] = _listed(
                f"- {cause.cause_id} ({cause.state.capitalize()}): {one_line(cause.description)}"
                for cause in pair.known
            )
        kind = "task" if rewards else "extract"
        user = self._templates[f"{kind}_user"]
        for field, template in sections.items():
            user = user.replace(f"<{field}>", self._templates[template] if template else "")
        return self._messages(f"{kind}_system", user, values)

    def duplicate(self, description: str, candidates: Sequence[KnownCause]) -> list[Message]:
        """Prompt 2. States are not shown: the question is about mechanisms, and the answer must not depend
        on states."""
        values = {
            "new_cause": _listed([one_line(description)]),
            "candidate_cause_list": _listed(
                f"- {cause.cause_id}: {one_line(cause.description)}" for cause in candidates
            ),
        }
        return self._messages("duplicate_system", self._templates["duplicate_user"], values)

    def assign(self, description: str, shortlist: Sequence[NodeCandidate]) -> list[Message]:
        """Prompt 3."""
        values = {
            "new_cause": _listed([one_line(description)]),
            "candidate_node_list": _listed(
                f"- {node.node_id}: {one_line(node.label)} | one cause: {one_line(node.representative)}"
                for node in shortlist
            ),
        }
        return self._messages("assign_system", self._templates["assign_user"], values)

    def merge(self, a: NodeContents, b: NodeContents) -> list[Message]:
        """Prompt 4."""
        values = {
            "node_a_label": _listed([one_line(a.label)]),
            "node_a_causes": _listed(f"- {one_line(cause)}" for cause in a.causes),
            "node_b_label": _listed([one_line(b.label)]),
            "node_b_causes": _listed(f"- {one_line(cause)}" for cause in b.causes),
        }
        return self._messages("merge_system", self._templates["merge_user"], values)

    def retry(self, reply: str, complaint: str) -> list[Message]:
        """The turn that shows a model what was wrong with its reply."""
        shown = Text.of(reply, 2000, plain).joined("[{} characters left out]")
        error = plain(one_line(complaint))[:300]
        return [
            Message(role="assistant", content=shown or "(empty)"),
            Message(role="user", content=fill(self._templates["retry"], {"error": error})),
        ]

    def _text(self, text: str, common: int = 0) -> Text:
        return Text.of(text, self._characters, plain, common)

    def _messages(self, system: str, user: str, values: Mapping[str, Text]) -> list[Message]:
        mark = fence(list(values.values()))
        shown = {field: _fenced(text, mark) for field, text in values.items()}
        rule = fill(self._templates["data_rule"].strip(), {"fence": mark})
        system_text = fill(self._templates[system], {"data_rule": rule}).strip()
        messages = [Message(role="user", content=fill(user, shown, own_lines=True).strip())]
        if system_text:
            messages.insert(0, Message(role="system", content=system_text))
        return messages


def _listed(lines: Iterable[str]) -> Text:
    """One entry per line; never shortened, because an omitted entry could not be chosen."""
    return Text((plain("\n".join(lines)) or "(none)",))


def _fenced(text: Text, mark: str) -> str:
    return f"{mark} begin\n{text.joined(mark + ' {} characters left out here')}\n{mark} end"


def _common(one: str, other: str) -> int:
    """The length of the common beginning of two texts, in whole lines; in whole words if it is one line."""
    shorter = min(len(one), len(other))
    common = next((place for place in range(shorter) if one[place] != other[place]), shorter)
    return (one.rfind("\n", 0, common) + 1) or (one.rfind(" ", 0, common) + 1)
