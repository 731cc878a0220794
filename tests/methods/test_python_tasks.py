"""Absolute Zero's tasks in Python: read from a completion, put to the solver, and answers executed."""

import pytest

from diagevo.config.models import AbsoluteZeroConfig
from diagevo.methods.python_tasks import PythonTasks, blocks
from diagevo.methods.tasks import ProgramTask

pytestmark = pytest.mark.slow
WORLD = PythonTasks(AbsoluteZeroConfig(inputs=4))
ADD = "def f(a, b=1):\n    return a + b"
PROPOSED = f"I think.\n\n```python\n{ADD}\n```\n\n```input\n2, 3\n```\n"


def _fenced(language: str, *texts: str) -> str:
    return "\n".join(f"```{language}\n{text}\n```" for text in texts)


def test_the_blocks_of_a_language_are_found_and_no_others() -> None:
    assert blocks("```Python\na\n```\n ```input\n1\n```\n```input  \n 2 \n```", "input") == ["1", "2"]
    assert blocks("```\n1\n```\n```input\n```", "input") == [""]
    assert blocks("```input\n1", "input") == blocks("```input 1```", "input") == []
    assert blocks("```input\n" * 20_000, "input") == [""] * 10_000


def test_a_program_with_an_input_is_a_task_whose_output_was_executed() -> None:
    for kind in ("deduction", "abduction"):
        assert WORLD.read(kind, PROPOSED, []) == ProgramTask(kind, ADD, ("2, 3",), ("5",))


def test_an_induction_takes_the_last_inputs_of_the_program_that_was_shown() -> None:
    said = _fenced("input", "0", "1", "2, 2", "b=3, a=3", "4") + "\n" + _fenced("message", "it adds")
    task = WORLD.read("induction", said, [ProgramTask("induction", ADD, ("1",), ("2",))])
    assert task == ProgramTask(
        "induction", ADD, ("1", "2, 2", "b=3, a=3", "4"), ("2", "4", "6", "5"), message="it adds"
    )
    assert isinstance(task, ProgramTask)
    asked = WORLD.question(task)
    assert task.label == "[6, 5]"
    assert "```input\n2, 2\n```\n```output\n4\n```" in asked
    assert "it adds" in asked
    assert "a=3" not in asked
    assert ADD not in asked


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        ("deduction", "nothing", "unreadable"),
        ("deduction", _fenced("python", ADD), "unreadable"),
        ("deduction", PROPOSED.replace("2, 3", "x"), "not_executable"),
        ("deduction", PROPOSED.replace("2, 3", "'a', 1"), "not_executable"),
        ("abduction", PROPOSED.replace("a + b", "open('x')"), "banned"),
        ("abduction", PROPOSED.replace("a + b", "str(object())"), "not_deterministic"),
        ("abduction", PROPOSED.replace("a + b", "'a' * 5000"), "too_long"),
        ("induction", _fenced("input", "1", "2", "3", "4"), "unreadable"),
        ("induction", _fenced("input", "1", "2", "3") + "\n" + _fenced("message", "m"), "unreadable"),
        (
            "induction",
            _fenced("input", "1", "2", "3", "[]") + "\n" + _fenced("message", "m"),
            "not_executable",
        ),
    ],
)
def test_what_is_no_task_has_a_reason(kind: str, said: str, why: str) -> None:
    assert WORLD.read(kind, said, [ProgramTask("induction", ADD, ("1",), ("2",))]) == why  # type: ignore[arg-type]


def test_a_deduction_is_right_where_the_literal_has_the_value() -> None:
    task = ProgramTask("deduction", "def f(a):\n    return {a: [a, 'x']}", ("1",), ("{1: [1, 'x']}",))
    said = ['{1:[1,"x"]}', "{1: [1, 'y']}", "print(1)"]
    answers = WORLD.answers([(task, _fenced("output", text)) for text in [*said, ""]] + [(task, said[0])])
    assert answers == [task.label, "{1: [1, 'y']}", "print(1)", None, None]
    assert "```input\n1\n```" in WORLD.question(task)
    assert "'x']}" in WORLD.question(task).partition("```input")[0]  # in the program alone


def test_any_input_that_gives_the_output_is_right_in_an_abduction() -> None:
    task = ProgramTask("abduction", "def f(a):\n    return a * a", ("3",), ("9",))
    said = ["-3", "3.0", "2", "'a'", "__import__('os')", "3, 4"]
    answers = WORLD.answers([(task, _fenced("input", text)) for text in said])
    assert answers == ["9", "9", "4", "not_executable", "not_literal", "not_executable"]
    assert "```output\n9\n```" in WORLD.question(task)
    assert "```input\n3" not in WORLD.question(task)


def test_a_program_that_gives_all_hidden_outputs_is_right_in_an_induction() -> None:
    task = ProgramTask("induction", ADD, ("1", "2, 2", "3, 3", "4"), ("2", "4", "6", "5"))
    said = [
        "def f(x, y=1):\n    return y + x",
        "def f(x, y=1):\n    return 2 * x",
        "def f(x):\n    return x",
        "import os\ndef f(x, y=1):\n    return x + y",
        "no program",
    ]
    answers = WORLD.answers([(task, _fenced("python", text)) for text in said])
    assert answers == [task.label, "[6, 8]", "not_executable", "banned", "not_executable"]


def test_a_prompt_shows_past_tasks_and_for_an_induction_the_program_alone() -> None:
    past = [ProgramTask("deduction", ADD, ("2, 3",), ("5",)), WORLD.seeds[0]]
    [turn] = WORLD.asks("deduction", past)
    assert turn["content"].count("```input") == 3  # and the form of the reply
    assert ADD in turn["content"]
    assert "Here are 2 " in turn["content"]
    [turn] = WORLD.asks("induction", past[:1])
    assert "Write 4 inputs" in turn["content"]
    assert "2, 3" not in turn["content"]
