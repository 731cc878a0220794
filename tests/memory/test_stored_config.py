"""A stored configuration is read or refused: no setting of it silently has another value."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import diagevo
from diagevo.config import former
from diagevo.config.loading import of_profile, of_run
from diagevo.config.sources import dotted, from_settings, keys
from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.state.stored_config import settings_of
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from diagevo.memory.transfer.rebuilding import rebuild
from tests.cli.program import invoke
from tests.memory.audit import played

FROZEN = Path(__file__).parents[1] / "contracts" / "frozen" / "settings.txt"
NOW = {**played.CONFIG, "schedule": {"k": "1/2", "stitching": "off"}}
THEN = {**played.CONFIG, "schedule": {"k": "1/2", "partner": "off"}}
"""The same under a name that the setting never had."""


def test_every_key_that_a_build_ever_stored_is_read_or_known_to_have_left() -> None:
    """A line of `frozen/settings.txt` is never removed: a renamed setting has a line in `RENAMED`, and what
    comes after a release is added."""
    stored = set(FROZEN.read_text(encoding="utf-8").split())
    today = {dotted(path) for path in keys()}
    known = today | former.RENAMED.keys() | former.LEFT.keys()
    assert stored <= known, "add each to RENAMED, or to LEFT, in diagevo/config/former.py"
    assert set(former.RENAMED.values()) <= today
    assert not today & (former.RENAMED.keys() | former.LEFT.keys()), "a former name came back"


def _play_as_before(url: str, run: str, config: dict[str, Any], root: Path) -> None:
    """As a build that dropped what it did not know."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("diagevo.memory.memory.unread", lambda _: [])
        patched.setattr("diagevo.memory.state.stored_config.unread", lambda _: [])
        patched.setattr("diagevo.memory.state.model.settings_of", lambda _: settings_of(played.CONFIG))
        played.play(url, run, root=root, config=config)


def test_a_run_under_a_former_name_is_the_run_that_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(former.RENAMED, "schedule.partner", "schedule.stitching")
    url = f"sqlite:///{tmp_path / 'diagevo.db'}"
    played.play(url, "now", root=tmp_path, config=NOW)
    with monkeypatch.context() as patched:
        patched.setattr("diagevo.memory.memory.unread", lambda _: [])  # as when that was its name
        played.play(url, "then", root=tmp_path, config=THEN)
    with diagevo.open(url, "then", root=tmp_path) as memory, closing(Database(url)) as database:
        assert memory.state.settings.stitching == "off", "from a snapshot"
        rebuild(memory)
        now, then = (History(database, run, tmp_path) for run in ("now", "then"))
        assert [c.event.state_hash for c in then.every_commit] == [
            c.event.state_hash for c in now.every_commit
        ]
        assert then.in_force() == now.in_force()
        assert then.state(then.end, snapshots=False).settings == now.state(now.end).settings
        assert then.configuration().config == NOW
        assert verify(Log(database), "then", tmp_path / "then", deep=True).faults == []
        assert fork(then, 3, "forked", root=tmp_path).changed == ()
        export_bundle(then, then.end, tmp_path / "then.bundle")
        import_bundle(tmp_path / "then.bundle", database, "brought", root=tmp_path)
        for run in ("forked", "brought"):
            assert History(database, run, tmp_path).in_force() == now.in_force()
    with diagevo.open(url, "then", root=tmp_path) as memory:
        stored = memory.log.read("then", types=["RunConfigured"])
        assert [json.loads(one.payload)["config"] for one in stored] == [THEN], "the log stays as it is"
        memory.open_round(5)


@pytest.mark.parametrize("key", ["schedule.stitchin", "memory.theta", "filter.low", "round.true_label"])
def test_a_key_that_nothing_reads_is_refused_with_the_run_the_version_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    (section, _, name), here = key.partition("."), diagevo.__version__
    url = f"sqlite:///{tmp_path / 'diagevo.db'}"
    config = {**played.CONFIG, section: {**played.CONFIG.get(section, {}), name: "1/2"}}
    with monkeypatch.context() as patched:
        patched.setattr(diagevo, "__version__", "0.0.9")
        _play_as_before(url, "odd", config, tmp_path)
    refused = f"run odd was configured by DiagEvo 0.0.9 with {key}, which DiagEvo {here} does not know"
    for command in (["runs", "show"], ["memory", "replay"], ["memory", "rebuild"]):
        done = invoke(*command, "--db", url, "--run", "odd")
        assert done.exit_code == 5, done.output
        assert refused in done.stderr
        assert "pip install diagevo==0.0.9" in done.stderr
    verified = invoke("memory", "verify", "--db", url, "--run", "odd")
    assert (verified.exit_code, refused in " ".join(verified.stdout.split())) == (1, True)
    with pytest.raises(StoreError, match=key):
        diagevo.open(url, "odd", root=tmp_path)


def test_a_trainers_own_section_is_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'diagevo.db'}"
    played.play(
        url, "own", root=tmp_path, rounds=1, config={**played.CONFIG, "mine": {"k": 5}, "solver": "x"}
    )
    with closing(Database(url)) as database:
        assert History(database, "own", tmp_path).configuration().config["mine"] == {"k": 5}


def test_a_configuration_with_a_key_that_is_none_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'diagevo.db'}"
    with pytest.raises(ConfigError, match=r"there is no key schedule\.stitchin") as refused:
        played.play(url, root=tmp_path, config={"schedule": {"stitchin": "off"}})
    assert refused.value.hint == "the closest is schedule.stitching"
    monkeypatch.setitem(former.RENAMED, "schedule.partner", "schedule.stitching")
    for configure in (
        lambda: played.play(url, root=tmp_path, config={"schedule": {"partner": "off"}}),
        lambda: from_settings(("schedule.partner=off",)),
    ):
        with pytest.raises(ConfigError, match=r"there is no key schedule\.partner") as refused:
            configure()
        assert refused.value.hint == "it is schedule.stitching now"


def test_what_is_gone_is_left_out_where_it_says_what_is_always_done_now() -> None:
    today = of_profile("embedded").config.model_dump(mode="json")
    earlier = {
        **today,
        "hardware": {**today["hardware"], "serve": "vllm", "serve_gpus": [1]},
        "validation": {**today["validation"], "baseline_temperature": [0.6]},
    }
    for fenced in (True, False):
        stored = {**earlier, "diagnosis": {**today["diagnosis"], "prompts_as_written": not fenced}}
        translated = former.in_todays_names(stored)
        if fenced:
            assert of_run(translated, "a").config.model_dump(mode="json") == today
        else:
            with pytest.raises(
                ConfigError, match=r"run a was configured with diagnosis\.prompts_as_written, "
            ):
                of_run(translated, "a")
