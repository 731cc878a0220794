"""Structured output by field: how a response's document differs from the expected one, and its properties.

The expected one is the reference, if it is a document; otherwise what most responses to the prompt have at
each path. Labels are not used, so that a change alone separates nothing, and permuted labels change nothing.
Paths omit array indices: `items[].price`. Arguments of a tool are the fields of its calls:
`refund(amount)`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import islice
from typing import Any

from diagevo.diagnosis.levels.structured_output import DEEPEST, Document, read

ANY = "any field"
"""The path that stands for any field."""
ANY_CALL = "any call"
"""Stands for any tool's name, for an argument of several tools."""
LEFT_OUT = "nothing"
"""Stands for a missing value."""
MOST_PATHS = 400
"""Maximum features of one document."""
MATCHED = 40
"""Maximum elements per side paired by similarity; beyond that, by position."""
VOTERS = 32
"""Maximum responses of a prompt used to derive the expected document."""
SHORT, NAME = 24, 60
"""Maximum characters of a value that names a choice, and minimum of one searched for in the prompt."""
SENTENCE = 4
"""Blanks from which a value is also compared by its words."""
CALLS = "\0calls"
"""The field with the calls of a response that calls tools."""
_NUMBER = re.compile(r"[-+−]?\d[\d.,' \u00a0\u202f]*")
_MONTHS = {
    name: place
    for names in (
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "januar februar märz april mai juni juli august september oktober november dezember",
        "january february march april may june july august september october november december",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    )
    for place, name in enumerate(names.split(), start=1)
}
_DATE = re.compile(
    r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?:[T ].*)?"
    r"|(?P<a>\d{1,2})[-/.](?P<b>\d{1,2})[-/.](?P<y2>\d{4}|\d\d)"
    r"|(?P<d3>\d{1,2})(?:st|nd|rd|th|\.)?\s+(?:of\s+|de\s+)?(?P<n3>[^\W\d_]{3,10})\.?,?\s+(?:de\s+)?(?P<y3>\d{4})"
    r"|(?P<n4>[^\W\d_]{3,10})\.?\s+(?P<d4>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<y4>\d{4})",
    re.IGNORECASE,
)
_CHANGE = re.compile(r"§(?!in its reasoning: |its feedback says )(?:(?! = | written like ).)+: [^:]+")
_CALL = re.compile(r"^([^.\[(]+)\[\](?:\.(.*))?$")


def fields(found: Document | None, calls: Sequence[tuple[str, str]]) -> Any:
    """A response by field: its document, and the arguments of its calls by tool."""
    value = found.value if found is not None else None
    return _with_calls(value, [(name, _arguments(text)) for name, text in calls])


def texts(value: Any) -> Iterator[str]:
    """The values of a document that are sentences."""
    match value:
        case dict():
            for each in value.values():
                yield from texts(each)
        case list():
            for each in value:
                yield from texts(each)
        case str() if value.count(" ") >= SENTENCE:
            yield value


def expected(answer: str | None, documents: Iterable[Any]) -> Any:
    """The reference, if it is a document; otherwise what most responses have at each path.

    Args:
        answer: The reference.
        documents: The responses' documents, None if there is none.
    """
    if answer is not None and isinstance(found := read(answer.splitlines()), Document):
        return _called(found.value)
    there = [each for each in islice(documents, VOTERS) if each is not None]
    return _most(there) if len(there) > 2 else None


def reference(answer: str | None) -> str | None:
    """The answer, if it is a document."""
    return answer if answer is not None and isinstance(read(answer.splitlines()), Document) else None


def features(own: Any, other: Any, question: str) -> list[str]:
    """Properties of a document, alone and compared with the expected one: `§due: a date in another form`.

    Args:
        own: The response's.
        other: The expected one, or None.
        question: The text that values may be copied from.
    """
    if own is None:
        return [] if other is None else ["§no document that can be read"]
    found = dict.fromkeys(_alone(own, question.lower()))
    if other is not None:
        for path, kind, _, _ in changes(own, other, question):
            found[f"§{path}: {kind}"] = found[f"§{ANY}: {kind}"] = None
    return list(found)[:MOST_PATHS]


