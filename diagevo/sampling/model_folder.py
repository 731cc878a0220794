"""Hugging Face model folders: validation, digest, tokenizer, a default template, and the end marks of
replies.

Sampling and training both read prompts through `encode_prompts`, so a prompt has one tokenization.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagevo.errors import MissingDependencyError
from diagevo.progress import StopFlag
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

# Put before a template without a system role: the system text begins the user's first turn.
WITHOUT_SYSTEM = (
    "{%- if messages[0]['role'] == 'system' and messages | length > 1 -%}"
    "{%- set first = messages[0]['content'] + '\n\n' + messages[1]['content'] -%}"
    "{%- set messages = [{'role': messages[1]['role'], 'content': first}] + messages[2:] -%}"
    "{%- endif -%}"
)
NOTHING: Mapping[str, Any] = {}
_ADAPTER = "adapter_config.json"
_BLOCK = 2**20

_CONVERT = (
    'python -c "from transformers import AutoModelForCausalLM as M;'
    " M.from_pretrained('FOLDER').save_pretrained('NEW')\""
)


def check_model_folder(folder: Path) -> Path:
    """Return `folder` if it has a model in safetensors, or an adapter to one; MissingDependencyError
    otherwise."""
    hint = "Name a folder written by save_pretrained (config.json, weights and tokenizer files)."
    if not folder.is_dir():
        raise MissingDependencyError(f"{folder} is not a model folder: there is no such folder.", hint=hint)
    if (base := base_of(folder)) is not None:
        _check_adapter(folder, base)
        return folder
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


def base_of(folder: Path) -> Path | None:
    """For a policy that is an adapter in PEFT's format, the folder of its base weights. None if the folder
    has weights itself.

    Adapters are never merged: in bfloat16 most of what a phase has learned is below the rounding of the
    weights.
    """
    try:
        return folder / _adapter_config(folder)["base_model_name_or_path"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MissingDependencyError(
            f"{folder} is not a model folder: {_ADAPTER} cannot be read ({error}).",
            hint="Put the folder back from a backup.",
        ) from error


def adapter_rank(folder: Path) -> int:
    """The rank of a folder with a base."""
    return _adapter_config(folder)["r"]


def adapter_scaling(folder: Path) -> float:
    """The factor of the product of an adapter's halves."""
    config = _adapter_config(folder)
    return config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])


def _adapter_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))


def _check_adapter(folder: Path, base: Path) -> None:
    if not (folder / "adapter_model.safetensors").is_file():
        raise MissingDependencyError(
            f"{folder} is not a model folder: it holds no weights of its adapter.",
            hint="Put the folder back from a backup.",
        )
    if not base.is_dir():
        raise MissingDependencyError(
            f"{folder} is an adapter to the model in {base}, and there is no such folder.",
            hint="Put the model back, or a link to where it is now.",
        )
    if base_of(base) is not None:
        raise MissingDependencyError(
            f"{folder} is an adapter to {base}, which is an adapter itself.",
            hint="Name the model that both belong to: merge the first into it.",
        )
    check_model_folder(base)


_known: dict[tuple[int, ...], str] = {}
"""Digests by what `stat` says of a file: device, inode, size, and when its content and its name changed."""
_SETTLED = 1.0  # seconds after which another write has a different change time, on any file system


def digest_of(path: Path, stop: StopFlag | None = None) -> str:
    """SHA-256 of a file, in hex. For tens of gigabytes that takes longer than a stop may: `stop` is checked;
    and a file is read only once, until `stat` shows a change."""
    found = path.stat()
    key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if key in _known:
        return _known[key]
    digest, began = hashlib.sha256(), time.time()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            if stop is not None:
                stop.check_overdue()
            digest.update(block)
    if began - max(found.st_mtime, found.st_ctime) > _SETTLED:
        _known[key] = digest.hexdigest()
    return digest.hexdigest()


def sha256_of(path: Path, stop: StopFlag) -> str:
    """SHA-256 of a file; of a folder, over the names and digests of its files in sorted order."""
    if not path.is_dir():
        return digest_of(path, stop)
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()}\0{digest_of(file, stop)}\n".encode())
    return digest.hexdigest()


def load_tokenizer(folder: Path, template_kwargs: Mapping[str, Any] = NOTHING) -> Any:
    """The folder's PreTrainedTokenizerBase, padding on the left, with the plain template if it has none.

    `template_kwargs` become part of the template, so that its users (TRL, vLLM) need no arguments.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging

    check_model_folder(folder)
    folder = base_of(folder) or folder  # training never changes it
    logging.disable_progress_bar()  # Loading is shown by diagevo's own display, or not at all.
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), padding_side="left", truncation_side="left")
    except Exception as error:  # a damaged folder raises whatever its parser raises
        raise MissingDependencyError(
            f"{folder} has no tokenizer that transformers can load ({error}).",
            hint="Save the tokenizer beside the weights: tokenizer.save_pretrained(folder).",
        ) from error
    if tokenizer.eos_token_id is None:
        raise MissingDependencyError(
            f"The tokenizer of {folder} has no end-of-sequence token (eos_token), so no response would end.",
            hint="Set eos_token in tokenizer_config.json.",
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN_TEMPLATE
    if not _has_system(tokenizer):
        tokenizer.chat_template = WITHOUT_SYSTEM + tokenizer.chat_template
    given = "".join(f"{{%- set {name} = {json.dumps(value)} -%}}" for name, value in template_kwargs.items())
    tokenizer.chat_template = given + tokenizer.chat_template
    return tokenizer


def _has_system(tokenizer: Any) -> bool:
    """Whether the chat template renders a system message: some refuse it, others drop it."""
    from jinja2 import TemplateError

    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    try:
        return "Be brief." in tokenizer.apply_chat_template(turns, tokenize=False)
    except TemplateError:
        return False


def encode_prompts(tokenizer: Any, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of each prompt, ready for the model to continue."""
    if not prompts:
        return []
    encoded = tokenizer.apply_chat_template(
        conversation=list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return encoded["input_ids"]


def end_ids(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a response: the tokenizer's end mark, those that the folder's generation config
    declares, and the mark that ends a turn in the chat template. A base model declares only the end of a
    text, and would go on to write the next turns itself."""
    ends = [tokenizer.eos_token_id, *_declared((base_of(folder) or folder) / "generation_config.json")]
    if (turn := _turn_end(tokenizer)) is not None:
        ends.append(turn)
    return tuple(dict.fromkeys(ends))


def _declared(file: Path) -> list[int]:
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        return []
    return [found] if isinstance(found, int) else list(found or ())


def _turn_end(tokenizer: Any) -> int | None:
    """The mark right after an assistant's text; None if the template ends a turn with plain text."""
    reply = "It is 4."
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": reply}]
    after = tokenizer.apply_chat_template(turns, tokenize=False).rpartition(reply)[2].lstrip()
    first = tokenizer(after, add_special_tokens=False)["input_ids"][:1]
    return first[0] if first and first[0] in tokenizer.added_tokens_decoder else None
