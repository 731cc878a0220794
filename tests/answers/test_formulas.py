"""Formulas over names and operators, digits beside braces, and sentences: what differs by one thing differs.

Each formula is a tree here, with a value of its own; the two texts that are compared are written from it.
"""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diagevo.answers.comparison import decide
from diagevo.answers.equivalence import AnswerChecker
from tests.answers.answer_pairs import DIFFERENT_BY_A_NAME, SAME_BY_A_NAME


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker(workers=1) as shared:
        yield shared


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("3!", "6", True),
        (r"\frac{3}{0}", "3.21", False),  # no number, and no process is started to find out
        (r"\frac{3}{0}", r"\frac{3}{2}", False),
        ("(3/0, -13)", "(3/2, -13)", False),
        ("0^{-1}", "0", False),
        ("1/0", "2/0", None),
        ("n!", "n!+1", False),
        ("(3!)!", "720", None),  # nobody knows what a factorial of a factorial is where 3!! is another
        ("|x|", "|-x|", True),
        ("|3-5|", "2", True),
        ("x mod 7", "y mod 7", False),
        ("1.5 mod 7", "8.5 mod 7", False),
        ("-3 mod 7", "4 mod 7", True),
        (r"[1,2]\cup[3,4]", "[1,4]", False),
        (r"[1,2]\cup(2,4]", "[1,4]", True),
        (r"[1,2)\cup(2,4]", "[1,4]", False),
        ("nu + 1", "1 + nu", True),
        (r"\max(i,3)", "3", None),  # of complex numbers none is the largest
        ("3nu", "3", False),
        ("2^-1", "0.5", True),
        (r"(\{1,2\},3)", r"(\{2,1\},3)", True),
        ("x_1 + y", "y + x_1", True),
        ("x_{12} + y", "y + x_{12}", True),
    ],
)
def test_terms_are_decided_at_once(a, b, same):
    assert decide(a, b) is same
    assert decide(b, a) is same


@pytest.mark.parametrize(("a", "b"), SAME_BY_A_NAME)
def test_names_in_letters_are_the_mathematics_that_they_name(a, b, checker):
    assert checker.agree(a, b)
    assert checker.agree(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT_BY_A_NAME)
def test_no_operator_digit_or_word_is_lost(a, b, checker):
    assert not checker.agree(a, b)
    assert not checker.agree(b, a)


# Formulas

CALLS = {
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "arctan": math.atan, "sinh": math.sinh,
    "exp": math.exp, "cosh": math.cosh, "tanh": math.tanh, "abs": abs, "floor": math.floor, "ceil": math.ceil,
    "sqrt": lambda x: math.sqrt(abs(x)),
}  # fmt: skip
IN_LATEX = {
    "abs": "\\left|{}\\right|", "sqrt": "\\sqrt{{\\left|{}\\right|}}", "ceil": "\\lceil {} \\rceil",
    "floor": "\\left\\lfloor {} \\right\\rfloor",
}  # fmt: skip
NAMES = ["alpha", "beta", "gamma", "theta", "omega", "pi", "x", "y"]
POINTS = [
    {name: random.Random(f"{name} {n}").uniform(0.3, 2.6) for name in NAMES} | {"pi": math.pi}
    for n in range(4)
]

Tree = tuple
LEAVES = st.one_of(
    st.sampled_from(NAMES).map(lambda name: ("name", name)), st.integers(1, 9).map(lambda n: ("number", n))
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*/"), inner, inner),
        st.tuples(st.just("call"), st.sampled_from(sorted(CALLS)), inner),
        st.tuples(st.just("^"), inner, st.integers(2, 3)),
    ),
    max_leaves=5,
)


def value(tree: Tree, point: dict[str, float]) -> float:
    match tree:
        case ("name", name):
            return point[name]
        case ("number", number):
            return number
        case ("call", name, inner):
            return CALLS[name](value(inner, point))
        case ("^", base, power):
            return value(base, point) ** power
        case (sign, left, right):
            a, b = value(left, point), value(right, point)
            return a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else a / b
    raise AssertionError(tree)


def in_letters(tree: Tree) -> str:
    match tree:
        case ("name" | "number", leaf):
            return str(leaf)
        case ("call", "sqrt", inner):
            return f"sqrt(abs({in_letters(inner)}))"
        case ("call", name, inner):
            return f"{name}({in_letters(inner)})"
        case ("^", base, power):
            return f"({in_letters(base)})^{power}"
        case (sign, left, right):
            return f"({in_letters(left)}){sign}({in_letters(right)})"
    raise AssertionError(tree)


