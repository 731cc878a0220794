"""Fractions in stored payloads and configurations: what Python wrote is read, and what would fill the memory
is no payload."""

import json

import pytest

from diagevo.errors import DamagedError, StoreError
from diagevo.memory.events.decode import decoded
from diagevo.memory.state.stored_config import configured

PAYLOADS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "RoundOpened": (
        {"epsilon": "1", "failures": 0, "reference_failures": None, "k": "1/2", "seed": 1, "weights": []},
        ("epsilon", "k"),
    ),
    "CausePromoted": (
        {
            "cause_id": "c1",
            "questions": 9,
            "consistency": "3/4",
            "threshold": "7/10",
            "closed_frequency": 11,
        },
        ("consistency", "threshold"),
    ),
    "RoundCommitted": (
        {
            "failures": 1,
            "reference_round": 1,
            "reference_failures": 1,
            "epsilon_next": "1/3",
            "active": 1,
            "mastered": 0,
            "nodes": 1,
            "state_hash": "x",
        },
        ("epsilon_next",),
    ),
}


@pytest.mark.parametrize("type_", PAYLOADS)
def test_a_ratio_as_python_writes_it_is_read(type_: str) -> None:
    payload, names = PAYLOADS[type_]
    for text in ("1/3", "0", "7", "1" + "0" * 308, "1/1" + "0" * 308):
        read = json.dumps(payload | dict.fromkeys(names, text))
        event = decoded(type_, 1, read)
        assert [getattr(event, name) for name in names] == [text] * len(names)


@pytest.mark.parametrize(
    "text", ["1e99999999", "1/1e99999999", "9" * 309, "1/" + "9" * 309, "1/0", "0.5", "x", "", "nan", "1/3\n"]
)
@pytest.mark.parametrize("type_", PAYLOADS)
def test_any_other_ratio_is_a_payload_that_cannot_be_read(type_: str, text: str) -> None:
    payload, names = PAYLOADS[type_]
    for name in names:
        forged = json.dumps({**payload, name: text})
        with pytest.raises(StoreError, match=f"the payload of an event {type_} cannot be read"):
            decoded(type_, 1, forged)


@pytest.mark.parametrize(
    "section", [{"filter": {"p_low": "1/0"}}, {"filter": 7}, {"memory": {"theta_dup": "x"}}]
)
def test_a_stored_configuration_that_cannot_be_read_is_damage(section: dict[str, object]) -> None:
    with pytest.raises(DamagedError, match="a stored configuration cannot be read") as damaged:
        configured(section)
    assert damaged.value.exit_code == 5
