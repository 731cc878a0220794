"""Responses counted for a trainer of one's own, beside a plain count of what stands in their boxes."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import diagevo
from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.memory.state.projected_schedule import Draw
from tests.memory.play import opened

FREE = Draw(0, "free")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    answers=st.lists(st.sampled_from(["7", "12", "30", None]), min_size=1, max_size=12), given=st.booleans()
)
def test_votes_are_those_of_the_answers_and_are_taken(
    answers: list[str | None], given: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = [f"{n}: no answer" if a is None else f"{n}: \\boxed{{{a}}}" for n, a in enumerate(answers)]
    with opened(tmp_path_factory.mktemp("voted")) as memory:
        memory.open_round(1)
        found = diagevo.voted(memory, FREE, "How many?", texts, answers=answers if given else None)
        memory.score([found])
        plain = Counter(answer for answer in answers if answer is not None)
        assert (found.responses, dict(found.votes)) == (len(answers), plain)
        if plain:
            label, first = max(plain.items(), key=lambda pair: pair[1])
            second = sorted([*plain.values(), 0], reverse=True)[1]
            assert (found.label, found.first, found.second) == (label, first, second)
            assert found.reference is not None
            assert memory.artifacts.get(found.reference) == texts[answers.index(label)]
        share = max(plain.values(), default=0) / len(answers)
        far = sorted([*plain.values(), 0, 0], reverse=True)[1] * 1.6 <= share * len(answers)
        kept = bool(plain) and 0.25 <= share <= 0.75 and far
        assert (found.verdict == "kept") == kept


def test_what_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        with pytest.raises(OutOfOrderError, match="no round is open"):
            diagevo.voted(memory, FREE, "?", ["a"])
        memory.open_round(1)
        for more in ({"responses": []}, {"responses": ["a"], "answers": ["1", "2"]}):
            said: dict[str, Any] = more
            with pytest.raises(ConfigError, match="give each response its answer"):
                diagevo.voted(memory, FREE, "?", **said)
