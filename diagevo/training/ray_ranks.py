"""The ranks of a run on a Ray cluster: a place for each, in which its process runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diagevo.config.models import HardwareConfig
from diagevo.config.resources import rank_bundles
from diagevo.errors import NodeLostError, ServiceError
from diagevo.progress import StopFlag, now_playing
from diagevo.sampling.cluster import Places, connected, nodes_of
from diagevo.sampling.supervised import SupervisedProcess, free_port
from diagevo.training.launch_spec import LaunchSpec
from diagevo.training.ranks import Rank, accelerate_command, log_of, rank_environment, worker_command

_ANSWER = 60.0  # seconds after which a node that says nothing counts as lost


class Host:
    """What an actor on a node holds: one rank's process, which ends with it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: SupervisedProcess | None = None

    def __repr__(self) -> str:
        return self._name

    def place(self) -> tuple[str, int]:
        """The node's address, and a port that is free there."""
        from ray.util import get_node_ip_address

        address = get_node_ip_address()
        return address, free_port(address)

    def start(self, argv: Sequence[str], log: str, env: dict[str, str]) -> None:
        self._process = SupervisedProcess(argv, log=Path(log), env=env)

    def status(self) -> int | None:
        assert self._process is not None
        return self._process.status()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


class RayRank:
    """A rank in the place that it was given."""

    def __init__(self, ray: Any, host: Any, log: Path, name: str) -> None:
        """`name`: which rank it is, and where."""
        self.log = log
        self._ray, self._host, self._name = ray, host, name

    def started(self, answer: Any) -> None:
        """Wait for the answer of its node to the start. Raises ServiceError where it could not be started,
        NodeLostError where its node does not answer."""
        try:
            self._ray.get(answer, timeout=_ANSWER)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            raise NodeLostError(f"{self._name} is lost with its node", hint=f"its log: {self.log}") from error
        except self._ray.exceptions.RayTaskError as error:
            raise ServiceError(
                f"{self._name} could not be started: {error.cause}",
                hint="every node must see the folder of the runs and write to it: docs/howto/cluster.md",
            ) from error

    def status(self) -> int | None:
        """Raises NodeLostError where its node does not answer."""
        try:
            return self._ray.get(self._host.status.remote(), timeout=_ANSWER)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            raise NodeLostError(f"{self._name} is lost with its node", hint=f"its log: {self.log}") from error

    def tail(self) -> str:
        """The last lines of its log, which lies on a disk that all nodes see."""
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        except OSError:
            return ""

    def stop(self) -> None:
        try:
            self._ray.get(self._host.stop.remote(), timeout=_ANSWER)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            return  # With its node.


class RayRanks:
    """Implements `Ranks`. A rank sees its own GPU alone, so it is the first on a machine of its own."""

    def __init__(self, hardware: HardwareConfig, stop: StopFlag) -> None:
        """Wait for the places, at most `hardware.rank_timeout` seconds."""
        self._ray = connected()
        bundles = rank_bundles(hardware, nodes_of(self._ray))
        name = now_playing().partition(",")[0]  # of the run: they outlive the stage
        self._places = Places(
            self._ray, bundles, name=f"{name}, ranks", timeout=hardware.rank_timeout, stop=stop
        )
        self._hosts = [
            self._places.actor(Host, rank, f"{name}, rank {rank}") for rank in range(hardware.processes)
        ]
        self.listen_at = str(self._ray.util.get_node_ip_address())
        try:
            places = [host.place.remote() for host in self._hosts]
            found = self._ray.get(places, timeout=hardware.rank_timeout)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            self.close()
            raise NodeLostError(
                f"{name}: a node was lost before its rank was started",
                hint="continue with: diagevo train --resume",
            ) from error
        at = [address for address, _ in found]
        # Neighbours are on one node: groups that share the training state are of ranks in a row.
        order = sorted(range(len(at)), key=lambda rank: at.index(at[rank]))
        self._hosts, found = [self._hosts[rank] for rank in order], [found[rank] for rank in order]
        self._where = [address for address, _ in found]
        self.rendezvous: tuple[str, int] = found[0]

    def start(self, spec_file: Path, spec: LaunchSpec) -> list[Rank]:
        hardware, ranks, answers = spec.hardware, [], []
        for rank, host in enumerate(self._hosts):
            log = log_of(spec_file, hardware, rank)
            alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            environment = rank_environment(spec, rank, hardware.threads or 1) | alone
            command = worker_command(spec_file)
            if hardware.accelerate_config is not None:
                command = accelerate_command(hardware, spec_file, spec.rendezvous, rank=rank)
                environment = {}
            answers.append(host.start.remote(command, str(log), environment))
            name = f"training rank {rank} of {hardware.processes}, on node {self._where[rank]},"
            ranks.append(RayRank(self._ray, host, log, name))
        for rank, answer in zip(ranks, answers, strict=True):
            rank.started(answer)
        return ranks

    def close(self) -> None:
        """Give the places back; what runs in them ends."""
        self._places.close()
