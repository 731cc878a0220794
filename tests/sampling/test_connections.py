"""Connections to a service: as many as a process may have."""

import resource

from diagevo.sampling import openai_sampler


def test_a_process_may_open_as_many_connections_as_it_asks_for_or_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        assert openai_sampler._open_files(40) == 40
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        assert openai_sampler._open_files(700) == 700
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 956
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
