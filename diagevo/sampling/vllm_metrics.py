"""What a vLLM server says of its own room."""

import re
import urllib.request
from typing import Any

_MOST = 4_000_000  # bytes of its metrics that are read


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> None:
        """Nowhere else: the answer is an error."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


# Not through the proxy that a cluster's environment may name: such a server is on this machine, or beside it.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Unfollowed)


def cached_tokens(url: str) -> int | None:
    """Tokens for which the engines of the vLLM at `url` (without /v1) have cache, all together, as its
    metrics say; None where it does not tell, or is no vLLM."""
    try:
        with _direct.open(f"{url}/metrics", timeout=5) as answered:
            text = answered.read(_MOST).decode(errors="replace")
    except (OSError, ValueError):
        return None
    found = 0
    for engine in re.findall(r"^vllm:cache_config_info\{(.*)\}", text, re.MULTILINE):
        labels = {name: int(number) for name, number in re.findall(r'(\w+)="(\d+)"', engine)}
        blocks = labels.get("num_gpu_blocks", 0) * labels.get("block_size", 0)
        found += labels.get("kv_cache_size_tokens", blocks)
    return found or None
