"""What an auditor sees in a pipe, word for word; the figures are worked by hand in memory/audit/played.py."""

import csv
import json
from pathlib import Path

import pytest

import diagevo
import diagevo.memory.events
from tests.cli.memory.conftest import Ask
from tests.cli.terminal import shown
from tests.memory.audit.played import C1, C2, CONFIG, Player

WHY_C2 = """\
c2  drops the minus sign of one factor when a product of negative numbers is formed      MASTERED in round 4
 in n2  Signs and powers
 created      r1  r1.q0.a2 · new cause under new node n2 (nearest: c1 at 0.10, not above 0.50) · Question 0 of round 1: what is it?: first difference The wrong way of r1.q0.a2, attempt 1, instead of A reference of r1.q0             #38
 sampled      r2  p₂ = 1/4 = 25.0% of the 66.7% targeted: 1 question, 1 kept, mean p₁ 0.500 < 0.70                                                                                                                                      #45
 counted      r2  2 failures (2 recurrences), 2 against a false label → f = 3                                                                                                                                                           #71
   r2.q2.a0   recurrence: the question aimed at c2, the reply chose c2 · RIGHT: it gives the true answer · Question 2 of round 2: what is it?: first difference The wrong way of r2.q2.a0, attempt 2, instead of A reference of r2.q2   #70
   r2.q2.a1   recurrence: the question aimed at c2, the reply chose c2 · the label 5 is false · Question 2 of round 2: what is it?: first difference The wrong way of r2.q2.a1, attempt 2, instead of A reference of r2.q2              #71
 sampled      r3  p₃ = 3/5 = 60.0% of the 71.4% targeted: 2 questions, 2 kept, mean p₁ 0.708 ≥ 0.70                                                                                                                                     #79
 promoted     r3  Σvotes 17/24 = 0.708 ≥ 0.70 over 2 questions, closed f = 3                                                                                                                                                            #90
 reactivated  r3  3 new failures (2 recurrences, 1 deduplication), 1 against a false label → Active, f = 3, promoted this round                                                                                                        #108
   r3.q1.a2   recurrence: the question aimed at c2, the reply chose c2 · Question 1 of round 3: what is it?: first difference The wrong way of r3.q1.a2, attempt 1, instead of A reference of r3.q1                                    #107
   r3.q2.a5   recurrence: the question aimed at c2, the reply chose c2 · the label 5 is false · Question 2 of round 3: what is it?: first difference The wrong way of r3.q2.a5, attempt 1, instead of A reference of r3.q2             #109
   r3.q3.a0   deduplication: cosine 0.71 > 0.50, judged the same · Question 3 of round 3: what is it?: first difference The wrong way of r3.q3.a0, attempt 1, instead of A reference of r3.q3                                          #111
 sampled      r4  p₄ = 3/5 = 60.0% of the 71.4% targeted: 1 question, 0 kept, mean p₁ 0.917 ≥ 0.70                                                                                                                                     #117
 promoted     r4  Σvotes 11/12 = 0.917 ≥ 0.70 over 1 question, closed f = 3                                                                                                                                                            #128
 effect       p₅(c2) = 0: a Mastered cause is not aimed at; it may be stitched to others
 --full: trajectories, prompts and replies
"""  # noqa: E501  (a screen, word for word)
REPLAY_3 = """\
played after round 3: 3 Active, 1 Mastered under 2 nodes; F = 5, ε₄ = 0.286
rebuilt from 116 events up to #116, nothing else read

  F₃ = Σ f₃(e) over 3 Active causes = 1 + 3 + 1 = 5
  F₁ = 4
  z₃ = F₃/F₁ = 5/4 = 1.250
  ε₄ = F₁/(F₁ + F₃/k) = 4/(4 + 5/(1/2)) = 4/14 = 2/7 = 0.286
  p₄(e) = f₃(e)/F₃, below
"""


def test_why_tells_the_whole_story_on_one_screen(ask: Ask) -> None:
    assert ask("memory", "why", "c2").stdout == WHY_C2


