"""Messages as text: text, thoughts, calls and their results. It is data, whatever it says.

The messages of OpenAI's two APIs, of Anthropic, Gemini and Bedrock differ only in field names, so they are
read by the names of their fields: text and thoughts as they are, a call of a tool as `[tool call] f(…)`, its
result as a turn of the tool, and every other text field after its name: `[refusal] …`, `[image] …`. Only the
fields in `_BOOKKEEPING` and `_OPAQUE` are left out. Any other form is refused.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any

from diagevo.errors import ConfigError
from diagevo.ingest.formats.rows import ANOTHER
from diagevo.ingest.json_lines import loads
from diagevo.text.turns import NAMED, Turn, alone, joined

_TURN = re.compile(r"<\|(?:im_start|start_header_id)\|>(\w+)(?:<\|end_header_id\|>\r?\n)?\r?\n")
_MARKED = re.compile(r"<\|(?:im_|start_header_id\|>|eot_id\|>)")
_ENDS = re.compile(r"<\|(?:im_end|im_start|endoftext|begin_of_text|start_header_id|eot_id|eom_id)\|>")
_OUTER = re.compile(rf"\A(?:\s*{_ENDS.pattern})+|(?:{_ENDS.pattern}\s*)+\Z")

Message = dict[str, Any]
Piece = str | Turn
"""The speaker's own line, or a tool result in between."""

_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text", "thinking", "reasoning_details")
_TEXTS = ("text", "content", "parts")
_FIRST = (*_THOUGHTS, *_TEXTS)
_CALLS = ("function_call", "tool_calls", "tool_call", "tool_use")
_SAYS = {*_FIRST, *_CALLS, "refusal", "audio"}
"""A message has one of these."""
_PLAIN = ("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal", "message")
"""Types of parts that are read by their fields."""
_MEDIA = {
    "image": "image|image_url|input_image|image_file|images",
    "audio": "audio|input_audio|audio_url",
    "video": "video|input_video|video_url",
    "document": "document",
    "file": "file|input_file|file_data|inline_data",
}
_KINDS = {name: label for label, names in _MEDIA.items() for name in names.split("|")}
_LANGCHAIN = {"human": "human", "ai": "assistant", "system": "system", "tool": "tool"}
"""LangChain's types of messages, which have no role."""
_SHAREGPT = {"function_call": ("assistant", "function_call")}
_COHERE = {"USER": "user", "CHATBOT": "assistant", "SYSTEM": "system", "TOOL": "tool"}
_LLAMA = {"block_type": "type", "tool_kwargs": "arguments"}
_OPENINFERENCE = ("message", "tool_call", "message_content")
_ITEM = re.compile(
    r"reasoning|compaction|item_reference|function\.call|\w*(?:_call|_output|_tools|_request|_response)"
)
"""Types of the items that OpenAI's Responses have beside messages."""
_RESULT = re.compile(r".*[._-](?:result|output|response)")
_CALL = re.compile(r".*(?:[._-]call|tool[_-]use)|function|custom")
_ARGUMENTS = ("arguments", "input", "args", "parameters")
_OUTPUTS = ("content", "output", "response", "result", "parts")
_WHOLE = (*_ARGUMENTS, "output", "response", "result", "data")
_OPAQUE = re.compile(
    r"id|uuid|(?!file_id)\w+_id|signature|thought_signature|encrypted_(?:content|index|stdout)|redacted_content"
    r"|fingerprint|cache_control|cache_point|logprobs|top_logprobs|tokens|token_ids|media_type|mime_type"
)
"""Field names without text anywhere: a service's own identifiers."""
_BOOKKEEPING = re.compile(
    rf"{_OPAQUE.pattern}|type|role|index|object|status|created|created_at|timestamp|model|usage|finish_reason"
    r"|stop_reason|stop_sequence|is_error|service_tier|container|diagnostics"
    r"|context_management|input_transformations"
)
"""The same for a message, and for known parts."""
_REPLY = (
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "system_fingerprint",
    "service_tier",
    "provider",
)
"""Of a whole reply, what is the service's own."""
_PROSE = re.compile(r"index|object|status|usage|finish_reason|stop_reason|is_error|container|diagnostics")
"""Fields with either a keyword of the service or someone's text."""
_VALUES = {"detail": ("auto", "low", "high", "original"), "phase": ("commentary", "final_answer")}
"""Field names with these values belong to the service."""
_BLOBS = ("data", "bytes", "b64_json", "file_data")
_BASE64 = re.compile(r"[A-Za-z0-9+/=_\r\n-]*")
_FAILED = ("error", "failed")
_WRAPS = {*_KINDS, *_TEXTS, *_BLOBS, "url", "uri", "file_uri", "file_url", "file_id", "source", "s3_location"}
"""Field names that add nothing to the value if they are the only one in a part."""
_BLOB = re.compile(r"data:[^,]*;base64,.*|(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9+/=_-]{256,}", re.DOTALL)
"""Base64 of a picture has both letter cases and digits within 256 bytes; a gene sequence does not."""
_FORMS = (*_PLAIN, "base64", "url", "file", "content", "image_url", "auto", "low", "high", "original")
"""Types in a part that are redundant with its other fields, and the detail level of a picture."""
_JSON = re.compile(r"\s*(?:\[\s*)?\{\s*\"")
_PRINTED = re.compile(r"\s*(?:\[\s*)?\{'(?:role|content)': ")


