import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.errors import ConfigError
from diagevo.memory.state.projected_schedule import Draw
from diagevo.selfplay.questions import FIELDS, PromptTemplates, parse_question

FREE = Draw(0, "free")
TARGETED = Draw(1, "targeted", "c1", "drops the carry", "adds numbers")
STITCHED = Draw(2, "stitched", "c1", "drops the carry", "adds numbers", "c2", "loses a minus sign")


@pytest.mark.parametrize(
    ("completion", "question"),
    [
        ("<question>What is 1+1?</question>", "What is 1+1?"),
        ("notes <question>\n two\n lines \n</question> more", "two\n lines"),
        ("<question>first</question><question>second</question>", "second"),
        ("<question>same</question><question>same</question>", "same"),
        ("<question>kept</question><question>  \n </question>", "kept"),
        ("<question></question>", None),
        ("<question>   </question>", None),
        ("<question>never closed", None),
        ("never opened</question>", None),
        ("<question>outer <question>inner</question> rest</question>", "inner"),
        ("<question>lost <question>kept</question>", "kept"),
        ("<question>a</question></question>", "a"),
        ("<question>kept</question><question>cut off", "kept"),
        ("</question><question>", None),
        ("<Question>other tag</Question>", None),
        ("<question>x < 3 and y > 2</question>", "x < 3 and y > 2"),
        ("", None),
        ("What is 1+1?", None),
    ],
)
def test_the_last_closed_non_empty_block_is_the_question(completion, question):
    assert parse_question(completion) == question


def test_an_enormous_completion_is_read():
    assert parse_question("<question>" * 200_000) is None
    assert parse_question("</question>" * 200_000) is None
    body = "word " * 400_000
    assert parse_question(f"<question>{body}</question>") == body.strip()


@given(st.lists(st.sampled_from(["<question>", "</question>", " ", "a", "b"]), max_size=30))
def test_a_parsed_question_never_holds_a_tag_and_always_stands_in_the_text(parts):
    text = "".join(parts)
    question = parse_question(text)
    if question is not None:
        assert question == question.strip() != ""
        assert "<question>" not in question
        assert "</question>" not in question
        assert question in text


def content(prompt):
    return [(message["role"], message["content"]) for message in prompt]


def test_the_system_message_is_the_same_in_all_three_modes():
    templates = PromptTemplates.load()
    systems = {content(templates.challenger(draw))[0] for draw in (FREE, TARGETED, STITCHED)}
    assert len(systems) == 1
    role, text = systems.pop()
    assert role == "system"
    assert "<question>" in text
    assert "</question>" in text


def test_a_free_prompt_shows_nothing_of_the_memory():
    user = content(PromptTemplates.load().challenger(FREE))[-1][1]
    assert "<" not in user


def test_a_targeted_prompt_names_the_node_and_the_cause():
    user = content(PromptTemplates.load().challenger(TARGETED))[-1][1]
    assert "adds numbers" in user
    assert "drops the carry" in user
    assert "<" not in user


def test_a_stitched_prompt_names_both_causes():
    user = content(PromptTemplates.load().challenger(STITCHED))[-1][1]
    assert user.index("adds numbers") < user.index("drops the carry") < user.index("loses a minus sign")
    assert "<" not in user


PAIR = Draw(
    2, "stitched", "c1", "drops the carry", "adds numbers", "c2", "loses a minus sign", "subtracts numbers"
)


def test_a_random_pair_is_not_said_to_come_from_one_area():
    alike = PromptTemplates.load()
    random = PromptTemplates.load(random_pairs=True)
    said = content(random.challenger(PAIR))[-1][1]
    for text in ("drops the carry", "adds numbers", "loses a minus sign", "subtracts numbers"):
        assert said.count(text) == 1
    assert "same" not in said
    assert "<" not in said
    assert "same area of knowledge" in content(alike.challenger(PAIR))[-1][1]
    assert {name for name in FIELDS if random.digest(name) != alike.digest(name)} == {"challenger_stitched"}
    assert random.texts.keys() == alike.texts.keys()


