"""Models, steps and runs beside each other, on a page and on the terminal."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lxml import html

from diagevo.errors import ConfigError, NotFoundError
from diagevo.memory.compare.run_slices import SlicedRun, SliceNamed, slice_named
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.read.pass_rates import pass_rates
from diagevo.text.escaping import storable, visible
from diagevo.view.page import Site
from diagevo.view.site import View
from tests.attack.hostile import KINDS
from tests.cli.program import invoke
from tests.view.conftest import serving
from tests.view.test_against import run, write

if TYPE_CHECKING:
    from playwright.sync_api import Page

ADDRESSES = "model=org/small..model=org/large"


def rows_of(model: str, failing: range, step: int = 1) -> list[dict[str, Any]]:
    """Twelve prompts, two responses each; of those that fail the second is wrong."""
    return [
        {
            "step": step,
            "prompt": f"question {n}",
            "response": f"{'wrong' if s and n in failing else 'right'} answer {n} of {model} in {step}",
            "reward": int(not (s and n in failing)),
            "tags": ["even" if n % 2 == 0 else "odd"],
            "model": model,
        }
        for n in range(12)
        for s in range(2)
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`org/small` fails 9 of 24, `org/large` 4 of 24: on three prompts it is worse, on eight better."""
    home = tmp_path_factory.mktemp("compare")
    write(home, "evals", rows_of("org/small", range(3, 12)) + rows_of("org/large", range(4)))
    run(home, "diagnose", "--run", "evals", "--local")
    groups = SlicedRun(history := History(Database(f"sqlite:///{home / 'diagevo.db'}"), "evals")).groups
    names = {(one.model, history.text(one.question)): name for name, one in groups.items()}
    history.close()
    small = [f"{names['org/small', f'question {n}']}.a1" for n in range(3, 12)]
    large = [f"{names['org/large', f'question {n}']}.a1" for n in range(4)]
    run(home, "memory", "assign", *small[:6], *large[:1], "--new", "forgets the unit", "--run", "evals")
    run(home, "memory", "assign", *small[6:], "--new", "rounds up", "--run", "evals")
    write(home, "one", rows_of("x", range(3), 1) + rows_of("x", range(2, 12), 2) + rows_of("x", range(1), 3))
    return home


@pytest.fixture
def view(home: Path) -> Iterator[View]:
    database = Database(f"sqlite:///{home / 'diagevo.db'}")
    yield View(Site(database, live=True))
    database.close()


def cells(tree: Any, heading: str) -> dict[str, list[str]]:
    [table] = tree.xpath(f"//h2[.='{heading}']/following-sibling::div[1]/table")
    rows = [
        [" ".join(cell.text_content().split()) for cell in row.xpath("th|td")] for row in table.xpath(".//tr")
    ]
    return {row[0]: row[1:] for row in rows}


def test_two_models_of_a_file_are_compared_prompt_by_prompt(view: View) -> None:
    tree = html.document_fromstring(
        view.render("evals/compare.html", {"a": "model=org/small", "b": "model=org/large"})
    )
    said = " ".join(tree.text_content().split())
    assert (
        "Of 12 prompts that both have, the mean pass rate went from 62.5% in org/small to 83.3% in org/large"
        in said
    )
    assert "8 passed more often and 3 less often: by the exact sign test no more than chance" in said
    assert "(p = 0.2266)" in said  # 2 (1 + 11 + 55 + 165) / 2^11
    assert "Prompts that org/large passed less often (3)" in said
    assert "Prompts that org/large passed more often (8)" in said
    [pair, *_] = tree.xpath("//section[contains(@class, 'pair')]")
    assert [one.text for one in pair.xpath(".//pre")] == [
        "right answer 0 of org/small in 1",
        "wrong answer 0 of org/large in 1",
    ]
    # Wilson over 12 prompts: (.785 ± .317) / 1.32 of 15/24, (.993 ± .265) / 1.32 of 20/24.
    shares = cells(tree, "Pass rate")
    assert shares["of"] == ["org/large", "org/small"]
    assert shares["all responses"] == ["83.3% 55% to 95%", "62.5% 35% to 84%"]
    assert shares["prompts"] == ["12", "12"]
    # Even: 6 prompts of 12 responses; large fails 0 and 2, small 4, 6, 8, 10.
    assert [cell.split()[0] for cell in shares["even"]] == ["83.3%", "66.7%"]
    assert [cell.split()[0] for cell in shares["odd"]] == ["83.3%", "58.3%"]
    causes = cells(tree, "Causes")
    assert [cell.split()[0] for cell in causes["forgets the unit"]] == [
        "8.3%",
        "50.0%",
    ]  # of 12 prompts 1 and 6
    assert [cell.split()[0] for cell in causes["rounds up"]] == ["0.0%", "25.0%"]
    by_cause = cells(tree, "Failures by cause")
    assert by_cause["both"][:3] == ["6", "1", "forgets the unit"]
    assert by_cause["only org/small"][:3] == ["3", "0", "rounds up"]


def test_the_first_and_the_last_are_compared_until_others_are_chosen(view: View) -> None:
    page = view.render("one/compare.html")
    assert "mean pass rate went from 87.5% in step 1 to 95.8% in step 3" in page
    page = view.render("one/compare.html", {"b": "step=2"})
    assert "mean pass rate went from 87.5% in step 1 to 58.3% in step 2" in page
    page = view.render("one/compare.html", {"a": "step=2", "b": "evals:model=org/small"})
    assert "mean pass rate went from 58.3% in one: step 2 to 62.5% in evals: org/small" in page
    chosen = html.document_fromstring(page).xpath("//option[@selected]/@value")
    assert chosen == ["step=2", "evals:model=org/small"]
    assert 'href="compare.html"' in view.render("one/index.html")


