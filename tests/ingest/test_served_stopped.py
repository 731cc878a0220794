"""A served diagnosis that stops after any of its appends goes on to the end of an unbroken one."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.log.log import Log
from tests.cli.program import invoke
from tests.diagnosis.server import Answer, Server
from tests.ingest.test_diagnose_served import diagnose, home

__all__ = ["home"]

pytestmark = pytest.mark.slow

CAUSES = ("counts a carry twice", "takes the smaller for the larger", "forgets to check the domain")
NODES = ("carrying", "order")


def behave(request: dict[str, Any], _: int) -> Answer:
    """By the request alone: one of three causes, its duplicate where it is known, one of two nodes."""
    kind = request["response_format"]["json_schema"]["name"]
    text = request["messages"][1]["content"]
    if kind == "extract":
        said = {
            "matched_cause_id": None,
            "error_cause": CAUSES[int(re.findall(r"answer (\d)", text)[-1]) % 3],
        }
    elif kind == "duplicate":
        cause = next(cause for cause in CAUSES if cause in text)
        known = re.search(rf"^- (c\d+): {cause}", text, re.MULTILINE)
        said = {"duplicate": known is not None, "matched_cause_id": known and known[1]}
    else:
        known = re.findall(r"^- (n\d+)", text, re.MULTILINE)
        new = len(known) < len(NODES)
        said = {
            "create_new_node": new,
            "new_node_label": NODES[len(known)] if new else None,
            "assigned_node": None if new else known[0],
        }
    return Answer(json.dumps(said))


def told(home: Path) -> list[tuple[str, str]]:
    env = {"DIAGEVO_HOME": str(home)}
    query = "SELECT type, payload FROM v_event WHERE type <> 'RunConfigured' ORDER BY position"
    shown = invoke("memory", "query", query, "--run", "own", "--json", env=env)
    assert shown.exit_code == 0, shown.stderr
    return [(row["type"], row["payload"]) for row in json.loads(shown.stdout)["data"]]


@pytest.mark.parametrize("stops", [0, 1, 3, 6, 10, 14])
def test_stopped_after_any_append_it_goes_on_to_the_same_events_and_asks_nothing_answered_twice(
    home: Path, stops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C or a full disk would stop it. All settle alone, so that there are at least 15 appends."""
    whole = home.with_name(f"{home.name}-whole")
    shutil.copytree(home, whole)
    append, done, stopping = Log.append, 0, True

    def appending(self: Log, *given: Any, **more: Any) -> Any:
        nonlocal done
        done += 1
        if done > stops and stopping:
            raise KeyboardInterrupt
        return append(self, *given, **more)

    monkeypatch.setattr(Log, "append", appending)
    with Server(behave) as server:
        assert diagnose(home, server).exit_code == 130
        stopping = False
        assert diagnose(home, server).exit_code == 0
        # One request is open at a time; the one that the stop broke off is asked again.
        assert sum(server.seen.values()) <= len(server.seen) + 1
    with Server(behave) as server:
        assert diagnose(whole, server).exit_code == 0
    assert told(home) == told(whole)
    assert invoke("memory", "verify", "--deep", env={"DIAGEVO_HOME": str(home)}).exit_code == 0
