"""Makes the rollout files in `data/` again, with the trainers' own writers: `make rollouts`.

    python -m tests.ingest.make trl
    python -m tests.ingest.make verl INSTALLED
    python -m tests.ingest.make nemo-rl CHECKOUT
    python -m tests.ingest.make prime-rl CHECKOUT VERIFIERS
    python -m tests.ingest.make slime CHECKOUT
    python -m tests.ingest.make areal CHECKOUT
    python -m tests.ingest.make skyrl CHECKOUT
    python -m tests.ingest.make lm-eval PROGRAM
    python -m tests.ingest.make inspect PROGRAM
    python -m tests.ingest.make hostile

`trl` trains the shipped model for six steps with TRL's GRPOTrainer and `log_completions`: once plainly, once
with an evaluation every other step, once with `logging_steps=3`. `verl` hands the same rollouts to the
writers of verl's two trainers, and made-up sessions of several outputs to the newer one. Their modules want
ray and a GPU stack when they are imported, so the writers' code is taken out of the installed files and run
as it stands. NeMo-RL (made with commit 7ea279a) and prime-rl (559b447, with verifiers a60a606) are checkouts
of their repositories, as are slime (624b824a8), AReaL (4aef98d8d, with aiofiles) and SkyRL (a95645725);
prime-rl wants an environment with the dependencies of verifiers. lm-eval 0.4.13 and
Inspect 0.3.285 let the shipped model answer the questions four times; PROGRAM is theirs, from an environment
that has transformers too.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import polars

from tests.ingest.writers.taken import Truth, taken

DATA = Path(__file__).parent / "data"
QUESTIONS = DATA / "questions.json"
STEPS, PROMPTS, GROUP = 6, 8, 4


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float | None]:
    """1 where the boxed answer is the expected one."""
    from diagevo.answers.extraction import extract_boxed

    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [float(extract_boxed(text) == right) for text, right in zip(texts, answer, strict=True)]


def questions(start: int = 0) -> list[dict[str, Any]]:
    """Held-out questions of the arithmetic world, spread over its families."""
    from diagevo.arithmetic import held_out

    chosen = held_out()[start :: len(held_out()) // PROMPTS][:PROMPTS]
    return [{"prompt": [{"role": "user", "content": q}], "answer": answer} for q, answer in chosen]


def trl(folder: Path, truth: Truth | None = None, **more: Any) -> None:
    from datasets import Dataset
    from transformers import set_seed
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from diagevo.arithmetic import WEIGHTS

    set_seed(0)
    settings: dict[str, Any] = {
        "max_steps": STEPS,
        "num_generations": GROUP,
        "per_device_train_batch_size": PROMPTS // 2 * GROUP,
        "max_completion_length": 64,
        "learning_rate": 1e-5,
        "logging_steps": 1,
        "log_completions": True,
        "num_completions_to_print": 0,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }
    args = GRPOConfig(output_dir=str(folder), **settings | more)
    asked = questions()

    def kept(completions: list[Any], answer: list[str], prompts: list[Any], **_: Any) -> list[float | None]:
        """`correct`, and what is true of each batch: the step it is played in, or 0 for an evaluation."""
        rewards = correct(completions, answer)
        assert trainer.model is not None
        step = trainer.state.global_step + 1 if trainer.model.training else 0
        call = len(truth.groups) if truth else 0
        for prompt, completion, reward in zip(prompts, completions, rewards, strict=True):
            if truth is not None and reward is not None:
                text = prompt[0]["content"]
                truth.add(f"{step} {call} {text}", step, text, [completion[0]["content"]], reward)
        return rewards

    kept.__name__ = "correct"
    trainer = GRPOTrainer(
        str(WEIGHTS),
        reward_funcs=kept,
        args=args,
        train_dataset=Dataset.from_list(asked),
        eval_dataset=Dataset.from_list(questions(1)[: PROMPTS // 2]) if "eval_strategy" in more else None,
    )
    trainer.train()


def writer(file: Path) -> Any:
    """verl's `_write_generations` from one of its files."""
    return taken(file, "_write_generations", {"json": json, "os": os, "np": numpy})


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


