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
from diagevo.diagnosis.embedder import HashingEmbedder, identity
from diagevo.integrations.trl import RoundCallback, capture, prompts

QUESTIONS = [question for question, _ in held_out()]


def render(draw):
    """A question for a draw. A bank of your own: those of the cause's node; here they come in turn."""
    return {"prompt": [{"role": "user", "content": QUESTIONS[draw.index * 37 % len(QUESTIONS)]}]}


def correct(prompts, completions, **_):
    """1 where the boxed answer is right, else 0."""
    asked, said = ([message[0]["content"] for message in part] for part in (prompts, completions))
    return [
        float(extract_boxed(text) == answer(question)) for question, text in zip(asked, said, strict=True)
    ]


def main(folder: str, steps: int = 4) -> None:
    embedder = HashingEmbedder(256)
    with PartialState(cpu=True).main_process_first():  # the first process makes the database
        memory = diagevo.open(f"sqlite:///{folder}/diagevo.db", run="trl", embedder=identity(embedder))
    reward = capture(correct)
    trainer = GRPOTrainer(
        str(WEIGHTS),
        reward_funcs=reward,
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
        train_dataset=prompts(memory, render),
        callbacks=[RoundCallback(memory, reward, RuleDiagnostician(), embedder, steps=2)],
    )
    trainer.train()
    memory.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
