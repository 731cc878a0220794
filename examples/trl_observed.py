"""TRL's GRPOTrainer with a data set of your own and a memory of causes beside it, on the CPU.

Run it: python examples/trl_observed.py. Then: diagevo runs show mine --db runs/mine.db
"""

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import diagevo
from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import WEIGHTS, RuleDiagnostician, held_out
from diagevo.diagnosis.embedder import HashingEmbedder, identity
from diagevo.integrations.trl import RoundCallback, capture

rows = [{"prompt": [{"role": "user", "content": text}], "answer": right} for text, right in held_out()[::35]]


def correct(completions, answer, **_):
    texts = [completion[0]["content"] for completion in completions]
    return [float(extract_boxed(text) == right) for text, right in zip(texts, answer, strict=True)]


embedder = HashingEmbedder(256)
memory = diagevo.open("sqlite:///runs/mine.db", run="mine", embedder=identity(embedder))
reward = capture(correct)
trainer = GRPOTrainer(
    str(WEIGHTS),
    reward_funcs=reward,
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
    callbacks=[RoundCallback(memory, reward, RuleDiagnostician(), embedder, steps=2)],
)
trainer.train()
memory.close()
