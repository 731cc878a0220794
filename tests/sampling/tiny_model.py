"""A random Qwen3 of width 32 with one token a character: enough to test the loops, quick to make."""

import string
from pathlib import Path
from typing import Any

CHARACTERS = string.ascii_letters + string.digits + " .,:;?!+-*/=()<>\\{}\n'"
CHAT_TEMPLATE = (
    "{%- for m in messages -%}{{ '<|' + m['role'][0] + '|>' + m['content'] }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|a|>' }}{%- endif -%}"
)


VOCABULARY = {
    token: index
    for index, token in enumerate(["<pad>", "<eos>", "<|s|>", "<|u|>", "<|a|>", "<unk>", *CHARACTERS])
}


def make_tiny_tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(vocab=VOCABULARY, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<|s|>", "<|u|>", "<|a|>"],
        chat_template=CHAT_TEMPLATE,
    )


def make_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    chat_template: bool = True,
    width: int = 32,
    scale: float = 0.3,
    tied: bool = True,
) -> Path:
    """Write the model folder. Larger `scale`: more peaked next-token distributions."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    fast = make_tiny_tokenizer()
    if not chat_template:
        fast.chat_template = None
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=width // 4,
        max_position_embeddings=512,
        initializer_range=scale,
        tie_word_embeddings=tied,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
