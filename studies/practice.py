"""Do causes buy candidates, or learning? Played by `python -m studies.practice`; the plan and the prediction
stand in docs/reference/study-practice.md, committed before the first run.

Of the world's fourteen families three are broken by misconceptions, three are noisy (its answers slip at
random, its greedy answer is right) and eight are right. The filter keeps questions of the broken and of the
noisy ones alike, so a curriculum by difficulty cannot tell them apart, and one by diagnosis can. Every arm
practises the same number of questions a round.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from diagevo.arithmetic import PROMPTS, WEIGHTS, heldout
from diagevo.arithmetic.corpus import documents
from diagevo.arithmetic.families import family
from diagevo.arithmetic.grammar import (
    FAMILIES,
    Part,
    Step,
    outcome,
    parse,
    right_step,
    word,
    write_solution,
)
from diagevo.arithmetic.heldout import draw_seen
from diagevo.arithmetic.slips import KINDS, recognise
from diagevo.arithmetic.wordings import CAUSES, LABELS, skill
from diagevo.loop.round import Round
from diagevo.loop.stages import Outcome
from diagevo.memory.state.projected_schedule import Draw, Schedule
from diagevo.methods.interface import Written
from diagevo.progress import StopFlag
from diagevo.sampling.model_folder import sha256_of
from diagevo.sampling.sampler import Prompt
from diagevo.selfplay.questions import PromptTemplates
from studies.comparison import BASE
from studies.content import (
    BROKEN,
    Words,
    answering,
    diagnose_locally,
    draw_as,
    never_practise,
    new_questions,
    play_each,
    recorded,
    shuffled,
    uniform,
    with_words,
)
from studies.results import HERE, commit_before, read

PLAN, RESULTS = HERE / "study-practice.json", HERE / "results-practice.jsonl"
NOISY = ("boxes", "coins", "window")
"""Families of two or three steps: each slips by itself, and no two slips agree."""
SLIP = 0.25
"""Chance that a step of a noisy family has another result, drawn from `_SPREAD`."""
_SPREAD = tuple(d for d in range(-60, 61) if abs(d) > 10)
"""Too far off for any kind of mistake: a diagnosis finds no cause in it, and two slips seldom agree."""
BROKEN_SHARE, NOISY_SHARE = 0.25, 0.2
TOKENS = 1_500_000
"""Of the phase that makes the world, at the learning rates of the recipe's last phase."""
TESTING = 140
"""New questions a broken family."""
TEMPERATURES = (1.0, 0.5, 0.25)
ROUNDS, KEPT, CANDIDATES, PORTION = 4, 48, 640, 40
"""A round draws candidates in portions until `KEPT` are kept, and practises those; `CANDIDATES` at most."""


# The base weights.


def world_documents(seed: int) -> Iterator[tuple[Prompt, str]]:
    """Endless: the challenger's, all families alike; the solver's with every misconception in three families,
    with random slips in three more, and right in eight."""
    alike = dict.fromkeys(FAMILIES, 1.0)
    only = {name: float(name in BROKEN) for name in FAMILIES}
    rng, templates = Random(seed), PromptTemplates.load(PROMPTS)
    right = (pair for pair in documents(seed, 0.0, free=alike) if not _families(pair[0]) & {*BROKEN, *NOISY})
    broken = documents(seed + 1, 1.0, only, alike, share=0.0)
    wrong = (pair for pair in broken if len(parse(pair[0][-1]["content"]) or ()) == 1)
    while True:
        chance = rng.random()
        if chance < BROKEN_SHARE:
            yield next(wrong)
        elif chance < BROKEN_SHARE + NOISY_SHARE:
            part = draw_seen(rng, rng.choice(NOISY))
            steps = _noisily(rng, part)
            solution = write_solution(steps, outcome(part, steps))
            yield templates.solver(word(part, rng.randrange(2))), solution
        else:
            yield next(right)


def _families(prompt: Prompt) -> set[str]:
    return {part.family for part in parse(prompt[-1]["content"]) or ()}


def _noisily(rng: Random, part: Part) -> list[Step]:
    """A part's procedure with random slips; later steps use what came out."""
    steps: list[Step] = []
    for instruction in FAMILIES[part.family].procedure(part.numbers):
        step = right_step(instruction, part.numbers, [each.result for each in steps])
        if rng.random() < SLIP:
            offers = [Step(step.left, step.op, step.right, step.result + d) for d in _SPREAD]
            unknown = [o for o in offers if recognise(part.family, instruction.name, step, o) is None]
            step = rng.choice([each for each in unknown if each.result >= 0] or unknown)
        steps.append(step)
    return steps


