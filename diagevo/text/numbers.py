"""Numbers in readable form, for terminal and pages; "–" if there is none."""

from fractions import Fraction


def count(number: int, one: str, many: str | None = None) -> str:
    """ "1 failure", "2,000 failures"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def number(value: Fraction | float | None, digits: int = 3) -> str:
    """A short decimal: "0.333"."""
    return "–" if value is None else f"{float(value):.{digits}f}"


def exact(value: float) -> str:
    """The shortest exact form, for an option to be copied."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def fraction(value: Fraction | None) -> str:
    """Exact and rounded: "1/3 = 0.333"; a whole number alone."""
    if value is None:
        return "–"
    return str(value) if value.denominator == 1 else f"{value} = {number(value)}"


def percent(value: Fraction | float | None, digits: int = 1) -> str:
    """A share: "33.3%"."""
    return "–" if value is None else f"{100 * float(value):.{digits}f}%"
