"""The pages about runs and rounds: the list, the first page, diagnostics, a round, the log, the check."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from diagevo.errors import NotFoundError
from diagevo.evaluation.protocol import AT_BEST, colder
from diagevo.memory.compare.replay import describe, next_schedule
from diagevo.memory.events import EVENT_TYPES, CandidateScored, CauseState, RoundOpened
from diagevo.memory.events.records import Recorded
from diagevo.memory.history import History, expect
from diagevo.memory.read.counts import count_causes, counts, matrix
from diagevo.memory.read.round_figures import rounds as figures_of
from diagevo.memory.read.round_figures import step_metrics
from diagevo.memory.read.runs import RunStory, list_runs, run_line
from diagevo.text.numbers import count
from diagevo.text.redaction import redacted
from diagevo.view.charts import Chart, Series, chart
from diagevo.view.evaluated import Evaluated, next_steps
from diagevo.view.findings import aimed_example, curriculum, failing, mistakes
from diagevo.view.outcomes import by_round, helped
from diagevo.view.page import ROWS, VERIFIED, Page, Site, part_of
from diagevo.view.run_comparison import many
from diagevo.view.scores import families_in, free_questions, premise, score_names, score_rows

READ = 50_000
"""Maximum events of a run whose questions a page reads one by one."""
SHOWN_CAUSES = 20
"""Causes on an overview, those with most failures."""
BARS = 10
"""Causes of an evaluation in the chart."""
AGAINST = 8
"""Maximum runs that a run is compared with: the latest before it."""
REACTIVATED = 12
"""Reactivations on the live page, the last ones."""
SHOWN_SCHEDULE = 20
"""Causes of a schedule on a round's page, those with the largest p."""
TRAINING = {
    "reward": "Mean reward of a step's completions",
    "loss": "Loss by step",
    "entropy": "Entropy of a token, in nats",
    "grad_norm": "Norm of the gradient, before it is clipped",
    "kl": "KL to the phase's starting weights",
}
Breadcrumbs = tuple[tuple[str, str], ...]


def below(run: str) -> Breadcrumbs:
    return ((run, f"{run}/index.html"),)


def runs(site: Site) -> Page:
    """Every run with its results."""
    shown = site.runs()
    checked = site.checks.quick if site.live else site.checks.full
    lines = [(line, checked(line.run_id)) for line in list_runs(site.database) if line.run_id in shown]
    trained = {line.run_id for line, _ in lines if not line.evaluation}
    beside = many([(site.history(line.run_id), line) for line, _ in lines])
    return Page("runs.html", "runs", {"lines": lines, "many": beside, "trained": trained})


def overview(history: History, site: Site) -> Page:
    """What it kept getting wrong, what the curriculum did about it, whether it helped; then its rounds."""
    story = site.story(history.run_id)
    found = counts(history)
    worst = mistakes(history, found)
    rounds, agreement = by_round(found, [one.cause_id for one in worst])
    bars = _bars(story) if history.evaluation else []
    data = {
        "story": story,
        "evaluated": (evaluated := _evaluated(history, story)),
        "compared": _compared(site, history),
        "next_steps": list(next_steps(story, _others(site, history))) if evaluated else [],
        "check": site.checks.quick(history.run_id),
        "counts": found,
        "failing": list(failing(found, story)),
        "mistakes": worst,
        "curriculum": list(curriculum(found, story)),
        "aimed": aimed_example(history, found),
        "helped": list(helped(history, found, story)),
        "rounds": rounds,
        "agreement": agreement,
        "drawn": (drawn := site.drawn_of(history.run_id)),
        "beside": site.only[1:] if drawn else (),
        "charts": [one for one in (_passed(story), _accuracy(story)) if one is not None],
        "shown_causes": SHOWN_CAUSES,
        "bars": bars,
        "bars_most": max((share for share, *_ in bars), default=0) or 1,
        "premise": premise(history.world),
    }
    return Page("overview.html", history.run_id, data)


def _evaluated(history: History, story: RunStory) -> Evaluated | None:
    rates = story.pass_rates
    return Evaluated.of(rates) if history.evaluation and rates is not None else None


def _others(site: Site, history: History) -> list[str]:
    """Other evaluations to compare with, latest first."""
    runs = [run for run in site.runs() if run != history.run_id and site.history(run).evaluation]
    return runs[::-1]


