"""Attacks on the executor: nothing gets out of it, and each ends in bounded time."""

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from diagevo.executing import executor
from diagevo.executing.executor import Execution, PythonExecutor
from tests.executing.attacks import BANNED, LATE

pytestmark = pytest.mark.slow
TOKEN = "token-8c1f3a"
SECONDS = 4.0
"""On the clock, for one run here."""

_NO_LISTS = """import sys
sys.path.append(sys.argv[1])
from diagevo.executing import child
import builtins, importlib
def bare(modules):
    return {"__builtins__": vars(builtins), "__name__": "program"}
def loaded(name):
    try:
        importlib.import_module(name)
    except BaseException:
        pass
child.check_program, child._world, child.import_module = (lambda tree: None), bare, loaded
"""
_ALL_ALLOWED = _NO_LISTS + "child.main()\n"
"""A child without the allow-lists, as if the first wall had fallen."""
_ONLY_KERNEL = _NO_LISTS + "sys.addaudithook = lambda hook: None\nchild.main()\n"
"""A child without the audit hook either."""


@dataclass
class Outside:
    """What an attack would reach, and whether one did."""

    secret: Path
    canary: Path
    port: int
    callers: list[object] = field(default_factory=list)

    def aimed(self, program: str) -> str:
        places = {"SECRET": str(self.secret), "CANARY": str(self.canary), "PORT": str(self.port)}
        for name, place in places.items():
            program = program.replace(name, place)
        return program

    def unharmed(self) -> bool:
        kept = self.secret.read_text() == TOKEN and self.secret.stat().st_mode & 0o777 == 0o644
        return kept and not self.canary.exists() and not self.callers


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    folder = tmp_path_factory.mktemp("outside")
    folder.chmod(0o777)
    for above in folder.parents[:3]:
        above.chmod(above.stat().st_mode | 0o055) if above.owner() == folder.owner() else None
    secret = folder / "secret"
    secret.write_text(TOKEN)
    secret.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Outside(secret, folder / "canary", server.getsockname()[1])

        def count() -> None:
            while True:
                try:
                    found.callers.append(server.accept())
                except OSError:
                    return

        threading.Thread(target=count, daemon=True).start()
        yield found
        server.shutdown(socket.SHUT_RDWR)


def _attacked(outside: Outside, programs: list[str]) -> list[Execution]:
    began = time.monotonic()
    found = PythonExecutor(2, SECONDS).run_many([(outside.aimed(p), ["1"]) for p in programs])
    # Each may take its time twice, and two play at a time; what is over is for a busy machine.
    assert time.monotonic() - began < len(programs) * (2 * SECONDS + 2)
    return found


def test_there_are_more_than_two_hundred_of_them_and_none_twice() -> None:
    programs = [*BANNED, *(program for program, _ in LATE)]
    assert len(programs) == len(set(programs)) > 200


@pytest.mark.parametrize("part", range(4))
def test_what_reaches_for_the_machine_is_refused_before_it_runs(
    outside: Outside, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", TOKEN)
    programs, late = BANNED[part::4], 0
    for program, found in zip(programs, _attacked(outside, programs), strict=True):
        late += found.refused != "banned"
        assert found.refused in ("banned", "timeout"), program  # a busy machine may not get so far
        assert found.outputs == (), program
        assert found.walls is None, program  # it was never begun
    assert late <= len(programs) // 4
    assert outside.unharmed()


@pytest.mark.parametrize("part", range(4))
def test_what_holds_the_machine_up_or_gives_no_value_is_refused_by_its_kind(
    outside: Outside, part: int
) -> None:
    attacks, late = LATE[part::4], 0
    for (program, kind), found in zip(attacks, _attacked(outside, [p for p, _ in attacks]), strict=True):
        late += found.refused != kind
        assert found.refused in (kind, "timeout"), program  # a busy machine may not get so far
        assert found.outputs == (), program
        assert TOKEN not in found.why
    assert late <= len(attacks) // 4
    assert outside.unharmed()


@pytest.mark.parametrize("child", [_ALL_ALLOWED, _ONLY_KERNEL], ids=["without lists", "kernel alone"])
@pytest.mark.parametrize("part", range(4))
def test_with_the_lists_off_nothing_gets_out_either(
    outside: Outside, part: int, child: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second wall by itself, and without the hook of Python the third: whatever a program computed about
    its own process, it read no file, asked nobody, started nothing and left nothing behind."""
    monkeypatch.setenv("TOKEN", TOKEN)
    if "system_call_filter" not in PythonExecutor().walls():
        pytest.skip("this kernel filters no system calls, and some of these kill what they can")
    monkeypatch.setattr(executor, "_CHILD", child)
    began = [f for f in _attacked(outside, BANNED[part::4]) if f.walls is not None]
    assert len(began) > 30  # the others are no Python at all
    assert not [found for found in began if TOKEN in repr(found)]
    assert outside.unharmed()
