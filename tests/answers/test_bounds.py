"""Reading and grading answers takes work in proportion to the text, whatever a model wrote.

Work is counted, never timed: lines of Python by a trace, steps of regular expressions by `backtracking`.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from types import FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diagevo.answers import comparison, forms, notation, quantities, reading, terms, votes
from diagevo.answers import extraction as answers
from diagevo.arithmetic import grammar
from diagevo.diagnosis import prompts, replies
from diagevo.evaluation import answer_scoring as of_benchmarks
from diagevo.selfplay import questions
from tests.answers.backtracking import Steps, TooManySteps, steps

GRADING: list[ModuleType] = [
    answers, comparison, forms, notation, quantities, reading, terms, votes, of_benchmarks,
]  # fmt: skip
LETTERS = "ABCDI"
WINDOWED = [answers._choice_patterns(LETTERS)[i] for i in (0, 2)]
"""Patterns that look a hundred characters ahead at each place: linear from some hundred characters on."""
OF_UNITS = [quantities._TAIL, quantities._ATOM, reading._DOMAIN]
"""Patterns that are given `MAX_UNIT` characters at most, or the last `MAX_DOMAIN`."""

_BRACKETS = r"""
( ) [ ] { } \{ \} \left( \right) | $ $$ \( \) \[ \] ** " < > \lbrace \rbrace
"""
_COMMANDS = r"""
\frac \frac{ 1\frac{ }{2} \frac12 \binom \sqrt \sqrt[ \log \log_ \pi \infty \pm \mp \cup \in \ne \cdot \times
\boxed \boxed{ \begin{pmatrix} \end{pmatrix} \begin{array}{c} \overline{ \bar \vec{ \hspace{ \phantom{ \angle
\circ ^\circ \! \, \$ \% \\ \ \dots \pmod{ \choose \dot{ \in\mathbb{Z} \' \fbox{ \fbox
"""
_SIGNS = "12 1,234 0.1 x= x_1 x^2_1 1:2 e5 5-7 0x1F 0.(3) ... v1.2 2023-01-05 5' <question> </question>"
_WORDS = """
and|or|not |the |final |answer|answer is|solution|option |it's |about |cm|cm^2|per |square |apples |5th|st
million|percent|p.m.|dozen|to |mod |remainder |USD |January |Bob|a'bb|A or |(A) |abs(|alpha|inf|#### |**5**
 times |for all n|the minimum is |es |no """
BRACKETS = _BRACKETS.split()
COMMANDS = sorted(
    {f"\\{name}" for name in (*notation._ALIASES, *notation._DROPPED, *terms._GREEK, *terms._CALLS)}
    | {f"\\{name}{{" for name in re.findall(r"[a-z]+", notation._TEXT.pattern) if len(name) > 3}
    | set(_COMMANDS.split())
)
SIGNS = [*" \t\n\r\u00a0~&,;:.=+-*/^_!%#'’°½²√−0159xABI⁻₁€‰⅞éμ３", *_SIGNS.split(), "  ", "\\ ", "1 234"]
WORDS = _WORDS.split("|")
PIECES = [*BRACKETS, *COMMANDS, *SIGNS, *WORDS]

piece = st.sampled_from(PIECES)
run = st.builds("".join, st.lists(piece, min_size=1, max_size=3))
few = st.builds("".join, st.lists(piece, max_size=3))
_HOSTILE = r"""
1._.x 1.&.1 .\. answer._. answer:._.x (.(.1 .{.} .1\frac{.}{2} .1.x 5._a.! x._cm__./ .\(. ^._.x .x\in_.1
5^.(.x .A_.cat a^.{.} .1_234_.1,1
"""
HOSTILE = [
    *(tuple(case.replace("_", " ").split(".")) for case in _HOSTILE.split()),
    ("", "\n", ""),
    ("", "1\n", ""),
    ("\\boxed{", ".", "}"),
]
"""What made a pattern slow, as its start, what is repeated, and its end."""


class TooManyLines(Exception):
    """The limit of lines is reached."""


def lines(work: Callable[[], Any], limit: int = 2_000_000) -> int:
    """Lines of this program that `work` runs. Raises TooManyLines above the limit."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count > limit:
                raise TooManyLines
        return trace

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return trace if "diagevo" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def fresh() -> None:
    for cached in (notation.normalise, comparison._spelling, reading.stated, reading.readings, terms.parse):
        cached.cache_clear()


@cache
def patterns() -> dict[str, tuple[re.Pattern[str], bool]]:
    """Every regular expression that a model's text meets, by name, and whether it is tried at every place."""
    found: dict[str, tuple[re.Pattern[str], bool]] = {}
    for module in (*GRADING, replies, prompts, questions, grammar):
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                everywhere = re.search(rf"\b{name}\.(sub|search|split|findall|finditer)\(", source)
                found[f"{module.__name__}.{name}"] = value, everywhere is not None
    found |= {f"choice {i}": (one, True) for i, one in enumerate(answers._choice_patterns(LETTERS))}
    found |= {"in a box": (answers._in_box(LETTERS), False), "another": (answers._another(LETTERS), False)}
    found |= {f"family {i}": (one, False) for i, (_, one, _) in enumerate(grammar._PATTERNS[:3])}
    return {name: kind for name, kind in found.items() if kind[0] not in WINDOWED + OF_UNITS}


def repeated(start: str, unit: str, end: str, length: int) -> str:
    return start + unit * -(-length // len(unit)) + end


def superlinear(
    found: dict[str, tuple[re.Pattern[str], bool]], case: tuple[str, ...], length: int
) -> list[str]:
    """Patterns whose steps grow faster than a text that is three times as long."""
    start, unit, end = case
    short, long = repeated(start, unit, end, length), repeated(start, unit, end, 3 * length)
    names = []
    for name, (pattern, everywhere) in found.items():
        limit = 4 * steps(pattern, short, everywhere) + 300
        try:
            steps(pattern, long, everywhere, limit)
        except TooManySteps:
            names.append(name)
    return names


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\s*\{", " " * 50),
        (r"(?:a|aa)+$", "a" * 12 + "b"),
        (r"a*?b*+(c)\1(?=d)", "aabccd"),
        (r"(?<!a)b|\bc", "abbc c"),
    ],
)
def test_the_counter_finds_what_the_library_finds(pattern, text):
    assert Steps(re.compile(pattern), text, 10**6).search() == [
        match.span() for match in re.finditer(pattern, text)
    ]


def test_the_counter_tells_linear_from_quadratic():
    """50 and 150 spaces: a start at each space looks at all that follow, 150²/2 and more."""
    spaces = {"quadratic": (re.compile(r"\s*\{"), True), "linear": (re.compile(r"(?<!\s)\s*+\{"), True)}
    assert superlinear(spaces, ("", " ", ""), 50) == ["quadratic"]


@pytest.mark.parametrize("case", HOSTILE)
def test_no_pattern_is_superlinear_in_what_broke_one(case):
    assert superlinear(patterns(), case, 50) == []


@settings(max_examples=settings().max_examples // 20)
@given(few, run, few)
def test_no_pattern_is_superlinear_in_any_repetition(start, unit, end):
    assert superlinear(patterns(), (start, unit, end), 50) == []


@pytest.mark.parametrize("unit", ["answer ", "final answer", " ", "A", "answer A "])
def test_no_window_of_a_choice_is_superlinear(unit):
    assert superlinear({p.pattern: (p, True) for p in WINDOWED}, ("", unit, ""), 500) == []


@pytest.mark.parametrize("module", GRADING, ids=lambda module: module.__name__)
def test_every_pattern_of_grading_is_compiled_where_it_is_counted(module):
    called = [
        node.func.attr
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
    ]
    assert set(called) <= {"compile", "escape"}


SEARCHES: list[Callable[[str], Any]] = [
    answers.boxed_answer,
    lambda text: answers.extract_choice(text, LETTERS),
    of_benchmarks.plain_text,
    questions.parse_question,
    notation.strip_wrappers,
    notation.nesting,
    grammar.parse,
    grammar.read_steps,
    replies.read_merge,
]


@settings(max_examples=settings().max_examples // 5)
@given(few, run, few)
@example("", "\\boxed{", "}")
@example("", "{", "}")
@example("", "not A ", "")
@example("", '{"', "")
def test_a_search_of_a_whole_response_takes_lines_in_proportion(start, unit, end):
    for search in SEARCHES:
        short, long = repeated(start, unit, end, 200), repeated(start, unit, end, 600)
        assert lines(partial(search, long)) <= 4 * lines(partial(search, short)) + 400


BOUND = 40 * reading.MAX_WORK
"""Lines that the reading and the comparison of two answers run at most: forty a character looked at."""


def decided(a: str, b: str) -> int:
    fresh()
    return lines(lambda: comparison.decide(a, b), BOUND)


@settings(max_examples=settings().max_examples // 5)
@given(few, run, few, st.integers(1, 1000), run)
def test_any_repetition_is_decided_within_the_bound(start, unit, end, length, other):
    a = repeated(start, unit, end, length)
    decided(a, repeated("", other, "", length))
    decided(a, f"{a} 1")


_NESTED = r"""
(…) […] {…} \{…\} |…| \left(…\right) (x=…) \{1,…\} (1,…) 1\frac{…}{2} \frac{1}{…} \sqrt{…} \sqrt[3]{…} x^{…}
\sin(…) \log_{…}2 \text{…} \boxed{…} \{x=…\} x\in\{…\} (1\cup(…)) \binom{3}{…} -(…) \sin… \overline{…} $…$ "…"
**…** …! \begin{pmatrix}…\end{pmatrix}
"""
NESTED = [tuple(pair.split("…")) for pair in _NESTED.split()]


@pytest.mark.parametrize(("opening", "closing"), NESTED)
@pytest.mark.parametrize("depth", [24, 60, 200])
def test_nesting_of_any_kind_is_decided_within_the_bound(opening, closing, depth):
    a, b = (f"{opening * depth}{inside}{closing * depth}" for inside in ("1", "2"))
    decided(a, b)
    decided(a, f"{'(1,' * depth}2{')' * depth}")


@pytest.mark.parametrize("depth", [6, 12, 24, 48])
def test_parentheses_are_read_once_a_level(depth):
    """24 of them took 278 seconds when each level read what it holds twice."""
    reader = reading._Reader()
    assert reader.read("(" * depth + "1" + ")" * depth) == reading.Scalar("1", "1")
    # The pieces have 2·depth + 1, …, 3, 1 characters, (depth + 1)² in all, and each read counts 20 more.
    assert reading.MAX_WORK - reader.left == (depth + 1) ** 2 + 20 * (depth + 1)


@pytest.mark.parametrize("depth", [8, 16, 32])
def test_a_mixed_number_is_looked_at_before_it_is_read(depth):
    text = "1\\frac{" * depth + "1" + "}{2}" * depth
    assert lines(lambda: terms.parse.brief.__wrapped__(text)) <= 120 * len(text)


def test_mixed_numbers_are_what_they_were():
    texts = ["2\\frac{1}{2}", "2\\frac12", "2\\frac{3}{2}", "2\\frac{1}{2}^2"]
    read = [terms.parse(notation.normalise(text)) for text in texts]
    assert [term and terms.exact(term) for term in read] == [2.5, 2.5, 3, 0.5]


def test_a_set_and_a_tuple_are_compared_once_a_pair():
    """Forty levels of `{1, …}` against `(1, …)`: each level compared what it holds twice and more."""
    a, b = "\\{1," * 40 + "2" + "\\}" * 40, "(1," * 40 + "3" + ")" * 40
    fresh()
    for text in (a, b):
        reading.readings(text)
    assert lines(lambda: comparison.decide(a, b), BOUND) <= 50 * 40 * 40


def test_a_reader_that_reads_twice_is_stopped(monkeypatch):
    """The bound does not depend on the rules being right: here each level reads what it holds twice again."""
    once = reading._Reader._parts

    def twice(self, text):
        once(self, text)
        return once(self, text)

    monkeypatch.setattr(reading._Reader, "_parts", twice)
    text = "(" * 40 + "1" + ")" * 40
    fresh()
    assert lines(lambda: reading.readings(text), BOUND) <= BOUND
    assert reading.readings(text) == (reading.Opaque(text),)
    fresh()


def test_lists_that_cost_too_much_to_compare_are_left_to_the_worker():
    a = ",".join(f"\\sin(x+{i})+{'x+' * 8}1" for i in range(33))
    b = ",".join(f"\\cos(y+{i})+{'y+' * 8}1" for i in range(33))
    assert comparison.decide(a, b) is None
    assert comparison.decide(a.partition(",")[0], b.partition(",")[0]) is False


def test_closed_brackets_do_not_hide_open_ones():
    assert notation.nesting(")))((1))") == 2
    assert notation.nesting("(()())") == 2
    assert reading.readings(")" * 100 + "\\cup" + "(" * 100 + "1" + ")" * 100)[0] == reading.Opaque(
        ")" * 100 + "\\cup" + "(" * 100 + "1" + ")" * 100
    )


def test_a_value_of_many_digits_is_no_value():
    """3^900 · 5^900 · … · 31^900 has 900 · log₂(3 · 5 · … · 31), more than 50,000 bits."""
    product = "*".join(f"{base}^{{900}}" for base in range(3, 33, 2))
    term = terms.parse(product)
    assert term is not None
    assert terms.exact(term) is None


def test_a_double_factorial_is_no_factorial_of_a_factorial():
    assert comparison.decide("5!!", "15") is True  # 5 · 3 · 1
    assert comparison.decide("6!!", "48") is True  # 6 · 4 · 2
    assert comparison.decide("3!!", "720") is False
    assert terms.parse("3!!!") is None


def test_a_number_that_python_refuses_to_read_is_no_step():
    assert grammar.read_steps("1+1=2;" + "9" * 5000 + "+1=2") == grammar.read_steps("1+1=2")


def test_a_reply_of_broken_objects_is_given_up():
    """Each of 66,666 openings was tried, and each complaint counted the lines of the whole reply."""
    assert lines(lambda: replies.read_merge('{"\n' * 66_666)) <= 2_000
    late = '{"a ' * 20 + '{"merge": false, "merged_label": null}'
    assert replies.read_merge(late.replace('{"a ', "{'a ")).value is not None
