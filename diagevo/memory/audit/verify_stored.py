"""The second half of `memory verify --deep`: what is stored beside the chain. Texts and replies against
their digests, and pages with the types of their values, which PostgreSQL checks itself; there, what its views
show.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from sqlalchemy import Connection, func, select, table
from sqlalchemy.exc import DBAPIError

from diagevo.errors import StoreError
from diagevo.memory.audit.verification import Fault, Verification
from diagevo.memory.events.named_texts import NAMING, named_texts
from diagevo.memory.events.records import Recorded
from diagevo.memory.log.artifacts import DigestSet, is_text
from diagevo.memory.log.check import found_in, integrity
from diagevo.memory.log.log import Log
from diagevo.memory.log.prepared import PAGE
from diagevo.memory.log.tables import ARTIFACT, REPLY, VECTOR
from diagevo.memory.read.views import views


def check_stored(log: Log, run_id: str, report: Verification) -> None:
    """Add findings to the report. Call it inside a view."""
    with log.database.read() as connection:
        if log.database.dialect == "sqlite":
            found = integrity(connection, "sqlite")
            if not found.ok:
                report.faults.append(Fault("pages", found.detail))
        else:
            report.faults.extend(_wrong_views(connection))
        report.faults.extend(_wrong_vectors(connection))
        report.notes.extend(_undigested(connection))
    report.faults.extend(_wrong_replies(log))
    _check_texts(log, run_id, report)
    if not any(fault.check == "text" for fault in report.faults):  # which name the event
        report.faults.extend(_wrong_contents(log))


def _wrong_views(connection: Connection) -> Iterator[Fault]:
    """Of PostgreSQL, the views that show something else than ours. It keeps no text of a view, but plans two
    that say the same alike; nothing is written or run."""
    there = found_in(connection, "postgresql")
    for name, query in views("postgresql").items():
        if f"view {name}" not in there:
            continue  # which is named already
        for _ in range(3):  # statistics that change between the two plans change one of them
            shown: list[list[str]] = []
            for source in (name, f"({query})"):
                statement = f"SELECT * FROM {source} {name} LIMIT 0".replace("%", "%%")
                plan = connection.exec_driver_sql(f"EXPLAIN (VERBOSE, COSTS OFF) {statement}").scalars()
                shown.append([*_aliased(plan), *connection.exec_driver_sql(statement).keys()])
            if shown[0] == shown[1]:
                break
        else:
            yield Fault("schema", f"view {name} is not as the migrations make it")


_ALIAS = re.compile(r"\b([a-z]\w*)(?=\.)|(?<= )([a-z]\w*)$", re.MULTILINE)
"""A table's name in a plan: before a column, or at the end of the line that scans it."""


def _aliased(plan: Iterable[str]) -> list[str]:
    """A plan with its table names numbered in the order in which they first appear. PostgreSQL tells equal
    names apart as g and g_1, and a view that a dump restored may have these exchanged."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        base = re.sub(r"(_\d+)+$", "", match[0])
        return numbers.setdefault(match[0], f"{base}#{len(numbers)}")

    return _ALIAS.sub(number, "\n".join(plan)).split("\n")


def _wrong_vectors(connection: Connection) -> Iterator[Fault]:
    """The first vector that is not a row of finite numbers of its model's dimension."""
    rows = connection.execute(select(VECTOR), execution_options={"yield_per": PAGE})
    for row in rows:
        model, text_hash, content = row.model, row.text_hash, row.vector
        whole = isinstance(model, str) and isinstance(content, bytes) and len(content) % 4 == 0
        if whole:
            numbers = np.frombuffer(content, dtype="<f4")
            model = model.partition("\n")[0]
            whole = model.rpartition("/")[2] in ("0", str(len(numbers))) and np.isfinite(numbers).all()
        if not whole:
            yield Fault("vectors", f"the vector {str(text_hash)[:12]}… of {model} is damaged")
            return


_UNDIGESTED = ("vector", "evaluation", "evaluation_result", "oracle")


def _undigested(connection: Connection) -> Iterator[str]:
    """The log names no digest of these: any value of the right type passes."""
    counts = {
        name: connection.execute(select(func.count()).select_from(table(name))).scalar_one()
        for name in _UNDIGESTED
    }
    there = [f"{count} {name}" for name, count in counts.items() if count]
    if there:
        yield f"outside the chain, so types were checked and values were not (rows of): {', '.join(there)}"


def _texts(log: Log, run_id: str) -> Iterator[tuple[Recorded, str]]:
    for record in log.read(run_id, types=[event.__name__ for event in NAMING]):
        for _, digest in named_texts(record.event):
            yield record, digest


def _check_texts(log: Log, run_id: str, report: Verification) -> None:
    """Every text that an event names, checked once: it exists and has that digest."""
    seen = DigestSet()
    try:
        batch: dict[str, Recorded] = {}
        for record, digest in _texts(log, run_id):
            if seen.add(digest):
                batch[digest] = record
                report.texts += 1
            if len(batch) == PAGE:
                report.faults.extend(_wrong_texts(log, batch))
                batch.clear()
        report.faults.extend(_wrong_texts(log, batch))
    except (StoreError, DBAPIError):
        report.notes.append("not all texts were checked: an event that names some cannot be read")
    finally:
        seen.close()


def _wrong_texts(log: Log, batch: Mapping[str, Recorded]) -> Iterator[Fault]:
    right = _right(log, list(batch))
    for digest, record in batch.items():
        if digest not in right:
            where = f"#{record.position} {record.type}"
            message = f"the text {digest[:12]}… of {where} is missing or was changed"
            yield Fault("text", message, record.position, record.event_id)


def _right(log: Log, digests: Sequence[str]) -> set[str]:
    """The digests whose text exists and is intact."""
    query = select(ARTIFACT.c.digest, ARTIFACT.c.content).where(ARTIFACT.c.digest.in_(digests))
    try:
        with log.database.read() as connection:
            return {d for d, content in connection.execute(query) if is_text(content, d)}
    except DBAPIError:
        # A text that the driver cannot decode hides the others.
        return {d for digest in digests for d in _right(log, [digest])} if len(digests) > 1 else set()


def _wrong_contents(log: Log) -> Iterator[Fault]:
    """The first text in the database that does not match its digest, though no event of the run names it."""
    query = select(ARTIFACT.c.digest, ARTIFACT.c.content)
    try:
        with log.database.read() as connection:
            for digest, content in connection.execute(query, execution_options={"yield_per": PAGE}):
                if not is_text(content, digest):
                    yield Fault(
                        "text", f"the text {str(digest)[:12]}… was changed; no event of this run names it"
                    )
                    return
    except DBAPIError as error:
        yield Fault("text", f"a text that no event of this run names cannot be read: {error.orig}")


def _wrong_replies(log: Log) -> Iterator[Fault]:
    """The first stored reply whose text is missing: a resumed run would use it."""
    query = select(REPLY.c.model, REPLY.c.request, REPLY.c.text)
    with log.database.read() as connection:
        for page in connection.execute(query, execution_options={"yield_per": PAGE}).partitions():
            right = _right(log, [row.text for row in page])
            for row in page:
                if row.text not in right:
                    request = str(row.request)[:12]
                    yield Fault("text", f"the reply of {row.model} to {request}… is missing or was changed")
                    return