def test_the_command_says_the_same(home: Path) -> None:
    said = run(home, "runs", "diff", ADDRESSES, "--run", "evals")
    assert "8 passed more often and 3 less often: by the exact sign test no more than chance" in said
    lines = [line.split() for line in said.splitlines()]
    assert ["both", "6", "1", "forgets", "the", "unit", "one", "cause", "of", "the", "run"] in lines
    assert ["only", "org/small", "3", "0", "rounds", "up", "–"] in lines
    told = json.loads(run(home, "runs", "diff", ADDRESSES, "--run", "evals", "--json"))["data"]
    assert (told["prompts"]["less"], told["prompts"]["more"], told["same"]) == (3, 8, False)
    same = run(home, "runs", "diff", "evals:model=org/small..evals:model=org/large")
    assert "8 passed more often and 3 less often" in same


def test_more_than_two_are_a_table(home: Path) -> None:
    told = json.loads(run(home, "runs", "diff", "step=1..step=2..step=3", "--run", "one", "--json"))["data"]
    [whole] = [row for row in told["table"] if row["kind"] == "all"]
    assert [(c["of"], c["share"]["part"], c["share"]["whole"]) for c in whole["cells"]] == [
        ("step 1", 21, 24),
        ("step 2", 14, 24),
        ("step 3", 23, 24),
    ]
    assert "prompts" not in told
    said = run(home, "runs", "diff", "one..evals:model=org/small..evals:model=org/large")
    assert "one" in said
    assert "evals: org/small" in said


def test_of_a_whole_run_the_causes_are_those_of_its_page(home: Path) -> None:
    database = Database(f"sqlite:///{home / 'diagevo.db'}")
    for name in ("evals", "one"):
        history = History(database, name)
        rates = pass_rates(history)
        assert rates is not None
        sliced = SlicedRun(history)
        assert sliced.whole().cause_rates() == rates.causes
        parts = sliced.models or sliced.steps
        assert sum(one.rollouts for one in parts) == rates.rollouts
        assert sum(c.failures for one in parts for c in one.cause_rates()) == sum(
            c.failures for c in rates.causes
        )
    database.close()


@pytest.mark.parametrize(
    ("text", "run", "round", "address"),
    [
        ("a", "a", None, ""),
        ("a@3", "a", 3, ""),
        ("model=x", None, None, "model=x"),
        ("a:model=b:c=d", "a", None, "model=b:c=d"),
        ("a@2:step=7", "a", 2, "step=7"),
        ("model=model=x", None, None, "model=model=x"),
    ],
)
def test_an_address_is_read(text: str, run: str | None, round: int | None, address: str) -> None:
    assert slice_named(text) == SliceNamed(run, round, address)


@pytest.mark.parametrize("text", ["", ":model=x", "amodel=x", "model=", "a:b", "tag=x", "../etc"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no run, model or step"):
        slice_named(text)


def test_what_is_not_there_is_said(home: Path, view: View) -> None:
    with pytest.raises(NotFoundError, match="run evals has no model=nobody") as error:
        view.render("evals/compare.html", {"a": "model=nobody"})
    assert error.value.hint == "it has: model=org/large, model=org/small"
    env = {"DIAGEVO_HOME": str(home)}
    assert invoke("runs", "diff", "step=1..step=2", "--run", "evals", env=env).exit_code == 3
    assert invoke("runs", "diff", "model=..b", "--run", "evals", env=env).exit_code == 2
    done = invoke("runs", "diff", "..".join(f"step={n}" for n in range(13)), "--run", "one", env=env)
    assert (done.exit_code, "13 are named" in done.output) == (2, True)


def test_a_run_alone_has_nothing_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "alone", rows_of("x", range(3)))
    database = Database(f"sqlite:///{tmp_path / 'diagevo.db'}")
    page = View(Site(database, live=True)).render("alone/compare.html")
    assert "There is nothing else to compare it with" in page
    database.close()


def test_hostile_names_of_models_stay_texts(tmp_path: Path) -> None:
    texts = ["plain", *(name for text in KINDS if (name := storable(text)[:200].strip()))]
    write(tmp_path, "a", [row for name in texts for row in rows_of(name, range(3))])
    database = Database(f"sqlite:///{tmp_path / 'diagevo.db'}")
    view = View(Site(database, live=True))
    models = SlicedRun(view.site.history("a")).models
    assert len(models) > 12
    for one in models:
        page = view.render("a/compare.html", {"a": one.address, "b": models[0].address})
        tree = html.document_fromstring(page)
        assert not tree.xpath("//img | //b | //main//script | //*[@onerror]")
        assert visible(tree.text_content()) == tree.text_content()
    assert "The first 12 of" in view.render("a/compare.html")
    database.close()


@pytest.mark.slow
def test_axe_finds_no_fault_and_nothing_is_cut(page: "Page", home: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    database = Database(f"sqlite:///{home / 'diagevo.db'}")
    with serving(database) as served:
        page.goto(served.opening)
        page.goto(f"{served.base}evals/compare.html")
        page.get_by_label("First").select_option("model=org/small")
        page.get_by_label("Second").select_option("model=org/large")
        page.get_by_role("button", name="Compare").click()
        assert page.url.endswith("compare.html?a=model%3Dorg%2Fsmall&b=model%3Dorg%2Flarge")
        assert page.get_by_text("from 62.5% in org/small to 83.3% in org/large").count() == 1
        for width, scheme in product((1440, 390), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert not Axe().run(page).response["violations"]
    database.close()
