"""What the executor gives for honest programs, and how it says what it refuses."""

import ast
import os
import sys

import pytest

from diagevo import doctor
from diagevo.config.loading import resolve
from diagevo.executing import executor
from diagevo.executing.child import written
from diagevo.executing.executor import WALLS, Execution, PythonExecutor, read_literal, same_literal
from diagevo.executing.syntax import ProgramRefused, check_program
from tests.executing.honest import HONEST

pytestmark = pytest.mark.slow
RUN = PythonExecutor(2)
_BEYOND = "1" + "0" * 400 + "+1j"
"""A literal by its form, whose sum no float can hold."""


@pytest.mark.parametrize("part", range(2))
def test_an_honest_program_gives_its_value(part: int) -> None:
    programs = HONEST[part::2]
    found = RUN.run_many([(program, [given]) for program, given, _ in programs])
    for (program, _, value), execution in zip(programs, found, strict=True):
        assert execution.refused is None, (program, execution)
        assert [ast.literal_eval(output) for output in execution.outputs] == [value], program


def test_there_are_more_than_forty_of_them() -> None:
    assert len({program for program, _, _ in HONEST}) == len(HONEST) > 40


def test_each_input_is_a_run_of_its_own_and_the_results_stand_in_order() -> None:
    program = "seen = []\ndef f(x):\n    seen.append(x)\n    return seen"
    assert RUN.run(program, ["1", "2", "3"]).outputs == ("[1]", "[2]", "[3]")


def test_what_one_input_leaves_for_the_next_is_no_determinism() -> None:
    """A class of a module is the same in all runs of a process; the second run plays them the other way."""
    program = "from collections import Counter\ndef f(x):\n    try:\n        old = Counter.last\n"
    program += "    except AttributeError:\n        old = 0\n    Counter.last = x\n    return old"
    assert RUN.run(program, ["1"]).outputs == ("0",)
    assert RUN.run(program, ["1", "2"]).refused == "not_deterministic"


@pytest.mark.parametrize(
    ("second", "kind"),
    [("timeout", "timeout"), ("memory", "memory"), ("not_executable", "not_deterministic")],
)
def test_a_second_run_that_ends_at_a_limit_is_no_other_result(
    monkeypatch: pytest.MonkeyPatch, second: executor.Refusal, kind: str
) -> None:
    runs = iter([Execution(outputs=("1",)), Execution(refused=second)])
    monkeypatch.setattr(executor, "_played", lambda *_: next(runs))
    assert RUN.run("def f(x):\n    return x", ["1"]).refused == kind


def test_one_bad_input_refuses_them_all() -> None:
    found = RUN.run("def f(x):\n    return 1 // x", ["1", "0"])
    assert (found.refused, found.why, found.outputs) == ("not_executable", "ZeroDivisionError", ())


@pytest.mark.parametrize(
    "given",
    [
        "print",
        "f(1)",
        "1), f(2",
        "1); f(2",
        "*[1]",
        "**{'x': 1}",
        "x := 1",
        "[i for i in (1,)]",
        "1 +",
        "'",
        "1 #\n)",
        _BEYOND,
    ],
)
def test_an_input_is_literals_and_nothing_else(given: str) -> None:
    assert RUN.run("def f(*a, **k):\n    return 1", [given]).refused == "not_literal"


def test_an_input_may_end_in_a_comment_or_a_comma() -> None:
    assert RUN.run("def f(a, b):\n    return a - b", ["3, 1  # three and one", "b=1, a=3,"]).outputs == (
        "2",
        "2",
    )


def test_an_input_or_program_beyond_its_length_is_not_run() -> None:
    assert RUN.run("def f(x):\n    return 1", ["'" + "a" * 5000 + "'"]).refused == "too_long"
    assert RUN.run("def f(x):\n    return 1\n" + "#" * 17_000, ["1"]).refused == "too_long"
    with pytest.raises(ValueError, match="1 to 16 inputs"):
        RUN.run("def f(x):\n    return 1", [])


def test_a_set_is_one_value_in_whatever_order_it_is_written() -> None:
    assert RUN.run("def f(x):\n    return {'aa', 'bb', 'cc', 'dd', 'ee'}", ["1"]).refused is None
    assert same_literal("{1, 2}", "{2, 1}")
    assert same_literal("1.0", " 1 ")
    assert not same_literal("1", "'1'")
    assert not same_literal("f(1)", "f(1)")


def test_a_text_that_is_no_literal_is_none() -> None:
    for text in ("print", "1 + x", "[" * 300, "-" * 3000 + "1", "'a" * 2000, "\x00", "\ud800", "", _BEYOND):
        assert read_literal(text) is None
    assert read_literal("None") == (None,)


def test_only_exact_values_are_written() -> None:
    class Text(str):
        pass

    assert written([1, "a", {"b": (None, True, 1.5)}, {2}, b"c"]) == (
        "[1, 'a', {'b': (None, True, 1.5)}, {2}, b'c']"
    )
    for value in (
        Text("a"),
        [Text("a")],
        {Text("a"): 1},
        {1: Text("a")},
        object(),
        float("nan"),
        complex("infj"),
    ):
        with pytest.raises(ProgramRefused):
            written(value)


