"""The printed description of a cause: clauses that hold for its failures, with counts.

A clause is checked against the texts: `has fetch` in the failure; `leaves out desc` in the failure and in
what most passing responses to its prompt have. A shape, on which hardly any reader could act, is not a
clause.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from diagevo.diagnosis.levels.contrast import ALPHA, FEWEST
from diagevo.diagnosis.levels.features import (
    COUNTS,
    FEEDBACK,
    NEW,
    ONE,
    THOUGHT,
    UNUSED,
    Vocabulary,
    feedback_words,
    part_of,
)
from diagevo.diagnosis.levels.field_changes import ANY, ANY_CALL, change_in_words, is_change
from diagevo.diagnosis.levels.inputs import Prompt, Response
from diagevo.diagnosis.levels.step_location import change

TRUE = 0.9
"""Minimum share of a cause's failures for which a printed clause holds."""
COMMON = 0.5
"""Share of responses from which a word is too common to name a cause."""
MIN_WORD_LENGTH = 4
"""Minimum letters of a common word whose absence is informative."""
MAX_WORDS = 6
"""Maximum words that name a cause together: paraphrases, or each in some of the failures."""
SELDOM = 0.05
"""Maximum share of passes with a word that is one of several naming a cause."""
USUAL = 0.2
"""A clause that a larger share of passes shows cannot name a cause."""
COVERED = 0.75
"""Share of a group's failures that two clauses must explain together to split it."""
LIFT = 0.1
"""Maximum rate in passes, relative to failures, of a clause that splits them."""
BESIDE = 0.1
"""Maximum share of passes that show a second clause."""
SIBLING = "the nearest passing response"
USUALLY = "most responses to the prompt"
_LIKE = " written like "
CLEAR = 0.1
"""The weight of legibility among clauses that hold for nearly all."""
OPERATORS = frozenset(("+", "*", "/", "%", "//", "**", "==", "!=", "<=", ">="))
"""Operator signs; others are punctuation."""


class Said:
    """One response to a prompt, or its reasoning, as seen by clauses."""

    def __init__(self, vocabulary: Vocabulary, prompt: Prompt, response: Response, part: str = "") -> None:
        self._vocabulary, self.prompt, self.response, self._part = vocabulary, prompt, response, part

    @cached_property
    def thought(self) -> "Said | None":
        thought = self.response.thought
        return None if thought is None else Said(self._vocabulary, self.prompt, thought, THOUGHT)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self.response.words)

    @cached_property
    def _text(self) -> str:
        return f" {' '.join(self.response.words)} "

    @cached_property
    def _properties(self) -> frozenset[str]:
        return frozenset(self._vocabulary.properties(self.prompt, self.response, self._part))

    @cached_property
    def _changed(self) -> str:
        kind = change(self.prompt, self.response)
        return "" if kind is None else changed_name(kind)

    @cached_property
    def feedback(self) -> str:
        return f" {' '.join(feedback_words(self.response.feedback, self.prompt.words))} "

    @cached_property
    def unusual(self) -> frozenset[str]:
        """Words of its sentences that hardly any other response has."""
        found = self._vocabulary.new(self.prompt, self.response)
        return frozenset(word for _, _, words in found for word in words if word[0].isalpha())

    def has(self, name: str) -> bool:
        part, name = part_of(name)
        if part:
            return self.thought is not None and self.thought.has(name)
        if name.startswith(ONE):
            return not self.words.isdisjoint(name.removeprefix(ONE).split(", "))
        if SIBLING in name:
            return name == self._changed
        if name.startswith(FEEDBACK):
            return f" {name.removeprefix(FEEDBACK)} " in self.feedback
        if name.startswith("§"):
            return name in self._properties
        return f" {name} " in self._text if " " in name else name in self.words


