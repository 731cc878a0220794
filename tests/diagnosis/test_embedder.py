import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagevo.config.models import EmbedderRole
from diagevo.diagnosis.embedder import (
    HashingEmbedder,
    OpenAIEmbedder,
    SentenceTransformersEmbedder,
    embedder_for,
    unit_rows,
)
from diagevo.errors import ConfigError, MissingDependencyError, ServiceError
from tests.diagnosis.rounds import open_memory
from tests.diagnosis.server import Answer, Behaviour, Server

TEXTS = ["forgets the domain", "swaps numerator and denominator", "", "né à l'étranger", "a a a"]


class TestHashing:
    def test_equal_words_give_equal_rows_and_shared_words_a_cosine(self):
        a, b, c = HashingEmbedder(4096).embed(
            ["Forgets the domain!", "forgets THE domain", "forgets the sign"]
        )
        assert np.array_equal(a, b)
        # 3 words and 2 pairs each; two words and one pair are shared: 3/5 (no collision among 4096 axes).
        assert float(a @ c) == pytest.approx(0.6, abs=1e-6)

    def test_every_row_has_length_one_and_the_type_that_is_stored(self):
        rows = HashingEmbedder(64).embed(TEXTS)
        assert (rows.shape, rows.dtype) == ((5, 64), np.float32)
        assert np.allclose(np.linalg.norm(rows, axis=1), 1)
        assert HashingEmbedder(64).embed([]).shape == (0, 64)

    def test_another_process_gives_the_same_bytes(self):
        code = (
            "import sys; from diagevo.diagnosis.embedder import HashingEmbedder; "
            f"sys.stdout.buffer.write(HashingEmbedder(64).embed({TEXTS!r}).tobytes())"
        )
        there = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        assert there == HashingEmbedder(64).embed(TEXTS).tobytes()


def test_a_row_without_direction_gets_one_and_a_broken_one_is_refused():
    assert unit_rows(np.zeros((1, 3))).tolist() == [[1, 0, 0]]
    with pytest.raises(ValueError, match="not finite"):
        unit_rows(np.array([[1.0, np.nan]]))


def vectors(request: dict[str, Any]) -> dict[str, Any]:
    """Two numbers a text: its length and 3; given back in reverse order, as the protocol allows."""
    data = [
        {"object": "embedding", "index": index, "embedding": [float(len(text)), 3.0]}
        for index, text in enumerate(request["input"])
    ]
    return {
        "object": "list",
        "data": data[::-1],
        "model": "e",
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }


@contextmanager
def embedding(behave: Behaviour, dimension: int = 2) -> Iterator[tuple[OpenAIEmbedder, Server]]:
    with Server(behave) as server:
        role = EmbedderRole(engine="openai", model="e", dimension=dimension, base_url=server.url, timeout=5)
        embedder = OpenAIEmbedder(role, retries=2)
        yield embedder, server
        embedder.close()


class TestEndpoint:
    def test_rows_come_back_in_order_normalised_and_in_batches(self):
        with embedding(lambda request, before: Answer(body=vectors(request))) as (embedder, server):
            rows = embedder.embed(["xxxx"] * 70 + [""])
        assert np.allclose(rows[0], [0.8, 0.6])
        assert np.allclose(rows[70], [0.0, 1.0])
        assert [len(request["input"]) for request in server.requests] == [64, 7]
        assert server.requests[0]["dimensions"] == 2

    def test_a_service_that_takes_ten_at_a_time_gets_no_more_than_it_takes(self):
        def behave(request: dict[str, Any], before: int) -> Answer:
            if len(request["input"]) > 10:
                return Answer("batch size is invalid, it should not be larger than 10", status=400)
            return Answer(body=vectors(request))

        with embedding(behave) as (embedder, server):
            rows = embedder.embed([str(i) for i in range(20)])
        assert len(rows) == 20
        assert [len(request["input"]) for request in server.requests] == [20, 10, 10]

    def test_a_service_without_dimensions_is_asked_without(self):
        def behave(request: dict[str, Any], before: int) -> Answer:
            if "dimensions" in request:
                return Answer("dimensions is not supported", status=400)
            return Answer(body=vectors(request))

        with embedding(behave) as (embedder, _server):
            assert len(embedder.embed(["a", "b"])) == 2

    @pytest.mark.parametrize(
        ("behave", "dimension", "error", "said"),
        [
            (
                lambda request, before: Answer(body=vectors(request)),
                *(1024, ConfigError, "vectors of 2 numbers, but the configuration says 1024"),
            ),
            (
                lambda request, before: Answer("no", status=400),
                *(2, ServiceError, r"nothing can be embedded with e: .* 400: no"),
            ),
            (
                lambda request, before: Answer(body={**vectors(request), "data": []}),
                *(2, ServiceError, "no answer in its response"),
            ),
        ],
        ids=["another dimension", "one text is refused", "rows are dropped"],
    )
    def test_what_gives_no_vectors_is_an_error(
        self, behave: Behaviour, dimension: int, error: type[Exception], said: str
    ):
        with embedding(behave, dimension) as (embedder, _), pytest.raises(error, match=said):
            embedder.embed(["a"])

    def test_the_memory_asks_for_each_text_once(self, tmp_path: Path):
        def behave(request: dict[str, Any], before: int) -> Answer:
            body = vectors(request)
            for item in body["data"]:
                item["embedding"] += [0.0] * 62
            return Answer(body=body)

        with open_memory(tmp_path) as memory, embedding(behave, dimension=64) as (embedder, server):
            memory.vectors(["a", "b", "a"], embedder.embed)
            memory.vectors(["b", "c"], embedder.embed)
        assert [request["input"] for request in server.requests] == [["a", "b"], ["c"]]


