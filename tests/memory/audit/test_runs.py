"""Forks and comparisons of runs."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from diagevo.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    StoreError,
)
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.memory_diff import diff_runs, learnt
from diagevo.memory.events import Artifact, CauseReactivated, RunConfigured
from diagevo.memory.events.records import Recorded
from diagevo.memory.history import History, expect, open_history
from diagevo.memory.log import heads
from diagevo.memory.log.log import Log
from diagevo.memory.memory import Memory
from diagevo.memory.read.runs import list_runs, run_story
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from tests.cli.program import invoke
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.audit.played import C1, C3, CONFIG, Player, play

VECTORS = "outside the chain, so types were checked and values were not (rows of): 7 vector"
"""Four causes and three labels of nodes."""


@contextmanager
def opened(store: Store, *runs: str) -> Iterator[list[History]]:
    with ExitStack() as stack:
        found = [open_history(store.url, run) for run in runs]
        for history in found:
            stack.callback(history.close)
        yield found


@pytest.fixture
def forked(copied: Store) -> Store:
    """The played run and a fork of it after round 2 with θ_up = 9/10, on either database."""
    with opened(copied, "played") as [history]:
        changed = {**CONFIG, "memory": {**CONFIG["memory"], "theta_up": "9/10"}}
        made = fork(history, 2, "b", changed, root=copied.root)
    assert made.changed == ("memory.theta_up",)
    return copied


def test_a_fork_verifies_and_shares_its_beginning_with_the_run_it_comes_from(forked: Store) -> None:
    with forked.log() as log:
        report = verify(log, "b", forked.root / "b", deep=True)
        assert (report.faults, report.rounds, report.heads) == ([], 2, 2 + 1), "of two commits and of its end"
        assert report.notes == [VECTORS]
        new, old = list(log.read("b")), list(log.read("played"))

    def own(record: Recorded) -> tuple[object, ...]:
        return astuple(replace(record, run_id="", position=0))

    shared = len(new) - 1
    assert list(map(own, new[:-1])) == list(map(own, old[:shared]))
    assert new[-1].previous_hash == old[shared - 1].hash
    assert new[-1].hash != old[shared].hash
    with opened(forked, "played", "b") as [a, b]:
        state_a, state_b = a.state(a.as_of(2)), b.state(b.as_of(2))
        assert (state_a.causes, state_a.nodes) == (state_b.causes, state_b.nodes)
        assert (run_story(a).shared, run_story(b).shared) == (None, shared)
        shown = invoke("runs", "show", "b", "--db", forked.url)
        assert f"at #{a.as_of(2).position}, its first {shared} events" in shown.stdout


def test_a_fork_whose_parent_is_another_run_by_now_says_so(forked: Store) -> None:
    with forked.log() as log:
        [*_, last] = log.read("b", types=["RoundCommitted"])
    forked.tamper(f"UPDATE event SET hash = '0' WHERE run_id = 'played' AND hash = '{last.hash}'")
    with opened(forked, "b") as [b]:
        assert run_story(b).shared == 0
    assert "whose history here differs" in invoke("runs", "show", "b", "--db", forked.url).stdout


def test_a_fork_records_where_it_comes_from(forked: Store) -> None:
    with opened(forked, "played", "b") as [a, b]:
        last = list(b.log.read("b"))[-1]
        configured = expect(last, RunConfigured)
        assert configured.origin is not None
        assert (configured.origin.run, configured.origin.position) == ("played", a.as_of(2).position)
        assert (configured.number, last.round) == (2, 2)
        assert next(line for line in list_runs(b.database) if line.run_id == "b").origin == configured.origin


def _third_round(memory: Memory) -> None:
    player = Player(memory)
    player.open(3)
    player.score(player.question(0, [("1", 9), ("2", 2)], "kept", "c3", "c1"))
    player.trained()
    player.commit()


def test_a_fork_plays_on_with_its_own_settings(forked: Store) -> None:
    with forked.open("b") as memory:
        _third_round(memory)
        assert memory.state.causes["c3"].state == "active"  # 9/12 < 9/10; at 7/10 it was promoted
    with forked.log() as log:
        assert verify(log, "b", forked.root / "b").ok
        assert verify(log, "played", forked.root / "played").ok


def test_a_fork_of_a_fork_at_the_round_where_that_began_has_its_settings(forked: Store) -> None:
    with opened(forked, "b") as [b]:
        made = fork(b, 2, "c", root=forked.root)
        assert made.changed == ()
        after = fork(b, 1, "d", root=forked.root)  # before it began, the settings are the first run's
        assert after.changed == ()
    with opened(forked, "b", "c", "d") as [b, c, d]:
        assert [each.configuration().config["memory"]["theta_up"] for each in (b, c)] == ["9/10"] * 2
        assert d.configuration().config == CONFIG
        assert [each.event.number for each in c.configurations] == [1, 2, 3]
    with forked.open("c") as memory:
        _third_round(memory)
        assert memory.state.causes["c3"].state == "active"
    with forked.log() as log:
        assert verify(log, "c", forked.root / "c", deep=True).ok


@pytest.mark.parametrize(
    ("was", "now"), [("hashing", "sentence"), ("hashing", None), ({"name": "a"}, {"name": "b"})]
)
def test_a_fork_with_another_embedder_is_refused_however_it_is_named(
    copied: Store, was: Any, now: Any
) -> None:
    """By a word too, as in the logs of others."""
    with copied.open("a") as memory:
        player = Player(memory)
        player.configure({**CONFIG, "roles": {"embedder": was}})
        player.open(1)
        player.score()
        player.trained()
        player.commit()
    with opened(copied, "a") as [history]:
        with pytest.raises(ConfigError, match="a fork keeps the embedding model"):
            fork(history, 1, "b", {**CONFIG, "roles": {"embedder": now}}, root=copied.root)
        made = fork(history, 1, "b", {**CONFIG, "roles": {"embedder": was}}, root=copied.root)
    assert made.changed == ()


def test_a_fork_beyond_a_reactivation_names_its_own_promotion(copied: Store) -> None:
    with opened(copied, "played") as [history]:
        fork(history, 3, "late", root=copied.root)
    with copied.log() as log:
        [one, two, *_] = log.read("late", types=["CauseReactivated"])
        promotions = {r.event_id for r in log.read("late", types=["CausePromoted"])}
        undone = {expect(r, CauseReactivated).promotion for r in (one, two)}
        assert undone <= promotions
        assert verify(log, "late", copied.root / "late").ok


def _left(store: Store, *paths: str) -> None:
    """A committed round whose solver's stage left these."""
    with store.open("a") as memory:
        memory.open_round(1)
        memory.score([])
        memory.start_stage("solver")
        memory.complete_stage("solver", [Artifact(path=path, sha256="0" * 64) for path in paths])
        memory.commit()


