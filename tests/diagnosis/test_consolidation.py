import pytest

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.diagnostician import NodeContents
from diagevo.diagnosis.maintain import MaintenanceReport, maintain
from diagevo.errors import StoppedSafely
from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import Angles, Question, Scripted, memory_now, open_memory, play, story
from tests.diagnosis.test_maintain import by_text


def run(memory: Memory, diagnostician: Scripted, theta_merge: float = 0.5) -> MaintenanceReport:
    """Causes never join an old node and are never duplicates; nodes are labelled as their first cause."""
    return maintain(
        memory,
        diagnostician,
        Angles(),
        DiagnosisConfig(),
        MemoryConfig(theta_dup=1, theta_merge=theta_merge),
    )


def judge(answers: dict[frozenset[str], str], log: list[tuple[str, str]]) -> Scripted:
    """Merges the pairs of labels in `answers`; keeps what it was asked, as (label, label)."""

    def merge(a: NodeContents, b: NodeContents) -> str | None:
        log.append((a.label, b.label))
        return answers.get(frozenset((a.label, b.label)))

    return Scripted(by_text, node=lambda text, shortlist: text, merge=merge)


def test_pairs_above_the_threshold_are_asked_about_by_falling_similarity_then_ids(tmp_path):
    """At 0°, 40°, 60°, 120°: 20° apart n2 n3, 40° n1 n2; 60° (cos = 0.5) is not above; 80° is below."""
    log: list[tuple[str, str]] = []
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @40", "c @60", "d @120"])])
        report = run(memory, judge({}, log))
    assert log == [("b @40", "c @60"), ("a @0", "b @40")]
    assert report.pairs == {"refused": 2}


def test_a_merge_keeps_states_and_frequencies_and_the_lower_id(tmp_path):
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @40"])])
        report = run(memory, judge({frozenset(("a @0", "b @40")): "ab @20"}, []))
        assert report.pairs == {"merged": 1}
        assert memory_now(memory) == {"a @0": ("active", 1, "n1"), "b @40": ("active", 1, "n1")}
        assert memory.node("n1").label == "ab @20"
        assert list(memory.state.nodes) == ["n1"]


def test_after_a_merge_the_question_is_about_the_survivor_as_it_is_now(tmp_path):
    """n2 and n3 are joined first; the pair (n1, n2) and the pair (n1, n3) are then one question about n2."""
    log: list[tuple[str, str]] = []
    seen: list[tuple[str, ...]] = []

    def merge(a: NodeContents, b: NodeContents) -> str | None:
        log.append((a.label, b.label))
        seen.append(b.causes)
        return "bc @20" if (a.label, b.label) == ("b @30", "c @40") else None

    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @30", "c @40"])])
        asked = Scripted(by_text, node=lambda text, shortlist: text, merge=merge)
        report = run(memory, asked)
        assert list(memory.state.nodes) == ["n1", "n2"]
    assert log == [("b @30", "c @40"), ("a @0", "bc @20")]
    assert seen[1] == ("b @30", "c @40")
    assert report.pairs == {"merged": 1, "refused": 1, "joined": 1}


def test_a_chain_of_merges_ends_in_the_lowest_node(tmp_path):
    answers = {frozenset(("b @30", "c @40")): "bc @35", frozenset(("a @0", "bc @35")): "abc @20"}
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @30", "c @40"])])
        report = run(memory, judge(answers, []))
        assert list(memory.state.nodes) == ["n1"]
        assert memory.node("n1").causes == ("c1", "c2", "c3")
        assert memory.node("n1").label == "abc @20"
        memory.commit()
    assert report.pairs == {"merged": 2, "joined": 1}


def test_there_is_no_second_pass_over_what_a_merge_brought_near(tmp_path):
    """n3 at 90° is above the threshold of neither; the merged node, at 60°, would be."""
    log: list[tuple[str, str]] = []
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @20", "c @90"])])
        run(memory, judge({frozenset(("a @0", "b @20")): "ab @60"}, log))
        run(memory, judge({}, log))
        assert log == [("a @0", "b @20")]
        memory.commit()
        play(memory, 2, [])
        run(memory, judge({}, log))
    assert log == [("a @0", "b @20"), ("ab @60", "c @90")]


def test_a_refused_pair_is_asked_again_only_when_its_contents_have_changed(tmp_path):
    log: list[tuple[str, str]] = []
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @40"])])
        run(memory, judge({}, log))
        memory.commit()
        play(memory, 2, [Question(["recurrence c1"], cause_id="c1")])
        report = run(memory, judge({}, log))
        memory.commit()
        assert report.pairs == {"refused_before": 1}
        play(memory, 3, [Question(["more @1"])])
        joins = judge({}, log)
        joins.node = lambda text, shortlist: "n1"
        report = run(memory, joins)
    assert report.pairs == {"refused": 1}
    assert len(log) == 2


def test_stopped_between_two_pairs_it_goes_on_with_the_same_list(tmp_path):
    """What was answered is asked again here because this diagnostician stores nothing; the events are the
    same."""
    answers = {frozenset(("b @30", "c @40")): "bc @35", frozenset(("a @0", "bc @35")): "abc @20"}
    stories = []
    for interrupted in (False, True):
        folder = tmp_path / str(interrupted)
        folder.mkdir()
        with open_memory(folder) as memory:
            play(memory, 1, [Question(["a @0", "b @30", "c @40"])])
            asked = judge(answers, [])
            if interrupted:
                with pytest.raises(StoppedSafely):
                    maintain(
                        memory,
                        asked,
                        Angles(),
                        DiagnosisConfig(),
                        MemoryConfig(theta_dup=1),
                        should_stop=lambda asked=asked: asked.asked.get("merge", 0) > 0,
                    )
                assert story(memory, ["NodePairJudged"]) == []
            run(memory, asked)
            memory.commit()
            stories.append(story(memory))
    assert stories[0] == stories[1]