def is_change(name: str) -> bool:
    """Whether a feature is a difference from the expected document."""
    return _CHANGE.fullmatch(name) is not None


def pair(own: Any, other: Any, question: str, name: str) -> tuple[str, str, str] | None:
    """The path, the response's value there and the expected one, if it shows this feature."""
    if own is None or other is None:
        return None
    for path, kind, mine, theirs in changes(own, other, question):
        if name in (f"§{path}: {kind}", f"§{ANY}: {kind}"):
            return path, _written(mine), _written(theirs)
    return None


def change_of(name: str) -> tuple[str, str]:
    """The path of a change, and its kind."""
    path, _, kind = name.removeprefix("§").rpartition(": ")
    return path, kind


def change_in_words(name: str) -> str:
    """A change in readable words: `due: a date in another form`, `leaves out a field`."""
    path, kind = change_of(name)
    anywhere, there = _CHANGED.get(kind, (f"in some field: {kind}", f"{{}}: {kind}"))
    return anywhere if path == ANY else there.format(path)


_CHANGED: Mapping[str, tuple[str, str]] = {
    "left out": ("leaves out a field", "leaves out the field {}"),
    "a field that is not expected": (
        "has a field that is not expected",
        "has the field {}, which is not expected",
    ),
    "never called": ("does not call a tool that is expected", "does not call {}, which is expected"),
    "called too often": ("calls a tool more often than expected", "calls {} more often than expected"),
    "called too seldom": ("calls a tool less often than expected", "calls {} less often than expected"),
    "a tool that is not expected": ("calls a tool that is not expected", "calls {}, which is not expected"),
    "copied from elsewhere in the prompt": (
        "has in some field a value copied from elsewhere in the prompt",
        "{}: a value copied from elsewhere in the prompt",
    ),
    "not in the prompt": (
        "has in some field a value that is not in the prompt, where one that is was expected",
        "{}: a value that is not in the prompt, where one that is was expected",
    ),
}
"""Kinds of changes as sentences: in any field, and at a path."""


def changes(own: Any, other: Any, question: str) -> list[tuple[str, str, Any, Any]]:
    """Path, kind, own value and expected one of each change; the precise kind before the general one."""
    found = []
    for path, kinds, mine, theirs in _changes("", own, other, question.lower()):
        found += [(_shown(path), kind, mine, theirs) for kind in kinds]
        if len(found) > MOST_PATHS:
            break
    return found


class _Nothing:
    """The value of a missing field."""


NOTHING = _Nothing()
_Change = tuple[str, tuple[str, ...], Any, Any]


def _changes(path: str, own: Any, other: Any, question: str, depth: int = 0) -> Iterator[_Change]:
    if depth > DEEPEST:
        return
    if isinstance(own, dict) and isinstance(other, dict):
        for name, value in own.items():
            if name in other:
                yield from _changes(_inside(path, name), value, other[name], question, depth + 1)
            elif name == CALLS and not path:
                yield from _changes(name, value, {}, question, depth + 1)
            else:
                yield _inside(path, name), (_extra(path),), value, NOTHING
        for name, value in other.items():
            if name == CALLS and not path and name not in own:
                yield from _changes(name, {}, value, question, depth + 1)
            elif name not in own:
                yield _inside(path, name), (_lost(path),), NOTHING, value
    elif isinstance(own, list) and isinstance(other, list):
        yield from _of_lists(path, own, other, question, depth)
    elif _kind(own) != _kind(other):
        yield path, _other_type(own, other), own, other
    elif own != other:
        yield path, _other_value(own, other, question), own, other


