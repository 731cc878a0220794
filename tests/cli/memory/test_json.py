"""What programs read: envelopes, rows in other formats."""

import csv
import io
import json
from pathlib import Path

import polars

from tests.cli.memory.conftest import Ask


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
    store.tamper("UPDATE event SET payload = replace(payload, '17/24', '18/24') WHERE position = 89")
    result = change("memory", "verify", "--json")
    found = json.loads(result.stdout)["data"]
    assert (result.exit_code, found["ok"]) == (1, False)
    assert found["faults"][0]["position"] == 89
    assert change("memory", "verify").exit_code == 1


def test_replay_check_of_a_changed_projection_exits_1(change: Ask, home: Path) -> None:
    from tests.contracts.databases import Store

    Store(f"sqlite:///{home / 'diagevo.db'}", home).tamper(
        "UPDATE cause_history SET frequency = 7 WHERE round = 3"
    )
    result = change("memory", "replay", "--round", "3", "--check", "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["data"]["differences"]) == 4
    assert change("memory", "replay", "--round", "2", "--check").exit_code == 0


def test_a_failure_in_json_is_an_object(ask: Ask) -> None:
    result = ask("memory", "why", "c9", "--json")
    assert json.loads(result.stdout)["error"]["kind"] == "not_found"
    assert result.exit_code == 3


def test_log_as_json_lines_has_whole_payloads(ask: Ask) -> None:
    lines = ask("memory", "log", "c2", "--format", "jsonl").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert {e["cause_id"] for e in events} == {"c2"}
    promoted = next(e for e in events if e["type"] == "CausePromoted")
    assert promoted["payload"]["consistency"] == "17/24"


def test_rows_come_as_csv_and_parquet_with_exact_fractions(ask: Ask, tmp_path: Path) -> None:
    rows = list(
        csv.DictReader(io.StringIO(ask("memory", "schedule", "--round", "3", "--format", "csv").stdout))
    )
    first = rows[0]
    assert (first["cause"], first["probability"], first["probability_exact"]) == ("c2", "0.6", "3/5")
    ask("memory", "show", "--format", "parquet", "-o", str(tmp_path / "causes.parquet"))
    assert polars.read_parquet(tmp_path / "causes.parquet")["frequency"].to_list() == [1, 1, 1, 0]


def test_a_query_answers_in_every_format(ask: Ask) -> None:
    sql = "SELECT round, failures FROM v_round WHERE run_id = :run ORDER BY round"
    assert data(ask, "memory", "query", sql)["data"][1] == {"round": 2, "failures": 5}
    assert ask("memory", "query", sql, "--format", "csv").stdout.splitlines()[2] == "2,5"


def test_what_if_rows_say_their_status(ask: Ask) -> None:
    rows = data(ask, "memory", "what-if", "--k", "0.2", "--round", "3")["data"]
    [row] = rows
    assert (row["status"], row["epsilon_next"]["exact"], row["was_epsilon_next"]["exact"]) == (
        "exact",
        "4/29",
        "2/7",
    )