def main(trainer: str, *paths: str) -> None:
    given = [Path(path).absolute() for path in paths]
    match trainer:
        case "verl":
            from tests.ingest.writers import verl_v1

            verl(given[0], DATA / "trl", DATA / "verl")
            verl_v1.main(given[0], fresh("verl_v1"))
        case "nemo-rl":
            from tests.ingest.writers import nemo_rl

            sys.path.insert(0, str(given[0]))
            nemo_rl.main(given[0], fresh("nemo_rl"), "7ea279a")
        case "prime-rl":
            from tests.ingest.writers import prime_rl

            prime_rl.main(given[0], given[1], fresh("prime_rl"), "prime-rl 559b447, verifiers a60a606")
        case "slime":
            from tests.ingest.writers import slime

            sys.path.insert(0, str(given[0]))
            slime.main(fresh("slime"), "624b824a8")
        case "areal":
            from tests.ingest.writers import areal

            areal.main(given[0], fresh("areal"), "4aef98d8d")
        case "skyrl":
            from tests.ingest.writers import skyrl

            skyrl.main(given[0], fresh("skyrl"), "a95645725")
        case "lm-eval":
            evaluated(given[0], fresh("lm_eval"), "samples_*.jsonl", LM_EVAL)
        case "inspect":
            evaluated(given[0], fresh("inspect"), "*.eval", INSPECT)
        case "hostile":
            hostile(fresh("hostile"))
        case _:
            QUESTIONS.write_text(json.dumps(questions(), indent=1) + "\n", encoding="utf-8")
            played("trl")
            played("trl_evaluated", eval_strategy="steps", eval_steps=2)
            played("trl_sparse", logging_steps=3)


LM_EVAL = {
    "held_out.yaml": r"""task: held_out
dataset_path: json
dataset_kwargs: {data_files: {test: questions.json}}
test_split: test
output_type: generate_until
doc_to_text: "{{prompt[0].content}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["<|endoftext|>"], do_sample: true, temperature: 1.0, max_gen_toks: 64}
filter_list:
  - name: boxed
    filter:
      - {function: regex, regex_pattern: "boxed\\{(.*?)\\}"}
      - {function: take_first}
  - name: last
    filter:
      - {function: regex, regex_pattern: "(-?[0-9]+)", group_select: -1}
      - {function: take_first}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
""",
    "run": "--model hf --model_args pretrained=model,dtype=float32 --tasks held_out --include_path ."
    " --device cpu --batch_size 8 --log_samples --output_path out --apply_chat_template --seed {seed}",
    "times": "4",
}
INSPECT = {
    "held_out.py": r"""import json

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


@task
def held_out():
    asked = [(q["prompt"][0]["content"], q["answer"]) for q in json.load(open("questions.json"))]
    right = ["\\boxed{%s}" % answer for _, answer in asked]
    samples = [Sample(id=i, input=asked[i][0], target=right[i]) for i in range(len(asked))]
    return Task(dataset=samples, solver=generate(), scorer=includes(), epochs=4)
""",
    "run": "eval held_out.py --model hf/local -M model_path=model --max-tokens 64 --temperature 1"
    " --seed {seed} --log-dir out --display plain",
    "times": "1",
}


def evaluated(program: Path, folder: Path, logs: str, played: dict[str, str]) -> None:
    """The evaluation of the shipped model, by another's program, from a folder without names of its own."""
    from diagevo.arithmetic import WEIGHTS

    with tempfile.TemporaryDirectory() as work:
        at = Path(work)
        shutil.copytree(WEIGHTS, at / "model")
        shutil.copy(QUESTIONS, at)
        for name, text in played.items():
            if "." in name:
                (at / name).write_text(text, encoding="utf-8")
        for seed in range(1, int(played["times"]) + 1):
            subprocess.run([program, *played["run"].format(seed=seed).split()], cwd=at, check=True)
        for file in at.glob(f"out/**/{logs}"):
            shutil.copy(file, folder)


def hostile(folder: Path) -> None:
    """Small Parquet files of columns as TRL's that mean gigabytes: a text of a MiB, 2,200 times; a GiB."""
    import pyarrow
    from pyarrow import parquet

    once = pyarrow.array([0] * 2200, pyarrow.int32())
    texts = {
        "repeated": pyarrow.DictionaryArray.from_arrays(once, pyarrow.array(["a" * 2**20])),
        "long": pyarrow.array(["a" * 2**30]),
    }
    for name, prompts in texts.items():
        rows = len(prompts)
        columns = {"completion": ["b"] * rows, "correct": [1.0] * rows, "advantage": [0.0] * rows}
        parquet.write_table(
            pyarrow.table({"prompt": prompts} | columns),
            folder / f"{name}.parquet",
            compression="brotli",
            use_dictionary=name == "repeated",
            write_statistics=False,
            store_schema=False,
        )


def fresh(name: str) -> Path:
    shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / name).mkdir()
    return DATA / name


def played(name: str, **more: Any) -> None:
    """A short training, and what is true of it."""
    truth = Truth()
    with tempfile.TemporaryDirectory() as work:
        trl(Path(work), truth, **more)
        folder = fresh(name)
        shutil.copytree(Path(work) / "completions", folder, dirs_exist_ok=True)
    if more:
        truth.write(folder, f"TRL {version('trl')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
