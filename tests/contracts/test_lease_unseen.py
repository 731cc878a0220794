"""Holders that this process cannot see: on other machines, in containers, before a restart; wrong clocks."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from diagevo.errors import StoreError
from diagevo.memory.log import lease
from diagevo.memory.log.lease import Holder, Watch, acquire, writer
from diagevo.memory.log.log import RUN
from tests.contracts.databases import Store
from tests.contracts.test_heads import MEASURED

ELSEWHERE = "elsewhere:17:99:5dcf3528-26cd-4b98-bf5a-000000000000:4026531836"


class Steps:
    """A steady clock that moves where somebody waits, and by nothing else; `then` happens at one step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.count = 1000.0, 0
        self.at, self.then = 0, lambda: None
        monkeypatch.setattr(lease, "monotonic", lambda: self.now)
        monkeypatch.setattr(lease, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.count += 1
        if self.count == self.at:
            self.then()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def _hold(store: Store, holder: str, ago: timedelta = timedelta(0)) -> None:
    seen = (datetime.now(UTC) - ago).isoformat(timespec="microseconds")
    with store.log() as log, log.database.write() as connection:
        connection.execute(update(RUN).values(holder=holder, renewed_at=seen))


def _stand(store: Store) -> tuple[str | None, int]:
    with store.log() as log, log.database.read() as connection:
        return tuple(connection.execute(select(RUN.c.holder, RUN.c.fence)).one())  # pyright: ignore[reportReturnType]  (two columns)


@pytest.fixture
def begun(store: Store) -> Store:
    """A run that nobody holds; its fence is 1."""
    with store.open() as memory:
        memory.open_round(1)
    return store


@pytest.mark.parametrize("ago", [timedelta(hours=-1), timedelta(0), timedelta(hours=1), timedelta(days=900)])
def test_a_silent_holder_is_gone_after_90_seconds_of_our_own_whatever_its_clock_said(
    begun: Store, steps: Steps, ago: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    _hold(begun, ELSEWHERE, ago)
    with begun.log() as log:
        assert acquire(log, "a") == 2
    assert steps.count == 90
    [told] = caplog.messages
    assert told == (
        "run a is held by process 17 on elsewhere, which cannot be seen from here: watching for 90 s whether"
        " it renews its lease"
    )


@pytest.mark.parametrize("ago", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_holder_that_renews_while_it_is_watched_keeps_the_run_whatever_its_clock_says(
    begun: Store, steps: Steps, ago: timedelta
) -> None:
    _hold(begun, ELSEWHERE, ago)
    steps.at, steps.then = 89, lambda: _hold(begun, ELSEWHERE, ago + timedelta(hours=2))
    with begun.log() as log, pytest.raises(StoreError, match="process 17 on elsewhere, last seen 20"):
        acquire(log, "a")
    assert (steps.count, _stand(begun)) == (89, (ELSEWHERE, 1))


def test_a_holder_that_appends_while_it_is_watched_keeps_the_run(begun: Store, steps: Steps) -> None:
    writing = begun.open()
    writing.claim()
    _hold(begun, ELSEWHERE, timedelta(hours=1))
    steps.at, steps.then = 3, lambda: writing.evaluated(MEASURED, 1)
    with begun.log() as log, pytest.raises(StoreError, match="process 17 on elsewhere"):
        acquire(log, "a")
    assert steps.count == 3
    writing.close()


def test_of_two_who_watched_the_same_silence_one_takes_the_run(begun: Store, steps: Steps) -> None:
    _hold(begun, ELSEWHERE)

    def other_takes_it() -> None:
        steps.at = 0
        _hold(begun, ELSEWHERE.replace("17", "18"))

    real = lease._wait

    def wait(*arguments: object) -> None:
        real(*arguments)  # pyright: ignore[reportArgumentType]
        other_takes_it()

    with pytest.MonkeyPatch.context() as patched, begun.log() as log:
        patched.setattr(lease, "_wait", wait)
        with pytest.raises(StoreError, match="process 18 on elsewhere"):
            acquire(log, "a")


def test_what_the_user_takes_over_is_not_waited_for(begun: Store, steps: Steps) -> None:
    _hold(begun, ELSEWHERE)
    with begun.log() as log:
        assert acquire(log, "a", takeover=True) == 2
    assert steps.count == 0


def _here(**changed: object) -> Callable[[], str]:
    return lambda: str(replace(Holder.current(), pid=os.getppid(), **changed))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "holder",
    [
        _here(boot="5dcf3528-26cd-4b98-bf5a-000000000000"),
        _here(namespace="1"),
        lambda: ":".join(_here()().split(":")[:3]),
        lambda: "elsewhere:17:99",
        lambda: "what no version wrote",
        lambda: "elsewhere:-1:99",
        lambda: "elsewhere:" + "9" * 5000 + ":99",
        lambda: ":::::::",
    ],
    ids=["another boot", "another namespace", "three fields", "elsewhere", "no holder", "-1", "9…", "colons"],
)
def test_a_process_id_of_another_boot_or_container_or_an_old_row_says_nothing(
    begun: Store, steps: Steps, holder: Callable[[], str]
) -> None:
    """The parent's process id is used here, and by a process that began at another time."""
    _hold(begun, holder())
    with begun.log() as log:
        assert Watch(log.database, "a").look() is None
        assert ", last seen 20" in (writer(log.database, "a") or "")
        assert acquire(log, "a") == 2
    assert steps.count == 90


def test_a_name_of_the_machine_that_changed_hides_no_holder(begun: Store, steps: Steps) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = lease._began(child.pid)
    assert began
    _hold(begun, str(replace(Holder.current(), host="renamed", pid=child.pid, began=began)))
    with begun.log() as log:
        with pytest.raises(StoreError, match=f"process {child.pid} on this machine"):
            acquire(log, "a")
        child.communicate(b"\n")
        assert acquire(log, "a") == 2
    assert steps.count == 0


def test_a_holder_is_read_as_it_was_written() -> None:
    me = Holder.current()
    assert Holder.parse(str(me)) == me
    assert (me.boot.count("-"), me.namespace.isdecimal()) == (4, True)
    assert Holder.parse("host:17:99") == Holder("host", 17, "99", "", "")


def test_where_the_system_tells_nothing_a_holder_is_watched_and_our_own_lease_is_ours(
    begun: Store, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_place", lambda: ("", ""))
    monkeypatch.setattr(lease, "_began", lambda pid: None)
    other = replace(Holder.current(), began="another process that had this id")
    _hold(begun, str(other))
    with begun.log() as log:
        assert acquire(log, "a") == 2
        assert steps.count == 90
        assert acquire(log, "a") == 3
    assert steps.count == 90


def test_somebody_who_joins_knows_a_run_is_played_once_its_lease_is_renewed(
    begun: Store, steps: Steps
) -> None:
    with begun.log() as log:
        watch = Watch(log.database, "a")
        assert watch.look() is False
        _hold(begun, ELSEWHERE, timedelta(hours=5))
        assert watch.look() is None
        steps.now += 15
        _hold(begun, ELSEWHERE, timedelta(hours=4))
        assert watch.look() is True
        steps.now += 89
        assert watch.look() is True
        steps.now += 1
        assert watch.look() is False
        assert Watch(log.database, "none").look() is False


HOLD = """
import sys, pathlib, diagevo
from diagevo.memory.log import lease
lease.RENEWED = 0.05
memory = diagevo.open(sys.argv[1], run="a", root=pathlib.Path(sys.argv[2]))
memory.open_round(1)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _in_a_namespace(store: Store) -> Iterator[subprocess.Popen[str]]:
    """A holder with process ids of its own, as in a container. Its end ends the namespace."""
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        alone += ["--user", "--map-root-user"]
    process = subprocess.Popen(
        [*alone, sys.executable, "-c", HOLD, store.url, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "held\n":
            said = process.communicate()[1]
            if "unshare" in said:
                pytest.skip(f"no namespace of one's own here: {said.strip()}")
            raise AssertionError(said)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_holder_in_a_container_of_the_same_host_name_keeps_its_run_until_it_dies(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id is 1 there, and that of another process here."""
    monkeypatch.setattr(lease, "LOOK", 0.01)
    with _in_a_namespace(store), store.log() as log:
        held = Holder.parse(_stand(store)[0] or "")
        assert (held.host, held.pid, held.boot) == (Holder.current().host, 1, Holder.current().boot)
        with pytest.raises(
            StoreError, match=rf"process 1 on {held.host} \(a container, or before a restart\)"
        ):
            acquire(log, "a")
    monkeypatch.setattr(lease, "LOOK", 1.0)
    steps = Steps(monkeypatch)
    with store.log() as log:
        assert acquire(log, "a") == 2
    assert steps.count == 90
