"""The process in which a model's program runs: it checks the program, sandboxes itself, runs it, and answers.

Started by `executor` with nothing but the standard library and this package.
"""

import ast
import builtins
import copy
import copyreg
import json
import math
import os
import sys
import types
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TextIO, cast

from diagevo.executing.syntax import (
    ALSO_LOADED,
    BUILTINS,
    HINTS,
    MODULES,
    PROGRAM_CHARACTERS,
    ProgramRefused,
    check_program,
)
from diagevo.executing.walls import MEMORY_BYTES, limit, wall_in

LITERAL_BYTES = 4096
"""An input or an output as text."""


class _Hint:
    """Stands for any type in an annotation."""

    def __getitem__(self, _: object) -> "_Hint":
        return self

    def __or__(self, _: object) -> "_Hint":
        return self

    __ror__ = __or__


def _type_of(value: object) -> type:
    """`type` of one value; for a class it would be `type` itself, which creates classes."""
    if isinstance(value, type):
        raise TypeError("the type of a class is not available")
    return type(value)


_rebuild: Callable[..., object] = copy.__dict__["_reconstruct"]
_MAKERS = (copyreg.__dict__["__newobj__"], iter)


def _rebuilt(value: object, memo: object, maker: object, *parts: object) -> object:
    """How `copy` rebuilds a value with `__reduce__`; here, only through its class.

    A method reduces to `getattr`, with an object and a name that a program can choose.
    """
    if not (isinstance(maker, type) or any(maker is each for each in _MAKERS)):
        raise TypeError(f"a {type(value).__name__} is not copied")
    return _rebuild(value, memo, maker, *parts)


def _deepcopy(x: object) -> object:
    """Without the memo of copied values, which could replace a value's parts."""
    return copy.deepcopy(x)


def _world(modules: Mapping[str, types.ModuleType]) -> dict[str, Any]:
    """The globals of one run, fresh for each."""
    spaces: dict[str, types.ModuleType] = {}
    for name, names in MODULES.items():
        if name in HINTS or name in modules:
            spaces[name] = types.ModuleType(name)
            hinted = name in HINTS
            for each in names.split():
                setattr(spaces[name], each, _Hint() if hinted else getattr(modules[name], each))
    if "copy" in spaces:
        spaces["copy"].__dict__["deepcopy"] = _deepcopy

    def importing(
        name: str, _globals: Any = None, _locals: Any = None, _names: Any = (), level: int = 0
    ) -> Any:
        if level or name not in spaces:
            raise ImportError(f"{name} is not available")
        return spaces[name]

    allowed = {name: getattr(builtins, name) for name in BUILTINS}
    allowed |= {"print": lambda *_, **__: None, "type": _type_of}
    allowed |= {"__build_class__": builtins.__build_class__, "__import__": importing}
    return {"__builtins__": allowed, "__name__": "program"}


