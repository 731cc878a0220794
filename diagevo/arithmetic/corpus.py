"""The documents that train the small model: four fifths for the solver, one fifth for the challenger.

A document is a prompt and a completion, made with the world's own prompt templates. Nothing is drawn from the
held-out zone. The challenger's are free, targeted (with words dropped from the cause) and stitched.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random

from diagevo.arithmetic.doing import do_all
from diagevo.arithmetic.families import FREE_WEIGHTS
from diagevo.arithmetic.grammar import (
    FAMILIES,
    JOIN,
    Part,
    Step,
    outcome,
    parse,
    solve,
    word,
    word_joined,
    write_solution,
)
from diagevo.arithmetic.heldout import draw_seen, in_zone
from diagevo.arithmetic.slips import KINDS, Kind, applies, offers
from diagevo.arithmetic.truth import value
from diagevo.arithmetic.wordings import CAUSES, LABELS, skill
from diagevo.memory.state.projected_schedule import Draw
from diagevo.sampling.sampler import Message, Prompt
from diagevo.selfplay.questions import PromptTemplates

CHALLENGER_SHARE = 0.2
_FREE, _TARGETED = 0.35, 0.4
"""Shares of the challenger's documents; the rest are stitched."""
_JOINED = 0.1
"""Share of the solver's documents that join two questions."""
_DROP = (0.0, 0.0, 0.15, 0.3)
"""Probabilities of dropping a word of a cause or label, one chosen per text."""

_NAMES = list(FAMILIES)
ALIKE = dict.fromkeys(_NAMES, 1.0)
"""All families equally often."""
_BY_SKILL = {name: [kind for kind in KINDS if skill(kind) == name] for name in LABELS}
PROMPTS = Path(__file__).parent / "prompts"
WARM = 0.4
"""Scale of the solver's error rates in a warm start's documents: so that the majorities of a model trained
on them are mostly right, but its answers are not."""
_STEPS = 6
"""As many as in a question whose numbers are drawn in order, and a little more."""
WARM_SHARE = 0.5
"""Of those documents the challenger's: a question counts only where the grammar knows it, word for word."""


def _sentence(rng: Random, part: Part) -> str:
    return word(part, rng.randrange(len(FAMILIES[part.family].wordings)))


def _join(rng: Random, parts: tuple[Part, Part]) -> str:
    return word_joined(*(_sentence(rng, part) for part in parts))


def _pair(rng: Random) -> tuple[Part, Part]:
    return draw_seen(rng, rng.choice(_NAMES)), draw_seen(rng, rng.choice(_NAMES))


def part_for(rng: Random, kind: Kind) -> Part:
    """A part where this kind of mistake can happen (for the joining step: any)."""
    if kind.family == JOIN:
        return draw_seen(rng, rng.choice(_NAMES))
    while not applies(kind, solve(part := draw_seen(rng, kind.family)), part):
        pass
    return part


def question_for(rng: Random, kind: Kind) -> str:
    """A question where this kind of mistake can happen."""
    if kind.family != JOIN:
        return _sentence(rng, part_for(rng, kind))
    while True:
        parts = _pair(rng)
        left, right = (outcome(part, solve(part)) for part in parts)
        if offers(kind, Step(left, "+", right, left + right)):
            return _join(rng, parts)


def _blurred(rng: Random, text: str) -> str:
    drop = rng.choice(_DROP)
    return " ".join(piece for piece in text.split() if rng.random() >= drop) or text


def challenger_draw(rng: Random, index: int, free: Mapping[str, float]) -> tuple[Draw, str]:
    """A draw as a schedule would make it, with blurred texts, and a question that answers it.

    `free`: the frequency of each family in free exploration.
    """
    chance = rng.random()
    if chance < _FREE:
        name = rng.choices(list(free), list(free.values()))[0]
        return Draw(index, "free"), _sentence(rng, draw_seen(rng, name))
    kind = rng.choice(KINDS)
    cause = _blurred(rng, rng.choice(CAUSES[kind]))
    node = _blurred(rng, rng.choice(LABELS[skill(kind)]))
    if chance < _FREE + _TARGETED:
        return Draw(index, "targeted", "c0", cause, node), question_for(rng, kind)
    partner = rng.choice(_BY_SKILL[skill(kind)] if rng.random() < 0.8 else KINDS)
    stitched = _blurred(rng, rng.choice(CAUSES[partner]))
    question = _join(rng, (part_for(rng, kind), part_for(rng, partner)))
    return Draw(
        index=index,
        mode="stitched",
        cause_id="c0",
        cause=cause,
        node=node,
        stitched_cause_id="c1",
        stitched_cause=stitched,
    ), question


