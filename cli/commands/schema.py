"""`diagevo schema COMMAND`: the JSON Schema of what a command prints with `--json`."""

from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError

from .. import listing, options
from ..call import Call
from ..render import console as render


@options.command(
    "schema",
    without=("--run", "--db"),
    example="""diagevo schema memory why
    diagevo schema memory replay""",
)
def schema(
    call: Call,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help='The command, e.g. "memory why".')],
) -> None:
    """The JSON Schema of a command's --json.

    It covers the envelope and, where the command states its type, the data.
    """
    path = " ".join(" ".join(command).split())
    listing.import_all()  # their decorators fill it
    if path not in options.SCHEMAS:
        known = ", ".join(sorted(options.SCHEMAS))
        raise ConfigError(f"there is no schema of {path!r}", hint=f"one of: {known}")
    name, data = options.SCHEMAS[path]
    render.text(call, render.dump(of_envelope(name, data())))


EXACT = {
    "type": "object",
    "properties": {"exact": {"type": "string"}, "value": {"type": "number"}},
    "required": ["exact", "value"],
    "additionalProperties": False,
}
"""A fraction, as `render.plain` writes it."""


def of_envelope(name: str, data: Any) -> dict[str, Any]:
    """The schema of the envelope around `data`, a Python type (None: any JSON)."""
    place = {
        "type": "object",
        "properties": {"round": {"type": "integer"}, "position": {"type": "integer"}},
        "required": ["round", "position"],
    }
    inner: dict[str, Any] = {} if data is None else _of_type(data)
    definitions = inner.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "type": "object",
        "properties": {
            "schema": {"const": name},
            "run": {"type": ["string", "null"]},
            "as_of": {"anyOf": [place, {"type": "null"}]},
            "data": inner,
        },
        "required": ["schema", "run", "as_of", "data"],
    } | ({"$defs": definitions} if definitions else {})


def _of_type(data: Any) -> dict[str, Any]:
    import msgspec
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class WithParts(GenerateJsonSchema):
        """Of parts of events, which are msgspec's, too."""

        def is_instance_schema(self, schema: Any) -> dict[str, Any]:
            [found], parts = msgspec.json.schema_components([schema["cls"]])
            return _inlined(found, parts)

    # A dataclass alone takes no configuration; a list of it does.
    listed: Any = list.__class_getitem__(data)
    adapter = TypeAdapter(listed, config=ConfigDict(arbitrary_types_allowed=True))
    found = adapter.json_schema(mode="serialization", schema_generator=WithParts)
    return _exact(found["items"] | {"$defs": found.get("$defs", {})})


def _inlined(node: Any, parts: dict[str, Any]) -> Any:
    """A schema of msgspec's without references."""
    if isinstance(node, dict):
        if "$ref" in node:
            return _inlined(parts[node["$ref"].rpartition("/")[2]], parts)
        return {key: _inlined(value, parts) for key, value in node.items()}
    return [_inlined(item, parts) for item in node] if isinstance(node, list) else node


def _exact(node: Any) -> Any:
    """Fractions are objects in our JSON, not the text that pydantic would write."""
    if isinstance(node, dict):
        if node.get("type") == "string" and node.get("format") == "fraction":
            return EXACT | {k: v for k, v in node.items() if k in ("title", "description")}
        return {key: _exact(value) for key, value in node.items()}
    return [_exact(item) for item in node] if isinstance(node, list) else node
