"""Levels 1 and 2 for one response: what is not a reasoning mistake, and what is false when computed. Whether
such a kind is a cause is decided over the run: passes must show it less often.
"""

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from diagevo.answers.comparison import decide
from diagevo.answers.extraction import extract_boxed
from diagevo.diagnosis.levels.inputs import Evidence, Prompt, Response
from diagevo.diagnosis.levels.structured_output import Unreadable

FALSE = "false"
"""The kind of level 2; the others are of level 1."""
KINDS = {
    "equal": "gives the expected answer, and was not rewarded: look at the grader",
    "form": "gives the expected answer, but not in the form in which passes give theirs",
    "empty": "is empty",
    "cut off": "is cut off before its end",
    "loop": "repeats itself",
    "refused": "refuses the task",
    "malformed": "writes structured output that cannot be read",
    "malformed call": "writes a tool call that cannot be read",
    "failed call": "a tool call failed",
    "timeout": "ran out of time",
    "exception": "ended in an exception",
    "unanswered": "ends with a tool call and gives no answer",
    "no answer": "gives no final answer",
    "language": "is written in other words than every pass: another language?",
    FALSE: "has a step that does not hold when it is computed",
}
"""Kinds, most actionable first; the first that fits is the cause."""
CUT = 100
_REFUSED = re.compile(
    r"\b(?:i(?:'m| am) (?:sorry|unable|not able)|i can(?:no|')t (?:help|assist|do|comply|answer)|as an ai\b)",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"^\W*(?:error|failed|failure|invalid|exception)\b|\"(?:error|is_error)\"\s*:\s*(?!null|false|\"\")",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"^Traceback \(most recent call last\)|\b[A-Z]\w*(?:Error|Exception)\b")
_TIMEOUT = re.compile(r"\b(?:time(?:d)?[ -]?out|deadline exceeded)\b", re.IGNORECASE)
_MARKS = (
    ("boxed", re.compile(r"\\boxed\s*\{")),
    ("####", re.compile(r"####")),
    ("answer", re.compile(r"\b(?:final\s+answer|answer\s*(?:is|:|=))", re.IGNORECASE)),
)
_ANSWER = re.compile(r"(?:####|\b(?:final\s+)?answer\s*(?:is\s*:?|:|=))\s*\**\s*(.+)", re.IGNORECASE)
_LAST = re.compile(r"-?[$€£]?\d[\d,]*(?:\.\d+)?%?")
_CALL = re.compile(r"^\[tool call\] \S+?\((.*)\)\s*$")


def answer_of(response: Response) -> tuple[int, str] | None:
    """The final answer and its line: boxed, after its mark, else the last number of the last line."""
    own = response.own
    for line, text in reversed(own):
        if (boxed := extract_boxed(text)) is not None:
            return line, boxed
    for line, text in reversed(own):
        if found := _ANSWER.search(text):
            return line, found[1].strip().rstrip("*").rstrip(".").strip()
    if own and (numbers := _LAST.findall(own[-1][1])):
        return own[-1][0], numbers[-1]
    return None


def right(prompt: Prompt, response: Response) -> tuple[int, str] | None:
    """The final answer, if our checker calls it equal to the expected one."""
    found = answer_of(response)
    if prompt.answer is None or found is None or not found[1]:
        return None
    for given in dict.fromkeys((found[1], *_LAST.findall(found[1])[-1:])):
        if given == prompt.answer or decide(given, prompt.answer):
            return found[0], given
    return None


