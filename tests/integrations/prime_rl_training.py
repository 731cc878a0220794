"""A training of prime-rl without its engine and its trainer: its task source, its sink and its file monitor,
and the taskset of `examples/prime_rl_steered.py` by verifiers' loader. Run where verifiers can be imported:

    python -m tests.integrations.prime_rl_training FOLDER DATASET STEPS EVERY PRIME_RL VERIFIERS

PRIME_RL and VERIFIERS are checkouts (559b447, a60a606). The engine is made up: to rows with an even number,
two of four replies begin with a sum that is wrong. After each EVERY steps it waits until other draws are
served, as a training takes longer than a diagnosis.
"""

# The trainer is a checkout, and no dependency of ours.
# pyright: reportMissingImports=false

import asyncio
import json
import sys
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
GROUP, BATCH = 4, 16


def node(role: str, content: str, parent: int | None) -> dict[str, Any]:
    sampled = role == "assistant"
    return {
        "message": {"role": role, "content": content},
        "parent": parent,
        "sampled": sampled,
        "timestamp": 0.0,
        "token_ids": [1, 2],
        "mask": [sampled] * 2,
        "logprobs": [-0.5] * 2 if sampled else [],
    }


async def episode(vf: Any, task: Any, group: str, sample: int, step: int) -> Any:
    """One reply of the made-up engine, rewarded by the task itself."""
    wrong = task.data.idx % 2 == 0 and sample % 2
    reply = f"2+2=5;so \\boxed{{{task.data.answer}1}}" if wrong else f"2+2=4;so \\boxed{{{task.data.answer}}}"
    trace = vf.WireTrace(
        id=f"{group}.{sample}",
        verifiers={"version": "0", "commit": None},
        task={"type": "RowTask", "data": task.data.model_dump(), "key": task.key, "hash": task.hash},
        agent={"config": {}, "name": "solver", "trainable": True},
        nodes=[node("user", task.data.prompt, None), node("assistant", reply, 0)],
        is_completed=True,
        ok=True,
        timing={"start": 0.0},
    )
    trace.rewards = {"correct": vf.Reward(score=await task.correct(trace), weight=1.0)}
    work = {"type": "train", "step": step, "policy": {"start": 0, "end": 0}}
    return vf.WireEpisode(
        id=trace.id,
        env={"id": "steered", "name": "steered"},
        task=trace.task,
        group={"id": group},
        run={"type": "train", "id": "r", "work": work},
        ok=True,
        traces=[trace],
    )


async def play(folder: Path, dataset: str, steps: int, every: int) -> None:
    import verifiers.v1 as vf
    from prime_rl.monitors.file import FileMonitor
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
    from prime_rl.orchestrator.train_sink import TrainSink
    from prime_rl.orchestrator.train_source import TrainSource
    from prime_rl.orchestrator.types import Progress

    served = folder / "next.json"
    chosen = vf.taskset_config_type("prime-rl-steered")(id="prime-rl-steered", dataset=dataset, draws=served)
    taskset = vf.load_taskset(chosen)
    assert type(taskset).INFINITE  # as prime-rl's Env.start asks
    config = SimpleNamespace(ratio=1.0, curriculum=None, group_size=GROUP)
    env = SimpleNamespace(
        name="steered",
        tasks=iter(taskset),
        num_tasks=None,
        config=config,
        algorithm=GRPOAlgorithm(SimpleNamespace(length_penalty=None), None),
        sampling_args={"temperature": 1.0},
    )
    source, progress = TrainSource([env]), Progress()
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
    drawn: list[int] = []
    for number in count():
        if (step := progress.step) > steps:
            return
        request, before = source.next_task(step=step), json.loads(served.read_text(encoding="utf-8"))["round"]
        drawn.append(request.task.data.idx)
        for sample in range(GROUP):
            arrived = await episode(vf, request.task, f"g{number}", sample, step)
            await monitor.log_episodes([arrived], step, "train", "all")
            batch = await sink.add(arrived)
            if batch is None or not batch.samples:
                continue
            await monitor.log_episodes(batch.cohort.effective.vf_episodes, step, "train", "effective")
            progress.step += 1
            with (folder / "drawn.jsonl").open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps({'step': step, 'round': before, 'rows': drawn})}\n")
            drawn = []
            while step > 1 and step % every == 1:  # a step is read once a later one has begun
                if json.loads(served.read_text(encoding="utf-8"))["round"] != before:
                    break
                await asyncio.sleep(0.1)


def main(folder: str, dataset: str, steps: str, every: str, prime: str, verifiers: str) -> None:
    trackers: Any = ModuleType("prime_rl.monitors.wandb")
    trackers.WandbMonitor = object
    sys.modules[trackers.__name__] = trackers
    configs = f"{prime}/packages/prime-rl-configs/src"
    sys.path[:0] = [verifiers, f"{prime}/src", configs, str(ROOT / "examples")]
    asyncio.run(play(Path(folder), dataset, int(steps), int(every)))


if __name__ == "__main__":
    main(*sys.argv[1:])
