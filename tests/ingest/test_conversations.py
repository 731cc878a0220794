"""Every text of a message comes back: of five interfaces, with every field that their makers describe."""

import gzip
import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagevo.errors import ConfigError
from diagevo.ingest.formats import read
from diagevo.ingest.formats.messages import messages
from tests.cli.program import invoke
from tests.ingest.conftest import DATA

MADE, *DESCRIBED = [
    json.loads(line) for line in gzip.decompress((DATA / "conversations.jsonl.gz").read_bytes()).splitlines()
]
NO_TEXT = {
    "how a service knows its own again": "id signature thought_signature thoughtSignature fingerprint"
    " encrypted_content encrypted_index encrypted_stdout redactedContent toolUseId stop_sequence",
    "numbers of a picture, a sound or a file": "data bytes file_data",
    "its form": "type mime_type mimeType",
    "a model's own pieces of the text beside it": "token",
}
NAMES = {name for names in NO_TEXT.values() for name in names.split()}
SERVICE = ("container", "input_transformations", "usage", "caller", "model")
"""What the service says of the request, not of the conversation."""
REFUSED = "additional_tools"
"""An item of OpenAI's that has a role and no content: tools that a request adds."""
ASKED = {"role": "user", "content": "Hi."}


def texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Each text that the maker of the file put somewhere: it is its own path."""
    if isinstance(value, list):
        for each in value:
            yield from texts(each, path)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from texts(each, (*path, name))
    elif isinstance(value, str) and value.startswith("<."):
        name = path[-1]
        if name in NAMES or (name.endswith("_id") and name != "file_id") or path[0] in SERVICE:
            return
        yield value


def test_the_file_has_every_interface() -> None:
    found = {line["interface"] for line in DESCRIBED}
    assert found == {"OpenAI chat", "OpenAI Responses", "Anthropic", "Gemini", "Bedrock"}
    assert sum(len(list(texts(line["message"]))) for line in DESCRIBED) > 1700


@pytest.mark.parametrize("interface", sorted({line["interface"] for line in DESCRIBED}))
def test_every_text_of_a_message_comes_back(interface: str) -> None:
    lost: list[tuple[str, str]] = []
    for message in (line["message"] for line in DESCRIBED if line["interface"] == interface):
        if message.get("type") == REFUSED:
            with pytest.raises(ConfigError, match="a message without content"):
                messages([ASKED, message])
            continue
        found = messages([ASKED, message])
        lost += [(text, json.dumps(message)[:300]) for text in texts(message) if text not in found]
    assert not lost


FIELDS = (
    *("text", "content", "note", "error", "parts", "name", "output", "input", "arguments", "url", "thinking"),
    *(
        "refusal",
        "image",
        "tool_use",
        "toolResult",
        "function_call",
        "tool_calls",
        "reasoning",
        "json",
        "x-y",
        "detail",
        "phase",
        "caller",
    ),
)
NAMED = st.sampled_from(FIELDS)
KINDS = st.sampled_from(
    ["text", "tool_use", "tool_result", "image", "document", "web_search_call", "odd", ""]
)


@st.composite
def anything(draw: st.DrawFn, depth: int = 3) -> Any:
    """A message or part of fields that nobody described, each text another one."""
    if not depth or draw(st.booleans()):
        return f"<{draw(st.integers(0, 10**9))}>"
    if draw(st.booleans()):
        return draw(st.lists(anything(depth - 1), max_size=2))
    found = draw(st.dictionaries(NAMED, anything(depth - 1), max_size=3))
    return found | ({"type": draw(KINDS)} if draw(st.booleans()) else {})


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(each)


@settings(max_examples=500)
@given(st.dictionaries(NAMED, anything(), min_size=1, max_size=4))
def test_no_text_of_a_message_that_nobody_described_is_dropped(message: dict[str, Any]) -> None:
    """It is kept, or the row is refused."""
    try:
        found = messages([ASKED, {"role": "assistant", **message}])
    except ConfigError:
        return
    assert not [text for text in leaves(message) if text.startswith("<") and text not in found]


CALLED = {"name": "get", "arguments": '{"city": "Rome"}'}
LOOK = "<think>\nLook.\n</think>"
ROME = '[tool call] get({"city": "Rome"})'
SHOWN: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a call as it was before tools": (
        [{"role": "assistant", "content": None, "function_call": CALLED}],
        ROME,
    ),
    "calls that are JSON": ([{"role": "assistant", "tool_calls": [json.dumps({"function": CALLED})]}], ROME),
    "all of them are JSON": ([{"role": "assistant", "tool_calls": json.dumps([{"function": CALLED}])}], ROME),
    "a call that is no JSON": ([{"role": "assistant", "tool_calls": ["get Rome"]}], "[tool call] get Rome"),
    "an argument that is null": (
        [{"role": "assistant", "tool_calls": [{"name": "set", "arguments": {"name": None}}]}],
        '[tool call] set({"name": null})',
    ),
    "Anthropic": (
        [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Look.", "signature": "x"}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "name": "get", "input": {"city": "Rome"}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "content": "21 C"}, {"text": "And?"}]},
            {"role": "user", "content": [{"type": "tool_result", "content": "no", "is_error": True}]},
        ],
        f"assistant: {LOOK}\n\nassistant: {ROME}\n\ntool: 21 C\n\nuser: And?\n\ntool: [error]\nno",
    ),
    "OpenAI's Responses": (
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look."}]},
            {"type": "function_call", "call_id": "1", **CALLED},
            {"type": "function_call_output", "call_id": "1", "output": "21 C"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Warm."}]},
        ],
        f"assistant: {LOOK}\n{ROME}\n\ntool: 21 C\n\nassistant: Warm.",
    ),
    "Gemini": (
        [
            {"role": "model", "parts": [{"text": "Look.", "thought": True}]},
            {"role": "model", "parts": [{"functionCall": {"name": "get", "args": {"city": "Rome"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "get", "response": {"c": 21}}}]},
        ],
        f'model: {LOOK}\n\nmodel: {ROME}\n\ntool get: {{"c": 21}}',
    ),
    "Bedrock": (
        [
            {"role": "assistant", "content": [{"toolUse": {"name": "get", "input": {"city": "Rome"}}}]},
            {
                "role": "user",
                "content": [{"toolResult": {"content": [{"json": {"c": 21}}], "status": "error"}}],
            },
        ],
        f'assistant: {ROME}\n\ntool: [error]\n{{"c": 21}}',
    ),
    "Ollama": ([{"role": "assistant", "thinking": "Hm.", "content": "No."}], "<think>\nHm.\n</think>\nNo."),
    "LangChain": (
        [
            {"type": "human", "content": "Rome?"},
            {"type": "ai", "content": "", "tool_calls": [{"name": "get", "args": {"city": "Rome"}}]},
            {"type": "tool", "name": "get", "content": "21 C"},
        ],
        f"human: Rome?\n\nassistant: {ROME}\n\ntool get: 21 C",
    ),
    "Vercel's SDK": (
        [
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolName": "get", "args": {"city": "Rome"}}],
            },
            {"role": "tool", "content": [{"type": "tool-result", "toolName": "get", "result": "21 C"}]},
        ],
        f"assistant: {ROME}\n\ntool get: 21 C",
    ),
    "ShareGPT": (
        [
            {"from": "human", "value": "Rome?"},
            {"from": "function_call", "value": json.dumps(CALLED)},
            {"from": "observation", "value": "21 C"},
            {"from": "gpt", "value": "Warm."},
        ],
        f"human: Rome?\n\nassistant: {ROME}\n\nobservation: 21 C\n\ngpt: Warm.",
    ),
    "OpenInference, nested": (
        [
            {
                "message": {
                    "role": "user",
                    "contents": [{"message_content": {"type": "text", "text": "Rome?"}}],
                }
            },
            {"message": {"role": "assistant", "tool_calls": [{"tool_call": {"function": CALLED}}]}},
        ],
        f"user: Rome?\n\nassistant: {ROME}",
    ),
    "OpenInference, with dots": (
        [
            {"message.role": "user", "message.content": "Rome?"},
            {
                "message.role": "assistant",
                "message.tool_calls": [
                    {
                        "tool_call.id": "1",
                        "tool_call.function.name": CALLED["name"],
                        "tool_call.function.arguments": CALLED["arguments"],
                    }
                ],
            },
        ],
        f"user: Rome?\n\nassistant: {ROME}",
    ),
    "LlamaIndex": (
        [
            {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "Rome?"}]},
            {
                "role": "assistant",
                "additional_kwargs": {},
                "blocks": [
                    {
                        "block_type": "tool_call",
                        "tool_call_id": "1",
                        "tool_name": "get",
                        "tool_kwargs": {"city": "Rome"},
                    },
                    {"block_type": "text", "text": "Warm."},
                ],
            },
        ],
        f"user: Rome?\n\nassistant: {ROME}\nWarm.",
    ),
    "Cohere, version 1": (
        [
            {"role": "USER", "message": "Rome?"},
            {
                "role": "CHATBOT",
                "message": "",
                "tool_calls": [{"name": "get", "parameters": {"city": "Rome"}}],
            },
            {"role": "TOOL", "tool_results": [{"call": {"name": "get"}, "outputs": [{"c": "21 C"}]}]},
        ],
        f"user: Rome?\n\nassistant: {ROME}\n\n"
        'tool: [tool_results] {"call": {"name": "get"}, "outputs": {"c": "21 C"}}',
    ),
    "a service's words, and somebody's in their place": (
        [
            {"role": "assistant", "phase": "commentary", "content": "Hm.", "status": "completed"},
            {
                "role": "user",
                "phase": "two",
                "detail": "small print",
                "caller": "Ann",
                "status": "It is late.",
                "content": "Hi.",
            },
        ],
        "assistant: Hm.\n\nuser: Hi.\n[phase] two\n[detail] small print\n[caller] Ann\n[status] It is late.",
    ),
    "one thought under two names": (
        [{"role": "assistant", "reasoning": "Hm.", "reasoning_content": "Hm.", "content": "No."}],
        "<think>\nHm.\n</think>\nNo.",
    ),
    "a thought that holds its own end": (
        [{"role": "assistant", "reasoning": "So </think> ends it.", "content": "No."}],
        "<think>\nSo < /think> ends it.\n</think>\nNo.",
    ),
    "a thought with its marks": (
        [{"role": "assistant", "reasoning_content": "<think>\nHm.\n</think>", "content": "No."}],
        "<think>\nHm.\n</think>\nNo.",
    ),
    "Bedrock's thought": (
        [{"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "Look."}}}]}],
        LOOK,
    ),
    "a refusal": ([{"role": "assistant", "content": None, "refusal": "I may not."}], "[refusal] I may not."),
    "a picture at an address": (
        [
            {
                "role": "user",
                "content": ["See:", {"type": "image_url", "image_url": {"url": "https://a/b.png"}}],
            }
        ],
        "See:\n[image] https://a/b.png",
    ),
    "a sound": (
        [{"role": "user", "content": [{"inlineData": {"mimeType": "audio/mp3", "data": "QUJD"}}]}],
        f"[audio] {blake2b(b'QUJD', digest_size=4).hexdigest()}",
    ),
    "numbers beside it": (
        [{"role": "user", "content": "Hi.", "weight": 1, "mask": [0, 1], "scores": {"a": 1, "b": 0}}],
        "Hi.",
    ),
    "a long word that is no picture": (
        [{"role": "user", "content": [{"type": "tool_result", "content": {"genes": "ACGT" * 200}}]}],
        json.dumps({"genes": "ACGT" * 200}),
    ),
    "a name that the text has too": (
        [{"role": "user", "name": "Bob", "content": "I am Bob."}],
        "I am Bob.\n[name] Bob",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_it_reads_like_a_conversation(name: str) -> None:
    said, shown = SHOWN[name]
    assert messages(said) == shown


def test_prompts_that_differ_in_a_picture_alone_are_two_and_it_is_not_kept() -> None:
    data = ["data:image/png;base64," + letter * 4000 for letter in "AB"]
    found = [
        messages([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": each}}]}])
        for each in data
    ]
    assert found[0] != found[1]
    assert all(re.fullmatch(r"\[image\] [0-9a-f]{8}", each) for each in found)


CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi?"}]
REPLY = {"role": "assistant", "content": "Ho."}


def rollouts(file: Path) -> list[tuple[str, str]]:
    found = read("trl" if file.stem.startswith("completions") else "jsonl", file, on_cut=pytest.fail)
    return [(each.prompt, each.response) for step in found for each in step.rollouts]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "completions_1.parquet"])
def test_messages_that_a_cell_holds_as_json_are_messages(tmp_path: Path, name: str) -> None:
    row = {"prompt": json.dumps(CHAT), "response": json.dumps(REPLY), "reward": 1.0}
    file = tmp_path / name
    match name.partition(".")[2], name[0]:
        case "jsonl", _:
            file.write_text(json.dumps(row) + "\n")
        case "csv", _:
            pandas.DataFrame([row]).to_csv(file)
        case _, "a":
            polars.DataFrame([row]).write_parquet(file)
        case _:
            named = {"completion": row["response"], "a_reward": 1.0, "advantage": 0.0}
            polars.DataFrame([{"prompt": row["prompt"], **named}]).write_parquet(file)
    assert rollouts(file) == [("system: Be kind.\n\nuser: Hi?", "Ho.")]


@pytest.mark.parametrize(
    "text",
    [
        '{"role": "admin"}',
        '[{"role": "user", "content": "a"}, 1]',
        '{"name": "get", "arguments": {"role": "user"}}',
        '[{"type": "text", "text": "a"}]',
        "[1, 2]",
        '{"role": "user", "content": 5}',
        '{"role": "user", "content": "a"} and so on',
        '{"role": "user", "content": "\\ud800"}',
    ],
)
def test_json_that_is_no_conversation_is_a_text(text: str) -> None:
    assert messages(text) == text


def test_messages_as_python_prints_them_are_refused_with_the_way_to_write_them(tmp_path: Path) -> None:
    pandas.DataFrame([{"prompt": CHAT, "response": "Ho.", "reward": 1}]).to_csv(tmp_path / "a.csv")
    with pytest.raises(ConfigError, match="its prompt is messages as Python prints them") as refused:
        rollouts(tmp_path / "a.csv")
    assert "map(json.dumps)" in str(refused.value.hint)


def test_a_null_is_an_argument_in_json_and_a_gap_in_a_table(tmp_path: Path) -> None:
    """A table's column has the arguments of every tool."""
    calls = [{"name": "set", "arguments": {"a": 1, "b": None}}, {"name": "put", "arguments": {"b": "x"}}]
    row = {"prompt": "?", "response": [{"role": "assistant", "tool_calls": calls}], "reward": 1.0}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    polars.DataFrame([row]).write_parquet(tmp_path / "a.parquet")
    put = '[tool call] put({"b": "x"})'
    assert rollouts(tmp_path / "a.jsonl") == [("?", f'[tool call] set({{"a": 1, "b": null}})\n{put}')]
    assert rollouts(tmp_path / "a.parquet") == [("?", f'[tool call] set({{"a": 1}})\n{put}')]