def messages(value: Any) -> str:
    """A prompt or completion as text: itself, the content of its only message, or each under its role.

    Raises ConfigError for anything else.
    """
    try:
        if (found := conversation(value)) is not None:
            return written(found)
    except (ValueError, RecursionError) as error:
        if not isinstance(value, str):
            raise _neither(str(error), value) from error
    if not isinstance(value, str):
        raise _neither("of another form", value)
    return unmarked(value)


def printed(value: Any) -> bool:
    """Whether these are messages as Python prints them, which is not JSON."""
    return isinstance(value, str) and bool(_PRINTED.match(value)) and value.rstrip()[-1:] in ("]", "}")


def text_of(place: str, value: Any) -> str:
    """The same; anything else is refused with its place."""
    try:
        return messages(value)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}", hint=error.hint) from error


def _neither(why: str, value: Any) -> ConfigError:
    text = f"neither a text nor messages with role and content ({why}): {str(value)[:80]}"
    return ConfigError(text, hint=ANOTHER)


def conversation(value: Any) -> list[Message] | None:
    """The messages of a list, of one message, or of `{"messages": …}`, also if a text is one of these as
    JSON; None if there are none."""
    if isinstance(value, str):
        if not _JSON.match(value) or value.rstrip()[-1:] not in ("]", "}"):
            return None
        try:
            found = conversation(loads(value.encode()))
        except (ValueError, RecursionError):
            return None
        # A model may answer in JSON: it is a conversation only where each object is plainly a message.
        return found if found and all(map(_is_message, found)) else None
    if isinstance(value, dict):
        if value.get("object") == "chat.completion":  # a whole OpenAI reply, as gateways log it
            value = {**_beside(value), **_only_choice(value.get("choices"))}
        if set(value) != {"messages"}:
            return [only] if _is_message(only := _unpacked(value)) else None
        value = value["messages"]
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return [_unpacked(each) for each in value]
    return None


def _only_choice(choices: Any) -> Message:
    """The message of the only choice; nothing if there are several, or none."""
    only = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = only.get("message") if isinstance(only, dict) else None
    return message if isinstance(message, dict) else {}


def _beside(reply: Message) -> Message:
    """What a gateway puts beside the choices of a reply: citations, search results."""
    return {
        name: value for name, value in reply.items() if name not in _REPLY and not name.startswith("prompt_")
    }


def _unpacked(item: Message) -> Message:
    """A message as role and content: ShareGPT's, LlamaIndex's, Cohere's of version 1, OpenInference's, and
    LangChain's, which is in `data`, or in `kwargs` next to its class."""
    if "role" not in item and isinstance(item.get("from"), str) and "value" in item:
        role, said = _SHAREGPT.get(item["from"], (item["from"], "content"))
        return {**_without(_without(item, "from"), "value"), "role": role, said: item["value"]}
    if isinstance(item.get("role"), str) and isinstance(item.get("blocks"), list) and "content" not in item:
        blocks = [_renamed(each) if isinstance(each, dict) else each for each in item["blocks"]]
        return {**_without(item, "blocks"), "content": blocks}
    cohere = "content" not in item and not {"message", "tool_results"}.isdisjoint(item)
    if cohere and item.get("role") in tuple(_COHERE):
        return {**_without(item, "message"), "role": _COHERE[item["role"]], "content": item.get("message")}
    inner = _nested(item) if item and all(name.partition(".")[0] == "message" for name in item) else None
    if isinstance(inner, dict):
        return _without(inner, "contents") | {"content": inner.get("content", inner.get("contents"))}
    if item.get("type") in _LANGCHAIN and set(item) == {"type", "data"} and isinstance(item["data"], dict):
        return {**item["data"], "type": item["type"]}
    if item.get("type") == "constructor" and isinstance(inner := item.get("kwargs"), dict):
        return inner if inner.get("type") in _LANGCHAIN else item
    return item


