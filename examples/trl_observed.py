"""TRL's GRPOTrainer with a data set of your own and a memory of causes beside it, on the CPU.

Run it: python examples/trl_observed.py. Then: diagevo diagnose --run mine --local
"""

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import diagevo
from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import WEIGHTS, held_out
from diagevo.ingest.rounds import Rounds
from diagevo.integrations.trl import RoundCallback

rows = [{"prompt": [{"role": "user", "content": text}], "answer": right} for text, right in held_out()[::35]]


def correct(completions, answer, **_):
    texts = [completion[0]["content"] for completion in completions]
    return [float(extract_boxed(text) == right) for text, right in zip(texts, answer, strict=True)]


trainer = GRPOTrainer(
    str(WEIGHTS),
    reward_funcs=correct,
    args=GRPOConfig(
        output_dir="runs/mine-trl",
        max_steps=4,
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=48,
        report_to="none",
        use_cpu=True,
        bf16=False,
    ),
    train_dataset=Dataset.from_list(rows),
)
with diagevo.open("sqlite:///runs/diagevo.db", run="mine") as memory:
    trainer.add_callback(RoundCallback(memory, trainer, steps=2))
    trainer.train()
    groups = [group for _, group in Rounds(memory).waiting()]
    failures = sum(len(group.failed) for group in groups)
    print(f"{len(groups)} groups with {failures} failures wait: diagevo diagnose --run mine --local")
