"""Passwords, keys and tokens: found in any text or configuration, masked where it is shown, refused where it
would be stored.

A false alarm hides a word of a message; a miss publishes a key. So when in doubt, mask.
"""

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from diagevo.text.escaping import visible

MASK = "***"

SHORTEST = 8
"""A shorter variable value may be a word such as "none", which would then be masked everywhere."""

_LAST = {"pass", "pw", "pwd", "key", "token", "sig", "signature", "credential", "credentials", "auth"}
_LAST |= {"authorization", "bearer", "jwt", "sas"}
_ANYWHERE = ("password", "passwd", "passphrase", "secret", "apikey", "accesskey")
_SPECIAL = {"pad", "eos", "bos", "unk", "sep", "cls", "mask", "stop", "special", "image"}
"""A token after one of these words is a tokenizer's."""

_POINTERS = frozenset({"env", "file", "path", "name", "variable"})
"""A last word that marks a name as the location of a secret, not the secret itself: api_key_env."""

_NAME = r"[A-Za-z][\w.-]{0,63}"
_VALUE = r"""(?!…)(?P<value>"[^"\n]*"?|'[^'\n]*'?|[^\s&"']+)"""
_NAMED = (
    re.compile(rf"""(?<![\w.])(?P<name>{_NAME})["']?\s{{0,3}}=\s{{0,3}}{_VALUE}"""),
    re.compile(rf"""[?&](?P<name>{_NAME})={_VALUE}"""),  # also in a URL that is itself a value
    re.compile(rf"""["'](?P<name>{_NAME})["']\s{{0,3}}:\s{{0,3}}{_VALUE}"""),
    re.compile(rf"""(?<![\w.-])(?P<name>[A-Za-z]+[_-][\w.-]{{1,60}}|(?i:password)):\s{{1,3}}{_VALUE}"""),
    re.compile(rf"""(?<![\w-])--?(?P<name>{_NAME})["'\s,]{{1,4}}(?!-){_VALUE}"""),
)
_URL = re.compile(r"""(?P<web>https?)?:(?P<slashes>//)?(?P<rest>[^\s"'<>]{1,4096})""", re.IGNORECASE)
_SENT = re.compile(
    r"""(?:\bbearer\s{1,3}|\bauthorization["']?\s{0,3}[:=]\s{0,3}["']?(?:\w{1,20}\s{1,3})?)"""
    r"""(?P<value>[^\s"',]{4,})""",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|(?:hf|gsk|ghp|gho|ghs|ghu)_[A-Za-z0-9]{16,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}|AIza[\w-]{30,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_WORD = re.compile(r"[A-Za-z0-9]{16,}")

_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Shell variables for the current folder: not passwords, though named like one."""

_remembered: set[str] = set()


@lru_cache(maxsize=1024)
def names_secret(name: str) -> bool:
    """Whether this name denotes a secret: api_key, sslpassword, HF_TOKEN, sig; not api_key_env."""
    spelled = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", spelled) if word and not word.isdigit()]
    if not words or words[-1] in _POINTERS or words[-1].endswith("file"):
        return False
    if words[-1] == "token" and words[0] in _SPECIAL:
        return False
    return words[-1] in _LAST or any(part in word for word in words for part in _ANYWHERE)


def is_variable(name: str) -> bool:
    """Whether this can name an environment variable, and is not a token given by mistake."""
    return (
        re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name) is not None
        and _SHAPES.search(name) is None
        and not any(sum(map(str.isdigit, word)) > 1 for word in _WORD.findall(name))
    )


def key_from(variable: str) -> str | None:
    """The key in an environment variable; from now on it is masked, whatever the variable's name."""
    key = os.environ.get(variable)
    remember(key)
    return key


def remember(secret: str | None) -> None:
    """Mask this value from now on."""
    if secret is not None and len(secret) >= SHORTEST:
        _remembered.add(secret)


def masked(text: str) -> str:
    """`text` with every secret in it as ***. Mask before cutting: a part of a key is not recognised."""
    return _without(text, _found(text))


def brief(sent: str | bytes) -> str:
    """A service's text for a message: on one line, masked, shortened."""
    text = sent[:65536].decode(errors="replace") if isinstance(sent, bytes) else sent[:65536]
    return visible(masked(" ".join(text.split())), one_line=True)[:300]


def _without(text: str, found: Iterator[tuple[int, int]]) -> str:
    out, reached = [], 0
    for start, end in sorted(found):
        if end > reached:
            out += [text[reached:start], MASK] if start >= reached else []
            reached = end
    return "".join((*out, text[reached:]))


def redacted(value: Any) -> Any:
    """A value of a configuration or of JSON, with every secret in it as ***."""
    match value:
        case str():
            return masked(value)
        case Mapping():
            return {
                key: MASK
                if isinstance(inner, str | int | float)
                and not isinstance(inner, bool)
                and names_secret(str(key))
                else redacted(inner)
                for key, inner in value.items()
            }
        case list() | tuple():
            options = [None, *value]
            kept = [
                MASK if _is_bare_option(option) and isinstance(inner, str) else redacted(inner)
                for option, inner in zip(options, value, strict=False)
            ]
            return kept if isinstance(value, list) else tuple(kept)
    return value


def holds_secret(value: Any) -> bool:
    """Whether a value must not be stored."""
    return redacted(value) != value


def _is_bare_option(word: Any) -> bool:
    """Whether the word after this one is a secret: --api-key."""
    return isinstance(word, str) and word.startswith("-") and "=" not in word and names_secret(word)


def _found(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of every secret; they may overlap."""
    for url in _URL.finditer(text):
        # SQLAlchemy reads a password up to the first @; a second one was meant to be part of it.
        start = url.start("rest")
        end = text.rfind("@", start, url.end())
        colon = text.find(":", start, end) if end >= 0 else -1
        if end >= 0 and (colon >= 0 or url["web"] or not url["slashes"]):
            yield (colon + 1 if colon >= 0 else start), end
    for pattern in _NAMED:
        for named in pattern.finditer(text):
            if names_secret(named["name"]):
                start, end = named.span("value")
                if text[start] in "\"'":
                    start, end = start + 1, end - (end - start > 1 and text[end - 1] == text[start])
                yield start, end
    for sent in _SENT.finditer(text):
        yield sent.span("value")
    for shape in _SHAPES.finditer(text):
        yield shape.span()
    yield from _found_known(text)


def unkeyed(text: str) -> str:
    """`text` with the values of known keys as ***, and nothing else changed: for a server's answer, which may
    echo the key, and is otherwise stored verbatim."""
    return _without(text, _found_known(text))


def _found_known(text: str) -> Iterator[tuple[int, int]]:
    for value in _known():
        edge = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])" if len(value) < 16 else "{}"
        for form in {value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1], value[::-1]}:
            for known in re.finditer(edge.format(re.escape(form)), text):
                yield known.span()
        for form in _in_base64(value):
            for known in re.finditer(re.escape(form), text):
                yield known.span()


@lru_cache(maxsize=64)
def _in_base64(value: str) -> frozenset[str]:
    """What the value looks like in base64, wherever it begins in what was encoded: the characters that it
    alone decides, in both alphabets."""
    forms: set[str] = set()
    for before in range(3):
        content = b"\0" * before + value.encode(errors="surrogateescape")
        first, last = -(-before * 8 // 6), len(content) * 8 // 6
        forms |= {encode(content).decode()[first:last] for encode in (b64encode, urlsafe_b64encode)}
    return frozenset(forms)


def _known() -> set[str]:
    """Secret values in this process's environment."""
    return _remembered | {
        value
        for name, value in os.environ.items()
        if len(value) >= SHORTEST and names_secret(name) and name not in _FOLDERS
    }
