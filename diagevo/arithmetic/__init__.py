"""The embedded world: questions whose truth can be computed, and a small model with misconceptions.

A laboratory: whatever is measured here is a figure of the arithmetic world, and no more. It is built so that
a schedule can matter: free exploration mostly writes what the model knows already (`families`), and what it
believes wrongly is of one step of one family each (`misconceptions`).
"""

from pathlib import Path

from diagevo.arithmetic.diagnostician import RuleDiagnostician
from diagevo.arithmetic.heldout import held_out, is_held_out
from diagevo.arithmetic.truth import answer

WEIGHTS = Path(__file__).parent / "weights"
"""Hugging Face folder of the shipped model: challenger and solver both start from it."""

PROMPTS = Path(__file__).parent / "prompts"
"""The world's short prompts, a folder of templates like any user's."""

__all__ = ["PROMPTS", "WEIGHTS", "RuleDiagnostician", "answer", "held_out", "is_held_out"]
