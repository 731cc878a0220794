"""Keys that were met so far, as many as a run has texts: kept in a temporary file, not in memory."""

import sqlite3


class Seen:
    """A set of texts in a database of its own, which is gone when it is closed."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # without a name: a file that nobody else sees
        self._file.execute("CREATE TABLE seen (key TEXT PRIMARY KEY) WITHOUT ROWID")
        self._file.execute("BEGIN")

    def add(self, key: str) -> bool:
        """Whether the key is new."""
        return self._file.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount > 0

    def remove(self, key: str) -> bool:
        """Whether the key was there."""
        return self._file.execute("DELETE FROM seen WHERE key = ?", (key,)).rowcount > 0

    def __contains__(self, key: str) -> bool:
        return self._file.execute("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() is not None

    def close(self) -> None:
        self._file.close()
