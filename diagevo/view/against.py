"""Two runs of another trainer beside each other: what passed in both, prompts that got worse or better with a
response of each, and which causes came and went."""

from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.errors import NotFoundError
from diagevo.evaluation.protocol import NORMAL, sign_test
from diagevo.memory.compare.matched_causes import matched_causes
from diagevo.memory.history import History
from diagevo.memory.read.pass_rates import PromptInBoth, PromptsInBoth, prompts_in_both
from diagevo.memory.read.responses import Chosen
from diagevo.text.numbers import count, percent
from diagevo.text.thoughts import answered
from diagevo.view.page import Page, Sentence, Site
from diagevo.view.pages import below

WHOLE = 6
"""Prompts of either kind that are shown with their responses."""
LISTED = 100
"""Prompts of either kind that are listed."""
CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class ResponsePair:
    """A prompt that got worse or better, with a response of each run that shows it."""

    of: PromptInBoth
    first: str | None
    second: str | None


def against(history: History, site: Site, other: str) -> Page:
    """The run against another one, which comes first."""
    before = site.history(other)
    found = prompts_in_both(before, history, before.end, history.end)
    if found is None:
        raise NotFoundError(
            "both runs must have responses of an evaluation or of another trainer",
            hint=f"diagevo runs diff {other}..{history.run_id} compares any two",
        )
    run = history.run_id
    stories = site.story(other).pass_rates, site.story(run).pass_rates
    causes = () if None in stories else tuple(rates.causes for rates in stories if rates)
    data = {
        "other": other,
        "found": found,
        "sentences": list(_sentences(found, other, run)),
        "worse": _pairs(site, (before, history), found.drops, ("passed", "failed")),
        "better": _pairs(site, (before, history), found.rises, ("failed", "passed")),
        "causes": matched_causes(before, history, *causes) if len(causes) == 2 else [],
        "listed": LISTED,
        "commands": [f"diagevo runs diff {other}..{run}"],
    }
    return Page("against.html", f"{run} against {other}", data, below(run))


def changed_by_chance(less: int, more: int) -> str:
    """How many prompts passed more and less often, and whether chance explains that."""
    if not less and not more:
        return "No prompt passed more or less often"
    p = sign_test(less, more)
    shown = "p < 0.0001" if p < 0.0001 else f"p = {p:.4f}"
    return (
        f"{more:,} passed more often and {less:,} less often: by the exact sign test"
        f" {'more than' if p <= CHANCE else 'no more than'} chance explains ({shown})"
    )


def _sentences(found: PromptsInBoth, other: str, run: str) -> list[Sentence]:
    if not found.prompts:
        return [
            Sentence("both", f"No prompt is in both {other} and {run}: prompts are matched by their text.")
        ]
    mean, error = found.differences
    low, high = (100 * (mean + sign * NORMAL * error) for sign in (-1, 1))
    was, now = map(percent, found.pass_rates)
    changed = changed_by_chance(found.less, found.more)
    texts = [
        f"Of {count(found.prompts, 'prompt')} that both have, the mean pass rate went from {was} in {other}"
        f" to {now} in {run}: {100 * mean:+.1f} points ({low:+.1f} to {high:+.1f}, 95%, paired by prompt).",
        f"{changed}.",
    ]
    if any(found.alone):
        texts.append(f"{found.alone[0]:,} prompts are only in {other}, {found.alone[1]:,} only in {run}.")
    return [Sentence("both", text) for text in texts]


def _pairs(
    site: Site, runs: tuple[History, History], found: Sequence[PromptInBoth], verdicts: tuple[str, str]
) -> list[ResponsePair]:
    pairs: list[ResponsePair] = []
    for one in found[:WHOLE]:
        texts: list[str | None] = []
        for history, verdict in zip(runs, verdicts, strict=True):
            responses = site.responses(history.run_id)
            [*shown] = responses.find(Chosen(prompt=one.question, verdict=verdict), 0, 1) or responses.find(
                Chosen(prompt=one.question), 0, 1
            )
            text = history.text(shown[0].text) if shown else None
            texts.append(None if text is None else answered(text).strip() or text)
        pairs.append(ResponsePair(one, texts[0], texts[1]))
    return pairs
