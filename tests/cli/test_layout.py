"""Lines of a story, in columns of a terminal or of a pipe."""

from importlib import import_module
from typing import Any

import pytest

layout: Any = import_module("diagevo.cli.render.layout")


@pytest.mark.parametrize("columns", [None, 40, 80, 200])
@pytest.mark.parametrize("text", ["ab " * 2**14, "a" * 2**15, " " * 2**15, "界 " * 2**14])
def test_a_long_line_is_measured_once_and_not_once_a_word(
    text: str, columns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = 0
    real = layout._cells

    def counting(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return real(text)

    monkeypatch.setattr(layout, "_cells", counting)
    said = layout.lay([layout.Line("question", text, 7)], columns) + layout.wrapped(text, "  ", columns)
    assert measured < 10 * len(text)
    assert said.replace(" ", "").replace("\n", "").replace("question", "").replace(
        "#7", ""
    ) == 2 * text.replace(" ", "")


def test_a_sign_stays_with_its_two_sides_and_a_text_is_cut_between_words() -> None:
    assert layout.broken("2 of 9 against the label → f = 9", 28) == ["2 of 9 against the", "label → f = 9"]
    chain = "so p₁ = 7/12 < τ·p₂ = 8/5·1/2 holds"
    assert layout.broken(chain, 24) == ["so p₁ = 7/12 < τ·p₂", "= 8/5·1/2 holds"]
    assert layout.folded("after round 3: F = 143", 17) == "after round 3:\n    F = 143"
    assert layout.cut("slides by one in the times table", 30) == "slides by one in the times…"


def test_a_long_word_is_cut_behind_a_comma_or_a_slash_where_it_has_one() -> None:
    asked = "--variants full,free-only,no-filter"
    assert layout.broken(asked, 16) == ["--variants", "full,free-only,", "no-filter"]
    assert layout.broken("Qwen/Qwen3-4B-Instruct-2507", 24) == ["Qwen/", "Qwen3-4B-Instruct-2507"]


def test_words_wrap_under_themselves_and_a_word_too_long_is_cut() -> None:
    assert layout.broken("ab cd 界界 efghijk l", 5) == ["ab cd", "界界", "efghi", "jk l"]
    assert layout.broken("a  b ", 10) == ["a  b "]
    assert layout.broken("", 5) == [""]
