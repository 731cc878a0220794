"""A training of verl without its engine and its updates: verl's own data set, sampler, loader, chat
template and writer of rollouts, steered as `examples/verl_steered.py` says. Run where verl can be imported:

    python -m tests.integrations.verl_training FOLDER DATASET STEPS EVERY

The engine is made up: of four responses to a prompt, those to even rows begin with a sum that is wrong twice.
After each EVERY steps it waits until other draws are served, as a training takes longer than a diagnosis.
"""

import json
import sys
import time
from pathlib import Path

from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoTokenizer
from verl.trainer.ppo import ray_trainer
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.utils.dataset.rl_dataset import collate_fn

from diagevo.arithmetic import WEIGHTS

ROOT = Path(__file__).parents[2]
GROUP, BATCH = 4, 4


def response(answer: str, sample: int, *, hard: bool) -> tuple[str, float]:
    """Right, or with a first step that does not hold."""
    if hard and sample % 2:
        return f"2+2=5;so \\boxed{{{answer}1}}", 0.0
    return f"2+2=4;so \\boxed{{{answer}}}", 1.0


def main(folder: Path, dataset: str, steps: int, every: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    custom = {
        "path": str(ROOT / "examples/verl_steered.py"),
        "name": "Steered",
        "draws": str(folder / "next.json"),
    }
    data = OmegaConf.create(
        {
            "train_files": dataset,
            "val_files": str(folder / "validation.jsonl"),
            "custom_cls": {"path": str(recipe), "name": "Steered", "draws": str(served)},
            "dataloader_num_workers": 0,
            "shuffle": True,
            "seed": 1,
            "max_prompt_length": 64,
            "cache_dir": str(folder / "cache"),
            "filter_overlong_prompts_workers": 1,
        }
    )
    (folder / "validation.jsonl").write_text(Path(dataset).read_text())
    train, validation = (
        create_rl_dataset(files, data, tokenizer, None) for files in (data.train_files, data.val_files)
    )
    sampler = create_rl_sampler(data, train)
    loader = StatefulDataLoader(
        train, batch_size=BATCH, num_workers=0, drop_last=True, collate_fn=collate_fn, sampler=sampler
    )
    write = ray_trainer.RayPPOTrainer._write_generations
    batches = iter(loader)
    for step in range(1, steps + 1):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        inputs, outputs, truths, scores = [], [], [], []
        for place, messages in enumerate(batch["raw_prompt"]):
            ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True)["input_ids"]
            row = int(batch["diagevo_row"][place])
            for sample in range(GROUP):
                text, score = response(
                    messages[0]["content"], batch["answer"][place], sample, hard=row % 2 == 0
                )
                inputs.append(tokenizer.decode(ids, skip_special_tokens=True))
                outputs.append(text)
                truths.append(batch["answer"][place])
                scores.append(score)
        drawn = {"round": train.draws.round, "rows": [int(row) for row in batch["diagevo_row"]]}
        with (folder / "drawn.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **drawn}) + "\n")
        write(inputs, outputs, truths, scores, {}, str(folder / "rollouts"), step)
        if step > 1 and step % every == 1:  # a step is read once a later one has begun
            while json.loads(served.read_text())["round"] == train.draws.round:
                time.sleep(0.1)
    assert [row["diagevo_row"] for row in map(validation.__getitem__, range(len(validation)))] == sorted(
        train.places
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
