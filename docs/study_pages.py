"""Two runs of the study as pages of `diagevo view`, made with the site: a Sphinx extension.

The runs are bundles in `studies/bundles`, which importing verifies. They are the method and free exploration
alone, of one seed. The one that is read last leads the list.
"""

import logging
import lzma
from pathlib import Path
from tempfile import TemporaryDirectory

from sphinx.application import Sphinx

from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from diagevo.memory.transfer.bundle import import_bundle
from diagevo.view.export import export

BUNDLES = Path(__file__).parents[1] / "studies" / "bundles"
RUNS = ("study.free-only.s3", "study.full.s3")
FOLDER = "study-runs"
PAGES = 40
"""Both overviews, causes of the method and the comparison are among them."""


def make(to: Path) -> int:
    """Write the pages into a folder; how many."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        database = Database(f"sqlite:///{folder / 'diagevo.db'}")
        prepare(database, create=True)
        for run in RUNS:
            bundle = folder / f"{run}.db"
            bundle.write_bytes(lzma.decompress((BUNDLES / f"{run}.db.xz").read_bytes()))
            import_bundle(bundle, database, None)
        written, _ = export(database, to, runs=RUNS, most=PAGES)
        database.close()
    return written


def write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        make(Path(app.outdir) / FOLDER)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
