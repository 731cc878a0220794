"""The displays of `train`, played without a run: a round told to each of them."""

import json
import re
import sys
from fractions import Fraction
from pathlib import Path
from queue import SimpleQueue

import pytest
from diagevo.cli.call import CommandContext  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.screens.board import (  # pyright: ignore[reportMissingImports]  (cli/, as installed)
    clock,
    round_line,
)
from diagevo.cli.screens.display import (  # pyright: ignore[reportMissingImports]  (cli/, as installed)
    Board,
    JsonDisplay,
    LiveDisplay,
    PlainDisplay,
    display_for,
)

from diagevo.progress import STAGES, Observer, RoundFigures, StageProgress
from tests.cli.terminal import on_terminal

FIGURES = RoundFigures(
    round=2,
    position=900,
    kept=22,
    observed=40,
    created=3,
    committed_at="2026-01-01T00:00:00+00:00",
    invalid={},
    candidates=48,
    verdicts={"contested": 4, "kept": 22, "too_easy": 16, "invalid": 6},
    failures=11,
    z=Fraction(11, 23),
    epsilon_next=Fraction(23, 45),
    active=10,
    mastered=9,
    nodes=7,
    promoted=("c1", "c2"),
    reactivated=("c3",),
    labels_true=0.727,
    without_box=0.021,
    mean_at_k=0.5,
    greedy=0.875,
    seconds={"solver": 18.1},
)


def tell(display) -> None:
    """A second round of a run that was resumed, as it tells it."""
    display.resumed({1: {"challenger": 12.0}}, "c3 drops the sign of a product")
    display.round_started(2, 5, Fraction(1, 3), 23)
    display.stage_started(2, "challenger", 1, 2)
    display.stage_progress(2, "challenger", StageProgress(1, 2, "mean reward 0.223"))
    display.stage_finished(2, "challenger", 13.0, {"steps": 2, "reward": 0.295})
    display.stage_started(2, "solver", 2, 3)
    display.message("the server's log is in runs/a/vllm.log\x1b[31m")
    display.stage_finished(2, "solver", 18.1, {"verdicts": {"kept": 22}})
    display.round_finished(2, FIGURES)


def test_a_round_in_one_line_has_what_was_dropped_and_the_papers_figures() -> None:
    assert round_line(FIGURES) == (
        "kept 22/48 (dropped: 6 invalid, 16 too easy, 4 contested) · labels true 0.727 · "
        "without a box 0.021 · mean@k 0.500 · greedy 0.875 · F 11 · z 11/23 = 0.478 · "
        "ε next 23/45 = 0.511 · Active 10, Mastered 9, nodes 7 · "
        "promoted 2 · reactivated c3"
    )


def test_plain_is_one_line_an_event_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(CommandContext(), "a")
    display.pause = 0.0
    tell(display)
    out, err = capsys.readouterr()
    lines = [line.split(" ", 1)[1] for line in err.splitlines()]
    assert out == ""
    assert lines[0] == "round 2 of 5: ε 1/3 = 0.333, F 23"
    assert lines[2].startswith("round 2 challenger: 1/2, mean reward 0.223")
    assert lines[3] == "round 2 challenger: done in 13.0 s: steps 2, reward 0.295"
    assert lines[4] == "round 2 solver: started (attempt 2)"
    assert lines[5] == "the server's log is in runs/a/vllm.log␛[31m"
    assert lines[6] == "round 2 solver: done in 18.1 s: kept 22"
    assert lines[7] == f"round 2 committed: {round_line(FIGURES)}"


