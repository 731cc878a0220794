"""The order of the tests under pytest-xdist."""

import pytest

from tests.order import shares


@pytest.mark.parametrize(
    ("long", "short", "workers", "expected"),
    [
        ("ABC", "abcd", 2, "AabBCcd"),  # shares of three and of four
        ("ABC", "abcd", 1, "ABCabcd"),
        ("", "abcde", 2, "abcde"),
        ("AB", "", 2, "AB"),
        ("A", "abcdefg", 3, "abcdeAfg"),  # shares of two, three and three
        ("AB", "abc", 7, "abAcB"),  # more workers than tests
    ],
)
def test_each_share_begins_with_its_part_of_the_long_tests(
    long: str, short: str, workers: int, expected: str
) -> None:
    assert "".join(shares(long, short, workers)) == expected
