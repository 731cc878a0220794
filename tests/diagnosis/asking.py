"""A diagnostician that asks a server of ours, and what it is asked and answers."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole
from diagevo.diagnosis.chat import Budget
from diagevo.diagnosis.diagnostician import FailurePair, KnownCause
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.memory.memory import Memory
from tests.diagnosis.server import Answer, Behaviour, Server

SLIP = '{"matched_cause_id": null, "error_cause": null}'
TWELVE = "fails to check candidate solutions against the domain of the original equation"
NEW = f'{{"matched_cause_id": null, "error_cause": "{TWELVE}"}}'


def diagnostician(
    server: Server,
    memory: Memory,
    *,
    retries: int = 3,
    budget: Budget | None = None,
    timeout: float = 5.0,
    structured: str = "auto",
    **settings: int,
) -> OpenAIDiagnostician:
    role = DiagnosticianRole.model_validate(
        {
            "engine": "openai",
            "model": "m",
            "base_url": server.url,
            "timeout": timeout,
            "structured_output": structured,
        }
    )
    return OpenAIDiagnostician(
        role, DiagnosisConfig.model_validate(settings), memory.artifacts, retries=retries, budget=budget
    )


@contextmanager
def asking(behave: Behaviour, memory: Memory, **options: Any) -> Iterator[tuple[OpenAIDiagnostician, Server]]:
    """A server that behaves so, and who asks it."""
    with Server(behave) as server, closing(diagnostician(server, memory, **options)) as asked:
        yield asked, server


def pair(number: int = 0, known: tuple[KnownCause, ...] = (), asked: int = 1) -> FailurePair:
    return FailurePair(f"r1.q0.a{number}", "What is 1+1?", "2", "It is 2.", f"It is {number}.", known, asked)


def after(failures: int, first: Answer, then: Answer) -> Behaviour:
    """The first so many times a request comes, one answer; then another."""
    return lambda request, before: first if before < failures else then
