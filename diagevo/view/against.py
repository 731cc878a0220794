"""Ingested runs, models and steps side by side: the pass rate of each, and for two of them the prompts
that got worse or better with a response of each, and which causes came and went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from diagevo.errors import NotFoundError
from diagevo.evaluation.protocol import NORMAL, sign_test
from diagevo.memory.compare.matched_causes import matched_causes
from diagevo.memory.compare.prompts_in_both import PromptInBoth, PromptsInBoth, prompts_in_both
from diagevo.memory.compare.run_slices import RunSlice, names, slice_named
from diagevo.memory.history import History
from diagevo.memory.read.responses import Chosen
from diagevo.text.escaping import storable
from diagevo.text.numbers import count, percent
from diagevo.text.thoughts import answered
from diagevo.view.page import Page, Sentence, Site
from diagevo.view.pages import AGAINST, below
from diagevo.view.slice_table import COLUMNS, slice_table

WHOLE = 6
"""Prompts of either kind shown with their responses."""
LISTED = 100
"""Prompts of either kind listed."""
ROWS = 30
"""Maximum tags, and causes, of the table."""
CHOICES = 200
"""Steps that can be chosen."""
CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class ResponsePair:
    """A prompt that got worse or better, with a response of each run that shows it."""

    of: PromptInBoth
    first: str | None
    second: str | None


def against(history: History, site: Site, other: str) -> Page:
    """The run against another one, which comes first."""
    run = history.run_id
    return Page("against.html", f"{run} against {other}", of_runs(history, site, other), below(run))


def of_runs(history: History, site: Site, other: str) -> dict[str, Any]:
    """`of_two` for the run and another one, which comes first. Raises NotFoundError if either has no
    responses to compare."""
    if site.history(other).ingested is None or history.ingested is None:
        raise NotFoundError(
            "both runs must have responses of an evaluation or of another trainer",
            hint=f"diagevo runs diff {other}..{history.run_id} compares any two",
        )
    found = of_two(site, site.sliced(other).whole(), site.sliced(history.run_id).whole())
    return found | {"commands": [found["all"]]}


def compare(history: History, site: Site, query: Mapping[str, str] = {}) -> Page:
    """Models, steps or runs side by side, and two of them prompt by prompt: those named `a` and `b` in
    the address, else the first and the last."""
    run = history.run_id
    if history.ingested is None:
        raise NotFoundError(f"run {run} has no responses of an evaluation or of another trainer")
    sliced = site.sliced(run)
    others = [one for one in site.runs() if one != run and site.history(one).ingested is not None]

    def chosen(text: str) -> RunSlice:
        named = slice_named(storable(text))
        of = site.sliced(named.run or run)
        if of.history.ingested is None:
            raise NotFoundError(f"run {named.run} has no responses to compare", hint="choose another run")
        return of.at(named.address, None if named.round is None else of.history.as_of(named.round))

    columns = sliced.models or _some(sliced.steps, COLUMNS)
    columns = columns or [chosen(one) for one in (*others[-AGAINST:], run)]
    given = query.get("a") or "", query.get("b") or ""
    first = chosen(given[0]) if given[0] else columns[0]
    second = chosen(given[1]) if given[1] else columns[-1]
    table = slice_table(columns)
    known = (one.address for one in (*sliced.models, *_some(sliced.steps, CHOICES)))
    both = _address(first, run), _address(second, run)
    data = {
        "columns": names(table.columns),
        "table": table,
        "left": len(columns) - len(table.columns),
        "rows": ROWS,
        "two": None,
        "choices": list(dict.fromkeys([*known, *others, run, *both])),
        "chosen": both,
    }
    if (first.history.run_id, first.address) != (second.history.run_id, second.address):
        data |= {"two": names([first, second])} | of_two(site, first, second)
        data["commands"] = [_command(first, second)]
    return Page("compare.html", f"{run} compared", data, below(run))


def _some(slices: Sequence[RunSlice], most: int) -> list[RunSlice]:
    """At most this many, evenly spread from the first to the last."""
    if len(slices) <= most:
        return list(slices)
    return [slices[round(place * (len(slices) - 1) / (most - 1))] for place in range(most)]


def _address(of: RunSlice, run: str) -> str:
    """The address of a choice on the page."""
    own = of.history.run_id
    return of.address if of.address and own == run else f"{own}:{of.address}" if of.address else own


def _command(a: RunSlice, b: RunSlice) -> str:
    if a.history.run_id == b.history.run_id:
        return f"diagevo runs diff {quote(f'{a.address}..{b.address}')} --run {a.history.run_id}"
    points = "..".join(":".join(filter(None, (one.history.run_id, one.address))) for one in (a, b))
    return f"diagevo runs diff {quote(points)}"


def of_two(site: Site, a: RunSlice, b: RunSlice) -> dict[str, Any]:
    """Pass rates on common prompts, the prompts that changed, and the causes."""
    found, called = prompts_in_both(a, b), names([a, b])
    titles = "Prompts that got worse", "Prompts that got better"
    if a.model or b.model:
        titles = f"Prompts that {called[1]} passed less often", f"Prompts that {called[1]} passed more often"
    return {
        "titles": titles,
        "kinds": kinds_of(a, b),
        "sides": [(name, one.history.run_id) for name, one in zip(called, (a, b), strict=True)],
        "found": found,
        "sentences": list(_sentences(found, *called)),
        "worse": _pairs(site, (a, b), found.drops, ("passed", "failed")),
        "better": _pairs(site, (a, b), found.rises, ("failed", "passed")),
        "causes": matched_causes(a.history, b.history, a.cause_rates(), b.cause_rates()),
        "listed": LISTED,
        "all": _command(a, b),
    }


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


def kinds_of(a: RunSlice, b: RunSlice) -> tuple[str, str, str]:
    """The labels of causes that both have, only the first, and only the second."""
    if a.model or b.model:  # neither is later than the other
        first, second = names([a, b])
        return "both", f"only {first}", f"only {second}"
    return "stayed", "gone", "came"


def _pairs(
    site: Site, sides: tuple[RunSlice, RunSlice], found: Sequence[PromptInBoth], verdicts: tuple[str, str]
) -> list[ResponsePair]:
    pairs: list[ResponsePair] = []
    for one in found[:WHOLE]:
        texts: list[str | None] = []
        for of, verdict in zip(sides, verdicts, strict=True):
            history, within = of.history, Chosen(prompt=one.question, model=of.model, step=of.step)
            responses = site.responses(history.run_id)
            [*shown] = responses.find(replace(within, verdict=verdict), 0, 1) or responses.find(within, 0, 1)
            text = history.text(shown[0].text) if shown else None
            texts.append(None if text is None else answered(text).strip() or text)
        pairs.append(ResponsePair(one, texts[0], texts[1]))
    return pairs
