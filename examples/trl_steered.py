"""TRL's GRPOTrainer with a memory of causes, in a file: the shipped model on the CPU.

Run it: python examples/trl_steered.py FOLDER [STEPS]. Then: diagevo memory show --db FOLDER/diagevo.db
With torchrun --nproc_per_node 2 the same file runs on two processes.
"""

import sys

from accelerate import PartialState
from trl import GRPOConfig, GRPOTrainer

import diagevo
from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import WEIGHTS, RuleDiagnostician, answer, held_out
from diagevo.integrations.trl import RoundCallback, prompts

ROWS = [{"prompt": [{"role": "user", "content": question}]} for question, _ in held_out()[::23]]


def correct(prompts, completions, **_):
    """1 where the boxed answer is right, else 0."""
    asked, said = ([message[0]["content"] for message in part] for part in (prompts, completions))
    return [
        float(extract_boxed(text) == answer(question)) for question, text in zip(asked, said, strict=True)
    ]


def main(folder: str, steps: int = 4) -> None:
    with PartialState(cpu=True).main_process_first():  # the first process makes the database
        memory = diagevo.open(f"sqlite:///{folder}/diagevo.db", run="trl")
    trainer = GRPOTrainer(
        str(WEIGHTS),
        reward_funcs=correct,
        args=GRPOConfig(
            output_dir=f"{folder}/trl",
            max_steps=steps,
            per_device_train_batch_size=16,
            num_generations=4,
            max_completion_length=48,
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=prompts(memory, ROWS),
    )
    trainer.add_callback(RoundCallback(memory, trainer, diagnostician=RuleDiagnostician(), steps=2))
    trainer.train()
    memory.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
