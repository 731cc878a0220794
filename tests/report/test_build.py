import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diagevo.errors import ConfigError
from diagevo.memory.log.database import Database
from diagevo.report.build import build
from diagevo.report.figure import Figure
from diagevo.report.figures import FIGURES, draw
from diagevo.report.files import write_figure
from diagevo.report.paper_tables import RunResult, table
from diagevo.report.report_data import Material

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>window.broken = true</script><!-- \u2028 <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def database(run_folder: Path) -> Iterator[Database]:
    opened = Database(str(run_folder / "log.db"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def built(database: Database, material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the played run, with a cause whose description tries to break out of its page."""
    causes = tuple(replace(cause, description=HOSTILE) for cause in material.causes)
    folder = tmp_path_factory.mktemp("report") / "pages"
    results = [RunResult("played", HOSTILE, None, 0, 1, {"gsm8k": 0.5, "Val. greedy": 0.9})]
    build(
        database,
        [replace(material, causes=causes)],
        folder,
        tables={"main": table("main", results)},
        pages=3,
    )
    return folder


@pytest.fixture(scope="module")
def overview(built: Path) -> str:
    return (built / "played" / "index.html").read_text(encoding="utf-8")


def test_each_figure_is_once_on_the_run_s_page_with_its_caption_and_files(built: Path, overview: str) -> None:
    pictures = re.findall(r'<img src="([^"]+)"', overview)
    drawn = [entry.name for entry in FIGURES if f'src="../figures/{entry.name}.png"' in overview]
    assert pictures == [f"../figures/{name}.png" for name in drawn]
    assert {"performance", "memory", "case"} <= set(drawn)
    assert all((built / "played" / picture).is_file() for picture in pictures)
    assert overview.count("Run played, ") >= len(drawn)
    assert 'class="chart"' not in overview, "no second picture of the same"


def test_a_report_of_several_runs_names_each_in_its_heading(
    database: Database, material: Material, tmp_path: Path
) -> None:
    build(database, [material, replace(material, run_id="second")], tmp_path / "two", pages=2)
    text = (tmp_path / "two" / "played" / "index.html").read_text(encoding="utf-8")
    assert "<h1>played beside second</h1>" in text
    assert "<h2>Rounds of played</h2>" in text


def test_the_page_has_the_tables_and_says_what_is_missing(overview: str) -> None:
    section = overview.split('id="table-main"', 1)[1]
    assert '<th scope="col" class=n>GSM8K</th>' in section
    assert "<td class=n>50.0</td><td class=n>90.0</td>" in section
    assert 'href="#table-main"' in overview
    assert "<code>diagevo eval labels --run played --check check.csv</code>" in overview


def test_what_a_model_wrote_stands_on_the_page_as_text(overview: str) -> None:
    shown = "&lt;/script&gt;&lt;script&gt;window.broken = true&lt;/script&gt;&lt;!-- \\u2028 &lt;img src=x"
    assert shown in overview  # the separator of lines, which no screen shows, by its number
    assert "<img src=x" not in overview
    assert overview.count("<script") == 1  # the page's own


def test_a_report_replaces_the_one_that_was_there_and_nothing_else(
    database: Database, material: Material, tmp_path: Path
) -> None:
    build(database, [material], tmp_path / "report", pages=6)
    (tmp_path / "report" / "notes.txt").write_text("mine")
    build(database, [material], tmp_path / "report", pages=2)
    assert len(list((tmp_path / "report").rglob("*.html"))) == 2
    assert (tmp_path / "report" / "notes.txt").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("mine")
    with pytest.raises(ConfigError, match="contains something other than exported pages"):
        build(database, [material], tmp_path / "other")
    assert (tmp_path / "other" / "index.html").read_text() == "mine"


def test_a_figure_is_written_with_its_data_beside_it(material: Material, tmp_path: Path) -> None:
    figure = draw("length", [material])
    assert isinstance(figure, Figure)
    files = write_figure(tmp_path, "length", figure)
    assert sorted(f.name for f in files) == [f"length.{s}" for s in ("csv", "png", "svg", "txt", "vl.json")]
    assert (tmp_path / "length.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "length.svg").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "length.csv").open(encoding="utf-8")))
    assert [float(row["words"]) for row in rows] == [row["words"] for row in figure.rows]
