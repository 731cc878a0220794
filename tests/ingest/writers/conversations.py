"""Messages of every kind that the makers of five interfaces describe, each with every field that it may have.

    python tests/ingest/writers/conversations.py tests/ingest/data/conversations.jsonl.gz

It reads the types that openai, anthropic, google-genai and botocore publish, in an environment that has them
and need not have DiagEvo. A text is its own path, so that a reader that loses it can be told which it lost.
"""

# The interfaces' packages are no dependencies of ours.
# pyright: reportMissingImports=false

import gzip
import json
import sys
import types
import typing
from collections.abc import Iterator
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

Value = Any
DEEP = 9
"""Types within types; a type within itself is left out."""


def filled(kind: Any, path: str, within: tuple[Any, ...] = ()) -> list[Value]:
    """Values of a type that together have all its alternatives; [] for what cannot be written as JSON."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated or str(origin) in ("typing.Required", "typing.NotRequired"):
        return filled(parts[0], path, within)
    if str(origin) in ("typing_extensions.Required", "typing_extensions.NotRequired"):
        return filled(parts[0], path, within)
    if hasattr(kind, "__value__"):  # type X = …
        return filled(kind.__value__, path, within)
    if origin is typing.Literal:
        return list(parts)
    if origin in (typing.Union, types.UnionType):
        return [each for part in parts for each in filled(part, path, within)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [next(iter(kind)).value]
    if kind in (str, bytes):
        return [f"<{path}>"]
    if kind in (int, float):
        return [7]
    if kind is bool:
        return [True]
    if kind in (Any, object):
        return [{"any": f"<{path}.any>"}]
    if origin in (dict, typing.get_origin(typing.Mapping[str, int])) or kind is dict:
        return [{"key": each} for each in filled(parts[1] if parts else str, f"{path}.key", within)]
    if origin is not None and parts and origin.__name__ in ("list", "Iterable", "Sequence", "List"):
        found = filled(parts[0], path, within)
        return [[each] for each in found]
    if (fields := _fields(kind)) is not None:
        if kind in within or len(within) > DEEP:
            return []
        return _records({n: filled(k, f"{path}.{n}", (*within, kind)) for n, k in fields.items()})
    return []


def _fields(kind: Any) -> dict[str, Any] | None:
    if hasattr(kind, "__required_keys__"):
        return typing.get_type_hints(kind, include_extras=True)
    if hasattr(kind, "model_fields"):
        return {name: each.annotation for name, each in kind.model_fields.items()}
    return None


def _records(fields: dict[str, list[Value]]) -> list[Value]:
    """As many objects as the field with the most alternatives has; every field in each."""
    found = {name: values for name, values in fields.items() if values}
    number = max(map(len, found.values()), default=0)
    return [{name: values[n % len(values)] for name, values in found.items()} for n in range(number)]


def of_bedrock(shape: Any, path: str, within: tuple[str, ...] = ()) -> list[Value]:
    """The same of a shape of botocore; a union is an object with one of its members."""
    if getattr(shape, "is_document_type", False):
        return [{"any": f"<{path}.any>"}]
    match shape.type_name:
        case "structure":
            if shape.name in within:
                return []
            inner = (*within, shape.name)
            fields = {n: of_bedrock(s, f"{path}.{n}", inner) for n, s in shape.members.items()}
            if getattr(shape, "is_tagged_union", False):
                return [{name: value} for name, values in fields.items() for value in values]
            return _records(fields)
        case "list":
            return [[each] for each in of_bedrock(shape.member, path, within)]
        case "map":
            return [{"key": each} for each in of_bedrock(shape.value, f"{path}.key", within)]
        case "string":
            return [shape.enum[0]] if shape.enum else [f"<{path}>"]
        case "blob":
            return [f"<{path}>"]
        case "boolean":
            return [True]
        case "integer" | "long" | "float" | "double":
            return [7]
        case _:
            return [{"any": f"<{path}.any>"}]


def conversations() -> Iterator[tuple[str, list[Value]]]:
    import botocore.session
    from anthropic.types import Message, MessageParam
    from anthropic.types.beta import BetaMessage, BetaMessageParam
    from google.genai.types import Content
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
    from openai.types.responses import ResponseInputItemParam, ResponseOutputItem

    yield "OpenAI chat", filled(ChatCompletionMessageParam, "")
    yield "OpenAI chat", filled(ChatCompletionMessage, "")
    yield "OpenAI Responses", filled(ResponseInputItemParam, "")
    yield "OpenAI Responses", filled(ResponseOutputItem, "")
    for kind in (MessageParam, Message, BetaMessageParam, BetaMessage):
        yield "Anthropic", filled(kind, "")
    found = filled(Content, "")
    yield "Gemini", found
    yield "Gemini", [_camel(each) for each in found]
    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    yield "Bedrock", of_bedrock(service.shape_for("Message"), "")


def _camel(value: Value) -> Value:
    """As the service writes its names."""
    if isinstance(value, list):
        return [_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    names = {name: name.split("_")[0] + "".join(p.title() for p in name.split("_")[1:]) for name in value}
    return {names[name]: _camel(each) for name, each in value.items()}


def main(file: str) -> None:
    packages = ("openai", "anthropic", "google-genai", "botocore")
    made = {"made_with": {name: version(name) for name in packages}}
    seen: set[tuple[str, str]] = set()
    lines: list[Any] = [made]
    for interface, values in conversations():
        for value in values:
            if new := {(interface, field) for field in _named(value)} - seen:
                seen |= new
                lines.append({"interface": interface, "message": value})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    Path(file).write_bytes(gzip.compress(text.encode(), mtime=0))


def _named(value: Value, path: str = "") -> Iterator[str]:
    """Each field within the types that it stands in, by their own names."""
    if isinstance(value, list):
        for each in value:
            yield from _named(each, path)
    elif isinstance(value, dict):
        path += f"<{value.get('type', '')}>" if isinstance(value.get("type", ""), str) else ""
        for name, each in value.items():
            yield f"{path}.{name}"
            yield from _named(each, f"{path}.{name}")


if __name__ == "__main__":
    main(sys.argv[1])