def test_an_export_has_the_messages_that_a_cell_held(tmp_path: Path) -> None:
    asked = [*CHAT, {"role": "assistant", "content": "Ho.\n\nuser: no"}, {"role": "user", "content": "So?"}]
    looked = [{"role": "assistant", "content": "I look."}, {"role": "tool", "name": "get", "content": "21 C"}]
    replies = [
        [*looked, {"role": "assistant", "content": "Warm."}],
        [{"role": "assistant", "content": "Cold."}],
    ]
    rows = [
        {"prompt": json.dumps(asked), "response": json.dumps(replies[n]), "reward": 1 - n} for n in (0, 1)
    ]
    pandas.DataFrame(rows).to_csv(tmp_path / "a.csv")
    env = {"DIAGEVO_HOME": str(tmp_path)}
    for words in (
        ["ingest", "jsonl", tmp_path / "a.csv", "--run", "r"],
        ["diagnose", "--local", "--run", "r"],
    ):
        assert (done := invoke(*words, env=env)).exit_code == 0, done.output
    done = invoke("runs", "export", "r", "--as", "dpo", "-o", tmp_path / "dpo.jsonl", env=env)
    assert done.exit_code == 0, done.output
    row = json.loads((tmp_path / "dpo.jsonl").read_text())
    assert (row["prompt"], row["chosen"], row["rejected"]) == (asked, *replies)


