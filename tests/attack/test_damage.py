"""A bounded, seeded part of the fuzz; all of it is `python -m tests.attack.fuzz`."""

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.attack.damage import Base, Byte, Cell
from tests.attack.fuzz import READERS, outcomes, read, sample
from tests.cli.program import invoke

SEED = 12


@pytest.fixture(scope="module")
def base() -> Iterator[Base]:
    with TemporaryDirectory() as folder:
        yield Base(Path(folder), rounds=1)


@pytest.mark.slow
def test_no_damage_crashes_verify_and_none_that_matters_passes_as_written(base: Base) -> None:
    told = list(outcomes(base, sample(base, 80, 60, SEED)))
    assert [f"{outcome.kind}: {case}: {outcome.detail}" for case, outcome in told if outcome.bad] == []
    counts = Counter(outcome.kind for _, outcome in told)
    assert min(counts[kind] for kind in ("fault", "refused", "passed")) > 5, "the sample meets all of them"


def test_a_change_that_matters_and_goes_unseen_would_be_reported(base: Base, tmp_path: Path) -> None:
    """The judge itself: of the payload's bytes each matters, of a time for people none does."""
    file = base.copy(tmp_path)
    assert base.damage(file, Cell("event", 4, "payload", "an empty text"))
    assert base.changed(file) == {"event.payload of 4"}
    assert base.damage(file, Cell("run", 1, "created_at", "a text"))
    assert base.changed(file) == set()


@pytest.mark.parametrize(
    ("column", "kind"),
    [("digest", "a text"), ("digest", "broken JSON"), ("digest", "undecodable text"), ("content", "bytes")],
)
def test_a_text_that_no_event_names_is_compared_with_its_digest_too(
    base: Base, column: str, kind: str
) -> None:
    rows = {row for (table, row, _), value in base.cells.items() if value[1] == b"the template"}
    [row] = rows
    [(_, outcome)] = outcomes(base, [Cell("artifact", row, column, kind)])
    assert (outcome.kind, outcome.detail[:5]) == ("fault", "text:")


@pytest.mark.parametrize("column", ["created_at", "imported"])
def test_where_a_run_came_from_is_compared_only_where_it_is_text(base: Base, column: str) -> None:
    [(_, outcome)] = outcomes(base, [Cell("run", 1, column, "a float")])
    assert outcome.kind in ("fault", "refused"), outcome.detail


_CASES: list[Cell | Byte] = [
    Cell("event", 4, "payload", "broken JSON"),
    Cell("event", 9, "round", "a text"),
    Cell("round_summary", 1, "failures", "null"),
    Cell("cause", 1, "frequency", "a text"),
    Cell("snapshot", 1, "state", "its own text"),
    Cell("artifact", 1, "content", "null"),
    Cell("run", 1, "hash", "undecodable text"),
    Byte(100, 0xFF),
]


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_no_damage_crashes_a_reader(base: Base, arguments: tuple[str, ...]) -> None:
    """Two kinds of damage each; the command has every reader meet a sample of all."""
    for case in random.Random(" ".join(arguments)).sample(_CASES, 2):
        outcome = read(base, case, arguments)
        assert not outcome.bad, f"{case}: {outcome.detail}"


def test_what_a_command_cannot_foresee_is_told_as_damage_where_it_is_damage(
    base: Base, tmp_path: Path
) -> None:
    file = base.copy(tmp_path)
    assert base.damage(file, Cell("round_summary", 1, "failures", "a text"))
    said = invoke("runs", "show", env={"DIAGEVO_HOME": str(tmp_path)})
    assert said.exit_code == 5
    assert "run played is damaged: round_summary 1 has failures 'x', the events give 4" in said.output
    assert "hint: check for more damage: diagevo memory verify --deep" in said.output


@pytest.mark.parametrize(
    "arguments", [("memory", "why", "r1.q0"), ("memory", "why", "c1", "--full")], ids=" ".join
)
def test_a_changed_text_is_a_fault_to_every_command_that_reads_it(
    base: Base, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = base.copy(tmp_path)
    with closing(sqlite3.connect(file)) as opened, opened:
        assert opened.execute("UPDATE artifact SET content = CAST('told otherwise' AS BLOB)").rowcount > 10
    said = invoke(*arguments, env={"DIAGEVO_HOME": str(tmp_path)})
    assert said.exit_code == 1, said.output
    assert "error: FAULT: the text " in said.output
    assert "hint: check for more damage: diagevo memory verify --deep" in said.output


def test_broken_json_of_an_evaluation_is_told_and_no_bug(base: Base) -> None:
    outcome = read(base, Cell("evaluation", 1, "conditions", "broken JSON"), ("eval", "show"))
    assert (outcome.kind, "the conditions of evaluation e1 cannot be read" in outcome.detail) == (
        "exit 5",
        True,
    )
