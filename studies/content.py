"""Does it matter what causes say? Played by `python -m studies.content`; the plan and the prediction stand in
docs/reference/study-content.md, committed before the first run.

The world is broken in three of its fourteen families: from the shipped weights one more phase teaches what is
right in eleven and the misconceptions at their full chances in three. Free exploration writes all families
alike. Arms differ only in the words that the challenger is shown, or in the diagnoses; two are played once
more with the same number of practised questions a round.
"""

# Long, but one file: world, arms and measure are read beside the plan, and no other study plays them.

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import WEIGHTS, heldout
from diagevo.arithmetic.corpus import documents
from diagevo.arithmetic.families import family
from diagevo.arithmetic.grammar import FAMILIES, Part, draw_part, parse, word
from diagevo.arithmetic.rule_diagnostician import RuleDiagnostician
from diagevo.arithmetic.slips import KINDS, Kind
from diagevo.arithmetic.truth import value
from diagevo.arithmetic.wordings import CAUSES, LABELS, skill
from diagevo.diagnosis.cause_extraction import Diagnoser, ShouldStop
from diagevo.diagnosis.diagnostician import FailurePair
from diagevo.diagnosis.levels.cause_levels import Levels
from diagevo.diagnosis.levels.inputs import Failure, Response
from diagevo.diagnosis.levels.inputs import Prompt as Asked
from diagevo.memory.events import FailureObserved
from diagevo.memory.memory import Memory
from diagevo.memory.state.projected_schedule import Draw, Schedule
from diagevo.progress import Observer, StopFlag
from diagevo.sampling.model_folder import sha256_of
from diagevo.sampling.sampler import Prompt, SamplingParams
from studies.comparison import BASE
from studies.results import HERE, commit_before, read

PLAN, RESULTS = HERE / "study-content.json", HERE / "results-content.jsonl"
REPLAYS = HERE / "replays-content.jsonl"
"""Rows of runs that were played once more, from weights made anew."""
BROKEN = ("compare", "lift", "quotient")
"""Families whose misconceptions the solver keeps; each has hundreds of numbers that nothing is trained on."""
TOKENS = 1_200_000
"""Of the phase that breaks the world, at the learning rates of the recipe's last phase."""
BROKEN_SHARE = 0.3
CHOOSING, TESTING, ELSEWHERE = 40, 140, 20
"""New questions a broken family for the temperature and for the score; held-out ones a family elsewhere."""
TEMPERATURES = (1.0, 0.5, 0.25, 0.0)
"""Down to the greedy answer, so that the best lies at no edge. The runs of the plan were measured at 1, 0.77
and 0.5."""
SAMPLES = 8
ROUNDS, CANDIDATES = 4, 240


def broken_documents(seed: int) -> Iterator[tuple[Prompt, str]]:
    """Endless: the challenger's, all families alike; the solver's right in eleven families and with every
    misconception in three, each on its own."""
    alike = dict.fromkeys(FAMILIES, 1.0)
    only = {name: float(name in BROKEN) for name in FAMILIES}
    rng = Random(seed)
    right = (pair for pair in documents(seed, 0.0, free=alike) if not _breaks(pair[0]))
    wrong = (pair for pair in documents(seed + 1, 1.0, only, alike, share=0.0) if _alone(pair[0]))
    while True:
        yield next(wrong) if rng.random() < BROKEN_SHARE else next(right)


def _parts(prompt: Prompt) -> Sequence[Part]:
    return parse(prompt[-1]["content"]) or ()


def _breaks(prompt: Prompt) -> bool:
    return any(part.family in BROKEN for part in _parts(prompt))


def _alone(prompt: Prompt) -> bool:
    return len(_parts(prompt)) == 1


def break_weights(folder: Path, seed: int) -> None:
    """The base weights of a seed, from the shipped ones."""
    import torch

    from studies.pretrain import PretrainingPhase, round_as_stored, save, stored, train_phase
    from studies.small_model import build_tokenizer

    torch.set_num_threads(1)
    model, tokenizer = stored(WEIGHTS), build_tokenizer()
    phase = PretrainingPhase(9, 1.0, TOKENS, 4e-3, 0.0)
    own = 1000 * seed + phase.number
    train_phase(model, tokenizer, phase, own, stream=broken_documents(own))
    round_as_stored(model)
    save(model, tokenizer, folder)


