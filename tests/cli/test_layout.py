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


def test_words_wrap_under_themselves_and_a_word_too_long_is_cut() -> None:
    assert layout._wrapped("ab cd 界界 efghijk l", 5) == ["ab cd", "界界", "efghi", "jk l"]
    assert layout._wrapped("a  b ", 10) == ["a  b "]
    assert layout._wrapped("", 5) == [""]
