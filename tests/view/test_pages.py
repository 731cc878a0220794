"""Every page in a real browser, served and from a disk: links lead somewhere, figures are the commands'."""

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from lxml import html

from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.log.database import Database
from diagevo.view.charts import STYLES, Series, chart
from diagevo.view.export import PAGES, export
from diagevo.view.page import Site
from diagevo.view.site import ROUTES, View
from tests.attack.hostile import WORD
from tests.cli.program import invoke
from tests.memory.audit.played import C2
from tests.view.conftest import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page


def _crawl(page: "Page", start: str) -> dict[str, str]:
    """Every page that links lead to from `start`, with its text, asked with the browser's cookie."""
    waiting, seen = [start], dict[str, str]()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        answer = page.request.get(at)
        assert answer.ok, (at, answer.status)
        tree = html.document_fromstring(answer.text())
        assert len(tree.findall(".//h1")) == 1, at
        seen[at] = "".join(tree.xpath("//body//text()[not(ancestor::script)]"))
        for way in tree.xpath("//a/@href"):
            target = urljoin(at, way).split("#")[0]
            if urlsplit(target).path.endswith(".html"):
                waiting.append(target)
    return seen


def _linked(folder: Path) -> set[str]:
    """Every page of a folder that links lead to from its first; raises OSError where one is not there."""
    waiting, seen = ["index.html"], set[str]()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        for way in html.parse(folder / at).xpath("//a/@href"):
            target = urlsplit(urljoin(at, way))
            if not target.scheme and target.path.endswith(".html"):
                waiting.append(unquote(target.path))
    return seen


def _kind(path: str) -> str:
    """The pattern of a page."""
    return next(pattern for pattern, *_ in ROUTES if re.fullmatch(pattern, path.removesuffix(".html")))


ALONE = {pattern for pattern, *_ in ROUTES if "/against/" not in pattern and "/compare" not in pattern}
"""Kinds of pages but those that compare evaluations, which test_against.py and test_compare.py have."""
Visit = Callable[..., object]


@pytest.fixture
def visit(page: "Page", served: Served) -> Visit:
    """Goes to a served page, with the token's cookie."""
    page.goto(served.opening)
    return lambda path, part="": page.goto(f"{served.base}{path}.html{part}")


@pytest.mark.slow
def test_every_page_is_reached_without_a_fault_and_the_folder_has_the_same_ones(
    page: "Page", served: Served, exported: Path, record_property: Callable[[str, object], None]
) -> None:
    page.goto(served.opening)
    live = _crawl(page, f"{served.base}index.html")
    names = {at.removeprefix(served.base).split("?")[0] for at in live}
    written = {str(file.relative_to(exported)) for file in exported.rglob("*.html")}
    assert _linked(exported) == written
    assert names - written == {"played/live.html", "a/live.html"}
    assert written <= names
    kinds = Counter(map(_kind, names))
    assert kinds.keys() == ALONE, "every kind of page was crawled"
    # The browser opens one of each kind and run; its longest, which has most for the script to do.
    longest = {
        (_kind(at), at.split("/")[0]): at for at in sorted(names, key=lambda at: len(live[served.base + at]))
    }
    for at in longest.values():
        page.goto(served.base + at, wait_until="load")
        assert page.locator("h1").count() == 1, at
    record_property("pages served", len(names))
    record_property("pages exported", len(written))
    print(f"crawled {len(names)} pages served, {len(written)} exported: {dict(kinds)}")
    # They are the same pages: from the disk the browser opens one of those that share a folder.
    folders = {at if at.count("/") < 2 else str(Path(at).parent): at for at in written}
    for at in folders.values():
        page.goto(exported.joinpath(at).as_uri(), wait_until="load")
        assert page.locator("h1").count() == 1, at
    assert any(WORD in text for at, text in live.items() if "/a/" in at), (
        "the hostile texts were on the pages"
    )


def test_a_text_of_a_model_stays_text(page: "Page", visit: Visit) -> None:
    """No element, dialog, direction or control comes from it; the page's fixture fails by a script's call."""
    for path in ("a/index", "a/causes", "a/causes/c8", "a/failures/r1.q0.a7", "a/log"):
        visit(path)
        assert page.locator("img").count() == 0
        assert page.locator("script:not([src]):not([type='application/json'])").count() == 0
        text = page.locator("body").inner_text()
        assert not {"\u202e", "\u2066", "\x1b", "\u200b"} & set(text)
    visit("a/failures/r1.q0.a7")
    assert "</script><script>alert(" in page.locator("body").inner_text()


