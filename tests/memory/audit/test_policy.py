"""A policy of one's own: recorded by its name, run by no audit, never run for a run that came from outside.
The rounds are those of `played.py`; its Active causes are 3, 2, 3 and 3.
"""

from fractions import Fraction
from pathlib import Path

import pytest

import diagevo
from diagevo.config.models import ScheduleConfig
from diagevo.equations.states import Tally
from diagevo.errors import ConfigError
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.whatif import Changes, what_if
from diagevo.memory.history import History, open_history
from diagevo.memory.read.opened_rounds import observations
from diagevo.memory.stories.why import why_cause
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from tests.cli.program import invoke
from tests.memory.audit.played import CONFIG, play

SOURCE = '''
from fractions import Fraction
from pathlib import Path

RAN = Path(__file__).with_name("ran")
RAN.touch()

class Crowd:
    """The more Active causes, the less is free; aimed at is the last of them."""

    def epsilon(self, known):
        return Fraction(1, 1 + len(known.active))

    def draw(self, rng, epsilon, known):
        return None if rng.randrange(4) == 0 else known.active[-1]
'''
NAMED = "DIAGEVO_SCHEDULE__POLICY"
SAID = [Fraction(1, 4), Fraction(1, 3), Fraction(1, 4), Fraction(1, 4)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    return file


@pytest.fixture(autouse=True)
def named_by_the_user(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    monkeypatch.setenv(NAMED, f"{source}:Crowd")


def _config(source: Path) -> dict:
    return CONFIG | {"schedule": {"k": "1/2", "policy": f"{source}:Crowd"}}


@pytest.fixture
def url(tmp_path: Path, source: Path) -> str:
    play(f"sqlite:///{tmp_path / 'diagevo.db'}", "own", root=tmp_path, config=_config(source))
    return f"sqlite:///{tmp_path / 'diagevo.db'}"


@pytest.fixture
def history(url: str):
    opened = open_history(url, "own")
    yield opened
    opened.close()


def _verified(history: History, folder: Path):
    return verify(history.log, history.run_id, folder / history.run_id, deep=True)


def test_its_epsilon_is_committed_and_it_is_named(history: History, source: Path) -> None:
    assert [Fraction(c.event.epsilon_next) for c in history.commits] == SAID
    assert history.configuration().config["schedule"]["policy"] == f"{source}:Crowd"


def test_it_draws(url: str, tmp_path: Path) -> None:
    with diagevo.open(url, "own", root=tmp_path) as memory:
        schedule = memory.schedule(5)
        assert schedule.epsilon == Fraction(1, 4)
        draws = schedule.draw(400, seed=1)
        assert {draw.cause_id for draw in draws} == {None, "c4"}
        assert 0.2 < sum(draw.mode == "free" for draw in draws) / 400 < 0.3
        assert draws == memory.open_round(5).draw(400, seed=1)
        assert memory.schedule(3).epsilon == Fraction(1, 3)  # of the past too


def test_it_is_told_the_votes_of_every_round(history: History) -> None:
    votes = history.state(history.end).known().votes
    assert len(votes) == 4
    assert votes[0] == {}
    assert votes[1]["c1"] == Tally(2, 18, 12)  # 10 and 8 of 12
    assert history.state(history.end, snapshots=False).votes == votes


def test_to_an_audit_what_it_said_stands(history: History, tmp_path: Path) -> None:
    assert _verified(history, tmp_path).ok
    told = what_if(observations(history, history.end), Changes(drop=frozenset({"c4"})))
    assert [r.epsilon_next for r in told.rounds] == SAID
    effect = why_cause(history, "c4", history.end).effect
    assert effect is not None
    assert (effect.epsilon, effect.epsilon_without) == (Fraction(1, 4), None)


def test_without_its_source_the_audits_go_on_and_no_round_is_opened(
    history: History, tmp_path: Path, source: Path
) -> None:
    source.unlink()
    assert _verified(history, tmp_path).ok
    with diagevo.open(str(history.database.url), "own", root=tmp_path) as memory:
        with pytest.raises(ConfigError, match="cannot be made: FileNotFoundError"):
            memory.open_round(5)
        assert memory.state.open is None


def test_a_fork_names_another(history: History, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(SOURCE.replace("1 + len", "2 + len"))
    fork(history, 2, "b", _config(other), root=tmp_path)
    with diagevo.open(str(history.database.url), "b", root=tmp_path) as memory:
        assert memory.open_round(3).epsilon == Fraction(1, 4)  # 2 + two Active causes
        assert memory.policy() is not None
    forked = open_history(str(history.database.url), "b")
    assert _verified(forked, tmp_path).ok
    forked.close()
    fork(history, 2, "paper", CONFIG, root=tmp_path)
    with diagevo.open(str(history.database.url), "paper", root=tmp_path) as memory:
        assert memory.open_round(3).epsilon == Fraction(2, 7)  # Equation 1 again


def test_code_that_an_imported_run_names_is_never_run_unless_the_user_names_it(
    history: History, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAMED)
    export_bundle(history, history.end, tmp_path / "bundle")
    home = tmp_path / "home"
    database = diagevo.open(f"sqlite:///{home / 'diagevo.db'}", "seed", root=home)
    import_bundle(tmp_path / "bundle", database.database, "theirs", root=home)
    database.close()
    (tmp_path / "ran").unlink()
    env = {"DIAGEVO_HOME": str(home), "DIAGEVO_RUN": "theirs"}
    for command in (
        ["memory", "show"],
        ["memory", "schedule"],
        ["memory", "replay"],
        ["memory", "verify", "--deep"],
        ["memory", "what-if", "--k", "1"],
        ["memory", "why", "c4"],
    ):
        result = invoke(*command, env=env)
        assert result.exit_code == 0, result.output
    refused = invoke("runs", "fork", "1", env=env)
    assert refused.exit_code == 2
    assert f"schedule.policy ('{source}:Crowd')" in refused.stderr
    with diagevo.open(f"sqlite:///{home / 'diagevo.db'}", "theirs", root=home) as memory:
        with pytest.raises(ConfigError, match="was imported"):
            memory.open_round(5)
        assert not (tmp_path / "ran").exists()
        memory.allow_policy(f"{source}:Crowd")
        assert memory.open_round(5).epsilon == Fraction(1, 4)
    assert (tmp_path / "ran").exists()


def test_an_audit_runs_no_code_that_a_database_names(url: str, tmp_path: Path, source: Path) -> None:
    """A folder with a database and the file that it names may be somebody else's."""
    (tmp_path / "ran").unlink()
    env = {"DIAGEVO_HOME": str(tmp_path)}
    for command in (["verify", "--deep"], ["replay"], ["what-if", "--k", "1"], ["why", "c4"]):
        assert invoke("memory", *command, env=env).exit_code == 0
    said = invoke("memory", "what-if", "--k", "1", env=env).stderr
    assert f"schedule.policy {source}:Crowd: audits do not run its code" in said
    assert not (tmp_path / "ran").exists()


def test_the_commands_say_whose_word_epsilon_is(url: str, tmp_path: Path, source: Path) -> None:
    env = {"DIAGEVO_HOME": str(tmp_path), "COLUMNS": "200"}
    replayed = invoke("memory", "replay", env=env).stdout
    assert "ε₅ = 1/4, as recorded of schedule.policy" in replayed
    said = f"the paper's p, where {source}:Crowd draws"
    assert f"p₅(e) = f₄(e)/F₄, below: its share of F: {said}" in replayed
    for command in ("show", "schedule"):
        assert said in invoke("memory", command, env=env).stderr
    assert invoke("memory", "verify", env=env).exit_code == 0


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("", "cannot be made: KeyError: 'Crowd'"),
        ("class Crowd: draw = print", "has no attribute 'epsilon'"),
        ("class Crowd:\n def __init__(self, x): pass", "cannot be made: TypeError"),
        ("import no_such_module", "cannot be made: ModuleNotFoundError"),
        ("this is no Python", "cannot be made: SyntaxError"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, body: str, told: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(body)
    with pytest.raises(ConfigError, match=told):
        play(f"sqlite:///{tmp_path / 'a.db'}", "a", root=tmp_path, config=_config(file))


@pytest.mark.parametrize("name", ["frequent", ":X", "a.py:", "a.py:1x", "module:X", ""])
def test_a_name_of_no_form_is_refused_with_the_configuration(name: str) -> None:
    with pytest.raises(ValueError, match=r"a class: file\.py:Class"):
        ScheduleConfig(policy=name)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("def epsilon(self, known): return 0.5", "epsilon gave 0.5"),
        ("def epsilon(self, known): return Fraction(3, 2)", "epsilon gave Fraction"),
        ("def epsilon(self, known): return True", "epsilon gave True"),
        ("def epsilon(self, known): return 1 / 0", "epsilon failed: ZeroDivisionError"),
    ],
)
def test_an_epsilon_that_is_none_ends_the_commit_and_records_nothing(
    tmp_path: Path, source: Path, method: str, told: str
) -> None:
    source.write_text(f"{SOURCE}\n    {method}\n")
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with pytest.raises(ConfigError, match=told):
        play(url, "a", root=tmp_path, rounds=1, config=_config(source))
    with diagevo.open(url, "a", root=tmp_path) as memory:
        assert memory.state.round == 0
        assert memory.state.open is not None


@pytest.mark.parametrize("answer", ["'c1'", "known", "type(known.active[0])(*'abcd', False, 9)"])
def test_a_draw_of_what_is_not_active_is_refused(tmp_path: Path, source: Path, answer: str) -> None:
    source.write_text(f"{SOURCE}\n    def draw(self, rng, epsilon, known): return {answer}\n")
    url = f"sqlite:///{tmp_path / 'a.db'}"
    play(url, "a", root=tmp_path, rounds=1, config=_config(source))
    with diagevo.open(url, "a", root=tmp_path) as memory, pytest.raises(ConfigError, match="draw gave"):
        memory.open_round(2).draw(1, seed=1)
