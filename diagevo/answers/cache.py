"""What is remembered by text, in bounded memory: an answer is a few characters, but nobody promised that."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

Result = TypeVar("Result")
BRIEF = 256
"""Characters up to which a text is an answer like most."""
BRIEF_KEPT = 8192
LONG_KEPT = 128
"""The long answers of as many questions as are compared side by side."""


class remembered(Generic[Result]):
    """A function of a text, with its latest results kept: many of brief texts, few of long ones."""

    def __init__(self, work: Callable[[str], Result]) -> None:
        self.__doc__ = work.__doc__
        self.brief, self.long = lru_cache(BRIEF_KEPT)(work), lru_cache(LONG_KEPT)(work)

    def __call__(self, text: str) -> Result:
        return (self.brief if len(text) <= BRIEF else self.long)(text)

    def cache_clear(self) -> None:
        self.brief.cache_clear()
        self.long.cache_clear()


def brief(text: str) -> str:
    """What stands for a text in a key: itself, or the digest of a long one."""
    return text if len(text) <= BRIEF else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