def _compared(site: Site, history: History) -> list[str]:
    """Runs that this one is compared with on a page: earlier ones that also have responses."""
    if history.ingested is None:
        return []
    runs = site.runs()
    before = runs[: runs.index(history.run_id)]
    return [run for run in before if site.history(run).ingested is not None][: -AGAINST - 1 : -1]


def _bars(story: RunStory) -> list[tuple[float, int, str | None, str]]:
    """For an evaluation: each cause's share of the failures, largest first, then the rest."""
    rates = story.pass_rates
    if rates is None or not rates.failed:
        return []
    most, rest = rates.causes[:BARS], rates.causes[BARS:]
    found: list[tuple[int, str | None, str]] = [(one.failures, one.cause_id, one.description) for one in most]
    found += [(sum(one.failures for one in rest), None, f"{count(len(rest), 'more cause')}")] if rest else []
    found += [(rates.without_cause, None, "no pattern, or not diagnosed")] if rates.without_cause else []
    return [(number / rates.failed, number, cause, words) for number, cause, words in found]


def _passed(story: RunStory) -> Chart | None:
    """The pass rates of ingested rollouts."""
    steps = () if story.pass_rates is None else story.pass_rates.steps
    return chart(
        "Rollouts that passed, by step",
        [one.step for one in steps],
        [Series("pass rate", [one.pass_rate for one in steps])],
        percent=True,
        over="step",
    )


def _accuracy(story: RunStory) -> Chart | None:
    lines, before = story.rounds, story.before
    rounds = [line.round for line in lines]
    return chart(
        "Accuracy on held-out questions",
        [0, *rounds],
        [
            Series("mean@k", [before.get("mean_at_k"), *(line.mean_at_k for line in lines)]),
            Series("greedy", [before.get("greedy"), *(line.greedy for line in lines)]),
            Series(
                "at its best temperature", [before.get(AT_BEST), *(line.mean_at_k_best for line in lines)]
            ),
            *(
                Series(f"base model, {heat}", [before[metric]] * (len(rounds) + 1))
                for metric, heat in colder(before).items()
            ),
        ],
        percent=True,
    )


def diagnostics(history: History, site: Site) -> Page:
    """How training and schedule went, not their results."""
    story = site.story(history.run_id)
    data = {
        "story": story,
        "charts": [one for one in (*_charts(story), *training_charts(history)) if one is not None],
        "scores": (scores := score_rows(history)),
        "score_names": score_names(scores),
        "free": (free := free_questions(history) if history.end.sequence <= READ else {}),
        "families": families_in(free),
        "premise": premise(history.world),
    }
    return Page("diagnostics.html", "diagnostics", data, below(history.run_id))


def _charts(story: RunStory) -> Iterator[Chart | None]:
    lines = story.rounds
    rounds = [line.round for line in lines]
    yield chart(
        "ε of the next round: the share that explores freely",
        rounds,
        [Series("ε next", [float(line.epsilon_next) for line in lines])],
        percent=True,
    )
    yield chart(
        "z: failures of the Active causes against those of round 1",
        rounds,
        [Series("z", [None if line.z is None else float(line.z) for line in lines])],
    )
    yield chart(
        "Causes",
        rounds,
        [
            Series("Active", [float(line.active) for line in lines]),
            Series("Mastered", [float(line.mastered) for line in lines]),
        ],
    )
    if story.line.ingested is None:
        yield chart(
            "Questions",
            rounds,
            [
                Series("kept", [line.kept / line.candidates if line.candidates else None for line in lines]),
                Series("labels true", [line.labels_true for line in lines]),
            ],
            percent=True,
        )


def training_charts(history: History) -> Iterator[Chart | None]:
    """The metrics of each training step, over all rounds: round and step, as 2.1."""
    steps = step_metrics(history)
    places = list(
        dict.fromkeys((one.round, one.step) for one in sorted(steps, key=lambda s: (s.round, s.step)))
    )
    stages = list(dict.fromkeys(one.stage for one in steps))
    at = {(one.stage, one.round, one.step): one for one in steps}
    for name, title in TRAINING.items():
        yield chart(
            title,
            [f"{round_}.{step}" for round_, step in places],
            [
                Series(stage, [getattr(at.get((stage, *place)), name, None) for place in places])
                for stage in stages
            ],
            over="step",
        )


def causes(history: History, site: Site, part: str | None = None) -> Page:
    """Nodes and causes by round: the state of each, and its failures in each round."""
    page = part_of(count_causes(history), part)
    grid = matrix(history, start=page.start, most=page.rows)
    base, states = f"{history.run_id}/causes", get_args(CauseState)
    data = {"grid": grid, "part": page, "base": base, "states": states}
    return Page("causes.html", "causes", data, below(history.run_id))