def parse_call(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments in an input, `1, [2], key="x"`. Raises ProgramRefused for anything
    else."""
    try:
        tree = ast.parse(f"f({text}\n)", mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "f":
            named = {word.arg: ast.literal_eval(word.value) for word in tree.keywords if word.arg is not None}
            if len(named) == len(tree.keywords):
                return [ast.literal_eval(each) for each in tree.args], named
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        pass
    raise ProgramRefused("not_literal", "an input is not a list of Python literals")


def written(value: object) -> str:
    """A value as a literal that evaluates to it. Raises ProgramRefused if there is none."""
    left = [LITERAL_BYTES]

    def check(item: object, depth: int) -> None:
        left[0] -= 1
        kind = type(item)
        if left[0] < 0:
            raise ProgramRefused("too_long", "the result has too many parts")
        if depth > 50:
            raise ProgramRefused("not_literal", "the result is nested too deeply")
        if kind in (list, tuple, set):
            for each in cast("list[object]", item):
                check(each, depth + 1)
        elif kind is dict:
            for key, each in cast("dict[object, object]", item).items():
                check(key, depth + 1)
                check(each, depth + 1)
        elif kind in (float, complex):
            number = complex(cast("complex", item))
            if not (math.isfinite(number.real) and math.isfinite(number.imag)):
                raise ProgramRefused("not_literal", "the result is not finite")
        elif kind in (str, bytes):
            if len(cast("str", item)) > LITERAL_BYTES:
                raise ProgramRefused("too_long", f"the result is longer than {LITERAL_BYTES} bytes")
        elif kind not in (int, bool, type(None)):
            raise ProgramRefused("not_literal", "the result is not a Python literal")

    check(value, 0)
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = " " * (LITERAL_BYTES + 1)
    if len(text.encode()) > LITERAL_BYTES:
        raise ProgramRefused("too_long", f"the result is longer than {LITERAL_BYTES} bytes")
    return text


def prepare(program: str, calls: list[str]) -> Callable[[Callable[[], None]], list[str]]:
    """Check the program and load its imports; the returned function runs its calls."""
    if len(program) > PROGRAM_CHARACTERS:
        raise ProgramRefused("too_long", f"the program is longer than {PROGRAM_CHARACTERS} characters")
    try:
        tree = ast.parse(program)
        check_program(tree)
        code = compile(tree, "program", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramRefused("not_executable", f"{type(error).__name__}: it cannot be read") from None
    wanted = {name.name for n in ast.walk(tree) if isinstance(n, ast.Import) for name in n.names}
    wanted |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module is not None}
    modules = {name: import_module(name) for name in sorted(wanted - set(HINTS))}
    for name in wanted:
        for also in ALSO_LOADED.get(name, ()):
            import_module(also)
    copy.__dict__["_reconstruct"] = _rebuilt
    arguments = [parse_call(each) for each in calls]
    functions = [part.name for part in tree.body if isinstance(part, ast.FunctionDef)]
    if not functions:
        raise ProgramRefused("not_executable", "it defines no function")
    entry = "f" if "f" in functions else functions[-1]

    def play(seal: Callable[[], None]) -> list[str]:
        worlds = [_world(modules) for _ in arguments]
        results: list[str] = []
        seal()
        for world, (positional, named) in zip(worlds, arguments, strict=True):
            try:
                exec(code, world)
                value = world[entry](*positional, **named)
            except MemoryError:
                raise ProgramRefused("memory", f"it needs more than {MEMORY_BYTES >> 20} MiB") from None
            except BaseException as error:
                raise ProgramRefused("not_executable", type(error).__name__) from None
            results.append(written(value))
        return results

    return play


def _answer(**fields: object) -> None:
    line = json.dumps(fields).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


_REFUSED_BY_HOOK = b'{"refused": "banned", "why": "it reached for the system"}\n'
_NO_MEMORY = b'{"refused": "memory", "why": "it needs more memory"}\n'


_QUIET = frozenset(("exec", "sys.unraisablehook", "builtins.id"))
"""Audit events of allowed programs: startup, an error in a generator that ends, a copy."""


def _seal() -> None:
    """The last step before the program: from here on, any other audit event ends the process."""
    _answer(walls=wall_in())
    write, leave, refused, quiet = os.write, os._exit, _REFUSED_BY_HOOK, _QUIET

    def hook(event: str, _: tuple[object, ...]) -> None:
        if event not in quiet:
            write(1, refused)
            leave(0)

    sys.unraisablehook = lambda _: None
    sys.stdout = cast("TextIO", None)  # a module's output goes nowhere
    sys.addaudithook(hook)


def main() -> None:
    """Read one request from standard input, answer in lines of JSON on standard output."""
    limit()
    request = json.loads(sys.stdin.buffer.read())
    try:
        _answer(outputs=prepare(request["program"], request["inputs"])(_seal))
    except ProgramRefused as refused:
        _answer(refused=refused.kind, why=refused.why[:200])
    except MemoryError:
        os.write(1, _NO_MEMORY)
    os._exit(0)  # none of the program's destructors runs after the answer
