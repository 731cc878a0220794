"""A whole run in one process, checked against what its own log says, counted again from scratch."""

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import pytest

from diagevo.answers.equivalence import agree
from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import PREMISE, PROMPTS, WEIGHTS, answer, is_held_out
from diagevo.arithmetic.families import GROUPS, family
from diagevo.errors import ConfigError, WrongTrainingError
from diagevo.integrations.trackers import steps
from diagevo.loop.run import _check_prompts
from diagevo.memory.events import catalogue as events
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import History, open_history
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.opening import open_memory as opened
from diagevo.memory.read.round_figures import step_metrics
from diagevo.memory.read.runs import run_story
from diagevo.progress import RoundFigures
from diagevo.selfplay.questions import FIELDS, parse_question
from diagevo.view.pages import TRAINING, training_charts
from tests.cli.program import invoke
from tests.run.small import Watcher, play, small_config, two_rounds

ROUNDS = 2
KINDS = [f"/{name}" for name in GROUPS]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_rounds(tmp_path_factory)


@pytest.fixture(scope="module")
def watcher(home: Path) -> Watcher:
    return pickle.loads(home.with_suffix(".watcher").read_bytes())


@pytest.fixture(scope="module")
def history(home: Path, watcher: Watcher) -> Iterator[History]:
    opened = open_history(f"sqlite:///{home / 'diagevo.db'}", "a", root=home)
    yield opened
    opened.close()


E = TypeVar("E", bound=events.Event)
Placed = events.CauseMatched | events.CauseCreated


def of(history: History, kind: type[E], round: int | None = None) -> list[E]:
    return [fact.event for fact in history.events(kind, round=round)]


def completed(history: History) -> list[tuple[Fact[events.StageCompleted], events.StageCompleted]]:
    return [(fact, fact.event) for fact in history.events(events.StageCompleted)]


def placements(history: History, round: int | None = None) -> list[Placed]:
    return [*of(history, events.CauseMatched, round), *of(history, events.CauseCreated, round)]


def test_weights_candidates_and_logs_of_a_run_are_for_their_owner_alone(home: Path, watcher: Watcher) -> None:
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"model.safetensors", "candidates.jsonl"} <= {path.name for path in files}
    inside = [path for path in home.rglob("*") if path.stat().st_mode & 0o077]
    assert inside == []


def test_every_phase_of_training_records_and_tells_what_it_measured_of_itself(
    history: History, watcher: Watcher
) -> None:
    measured = [(fact.round, fact.event) for fact in history.events(events.PhaseMeasured)]
    phases = [(number, found.stage, found.attempt, found.steps) for number, found in measured]
    stages = (("challenger", 2), ("solver", 3))
    assert phases == [(n, stage, 1, steps) for n in (1, 2) for stage, steps in stages]
    for _, found in measured:
        assert found.findings == []
        assert found.first_kl is not None
        assert found.sampling_gap is not None
        assert max(abs(found.first_kl), found.sampling_gap) < 1e-4
        assert found.reward_lowest < found.reward_highest <= 1
        assert found.completions == {"challenger": 2 * 4 * 4, "solver": 3 * 3 * 4}[found.stage]
    shown = run_story(history).phases
    assert [(line.round, line.measured) for line in shown] == measured
    for number, found in measured:
        told = watcher.told[number, found.stage]
        assert (told["KL at step 1"], told["log-prob gap"]) == (found.first_kl, found.sampling_gap)
        assert told["rewards"] == f"{found.reward_lowest:.3g} to {found.reward_highest:.3g}"
        assert told["cut off"] == f"{found.cut_off}/{found.completions}"