def in_latex(tree: Tree) -> str:
    match tree:
        case ("name", name):
            return f"\\{name} " if len(name) > 1 else name
        case ("number", number):
            return str(number)
        case ("call", name, inner):
            form = IN_LATEX.get(name, f"\\{name}\\left({{}}\\right)")
            return form.format(in_latex(inner))
        case ("^", base, power):
            return f"\\left({in_latex(base)}\\right)^{{{power}}}"
        case ("/", left, right):
            return f"\\frac{{{in_latex(left)}}}{{{in_latex(right)}}}"
        case (sign, left, right):
            sign = "\\cdot " if sign == "*" else sign
            return f"\\left({in_latex(left)}\\right){sign}\\left({in_latex(right)}\\right)"
    raise AssertionError(tree)


def changed(tree: Tree, chance: random.Random) -> Tree:
    """The tree with one name, number, operator or function another."""
    match tree:
        case ("name", name):
            return ("name", chance.choice([other for other in NAMES if other != name]))
        case ("number", number):
            return ("number", number % 9 + 1)
        case ("call", name, inner):
            if chance.random() < 0.5:
                return ("call", chance.choice([other for other in sorted(CALLS) if other != name]), inner)
            return ("call", name, changed(inner, chance))
        case ("^", base, power):
            return ("^", base, 5 - power) if chance.random() < 0.5 else ("^", changed(base, chance), power)
        case (sign, left, right):
            place = chance.randrange(3)
            if place == 0:
                return (chance.choice([other for other in "+-*/" if other != sign]), left, right)
            return (
                (sign, changed(left, chance), right) if place == 1 else (sign, left, changed(right, chance))
            )
    raise AssertionError(tree)


def values(tree: Tree) -> list[float]:
    try:
        return [value(tree, point) for point in POINTS]
    except (ArithmeticError, ValueError):
        return []


@settings(max_examples=300)
@given(TREES)
def test_a_formula_in_letters_is_the_formula_in_latex(tree):
    assume(values(tree))
    assert decide(in_letters(tree), in_latex(tree)) is not False
    assert decide(in_letters(tree), in_letters(tree).replace(")(", ") (").replace("+", " + ")) is not False


@settings(max_examples=300)
@given(TREES, st.integers(0, 10**6))
def test_a_formula_differs_from_it_with_one_thing_changed(tree, seed):
    other = changed(tree, random.Random(seed))
    mine, theirs = values(tree), values(other)
    assume(mine and theirs)
    assume(any(abs(a - b) > 1e-6 * (1 + abs(a)) for a, b in zip(mine, theirs, strict=True)))
    for a in (in_letters(tree), in_latex(tree)):
        for b in (in_letters(other), in_latex(other)):
            assert decide(a, b) is not True, (a, b)


FACTORS = [
    "5",
    "n",
    "(n+1)",
    "2^n",
    "n!",
    r"\pi",
    r"\frac{1}{2}",
    r"\sum_{k=1}^n",
    r"\int_0^1",
    r"\prod_{s=1}^n",
]


@given(st.sampled_from(FACTORS), st.sampled_from("kKmsghLNM"), st.integers(2, 9), st.sampled_from(["", " "]))
def test_a_letter_behind_a_term_keeps_its_power_whatever_unit_it_may_be(factor, letter, power, gap):
    assert decide(f"{factor}{gap}{letter}^{power}", f"{factor}{gap}{letter}") is not True
    assert decide(f"{factor}{gap}{letter}^{power}", f"{factor}{gap}{letter}^{power + 1}") is not True


@given(st.lists(st.integers(1, 99), min_size=2, max_size=5), st.sampled_from(["({})", "{})"]), st.data())
def test_the_labels_of_parts_are_no_factors_and_their_order_counts(values, mark, data):
    def written(values):
        return " ".join(
            f"{mark.format(label)} {value}" for label, value in zip("abcde", values, strict=False)
        )

    other = data.draw(st.permutations(values))
    assert decide(written(values), written(other)) is (values == other)
    assert decide(written(values), f"({', '.join(map(str, values))})") is True


# Digits

GAPS = [" ", "  ", "\\quad ", "\\qquad ", "\\;", "\\: ", "\\,", "\\ ", "~", "\u2009", "\u00a0", "{} {}"]


@given(st.integers(1, 9999), st.integers(0, 99), st.sampled_from(GAPS))
def test_a_gap_between_digits_never_makes_one_number(a, b, gap):
    assume(a != b)
    for joined in (f"{a}{b}", str(a * b), str(a + b)):
        assert decide(f"{a}{gap}{b}", joined) is not True
    assert decide(f"{a}{gap}{b}0", f"{a}{b}0") is not True or b > 9


