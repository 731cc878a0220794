"""prime-rl: its sink makes groups and batches of episodes as they arrive, its file monitor writes them.

Both run as they are, and so does `Episode.to_record` of verifiers; what waits and arrives is made up. Metrics
trackers, which the monitors' package imports, are left out.
"""

# The trainer is a checkout, and no dependency of ours.
# pyright: reportMissingImports=false

import asyncio
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.ingest.writers.taken import Truth

GROUPS, GROUP, BATCH, IN_FLIGHT = 14, 4, 8, 3


def episode(
    vf: Any, group: int, sample: int, step: int, reward: float, *, broken: bool
) -> tuple[Any, list[str]]:
    """One run of a solver, seen by a judge who is not trained. Some begin anew, some call a tool."""
    from verifiers.v1.trace import Reward, Timing, VersionInfo

    name = f"{group}.{sample}"

    def node(message: dict[str, Any], parent: int | None, *, sampled: bool = False) -> dict[str, Any]:
        tokens = [group + 1, sample + 1]
        return {
            "message": message,
            "parent": parent,
            "sampled": sampled,
            "timestamp": 0.0,
            "token_ids": tokens,
            "mask": [sampled] * len(tokens),
            "logprobs": [-0.5] * len(tokens) if sampled else [],
        }

    user = {"role": "user", "content": f"Question {group % 9}"}  # some come back as another group
    nodes, shown = [node(user, None)], []
    if sample == 1:
        nodes.append(node({"role": "assistant", "content": f"[{name}] given up"}, 0, sampled=True))
    start = 0
    if sample >= 2:
        call = {"id": "1", "name": "look_up", "arguments": f'{{"page": "{name}\\nuser: it is 3"}}'}
        nodes.append(node({"role": "assistant", "content": None, "tool_calls": [call]}, 0, sampled=True))
        result = {
            "role": "tool",
            "tool_call_id": "1",
            "name": "look_up",
            "content": f"assistant: {name} found",
        }
        nodes.append(node(result, len(nodes) - 1))
        shown += ["look_up", f'"page": "{name}', f"assistant: {name} found"]
        start = len(nodes) - 1
    last = {"role": "assistant", "content": f"[{name}] so 4", "reasoning_content": f"{name} thinks"}
    nodes.append(node(last, start, sampled=True))
    shown += [f"{name} thinks", f"[{name}] so 4"]
    task = {"type": "Task", "data": {"idx": group, "prompt": user["content"], "answer": str(group)}}

    def trace(agent: str, nodes: list[Any], rewards: dict[str, Any], *, trainable: bool) -> Any:
        return vf.WireTrace(
            id=f"{name}.{agent}",
            verifiers=VersionInfo(version="0", commit=None),
            task=task,
            agent={"config": {}, "name": agent, "trainable": trainable},
            nodes=nodes,
            rewards=rewards,
            is_completed=True,
            ok=not broken,
            timing=Timing(start=0.0),
        )

    right = {"right": Reward(score=reward, weight=1.0), "short": Reward(score=1.0, weight=0.0)}
    judged = [node({"role": "user", "content": "Is it right?"}, None), node(last, 0, sampled=True)]
    made = vf.WireEpisode(
        id=name,
        env={"id": "sums", "name": "sums"},
        task=task,
        group={"id": f"g{group}"},
        run={
            "type": "train",
            "id": "r",
            "work": {"type": "train", "step": step, "policy": {"start": 0, "end": 0}},
        },
        ok=not broken,
        traces=[
            trace("solver", nodes, {} if broken else right, trainable=True),
            trace("judge", judged, {} if broken else right, trainable=False),
        ],
    )
    return made, shown


async def play(folder: Path) -> Truth:
    import verifiers.v1 as vf
    from prime_rl.monitors.file import FileMonitor
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
    from prime_rl.orchestrator.train_sink import TrainSink
    from prime_rl.orchestrator.types import Progress

    rng, truth, progress = random.Random(5), Truth(), Progress()
    env = SimpleNamespace(
        config=SimpleNamespace(group_size=GROUP),
        algorithm=GRPOAlgorithm(SimpleNamespace(length_penalty=None), None),
        sampling_args={"temperature": 1.0},
    )
    sink = TrainSink(
        SimpleNamespace(max_off_policy_steps=8, train=SimpleNamespace(filter_zero_advantages=True)),
        tokenizer=None,
        train_envs=SimpleNamespace(get=lambda _: env),
        mm_token_type_ids_mapping=None,
        progress=progress,
        batch_size=BATCH,
        token_batch_size=None,
    )
    monitor = FileMonitor(SimpleNamespace(path="metrics.jsonl"))
    monitor.output_dir = folder
    waiting = [(g, s) for g in range(GROUPS) for s in range(GROUP)]
    late = (0, 3)  # the first group's last episode, of a group that is long forgotten
    waiting.remove(late)
    waiting.insert(GROUP * 7, late)
    signs = {g: [float(rng.random() < 0.5) for _ in range(GROUP)] for g in range(GROUPS)}
    signs[3], signs[6] = [0.0] * GROUP, [1.0] * GROUP
    while waiting:
        group, sample = waiting.pop(rng.randrange(min(len(waiting), IN_FLIGHT * GROUP)))
        broken = (group * GROUP + sample) % 11 == 5
        reward, step = signs[group][sample], progress.step
        arrived, texts = episode(vf, group, sample, step, reward, broken=broken)
        if not broken:
            truth.add(f"g{group}", 0, f"Question {group % 9}", texts, reward, str(group))
        await monitor.log_episodes([arrived], step, "train", "all")
        batch = await sink.add(arrived)
        if batch is not None and batch.samples:
            shipped = batch.cohort.effective.vf_episodes
            for each in shipped:
                found = truth.groups[each.group.id]
                found["step"] = found["step"] or step  # the first that ships it
            await monitor.log_episodes(shipped, step, "train", "effective")
            progress.step += 1
    return truth


def main(prime: Path, verifiers: Path, folder: Path, made_with: str) -> None:
    trackers: Any = ModuleType("prime_rl.monitors.wandb")
    trackers.WandbMonitor = object
    sys.modules[trackers.__name__] = trackers
    configs = prime / "packages" / "prime-rl-configs" / "src"
    sys.path[:0] = [str(verifiers), str(prime / "src"), str(configs)]
    asyncio.run(play(folder)).write(folder, made_with)
