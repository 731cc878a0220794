"""What is called false was read whole, and is false when it is computed by another evaluator."""

import ast
import operator
import re
from fractions import Fraction
from math import factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagevo.diagnosis.levels.arithmetic_checks import equations


def claims(line: str) -> list[str]:
    """What is said not to hold."""
    return [each.text for each in equations([(1, line)]) if not each.holds]


AS_PEOPLE_WRITE = """
3:00 + 2 = 5:00|12:30 - 2:15 = 10:15|2 3/4 = 2.75|1 1/2 + 1 1/2 = 3|2e3 + 1 = 2001|10^3 + 1e3 = 2000
-3^2 = -9|-5 + 3 = -2|- 5 + 3 = 8|(-3)^2 = 9|15 minutes * 4 = 1 hour|1 hour + 30 minutes = 90 minutes
3 feet * 12 = 36 inches|$3.50 + 25 cents = $3.75|5 feet 3 inches + 9 inches = 6 feet|2 dozen + 3 = 27
2 thousand + 500 = 2500|0x10 = 16|0x10 + 1 = 17|0b11 + 1 = 4|101_2 + 1 = 110_2|8 / 2(2+2) = 16
8 / 2(2+2) = 1|6÷2(1+2)=9|1/2x + 3 = 5|legos_3x500 = 3 * legos_500|item2 * 3 = 12|x1 + 3 = 10|a_1 + 3 = 5
x + 3 + 4 = 9|x^{2} + 3 = 7|x² + 3 = 7|\\sqrt{16} + 2 = 6|2\\frac{1}{2} + 1 = 3.5|√16 + 2 = 6
the square root of 16 + 9 = 5|3 squared + 4 = 13|twice 5 + 3 = 13|half of 10 + 2 = 7|17 mod 5 + 1 = 3
7 + 3 = 3 (mod 7)|4 choose 2 + 1 = 7|3! + 1 = 7|4 * 6 = 4!|log 100 + 1 = 3|f(2) + 3 = 10|C(5,2) + 1 = 11
sum of 3 and 4 + 2 = 9|add 3 to 5 * 2 = 13|17 / 5 = 3 R 2|17/5 = 3 remainder 2|1,5 + 2,5 = 4
1.000 + 500 = 1.500|100 - 10% = 90|2020-01-05 + 1 = 2020-01-06|3 + 4 != 8|abs(-3) + 1 = 4|5'3" + 2 = 5'5"
v1.2 + 3 = 5|pages 5-7 = 3 pages|1990-2000 = 10 years|3 of 4 = 75%|1+1=10 in binary|101 + 1 = 110 (binary)
9 + 5 = 4 (carry 1)|5 ^ 3 = 6 (xor)|2 dimes + 1 nickel = 25 cents|3 dimes * 2 = 60 cents
2 tens + 3 ones = 23|2 + 2 = 2)|2+2 = 2*|2+2 = 2**|So 2 full boxes + 3 loose apples = 27 apples.
is 5 + 3 = 9? No, it is 8.|5 + 3 = 9 is wrong|It is not true that 5 + 3 = 9.|If 5 + 3 = 9, then it is odd
Suppose 2 + 2 = 5.|2 + 2 = 5 is false|We do not get 4 + 4 = 9|We don't get 4 + 4 = 9|4 + 4 = 9 (no, 8)
10 - 3 * 2 = 14 (left to right)|in base 2, 1 + 1 = 10|4 + 4 = 9, which can't be right|4 + 4 = 9 ✗
1.66 * 2430 * 59 = 238000|3.3 * 2430 * 54 = 433000
9-5 = 8 hours|9 – 5 = 8 working hours per day|22-6 = 8 hours|11-1 = 2 hrs.|12 ^ 10 = 6|3 ^ 4 ^ 5 = 2|5 ^ 5 = 0
2-1/2 = 2.5|27^1/3 = 3|So is it 4 + 4 = 9 then?|instead of 4 + 4 = 9 it is 8
2^{3+1} = 16|$2^{2 \\cdot 3} = 64$|$2^{1/2} \\cdot 2^{1/2} = 2$|$4^{3/2} = 8$
\\{5 + 3\\} * 2 = 16|{5 + 3} * 2 = 16
10 + 5 = 3 pm|23 + 2 = 1 AM|9 + 5 = 2 p.m.|11 + 3 = 2 o'clock|in binary: 101 + 11 = 1000|101 + 11 = 1000
Step 1 - 5 + 3 = 8|Day 1 – 5 + 3 = 8|1- 5 + 3 = 8|1 - 10 = 10 numbers|seats 3 – 8 = 6 seats|5 + 3 = 8 - 2 = 6
12 + 5 = 17 - 2 = 15 * 2 = 30|Mistake: 5 + 3 = 9|**Wrong**: 5 + 3 = 9|"5 + 3 = 9" is a common mistake
He wrote 5 + 3 = 9|She thinks that 5 + 3 = 9|Tom claims 5 + 3 = 9|0.1 + 0.2 = 0.30000000000000004"""


