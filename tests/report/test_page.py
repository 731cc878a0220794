import csv
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from diagevo.report.figure import Figure
from diagevo.report.figures import FIGURES, draw
from diagevo.report.material import Material
from diagevo.report.page import Drawn, page, write_figure
from diagevo.report.tables import RunResult, table

CHROMIUM = next(
    (p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None
)
HOSTILE = "</script><script>window.broken = true</script><!-- \u2028 <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def built(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the played run, with a cause whose description tries to break out of it."""
    causes = tuple(replace(cause, description=HOSTILE) for cause in material.causes)
    hostile = replace(material, causes=causes)
    drawn = [Drawn(entry, draw(entry.name, [hostile])) for entry in FIGURES]
    file = tmp_path_factory.mktemp("page") / "index.html"
    results = [RunResult("played", HOSTILE, None, 0, 1, {"gsm8k": 0.5, "Val. greedy": 0.9})]
    file.write_text(page(hostile, drawn, {"main": table("main", results)}), encoding="utf-8")
    return file


def test_a_page_of_several_runs_names_each_in_its_heading(material: Material) -> None:
    text = page(material, [], {}, ["second", "third"])
    assert "<h1>DiagEvo: run played beside second, third</h1>" in text
    assert "<h2>Rounds of run played</h2>" in text


class Outside(HTMLParser):
    """Collects every address that the page would load, and its script elements."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.loads += [v for k, v in attrs if k == "src" and v]
        self.loads += [v for k, v in attrs if k == "href" and v and tag == "link"]


def test_the_page_loads_nothing_from_anywhere(built: Path) -> None:
    parser = Outside()
    parser.feed(built.read_text(encoding="utf-8"))
    assert parser.loads == ["data:,"]  # the empty icon
    assert parser.scripts == 2  # the specifications and the code: a hostile text made no third


def test_the_page_has_the_tables_and_says_what_is_missing(built: Path) -> None:
    text = built.read_text(encoding="utf-8")
    section = text.split('<h2 id="table-main">', 1)[1]
    assert "<th class=n>GSM8K</th>" in section
    assert "<td class=n>50.0</td><td class=n>90.0</td>" in section
    assert 'href="#table-main"' in text
    assert "<code>diagevo eval oracle sample --run played</code>" in text


def test_what_a_model_wrote_stands_on_the_page_as_text(built: Path) -> None:
    text = built.read_text(encoding="utf-8")
    shown = "&lt;/script&gt;&lt;script&gt;window.broken = true&lt;/script&gt;&lt;!-- \\u2028 &lt;img src=x"
    assert shown in text  # the separator of lines, which no screen shows, by its number
    assert "<img src=x" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
def test_the_page_draws_every_figure_in_a_browser_without_an_error(built: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    options += ["--disable-quic", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-component-update", "--disable-sync"]
    options += ["--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM, *options, built.as_uri()], capture_output=True, text=True, timeout=300, check=False
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    ready = re.findall(r'id="figure-([a-z]+)"', built.read_text(encoding="utf-8"))
    assert f'data-drawn="{len(ready)}"' in done.stdout
    for name in ready:
        shown = done.stdout.split(f'id="figure-{name}"', 1)[1]
        assert "<svg" in shown.split("<figcaption", 1)[0], name


def test_a_figure_is_written_with_its_data_beside_it(material: Material, tmp_path: Path) -> None:
    figure = draw("filter", [material])
    assert isinstance(figure, Figure)
    files = write_figure(tmp_path, "filter", figure)
    assert sorted(f.name for f in files) == [f"filter.{s}" for s in ("csv", "png", "svg", "txt", "vl.json")]
    assert (tmp_path / "filter.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "filter.svg").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "filter.csv").open(encoding="utf-8")))
    assert [row["verdict"] for row in rows] == [row["verdict"] for row in figure.rows]
