"""`diagevo memory rebuild`: what it makes again, and how a run goes over to another embedding model."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diagevo
from diagevo.config.loading import of_profile
from diagevo.diagnosis.embedder import HashingEmbedder, identity
from diagevo.errors import ConfigError
from diagevo.memory.events import Embedder, SimilarCause
from diagevo.memory.history import open_history
from diagevo.memory.memory import Memory
from diagevo.memory.nearest import similarity
from tests.cli.memory.conftest import Ask
from tests.cli.program import clean_environment, invoke, run
from tests.contracts.databases import Store
from tests.diagnosis.server import Answer, Server
from tests.memory.audit.played import C1, C2, Player, embed, play

BY_HAND = Embedder(name="by-hand", dimension=4, revision="1")
"""The model that the hand-played run was embedded with."""
TEXTS = 4 + 2
"""Its causes, and the nodes that live: n3 was merged into n1."""


def memory_of(home: Path, **options: Any) -> Memory:
    return diagevo.open(f"sqlite:///{home / 'diagevo.db'}", "played", root=home, create=False, **options)


def nearest(memory: Memory) -> list[SimilarCause]:
    return memory.similar_causes(embed([C2])[0])


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the index from the first cause on."""
    pytest.importorskip("lancedb", reason="needs the extra index: lancedb is not installed")
    monkeypatch.setattr(similarity, "INDEX_FROM", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("damage", ["deleted", "emptied", "a byte", "a file"])
def test_rebuild_makes_the_vector_index_again(change: Ask, home: Path, damage: str) -> None:
    with memory_of(home) as memory:
        exact = nearest(memory)
    folder = home / "played" / "vectors"
    data = max(folder.rglob("data/*.lance"), key=lambda path: path.stat().st_size)
    if damage == "emptied":
        data.write_bytes(b"")
    elif damage == "a byte":
        content = bytearray(data.read_bytes())
        content[len(content) // 3] ^= 1
        data.write_bytes(content)
    else:
        shutil.rmtree(folder)
        if damage == "a file":
            folder.write_text("in its place")
    done = change("memory", "rebuild")
    assert done.stdout == (
        "played: projections and snapshots of 4 rounds rewritten\n"
        "  embeddings    by-hand @ 1, 4 numbers\n"
        "  vector index  4 causes\n"
    )
    mark = json.loads((folder / "watermark.json").read_text())
    assert (mark["model"], mark["causes"]) == ("by-hand@1/4", 4)
    with memory_of(home) as memory:
        assert nearest(memory) == exact
        assert [c.cause_id for c in exact] == ["c2", "c4", "c1", "c3"]


def test_few_causes_need_no_index(change: Ask, home: Path) -> None:
    assert "  vector index  not needed for so few causes\n" in change("memory", "rebuild").stdout
    assert not (home / "played" / "vectors").exists()


def test_a_run_that_somebody_writes_is_not_rebuilt(home: Path, tmp_path: Path) -> None:
    with memory_of(home) as memory:
        memory.claim()
        done = run("memory", "rebuild", "--embedder", "--profile", "embedded", cwd=tmp_path, env=env(home))
        assert (done.returncode, done.stdout) == (5, "")
        assert f"run played is being written by diagevo {os.getpid()} on " in done.stderr
    assert invoke("memory", "rebuild", env=env(home)).exit_code == 0


def env(home: Path, **more: str) -> dict[str, str]:
    return {"DIAGEVO_HOME": str(home), "OPENAI_API_KEY": "none", **more}


def served(server: Server, name: str = "served-4") -> str:
    role = {"engine": "openai", "model": name, "dimension": 4, "base_url": server.url}
    return f"--set=roles.embedder={json.dumps(role)}"


def turned(texts: list[str]) -> np.ndarray:
    """The other model: every vector turned around."""
    return embed(texts)[:, ::-1]


def answering(request: dict[str, Any], _before: int) -> Answer:
    rows = turned(request["input"]).tolist()
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return Answer(body={"object": "list", "model": request["model"], "data": data, "usage": usage})


def test_another_embedding_model_is_refused_then_embeds_the_run_anew_and_it_goes_on(home: Path) -> None:
    other = Embedder(name="served-4", dimension=4, revision="served")
    with pytest.raises(ConfigError, match=r"was embedded by by-hand @ 1 \(4 numbers\)") as refused:
        memory_of(home, embedder=other)
    assert "diagevo memory rebuild --embedder --run played" in (refused.value.hint or "")
    with Server(answering) as server:
        # The hand-played run has no roles of its own, so the profile gives them.
        command = ("memory", "rebuild", "--embedder", "--profile", "embedded", served(server), "--json")
        done = invoke(*command, env=env(home))
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["data"] == {
            "rounds": 4,
            "embedder": {"name": "served-4", "dimension": 4, "revision": "served"},
            "indexed": 0,
        }
        assert sum(len(request["input"]) for request in server.requests) == TEXTS
        assert f"{TEXTS} of {TEXTS} texts embedded\n" in done.stderr
        assert "diagevo memory calibrate proposes new ones" in done.stderr
    log = invoke("memory", "log", "--last", "1", env=env(home)).stdout
    told = "#140  r4   RunConfigured                      version 0.1.0, embeddings served-4 (4 numbers)"
    assert log.strip() == told
    for command in (["memory", "verify", "--deep"], ["memory", "why", "c2"], ["memory", "replay"]):
        assert invoke(*command, env=env(home)).exit_code == 0

    with pytest.raises(ConfigError, match="was embedded by served-4"):
        memory_of(home, embedder=BY_HAND)
    with memory_of(home, embedder=other) as memory:
        found = memory.similar_causes(turned([C1])[0])
        assert [(c.cause_id, c.similarity) for c in found[:2]] == [("c1", 1.0), ("c3", 0.6)]
        player = Player(memory)
        player.open(5)
        player.score(player.question(0, [("1", 6)], "kept", "c1"))
        player.fail("r5.q0.a0")
        player.recurs("r5.q0.a0", "c1")
        player.trained()
        player.settle_recurrence("r5.q0.a0")
        player.commit()
    assert invoke("memory", "verify", env=env(home)).exit_code == 0


@pytest.mark.slow
def test_killed_in_the_middle_nothing_is_lost_and_nothing_is_embedded_twice(
    home: Path, tmp_path: Path
) -> None:
    portions = 0

    def stalling(request: dict[str, Any], before: int) -> Answer:
        nonlocal portions
        portions += 1
        return Answer(stall=60) if portions > 2 else answering(request, before)

    small = "import diagevo.memory.memory as m; m.PORTION = 2; from diagevo.cli.main import app; app()"
    with Server(stalling) as server:
        command = ["memory", "rebuild", "--embedder", "--profile", "embedded", served(server)]
        process = subprocess.Popen(
            [sys.executable, "-c", small, *command],
            cwd=tmp_path,
            env=clean_environment(**env(home)),
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(server.requests) < 3:
            time.sleep(0.02)
            assert process.poll() is None, process.stderr
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)

        store = Store(f"sqlite:///{home / 'diagevo.db'}", home)
        history = open_history(store.url, "played")
        try:
            assert history.end.sequence == 139
            assert history.configuration().embedder == BY_HAND
        finally:
            history.close()
        assert invoke("memory", "verify", "--deep", env=env(home)).exit_code == 0
        with memory_of(home, embedder=BY_HAND) as memory:
            assert nearest(memory)[0].similarity == 1.0

        server.behave, server.requests[:] = answering, []
        again = invoke(*command, env=env(home))
        assert again.exit_code == 0, again.stderr
        assert sum(len(request["input"]) for request in server.requests) == TEXTS - 4


def test_a_round_that_is_open_keeps_its_embedding_model(home: Path, change: Ask) -> None:
    with memory_of(home) as memory:
        memory.open_round(5)
    done = change("memory", "rebuild", "--embedder", "--profile", "embedded")
    assert done.exit_code == 5, done.stderr
    assert "round 5 is open: the embedder changes between rounds" in done.stderr
    assert "diagevo runs fork played@4" in done.stderr


def trained(home: Path, **embedder: Any) -> None:
    """A run with a configuration as `train` stores it."""
    config = of_profile("embedded").config.model_dump(mode="json")
    config["roles"]["embedder"] |= embedder
    play(f"sqlite:///{home / 'diagevo.db'}", "trained", root=home, config=config)


@pytest.mark.parametrize("named", [["--run", "played", "--profile", "embedded"], ["--run", "trained"]])
def test_a_model_that_the_engine_has_not_is_refused_and_no_event_names_it(
    home: Path, change: Ask, named: list[str]
) -> None:
    trained(home)
    for command in (["rebuild", "--embedder"], ["calibrate"]):
        done = change("memory", *command, *named, "--set", "roles.embedder.model=nosuchmodel")
        assert (done.exit_code, done.stdout) == (2, "")
        told = "--set roles.embedder.model: the engine hashing has no model (it is 'nosuchmodel')"
        assert told in done.stderr
        assert "--set roles.embedder.engine=openai or sentence-transformers" in done.stderr
    assert "RoundCommitted" in change("memory", "log", "--last", "1", *named[:2]).stdout


def test_a_name_from_before_the_engine_was_changed_is_read_and_not_stored_again(
    home: Path, change: Ask
) -> None:
    trained(home, model="text-embedding-v4")  # as the log may have it
    assert change("memory", "rebuild", "--embedder", "--run", "trained").exit_code == 0
    [last] = json.loads(change("memory", "log", "--run", "trained", "--last", "1", "--json").stdout)["data"]
    assert last["payload"]["config"]["roles"]["embedder"]["model"] == "hashing"


def test_the_example_of_the_help_goes_over_to_the_model_that_it_names(home: Path, change: Ask) -> None:
    shown = change("memory", "rebuild", "--help").stdout
    [example] = [line for line in shown.splitlines() if "text-embedding-v4" in line]
    with Server(answering) as server:
        more = (f"--set=roles.embedder.base_url={server.url}", "--set=roles.embedder.dimension=4")
        done = invoke(*shlex.split(example)[1:], "--profile", "embedded", *more, env=env(home))
    assert done.exit_code == 0, done.stderr
    assert "  embeddings    text-embedding-v4 @ served, 4 numbers\n" in done.stdout


def test_a_wrong_value_of_set_is_named_and_not_the_run(change: Ask) -> None:
    done = change("memory", "rebuild", "--embedder", "--set", "roles.embedder.engine=foo")
    assert done.exit_code == 2
    assert "--set roles.embedder.engine: Input should be 'openai', 'sentence" in done.stderr
    assert "(it is 'foo')" in done.stderr
    unset = change("memory", "rebuild", "--embedder")
    assert "run played: " in unset.stderr


@pytest.mark.slow
def test_a_resumed_run_of_another_embedding_model_is_refused_until_it_was_embedded_anew(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the extra train: torch is not installed")
    from tests.run.small import one_step

    def ask(*arguments: str) -> Any:
        return invoke(*arguments, env={"DIAGEVO_HOME": str(tmp_path / "runs")})

    shutil.copytree(one_step(tmp_path_factory), tmp_path / "runs")
    monkeypatch.setattr(HashingEmbedder, "revision", "words-2")  # another version of the embedder
    refused = ask("train", "--resume", "--rounds", "2")
    assert refused.exit_code == 2
    assert (
        "run a was embedded by hashing @ words-bigrams-1 (256 numbers), the configuration names"
        " hashing @ words-2 (256 numbers)" in refused.stderr
    )
    assert "diagevo memory rebuild --embedder --run a" in refused.stderr
    assert ask("memory", "rebuild", "--embedder").exit_code == 0
    resumed = ask("train", "--resume", "--rounds", "2")
    assert resumed.exit_code == 0, resumed.stderr
    history = open_history(f"sqlite:///{tmp_path / 'runs' / 'diagevo.db'}", "a")
    try:
        assert history.end.round == 2
        assert history.configuration().embedder == identity(HashingEmbedder(256))
    finally:
        history.close()
    assert ask("memory", "verify", "--deep").exit_code == 0
