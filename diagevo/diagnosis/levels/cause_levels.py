"""The four levels over a run: learned from a bounded sample of its prompts, then applied prompt by prompt. No
I/O and no model here, and the same prompts give the same causes.

Long, but one file: one class learns the levels and applies them, and shares what it learned.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagevo.diagnosis.levels import contrast, field_changes
from diagevo.diagnosis.levels.aligned_pairs import AlignedPair, aligned, in_words, operations, place_of
from diagevo.diagnosis.levels.clauses import (
    MAX_WORDS,
    SELDOM,
    SIBLING,
    TRUE,
    Clause,
    Counting,
    Said,
    changed_name,
    clauses_of,
    phrase,
    wording,
)
from diagevo.diagnosis.levels.clustering import Groups, alike, grouped
from diagevo.diagnosis.levels.contrast import Side, Signed
from diagevo.diagnosis.levels.features import NEW, NOWHERE, ONE, UNUSED, Vocabulary, part_of
from diagevo.diagnosis.levels.inputs import (
    BESIDE,
    SENTENCE,
    TOKEN,
    Evidence,
    Failure,
    LocalCause,
    Prompt,
    Response,
    shuffled,
)
from diagevo.diagnosis.levels.neighbours import Neighbours, exchangeable
from diagevo.diagnosis.levels.non_reasoning import FALSE, KINDS, Habits
from diagevo.diagnosis.levels.step_location import Located, change, located, nearest

SAMPLED = 2_000
"""Prompts with a failure, and as many without, to learn from; all failures get their causes."""
LEARNED = 200
"""Failures of a prompt to learn from."""
SAME = 3
"""Minimum failures, all the same response, that get a cause without a test."""
DRAWN = 4
"""Responses of a prompt that are compared with those of its neighbours."""
SHOWN = 80
WORDS = 3
"""Maximum words of a sentence shown for something said in many ways."""
FIELDS = 3
"""Maximum fields named for a kind of change."""
HEADED = 200
"""Failures of a cause aligned for its heading."""
MAX_BUNDLE = 120
"""Maximum co-occurring features shown, most telling first."""
COMPUTED = (*UNUSED, f"§{NOWHERE}")
RIGHT = {"equal", "form"}
"""Kinds of right behaviour: a cause if passes show it and failures, with few exceptions, do not."""
INSIDE = {"failed call", "timeout", "exception"}
"""Kinds that mark a failure but explain little: contrast continues among those that show them."""
COMPARED, HARMLESS = 4, 0.25
"""Responses per side of a prompt whose changes are compared; the maximum rate of a telling change in
passes, relative to failures."""
SKILLS = {
    1: "answering at all, in a form that can be read",
    2: "computing",
    3: "doing what every passing response does",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of one failure. `cause` is None if no pattern fits."""

    cause: LocalCause | None
    evidence: tuple[Evidence, ...]
    located: Located | None
    pair: AlignedPair | None = None
    """The place that its cause is about, with a passing response."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """One contrast: of the failures' texts or of the feedback on them, with each group's clauses."""

    feedback: bool
    groups: Groups
    clauses: Mapping[int, Sequence[Clause]]


class Levels:
    """What a run's failures have in common. `of` explains each failure of a prompt."""

    def __init__(
        self,
        failing: Iterable[Prompt],
        passing: Iterable[Prompt],
        known: Mapping[str, LocalCause] | None = None,
    ) -> None:
        """Learn from prompts with failures and prompts in which all passed.

        Args:
            failing: SAMPLED at most, each question once.
            passing: As many.
            known: The existing cause by a failure's key; a group with most of a cause's failures keeps its
                name.
        """
        failing, passing = _ordered(failing), _ordered(passing)
        every = sorted([*failing, *passing], key=lambda each: each.key)
        self._habits = Habits([each for prompt in [*failing, *passing] for each in prompt.passed[:2]])
        self._learned: dict[str, Mapping[str, Evidence]] = {}
        self._passing: dict[tuple[str, str], frozenset[str]] = {}
        self._neighbours = Neighbours(every)
        self._kinds = self._claimed(every)
        self._vocabulary = Vocabulary([*failing, *passing])
        # Responses explained by level 1 are left out on both sides: otherwise passes would keep features that
        # no failure has left.
        clean = {each.key: self._unexplained(each) for each in every}
        left = [each for each in (clean[each.key] for each in failing) if each.failed]
        self._changes = self._changes_of(left)
        self._features: dict[tuple[str, str], np.ndarray] = {}
        self._borrowed: dict[tuple[bool, str], np.ndarray] = {}
        self._placed: dict[str, int | None] = {}
        self._causes: list[LocalCause] = []
        self._numbers: dict[Clause, int] = {}
        self._passes: list[_Pass] = []
        self._learn(False, clean, left, every, known or {})
        if self._vocabulary.told:  # feedback by others, for failures that their own words do not explain
            clean = {key: self._unplaced(each) for key, each in clean.items()}
            left = [each for each in (clean[each.key] for each in left) if each.failed]
            self._learn(True, clean, left, every, known or {})

    def _learn(
        self,
        feedback: bool,
        clean: Mapping[str, Prompt],
        left: Sequence[Prompt],
        every: Sequence[Prompt],
        known: Mapping[str, LocalCause],
    ) -> None:
        """Contrast the texts of the failures in `left`, or the feedback on them; labels are permuted among
        `clean`."""

        def of(prompt: Prompt, response: Response) -> np.ndarray:
            key = prompt.key, response.text
            if key not in self._features:
                self._features[key] = self._looked_at(feedback)(prompt, response)
            return self._features[key]

        def alone(prompt: Prompt, response: Response) -> np.ndarray:
            return self._looked_at(feedback)(prompt.alone, response)

        found = contrast.tested(*self._dealt(clean, of, alone))
        rows, keys = self._rows(left, of, feedback)
        groups: Groups | None = None
        untested = frozenset(self._changes.values())
        if len(found.names):
            groups = grouped(found, rows, weak=self._vocabulary.counts(), untested=untested)
        elif len(rows) >= SAME and len({each.response.own_text for each in _failures(left)}) == 1:
            groups = alike(rows, untested)
        self._placed.update(dict.fromkeys(keys))
        if groups is not None:
            clauses = self._described(groups, left, every, rows, keys, known)
            self._passes.append(_Pass(feedback, groups, clauses))
        self._features.clear()

    def _looked_at(self, feedback: bool) -> Callable[[Prompt, Response], np.ndarray]:
        return self._vocabulary.of_feedback if feedback else self._vocabulary.features

    def _unplaced(self, prompt: Prompt) -> Prompt:
        """Without the failures that have a cause."""
        placed = {at for at, each in enumerate(prompt.failed) if self._placed.get(each.key) is not None}
        return _without(prompt, placed)

    @property
    def causes(self) -> list[LocalCause]:
        return self._causes

    def of(self, prompt: Prompt) -> list[Explained]:
        """One explanation per failure of the prompt, in order."""
        plain = self._plain(prompt)
        done = {place for place, (kind, _) in plain.items() if kind not in INSIDE}
        passed = [Said(self._vocabulary, prompt, each) for each in prompt.beside]
        beside: Sequence[Said] = passed
        known = {at for at, each in enumerate(prompt.failed) if at in done or each.key in self._placed}
        held = self._held(_without(prompt, known), passed) if len(known) < len(prompt.failed) else {}
        found: list[Explained] = []
        for place, failure in enumerate(prompt.failed):
            sibling = nearest(failure.response, prompt.beside)
            where = (
                None
                if place in plain and plain[place][0] in ("empty", "loop", "cut off")
                else located(prompt, failure.response, sibling)
            )
            number = None if place in done else self._placed.get(failure.key, held.get(failure.key))
            if place in plain and number is None:
                kind, evidence = plain[place]
                level = 2 if kind == FALSE else 1
                found.append(
                    Explained(
                        LocalCause(f"{level}:{kind}", level, KINDS[kind], SKILLS[level]), (evidence,), where
                    )
                )
                continue
            cause, shown, pair = None, (), None
            if number is not None:
                cause = self._causes[number]
                clauses = clauses_of(cause.key)
                if not beside:
                    beside = self._near(prompt)
                pair = _pair(clauses[0], prompt, failure.response, beside)
                shown = tuple(_evidence(clauses, pair, prompt, failure.response, sibling))
                if place in plain:
                    shown = (*shown, plain[place][1])
            found.append(Explained(cause, shown, where, pair))
        return found

    # Level 1

    def _plain(self, prompt: Prompt) -> dict[int, tuple[str, Evidence]]:
        """By index of the failure, the first kind of level 1 that it shows."""
        found: dict[int, tuple[str, Evidence]] = {}
        for place, failure in enumerate(prompt.failed):
            shown = self._shown(prompt, failure)
            kind = next((each for each in KINDS if each in self._kinds and each in shown), None)
            if kind is not None:
                found[place] = kind, shown[kind]
        return found

    def _shown(self, prompt: Prompt, failure: Failure) -> Mapping[str, Evidence]:
        """Each kind of level 1 or 2, with the first failure that shows it."""
        if (known := self._learned.get(failure.key)) is not None:
            return known
        return dict(reversed(list(self._habits.kinds(prompt, failure.response, failure.response.feedback))))

    def _kinds_of(self, prompt: Prompt, response: Response) -> frozenset[str]:
        """The kinds of level 1 and 2 that a passing response shows."""
        key = prompt.key, response.text
        if key not in self._passing:
            self._passing[key] = frozenset(kind for kind, _ in self._habits.kinds(prompt, response))
        return self._passing[key]

    def _claimed(self, every: Sequence[Prompt]) -> set[str]:
        """The kinds that failures show more often than passes do, more than chance allows."""
        shown: dict[tuple[str, str], Iterable[str]] = {}
        failed = Counter[str]()
        for prompt in every:
            for each in prompt.failed:
                self._learned[each.key] = self._shown(prompt, each)
                failed.update(self._learned[each.key].keys())
                shown[prompt.key, each.response.text] = self._learned[each.key].keys()
        if not any(prompt.passed for prompt in every):
            return failed.keys() - RIGHT  # there is nothing to compare with, and it speaks for itself
        if not failed:
            return set()
        numbers = {kind: 0 if kind in RIGHT else place for place, kind in enumerate(KINDS)}

        def of(prompt: Prompt, response: Response) -> np.ndarray:
            kinds = shown.get((prompt.key, response.text)) or self._kinds_of(prompt, response)
            return np.array(sorted({numbers[kind] for kind in kinds}), np.uint64)

        found = contrast.tested(*self._dealt({each.key: each for each in every}, of, of))
        signs = dict(zip(found.names.tolist(), found.signs.tolist(), strict=True))
        # With too few to test: kinds that half of the failures and no pass show.
        passes = sum(len(prompt.passed) for prompt in every)
        fails = sum(len(prompt.failed) for prompt in every)
        passing = set[str]().union(*self._passing.values())
        plain = {
            kind
            for kind, number in failed.items()
            if 2 * number >= fails and min(number, passes) >= contrast.FEWEST and kind not in passing
        }
        claimed = {kind for kind in KINDS if kind in plain or signs.get(numbers[kind]) == 1} - RIGHT
        right = sum(not RIGHT.isdisjoint(kinds) for kinds in self._passing.values())
        wrong = sum(not RIGHT.isdisjoint(self._learned[each.key]) for each in _failures(every))
        if (
            signs.get(0) == -1
            and 2 * right >= len(self._passing)
            and 2 * wrong * len(self._passing) <= right * fails
        ):
            claimed |= RIGHT & failed.keys()
        return claimed

    def _unexplained(self, prompt: Prompt) -> Prompt:
        """Without responses that show a claimed kind of level 1 or 2; right passes stay, as nearly all are
        right."""
        if not self._kinds:
            return prompt
        plain = self._kinds - INSIDE - RIGHT
        return replace(
            _without(prompt, {at for at, (kind, _) in self._plain(prompt).items() if kind not in INSIDE}),
            passed=[each for each in prompt.passed if plain.isdisjoint(self._kinds_of(prompt, each))],
        )

    # Level 3

    def _dealt(
        self,
        prompts: Mapping[str, Prompt],
        of: Callable[[Prompt, Response], np.ndarray],
        alone: Callable[[Prompt, Response], np.ndarray],
    ) -> tuple[list[Side], list[list[Side]]]:
        """The units among which labels are permuted: responses within each prompt, and prompts among their
        neighbours, where those that never passed count as failed.

        Args:
            prompts: By their keys.
            of: The features of a response.
            alone: Features that do not depend on the other responses to the prompt. A prompt that always
                passed has one response in the log, one that never passed has all: relative to them only
                failures could differ.
        """
        by_copies = any(
            not {each.text for each in prompt.passed}.isdisjoint(each.response.text for each in prompt.failed)
            for prompt in prompts.values()
        )
        within = [
            Side([of(prompt, each) for each in passed], [of(prompt, each) for each in failed])
            for prompt in prompts.values()
            for passed, failed in exchangeable(prompt, by_copies)
        ]
        between: list[list[Side]] = []
        for group in self._neighbours.groups:
            passed: list[tuple[Prompt, Sequence[Response]]] = []
            failed: list[tuple[Prompt, Sequence[Response]]] = []
            for whole in self._neighbours.prompts(group):
                prompt = prompts[whole.key]
                if prompt.passed:
                    passed.append((prompt, prompt.passed))
                elif prompt.failed and not whole.passed:
                    failed.append((prompt, [each.response for each in prompt.failed]))
            if passed and failed:
                # Equally many of each: a prompt with more responses shows more.
                drawn = min(DRAWN, *(len(responses) for _, responses in [*passed, *failed]))
                between.append(
                    [
                        Side(
                            [alone(prompt, responses[place]) for prompt, responses in passed],
                            [alone(prompt, responses[place]) for prompt, responses in failed],
                            borrowed=True,
                        )
                        for place in range(drawn)
                    ]
                )
        return within, between

    def _rows(
        self, failing: Sequence[Prompt], of: Callable[[Prompt, Response], np.ndarray], feedback: bool
    ) -> tuple[list[tuple[int, Signed]], list[str]]:
        rows: list[tuple[int, Signed]] = []
        keys: list[str] = []
        for place, prompt in enumerate(failing):
            side = self._side(prompt, of, feedback)
            if side is None:
                continue
            for failure, marks in zip(prompt.failed, self._marks(prompt, side, feedback), strict=True):
                rows.append((place, marks))
                keys.append(failure.key)
        return rows, keys

    def _changes_of(self, failing: Sequence[Prompt]) -> dict[str, int]:
        """The changes that failures show but pairs of passing responses do not, with their names as
        features: other variation is not a mistake."""
        failing = [prompt for prompt in failing if prompt.passed]
        if not failing:
            return {}
        failed, passed = Counter[str | None](), Counter[str | None]()
        for prompt in failing:
            failed.update(change(prompt, each.response) for each in prompt.failed[:COMPARED])
            if len(prompt.passed) > 1:
                passed.update(change(prompt, each) for each in prompt.passed[:COMPARED])
        share = HARMLESS * passed.total() / failed.total()
        return {
            kind: self._vocabulary.name(changed_name(kind))
            for kind, number in failed.items()
            if kind is not None and passed[kind] <= share * number
        }

    def _marks(self, prompt: Prompt, side: Side, feedback: bool) -> list[Signed]:
        """What sets each failure apart, and its change."""
        found = contrast.signed(side)
        if not self._changes or side.borrowed or feedback:
            return found
        changes = (self._changes.get(change(prompt, each.response) or "") for each in prompt.failed)
        return [
            (only if name is None else np.union1d(only, np.array([name], np.uint64)), lacks, every)
            for name, (only, lacks, every) in zip(changes, found, strict=True)
        ]

    def _side(
        self, prompt: Prompt, of: Callable[[Prompt, Response], np.ndarray], feedback: bool
    ) -> Side | None:
        passed = [of(prompt, each) for each in prompt.beside]
        if not (own := bool(passed)):
            for each in self._neighbours.near(prompt):
                if (feedback, each.key) not in self._borrowed:
                    self._borrowed[feedback, each.key] = of(each, each.passed[0])
                passed.append(self._borrowed[feedback, each.key])
        if not passed:
            return None
        return Side(passed, [of(prompt, each.response) for each in prompt.failed], borrowed=not own)

    def _held(self, prompt: Prompt, passed: Sequence[Said]) -> dict[str, int | None]:
        """The cause of each failure: the first of its group whose clause holds for it."""
        found: dict[str, int | None] = {}
        beside = passed or self._near(prompt)
        for each in self._passes:
            side = self._side(prompt, self._looked_at(each.feedback), each.feedback)
            if side is None:
                continue
            for failure, marks in zip(prompt.failed, self._marks(prompt, side, each.feedback), strict=True):
                number = each.groups.of(each.groups.row(marks))
                if number is None or found.get(failure.key) is not None:
                    continue
                said = Said(self._vocabulary, prompt, failure.response)
                holding = (clause for clause in each.clauses[number] if clause.holds(said, beside))
                found[failure.key] = next((self._numbers[clause] for clause in holding), None)
        return found

    def _near(self, prompt: Prompt) -> list[Said]:
        return [Said(self._vocabulary, each, each.passed[0]) for each in self._neighbours.near(prompt)]

    def _described(
        self,
        groups: Groups,
        failing: Sequence[Prompt],
        every: Sequence[Prompt],
        rows: Sequence[tuple[int, Signed]],
        keys: Sequence[str],
        known: Mapping[str, LocalCause],
    ) -> dict[int, list[Clause]]:
        """Adds the causes of each group: failures under clauses that hold for them.

        Returns the clauses of each.
        """
        led = {each for leaders in groups.leaders for each in leaders}
        names = {name: changed_name(kind) for kind, name in self._changes.items()}
        names |= self._named(
            failing, {name for each in led for name, _ in groups.bundles[each][:MAX_BUNDLE]} - names.keys()
        )
        of = {each.key: (prompt, each.response) for prompt in failing for each in prompt.failed}
        pairs = [of[key] for key in keys]
        counting = Counting(self._vocabulary, every, pairs, self._near)
        inside: dict[int, list[int]] = defaultdict(list)
        for place, (_, marks) in enumerate(rows):
            if (number := groups.of(groups.row(marks))) is not None:
                inside[number].append(place)
        named: dict[Clause, list[int]] = {}
        candidates: dict[Clause, list[Clause]] = {}
        parts: dict[int, list[Clause]] = {}
        for number, leaders in enumerate(groups.leaders):
            found = [
                (names[name], sign)
                for each in leaders
                for name, sign in groups.bundles[each][:MAX_BUNDLE]
                if name in names
            ]
            shown = list(self._clauses(found, [pairs[place][0] for place in inside[number]]))
            parts[number] = []
            for clause, members in counting.chosen(inside[number], shown):
                parts[number].append(clause)
                named.setdefault(clause, []).extend(members)  # the same words are one cause
                candidates.setdefault(clause, []).extend(shown)
        for clause, parted in _of_one_word(counting, named).items():
            named[clause] = sorted({place for each in parted for place in named.pop(each)})
            candidates[clause] = [one for each in parted for one in candidates[each]]
            parts = {
                at: list(dict.fromkeys(clause if each in parted else each for each in of))
                for at, of in parts.items()
            }
        taken = {cause.key for cause in self._causes}
        for clause, members in named.items():
            number = self._numbers[clause] = len(self._causes)
            for place in members:
                self._placed[keys[place]] = number
            same = self._same(
                counting, [known[keys[place]] for place in members if keys[place] in known], members
            )
            if same is None or same.key in taken:
                second = counting.second(clause, members, candidates[clause])
                clauses = [clause] if second is None else [clause, second]
                same = LocalCause(
                    "3:" + "\n".join(each.key for each in clauses),
                    level := 2 if clause.name in COMPUTED and clause.sign > 0 else 3,
                    "; ".join(
                        [
                            *(heading := _heading(clause, counting, members)),
                            counting.sentence(clauses, members),
                            *([] if heading else _said(clause, counting, members)),
                            *_fields(clause, counting, members),
                        ]
                    ),
                    SKILLS[level],
                )
            taken.add(same.key)
            self._causes.append(same)
        return parts

    def _same(
        self, counting: Counting, before: Sequence[LocalCause], members: Sequence[int]
    ) -> LocalCause | None:
        """The existing cause of most members, if its clauses hold for them."""
        counted = Counter(before)
        for cause, seen in counted.most_common(1):
            clauses = clauses_of(cause.key)
            if (
                2 * seen >= len(before)
                and clauses
                and all(counting.held(each)[list(members)].mean() >= TRUE for each in clauses)
            ):
                return cause
        return None

    def _clauses(self, found: Sequence[tuple[str, int]], prompts: Sequence[Prompt]) -> Iterator[Clause]:
        """For paraphrases, those used in passes of these prompts, most common first; for an unusual
        sentence, its word."""
        said = Counter[str]()
        if any(name.startswith(ONE) for name, _ in found):
            said.update(word for prompt in prompts for each in prompt.passed for word in set(each.words))
        for name, sign in found:
            if name.startswith(NEW):
                yield Clause(name.removeprefix(NEW), sign)
            elif name.startswith(ONE):
                words = sorted(name.removeprefix(ONE).split(", "), key=lambda word: (-said[word], word))
                used = [word for word in words if said[word]] or words
                name = ONE + ", ".join(used[:MAX_WORDS])
            yield Clause(name, sign)

    def _named(self, failing: Sequence[Prompt], wanted: set[int]) -> dict[int, str]:
        names: dict[int, str] = {}
        passed = ((prompt, prompt.passed[0]) for prompt in self._neighbours.passed())
        own = ((prompt, each) for prompt in failing for each in prompt.responses)
        for prompt, response in (*own, *passed):
            if len(names) == len(wanted):
                break
            there = self._features.get((prompt.key, response.text))
            left = wanted - names.keys()
            if there is None or not left.isdisjoint(there.tolist()):
                names.update(self._vocabulary.named(prompt, response, left))
        return names


