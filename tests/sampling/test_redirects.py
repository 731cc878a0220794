"""A service that answers with a redirection gets nothing sent to where it points, whoever asks it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from diagevo.doctor import _endpoint
from diagevo.errors import ServiceError
from diagevo.sampling.vllm_metrics import cached_tokens
from tests.diagnosis.asking import ask_diagnostician, ask_embedder, ask_sampler
from tests.serving import Serving, reply, serving

pytestmark = [pytest.mark.server, pytest.mark.slow]
STATUSES = (301, 302, 303, 307, 308)
ANSWER = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}],
    "data": [{"index": 0, "embedding": [1.0, 0.0]}],
}


@contextmanager
def pointing(status: int = 200, **headers: str) -> Iterator[Serving]:
    """A server that answers all the same."""
    with serving(lambda asked: reply(asked, ANSWER, status, **headers)) as server:
        yield server


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("ask", [ask_diagnostician, ask_embedder, ask_sampler])
def test_nothing_reaches_the_second_origin(ask: Callable[[str], object], status: int) -> None:
    with (
        pointing() as there,
        pointing(status, Location=f"{there.url}/v1/elsewhere?token=hf_abcdefghijklmnop") as here,
    ):
        with pytest.raises(ServiceError, match=rf"answered {status} and points to {there.url}") as refused:
            ask(f"{here.url}/v1")
        assert (len(here.asked), there.asked) == (1, [])
    assert refused.value.exit_code == 6
    assert "hf_abcdefghijklmnop" not in str(refused.value)
    assert refused.value.hint == "if that is the service you want, use its URL as base_url"


@pytest.mark.parametrize("status", STATUSES)
def test_a_server_that_is_asked_for_its_room_is_not_followed_either(status: int) -> None:
    with pointing() as there, pointing(status, Location=f"{there.url}/metrics") as here:
        assert cached_tokens(here.url) is None
    assert (len(here.asked), len(there.asked)) == (1, 0)


@pytest.mark.parametrize("status", STATUSES)
def test_the_doctor_says_where_it_points(status: int) -> None:
    with pointing() as there, pointing(status, Location=f"{there.url}/v1") as here:
        check = _endpoint("diagnostician", f"{here.url}/v1", None, "K")
    assert (check.state, there.asked) == ("missing", [])
    assert there.url in check.found


def test_without_a_redirection_the_same_server_is_read() -> None:
    """What the tests above refuse is the status, and not the answer."""
    with pointing() as here:
        ask_sampler(f"{here.url}/v1")
        ask_embedder(f"{here.url}/v1")
    assert len(here.asked) == 2
