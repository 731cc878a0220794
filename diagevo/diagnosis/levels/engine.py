"""The four levels over a run: learned from a bounded sample of its prompts, then asked prompt by prompt.

Nothing is read or written here, no model is asked, and the same prompts give the same causes.

Long, but one file: one class learns the levels and asks them, and shares what it learned.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagevo.diagnosis.levels import contrast
from diagevo.diagnosis.levels.contrast import Side, Signed
from diagevo.diagnosis.levels.features import NEW, ONE, Vocabulary
from diagevo.diagnosis.levels.groups import Groups, grouped, most
from diagevo.diagnosis.levels.located import Located, change, located, nearest
from diagevo.diagnosis.levels.material import TOKEN, Evidence, Failure, LocalCause, Prompt, Response
from diagevo.diagnosis.levels.plain import FALSE, KINDS, Habits

SAMPLED = 2_000
"""Prompts with a failure, and as many without, that are learned from; all failures get their causes."""
CHANCE = 0.02
"""Chance that a kind of level 1 is called a cause where labels say nothing."""
SMALL = 12
"""Prompts with failures below which no test can tell a pattern from chance."""
NEIGHBOURS = 5
"""Passing responses, to the questions nearest to it, that stand in for siblings where a prompt has none."""
SHOWN = 80
ALIKE = 40
"""Features that go together, of which the most legible is shown."""
SPOKEN = 4
"""Letters from which a word says something by itself."""
SAID = 4
"""Ways to say something that are shown."""
COMPUTED = (
    "§a given number not used",
    "§several given numbers not used",
    "§a number from nowhere",
)
SIBLING = "the nearest passing response"
COMPARED, HARMLESS = 4, 0.25
"""Responses a side of a prompt whose changes are compared; how often passes show one that tells something,
for once that failures do, at most."""
SKILLS = {
    1: "answering at all, in a form that can be read",
    2: "computing",
    3: "doing what every passing response does",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """What is known of one failure. `cause` is None where no pattern holds it."""

    cause: LocalCause | None
    evidence: tuple[Evidence, ...]
    located: Located | None


_Place = tuple[int, Signed] | None
"""The group of a failure, and the features of it that lead groups; None where it is in none."""


class Levels:
    """What a run's failures have in common. `of` says it of each failure of a prompt."""

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
            known: By the key of a failure the cause that it has already; a group that holds most of a cause's
                failures goes on under its name.
        """
        failing, passing = _ordered(failing), _ordered(passing)
        self._habits = Habits([each for prompt in [*failing, *passing] for each in prompt.passed[:2]])
        self._learned: dict[str, Mapping[str, Evidence]] = {}
        self._kinds = self._claimed(failing, passing)
        self._vocabulary = Vocabulary([*failing, *passing])
        self._pool = _Pool(self._vocabulary, [*passing, *(each for each in failing if each.passed)])
        left = [
            prompt for prompt in ((_without(each, self._plain(each))) for each in failing) if prompt.failed
        ]
        self._changes = self._changes_of(left)
        rows, keys, sides = self._rows(left)
        if sum(not side.harmless for side in sides) < SMALL:
            self._groups = most(
                [row for row, side in zip(rows, _each(sides), strict=False) if not side.borrowed]
            )
        else:
            found = contrast.tested(sides)
            self._groups = (
                grouped(
                    found, rows, weak=self._vocabulary.counts(), untested=frozenset(self._changes.values())
                )
                if len(found.names)
                else None
            )
        self._placed: dict[str, _Place] = {}
        self._causes = self._described(left, rows, keys, known or {}) if self._groups is not None else []

    @property
    def causes(self) -> list[LocalCause]:
        return self._causes

    def of(self, prompt: Prompt) -> list[Explained]:
        """By failure of the prompt, in order."""
        plain = self._plain(prompt)
        left = [each.key for place, each in enumerate(prompt.failed) if place not in plain]
        placed = {key: self._placed[key] for key in left if key in self._placed}
        if self._groups is not None and len(placed) < len(left):
            placed = self._held(self._groups, _without(prompt, plain))
        found: list[Explained] = []
        for place, failure in enumerate(prompt.failed):
            sibling = nearest(failure.response, prompt.passed)
            where = (
                None
                if place in plain and plain[place][0] in ("empty", "loop", "cut off")
                else located(prompt, failure.response, sibling)
            )
            if place in plain:
                kind, evidence = plain[place]
                level = 2 if kind == FALSE else 1
                found.append(
                    Explained(
                        LocalCause(f"{level}:{kind}", level, KINDS[kind], SKILLS[level]), (evidence,), where
                    )
                )
                continue
            cause, shown = None, ()
            if (held := placed.get(failure.key)) is not None:
                number, marks = held
                cause = self._causes[number]
                shown = tuple(self._evidence(number, prompt, failure.response, sibling, marks))
            found.append(Explained(cause, shown, where))
        return found

    # Level 1

    def _plain(self, prompt: Prompt) -> dict[int, tuple[str, Evidence]]:
        """By place of the failure the first kind of level 1 that it shows."""
        found: dict[int, tuple[str, Evidence]] = {}
        for place, failure in enumerate(prompt.failed):
            shown = self._shown(prompt, failure)
            kind = next((each for each in KINDS if each in self._kinds and each in shown), None)
            if kind is not None:
                found[place] = kind, shown[kind]
        return found

    def _shown(self, prompt: Prompt, failure: Failure) -> Mapping[str, Evidence]:
        """Each kind of level 1 or 2, with the first that shows it."""
        if (known := self._learned.get(failure.key)) is not None:
            return known
        return dict(reversed(list(self._habits.kinds(prompt, failure.response, failure.feedback))))

    def _claimed(self, failing: Sequence[Prompt], passing: Sequence[Prompt]) -> set[str]:
        """The kinds that failures show more often than passes do, more than chance allows."""
        failed, passed = Counter[str](), Counter[str]()
        fails = passes = 0
        for prompt in [*failing, *passing]:
            if prompt.failed:
                fails += 1
                for each in prompt.failed:
                    self._learned[each.key] = self._shown(prompt, each)
                failed.update({kind for each in prompt.failed for kind in self._learned[each.key]})
            if prompt.passed:
                passes += 1
                shown = [
                    {k for k, _ in self._habits.kinds(prompt, each)}
                    for each in prompt.passed[: contrast.MOST]
                ]
                passed.update({kind for each in shown for kind in each})
        claimed: set[str] = set()
        for kind, number in failed.items():
            if kind in ("equal", "form"):
                right = passed["equal"] + passed["form"]
                if right >= 0.5 * passes and (failed["equal"] + failed["form"]) / fails <= 0.5 * right / max(
                    passes, 1
                ):
                    claimed.add(kind)
                continue
            total = number + passed[kind]
            share = fails / (fails + passes) if passes else 0.5
            chance = float(contrast.tail(np.array([number]), np.array([total * share]), np.array([total]))[0])
            untested = fails < SMALL or not passes
            if (untested and not passed[kind]) or chance <= math.log(CHANCE / len(KINDS)):
                claimed.add(kind)
        return claimed

    # Level 3

    def _rows(self, failing: Sequence[Prompt]) -> tuple[list[tuple[int, Signed]], list[str], list[Side]]:
        rows: list[tuple[int, Signed]] = []
        keys: list[str] = []
        sides: list[Side] = []
        for place, prompt in enumerate(failing):
            side = self._side(prompt)
            if side is None:
                continue
            sides.append(side)
            for failure, marks in zip(prompt.failed, self._marks(prompt, side), strict=True):
                rows.append((place, marks))
                keys.append(failure.key)
        return rows, keys, [*sides, *self._pool.background(len(sides))]

    def _changes_of(self, failing: Sequence[Prompt]) -> dict[str, int]:
        """The changes that failures show and passing responses beside each other do not, with their names as
        features: how else such responses vary is no mistake."""
        failing = [prompt for prompt in failing if prompt.passed]
        if len(failing) < SMALL:
            return {}
        failed, passed = Counter[str | None](), Counter[str | None]()
        for prompt in failing:
            failed.update(change(prompt, each.response) for each in prompt.failed[:COMPARED])
            if len(prompt.passed) > 1:
                passed.update(change(prompt, each) for each in prompt.passed[:COMPARED])
        share = HARMLESS * passed.total() / failed.total()
        return {
            kind: self._vocabulary.name(_changed(kind))
            for kind, number in failed.items()
            if kind is not None and passed[kind] <= share * number
        }

    def _marks(self, prompt: Prompt, side: Side) -> list[Signed]:
        """What sets each failure apart, and how it was changed."""
        found = contrast.signed(side)
        if not self._changes or side.borrowed:
            return found
        changes = (self._changes.get(change(prompt, each.response) or "") for each in prompt.failed)
        return [
            (only if name is None else np.union1d(only, np.array([name], np.uint64)), lacks, every)
            for name, (only, lacks, every) in zip(changes, found, strict=True)
        ]

    def _side(self, prompt: Prompt) -> Side | None:
        own = [self._vocabulary.features(prompt, each) for each in prompt.passed]
        passed = own or self._pool.near(prompt)
        if not passed:
            return None
        failed = [self._vocabulary.features(prompt, each.response) for each in prompt.failed]
        return Side(passed, failed, borrowed=not own)

    def _held(self, groups: Groups, prompt: Prompt) -> dict[str, _Place]:
        side = self._side(prompt)
        marks = self._marks(prompt, side) if side is not None else []
        keys = [each.key for each in prompt.failed]
        return {key: _place(groups, each) for key, each in zip(keys, marks, strict=False)}

    def _described(
        self,
        failing: Sequence[Prompt],
        rows: Sequence[tuple[int, Signed]],
        keys: Sequence[str],
        known: Mapping[str, LocalCause],
    ) -> list[LocalCause]:
        """A cause a group; the words of its features are found again in the responses that have them."""
        groups = self._groups
        assert groups is not None
        led = {each for leaders in groups.leaders for each in leaders}
        self._names = {name: _changed(kind) for kind, name in self._changes.items()}
        self._names |= self._named(
            failing, {name for each in led for name, _ in groups.bundles[each][:ALIKE]}
        )
        for each in led:  # the one that a reader understands stands for those that go together
            groups.bundles[each].sort(key=lambda one: _legible(self._names.get(one[0], "")))
        members: dict[int, list[str]] = defaultdict(list)
        self._placed = {key: _place(groups, marks) for (_, marks), key in zip(rows, keys, strict=True)}
        for key, held in self._placed.items():
            if held is not None:
                members[held[0]].append(key)
        of = {each.key: (prompt, each.response) for prompt in failing for each in prompt.failed}
        causes: list[LocalCause] = []
        taken: set[str] = set()
        for number, leaders in enumerate(groups.leaders):
            before = Counter(known[key].key for key in members[number] if key in known)
            of_key = {known[key].key: known[key] for key in members[number] if key in known}
            same = next(
                (
                    key
                    for key, seen in before.most_common(1)
                    if key not in taken and 2 * seen >= sum(before.values())
                ),
                None,
            )
            found = [groups.bundles[each][0] for each in leaders]
            self._use([name for name, _ in found], [of[key][0] for key in members[number]])
            cause = (
                of_key[same]
                if same is not None
                else self._cause(found, self._example(found, [of[key] for key in members[number]]), taken)
            )
            taken.add(cause.key)
            causes.append(cause)
        return causes

    def _use(self, names: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Of ways to say the same those that passes of these prompts use, the commonest first."""
        said = Counter(word for prompt in prompts for each in prompt.passed for word in set(each.words))
        for name in names:
            if (known := self._names.get(name, "")).startswith(ONE):
                used = [word for word in known.removeprefix(ONE).split(", ") if said[word]]
                if used:
                    self._names[name] = ONE + ", ".join(sorted(used, key=lambda word: (-said[word], word)))

    def _example(self, leaders: Sequence[tuple[int, int]], members: Sequence[tuple[Prompt, Response]]) -> str:
        """Where such words lead, the sentence that says what no pass says with most of them."""
        names = [self._names.get(name, "") for name, sign in leaders if sign > 0]
        said = {name.removeprefix(NEW) for name in names if name.startswith(NEW)}
        new = [each for member in members for each in self._vocabulary.new(*member)] if said else []
        return max(new, key=lambda each: len(said.intersection(each[2])))[1] if new else ""

    def _named(self, failing: Sequence[Prompt], wanted: set[int]) -> dict[int, str]:
        names: dict[int, str] = {}
        for prompt in failing:
            for response in [*(each.response for each in prompt.failed), *prompt.passed]:
                if len(names) == len(wanted):
                    return names
                names.update(self._vocabulary.named(prompt, response, wanted - names.keys()))
        for prompt, response in self._pool.responses():
            if len(names) == len(wanted):
                break
            names.update(self._vocabulary.named(prompt, response, wanted - names.keys()))
        return names

    def _cause(self, leaders: Sequence[tuple[int, int]], example: str, taken: set[str]) -> LocalCause:
        """Its words from the features that lead it, with a sentence that says what no pass says."""
        first = leaders[0]
        name = self._names.get(first[0], "?")
        key = f"3:{'+' if first[1] > 0 else '-'}{name}"
        while key in taken:
            key += "'"
        level = 2 if name in COMPUTED and first[1] > 0 else 3
        shown = list(dict.fromkeys((self._names.get(name, "?"), sign) for name, sign in leaders))
        lacks = _apart(name for name, sign in shown if sign < 0)[:2]
        has = _apart(name for name, sign in shown if sign > 0 and not name.startswith(NEW))[:2]
        if example:
            has = [*has[:1], f"a sentence unlike any that passed: {_cut(example)}"]
        parts = [f"leaves out {' and '.join(lacks)}"] if lacks else []
        parts += [_having(has)] if has else []
        if first[1] > 0:
            parts.reverse()
        if len(parts) == 1 and not example and SIBLING not in parts[0]:
            parts = [f"{parts[0]}, unlike every passing response"]
        return LocalCause(key, level, "; ".join(parts), SKILLS[level])

    def _evidence(
        self,
        number: int,
        prompt: Prompt,
        response: Response,
        sibling: Response | None,
        marks: Signed,
    ) -> Iterable[Evidence]:
        """Where the failure has what only failures have, or its sibling what it lacks."""
        groups = self._groups
        assert groups is not None
        for bundle in groups.leaders[number]:
            name, sign = groups.bundles[bundle][0]
            if name not in marks[0 if sign > 0 else 1]:
                continue
            words = self._names.get(name, "?")
            if sign > 0:
                new = words.removeprefix(NEW)
                line, text = (
                    _where(words, response)
                    if new == words
                    else next(
                        (
                            (line, text)
                            for line, text, words in self._vocabulary.new(prompt, response)
                            if new in words
                        ),
                        (None, ""),
                    )
                )
                yield Evidence(
                    line, f"only in failures: {_phrase(words)}" + (f": {_cut(text)}" if text else "")
                )
            else:
                _, text = _where(words, sibling) if sibling is not None else (None, "")
                yield Evidence(
                    None, f"missing: {_phrase(words)}" + (f"; passed has: {_cut(text)}" if text else "")
                )