def _of_lists(
    path: str, own: Sequence[Any], other: Sequence[Any], question: str, depth: int
) -> Iterator[_Change]:
    """The remaining elements after pairing equal ones, paired by similarity."""
    mine, theirs = list(map(_canonical, own)), list(map(_canonical, other))
    both = Counter(mine) & Counter(theirs)
    left: list[list[int]] = []
    for side in (mine, theirs):
        taken = both.copy()
        rest = []
        for place, text in enumerate(side):
            if taken[text] > 0:
                taken[text] -= 1
            else:
                rest.append(place)
        left.append(rest)
    if not left[0] and not left[1]:
        if mine != theirs:
            yield path, ("another order of the elements",), own, other
        return
    if len(own) > len(other):
        twice = len(set(mine)) < len(mine) and len(set(theirs)) == len(theirs)
        shown = own[left[0][0]] if len(left[0]) == 1 else own
        if _is_tool(path):
            yield path, ("called too often",), shown, NOTHING
        else:
            yield (
                f"{path}[]",
                (*(["an element twice"] if twice else []), "an element too many"),
                shown,
                NOTHING,
            )
    elif len(own) < len(other):
        shown = other[left[1][0]] if len(left[1]) == 1 else other
        where, kind = (path, "called too seldom") if _is_tool(path) else (f"{path}[]", "an element too few")
        yield where, (kind,), NOTHING, shown
    for one, second in _paired([own[place] for place in left[0]], [other[place] for place in left[1]]):
        yield from _changes(f"{path}[]", one, second, question, depth + 1)