@dataclass(frozen=True, slots=True)
class Clause:
    """Has it (1), or leaves out what passes have (-1)."""

    name: str
    sign: int

    def holds(self, failed: Said, passed: Sequence[Said]) -> bool:
        """`passed`: responses to the same prompt, or to prompts near to it."""
        if self.sign > 0:
            return failed.has(self.name)
        return not failed.has(self.name) and 2 * sum(each.has(self.name) for each in passed) > len(passed)

    @property
    def key(self) -> str:
        return f"{'+' if self.sign > 0 else '-'}{self.name}"


def clauses_of(key: str) -> list[Clause]:
    """The clauses that identify a cause; none for a cause found otherwise."""
    _, known, rest = key.partition("3:")
    return [Clause(each[1:], 1 if each[0] == "+" else -1) for each in rest.split("\n")] if known else []


class Counting:
    """Which clauses hold for failures and passes of a run."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompts: Sequence[Prompt],
        failures: Sequence[tuple[Prompt, Response]],
        borrowed: Callable[[Prompt], Sequence[Said]],
    ) -> None:
        """`borrowed`: the passes of similar prompts, if it has at most one of its own."""
        self._passed = [[Said(vocabulary, prompt, each) for each in prompt.passed] for prompt in prompts]
        beside: dict[str, Sequence[Said]] = dict(
            zip((each.key for each in prompts), self._passed, strict=True)
        )
        beside |= {prompt.key: borrowed(prompt) for prompt in prompts if not prompt.passed and prompt.failed}
        near = 2 * sum(not prompt.passed for prompt, _ in failures) > len(failures)
        self._alone = [
            [each for each in borrowed(prompt) if each.prompt.key != prompt.key]
            if near and len(prompt.passed) == 1
            else ()
            for prompt in prompts
        ]
        self.failures = [Said(vocabulary, *each) for each in failures]
        self._beside = [beside[prompt.key] for prompt, _ in failures]
        places = {prompt.key: place for place, prompt in enumerate(prompts)}
        self._places = np.array([places[prompt.key] for prompt, _ in failures])
        self.passes = sum(map(len, self._passed))
        self._held: dict[Clause, np.ndarray] = {}
        self._shared: dict[Clause, int] = {}
        counted = Counter(
            part + word
            for said in self._every()
            for part, one in (("", said), (THOUGHT, said.thought))
            if one is not None
            for word in one.words
        )
        self._common = {word for word, n in counted.items() if n > COMMON * max(self._number, 1)}

    def _every(self) -> Iterator[Said]:
        yield from self.failures
        for group in self._passed:
            yield from group

    @property
    def _number(self) -> int:
        return len(self.failures) + self.passes

    def held(self, clause: Clause) -> np.ndarray:
        """(failures,): for which it holds."""
        if clause not in self._held:
            pairs = zip(self.failures, self._beside, strict=True)
            self._held[clause] = np.array([clause.holds(said, beside) for said, beside in pairs], bool)
        return self._held[clause]

    def passing(self, clause: Clause) -> int:
        """Passes for which it holds relative to the other passes of their prompt."""
        if clause not in self._shared:
            found = 0
            for group, beside in zip(self._passed, self._alone, strict=True):
                have = sum(said.has(clause.name) for said in group)
                if clause.sign > 0:
                    found += have
                elif len(group) == 1:
                    found += clause.holds(group[0], beside)
                elif 2 * have > len(group) - 1:
                    found += len(group) - have
            self._shared[clause] = found
        return self._shared[clause]

    def share(self, clause: Clause) -> float:
        return self.passing(clause) / max(self.passes, 1)

    def tells(self, clause: Clause) -> bool:
        """Whether it names something actionable, not a shape."""
        part, name = part_of(clause.name)
        if name.startswith(ONE):
            return True
        if name.startswith(FEEDBACK):
            return clause.sign > 0 and len(name) >= len(FEEDBACK) + MIN_WORD_LENGTH
        if name.startswith("§"):
            return tells(name, clause.sign)
        words = name.split()
        if any(word in "#•" for word in words):
            return False
        letters = [word for word in words if word[0].isalnum()]
        if not letters:
            return len(words) == 1 and name in OPERATORS
        if len(letters) < len(words) and not any(len(word) >= MIN_WORD_LENGTH for word in letters):
            return False
        own = [word for word in letters if part + word not in self._common]
        return bool(own) or (
            clause.sign < 0 and any(len(word) >= MIN_WORD_LENGTH or not word.isascii() for word in letters)
        )

    def legible(self, clause: Clause) -> float:
        return _legible(clause.name)

    def chosen(self, members: Sequence[int], candidates: Iterable[Clause]) -> list[tuple[Clause, list[int]]]:
        """The members by the clauses that hold for them; those without a clause are left out.

        One clause for all, or nearly all; two that exclude each other are two mistakes; otherwise the one
        that holds for most, and the rest separately.
        """
        every = list(dict.fromkeys(candidates))
        clauses = [each for each in every if self.tells(each) and self.share(each) < USUAL]
        unusual = any(each.name.startswith(NEW) for each in every)
        fewest = min(FEWEST, self._prompts(np.array(members)))
        found: list[tuple[Clause, list[int]]] = []
        waiting = [(np.array(members), clauses)]
        while waiting:
            rows, clauses = waiting.pop()
            if self._prompts(rows) < fewest:
                continue
            if parts := self._split(rows, clauses):
                # Each by a clause that does not hold for the others: otherwise they would be one cause again.
                waiting += [
                    (part, [each for each in clauses if self._parts(each, part, rows)]) for part in parts
                ]
                continue
            # On ties, the longer name before its own prefix.
            ranked = sorted(clauses, key=lambda each: (-self._worth(each, rows), f"{each.name}~"))
            true = [each for each in ranked if self._of(each, rows) >= TRUE]
            best = max(true, key=lambda each: self._worth(each, rows, CLEAR), default=None)
            if best is None:
                several = [*ranked[:1], *self._any_of(rows, clauses, unusual)]
                best = max(several, key=lambda each: self._worth(each, rows), default=None)
            if best is None or not (held := self.held(best)[rows]).any():
                continue
            if best.name.startswith(FEEDBACK):
                best = self._extended(best, rows[held])
                held = self.held(best)[rows]
            if self._prompts(rows[held]) >= fewest:
                found.append((best, rows[held].tolist()))
            if held.mean() < TRUE:
                waiting.append((rows[~held], clauses))
        return found

    def _extended(self, clause: Clause, rows: np.ndarray) -> Clause:
        """Extended by the adjacent words that the feedback on nearly all of these failures shares."""
        while True:
            run = clause.name.removeprefix(FEEDBACK)
            longer = Counter[str]()
            for place in rows.tolist():
                before, _, after = self.failures[place].feedback.partition(f" {run} ")
                near = [f"{word} {run}" for word in before.split()[-1:]]
                longer.update([*near, *(f"{run} {word}" for word in after.split()[:1])])
            known = (run for run, _ in longer.most_common() if "#" not in run and "•" not in run)
            wider = (Clause(FEEDBACK + run, 1) for run in known)
            found = next((each for each in wider if self._of(each, rows) >= TRUE), None)
            if found is None:
                return clause
            clause = found

    def _prompts(self, rows: np.ndarray) -> int:
        return len(set(self._places[rows].tolist()))

    def _of(self, clause: Clause, rows: np.ndarray) -> float:
        return float(self.held(clause)[rows].mean())

    def _parts(self, clause: Clause, part: np.ndarray, rows: np.ndarray) -> bool:
        """Whether it holds for a smaller share of the other rows than of this part."""
        others = np.setdiff1d(rows, part)
        return len(others) == 0 or self._of(clause, others) < COVERED * self._of(clause, part)

    def _worth(self, clause: Clause, rows: np.ndarray, clear: float = 0.04) -> float:
        """Failures that it explains, minus passes that show it, minus a penalty for poor legibility."""
        return self._of(clause, rows) - 2 * self.share(clause) - clear * self.legible(clause)

    def _split(self, rows: np.ndarray, clauses: Sequence[Clause]) -> list[np.ndarray]:
        """The failures of two clauses that passes hardly show and that co-occur more rarely than by chance,
        and those of neither; otherwise those with a distinctive call, and the others."""
        held = np.array([self.held(each)[rows] for each in clauses]).reshape(-1, len(rows))
        shares = np.array([self.share(each) for each in clauses])
        # What is added is worded in many ways, and two of them would be two mistakes; a change of a field is
        # one thing, unless passes show it as often.
        apart = [
            place
            for place, each in enumerate(clauses)
            if (each.sign < 0 and each.name[0] != "§")
            or (is_change(each.name) and shares[place] <= LIFT * held[place].mean())
        ]
        lacks, held = [clauses[place] for place in apart], held[apart]
        sizes, both = held.sum(axis=1), held.astype(int) @ held.T.astype(int)
        n, least = len(rows), max(FEWEST, 0.1 * len(rows))
        best: tuple[int, np.ndarray, np.ndarray] | None = None
        for one, other in combinations(range(len(lacks)), 2):
            if sizes[one] < sizes[other]:
                one, other = other, one
            a, b, shared = int(sizes[one]), int(sizes[other]), int(both[one, other])
            if (
                b < least
                or 3 * shared > b
                or a + b - shared < max(COVERED * n, 0 if best is None else best[0] + 1)
            ):
                continue
            if _fewer(n, a, b, shared) * len(lacks) ** 2 <= ALPHA:  # what shows both is of the rarer
                best = a + b - shared, held[one] & ~held[other], held[other]
        if best is not None:
            parts = rows[best[1]], rows[best[2]], rows[~(best[1] | best[2])]
            return [part for part in parts if len(part)]
        for each in clauses:
            if each.sign > 0 and each.name.startswith("§call of ") and self.passing(each) == 0:
                own = self.held(each)[rows]
                if min(own.sum(), (~own).sum()) >= max(FEWEST, 0.2 * n):
                    return [rows[own], rows[~own]]
        return []

    def _any_of(self, rows: np.ndarray, clauses: Sequence[Clause], unusual: bool) -> Iterator[Clause]:
        """Words that passes hardly have, of which most failures have at least one: of what is tested, and,
        where sentences are `unusual`, of those that hardly any other response has."""
        words = {each.name for each in clauses if each.sign > 0 and each.name.isalpha()}
        if unusual:
            counted = Counter(word for place in rows.tolist() for word in self.failures[place].unusual)
            words |= {word for word, number in counted.items() if number > 1 and word not in self._common}
        seldom = [each for each in (Clause(word, 1) for word in sorted(words)) if self.share(each) <= SELDOM]
        chosen: list[Clause] = []
        covered = np.zeros(len(rows), bool)
        while seldom and len(chosen) < MAX_WORDS:
            gains = [int((self.held(each)[rows] & ~covered).sum()) for each in seldom]
            most = max(range(len(seldom)), key=gains.__getitem__)
            if gains[most] < 2:
                break
            chosen.append(seldom[most])
            covered |= self.held(seldom[most])[rows]
        if chosen:
            yield chosen[0] if len(chosen) == 1 else Clause(ONE + ", ".join(each.name for each in chosen), 1)

    def second(self, first: Clause, rows: Sequence[int], candidates: Iterable[Clause]) -> Clause | None:
        """A second clause that holds for the same failures and adds information."""
        places = np.array(rows)
        words = _words(first.name)
        fitting = [
            each
            for each in dict.fromkeys(candidates)
            if self.tells(each)
            and not each.name.startswith(ONE)
            and self._of(each, places) >= TRUE
            and self.share(each) <= BESIDE
            and words.isdisjoint(_words(each.name))
        ]
        ranked = sorted(
            fitting, key=lambda each: (each.sign == first.sign, -self._worth(each, places), each.name)
        )
        return ranked[0] if ranked else None

    def beside(self, place: int) -> Sequence[Said]:
        """The passes that a failure is compared with, from its prompt or similar ones."""
        return self._beside[place]

    def passed(self, place: int) -> Sequence[Said]:
        """The passes of the prompt of a failure."""
        return self._beside[place] if self.failures[place].prompt.passed else ()

    def sentence(self, clauses: Sequence[Clause], rows: Sequence[int]) -> str:
        """The clauses, each with the failures and the passes for which it holds."""
        places = np.array(rows)
        borrowed = 2 * sum(not self.failures[each].prompt.passed for each in rows) > len(rows)
        told = "; ".join(
            f"{self._by_example(each, rows, wording(each, borrowed))}"
            f" ({int(self.held(each)[places].sum()):,} of {len(rows):,} failures,"
            f" {self.passing(each):,} of {self.passes:,} passes)"
            for each in clauses
        )
        return f"{told.removesuffix(')')} at diagnosis)"  # later counts are shown elsewhere

    def _by_example(self, clause: Clause, rows: Sequence[int], words: str) -> str:
        """The words with an example in place of a shape such as `9-9-9`."""
        _, like, shape = clause.name.rpartition(_LIKE)
        if not like:
            return words
        looked = [self.failures[place] for place in rows]
        if clause.sign < 0:
            looked = [each for place in rows for each in self._beside[place]]
        pattern = re.compile("".join("[0-9]+" if each == "9" else re.escape(each) for each in shape))
        for said in looked:
            if said.has(clause.name):
                found = (
                    each
                    for _, text in said.response.own
                    for each in re.findall(r"[0-9A-Za-z][0-9A-Za-z.,:/-]*[0-9A-Za-z]", text)
                    if pattern.fullmatch(each)
                )
                if (one := next(found, None)) is not None:
                    return words.replace(f"like {shape}", f"like {one}")
        return words


def tells(name: str, sign: int) -> bool:
    """Whether a property says more than the length or form of something. The absence of a change is not
    informative: passes lack it too."""
    if is_change(name):
        return sign > 0
    if name in UNUSED:
        return True
    if (name in COUNTS and "calls" not in name) or name.startswith(("§the number ", "§a step ", NEW)):
        return False
    if " written like " in name:
        shape = name.rpartition(" like ")[2]
        if sign < 0 and name.startswith("§a number ") and sum(not each.isalnum() for each in shape) < 2:
            return False  # any number that is not whole
        return not any(letter.isalpha() for letter in name.rpartition(" like ")[2])
    return sign > 0 or not (
        name.startswith("§ends ")
        or _LIKE_FIELD.fullmatch(name)
        or name.endswith((" not used", " from nowhere", " calls", " or more", SIBLING))
    )


def _legible(name: str) -> float:
    """How much a reader has to guess; nothing if a field is named."""
    part, name = part_of(name)
    if part:
        return 0.3 + _legible(name)
    if is_change(name):
        return -4 if name.startswith(f"§{ANY}: ") else -5
    if name.startswith(ONE):
        return 1.5
    if name in UNUSED:
        return 2.5
    if " → " in name or " like " in name or name.endswith("calls"):
        return 1.5
    if name.startswith(FEEDBACK):
        return 0.1 * (4 - len(name.removeprefix(FEEDBACK).split()))
    if name.startswith("§ends ") or name == "§a negative number at the end":
        return -0.5  # the mistake, not a word that accompanies it
    if name.startswith("§"):
        return 0.2 if name.startswith("§the field ") else 0.7
    words = name.split()
    signs = sum(not word[0].isalnum() for word in words)
    among = 0.7 if signs == len(words) else 2.0  # a fragment of a line that nobody would quote
    return 0.3 * (len(words) - 1) + among * signs + 0.5 * (len(name) < MIN_WORD_LENGTH and name.isascii())


def _words(name: str) -> set[str]:
    return set(re.sub("[§:,]", "", name.removeprefix(ONE)).split())


def _fewer(n: int, a: int, b: int, shared: int) -> float:
    """The probability that random sets of `a` and `b` out of `n` share this few (hypergeometric)."""
    ways = sum(math.comb(a, i) * math.comb(n - a, b - i) for i in range(shared + 1) if b - i <= n - a)
    return ways / math.comb(n, b)


def changed_name(kind: str) -> str:
    """A change as a feature: another operation than the nearest passing response's."""
    own, replaced, other = kind.partition(" in place of ")
    return f"§{own} where {SIBLING} has {other}" if replaced else f"§{kind} than {SIBLING}"


