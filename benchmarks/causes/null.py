"""Sets in which rewards say nothing: what `diagnose --local` finds in them, it finds everywhere.

Responses are those of the planted domains, or noise; their rewards are dealt: anew to each response, within
the prompts, to whole prompts, to whole topics. What a topic, a template or a prompt has to do with its
responses stays, so that a method which takes a topic for a mistake is seen.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.causes.planted import DOMAINS
from benchmarks.causes.rows import LabelledRow

SETS, LONG_SETS = 4, 1
"""Sets of a shape, and of the one that is long."""
WORDS = (
    *("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo"),
    *("lima", "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango", "uniform", "victor"),
    *("whiskey", "xray", "yankee", "zulu", "amber", "birch", "cedar", "dune", "ember", "fjord", "glade"),
)
TOPICS = {
    "cooking": ("oven", "butter", "simmer", "whisk", "dough", "garlic", "skillet", "roast", "broth", "bake"),
    "sailing": ("mast", "rudder", "harbour", "tide", "jib", "anchor", "hull", "deck", "buoy", "keel"),
    "tax": ("deduction", "filing", "bracket", "refund", "audit", "income", "exempt", "ledger", "levy", "net"),
    "chess": ("pawn", "gambit", "castle", "fork", "knight", "endgame", "tempo", "bishop", "rook", "mate"),
    "gardens": ("mulch", "prune", "compost", "trellis", "bulb", "hedge", "sow", "shade", "graft", "bloom"),
    "trains": (
        "platform",
        "signal",
        "gauge",
        "siding",
        "junction",
        "freight",
        "buffer",
        "rail",
        "car",
        "tie",
    ),
}

Deal = Callable[[list[LabelledRow], random.Random], list[LabelledRow]]


# Responses


def noise(
    rng: random.Random, prompts: int, k: Iterable[int], length: tuple[int, int] = (3, 30)
) -> list[LabelledRow]:
    """Random words under one sentence that all have."""
    rows = []
    for place, number in zip(range(prompts), k, strict=False):
        question = f"Read document {place} about topic {rng.randrange(12)} and say whether it is complete."
        for _ in range(number):
            text = "The record was read with attention to all of its fields today. "
            text += " ".join(rng.choices(WORDS, k=rng.randint(*length)))
            rows.append(row(question, text, place))
    return rows


def skewed(rng: random.Random, prompts: int, k: int) -> list[LabelledRow]:
    """Most responses are short and some are very long."""
    rows = []
    for place in range(prompts):
        for _ in range(k):
            words = rng.choices(WORDS, k=2 + int(rng.lognormvariate(2.5, 1.3)) % 900)
            rows.append(row(f"Tell me of {rng.choice(WORDS)} and {place}.", " ".join(words), place))
    return rows


def templated(rng: random.Random, prompts: int, k: int, length: int = 10) -> list[LabelledRow]:
    """A topic has words of its own, which are not in the prompt, and a prompt a template of its own."""
    rows = []
    for place in range(prompts):
        topic = rng.choice(list(TOPICS))
        own = TOPICS[topic]
        frame = [rng.choice(WORDS) for _ in range(length)]
        for _ in range(k):
            words = [each if rng.random() < 0.8 else rng.choice(WORDS) for each in frame]
            said = ". ".join(
                " ".join([*words[at : at + 5], *rng.sample(own, 3)]).capitalize()
                for at in range(0, length, 5)
            )
            rows.append(
                row(f"A question about {topic}, number {place}: what do you advise?", f"{said}.", place)
            )
    return rows


def extracted(rng: random.Random, prompts: int, k: int) -> list[LabelledRow]:
    """JSON objects whose fields are left out, renamed or of another type now and then."""
    rows = []
    for place in range(prompts):
        name, city, total = rng.choice(WORDS).title(), rng.choice(WORDS).title(), rng.randrange(10, 9_000)
        question = (
            f"Invoice of {name} from {city}, {total}.50 EUR, {rng.randint(1, 28)} May. Extract it as JSON."
        )
        for _ in range(k):
            found = {"name": name, "city": city, "total": total + 0.5, "currency": "EUR", "items": [1, 2]}
            for field in list(found):
                if rng.random() < 0.15:
                    found[rng.choice([f"{field}_1", field.upper(), "note"])] = found.pop(field)
                elif rng.random() < 0.15:
                    found[field] = rng.choice([None, str(found[field]), [found[field]], 0])
            text = json.dumps(found, indent=rng.choice([None, 2]))
            rows.append(row(question, f"```json\n{text}\n```" if rng.random() < 0.3 else text, place))
    return rows


def thinking(rows: Sequence[LabelledRow], rng: random.Random) -> list[LabelledRow]:
    """The steps of each response as what is thought; the end is the answer, beside a thought that is idle."""
    found = []
    for row in rows:
        *steps, end = row.text.splitlines() or [""]
        idle = " ".join(rng.choices(WORDS, k=rng.randint(2, 20)))
        thought = "\n".join([*steps, idle, "Wait, is that right? Let me check: yes."])
        found.append(replace(row, response=f"<think>\n{thought}\n</think>\n{end}"))
    return found


def odd(rng: random.Random, prompts: int, k: int) -> list[LabelledRow]:
    """A tenth each is empty, refused, cut off, false when computed, or repeats itself."""
    rows = []
    for place in range(prompts):
        for _ in range(k):
            a, b = rng.randrange(10, 90), rng.randrange(10, 90)
            text = f"{rng.choice(WORDS)} {rng.choice(WORDS)}: {a} + {b} = {a + b}.\nThe answer is {a + b}."
            kinds = (
                "",
                "I'm sorry, I can't help with that.",
                f"```\n{text}",
                text.replace("= ", "= 1"),
                "so on. " * 90,
            )
            text = rng.choice(kinds) if rng.random() < 0.5 else text
            rows.append(row(f"What is the sum of the numbers on card {place}?", text, place, answer="77"))
    return rows


def copied(rng: random.Random, prompts: int, k: int, distinct: int) -> list[LabelledRow]:
    """A few texts that are given again and again."""
    rows = []
    for place in range(prompts):
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 8))) for _ in range(distinct)]
        rows += [row(f"Which word is meant in riddle {place}?", rng.choice(texts), place) for _ in range(k)]
    return rows


def of(domain: str, rng: random.Random, prompts: int, k: int) -> list[LabelledRow]:
    """Of a planted domain; a third of the responses makes a mistake."""
    asked: dict[str, list[LabelledRow]] = {}
    while len(asked) < prompts:
        prompt = DOMAINS[domain](rng)
        if str(prompt.question) in asked:
            continue
        modes = [rng.choice([None, None, *prompt.modes[:1]]) for _ in range(k)]
        asked[str(prompt.question)] = [
            row(prompt.question, prompt.write(rng, mode)[0], len(asked), prompt.answer) for mode in modes
        ]
    return [each for rows in asked.values() for each in rows]


def row(question: object, text: object, place: int, answer: str | None = None) -> LabelledRow:
    return LabelledRow(question, text, 1.0, f"g{place}", None, None, answer)


# Rewards


def rewarded(rows: Sequence[LabelledRow], fails: Iterable[bool]) -> list[LabelledRow]:
    return [
        replace(row, reward=float(not failed), label="" if failed else None)
        for row, failed in zip(rows, fails, strict=True)
    ]


def each(rows: list[LabelledRow], rng: random.Random, share: float = 0.5) -> list[LabelledRow]:
    """To each response for itself."""
    return rewarded(rows, [rng.random() < share for _ in rows])


def half(rows: list[LabelledRow], rng: random.Random) -> list[LabelledRow]:
    """Half of the prompts fail whole; in the others to each response."""
    whole = by_group(rows, lambda: rng.random() < 0.5)
    return rewarded(rows, [whole[row.group] > 0 or rng.random() < 0.5 for row in rows])


def prompts(rows: list[LabelledRow], rng: random.Random, share: float = 0.4) -> list[LabelledRow]:
    """To whole prompts."""
    whole = by_group(rows, lambda: rng.random() < share)
    return rewarded(rows, [whole[row.group] > 0 for row in rows])


def rates(rows: list[LabelledRow], rng: random.Random) -> list[LabelledRow]:
    """To each response, as often as its prompt is hard."""
    hard = by_group(rows, lambda: rng.choice((0.0, 0.2, 0.5, 0.8, 1.0)))
    return rewarded(rows, [rng.random() < hard[row.group] for row in rows])


def exactly(rows: list[LabelledRow], rng: random.Random, fails: int) -> list[LabelledRow]:
    """So many failures in each prompt; the rest passes."""
    groups: dict[str | None, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        groups[row.group].append(place)
    failed = {place for places in groups.values() for place in rng.sample(places, min(fails, len(places)))}
    return rewarded(rows, [place in failed for place in range(len(rows))])


def few(rows: list[LabelledRow], rng: random.Random, fails: int = 10) -> list[LabelledRow]:
    """So many failures in all."""
    failed = set(rng.sample(range(len(rows)), fails))
    return rewarded(rows, [place in failed for place in range(len(rows))])


def topics(
    rows: list[LabelledRow], rng: random.Random, shares: Sequence[float] = (0, 0.3, 0.7, 1)
) -> list[LabelledRow]:
    """To whole topics (the first words of a prompt): some fail always, some never, some now and then."""
    hard: dict[str, float] = {}
    for row in rows:
        hard.setdefault(" ".join(row.question.split()[:4]), rng.choice(shares))
    return rewarded(rows, [rng.random() < hard[" ".join(row.question.split()[:4])] for row in rows])


def texts(rows: list[LabelledRow], rng: random.Random) -> list[LabelledRow]:
    """To a text, so that its copies fail together."""
    failed = {(row.group, row.text): rng.random() < 0.6 for row in rows}
    return rewarded(rows, [failed[row.group, row.text] for row in rows])


def by_group(rows: Sequence[LabelledRow], draw: Callable[[], float]) -> dict[str | None, float]:
    return {group: draw() for group in dict.fromkeys(row.group for row in rows)}


def mixed(rng: random.Random, k: int) -> list[LabelledRow]:
    """Three domains in one run."""
    rows = [(domain, row) for domain in ("mathematics", "sql", "judge") for row in of(domain, rng, 30, k)]
    return [replace(row, group=f"{domain} {row.group}") for domain, row in rows]


def huge(rng: random.Random) -> list[LabelledRow]:
    """One prompt with 300 responses beside 20 with four."""
    return noise(rng, 21, [300] + [4] * 20)


def odd_numbers(rng: random.Random) -> list[LabelledRow]:
    return noise(rng, 90, [rng.choice((1, 2, 3, 5, 8, 12, 16)) for _ in range(90)])


Shape = Callable[[random.Random], list[LabelledRow]]


def shape(responses: Callable[[random.Random], list[LabelledRow]], deal: Deal) -> Shape:
    return lambda rng: deal(responses(rng), rng)


def _shapes() -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for k in (1, 2, 3, 5, 8, 16):
        found[f"noise, k = {k}, half of the prompts fail whole"] = shape(
            lambda rng, k=k: noise(rng, 80, [k] * 80), half
        )
    for domain in DOMAINS:
        made = partial(of, domain)
        found[f"{domain}, k = 8, each response"] = shape(lambda rng, made=made: made(rng, 60, 8), rates)
        found[f"{domain}, k = 4, half of the prompts fail whole"] = shape(
            lambda rng, made=made: made(rng, 70, 4), half
        )
        found[f"{domain}, one answer"] = shape(lambda rng, made=made: made(rng, 300, 1), each)
        found[f"{domain}, k = 5, whole prompts"] = shape(lambda rng, made=made: made(rng, 80, 5), prompts)
    found |= {
        "JSON, k = 5, hard prompts and easy ones": shape(lambda rng: extracted(rng, 80, 5), rates),
        "JSON, k = 5, half of the prompts fail whole": shape(lambda rng: extracted(rng, 80, 5), half),
        "JSON, one answer": shape(lambda rng: extracted(rng, 300, 1), each),
        "thoughts, k = 8, hard prompts and easy ones": shape(
            lambda rng: thinking(of("mathematics", rng, 50, 8), rng), rates
        ),
        "thoughts, k = 4, half of the prompts fail whole": shape(
            lambda rng: thinking(of("code", rng, 60, 4), rng), half
        ),
        "thoughts, one answer": shape(lambda rng: thinking(of("mathematics", rng, 250, 1), rng), each),
        "10 failures in JSON": shape(lambda rng: of("extraction", rng, 10, 4), few),
        "empty, cut off, false: k = 4": shape(lambda rng: odd(rng, 60, 4), half),
        "empty, cut off, false: one answer": shape(lambda rng: odd(rng, 200, 1), each),
        "empty, cut off, false: 10 failures, one answer": shape(lambda rng: odd(rng, 25, 1), few),
        "empty, cut off, false: 10 failures, k = 4": shape(lambda rng: odd(rng, 6, 4), few),
        "topics of long templates, k = 4": shape(lambda rng: templated(rng, 80, 4, 40), topics),
        "topics of long templates, one answer": shape(lambda rng: templated(rng, 250, 1, 40), topics),
        "topics that fail whole or never, k = 5": shape(
            lambda rng: templated(rng, 80, 5), lambda rows, rng: topics(rows, rng, (0, 1))
        ),
        "a template a prompt, k = 8": shape(lambda rng: templated(rng, 60, 8), half),
        "three domains, hard prompts and easy ones": shape(lambda rng: mixed(rng, 4), rates),
        "three domains, one answer, hard domains": shape(lambda rng: mixed(rng, 1), topics),
        "1 failure beside 15 passes": shape(
            lambda rng: noise(rng, 40, [16] * 40), lambda rows, rng: exactly(rows, rng, 1)
        ),
        "15 failures beside a pass": shape(
            lambda rng: noise(rng, 40, [16] * 40), lambda rows, rng: exactly(rows, rng, 15)
        ),
        "an agent's 1 failure beside 7 passes": shape(
            lambda rng: of("tools", rng, 40, 8), lambda rows, rng: exactly(rows, rng, 1)
        ),
        "k from 1 to 16": shape(odd_numbers, half),
        "k from 1 to 16, 30% fail": shape(odd_numbers, lambda rows, rng: each(rows, rng, 0.3)),
        "one prompt of 300 responses": shape(huge, each),
        "one prompt alone, k = 30": shape(lambda rng: noise(rng, 1, [30]), each),
        "four texts again and again, k = 16": shape(lambda rng: copied(rng, 60, 16, 4), each),
        "four texts, each right or wrong, k = 16": shape(lambda rng: copied(rng, 60, 16, 4), texts),
        "two texts of a prompt, k = 3": shape(lambda rng: copied(rng, 80, 3, 2), half),
        "few long responses, k = 4": shape(lambda rng: skewed(rng, 60, 4), half),
        "few long responses, one answer": shape(lambda rng: skewed(rng, 200, 1), each),
        "10 failures, one answer": shape(lambda rng: noise(rng, 30, [1] * 30), few),
        "10 failures, k = 2": shape(lambda rng: noise(rng, 10, [2] * 10), few),
        "10 failures in mathematics": shape(lambda rng: of("mathematics", rng, 10, 2), few),
        "10 failures in code": shape(lambda rng: of("code", rng, 25, 1), few),
        "10 failures of agents": shape(lambda rng: of("tools", rng, 5, 4), few),
        "nothing passed": shape(lambda rng: noise(rng, 40, [4] * 40), lambda rows, rng: each(rows, rng, 1.0)),
        LONG: shape(lambda rng: noise(rng, 2_500, [8] * 2_500), half),
    }
    return found


LONG = "15,000 failures"
SHAPES: Mapping[str, Shape] = _shapes()


def sets_of(name: str) -> int:
    return LONG_SETS if name == LONG else SETS
