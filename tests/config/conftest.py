import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs in an empty folder, and nothing of this machine's settings reaches it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-user-settings"))
    for name in list(os.environ):
        if name.startswith("DIAGEVO_"):
            monkeypatch.delenv(name)
