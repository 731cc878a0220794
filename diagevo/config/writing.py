"""A configuration as YAML text: the resolved one of a run, and the commented one of `diagevo init`."""

import json
import re
from typing import Any

from diagevo.config.loading import of_profile, profile_text, value_at
from diagevo.config.models import Config
from diagevo.config.sources import keys
from diagevo.text.redaction import redacted

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./:-]*[A-Za-z0-9]|[0-9]+/[0-9]+")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off"})

HEADER = """\
# Configuration of DiagEvo, read from ./diagevo.yaml or the file of --config.
# Keys that are commented out show the value of the profile; uncomment one to change it.
# These take precedence over this file: --set filter.tau=2, then variables such as DIAGEVO_FILTER__TAU.
# Secrets never go here: a role names the environment variable that holds its key.
"""


def scalar(value: Any) -> str:
    """A value on one line of YAML 1.2, without unnecessary quotes."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def to_yaml(config: Config) -> str:
    return _lines(config, comments=False)


def template(profile: str) -> str:
    """A file that selects a profile and shows every other key, commented out, with its purpose."""
    about = [line for line in profile_text(profile).splitlines() if line.startswith("#")]
    head = f"{HEADER}\nprofile: {profile}\n" + "\n".join(about)
    return head + "\n\n" + _lines(of_profile(profile).config, comments=True)


def _lines(config: Config, *, comments: bool) -> str:
    tree = redacted(config.model_dump(mode="json"))
    out: list[str] = []
    above: tuple[str, ...] = ()
    for path, info in keys().items():
        if comments and path == ("profile",):
            continue
        section = path[:-1]
        if section != above:
            if comments and len(section) == 1:
                out.append("")
            shared = next((i for i, (a, b) in enumerate(zip(section, above, strict=False)) if a != b), None)
            start = min(len(section), len(above)) if shared is None else shared
            out += [f"{'  ' * depth}{section[depth]}:" for depth in range(start, len(section))]
            above = section
        indent = "  " * len(section)
        value = f"{path[-1]}: {scalar(value_at(tree, path))}"
        if comments:
            out += [f"{indent}# {info.description}", f"{indent}# {value}"]
        else:
            out.append(f"{indent}{value}")
    return "\n".join(out) + "\n"
