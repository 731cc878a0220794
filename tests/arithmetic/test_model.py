"""The shipped folder: its size, its tokenizer, and that training stack and round can read it."""

import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from itertools import islice

import pytest

from diagevo.arithmetic import METHOD_WEIGHTS, PROMPTS, WEIGHTS, answer, held_out
from diagevo.arithmetic.corpus import documents, labelled_items, worked_lines
from diagevo.arithmetic.sentence_tasks import SentenceTasks, of_sentence
from diagevo.arithmetic.worked_answers import WorkedAnswers
from diagevo.arithmetic.worked_questions import WorkedQuestions
from diagevo.methods.answered_questions import AnsweredQuestion
from diagevo.methods.tasks import ProgramTask
from diagevo.sampling.model_folder import encode_prompts, load_tokenizer
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.selfplay.questions import PromptTemplates, parse_question
from studies.pretrain import method_documents
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


def test_no_document_of_a_method_holds_an_unknown_piece_or_is_longer_than_a_response(tokenizer) -> None:
    unknown = tokenizer.convert_tokens_to_ids(UNKNOWN)
    for prompt, reply in islice(method_documents(3, 1.0), 2000):
        [ids] = tokenizer([f"{reply}<|end|>"], add_special_tokens=False)["input_ids"]
        [asked] = encode_prompts(tokenizer, [prompt])
        assert unknown not in [*asked, *ids], (prompt, reply)
        assert len(asked) <= 128
        assert len(ids) <= 96


def test_the_weights_of_the_methods_write_in_every_form(tokenizer) -> None:
    """Of 24 prompts each; each form had at least 0.95 usable of 96 or more when they were made."""
    assert (
        sha256((METHOD_WEIGHTS / "model.safetensors").read_bytes()).hexdigest().startswith("ff45f8131bb8214d")
    )
    assert (METHOD_WEIGHTS / "tokenizer.json").read_bytes() == (WEIGHTS / "tokenizer.json").read_bytes()
    shown, tasks = worked_lines()[:24], SentenceTasks()
    seen = [of_sentence("induction", question) for question, _ in labelled_items()[:24]]
    prompts = [
        *(WorkedAnswers().asks(document, "integer") for document in shown),
        *(WorkedQuestions().asks(document, 1 + n % 3, "integer") for n, document in enumerate(shown)),
        *(tasks.asks("induction", [task]) for task in seen),
    ]
    with closing(TransformersSampler(METHOD_WEIGHTS, threads=1)) as sampler:
        found = sampler.sample(prompts, n=1, params=SamplingParams(1.0, 0.99, 96), seed=3)
    wrote = [completion.text for [completion] in found]
    answered = [WorkedAnswers().read(text, "integer") for text in wrote[:24]]
    assert sum(isinstance(each, AnsweredQuestion) for each in answered) >= 21
    questions = [parse_question(text) or "" for text in wrote[24:48]]
    assert sum(answer(question) is not None for question in questions) >= 21
    induced = [tasks.read("induction", text, [task]) for text, task in zip(wrote[48:], seen, strict=True)]
    assert sum(isinstance(each, ProgramTask) for each in induced) >= 20


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