@pytest.mark.slow
def test_the_sliders_say_what_the_command_says(page: "Page", visit: Visit, folder: Path) -> None:
    visit("played/what-if")
    page.wait_for_selector("fieldset:enabled")
    stops = page.evaluate("diagevoWhatIf.stops")
    cases: list[dict[str, int]] = [{"theta": n} for n in range(len(stops["theta"]))]
    cases += [{"k": 9}, {"tau": 80}, {"p_low": 30, "p_high": 35}, {"k": 3, "theta": 0}, {"k": 5, "tau": 60}]
    options = {"k": "--k", "theta": "--theta-up", "tau": "--tau", "p_low": "--p-low", "p_high": "--p-high"}
    for case in cases:
        page.locator("#as-recorded").click()
        given: list[str] = []
        for name, at in case.items():
            page.eval_on_selector(
                f"#s-{name}",
                f"one => {{ one.value = {at}; one.dispatchEvent(new Event('input', {{bubbles: true}})) }}",
            )
            n, d = stops[name][at]
            given += [options[name], f"{n}/{d}" if d != 1 else str(n)]
        asked = ("memory", "what-if", "--run", "played", *given, "--json")
        told = invoke(*asked, env={"DIAGEVO_HOME": str(folder)})
        assert told.exit_code == 0, told.output
        rows: list[dict[str, Any]] = json.loads(told.stdout)["data"]
        for row in (r for r in rows if r["kind"] == "replay"):
            cells = page.locator(f"#replay tr[data-round='{row['round']}'] td").all_inner_texts()
            assert cells[1] == row["status"], (case, row)
            if row["status"] != "needs a rerun":
                now = [str(row[name]) for name in ("failures", "active", "mastered")]
                assert [cells[2], cells[6], cells[8]] == now, (case, row)
                epsilon = page.locator(f"#replay tr[data-round='{row['round']}'] td").nth(4)
                assert epsilon.get_attribute("title") == row["epsilon_next"]["exact"], (case, row)
            assert cells[3] == str(row["was_failures"])
        kept = [r for r in rows if r["kind"] == "retention"]
        shown = page.locator("#retention tbody tr").all()
        for row, line in zip(kept, shown[-len(kept) :] if kept else [], strict=True):
            assert line.locator("td").all_inner_texts()[1:4] == [
                str(row["candidates"]),
                str(row["kept"]),
                str(row["was_kept"]),
            ], (case, row)


def test_the_sliders_move_from_a_disk_and_the_command_under_them_is_the_one_that_was_asked(
    page: "Page", exported: Path
) -> None:
    page.goto((exported / "played" / "what-if.html").as_uri())
    recorded = page.locator("#replay tbody").inner_text()
    page.wait_for_selector("fieldset:enabled")
    slide = "one => { one.value = 3; one.dispatchEvent(new Event('input', {bubbles: true})) }"
    page.eval_on_selector("#s-k", slide)
    asked = "diagevo memory what-if --run played --k 1/5"
    assert page.locator(".commands code").inner_text() == asked
    assert page.locator(".commands .copy").get_attribute("data-copy") == asked
    assert page.locator("#replay tbody").inner_text() != recorded
    page.locator("#as-recorded").click()
    assert page.locator("#replay tbody").inner_text() == recorded, "the page says the same without its script"


def test_causes_of_an_evaluation_are_filtered_by_words(page: "Page", tmp_path: Path) -> None:
    """It has neither states nor an order to choose."""
    env = {"DIAGEVO_HOME": str(tmp_path)}
    file = Path(__file__).parents[2] / "examples" / "sql_eval.jsonl"
    for words in (
        ["ingest", "jsonl", file],
        ["diagnose", "--local"],
        ["view", "--export", tmp_path / "site"],
    ):
        assert invoke(*words, "--run", "sql", env=env).exit_code == 0
    page.goto((tmp_path / "site" / "sql" / "causes.html").as_uri())
    every = page.locator("#matrix tr.one:visible").count()
    page.locator("[data-filter=matrix]").fill("distinct")
    assert 0 < page.locator("#matrix tr.one:visible").count() < every


def test_causes_are_filtered_and_ordered(page: "Page", visit: Visit) -> None:
    visit("played/causes")
    every = page.locator("#matrix tr.one:visible").count()
    page.locator("[data-filter=matrix]").fill("c1")
    assert 0 < page.locator("#matrix tr.one:visible").count() < every
    page.locator("[data-filter=matrix]").fill("")
    page.locator("[data-order=matrix]").select_option("f")
    found = page.eval_on_selector_all("#matrix tr.one", "all => all.map(row => +row.dataset.f)")
    assert found == sorted(found, reverse=True)
    assert page.locator("#matrix tr.node:visible").count() == 0
    page.locator("[data-order=matrix]").select_option("node")
    assert page.locator("#matrix tr.one:visible").count() == every


