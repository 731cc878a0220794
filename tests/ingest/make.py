"""Makes the rollout files in `data/` again, with the trainers' own writers: `make rollouts`.

`trl` trains the shipped model for six steps with TRL's GRPOTrainer and `log_completions`. `verl` hands the
same rollouts to the writers of verl's two trainers. Their modules want ray and a GPU stack when they are
imported, so the writers' code is taken out of the installed files and run as it stands.
"""

import ast
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy
import polars

DATA = Path(__file__).parent / "data"
QUESTIONS = DATA / "questions.json"
STEPS, PROMPTS, GROUP = 6, 8, 4


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float | None]:
    """1 where the boxed answer is the expected one."""
    from diagevo.answers.extraction import extract_boxed

    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [float(extract_boxed(text) == right) for text, right in zip(texts, answer, strict=True)]


def questions() -> list[dict[str, Any]]:
    """Held-out questions of the arithmetic world, spread over its families."""
    from diagevo.arithmetic import held_out

    chosen = held_out()[:: len(held_out()) // PROMPTS][:PROMPTS]
    return [{"prompt": [{"role": "user", "content": q}], "answer": answer} for q, answer in chosen]


def trl(folder: Path) -> None:
    from datasets import Dataset
    from transformers import set_seed
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from diagevo.arithmetic import WEIGHTS

    set_seed(0)
    args = GRPOConfig(
        output_dir=str(folder),
        max_steps=STEPS,
        num_generations=GROUP,
        per_device_train_batch_size=PROMPTS // 2 * GROUP,
        max_completion_length=64,
        learning_rate=1e-5,
        logging_steps=1,
        log_completions=True,
        num_completions_to_print=0,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        str(WEIGHTS), reward_funcs=correct, args=args, train_dataset=Dataset.from_list(questions())
    )
    trainer.train()


def writer(file: Path) -> Any:
    """verl's `_write_generations` from one of its files."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    [function] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "_write_generations"
    ]
    function.decorator_list = []
    names: dict[str, Any] = {"json": json, "os": os, "np": numpy}
    exec(compile(ast.Module([function], []), str(file), "exec"), names)
    return names["_write_generations"]


def verl(installed: Path, rollouts: Path, folder: Path) -> None:
    """The older trainer's files have no uid, the newer one's the name of each output."""
    from transformers import AutoTokenizer

    from diagevo.arithmetic import WEIGHTS

    trainers = installed / "verl" / "trainer" / "ppo"
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    older, newer = writer(trainers / "ray_trainer.py"), writer(trainers / "v1" / "trainer_base.py")
    answers = {q["prompt"][0]["content"]: q["answer"] for q in json.loads(QUESTIONS.read_text("utf-8"))}
    for file in sorted(rollouts.glob("*.parquet")):
        frame = polars.read_parquet(file)
        step = int(file.stem.rpartition("_")[2])
        prompts = [prompt[0]["content"] for prompt in frame["prompt"]]
        ids = [
            tokenizer.apply_chat_template(p, add_generation_prompt=True)["input_ids"] for p in frame["prompt"]
        ]
        inputs = tokenizer.batch_decode(ids, skip_special_tokens=True)  # as verl logs them
        outputs = [completion[0]["content"] for completion in frame["completion"]]
        truths, scores = [answers[prompt] for prompt in prompts], frame["correct"].to_list()
        uids = [f"{prompts.index(prompt)}_{place}_0" for place, prompt in enumerate(prompts)]
        older(inputs, outputs, truths, scores, {"acc": [s > 0 for s in scores]}, folder / "rollouts", step)
        newer(inputs, outputs, truths, scores, {"uid": uids}, folder / "with_uid", step)


def main(trainer: str, installed: str = "") -> None:
    if trainer == "verl":
        verl(Path(installed), DATA / "trl", DATA / "verl")
        return
    QUESTIONS.write_text(json.dumps(questions(), indent=1) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as work:
        trl(Path(work))
        shutil.rmtree(DATA / "trl", ignore_errors=True)
        shutil.copytree(Path(work) / "completions", DATA / "trl")


if __name__ == "__main__":
    main(*sys.argv[1:])