@given(
    st.integers(1, 999),
    st.lists(st.integers(0, 999), min_size=1, max_size=3),
    st.sampled_from(["\\,", " ", ",", "\u2009"]),
)
def test_groups_of_three_digits_are_a_number_with_thin_spaces_too(first, groups, gap):
    digits = "".join(f"{group:03}" for group in groups)
    assert (
        decide(
            f"{first}{gap}{gap.join(digits[i : i + 3] for i in range(0, len(digits), 3))}", f"{first}{digits}"
        )
        is True
    )


FACTORS = st.tuples(st.integers(2, 9), st.integers(2, 4))


@given(st.lists(FACTORS, min_size=1, max_size=3), st.integers(2, 9))
def test_a_digit_behind_the_braces_of_a_power_is_a_factor(factors, digit):
    braced = "".join(f"{base}^{{{power}}}" for base, power in factors)
    product = math.prod(base**power for base, power in factors)
    assert decide(f"{braced}{digit}", str(product * digit)) is True
    assert decide(f"x^{{{digit}}}{digit}", f"{digit}x^{digit}") is True
    assert decide(f"\\binom{{7}}{{2}}{braced}", str(21 * product)) is True
    base, power = factors[-1]
    merged = math.prod(b**p for b, p in factors[:-1]) * base ** int(f"{power}{digit}")
    assert decide(f"{braced}{digit}", f"{braced[:-2]}{power}{digit}}}") is (product * digit == merged)


# Sentences

_NOUNS = "minimum maximum mean median area perimeter profit loss rank nullity speed"
NOUNS = _NOUNS.split()
SAYINGS = [
    "the {} is {}", "The {} value is ${}$.", "{} = {}", "{}: {}", "\\text{{{}}} = {}", "{} of **{}**",
    "\\operatorname{{{}}} A = {}", "So the {} of the function is {}.",
]  # fmt: skip


@given(
    st.sampled_from(NOUNS),
    st.sampled_from(NOUNS),
    st.sampled_from(SAYINGS),
    st.integers(2, 99),
    st.integers(0, 3),
)
def test_what_a_sentence_says_of_its_answer_is_compared(noun, other, saying, n, off):
    assert decide(saying.format(noun, n), saying.format(other, n + off)) is (noun == other and not off)
    assert decide(saying.format(noun, n), str(n + off)) is (not off)


@given(
    st.sampled_from(["apples", "boys", "ways", "girls"]),
    st.sampled_from(["apples", "boys", "ways", "girls"]),
    st.integers(2, 99),
)
def test_what_is_counted_is_compared_in_a_sentence_too(one, other, n):
    assert decide(f"There are {n} {one}.", f"{n} {other}") is (one == other)
    assert decide(f"There are {n} {one}", f"we have {n} {other}") is (one == other)


# Rounded values


@given(st.integers(1, 200), st.integers(2, 200), st.integers(2, 5))
def test_a_value_beside_its_decimal_is_both_and_no_other(top, bottom, places):
    value = Fraction(top, bottom)
    assume(value.denominator not in (1, 2, 4, 5, 8, 10))
    shown = f"{float(value):.{places}f}"
    assume(float(shown) and Fraction(shown) not in (value, Fraction(top + 1, bottom)))
    text = f"x = \\frac{{{top}}}{{{bottom}}} \\approx {shown}"
    assert decide(text, f"{top}/{bottom}") is True
    assert decide(text, shown) is True
    assert decide(text, f"{top + 1}/{bottom}") is False
    assert decide(text, f"x = \\frac{{{top + 1}}}{{{bottom}}} \\approx {shown}") is False
    assert (
        decide(
            f"\\frac{{{top}}}{{{bottom}}} \\approx {float(value) + 1:.{places}f}",
            f"{float(value) + 1:.{places}f}",
        )
        is False
    )


@given(st.integers(0, 9999), st.text("0123456789", min_size=1, max_size=2))
def test_a_decimal_comma_is_a_point(whole, part):
    assert decide(f"{whole},{part}", f"{whole}.{part}") is True
    assert decide(f"x = {whole},{part}", f"{whole}.{part}") is True
    assert decide(f"({whole},{part})", f"{whole}.{part}") is not True
    if whole > 999:
        assert decide(f"{whole // 1000}.{whole % 1000:03},{part}", f"{whole}.{part}") is True
