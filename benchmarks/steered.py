"""What a memory changes for TRL's trainer on the shipped model and a fixed data set: steered by it, and not.

    python -m benchmarks.steered FOLDER [SEEDS]

Both arms train the same steps on the same rows, none of them held out, and keep a memory. The steered one
draws rows by the schedule of the memory; the other draws every row alike (ε = 1). Seeds are paired, and the
interval is Student's over the pairs. What a few short runs of a laboratory show, and no more.
"""

import sys
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import diagevo
from diagevo.arithmetic import WEIGHTS, RuleDiagnostician, held_out
from diagevo.arithmetic.grammar import FAMILIES, word
from diagevo.arithmetic.heldout import draw_seen
from diagevo.config.loading import resolve
from diagevo.evaluation.ablation import compare
from diagevo.memory.events import RoundCommitted
from diagevo.memory.history import expect
from examples.trl_steered import correct

STEPS, ROUND, PROMPTS, GROUP = 60, 6, 8, 4
ROWS_A_FAMILY = 12
SAMPLES = 4
ASKED = held_out()
ARMS = {"steered": "frequency", "not steered": "free"}
"""The policy of the schedule."""


def rows() -> list[dict[str, Any]]:
    """The data set: as many questions of each family, shuffled."""
    rng = Random(0)
    texts = [word(draw_seen(rng, family)) for family in FAMILIES for _ in range(ROWS_A_FAMILY)]
    rng.shuffle(texts)
    return [{"prompt": [{"role": "user", "content": text}]} for text in texts]


def accuracy(model: Any, tokenizer: Any) -> float:
    """The share of right answers to held-out questions, sampled as in training: greedily the model is right
    almost always from the start."""
    from transformers import set_seed

    set_seed(0)
    model.eval()
    asked = [[{"role": "user", "content": question}] for question, _ in ASKED for _ in range(SAMPLES)]
    batch = tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_tensors="pt", return_dict=True, padding=True
    )
    out = model.generate(**batch, max_new_tokens=48, do_sample=True, temperature=1.0, top_p=1.0, top_k=0)
    texts = tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    said = [[{"content": text}] for text in texts]
    return mean(correct(asked, said))


def train(folder: Path, seed: int, arm: str) -> tuple[float, list[int]]:
    """Mean accuracy after the training, and F by round."""
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from diagevo.integrations.trl import RoundCallback, prompts

    rewarded: Any = correct
    run = f"{arm.replace(' ', '-')}-{seed}"
    config = resolve(settings=(f"schedule.policy={ARMS[arm]}", f"seed={seed}")).config
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS, padding_side="left")
    with diagevo.open(f"sqlite:///{folder}/diagevo.db", run=run, config=config) as memory:
        trainer = GRPOTrainer(
            str(WEIGHTS),
            reward_funcs=rewarded,
            args=GRPOConfig(
                output_dir=str(folder / run),
                max_steps=STEPS,
                seed=seed,
                per_device_train_batch_size=PROMPTS * GROUP,
                num_generations=GROUP,
                max_completion_length=48,
                learning_rate=4e-4,
                shuffle_dataset=False,
                report_to="none",
                save_strategy="no",
                logging_strategy="no",
                gradient_checkpointing=False,
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
            ),
            train_dataset=prompts(memory, rows()),
            processing_class=tokenizer,
        )
        trainer.add_callback(RoundCallback(memory, trainer, diagnostician=RuleDiagnostician(), steps=ROUND))
        trainer.train()
        after = accuracy(trainer.model, tokenizer)
        commits = memory.log.read(run, types=["RoundCommitted"])
        return after, [expect(recorded, RoundCommitted).failures for recorded in commits]


def main(folder: str, seeds: str = "5") -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS, padding_side="left")
    print(f"before: {accuracy(AutoModelForCausalLM.from_pretrained(WEIGHTS), tokenizer):.3f}", flush=True)
    scores: dict[str, dict[int, float]] = {arm: {} for arm in ARMS}
    for seed in range(int(seeds)):
        for arm, found in scores.items():
            found[seed], failures = train(Path(folder), seed, arm)
            by_round = ", ".join(map(str, failures))
            print(f"seed {seed}, {arm}: {found[seed]:.3f}, F by round {by_round}", flush=True)
    [pair] = compare(scores, "not steered", list(ARMS))
    interval = "" if pair.low is None else f" (95%: {pair.low:+.3f} to {pair.high:+.3f})"
    print(
        f"steered less not steered: {pair.difference:+.3f}{interval}, {pair.seeds} seeds,"
        f" mean@{SAMPLES} of {len(ASKED)} held-out questions"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
