"""The small model: a Qwen3 of about 0.6 M parameters, and a tokenizer of words, digits and signs.

Numbers are read digit by digit, words whole. Only the chat marks are special tokens: a box or a digit that
were special would vanish where special tokens are skipped. A word that the tokenizer does not know becomes
`<unk>`, so any text can be read. System messages are left out by the chat template: the model was never shown
one.
"""

import re
from typing import TYPE_CHECKING

from diagevo.arithmetic.corpus import PROMPTS
from diagevo.arithmetic.grammar import FAMILIES, word_joined
from diagevo.arithmetic.wordings import CAUSES, LABELS
from diagevo.selfplay.questions import FIELDS, PromptTemplates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"
UNKNOWN = "<unk>"
_PIECES = r"▁?\\boxed\{|▁?</?question>|▁?[a-z]+|▁?[^a-z▁]|▁"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}{{ '<|user|> ' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' -%}{{ '<|assistant|>' + message['content'] + '<|end|>' }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def _vocabulary() -> list[str]:
    """Every piece of every text of the world, digits and signs with and without a space before them."""
    templates = PromptTemplates.load(PROMPTS)
    prompts = [re.sub("|".join(f"<{f}>" for f in FIELDS[n]) or "$^", " ", templates.texts[n]) for n in FIELDS]
    questions = [word_joined(wording, "") for family in FAMILIES.values() for wording in family.wordings]
    wordings = [phrase for phrases in (*CAUSES.values(), *LABELS.values()) for phrase in phrases]
    texts = [" " + " ".join(text.split()) for text in (*prompts, *questions, *wordings)]
    pieces = {piece for text in texts for piece in re.findall(_PIECES, text.replace(" ", "▁"))}
    digits = {space + digit for digit in "0123456789" for space in ("", "▁")}
    signs = {
        "\\boxed{",
        "▁\\boxed{",
        "}",
        "<question>",
        "▁<question>",
        "▁</question>",
        "</question>",
        "▁",
        "r",
        "x",
        *"+-*/=;(){},.:?",
    }
    return [PAD, END, USER, ASSISTANT, UNKNOWN, *sorted(pieces | digits | signs)]


def piece_id(tokenizer: "PreTrainedTokenizerFast", piece: str) -> int:
    """The number of one piece of the vocabulary."""
    return tokenizer.get_vocab()[piece]


def build_tokenizer() -> "PreTrainedTokenizerFast":
    """The tokenizer, made from the world's texts alone."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: number for number, piece in enumerate(_vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Replace(" ", "▁"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def build_model(tokenizer: "PreTrainedTokenizerFast", seed: int) -> "Qwen3ForCausalLM":
    """A fresh model, its weights drawn from the seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=piece_id(tokenizer, END),
        pad_token_id=piece_id(tokenizer, PAD),
    )
    return Qwen3ForCausalLM(config)