def new_questions(seed: int, each: int) -> list[tuple[str, str]]:
    """Of the broken families, from the held-out zone, none of them in the shipped held-out set."""
    shipped = {part for question, _ in heldout.held_out() for part in parse(question) or ()}
    found: list[tuple[str, str]] = []
    for name in BROKEN:
        rng, parts = Random(f"{seed} {name}"), dict[Part, None]()
        while len(parts) < each:
            part = draw_part(rng, name)
            if heldout.in_zone(part) and part not in shipped:
                parts[part] = None
        found += [(word(part, i % 2), str(value(part))) for i, part in enumerate(parts)]
    return found


def choice_set() -> list[tuple[str, str]]:
    return new_questions(1, CHOOSING)


def test_set() -> list[tuple[str, str]]:
    """None of them chooses a temperature."""
    taken = {part for question, _ in choice_set() for part in parse(question) or ()}
    drawn = new_questions(2, TESTING + CHOOSING)
    kept: Counter[str | None] = Counter()
    found: list[tuple[str, str]] = []
    for question, answer in drawn:
        name = family(question)
        if kept[name] < TESTING and not taken & set(parse(question) or ()):
            kept[name] += 1
            found.append((question, answer))
    return found


# What an arm changes is the words of a draw, after the schedule has made it: memory, f, ε, p, ids and modes
# stay as they are.
Words = tuple[str, str]
"""A cause's description and its node's label."""


def with_words(draw: Draw, words: Callable[[str, int], Words]) -> Draw:
    """The draw with other words for its causes. `words`: of a cause's id and its place in the prompt."""
    if draw.cause_id is None:
        return draw
    cause, node = words(draw.cause_id, 0)
    if draw.stitched_cause_id is None:
        return replace(draw, cause=cause, node=node)
    stitched, stitched_node = words(draw.stitched_cause_id, 1)
    return replace(draw, cause=cause, node=node, stitched_cause=stitched, stitched_node=stitched_node)


def shuffled(schedule: Schedule, draws: Sequence[Draw], seed: int) -> list[Draw]:
    """Each cause is shown in the words of another cause of the same memory, the same one for a round."""

    def place(cause: str) -> bytes:
        return sha256(f"{seed} {schedule.round} {cause}".encode()).digest()

    order = sorted(schedule.causes, key=lambda cause: place(cause.cause_id))
    others = dict(zip((cause.cause_id for cause in order), [*order[1:], *order[:1]], strict=True))
    return [with_words(draw, lambda id_, _: (others[id_].description, others[id_].node)) for draw in draws]


def uniform(schedule: Schedule, draws: Sequence[Draw], seed: int) -> list[Draw]:
    """Each cause is shown in the words of a cause of a family that is drawn anew for each prompt."""
    kinds = {name: [kind for kind in KINDS if kind.family == name] for name in FAMILIES}

    def words(draw: Draw, place: int) -> Words:
        rng = Random(f"{seed} {schedule.round} {draw.index} {place}")
        kind = rng.choice(kinds[rng.choice(list(FAMILIES))])
        return rng.choice(CAUSES[kind]), rng.choice(LABELS[skill(kind)])

    return [with_words(draw, lambda _, place, draw=draw: words(draw, place)) for draw in draws]


Arm = Callable[[Schedule, Sequence[Draw], int], list[Draw]]
ARMS: Mapping[str, Arm | None] = {
    "full": None,
    "uniform": uniform,
    "shuffled": shuffled,
    "free": None,
    "full-capped": None,
    "uniform-capped": uniform,
    "wrong-25": None,
    "wrong-50": None,
    "wrong-100": None,
    "local": None,
}
"""What happens to a round's draws. A capped arm practises `CAP` questions a round at most; of `wrong-N` N%
of the diagnoses name another kind of mistake; those of `local` come from `diagnose --local`."""
CAP = 24


def settings(arm: str, weights: Path) -> list[str]:
    """Beside the profile."""
    capped = ["solver_grpo.batch_questions=6", f"solver_grpo.max_steps={CAP // 6}"]
    free = ["schedule.policy=free", "diagnosis.enabled=false"] if arm == "free" else []
    return [
        f"roles.solver.model={weights}",
        f"roles.challenger.model={weights}",
        f"round.candidates={CANDIDATES}",
        "validation.questions=null",
        "hardware.device=cpu",
        *free,
        *(capped if arm.endswith("-capped") else []),
    ]


