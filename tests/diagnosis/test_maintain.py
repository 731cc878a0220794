from fractions import Fraction

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.diagnostician import Extraction, FailurePair
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import MaintenanceReport, maintain
from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import DIMENSION, Question, Scripted, memory_now, open_memory, play

SETTINGS, MEMORY = DiagnosisConfig(), MemoryConfig()


def by_text(pair: FailurePair) -> Extraction:
    """A failed response names its own diagnosis: `recurrence c1`, `slip`, `unresolved`, or a description."""
    verdict, _, rest = pair.disagreeing.partition(" ")
    match verdict:
        case "recurrence":
            return Extraction("recurrence", cause_id=rest)
        case "slip":
            return Extraction("slip")
        case "unresolved":
            return Extraction("unresolved", flags=("unreadable",))
    return Extraction("new_cause", description=pair.disagreeing)


def run(memory: Memory, diagnostician: Scripted, settings: DiagnosisConfig = SETTINGS) -> MaintenanceReport:
    return maintain(memory, diagnostician, HashingEmbedder(DIMENSION), settings, MEMORY)


def test_each_failure_counts_once_under_the_cause_that_it_was_put_down_to(tmp_path):
    with open_memory(tmp_path) as memory:
        play(
            memory,
            1,
            [
                Question(["forgets the domain check", "slip", "forgets the domain check now"]),
                Question(["unresolved", "swaps numerator and denominator"]),
            ],
        )
        first = Scripted(by_text, duplicate=lambda text, candidates: candidates[0].cause_id)
        report = run(memory, first)
        memory.commit()
        # The domain check came twice (one more match by deduplication), the swap once; slip and unresolved not.
        assert memory_now(memory) == {
            "forgets the domain check": ("active", 2, "n1"),
            "swaps numerator and denominator": ("active", 1, "n2"),
        }
        assert memory.state.failures == 3
        assert report.verdicts == {"new_cause": 3, "slip": 1, "unresolved": 1}
        assert report.settled == {"new_cause": 2, "duplicate": 1}
        assert first.asked == {"extract": 5, "duplicate": 1, "assign": 2}
        play(memory, 2, [Question(["recurrence c1", "slip"], cause_id="c1", first=3)])
        report = run(memory, Scripted(by_text))
        memory.commit()
        assert memory_now(memory)["forgets the domain check"] == ("active", 3, "n1")
        assert report.settled == {"recurrence": 1}
        # F₂ = 4, F₁ = 3, k = 1/2: ε₃ = 3 / (3 + 8) = 3/11.
        assert memory.state.epsilon == Fraction(3, 11)
