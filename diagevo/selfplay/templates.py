"""Prompt templates in files: the built-in ones, each replaced by the file of the same name in a user's
folder, and their fields filled in.

Fields are replaced literally and in a single pass, so a text that happens to contain a field's name is never
expanded again.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from diagevo.errors import ConfigError


def load_templates(
    package: str, fields: Mapping[str, Sequence[str]], folder: Path | None = None
) -> dict[str, str]:
    """The templates of `package`/prompts by name, each with the fields that it must contain. Raises
    ConfigError if the folder is missing, a file is not UTF-8 text, or a template lacks one of its fields: the
    model would then never see the cause, or the question.
    """
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            f"prompts: there is no folder {folder}", hint="name a folder of .txt templates, or leave it out"
        )
    texts: dict[str, str] = {}
    for name, needed in fields.items():
        source = files(package) / "prompts" / f"{name}.txt"
        if folder is not None and (folder / f"{name}.txt").is_file():
            source = folder / f"{name}.txt"
        try:
            texts[name] = source.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"the prompt template {source} cannot be read: {error.strerror}", hint="make it readable"
            ) from error
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the prompt template {source} is not UTF-8", hint="save it as UTF-8"
            ) from error
        missing = [field for field in needed if f"<{field}>" not in texts[name]]
        if missing:
            raise ConfigError(
                f"the prompt template {source} has no <{missing[0]}>",
                hint=f"put <{missing[0]}> where the value belongs, or remove the file",
            )
    return texts


def fill(template: str, values: Mapping[str, str], *, own_lines: bool = False) -> str:
    """Replace each `<field>` by its value. With `own_lines` a value is put on separate lines wherever the
    template has its field."""
    if not values:
        return template
    fields = re.compile("|".join(re.escape(f"<{name}>") for name in values))

    def value(match: re.Match[str]) -> str:
        text = values[match[0][1:-1]]
        if own_lines and template[: match.start()][-1:] not in ("", "\n"):
            text = f"\n{text}"
        if own_lines and template[match.end() :][:1] not in ("", "\n"):
            text = f"{text}\n"
        return text

    return fields.sub(value, template)