def _wrongly(share: float, seed: int) -> None:
    """From here on this share of diagnoses, by a hash of the failure, names another kind of mistake."""
    right = RuleDiagnostician.kind

    def kind(self: RuleDiagnostician, pair: FailurePair) -> Kind | None:
        found = right(self, pair)
        rng = Random("\x1f".join((str(seed), pair.question, pair.agreeing, pair.disagreeing)))
        if found is None or rng.random() >= share:
            return found
        return rng.choice([other for other in KINDS if other != found])

    RuleDiagnostician.kind = kind


def diagnose_locally() -> None:
    """From here on a round's failures are grouped as `diagnose --local` does, once all are there.

    The challenger of this world reads no words but its own: a group is told in those of the kind that the
    rules see most often in it. What the groups mix is so told wrongly, and what is in none is not told.
    """
    submit, drain, rules = Diagnoser.submit, Diagnoser.drain, RuleDiagnostician.kind
    held: list[FailureObserved] = []
    named: dict[str, Kind] = {}

    def collect(self: Diagnoser, failures: Sequence[FailureObserved]) -> None:
        held.extend(failures)

    def all_at_once(self: Diagnoser, should_stop: ShouldStop | None = None) -> None:
        named.update(_kinds_of_groups(self._memory, held, rules))
        submit(self, held)
        held.clear()
        drain(self, should_stop)

    Diagnoser.submit, Diagnoser.drain = collect, all_at_once
    RuleDiagnostician.kind = lambda self, pair: named.get(pair.failure_id)


def _kinds_of_groups(
    memory: Memory,
    failures: Sequence[FailureObserved],
    rules: Callable[[RuleDiagnostician, FailurePair], Kind | None],
) -> dict[str, Kind]:
    """Of each failure in a group, by its id, the kind that most failures of the group are by the rules."""
    of: dict[str, list[FailureObserved]] = {}
    for failure in failures:
        of.setdefault(failure.question_id, []).append(failure)
    prompts: list[Asked] = []
    kinds: dict[str, Kind | None] = {}
    for question_id, wrong in of.items():
        scored = memory.question(question_id)
        digests = [scored.question, *(d for each in wrong for d in (each.reference, each.trajectory))]
        texts = memory.artifacts.get_many(digests)
        question, passed = texts[scored.question], dict.fromkeys(texts[each.reference] for each in wrong)
        failed = [Failure(each.failure_id, Response(texts[each.trajectory])) for each in wrong]
        prompts.append(
            Asked(question_id, question, scored.label, [Response(text) for text in passed], failed)
        )
        for each in wrong:
            right, found = texts[each.reference], texts[each.trajectory]
            pair = FailurePair(each.failure_id, question, scored.label or "", right, found)
            kinds[each.failure_id] = rules(RuleDiagnostician(), pair)
    levels = Levels(prompts, [])
    groups: dict[str, list[str]] = {}
    for prompt in prompts:
        for failure, explained in zip(prompt.failed, levels.of(prompt), strict=True):
            if explained.cause is not None:
                groups.setdefault(explained.cause.key, []).append(failure.key)
    named: dict[str, Kind] = {}
    for members in groups.values():
        seen = Counter(kind for each in members if (kind := kinds[each]) is not None)
        if seen:
            named |= dict.fromkeys(members, seen.most_common(1)[0][0])
    return named


def play(arm: str, seed: int, home: Path, rounds: int = ROUNDS) -> dict[str, Any]:
    """One run, in this process, and what its last solver is worth. A folder of its own is made anew."""
    never_practise([*choice_set(), *test_set()])
    draw_as(ARMS[arm])
    if arm.startswith("wrong-"):
        _wrongly(int(arm.removeprefix("wrong-")) / 100, seed)
    if arm == "local":
        diagnose_locally()
    weights = home / f"weights-{seed % 2}"
    found = {"run": f"content.{arm}.{weights.name}.s{seed}", "arm": arm, "weights": weights.name}
    found |= {"seed": seed, "rounds": rounds}
    return recorded(found, settings(arm, weights), home, practice, scores)


