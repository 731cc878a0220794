"""Prompts handed to the engines of a cluster, and what becomes of those of a node that is lost."""

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from diagevo.errors import NodeLostError, ServiceError
from diagevo.sampling.cluster import Places, connected
from diagevo.sampling.ray_sampler import RaySampler
from diagevo.sampling.sampler import Prompt, SamplingParams
from tests.cluster.nodes import Nodes, cluster
from tests.cluster.stub import Stub
from tests.sampling.processes import alive, until

pytestmark = pytest.mark.slow

PROMPTS: list[Prompt] = [[{"role": "user", "content": f"q{k % 30}"}] for k in range(32)]
DRAWN = [f"q{k} #0" for k in range(30)] + ["q0 #1", "q1 #1"]
"""q0 and q1 come twice, and draw other samples the second time, on whichever engine."""


@pytest.fixture(scope="module")
def two() -> Iterator[Nodes]:
    with cluster(2) as nodes:
        yield nodes


def sampler(
    folder: Path, said: list[str], slow: int | None = None, engines: int = 2, patience: float = 600.0
) -> RaySampler:
    def make(number: int) -> partial[Stub]:
        return partial(Stub, number, folder, slow)

    ray = connected()
    return RaySampler(
        ray,
        make,
        lambda: [{"CPU": 1}] * engines,
        name="votes",
        rows_at_once=256,
        patience=patience,
        say=said.append,
    )


def ask(found: RaySampler) -> list[str]:
    groups = found.sample(PROMPTS, n=1, params=SamplingParams(), seed=7)
    return [completion.text for [completion] in groups]


@pytest.mark.usefixtures("two")
def test_engines_on_all_nodes_answer_every_prompt_in_its_place(tmp_path: Path) -> None:
    found = sampler(tmp_path, [])
    assert found.servers == [], "they are asked as actors; both are there now"
    pids = [int((tmp_path / f"engine-{k}").read_text()) for k in found._where]
    answers = ask(found)
    assert [answer.partition(": ")[2] for answer in answers] == DRAWN
    ask(found)
    assert sorted(found._where) == [0, 1]
    found.close()
    assert list(tmp_path.iterdir()) == [], "both engines were closed"
    until(lambda: not any(map(alive, pids)))


@pytest.mark.usefixtures("two")
def test_an_engine_that_hangs_is_given_up_and_its_prompts_are_asked_elsewhere(tmp_path: Path) -> None:
    """Its node is well, and Ray waits for it."""
    said: list[str] = []
    found = sampler(tmp_path, said, slow=0)
    assert found.servers == [], "both are there"
    found._patience = 5.0  # they have started, which takes longer on a busy machine
    hung = int((tmp_path / "engine-0").read_text())
    assert ask(found) == [f"1: {drawn}" for drawn in DRAWN]
    where = found._where[0]
    assert said == [
        f"votes: engine 0 has not answered for 5 s ({where}); its prompts are asked elsewhere (1 left)"
    ]
    until(lambda: not alive(hung))
    found.close()


def test_the_prompts_of_a_lost_node_are_asked_elsewhere_and_answers_are_kept(
    two: Nodes, tmp_path: Path
) -> None:
    said: list[str] = []
    found = sampler(tmp_path, said, slow=0)
    assert found.servers == []

    def lose_it() -> None:
        until((tmp_path / "slow-has").exists)
        two.lose(int((tmp_path / "engine-0").read_text()))

    losing = threading.Thread(target=lose_it)
    losing.start()
    answers = ask(found)
    losing.join()
    assert answers == [f"1: {drawn}" for drawn in DRAWN]
    where = found._where[0]
    assert said == [
        f"votes: engine 0 is lost with its node ({where}); its prompts are asked elsewhere (1 left)"
    ]
    found.close()


@pytest.mark.usefixtures("two")
def test_a_stage_that_has_lost_its_last_engine_says_so(tmp_path: Path) -> None:
    found = sampler(tmp_path, [], slow=0, engines=1)
    losing = threading.Thread(target=_kill_once_asked, args=[tmp_path])
    losing.start()
    with pytest.raises(NodeLostError, match=r"votes: engine 0 is lost .*; no engine is left"):
        ask(found)
    losing.join()
    found.close()


def _kill_once_asked(folder: Path) -> None:
    until((folder / "slow-has").exists)
    os.kill(int((folder / "engine-0").read_text()), signal.SIGKILL)


@pytest.mark.usefixtures("two")
def test_a_stage_for_which_there_is_no_room_names_the_nodes() -> None:
    with pytest.raises(ServiceError) as caught:
        Places(connected(), lambda: [{"CPU": 8}] * 2, strategy="PACK", name="solver", timeout=1)
    assert "solver: the cluster has no room for 2 × 8 CPU after 1 s; its nodes: " in caught.value.message
    assert "(1 CPU)" in caught.value.message
