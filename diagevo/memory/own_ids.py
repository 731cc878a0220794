"""A trainer's own ids. Questions are `r3.q318` and failures `r3.q318.a5` throughout: the log, the views
and the pages use these. A trainer may give its own id instead, wherever one is expected; `IdGiven` keeps it
beside ours.

Within a round such an id names one question and one failure. In another round it may name another: the last
round's takes precedence.
"""

import re
from collections.abc import Iterable
from typing import Literal

from diagevo.errors import ConfigError
from diagevo.memory.events import IdGiven
from diagevo.memory.log.log import Log
from diagevo.memory.state.model import OpenRound
from diagevo.text.escaping import shortened, storable

Named = Literal["question", "failure"]
LONGEST = 500
"""Maximum characters of an id."""
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_LIKE_OURS = re.compile(r"r\d+\.q\d+(\.a\d+)?")


def question_of(now: OpenRound | None, id_: str) -> str:
    """Our id of the open round's question with this id; otherwise the id itself."""
    return id_ if now is None or id_ in now.candidates else now.questions_named.get(storable(id_), id_)


def failure_of(now: OpenRound | None, id_: str) -> str:
    """Our id of the open round's failure with this id; otherwise the id itself."""
    return id_ if now is None or id_ in now.failures else now.failures_named.get(storable(id_), id_)


class Numbering:
    """Our ids for one call that records in a round: each new trainer's id gets the next number."""

    def __init__(self, now: OpenRound, given: Iterable[str]) -> None:
        """`given`: all ids of the call, ours among them."""
        self._now, self._given = now, set(given)
        self.own_ids: dict[str, str] = {}
        """New ids, by ours."""
        self._new: dict[tuple[Named, str], str] = {}

    def question(self, id_: str) -> str:
        """Our id of a question. Raises ConfigError for an invalid id."""
        now, before = self._now, f"r{self._now.number}.q"
        if _is_ours(id_, before):
            return id_
        known = self._new.get(("question", id_)) or now.questions_named.get(id_)
        return known or self._numbered("question", id_, before, len(now.candidates))

    def failure(self, id_: str, question_id: str) -> str:
        """Our id of a failure on a question, given by our id. Raises ConfigError for an invalid id."""
        now, before = self._now, f"{question_id}.a"
        if _is_ours(id_, before):
            return id_
        known = self._new.get(("failure", id_)) or now.failures_named.get(id_)
        if known is not None and not known.startswith(before):
            raise ConfigError(
                f"{shortened(id_, 40)} is the id of a failure on another question of the round",
                hint="an id names one failure in a round",
            )
        return known or self._numbered("failure", id_, before, 0)

    def _numbered(self, kind: Named, id_: str, before: str, number: int) -> str:
        now = self._now
        there = now.candidates if kind == "question" else now.failures
        taken = there, now.own_ids, self.own_ids, self._given
        while any((ours := f"{before}{number}") in one for one in taken):
            number += 1
        self._new[kind, id_], self.own_ids[ours] = ours, id_
        return ours


def _is_ours(id_: str, before: str) -> bool:
    """Whether an id is one of ours here. Raises ConfigError if it is invalid."""
    if id_.startswith(before) and _NUMBER.fullmatch(id_, len(before)):
        return True
    refuse_no_id(id_, before)
    return False


def refuse_no_id(id_: str, before: str) -> None:
    """Raises ConfigError for an id that is blank, too long, or looks like our id of something else."""
    if not id_.strip():
        raise ConfigError(f"the id {id_!r} is blank", hint=f"number them {before}0, {before}1, …")
    if len(id_) > LONGEST:
        raise ConfigError(
            f"the id {shortened(id_, 40)} is too long: {LONGEST} characters at most",
            hint="its digest, or a number, is an id too",
        )
    if _LIKE_OURS.fullmatch(id_.strip().lower()):
        raise ConfigError(
            f"the id {shortened(id_, 40)!r} would be another question's or failure's here",
            hint=f"number them {before}0, {before}1, …, or give an id that does not look like these",
        )


def named_so(log: Log, run_id: str, own_id: str, until: int | None = None) -> dict[Named, str]:
    """Our ids of the last question and the last failure with this trainer's id."""
    wanted, found = storable(own_id), dict[Named, str]()
    for fact in log.chosen(run_id, [IdGiven], until=until):
        if fact.event.own_id == wanted:
            found["failure" if ".a" in fact.event.named else "question"] = fact.event.named
    return found
