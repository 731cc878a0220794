"""The processes that the program starts."""

import re
from pathlib import Path

import diagevo

PACKAGE = Path(diagevo.__file__).parent


def test_no_module_of_the_current_folder_is_run() -> None:
    """Python looks there first, without -P. Ranks are the exception: accelerate starts them."""
    started = {
        (file.name, option)
        for file in PACKAGE.rglob("*.py")
        for option in re.findall(r'[(\[]sys\.executable, "(-\w+)"', file.read_text(encoding="utf-8"))
    }
    assert ("algebra.py", "-P") in started
    assert {file for file, option in started if option != "-P"} == {"ranks.py"}
