"""Every screen and every total of a run whose rounds were superseded: what counts no more is marked, and
counted nowhere."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from diagevo.ingest.rounds import Rounds
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.whatif import Changes, what_if
from diagevo.memory.history import History, open_history
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import prepare
from diagevo.memory.memory import Memory
from diagevo.memory.read.counts import matrix
from diagevo.memory.read.opened_rounds import observations
from diagevo.memory.read.pass_rates import pass_rates
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from diagevo.report.report_data import gather
from tests.cli.program import invoke
from tests.ingest.conftest import step
from tests.ingest.test_recording import diagnose, record
from tests.ingest.test_superseding import RIGHT, WRONG, stands, three_rounds


@pytest.fixture
def again(memory: Memory, tmp_path: Path) -> Path:
    """Rounds 1 to 3, of which 2 and 3 are superseded and played again as 4 and 5: c1 of round 1 stays, c2 and
    c3 are gone, c4 and c5 come of the second diagnosis."""
    three_rounds(memory)
    Rounds(memory).supersede(2, "the wrong diagnostician")
    diagnose(memory, RIGHT)
    assert stands(memory) == [
        ("slip of a", "mastered", 0),
        ("carry", "active", 1),
        ("rounds too early", "active", 1),
    ]
    memory.close()
    return tmp_path


@pytest.fixture
def history(again: Path) -> Iterator[History]:
    with closing(open_history(f"sqlite:///{again / 'log.db'}", "a", root=again)) as history:
        yield history


def say(again: Path, *words: str) -> Result:
    done = invoke(
        *words, "--run", "a", "--db", f"sqlite:///{again / 'log.db'}", env={"DIAGEVO_HOME": str(again)}
    )
    assert done.exit_code == 0, done.stderr
    return done


def test_what_counts_is_rounds_1_4_and_5(history: History) -> None:
    assert [c.round for c in history.commits] == [1, 4, 5]
    assert [o.round for o in observations(history, history.end)] == [1, 4, 5]
    assert [dict(o.failures) for o in observations(history, history.end)] == [{"c1": 2}, {"c4": 1}, {"c5": 1}]
    assert [facts.round for facts in gather(history).rounds] == [1, 4, 5]
    assert matrix(history).rounds == (1, 4, 5)
    before = history.as_of(at=history.commit(3).position)
    assert [o.round for o in observations(history, before)] == [1, 2, 3]


def test_what_if_of_nothing_gives_what_was_recorded(history: History) -> None:
    """F after rounds 1, 4 and 5: 2 of c1, then c1 is Mastered and c4 has 1, then c5 beside it."""
    found = what_if(observations(history, history.end), Changes())
    assert [(r.round, r.failures, r.differs, r.status) for r in found.rounds] == [
        (1, 2, False, "exact"),
        (4, 1, False, "exact"),
        (5, 2, False, "exact"),
    ]


def test_pass_rates_count_each_failure_once_and_name_the_round_that_counts(history: History) -> None:
    """Two failures of a, one of b and one of d; steps 3 to 5 are those of rounds 4 and 5 now."""
    found = pass_rates(history)
    assert found is not None
    assert found.failures == 4
    assert [(one.cause_id, one.failures) for one in found.causes] == [("c1", 2), ("c4", 1), ("c5", 1)]
    assert [(one.step, one.round) for one in found.steps] == [(1, 1), (2, 1), (3, 4), (4, 4), (5, 5)]


def test_runs_show_marks_them_and_the_list_counts_three(again: Path) -> None:
    text = say(again, "runs", "show", "a").stdout
    assert "2, superseded by 4" in text
    assert "3, superseded by 5" in text
    shown = json.loads(say(again, "runs", "show", "a", "--json").stdout)["data"]
    assert [line["round"] for line in shown["rounds"]] == [1, 4, 5]
    assert [(line["round"], line["superseded_by"]) for line in shown["superseded"]] == [(2, 4), (3, 5)]
    [line] = json.loads(
        invoke("runs", "list", "--json", env={"DIAGEVO_DB": f"sqlite:///{again / 'log.db'}"}).stdout
    )["data"]
    assert (line["rounds"], line["last_round"], line["failures"], line["active"]) == (3, 5, 2, 2)


def test_why_of_a_cause_that_is_gone_says_so_and_of_one_that_stays_that_it_went_back(again: Path) -> None:
    gone = say(again, "memory", "why", "c2").stdout
    assert "SUPERSEDED since round 3" in gone
    assert "rounds 2 to 3 were superseded; this cause no longer exists" in gone
    kept = say(again, "memory", "why", "c1").stdout
    assert "MASTERED" in kept
    assert "rounds 2 to 3 were superseded; again Active, f = 2" in kept
    by_words = json.loads(say(again, "memory", "why", "carry", "--json").stdout)["data"]
    assert by_words["cause_id"] == "c4"


def test_a_superseded_round_is_shown_as_it_was_with_a_word(again: Path) -> None:
    told = say(again, "memory", "replay", "--round", "3")
    assert "round 3 is superseded by round 5" in told.stderr
    assert "slip of d" in told.stdout
    assert "superseded" not in say(again, "memory", "replay", "--round", "4").stderr
    steps = json.loads(say(again, "memory", "replay", "--round", "3", "--step", "--json").stdout)["data"]
    assert next(step["type"] for step in steps) == "RoundOpened"
    log = say(again, "memory", "log", "--type", "RoundsSuperseded").stdout
    assert "rounds 2 to 3 superseded, back to F = 2, 1 cause: the wrong diagnostician" in log


def test_right_after_the_superseding_the_screens_stand_before_the_next_round(
    memory: Memory, tmp_path: Path
) -> None:
    three_rounds(memory)
    Rounds(memory).supersede(1, "wrong")
    memory.close()
    shown = say(tmp_path, "memory", "show", "--tree").stdout
    assert "a before round 4 (rounds 1 to 3 are superseded): 0 Active, 0 Mastered" in shown
    assert say(tmp_path, "memory", "replay").exit_code == 0
    schedule = json.loads(say(tmp_path, "memory", "schedule", "--json").stdout)["data"]
    assert (schedule["round"], schedule["epsilon"]["exact"], schedule["failures"]) == (4, "1", 0)
    with closing(open_history(f"sqlite:///{tmp_path / 'log.db'}", "a", root=tmp_path)) as history:
        assert history.commits == ()
        assert history.settled == history.end
    rows = json.loads(say(tmp_path, "memory", "query", "SELECT count(*) AS n FROM v_cause", "--json").stdout)
    assert rows["data"] == [{"n": 0}]


def test_sql_tells_which_rounds_count(again: Path) -> None:
    asked = "SELECT round FROM v_round WHERE superseded_at IS NULL ORDER BY round"
    assert json.loads(say(again, "memory", "query", asked, "--json").stdout)["data"] == [
        {"round": 1},
        {"round": 4},
        {"round": 5},
    ]
    told = say(again, "memory", "query", "SELECT first, last, reason FROM v_superseded", "--json").stdout
    assert json.loads(told)["data"] == [{"first": 2, "last": 3, "reason": "the wrong diagnostician"}]


def test_a_bundle_and_a_fork_of_it_verify(history: History, tmp_path: Path) -> None:
    export_bundle(history, history.end, tmp_path / "out")
    target = Database(f"sqlite:///{tmp_path / 'other.db'}")
    prepare(target, create=True)
    import_bundle(tmp_path / "out", target, "b", root=tmp_path / "other")
    with closing(target):
        assert verify(Log(target), "b", tmp_path / "other" / "b", deep=True).faults == []
    for round_, counted in ((5, [1, 4, 5]), (3, [1, 2, 3])):
        name = f"fork{round_}"
        fork(history, round_, name, root=tmp_path)
        forked = History(history.database, name)
        assert verify(history.log, name, tmp_path / name, deep=True).faults == []
        assert [c.round for c in forked.commits] == counted


def test_the_view_marks_them(again: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    done = invoke(
        "view",
        "--export",
        str(out),
        env={"DIAGEVO_DB": f"sqlite:///{again / 'log.db'}", "DIAGEVO_HOME": str(again)},
    )
    assert done.exit_code == 0, done.stderr
    overview = (out / "a" / "index.html").read_text()
    assert "superseded by round 4" in overview
    assert "round 4 repeats its groups" in (out / "a" / "rounds" / "2.html").read_text()
    assert "count no more" not in (out / "a" / "rounds" / "4.html").read_text()
    assert "SUPERSEDED" in (out / "a" / "causes" / "c2.html").read_text().upper()


def test_a_promotion_that_is_restored_is_the_imported_runs_own(memory: Memory, tmp_path: Path) -> None:
    """Round 3 superseded, c1 is Mastered again by the promotion of round 2; the next failure undoes it by
    that id."""
    three_rounds(memory)
    Rounds(memory).supersede(3, "wrong")
    record(memory, step(6, a="+---"))
    diagnose(memory, WRONG)
    assert stands(memory)[0] == ("slip of a", "active", 3)
    memory.close()
    target = Database(f"sqlite:///{tmp_path / 'other.db'}")
    prepare(target, create=True)
    with (
        closing(open_history(f"sqlite:///{tmp_path / 'log.db'}", "a", root=tmp_path)) as history,
        closing(target),
    ):
        export_bundle(history, history.end, tmp_path / "out")
        import_bundle(tmp_path / "out", target, "b", root=tmp_path / "other")
        assert verify(Log(target), "b", tmp_path / "other" / "b", deep=True).faults == []
        assert [c.round for c in History(target, "b").commits] == [c.round for c in history.commits]


def test_words_mean_the_cause_that_counts(memory: Memory, tmp_path: Path) -> None:
    """The same words were found before and after: c2 is gone, c4 stands."""
    three_rounds(memory, RIGHT)
    Rounds(memory).supersede(2, "once more")
    diagnose(memory, RIGHT)
    memory.close()
    assert json.loads(say(tmp_path, "memory", "why", "carry", "--json").stdout)["data"]["cause_id"] == "c4"