def test_every_node_of_an_allowed_program_is_on_the_list() -> None:
    with pytest.raises(ProgramRefused, match="AsyncFunctionDef"):
        check_program(ast.parse("async def f(): pass"))
    for program, _, _ in HONEST:
        check_program(ast.parse(program))


def test_the_result_says_what_held_the_process() -> None:
    found = RUN.run("def f(x):\n    return x", ["1"])
    assert found.walls is not None
    assert found.walls <= set(WALLS)
    assert RUN.walls() == found.walls
    assert RUN.run("import os", ["1"]).walls is None


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's walls are Linux's")
def test_without_the_kernels_walls_a_run_says_so_and_still_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a kernel that allows neither namespaces nor filters: the hook and the limits refuse."""
    bare = "import sys, types\nsys.path.append(sys.argv[1])\nfrom diagevo.executing import child, walls\n"
    bare += (
        "walls.sys = types.SimpleNamespace(platform='other', maxsize=sys.maxsize, byteorder=sys.byteorder)\n"
    )
    lists = "child.check_program = lambda tree: None\nworld = child._world\n"
    lists += "child._world = lambda m: {**world(m), '__builtins__': __builtins__.__dict__}\n"
    monkeypatch.setattr(executor, "_CHILD", bare + "child.main()")
    assert RUN.walls() <= {"unprivileged"}
    monkeypatch.setattr(executor, "_CHILD", bare + lists + "child.main()")
    for program in (
        "import socket\ndef f(x):\n    return socket.socket().fileno()",
        "import os\ndef f(x):\n    return os.open('/etc/passwd', 0)",
        "import os\ndef f(x):\n    return os.fork()",
        "import os\ndef f(x):\n    return os.kill(0, 0)",
    ):
        found = RUN.run(program, ["1"])
        assert (found.refused, found.why) == ("banned", "it reached for the system")


@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        (b"", 0, "not_executable"),
        (b"\xff\xfe", 0, "not_executable"),
        (b"[" * 100_000, 0, "not_executable"),
        (b'{"outputs": ["print"]}', 0, "not_executable"),
        (b'{"outputs": ["1", "2"]}', 0, "not_executable"),
        (b'{"outputs": [1]}', 0, "not_executable"),
        (b'{"outputs": "1"}', 0, "not_executable"),
        (b'{"outputs": ["1"]}', -9, "timeout"),
        (b'{"outputs": ["1"]}', -31, "banned"),
        (b'{"outputs": ["1"]}', -11, "not_executable"),
        (b'{"refused": "mine", "why": 3}', 0, "not_executable"),
        (b'{"refused": ["mine"], "walls": 3}', 0, "not_executable"),
        (b'{"refused": "memory", "walls": [[], "mine"]}', 0, "memory"),
        (b'{"outputs": ["' + b"9" * 5000 + b'"]}', 0, "not_executable"),
    ],
)
def test_an_answer_is_read_as_a_strangers(answer: bytes, code: int, kind: str) -> None:
    found = executor._read(answer, code, 1)
    assert (found.refused, found.outputs) == (kind, ())


def test_what_a_program_says_of_itself_is_bounded() -> None:
    name = "E" * 3000
    found = RUN.run(f"class {name}(Exception):\n    pass\ndef f(x):\n    raise {name}()", ["1"])
    assert found == Execution(refused="not_executable", why="E" * 200, walls=found.walls)


def test_a_process_that_never_stops_writing_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_CHILD", "import os\nwhile True: os.write(1, b'1' * 65536)")
    assert PythonExecutor(1, 60.0).run("", ["1"]).refused == "too_long"
    monkeypatch.setattr(executor, "_CHILD", "import os, time\nos.close(1)\ntime.sleep(60)")
    assert PythonExecutor(1, 5.0).run("", ["1"]).refused == "timeout"


def test_nothing_of_this_process_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    said = "import os, json\nopen_ = len(os.listdir('/proc/self/fd')) - 1\n"
    said += "found = [sorted(os.environ), os.listdir(), open_]\n"
    said += "print(json.dumps({'outputs': [repr(found)]}))"
    monkeypatch.setattr(executor, "_CHILD", said)
    try:
        [text] = PythonExecutor(1).run("", ["1"]).outputs
    finally:
        os.close(reading)
        os.close(writing)
    variables, files, descriptors = ast.literal_eval(text)
    assert set(variables) <= {"PYTHONHASHSEED", "LC_CTYPE"}  # the second is Python's own
    assert (files, descriptors) == ([], 3)


def test_doctor_says_what_holds_a_program_where_a_method_runs_any(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve(profile="qwen3-4b", settings=["method=absolute-zero"], environ={}).config
    monkeypatch.setattr(PythonExecutor, "walls", lambda _: frozenset(WALLS))
    [check] = doctor._executor(config)
    assert (check.state, check.fix) == ("ok", "")
    monkeypatch.setattr(PythonExecutor, "walls", lambda _: frozenset({"unprivileged"}))
    [check] = doctor._executor(config)
    assert check.state == "warn"
    assert "not held: no network: a namespace without one" in check.found
    assert list(doctor._executor(config.model_copy(update={"method": "diagevo"}))) == []
