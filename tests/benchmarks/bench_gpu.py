"""What one GPU does with the shapes of Qwen3-0.6B, 4B and 8B, weights drawn at random, in bfloat16.

`python -m tests.benchmarks gpu`; without a CUDA device it has no rows. Shares are of what the card was
measured to do just before: a large matrix product for arithmetic, a large copy for memory traffic.

- sampling: our decoding loop, no row ever ends. A step reads every weight and the cache once, so its share is
  of memory traffic.
- update: forward and backward with gradient checkpointing of one micro-batch, 8 FLOP a weight and token (the
  forward pass is done twice). The optimizer is left out: for 8B its float32 state is sharded over GPUs.
- GRPO step: the whole of `train` on the 0.6B shape, 8 questions × 8 completions, optimizer and all.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.rows import Row

VOCABULARY = 151_936


@dataclass(frozen=True)
class Shape:
    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    tied: bool
    rows: int = 256  # sampled at once
    prompt: int = 128
    new: int = 64
    micro_batch: int = 8
    length: int = 2048  # of a row in an update


SHAPES = (
    Shape("Qwen3-0.6B", 1024, 3072, 28, 16, True),
    Shape("Qwen3-4B", 2560, 9728, 36, 32, True),
    Shape("Qwen3-8B", 4096, 12288, 36, 32, False),
)


def rows() -> list[Row]:
    import torch

    if not torch.cuda.is_available():
        print("bench_gpu: no CUDA device, nothing was measured")
        return []
    found = []
    flops, traffic = card_flops("cuda"), card_traffic("cuda")
    for shape in SHAPES:
        model = random_model(shape, "cuda")
        found += [sampling_row(shape, model, traffic), update_row(shape, model, flops)]
        del model
        torch.cuda.empty_cache()
    found.append(step_row(SHAPES[0], "cuda"))
    return found


def random_model(shape: Shape, device: str) -> Any:
    import torch
    from transformers import Qwen3ForCausalLM

    with torch.device(device):
        model: Any = Qwen3ForCausalLM(config_of(shape))
    return model.to(torch.bfloat16)


def config_of(shape: Shape) -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=4096,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )


def card_flops(device: str, size: int = 8192) -> float:
    """FLOP a second of a square bfloat16 product."""
    import torch

    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2 * size**3 / _seconds(lambda: a @ a, device, repeat=20)


def card_traffic(device: str, gigabytes: float = 4.0) -> float:
    """Bytes a second that a copy reads and writes."""
    import torch

    a = torch.empty(int(gigabytes * 1e9), device=device, dtype=torch.uint8)
    b = torch.empty_like(a)
    return 2 * a.numel() / _seconds(lambda: b.copy_(a), device, repeat=10)


def sampling_row(shape: Shape, model: Any, traffic: float) -> Row:
    from diagevo.sampling.decoding import Decoding, decode, row_key

    device = model.device.type
    samples = 8
    prompts = [[7 + i] * shape.prompt for i in range(shape.rows // samples)]
    keys = [[row_key(0, ids, g) for g in range(samples)] for ids in prompts]
    settings = Decoding(1.0, 0.99, shape.new, (), 0, rows_at_once=shape.rows)
    _reset_memory(device)
    model.eval()
    seconds = _seconds(lambda: decode(model, prompts, keys, settings), device)
    cache = 2 * shape.layers * 8 * 128 * 2 * shape.rows * (shape.prompt + shape.new / 2)
    weights = 2 * sum(value.numel() for value in model.parameters())
    share = shape.new * (weights + cache) / seconds / traffic
    tokens = shape.rows * shape.new / seconds
    return Row(
        f"sampling {shape.name}",
        tokens,
        "tokens/s",
        traffic / 1e9,
        "GB/s of the card",
        share,
        "",
        None,
        f"{shape.rows} rows, {_memory(device)}; ratio: share of memory traffic",
    )


def update_row(shape: Shape, model: Any, flops: float) -> Row:
    import torch

    device = model.device.type
    model.train()
    model.gradient_checkpointing_enable()
    ids = torch.randint(7, VOCABULARY, (shape.micro_batch, shape.length), device=device)

    def update() -> None:
        hidden = model.model(input_ids=ids).last_hidden_state
        # The head row by row, as TRL does in parts: the logits of a whole micro-batch would not fit.
        cut = hidden.detach().requires_grad_()
        for row in range(shape.micro_batch):
            model.lm_head(cut[row]).float().logsumexp(-1).mean().backward()
        hidden.backward(cut.grad)
        model.zero_grad(set_to_none=True)

    _reset_memory(device)
    seconds = _seconds(update, device)
    weights = sum(value.numel() for value in model.parameters())
    tokens = shape.micro_batch * shape.length
    model.gradient_checkpointing_disable()
    return Row(
        f"update {shape.name}",
        tokens / seconds,
        "tokens/s",
        flops / 1e12,
        "TFLOP/s of the card",
        8 * weights * tokens / seconds / flops,
        "",
        None,
        f"{shape.micro_batch} × {shape.length} tokens, {_memory(device)}; ratio: share of arithmetic",
    )


def step_row(shape: Shape, device: str, *, new_tokens: int = 256) -> Row:
    """Seconds between the first and the last of four steps of `train`, per step."""
    from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig
    from diagevo.training.grpo import TrainingRow, train
    from tests.sampling.tiny_model import make_tiny_tokenizer

    class Length:
        def measure(self, rollouts: Any) -> list[int]:
            return [len(rollout.text) for rollout in rollouts]

        def rewards(self, rollouts: Any, measures: Any) -> list[float]:
            return [float(measure) for measure in measures]

    moments: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        random_model(shape, device).save_pretrained(folder / "start")
        make_tiny_tokenizer().save_pretrained(folder / "start")
        _reset_memory(device)
        train(
            folder / "start",
            [TrainingRow(f"q{i}", [{"role": "user", "content": f"{i}?"}]) for i in range(32)],
            Length(),
            GRPOConfig(max_steps=4, batch_questions=8, group=8, micro_batch=8, save_steps=100),
            SamplingConfig(max_new_tokens=new_tokens),
            output=folder / "final",
            work=folder / "work",
            seed=0,
            on_step=lambda step, rollouts, rewards: moments.append(time.perf_counter()),
            resume=False,
            hardware=HardwareConfig(device="cuda" if device == "cuda" else "cpu"),
        )
    seconds = (moments[-1] - moments[0]) / 3
    return Row(
        f"GRPO step {shape.name}",
        seconds,
        "s",
        None,
        "",
        None,
        "",
        None,
        f"64 completions of up to {new_tokens} tokens, {_memory(device)}",
    )


def _seconds(work: Any, device: str, repeat: int = 1) -> float:
    """Seconds of one call, after one to warm up."""
    import torch

    def synchronise() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    work()
    synchronise()
    began = time.perf_counter()
    for _ in range(repeat):
        work()
    synchronise()
    return (time.perf_counter() - began) / repeat


def _reset_memory(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _memory(device: str) -> str:
    import torch

    if device != "cuda":
        return "no GPU memory"
    peak, whole = torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory
    return f"{peak / 2**30:.1f} GiB of {whole / 2**30:.0f}"
