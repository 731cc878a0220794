"""Each equation of the paper has one home, and what names an equation names it by the paper's number."""

import ast
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.equations.policy import Frequency, Known, shares

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "paper" / "diagevo.tex"
LABELS = {
    1: "eq:eps",
    2: "eq:mixed_generation",
    3: "eq:filtering",
    4: "eq:memory_representation",
    5: "eq:comparative_extraction",
    6: "eq:promotion_score",
    7: "eq:provisional_promotion",
    8: "eq:state_frequency_transition",
    9: "eq:uncertainty_reward",
    10: None,
    11: "eq:challenger_reward",
}
"""The number that LaTeX gives, and the label; the distance between questions has none."""
HOMES = {
    "1, z": "diagevo.equations.schedule.z",
    "1, ε": "diagevo.equations.schedule.epsilon",
    "1, p": "diagevo.equations.policy.shares",
    "2, the weight of a cause": "diagevo.equations.schedule.aimed_share",
    "2, one draw": "diagevo.equations.schedule.draw",
    "3": "diagevo.equations.filter.verdict",
    "4": "diagevo.memory.state.model.MemoryState",  # what a memory is: a type
    "5": "diagevo.diagnosis.diagnostician.Diagnostician.extract",  # a model's answer, not arithmetic
    "6": "diagevo.equations.states.Tally.score",
    "7": "diagevo.equations.states.provisional",
    "8": "diagevo.equations.states.counted",
    "9": "diagevo.equations.rewards.uncertainty",
    "10": "diagevo.equations.repetition.distances",
    "11": "diagevo.equations.rewards.challenger_rewards",
}
"""A docstring that begins "Equation N:" (or "Equation N, part:") says: here it is."""
_HOME = re.compile(r"Equation (\d+(?:, [^:]+)?):")
_THRESHOLDS = {"p_low", "p_high", "tau", "theta_up"}


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for folder, package in ((ROOT / "diagevo", "diagevo"), (ROOT / "cli", "diagevo.cli")):
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *parts)).removesuffix(".__init__"), ast.parse(file.read_text())


def _documented(tree: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Every class and function below `tree` with its docstring."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{node.name}", ast.get_docstring(node) or ""
            yield from _documented(node, f"{name}.{node.name}")


def test_every_equation_has_exactly_one_home() -> None:
    found: dict[str, list[str]] = {}
    for module, tree in _sources():
        for name, text in _documented(tree, module):
            if (home := _HOME.match(text)) is not None:
                found.setdefault(home[1], []).append(name)
    assert found == {equation: [name] for equation, name in HOMES.items()}
    assert {int(equation.split(",")[0]) for equation in HOMES} == set(LABELS)


def test_the_numbers_are_the_papers() -> None:
    if not PAPER.exists():
        pytest.skip("the paper's source is not beside this checkout")
    equations = re.findall(r"\\begin\{equation\}(.*?)\\end\{equation\}", PAPER.read_text(), re.DOTALL)
    labels = [re.search(r"\\label\{(.+?)\}", equation) for equation in equations]
    assert {n: label and label[1] for n, label in enumerate(labels, 1)} == LABELS


SUBJECTS = {
    1: ("ε", "schedule", "z", "f(e) / F"),
    2: ("draw", "weigh", "schedule", "how often"),
    3: ("filter", "retain", "kept", "τ", "tau", "votes"),
    4: ("memory", "nodes", "cause e ="),
    5: ("trajectory", "difference", "compares"),
    6: ("acc", "mean", "promot", "p₁", "passes", "votes", "P_t(e)", "states", "state_updates"),
    7: ("promot", "θ_up", "P_t(e)", "states", "state_updates"),
    8: ("failure", "counted", "Δ", "states", "state_updates"),
    9: ("uncertain", "reward", "|p1"),
    10: ("distance", "BLEU", "reward", "repetition"),
    11: ("reward", "uncertainty and repetition"),
}
"""What a text that names an equation speaks of: one of these stands beside the number."""
_MENTION = re.compile(r"Equations? (\d+)((?:(?:, then |, | and | to |[-–])\d+)*)")
_MORE = re.compile(r"(, then |, | and | to |[-–])(\d+)")


def _mentioned(text: str) -> Iterator[tuple[int, int]]:
    """Every equation that a text names, with the place: "6 to 8" names three."""
    for match in _MENTION.finditer(text):
        numbers = [int(match[1])]
        for joined, number in _MORE.findall(match[2]):
            first = numbers[-1] + 1 if joined in (" to ", "-", "–") else int(number)
            numbers += range(first, int(number) + 1)
        yield from ((match.start(), number) for number in numbers)


def _beside(text: str, place: int) -> str:
    """The lines around a place: the one that names the equation, three before it and three after."""
    before, after = text[:place].split("\n"), text[place:].split("\n")
    return "\n".join([*before[-4:], *after[:4]])


def test_every_mention_of_an_equation_is_of_what_the_equation_says() -> None:
    folders = (ROOT / "diagevo", ROOT / "cli", ROOT / "docs", ROOT / "README.md")
    files = [f for folder in folders for f in ([folder] if folder.is_file() else folder.rglob("*"))]
    wrong, seen = [], set()
    for file in sorted(f for f in files if f.suffix in (".py", ".md", ".js", ".html", ".yaml")):
        text = file.read_text(encoding="utf-8")
        for place, number in _mentioned(text):
            seen.add(number)
            beside = _beside(text, place).casefold()
            if number not in SUBJECTS or not any(word.casefold() in beside for word in SUBJECTS[number]):
                wrong.append(f"{file.relative_to(ROOT)}: Equation {number}")
    assert wrong == []
    assert seen == set(LABELS)


def test_a_number_that_is_another_equations_is_found() -> None:
    assert list(_mentioned("by Equations 6 to 8, then 1")) == [(3, 6), (3, 7), (3, 8), (3, 1)]
    assert list(_mentioned("(Equations 9-11)")) == [(1, 9), (1, 10), (1, 11)]
    assert list(_mentioned("Equations 6, 7 and 8")) == [(0, 6), (0, 7), (0, 8)]


def _names(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} | {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name)
    }


