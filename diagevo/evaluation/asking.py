"""Requests to a served model side by side, each given back as soon as it is answered.

So a kill, or a service that fails, leaves undone only what was in flight: what came before is kept.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from diagevo.errors import ServiceError, StoppedSafely
from diagevo.sampling.sampler import Completion, Prompt, Sampler, SamplingParams

Key = TypeVar("Key")


def as_answered(
    sampler: Sampler,
    asks: Mapping[Key, tuple[Prompt, int]],
    *,
    n: int,
    params: SamplingParams,
    at_once: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[dict[Key, list[Completion]]]:
    """Ask each (prompt, seed) by itself, `at_once` at a time; yields what has come, under its key.

    Nothing new is asked once `should_stop` or once a request has failed: what is in flight is still yielded,
    then ServiceError is raised, or StoppedSafely where the sampler has broken requests off.
    """
    waiting = iter(asks.items())
    failure: ServiceError | StoppedSafely | None = None
    running: dict[Future[list[Completion]], Key] = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="ask") as pool:
        while True:
            while failure is None and len(running) < at_once and not should_stop():
                ask = next(waiting, None)
                if ask is None:
                    break
                key, (prompt, seed) = ask
                running[pool.submit(_alone, sampler, prompt, n, params, seed)] = key
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            answered: dict[Key, list[Completion]] = {}
            for future in done:
                key = running.pop(future)
                try:
                    answered[key] = future.result()
                except (ServiceError, StoppedSafely) as error:
                    failure = failure or error
            if answered:
                yield answered
    if failure is not None:
        raise failure


def _alone(sampler: Sampler, prompt: Prompt, n: int, params: SamplingParams, seed: int) -> list[Completion]:
    [completions] = sampler.sample([prompt], n=n, params=params, seed=seed)
    return completions