def test_a_page_fits_a_telephone_and_a_large_screen_and_paper(page: "Page", visit: Visit) -> None:
    for path in ("index", "played/index", "played/causes", "played/causes/c1", "played/what-if", "a/causes"):
        for width in (360, 2560):
            page.set_viewport_size({"width": width, "height": 900})
            visit(path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, (path, width, wide)
    # A sheet of A4 is 794 wide; paper is white whatever the screen is.
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 794, "height": 1123})
    for path in ("index", "played/index", "played/causes", "played/log"):
        visit(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 794, path
    visit("played/index")
    raised = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    assert page.evaluate(raised) == "rgb(246, 247, 249)"
    assert page.locator(".tabs").is_hidden()
    assert page.pdf()[:5] == b"%PDF-"


def test_back_and_forward_and_a_link_into_the_middle(page: "Page", visit: Visit) -> None:
    visit("played/causes")
    page.locator("#matrix tr.one a").first.click()
    page.wait_for_url("**/causes/c*.html")
    page.go_back()
    assert page.url.endswith("played/causes.html")
    page.go_forward()
    assert "/causes/c" in page.url
    visit("a/failures/r1.q0.a7", "#differs")
    assert page.locator("#differs").evaluate("one => one.matches(':target')")
    assert page.locator("#differs").is_visible()


def test_every_page_is_reached_and_used_by_keyboard(page: "Page", visit: Visit) -> None:
    visit("played/rounds/1")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    head = page.locator("table.sortable th button").first
    head.focus()
    assert head.evaluate("one => getComputedStyle(one).outlineStyle") == "solid", "what has the focus is seen"
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=ascending]").count() == 1
    visit("played/what-if")
    page.locator("#s-k").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("output[for=s-k]").inner_text() == "11/20 = 0.550"