def test_no_threshold_is_compared_and_no_failures_are_divided_outside_the_equations() -> None:
    """A second copy of an inequality or of z is how two answers come to differ."""
    copies = []
    for module, tree in _sources():
        if module.startswith(("diagevo.equations.", "diagevo.config.")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                against = [_names(side) & _THRESHOLDS for side in (node.left, *node.comparators)]
                if any(against) and not all(against):  # two bounds beside each other are no votes
                    copies.append(f"{module}:{node.lineno}")
            if isinstance(node, ast.Call) and "Fraction" in _names(node.func) and len(node.args) == 2:
                named = _names(node.args[1])
                if any("reference" in name or name == "failures" for name in named):
                    copies.append(f"{module}:{node.lineno}")
    assert copies == []


_PRINTED = re.compile(r"f₁?(\(e\))? ?/ ?F|F₁ ?/ ?\(")


def test_no_formula_of_p_or_epsilon_is_written_where_it_is_not_computed() -> None:
    """A screen, page or help text that has one shows it for every policy, whatever that policy computes."""
    folders = ((ROOT / "diagevo", "*.py"), (ROOT / "cli", "*.py"), (ROOT / "diagevo", "*.html"))
    files = [file for folder, names in folders for file in folder.rglob(names)]
    written = [file for file in files if _PRINTED.search(file.read_text(encoding="utf-8"))]
    assert {file.relative_to(ROOT).parts[:2] for file in written} <= {("diagevo", "equations")}


def _worked_out(formula: str) -> Fraction:
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", formula), {"Fraction": Fraction})


_COUNTS = st.integers(1, 10**6)


@given(f=_COUNTS, rest=st.integers(0, 10**6), first=_COUNTS, k=st.fractions(Fraction(1, 100), 100))
def test_the_formulas_that_a_policy_gives_come_to_its_numbers(
    f: int, rest: int, first: int, k: Fraction
) -> None:
    policy, total = Frequency(), f + rest
    p = shares(policy, {"c1": f, "c2": rest})["c1"].p
    assert _worked_out(policy.p_formula(str(f), str(total))) == p
    formula = policy.epsilon_formula(str(first), str(total), f"({k})")
    assert formula is not None
    assert _worked_out(formula) == policy.epsilon(Known(1, total, first, k))
