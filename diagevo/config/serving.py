"""What vLLM and other servers are reckoned with. Pure."""

from urllib.parse import urlsplit

from diagevo.config.models import HardwareConfig, SamplingConfig

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def gpus_of(hardware: HardwareConfig) -> tuple[int, ...]:
    """The GPUs of one machine that train and sample; none on the CPU."""
    return () if hardware.device == "cpu" else tuple(range(hardware.processes))


def mean_tokens(sampling: SamplingConfig) -> int:
    """Tokens of prompt and answer that a plan reckons with: an eighth of the longest."""
    return max(1, (sampling.max_prompt_tokens + sampling.max_new_tokens) // 8)


def on_this_machine(url: str | None) -> bool:
    """Whether an endpoint is here, so that it takes one of this machine's GPUs."""
    return url is not None and urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def lora_slots(rank: int) -> int:
    """What vLLM takes as the largest rank of its adapters, where ours have `rank`."""
    return next((allowed for allowed in _LORA_RANKS if allowed >= rank), rank)
