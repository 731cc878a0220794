"""A run on one page, to be sent or printed."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lxml import html

from diagevo.text.escaping import visible
from tests.attack.hostile import WORD
from tests.cli.program import invoke
from tests.view.test_against import write
from tests.view.test_compare import rows_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXAMPLE = Path(__file__).parents[2] / "examples" / "sql_eval.jsonl"


def run(home: Path, *words: str | Path) -> str:
    done = invoke(*words, env={"DIAGEVO_HOME": str(home)})
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("reported")
    run(home, "ingest", "jsonl", EXAMPLE, "--run", "sql")
    run(home, "view", "--report", home / "before.html", "--run", "sql")
    run(home, "diagnose", "--run", "sql", "--local")
    assert run(home, "view", "--report", home / "sql.html", "--run", "sql").startswith("report of sql: ")
    return home


def alone(text: str) -> None:
    """It loads nothing and leads nowhere, and says so to the browser."""
    tree = html.document_fromstring(text)
    assert not tree.xpath("//script | //link | //img | //form | //iframe | //*[@src] | //*[@style]")
    assert {way[:1] for way in tree.xpath("//@href")} == {"#"}
    [style] = tree.xpath("//style")
    assert not re.search(r"url\(|@import", style.text or "")
    assert "default-src 'none'" in tree.xpath(
        "string(//meta[@http-equiv='Content-Security-Policy']/@content)"
    )


def test_a_training_has_no_interval_by_tag_as_each_step_asks_its_prompts_again(tmp_path: Path) -> None:
    rows = [
        {"step": step, "prompt": f"prompt {n}", "response": "a", "reward": n % 2, "tags": ["sums"]}
        for step in (1, 2, 3)
        for n in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run(tmp_path, "ingest", "jsonl", tmp_path / "rows.jsonl", "--run", "t")
    run(tmp_path, "view", "--report", tmp_path / "t.html", "--run", "t")
    said = html.document_fromstring((tmp_path / "t.html").read_text("utf-8")).text_content()
    assert "6 of 12, to 4 prompts." in " ".join(said.split())
    assert "By tag" not in said


def test_it_says_what_passed_the_largest_causes_with_a_pair_each_and_how_it_was_counted(home: Path) -> None:
    """437 of 600 passed; Wilson's interval over 100 prompts is (0.634, 0.806)."""
    text = (home / "sql.html").read_text("utf-8")
    alone(text)
    said = " ".join(html.document_fromstring(text).xpath("string(//main)").split())
    assert "72.8% (63.4% to 80.6%) of the responses passed: 437 of 600, to 100 prompts." in said
    cards = html.document_fromstring(text).xpath("//section[@class='card']")
    assert len(cards) == 5
    assert "35 failures on 15 prompts, 21% of all failures (c1)" in " ".join(cards[0].text_content().split())
    for card in cards:
        assert card.xpath("count(.//table[@class='sides']//tr)") > 1
    assert "4 more causes." in said
    assert "A response passes if its reward is at least 0.5." in said
    assert "Causes were found from the texts alone, without a language model." in said
    assert not [word for word in ("ε", "Active", "Mastered", "kept", "too easy", "eactivat") if word in said]


