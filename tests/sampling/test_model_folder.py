import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diagevo.errors import ConfigError, MissingDependencyError
from diagevo.sampling.model_folder import check_model_folder, encode_prompts, end_ids, load_tokenizer
from diagevo.sampling.sampler import Prompt, SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from tests.sampling.tiny_model import make_tiny_model


def test_a_folder_that_does_not_exist_is_named_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError) as caught:
        TransformersSampler(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in caught.value.message
    assert caught.value.hint is not None
    assert "save_pretrained" in caught.value.hint


def test_a_folder_without_config_with_a_broken_one_or_without_weights_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match=r"no config\.json"):
        check_model_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(MissingDependencyError, match=r"config\.json cannot be read"):
        check_model_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(MissingDependencyError, match="no weights"):
        check_model_folder(tmp_path)


def test_weights_in_a_pickle_are_refused_with_how_to_convert_them(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingDependencyError, match=r"as a pickle \(pytorch_model\.bin\)") as caught:
        check_model_folder(folder)
    assert caught.value.hint is not None
    [program] = re.findall(r'python -c "(.*)"', caught.value.hint)
    program = program.replace("FOLDER", str(folder)).replace("NEW", str(tmp_path / "new"))
    exec(program)
    assert check_model_folder(tmp_path / "new") == tmp_path / "new"


def test_a_pickle_beside_other_safetensors_is_not_read(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "adapter.safetensors")
    with pytest.raises(MissingDependencyError, match="cannot be loaded"):
        TransformersSampler(folder)


def test_weights_that_are_cut_short_are_reported_with_their_folder(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(MissingDependencyError, match="cannot be loaded") as caught:
        TransformersSampler(folder)
    assert str(folder) in caught.value.message


def test_a_model_without_chat_template_gets_the_plain_one(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(make_tiny_model(tmp_path / "model", chat_template=False))
    [ids] = encode_prompts(
        tokenizer, [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]]
    )
    assert tokenizer.decode(ids) == "Be brief.\n\nUser: 1+1?\n\nAssistant:"


def test_a_chat_template_of_the_model_is_kept(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    [ids] = encode_prompts(tokenizer, [[{"role": "user", "content": "1+1?"}]])
    assert tokenizer.convert_ids_to_tokens(ids) == ["<|u|>", "1", "+", "1", "?", "<|a|>"]


def test_a_tokenizer_without_an_end_mark_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["eos_token"] = None
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(MissingDependencyError, match="end-of-sequence token"):
        load_tokenizer(folder)


CHATML = "{% for m in messages %}{{ '<|s|>' + m['content'] + '<|u|>\n' }}{% endfor %}"


def test_what_ends_a_turn_in_the_template_ends_a_reply_beside_the_declared_marks(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 4]}')
    tokenizer = load_tokenizer(folder)
    assert end_ids(folder, tokenizer) == (1, 4)  # its template writes nothing after a reply
    tokenizer.chat_template = CHATML
    assert end_ids(folder, tokenizer) == (1, 4, 3)
    tokenizer.chat_template = CHATML.replace("<|u|>", "")  # a turn that plain text ends
    assert end_ids(folder, tokenizer) == (1, 4)


def test_a_base_model_stops_where_its_template_ends_a_turn(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", scale=0.02)
    params = SamplingParams(temperature=1.0, top_p=1.0, max_new_tokens=200)
    (folder / "chat_template.jinja").write_text(CHATML)
    [replies] = TransformersSampler(folder).sample(
        [[{"role": "user", "content": "1"}]], n=16, params=params, seed=0
    )
    tokenizer = load_tokenizer(folder)
    # Nearly uniform over 96 tokens, two of which end a reply: alone, <eos> would come half as often.
    assert sum(not reply.truncated for reply in replies) >= 12
    assert all(reply.tokens < 200 for reply in replies if not reply.truncated)
    assert 3 in end_ids(folder, tokenizer)


@pytest.mark.parametrize(
    "template",
    [
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
        "{% for m in messages %}{{ m['content'] }};{% endfor %}",
        "{% for m in messages if m['role'] != 'system' %}{{ m['content'] }};{% endfor %}",
    ],
)
def test_a_template_without_a_system_role_gets_its_text_in_the_first_turn(
    template: str, tmp_path: Path
) -> None:
    folder = make_tiny_model(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(template)
    tokenizer = load_tokenizer(folder)
    turns: Prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
    ]
    with_system, without = encode_prompts(tokenizer, [turns, turns[1:]])
    assert tokenizer.decode(with_system) == "Be brief.\n\n1+1?;2;"
    assert tokenizer.decode(without) == "1+1?;2;"


def test_template_kwargs_are_part_of_the_template_for_whoever_is_given_it(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    switch = (
        "{% if enable_thinking is defined and not enable_thinking %}x{% endif %}{{ messages[0]['content'] }}"
    )
    (folder / "chat_template.jinja").write_text(switch)
    for given, expected in (({}, "1"), ({"enable_thinking": False}, "x1"), ({"enable_thinking": True}, "1")):
        tokenizer = load_tokenizer(folder, given)
        [ids] = encode_prompts(tokenizer, [[{"role": "user", "content": "1"}]])
        assert tokenizer.decode(ids) == expected


def test_a_prompt_that_leaves_no_room_in_the_context_is_refused(tiny_model: Path) -> None:
    sampler = TransformersSampler(tiny_model)
    prompt: Prompt = [{"role": "user", "content": "a" * 500}]
    with pytest.raises(ConfigError, match="512 tokens"):
        sampler.sample([prompt], n=1, params=SamplingParams(max_new_tokens=32), seed=0)


def test_an_adapter_that_names_itself_as_its_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": ".", "r": 4}')
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(MissingDependencyError, match="which is an adapter itself"):
        check_model_folder(tmp_path)
