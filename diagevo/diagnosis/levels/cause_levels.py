"""The four levels over a run: learned from a bounded sample of its prompts, then asked prompt by prompt.

Nothing is read or written here, no model is asked, and the same prompts give the same causes.

Long, but one file: one class learns the levels and asks them, and shares what it learned.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagevo.diagnosis.levels import contrast
from diagevo.diagnosis.levels.clustering import Groups, alike, grouped
from diagevo.diagnosis.levels.contrast import Side, Signed
from diagevo.diagnosis.levels.features import NEW, ONE, THOUGHT, Vocabulary
from diagevo.diagnosis.levels.field_changes import is_change, pair
from diagevo.diagnosis.levels.inputs import (
    BESIDE,
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
"""Prompts with a failure, and as many without, that are learned from; all failures get their causes."""
LEARNED = 200
"""Failures of a prompt that are learned from."""
SAME = 3
"""Failures, all of them one and the same response, from which they have a cause untested."""
DRAWN = 4
"""Responses of a prompt that are held against those of its neighbours."""
SHOWN = 80
MAX_BUNDLE = 40
"""Features that go together, of which the most legible is shown."""
MIN_WORD_LENGTH = 4
"""Letters from which a word says something by itself."""
MAX_VARIANTS = 4
"""Ways to say something that are shown."""
PASSED_NEAR = "responses that passed on prompts like these"
COMPUTED = (
    "§a given number not used",
    "§several given numbers not used",
    "§a number from nowhere",
)
SIBLING = "the nearest passing response"
RIGHT = {"equal", "form"}
"""Kinds of what is right: a cause where passes are right and failures are not, but for a few."""
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
        every = sorted([*failing, *passing], key=lambda each: each.key)
        self._habits = Habits([each for prompt in [*failing, *passing] for each in prompt.passed[:2]])
        self._learned: dict[str, Mapping[str, Evidence]] = {}
        self._passing: dict[tuple[str, str], frozenset[str]] = {}
        self._neighbours = Neighbours(every)
        self._kinds = self._claimed(every)
        self._vocabulary = Vocabulary([*failing, *passing])
        # What level 1 explains is left out on both sides: else passes would have what no failure has left.
        clean = {each.key: self._unexplained(each) for each in every}
        left = [each for each in (clean[each.key] for each in failing) if each.failed]
        self._changes = self._changes_of(left)
        self._features: dict[tuple[str, str], np.ndarray] = {}

        def of(prompt: Prompt, response: Response) -> np.ndarray:
            key = prompt.key, response.text
            if key not in self._features:
                self._features[key] = self._vocabulary.features(prompt, response)
            return self._features[key]

        self._borrowed: dict[str, np.ndarray] = {}
        found = contrast.tested(*self._dealt(clean, of))
        rows, keys = self._rows(left, of)
        self._groups: Groups | None = None
        weak, untested = self._vocabulary.counts(), frozenset(self._changes.values())
        if len(found.names):
            self._groups = grouped(found, rows, weak=weak, untested=untested)
        elif len(rows) >= SAME and len({each.response.own_text for each in _failures(left)}) == 1:
            self._groups = alike(rows, untested)
        self._placed: dict[str, _Place] = {}
        self._causes = self._described(left, rows, keys, known or {}) if self._groups is not None else []
        self._features.clear()

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
            sibling = nearest(failure.response, prompt.beside)
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
            return failed.keys() - RIGHT  # nothing can be held against it, and it speaks for itself
        if not failed:
            return set()
        numbers = {kind: 0 if kind in RIGHT else place for place, kind in enumerate(KINDS)}

        def of(prompt: Prompt, response: Response) -> np.ndarray:
            kinds = shown.get((prompt.key, response.text)) or self._kinds_of(prompt, response)
            return np.array(sorted({numbers[kind] for kind in kinds}), np.uint64)

        found = contrast.tested(*self._dealt({each.key: each for each in every}, of))
        signs = dict(zip(found.names.tolist(), found.signs.tolist(), strict=True))
        # Of a few, too few to test, what half of the failures show and no pass.
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
        """Without the responses that show a kind of level 1 or 2 that is claimed."""
        if not self._kinds:
            return prompt
        return replace(
            _without(prompt, self._plain(prompt)),
            passed=[each for each in prompt.passed if not self._kinds & self._kinds_of(prompt, each)],
        )

    # Level 3

    def _dealt(
        self, prompts: Mapping[str, Prompt], of: Callable[[Prompt, Response], np.ndarray]
    ) -> tuple[list[Side], list[list[Side]]]:
        """What labels are dealt among: responses within each prompt, and prompts among their neighbours, of
        which those that never passed failed. `of`: the features of a response."""
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
                # As many of each: a prompt with more responses shows more.
                drawn = min(DRAWN, *(len(responses) for _, responses in [*passed, *failed]))
                between.append(
                    [
                        Side(
                            [of(prompt, responses[place]) for prompt, responses in passed],
                            [of(prompt, responses[place]) for prompt, responses in failed],
                            borrowed=True,
                        )
                        for place in range(drawn)
                    ]
                )
        return within, between

    def _rows(
        self, failing: Sequence[Prompt], of: Callable[[Prompt, Response], np.ndarray]
    ) -> tuple[list[tuple[int, Signed]], list[str]]:
        rows: list[tuple[int, Signed]] = []
        keys: list[str] = []
        for place, prompt in enumerate(failing):
            side = self._side(prompt, of)
            if side is None:
                continue
            for failure, marks in zip(prompt.failed, self._marks(prompt, side), strict=True):
                rows.append((place, marks))
                keys.append(failure.key)
        return rows, keys

    def _changes_of(self, failing: Sequence[Prompt]) -> dict[str, int]:
        """The changes that failures show and passing responses beside each other do not, with their names as
        features: how else such responses vary is no mistake."""
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

    def _side(self, prompt: Prompt, of: Callable[[Prompt, Response], np.ndarray]) -> Side | None:
        passed = [of(prompt, each) for each in prompt.beside]
        if not (own := bool(passed)):
            for each in self._neighbours.near(prompt):
                if each.key not in self._borrowed:
                    self._borrowed[each.key] = of(each, each.passed[0])
                passed.append(self._borrowed[each.key])
        if not passed:
            return None
        return Side(passed, [of(prompt, each.response) for each in prompt.failed], borrowed=not own)

    def _held(self, groups: Groups, prompt: Prompt) -> dict[str, _Place]:
        side = self._side(prompt, self._vocabulary.features)
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
            failing, {name for each in led for name, _ in groups.bundles[each][:MAX_BUNDLE]}
        )
        for each in led:  # the one that a reader understands stands for those that go together
            groups.bundles[each].sort(key=lambda one: _legible(self._names.get(one[0], ""), one[1]))
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
                else self._cause(found, [of[key] for key in members[number]], taken)
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
        """Where such words lead, the unusual sentence with most of them."""
        names = [self._names.get(name, "") for name, sign in leaders if sign > 0]
        said = {name.removeprefix(NEW) for name in names if name.startswith(NEW)}
        new = [each for member in members for each in self._vocabulary.new(*member)] if said else []
        return max(new, key=lambda each: len(said.intersection(each[2])))[1] if new else ""

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

    def _cause(
        self, leaders: Sequence[tuple[int, int]], members: Sequence[tuple[Prompt, Response]], taken: set[str]
    ) -> LocalCause:
        """Its words from the features that lead it, with a sentence that says what hardly any other says."""
        first, example = leaders[0], self._example(leaders, members)
        name = self._names.get(first[0], "?")
        key = f"3:{'+' if first[1] > 0 else '-'}{name}"
        while key in taken:
            key += "'"
        level = 2 if name in COMPUTED and first[1] > 0 else 3
        shown = list(dict.fromkeys((self._names.get(name, "?"), sign) for name, sign in leaders))
        lacks = _apart(name for name, sign in shown if sign < 0)[:2]
        has = _apart(name for name, sign in shown if sign > 0 and not name.startswith(NEW))[:2]
        if example:
            has = [*has[:1], f"an unusual sentence: {_cut(example)}"]
        parts = [f"leaves out {' and '.join(lacks)}"] if lacks else []
        parts += [_having(has)] if has else []
        if first[1] > 0:
            parts.reverse()
        if len(parts) == 1 and not example and SIBLING not in parts[0]:
            borrowed = 2 * sum(not prompt.passed for prompt, _ in members) > len(members)
            parts = [f"{parts[0]}, unlike {PASSED_NEAR if borrowed else 'every passing response'}"]
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
            if (both := pair(response.fields, prompt.expected, prompt.question, words)) is not None:
                yield Evidence(
                    _line_of(both[0], response),
                    f"{_phrase(words)}: {_cut(both[0])}; expected: {_cut(both[1])}",
                )
            elif sign > 0:
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


def _ordered(prompts: Iterable[Prompt]) -> list[Prompt]:
    """So that causes hang neither on the order of rows nor on how a text begins; of a prompt with many
    responses some."""
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


def _without(prompt: Prompt, plain: Mapping[int, object]) -> Prompt:
    failed: list[Failure] = [each for place, each in enumerate(prompt.failed) if place not in plain]
    return (
        prompt
        if len(failed) == len(prompt.failed)
        else Prompt(prompt.key, prompt.question, prompt.answer, prompt.passed, failed)
    )


def _legible(name: str, sign: int) -> tuple[int, int, tuple[bool, int], str]:
    """Before others a property in words, then the fewest words, then what has signs in it, then ways to
    say something, then what is a shape or a fragment."""
    words = name.split()
    signs = sum(not word[0].isalnum() for word in words if word[0] != "§")
    shape = any(part in name for part in (" → ", " like ", " new number", " lines"))
    kind = (
        4
        if not name or shape
        else -sign * 5  # that a change is missing says that passes have it: no name
        if is_change(name) and not name.startswith((THOUGHT, ONE, NEW))
        else 3
        if name.startswith((ONE, NEW))
        else 0
        if name[0] == "§"
        else 1
        if not signs
        else 2
    )
    return kind, signs, (len(name) < MIN_WORD_LENGTH, len(words)), name


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
        verb = "" if ": " in each else "uses" if each.startswith("another operation") else "has"
        text += (" and " if text else "") + (each if verb in ("", before) else f"{verb} {each}")
        before = verb
    return text


def _phrase(name: str) -> str:
    """A feature as a reader sees it: `left join`, a subtraction."""
    if name.startswith(ONE):
        return "any of " + ", ".join(
            f"`{word}`" for word in name.removeprefix(ONE).split(", ")[:MAX_VARIANTS]
        )
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


def _line_of(value: str, response: Response) -> int | None:
    """The first own line in which a value of a document stands."""
    return next((line for line, text in response.own if value and value in text), None)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
