"""A run that came from outside, whose configuration names a server and a variable with a key: nothing is sent
there before the user says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from diagevo.config.loading import resolve
from diagevo.config.resume_overrides import REACHING
from diagevo.config.sources import dotted
from diagevo.memory.history import open_history
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from tests.cli.program import invoke
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.audit.forging import rows_of
from tests.memory.audit.played import CONFIG, play
from tests.serving import Asked, reply, serving

pytestmark = pytest.mark.slow

KEY = "opensesame-and-more-4711"
URL, VARIABLE = "roles.diagnostician.base_url", "roles.diagnostician.api_key_env"


@pytest.fixture
def listening() -> Iterator[tuple[str, list[str]]]:
    """A server that answers nothing of use, and the Authorization of each request that it got."""
    heard: list[str] = []

    def refuse(asked: Asked) -> None:
        heard.append(asked.authorization)
        reply(asked, b"", 401)

    with serving(refuse) as server:
        yield f"{server.url}/v1", heard


def played_elsewhere(folder: Path, *settings: str) -> Path:
    """The bundle of a round that somebody played with these settings."""
    folder.mkdir()
    config = resolve(profile="embedded", settings=settings, environ={}).config.model_dump(mode="json")
    config |= {name: config[name] | CONFIG[name] for name in ("filter", "memory", "schedule")}
    play(f"sqlite:///{folder / 'log.db'}", "theirs", root=folder, rounds=1, config=config)
    history = open_history(f"sqlite:///{folder / 'log.db'}", "theirs")
    export_bundle(history, history.end, folder / "bundle")
    history.close()
    return folder / "bundle"


@pytest.fixture
def mine(tmp_path: Path, listening: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with that run imported, and the key in the environment."""
    monkeypatch.setenv("MY_DOOR", KEY)
    bundle = played_elsewhere(
        tmp_path / "theirs",
        f"{URL}={listening[0]}",
        f"{VARIABLE}=MY_DOOR",
        "roles.diagnostician.engine=openai",
    )
    home = tmp_path / "mine"
    assert ask(home, "runs", "import", str(bundle)).exit_code == 0
    return home


def ask(home: Path, *arguments: str) -> Result:
    return invoke(*arguments, env={"DIAGEVO_HOME": str(home)})


@pytest.mark.parametrize(
    "command",
    [
        ["diagnose", "--again", "--dry-run"],
        ["memory", "calibrate"],
        ["memory", "rebuild", "--embedder"],
        ["runs", "fork", "1"],
        ["train", "--run", "theirs", "--resume"],
        ["eval", "run", "held-out", "--round", "1"],
    ],
)
def test_every_command_that_would_ask_refuses_first(
    mine: Path, listening: tuple[str, list[str]], command: list[str]
) -> None:
    if command[0] == "train":
        pytest.importorskip("torch", reason="needs the extra train: torch is not installed")
    result = ask(mine, *command)
    assert result.exit_code == 2, result.output
    assert "run theirs was imported, so these of its settings count only" in result.stderr
    assert f"{URL} ('{listening[0]}'), {VARIABLE} ('MY_DOOR')" in result.stderr
    assert f"--set {URL}=… --set {VARIABLE}=…" in result.stderr
    assert listening[1] == []


def test_half_of_it_said_again_is_not_enough(mine: Path, listening: tuple[str, list[str]]) -> None:
    result = ask(mine, "diagnose", "--again", "--dry-run", "--set", f"{URL}={listening[0]}")
    assert result.exit_code == 2
    assert f"you give them too: {VARIABLE} ('MY_DOOR')" in result.stderr
    assert listening[1] == []


