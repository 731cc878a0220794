"""`python -m benchmarks causes`: its measures by hand, its planted sets, and the door for any set."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from benchmarks.causes import main
from benchmarks.causes.null import SETS
from benchmarks.causes.planted import DOMAINS, planted
from benchmarks.causes.rows import LabelledRow
from benchmarks.causes.scores import index, located, recovered, style_only


def rows_of(labels: str) -> list[LabelledRow]:
    """A failure for each letter, unplanned where it is a dot, and a response that passed."""
    failed = [LabelledRow("q", str(at), 0.0, label=each.strip(".")) for at, each in enumerate(labels)]
    return [*failed, LabelledRow("q", "right", 1.0)]


@pytest.mark.parametrize(
    ("labels", "causes", "expected"),
    [
        ("aaaabb", "1111--", ["a"]),
        ("aaaabb", "11----", ["a"]),  # half of the mode
        ("aaaabb", "1-----", []),
        ("aaabbb", "111122", ["a", "b"]),  # 3 of 4 are a; 2 of 3 b are in 2
        ("aa..bb", "1111--", []),  # half of the cause is unplanned
        ("aaa..b", "11111-", ["a"]),  # exactly 60%
    ],
)
def test_a_mode_is_recovered_by_one_cause_that_is_pure_and_holds_half_of_it(
    labels: str, causes: str, expected: list[str]
) -> None:
    found = [None if each == "-" else each for each in causes]
    assert recovered(rows_of(labels), [*found, None]) == expected


def test_the_index_leaves_unplanned_failures_out_and_failures_without_a_cause_are_groups_of_their_own() -> (
    None
):
    assert index(rows_of("aabb."), ["1", "1", "2", "2", "1", None]) == 1
    # Labels aabb against {1,1},{3},{4}: one pair together in both, expected 2 * 1 / 6, most (2 + 1) / 2.
    assert index(rows_of("aabb."), ["1", "1", None, None, "1", None]) == pytest.approx(
        (1 - 1 / 3) / (1.5 - 1 / 3)
    )
    assert index(rows_of("..."), ["1", "1", "1", None]) is None


def test_a_wrong_line_is_missed_where_no_line_is_named() -> None:
    failed = [LabelledRow("q", "", 0.0, label="a", wrong_line=2) for _ in range(4)]
    assert located(failed, [2, 3, 5, None]) == {"n": 4, "exact": 0.25, "within_1": 0.5}


def test_a_cause_says_only_style_where_a_wording_and_no_mode_holds_it_together() -> None:
    failed = [
        LabelledRow("q", str(at), 0.0, label="ab"[at % 2], style=("Sure",) if at < 4 else ("Okay",))
        for at in range(12)
    ]
    assert style_only(failed, ["1"] * 4 + [None] * 8) == ["1"]
    by_mode = ["1" if at % 2 else None for at in range(12)]
    assert style_only(failed, by_mode) == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_planted_set_has_its_modes_and_its_failures_are_worded_anew(domain: str) -> None:
    rows = planted(domain, 0)
    failed = [row for row in rows if row.failed]
    labels = Counter(row.label for row in failed)
    assert len(labels) == (7 if domain.startswith("extraction") else 6)
    assert min(labels.values()) >= 10
    assert 0.1 <= labels[""] / len(failed) <= 0.25
    passed: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if not row.failed:
            passed[row.question].append(row.text)
    assert all(len(passed[row.question]) >= 2 for row in failed)
    same = [
        row
        for row in failed
        if any(row.text.splitlines()[:-1] == text.splitlines()[:-1] for text in passed[row.question])
    ]
    assert len(same) < 0.05 * len(failed)
    assert rows == planted(domain, 0) != planted(domain, 1)


@pytest.mark.parametrize(
    "shape",
    [
        "noise, k = 5",
        "tools, k = 4, half",
        "empty, cut off, false: 10 failures, k",
        "support, k = 5, whole",  # failed prompts have all their responses in the log, others one
    ],
)
def test_where_rewards_say_nothing_there_are_no_causes(
    shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--null", "--set", shape, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["failures"] > 0, each["causes"]) for each in found] == [(True, 0)] * SETS


@pytest.mark.slow
def test_any_labelled_rows_go_through_the_product_and_give_exactly_these_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    said = [{"role": "assistant", "content": "2 + 2 = 5\nSo 5"}]
    rows = [
        {"prompt": "What is 2 + 2?", "response": "2 + 2 = 4\nSo 4", "reward": 1},
        {"prompt": "What is 2 + 2?", "response": said, "reward": 0, "label": "sum", "wrong_line": 0},
        {
            "prompt": [{"role": "user", "content": "What is 3 + 3?"}],
            "response": "6",
            "reward": True,
            "group": 7,
        },
        {
            "prompt": [{"role": "user", "content": "What is 3 + 3?"}],
            "response": "",
            "reward": 0,
            "group": 7,
            "label": "",
        },
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["--rows", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        "failures", "causes", "with_a_cause", "modes", "recovered", "ari", "baselines", "located",
    }  # fmt: skip
    assert (found["failures"], found["modes"]) == (2, 1)
    assert set(found["located"]) == {"n", "exact", "within_1"}
    assert found["located"]["n"] == 1


@pytest.mark.parametrize(
    "line", ["{", '{"prompt": "q", "response": "a"}', '{"prompt": "q", "response": "a", "reward": "x"}']
)
def test_a_line_that_is_no_row_is_named(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"prompt": "q", "response": "a", "reward": 1}}\n{line}\n')
    assert main(["--rows", str(file)]) == 2
    assert f"{file}, line 2: " in capsys.readouterr().err
