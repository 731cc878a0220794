"""References as people write them."""

import pytest

from diagevo.errors import ConfigError, NotFoundError
from diagevo.memory.history import History, open_history, resolve_run
from diagevo.memory.stories.references import Reference, resolve
from tests.contracts.databases import Store


@pytest.mark.parametrize(
    ("text", "kind", "id_"),
    [
        ("c2", "cause", "c2"),
        ("n3", "node", "n3"),
        ("C2", "cause", "c2"),
        ("r3.q0", "question", "r3.q0"),
        ("r3.q3.a1", "failure", "r3.q3.a1"),
        ("MINUS sign", "cause", "c2"),
        ("powers of one base", "cause", "c4"),
        ("subtraction", "node", "n3"),
        ("Column arithmetic", "node", "n1"),
    ],
)
def test_ids_and_unambiguous_pieces_name_one_thing(history: History, text: str, kind: str, id_: str) -> None:
    found = resolve(history, text, history.end)
    assert (found.kind, found.id) == (kind, id_)


def test_an_ambiguous_piece_lists_the_candidates(history: History) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(history, "column", history.end)
    assert caught.value.exit_code == 2
    listed = [line.split()[0] for line in (caught.value.hint or "").splitlines()[1:]]
    assert listed == ["c1", "c3", "n1", "n3"]


def test_the_kind_may_settle_what_is_meant(history: History) -> None:
    with pytest.raises(ConfigError, match="matches 2 descriptions"):
        resolve(history, "column", history.end, "node")
    assert resolve(history, "column ar", history.end, "node") == Reference("node", "n1")


@pytest.mark.parametrize("text", ["c9", "n9", "r3.q99", "r3.q3.a7", "no such words", ""])
def test_what_does_not_exist_is_not_found(history: History, text: str) -> None:
    with pytest.raises(NotFoundError):
        resolve(history, text, history.end)


def test_what_came_later_does_not_exist_yet(history: History) -> None:
    with pytest.raises(NotFoundError, match="c4"):
        resolve(history, "c4", history.as_of(2))


def test_another_kind_than_wanted_is_said(history: History) -> None:
    with pytest.raises(ConfigError, match="is a question"):
        resolve(history, "r3.q0", history.end, "cause", "node")


def test_an_unknown_run_lists_the_runs(played: Store) -> None:
    with pytest.raises(NotFoundError) as caught:
        open_history(played.url, "other")
    assert (caught.value.hint, caught.value.exit_code) == ("runs: played", 3)


def test_latest_is_the_run_that_was_written_to_last(mine: Store) -> None:
    with mine.open("younger") as memory:
        memory.open_round(1)
    history = open_history(mine.url)
    assert history.run_id == "younger"
    with mine.open("played") as memory:
        memory.open_round(5)
    assert resolve_run(history.database, "latest") == "played"
    history.close()
