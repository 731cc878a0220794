"""The screens of `memory why`: the story of a cause, a node, a question or a failure in words."""

from .cause import cause_screen
from .failure import failure_screen
from .node import node_screen
from .question import question_screen

__all__ = ["cause_screen", "failure_screen", "node_screen", "question_screen"]