TOLD_APART = {
    "a tool's argument, by name": ({"city": "Nice"}, {"country": "Nice"}),
    "a tool's argument, by a name of ours": ({"user_id": "1", "q": "x"}, {"user_id": "2", "q": "x"}),
    "a tool's result": ({"low": "3"}, {"high": "3"}),
}


@pytest.mark.parametrize("name", TOLD_APART)
def test_calls_that_differ_are_two(name: str) -> None:
    """In the forms of Vercel's SDK, Mistral's conversations and LangChain, which are no call of OpenAI's."""

    def forms(given: Any) -> list[Any]:
        tool = {"type": "tool-find", "state": "output-available", "input": given, "output": given}
        invocation = {"toolName": "find", "args": given, "result": given}
        stored = {"content": "Done.", "tool_calls": [{"name": "find", "args": given}]}
        return [
            [{"role": "assistant", "parts": [tool]}],
            [{"role": "assistant", "content": "Done.", "toolInvocations": [invocation]}],
            [{"object": "entry", "type": "function.call", "name": "find", "arguments": given}],
            [{"type": "human", "data": {"content": "Hi."}}, {"type": "ai", "data": stored}],
            [{"role": "tool", "content": [{"type": "document", "document": {"data": given}}]}],
        ]

    for one, other in zip(*map(forms, TOLD_APART[name]), strict=True):
        assert messages(one) != messages(other)


