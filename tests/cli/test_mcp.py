"""`diagevo mcp` through a client session: what an agent asks, and what it is told."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from diagevo.cli.call import CommandContext  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.commands.mcp_tools import ANSWER, LIST, _bounded, _fitting, server  # pyright: ignore[reportMissingImports]  (cli/, as installed)

from diagevo.memory.audit.query_limits import AGENT
from tests.cli.program import invoke
from tests.ingest.conftest import ingest_verl

pytest.importorskip("mcp", reason="diagevo[mcp] is not installed: the tools are not asked")

Ask = Callable[..., tuple[bool, Any]]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """TRL's own rollouts of the shipped model, ingested and diagnosed by the world's rules."""
    home = tmp_path_factory.mktemp("mcp")
    ingest_verl(home, "verl")
    return f"sqlite:///{home}/diagevo.db"


@pytest.fixture
def ask(database: str) -> Ask:
    """Call a tool in a session of its own: whether it failed, and its answer."""
    from mcp import Client

    async def called(tool: str, arguments: dict[str, Any]) -> tuple[bool, Any]:
        async with Client(server(CommandContext(run="verl", db=database))) as client:
            result = await client.call_tool(tool, arguments)
            text = "".join(getattr(part, "text", "") for part in result.content)
            return bool(result.is_error), text if result.is_error else json.loads(text)

    return lambda tool, **arguments: anyio.run(called, tool, arguments)


def test_every_tool_says_that_it_only_reads(database: str) -> None:
    from mcp import Client

    async def listed() -> list[Any]:
        async with Client(server(CommandContext(run="verl", db=database))) as client:
            return (await client.list_tools()).tools

    tools = anyio.run(listed)
    assert [t.name for t in tools] == ["why", "replay", "schedule", "what_if", "diff", "verify", "query"]
    assert all(t.annotations.read_only_hint for t in tools)
    assert all(t.description for t in tools)


@pytest.mark.parametrize("tool", ["why", "replay", "schedule", "what_if", "diff", "verify", "query"])
def test_an_argument_that_a_tool_does_not_know_is_refused(ask: Ask, tool: str) -> None:
    """It would answer about this server's run, whatever run was meant."""
    needed = {"why": {"ref": "c1"}, "diff": {"a": 1, "b": 2}, "query": {"sql": "SELECT 1"}}.get(tool, {})
    assert not ask(tool, **needed)[0]
    failed, told = ask(tool, run="another", **needed)
    assert failed
    assert "run" in told
    assert "Extra inputs are not permitted" in told


def test_why_is_compact_and_keeps_what_models_wrote_apart(ask: Ask) -> None:
    failed, told = ask("why", ref="c1")
    assert not failed
    cause = told["data"]
    assert (told["run"], told["as_of"]["round"], cause["cause_id"]) == ("verl", 3, "c1")
    assert "description" not in cause
    assert set(cause["untrusted"]) == {"description", "node_label"}
    assert cause["turns"][0]["event"] == "created"
    assert len(json.dumps(told)) < 4000
    _, full = ask("why", ref="c1", full=True)
    assert len(json.dumps(full)) > len(json.dumps(told))


def test_the_schedule_and_a_replay_agree(ask: Ask) -> None:
    schedule, replay = (ask(tool)[1]["data"] for tool in ("schedule", "replay"))
    assert schedule["epsilon"] == replay["epsilon_next"]
    assert replay["differences"] == []
    assert ask("verify")[1]["data"]["ok"]


def test_what_if_and_diff_answer_in_numbers(ask: Ask) -> None:
    failed, told = ask("what_if", k="1", theta_up="1/2")
    assert not failed
    assert [r["round"] for r in told["data"]["rounds"]] == [1, 2, 3]
    assert not ask("diff", a=1, b=3)[0]


def test_a_query_is_bounded_and_its_rows_are_untrusted(ask: Ask) -> None:
    failed, told = ask("query", sql="SELECT run_id, position FROM v_event ORDER BY position", rows=3)
    assert not failed
    assert told["data"] == {
        "columns": ["run_id", "position"],
        "more": True,
        "untrusted": {"rows": [["verl", 1], ["verl", 2], ["verl", 3]]},
    }