def what_if(history: History, site: Site) -> Page:
    """The rounds as recorded; a script loads the data of the sliders for k, τ, θ_up, p_low and p_high. Each
    value is that of `memory what-if`."""
    lines = figures_of(history)
    return Page("whatif.html", "what if", {"rounds": lines}, below(history.run_id))


def live(history: History, site: Site) -> Page:
    line = run_line(history)
    last = next(iter(figures_of(history, line.last_round)), None)
    read = history.log.read(history.run_id, types=["CauseReactivated"], newest_first=True, limit=REACTIVATED)
    reactivated = [(recorded.round, recorded.cause_id) for recorded in read]
    data = {"line": line, "committed": last, "reactivated": reactivated}
    return Page("live.html", "live", data, below(history.run_id))


def verified(history: History, site: Site) -> Page:
    """`memory verify`, run when the page is opened, unless the run is too long."""
    data = {"check": site.checks.full(history.run_id), "most": VERIFIED}
    return Page("verify.html", "verify", data, below(history.run_id))


def round_(history: History, site: Site, number: str, part: str | None = None) -> Page:
    """A round: its results, its schedule, and each question with its verdict."""
    wanted = int(number)
    run = history.run_id
    if history.find(RoundOpened, wanted, "") is None:
        raise NotFoundError(f"run {run} has no round {wanted}", hint="the overview lists its rounds")
    line = next(iter(figures_of(history, wanted)), None)
    schedule = None
    if wanted == 1 or any(commit.round == wanted - 1 for commit in history.commits):
        schedule = next_schedule(describe(history.state(history.after(wanted - 1)))) if wanted > 1 else None
    if line is not None:
        verdicts = line.verdicts
    else:  # it is open, or was when it was superseded
        verdicts = Counter(fact.event.verdict for fact in history.events(CandidateScored, round=wanted))
    total = sum(verdicts.values())
    page = part_of(total, part)
    read = history.log.read(
        run, types=["CandidateScored"], rounds=(wanted, wanted), skip=page.start, limit=ROWS
    )
    shown = [expect(recorded, CandidateScored) for recorded in read]
    texts = history.texts([one.question for one in shown])
    data = {
        "number": wanted,
        "ingested": history.ingested is not None and not history.steered,
        "line": line,
        "superseded_by": history.superseded().get(wanted),
        "schedule": schedule,
        "shown_schedule": SHOWN_SCHEDULE,
        "rows": [(one, texts.get(one.question)) for one in shown],
        "verdicts": verdicts,
        "total": total,
        "has_next": history.find(RoundOpened, wanted + 1, "") is not None,
        "part": page,
        "base": f"{run}/rounds/{wanted}",
        "commands": [f"diagevo memory replay --round {wanted} --run {run}"],
    }
    return Page("round.html", f"round {wanted} of {run}", data, below(run))


def log(history: History, site: Site, kind: str | None = None, part: str | None = None) -> Page:
    """The events, newest first, all or those of a type."""
    if kind is not None and kind not in EVENT_TYPES:
        raise NotFoundError(f"there is no type of event {kind}", hint="the log's page lists them")
    run = history.run_id
    total = history.end.sequence if kind is None else history.log.count(run, kind)
    page = part_of(total, part)
    types = None if kind is None else [kind]
    rows = history.log.read(run, types=types, newest_first=True, limit=ROWS, skip=page.start)
    data = {
        "rows": [(recorded, *_payload(recorded)) for recorded in rows],
        "kind": kind,
        "kinds": [name for name in sorted(EVENT_TYPES) if name == kind or history.log.count(run, name)],
        "total": total,
        "part": page,
        "base": f"{run}/log" + (f"/{kind}" if kind else ""),
    }
    return Page("log.html", "log", data, below(run))


_PAGES = {"cause_id": "causes", "node_id": "nodes", "question_id": "questions", "failure_id": "failures"}


def _payload(recorded: Recorded) -> tuple[str, list[tuple[str, str]]]:
    """An event's payload, and its subject with the folder of its pages."""
    values = json.loads(recorded.payload)
    names = [(folder, values[key]) for key, folder in _PAGES.items() if isinstance(values.get(key), str)]
    values.pop("type", None)
    if recorded.type == "RunConfigured":
        values = redacted(values)
    return json.dumps(values, ensure_ascii=False), names
