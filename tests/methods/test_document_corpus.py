"""Documents of a file: what is kept, drawn and refused."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diagevo.arithmetic import held_out
from diagevo.arithmetic.corpus import worked_lines
from diagevo.config.models import Config, CorpusConfig
from diagevo.errors import ConfigError
from diagevo.loop.roles import Roles
from diagevo.methods import document_corpus as module
from diagevo.methods.document_corpus import Corpus, SourceDocument, shown_documents
from tests.run.small import SMALL

HELD = "what is 6 times 7"
LONG = "ab" * 50


def lines(folder: Path, *rows: object, name: str = "documents.jsonl") -> Path:
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder / name


def table(folder: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    return folder / "documents.parquet"


def corpus(file: Path, **settings: Any) -> Corpus:
    found = CorpusConfig(file=str(file), **settings)
    return Corpus(shown_documents(file), str(file), found, lambda text: text == HELD)


ROWS = [
    {"text": "  a stone falls\n", "kind": "general"},
    {"text": "sums of squares", "kind": "mathematics", "url": "http://127.0.0.1"},
    {"text": " \n\t"},
    {"text": "a stone falls"},
    {"text": LONG, "kind": None},
    {"text": "<script>alert(1)</script> {0} %s $(rm) \x1b[31m \x00", "kind": "mathematics"},
]


@pytest.mark.parametrize("write", ["lines", "table"])
def test_the_same_documents_are_read_of_both_formats_and_what_is_left_out_is_told(
    tmp_path: Path, write: str
) -> None:
    file = lines(tmp_path, *ROWS) if write == "lines" else table(tmp_path, ROWS)
    found = corpus(file, characters=60)
    assert [found[number] for number in range(len(found))] == [
        SourceDocument("a stone falls", "general"),
        SourceDocument("sums of squares", "mathematics"),
        SourceDocument("ab" * 30, "general"),
        SourceDocument(ROWS[5]["text"].strip(), "mathematics"),
    ]
    assert found.summary() == (
        f"{file}: 2 of mathematics, 2 of general; 1 left out, as they repeat another; "
        "1 left out, as they are empty; 1 cut to 60 characters"
    )


def test_texts_come_back_from_a_file_as_they_do_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_MEMORY", 8)
    texts = [f"Dokument № {number} 😀" for number in range(50)]
    found = corpus(lines(tmp_path, *({"text": text} for text in texts)))
    order = list(range(50))
    Random(1).shuffle(order)
    assert [found[number].text for number in order] == [texts[number] for number in order]


def test_only_the_first_of_each_kind_are_kept(tmp_path: Path) -> None:
    kinds = ["general", "general", "general", "mathematics", "general", "mathematics", "mathematics"]
    rows = [{"text": f"d{i}", "kind": kind} for i, kind in enumerate(kinds)]
    found = corpus(lines(tmp_path, *rows), documents=2)
    assert [found[number].text for number in range(len(found))] == ["d0", "d1", "d3", "d5"]


def test_draws_are_those_of_the_seed_half_of_each_kind_and_uniform_in_it(tmp_path: Path) -> None:
    rows = [{"text": f"m{i}", "kind": "mathematics"} for i in range(2)] + [
        {"text": f"g{i}"} for i in range(8)
    ]
    found = corpus(lines(tmp_path, *rows))
    drawn = found.draw(Random(7), 4000)
    assert drawn == found.draw(Random(7), 4000)
    assert drawn != found.draw(Random(8), 4000)
    counts = Counter(document.text for document in drawn)
    assert all(880 < counts[f"m{i}"] < 1120 for i in range(2))
    assert all(180 < counts[f"g{i}"] < 320 for i in range(8))
    assert {d.kind for d in corpus(lines(tmp_path, *rows), mathematics=0).draw(Random(1), 99)} == {"general"}
    alone = corpus(lines(tmp_path, rows[0]))
    assert alone.draw(Random(1), 3) == [SourceDocument("m0", "mathematics")] * 3


def test_the_digest_is_of_every_kind_and_text_in_order(tmp_path: Path) -> None:
    first, second = {"text": "ü", "kind": "mathematics"}, {"text": "b"}
    parts = (
        b"mathematics" + (2).to_bytes(8, "big") + "ü".encode() + b"general" + (1).to_bytes(8, "big") + b"b"
    )
    one = corpus(lines(tmp_path, first, second))
    assert one.digest == hashlib.sha256(parts).hexdigest()
    for rows in ([second, first], [first], [first, {"text": "c"}], [{"text": "ü"}, second]):
        assert corpus(lines(tmp_path, *rows)).digest != one.digest
    assert corpus(lines(tmp_path, first, second, second, {"text": ""})).digest == one.digest


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no documents"),
        ([{"text": ""}, {"text": " "}], "holds no documents: 2 are empty"),
        ([{"text": "a"}, {"content": "b"}], "line 2: Object missing required field `text`"),
        ([{"text": 7}], "line 1: Expected `str`, got `int`"),
        ([{"text": "a", "kind": "poetry"}], "line 1: Invalid enum value 'poetry'"),
        ([["a"]], "line 1: Expected `object`, got `array`"),
        ([{"text": "a"}, {"text": HELD}], "line 2, has a question of the validation set"),
        ([{"text": f"Exercise.\n {HELD} \nSolution: 42"}], "would be measured"),
    ],
)
def test_a_file_that_cannot_be_shown_is_refused_with_its_place(
    tmp_path: Path, rows: list[object], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        corpus(lines(tmp_path, *rows))
    assert said in refused.value.message
    assert refused.value.message.startswith("corpus.file: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"text": "a"}\n{"text": "b', "ends inside a document"),
        (b'{"text": "\xff"}\n', "is not UTF-8"),
        (b'{"text": "\\ud800"}\n', "line 1"),
        (b"not json\n", "line 1 is not JSON"),
    ],
)
def test_bytes_that_are_no_documents_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "documents.jsonl").write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        corpus(tmp_path / "documents.jsonl")
    assert said in refused.value.message


def test_a_table_without_texts_says_what_it_has_and_a_hostile_one_ends_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no column text; it has: body, id"):
        corpus(table(tmp_path, [{"body": "a", "id": 1}]))
    with pytest.raises(ConfigError, match=r"row 2: Expected `str`, got `null`"):
        corpus(table(tmp_path, [{"text": "a"}, {"text": None}]))
    (tmp_path / "bytes.parquet").write_bytes(b"PAR1" + bytes(64) + b"PAR1")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        corpus(tmp_path / "bytes.parquet")
    with pytest.raises(ConfigError, match="cannot be read"):
        corpus(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="is not a regular file"):
        corpus(tmp_path)


def test_a_huge_document_keeps_its_beginning(tmp_path: Path) -> None:
    found = corpus(lines(tmp_path, {"text": "x" * 5_000_000}))
    assert (found[0].text, found.cut) == ("x" * 20000, 1)


def test_the_built_in_documents_hold_no_question_that_is_measured(tmp_path: Path) -> None:
    config = Config.model_validate({**SMALL, "corpus": {"file": "builtin:arithmetic"}})
    with Roles(config, tmp_path) as roles:
        assert roles.corpus.summary() == "builtin:arithmetic: 256 of mathematics"
        assert roles.corpus[3] == SourceDocument(worked_lines()[3], "mathematics")
    documents = "\n".join(worked_lines())
    assert not [question for question, _ in held_out() if question in documents]
