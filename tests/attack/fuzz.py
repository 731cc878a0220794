"""Damage a small database in every way, and ask it: `python -m tests.attack.fuzz bytes|cells|readers`.

What comes back must be a fault, an error that says what is damaged, or "as it was written" where the change
does not matter (`tests/attack/damage.py` says where). Anything else is told, and the exit code is 1.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from diagevo.errors import DiagEvoError
from diagevo.memory.audit.verify import verify
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import prepare
from tests.attack.damage import PAGE_SIZE, RUN, Base, Byte, Cell
from tests.cli.program import invoke

READERS: Sequence[tuple[str, ...]] = (
    ("memory", "show"),
    ("memory", "show", "--tree"),
    ("memory", "why", "c1", "--full"),
    ("memory", "log"),
    ("memory", "log", "--json"),
    ("memory", "replay"),
    ("memory", "schedule"),
    ("memory", "what-if", "--k", "1"),
    ("runs", "diff", "1..2"),
    ("memory", "query", "SELECT * FROM v_candidate"),
    ("memory", "query", "SELECT * FROM v_cause_history"),
    ("memory", "verify", "--deep"),
    ("runs", "list"),
    ("runs", "show"),
    ("eval", "show"),
    ("db", "status"),
    ("runs", "export", "-o", "{out}"),
)
"""Every kind of reading; `{out}` is a folder that is not there."""
CLEAR = {0, 1, 2, 3, 5}
"""Exit codes of a reader: it answered, found something, or said what is wrong."""


@dataclass(frozen=True)
class Outcome:
    """`kind`: fault, refused, passed (the change does not matter), missed (it does), or crash."""

    kind: str
    detail: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in ("missed", "crash")


class Asker:
    """`memory verify --deep` of one file after another at one place; statements are compiled once."""

    def __init__(self, base: Base, folder: Path) -> None:
        self.base = base
        self.file = base.copy(folder)
        self.database = Database(str(self.file))
        self.log = Log(self.database)

    def ask(self) -> Outcome:
        """What is said of the file as it is now."""
        try:
            prepare(self.database, create=False)
            report = verify(self.log, RUN, self.file.parent / RUN, deep=True)
        except DiagEvoError as error:
            return Outcome("refused", f"exit {error.exit_code}: {error.message}")
        except Exception as error:  # what is looked for: each kind of it is a finding
            return Outcome("crash", f"{type(error).__name__}: {error}")
        finally:
            self.database.close()
        if report.faults:
            return Outcome("fault", f"{report.faults[0].check}: {report.faults[0].message}")
        changed = self.base.changed(self.file)
        return Outcome("missed", str(changed)) if changed or changed is None else Outcome("passed")


def outcomes(base: Base, cases: Iterable[Cell | Byte]) -> Iterator[tuple[Cell | Byte, Outcome]]:
    """Each damage that the file can hold, with what verify says of it."""
    with TemporaryDirectory() as folder:
        asker = Asker(base, Path(folder))
        for case in cases:
            for companion in ("-wal", "-shm", "-journal"):
                Path(f"{asker.file}{companion}").unlink(missing_ok=True)
            if base.damage(asker.file, case):
                yield case, asker.ask()


def read(base: Base, case: Cell | Byte, arguments: Sequence[str]) -> Outcome:
    """What a reading command says of the damage."""
    with TemporaryDirectory() as folder:
        base.damage(base.copy(Path(folder)), case)
        out = str(Path(folder) / "out")
        said = invoke(*(a.format(out=out) for a in arguments), env={"DIAGEVO_HOME": folder})
    clear = said.exit_code in CLEAR and "Traceback" not in said.output
    return Outcome(f"exit {said.exit_code}" if clear else "crash", said.output[-300:])


def readers(base: Base, cases: Iterable[Cell | Byte]) -> Iterator[tuple[str, Outcome]]:
    """What every reading command says of each damage."""
    for case in cases:
        for arguments in READERS:
            yield f"{case}: {' '.join(arguments)}", read(base, case, arguments)


def sample(base: Base, cells: int, random_bytes: int, seed: int) -> list[Cell | Byte]:
    """A bounded part of all: cells and bytes by chance, and the first byte of every page's header."""
    chance = random.Random(seed)
    headers = [Byte(offset, 0xFF) for offset in range(0, len(base.content), PAGE_SIZE)]
    some = chance.sample(list(base.byte_cases(seed)), random_bytes)
    return list(chain(chance.sample(list(base.cell_cases()), cells), headers, some))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack.fuzz", description=__doc__)
    parser.add_argument("what", choices=["bytes", "cells", "readers"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, help="so many by chance; all of them without it")
    parser.add_argument("--part", default="1/1", help="K/N: every Nth case from the Kth on, for N processes")
    parser.add_argument(
        "--skip", type=int, default=0, help="so many of the part's cases: those played before"
    )
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    with TemporaryDirectory() as folder:
        # A round of the log has every type of row; two have merges, recurrences and an abandoned attempt too.
        base = Base(Path(folder), rounds=1 if chosen.what == "bytes" else 2)
        if chosen.what == "readers":
            chance, each = random.Random(chosen.seed), chosen.sample or 30
            some = chance.sample(list(base.byte_cases(chosen.seed)), each)
            told = readers(base, [*chance.sample(list(base.cell_cases()), each), *some])
        else:
            whole = base.byte_cases(chosen.seed) if chosen.what == "bytes" else base.cell_cases()
            cases = list(whole)
            if chosen.sample is not None:
                cases = random.Random(chosen.seed).sample(cases, chosen.sample)
            told = outcomes(base, cases[part - 1 :: parts][chosen.skip :])
        return _report(told, len(base.content))


def _report(told: Iterable[tuple[object, Outcome]], size: int) -> int:
    counts: Counter[str] = Counter()
    bad = 0
    for case, outcome in told:
        counts[outcome.kind] += 1
        if outcome.bad:
            bad += 1
            print(f"{outcome.kind}: {case}: {outcome.detail}", flush=True)
        if sum(counts.values()) % 5000 == 0:
            print(f"so far {dict(counts.most_common())}", file=sys.stderr)
    print(f"{sum(counts.values())} cases on {size} bytes: {dict(counts.most_common())}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
