"""A sampler over the engines of a Ray cluster: prompts go to the engine that is free first."""

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from diagevo.config.models import Config
from diagevo.config.placement import Bundle, engine_bundles, nodes_told, on_gpus, refusal
from diagevo.config.serving import Serving, engine
from diagevo.errors import ConfigError, DiagEvoError, NodeLostError, ServiceError
from diagevo.progress import StopFlag, now_playing
from diagevo.sampling.cluster import Places, connected, nodes_of
from diagevo.sampling.sampler import Address, Answers, Completion, Divisible, Prompt, SamplingParams, Served
from diagevo.sampling.vllm_client import VLLMClient

_PARTS = 16  # into which a call is cut at least, where it has so many prompts
_CLOSING = 30.0  # seconds that an engine gets to end
_LOOK = 1.0  # seconds between two looks at the flag while engines are at work
_ROOM = 300.0  # seconds to wait for the places of engines; they were there a moment ago


Make = Callable[[], Divisible | Served]


class Engine:
    """What an actor on a node holds: the sampler of one policy. Its name is what Ray's dashboard shows."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sampler: Divisible | Served | None = None

    def __repr__(self) -> str:
        return self._name

    def start(self, make: Make) -> tuple[str, list[Address]]:
        """Where this is, and the servers that others may ask; none where it is asked by `sample`."""
        from ray.util import get_node_ip_address

        self._sampler = sampler = make()
        if not isinstance(sampler, Served):
            return get_node_ip_address(), []
        threading.Thread(target=self._keep_up, args=[sampler], daemon=True).start()
        return get_node_ip_address(), sampler.servers

    def sample(
        self, prompts: Sequence[Prompt], before: Sequence[int], n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        sampler: Any = self._sampler
        return sampler.sample(prompts, n=n, params=params, seed=seed, before=before)

    def look(self) -> None:
        """Answers where the node is there."""

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def _keep_up(self, served: Served) -> None:
        while True:
            try:
                served.keep_up()
            except ServiceError:
                os._exit(1)  # It died too often; its log says why. The run counts this engine as lost.
            time.sleep(1.0)


@dataclass(frozen=True)
class _Placed:
    actor: Any
    number: int


class RaySampler:
    """Implements `Served`. An engine that is lost with its node is given up: the others take its prompts.

    Without servers of their own the engines are handed parts of a call, and a completion depends on the seed,
    its prompt and its place among the samples of that text: the answers are those of one engine.
    """

    def __init__(
        self,
        ray: Any,
        make: Callable[[int], Make],
        wanted: Callable[[], Sequence[Bundle]],
        *,
        name: str,
        rows_at_once: int,
        patience: float,
        say: Callable[[str], None],
        stop: StopFlag | None = None,
    ) -> None:
        """`make(k)`: what makes engine k's sampler, on its node. `wanted`: a place an engine. `name`: of the
        stage. `patience`: seconds in which no engine that was asked answers, after which they count as lost.
        `say`: told of losses.

        Returns once an engine is ready; the others join it when they are.
        """
        self._ray, self._name, self._rows, self._say = ray, name, rows_at_once, say
        self._patience = patience
        self._stop = StopFlag() if stop is None else stop
        self._places = Places(ray, wanted, strategy="SPREAD", name=name, timeout=_ROOM, stop=self._stop)
        self._where: dict[int, str] = {}
        self._servers: dict[int, list[Address]] = {}
        self._lost: set[int] = set()
        self._engines = [
            _Placed(self._places.actor(Engine, k, f"{name}, engine {k}"), k)
            for k in range(len(self._places.bundles))
        ]
        self._under_way: dict[Any, tuple[_Placed, list[int]]] = {
            engine.actor.start.remote(make(engine.number)): (engine, []) for engine in self._engines
        }
        self._free: deque[_Placed] = deque()
        try:
            while not self._free:
                self._take_next(Answers(0, 0))
        except BaseException:
            self.close()
            raise

    def ready(self) -> int:
        """How many engines are there, once all have started."""
        while any(engine.number not in self._where for engine, _ in self._under_way.values()):
            self._take_next(Answers(0, 0))
        return len(self._where.keys() - self._lost)

    @property
    def servers(self) -> list[Address]:
        """Those of the engines that are there, once all have started."""
        self.ready()
        return [s for k, servers in self._servers.items() if k not in self._lost for s in servers]

    def keep_up(self) -> None:
        """Raises NodeLostError where no engine is left."""
        for placed in self._engines:
            if placed.number in self._lost:
                continue
            try:
                self._ray.get(placed.actor.look.remote(), timeout=_CLOSING)
            except self._ray.exceptions.GetTimeoutError:
                continue  # It is busy, or its node is about to be found lost.
            except self._ray.exceptions.RayActorError:
                self._give_up(placed)

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        answers: Answers | None = None,
    ) -> list[list[Completion]]:
        found = answers or Answers(len(prompts), n)
        if any(self._servers.values()):
            client = VLLMClient(self.servers, look=self.keep_up, stop=self._stop)
            try:
                return client.sample(prompts, n=n, params=params, seed=seed, answers=found)
            finally:
                client.close()
        missing, before = set(found.missing()), _before(prompts, n)
        waiting = deque(part for part in self._parts(len(prompts), n) if missing.intersection(part))
        while found.missing():
            stopping = found.kept and bool(self._stop)
            if stopping and not any(places for _, places in self._under_way.values()):
                self._stop.check()
            while self._free and waiting and not stopping:
                engine, places = self._free.popleft(), waiting.popleft()
                asked = [prompts[place] for place in places]
                preceded = [before[place] for place in places]
                answer = engine.actor.sample.remote(asked, preceded, n, params, seed)
                self._under_way[answer] = engine, places
            waiting.extendleft(self._take_next(found))
        return found.groups()

    def close(self) -> None:
        """End the engines and give their places back. One that is at work does not hear, and is ended so."""
        busy = {engine.number for engine, _ in self._under_way.values()}
        idle = [e for e in self._engines if e.number in self._servers and e.number not in busy]
        closing = [e.actor.close.remote() for e in idle]
        self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSING) if closing else None
        self._places.close()

    def _take_next(self, answers: Answers) -> list[list[int]]:
        """Wait for one engine to be ready or to answer; return what has to be asked again."""
        deadline = time.monotonic() + self._patience
        while not (ready := self._ray.wait(list(self._under_way), num_returns=1, timeout=_LOOK)[0]):
            self._stop.check_overdue()
            if time.monotonic() >= deadline:
                return self._give_up_all()
        [done] = ready
        engine, places = self._under_way.pop(done)
        lost = self._ray.exceptions
        try:
            given = self._ray.get(done, timeout=self._patience)
        except (lost.RayActorError, lost.ObjectLostError, lost.GetTimeoutError):
            self._give_up(engine)  # With its answer, where that was not fetched yet.
            return [places] if places else []
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DiagEvoError):
                raise error.cause from error
            raise
        if engine.number in self._where:
            groups = zip(places, given, strict=True)
            answers.add({(place, i): each for place, group in groups for i, each in enumerate(group)})
        else:
            self._where[engine.number], self._servers[engine.number] = given
        self._free.append(engine)
        return []

    def _give_up_all(self) -> list[list[int]]:
        """Of those that were asked, none has answered: Ray sees no loss where a process hangs."""
        asked = list(self._under_way.values())
        self._under_way.clear()
        for placed, _ in asked:
            self._ray.kill(placed.actor)
            self._give_up(placed, f"has not answered for {self._patience:g} s")
        return [places for _, places in asked if places]

    def _give_up(self, engine: _Placed, why: str = "is lost with its node") -> None:
        self._lost.add(engine.number)
        where = self._where.get(engine.number, "one that was starting")
        left = len(self._engines) - len(self._lost)
        message = f"{self._name}: engine {engine.number} {why} ({where})"
        if not left:
            raise NodeLostError(f"{message}; no engine is left", hint="continue with: diagevo train --resume")
        self._say(f"{message}; its prompts are asked elsewhere ({left} left)")

    def _parts(self, prompts: int, n: int) -> Iterator[list[int]]:
        """Places of prompts, cut the same whatever engines there are."""
        size = max(1, min(self._rows // n, prompts // _PARTS))
        for start in range(0, prompts, size):
            yield list(range(start, min(start + size, prompts)))


def _before(prompts: Sequence[Prompt], n: int) -> list[int]:
    """For each prompt, samples of the same text that precede its own."""
    seen: Counter[str] = Counter()
    before: list[int] = []
    for text in map(repr, prompts):
        before.append(seen[text])
        seen[text] += n
    return before


def open_on_cluster(
    config: Config,
    policy: Path,
    *,
    logs: Path,
    say: Callable[[str], None],
    stop: StopFlag | None = None,
) -> RaySampler:
    """Engines of a policy on all of the cluster.

    The policy's folder and `logs` are on a disk that all nodes see. Raises ConfigError where none has room.
    """
    ray = connected()
    nodes = nodes_of(ray)
    device = "cuda" if on_gpus(config.hardware, nodes) else "cpu"
    hardware = config.hardware.model_copy(update={"device": device})

    def wanted() -> list[Bundle]:
        return engine_bundles(hardware, nodes_of(ray))

    if not wanted():
        where = nodes_told(nodes) or "a cluster without nodes"
        why, fix = refusal(hardware.model_copy(update={"processes": 1}), nodes) or ("", "add nodes")
        raise ConfigError(
            f"{now_playing()}: no engine has room on {where}: {why}",
            hint=f"{fix}, then: diagevo train --resume (hardware.* may change, with --set)",
        )
    policy, told = policy.resolve(), config.sampling.chat_template_kwargs
    if hardware.serve == "vllm":
        served = engine(hardware, config.sampling)

        def make(number: int) -> Make:
            log = logs.resolve() / f"vllm-{number}.log"
            return partial(_vllm, policy, log, served, told)
    else:

        def make(number: int) -> Make:
            return partial(_transformers, policy, config.hardware.device, hardware.rows_at_once, told)

    return RaySampler(
        ray,
        make,
        wanted,
        name=now_playing(),
        rows_at_once=hardware.rows_at_once,
        patience=hardware.rank_timeout,
        say=say,
        stop=stop,
    )


def _vllm(policy: Path, log: Path, served: Serving, template_kwargs: Mapping[str, Any]) -> Served:
    from ray.util import get_node_ip_address

    from diagevo.sampling.vllm_server import VLLMServer

    return VLLMServer(
        policy,
        log=log,
        options=served.options,
        capacity=served.capacity,
        answer=served.answer,
        host=get_node_ip_address(),
        template_kwargs=template_kwargs,
    )


def _transformers(
    policy: Path, device: str, rows_at_once: int, template_kwargs: Mapping[str, Any]
) -> Divisible:
    """On the node: a GPU that the cluster counts is one that torch finds there, unless it is simulated."""
    import torch

    from diagevo.sampling.transformers_sampler import TransformersSampler

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return TransformersSampler(
        policy, device=device, rows_at_once=rows_at_once, template_kwargs=template_kwargs
    )
