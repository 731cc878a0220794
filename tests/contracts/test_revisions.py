"""A revision that has landed stays as it is, and the published views are what the newest one installs."""

import hashlib
import json
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from diagevo.memory.log.migrate import HEAD
from diagevo.memory.read.views import views

ROOT = Path(__file__).parents[2]
VERSIONS = ROOT / "migrations" / "versions"
FROZEN = Path(__file__).parent / "frozen" / "revisions.txt"
"""As `sha256sum` writes it. A line is never edited: a database that has the revision has what it did then."""


def test_a_revision_that_has_landed_is_frozen() -> None:
    landed = dict(line.split()[::-1] for line in FROZEN.read_text(encoding="utf-8").splitlines())
    there = {f.name: f for f in VERSIONS.iterdir() if f.suffix in (".py", ".json") and f.name[0] != "_"}
    assert landed.keys() <= there.keys(), "it is part of how older databases become this one: restore it"
    for name, digest in landed.items():
        found = hashlib.sha256(there[name].read_bytes()).hexdigest()
        assert found == digest, f"{name} has landed: restore it, and change in a new revision what it did"
    assert there.keys() <= landed.keys(), (
        f"it lands with its digest: (cd migrations/versions && sha256sum NAME) >> {FROZEN.relative_to(ROOT)}"
    )


def test_a_revision_is_named_by_its_number() -> None:
    scripts = list(ScriptDirectory(str(ROOT / "migrations")).walk_revisions())
    assert [s.revision for s in scripts] == [f"{n:04}" for n in range(len(scripts), 0, -1)]
    assert scripts[0].revision == HEAD
    for script in scripts:
        assert Path(script.path).name.startswith(f"r{script.revision}_")


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_the_published_views_are_those_that_the_newest_revision_installs(dialect: str) -> None:
    texts = (VERSIONS / f"views_{HEAD}.json").read_text(encoding="utf-8")
    installed, published = json.loads(texts)[dialect], views(dialect)
    changed = [n for n in installed | published if installed.get(n) != published.get(n)]
    assert not changed, (
        f"databases at {HEAD} have other views: write the revision that brings these,"
        ' python -m migrations "what changes"'
    )
    assert list(installed) == list(published), "each after those that it reads"