def test_why_of_a_stitched_recurrence_names_both_causes(ask: Ask) -> None:
    out = ask("memory", "why", "c3").stdout
    assert "REACTIVATED in round 4" in out
    assert "recurrence: the question was stitched (c1 + c3), the reply chose c3" in out
    assert "undoing the promotion of round 3" in out
    assert "merged       r2  node n3 into n1, cosine 0.66, judged one skill “Column arithmetic”" in out
    # 4/(4 + 2·2) without c3's one failure
    assert "effect       ε₅ 0.50 without it → 0.40, p₅(c3) = 33.3%" in out


def test_all_of_a_story_has_the_votes_behind_each_promotion(ask: Ask) -> None:
    lines = ask("memory", "why", "c2", "--all").stdout.splitlines()
    named = [line.split()[0] for line in lines if line.split()[0] in ("promoted", "r3.q1", "r3.q2", "r4.q1")]
    assert named == ["promoted", "r3.q1", "r3.q2", "promoted", "r4.q1"]
    [second] = [line for line in lines if line.split()[0] == "r3.q2"]
    assert "8/12 = 0.667, label 5, false; targeted, kept" in second


def test_a_right_answer_is_not_shown_as_a_failure_without_saying_so(ask: Ask) -> None:
    """The label of r2.q2 is false, and r2.q2.a0 gives the truth: so say cause, failure, question and JSON."""
    right = ask("memory", "why", "r2.q2.a0").stdout
    assert " truth      RIGHT: it gives the true answer" in right
    assert " truth      the label 5 is false" in ask("memory", "why", "r2.q2.a1").stdout
    assert "RIGHT" in ask("memory", "why", "r2.q2").stdout
    told = json.loads(ask("memory", "why", "r2.q2.a0", "--json").stdout)["data"]
    assert (told["right"], told["label_true"]) == (True, False)
    assert "trajectory, right but against the label" in ask("memory", "why", "r2.q2.a0", "--full").stdout


def test_an_invalid_question_says_why(ask: Ask) -> None:
    out = ask("memory", "why", "r1.q4").stdout
    assert "invalid: the validation set has this question, and training must not see it" in out


def test_a_run_tells_what_was_learnt_why_questions_were_invalid_and_what_was_right(ask: Ask) -> None:
    rows = [" ".join(line.split()) for line in ask("runs", "show").stdout.splitlines()]
    assert "1 5 2 1 (1 held out) 0.062 1 6 0 –" in rows
    assert "2 4 3 0 0.208 0 3 2 1" in rows
    assert any(row.startswith("2 – – – 0.667 0.250 – ") for row in rows)
    beside = [
        " ".join(line.split()) for line in ask("runs", "diff", "played@1..played@2").stdout.splitlines()
    ]
    assert "2 – – – 0.667 0.250 3 5" in beside


def test_the_log_of_a_node_leaves_out_the_shortlists_that_it_stood_on(ask: Ask) -> None:
    """n1 and n3 were candidates for c3 and c4; c4 went to n2."""
    types = [line.split()[2] for line in ask("memory", "log", "n1").stdout.splitlines()]
    assert types == ["NodeCreated", "CauseCreated", "NodePairJudged", "NodePairJudged", "NodesMerged"]
    assert "NodeAssigned" in ask("memory", "log", "n2").stdout


def test_why_in_full_shows_trajectories_prompts_and_replies(ask: Ask) -> None:
    out = ask("memory", "why", "c4", "--full").stdout
    for text in (
        "   Question 3 of round 3: what is it?\n",
        "   The wrong way of r3.q3.a1, attempt 1\n",
        "   A reference of r3.q3\n",
        " extraction (Prompt 1), by hand-diagnostician (10 + 3 tokens, 1 try)\n",
        "   What about r3.q3.a1?\n",
        "   new_cause: multiplies exponents",
    ):
        assert text in out


def test_replay_puts_the_numbers_into_the_papers_arithmetic(ask: Ask) -> None:
    out = ask("memory", "replay", "--round", "3").stdout
    assert out.startswith(REPLAY_3)


