"""Maintenance of a round: 5,000 failures over 250 causes under 40 nodes, replies served at once.

Three failures of ten are recurrences, five of a hundred slips, one of a hundred a cause of its own; the
others are rewordings that the diagnostician puts down to the nearest stored cause. Vectors have 1,024
numbers.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import diagevo
from benchmarks.rows import Row, at_most, cpu_seconds
from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.diagnostician import Extraction, FailurePair, NodeCandidate
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import MaintenanceReport, maintain
from diagevo.diagnosis.replies import read_extraction
from diagevo.memory.events import Embedder, RunConfigured
from diagevo.memory.memory import Memory
from tests.diagnosis.generated import Generated, reply
from tests.diagnosis.rounds import Question, Scripted, play

FAILURES, CAUSES, NODES, DIMENSION = 5000, 250, 40, 1024
GROUP = 8
WORDS = [f"w{number}" for number in range(400)]
BODY = "a trajectory of a few hundred tokens, step after step. " * 40


def rows() -> list[Row]:
    """Milliseconds of CPU a failure, by phase, and microseconds a reply through the parser."""
    with TemporaryDirectory() as folder:
        report, seconds = _maintained(Path(folder))
    what = f"{FAILURES:,} failures, {CAUSES} causes, {NODES} nodes"
    outcomes = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.settled.items()))
    wall = sum(report.seconds.values())
    note = f"{outcomes}; {FAILURES / wall:,.0f} a second of wall time"
    each = 1000 * seconds / FAILURES
    return [
        at_most(f"maintenance, {what}", each, "ms", 1.0, note),
        *(
            Row(f"  {phase} (wall)", 1000 * spent / FAILURES, "ms", None, "", None, "", None)
            for phase, spent in report.seconds.items()
        ),
        _replies(),
    ]


def _maintained(folder: Path) -> tuple[MaintenanceReport, float]:
    rng = random.Random(1)
    causes = [" ".join(rng.choices(WORDS, k=12)) for _ in range(CAUSES)]
    embedder, settings, screening = HashingEmbedder(DIMENSION), DiagnosisConfig(), MemoryConfig()
    with _memory(folder) as memory:

        def node(text: str, shortlist: Sequence[NodeCandidate]) -> str:
            return shortlist[0].node_id if len(memory.state.nodes) >= NODES else f"label of {text}"

        asked = Scripted(_extraction, lambda text, candidates: candidates[0].cause_id, node)
        starts = range(0, CAUSES, GROUP)
        play(memory, 1, [Question([f"x|{cause}" for cause in causes[i : i + GROUP]]) for i in starts])
        maintain(memory, asked, embedder, settings, screening)
        memory.commit()
        assert (len(memory.state.causes), len(memory.state.nodes)) == (CAUSES, NODES)
        questions = [
            Question(
                [f"{BODY}{number} {sample}|{_says(rng, causes, number)}" for sample in range(GROUP)],
                text=f"question {number}",
                reference=f"{BODY}{number}",
                cause_id=f"c{number % CAUSES + 1}",
            )
            for number in range(FAILURES // GROUP)
        ]
        play(memory, 2, questions)
        began = time.process_time()
        report = maintain(memory, asked, embedder, settings, screening)
        return report, time.process_time() - began


def _memory(folder: Path) -> Memory:
    memory = diagevo.open(str(folder / "bench.db"), run="bench")
    embedder = Embedder(name="hashing", dimension=DIMENSION, revision="words-bigrams-1")
    memory.configure(RunConfigured(config={}, models={}, embedder=embedder, version="bench"))
    return memory


def _says(rng: random.Random, causes: Sequence[str], number: int) -> str:
    """What a trajectory is to be diagnosed as."""
    kind = rng.random()
    if kind < 0.30:
        return f"recurrence c{number % CAUSES + 1}"
    if kind < 0.35:
        return "slip"
    if kind < 0.36:
        return " ".join(rng.choices(WORDS, k=12))
    words = rng.choice(causes).split()
    words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)


def _extraction(pair: FailurePair) -> Extraction:
    says = pair.disagreeing.rpartition("|")[2]
    if says == "slip":
        return Extraction("slip")
    if says.startswith("recurrence "):
        return Extraction("recurrence", cause_id=says.removeprefix("recurrence "))
    return Extraction("new_cause", description=says)


def _replies() -> Row:
    """Ten thousand replies as models give them; what became of them is in the note."""
    rng = random.Random(20)
    made = [(ids, reply(rng, ids)) for ids in rng.choices([[], ["c1"], ["c1", "c12"]], k=10_000)]
    outcomes: Counter[str] = Counter()

    def read(ids: list[str], generated: Generated) -> str:
        found = read_extraction(generated.text, ids).value
        return found.verdict if found else "unresolved"

    def run() -> None:
        outcomes.clear()
        outcomes.update(read(ids, generated) for ids, generated in made)

    seconds = cpu_seconds(run)
    note = ", ".join(f"{count:,} {verdict}" for verdict, count in outcomes.most_common())
    return Row(
        "10,000 generated replies read", 1e6 * seconds / len(made), "µs", None, "", None, "", None, note
    )