class TestSentenceTransformers:
    def test_a_folder_that_is_none_is_refused_by_name(self, tmp_path: Path):
        role = EmbedderRole(engine="sentence-transformers", model=str(tmp_path), dimension=8)
        with pytest.raises(MissingDependencyError, match=r"modules\.json"):
            embedder_for(role)

    def test_without_the_extra_the_install_command_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        (tmp_path / "modules.json").write_text("[]")
        monkeypatch.setitem(sys.modules, "sentence_transformers", None)
        role = EmbedderRole(engine="sentence-transformers", model=str(tmp_path), dimension=8)
        with pytest.raises(MissingDependencyError, match="local-embedder"):
            SentenceTransformersEmbedder(role)

    @pytest.mark.slow
    def test_a_small_folder_embeds(self, tmp_path: Path):
        folder = small_model(tmp_path)
        embedder = embedder_for(EmbedderRole(engine="sentence-transformers", model=str(folder), dimension=16))
        rows = embedder.embed(TEXTS)
        assert (rows.shape, rows.dtype) == ((5, 16), np.float32)
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
        assert np.allclose(embedder.embed(TEXTS[1:2]), rows[1], atol=1e-5)
        assert embedder.embed([]).shape == (0, 16)
        with pytest.raises(ConfigError, match="vectors of 16 numbers"):
            embedder_for(EmbedderRole(engine="sentence-transformers", model=str(folder), dimension=8))
        revision = embedder.revision
        (folder / "note.txt").write_text("changed")
        again = embedder_for(EmbedderRole(engine="sentence-transformers", model=str(folder), dimension=16))
        assert again.revision != revision

    @pytest.mark.slow
    def test_a_hub_id_is_read_from_the_cache_and_its_commit_is_the_revision(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        commit = "0123456789abcdef0123456789abcdef01234567"
        cached = tmp_path / "hub" / "models--some--model"
        (cached / "refs").mkdir(parents=True)
        (cached / "refs" / "main").write_text(commit)
        (cached / "snapshots").mkdir()
        small_model(tmp_path).rename(cached / "snapshots" / commit)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        role = EmbedderRole(engine="sentence-transformers", model="some/model", dimension=16)
        embedder = embedder_for(role)
        assert (embedder.name, embedder.revision) == ("model", commit[:12])
        with pytest.raises(MissingDependencyError, match="some/other could not be read"):
            embedder_for(role.model_copy(update={"model": "some/other"}))


def small_model(folder: Path) -> Path:
    """An untrained BERT of width 16 with mean pooling, made here: no download."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "forgets", "the", "domain", "swaps", "a"]
    (folder / "vocab.txt").write_text("\n".join(words))
    bert = folder / "bert"
    BertTokenizer(vocab_file=str(folder / "vocab.txt")).save_pretrained(bert)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(bert)
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(16)]).save(str(folder / "model"))
    return folder / "model"


def test_the_role_names_the_embedder():
    hashing = embedder_for(EmbedderRole(engine="hashing", dimension=32))
    assert (hashing.name, hashing.dimension, hashing.revision) == ("hashing", 32, "words-bigrams-1")
