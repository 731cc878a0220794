"""Checks the arguments of `Memory`'s methods against their annotations: a wrong type is refused at the
call, with nothing written, and an event is normalized to the form in which it will be read."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from diagevo.errors import ConfigError
from diagevo.memory.events import Event, Value
from diagevo.memory.events.records import UnstorableText, recordable, storable_event

P = ParamSpec("P")
T = TypeVar("T")


def checked(verb: Callable[P, T]) -> Callable[P, T]:
    """The verb, wrapped to refuse arguments that do not match its annotations with ConfigError."""
    signature = inspect.signature(verb)
    hints: dict[str, Any] = {}

    @wraps(verb)
    def checking(*args: P.args, **kwargs: P.kwargs) -> T:
        if not hints:  # once per verb, and not at import time
            hints.update(get_type_hints(verb))
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(
                f"{verb.__name__}: {error}", hint=f"it is {verb.__name__}{signature}"
            ) from error
        for name, value in list(given.arguments.items())[1:]:  # after self
            if not _fits(value, hints[name]):
                raise ConfigError(
                    f"{verb.__name__}: {name} is {_shown(value)}, not {_spelled(hints[name])}",
                    hint=f"help(diagevo.Memory.{verb.__name__}) says what it takes",
                )
            given.arguments[name] = _taken(value)
        return verb(*given.args, **given.kwargs)

    return checking


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value matches an annotation. What this does not know is left to the verb."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is Sequence:
        items: Any = value
        return isinstance(value, list | tuple) and all(_fits(item, get_args(hint)[0]) for item in items)
    if origin is Mapping or origin is dict:
        return isinstance(value, Mapping)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    if hint in (str, bool, NoneType) or (isinstance(hint, type) and issubclass(hint, Value)):
        return isinstance(value, hint)
    return True


def _taken(value: Any) -> Any:
    """An event, or a list of them, in the form that the log keeps. Raises ConfigError."""
    if isinstance(value, Event):
        try:
            return recordable(value)[0]
        except UnstorableText:
            return storable_event(value)
    if isinstance(value, list | tuple):
        return [_taken(item) for item in cast("Sequence[Any]", value)]
    return value


def _shown(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        kinds = {type(item).__name__: None for item in cast("Sequence[Any]", value)}
        return f"a {kind} of {' and '.join(kinds) or 'nothing'}"
    if isinstance(value, str | int | float | NoneType):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:40]}…"
    return f"of type {kind}"


def _spelled(hint: Any) -> str:
    """An annotation in a caller's words."""
    if isinstance(hint, type):
        return {int: "an int", float: "a number", str: "a str", NoneType: "None"}.get(hint, hint.__name__)
    if get_origin(hint) is Sequence:
        return f"a list of {_spelled(get_args(hint)[0]).removeprefix('a ')}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_spelled(one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    return str(hint)


def refuse_blank(what: str, text: str | None) -> None:
    """Raises ConfigError for blank text."""
    if text is not None and not text.strip():
        raise ConfigError(f"{what} is blank", hint="say it in a sentence")


def refuse_other_stage(stage: str, stages: Sequence[str]) -> None:
    """Raises ConfigError for an unknown stage."""
    if stage not in stages:
        raise ConfigError(f"there is no stage {_shown(stage)}", hint=f"stages are {', '.join(stages)}")