def test_what_a_tool_was_given_keeps_its_lines_and_spaces() -> None:
    def asked(text: Any) -> str:
        return messages(
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}]
        )

    assert asked("if x:\n  y()") != asked("if x:\n    y()")
    assert asked('{"old": "  a"}') == '[tool call] f({"old": "  a"})'
    assert asked('{\n  "a": 1\n}') == '[tool call] f({"a": 1})'
    assert asked(0) != asked(None)


def test_a_text_in_the_place_of_data_is_a_text() -> None:
    """Anthropic's documents of plain text, and Cohere's results of tools."""
    source = {"type": "text", "media_type": "text/plain", "data": "Tides"}
    assert "Tides" in messages([{"role": "user", "content": [{"type": "document", "source": source}]}])
    found = {"type": "document", "document": {"id": "0", "data": '{"tides": "two a day"}'}}
    assert "two a day" in messages([{"role": "tool", "content": [found]}])


def test_a_thought_that_is_a_text_is_read() -> None:
    """SWE-agent's; Gemini's is true or false."""
    assert "[thought] I look." in messages([{"role": "assistant", "content": "ls", "thought": "I look."}])


def test_a_thought_and_its_summary_are_both_read() -> None:
    part = {"type": "reasoning", "reasoning": "Look.", "summary": "Looks."}
    found = messages([{"role": "assistant", "content": [part, {"type": "text", "text": "No."}]}])
    assert "Look." in found
    assert "Looks." in found
    once = [{"role": "assistant", "content": [part | {"summary": "Look."}]}]
    assert messages(once).count("Look.") == 1


