"""Failures to a spreadsheet and back, and how far a person and the diagnosis agree."""

import csv
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.errors import ConfigError, DiagEvoError
from diagevo.ingest.labels import COLUMNS, agreement, export_labels, import_labels
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from diagevo.text.escaping import csv_text, from_csv
from tests.ingest.conftest import step
from tests.ingest.test_recording import diagnose, record

Rows = list[dict[str, str]]


@pytest.fixture
def labelled(memory: Memory) -> Memory:
    """Six failures: four of `drops a carry` (c1), one of c2, one of c3, which begins like a formula."""
    record(memory, step(1, a="+---", b="+-", d="+-"), step(2, c="+-"))
    diagnose(memory, {"a": "drops a carry", "b": "swaps digits", "c": "drops a carry", "d": "=2+5 is read"})
    return memory


def _history(memory: Memory) -> History:
    return History(memory.database, memory.run_id, memory.root)


def _exported(memory: Memory, file: Path, limit: int | None = None) -> Rows:
    export_labels(_history(memory), file, limit)
    with file.open(encoding="utf-8-sig", newline="") as source:
        return list(csv.DictReader(source))


def _save(file: Path, rows: Rows, *, delimiter: str = ",", encoding: str = "utf-8-sig") -> Path:
    with file.open("w", encoding=encoding, newline="") as target:
        writer = csv.DictWriter(target, list[str](COLUMNS), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_a_sheet_has_each_failure_with_what_passed_and_its_cause(labelled: Memory, tmp_path: Path) -> None:
    rows = _exported(labelled, tmp_path / "l.csv")
    assert [row["id"] for row in rows] == [
        *(f"r1.q0.a{n}" for n in (1, 2, 3)),
        "r1.q1.a1",
        "r1.q2.a1",
        "r1.q3.a1",
    ]
    assert rows[0] == {
        "id": "r1.q0.a1",
        "prompt": "a",
        "response": "a 1 1 -",
        "passing_response": "a 1 0 +",
        "cause_id": "c1",
        "cause": "drops a carry",
        "label": "",
        "note": "",
    }
    assert rows[4]["cause"] == "'=2+5 is read"
    assert (tmp_path / "l.csv").stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        export_labels(_history(labelled), tmp_path / "l.csv")
    assert len(_exported(labelled, tmp_path / "two.csv", 2)) == 2


@pytest.mark.parametrize(
    ("delimiter", "encoding"), [(",", "utf-8-sig"), (";", "utf-8-sig"), (";", "utf-8"), ("\t", "utf-16")]
)
def test_labels_come_back_as_a_spreadsheet_saves_them(
    labelled: Memory, tmp_path: Path, delimiter: str, encoding: str
) -> None:
    rows = _exported(labelled, tmp_path / "l.csv")
    rows[0] |= {"label": "reads the unit wrong", "note": "km; not m, he says"}
    rows[1] |= {"label": "Reads  the unit WRONG"}
    rows[2] |= {"label": "c2"}
    rows[3] |= {"label": "swaps digits"}
    rows[4] |= {"label": rows[4]["cause"]}
    done = import_labels(
        labelled, _save(tmp_path / "s.csv", rows, delimiter=delimiter, encoding=encoding), "ada"
    )
    assert (done.labelled, done.untouched, done.assigned, done.added) == (5, 1, 5, ("c4",))
    assert labelled.causes_of([row["id"] for row in rows]) == {
        "r1.q0.a1": "c4",
        "r1.q0.a2": "c4",
        "r1.q0.a3": "c2",
        "r1.q1.a1": "c2",
        "r1.q2.a1": "c3",
        "r1.q3.a1": "c1",
    }
    # By hand: they agree on two of five; by chance on (c2: 2·1, c3: 1·1, c1: 0·3, c4: 2·0)/25 = 3/25.
    assert done.agreement.share == Fraction(2, 5)
    assert done.agreement.kappa == (Fraction(2, 5) - Fraction(3, 25)) / (1 - Fraction(3, 25))
    again = import_labels(labelled, tmp_path / "s.csv", "ada")
    assert (again.assigned, again.added, again.agreement) == (0, (), done.agreement)
    assert [row["id"] for row in _exported(labelled, tmp_path / "rest.csv")] == ["r1.q3.a1"]
    assert verify(labelled.log, "a", labelled.folder).faults == []


Spoilt = Callable[[Rows], object]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: rows[1].update(id="r9.q0.a0"), r"line 3: run a has no failure r9\.q0\.a0"),
        (lambda rows: rows[1].update(id="x"), "line 3: x is not the id of a failure"),
        (lambda rows: rows[1].update(label="c9"), "line 3: run a has no cause c9"),
        (lambda rows: rows[1].update(label="x" * 501), "line 3: the description has 501 characters"),
        (lambda rows: rows[1].update(note="a\x01b"), "line 3: the note must be one line"),
        (lambda rows: rows[1].update(label="", note="why"), "line 3 has a note and no label"),
        (lambda rows: rows[1].update(id=rows[0]["id"]), r"line 3 labels r1\.q0\.a1 again"),
    ],
)
def test_a_row_that_cannot_be_taken_leaves_everything_as_it_was(
    labelled: Memory, tmp_path: Path, spoil: Spoilt, words: str
) -> None:
    rows = _exported(labelled, tmp_path / "l.csv")
    rows[0] |= {"label": "of my own"}
    rows[1] |= {"label": "another of my own"}
    spoil(rows)
    before = labelled.state.sequence
    with pytest.raises(DiagEvoError, match=words) as refused:
        import_labels(labelled, _save(tmp_path / "s.csv", rows), "ada")
    assert refused.value.hint
    assert labelled.state.sequence == before


def test_a_file_that_is_no_sheet_of_labels_is_refused(labelled: Memory, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("name,label\nx,y\n")
    with pytest.raises(ConfigError, match="has no column id"):
        import_labels(labelled, tmp_path / "s.csv", "ada")


@given(st.text(alphabet="'=+-@\t 5a\n", max_size=6))
def test_a_cell_comes_back_as_it_was_and_runs_nowhere(text: str) -> None:
    assert from_csv(csv_text(text)) == text
    if csv_text(text)[:1] in ("=", "@"):
        raise AssertionError(csv_text(text))


@pytest.mark.parametrize("seed", range(20))
def test_kappa_is_that_of_scikit_learn(seed: int) -> None:
    score = pytest.importorskip("sklearn.metrics").cohen_kappa_score
    rng = random.Random(seed)
    names = ["c1", "c2", "c3", None][: rng.randint(2, 4)]
    a = [rng.choice(names) for _ in range(rng.randint(5, 60))]
    b = [one if rng.random() < 0.5 else rng.choice(names) for one in a]
    found = agreement(zip(a, b, strict=True))
    assert found.share == Fraction(sum(x == y for x, y in zip(a, b, strict=True)), len(a))
    right = score([str(x) for x in a], [str(x) for x in b])
    assert found.kappa is not None
    assert float(found.kappa) == pytest.approx(right)


def test_kappa_of_one_cause_throughout_is_none() -> None:
    assert agreement([("c1", "c1")] * 3).kappa is None
    assert agreement([]).share is None
    assert agreement([("c1", "c2"), ("c2", "c1")]).kappa == -1
