"""YAML 1.2 as configurations use it: an error names its line, and a file has a size limit."""

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import Node

from diagevo.errors import ConfigError
from diagevo.text.escaping import storable

BYTES = 64 * 1024

_NO_VALUE = (ValueError, TypeError, OverflowError, LookupError)
"""ruamel.yaml's errors for an unknown directive, `!!int` without a number, a list as a key."""


class _Constructor(SafeConstructor):
    """What Python cannot make of a scalar (a 13th month, a number of 5,000 digits) has a line too, and so
    has a text that no database keeps as it is: the run would record another one than it is played with."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            made = super().construct_object(node, deep)
        except _NO_VALUE as error:
            problem = "a number of thousands of digits" if "int_max_str_digits" in str(error) else str(error)
            problem = f"no value of its type ({node.tag})" if isinstance(error, LookupError) else problem
            raise ConstructorError(None, None, problem, node.start_mark) from error
        if isinstance(made, str) and storable(made) != made:
            problem = "a text with a NUL or half a surrogate pair, which no run can record"
            raise ConstructorError(None, None, problem, node.start_mark)
        return made


def read(text: str, name: str) -> tuple[Any, Node | None]:
    """The value of a YAML 1.2 text, and its nodes with their lines. Raises ConfigError, which begins with
    `name` and the line."""
    if len(text.encode(errors="replace")) > BYTES:
        raise ConfigError(f"{name}: longer than {BYTES // 1024} KiB", hint="is this a configuration file?")
    loader = YAML(typ="safe", pure=True)
    loader.Constructor = _Constructor
    parser = None
    try:
        constructor, parser = loader.get_constructor_parser(io.StringIO(text))
        constructor.composer.warn_double_anchors = False  # an anchor may be redefined
        node = constructor.composer.get_single_node()
        return (None if node is None else constructor.construct_document(node)), node
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        what = (error.problem or error.context or "it cannot be read").splitlines()[0]
        raise ConfigError(f"{name}{line}: {what}", hint="fix the YAML there") from error
    except YAMLError as error:
        raise ConfigError(f"{name}: {str(error).splitlines()[0]}", hint="fix the YAML there") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: nested too deeply", hint="is this a configuration file?") from error
    except _NO_VALUE as error:
        raise ConfigError(
            f"{name}: unsupported YAML, such as a line that begins with % or a list as a key",
            hint="write sections of keys: diagevo config show",
        ) from error
    finally:
        if parser is not None:
            parser.dispose()
