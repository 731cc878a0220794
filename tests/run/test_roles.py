"""What the roles refuse before anything is asked or trained."""

from pathlib import Path

from diagevo.roles import Roles
from diagevo.sampling.model_folder import encode_prompts, load_tokenizer
from diagevo.selfplay.equivalence import AnswerChecker
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
