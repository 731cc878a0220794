"""Replies as models really give them: well-formed, bent and broken, each with what must be made of it.

A reply is built together with its expected reading by construction, not by the code under test.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

PHRASE = (
    "fails to check whether every candidate solution satisfies the original domain after squaring both sides "
    "of an equation with nested radicals and signs"
)
WORDS = PHRASE.split()

HOSTILE = [*"\u202e\u200b\u2066\ufeff\u2028\x00\ud800𝔘\u0085", "\x1b[2J", "é\u0301"]


@dataclass(frozen=True, slots=True)
class Generated:
    kind: str
    text: str
    verdict: str
    """What Prompt 1 must make of it where it is the only reply."""
    cause_id: str | None = None
    description: str | None = None


Maker = Callable[[random.Random, list[str]], "Generated"]


def phrase(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def _object(matched: object, cause: object) -> str:
    return json.dumps({"matched_cause_id": matched, "error_cause": cause})


def _valid(rng: random.Random, ids: list[str]) -> Generated:
    choice = rng.randrange(3 if ids else 2)
    if choice == 0:
        text = phrase(rng, rng.randint(10, 20))
        return Generated("new cause", _object(None, text), "new_cause", None, text)
    if choice == 1:
        return Generated("both null", _object(None, None), "slip")
    chosen = rng.choice(ids)
    return Generated("known cause", _object(chosen, None), "recurrence", chosen)


def _wrapped(kind: str, wrap: Callable[[random.Random, str], str]) -> Maker:
    def make(rng: random.Random, ids: list[str]) -> Generated:
        inner = _valid(rng, ids)
        return Generated(kind, wrap(rng, inner.text), inner.verdict, inner.cause_id, inner.description)

    return make


def _wrong_length(rng: random.Random, ids: list[str]) -> Generated:
    text = phrase(rng, rng.choice([1, 5, 7, 9, 21, 40, 100]))
    return Generated("wrong length", _object(None, text), "new_cause", None, text)


def _both_given(rng: random.Random, ids: list[str]) -> Generated:
    if not ids:
        return _wrong_length(rng, ids)
    return Generated("both given", _object(ids[0], phrase(rng, 12)), "recurrence", ids[0])


def _unknown_id(rng: random.Random, ids: list[str]) -> Generated:
    unknown = rng.choice(["c999", "C1", "cause 1", "n1", "c1, c2", "1", "c" + "9" * 500])
    if rng.random() < 0.5:
        return Generated("unknown id", _object(unknown, None), "unresolved")
    text = phrase(rng, 12)
    return Generated("unknown id", _object(unknown, text), "new_cause", None, text)


def _truncated(rng: random.Random, ids: list[str]) -> Generated:
    whole = _valid(rng, ids).text
    return Generated("truncated", whole[: rng.randrange(1, len(whole))], "unresolved")


def _nested(rng: random.Random, ids: list[str]) -> Generated:
    inner = _valid(rng, ids).text
    return Generated("nested", f'{{"{rng.choice(["result", "answer", "json"])}": {inner}}}', "unresolved")


def _wrong_types(rng: random.Random, ids: list[str]) -> Generated:
    wrong = rng.choice([1, 1.5, True, [], ["c1"], {}, {"id": "c1"}])
    pair = (wrong, phrase(rng, 12)) if rng.random() < 0.5 else (None, wrong)
    return Generated("wrong types", _object(*pair), "unresolved")


def _duplicate_keys(rng: random.Random, ids: list[str]) -> Generated:
    text = json.dumps(phrase(rng, 12))
    return Generated(
        "duplicate keys",
        f'{{"matched_cause_id": null, "error_cause": null, "error_cause": {text}}}',
        "unresolved",
    )


def _huge(rng: random.Random, ids: list[str]) -> Generated:
    text = rng.choice(
        [
            _object(None, "x " * 60_000),
            '{"a":' * 40_000,
            "{" * 150_000,
            "[" * 150_000,
            '{"matched_cause_id": ' + "9" * 6_000 + "}",
            "y" * 250_000 + _object(None, None),
        ]
    )
    return Generated("huge", text, "unresolved")


def _unicode(rng: random.Random, ids: list[str]) -> Generated:
    words = phrase(rng, 12).split()
    dirty = "".join(word + rng.choice(["", rng.choice(HOSTILE)]) + " " for word in words)
    return Generated("hostile Unicode", _object(None, dirty), "new_cause")


def _empty(rng: random.Random, ids: list[str]) -> Generated:
    return Generated("empty", rng.choice(["", " ", "\n\n", "\u2028", "<think>…</think>"]), "unresolved")


def _no_object(rng: random.Random, ids: list[str]) -> Generated:
    text = rng.choice(
        ["null", "I cannot help with that.", "c1", r"\frac{1}{2}", "{x > 5}", "{}", '"{}"', "[]", "{null}"]
    )
    return Generated("no object", text, "unresolved")


def _blank_phrase(rng: random.Random, ids: list[str]) -> Generated:
    return Generated(
        "blank phrase", _object(None, rng.choice(["", "   ", "...", "\u200b", "-"])), "unresolved"
    )


def _not_a_number(rng: random.Random, ids: list[str]) -> Generated:
    value = rng.choice(["NaN", "Infinity", "-Infinity"])
    return Generated("not JSON", f'{{"matched_cause_id": {value}, "error_cause": null}}', "unresolved")


KINDS: tuple[Maker, ...] = (
    _valid,
    _wrapped("fenced", lambda rng, text: f"```{rng.choice(['json', '', 'JSON'])}\n{text}\n```"),
    _wrapped(
        "in prose",
        lambda rng, text: f"As \\frac{{1}}{{2}} shows, {{x > 5}} fails:\n{text}\nSo {{!}}",
    ),
    _wrapped(
        "after thinking", lambda rng, text: f'<think>maybe {{"matched_cause_id": "c9"}}</think>\n{text}'
    ),
    _wrapped("in an array", lambda rng, text: f"[{text}]"),
    _wrapped("twice", lambda rng, text: text + "\n" + _object("c77", None)),
    _wrapped("more fields", lambda rng, text: text[:-1] + ', "reasoning": "because", "confidence": 0.9}'),
    _wrapped("spread out", lambda rng, text: json.dumps(json.loads(text), indent=rng.choice([1, 4, 8]))),
    _wrong_length,
    _both_given,
    _unknown_id,
    _truncated,
    _nested,
    _wrong_types,
    _duplicate_keys,
    _huge,
    _unicode,
    _empty,
    _no_object,
    _blank_phrase,
    _not_a_number,
)


def reply(rng: random.Random, ids: list[str]) -> Generated:
    """A reply of a random kind; huge ones are rarer, for they take their time."""
    kind = rng.choice(KINDS)
    if kind is _huge and rng.random() < 0.8:
        kind = _truncated
    return kind(rng, ids)