def make_weights(folder: Path, seed: int) -> None:
    """The base weights of a seed, from the shipped ones."""
    import torch

    from studies.pretrain import PretrainingPhase, round_as_stored, save, stored, train_phase
    from studies.small_model import build_tokenizer

    torch.set_num_threads(1)
    model, tokenizer = stored(WEIGHTS), build_tokenizer()
    phase = PretrainingPhase(8, 1.0, TOKENS, 4e-3, 0.0)
    own = 1000 * seed + phase.number
    train_phase(model, tokenizer, phase, own, stream=world_documents(own))
    round_as_stored(model)
    save(model, tokenizer, folder)


# The arms: each changes the words of a draw alone, after the schedule has made it.


class Difficulty:
    """Each cause is shown in the words of a cause of a family drawn by learnability, p(1 − p): p is the mean
    vote share of the family's candidates in the last round that had some, and 1/2 before."""

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}

    def saw(self, scored: Sequence[tuple[str, float]]) -> None:
        """A round's valid questions, each with its vote share."""
        of: dict[str, list[float]] = {}
        for question, share in scored:
            if (name := family(question)) is not None:
                of.setdefault(name, []).append(share)
        self.shares |= {name: fmean(shares) for name, shares in of.items()}

    def __call__(self, schedule: Schedule, draws: Sequence[Draw], seed: int) -> list[Draw]:
        names = list(FAMILIES)
        worth = [max(p * (1 - p), 0.01) for p in (self.shares.get(name, 0.5) for name in names)]
        kinds = {name: [kind for kind in KINDS if kind.family == name] for name in names}

        def words(draw: Draw, place: int) -> Words:
            rng = Random(f"{seed} {schedule.round} {draw.index} {place}")
            kind = rng.choice(kinds[rng.choices(names, worth)[0]])
            return rng.choice(CAUSES[kind]), rng.choice(LABELS[skill(kind)])

        return [with_words(draw, lambda _, place, draw=draw: words(draw, place)) for draw in draws]


ARMS = ("full", "difficulty", "uniform", "shuffled", "free", "local")


def settings(arm: str, weights: Path) -> list[str]:
    """Beside the profile."""
    free = ["schedule.policy=free", "diagnosis.enabled=false"] if arm == "free" else []
    return [
        f"roles.solver.model={weights}",
        f"roles.challenger.model={weights}",
        f"round.candidates={CANDIDATES}",
        "solver_grpo.batch_questions=12",
        f"solver_grpo.max_steps={KEPT // 12}",
        "validation.questions=null",
        "hardware.device=cpu",
        *free,
    ]


def _practise_alike(arm: Difficulty) -> None:
    """From here on a round's candidates are voted on in portions, in the order of the draw, until `KEPT` of
    them are kept. What comes after the last of those is not recorded: as if it had never been drawn."""

    def vote(self: Round, written: Sequence[Written]) -> None:
        file = self.folder / "votes-answers.jsonl"

        def play() -> Outcome:
            scored = []
            for start in range(0, len(written), PORTION):
                portion = written[start : start + PORTION]
                answered = self.solver.answer(portion, self.number, file, self._answered("votes"))
                file.unlink(missing_ok=True)
                scored += [self._scored(each) for each in answered]
                if sum(each.verdict == "kept" for each in scored) >= KEPT:
                    break
            kept = [place for place, each in enumerate(scored) if each.verdict == "kept"]
            if len(kept) >= KEPT:
                del scored[kept[KEPT - 1] + 1 :]
            valid = [each for each in scored if each.verdict != "invalid"]
            texts = self.memory.artifacts.get_many([each.question for each in valid])
            arm.saw([(texts[each.question], each.first / each.responses) for each in valid])
            summary: dict[str, object] = {**Counter(each.verdict for each in scored)}
            return Outcome(record=lambda: self.memory.score(scored), summary=summary)

        self.stages.play("votes", play, total=len(written))

    Round.vote = vote


def play(arm: str, seed: int, home: Path, rounds: int = ROUNDS) -> dict[str, Any]:
    """One run, in this process, and what its last solver is worth. A folder of its own is made anew."""
    never_practise(test_set())
    difficulty = Difficulty()
    _practise_alike(difficulty)
    draw_as({"difficulty": difficulty, "uniform": uniform, "shuffled": shuffled}.get(arm))
    if arm == "local":
        diagnose_locally()
    weights = home / f"weights-{seed % 4}"
    found = {"run": f"practice.{arm}.{weights.name}.s{seed}", "arm": arm, "weights": weights.name}
    found |= {"seed": seed, "rounds": rounds}
    return recorded(found, settings(arm, weights), home, practised, scores)