def _paired(own: list[Any], other: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Objects by shared fields, most similar first; anything else in order."""
    objects = all(isinstance(each, dict) for each in (*own, *other))
    if not objects or max(len(own), len(other)) > MATCHED or len(own) == len(other) == 1:
        if len(own) == len(other) or objects:
            yield from zip(own, other, strict=False)
        return
    alike = [
        (-sum(other[b].get(name, NOTHING) == value for name, value in own[a].items()), a, b)
        for a in range(len(own))
        for b in range(len(other))
    ]
    used: tuple[set[int], set[int]] = set(), set()
    for _, a, b in sorted(alike):
        if a not in used[0] and b not in used[1]:
            used[0].add(a)
            used[1].add(b)
            yield own[a], other[b]


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "an array"
        case _:
            return "an object"


def _other_type(own: Any, other: Any) -> tuple[str, ...]:
    if own is None:
        return ("null in place of a value",)
    if other is None:
        return ("a value in place of null",)
    kind = f"{_kind(own)} in place of {_kind(other)}"
    text, value = (own, other) if isinstance(own, str) else (other, own)
    if isinstance(text, str) and isinstance(value, int | float) and not isinstance(value, bool):
        number = as_number(text)
        same = number is not None and float(value) in number[0]
        return (kind,) if same else (kind, "another number")
    return (kind,)


def _other_value(own: Any, other: Any, question: str) -> tuple[str, ...]:
    if isinstance(own, bool):
        return ("the other truth value",)
    if isinstance(own, str):
        text = _other_text(own, other)
        general = "another text"
    else:
        text = _other_number(float(own), float(other))
        general = "another number"
    if text is not None:
        return (text,)
    if _stands(own, question) and own not in (0, 1, ""):
        return "copied from elsewhere in the prompt", general
    if _stands(other, question):
        return "not in the prompt", general
    return (general,)


def _other_number(own: float, other: float) -> str | None:
    if own == -other:
        return "the other sign"
    if own and other:
        for factor in (10, 100, 1000):
            if abs(own / other / factor - 1) < 1e-9:
                return f"{factor} times too large"
            if abs(other / own / factor - 1) < 1e-9:
                return f"{factor} times too small"
    if abs(own - other) == 1:
        return "one too many" if own > other else "one too few"
    if abs(own - other) < 1 and own == round(own) != other:
        return "rounded"
    return None


def _other_text(own: str, other: str) -> str | None:
    """The precise kind, if there is one."""
    if own.casefold() == other.casefold():
        return "other letters in upper case"
    if not own.strip():
        return "an empty text"
    if (day := as_date(own)) and (right := as_date(other)):
        return "a date in another form" if not day.isdisjoint(right) else "another date"
    if (number := as_number(own)) and (right := as_number(other)):
        if not number[0].isdisjoint(right[0]):
            if number[1] == right[1]:
                return "a number written in another way"
            return "another unit" if number[1] and right[1] else "a unit more" if number[1] else "no unit"
        return None
    mine, theirs = (re.sub(r"[\W_]+", "", text.casefold()) for text in (own, other))
    if mine == theirs:
        return "other blanks or signs"
    if mine and theirs.startswith(mine):
        return "only its beginning"
    if mine and mine in theirs:
        return "only a part of it"
    if theirs and theirs in mine:
        return "with more text"
    return None


@lru_cache(maxsize=20_000)
def as_date(text: str) -> frozenset[date]:
    """The days that a text may mean; 03/04/2026 may be two."""
    if len(text) > 40 or (found := _DATE.fullmatch(text.strip())) is None:
        return frozenset()
    of = found.groupdict()
    if of["y"]:
        tries = [(int(of["y"]), int(of["m"]), int(of["d"]))]
    elif of["y2"]:
        year = int(of["y2"]) + (2000 if len(of["y2"]) == 2 else 0)
        tries = [(year, int(of["a"]), int(of["b"])), (year, int(of["b"]), int(of["a"]))]
    else:
        name, day, year = (of["n3"], of["d3"], of["y3"]) if of["y3"] else (of["n4"], of["d4"], of["y4"])
        month = _MONTHS.get(name.lower())
        tries = [] if month is None else [(int(year), month, int(day))]
    days = set()
    for each in tries:
        try:
            days.add(date(*each))
        except ValueError:
            continue
    return frozenset(days)


@lru_cache(maxsize=20_000)
def as_number(text: str) -> tuple[frozenset[float], str] | None:
    """The numbers that a text may mean, with the text around them: 15.389 may be two."""
    found = _NUMBER.findall(text) if len(text) <= 40 else []
    if len(found) != 1:
        return None
    digits = re.sub(r"[' \u00a0\u202f]", "", found[0]).rstrip(".,").replace("−", "-")
    around = text.replace(found[0].strip(), "", 1).strip()
    values = set()
    for group, point in ((",", "."), (".", ",")):
        whole, _, rest = digits.partition(point)
        if (
            point in rest
            or group in rest
            or not re.fullmatch(rf"[-+]?\d+|[-+]?\d{{1,3}}(?:\{group}\d{{3}})+", whole)
        ):
            continue
        values.add(float(f"{whole.replace(group, '')}.{rest or 0}"))
    return (frozenset(values), around) if values and len(around) <= 12 else None


@lru_cache(maxsize=50_000)
def _stands(value: Any, question: str) -> bool:
    """Whether a value is in the lower-cased prompt, in any form."""
    if isinstance(value, int | float):
        return float(value) in _given(question)[0]
    text = value.strip().lower() if isinstance(value, str) else ""
    if not 0 < len(text) <= NAME:
        return False
    days, number = as_date(text), as_number(text)
    return (
        re.search(rf"(?<!\w){re.escape(text)}(?!\w)", question) is not None
        or not days.isdisjoint(_given(question)[1])
        or (number is not None and not number[1] and not number[0].isdisjoint(_given(question)[0]))
    )


@lru_cache(maxsize=100)
def _given(question: str) -> tuple[frozenset[float], frozenset[date]]:
    """The numbers and the days of a prompt."""
    numbers = (as_number(found) for found in _NUMBER.findall(question))
    days = (as_date(found.group()) for found in _DATE.finditer(question))
    return (
        frozenset(value for each in numbers if each is not None for value in each[0]),
        frozenset(day for each in days for day in each),
    )


def _alone(own: Any, question: str) -> Iterator[str]:
    """Properties of a document without a comparison."""
    rest: list[tuple[str, Any]] = [("", own)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict):
            rest += [(_inside(path, name), each) for name, each in reversed(value.items())]
        elif isinstance(value, list):
            rest += [(f"{path}[]", each) for each in reversed(value)]
        kinds = list(_like(value, question))
        if path not in ("", CALLS) and not _is_tool(path):
            yield f"§the field {_shown(path)}"
            if found := _CALL.match(path.removeprefix(f"{CALLS}.")) if path.startswith(CALLS) else None:
                yield f"§the field {ANY_CALL}({found[2]})"
                yield from (f"§{ANY_CALL}({found[2]}) {kind}" for kind in kinds)
        yield from (f"§{_shown(path)} {kind}" for kind in kinds)


def _like(value: Any, question: str) -> Iterator[str]:
    """Properties of a value."""
    match value:
        case dict():
            pass
        case list():
            yield from _of_list(value)
        case None | bool() | "":
            yield f"= {json.dumps(value)}"
        case str():
            value = " ".join(value.split())
            yield "is a text"
            if any(char.isdigit() for char in value) and len(value) <= SHORT:
                yield f"is written like {written_like(value)}"
            elif len(value) <= SHORT and len(value.split()) < 4 and not _stands(value, question):
                yield f"= {value}"
            if len(value) <= NAME and not _stands(value, question):
                yield "is a text that the prompt has not"
        case _:
            yield "is a number"
            if not _stands(value, question):
                yield "is a number that the prompt has not"


def _of_list(value: Sequence[Any]) -> Iterator[str]:
    if len(value) < 2:
        yield "has one element" if value else "has no elements"
        return
    texts = list(map(_canonical, value))
    if len(set(texts)) < len(texts):
        yield "has an element twice"
    ordered = sorted(texts)
    if len(value) > 2 and all(isinstance(each, str) for each in value) and ordered[0] != ordered[-1]:
        if texts == ordered:
            yield "is in ascending order"
        elif texts == ordered[::-1]:
            yield "is in descending order"


def _most(values: Sequence[Any]) -> Any:
    """The majority value at each path; if no two agree, the smallest one."""
    kinds = Counter(map(_kind, values))
    kind = min(kinds, key=lambda each: (-kinds[each], each))
    there = [each for each in values if _kind(each) == kind]
    if kind == "an object":
        names = Counter(name for each in there for name in each)
        return {
            name: _most([each[name] for each in there if name in each])
            for name, number in names.items()
            if 2 * number > len(values)
        }
    texts = Counter(map(_canonical, there))
    best = min(texts, key=lambda text: (-texts[text], text))
    whole = next(each for each in there if _canonical(each) == best)
    if kind != "an array" or 2 * texts[best] > len(there):
        return whole
    lengths = Counter(map(len, there))
    length = min(lengths, key=lambda each: (-lengths[each], each))
    same = [each for each in there if len(each) == length]
    return [_most([each[place] for each in same]) for place in range(length)]


def _inside(path: str, name: str) -> str:
    name = re.sub(r"\d+", "#", " ".join(name.split())) if len(name) <= 40 else "•"
    return f"{path}.{name}" if path else name


def _shown(path: str) -> str:
    """In readable form: the arguments of a tool's calls in parentheses."""
    if path.startswith(f"{CALLS}."):
        path = path.removeprefix(f"{CALLS}.")
        if found := _CALL.match(path):
            return f"{found[1]}({found[2] or ''})"
        return path
    return path or "the whole"


def _is_tool(path: str) -> bool:
    """Whether it is a tool's calls, or one of them."""
    name = path.removeprefix(f"{CALLS}.").removesuffix("[]")
    return path.startswith(f"{CALLS}.") and not set(name) & set(".[")


def _extra(path: str) -> str:
    return "a tool that is not expected" if path == CALLS else "a field that is not expected"


def _lost(path: str) -> str:
    return "never called" if path == CALLS else "left out"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _written(value: Any) -> str:
    if isinstance(value, _Nothing):
        return LEFT_OUT
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else _canonical(value)


def _arguments(text: str) -> Any:
    """The arguments of a call as written."""
    try:
        found = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _with_calls(value: Any, calls: Sequence[tuple[str, Any]]) -> Any:
    if not calls:
        return value
    by_name: dict[str, list[Any]] = {}
    for name, arguments in calls:
        by_name.setdefault(name, []).append(arguments)
    return (value if isinstance(value, dict) else {}) | {CALLS: by_name}


def _called(value: Any) -> Any:
    """A reference that consists of calls, in the form of a response's calls."""
    calls = value if isinstance(value, list) else [value]
    calls = [each.get("function", each) for each in calls if isinstance(each, dict)]
    calls = [each for each in calls if isinstance(each, dict) and isinstance(each.get("name"), str)]
    if not calls or not all("arguments" in each for each in calls):
        return value
    of = ((each["name"], each["arguments"]) for each in calls)
    return _with_calls(
        None, [(name, _arguments(given) if isinstance(given, str) else given) for name, given in of]
    )


def written_like(text: str) -> str:
    """Digits as 9 and letters as a, runs as one: 2025-09-13 is 9-9-9."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", text))[:12]