def _of_one_word(counting: Counting, named: Mapping[Clause, Sequence[int]]) -> dict[Clause, list[Clause]]:
    """Names that begin alike, by what they begin with, where that alone is true of the failures of each:
    `having sum` and `having count` are one cause."""
    found: dict[Clause, list[Clause]] = defaultdict(list)
    for each in named:
        if each.name[0] != "§" and " " in each.name:
            found[Clause(each.name.split()[0], each.sign)].append(each)
    return {
        first: each
        for first, each in found.items()
        if len(each) > 1
        and first not in named
        and counting.tells(first)
        and counting.share(first) <= SELDOM
        and all(counting.held(first)[list(named[one])].mean() >= TRUE for one in each)
    }


def _pair(clause: Clause, prompt: Prompt, response: Response, passed: Sequence[Said]) -> AlignedPair | None:
    """Paired with the nearest pass that differs in what the clause says, from the prompt or similar
    ones; for a document without passes, with the reference."""
    about_reference = field_changes.is_change(clause.name) and not prompt.passed
    differ = [
        each
        for each in (() if about_reference else passed)
        if SIBLING in clause.name or each.has(clause.name) != (clause.sign > 0)
    ]
    sibling = nearest(response, [each.response for each in differ])
    if sibling is None:
        return None if prompt.reference is None else aligned(clause, prompt, response, prompt.reference)
    of = next(each.prompt for each in differ if each.response is sibling)
    return aligned(clause, prompt, response, sibling, None if prompt.passed else of)


