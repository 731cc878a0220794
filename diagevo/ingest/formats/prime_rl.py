"""prime-rl's `rollouts/step_N/train`: one episode per line, one trace per agent, its messages as a graph.
`all` has every episode, by the step during which it arrived; `effective` has what a step trained on, which
may end inside a group, and lacks groups whose rewards are all equal. So `effective` says when a group is
complete, and `all` what it contains.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import text_of
from diagevo.ingest.formats.rows import ANOTHER, answer, number, step_number, step_of
from diagevo.ingest.json_lines import CutLine, decoded, raw
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep

GLOBS = [f"{root}step_*/train/effective/traces.jsonl" for root in ("", "rollouts/")]
NAME = r".*step_(\d+)/train/effective/traces\.jsonl"
LATE = 9
"""Steps after which a group that was never trained on is taken as it is. prime-rl discards rollouts more
than eight versions old (`max_off_policy_steps`)."""


class Named(msgspec.Struct):
    id: str


class EpisodeHead(msgspec.Struct):
    """The part of an episode that identifies its group."""

    group: Named | None = None


class TraceReward(msgspec.Struct):
    score: float | None = None
    weight: float | None = 1.0


class MessageNode(msgspec.Struct):
    """A message of the graph; its parent precedes it."""

    message: dict[str, Any]
    parent: Annotated[int, msgspec.Meta(ge=0)] | None = None
    sampled: bool = False


class Agent(msgspec.Struct):
    trainable: bool = True


class Task(msgspec.Struct):
    data: dict[str, Any] = {}


class Trace(msgspec.Struct):
    rewards: dict[str, TraceReward | None]
    nodes: list[MessageNode]
    agent: Agent = msgspec.field(default_factory=Agent)
    task: Task = msgspec.field(default_factory=Task)
    ok: bool = True


class Episode(EpisodeHead):
    ok: bool = False
    traces: list[Trace] = []


_HEAD, _EPISODE = msgspec.json.Decoder(EpisodeHead), msgspec.json.Decoder(Episode)
Place = tuple[Path, int, int]
"""A line: its file, its number and where it begins."""


class EpisodeReader:
    """Reads the steps in order: each file of `effective`, with its groups' episodes from `all`."""

    def __init__(self, reward: str | None) -> None:
        self.reward = reward
        self._all: dict[int, Path] = {}
        self._taken = -1
        """The last step whose `all` was read."""
        self._arrived: dict[str, tuple[int, list[Place]]] = {}
        """Groups without a step yet: when their first episode arrived, and their lines."""
        self._filed: set[str] = set()

    @property
    def waiting(self) -> int:
        """Groups that have arrived, and may be incomplete."""
        return len(self._arrived)

    def load(self, file: Path, step: int) -> RolloutStep:
        """The groups that this step is the first to train on, and those that arrived long ago and were
        never trained on. Raises CutLine if the file is incomplete."""
        shipped: dict[str, list[Place]] = {}
        alone: list[Place] = []
        for line, start, text in raw(file):
            group = decoded(file, line, text, _HEAD).group
            (alone if group is None else shipped.setdefault(group.id, [])).append((file, line, start))
        self._arrive(file, step)
        due = [name for name, (first, _) in self._arrived.items() if first <= step - LATE]
        places = list(alone)
        for name in [*shipped, *due]:
            if name not in self._filed:
                self._filed.add(name)
                found = self._arrived.pop(name, None)
                places += shipped[name] if found is None else found[1]
        return step_of(step, f"step_{step}/{file.name}", self._rollouts(places))

    def _arrive(self, file: Path, step: int) -> None:
        """Load what arrived up to this step."""
        if step > max(self._all, default=-1):
            folder = file.parents[3]
            names = folder.glob("step_*/train/all/traces.jsonl")
            self._all = {step_number(n, n.parts[-4][5:]): n for n in names if n.parts[-4][5:].isdecimal()}
        for number_ in sorted(n for n in self._all if self._taken < n <= step):
            file = self._all[number_]
            try:
                for line, start, text in raw(file):
                    group = decoded(file, line, text, _HEAD).group
                    if group is not None and group.id not in self._filed:
                        self._arrived.setdefault(group.id, (number_, []))[1].append((file, line, start))
            except CutLine:
                pass  # the last episode before a crash: its group is never complete
        self._taken = max(self._taken, step)

    def _rollouts(self, places: list[Place]) -> list[IngestedRollout | None]:
        found: list[IngestedRollout | None] = []
        for file, line, start in places:
            with file.open("rb") as stream:
                stream.seek(start)
                episode = decoded(file, line, stream.readline(), _EPISODE)
            place = f"{file}, line {line}"
            name = None if episode.group is None else episode.group.id
            traces = [trace for trace in episode.traces if trace.agent.trainable]
            if not episode.ok or not traces:
                found.append(None)
                continue
            found += [self._trace(place, trace, name) if trace.ok else None for trace in traces]
        return found

    def _trace(self, place: str, trace: Trace, group: str | None) -> IngestedRollout | None:
        if not trace.nodes:
            raise ConfigError(f"{place} holds a trace without nodes", hint=ANOTHER)
        if self.reward is not None and self.reward not in trace.rewards:
            known = ", ".join(sorted(trace.rewards))
            raise ConfigError(f"{place} has no reward {self.reward}", hint=f"its rewards: {known}")
        total = 0.0
        given = [value for name, value in trace.rewards.items() if self.reward in (None, name)]
        for value in given:
            if value is None or value.score is None or value.weight is None:
                return None
            total += value.score * value.weight
        reward = number(total) if given else None
        if reward is None:
            return None
        path = _last_branch(place, trace.nodes)
        first = next((i for i, node in enumerate(path) if node.sampled), len(path))
        prompt, response = (
            text_of(place, [node.message for node in part]) for part in (path[:first], path[first:])
        )
        return IngestedRollout(prompt, response, reward, answer(place, trace.task.data.get("answer")), group)


def _last_branch(place: str, nodes: list[MessageNode]) -> list[MessageNode]:
    """From the root to the last node."""
    path: list[MessageNode] = []
    at: int | None = len(nodes) - 1
    while at is not None:
        path.append(nodes[at])
        parent = nodes[at].parent
        if parent is not None and parent >= at:
            raise ConfigError(f"{place}: node {at} has a parent that comes after it", hint=ANOTHER)
        at = parent
    return path[::-1]
