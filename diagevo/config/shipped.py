"""The shipped profiles, in the order of the help; the first is the default."""

from typing import Literal, get_args

Profile = Literal[
    "embedded",
    "qwen3-4b",
    "qwen3-8b",
    "octothinker-8b",
    "qwen3-0.6b-24gb",
    "qwen3-1.7b-80gb",
    "qwen3-8b-lora-80gb",
    "qwen3-8b-2x8",
    "smollm2-135m",
]
PROFILES: tuple[Profile, ...] = get_args(Profile)
