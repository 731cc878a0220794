from pathlib import Path

import numpy as np

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.calibrate import Pair, calibrate, judged_pairs, proposal
from diagevo.diagnosis.maintain import maintain
from tests.diagnosis.rounds import Angles, Question, Scripted, open_memory, play
from tests.diagnosis.test_maintain import by_text


class Half(Angles):
    """Another embedding model: it sees half the angle."""

    name = "half"

    def embed(self, texts):
        return super().embed([f"@{float(text.rpartition('@')[2]) / 2}" for text in texts])


def test_the_proposal_lets_95_of_100_through():
    cosines = [0.40] + [0.615 + i / 1000 for i in range(19)]
    assert proposal(cosines) == 0.61
    assert proposal([*cosines, 0.3]) == 0.4 - 0.01  # 19 of 21 would be too few; 0.40 must be above, not on it
    assert proposal([0.7]) == 0.69
    assert proposal([]) is None


def test_pairs_are_what_was_compared_and_no_more(tmp_path: Path):
    """c joins b among the candidates b and a; nobody said that a and c differ."""
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @40", "c @30", "d @200"])])
        asked = Scripted(
            by_text,
            duplicate=lambda text, candidates: "c2" if text == "c @30" else None,
            node=lambda text, shortlist: text,
            merge=lambda a, b: "ab @20",
        )
        maintain(memory, asked, Angles(), DiagnosisConfig(), MemoryConfig())
        pairs = list(judged_pairs(memory.log, "a"))
        assert pairs == [
            ("theta_dup", Pair("b @40", "a @0", False)),
            ("theta_dup", Pair("c @30", "b @40", True)),
            ("theta_merge", Pair("a @0", "b @40", True)),
        ]
        before = len(list(memory.log.read("a")))
        dup, merge = calibrate(memory.log, "a", Half(), MemoryConfig())
        assert len(list(memory.log.read("a"))) == before
    # The other model puts the pair that was the same at 5° (cos 0.9962) and the other at 20° (0.9397).
    assert (dup.threshold, dup.model, dup.current, dup.proposed) == ("theta_dup", "half", 0.5, 0.99)
    assert (dup.same, dup.different, dup.same_kept, dup.different_kept) == (1, 1, 1.0, 0.0)
    assert dup.unrelated_kept == 0.0  # c1 and c2 at 20°, c1 and c3 at 100°, c2 and c3 at 80°
    assert not dup.enough
    assert (merge.threshold, merge.proposed, merge.different_kept) == ("theta_merge", 0.93, None)
    assert np.isclose(np.cos(np.radians(20)), 0.9397, atol=1e-4)
