"""What a writer told is there, whenever it is killed. Thousands of kills: python -m tests.attack.kills."""

import json
import subprocess
import sys

import pytest

from tests.contracts.databases import Store


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_over_50_kills_and_every_head_is_there(store: Store) -> None:
    """Five of them fall between a commit and its chain head: these heads come late, and say so."""
    command = [sys.executable, "-m", "tests.attack.kills", "--kills", "50", "--seed", "7", "--db", store.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["kills"], found["lost"], found["heads_missing"], found["faults"]) == (50, 0, 0, [])
    assert found["heads_late"] >= 5
    assert found["acknowledged"] > 300
    assert found["events"] >= found["acknowledged"] > found["rounds"] > 20
