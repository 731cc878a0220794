"""Rollouts of the shipped model in verl's form: what `examples/rollouts` holds.

Run it: python examples/sample_rollouts.py FOLDER. The model answers 24 held-out questions six times in each
of three batches, and its boxed answers are checked against the truth.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import WEIGHTS, held_out

QUESTIONS = held_out()[::23][:24]
BATCHES, EACH = 3, 6


def main(folder: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    model = AutoModelForCausalLM.from_pretrained(WEIGHTS)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for batch in range(1, BATCHES + 1):
        with (Path(folder) / f"{batch}.jsonl").open("w", encoding="utf-8") as file:
            for question, truth in QUESTIONS:
                messages = [{"role": "user", "content": question}]
                asked = tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
                )
                replies = model.generate(
                    **asked, do_sample=True, temperature=1.0, max_new_tokens=64, num_return_sequences=EACH
                )
                for reply in tokenizer.batch_decode(
                    replies[:, asked["input_ids"].shape[1] :], skip_special_tokens=True
                ):
                    score = float(extract_boxed(reply) == truth)
                    row = {"input": question, "output": reply, "gts": truth, "score": score, "step": batch}
                    file.write(f"{json.dumps(row, ensure_ascii=False)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
