"""Whether a question of the arithmetic world is related to a document: a rule in place of a model."""

import re
from collections.abc import Sequence


class NumbersJudge:
    """A `RelatednessJudge`: a question is related if it has numbers, and the document has them all."""

    def related(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        found = [(_numbers(document), _numbers(question)) for document, question in pairs]
        return [bool(asked) and asked <= there for there, asked in found]


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))
