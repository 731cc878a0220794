"""An evaluation in a notebook: from its file to frames."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import html

import diagevo
from diagevo.errors import ConfigError, NotFoundError
from diagevo.text.escaping import storable
from diagevo.view.notebook import NotebookRun
from tests.attack.hostile import KINDS
from tests.view.test_compare import rows_of


@pytest.fixture
def evals(tmp_path: Path) -> Iterator[NotebookRun]:
    """`small` fails 9 of 24 responses, `large` 4, to twelve prompts."""
    rows = rows_of("small", range(3, 12)) + rows_of("large", range(4))
    (tmp_path / "my evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with diagevo.load(tmp_path / "my evals.jsonl", url=str(tmp_path / "a.db")) as found:
        yield found


def test_a_file_is_loaded_under_its_name_and_recognised(evals: NotebookRun) -> None:
    assert evals.summary is not None
    assert evals.summary.notes[0] == "taken for jsonl: its first row has prompt, response, reward"
    assert repr(evals) == "<my-evals: 35 of 48 responses passed, to 12 prompts: 72.9% (44.8% to 89.9%)>"


def test_what_passed_is_counted_by_model_and_tag(evals: NotebookRun) -> None:
    found = evals.passed()
    assert found.select("kind", "name", "passes", "responses", "prompts").rows() == [
        ("all", "all", 35, 48, 12),
        ("model", "small", 15, 24, 12),
        ("model", "large", 20, 24, 12),
        ("tag", "odd", 17, 24, 6),
        ("tag", "even", 18, 24, 6),
    ]
    assert found["pass_rate"][1] == 15 / 24


def test_two_models_are_compared(evals: NotebookRun) -> None:
    found = evals.compare("model=small", "model=large")
    assert found.columns == ["prompt", "first", "second", "change", "cause_id"]
    assert sorted(found["change"].to_list()) == [-0.5] * 3 + [0.5] * 8
    assert set(found.filter(found["change"] < 0)["prompt"]) == {f"question {n}" for n in range(3)}
    with pytest.raises(NotFoundError, match="no model=nobody"):
        evals.compare("model=small", "model=nobody")


def test_a_diagnosis_counts_every_failure_once(evals: NotebookRun) -> None:
    assert evals.causes().height == 0
    assert "diagnose(local=True)" in evals._repr_html_()
    assert evals.diagnose(local=True) is evals
    causes = evals.causes()
    listed = evals.responses(verdict="failed")
    assert listed.height == 13
    by_cause = dict(listed.drop_nulls("cause_id").group_by("cause_id").len().rows())
    assert dict(causes.select("cause_id", "failures").drop_nulls().rows()) == by_cause
    assert evals.responses("wrong answer 3").height == 2
    # Of its six odd prompts two failed once; of the four that always passed the log keeps one response each.
    assert evals.responses(model="large", tag="odd").height == 2 * 2 + 4


def test_the_same_file_again_changes_nothing(evals: NotebookRun, tmp_path: Path) -> None:
    events = evals.events().height
    with diagevo.load(tmp_path / "my evals.jsonl", url=str(tmp_path / "a.db")) as again:
        assert again.events().height == events


def test_texts_in_a_notebook_are_no_markup(tmp_path: Path) -> None:
    texts = [storable(text) for text in KINDS]
    rows = [{"p": text, "r": f"{text} {s}", "ok": s} for text in texts for s in (0, 1)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    mapped = {"prompt": "p", "response": "r", "reward": "ok"}
    with diagevo.load(tmp_path / "a.json", url=str(tmp_path / "a.db"), map=mapped) as found:
        found.diagnose(local=True)
        tree = html.fromstring(f"<div>{found._repr_html_()}</div>")
        assert not tree.xpath(".//img | .//b | .//script | .//*[@onerror]")
        assert set(found.responses()["response"]) == {row["r"] for row in rows}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"format": "jsnl"}, "there is no format jsnl"),
        ({"map": {"promt": "p"}}, "there is no field promt"),
        ({"run": "a/b"}, "a/b"),
    ],
)
def test_what_cannot_be_loaded_is_refused(tmp_path: Path, given: dict[str, object], told: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "response": "b", "reward": 1}\n')
    with pytest.raises(ConfigError, match=told):
        diagevo.load(tmp_path / "a.jsonl", url=str(tmp_path / "a.db"), **given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="there is no"):
        diagevo.load(tmp_path / "nosuch.jsonl", url=str(tmp_path / "a.db"))
