"""The LanceDB index: derived, bounded, and without any say in the results."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import diagevo
from diagevo.config.loading import of_profile
from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.memory.events import Embedder, RunConfigured
from diagevo.memory.memory import Memory
from diagevo.memory.nearest import similarity
from diagevo.memory.nearest.index import _checksum
from tests.memory.play import candidate, embed, failure, migrated, new_cause, opened, settle_new


def _round(memory: Memory, causes: int) -> None:
    """A round that makes so many causes, two nodes at most."""
    number = memory.state.round + 1
    memory.open_round(number)
    memory.score([candidate(f"r{number}.q0")])
    ids = [f"r{number}.q0.a{i}" for i in range(causes)]
    memory.observe([failure(f) for f in ids])
    memory.vectors([f"cause of {f}" for f in ids], embed)
    memory.diagnosed([new_cause(f, f"cause of {f}") for f in ids])
    for failure_id in ids:
        nodes = list(memory.state.nodes)
        if len(nodes) < 2:
            settle_new(memory, failure_id, label=f"skill {failure_id}")
        else:
            settle_new(memory, failure_id, node=nodes[len(memory.state.causes) % 2])
    memory.commit()


def _answers(memory: Memory) -> list:
    query = embed(["something else"])[0]
    return [memory.similar_causes(query), memory.similar_nodes(query, 5)]


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the index from the first cause on."""
    pytest.importorskip("lancedb", reason="needs the extra index: lancedb is not installed")
    monkeypatch.setattr(similarity, "INDEX_FROM", 1)


@pytest.mark.slow
def test_the_index_gives_what_numpy_gives_and_new_causes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lancedb", reason="needs the extra index: lancedb is not installed")
    with opened(tmp_path) as memory:
        _round(memory, 5)
        memory.open_round(2)
        memory.score([candidate("r2.q0")])
        memory.observe([failure("r2.q0.a0")])
        memory.vectors(["a new one"], embed)
        memory.diagnosed([new_cause("r2.q0.a0", "a new one")])
        settle_new(memory, "r2.q0.a0", node="n1")
        exact = _answers(memory)
        assert not (memory.folder / "vectors").exists()
    monkeypatch.setattr(similarity, "INDEX_FROM", 1)
    with opened(tmp_path) as memory:
        assert _answers(memory) == exact
        assert memory.similar_causes(embed(["a new one"])[0])[0].cause_id == "c6"
        assert (memory.folder / "vectors" / "watermark.json").exists()


@pytest.mark.slow
def test_memory_index_lancedb_gives_what_numpy_gives_from_the_first_cause_on(tmp_path: Path) -> None:
    """The setting, on two runs of the same events."""
    pytest.importorskip("lancedb", reason="needs the extra index: lancedb is not installed")
    found, config = {}, of_profile("embedded").config
    for index in ("auto", "lancedb"):
        folder = tmp_path / index
        folder.mkdir()
        settings = config.memory.model_copy(update={"index": index})
        chosen = config.model_copy(update={"memory": settings})
        with diagevo.open(f"sqlite:///{folder / 'log.db'}", "a", root=folder, config=chosen) as memory:
            _round(memory, 40)
            _round(memory, 2)
            found[index] = _answers(memory)
            assert (memory.folder / "vectors" / "watermark.json").exists() == (index == "lancedb")
    assert found["auto"] == found["lancedb"]
    assert len(found["auto"][0]) == 42


def test_without_lancedb_a_memory_of_many_causes_is_searched_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as memory:
        _round(memory, 5)
        exact = _answers(memory)
    monkeypatch.setattr(similarity, "INDEX_FROM", 1)
    monkeypatch.setattr(similarity, "installed", lambda: False)
    with opened(tmp_path) as memory:
        assert _answers(memory) == exact
        _round(memory, 1)
        assert memory.similar_causes(embed(["cause of r2.q0.a0"])[0])[0].cause_id == "c6"
        assert not (memory.folder / "vectors").exists()


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("damage", ["deleted", "truncated", "watermark", "behind", "ahead", "a file"])
def test_no_damage_to_its_folder_changes_a_result(tmp_path: Path, damage: str) -> None:
    with opened(tmp_path) as memory:
        _round(memory, 3)
        folder = memory.folder / "vectors"
        shutil.copytree(folder, tmp_path / "earlier")
        _round(memory, 3)
        exact = _answers(memory)
    if damage == "deleted":
        shutil.rmtree(folder)
    elif damage == "truncated":
        for data in folder.rglob("*.lance"):
            if data.is_file():
                data.write_bytes(data.read_bytes()[:20])
    elif damage == "watermark":
        (folder / "watermark.json").write_text('{"model": "other", "causes": 3}')
    elif damage == "behind":
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "earlier", folder)
    elif damage == "a file":
        shutil.rmtree(folder)
        folder.write_text("in its place")
    else:
        (folder / "watermark.json").write_text((folder / "watermark.json").read_text().replace("6", "9"))
    with opened(tmp_path) as memory:
        assert _answers(memory) == exact


