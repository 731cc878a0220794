"""The parts of gpu.py: `python -m benchmarks.gpu_parts PART FOLDER`. They play the program's own engine and
trainer; what each measures is said in gpu.py."""

import gc
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from benchmarks.gpu import FAILED, FIGURE, SKIPPED
from benchmarks.gpu_shapes import LARGE, SMALLEST, TINY, make_policy, phase_of, planned, run_of
from diagevo.config.models import Config, TrainingConfig
from diagevo.errors import OutOfMemoryError
from diagevo.progress import StopFlag
from diagevo.sampling.engine import Engine, EngineSampler
from diagevo.sampling.engine_weights import checksum
from diagevo.sampling.sampler import Prompt, SamplingParams
from diagevo.sampling.supervised import free_port
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training import checkpoints
from diagevo.training.attention import attention_for
from diagevo.training.measures import TENSORS_APART
from diagevo.training.phase import OnUpdate, TrainingSummary, no_update

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SHAPE, BIG = (SMALLEST, LARGE) if CUDA else (TINY, TINY)
VLLM = find_spec("vllm") is not None
PROMPTS: list[Prompt] = [[{"role": "user", "content": text}] for text in ("1+1?", "Why?", "So {x}.", "e")]
GREEDY = SamplingParams(temperature=0.0, max_new_tokens=8)


class Skipped(Exception):
    """What is missing here."""


def say(**figures: Any) -> None:
    print(f"\n{FIGURE}{json.dumps(figures)}", flush=True)


def install(folder: Path) -> None:
    names = ("torch", "transformers", "trl", "accelerate", "vllm", "peft", "safetensors")
    say(python=platform.python_version(), **{n: metadata.version(n) for n in names if find_spec(n)})
    command = [sys.executable, "-m", "pip", "check"]
    say(pip_check=subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines())
    cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    say(cards=[f"{card.name}, {card.total_memory / 1e9:.1f} GB" for card in cards], cuda=torch.version.cuda)
    if CUDA and not VLLM:
        raise RuntimeError("no vLLM: install as docs/howto/real-model.md says")


def engine(folder: Path) -> None:
    a, b = (make_policy(SHAPE, folder / name, seed=i, device=DEVICE) for i, name in enumerate("ab"))
    found = _engine(run_of(SHAPE), a)
    say(before=_memory())
    _, seconds = _timed(lambda: found.llm)
    runner = found.llm.llm_engine.model_executor.driver_worker.model_runner
    say(runner=f"{type(runner).__module__}.{type(runner).__name__}", start_s=seconds, started=_memory())
    asleep: list[int] = []
    for cycle in range(5):
        for name, policy in (("a", a), ("b", b)):
            _, seconds = _timed(lambda policy=policy: found.hold(policy))
            held = _memory()
            answers = _greedy(EngineSampler(policy, found))  # rests at its end
            asleep.append(_memory()["card"])
            if cycle == 0:
                say(**{f"hold_{name}_s": seconds, f"{name}_held": held, f"{name}_rested": _memory()})
                _compare(name, answers, _greedy(TransformersSampler(policy, device=DEVICE)))
    say(asleep=asleep, grows_a_cycle=(asleep[-1] - asleep[3]) / 3)
    if CUDA and asleep[-1] - asleep[3] > 2**28:
        raise RuntimeError("it does not give back what it took: see asleep")


def _compare(name: str, answers: Sequence[str], expected: Sequence[str]) -> None:
    """Rounding in bfloat16 parts two texts some time; other weights do at once."""
    same = sum(a == b for pair in zip(answers, expected, strict=True) for a, b in zip(*pair, strict=False))
    share = 1.0 if answers == expected else same / max(1, sum(map(len, expected)))
    say(**{f"{name}_greedy_as_transformers": share})
    if share < (0.25 if CUDA else 1.0):
        raise RuntimeError(f"greedy answers of {name} are not those of transformers: {answers}, {expected}")