@pytest.mark.parametrize("line", AS_PEOPLE_WRITE.replace("\n", "|").strip("|").split("|"))
def test_what_is_true_or_not_whole_as_people_write_it_is_never_called_false(line):
    assert claims(line) == []


FALSE = """
5 + 3 = 9|5 × 3 = 16|(5 + 3) * 2 = 17|-3^2 = 9|2e3 + 1 = 2002|10% of 50 = 6|$5 + $3 = $9|x = 3 + 4 = 8
\\( 5 + 3 = 9 \\)|The total is 5 * 3 = 16 dollars.|She sold 48/2 = 25 clips in May.|4 hours / 2 = 3 hours
Step 2: 5 * 8 = 48|1. 5 + 3 = 9|- 5 + 3 = 9|**Total:** 5 + 3 = 9
He bought 5 apples and spent 5 * 2 = 11 dollars|(5 + 3 = 9)|So 5 apples + 3 apples = 9 apples.
\\frac{1}{2} + \\frac{1}{2} = 2|2x3x4 = 25|We get 12 - 5 = 8 left.|24 / 4 = 5 each
(so 5 + 3 = 9)|*5 + 3 = 9*|1/2 of 10 = 6|50% of 80 = 41|0.5 of 10 = 6|7-5 = 3|5 - 7 = 3
If x is 2, then 5 + 3 = 9.|It is not 7: 5 + 3 = 9.|5 + 3 = 9. Is that all?|5 + 3 = 9, not 8.
9-5 = 3 hours|9-5 = 8|9-5 = 8 apples|39-5 = 2 hours|5 ^ 3 = 120|2^10 = 1000
So 5 + 3 = 9; wrong units|2430 * 54 * 3 = 393700|3.3 * 2430 * 54 = 434000|3.3 * 2430 * 54 = 430000
1/2 + 1/3 = 2/5|3/4 + 1/8 = 1/2|2^{3+1} = 15|$2^{10} = 1000$|{5 + 3} * 2 = 17|9 + 5 = 3 PM|101 + 11 = 1001
1 - 10 = 9 numbers|Step 1 - 5 + 3 = 9|5 + 3 = 9 - 2 = 7|I said no. 5 + 3 = 9|0.1 + 0.2 = 0.4"""


@pytest.mark.parametrize("line", FALSE.replace("\n", "|").strip("|").split("|"))
def test_what_is_read_whole_and_false_is_called_so(line):
    assert claims(line)


HALF = ["(5 - 47 = 12", "222: 2 + 2 = 2", "*(2 * 7 = 2", "*2 + 2 = 2", "2 + 2 = 5.:", "-2e3 = 5. *"]