def _place(groups: Groups, marks: Signed) -> _Place:
    number = groups.of(groups.row(marks))
    if number is None:
        return None
    only, lacks, every = marks
    led = np.array([groups.bundles[each][0][0] for each in groups.leaders[number]], np.uint64)
    return number, (np.intersect1d(only, led), np.intersect1d(lacks, led), every[:0])


class _Pool:
    """Passing responses of the run, by the words of their questions: siblings of prompts that have none."""

    def __init__(self, vocabulary: Vocabulary, prompts: Sequence[Prompt]) -> None:
        self._vocabulary = vocabulary
        self._prompts = [prompt for prompt in prompts if prompt.passed][:SAMPLED]
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, prompt in enumerate(self._prompts):
            for word in prompt.words:
                self._places[word].append(place)
        self._features: dict[int, np.ndarray] = {}
        self.used = False

    def near(self, prompt: Prompt, without: int | None = None) -> list[np.ndarray]:
        """Features of the responses to the nearest questions."""
        if not self._prompts:
            return []
        self.used = True
        score = np.zeros(len(self._prompts))
        for word in sorted(prompt.words):  # a sum in another order differs in its last bit
            places = self._places.get(word, ())
            if places and len(places) < len(self._prompts):
                score[places] += math.log(len(self._prompts) / len(places))
        if without is not None:
            score[without] = -1.0
        best = np.argsort(-score, kind="stable")[:NEIGHBOURS]
        return [self._of(int(place)) for place in best if score[place] >= 0]

    def _of(self, place: int) -> np.ndarray:
        if place not in self._features:
            prompt = self._prompts[place]
            self._features[place] = self._vocabulary.features(prompt, prompt.passed[0])
        return self._features[place]

    def background(self, fails: int) -> list[Side]:
        """Each passing response beside those to the questions nearest to its own, as if it had failed."""
        if not self.used or not fails:
            return []
        return [
            Side(near, [self._of(place)], borrowed=True, harmless=True)
            for place, prompt in enumerate(self._prompts)
            if (near := self.near(prompt, place))
        ]

    def responses(self) -> Iterable[tuple[Prompt, Response]]:
        return ((prompt, prompt.passed[0]) for prompt in self._prompts)


