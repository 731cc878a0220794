"""SkyRL: the answers of an evaluation, as it dumps them."""

import json
import logging
import random
from pathlib import Path
from types import SimpleNamespace

from tests.ingest.writers.taken import Truth, taken

PROMPTS, SAMPLES = 5, 4


def main(checkout: Path, folder: Path, made_with: str) -> None:
    rng, truth = random.Random(9), Truth()
    names = {"json": json, "logger": logging.getLogger("skyrl")}
    file = checkout / "skyrl" / "train" / "utils" / "trainer_utils.py"
    taken(file, "sanitize_data_source", names)
    dump = taken(file, "dump_per_dataset_eval_results", names)
    prompts, responses, rewards, extras = [], [], [], []
    for place in range(PROMPTS):
        for sample in range(SAMPLES):
            prompt, said = f"<user>Question {place}\n<assistant>", f"[{place}.{sample}] it is {sample}"
            prompts.append([ord(c) for c in prompt])
            responses.append([ord(c) for c in said])
            rewards.append(float(rng.random() < 0.5))
            extras.append({"reward_spec": {"method": "rule", "ground_truth": str(place)}, "uid": f"u{place}"})
            truth.add(f"u{place}", 1, prompt, [said], rewards[-1], str(place))
    output = {"prompt_token_ids": prompts, "response_ids": responses, "rewards": rewards}
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(map(chr, ids)))
    count = len(prompts)
    dump(folder, tokenizer, output, ["held/out"] * count, ["math"] * count, extras, {"pass_at_4": 0.5})
    truth.write(folder, made_with)