def test_schedule_shows_what_is_drawn_and_replay_the_sums(ask: Ask) -> None:
    drawn = ask("memory", "schedule", "--round", "3")
    assert drawn.stderr == (
        "schedule of round 4 of played, as committed after round 3:"
        " of 1000 prompts about 286 are free and 714 aim at a cause; p = f/F, its share of F\n"
    )
    assert drawn.stdout.splitlines()[1].split()[:5] == ["c2", "3", "0.600", "0.4286", "0"]
    replayed = ask("memory", "replay", "--round", "3").stdout
    assert replayed.splitlines()[-4].split()[:6] == ["c2", "n2", "active", "3", "3/5", "0.600"]


def test_show_lists_causes_with_the_most_failures_first(ask: Ask) -> None:
    result = ask("memory", "show", "--round", "3")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["cause", "c2", "c1", "c4", "c3"]
    assert result.stderr == "played after round 3: 3 Active, 1 Mastered under 2 nodes; F = 5, ε₄ = 0.286\n"


def test_the_tree_has_causes_under_their_nodes(ask: Ask) -> None:
    lines = ask("memory", "show", "--tree").stdout.splitlines()
    assert lines[2] == "n1  Column arithmetic  (2 Active, 0 Mastered, f = 2)"
    assert lines[3].startswith("├─ c1 Active, f = 1, p = 0.333: forgets")
    assert lines[4].startswith("└─ c3 Active")


def test_log_has_a_line_an_event(ask: Ask) -> None:
    lines = ask("memory", "log", "--type", "CausePromoted", "--type", "CauseReactivated").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["#56", "r2", "CausePromoted", "c1"],
        ["#90", "r3", "CausePromoted", "c2"],
        ["#91", "r3", "CausePromoted", "c3"],
        ["#106", "r3", "CauseReactivated", "c1"],
        ["#108", "r3", "CauseReactivated", "c2"],
        ["#128", "r4", "CausePromoted", "c2"],
        ["#137", "r4", "CauseReactivated", "c3"],
    ]


def test_diff_names_what_changed(ask: Ask) -> None:
    out = ask("runs", "diff", "1..3").stdout
    assert " merged    n3 “Column subtraction” into n1\n" in out
    assert "c3     promoted, moved        active → mastered  1 → 0" in out


def test_what_if_says_how_far_each_row_can_be_trusted(ask: Ask) -> None:
    result = ask("memory", "what-if", "--theta-up", "0.9")
    assert [line.split()[1] for line in result.stdout.splitlines()[3:]] == [
        "exact",
        "exact",
        "open-loop",
        "open-loop",
    ]
    assert "from round 3 on the run would have drawn other questions" in result.stderr
    rerun = ask("memory", "what-if", "--tau", "2")
    assert "needs a rerun" in rerun.stdout
    assert "from round 4 on the solver would have trained on other questions" in rerun.stderr


def test_what_if_counts_the_questions_that_it_keeps_beside_the_runs_own_tau(ask: Ask) -> None:
    """5 against 3 of 12 votes: below 2, not below 1.6."""
    lines = [" ".join(line.split()) for line in ask("memory", "what-if", "--tau", "2").stdout.splitlines()]
    assert lines[0] == "tau = 2"
    assert lines[6] == "4 exact for the recorded questions 4 2 → 1 0.250 1.000 tau = 8/5"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["memory", "why", "c9"], 3, "there is no cause c9"),
        (["memory", "why", "column"], 2, "matches 4 descriptions"),
        (["memory", "replay", "--round", "9"], 3, "round 9 of run played is not committed"),
        (["memory", "show", "--run", "other"], 3, "there is no run other"),
        (["memory", "show", "--run", "plaid"], 3, "did you mean played?"),
        (["memory", "log", "--type", "Nothing"], 2, "there is no event Nothing"),
        (["runs", "diff", "3"], 2, "does not name two rounds"),
        (
            ["runs", "diff", "3..1"],
            2,
            "round 3 comes after round 1\nhint: diagevo runs diff played@1..played@3",
        ),
        (
            ["runs", "diff", "1..-1"],
            2,
            "1 is a round, -1 is not\nhint: write a..b, a@3..b@3, a@2..a@5, or 2..5",
        ),
        (["runs", "diff", "played..2"], 2, "2 is a round, played is not"),
        (["memory", "query", "DELETE FROM cause"], 2, "the database refuses it"),
        (
            ["memory", "show", "--tree", "--format", "csv"],
            2,
            "this is text, not rows: it cannot be printed as csv",
        ),
        (["memory", "what-if"], 2, "no setting is changed"),
        (["memory", "what-if", "--k", "0"], 2, "k is 0: it must be above 0"),
        (["memory", "what-if", "--tau", "often"], 2, "tau is often: it must be at least 1"),
        (["runs", "diff", "played..other"], 3, "there is no run other"),
        (["memory", "show", "--db", "nowhere.db"], 5, "there is no database"),
    ],
)
def test_what_is_wrong_is_said_with_its_exit_code(
    ask: Ask, arguments: list[str], code: int, said: str
) -> None:
    result = ask(*arguments)
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stdout == ""