def _ordered(prompts: Iterable[Prompt]) -> list[Prompt]:
    """By their texts, so that causes do not hang on the order of rows."""
    return sorted(
        (
            replace(
                each,
                passed=sorted(each.passed, key=lambda response: response.text),
                failed=sorted(each.failed, key=lambda failure: (failure.response.text, failure.key)),
            )
            for each in prompts
        ),
        key=lambda each: (each.question, each.key),
    )


def _each(sides: Iterable[Side]) -> Iterable[Side]:
    """The side of each failure."""
    return (side for side in sides for _ in side.failed)


def _without(prompt: Prompt, plain: Mapping[int, object]) -> Prompt:
    failed: list[Failure] = [each for place, each in enumerate(prompt.failed) if place not in plain]
    return (
        prompt
        if len(failed) == len(prompt.failed)
        else Prompt(prompt.key, prompt.question, prompt.answer, prompt.passed, failed)
    )


def _legible(name: str) -> tuple[int, int, tuple[bool, int], str]:
    """Before others a property in words, then the fewest words, then what has signs in it, then ways to
    say something, then what is a shape or a fragment."""
    words = name.split()
    signs = sum(not word[0].isalnum() for word in words if word[0] != "§")
    shape = any(part in name for part in (" → ", " like ", " new number", " lines"))
    kind = (
        4
        if not name or shape
        else 3
        if name.startswith((ONE, NEW))
        else 0
        if name[0] == "§"
        else 1
        if not signs
        else 2
    )
    return kind, signs, (len(name) < SPOKEN, len(words)), name


