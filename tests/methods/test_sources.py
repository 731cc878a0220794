"""Where a label comes from is refused where it cannot be, and told where it is."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from diagevo.errors import OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import Embedder, RunConfigured
from diagevo.memory.history import open_history
from diagevo.memory.stories.failures import question_story
from diagevo.memory.stories.references import Reference
from diagevo.memory.stories.story_wording import question_lines
from tests.memory.play import candidate, opened

SHOWN = ["what is 2 + 2", "<script> & {0}"]


def _configured() -> RunConfigured:
    config: dict[str, Any] = {"method": "r-few"}
    embedder = Embedder(name="none", dimension=8, revision="")
    return RunConfigured(config=config, models={}, embedder=embedder, version="1")


def test_a_persons_label_is_a_fact_and_all_else_of_it_follows_from_the_votes(tmp_path: Path) -> None:
    persons = candidate("r1.q0", 6, label="8", label_from="human")
    unanswered = replace(persons, question_id="r1.q1", label=None, reference=None, verdict="no_label")
    with opened(tmp_path) as memory:
        memory.configure(_configured())
        memory.open_round(1)
        for wrong, said in (
            (replace(persons, label_from="proposer"), "no label of its method comes from: proposer"),
            (replace(persons, verdict="too_easy"), "its votes give kept"),
            (replace(persons, first=7), "its votes give 6 and"),
            (replace(unanswered, verdict="kept"), "its votes give no_label"),
            (replace(persons, label_from="votes"), "its label is not the answer that has the most votes"),
        ):
            with pytest.raises(OutOfOrderError, match=said):
                memory.score([wrong])
        shown = candidate("r1.q2", 6, given=memory.artifacts.put_many(SHOWN))
        memory.score([persons, unanswered, shown])
        assert verify(memory.log, "a", tmp_path / "a").ok
    history = open_history(f"sqlite:///{tmp_path / 'log.db'}", "a", root=tmp_path)
    told: dict[str, dict[str, str]] = {}
    for id_ in ("r1.q0", "r1.q1", "r1.q2"):
        story = question_story(history, Reference("question", id_), history.end)
        told[id_] = {line.label: f"{line.text}{line.words}" for line in question_lines(story)}
    history.close()
    assert told["r1.q0"]["drawn"] == "an item that a person labelled"
    assert told["r1.q0"]["label from"] == "a person, not the votes"
    assert told["r1.q1"]["verdict"] == "no label: no response gives the known answer"
    assert told["r1.q2"]["shown"] == "what is 2 + 2; <script> & {0}"
    assert "label from" not in told["r1.q2"]
