"""What a memory changes for TRL's trainer on the shipped model: steered by it, and not.

    python -m benchmarks.steered FOLDER [SEEDS]

Both arms ask questions of the arithmetic world that are no held-out ones, as many, with the same settings,
and keep a memory. The steered one asks a targeted draw from the family of questions that its cause was found
on; the other asks every draw from any family. What a few short runs of a laboratory show, and no more.
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

import diagevo
from diagevo.arithmetic import WEIGHTS, RuleDiagnostician, held_out
from diagevo.arithmetic.grammar import FAMILIES, parse, word
from diagevo.arithmetic.heldout import draw_seen
from diagevo.diagnosis.embedder import HashingEmbedder, identity
from diagevo.memory.events import CauseCreated
from diagevo.memory.memory import Memory
from diagevo.memory.state.schedule import Draw
from examples.trl_steered import correct

STEPS, ROUND, PROMPTS, GROUP = 18, 6, 8, 4
SAMPLES = 4
ASKED = held_out()[::5]


def families(memory: Memory) -> dict[str, str]:
    """The family of the question that each cause was found on."""
    found: dict[str, str] = {}
    for recorded in memory.log.read(memory.run_id, types=["CauseCreated"]):
        event = recorded.event
        assert isinstance(event, CauseCreated)
        question = memory.question(event.failure_id.rpartition(".")[0]).question
        parts = parse(memory.artifacts.get_many([question])[question])
        assert parts is not None
        found[event.cause_id] = parts[0].family
    return found


def rendering(memory: Memory, rng: Random, *, steered: bool) -> Callable[[Draw], dict[str, Any]]:
    def render(draw: Draw) -> dict[str, Any]:
        family = families(memory)[draw.cause_id] if steered and draw.cause_id else rng.choice(list(FAMILIES))
        return {"prompt": [{"role": "user", "content": word(draw_seen(rng, family))}]}

    return render


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


def train(folder: Path, seed: int, *, steered: bool) -> tuple[float, float, list[int]]:
    """Mean accuracy before and after, and F by round."""
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from diagevo.integrations.trl import RoundCallback, capture, prompts

    embedder = HashingEmbedder(256)
    run = f"{'steered' if steered else 'not'}-{seed}"
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS, padding_side="left")
    with diagevo.open(f"sqlite:///{folder}/diagevo.db", run=run, embedder=identity(embedder)) as memory:
        reward = capture(correct)
        trainer = GRPOTrainer(
            str(WEIGHTS),
            reward_funcs=reward,
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
            train_dataset=prompts(memory, rendering(memory, Random(seed), steered=steered)),
            processing_class=tokenizer,
            callbacks=[RoundCallback(memory, reward, RuleDiagnostician(), embedder, steps=ROUND)],
        )
        before = accuracy(trainer.model, tokenizer)
        trainer.train()
        after = accuracy(trainer.model, tokenizer)
        commits = memory.log.read(run, types=["RoundCommitted"])
        return before, after, [getattr(recorded.event, "failures") for recorded in commits]  # noqa: B009


def main(folder: str, seeds: str = "3") -> None:
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for seed in range(int(seeds)):
        for arm, steered in (("steered", True), ("not steered", False)):
            before, after, failures = train(Path(folder), seed, steered=steered)
            gains[arm].append(after - before)
            by_round = ", ".join(map(str, failures))
            print(f"seed {seed}, {arm}: {before:.3f} → {after:.3f}, F by round {by_round}", flush=True)
    for arm, values in gains.items():
        spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
        print(f"{arm}: {mean(values):+.3f}{spread} over {len(values)} seeds, mean@{SAMPLES} of {len(ASKED)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
