"""A training of verl without its engine and its updates: verl's own data set, sampler, loader and writer of
rollouts, steered as `examples/verl_steered.py` says. Run where verl can be imported:

    python -m tests.integrations.verl_training FOLDER DATASET STEPS EVERY

The engine is made up: to rows with an even number, two of four responses begin with a sum that is wrong.
After each EVERY steps it waits until other draws are served, as a training takes longer than a diagnosis.
"""

# verl is installed for this program alone.
# pyright: reportMissingImports=false

import json
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoTokenizer
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.utils.dataset.rl_dataset import collate_fn

from diagevo.arithmetic import WEIGHTS

RECIPE = Path(__file__).parents[2] / "examples" / "verl_steered.py"
GROUP = BATCH = 4


def response(answer: str, sample: int, *, hard: bool) -> tuple[str, float]:
    if hard and sample % 2:
        return f"2+2=5;so \\boxed{{{answer}1}}", 0.0
    return f"2+2=4;so \\boxed{{{answer}}}", 1.0


def main(folder: Path, dataset: str, steps: int, every: int) -> None:
    served, asked_again = folder / "next.json", folder / "validation.jsonl"
    rows = json.loads(Path(dataset).read_text(encoding="utf-8"))
    asked_again.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    settings: dict[str, Any] = {
        "train_files": dataset,
        "val_files": str(asked_again),
        "custom_cls": {"path": str(RECIPE), "name": "Steered", "draws": str(served)},
        "dataloader_num_workers": 0,
        "shuffle": True,
        "seed": 1,
        "max_prompt_length": 64,
        "cache_dir": str(folder / "cache"),
        "filter_overlong_prompts_workers": 1,
    }
    data = OmegaConf.create(settings)
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    train, validation = (
        create_rl_dataset(files, data, tokenizer, None) for files in (data.train_files, data.val_files)
    )
    sampler = create_rl_sampler(data, train)
    loader = StatefulDataLoader(
        train, batch_size=BATCH, num_workers=0, drop_last=True, collate_fn=collate_fn, sampler=sampler
    )
    batches = (batch for _ in range(steps) for batch in loader)  # epochs, of which it takes what it needs
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        inputs: list[str] = []
        outputs: list[tuple[str, float]] = []
        truths: list[str] = []
        for messages, answer, row in zip(
            batch["raw_prompt"], batch["answer"], batch["diagevo_row"], strict=True
        ):
            ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True)["input_ids"]
            inputs += [tokenizer.decode(ids, skip_special_tokens=True)] * GROUP
            truths += [answer] * GROUP
            outputs += [response(answer, sample, hard=row % 2 == 0) for sample in range(GROUP)]
        drawn = {"step": step, "round": train.draws.round, "rows": [int(row) for row in batch["diagevo_row"]]}
        with (folder / "drawn.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(drawn)}\n")
        texts, scores = zip(*outputs, strict=True)
        RayPPOTrainer._write_generations(inputs, texts, truths, scores, {}, str(folder / "rollouts"), step)
        if step > 1 and step % every == 1:  # a step is read once a later one has begun
            while json.loads(served.read_text(encoding="utf-8"))["round"] == train.draws.round:
                time.sleep(0.1)
    assert [validation[place]["diagevo_row"] for place in range(len(validation))] == sorted(train.places)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