def test_each_step_of_training_is_a_row_is_drawn_and_goes_to_a_tracker(history: History) -> None:
    found = step_metrics(history)
    stages = (("challenger", 2), ("solver", 3))
    played = [(n, stage, step) for n in (1, 2) for stage, most in stages for step in range(1, most + 1)]
    assert [(one.round, one.stage, one.step) for one in found] == played
    for done in of(history, events.StageCompleted, 1):
        of_stage = [one for one in found if (one.round, one.stage) == (1, done.stage)]
        if of_stage:
            total = sum(one.reward * one.completions for one in of_stage)
            assert done.reward == pytest.approx(total / sum(one.completions for one in of_stage), abs=1e-12)
    rows = steps(history)
    assert [row["training_step"] for row in rows] == list(range(1, 11))
    told = {"solver/loss": found[2].loss, "solver/reward": found[2].reward, "step_of_round": 1}
    assert rows[2] | told == rows[2]
    drawn = [one for one in training_charts(history) if one is not None]
    assert [one.title for one in drawn] == list(TRAINING.values())
    header, *lines = drawn[1].rows
    assert header == ("step", "challenger", "solver")
    assert [line[0] for line in lines] == ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    assert lines[2][1] == "–", "the challenger has two steps"


@pytest.mark.slow
def test_a_phase_that_ended_itself_is_in_the_log_with_what_it_found(tmp_path: Path) -> None:
    with pytest.raises(WrongTrainingError) as caught:
        play(tmp_path, small_config(training={"sampling_gap": 1e-12}))
    assert caught.value.message.startswith("round 1, training of the challenger: the log-prob gap")
    opened = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    with closing(opened) as history:
        [found] = of(history, events.PhaseMeasured)
        assert (found.stage, found.attempt, found.steps) == ("challenger", 1, 1)
        assert found.findings == ["wrong_sampler"]
        assert of(history, events.StageCompleted) == []


def test_every_candidate_is_scored_once_and_its_verdict_follows_from_its_votes(history: History) -> None:
    for number in range(1, ROUNDS + 1):
        scored = of(history, events.CandidateScored, round=number)
        asked = small_config().round.candidates
        assert sorted(int(c.question_id.split("q")[1]) for c in scored) == list(range(asked))
        for c in scored:
            counts = [*sorted((n for _, n in c.votes), reverse=True), 0, 0]
            assert (c.first, c.second) == (counts[0], counts[1])
            assert sum(counts) <= c.responses == 12
            text = _text(history, c.question)
            if c.verdict == "invalid":
                readable = "<question>" in text and answer(_inside(text)) is not None
                assert not readable or is_held_out(_inside(text))
                continue
            assert answer(text) == c.truth
            assert not is_held_out(text)
            kept = 3 <= c.first <= 9 and 5 * c.first >= 8 * c.second and c.label is not None
            assert (c.verdict == "kept") == kept