def test_a_folders_own_words_for_a_pair_are_used_for_a_random_one_too(tmp_path):
    (tmp_path / "challenger_stitched.txt").write_text("<skill_node>: <active_cause>, <mastered_cause>")
    own = content(PromptTemplates.load(tmp_path, random_pairs=True).challenger(PAIR))[-1][1]
    assert own == "adds numbers: drops the carry, loses a minus sign"
    both = "<skill_node>: <active_cause>; <mastered_node>: <mastered_cause>"
    (tmp_path / "challenger_stitched_random.txt").write_text(both)
    own = content(PromptTemplates.load(tmp_path, random_pairs=True).challenger(PAIR))[-1][1]
    assert own == "adds numbers: drops the carry; subtracts numbers: loses a minus sign"
    assert (
        PromptTemplates.load(tmp_path)
        .texts["challenger_stitched"]
        .startswith("<skill_node>: <active_cause>,")
    )
    (tmp_path / "challenger_stitched_random.txt").write_text(both.replace("<mastered_node>", "that"))
    with pytest.raises(ConfigError, match=r"challenger_stitched_random.txt has no <mastered_node>"):
        PromptTemplates.load(tmp_path, random_pairs=True)


def test_the_solver_is_asked_for_a_box_and_sees_only_the_question():
    prompt = content(PromptTemplates.load().solver("What is 1+1?"))
    assert [role for role, _ in prompt] == ["system", "user"]
    assert "\\boxed{}" in prompt[0][1]
    assert prompt[1][1] == "What is 1+1?"


def test_text_that_looks_like_a_field_is_never_expanded_again():
    sly = Draw(0, "stitched", "c1", "<mastered_cause> {0} \\1", "<active_cause>", "c2", "<skill_node>")
    user = content(PromptTemplates.load().challenger(sly))[-1][1]
    assert user.count("<mastered_cause> {0} \\1") == 1
    assert user.count("<active_cause>") == 1
    assert user.count("<skill_node>") == 1
    assert PromptTemplates.load().solver("<question>")[-1]["content"] == "<question>"


def test_a_draw_without_its_cause_is_refused():
    with pytest.raises(ValueError, match="draw 7 is targeted but gives no skill_node"):
        PromptTemplates.load().challenger(Draw(7, "targeted", "c1", "a cause"))


def test_a_folder_replaces_some_templates_and_an_empty_system_file_means_no_message(tmp_path):
    (tmp_path / "solver_system.txt").write_text("\n")
    (tmp_path / "solver_user.txt").write_text("Q: <question>\nA:\n")
    (tmp_path / "unrelated.txt").write_text("left alone")
    templates = PromptTemplates.load(tmp_path)
    assert templates.solver("1+1") == [{"role": "user", "content": "Q: 1+1\nA:"}]
    assert templates.challenger(FREE) == PromptTemplates.load().challenger(FREE)


def test_a_template_without_its_field_is_refused_by_name(tmp_path):
    (tmp_path / "challenger_targeted.txt").write_text("Ask about <error_cause>.")
    with pytest.raises(ConfigError, match=r"challenger_targeted.txt has no <skill_node>"):
        PromptTemplates.load(tmp_path)


def test_a_missing_folder_and_a_binary_file_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        PromptTemplates.load(tmp_path / "nowhere")
    (tmp_path / "solver_system.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        PromptTemplates.load(tmp_path)


def test_a_digest_is_the_hash_of_the_template_as_it_is_used(tmp_path):
    (tmp_path / "solver_system.txt").write_text("Think.\n")
    assert PromptTemplates.load(tmp_path).digest("solver_system") == hashlib.sha256(b"Think.").hexdigest()
    assert len({PromptTemplates.load().digest(name) for name in FIELDS}) == len(FIELDS)


def test_a_challenger_is_asked_for_a_box_where_it_must_give_one_and_a_folder_says_it_otherwise(tmp_path):
    asked = PromptTemplates.load(boxed=True)
    assert r"\boxed{" in asked.challenger(FREE)[0]["content"]
    assert r"\boxed{" not in PromptTemplates.load().challenger(FREE)[0]["content"]
    assert asked.texts.keys() == PromptTemplates.load().texts.keys()
    (tmp_path / "challenger_system.txt").write_text("exactly as R-Zero has it", encoding="utf-8")
    assert PromptTemplates.load(tmp_path, boxed=True).texts["challenger_system"] == "exactly as R-Zero has it"
