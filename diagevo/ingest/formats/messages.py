"""Messages as text, with the tools that were called. What they say is data, whatever it says."""

import json
import re
from typing import Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.rows import ANOTHER
from diagevo.text.turns import Turn, alone, joined

_TURN = re.compile(r"<\|(?:im_start|start_header_id)\|>(\w+)(?:<\|end_header_id\|>\n)?\n")
_MARKED = re.compile(r"<\|(?:im_|start_header_id\|>|eot_id\|>)")
_ENDS = re.compile(r"<\|(?:im_end|im_start|endoftext|begin_of_text|start_header_id|eot_id|eom_id)\|>")


class MessagePart(msgspec.Struct):
    """A part of a message: text, or a picture that is not shown."""

    text: str | None = None


class Function(msgspec.Struct):
    """What a call names in OpenAI's form."""

    name: str | None = None
    arguments: Any = None


class ToolCall(msgspec.Struct):
    """A tool with its arguments, in OpenAI's form or flat."""

    name: str | None = None
    arguments: Any = None
    function: Function | None = None


class ChatMessage(msgspec.Struct):
    """One message of a conversation. Of a tool's answer, `name` is the tool."""

    role: str | None = None
    content: str | list[str | MessagePart | None] | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | None = None
    name: str | None = None
    tool_calls: list[ToolCall | None] | None = None

    def __post_init__(self) -> None:
        if self.content is msgspec.UNSET:
            if not self.tool_calls and not self.reasoning_content:
                raise ValueError("a message without content")
            self.content = None


def messages(value: Any) -> str:
    """A prompt or completion as text: itself, the content of its only message, or each under its role.

    Raises ConfigError for what is neither.
    """
    if isinstance(value, str):
        return unmarked(value)
    try:
        found = msgspec.convert(value, list[ChatMessage])
    except (msgspec.ValidationError, RecursionError) as error:
        problem = f"neither a text nor messages with role and content: {str(value)[:80]}"
        raise ConfigError(problem, hint=ANOTHER) from error
    return written(found)


def written(found: list[ChatMessage]) -> str:
    """The messages, each under its role; of a single one its content."""
    if len(found) == 1:
        content = _content(found[0])
        return alone(content) if found[0].role == "assistant" else content
    return joined(Turn(m.role or "", _content(m), m.name or "") for m in found)


def unmarked(text: str) -> str:
    """A text that went through the template of ChatML or Llama 3, without its marks: its turns as messages
    are written."""
    if "<|" not in text or not _MARKED.search(text):
        return text
    begun, found = templated(text)
    return found[0].text if len(found) == 1 and not begun else joined(found, begun)


def templated(text: str) -> tuple[str, list[Turn]]:
    """What stands before the first mark of a template, and the turns after it."""
    before, *marked = _TURN.split(text)
    found = zip(marked[::2], marked[1::2], strict=True)
    return _without_end(before), [Turn(role, text) for role, part in found if (text := _without_end(part))]


def _without_end(part: str) -> str:
    return _ENDS.sub("", part).strip()


def _content(message: ChatMessage) -> str:
    """Reasoning, text (of a content in parts the text parts) and calls, a line each."""
    content = message.content or ""
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else part.text for part in content if part is not None]
        content = "\n".join(part for part in parts if part)
    called = [_call(call) for call in message.tool_calls or [] if call is not None]
    return "\n".join(text for text in (message.reasoning_content, content, *called) if text)


def _call(call: ToolCall) -> str:
    """A tool's name and its arguments as the model wrote them."""
    name, arguments = call.name, call.arguments
    if call.function is not None:
        name, arguments = call.function.name, call.function.arguments
    if isinstance(arguments, dict):  # a table has every tool's arguments, null where they are another's
        arguments = {key: value for key, value in arguments.items() if value is not None}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return f"[tool call] {_line(name or '')}({_line(text)})"


def _line(text: str) -> str:
    """On one line, so that no name passes for a message."""
    return " ".join(text.split())