def never_practise(questions: Sequence[tuple[str, str]]) -> None:
    """From here on no run practises these, as none does the shipped held-out ones."""
    ours = {part for question, _ in questions for part in parse(question) or ()}
    shipped = heldout._held_parts()
    heldout._held_parts = lambda: shipped | ours


def draw_as(change: Arm | None) -> None:
    """From here on the draws of a round are changed so."""
    if change is None:
        return
    drawn = Schedule.draw

    def draw(self: Schedule, n: int, *, seed: int) -> list[Draw]:
        return change(self, drawn(self, n, seed=seed), seed)

    Schedule.draw = draw


def recorded(
    found: dict[str, Any],
    settings: Sequence[str],
    home: Path,
    counted: Callable[[str, str], dict[str, Any]],
    scored: Callable[[Path], dict[str, Any]],
) -> dict[str, Any]:
    """Play a run in this process, in a folder made anew: its row, with what it was played from, what was
    `counted` of its log and how its last solver `scored`."""
    import torch

    from diagevo.config.loading import resolve
    from diagevo.loop.run import train

    torch.set_num_threads(1)
    run, weights = found["run"], home / found["weights"]
    shutil.rmtree(home / run, ignore_errors=True)
    (home / run).mkdir(parents=True)
    url = f"sqlite:///{home / run / 'log.db'}"
    config = resolve(settings=[*settings, f"seed={found['seed']}"], environ={}, folder=home).config
    started, cpu = datetime.now(UTC), time.process_time()
    commit = commit_before(started)
    train(
        config,
        database=url,
        run_id=run,
        root=home / run,
        resume=False,
        observer=Observer(),
        stop=StopFlag(),
        rounds=found["rounds"],
    )
    took = time.process_time() - cpu
    row = found | {"started": started.isoformat(timespec="seconds"), "cpu_seconds": round(took)}
    row |= {"commit": commit, "weights_sha256": sha256_of(weights, StopFlag())}
    row |= counted(url, run)
    row |= scored(max((home / run / run / "rounds").glob("*/solver")))  # a round that keeps none has none
    shutil.rmtree(home / run)
    return row


def answering(policy: Path) -> Callable[[Sequence[tuple[str, str]], float], list[float]]:
    """What share of `SAMPLES` answers to each question is right at a temperature; at 0 of one greedy one."""
    from diagevo.arithmetic import PROMPTS
    from diagevo.sampling.transformers_sampler import TransformersSampler
    from diagevo.selfplay.questions import PromptTemplates

    sampler, templates = TransformersSampler(policy, threads=1), PromptTemplates.load(PROMPTS)

    def right(questions: Sequence[tuple[str, str]], temperature: float) -> list[float]:
        n = SAMPLES if temperature else 1
        params = SamplingParams(max_new_tokens=96, temperature=temperature, top_p=0.99)
        asked = [templates.solver(question) for question, _ in questions]
        groups = sampler.sample(asked, n=n, params=params, seed=7)
        answers = ([extract_boxed(each.text) for each in group] for group in groups)
        return [sum(a == gold for a in of) / n for of, (_, gold) in zip(answers, questions, strict=True)]

    return right


def practice(url: str, run: str) -> dict[str, Any]:
    """By round: candidates, those aimed at a broken family by their text, kept ones, and practised ones. And
    by what a replay is known: the memory's hash, which all of `free` share as it holds no cause, and the
    chain's."""
    from diagevo.memory.events import CandidateScored
    from diagevo.memory.history import open_history

    with closing(open_history(url, run)) as history:
        facts = [(fact.round, fact.event) for fact in history.events(CandidateScored)]
        texts = history.texts([event.question for _, event in facts])
        last = history.commits[-1]
        known = {"state_hash": last.event.state_hash}
        known["chain_head"] = history.log.by_id(run, last.event_id).hash
    by_round: dict[int, Counter[str]] = {}
    for round_, event in facts:
        counted = by_round.setdefault(round_, Counter())
        broken = family(texts[event.question]) in BROKEN
        counted["candidates"] += 1
        counted["valid"] += event.verdict != "invalid"
        counted["broken"] += broken and event.verdict != "invalid"
        counted["aimed"] += event.mode != "free"
        counted["kept"] += event.verdict == "kept"
        counted["kept_broken"] += broken and event.verdict == "kept"
        counted["true"] += event.label_true is True and event.verdict == "kept"
    return known | {"by_round": {str(n): dict(c) for n, c in sorted(by_round.items())}}


