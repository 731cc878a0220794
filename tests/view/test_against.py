"""Two evaluations beside each other, on a page and on the terminal."""

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lxml import html

from diagevo.errors import NotFoundError
from diagevo.evaluation.protocol import sign_test
from diagevo.memory.log.database import Database
from diagevo.text.escaping import storable, visible
from diagevo.view.page import Site
from diagevo.view.site import View
from tests.attack.hostile import KINDS
from tests.cli.program import invoke
from tests.view.conftest import serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

CURRICULUM = ("ε", "Active", "Mastered", "created r1", "F =", "promoted")


def run(home: Path, *words: str | Path) -> str:
    done = invoke(*words, env={"DIAGEVO_HOME": str(home), "COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.stdout


def write(home: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    run(home, "ingest", "jsonl", home / f"{name}.jsonl", "--run", name)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve prompts, two responses each, what fails is one of two mistakes. After it three prompts that
    always passed fail once, eight that failed once pass always, one is as it was."""
    home = tmp_path_factory.mktemp("against")
    for name, failing in (("before", range(3, 12)), ("after", range(4))):
        rows = [
            {
                "prompt": f"question {n}",
                "response": f"{'wrong' if s and n in failing else 'right'} answer {n} of {name}",
                "reward": int(not (s and n in failing)),
            }
            for n in range(12)
            for s in range(2)
        ]
        write(home, name, rows)
    for name, told in (
        ("before", {"forgets the unit": range(3, 6), "rounds up": range(6, 12)}),
        ("after", {"leaves the unit out": [3], "forgets the unit": range(3)}),
    ):
        run(home, "diagnose", "--run", name, "--local")
        for words, members in told.items():
            run(home, "memory", "assign", *(f"r1.q{n}.a1" for n in members), "--new", words, "--run", name)
    return home


def test_the_sign_test_is_exact() -> None:
    """2 (1 + 11 + 55 + 165) / 2^11 of 3 and 8; 2 · 1 / 2^5 of 0 and 5; an even split is no surprise."""
    assert sign_test(3, 8) == sign_test(8, 3) == 2 * (1 + 11 + 55 + 165) / 2**11
    assert sign_test(0, 5) == 1 / 16
    assert (sign_test(2, 2), sign_test(0, 0), sign_test(1, 0)) == (1, 1, 1)
    assert sign_test(500, 700) < 1e-7


def test_a_page_says_which_prompts_and_causes_came_and_went(home: Path) -> None:
    database = Database(f"sqlite:///{home / 'diagevo.db'}")
    view = View(Site(database, live=True))
    assert 'href="against/before.html"' in view.render("after/index.html")
    tree = html.document_fromstring(view.render("after/against/before.html"))
    said = " ".join(tree.text_content().split())
    # 24 responses each: 9 failed before, 4 after; three prompts fell and eight rose, each by one half.
    assert (
        "Of 12 prompts that both have, the mean pass rate went from 62.5% in before to 83.3% in after" in said
    )
    assert "8 passed more often and 3 less often: by the exact sign test no more than chance" in said
    assert "(p = 0.2266)" in said
    assert "Prompts that got worse (3)" in said
    assert "Prompts that got better (8)" in said
    [pair, *_] = tree.xpath("//section[contains(@class, 'pair')]")
    assert [one.text for one in pair.xpath(".//pre")] == [
        "right answer 0 of before",
        "wrong answer 0 of after",
    ]
    rows = [[cell.text_content() for cell in row.xpath("td")] for row in tree.xpath("//table[1]/tbody/tr")]
    assert [row[:5] for row in rows if row[0] == "stayed"] == [
        ["stayed", "3", "3", "forgets the unit", "the same words"]
    ]
    assert [row[:4] for row in rows if row[0] == "gone"] == [["gone", "6", "0", "rounds up"]]
    assert [row[:4] for row in rows if row[0] == "came"] == [["came", "0", "1", "leaves the unit out"]]
    with pytest.raises(NotFoundError):
        view.render("after/against/nobody.html")
    database.close()


def test_causes_of_other_words_are_one_by_their_prompts(tmp_path: Path) -> None:
    for name, words in (("a", "adds"), ("b", "sums up")):
        rows = [
            {"prompt": f"question {n}", "response": f"{name} {s}", "reward": s}
            for n in range(4)
            for s in (0, 1)
        ]
        write(tmp_path, name, rows)
        run(tmp_path, "diagnose", "--run", name, "--local")
        members = [f"r1.q{n}.a0" for n in range(3 if name == "a" else 4)]
        run(tmp_path, "memory", "assign", *members, "--new", words, "--run", name)
    told = json.loads(run(tmp_path, "runs", "diff", "a..b", "--json"))["data"]["matched"]
    both = [one for one in told if one["first"] and one["second"]]
    assert [(one["first"]["description"], one["second"]["description"], one["reason"]) for one in both] == [
        ("adds", "sums up", "3 prompts in common, of 3 and 4 that both runs asked")
    ]


def test_the_command_says_the_same_without_a_curriculum(home: Path) -> None:
    said = run(home, "runs", "diff", "before..after")
    assert "8 passed more often and 3 less often: by the exact sign test no more than chance" in said
    assert not [word for word in CURRICULUM if word in said], said
    lines = [line.split() for line in said.splitlines()]
    assert ["stayed", "3", "3", "forgets", "the", "unit", "the", "same", "words"] in lines


def test_runs_that_cannot_be_compared_are_told(database: Database) -> None:
    view = View(Site(database, live=True))
    with pytest.raises(NotFoundError, match="both runs must have responses"):
        view.render("played/against/a.html")
    assert "/against/" not in view.render("played/index.html")


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    texts = [storable(text) for text in KINDS]
    for name, passing in (("a", 1), ("b", 0)):
        rows = [
            {"prompt": text, "response": f"{text} {s}", "reward": int(s == 0 or passing), "feedback": text}
            for text in texts
            for s in (0, 1)
        ]
        write(tmp_path, name, rows)
    run(tmp_path, "diagnose", "--run", "b", "--local")
    run(tmp_path, "memory", "assign", "r1.q0.a1", "--new", "<b>bold</b> =1+1", "--run", "b")
    run(tmp_path, "view", "--export", tmp_path / "pages")
    tree = html.parse(tmp_path / "pages" / "b" / "against" / "a.html").getroot()
    assert not tree.xpath("//img | //b | //script[not(@src)] | //*[@onerror]")
    assert visible(tree.text_content()) == tree.text_content()
    assert f"Prompts that got worse ({len(texts)})" in tree.text_content()
    assert "<b>bold</b> =1+1" in tree.text_content()


@pytest.mark.slow
def test_axe_finds_no_fault_and_nothing_is_cut(page: "Page", home: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    database = Database(f"sqlite:///{home / 'diagevo.db'}")
    with serving(database) as served:
        page.goto(served.opening)
        page.goto(f"{served.base}after/against/before.html")
        for width, scheme in product((1440, 390), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert not Axe().run(page).response["violations"]
    database.close()