def test_each_kept_question_is_practised_and_only_its_failures_are_observed(history: History) -> None:
    settings = small_config().solver_grpo
    for number in range(1, ROUNDS + 1):
        kept = {
            c.question_id for c in of(history, events.CandidateScored, round=number) if c.verdict == "kept"
        }
        failures = of(history, events.FailureObserved, round=number)
        assert failures, "the small model fails somewhere"
        assert {f.question_id for f in failures} <= kept
        assert len({f.failure_id for f in failures}) == len(failures)
        steps = min(settings.max_steps, -(-len(kept) // settings.batch_questions))
        assert {f.step for f in failures} <= set(range(1, steps + 1))
        practised = {f.question_id: f.step for f in failures}
        assert all(practised[f.question_id] == f.step for f in failures), "no question is practised twice"


def test_a_failed_trajectory_misses_the_label_and_its_reference_reaches_it(history: History) -> None:
    from diagevo.answers.equivalence import agree
    from diagevo.answers.extraction import extract_boxed

    scored = {c.question_id: c for c in of(history, events.CandidateScored)}
    for failure in of(history, events.FailureObserved):
        label = scored[failure.question_id].label
        assert label is not None
        failed, reference = (
            extract_boxed(_text(history, t)) for t in (failure.trajectory, failure.reference)
        )
        assert reference is not None
        assert agree(reference, label)
        assert failed is None or not agree(failed, label)


def test_the_log_has_the_digest_of_every_prompt_template_and_a_changed_one_is_no_resume(
    history: History, home: Path, watcher: Watcher
) -> None:
    [configured] = of(history, events.RunConfigured)
    free = (PROMPTS / "challenger_free.txt").read_text(encoding="utf-8").rstrip("\r\n")
    assert configured.prompts["challenger_free"] == digest_of(free)
    assert configured.prompts.keys() == FIELDS.keys()
    with opened(f"sqlite:///{home / 'diagevo.db'}", "a", root=home) as memory:
        _check_prompts(memory, configured.prompts)
        with pytest.raises(ConfigError, match="have changed since run a was configured: solver_user"):
            _check_prompts(memory, configured.prompts | {"solver_user": digest_of("<question>!")})


def test_an_invalid_candidate_says_why_and_the_others_give_no_reason(history: History) -> None:
    scored = of(history, events.CandidateScored)
    assert any(event.verdict == "invalid" for event in scored)
    for event in scored:
        assert (event.invalid_reason is None) == (event.verdict != "invalid")
        if event.verdict == "invalid":
            question = parse_question(history.text(event.question) or "")
            held = question is not None and is_held_out(question)
            reason = "unreadable" if question is None else "held_out" if held else "outside_world"
            assert event.invalid_reason == reason


def test_a_failure_is_right_where_its_answer_is_the_truth_and_its_label_is_not(history: History) -> None:
    scored = {event.question_id: event for event in of(history, events.CandidateScored)}
    failures = of(history, events.FailureObserved)
    assert failures
    for failure in failures:
        asked = scored[failure.question_id]
        given = extract_boxed(history.text(failure.trajectory) or "")
        assert failure.right == (given is not None and agree(given, asked.truth or ""))
        assert not (failure.right and asked.label_true)


def test_a_stage_records_what_its_time_went_to_and_its_reward(history: History, watcher: Watcher) -> None:
    done = {(r.round, e.stage): e for r, e in completed(history)}
    # Milliseconds: one round's schedule can be made in less than half of one.
    assert sum(done[n, "challenger"].parts["scheduling"] for n in range(1, ROUNDS + 1)) > 0
    for number in range(1, ROUNDS + 1):
        solver, diagnosis = done[number, "solver"], done[number, "diagnosis"]
        between = {"orchestration", "scheduling", "cpu"}
        assert solver.parts.keys() == {"extraction", "beside training"} | between
        assert diagnosis.parts.keys() == between | {
            "extraction",
            "deduplication",
            "assignment",
            "consolidation",
        }
        assert done[number, "candidates"].parts["scheduling"] == 0, "it is made before the first stage"
        assert all(seconds >= 0 for event in (solver, diagnosis) for seconds in event.parts.values())
        for event in (solver, diagnosis):
            assert event.seconds is not None
            assert event.parts["extraction"] <= event.seconds
        assert solver.parts["cpu"] > 0.1, "it trains"
        assert solver.reward is not None
        assert -1 <= solver.reward <= 1
        assert done[number, "challenger"].reward is not None
        assert done[number, "votes"].reward is None


def test_the_schedule_of_round_two_is_the_papers(history: History, watcher: Watcher) -> None:
    committed = history.commit(1).event
    assert committed.failures == len(placements(history, 1))
    assert committed.epsilon_next == "1/3", "in the reference round z = 1"
    assert watcher.epsilons == [Fraction(1), Fraction(1, 3)]
    modes = Counter(c.mode for c in of(history, events.CandidateScored, round=1))
    assert set(modes) == {"free"}
    second = Counter(c.mode for c in of(history, events.CandidateScored, round=2))
    assert second["targeted"] + second["stitched"] > second["free"]


def test_every_counted_failure_has_one_diagnosis_and_one_place(history: History) -> None:
    for number in range(1, ROUNDS + 1):
        observed = {f.failure_id for f in of(history, events.FailureObserved, round=number)}
        diagnosed = [d.failure_id for d in of(history, events.FailureDiagnosed, round=number)]
        assert sorted(diagnosed) == sorted(observed)
        placed = [e.failure_id for e in placements(history, number)]
        assert len(placed) == len(set(placed))
        counted = {
            d.failure_id
            for d in of(history, events.FailureDiagnosed, round=number)
            if d.verdict in ("recurrence", "new_cause")
        }
        assert set(placed) == counted


def test_both_policies_changed_and_the_shipped_weights_did_not(home: Path, watcher: Watcher) -> None:
    start = (WEIGHTS / "model.safetensors").read_bytes()
    for number in range(1, ROUNDS + 1):
        for role in ("challenger", "solver"):
            folder = home / "a" / "rounds" / f"{number:03d}" / role
            assert (folder / "model.safetensors").read_bytes() != start, (number, role)
            assert not folder.with_name(f"{role}-work").exists(), (
                "work folders go when their stage is complete"
            )


def test_the_run_is_measured_before_and_after_each_round(history: History, watcher: Watcher) -> None:
    measured = [recorded.round for recorded in history.events(events.CheckpointEvaluated)]
    assert measured == [0, 1, 2]
    assert [summary.round for summary in watcher.rounds] == [1, 2]


def test_a_run_is_shown_beside_the_base_model_and_with_what_free_exploration_wrote(
    history: History, watcher: Watcher, tmp_path: Path
) -> None:
    free = [c for c in of(history, events.CandidateScored) if c.mode == "free" and c.verdict != "invalid"]
    written = Counter(family(_text(history, c.question)) for c in free)
    [before] = of(history, events.CheckpointEvaluated, round=0)
    shown = invoke("runs", "show", "--db", str(history.database.file)).stdout.splitlines()
    rows = [" ".join(line.split()) for line in shown]
    cells = [f"{before.metrics[f'{m}{g}']:.3f}" for m in ("mean_at_k", "greedy") for g in ("", *KINDS)]
    cells.append(f"{before.metrics['mean_at_k_best']:.3f}")
    assert f"base model {' '.join(cells)}" in rows
    colder = [f"{before.metrics[f'mean_at_k_T0.5{g}']:.3f}" for g in ("", *KINDS)]
    assert f"base model, T = 0.5 {' '.join(colder)} {' '.join('–' * 5)}" in rows
    [(most, count)] = written.most_common(1)
    [row] = [row for row in rows if row.startswith(f"{most} ")]
    assert sum(map(int, row.split()[1:])) == count
    assert PREMISE in rows
    database = str(history.database.file)
    given = invoke("view", "--export", str(tmp_path / "pages"), "--db", database, "--pages", "12")
    assert given.exit_code == 0, given.output
    page = (tmp_path / "pages" / history.run_id / "diagnostics.html").read_text()
    assert "<td>base model, T = 0.5</td>" in page
    assert f"<td>{most}</td>" in page
    assert PREMISE in page


@pytest.mark.slow
def test_rotation_keeps_the_newest_the_best_and_what_the_next_round_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NothingRetainedAfter(Watcher):
        def round_finished(self, round: int, figures: RoundFigures) -> None:
            super().round_finished(round, figures)
            monkeypatch.setattr("diagevo.loop.round.Round.keep_learnable", lambda round: [])

    monkeypatch.setattr(
        "diagevo.loop.run.best_round", lambda history: None
    )  # else the best would be kept for that reason
    config = small_config(round={"keep_checkpoints": 1, "candidates": 24}, challenger_grpo={"max_steps": 1})
    watcher = play(tmp_path, config, rounds=3, watcher=NothingRetainedAfter())
    assert len(watcher.rounds) == 3
    left = {f.parent.relative_to(tmp_path / "a" / "rounds") for f in tmp_path.rglob("model.safetensors")}
    assert left == {Path("001/solver"), Path("003/challenger")}


def test_the_same_seed_plays_the_same_run(unbroken: Path, history: History) -> None:
    """In another process, and through the file of its settings."""
    again = open_history(f"sqlite:///{unbroken / 'diagevo.db'}", "a", root=unbroken)
    assert again.commit(1).event.state_hash == history.commit(1).event.state_hash
    again.close()


def _text(history: History, digest: str) -> str:
    text = history.text(digest)
    assert text is not None
    return text


def _inside(completion: str) -> str:
    return completion.split("<question>")[-1].split("</question>")[0].strip()