def scores(
    policy: Path, grid: Sequence[float] = TEMPERATURES, more: Sequence[float] = (1.0, 0.0)
) -> dict[str, Any]:
    """mean@8 on the broken families at each temperature, of which 0 is one greedy answer. Of those of the
    grid the best is chosen on other questions; at it the shipped held-out questions of the other families
    are measured too."""
    right = answering(policy)
    chosen = {heat: fmean(right(choice_set(), heat)) for heat in grid}
    best = max(grid, key=lambda heat: chosen[heat])
    elsewhere = [pair for pair in heldout.held_out() if family(pair[0]) not in BROKEN][:: 40 // ELSEWHERE]
    broken = {heat: fmean(right(test_set(), heat)) for heat in dict.fromkeys((*grid, *more))}
    others = fmean(right(elsewhere, best))
    return {
        "best_temperature": best,
        "choosing": {f"{heat:g}": round(score, 4) for heat, score in chosen.items()},
        "broken": broken[best],
        "broken_by_temperature": {f"{heat:g}": score for heat, score in broken.items()},
        "broken_at_1": broken[1.0],
        "broken_greedy": broken[0.0],
        "elsewhere": others,
        "overall": (3 * broken[best] + 11 * others) / 14,
    }


def base(weights: Path) -> dict[str, Any]:
    """The row of untouched weights: at the temperatures of the recorded runs and of new ones. `broken`,
    `elsewhere` and `overall` are at the best of the recorded runs' grid, as theirs are."""
    found = {"run": f"content.base.{weights.name}", "arm": BASE, "weights": weights.name}
    found |= {"commit": commit_before(datetime.now(UTC)), "weights_sha256": sha256_of(weights, StopFlag())}
    return found | scores(weights, json.loads(PLAN.read_bytes())["temperatures"], TEMPERATURES)


def planned() -> list[dict[str, Any]]:
    """The runs in the order in which they are played: a seed of every arm after the other."""
    plan = json.loads(PLAN.read_bytes())
    main = [(arm, seed) for seed in plan["seeds"] for arm in plan["arms"]]
    more = [(arm, seed) for seed in plan["seeds"][: plan["wrong_seeds"]] for arm in plan["wrong_arms"]]
    local = [("local", seed) for seed in plan["local_seeds"]]
    return [{"arm": arm, "seed": seed} for arm, seed in [*main, *more, *local]]


def results() -> list[dict[str, Any]]:
    """A row a run."""
    return [row for row in read(RESULTS) if row["arm"] != BASE]


def untouched() -> list[dict[str, Any]]:
    """A row a base weights, before any round."""
    return [row for row in read(RESULTS) if row["arm"] == BASE]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("weights", "play", "one"))
    parser.add_argument("--home", type=Path, default=Path("runs/content"), help="folder of weights and runs")
    parser.add_argument("--arm", choices=ARMS, default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--most", type=int, help="play so many runs and stop")
    args = parser.parse_args()
    if args.what == "weights":
        if not (args.home / f"weights-{args.seed}").exists():
            break_weights(args.home / f"weights-{args.seed}", args.seed)
        print(json.dumps(base(args.home / f"weights-{args.seed}")))
    elif args.what == "one":
        print(json.dumps(play(args.arm, args.seed, args.home, args.rounds)))
    else:
        _play_all(args.home, args.most)


def _play_all(home: Path, most: int | None) -> None:
    """Every run of the plan that has no line yet, each in a process of its own."""
    done = {(row["arm"], row["seed"]) for row in results()}
    left = [run for run in planned() if (run["arm"], run["seed"]) not in done]
    play_each("studies.content", [(run["arm"], run["seed"]) for run in left[:most]], home, RESULTS)


def play_each(module: str, runs: Sequence[tuple[str, int]], home: Path, results: Path) -> None:
    """Each run in a process of its own; its row goes to the end of `results`."""
    for arm, seed in runs:
        words = ["one", "--home", str(home), "--arm", arm, "--seed", str(seed)]
        command = [sys.executable, "-m", module, *words]
        line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
        with results.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        print(line[:200], flush=True)


if __name__ == "__main__":
    main()