def _renamed(block: Message) -> Message:
    return {_LLAMA.get(name, name): value for name, value in block.items()}


def _nested(value: Any) -> Any:
    """OpenInference's fields, taken out of the name that wraps each message, call and content part, also
    if the names are joined by dots."""
    if isinstance(value, list):
        return [_nested(each) for each in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, inner in value.items():
        first, _, rest = name.partition(".")
        if rest:
            found[first] = {**found.get(first, {}), rest: inner}
        else:
            found[name] = inner
    only = next(iter(found), "")
    if len(found) == 1 and only in _OPENINFERENCE:
        return _nested(found[only])
    return {name: _nested(each) for name, each in found.items()}


def _is_message(item: Message) -> bool:
    if isinstance(item.get("role"), str):
        return _says(item)
    return _is_item(item) and not {"call_id", "summary"}.isdisjoint(item)


def _says(message: Message) -> bool:
    """Whether it has content, or a substitute for it."""
    fields = ((_snake(name), value) for name, value in message.items())
    return any(name in _TEXTS or (name in _SAYS and value) for name, value in fields)


def _is_item(item: Message) -> bool:
    kind = item.get("type")
    if item.get("role") is not None or not isinstance(kind, str):
        return False
    return _ITEM.fullmatch(kind) is not None or "content" not in item


def unpadded(value: Any) -> Any:
    """Without nested nulls: a table's column has the fields of all messages and of all tools'
    arguments, null where they belong to others."""
    if isinstance(value, list):
        return [unpadded(each) for each in value]
    if isinstance(value, dict):
        return {name: unpadded(each) for name, each in value.items() if each is not None}
    return value


def written(found: Sequence[Message]) -> str:
    """The messages, each under its role; of a single one its content. Raises ValueError for anything else."""
    turns: list[Turn] = []
    before = False
    for message in found:
        item = _is_item(message)
        own_turns = list(_turns(message))
        # The thoughts, texts and calls of an answer may be items side by side, and are one turn.
        if turns and (item or before) and turns[-1].role == own_turns[0].role != "tool":
            before_it = turns.pop()
            text = "\n".join(text for text in (before_it.text, own_turns[0].text) if text)
            own_turns[0] = Turn(before_it.role, text, before_it.name)
        turns += own_turns
        before = item
    if len(turns) == 1:
        return alone(turns[0].text) if turns[0].role == "assistant" else turns[0].text
    return joined(turns)


def unmarked(text: str) -> str:
    """A text rendered by ChatML's or Llama 3's template, without its marks: its turns, written like
    messages."""
    if "<|" not in text or not _MARKED.search(text):
        return text
    if not _TURN.search(text):
        return _OUTER.sub("", text).strip()  # one inside the text is only mentioned
    begun, found = templated(text)
    return found[0].text if len(found) == 1 and not begun else joined(found, begun)


def templated(text: str) -> tuple[str, list[Turn]]:
    """The text before the first template mark, and the turns after it."""
    before, *marked = _TURN.split(text)
    found = zip(marked[::2], marked[1::2], strict=True)
    return _without_end(before), [Turn(role, text) for role, part in found if (text := _without_end(part))]


def _without_end(part: str) -> str:
    return _ENDS.sub("", part).strip()


def _turns(message: Message) -> Iterator[Turn]:
    """A message's text, interleaved with the turns of tools whose results it contains."""
    fields = _named(message)
    role, name = _text(fields.get("role"), "role"), _text(fields.get("name"), "name")
    if not role and isinstance(kind := fields.get("type"), str):
        role = _LANGCHAIN.get(kind, "")
    if _is_item(message):
        role = "assistant" if _ITEM.fullmatch(message["type"]) else ""
        pieces = _part(message)
    elif not _says(message):
        raise ValueError("a message without content")
    else:
        if role.lower() in NAMED:
            fields.pop("name", None)  # it precedes the turn
        pieces = chain(["[error]"] if role == "tool" and _failed(fields) else [], _fields(fields))
    lines: list[str] = []
    turns = 0
    for each in pieces:
        if isinstance(each, str):
            lines += [each] if each else []
            continue
        if lines:
            yield Turn(role, "\n".join(lines), name)
            lines = []
        yield each
        turns += 1
    if lines or not turns:
        yield Turn(role, "\n".join(lines), name)


def _fields(fields: Mapping[str, Any]) -> Iterator[Piece]:
    """A message or a part by its fields: thoughts, text, anything else, calls."""
    shown: list[str] = []
    for name in [each for each in _FIRST if each in fields]:
        for each in _parts(fields[name]):
            if name not in _THOUGHTS or each not in shown:  # two names for one thought
                yield _thought(each) if name in _THOUGHTS or fields.get("thought") is True else each
                shown += [each] if isinstance(each, str) else []
    for name, value in fields.items():
        if name in _FIRST or name in _CALLS or _says_nothing(name, value):
            continue
        if name in _KINDS:
            for each in value if isinstance(value, list) else [value]:
                yield _marked(_kind(name, each), each)
        elif name == "json":
            yield json.dumps(_unblobbed(value), ensure_ascii=False)
        elif isinstance(value, dict) and _RESULT.fullmatch(name):
            yield _result(_named(value))
        elif _has_text(value) and (words := _words(value)) and words not in shown:
            yield f"[{name}] {words}"
    for name in _CALLS:
        value = _json(fields.get(name))
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                yield from _call(name, each)


def _thought(said: Piece) -> Piece:
    """Thoughts, between the marks that a model itself writes: not part of the answer."""
    if not isinstance(said, str) or not said or (said.startswith("<think>") and said.endswith("</think>")):
        return said
    return f"<think>\n{said.replace('</think>', '< /think>')}\n</think>"


def _parts(value: Any) -> Iterator[Piece]:
    """A text, a part, or a list of both. Raises ValueError for anything else."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from _part(each)
        elif each is not None:
            raise ValueError("content that is neither text nor parts")


def _part(part: Message) -> Iterator[Piece]:
    """A part by its type, or if it has none, by its fields."""
    fields = _named(part)
    kind = _snake(_text(fields.get("type"), "type"))
    if kind in _KINDS:
        yield _marked(_KINDS[kind], {name: each for name, each in fields.items() if name != "type"})
    elif kind.startswith("reasoning"):
        summary = fields.pop("summary", None)
        if summary != fields.get("reasoning"):  # Inspect has both
            yield from map(_thought, _fields({"reasoning": summary}))
        yield from map(_thought, _fields(fields))
    elif _CALL.fullmatch(kind):
        yield from _call(kind, fields)
    elif _RESULT.fullmatch(kind):
        yield _result(fields)
    elif not kind or kind in _PLAIN or kind in fields:
        found = False
        for each in _fields(fields):
            yield each
            found = True
        names = [name for name in fields if name not in _TEXTS and not _says_nothing(name, fields[name])]
        if not found and names:
            yield f"[{names[0]}]"
    else:
        yield _marked(kind, {name: each for name, each in fields.items() if name != "type"})


def _call(kind: str, given: Any) -> Iterator[str]:
    """A tool's name and its arguments as the model wrote them, and the call's other fields.

    It may be JSON.
    """
    call = _json(given)
    if not isinstance(call, dict):
        if not isinstance(given, str):
            raise ValueError("a tool call that is no object")
        yield f"[tool call] {_line(given)}"
        return
    fields = _named(call)
    for within in ("function", "custom"):
        if isinstance(inner := fields.get(within), dict):
            fields = {**_without(fields, within), **_named(inner)}
    name = _text(fields.pop("name", None) or fields.pop("tool_name", None), "name")
    arguments = next((fields.pop(each) for each in _ARGUMENTS if each in fields), None)
    rest = {each: value for each, value in fields.items() if not _says_nothing(each, value)}
    if not name and arguments is None and rest:  # a service's built-in tool, named by the type of its call
        name, arguments, rest = kind, {each: _cleaned(value) for each, value in rest.items()}, {}
    yield f"[tool call] {_line(name)}({_given(arguments)})"
    yield from (_marked(each, value) for each, value in rest.items() if _has_text(value))


def _given(arguments: Any) -> str:
    """Arguments on one line: a text as the model wrote it, of several lines as JSON."""
    if isinstance(arguments, str) and len(arguments.splitlines()) < 2:
        return arguments.strip()
    return json.dumps({} if arguments is None else _json(arguments), ensure_ascii=False)


def _json(value: Any) -> Any:
    """The value of a text, if it is JSON."""
    try:
        return loads(value.encode()) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _result(fields: dict[str, Any]) -> Turn:
    """A tool's result, as a separate turn; an object as JSON."""
    lines = ["[error]"] if _failed(fields) else []
    for name, value in fields.items():
        if name in _OUTPUTS and not isinstance(value, str | list):
            lines.append(json.dumps(_unblobbed(value), ensure_ascii=False))
        elif name in _OUTPUTS:
            lines += [each if isinstance(each, str) else each.text for each in _parts(value)]
        elif name not in ("name", "tool_name") and not _says_nothing(name, value) and _has_text(value):
            lines.append(_marked(name, value))
    return Turn(
        "tool",
        "\n".join(line for line in lines if line),
        _text(fields.get("name") or fields.get("tool_name"), "name"),
    )


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a field belongs to the service: by its name, unless it contains a sentence."""
    if name in _VALUES:
        return isinstance(value, str) and value in _VALUES[name]
    if name == "caller":  # the caller of a tool within a program
        return isinstance(value, dict) and value.keys() <= {"type", "tool_id"}
    written = isinstance(value, str) and _PROSE.fullmatch(name) is not None and len(value.split()) > 1
    return not written and _BOOKKEEPING.fullmatch(name) is not None


def _failed(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("is_error")) or fields.get("status") in _FAILED


def _marked(name: str, value: Any) -> str:
    return f"[{name}] {_words(value)}".strip()


def _kind(name: str, value: Any) -> str:
    """Gemini's data names its kind in its MIME type."""
    mime = _named(value).get("mime_type") if isinstance(value, dict) else None
    kind = mime.partition("/")[0] if isinstance(mime, str) else ""
    return kind if kind in _MEDIA else _KINDS[name]


def _words(value: Any) -> str:
    """A text as it is, and anything else as JSON, without non-text values."""
    found = _cleaned(value)
    return found if isinstance(found, str) else "" if found is None else json.dumps(found, ensure_ascii=False)


def _cleaned(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        data = name in _BLOBS and _BASE64.fullmatch(value)
        return _digest(value) if data or _BLOB.fullmatch(value) else value or None
    if isinstance(value, list):
        found = [each for each in map(_cleaned, value) if each is not None]
        return found[0] if len(found) == 1 else found or None
    if not isinstance(value, dict):
        return value
    found = {
        key: each
        for key, inner in value.items()
        if not _OPAQUE.fullmatch(short := _snake(key))
        and not (short in ("type", "detail") and inner in _FORMS)
        and (each := _within(inner, "" if value.get("type") == "text" else short)) is not None
    }
    only = next(iter(found)) if len(found) == 1 else ""
    return found[only] if _snake(only) in _WRAPS else found or None


def _within(value: Any, name: str) -> Any:
    """A field; a tool's arguments and results are kept whole."""
    if isinstance(value, dict) and name in _WHOLE:
        return _unblobbed(value) or None
    return _cleaned(value, name)


def _unblobbed(value: Any) -> Any:
    """A tool's whole result, with only embedded media replaced by their digests."""
    if isinstance(value, str):
        return _digest(value) if _BLOB.fullmatch(value) else value
    if isinstance(value, list):
        return [_unblobbed(each) for each in value]
    return {name: _unblobbed(each) for name, each in value.items()} if isinstance(value, dict) else value


def _digest(data: str) -> str:
    """A short digest that distinguishes pictures."""
    return blake2b(data.encode(), digest_size=4).hexdigest()


def _has_text(value: Any) -> bool:
    """Whether it contains text; numbers alone are not content."""
    if isinstance(value, str):
        return value != ""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_text, inner))


def _named(fields: Message) -> dict[str, Any]:
    """The present fields, with names in one style."""
    return {_snake(name): value for name, value in fields.items() if value is not None}


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in fields.items() if each != name}


@lru_cache(4096)  # there are few field names, and they are looked up in every message
def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda letter: f"_{letter[0].lower()}", name).replace("-", "_")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str | None):
        raise ValueError(f"a {name} that is no text")
    return value or ""


def _line(text: str) -> str:
    """On one line, so that no name can pass for a message."""
    return " ".join(text.split())