@pytest.mark.parametrize("line", HALF)
def test_of_half_a_line_no_claim_is_made(line):
    """Each of these was called false when one rule of where a side begins or ends was taken away."""
    assert claims(line) == []


def test_what_is_nested_too_deep_makes_no_claim():
    assert claims("(" * 300 + "1" + ")" * 300 + " = 2") == []


THINGS = {
    "dimes": 10,
    "nickels": 5,
    "pennies": 1,
    "tens": 10,
    "pairs": 2,
    "tricycles": 3,
    "bikes": 2,
    "crates": 24,
}


@given(st.permutations(sorted(THINGS)), st.integers(1, 40), st.integers(1, 40), st.sampled_from("+-"))
def test_a_sum_of_things_that_differ_is_worth_what_they_are_worth(things, a, b, sign):
    """And a sum of things of one kind is a sum."""
    one, other, worth = *things[:2], THINGS
    value = a * worth[one] + (b if sign == "+" else -b) * worth[other]
    assert claims(f"{a} {one} {sign} {b} {other} = {value}") == []
    assert claims(f"{a} apples {sign} {b} apples = {a + b + 1000} apples")


OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}


def python_value(text: str) -> Fraction | None:
    """A whole side as Python computes it, in fractions; None where it is no arithmetic."""

    def value(node: ast.AST) -> Fraction:
        match node:
            case ast.Constant(value=int() | float()):
                return Fraction(ast.get_source_segment(source, node) or "")
            case ast.BinOp():
                return Fraction(OPERATORS[type(node.op)](value(node.left), value(node.right)))
            case ast.UnaryOp():
                return OPERATORS[type(node.op)](value(node.operand))
            case _:
                raise ValueError

    source = re.sub(r"(?<=\d) ?x ?(?=\d)", "*", text.strip().replace("^", "**"))
    try:
        return value(ast.parse(source, mode="eval").body)
    except (SyntaxError, ValueError, KeyError, ArithmeticError, TypeError):
        return None


PIECES = [*"23457", "12", "1.5", "2e3", " ", " ", *"+-*/^()", " + ", " * ", " - ", *"x_:!.", "0x1f"]
SIDE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join)
MARK = re.compile(r"\s*([-*]\s|\(?\d{1,2}[.):]\s|\(?x[.):]\s)")


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=600)
@given(SIDE, SIDE)
def test_a_claim_is_made_only_where_both_whole_sides_are_unequal_arithmetic(left, right):
    line = f"{left} = {right}"
    if claims(line) and not MARK.match(line):
        inside = re.sub(r"^\s*\((.*)\)[.\s]*$", r"\1", line) if left.count("(") > left.count(")") else line
        a, b = (
            python_value(side.rstrip(" .)" if side.count("(") < side.count(")") else " ."))
            for side in inside.split("=")
        )
        assert a is not None, line
        assert b is not None, line
        assert a != b, line


@given(st.integers(2, 9), st.integers(2, 30), st.integers(1, 50), st.integers(1, 9))
def test_a_letter_with_a_value_is_a_factor_on_either_side(n, x, more, off):
    known = {"x": Fraction(x)}
    for line, holds in [
        (f"{n}x = {n * x}", True),
        (f"{n}x + {more} = {n * x + more}", True),
        (f"{more} + {n}x = {n * x + more + off}", False),
        (f"{n * x + more} = {n}x + {more}", True),
    ]:
        assert [each.holds for each in equations([(1, line)], known)] == [holds], line


NUMBERS = st.integers(1, 60)