def test_a_near_cause_that_was_judged_another_one_is_said_to_be_so(change: Ask, home: Path) -> None:
    """Also where no model was asked: the rule diagnostician judges without a call."""
    with diagevo.open(f"sqlite:///{home / 'diagevo.db'}", "near", root=home) as memory:
        player = Player(memory)
        player.configure(CONFIG)
        player.open(1)
        player.score(player.question(0, [("1", 6)], "kept"))
        for number in (0, 1):
            player.fail(f"r1.q0.a{number}")
            player.diagnose(f"r1.q0.a{number}", "new_cause", description=(C1, C2)[number])
        player.trained()
        player.settle_new("r1.q0.a0", label="one")
        near = diagevo.memory.events.SimilarCause(cause_id="c1", similarity=0.8)
        memory.settle(
            "r1.q0.a1",
            judged=diagevo.DuplicateJudged(
                failure_id="r1.q0.a1", candidates=[near], nearest=near, duplicate=False, cause_id=None
            ),
            assigned=diagevo.NodeAssigned(failure_id="r1.q0.a1", shortlist=[], node_id="n1", new_label=None),
        )
        player.commit()
    out = change("memory", "why", "c2", "--run", "near").stdout
    assert "new cause under n1 (nearest: c1 at 0.80, above 0.50, judged a different cause)" in out


LONG = "sums the digits of every partial product but forgets which of them were carried over, " * 4


@pytest.fixture
def long_home(home: Path) -> Path:
    """With a run of 12 rounds, each of which promotes c1, reactivates it by five failures, adds three causes
    under n1 and a node that is judged no part of it."""
    with diagevo.open(f"sqlite:///{home / 'diagevo.db'}", "long", root=home) as memory:
        player = Player(memory)
        player.configure(CONFIG)
        for number in range(1, 13):
            player.open(number)
            cause = "c1" if number > 1 else None
            player.score(
                player.question(0, [("1", 9), ("2", 3)], "kept", cause),
                player.question(1, [("1", 6), ("2", 3)], "kept"),
            )
            again = [f"r{number}.q0.a{i}" for i in range(5)] if cause else []
            new = [f"r{number}.q1.a{i}" for i in range(4)]
            for failure in (*again, *new):
                player.fail(failure)
            for failure in again:
                player.recurs(failure, "c1")
            for i, failure in enumerate(new):
                player.diagnose(failure, "new_cause", description=f"{LONG}({number}, {i})")
            player.trained()
            for failure in again:
                player.settle_recurrence(failure)
            for i, failure in enumerate(new):
                old = "n1" if i < 3 and (i or number > 1) else None
                near = ("c1", 0.44) if number > 1 else None
                label = None if old else f"{LONG}{number}{i}"
                player.settle_new(failure, nearest=near, node=old, label=label)
            player.merge("n1", f"n{number + 1}", 0.51, None)
            player.commit()
    return home