def _apart(names: Iterable[str]) -> list[str]:
    """As a reader sees them, without one whose words another has too."""
    kept: list[tuple[str, set[str]]] = []
    for name in names:
        words = set(name.removeprefix(ONE).replace(",", "").split())
        if not any(words <= other or other <= words for _, other in kept):
            kept.append((_phrase(name), words))
    return [phrase for phrase, _ in kept]


def _changed(kind: str) -> str:
    """A change as a feature: another operation than the nearest passing response."""
    own, replaced, other = kind.partition(" in place of ")
    return f"§{own} where {SIBLING} has {other}" if replaced else f"§{kind} than {SIBLING}"


def _having(properties: Sequence[str]) -> str:
    """Has a sum and uses another operation than …"""
    text, before = "", ""
    for each in properties:
        verb = "uses" if each.startswith("another operation") else "has"
        text += (" and " if text else "") + (each if verb == before else f"{verb} {each}")
        before = verb
    return text


def _phrase(name: str) -> str:
    """A feature as a reader sees it: `left join`, a subtraction."""
    if name.startswith(ONE):
        return "any of " + ", ".join(f"`{word}`" for word in name.removeprefix(ONE).split(", ")[:SAID])
    if name.startswith(NEW):
        return f"{NEW[1:]}`{name.removeprefix(NEW)}`"
    return name[1:] if name.startswith("§") else f"`{name.replace('#', 'N').replace('•', '…')}`"


def _where(name: str, response: Response) -> tuple[int | None, str]:
    """The line with most of these words."""
    words = set(name.removeprefix(ONE).replace(", ", " ").split() if name.startswith(ONE) else name.split())
    if name.startswith("§") and not name.startswith(ONE):
        return None, ""
    there = [len(words.intersection(TOKEN.findall(text.lower()))) for _, text in response.steps]
    return response.steps[there.index(max(there))] if any(there) else (None, "")


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
