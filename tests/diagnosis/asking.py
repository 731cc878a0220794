"""A diagnostician that asks a server of ours, and what it is asked and answers."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, EmbedderRole
from diagevo.diagnosis.chat import Budget
from diagevo.diagnosis.diagnostician import FailurePair, KnownCause
from diagevo.diagnosis.embedder import OpenAIEmbedder
from diagevo.diagnosis.endpoint import Endpoint
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.memory.memory import Memory
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.service import Service
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


def ask_diagnostician(url: str, key_env: str = "OPENAI_API_KEY") -> str:
    with closing(Endpoint(Service(url, key_env=key_env, timeout=10.0, retries=0), 1)) as asked:
        return asked.complete(model="m", messages=[]).choices[0].text


def ask_embedder(url: str, key_env: str = "OPENAI_API_KEY") -> None:
    role = EmbedderRole(engine="openai", model="m", dimension=2, base_url=url, api_key_env=key_env)
    with closing(OpenAIEmbedder(role, retries=0)) as asked:
        asked.embed(["my secret plan"])


def ask_sampler(url: str, key_env: str = "OPENAI_API_KEY") -> None:
    """Also what judges, the challenger and the solver are asked through."""
    with closing(OpenAISampler(Service(url, key_env=key_env, retries=0), "m", workers=1)) as asked:
        params = SamplingParams(temperature=1.0, top_p=1.0, max_new_tokens=8)
        asked.sample([[{"role": "user", "content": "my secret plan"}]], n=1, params=params, seed=1)


def after(failures: int, first: Answer, then: Answer) -> Behaviour:
    """The first so many times a request comes, one answer; then another."""
    return lambda request, before: first if before < failures else then
