"""The documents shown to a challenger: read once from a file, drawn by a seed.

Their texts are kept in a temporary file, so that a large corpus needs no memory: a draw needs only the offset
of each.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import SpooledTemporaryFile, gettempdir
from typing import Literal, get_args

import msgspec

from diagevo.config.models import CorpusConfig
from diagevo.errors import ConfigError
from diagevo.ingest.formats.table_reader import TableReader, decoded
from diagevo.ingest.json_lines import CutLine, typed

Subject = Literal["mathematics", "general"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)

HINT = 'each line, or row, needs "text"; it may have "kind": "mathematics" or "general"'
IN_MEMORY = 2**26
"""Maximum bytes of text kept in memory without a file."""


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A text, and the kind of answers requested from it."""

    text: str
    kind: Subject = "general"


class _Row(msgspec.Struct):
    text: str
    kind: Subject | None = None


def shown_documents(file: Path) -> Iterator[tuple[str, SourceDocument]]:
    """Each document of a JSONL or Parquet file, with its place. Other columns are ignored. Raises
    ConfigError, with the place, and MissingDependencyError."""
    try:
        yield from _table(file) if file.suffix == ".parquet" else _lines(file)
    except CutLine as error:
        raise ConfigError(f"corpus.file: {file} ends inside a document", hint="write it whole") from error
    except ConfigError as error:
        raise ConfigError(f"corpus.file: {error.message}", hint=HINT) from error


def _lines(file: Path) -> Iterator[tuple[str, SourceDocument]]:
    for number, row in typed(file, _Row):
        yield f"{file}, line {number},", _document(row)


def _table(file: Path) -> Iterator[tuple[str, SourceDocument]]:
    decoder = msgspec.json.Decoder(_Row)
    with TableReader() as reader:
        columns, rows = reader.read(file, ("text", "kind"))
        if "text" not in columns.columns:
            shown = ", ".join(columns.columns[:20]) or "none"
            raise ConfigError(f"{file} has no column text; it has: {shown}")
        for number, row in enumerate(rows, 1):
            yield f"{file}, row {number},", _document(decoded(file, number, row, decoder))


def _document(row: _Row) -> SourceDocument:
    return SourceDocument(row.text, row.kind or "general")


class Corpus:
    """The documents that may be shown, by number in the order of their file.

    Empty and repeated ones are left out and counted; one that is too long keeps its beginning.
    """

    def __init__(
        self,
        documents: Iterable[tuple[str, SourceDocument]],
        name: str,
        settings: CorpusConfig,
        is_held_out: Callable[[str], bool],
    ) -> None:
        """`documents`: with the place of each, for messages; `name`: of the corpus. Raises ConfigError if
        none is left, or if one is, or has a line that is, a question of the validation set."""
        self.name, self.settings = name, settings
        self.empty = self.repeated = self.cut = 0
        self.of: dict[Subject, array[int]] = {subject: array("Q") for subject in SUBJECTS}
        """Numbers of the documents of each kind."""
        self._kinds, self._starts, self._end = bytearray(), array("Q"), 0
        self._texts = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  (open as long as this is)
        self._whole = hashlib.sha256()
        try:
            self._read(documents, is_held_out)
        except OSError as error:
            raise ConfigError(
                f"corpus.file: the texts of {name} cannot be kept in {gettempdir()}: {error.strerror}",
                hint="set TMPDIR to a folder with more space, or corpus.documents to fewer",
            ) from error
        if not len(self):
            left = f": {self.empty} are empty" if self.empty else ""
            raise ConfigError(f"corpus.file: {name} holds no documents{left}", hint=HINT)

    def _read(
        self, documents: Iterable[tuple[str, SourceDocument]], is_held_out: Callable[[str], bool]
    ) -> None:
        seen, most = set[bytes](), self.settings.documents
        for where, document in documents:
            if most is not None and len(self.of[document.kind]) >= most:
                if all(len(numbers) >= most for numbers in self.of.values()):
                    return
                continue
            text = document.text.strip()
            if not text:
                self.empty += 1
                continue
            if any(is_held_out(part) for part in {text, *map(str.strip, text.splitlines())} if part):
                raise ConfigError(
                    f"corpus.file: {where} has a question of the validation set: training on it would be"
                    " measured",
                    hint="leave that document out",
                )
            shown = text[: self.settings.characters]
            try:
                content = shown.encode()
            except UnicodeEncodeError as error:
                raise ConfigError(
                    f"corpus.file: {where} holds half of a character (a lone surrogate)", hint=HINT
                ) from error
            if (digest := hashlib.blake2b(content, digest_size=16).digest()) in seen:
                self.repeated += 1
                continue
            seen.add(digest)
            self.cut += len(shown) < len(text)
            self.of[document.kind].append(len(self))
            self._kinds.append(SUBJECTS.index(document.kind))
            self._starts.append(self._end)
            self._texts.write(content)
            self._end += len(content)
            self._whole.update(document.kind.encode() + len(content).to_bytes(8, "big") + content)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> SourceDocument:
        start = self._starts[number]
        end = self._starts[number + 1] if number + 1 < len(self) else self._end
        self._texts.seek(start)
        text = self._texts.read(end - start).decode()
        return SourceDocument(text, SUBJECTS[self._kinds[number]])

    @property
    def digest(self) -> str:
        """SHA-256 of all kinds and texts in order, hexadecimal: the log's record of the corpus."""
        return self._whole.hexdigest()

    def draw(self, rng: Random, count: int) -> list[SourceDocument]:
        """Draw this many documents, uniformly within each kind. If there are both kinds, a draw is of
        mathematics with probability `corpus.mathematics`."""
        found: list[SourceDocument] = []
        for _ in range(count):
            both = all(self.of.values())
            mathematics = rng.random() < self.settings.mathematics if both else bool(self.of["mathematics"])
            found.append(self[rng.choice(self.of["mathematics" if mathematics else "general"])])
        return found

    def summary(self) -> str:
        """How many documents there are, and how many were left out or cut."""
        parts = [f"{len(numbers)} of {subject}" for subject, numbers in self.of.items() if numbers]
        left = [
            f"{count} {what}"
            for count, what in (
                (self.repeated, "left out, as they repeat another"),
                (self.empty, "left out, as they are empty"),
                (self.cut, f"cut to {self.settings.characters} characters"),
            )
            if count
        ]
        return "; ".join([f"{self.name}: {', '.join(parts)}", *left])

    def close(self) -> None:
        self._texts.close()
