"""The search finds the same over SQLite and over PostgreSQL: what plain Python finds word by word."""

import re
import unicodedata
from pathlib import Path

import pytest

from diagevo.errors import ConfigError
from diagevo.memory.history import open_history
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.read.responses import Chosen, Responses
from tests.contracts.databases import PostgresStores
from tests.view.test_responses import QUERIES, Home

TEXTS = (
    "Die Straße ist größer als der Fluß, Äpfel sind über 3 € teuer.",
    "DIE GRÖSSE DER STRASSE: sie ist Größer.",
    "The naïve café is bigger; naive cafe.",
    "东京塔很高,北京也很高。",
    "東京タワーは高い (tower)",
    "SELECT count(distinct t.user_id) FROM orders_2024 AS t WHERE x>=3.14;",
    "def add_one(self, n: int) -> int:\n    return n+1  # one's more",
    'if (a->b == NULL && !c) { printf("%d\\n", 0x1F); }',
    "path/to/file.py:12 https://example.com/a?b=c&d=1 me@example.com",
    "-5 +7 1e-3 1,000.50 $12 50% v1.2.3-rc1",
    "don't stop; co-operate; e.g. rock'n'roll",
    "Пример текста: ёлка, Ёлка",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5",
)
WORDS = (
    *("straße", "STRASSE", "größer", "grosser", "groß", "fluß", "apfel", "uber", "3", "über teuer"),
    *("naive", "café", "cafe bigger", "naïve tower"),
    *("东京", "北京", "京", "高", "高い", "タワー", "东京 北京", "塔很"),
    *("count", "count(distinct", "t.user_id", "user_id", "user", "orders", "orders_2024", "x>=3.14", "3.14"),
    *("add_one", "add", "n+1", "a->b", "NULL", "0x1F", "1F", "%d", "one's", "self, n"),
    *("file.py", "file", "py", "path/to", "example.com", "me@example.com", "b=c", "https"),
    *("-5", "5", "1e-3", "1,000.50", "000", "v1.2.3-rc1", "rc1", "50%", "$12"),
    *("don't", "dont", "co-operate", "operate", "e.g.", "rock'n'roll"),
    *("пример", "ЁЛКА", "елка", "\ud55c\uad6d\uc5b4", "\ubb38"),
    *('"sie ist"', '"ist sie"', '"from orders"', '"count distinct"', 'größer "als der"', "absent", "the"),
)


def tokens(text: str) -> list[str]:
    """Rows of letters and digits in small letters, Latin ones without accents; a sign of a script that parts
    no words stands alone."""
    found = [""]
    for sign in text.lower():
        alone = "\u3040" <= sign <= "\u30ff" or "\u3400" <= sign <= "\u9fff" or "\uac00" <= sign <= "\ud7af"
        if alone or not sign.isalnum():
            found.append("")
        bare = unicodedata.normalize("NFD", sign)[0]
        if sign.isalnum():
            found[-1] += bare if bare.isascii() else sign
        if alone:
            found.append("")
    return [word for word in found if word]


def has(text: str, words: str) -> bool:
    """Each word, or what stands in quotes, as a row of its tokens."""
    own = tokens(text)
    rows = [tokens(quoted or word) for quoted, word in re.findall(r'"([^"]*)"|([^\s"]+)', words)]
    return all(any(own[n : n + len(row)] == row for n in range(len(own))) for row in rows if row)


@pytest.fixture
def both(tmp_path: Path, postgres_stores: PostgresStores) -> list[Responses]:
    """One run in both databases, read by who may only read."""
    store = postgres_stores.new(tmp_path)
    found: list[Responses] = []
    for name, url in (("file", None), ("server", store.url)):
        (folder := tmp_path / name).mkdir()
        home = Home(folder, url)
        home.ingest("own", [{"prompt": f"p{n}", "response": t, "reward": 0} for n, t in enumerate(TEXTS)])
        history = open_history(store.reading if url else home.db, "own")
        found.append(Responses(history))
        history.close()
    return found


PLACES = {digest_of(f"p{n}"): n for n in range(len(TEXTS))}


def found(responses: Responses, words: str) -> list[int] | str:
    """The places of the texts, or what is said instead."""
    try:
        return [PLACES[one.prompt] for one in responses.find(Chosen(words=words), 0, 99)]
    except ConfigError as error:
        return error.message


def test_words_are_found_alike_and_as_plain_python_finds_them(both: list[Responses]) -> None:
    right = {words: [n for n, text in enumerate(TEXTS) if has(text, words)] for words in WORDS}
    assert [{words: found(responses, words) for words in WORDS} for responses in both] == [right, right]
    assert {"absent", "grosser", "dont", '"ist sie"'} <= {
        words for words, there in right.items() if not there
    }
    assert sum(map(bool, right.values())) > len(right) * 0.8


def test_no_words_are_an_operator_on_either(both: list[Responses]) -> None:
    sqlite, postgresql = ({words: found(each, words) for words in QUERIES} for each in both)
    assert sqlite == postgresql
    assert {said for said in sqlite.values() if isinstance(said, str)} == {
        f"there is no word in {words[:80]!r}" for words in QUERIES if words.strip() and not tokens(words)
    }