def phase(folder: Path) -> None:
    config = _run()
    with _peak() as peak:
        summary = _play(config, folder, _starts(folder))
    found = summary.measures
    say(first_kl=found.first_kl, log_prob_gap=found.sampling_gap, findings=found.findings)
    say(tensors_apart=[entry.get(TENSORS_APART) for entry in summary.log])
    say(peak=peak["card"], planned=planned(config, SHAPE, torch.cuda.mem_get_info()[1]) if CUDA else None)


def resume(folder: Path) -> None:
    config, start = _run(), _starts(folder)
    command = [sys.executable, "-m", "benchmarks.gpu_parts", "killed", str(folder)]
    killed, seconds = _timed(lambda: subprocess.run(command, check=False).returncode)
    if killed != -signal.SIGKILL:
        raise RuntimeError(f"the phase that was to be killed ended with status {killed}")
    say(killed_after_s=seconds)
    started = _engine(config, start) if VLLM else None
    summary, seconds = _timed(lambda: _play(config, folder, start, engine=started))
    say(resumed_from=summary.resumed_from, resumed_s=seconds)
    if summary.resumed_from != 2:
        raise RuntimeError("it did not go on from the second step")
    if started is None:
        say(out_of_memory="not tried: no vLLM")
        return

    taken = list[torch.Tensor]()

    def fill(step: int, metrics: Any) -> None:
        if CUDA:
            torch.cuda.empty_cache()
            free, _ = torch.cuda.mem_get_info()
            taken.append(torch.empty(free * 97 // 100, dtype=torch.uint8, device=DEVICE))
        else:
            started.wake = _out_of_memory  # pyright: ignore[reportAttributeAccessIssue]

    shutil.rmtree(folder / "final")
    shutil.rmtree(folder / "work")
    try:
        _play(config, folder, start, engine=started, on_update=fill)
    except OutOfMemoryError as error:
        say(out_of_memory=str(error), shrinks=error.setting, held=error.held)
    else:
        raise RuntimeError("memory was full when the engine woke, and nothing was said of it")


def killed(folder: Path) -> None:
    def die_after_two(step: int) -> None:
        if step == 3:
            while checkpoints.find(folder / "work").step < 2:
                time.sleep(0.05)  # it is published beside the next step
            os.kill(os.getpid(), signal.SIGKILL)

    _play(_run(), folder, folder / "start", on_step=die_after_two)


def _out_of_memory() -> None:
    raise RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:62")  # as vLLM says it


def fsdp(folder: Path) -> None:
    from tests.training import sharded

    start = _starts(folder)
    os.environ |= sharded.as_the_file_says()
    if not CUDA:
        sharded._shard_on_the_cpu()
    summary = _play(_run(), folder, start)
    files = [file.stat().st_size for file in folder.glob("work/checkpoint-3/*.safetensors")]
    say(backend=torch.distributed.get_backend(), first_kl=summary.measures.first_kl, checkpoint=sum(files))
    gc.collect()
    for attention in ("sdpa", "flash_attention_2"):
        try:
            say(**{f"{attention}_tokens_a_s": _update(start, attention_for(attention, on_gpu=CUDA))})
        except Exception as error:  # FlashAttention is an extra, and a figure beside the others
            say(**{attention: f"{type(error).__name__}: {str(error).splitlines()[0]}"})


def _update(start: Path, attention: str) -> float:
    from transformers import AutoModelForCausalLM

    how: dict[str, Any] = {"dtype": torch.bfloat16, "attn_implementation": attention}
    model: Any = AutoModelForCausalLM.from_pretrained(str(start), **how)
    model.to(DEVICE).train().gradient_checkpointing_enable()
    length = SHAPE.step_prompt + SHAPE.step_tokens
    ids = torch.randint(7, SHAPE.vocabulary, (SHAPE.micro_batch, length), device=DEVICE)

    def update() -> None:
        model.model(input_ids=ids, use_cache=False).last_hidden_state.float().mean().backward()

    update()
    return ids.numel() / _timed(update)[1]


def decode(folder: Path) -> None:
    start = make_policy(SHAPE, folder / "start", device=DEVICE)
    found = _engine(run_of(SHAPE), start)
    found.hold(start)
    from vllm import SamplingParams as Wanted  # pyright: ignore[reportMissingImports]

    ids = [7 + i % 64 for i in range(SHAPE.step_prompt // 2)]
    options: dict[str, Any] = {"top_p": 0.99, "ignore_eos": True, "max_tokens": SHAPE.step_tokens}
    for rows, seeded, logprobs in product((161, 256) if CUDA else (3, 4), (True, False), (0, None)):
        seeds = range(rows) if seeded else [None] * rows
        asked = [Wanted(**options, detokenize=False, logprobs=logprobs, seed=seed) for seed in seeds]
        draw = partial(found.llm.generate, [{"prompt_token_ids": ids}] * rows, asked, use_tqdm=False)
        draw()  # to warm up
        drawn, seconds = _timed(draw)
        tokens = sum(len(answer.outputs[0].token_ids) for answer in drawn)
        how = f"{'seeded' if seeded else 'unseeded'}_{'no_' if logprobs is None else ''}logprobs"
        say(**{f"{rows}_rows_{how}_tokens_a_s": tokens / seconds})


def lora(folder: Path) -> None:
    config = _run().model_copy(update={"training": TrainingConfig(lora=8)})
    start = _starts(folder)
    with _peak() as peak:
        found = _engine(config, start)
        before = _greedy(EngineSampler(start, found))
        say(start_peak=peak["card"])
        far = config.solver_grpo.model_copy(update={"learning_rate": 0.01})
        config = config.model_copy(update={"solver_grpo": far})
        summary = _play(config, folder, start, engine=found)
    say(peak=peak["card"], tensors_apart=[entry.get(TENSORS_APART) for entry in summary.log])
    after = _greedy(EngineSampler(summary.final, found))  # prefixes of the same prompts are of other weights
    say(answers_moved=before != after)
    _compare("adapter", after, _greedy(TransformersSampler(summary.final, device=DEVICE)))
    _compare("base", _greedy(EngineSampler(start, found)), _greedy(TransformersSampler(start, device=DEVICE)))


def hold8b(folder: Path) -> None:
    from safetensors.torch import load_file
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    from diagevo.training.saving import written

    start = make_policy(BIG, folder / "big", device=DEVICE)
    weights = [tensor for file in sorted(start.glob("*.safetensors")) for tensor in load_file(file).values()]
    largest = max(weights, key=torch.numel)
    for threads in (1, 12):
        torch.set_num_threads(threads)
        for device in dict.fromkeys(("cpu", DEVICE)):
            tensor = largest.to(device)
            checksum(tensor)
            seconds = _timed(lambda tensor=tensor: checksum(tensor))[1]
            say(**{f"checksum_{device}_{threads}_threads_ns": 1e9 * seconds / tensor.numel()})
    # As a run has them: shards on the card, beside a group that says what is written.
    if not distributed.is_initialized():
        distributed.init_process_group("cpu:gloo,cuda:nccl" if CUDA else "gloo")
    mesh, group = init_device_mesh(DEVICE, (1,)), distributed.new_group(backend="gloo")
    tensors: dict[str, torch.Tensor] = {
        f"model.{number}": distribute_tensor(tensor.to(DEVICE).float(), mesh, [Shard(0)])
        for number, tensor in enumerate(weights)
    }
    _timed(lambda: None)
    saved, copied = _timed(partial(written, tensors, folder / "saved", group))
    _, seconds = _timed(saved.result)
    size = sum(tensor.nbytes for tensor in tensors.values())
    say(saved_bytes=size, in_the_way_s=copied, beside_s=seconds)
    del tensors, weights, saved, largest
    found = _engine(run_of(BIG, vllm_memory=0.6), start)
    say(start_s=_timed(lambda: found.llm)[1])
    for threads in (1, 12):
        torch.set_num_threads(threads)
        found.holds = None
        say(**{f"hold_{threads}_threads_s": _timed(lambda: found.hold(start))[1]})
        found.rest()


def _run() -> Config:
    return run_of(SHAPE, colocate_vllm=VLLM, attention="sdpa")


def _starts(folder: Path) -> Path:
    """Of the policy; beside it the solver that votes."""
    make_policy(SHAPE, folder / "solver", seed=1, device=DEVICE)
    return make_policy(SHAPE, folder / "start", device=DEVICE)


def _engine(config: Config, start: Path) -> Engine:
    """As a rank of a run starts it."""
    if not VLLM:
        raise Skipped("no vLLM in this environment")
    gc.collect()
    torch.cuda.empty_cache()
    PartialState(cpu=not CUDA)
    return Engine(start, config.hardware, config.sampling, lora=config.training.lora, rank=0)


def _play(
    config: Config,
    folder: Path,
    start: Path,
    *,
    engine: Engine | None = None,
    on_step: Callable[[int], None] = lambda step: None,
    on_update: OnUpdate = no_update,
) -> TrainingSummary:
    """A phase in this process; a frozen solver votes at each step, as for the challenger's reward."""
    from diagevo.training.grpo import play_phase

    arguments = {"config": config.model_dump(mode="json"), "folder": str(folder)}
    given = phase_of(config, start, folder, "diagevo.rehearsal:reward", arguments)
    engine = _engine(config, start) if engine is None and VLLM else engine
    reward, times = given.reward.build(StopFlag(), engine), [time.perf_counter()]
    measure = reward.measure

    def record(part: str) -> None:
        times.append(time.perf_counter())
        say(**{part: times[-1] - times[-2]})

    def measured(rollouts: Any) -> Any:
        step = rollouts[0].step
        record("start_and_rollouts_1_s" if step == 1 else f"save_and_rollouts_{step}_s")
        found = measure(rollouts)
        record(f"votes_{step}_s")
        return found

    def updated(step: int, metrics: Any) -> None:
        record(f"update_{step}_s")
        on_update(step, metrics)

    reward.measure = measured
    summary = play_phase(given, reward, lambda step, *_: on_step(step), StopFlag(), updated, engine)
    record("last_save_s")
    return summary


def _greedy(sampler: Any) -> list[str]:
    found = [group[0].text for group in sampler.sample(PROMPTS, n=1, params=GREEDY, seed=0)]
    sampler.close()
    return found


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work()
    if CUDA:
        torch.cuda.synchronize()
    return found, time.perf_counter() - began


def _memory() -> dict[str, int]:
    """Bytes of the card, or of this process, and those of torch's own among them."""
    if CUDA:
        free, whole = torch.cuda.mem_get_info()
        return {"card": whole - free, "torch": torch.cuda.memory_allocated()}
    return {"card": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")}


@contextmanager
def _peak() -> Iterator[dict[str, int]]:
    """The most of it so far, looked at twenty times a second: vLLM's memory is not counted by torch."""
    most, over = _memory(), threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            most["card"] = max(most["card"], _memory()["card"])

    threading.Thread(target=look, daemon=True).start()
    try:
        yield most
    finally:
        over.set()


def main() -> int:
    part, folder = sys.argv[1], Path(sys.argv[2])
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    with ExitStack() as stack:
        if VLLM and not CUDA:
            os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1"}
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0"
            from tests.sampling.real_vllm import engine_inside

            stack.enter_context(engine_inside())
        try:
            globals()[part](folder)
        except Skipped as why:
            print(f"{SKIPPED}{why}", flush=True)
        except Exception as error:  # what fails on a card is a record, not the end
            traceback.print_exc()
            print(f"\n{FAILED}{type(error).__name__}: {' '.join(str(error).split())[:500]}", flush=True)
            os._exit(1)
    os._exit(0)  # the engine's and gloo's threads would be waited for


if __name__ == "__main__":
    main()
