"""`played`: every test of it runs on SQLite and on PostgreSQL."""

import pytest

from tests.contracts.databases import Store
from tests.memory.play import candidate, first_round


@pytest.fixture
def played(store: Store) -> Store:
    """Two committed rounds; event 9 is CandidateScored of round 1."""
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 2)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 9, cause="c1")])
        memory.commit()
    return store