def documents(
    seed: int,
    scale: float,
    weights: Mapping[str, float] = ALIKE,
    free: Mapping[str, float] = FREE_WEIGHTS,
    share: float = CHALLENGER_SHARE,
    shown: int = 0,
) -> Iterator[tuple[Prompt, str]]:
    """An endless stream of prompts with completions; the solver's mistakes have `scale` times their
    probabilities.

    `weights` gives families a larger or smaller part in the solver's documents of one question, `free` in the
    challenger's of free exploration. `share` of the documents are the challenger's. `shown`: a
    prompt of free exploration shows none to so many questions, as R-Few's.
    """
    rng = Random(seed)
    shares = [weights[name] for name in _NAMES]
    templates = PromptTemplates.load(PROMPTS, anchored=shown > 0)
    index = 0
    while True:
        if rng.random() < share:
            draw, question = challenger_draw(rng, index, free)
            prompt = templates.challenger(draw)
            if shown and draw.mode == "free":
                prompt = templates.anchored(draw, [_seen(rng) for _ in range(rng.randint(0, shown))])
            yield prompt, f"<question> {question} </question>"
        else:
            joined = rng.random() < _JOINED
            name = rng.choices(_NAMES, shares)[0]
            parts = _pair(rng) if joined else (draw_seen(rng, name),)
            question = _join(rng, parts) if len(parts) == 2 else _sentence(rng, parts[0])
            steps, answer = do_all(rng, parts, scale)
            yield templates.solver(question), write_solution(steps, answer)
        index += 1


def _seen(rng: Random) -> str:
    return _sentence(rng, draw_seen(rng, rng.choice(_NAMES)))


def labelled_items() -> list[tuple[str, str]]:
    """32 questions with their true answers, none of them held out."""
    rng, found = Random(0), dict[str, str]()
    while len(found) < 32:
        part = draw_seen(rng, rng.choice(_NAMES))
        found[_sentence(rng, part)] = str(value(part))
    return list(found.items())


def worked_lines() -> list[str]:
    """256 documents of questions that are not held out, as `worked_line` writes them."""
    rng, found = Random(1), dict[str, None]()
    while len(found) < 256:
        found[worked_line(draw_seen(rng, rng.choice(_NAMES)))] = None
    return list(found)


def worked_line(part: Part) -> str:
    """What is to be done, its numbers, and the steps of its right solution, in words that the model knows.
    None begins with r or a sign, so 12 written backwards is 12r=21 here."""
    wording = FAMILIES[part.family].wordings[0]
    blank = wording.format(*["{}"] * len(part.numbers))
    steps = [f"{step.left}r={step.result}" if step.op == "r" else str(step) for step in solve(part)]
    done = " ; ".join(steps).replace("; -", ";-")
    return f"{blank} : {' , '.join(map(str, part.numbers))} ; {done}"


def reordered(rng: Random, part: Part) -> Part | None:
    """The part with its numbers in another order, where that may be asked and is answered in few steps: 43
    jumps would fill a response."""
    for _ in range(10):
        other = Part(part.family, tuple(rng.sample(part.numbers, len(part.numbers))))
        allowed = other != part and parse(word(other)) == (other,) and not in_zone(other)
        if allowed and len(solve(other)) <= _STEPS:
            return other
    return None


def chat_turns(seed: int, count: int, shown: int = 0) -> Iterator[list[Message]]:
    """So many documents for a warm start of any chat model: the prompt's turns, and the completion as the
    assistant's."""
    for prompt, completion in islice(documents(seed, WARM, share=WARM_SHARE, shown=shown), count):
        yield [*prompt, {"role": "assistant", "content": completion}]
