"""The shipped folder: its size, its tokenizer, and that training stack and round can read it."""

import subprocess
import sys
from itertools import islice

import pytest

from diagevo.arithmetic import PROMPTS, WEIGHTS, held_out
from diagevo.arithmetic.corpus import documents
from diagevo.sampling.model_folder import encode_prompts, load_tokenizer
from diagevo.selfplay.questions import PromptTemplates, parse_question
from studies.small_model import UNKNOWN, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(WEIGHTS)


def test_the_shipped_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 3_000_000


def test_the_shipped_tokenizer_is_the_one_that_the_texts_make(tokenizer) -> None:
    assert tokenizer.get_vocab() == build_tokenizer().get_vocab()


def test_only_chat_marks_are_special(tokenizer) -> None:
    assert set(tokenizer.all_special_tokens) == {"<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"}


@pytest.mark.parametrize(
    "text",
    [
        "7*6=42;4*6=24;42+24=66;\\boxed{66}",
        "r47=74;74+15=89;\\boxed{89}",
        "3-8=-5;-5+2=-3;\\boxed{-3}",
        "<question> it is 3 degrees , falls by 8 and rises by 2 , how warm is it </question>",
        "<question> first solve (x-7)/4=5 ; second double 9 , add 4 and double again ; add both </question>",
    ],
)
def test_texts_of_the_world_come_back_whole_where_special_tokens_are_skipped(tokenizer, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_no_document_of_the_corpus_holds_an_unknown_piece(tokenizer) -> None:
    unknown = tokenizer.convert_tokens_to_ids(UNKNOWN)
    docs = list(islice(documents(11, 1.0), 2000))
    assert all(unknown not in ids for ids in encode_prompts(tokenizer, [prompt for prompt, _ in docs]))
    for _, text in docs:
        assert unknown not in tokenizer(text)["input_ids"]
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_any_text_survives_the_tokenizer(tokenizer) -> None:
    text = "Prüfe \U0001f600 die Lösung\n\n\tof $x^2 = 49$!"
    ids = tokenizer(text)["input_ids"]
    assert ids
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    assert UNKNOWN in decoded
    assert "49" in decoded


def test_prompts_and_solutions_are_short(tokenizer) -> None:
    templates = PromptTemplates.load(PROMPTS)
    prompts = encode_prompts(tokenizer, [templates.solver(question) for question, _ in held_out()])
    assert max(map(len, prompts)) <= 40
    texts = [text for _, text in islice(documents(12, 1.0), 2000)]
    assert max(len(tokenizer(text)["input_ids"]) for text in texts if not parse_question(text)) <= 95


def test_the_light_half_of_the_world_loads_no_torch() -> None:
    code = (
        "import sys; from diagevo.arithmetic import RuleDiagnostician, answer, held_out; held_out();"
        "bad = {'torch', 'transformers', 'trl', 'polars', 'lancedb'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