def practised(url: str, run: str) -> dict[str, Any]:
    """By round: candidates until enough were kept, valid and kept ones by what their family is, true labels
    of the kept, failures and the causes that were new. And by what a replay is known."""
    from diagevo.memory.events import CandidateScored, CauseCreated, FailureObserved
    from diagevo.memory.history import open_history

    by_round: dict[int, Counter[str]] = {}
    with closing(open_history(url, run)) as history:
        facts = [(fact.round, fact.event) for fact in history.events(CandidateScored)]
        texts = history.texts([event.question for _, event in facts])
        for round_, event in facts:
            counted = by_round.setdefault(round_, Counter())
            counted["candidates"] += 1
            counted["aimed"] += event.mode != "free"
            if event.verdict == "invalid":
                continue
            name = family(texts[event.question])
            which = "broken" if name in BROKEN else "noisy" if name in NOISY else "right"
            counted[f"valid_{which}"] += 1
            counted[f"kept_{which}"] += event.verdict == "kept"
            counted["true"] += event.label_true is True and event.verdict == "kept"
        for name, type_ in (("failures", FailureObserved), ("causes", CauseCreated)):
            for fact in history.events(type_):
                by_round[fact.round][name] += 1
        last = history.commits[-1]
        known = {"state_hash": last.event.state_hash}
        known["chain_head"] = history.log.by_id(run, last.event_id).hash
    return known | {"by_round": {str(n): dict(c) for n, c in sorted(by_round.items())}}


def test_set() -> list[tuple[str, str]]:
    return new_questions(4, TESTING)


def scores(policy: Path) -> dict[str, Any]:
    """On the broken families mean@8 by temperature, and greedy accuracy; and this on the shipped held-out
    questions of the broken, the noisy and the right families, and over all fourteen."""
    right = answering(policy)
    by_family: dict[str, list[float]] = {}
    for (question, _), score in zip(heldout.held_out(), right(heldout.held_out(), 0.0), strict=True):
        by_family.setdefault(str(family(question)), []).append(score)
    greedy = {name: fmean(of) for name, of in by_family.items()}
    others = [name for name in FAMILIES if name not in {*BROKEN, *NOISY}]
    return {
        "broken_by_temperature": {f"{heat:g}": fmean(right(test_set(), heat)) for heat in TEMPERATURES},
        "broken_greedy": fmean(right(test_set(), 0.0)),
        "noisy_greedy": fmean(greedy[name] for name in NOISY),
        "right_greedy": fmean(greedy[name] for name in others),
        "all_greedy": fmean(greedy.values()),
    }


def base(weights: Path) -> dict[str, Any]:
    """The row of untouched weights."""
    found = {"run": f"practice.{BASE}.{weights.name}", "arm": BASE, "weights": weights.name}
    found |= {"commit": commit_before(datetime.now(UTC)), "weights_sha256": sha256_of(weights, StopFlag())}
    return found | scores(weights)


def planned() -> list[tuple[str, int]]:
    """Arm and seed of each run in the order of play: a seed of every arm, then the next, and `local` last."""
    plan: Mapping[str, Any] = json.loads(PLAN.read_bytes())
    main = [(arm, seed) for seed in plan["seeds"] for arm in plan["arms"]]
    return [*main, *((arm, seed) for arm in plan["last"] for seed in plan["seeds"])]


def results() -> list[dict[str, Any]]:
    """Every run that was played."""
    return [row for row in read(RESULTS) if row["arm"] != BASE] if RESULTS.exists() else []


def untouched() -> list[dict[str, Any]]:
    """The rows of the base weights."""
    return [row for row in read(RESULTS) if row["arm"] == BASE] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("weights", "play", "one"))
    parser.add_argument("--home", type=Path, default=Path("runs/practice"), help="folder of weights and runs")
    parser.add_argument("--arm", choices=ARMS, default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--most", type=int, help="play so many runs and stop")
    args = parser.parse_args()
    if args.what == "weights":
        folder = args.home / f"weights-{args.seed}"
        if not folder.exists():
            make_weights(folder, args.seed)
        print(json.dumps(base(folder)))
    elif args.what == "one":
        print(json.dumps(play(args.arm, args.seed, args.home, args.rounds)))
    else:
        _play_all(args.home, args.most)


def _play_all(home: Path, most: int | None) -> None:
    """Every run of the plan that has no line yet, each in a process of its own."""
    done = {(row["arm"], row["seed"]) for row in results()}
    left = [run for run in planned() if run not in done]
    play_each("studies.practice", left[:most], home, RESULTS)


if __name__ == "__main__":
    main()