def test_it_says_what_changed_since_another_run(tmp_path: Path) -> None:
    """Of twelve prompts with two responses three fell and eight rose by a half: p = .2266."""
    write(tmp_path, "monday", rows_of("x", range(3, 12)))
    write(tmp_path, "tuesday", rows_of("x", range(4)))
    for name, lost in (("monday", "r1.q5.a1"), ("tuesday", "r1.q0.a1")):
        run(tmp_path, "diagnose", "--run", name, "--local")
        run(tmp_path, "memory", "assign", lost, "--new", f"a fault of {name}", "--run", name)
    told = run(tmp_path, "view", "--report", tmp_path / "a.html", "--run", "tuesday", "--against", "monday")
    assert told.startswith("report of tuesday: ")
    text = (tmp_path / "a.html").read_text("utf-8")
    alone(text)
    tree = html.document_fromstring(text)
    said = " ".join(tree.xpath("string(//main)").split())
    assert "What changed since monday" in said
    assert "listed below" not in said
    assert "the mean pass rate went from 62.5% in monday to 83.3% in tuesday: +20.8 points" in said
    assert "8 passed more often and 3 less often: by the exact sign test no more than chance" in said
    assert "Prompts that got worse (3)" in said
    assert "Prompts that got better (8)" in said
    assert len(tree.xpath("//section[contains(@class, 'pair')]")) == 3 + 3
    rows = [" ".join(row.text_content().split()) for row in tree.xpath("//tbody/tr")]
    assert any(row.startswith("came") and "a fault of tuesday" in row for row in rows)
    assert any(row.startswith("gone") and "a fault of monday" in row for row in rows)
    run(tmp_path, "view", "--report", tmp_path / "b.html")
    assert "What changed since" not in (tmp_path / "b.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (("--against", "sql"), 2, "add --report FILE"),
        (("--report", "a.html", "--against", "sql"), 2, "sql is the run of the report"),
        (("--report", "a.html", "--against", "sqli"), 3, "did you mean sql?"),
        (("--report", "a.html", "--against", "../etc"), 3, "there is no run"),
    ],
)
def test_a_report_against_nothing_is_refused(
    home: Path, given: tuple[str, ...], code: int, told: str
) -> None:
    done = invoke("view", "--run", "sql", *given, env={"DIAGEVO_HOME": str(home)})
    assert (done.exit_code, told in done.output) == (code, True), done.output
    assert not Path("a.html").exists()


def test_it_opens_without_a_script_or_a_network_and_fits_paper(page: "Page", home: Path) -> None:
    page.goto((home / "sql.html").as_uri())
    for width, media in ((1280, "screen"), (400, "screen"), (680, "print")):  # A4 without its margins
        page.emulate_media(media="print" if media == "print" else "screen")
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (width, media)
        if media == "print":
            cut = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
            assert page.eval_on_selector_all(".scroll", cut) == 0
    assert page.locator("script").count() == 0


def test_a_run_without_causes_or_failures_has_one_too(home: Path, tmp_path: Path) -> None:
    before = (home / "before.html").read_text("utf-8")
    alone(before)
    assert "163 of 163 rollouts that failed have no cause" in html.document_fromstring(before).text_content()
    row = {"prompt": "p", "response": "r", "reward": 1}
    (tmp_path / "own.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"response": "s"}) + "\n")
    run(tmp_path, "ingest", "jsonl", tmp_path / "own.jsonl", "--run", "own", "--pass-at", "0.5")
    run(tmp_path, "view", "--report", tmp_path / "deep" / "own.html", "--run", "own")
    said = html.parse(tmp_path / "deep" / "own.html").getroot().text_content()
    assert "All 2 rollouts passed." in said
    assert "100.0%" in said


@pytest.mark.parametrize("name", ["a", "played"])
def test_a_run_that_plays_itself_has_one_and_its_texts_stay_texts(
    folder: Path, tmp_path: Path, name: str
) -> None:
    given = ("--db", f"sqlite:///{folder / 'diagevo.db'}", "--run", name)
    done = invoke("view", "--report", tmp_path / "a.html", *given)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "a.html").read_text("utf-8")
    alone(text)
    tree = html.document_fromstring(text)
    assert not tree.xpath("//img | //b | //*[@onerror]")
    assert visible(tree.text_content()) == tree.text_content()
    assert (WORD in tree.text_content()) is (name == "a")
    assert "Did it help?" in tree.text_content()


def test_what_it_cannot_write_is_told(home: Path) -> None:
    env = {"DIAGEVO_HOME": str(home)}
    refused = invoke("view", "--report", home, "--run", "sql", env=env)
    assert (refused.exit_code, "a report is one file" in refused.stderr) == (2, True)
    both = invoke("view", "--report", "a.html", "--export", "b", "--run", "sql", env=env)
    assert (both.exit_code, "leave one out" in both.stderr) == (2, True)
    assert invoke("view", "--report", "a.html", "--port", "1", env=env).exit_code == 2
    assert invoke("view", "--report", "a.html", "--cause", "c1", env=env).exit_code == 2
    assert invoke("view", "--report", home / "x.html", "--run", "nobody", env=env).exit_code == 3