class Habits:
    """What passes of the run have in common: how they give the answer, their words, how they end."""

    def __init__(self, passed: Sequence[Response]) -> None:
        number = max(len(passed), 1)
        texts = ["\n".join(text for _, text in each.own) for each in passed]
        enough = 0.8 * number if len(passed) >= 5 else number + 1
        self.marks = [
            (name, mark) for name, mark in _MARKS if sum(bool(mark.search(text)) for text in texts) >= enough
        ]
        words = Counter(word for each in passed for word in {w for w in each.words if w[0].isalpha()})
        self._common = {word for word, seen in words.items() if seen >= max(3, 0.05 * number)}
        shares = sorted(self._shared(each) for each in passed)
        self._usual = shares[len(shares) // 10] if len(shares) >= 20 else 0.0
        ends = [text.rstrip()[-1:] for text in texts if text.strip()]
        self._closed = len(ends) >= 5 and sum(
            not (end.isalpha() or end in ",;=+-(") for end in ends
        ) >= 0.9 * max(len(ends), 1)
        lengths = sorted(map(len, texts))
        self._long = lengths[int(0.9 * (len(lengths) - 1))] if lengths else 0

    def _shared(self, response: Response) -> float:
        words = [word for word in response.words if word[0].isalpha()]
        return sum(word in self._common for word in words) / len(words) if len(words) >= 8 else 1.0

    def kinds(self, prompt: Prompt, response: Response, feedback: str = "") -> Iterator[tuple[str, Evidence]]:
        """Each kind that the response shows."""
        own = response.own
        text = "\n".join(part for _, part in own)
        if not text.strip():
            yield (
                "empty",
                Evidence(
                    None, "nothing but white space" if response.text.strip() == "" else "no words of its own"
                ),
            )
            return
        last = own[-1]
        if found := right(prompt, response):
            formless = [name for name, mark in self.marks if mark.search(text) is None]
            yield (
                "form" if formless else "equal",
                Evidence(
                    found[0],
                    f"{_cut(found[1])} = {_cut(prompt.answer or '')}"
                    + (f", without {formless[0]}" if formless else ""),
                ),
            )
        if opened := _opened(response.text):
            yield "cut off", Evidence(last[0], f"{opened} is never closed: …{text[-40:]}")
        elif (
            self._closed
            and len(text) >= self._long
            and (text.rstrip()[-1].isalpha() or text.rstrip()[-1] in ",;=+-(")
        ):
            yield "cut off", Evidence(last[0], f"ends in the middle: …{text.rstrip()[-40:]}")
        if len(text) > 400 and len(text) > 10 * len(zlib.compress(text.encode(errors="replace"), 1)):
            yield "loop", Evidence(last[0], _cut(last[1]))
        elif (most := Counter(part.strip() for _, part in own if len(part) > 12).most_common(1)) and most[0][
            1
        ] >= 6:
            yield "loop", Evidence(last[0], f"{most[0][1]} times: {_cut(most[0][0])}")
        if refused := _REFUSED.search(text[:300]):
            yield "refused", Evidence(own[0][0], _cut(text[refused.start() : refused.start() + 80]))
        if isinstance(broken := response.document, Unreadable):
            line, part = response.spoken[min(broken.line, len(response.spoken) - 1)]
            yield "malformed", Evidence(line, f"{broken.why}: {_cut(part)}")
        yield from _tools(response, feedback)
        if response.calls and response.events[-1] not in ("words", "the user"):
            yield "unanswered", Evidence(last[0], f"it ends: {_cut(last[1])}")
        if wrong := next((each for each in response.equations if not each.holds), None):
            yield FALSE, Evidence(wrong.line, f"does not hold: {_cut(wrong.text)}")
        if self.marks and not any(mark.search(text) for _, mark in _MARKS) and not found:
            yield "no answer", Evidence(last[0], f"no {self.marks[0][0]}; it ends: {_cut(last[1])}")
        if self._usual > 0.3 and (shared := self._shared(response)) < 0.6 * self._usual:
            yield (
                "language",
                Evidence(own[0][0], f"{shared:.0%} of its words are common among passes: {_cut(own[0][1])}"),
            )


def _tools(response: Response, feedback: str) -> Iterator[tuple[str, Evidence]]:
    for line, text in response.own:
        if (call := _CALL.match(text)) and call[1].lstrip().startswith("{") and not _is_json(call[1]):
            yield "malformed call", Evidence(line, _cut(text))
            break
    places = [
        *((line, text) for line, text, _ in response.others),
        *((None, text) for text in feedback.splitlines()),
    ]
    for kind, pattern in (("timeout", _TIMEOUT), ("exception", _EXCEPTION), ("failed call", _FAILED)):
        if found := next(((line, text) for line, text in places if pattern.search(text)), None):
            if kind == "failed call" and found[0] is None:
                continue
            yield kind, Evidence(found[0], _cut(found[1]))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _opened(text: str) -> str | None:
    """What is opened but never closed."""
    if len(re.findall(r"^\s*```", text, re.MULTILINE)) % 2:
        return "a fence"
    if text.lower().rfind("<think>") > text.lower().rfind("</think>"):
        return "a thought"
    if (at := text.rfind("\\boxed{")) >= 0 and text.count("{", at) > text.count("}", at):
        return "a box"
    return None


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= CUT else f"{text[: CUT - 1]}…"