def _heading(clause: Clause, counting: Counting, members: Sequence[int]) -> list[str]:
    """What most of the failures wrote and what passes have there, if these are consistent."""
    looked = members[:: -(-len(members) // HEADED)]
    counted = Counter[tuple[str, str, str]]()
    done = Counter[tuple[str, str]]()
    for place in looked:
        said = counting.failures[place]
        pair = _pair(clause, said.prompt, said.response, counting.passed(place))
        if pair is not None and pair.wrote.text and pair.should.text:
            counted[pair.wrote.text.lower(), pair.should.text.lower(), pair.whose] += 1
            if (both := operations(clause, pair)) is not None:
                done[both] += 1
    for (wrote, should, whose), number in counted.most_common(1):
        if 2 * number >= len(looked) and max(len(wrote), len(should)) <= SHOWN:
            return [f'wrote "{wrote}" where {whose} has "{should}" ({number:,} of {len(looked):,})']
    for (own, other), number in done.most_common(1):
        if 2 * number >= len(looked):
            return [f"{own} where a pass {other} ({number:,} of {len(looked):,})"]
    return []


def _said(clause: Clause, counting: Counting, members: Sequence[int]) -> list[str]:
    """A sentence with one of several words: from a failure, or from a pass if they are left out."""
    if not clause.name.startswith(ONE):
        return []
    words = clause.name.removeprefix(ONE).split(", ")
    patterns = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) for word in words]
    for place in members[:HEADED]:
        for each in [counting.failures[place]] if clause.sign > 0 else counting.beside(place):
            for _, line in each.response.steps:
                for text in SENTENCE.split(line):
                    there = [found.start() for pattern in patterns if (found := pattern.search(text))]
                    if there and len(text.split()) >= WORDS:
                        start = max(min(there) - SHOWN // 2, 0) if len(text) > SHOWN else 0
                        shown = _cut(("…" if start else "") + text[start:].strip())
                        return [f"{'as in' if clause.sign > 0 else 'a pass says'} “{shown}”"]
    return []


def _fields(clause: Clause, counting: Counting, members: Sequence[int]) -> list[str]:
    """For a kind of change anywhere, the fields in which most failures have it."""
    if not clause.name.startswith(f"§{field_changes.ANY}: "):
        return []
    paths = Counter[str]()
    for place in members[:: -(-len(members) // HEADED)]:
        said = counting.failures[place]
        of = said.response.fields, said.prompt.expected, said.prompt.question
        paths.update([] if (found := field_changes.pair(*of, clause.name)) is None else [found[0]])
    most = [path for path, _ in paths.most_common(FIELDS)]
    more = f" and {len(paths) - FIELDS} more" if len(paths) > FIELDS else ""
    return [f"in {', '.join(most)}{more}"] if most else []


def _evidence(
    clauses: Sequence[Clause],
    pair: AlignedPair | None,
    prompt: Prompt,
    response: Response,
    sibling: Response | None,
) -> Iterator[Evidence]:
    """For a field its value and the expected one; otherwise the pair; otherwise where the failure has what
    its cause names, or its sibling what it leaves out."""
    if pair is not None and not field_changes.is_change(clauses[0].name):
        yield Evidence(pair.wrote.line, in_words(pair, response))
        return
    for each in clauses:
        shown = phrase(each.name)
        found = field_changes.pair(response.fields, prompt.expected, prompt.question, each.name)
        if found is not None:
            path, wrote, expected = found
            place = place_of(path, wrote, response)
            whose = "most responses have" if prompt.reference is None else "the reference has"
            yield Evidence(
                None if place is None else place.line, f"{path}: {_cut(wrote)}; {whose}: {_cut(expected)}"
            )
        elif each.sign > 0:
            line, text = _where(each.name, response)
            yield Evidence(line, wording(each, borrowed=False) + (f": {_cut(text)}" if text else ""))
        else:
            _, text = _where(each.name, sibling) if sibling is not None else (None, "")
            yield Evidence(None, f"missing: {shown}" + (f"; passed has: {_cut(text)}" if text else ""))


def _ordered(prompts: Iterable[Prompt]) -> list[Prompt]:
    """An order independent of rows and of how a text begins; a sample if a prompt has many responses."""
    return sorted(
        (
            replace(
                each,
                passed=shuffled(each.passed, lambda response: response)[:BESIDE],
                failed=shuffled(each.failed, lambda failure: failure.response)[:LEARNED],
            )
            for each in prompts
        ),
        key=lambda each: (each.question, each.key),
    )


def _failures(prompts: Iterable[Prompt]) -> Iterable[Failure]:
    return (each for prompt in prompts for each in prompt.failed)


def _without(prompt: Prompt, plain: Container[int]) -> Prompt:
    failed: list[Failure] = [each for place, each in enumerate(prompt.failed) if place not in plain]
    return (
        prompt
        if len(failed) == len(prompt.failed)
        else Prompt(prompt.key, prompt.question, prompt.answer, prompt.passed, failed)
    )


def _where(name: str, response: Response) -> tuple[int | None, str]:
    """The line with most of these words."""
    part, name = part_of(name)
    words = set(name.removeprefix(ONE).replace(", ", " ").split() if name.startswith(ONE) else name.split())
    if name.startswith("§") and not name.startswith(ONE):
        return None, ""
    lines = response.thoughts if part else response.steps
    there = [len(words.intersection(TOKEN.findall(text.lower()))) for _, text in lines]
    return lines[there.index(max(there))] if any(there) else (None, "")


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
