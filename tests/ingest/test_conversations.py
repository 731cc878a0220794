"""Every text of a message comes back: of five interfaces, with every field that their makers describe."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages
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
