"""What programs read: envelopes, rows in other formats."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cli.memory.conftest import Ask
from tests.cli.program import load


def data(ask: Ask, *arguments: str):
    return json.loads(ask(*arguments, "--json").stdout)


def test_replay_gives_the_figures_that_others_rely_on(ask: Ask) -> None:
    told = data(ask, "memory", "replay", "--round", "3")
    assert (told["schema"], told["run"]) == ("diagevo.memory.replay/1", "played")
    assert told["as_of"] == {"round": 3, "position": 116}
    found = told["data"]
    assert (found["round"], found["failures"], found["reference_failures"]) == (3, 5, 4)
    assert found["z"] == {"exact": "5/4", "value": 1.25}
    assert found["epsilon_next"] == {"exact": "2/7", "value": 2 / 7}
    assert (found["active"], found["mastered"], found["nodes"]) == (3, 1, 2)
    assert len(found["state_hash"]) == 64
    wanted = ("id", "node", "state", "frequency")
    assert [tuple(c[k] for k in wanted) for c in found["causes"]] == [
        ("c1", "n1", "active", 1),
        ("c2", "n2", "active", 3),
        ("c3", "n1", "mastered", 0),
        ("c4", "n2", "active", 1),
    ]
    assert found["causes"][1]["probability"] == {"exact": "3/5", "value": 0.6}
    assert found["causes"][0]["description"].startswith("forgets to carry")


def test_verify_gives_ok_and_the_number_of_events(ask: Ask) -> None:
    result = ask("memory", "verify", "--deep", "--json")
    found = json.loads(result.stdout)["data"]
    assert (result.exit_code, found["ok"], found["events"], found["faults"]) == (0, True, 139, [])


def test_verify_of_a_changed_log_exits_1_and_names_the_event(change: Ask, home: Path) -> None:
    from tests.contracts.databases import Store

    store = Store(f"sqlite:///{home / 'diagevo.db'}", home)
    store.tamper("UPDATE event SET payload = replace(payload, '17/24', '18/24') WHERE position = 90")
    result = change("memory", "verify", "--json")
    found = json.loads(result.stdout)["data"]
    assert (result.exit_code, found["ok"]) == (1, False)
    assert found["faults"][0]["position"] == 90
    assert change("memory", "verify").exit_code == 1


def test_log_as_json_lines_has_whole_payloads(ask: Ask) -> None:
    lines = ask("memory", "log", "c2", "--format", "jsonl").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert {e["cause_id"] for e in events} == {"c2"}
    promoted = next(e for e in events if e["type"] == "CausePromoted")
    assert promoted["payload"]["consistency"] == "17/24"


def test_what_if_rows_say_their_status(ask: Ask) -> None:
    rows = data(ask, "memory", "what-if", "--k", "0.2", "--round", "3")["data"]
    found = [(row["status"], row["epsilon_next"]["exact"], row["was_epsilon_next"]["exact"]) for row in rows]
    assert found == [("exact", "4/29", "2/7")]


def test_a_person_a_spreadsheet_and_a_program_are_shown_the_same_causes_the_most_frequent_first(
    ask: Ask,
) -> None:
    shown = ("memory", "show", "--round", "3")
    named = ["c2", "c1", "c4", "c3"]  # f = 3, 1, 1, 0
    assert [cause["id"] for cause in json.loads(ask(*shown, "--json").stdout)["data"]["causes"]] == named
    rows = csv.DictReader(io.StringIO(ask(*shown, "--format", "csv").stdout))
    assert [row["id"] for row in rows] == named
    assert [line.split()[0] for line in ask(*shown).stdout.splitlines()[1:]] == named


SQL = "SELECT round, failures FROM v_round WHERE run_id = :run ORDER BY round LIMIT 1"


def _piped(home: Path, statement: bytes) -> Result:
    return CliRunner().invoke(
        load(), ["memory", "query", "-"], input=statement, env={"DIAGEVO_HOME": str(home)}
    )


def test_a_statement_comes_from_stdin(ask: Ask, played_home: Path) -> None:
    typed = ask("memory", "query", SQL)
    assert typed.stdout.splitlines()[1].split() == ["1", "4"]
    statement = f"\ufeff-- of ö\n{SQL};\n".encode()
    assert _piped(played_home, statement).stdout == typed.stdout


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (b"SELECT '\xe9'", "stdin is not UTF-8 text"),
        (bytes(2**20 + 1), "stdin is too long for a statement"),
        (b"", "the database refuses it"),
    ],
)
def test_what_is_no_statement_is_refused(played_home: Path, statement: bytes, says: str) -> None:
    refused = _piped(played_home, statement)
    assert refused.exit_code == 2, refused.output
    assert says in refused.stderr


@pytest.mark.parametrize("arguments", [("-", "--views"), ()])
def test_a_statement_or_views_is_needed_and_not_both(ask: Ask, arguments: tuple[str, ...]) -> None:
    refused = ask("memory", "query", *arguments)
    assert refused.exit_code == 2
    assert "give a statement or --views" in refused.stderr