def test_plain_progress_that_comes_too_fast_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(CommandContext(), "a")
    display.pause = 3600.0
    display.stage_started(1, "diagnosis", 1, 1000)
    for done in range(1, 1001):
        display.stage_progress(1, "diagnosis", StageProgress(done, 1000))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_json_is_one_object_a_line_on_stdout_with_exact_fractions(capsys: pytest.CaptureFixture[str]) -> None:
    tell(JsonDisplay("a"))
    out, err = capsys.readouterr()
    said = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert [line["event"] for line in said] == [
        "resumed",
        "round_started",
        "stage_started",
        "stage_progress",
        "stage_finished",
        "stage_started",
        "message",
        "stage_finished",
        "round_finished",
    ]
    assert {line["run"] for line in said} == {"a"}
    assert said[0]["seconds"] == {"1": {"challenger": 12.0}}
    assert said[1]["epsilon"] == {"exact": "1/3", "value": 1 / 3}
    assert said[-1]["figures"]["kept"] == 22
    assert said[-1]["figures"]["z"]["exact"] == "11/23"


def test_every_kind_of_line_is_documented_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/train.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (`.+) \|$", page, re.MULTILINE)
    documented = {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows}
    tell(JsonDisplay("a"))
    told = {
        line.pop("event"): set(line) - {"run"}
        for line in map(json.loads, capsys.readouterr().out.splitlines())
    }
    methods = {name for name in vars(Observer) if not name.startswith("_")} - {"on_event"}
    assert told.keys() == methods, "each thing that a run tells is one kind of line"
    assert {event: documented[event] for event in told} == told


def test_none_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Board("a"))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("kind", "call", "expected"),
    [
        (None, CommandContext(), PlainDisplay),
        (None, CommandContext(format="json"), JsonDisplay),
        (None, CommandContext(quiet=True), Board),
        ("live", CommandContext(), LiveDisplay),
        ("plain", CommandContext(format="json"), PlainDisplay),
    ],
)
def test_the_display_fits_where_it_is_shown(kind: str | None, call: CommandContext, expected: type) -> None:
    """The tests have no terminal, so that plain is the default here."""
    assert type(display_for(kind, call, "a")) is expected


def test_the_time_left_comes_from_the_pace_then_from_the_round_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("diagevo.progress.time.monotonic", lambda: now)
    board = Board("a")
    board.round_started(2, 5, Fraction(1), 4)
    board.stage_started(2, "solver", 1, None)
    now = 130.0
    assert board.stage_left() is None
    assert board.run_left() is None
    board.before = {"challenger": 10.0, "candidates": 1.0, "votes": 9.0, "solver": 40.0, "diagnosis": 5.0}
    assert board.stage_left() == 10.0  # 40 in the round before, 30 gone
    assert board.run_left() == 10.0 + 5.0 + 3 * 65.0
    board.stage_progress(2, "solver", StageProgress(3, 12))
    assert board.stage_left() == 90.0  # 10 seconds a step


def test_shares_are_of_the_time_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("diagevo.progress.time.monotonic", lambda: now)
    board = Board("a")
    board.stage_finished(1, "challenger", 30.0, {})
    board.stage_started(1, "votes", 1, None)
    now = 110.0
    shares = board.shares()
    assert (shares["challenger"], shares["votes"], shares["solver"]) == (75.0, 25.0, 0.0)


def test_a_resumed_stage_is_timed_from_where_it_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of ten steps were done before; the first here came after 20 seconds, two more after 10 each."""
    now = 100.0
    monkeypatch.setattr("diagevo.progress.time.monotonic", lambda: now)
    board = Board("a")
    board.resumed({1: dict.fromkeys(STAGES, 30.0), 2: {"challenger": 40.0, "candidates": 5.0}}, "c1 adds")
    board.round_started(2, 3, Fraction(1), 4)
    assert board.seconds == {"challenger": 40.0, "candidates": 5.0}, "what was complete is not shown as 0"
    board.stage_started(2, "solver", 2, 10)
    for now, done in ((120.0, 7), (130.0, 8), (140.0, 9)):  # noqa: B007  (read by the clock)
        board.stage_progress(2, "solver", StageProgress(done, 10))
    assert board.stage_left() == 10.0
    assert board.whole() == 5 * 30.0 + 45.0 + 40.0
    shares = board.shares()
    assert shares["challenger"] == 100 * 70.0 / (5 * 30.0 + 45.0 + 40.0)
    # This stage, then diagnosis; votes come again too, as they are not among what is complete.
    assert board.run_left() == 10.0 + 30.0 + 150.0


def test_a_run_that_has_ended_has_no_time_left() -> None:
    board = Board("a")
    board.round_started(2, 2, Fraction(1), 4)
    board.stage_finished(2, "votes", 9.0, {})
    board.round_finished(2, FIGURES)
    assert board.ended
    assert board.run_left() is None


def test_plain_says_what_goes_on_while_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleQueue[str]()
    monkeypatch.setattr("diagevo.cli.screens.display.render.say", lambda call, text: told.put(text))
    display = PlainDisplay(CommandContext(), "a")
    display.silence = 0.05
    with display.showing():
        lines = [told.get()]
        display.stage_started(0, "validation", 1, 14000)
        while "0/14,000" not in lines[-1]:
            lines.append(told.get())
    lines = [line.split(" ", 1)[1] for line in lines]
    begun = lines.index("base model validation: started")
    assert all(re.fullmatch(r"a: loading, \d+:\d\d so far", line) for line in lines[:begun])
    [going_on] = lines[begun + 1 :]
    assert re.fullmatch(r"base model validation: 0/14,000, \d+:\d\d so far", going_on)


@pytest.mark.parametrize(("columns", "rows"), [(60, 15), (80, 24), (160, 50)])
def test_the_live_view_fits_the_terminal_and_keeps_the_running_stage(
    columns: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    display = LiveDisplay(CommandContext(), "a-run-with-a-rather-long-name-of-its-own")
    tell(display)
    display.round_started(3, 5, Fraction(16_128, 100_003), 123_456)
    display.stage_started(3, "solver", 2, 14_000)
    display.stage_progress(3, "solver", StageProgress(1_200, 14_000, "mean reward 0.223, 87 failures " * 4))
    display.newest_cause = "c42 " + "fails to check candidates against the original domain " * 6
    with display.console.capture() as shown:
        display.console.print(display.view())
    lines = shown.get().rstrip("\n").split("\n")
    assert len(lines) < rows
    assert max(map(len, lines)) <= columns
    assert any(re.match(r"solver +╌+ 1,200/14,000", line) for line in lines), "\n".join(lines)
    assert any(line.startswith("newest cause: c42 fails to check") for line in lines)


@pytest.mark.parametrize(("seconds", "said"), [(None, "–"), (7.4, "0:07"), (75, "1:15"), (3723, "1:02:03")])
def test_times_are_short(seconds: float | None, said: str) -> None:
    assert clock(seconds) == said


LIVE = """
from tests.cli.test_display import CommandContext, LiveDisplay, StageProgress, tell
display = LiveDisplay(CommandContext(), "a[red]")
with display.showing() as live:
    display.round_started(2, 5, __import__("fractions").Fraction(1, 3), 23)
    display.stage_started(2, "challenger", 1, 6)
    display.stage_progress(2, "challenger", StageProgress(4, 6, "mean reward 0.223"))
    live.refresh()
    print("a line of a library")
    tell(display)
    live.refresh()
"""


def test_the_live_view_shows_the_round_the_stages_beside_the_paper_and_what_was_kept() -> None:
    shown, code = on_terminal([sys.executable, "-c", LIVE], cwd=Path(__file__).parents[2], columns=200)
    assert code == 0, shown
    assert "a[red] · round 2 of 5 · 0:0" in shown
    assert "4/6" in shown
    for share in ("27.1%", "10.9%", "30.3%", "25.9%", "5.7%"):
        assert share in shown
    assert "kept 22/48" in shown
    assert "a line of a library" in shown
    assert "runs/a/vllm.log␛[31m" in shown
