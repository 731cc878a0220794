"""A process that maintains a run's memory, to be killed: python -m tests.diagnosis.child FOLDER URL."""

import sys
from pathlib import Path

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, MemoryConfig
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import maintain
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from tests.diagnosis.rounds import DIMENSION, open_memory


def main(folder: Path, url: str) -> None:
    settings = DiagnosisConfig(workers=4)
    with open_memory(folder) as memory:
        role = DiagnosticianRole(engine="openai", model="m", base_url=url)
        asked = OpenAIDiagnostician(role, settings, memory.artifacts)
        screening = MemoryConfig(theta_dup=0.3, theta_merge=0.3)
        maintain(memory, asked, HashingEmbedder(DIMENSION), settings, screening)
        asked.close()
        memory.commit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
