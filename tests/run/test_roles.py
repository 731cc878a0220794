"""Who plays: what is validated on, and which questions may be asked."""

from pathlib import Path

import pytest

from diagevo.errors import NotFoundError
from diagevo.roles import Roles
from diagevo.sampling.model_folder import encode_prompts, load_tokenizer
from diagevo.selfplay.equivalence import AnswerChecker
from tests.evaluation.published import write_folder
from tests.run.small import small_config

QUESTION = "start at 7 and make 2 jumps of 5"
WRITTEN = f"<question>{QUESTION}</question>"


def test_a_question_whose_prompt_is_longer_than_the_limit_is_invalid(tmp_path: Path) -> None:
    roles = Roles(small_config(), tmp_path)
    [ids] = encode_prompts(load_tokenizer(roles.solver), [roles.templates.solver(QUESTION)])
    with AnswerChecker() as checker:
        for limit, read in ((len(ids), QUESTION), (len(ids) - 1, None)):
            config = small_config(sampling={"max_prompt_tokens": limit})
            assert Roles(config, tmp_path).kit(checker).read_question(WRITTEN) == read


def test_a_run_is_validated_on_a_benchmark_that_its_configuration_names(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "files", "jsonl")
    named = {"questions": "benchmark:validation", "data": str(folder), "limit": None}
    found = Roles(small_config(validation=named), tmp_path).validation
    assert found is not None
    # Level 5 of MATH train is not validated on; the rest is one question of MATH and two of MMLU.
    assert [(q.kind, q.reference) for q in found.questions] == [
        ("answer", "4"),
        ("choice", "B"),
        ("choice", "A"),
    ]
    assert "(B) 5" in found.questions[1].text


def test_a_validation_benchmark_that_does_not_exist_is_refused_with_the_names(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no benchmark 'math600'"):
        Roles(small_config(validation={"questions": "benchmark:math600"}), tmp_path)


def test_a_limit_of_the_held_out_set_is_the_same_questions_each_time(tmp_path: Path) -> None:
    config = small_config(validation={"limit": 5})
    first, again = (Roles(config, tmp_path).validation for _ in range(2))
    assert first is not None
    assert again is not None
    assert len(first.questions) == 5
    assert first.digest == again.digest