def test_a_fork_links_the_files_that_stages_recorded(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    store = sqlite_stores.new(tmp_path)
    weights = store.root / "a" / "rounds" / "001" / "solver"
    weights.mkdir(parents=True)
    (weights / "model.bin").write_bytes(b"weights")
    _left(store, "rounds/001/solver", "rounds/001/gone")
    with opened(store, "a") as [history]:
        made = fork(history, 1, "b")
    assert (made.files, made.missing) == (("rounds/001/solver",), ("rounds/001/gone",))
    assert (store.root / "b" / "rounds" / "001" / "solver" / "model.bin").read_bytes() == b"weights"


@pytest.mark.parametrize("path", ["../outside", "rounds/../../outside", "/OUTSIDE", "writer.lock"])
def test_a_fork_takes_no_file_from_outside_of_the_runs_folder_whatever_the_log_says(
    sqlite_stores: SQLiteStores, tmp_path: Path, path: str
) -> None:
    """The log as somebody with the database rewrote it: the memory itself records no such path."""
    store = sqlite_stores.new(tmp_path)
    (store.root / "outside").write_text("of another run")
    path = path.replace("/OUTSIDE", str(store.root / "outside"))
    _left(store, "rounds/1")
    store.rewrite(lambda row: row.payload.replace('"path":"rounds/1"', f'"path":"{path}"'))
    with opened(store, "a") as [history]:
        with pytest.raises(StoreError, match=r"is not a path in rounds/.*\$\.artifacts\[0\]"):
            fork(history, 1, "b")
        assert history.log.runs() == ["a"]
    assert not (store.root / "b").exists()


def test_a_fork_that_cannot_be_made_leaves_nothing(copied: Store) -> None:
    with opened(copied, "played") as [history]:
        before = history.log.last_position()
        with pytest.raises(NotFoundError):
            fork(history, 5, "b", root=copied.root)
        with pytest.raises(ConfigError, match="exists already"):
            fork(history, 1, "played", root=copied.root)
        with pytest.raises(ConfigError, match="cannot name a run"):
            fork(history, 1, "../b", root=copied.root)
        another = {**CONFIG, "roles": {"embedder": {"model": "another"}}}
        with pytest.raises(ConfigError, match="embedding model"):
            fork(history, 1, "b", another, root=copied.root)
        assert history.log.last_position() == before
        assert history.log.runs() == ["played"]


def test_a_history_that_does_not_hold_is_not_forked(mine: Store) -> None:
    mine.tamper("UPDATE event SET payload = replace(payload, '17/24', '18/24') WHERE type = 'CausePromoted'")
    with opened(mine, "played") as [history]:
        with pytest.raises(StoreError, match="of run played is not what was written: the bytes of #"):
            fork(history, 3, "b")
        assert Log(history.database).runs() == ["played"]


def test_the_first_round_that_left_another_memory_is_named(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    """In round 2 c1 is promoted in one run, and not in the other; both go on to round 3 alike."""
    store = sqlite_stores.new(tmp_path)
    for run in ("a", "b"):
        play(store.url, run, root=store.root, rounds=1)
        with store.open(run) as memory:
            player = Player(memory)
            for number in (2, 3):
                player.open(number)
                agreeing = 9 if run == "a" and number == 2 else 6
                aim = "c1" if number == 2 else None
                player.score(player.question(0, [("1", agreeing), ("2", 1)], "kept", aim))
                player.trained()
                player.commit()
    with opened(store, "a", "b") as [a, b]:
        found = diff_runs(a, b, a.end, b.end)
        assert (found.divergence, found.further, found.same) == (2, None, False)
        assert diff_runs(a, b, a.as_of(1), b.as_of(1)).same


def test_the_order_in_which_diagnoses_arrive_is_no_difference(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    store = sqlite_stores.new(tmp_path)
    failures = ["r1.q0.a0", "r1.q0.a1"]
    for run, order in (("a", failures), ("b", failures[::-1])):
        with store.open(run) as memory:
            player = Player(memory)
            player.configure()
            player.open(1)
            player.score(player.question(0, [("1", 6)], "kept"))
            for failure in failures:
                player.fail(failure)
            for failure in order:
                player.diagnose(failure, "slip")
            player.trained()
            player.commit()
    with opened(store, "a", "b") as [a, b]:
        assert diff_runs(a, b, a.end, b.end).same


def test_causes_are_shared_where_their_words_are_equal(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    """Numbered otherwise, and one cause of two with the same words has no partner."""
    store = sqlite_stores.new(tmp_path)
    for run, descriptions in (("a", [C1, C3]), ("b", ["another slip", C1])):
        with store.open(run) as memory:
            player = Player(memory)
            player.configure()
            player.open(1)
            player.score(player.question(0, [("1", 6)], "kept"))
            for i, description in enumerate(descriptions):
                player.fail(f"r1.q0.a{i}")
                player.diagnose(f"r1.q0.a{i}", "new_cause", description=description)
            player.trained()
            for i in range(len(descriptions)):
                player.settle_new(f"r1.q0.a{i}", label=f"skill {i}")
            player.commit()
    with opened(store, "a", "b") as [a, b]:
        found = diff_runs(a, b, a.end, b.end)
    assert [(p.a.id, p.b.id) for p in found.shared] == [("c1", "c2")]
    assert [c.id for c in found.only_a] == ["c2"]
    assert [c.id for c in found.only_b] == ["c1"]


def test_shared_causes_that_differ_in_timing_are_told_apart(mine: Store) -> None:
    with opened(mine, "played") as [history]:
        fork(history, 2, "b", root=mine.root)
    with mine.open("b") as memory:
        _third_round(memory)
    with opened(mine, "played", "b") as [a, b]:
        found = diff_runs(a, b, a.end, b.end)
    assert (found.rounds, found.common_round) == ((4, 3), 3)
    assert [p.a.id for p in found.shared] == ["c3"]
    told = {p.a.id: (p.a.timing(3), p.b.timing(3)) for p in found.timing}
    assert told["c1"] == ((1, (2,), (3,)), (1, (2,), ()))
    assert told["c2"] == ((1, (3,), (3,)), (1, (), ()))
    assert [c.id for c in found.only_a] == ["c4"]


def test_what_one_run_has_not_played_is_no_difference(copied: Store) -> None:
    """Up to where both go a run and its fork are the same, and so is the timing of their causes."""
    with opened(copied, "played") as [history]:
        fork(history, 2, "b", root=copied.root)
    with opened(copied, "played", "b") as [a, b]:
        assert diff_runs(a, b, a.as_of(2), b.as_of(2)).same
        found = diff_runs(a, b, a.end, b.end)
    assert (found.divergence, found.further, found.common_round) == (None, "a", 2)
    assert ([p.a.id for p in found.shared], found.timing) == (["c1", "c2", "c3"], ())
    assert [c.id for c in found.only_a] == ["c4"]


def test_runs_are_listed_with_where_they_stand(mine: Store) -> None:
    with mine.open("younger") as memory:
        memory.open_round(1)
        memory.start_stage("challenger")
    with opened(mine, "played") as [history]:
        younger, played = list_runs(history.database)
        story = run_story(history)
    assert (younger.run_id, younger.rounds, younger.open_round, younger.stage) == (
        "younger",
        0,
        1,
        "challenger",
    )
    assert (played.rounds, played.failures, played.z, played.epsilon_next) == (
        4,
        3,
        Fraction(3, 4),
        Fraction(2, 5),
    )
    assert (played.open_round, played.writer) == (None, None)
    assert [(len(r.promoted), len(r.reactivated), r.created, r.kept) for r in story.rounds] == [
        (0, 0, 3, 2),
        (1, 0, 0, 3),
        (2, 2, 1, 4),
        (1, 1, 0, 2),
    ]
    # 3, 10, 11 and 17 of the 48 responses to the four valid questions have no vote
    assert [r.without_box for r in story.rounds] == [3 / 48, 10 / 48, 11 / 48, 17 / 48]
    assert [r.invalid for r in story.rounds] == [{"held_out": 1}, {}, {}, {}]
    assert [r.undecided for r in story.rounds] == [1, 0, 0, 0]


def test_a_round_counts_failures_against_false_labels_and_what_was_learnt(history: History) -> None:
    """Labels of questions 2 are false: two valid failures in round 2, one of them right, and one in round 3.
    Void ones (r2.q2.a7) do not count. Kept in round 2: 1, 2 and 3."""
    rounds = run_story(history).rounds
    assert [(r.against_false_labels, r.right) for r in rounds] == [(0, None), (2, 1), (1, None), (0, None)]
    assert [r.labels_true for r in rounds] == [1, 2 / 3, 3 / 4, 1]
    assert [r.solver_reward for r in rounds] == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert [r.mean_at_k for r in rounds] == [None] * 4


def test_what_two_runs_learnt_stands_beside_each_other(history: History) -> None:
    told = learnt(history, history, (1, 2))
    assert [(line.round, line.solver_reward, line.kept) for line in told] == [
        (1, (1 / 8, 1 / 8), (2, 2)),
        (2, (None, 2 / 8), (None, 3)),
    ]


def test_a_fork_and_an_import_into_another_runs_heads_are_refused_whole(
    my_history: History, tmp_path: Path
) -> None:
    export_bundle(my_history, my_history.end, tmp_path / "bundle")
    other = heads.ChainHead(1, 5, "0" * 64)
    for name in ("forked", "brought"):
        heads.append(tmp_path / name, other)
    with pytest.raises(ConflictError, match=r"has chain heads of another history: event 5, .*line 1 of"):
        fork(my_history, 1, "forked", root=tmp_path)
    with pytest.raises(ConflictError, match=r"has chain heads of another history: event 5, .*line 1 of"):
        import_bundle(tmp_path / "bundle", my_history.database, "brought", root=tmp_path)
    assert Log(my_history.database).runs() == [my_history.run_id]
    assert heads.read(tmp_path / "brought" / heads.NAME).heads == [other]


def test_a_runs_own_heads_that_outlived_its_database_are_not_written_twice(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    """Those of stages too, and of a round that is still open."""
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
    store, again = sqlite_stores.new(tmp_path / "first"), sqlite_stores.new(tmp_path / "again")
    play(store.url, "played", root=store.root, rounds=2)
    with store.open("played") as memory:
        memory.open_round(3)
    with opened(store, "played") as [history]:
        export_bundle(history, history.end, tmp_path / "bundle")
    file = store.root / "played" / heads.NAME
    kept = file.read_bytes()
    with again.log() as log:
        import_bundle(tmp_path / "bundle", log.database, root=store.root)
        *before, last = file.read_bytes().splitlines(keepends=True)
        assert b"".join(before) == kept
        assert json.loads(last)["run"]["imported"] == json.loads(before[-1])["hash"]
        report = verify(log, "played", store.root / "played")
        assert (report.ok, report.heads, report.notes) == (True, 2 * 5 + 2 + 1 + 1, [])


def test_an_imported_run_says_so_with_the_head_of_its_bundle(my_history: History, tmp_path: Path) -> None:
    manifest = export_bundle(my_history, my_history.end, tmp_path / "bundle")
    import_bundle(tmp_path / "bundle", my_history.database, "brought", root=tmp_path)
    own = my_history.run_id
    lines = {line.run_id: line.imported for line in list_runs(my_history.database)}
    assert lines == {"brought": manifest.head, own: None}
    url = str(my_history.database.file)
    shown = invoke("runs", "show", "brought", "--db", url, env={"DIAGEVO_HOME": str(tmp_path)})
    assert f"imported       from the bundle that ends in {manifest.head}" in shown.output
    listed = invoke("runs", "list", "--format", "csv", "--db", url, env={"DIAGEVO_HOME": str(tmp_path)})
    assert f"bundle {manifest.head[:12]}…" in listed.output
    assert "imported" not in invoke("runs", "show", my_history.run_id, "--db", url).output