def phrase(name: str) -> str:
    """A feature in readable words: `left join`, a subtraction."""
    part, name = part_of(name)
    if part:
        return part[1:] + phrase(name)
    if name.startswith(ONE):
        words = ", ".join(f"`{word}`" for word in name.removeprefix(ONE).split(", "))
        return f"any of {words}"
    if not name.startswith("§"):
        return f"`{name}`"
    if is_change(name):
        return change_in_words(name)
    return _operands(name[1:])


def _operands(text: str) -> str:
    """`a given number and a given number` in readable words."""
    for one, plain in (
        ("a given number", "number{} of the prompt"),
        ("a result on the way", "earlier result{}"),
        ("a result", "earlier result{}"),
        ("a constant", "constant{}"),
    ):
        text = text.replace(f"{one} and {one}", f"two {plain.format('s')}")
        article = "an" if plain[0] == "e" else "a"
        text = text.replace(one, f"{article} {plain.format('')}")
    return text


def _argument(text: str) -> str:
    """`any call(priority)` in readable words."""
    return re.sub(rf"{re.escape(ANY_CALL)}\((.+?)\)", r"the argument `\1`", text)


_DONE = {
    "product": ("multipl{} {}", "by"),
    "sum": ("add{} {}", "and"),
    "subtraction": ("take{} the difference of {}", "and"),
    "division": ("take{} the quotient of {}", "and"),
}
_ALONE = {"product": "multipl{}", "sum": "add{}", "subtraction": "subtract{}", "division": "divide{}"}
_COMPUTED = re.compile(r"§a (product|sum|subtraction|division)(?: (of|with) (.+))?")