@pytest.mark.parametrize("failed", [{"status": "error"}, {"is_error": True}])
def test_a_tool_that_failed_says_so(failed: dict[str, Any]) -> None:
    assert (
        messages([ASKED, {"role": "tool", "content": "No.", **failed}]) == "user: Hi.\n\ntool: [error]\nNo."
    )


def test_langchain_stores_a_message_within_another() -> None:
    stored = [{"type": "human", "data": {"content": "Hi."}}, {"type": "ai", "data": {"content": "Yes?"}}]
    dumped = [
        {"lc": 1, "type": "constructor", "id": ["x"], "kwargs": {"type": each["type"], **each["data"]}}
        for each in stored
    ]
    assert messages(stored) == messages(dumped) == "human: Hi.\n\nassistant: Yes?"


def test_marks_of_a_template_are_taken_off_where_they_mark() -> None:
    assert messages("What does <|im_end|> mean?") == "What does <|im_end|> mean?"
    assert messages("<|begin_of_text|>Yes.<|eot_id|>\n") == "Yes."
    windows = "<|im_start|>user\r\nHi.<|im_end|>\r\n<|im_start|>assistant\r\nYes?<|im_end|>"
    assert messages(windows) == "user: Hi.\n\nassistant: Yes?"


def test_a_whole_reply_as_gateways_log_it_is_its_message() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    reply = {"id": "c1", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 3}}
    assert messages(reply) == messages(json.dumps(reply)) == "Hi."
    cited = messages(reply | {"citations": ["https://a.example"], "search_results": [{"title": "Rome"}]})
    assert cited == 'Hi.\n[citations] https://a.example\n[search_results] {"title": "Rome"}'
    for other in (reply | {"choices": [choice, choice]}, reply | {"choices": []}):
        with pytest.raises(ConfigError):
            messages(other)