@st.composite
def sides(draw) -> tuple[str, Fraction]:
    """An expression as people write it and its value, which is computed beside the text and not from it."""
    a, b, c = draw(NUMBERS), draw(NUMBERS), draw(NUMBERS)
    times = draw(st.sampled_from(["*", " * ", " × ", "·", "\\times ", " x "]))
    over = draw(st.sampled_from(["/", " / ", " ÷ "]))
    return draw(
        st.sampled_from(
            [
                (f"{a} + {b}{times}{c}", Fraction(a + b * c)),
                (f"({a} + {b}){times}{c}", Fraction((a + b) * c)),
                (f"{a}{over}{b} + {c}", Fraction(a, b) + c),
                (f"\\frac{{{a}}}{{{b}}} + {c}", Fraction(a, b) + c),
                (f"-{a}^2 + {b}", Fraction(b - a * a)),
                (f"{a} {b}/{b + c}", a + Fraction(b, b + c)),
                (f"{c} + {a} {b}/{b + c}", c + a + Fraction(b, b + c)),
                (f"{a}\\frac{{{b}}}{{{b + c}}} + {c}", a + Fraction(b, b + c) + c),
                (f"{a}e2 + {b}", Fraction(a * 100 + b)),
                (f"{a},000 + {b}", Fraction(a * 1000 + b)),
                (f"{hex(a)} + {b}", Fraction(a + b)),
                (f"{bin(a)} + {b}", Fraction(a + b)),
                (f"{a}({b} + {c})", Fraction(a * (b + c))),
                (f"({a})({b}) + {c}", Fraction(a * b + c)),
                (f"twice {a} + {b}", Fraction(2 * a + b)),
                (f"{a} squared + {b}", Fraction(a * a + b)),
                (f"the square root of {a * a} + {b}", Fraction(a + b)),
                (f"\\sqrt{{{a * a}}} + {b}", Fraction(a + b)),
                (f"{a} mod {b} + {c}", Fraction(a % b + c)),
                (f"{a % 8}! + {b}", Fraction(factorial(a % 8) + b)),
                (f"{a} dozen + {b}", Fraction(12 * a + b)),
                (f"|-{a}| + {b}", Fraction(a + b)),
                (f"{a} minus {b} + {c}", Fraction(a - b + c)),
                (f"gcd({a}, {a}) + {b}", Fraction(a + b)),
                (f"{a} apples + {b} apples", Fraction(a + b)),
                (f"${a} + ${b}", Fraction(a + b)),
                (f"{a}% of {b * 100}", Fraction(a * b)),
                (f"{a}^{{1 + 1}} + {b}", Fraction(a * a + b)),
                (f"2^{{{a % 5}+{b % 5}}}{times}{c}", Fraction(2 ** (a % 5 + b % 5) * c)),
                (f"\\{{{a} + {b}\\}}{times}{c}", Fraction((a + b) * c)),
                (f"\\frac{{{a}}}{{{b}}} + 2^{{1/2}} - 2^{{1/2}}", Fraction(a, b)),
            ]
        )
    )


_LEADS = (
    "|So |Step 2: |- |1. |The total is |We get |He paid |At 3:00, |In 2020, |Then x = |**Sum:** |(|As 3 > 2, "
)
LEADS = st.sampled_from(_LEADS.split("|"))
TAILS = st.sampled_from(
    ["", ".", " apples", ", which is fine.", " in total.", "!", " (see above)", "; next", " = y"]
)


def written(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


@settings(max_examples=400)
@given(LEADS, sides(), TAILS)
def test_no_true_equation_is_called_false_whatever_stands_around_it(lead, side, tail):
    text, value = side
    assert claims(f"{lead}{text} = {written(value)}{tail}") == []


@settings(max_examples=200)
@given(LEADS.filter(lambda lead: lead not in ("- ", "(")), NUMBERS, NUMBERS, NUMBERS, st.integers(1, 9))
def test_every_plain_false_equation_is_called_false(lead, a, b, c, off):
    for tail in ("", ".", " apples", ", so"):
        assert claims(f"{lead}{a} + {b} * {c} = {a + b * c + off}{tail}")
        assert claims(f"{lead}({a} + {b}) × {c} = {(a + b) * c + off}{tail}")
        assert claims(f"{lead}${a} - ${b} = ${a - b + off}{tail}")
