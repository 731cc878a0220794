"""YAML within bounds: a text of a few lines can mean millions of values, or one that takes a day to read.

The bounds are far above what a configuration needs, and whatever passes them is refused at its line.
"""

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.scanner import Scanner, ScannerError

from diagevo.errors import ConfigError

BYTES = 64 * 1024
VALUES = 2000
DEPTH = 20

_NO_VALUE = (ValueError, TypeError, OverflowError, LookupError)
"""How ruamel.yaml fails at a directive it does not know, at `!!int` without a number, at a list as a key."""


class _Scanner(Scanner):
    """Looks ahead from every open bracket, so depth is bounded here."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        if len(self.flow_context) >= DEPTH:
            raise ScannerError(None, None, f"nested deeper than {DEPTH}", self.reader.get_mark())
        super().fetch_flow_collection_start(TokenClass, to_push)


class _Composer(Composer):
    """Counts values as they will be once every alias stands for what it names."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self.warn_double_anchors = False  # an anchor may be named again
        self._depth = self._made = 0
        self._sizes: dict[int, tuple[Node, int]] = {}  # with the node, or another could get its id

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        self._depth += 1
        self._made += 1
        if self._depth > DEPTH:
            raise ConstructorError(None, None, f"nested deeper than {DEPTH}", event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, AliasEvent) and id(node) not in self._sizes:
            raise ConstructorError(None, None, "an alias stands inside what it names", event.start_mark)
        if id(node) not in self._sizes:
            self._sizes[id(node)] = node, 1 + sum(self._sizes[id(inner)][1] for inner in _inside(node))
        if max(self._made, self._sizes[id(node)][1]) > VALUES:
            raise ConstructorError(None, None, f"more than {VALUES} values", event.start_mark)
        return node


def _inside(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


class _Constructor(SafeConstructor):
    """What Python cannot make of a scalar (a 13th month, a number of 5,000 digits) has a line too."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _NO_VALUE as error:
            said = "a number of thousands of digits" if "int_max_str_digits" in str(error) else str(error)
            said = f"no value of its type ({node.tag})" if isinstance(error, LookupError) else said
            raise ConstructorError(None, None, said, node.start_mark) from error


def read(text: str, name: str) -> tuple[Any, Node | None]:
    """The value of a YAML 1.2 text, and its nodes with their lines. Raises ConfigError, which begins with
    `name` and the line."""
    if len(text.encode(errors="replace")) > BYTES:
        raise ConfigError(f"{name}: longer than {BYTES // 1024} KiB", hint="is it a configuration at all?")
    loader = YAML(typ="safe", pure=True)
    loader.Scanner, loader.Composer, loader.Constructor = _Scanner, _Composer, _Constructor
    parser = None
    try:
        constructor, parser = loader.get_constructor_parser(io.StringIO(text))
        node = constructor.composer.get_single_node()
        return (None if node is None else constructor.construct_document(node)), node
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        what = (error.problem or error.context or "it cannot be read").splitlines()[0]
        raise ConfigError(f"{name}{line}: {what}", hint="fix the YAML there") from error
    except YAMLError as error:
        raise ConfigError(f"{name}: {str(error).splitlines()[0]}", hint="fix the YAML there") from error
    except _NO_VALUE as error:
        raise ConfigError(
            f"{name}: YAML that is not read here, as a line that begins with % or a list as a key",
            hint="write sections of keys: diagevo config show",
        ) from error
    finally:
        if parser is not None:
            parser.dispose()
