"""What the challenger wrote, kept beside the log between two stages."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diagevo.loop.players import Written, load_written, save_written
from diagevo.memory.state.schedule import Draw


@pytest.mark.parametrize("ends", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\r\n", "\n"])
def test_whatever_may_end_a_line_comes_back_as_it_was_written(tmp_path: Path, ends: str) -> None:
    phase: Any = SimpleNamespace(read_question=lambda completion: (completion, None))
    written = [Written(Draw(i, "free"), text, text) for i, text in enumerate([f"one{ends}two", "three", ""])]
    save_written(tmp_path / "written.jsonl", written)
    assert load_written(tmp_path / "written.jsonl", [w.draw for w in written], cast(Any, phase)) == written
    save_written(tmp_path / "written.jsonl", [])
    assert load_written(tmp_path / "written.jsonl", [], cast(Any, phase)) == []