def _computation(name: str, has: bool) -> str | None:
    """`multiplies two numbers of the prompt`."""
    if (found := _COMPUTED.fullmatch(name)) is None:
        return None
    kind, of, with_what = found.groups()
    ending = ("ies" if has else "y") if kind == "product" else "s" if has else ""
    if of == "of":
        verb, between = _DONE[kind]
        text = _operands(with_what).replace(" and ", f" {between} ")
        words = verb.format(ending, text)
    else:
        by = "by" if kind in ("product", "division") else "with"
        words = _ALONE[kind].format(ending) + (f" {by} {with_what}" if of else "")
    return words if has else f"does not {words}"


_TURNS = {
    "words": ("says something", "say something"),
    "a call": ("calls a tool", "call a tool"),
    "a result of a call": ("gets the result of a call", "get the result of a call"),
    "a failed call": ("gets an error", "get an error"),
    "the user": ("is answered by the user", "be answered by the user"),
}


def _turns(name: str, has: bool) -> str | None:
    """`calls a tool, then gets an error`."""
    kinds = name[1:].split(" → ")
    if len(kinds) < 2 or not all(each in _TURNS for each in kinds):
        return None
    return ("" if has else "does not ") + ", then ".join(_TURNS[each][not has] for each in kinds)


_LIKE_FIELD = re.compile(
    r"§((?:any call\()?\S+) (is (?:a text|a number|in ).*|has (?:one element|no elements|an element twice))"
)
"""Properties of a field by itself."""
_WORDED = [
    (re.compile(pattern), has, lacks)
    for pattern, has, lacks in (
        (re.escape(FEEDBACK) + "(.+)", "its feedback says `{}`", ""),
        (r"§ends with a result on the way", f"ends with an earlier result of {USUALLY}", ""),
        (r"§ends one off", f"ends one off the number of {USUALLY}", ""),
        (r"§ends too large by the factor of (.+)", f"ends with the number of {USUALLY} times {{}}", ""),
        (r"§ends too small by the factor of (.+)", f"ends with the number of {USUALLY} divided by {{}}", ""),
        (r"§ends too large by (.+)", f"ends with the number of {USUALLY} plus {{}}", ""),
        (r"§ends too small by (.+)", f"ends with the number of {USUALLY} less {{}}", ""),
        (r"§ends (.+) (too large|too small)", f"ends {{}} {{}}, beside {USUALLY}", ""),
        (
            r"§a number that is not whole at the end",
            "ends with a number that is not whole",
            "does not end with a decimal number",
        ),
        (r"§words at the end", "ends with words", "does not end with words"),
        (r"§(.+) at the end", "ends with {}", "does not end with {}"),
        (
            r"§a given number not used",
            "leaves a number of the prompt unused",
            "uses every number of the prompt",
        ),
        (
            r"§several given numbers not used",
            "leaves several numbers of the prompt unused",
            "uses all but one number of the prompt",
        ),
        (
            r"§a number from nowhere",
            "has a number that comes neither from the prompt nor from its own steps",
            "",
        ),
        (
            rf"§the field {re.escape(ANY_CALL)}\((.+)\)",
            "passes an argument `{}` to a tool",
            "passes no argument `{}` to any tool",
        ),
        (r"§1 calls", "makes 1 call", ""),
        (r"§(\d calls(?: or more)?)", "makes {}", ""),
        (r"§call of (\S+?)\((.*)\)", "calls `{}` with ({})", "does not call `{}` with ({})"),
        (r"§call of (\S+)", "calls `{}`", "does not call `{}`"),
        (r"§(\S+) called twice or more", "calls `{}` twice or more", "does not call `{}` twice"),
        (r"§start then (\S+)", "begins by calling `{}`", "does not begin by calling `{}`"),
        (r"§(\S+) then end", "calls nothing after `{}`", "does not end with a call of `{}`"),
        (r"§(\S+) then (\S+)", "calls `{}` and then `{}`", "does not call `{}` and then `{}`"),
        (
            r"§an argument (\S+) written like (.+)",
            "writes the argument `{}` like {}",
            "does not write the argument `{}` like {}",
        ),
        (r"§a number written like (.+)", "writes a number like {}", "writes no number like {}"),
        (r"§(another operation .+)", "uses {}", ""),
        (r"§((?:any call\()?\S+) is (written like .+)", "has {} {}", "does not have {} {}"),
        (r"§((?:any call\()?\S+) = (.+)", "has {} = {}", "does not have {} = {}"),
        (_LIKE_FIELD.pattern, "{} {}", ""),
    )
]
"""Properties as sentences: if present, and if absent."""


def wording(clause: Clause, borrowed: bool) -> str:
    """`leaves out distinct, which passes have`."""
    part, name = part_of(clause.name)
    if part:
        return part[1:] + wording(Clause(name, clause.sign), borrowed)
    if is_change(name):
        return change_in_words(name)
    near = " on prompts like these" if borrowed else ""
    has = clause.sign > 0
    if (words := _computation(name, has) or _turns(name, has)) is not None:
        return words if has else f"{words}, which passes{near} do"
    for pattern, has, lacks in _WORDED:
        if (found := pattern.fullmatch(clause.name)) and (words := has if clause.sign > 0 else lacks):
            told = (_argument(_operands(each)) for each in found.groups())
            words = words.format(*told)
            also = "do not" if name in UNUSED else "do"
            return words if clause.sign > 0 else f"{words}, which passes{near} {also}"
    if clause.sign > 0:
        return f"has {phrase(clause.name)}"
    return f"leaves out {phrase(clause.name)}, which passes{near} have"