def test_an_agents_statement_ends_after_ten_seconds(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played with a fifth of a second in place of the ten."""
    assert AGENT.seconds == 10
    monkeypatch.setattr("diagevo.memory.audit.query_limits.AGENT", replace(AGENT, seconds=0.2))
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    failed, told = ask("query", sql=endless)
    assert failed
    assert "the statement took more than 0.2 s and was ended" in told


def test_a_list_is_cut_and_says_by_how_much() -> None:
    long = {"causes": [{"turns": list(range(205))}] * 201, "few": [1, 2]}
    told = _bounded(long)
    assert (len(told["causes"]), told["causes_left_out"]) == (LIST, 1)
    assert (told["causes"][0]["turns"][-1], told["causes"][0]["turns_left_out"]) == (199, 5)
    assert (told["few"], "few_left_out" in told) == ([1, 2], False)


def test_a_cause_that_is_not_there_cannot_be_left_out(ask: Ask) -> None:
    failed, told = ask("what_if", drop=["nope"])
    assert failed
    assert 'not_found: nothing matches "nope" in run verl' in told
    assert not ask("what_if", drop=["c1"])[0]


def test_what_models_wrote_stands_apart_in_errors_too(ask: Ask) -> None:
    _, told = ask("query", sql="SELECT cause_id, description FROM v_cause")
    words = {row[0]: row[1] for row in told["data"]["untrusted"]["rows"]}
    piece = max({w for text in words.values() for w in text.split()}, key=" ".join(words.values()).count)
    failed, told = ask("why", ref=piece)
    assert failed
    said, untrusted = told.split('{"untrusted": ')
    assert all(text not in said for text in words.values())
    assert "descriptions\nhint: name one of them: c" in said
    assert json.loads('{"untrusted": ' + untrusted)["untrusted"].items() <= words.items()
    failed, told = ask("query", sql="SELECT json_extract(description, '$.a') FROM v_cause")
    assert failed
    assert told.startswith("Error executing tool query: config: the database refuses it\nhint: ")


LARGE = [
    ("query", {"sql": "SELECT " + ", ".join(["printf('%.*c', 100000, 'é')"] * 100), "rows": 200}),
    (
        "query",
        {"sql": "SELECT " + ", ".join(["printf('%.*c', 2000, 'é')"] * 100) + " FROM v_event", "rows": 200},
    ),
    ("query", {"sql": "SELECT char(1), char(2), char(3) FROM v_event a, v_event b", "rows": 200}),
]


@pytest.mark.parametrize(("tool", "arguments"), LARGE)
def test_an_answer_is_bounded_as_a_whole_and_says_what_is_left_out(
    ask: Ask, tool: str, arguments: dict[str, Any]
) -> None:
    failed, told = ask(tool, **arguments)
    assert not failed
    assert len(json.dumps(told, ensure_ascii=False, indent=2).encode()) < ANSWER + 1000
    assert told["data"]["untrusted"]["rows"]


@pytest.mark.parametrize(
    "data",
    [
        {"a": ["x" * 1000] * 200, "b": ["y" * 100_000] * 200},
        {"a": {f"c{n}": n for n in range(10**6)}},
        {"a": [{"b": [{"c": list(range(200))}] * 200}] * 200},
        {"a": [[["\0" * 5000] * 300] * 300] * 300},
        {f"key {n} {'x' * 50}": {"text": "é" * 10**6} for n in range(49)},
    ],
    ids=["texts", "names", "lists", "lists of lists", "fields"],
)
def test_whatever_is_answered_fits(data: dict[str, Any]) -> None:
    told = _fitting(data)
    assert len(json.dumps(told, ensure_ascii=False, indent=2).encode()) < ANSWER + 1000
    ends = "an answer has at most 1,048,576 bytes: lists end after"
    assert told["data"].get("a_left_out") == 999_800 or told["left_out"].startswith(ends)
    assert _fitting({"a": ["b"] * 200}) == {"data": {"a": ["b"] * 200}}


def test_a_reference_of_two_megabytes_is_not_repeated(ask: Ask) -> None:
    for ref in ("x" * 2**21, "c" + "1" * 2**21, "r" + "1" * 2**21 + ".q0"):
        failed, told = ask("why", ref=ref)
        assert failed
        assert len(told) < 500
        assert "(2,097,1" in told


def test_a_tool_takes_no_endless_list(ask: Ask) -> None:
    failed, told = ask("what_if", drop=["c1"] * 201)
    assert failed
    assert "at most 200 items" in told


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("why", {"ref": "c999"}, "not_found: "),
        ("query", {"sql": "DELETE FROM event"}, "config: "),
        ("replay", {"round": 9}, "not_found: round 9 of run verl is not committed\nhint: rounds 1 to 3"),
        ("what_if", {"k": "half"}, "config: "),
        ("query", {"sql": "SELECT 1", "rows": 1000}, "200"),
    ],
)
def test_what_is_refused_is_a_tools_error_with_the_next_step(
    ask: Ask, tool: str, arguments: dict[str, Any], said: str
) -> None:
    failed, told = ask(tool, **arguments)
    assert failed
    assert said in told


def test_a_run_that_is_not_there_is_said_before_anything_is_served(tmp_path: Path) -> None:
    result = invoke("mcp", "--db", f"sqlite:///{tmp_path}/none.db")
    assert result.exit_code == 5