@pytest.mark.usefixtures("indexed")
def test_no_changed_byte_in_any_of_its_files_changes_a_result(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        _round(memory, 4)
        folder = memory.folder / "vectors"
        exact = _answers(memory)
    intact = Path(shutil.copytree(folder, tmp_path / "intact"))
    names = [path.relative_to(intact) for path in intact.rglob("*") if path.is_file()]
    assert len(names) >= 3
    for name in names:
        for share in (0.0, 0.4, 0.999):
            shutil.rmtree(folder)
            shutil.copytree(intact, folder)
            content = bytearray((folder / name).read_bytes())
            content[int(share * len(content))] ^= 0x40
            (folder / name).write_bytes(content)
            with opened(tmp_path) as memory:
                assert _answers(memory) == exact, (name, share)


@pytest.mark.usefixtures("indexed")
def test_a_folder_that_goes_away_while_it_is_open_changes_no_result(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        _round(memory, 3)
        exact = _answers(memory)
        shutil.rmtree(memory.folder / "vectors")
        assert _answers(memory) == exact
        shutil.rmtree(memory.folder / "vectors")
        _round(memory, 1)
        assert len(memory.similar_causes(embed(["x"])[0])) == 4


@pytest.mark.usefixtures("indexed")
def test_versions_and_files_stay_bounded_over_fifty_rounds(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        sizes = []
        for _ in range(50):
            _round(memory, 1)
            sizes.append(sum(1 for _ in (memory.folder / "vectors").rglob("*")))
        index = memory._similarity._index
        assert index is not None
        assert index._table is not None
        assert (index.size, len(index._table.list_versions()) <= 3) == (50, True)
        assert max(sizes[10:]) <= max(sizes[:10]) + 3


def test_the_embedding_model_that_a_run_is_opened_with_is_not_lost(tmp_path: Path) -> None:
    """Whoever configures it names the same one, or is refused."""
    mine = Embedder(name="mine", dimension=8, revision="2")
    hashing = RunConfigured(config={}, models={}, embedder=Embedder("hashing", 512, ""), version="1")
    with diagevo.open(migrated(f"sqlite:///{tmp_path}/log.db"), run="a", embedder=mine) as memory:
        with pytest.raises(ConfigError, match=r"opened with the embedder mine @ 2 \(8 numbers\)"):
            memory.configure(hashing)
        assert memory.state.sequence == 0
        memory.open_round(1)
        assert memory.state.embedder == mine


@pytest.mark.parametrize("from_", [1, 50_000])
def test_another_embedding_model_is_refused_until_everything_is_embedded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_: int
) -> None:
    if from_ == 1:
        pytest.importorskip("lancedb", reason="needs the extra index: lancedb is not installed")
    monkeypatch.setattr(similarity, "INDEX_FROM", from_)

    def mirrored(texts) -> np.ndarray:
        return -embed(texts)[:, ::-1]

    other = Embedder(name="mirrored", dimension=8, revision="2")
    with opened(tmp_path) as memory:
        _round(memory, 3)
        with pytest.raises(ConfigError, match="was embedded by a model that was never named") as caught:
            memory.check_embedder(other)
        assert "diagevo memory rebuild --embedder" in (caught.value.hint or "")
        before = memory.state.hash(1, 3)
        assert memory.change_embedder(other, mirrored) == 5
        memory.check_embedder(other)
        assert memory.state.hash(1, 3) == before
        vector = mirrored(["cause of r1.q0.a1"])[0]
        assert (memory.similar_causes(vector)[0].cause_id, memory.similar_causes(vector)[0].similarity) == (
            "c2",
            1.0,
        )
        memory.open_round(2)
        with pytest.raises(OutOfOrderError, match="between rounds"):
            memory.change_embedder(other, mirrored)
    with opened(tmp_path) as memory:
        memory.check_embedder(other)


def test_a_vector_of_another_length_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        _round(memory, 1)
        memory.change_embedder(Embedder(name="eight", dimension=8, revision="1"), embed)
        with pytest.raises(ConfigError, match="the run's vectors have 8 numbers"):
            memory.vectors(["x"], lambda texts: np.ones((len(texts), 9), dtype=np.float32))
        with pytest.raises(ConfigError, match="not finite"):
            memory.vectors(["x"], lambda texts: np.full((len(texts), 8), np.nan, dtype=np.float32))


def test_causes_of_the_same_ids_and_other_words_are_another_index(tmp_path: Path) -> None:
    """Rounds that were superseded made as many: their vectors serve no longer."""
    with opened(tmp_path) as memory:
        _round(memory, 3)
        causes = list(memory.state.causes.values())
    sums = {
        _checksum(causes),
        _checksum(causes[:2]),
        _checksum([*causes[:2], replace(causes[2], description="other words")]),
        _checksum([*causes[:2], replace(causes[2], cause_id="c4")]),
    }
    assert len(sums) == 4
    assert _checksum([replace(cause, frequency=9) for cause in causes]) in sums