@pytest.mark.parametrize("where", ["set", "file", "environment"])
def test_what_the_user_says_again_is_used(
    mine: Path,
    listening: tuple[str, list[str]],
    tmp_path: Path,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[str] = []
    if where == "set":
        given = ["--set", f"{URL}={listening[0]}", "--set", f"{VARIABLE}=MY_DOOR"]
    elif where == "file":
        text = f"roles:\n  diagnostician:\n    base_url: {listening[0]}\n    api_key_env: MY_DOOR\n"
        (tmp_path / "diagevo.yaml").write_text(text)
    else:
        monkeypatch.setenv("DIAGEVO_ROLES__DIAGNOSTICIAN__BASE_URL", listening[0])
        monkeypatch.setenv("DIAGEVO_ROLES__DIAGNOSTICIAN__API_KEY_ENV", "MY_DOOR")
    result = ask(mine, "diagnose", "--again", "--dry-run", "--sample", "1", *given)
    assert result.exit_code == 6, result.output
    assert "refused the key" in result.stderr
    assert set(listening[1]) == {f"Bearer {KEY}"}


def test_the_users_own_server_stands_in_for_theirs(mine: Path, listening: tuple[str, list[str]]) -> None:
    """The run names one that nobody listens at; asked is the one that the user names."""
    other = [f"--set={URL}={listening[0]}", f"--set={VARIABLE}=NO_SUCH_KEY"]
    result = ask(mine, "diagnose", "--again", "--dry-run", "--sample", "1", *other)
    assert result.exit_code == 6
    assert set(listening[1]) == {"Bearer none"}


def test_a_fork_with_ones_own_words_is_ones_own(mine: Path, listening: tuple[str, list[str]]) -> None:
    said = ["--set", f"{URL}=http://127.0.0.1:9/v1", "--set", f"{VARIABLE}=OPENAI_API_KEY"]
    assert ask(mine, "runs", "fork", "theirs@1", "--name", "ours", *said).exit_code == 0
    history = open_history(f"sqlite:///{mine / 'diagevo.db'}", "ours")
    role = history.configuration().config["roles"]["diagnostician"]
    assert (role["base_url"], role["api_key_env"]) == ("http://127.0.0.1:9/v1", "OPENAI_API_KEY")
    assert history.log.imported("ours") is None
    history.close()


def test_a_fork_that_takes_their_configuration_is_theirs(mine: Path) -> None:
    history = open_history(f"sqlite:///{mine / 'diagevo.db'}", "theirs")
    fork(history, 1, "silent", root=mine)
    assert history.log.imported("silent") == history.log.imported("theirs") is not None
    history.close()


def test_a_resumed_run_takes_nothing_else_by_set(mine: Path, home: Path) -> None:
    """Memory, hardware and time limits: of a run from outside and of one's own alike."""
    pytest.importorskip("torch", reason="needs the extra train: torch is not installed")
    for place, run in ((mine, "theirs"), (home, "played")):
        result = ask(place, "train", "--run", run, "--resume", "--set", "memory.theta_up=1/2")
        assert result.exit_code == 2
        assert "memory.theta_up cannot change when a run is resumed" in result.stderr


def test_a_run_without_any_is_used_as_it_is(tmp_path: Path) -> None:
    bundle = played_elsewhere(tmp_path / "theirs")
    home = tmp_path / "mine"
    assert ask(home, "runs", "import", str(bundle)).exit_code == 0
    assert ask(home, "runs", "fork", "1").exit_code == 0


def test_the_mark_is_kept_by_either_database(store: Store, tmp_path: Path) -> None:
    bundle = played_elsewhere(tmp_path / "theirs", f"{VARIABLE}=MY_DOOR")
    database = Database(store.url)
    import_bundle(bundle, database, "a", root=store.root)
    assert Log(database).imported("a") == rows_of(bundle, "run")[0]["hash"]
    database.close()


def test_the_mark_is_kept_by_a_backup(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    from diagevo.memory.transfer.backup import backup

    store = sqlite_stores.new(tmp_path)
    bundle = played_elsewhere(tmp_path / "theirs", f"{VARIABLE}=MY_DOOR")
    database = Database(store.url)
    import_bundle(bundle, database, "a", root=store.root)
    backup(database, tmp_path / "kept.db")
    database.close()
    kept = Database(str(tmp_path / "kept.db"))
    assert Log(kept).imported("a") == rows_of(bundle, "run")[0]["hash"]
    kept.close()


def test_every_endpoint_key_variable_command_and_code_of_the_configuration_is_among_them() -> None:
    from diagevo.config.sources import keys

    found = {path for path in keys() if path[-1] in ("base_url", "api_key_env", "address", "headers")}
    found |= {path for path in keys() if path[-1].endswith("_options")}
    found |= {path for path in keys() if "of your own" in (keys()[path].description or "")}
    assert {dotted(path) for path in found} == {dotted(path) for path in REACHING}