@pytest.mark.slow
@pytest.mark.parametrize("ref", ["c1", "n1", "n2", "c2"])
def test_a_long_story_fits_on_one_screen_unless_all_is_asked_for(long_home: Path, ref: str) -> None:
    def why(*options: str) -> list[str]:
        asked = ("memory", "why", ref, "--run", "long", "--no-color", *options)
        out, code = shown(*asked, env={"DIAGEVO_HOME": str(long_home)}, columns=80)
        assert code == 0, out
        return out.splitlines()

    short, whole = why(), why("--all")
    assert len(short) <= 23
    assert max(map(len, short)) <= 80
    said = {
        "c1": " left out: 29 turns, single failures (--all); texts (--full)",
        "n1": " left out: 28 causes and 4 pairs (--all)",
    }
    if ref in said:
        assert len(whole) > 60
        assert short[-1] == said[ref]
        assert any(line.startswith(" created ") for line in short)
    assert "left out" not in "\n".join(whole)


def test_a_node_of_one_screen_leaves_nothing_out(change: Ask, home: Path) -> None:
    out = change("memory", "why", "n1").stdout.splitlines()
    assert "left out" not in out[-1]
    assert [line.split()[0] for line in out[1:]] == ["created", "cause", "cause", "kept", "merged"]
    assert "c3 (from n3)  borrows" in out[3]


def test_steps_at_a_position_inside_a_round_are_those_of_that_round(ask: Ask) -> None:
    steps = ask("memory", "replay", "--step", "--at", "108").stdout.splitlines()[1:]
    assert [line.split()[0] for line in steps] == ["79", "90", "91", "105", "106", "107", "108"]
    assert steps[-1].split()[1:3] == ["CauseReactivated", "c2"]
    whole = ask("memory", "replay", "--step", "--at", "116").stdout.splitlines()[1:]
    assert whole[0].split()[0] == "79"
    assert whole[-1].split()[1:4] == ["RoundCommitted", "round", "3"]


def test_a_replay_goes_out_in_rows(ask: Ask, tmp_path: Path) -> None:
    done = ask("memory", "replay", "--round", "3", "--step", "--format", "csv", "-o", tmp_path / "steps.csv")
    assert (done.exit_code, done.stdout) == (0, "")
    rows = list(csv.DictReader((tmp_path / "steps.csv").open(encoding="utf-8")))
    assert (len(rows), rows[0]["position"], rows[-1]["type"]) == (11, "79", "RoundCommitted")
    causes = ask("memory", "replay", "--round", "3", "--format", "jsonl")
    assert [json.loads(line)["id"] for line in causes.stdout.splitlines()] == ["c2", "c1", "c4", "c3"]


def test_single_failures_are_left_out_of_a_story_before_a_turn_is_and_no_figure_of_a_turn_is_cut(
    played_home: Path,
) -> None:
    """c1 on 60 columns, where all its turns and failures are more than a screen."""
    arguments = ("memory", "why", "c1", "--no-color")
    out, code = shown(*arguments, env={"DIAGEVO_HOME": str(played_home)}, columns=60)
    lines = [line.rstrip() for line in out.splitlines()]
    assert code == 0
    assert len(lines) <= 23
    turns = [line.split()[0] for line in lines[5:] if line[1:2].isalpha()]
    assert turns == ["created", "promoted", "merged", "reactivated", "sampled", "effect", "left"]
    assert lines[-1] == " left out: 2 turns, single failures (--all); texts (--full)"
    assert "              kept, mean p₁ 0.417 < 0.70" in lines


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("why", "c1"), "run played after round 4"),
        (("why", "n1"), "run played after round 4"),
        (("why", "r1.q0"), "run played after round 4"),
        (("what-if", "--k", "1"), "run played after round 4"),
        (("replay", "--step"), "run played, round 4"),
        (("log", "-n", "2"), "run played"),
    ],
)
def test_every_header_names_the_run(ask: Ask, asked: tuple[str, ...], said: str) -> None:
    """In a pipe on stderr, as a table's title is."""
    assert ask("memory", *asked).stderr.splitlines()[0] == said


@pytest.mark.parametrize("asked", ["show", "schedule", "replay", "verify"])
def test_a_title_names_the_run_once(ask: Ask, asked: str) -> None:
    done = ask("memory", asked)
    assert "played" in (done.stderr + done.stdout).splitlines()[0]
    assert "run played after" not in done.stderr
