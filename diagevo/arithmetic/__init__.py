"""The embedded world: questions whose truth can be computed, and a small model with misconceptions.

A laboratory: anything measured here is a figure of the arithmetic world, and no more. It is built so that
a schedule can matter: free exploration mostly writes what the model already knows (`families`), and each of
its false beliefs concerns one step of one family (`misconceptions`).
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagevo.arithmetic.heldout import held_out, is_held_out
    from diagevo.arithmetic.rule_diagnostician import RuleDiagnostician
    from diagevo.arithmetic.truth import answer

WRITES = "free exploration mostly writes the families of the head, which the solver nearly knows"
PREMISE = f"arithmetic world: {WRITES}"
"""Shown with every result of this world."""

WEIGHTS = Path(__file__).parent / "weights"
"""Hugging Face folder of the shipped model: challenger and solver both start from it."""

METHOD_WEIGHTS = Path(__file__).parent / "method_weights"
"""The same model after one more phase of pretraining, in which it learned to read every method's prompts."""

PROMPTS = Path(__file__).parent / "prompts"
"""The world's short prompts, a folder of templates like any user's."""

__all__ = [
    "METHOD_WEIGHTS",
    "PREMISE",
    "PROMPTS",
    "WEIGHTS",
    "WRITES",
    "RuleDiagnostician",
    "answer",
    "held_out",
    "is_held_out",
]
_HOMES = {
    "RuleDiagnostician": "diagevo.arithmetic.rule_diagnostician",
    "held_out": "diagevo.arithmetic.heldout",
    "is_held_out": "diagevo.arithmetic.heldout",
    "answer": "diagevo.arithmetic.truth",
}


def __getattr__(name: str) -> Any:
    # Loaded at first use: most users of this package need only a sentence or a folder.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