AXED = (
    *("index", "played/index", "played/causes", "played/causes/c1", "played/nodes/n1", "played/rounds/1"),
    *("played/questions/r1.q0", "played/failures/r1.q0.a0", "played/what-if", "played/log", "played/verify"),
    *("played/live", "played/diagnostics", "played/responses", "played/report"),
    f"played/prompts/{digest_of('Question 0 of round 1: what is it?')}",
)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.slow
def test_axe_finds_no_fault_on_any_kind_of_page_in_either_theme_on_a_desk_or_a_telephone(
    page: "Page", visit: Visit
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    assert set(map(_kind, AXED)) == ALONE
    faults: list[tuple[str, ...]] = []
    for path in AXED:
        visit(path)
        for width, scheme in product((1440, 390), SCHEMES):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            faults += [
                (path, str(width), scheme, fault["id"], fault["nodes"][0]["html"][:200])
                for fault in Axe().run(page).response["violations"]
            ]
    assert not faults, "\n".join(map(" ".join, faults))


def test_on_a_telephone_whatever_is_touched_is_44_pixels_high_and_wide(page: "Page", visit: Visit) -> None:
    """Links within a line of text are as high as the line."""
    page.set_viewport_size({"width": 390, "height": 844})
    for path in AXED:
        visit(path)
        small = page.evaluate(
            """() => {
              const own = "button, select, summary, input, nav a, .inline a, td:not(.words) > a";
              return [...document.querySelectorAll(own)].filter(one => one.checkVisibility()).map(one => {
                const box = (one.closest("label.pick") ?? one).getBoundingClientRect();
                return [one.outerHTML.slice(0, 90), box.width, box.height];
              }).filter(([_, width, height]) => width < 44 || height < 44);
            }"""
        )
        assert not small, (path, small[:5])


def test_a_chart_on_a_telephone_is_drawn_for_it_and_its_words_can_be_read(page: "Page", visit: Visit) -> None:
    for width, name in ((1440, "wide"), (390, "narrow")):
        page.set_viewport_size({"width": width, "height": 844})
        visit("played/diagnostics")
        shown = page.locator(".chart svg[role=img]:visible")
        assert {one.get_attribute("class") for one in shown.all()} == {name}
        high = page.eval_on_selector_all(
            f"svg.{name} text.axis", "all => all.map(one => one.getBoundingClientRect().height)"
        )
        assert min(high) > 9, (width, min(high))


def test_each_line_of_a_chart_has_a_colour_of_its_own_in_either_theme_and_a_dash_and_mark_that_hold_in_grey(
    page: "Page", visit: Visit
) -> None:
    visit("played/diagnostics")
    page.evaluate(
        """lines => {
          const svg = document.querySelector(".chart svg.wide");
          for (let n = 1; n <= lines; n++) svg.insertAdjacentHTML("beforeend",
            `<g class="s${n} tried"><path class="line"/><circle class="mark"/></g>`);
        }""",
        STYLES,
    )
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found = page.eval_on_selector_all(
            ".tried",
            """all => all.map(one => {
              const [line, mark] = [...one.children].map(part => getComputedStyle(part));
              return [line.stroke, line.strokeDasharray, mark.fill];
            })""",
        )
        strokes, dashes, fills = zip(*found, strict=True)
        for different in (strokes, dashes, fills):
            assert len(set(different)) == len(found) == STYLES, (scheme, found)
        assert "none" not in strokes, (scheme, strokes)
    drawn = page.locator(".chart svg.wide g:not(.tried)").count()
    assert page.locator(".legend .key .line").count() == drawn, "the key is drawn as its line is"
    box = page.locator(".legend .key").first.bounding_box()
    assert box is not None
    assert box["width"] < 40


def test_an_export_holds_as_many_pages_as_it_may_and_links_to_no_other(
    database: Database, folder: Path, tmp_path: Path
) -> None:
    written, left_out = export(database, tmp_path / "few", most=5)
    assert written == 5
    assert left_out > 0
    files = list((tmp_path / "few").rglob("*.html"))
    assert len(files) == 5
    for file in files:
        for part in file.read_text().split('href="')[1:]:
            way = part.split('"')[0].split("#")[0]
            assert not way.endswith(".html") or (file.parent / way).is_file(), (file, way)
        assert "a copy of at most 5 pages: ids without a link were left out of it" in file.read_text()
    assert "left out of this export" in (tmp_path / "few" / "index.html").read_text() + files[-1].read_text()


def test_an_export_of_one_run_knows_no_other(database: Database, folder: Path, tmp_path: Path) -> None:
    export(database, tmp_path / "one", runs=["played"], most=40)
    assert not (tmp_path / "one" / "a").exists()
    assert "runs diff" not in (tmp_path / "one" / "index.html").read_text()


@pytest.mark.slow
def test_served_and_exported_pages_are_the_same_but_for_what_is_live(
    database: Database, folder: Path, exported: Path
) -> None:
    view = View(Site(database, live=False), most=PAGES)
    for path in ("index.html", "played/index.html", "played/causes/c1.html"):
        assert view.render(path) == (exported / path).read_text()


def test_an_export_that_finds_no_room_says_so_in_one_line(folder: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    (pages / "static").mkdir(parents=True)
    (pages / "static" / "view.css").write_text("of a former export")
    (pages / "static" / "view.js").symlink_to("/dev/full")
    done = invoke("view", "--export", pages, "--db", f"sqlite:///{folder / 'diagevo.db'}")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        f"error: cannot write {pages}: No space left on device",
        "hint: name another place",
    ]


def test_a_cause_is_one_file_that_needs_no_other(page: "Page", folder: Path, tmp_path: Path) -> None:
    given = ("--db", f"sqlite:///{folder / 'diagevo.db'}", "--run", "played")
    alone = tmp_path / "shared" / "c2.html"
    done = invoke("view", "--export", alone, "--cause", "c2", *given)
    assert (done.exit_code, done.stdout) == (0, f"c2 of played: {alone}\n")
    text = alone.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)|href=\"(?!#)|url\(|@import", text)
    page.goto(alone.as_uri())
    body = page.locator("body").inner_text()
    assert C2 in body
    assert "The wrong way of r3.q3.a0, attempt 1" in body
    assert page.evaluate("getComputedStyle(document.querySelector('.card')).borderStyle") == "solid"
    refused = invoke("view", "--export", tmp_path, "--cause", "c2", *given)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: {tmp_path} is a folder\nhint: one page is one file:")
    assert invoke("view", "--export", alone, "--cause", "c99", *given).exit_code == 3


def test_a_chart_begins_below_0_where_values_are_and_small_ones_keep_their_digits() -> None:
    """From −.5 to .25 in steps of .2, the least of 1, 2, 2.5 or 5 times a power of ten: −.6 to .4."""
    drawn = chart("loss", ["1.1", "1.2", "1.3"], [Series("solver", [-0.5, 0.25, 0.0004])], over="step")
    assert drawn is not None
    assert [label for _, label in drawn.drawings[0].up] == ["-0.6", "-0.4", "-0.2", "0", "0.2", "0.4"]
    assert [mark.y for mark in drawn.drawings[0].lines[0].marks] == [174.0, 39.0, 83.9]
    assert drawn.rows[1:] == (("1.1", "-0.5"), ("1.2", "0.25"), ("1.3", "0.0004"))
