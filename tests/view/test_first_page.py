"""Every sentence of a run's first page, recomputed from the file by SQL alone, for runs of six kinds."""

import math
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest

from diagevo.memory.history import open_history
from diagevo.memory.log.database import Database
from diagevo.memory.read.runs import run_story
from diagevo.memory.transfer.fork import fork
from diagevo.view.page import Site
from diagevo.view.site import View
from tests.once import once
from tests.view.by_sql import Sql, Z, p, plural, wilson, within
from tests.view.six_runs import KINDS, make


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "six-runs", make)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def view(home: Path) -> Iterator[View]:
    with closing(Database(f"sqlite:///{home / 'diagevo.db'}")) as database:
        yield View(Site(database, live=True))


@pytest.fixture
def page(view: View, kind: str) -> str:
    return view.render(f"{kind}/index.html")


@pytest.fixture
def sql(home: Path, kind: str) -> Iterator[Sql]:
    with closing(sqlite3.connect(home / "diagevo.db")) as connection:
        yield Sql(connection, kind)


def said(page: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in re.findall(r'data-said="([^"]+)">([^<]*)<', page):
        found.setdefault(name, []).append(unescape(text))
    return found


def failing(sql: Sql) -> dict[str, list[str]]:
    every, named, causes = sql.rows(
        "SELECT (SELECT count(*) FROM f), (SELECT count(*) FROM m), (SELECT count(DISTINCT cause) FROM m)"
    )[0]
    if not every:
        return {
            "failures": [
                "No failure is recorded yet."
                if sql.one("SELECT count(*) FROM e WHERE type = 'RoundOpened'")
                else "No round has begun."
            ]
        }
    text = f"Of {plural(every, 'failure')} in {sql.span}, {named} have a cause ({plural(causes, 'cause')})"
    if sql.one("SELECT count(*) FROM step"):
        failed = sql.one("SELECT sum(rollouts - passes) FROM step")
        text = f"Of {failed} rollouts that failed, {named} have a cause ({plural(causes, 'cause')})"
        every = named  # the next sentence says what the others lack
    text += f"; the other {every - named} are slips or have no diagnosis." if every > named else "."
    of_all = sql.one("SELECT count(DISTINCT f.question) FROM m JOIN f USING (id)")
    told = []
    for failures, questions in sql.rows(
        "SELECT count(*), count(DISTINCT f.question) FROM m JOIN f USING (id) GROUP BY cause"
        " ORDER BY count(*) DESC, CAST(substr(cause, 2) AS INTEGER) LIMIT 3"
    ):
        low, high = wilson(failures / named, of_all)
        told.append(
            f"{plural(failures, 'failure')} on {plural(questions, 'question')}: {p(failures / named)}"
            f" ({p(low)} to {p(high)}) of those with a cause"
        )
    left = {}
    if sql.one("SELECT count(*) FROM step"):
        failed, never = sql.rows(
            "SELECT sum(json_array_length(payload, '$.rewards') - (payload ->> '$.passes')),"
            " sum(iif(payload ->> '$.passes', 0, json_array_length(payload, '$.rewards')))"
            " FROM e WHERE type = 'GroupIngested'"
        )[0]
        text_left = f"{failed - named} of {failed} rollouts that failed have no cause, {never} of them where"
        text_left += " none of their group passed."
        text_left += " The most on one prompt are 4, on “d” (6 of 8 failed)."
        text_left += " Their prompts are listed below."
        left = {"left": [text_left]}
    labels = sql.rows(
        "SELECT f.round, sum(q.label_true = 0), count(q.label_true), sum(q.label_true = 0 AND f.right = 1),"
        " sum(q.label_true = 0 AND f.right IS NOT NULL) FROM f JOIN q ON q.id = f.question GROUP BY f.round"
    )
    found = {"failures": [text], "mistake": told} | left
    if false := sum(row[1] or 0 for row in labels):
        worst = max(labels, key=lambda row: (row[1] or 0, row[0]))
        right = sum(row[3] or 0 for row in labels)
        text = f"{false} of {plural(sum(row[2] for row in labels), 'failure')} whose label can be checked"
        text += f" {'stands' if false == 1 else 'stand'} against a false one"
        if sum(row[4] or 0 for row in labels):
            text += f", and {right} of these {'is' if right == 1 else 'are'} right"
        found["false-labels"] = [f"{text}. Most are in round {worst[0]}: {worst[1]} of {worst[2]}."]
    return found


def curriculum(sql: Sql) -> dict[str, list[str]]:
    every, at, causes, kept, free = sql.rows(
        "SELECT count(*), count(cause), count(DISTINCT cause), sum(verdict = 'kept' AND cause IS NOT NULL),"
        " sum(verdict = 'kept' AND cause IS NULL) FROM q"
    )[0]
    if not every:
        return {"aimed": ["No question is recorded yet."]}
    ingested = sql.one("SELECT count(*) FROM e WHERE type = 'GroupIngested'")
    text = (
        f"Another trainer chose the prompts. {at} of {every} in {sql.span} came again after failures with a"
        f" cause that was Active, {plural(causes, 'cause')} in all; in {kept} of these groups some passed and"
        " some failed."
        if ingested
        else f"Of {plural(every, 'question')} in {sql.span}, {at} aimed at {plural(causes, 'cause')} and"
        f" {every - at} explored freely; {kept} and {free} of them were kept for training."
    )
    found = {"aimed": [text]}
    promoted, back, at_once = sql.rows(
        "SELECT sum(type = 'CausePromoted'), sum(type = 'CauseReactivated'), sum(type = 'CauseReactivated'"
        " AND EXISTS (SELECT 1 FROM e p WHERE p.type = 'CausePromoted' AND p.round = e.round"
        " AND p.cause_id = e.cause_id)) FROM e"
    )[0]
    if promoted:
        text = f"{plural(promoted, 'promotion')} to Mastered in {sql.span}"
        text += f"; {plural(back, 'cause')} came back, {at_once} of them in the same round as the promotion."
        found["promoted"] = [text if back else text.partition(";")[0] + ", and no cause came back."]
    labels = sql.rows(
        "SELECT round, avg(label_true), count(*) FROM q WHERE verdict = 'kept' AND label_true IS NOT NULL"
        " AND votes_are IS NOT 'rewards' GROUP BY round ORDER BY round"
    )
    if labels:
        parts = []
        for number, share, n in labels[:1] + labels[1:][-1:]:
            low, high = wilson(share, n)
            parts.append(f"{p(share)} of {n} ({p(low)} to {p(high)}) in round {number}")
        found["labels"] = [
            "The majority's label of a kept question was true in " + ", and ".join(parts) + "."
        ]
    for number, active, mastered, failures, reference in sql.rows(
        "SELECT round, payload ->> '$.active', payload ->> '$.mastered', payload ->> '$.failures',"
        " payload ->> '$.reference_failures' FROM e WHERE type = 'RoundCommitted' ORDER BY round DESC LIMIT 1"
    ):
        text = (
            f"After round {number}, {plural(active, 'cause is', 'causes are')} Active and {mastered} Mastered"
        )
        if not ingested:
            k = sql.one(
                "SELECT payload ->> '$.config.schedule.k' FROM e WHERE type = 'RunConfigured'"
                " ORDER BY sequence DESC LIMIT 1"
            )
            assert k == "1/2"
            epsilon = reference / 2 / (reference / 2 + failures)  # Equation 1
            text += f", and {p(epsilon)} of the next questions explore freely"
        found["now"] = [f"{text}."]
    return found


def helped(sql: Sql) -> dict[str, list[str]]:
    if not sql.one("SELECT count(*) FROM q"):
        return {"verdict": ["Not known yet: no question is recorded."]}
    ingested = sql.one("SELECT count(*) FROM e WHERE type = 'GroupIngested'")
    called = "pass rate" if ingested else "agreement p₁"
    pairs, rose, fell, n1, n2, m1, m2 = sql.rows(
        "SELECT count(*), sum(m2 > m1), sum(m2 < m1), sum(n1), sum(n2), sum(n1 * m1) / sum(n1),"
        " sum(n2 * m2) / sum(n2) FROM pair"
    )[0]
    text = f"No cause has been aimed at in two rounds of {sql.span}: no {called} can be compared."
    if pairs:
        text = (
            f"{plural(pairs, 'cause was', 'causes were')} aimed at in more than one round: from the first to"
            f" the last time the mean {called} rose for {rose} and fell for {fell}. Over their questions it"
            f" went from {within(m1, n1)} to {within(m2, n2)}."
        )
    found = {"agreement": [text]}
    counts = sql.rows(
        "SELECT o.round, (SELECT count(*) FROM m WHERE m.round = o.round),"
        " (SELECT count(*) FROM q WHERE q.round = o.round AND verdict = 'kept')"
        " FROM e o WHERE type = 'RoundOpened' ORDER BY o.round"
    )
    listed = ", ".join(f"{n} on {kept} in round {number}" for number, n, kept in counts)
    found["counts"] = [f"Failures with a cause, on so many kept questions: {listed}."]
    if steps := sql.rows("SELECT step, 1.0 * passes / rollouts, groups FROM step ORDER BY step"):
        ends = (
            within(rate, groups, "prompt") + f" in step {step}"
            for step, rate, groups in (steps[0], steps[-1])
        )
        back, less = sql.rows(
            "WITH g AS (SELECT payload ->> '$.question' q, payload ->> '$.step' s,"
            " 1.0 * (payload ->> '$.passes') / json_array_length(payload, '$.rewards') r"
            " FROM e WHERE type = 'GroupIngested')"
            " SELECT count(*), sum(two.r < one.r) FROM g one JOIN g two USING (q) WHERE one.s < two.s"
            " AND one.s = (SELECT min(s) FROM g x WHERE x.q = one.q)"
            " AND two.s = (SELECT max(s) FROM g x WHERE x.q = one.q)"
        )[0]
        found["passed"] = [
            f"Rollouts that passed: {', '.join(ends)}. Of {plural(back, 'prompt')} that came back,"
            f" {less} passed less often."
        ]
    found["accuracy"], found["verdict"] = accuracy(sql, bool(ingested))
    return found


def accuracy(sql: Sql, ingested: bool) -> tuple[list[str], list[str]]:
    measured = sql.rows(
        "SELECT round, n, metrics ->> '$.mean_at_k', metrics ->> '$.mean_at_k_se' FROM v ORDER BY round"
    )
    if not measured:
        verdict = "Whether it answers better is not known: only held-out questions can say."
        if ingested:  # a: 1/4, 3/4; b: 2/4, 1/4; d: 0/4, 2/4: standard error 25 points
            verdict = (
                "On the 3 prompts that came back, the pass rate did not change by more than chance: from"
                " 25.0% the first time to 50.0% the last, +25.0 points (-24.0 to +74.0, paired by prompt)."
                " Of other questions, only held-out questions can say."
            )
        return ["Accuracy on held-out questions was not measured."], [verdict]
    (_, _, was, was_se), (last, n, now, now_se) = measured[0], measured[-1]
    colder = sql.rows(
        "SELECT substr(key, 12), atom, metrics ->> ('$.\"' || key || '_se\"') FROM v, json_each(metrics)"
        " WHERE round = 0 AND key LIKE 'mean_at_k_T%' AND key NOT LIKE '%_se'"
        " ORDER BY CAST(substr(key, 12) AS REAL) DESC"
    )

    def about(value: float, se: float) -> str:
        return f"{p(value)} ({p(value - Z * se)} to {p(value + Z * se)})"

    text = f"Accuracy (mean@k) on {plural(n, 'held-out question')}: {about(was, was_se)} before training,"
    text += f" {about(now, now_se)} after round {last}; the base model sampled colder has "
    text += ", ".join(f"{about(value, se)} at T = {heat}" for heat, value, se in colder) + "."
    change, half = now - was, Z * math.hypot(was_se, now_se)
    points = f"{100 * change:+.1f} points ({100 * (change - half):+.1f} to {100 * (change + half):+.1f})"
    heat, best, best_se = max(colder, key=lambda row: row[1])
    if change > half:
        more = "more than" if now - best > Z * math.hypot(now_se, best_se) else "but no more than"
        verdict = f"Accuracy rose: {points}, {more} sampling the base model at T = {heat} gives."
    else:
        verdict = f"Accuracy did not change by more than chance: {points}."
    at_best = sql.rows(
        "SELECT a.metrics ->> '$.mean_at_k_best', a.metrics ->> '$.mean_at_k_best_se',"
        " b.metrics ->> '$.mean_at_k_best', b.metrics ->> '$.mean_at_k_best_se'"
        " FROM v a, v b WHERE a.round = 0 AND b.round = (SELECT max(round) FROM v)"
    )[0]
    if None not in at_best:  # the fork was measured at T = 1 alone
        change, half = at_best[2] - at_best[0], Z * math.hypot(at_best[1], at_best[3])
        verdict = verdict[:-1] + f"; each sampled at its best temperature: {100 * change:+.1f} points"
        verdict += f" ({100 * (change - half):+.1f} to {100 * (change + half):+.1f})."
    alone = "Only a run without causes beside this one can say how much of that the curriculum did."
    return [text], [f"{verdict} {alone}"]


def test_sql_alone_says_every_sentence(page: str, sql: Sql) -> None:
    assert said(page) == failing(sql) | curriculum(sql) | helped(sql)


def test_the_table_by_cause_and_round_is_that_of_sql(page: str, sql: Sql) -> None:
    rounds = [n for [n] in sql.rows("SELECT round FROM e WHERE type = 'RoundOpened' ORDER BY round")]
    causes = [
        cause
        for [cause] in sql.rows(
            "SELECT cause FROM m GROUP BY cause"
            " ORDER BY count(*) DESC, CAST(substr(cause, 2) AS INTEGER) LIMIT 3"
        )
    ]
    cells = {
        row: re.findall(r"<td data-round=.*?</td>", rest)
        for row, rest in re.findall(r'<tr data-cause="(\w+)">(.*?)</tr>', page, re.DOTALL)
    }
    assert list(cells) == ([*causes, "all"] if causes else [])
    for row, told in cells.items():
        only = "" if row == "all" else f" AND cause = '{row}'"
        for number, cell in zip(rounds, told, strict=True):
            mean, n = sql.rows(
                "SELECT avg(p1), count(*) FROM q WHERE cause IS NOT NULL AND verdict <> 'invalid'"
                f" AND round = ?{only}",
                number,
            )[0]
            failures = sql.one(f"SELECT count(*) FROM m WHERE round = ?{only}", number)
            assert f"<br>{plural(failures, 'failure')}</td>" in cell
            if n:
                low, high = wilson(mean, n)
                assert f"<strong>{p(mean)}</strong>" in cell
                assert f"{100 * low:.0f}%–{100 * high:.0f}% of {n}<" in cell
            else:
                assert "not aimed at" in cell


@pytest.mark.parametrize("kind", ["broken"], indirect=True)
def test_a_log_that_is_not_as_it_was_written_is_a_fault_before_anything_is_told(page: str) -> None:
    assert page.index("FAULT") < page.index("What it kept getting wrong")


def test_each_answer_has_an_example_where_there_is_one(page: str, kind: str) -> None:
    asked, told = page.count("For example, "), page.count("<del>")
    assert (asked, told) == {"empty": (0, 0), "ingested": (1, 2)}.get(kind, (1, 3))


def test_a_cell_of_the_causes_has_the_failures_of_its_round(view: View, kind: str, sql: Sql) -> None:
    """Not f, which only grows while a cause is Active."""
    page = view.render(f"{kind}/causes.html")
    committed = [n for [n] in sql.rows("SELECT round FROM e WHERE type = 'RoundCommitted' ORDER BY round")]
    rows = dict(re.findall(r'<tr class="one" data-node="\d+" data-id="(\d+)"(.*?)</tr>', page, re.DOTALL))
    causes = sql.rows(
        "SELECT DISTINCT cause FROM m WHERE round IN (SELECT round FROM e WHERE type = 'RoundCommitted')"
    )
    assert {f"c{number}" for number in rows} == {cause for [cause] in causes}
    for number, row in rows.items():
        shown = re.findall(r'<td class="cell \w+">(·|\d+)</td>', row)
        born = sql.one("SELECT min(round) FROM m WHERE cause = ?", f"c{number}")
        assert shown == [
            str(sql.one("SELECT count(*) FROM m WHERE cause = ? AND round = ?", f"c{number}", at))
            if at >= born
            else "·"
            for at in committed
        ]


def test_a_fork_knows_what_was_measured_of_the_round_that_it_begins_with(home: Path, tmp_path: Path) -> None:
    """It begins with that round's weights, and is measured again only after its own next round."""
    copy = shutil.copytree(home, tmp_path / "home")
    with closing(open_history(str(copy / "diagevo.db"), "trained", root=copy)) as history:
        fork(history, 4, "again", root=copy)
    with closing(open_history(str(copy / "diagevo.db"), "again", root=copy)) as history:
        assert [line.mean_at_k for line in run_story(history).rounds] == [None, None, None, 0.7]


def test_sql_alone_says_the_sentences_of_a_cause(view: View, kind: str, sql: Sql) -> None:
    for [cause] in sql.rows("SELECT DISTINCT cause FROM m"):
        told = said(view.render(f"{kind}/causes/{cause}.html"))
        counts = sql.rows(
            "SELECT round, count(*) FROM m WHERE cause = ? GROUP BY round ORDER BY round", cause
        )
        questions = sql.one(
            "SELECT count(DISTINCT f.question) FROM m JOIN f USING (id) WHERE cause = ?", cause
        )
        total = plural(sum(n for _, n in counts), "failure")
        listed = ", ".join(f"{n} in round {number}" for number, n in counts)
        assert told["failures"] == [f"{total} on {plural(questions, 'question')}: {listed}."]
        means = sql.rows("SELECT round, mean, n FROM a WHERE cause = ? ORDER BY round", cause)
        called = "pass rate" if kind == "ingested" else "agreement p₁"
        asked = plural(sum(n for *_, n in means), "question was", "questions were")
        listed = ", ".join(f"{within(mean, n)} in round {number}" for number, mean, n in means)
        aimed = f"{asked} aimed at it, with a mean {called} of {listed}."
        assert told["aimed"] == [aimed if means else "No question has been aimed at it."]
