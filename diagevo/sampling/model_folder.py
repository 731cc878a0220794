"""Hugging Face model folders: is it one, its tokenizer, and the template of models that have none.

Sampling and training both read prompts through `encode_prompts`, so a prompt has one tokenization.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diagevo.errors import MissingDependencyError
from diagevo.sampling.sampler import Prompt

# For models without a chat template (base models). The system message stands alone, turns are named, and the
# prompt ends with "Assistant:". An answer that was given ends with the end mark.
PLAIN_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' -%}{{ message['content'] + '\n\n' }}"
    "{%- elif message['role'] == 'user' -%}{{ 'User: ' + message['content'] + '\n\n' }}"
    "{%- else -%}{{ 'Assistant: ' + message['content'] + (eos_token or '') + '\n\n' }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}"
)

_CONVERT = (
    'python -c "from transformers import AutoModelForCausalLM as M;'
    " M.from_pretrained('FOLDER').save_pretrained('NEW')\""
)


def check_model_folder(folder: Path) -> Path:
    """Return `folder` where it holds a model in safetensors; MissingDependencyError otherwise."""
    hint = "Name a folder written by save_pretrained (config.json, weights and tokenizer files)."
    if not folder.is_dir():
        raise MissingDependencyError(f"{folder} is not a model folder: there is no such folder.", hint=hint)
    try:
        json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingDependencyError(
            f"{folder} is not a model folder: it has no config.json.", hint=hint
        ) from None
    except (OSError, ValueError) as error:
        message = f"{folder} is not a model folder: config.json cannot be read ({error})."
        raise MissingDependencyError(message, hint=hint) from error
    if any(folder.glob("*.safetensors")):
        return folder
    if pickled := sorted(file.name for file in folder.glob("*.bin")):
        raise MissingDependencyError(
            f"{folder} holds its weights as a pickle ({pickled[0]}), which can run code when it is read.",
            hint=f"If you trust it, convert it, and copy its tokenizer: {_CONVERT}",
        )
    raise MissingDependencyError(f"{folder} is not a model folder: it holds no weights.", hint=hint)


def load_tokenizer(folder: Path) -> Any:
    """The folder's PreTrainedTokenizerBase, padding on the left, with the plain template if it has none."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    check_model_folder(folder)
    logging.disable_progress_bar()  # Loading is shown by diagevo's own display, or not at all.
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), padding_side="left", truncation_side="left")
    except Exception as error:  # a damaged folder raises whatever its parser does
        raise MissingDependencyError(
            f"{folder} has no tokenizer that transformers can load ({error}).",
            hint="Save the tokenizer beside the weights: tokenizer.save_pretrained(folder).",
        ) from error
    if tokenizer.eos_token_id is None:
        raise MissingDependencyError(
            f"The tokenizer of {folder} names no end mark (eos_token), so no response could end by itself.",
            hint="Set eos_token in tokenizer_config.json.",
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN_TEMPLATE
    return tokenizer


def encode_prompts(tokenizer: Any, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of each prompt, ready for the model to continue."""
    if not prompts:
        return []
    encoded = tokenizer.apply_chat_template(
        conversation=list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return encoded["input_ids"]


def end_ids(tokenizer: Any, generation_eos: int | Sequence[int] | None) -> tuple[int, ...]:
    """Every id that ends a response: the generation config's and the tokenizer's."""
    declared = [generation_eos] if isinstance(generation_eos, int) else list(generation_eos or ())
    return tuple(dict.fromkeys([tokenizer.eos_token_id, *declared]))
