"""Sets with planted modes: how often each happens and where is known, how it is worded is not.

Written without a look at how causes are found. A prompt mostly fails in one of the ways that it invites, now
and then in another; a share of failures is nobody's plan. Each response is worded anew, failures as passes.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping

from benchmarks.causes.planted import (
    adverts,
    chinese,
    code,
    extraction,
    letters,
    mathematics,
    physics,
    sql,
    support,
    tools,
    translation,
)
from benchmarks.causes.planted.voice import Prompt
from benchmarks.causes.rows import LabelledRow

DOMAINS: Mapping[str, Callable[[random.Random], Prompt]] = {
    "mathematics": mathematics.prompt,
    "sql": sql.prompt,
    "code": code.prompt,
    "tools": tools.prompt,
    "judge": letters.english,
    "german": letters.german,
    "chinese": chinese.prompt,
    "extraction": extraction.alone,
    "extraction with a reference": extraction.prompt,
    "physics": physics.prompt,
    "support": support.prompt,
    "adverts": adverts.prompt,
    "translation": translation.prompt,
}
PROMPTS, RESPONSES, MANY = 80, 8, 450
JUDGED = ("judge", "german")
"""Domains whose rewards are a judge's scores."""


def planted(domain: str, seed: int, *, many: bool = False) -> list[LabelledRow]:
    """`many`: prompts enough for one response of each; its unplanned share is drawn from 10 to 25%."""
    rng = random.Random(f"{domain} {seed}")
    unplanned = rng.uniform(0.11, 0.24)
    rows: list[LabelledRow] = []
    asked: set[str] = set()
    counted: Counter[str] = Counter()
    while len(asked) < (MANY if many else PROMPTS):
        prompt = DOMAINS[domain](rng)
        if str(prompt.question) in asked:
            continue
        asked.add(str(prompt.question))
        usual = min(prompt.modes, key=lambda mode: (1 + counted[mode]) * rng.uniform(0.3, 1.7))
        failing = rng.choice((0.0, 0.2, 0.4, 0.6, 0.7))
        for place in range(RESPONSES):
            mode, failures = None, sum(counted.values()) - counted["passed"]
            if place >= 2 and rng.random() < failing:
                other = rng.choice(prompt.modes)
                odd = counted[""] < unplanned * failures
                mode = "" if odd else usual if rng.random() < 0.8 else other
            response, wrong, style = prompt.write(rng, mode)
            low, high = (5, 10) if mode is None else (0, 4)
            reward = rng.randint(low, high) / 10 if domain in JUDGED else float(mode is None)
            line = wrong if mode is not None else None
            group = f"{domain} {len(asked)}"
            counted["passed" if mode is None else mode] += 1
            rows.append(
                LabelledRow(prompt.question, response, reward, group, mode, line, prompt.answer, style)
            )
    rng.shuffle(rows)
    return rows
