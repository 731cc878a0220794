"""The commands of README and pages on two small runs: what they print is written again from the database file
by SQL alone, word for word, so that no number of theirs is another one's."""

import json
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from tests.cli.program import invoke
from tests.memory.audit.played import play
from tests.test_documents import COMMANDS, ROOT
from tests.view.by_sql import Sql, plural

SUB = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
OWN = "run_id = (SELECT id FROM run_now)"
Told = Callable[[Sql], str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`first`, four rounds played by hand; README's commands make `sql`."""
    folder = tmp_path_factory.mktemp("home")
    play(str(folder / "runs" / "diagevo.db"), "first", root=folder / "runs")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def squeezed(text: str) -> str:
    return " ".join(text.split())


def sub(number: int) -> str:
    return str(number).translate(SUB)


def d(value: Fraction | float, digits: int = 3) -> str:
    return f"{float(value):.{digits}f}"


def _round(sql: Sql, number: int | None) -> tuple:
    """F, F₁ with its round, ε as that commit recorded it, Active, Mastered, nodes, the hash; the round."""
    last = sql.one(f"SELECT max(round) FROM v_round WHERE {OWN}")
    [row] = sql.rows(
        "SELECT failures, reference_failures, reference_round, epsilon_committed, active, mastered,"
        " nodes, state_hash"
        f" FROM v_round WHERE {OWN} AND round = ?",
        number or last,
    )
    return (*row, number or last)


def _causes(sql: Sql, number: int) -> list[tuple]:
    """Most failures first: id, node, state, f, p, words."""
    return sql.rows(
        "SELECT cause_id, node_id, state, frequency, probability_committed, description FROM v_cause_history"
        f" WHERE {OWN} AND round = ?"
        " ORDER BY frequency DESC, CAST(substr(cause_id, 2) AS INTEGER)",
        number,
    )


def _headline(sql: Sql, number: int | None) -> str:
    total, _, _, epsilon, active, mastered, nodes, _, t = _round(sql, number)
    return (
        f"first after round {t}: {active} Active, {mastered} Mastered under"
        f" {plural(nodes, 'node')}; F = {total},"
        f" ε{sub(t + 1)} = {d(Fraction(epsilon))}"
    )


def show(sql: Sql) -> str:
    rows = (
        f"{cause} {node} {state} {f} {'–' if p is None else d(Fraction(p))} {words}"
        for cause, node, state, f, p, words in _causes(sql, _round(sql, None)[-1])
    )
    return f"{_headline(sql, None)} cause node state f p description {' '.join(rows)}"


def replay(number: int | None) -> Told:
    def told(sql: Sql) -> str:
        total, first, of_first, epsilon, active, _, _, digest, t = _round(sql, number)
        events, position = sql.rows(
            "SELECT sequence, position FROM e WHERE type = 'RoundCommitted' AND round = ?", t
        )[0]
        causes = sorted(_causes(sql, t), key=lambda row: int(row[0][1:]))
        terms = [row[3] for row in causes if row[2] == "active"]
        k = Fraction(
            sql.one("SELECT payload ->> '$.config.schedule.k' FROM e WHERE type = 'RunConfigured' LIMIT 1")
        )
        whole = first + total / k
        steps = [f"F{sub(of_first)}/(F{sub(of_first)} + F{sub(t)}/k)", f"{first}/({first} + {total}/({k}))"]
        steps += [f"{first}/{whole}", epsilon, d(Fraction(epsilon))]
        rows = (
            f"{cause} {node} {state} {f} {f'{f}/{total} {d(Fraction(f, total))}' if p else '– –'} {words}"
            for cause, node, state, f, p, words in _causes(sql, t)
        )
        return squeezed(
            f"{_headline(sql, number)} rebuilt from {events} events up to #{position}, nothing else read"
            f" F{sub(t)} = Σ f{sub(t)}(e) over {active} Active causes = {' + '.join(map(str, terms))} ="
            f" {sum(terms)} F{sub(of_first)} = {first}"
            f" z{sub(t)} = F{sub(t)}/F{sub(of_first)} = {total}/{first} = {d(total / first)}"
            f" ε{sub(t + 1)} = {' = '.join(dict.fromkeys(steps))}"
            f" p{sub(t + 1)}(e) = f{sub(t)}(e)/F{sub(t)}, below state hash {digest}"
            f" cause node state f p = f/F p description {' '.join(rows)}"
        )

    return told


def schedule(number: int | None) -> Told:
    def told(sql: Sql) -> str:
        epsilon, t = Fraction(_round(sql, number)[3]), _round(sql, number)[-1]
        partners = dict(
            sql.rows(
                "SELECT a.cause_id, count(b.cause_id) FROM v_cause_history a LEFT JOIN v_cause_history b ON"
                " b.run_id = a.run_id AND b.round = a.round AND b.node_id = a.node_id AND b.state ="
                " 'mastered'"
                f" WHERE a.{OWN} AND a.round = ? GROUP BY a.cause_id",
                t,
            )
        )
        rows = (
            f"{cause} {f} {d(Fraction(p))} {d((1 - epsilon) * Fraction(p), 4)} {partners[cause]} {words}"
            for cause, _, _, f, p, words in _causes(sql, t)
            if p
        )
        return (
            f"schedule of round {t + 1} of first, as committed after round {t}: of 1000 prompts about"
            f" {round(1000 * epsilon)} are free and {round(1000 * (1 - epsilon))} aim at a cause; p"
            f" = f/F, its"
            f" share of F cause f p (1 − ε)·p stitched to one of description {' '.join(rows)}"
        )

    return told


def verify(sql: Sql) -> str:
    events, head = sql.rows(f"SELECT sequence, hash FROM event WHERE {OWN} ORDER BY sequence DESC LIMIT 1")[0]
    commits = sql.one("SELECT count(*) FROM e WHERE type = 'RoundCommitted'")
    heads = len(Path("runs/first/chain-heads.jsonl").read_text().splitlines())
    return (
        f"first: as it was written checked: {events} events, {commits} commits replayed against the"
        f" projections,"
        f" {heads} chain heads outside the database chain head {head}"
    )


def ingest(sql: Sql) -> str:
    """By the file, before the database is asked."""
    groups: dict[str, list[bool]] = {}
    for line in Path("examples/sql_eval.jsonl").read_text().splitlines():
        row = json.loads(line)
        groups.setdefault(row["prompt"], []).append(row["reward"] >= 0.5)
    mixed = [found for found in groups.values() if any(found) and not all(found)]
    none, rollouts = sum(not any(found) for found in groups.values()), sum(map(len, groups.values()))
    [of_views] = sql.rows(f"SELECT rollouts, prompts, never_passed FROM v_rollouts WHERE {OWN}")
    assert of_views == (rollouts, len(groups), none)
    return (
        f"sql: 1 step (1 new), {rollouts} rollouts in {len(groups)} groups {len(mixed)} with passes"
        f" and failures,"
        f" {sum(found.count(False) for found in mixed)} failures {none} all failed: no pass to"
        f" compare with;"
        f" diagnose --local needs none {len(groups) - len(mixed) - none} all passed round 1 waits for its"
        " diagnosis: diagevo diagnose --run sql --local (or --model M --base-url URL)"
    )


def _rates(sql: Sql) -> tuple[int, int, list[tuple]]:
    """Rollouts that failed, how many have no cause, and of each cause id, failures, groups, rate, words."""
    failed, left = sql.rows(f"SELECT rollouts - passes, without_cause FROM v_rollouts WHERE {OWN}")[0]
    causes = sql.rows(
        "SELECT r.cause_id, r.failures, r.questions, r.pass_rate, c.description FROM v_cause_rate r"
        " JOIN v_cause c"
        f" ON c.run_id = r.run_id AND c.cause_id = r.cause_id WHERE r.{OWN}"
        " ORDER BY r.failures DESC, CAST(substr(r.cause_id, 2) AS INTEGER)"
    )
    assert sum(row[1] for row in causes) == failed - left
    return failed, left, causes


def _left(sql: Sql) -> tuple[str, ...]:
    """Nothing where every failure has a cause."""
    failed, left, _ = _rates(sql)
    if not left:
        return ()
    most, of, rollouts, prompt = sql.rows(
        f"SELECT without_cause, failures, rollouts, prompt FROM v_prompt WHERE {OWN}"
        " AND without_cause > 0 ORDER BY without_cause DESC, position"
    )[0]
    asked = squeezed(prompt)[:40]
    return (
        f"{left} of {failed} rollouts that failed have no cause. The most on one prompt are {most},"
        f" on “{asked}",
        f"({of} of {rollouts} failed)",
    )


def diagnosed(sql: Sql) -> list[str]:
    """In parts: the evidence of each cause stands between them."""
    failed, left, causes = _rates(sql)
    named = [
        f"{100 * n / failed:.0f}% {cause} {words} ({n} failures in {groups} groups)"
        for cause, n, groups, _, words in causes[:5]
    ]
    return [
        f"sql: {failed} failures in 1 round, by local: no language model is asked",
        f"{failed - left} of {failed} failures have {len(causes)} causes {named[0]}",
        *named[1:],
        f"{len(causes) - 5} more causes: diagevo memory show --run sql"
        + (f" {100 * left / failed:.0f}% no pattern ({left} failures): diagevo runs show sql" if left else "")
        + f" next: diagevo memory why {causes[0][0]} --run sql",
        *_left(sql),
    ]


def shown(sql: Sql) -> list[str]:
    failed, left, causes = _rates(sql)
    rows = (f"{cause} {n} {d(n / failed)} {groups} {words}" for cause, n, groups, _, words in causes)
    return [
        f"sql: {failed - left} of {failed} failures have {len(causes)} causes",
        f"cause failures of all in groups description {' '.join(rows)}",
        *_left(sql),
    ]


def run_shown(sql: Sql) -> list[str]:
    failed, _, causes = _rates(sql)
    [(groups, rollouts, passes, rate)] = sql.rows(
        f"SELECT groups, rollouts, passes, pass_rate FROM v_step WHERE {OWN}"
    )
    rows = (f"{c} {n} {d(n / failed)} {of} {d(mean)} {words}" for c, n, of, mean, words in causes)
    prompts = f"FROM v_prompt WHERE {OWN} AND without_cause > 0"
    worst = sql.rows(
        f"SELECT rollouts, passes, failures, without_cause {prompts} ORDER BY without_cause DESC,"
        f" position LIMIT 5"
    )
    rest = sql.one(f"SELECT count(*) {prompts}") - 5
    return [
        f"{sql.one('SELECT count(*) FROM e')} events",
        f"passed {passes} of {rollouts} responses passed, to {groups} prompts: {100 * rate:.1f}% (",
        f"their pass rate description {' '.join(rows)}",
        *_left(sql),
        *(" ".join(map(str, row)) + " " for row in worst),
        *([f"{rest} more prompts: diagevo memory query"] if rest > 0 else []),
    ]


def listed(sql: Sql) -> list[str]:
    total, first, _, epsilon, active, mastered, nodes, _, t = _round(sql, None)
    z = Fraction(total, first)
    return [
        f'"run_id": "first", "rounds": {t}, "last_round": {t}',
        f'"events": {sql.one("SELECT count(*) FROM e")}, "failures": {total}, "z": {{ "exact": "{z}"',
        f'"epsilon_next": {{ "exact": "{epsilon}", "value": {float(Fraction(epsilon))} }}',
        f'"active": {active}, "mastered": {mastered}, "nodes": {nodes}',
    ]


def logged(sql: Sql) -> list[str]:
    own = sql.rows(f"SELECT position FROM event WHERE {OWN} AND cause_id = 'c2' ORDER BY position")
    return [f'"position": {position},' for (position,) in own]


def status(sql: Sql) -> list[str]:
    number, last = sql.rows("SELECT count(*), max(position) FROM event")[0]
    return [f"positions yes {last} given, {number} there, the last at {last}"]


def what_if(sql: Sql) -> list[str]:
    """ε with k = 1 is F₁/(F₁ + F)."""
    lines = []
    for number in range(1, _round(sql, None)[-1] + 1):
        total, first, _, epsilon, active, mastered, *_ = _round(sql, number)
        new = Fraction(first, first + total)
        lines.append(f"{total} {d(Fraction(epsilon))} → {d(new)} {active} {mastered}")
    return lines


BY_SQL: dict[str, tuple[str, Callable[[Sql], str | list[str]]]] = {
    "diagevo memory show --run first": ("first", show),
    "diagevo memory replay --run first --round 3": ("first", replay(3)),
    "diagevo memory replay --run first --round 2": ("first", replay(2)),
    "diagevo memory replay --round 2": ("first", replay(2)),
    "diagevo memory replay": ("first", replay(None)),
    "diagevo memory schedule": ("first", schedule(None)),
    "diagevo memory schedule --round 2": ("first", schedule(2)),
    "diagevo memory schedule --run first --round 2": ("first", schedule(2)),
    "diagevo memory verify --run first": ("first", verify),
    "diagevo memory verify": ("first", verify),
    "diagevo memory what-if --k 1": ("first", what_if),
    "diagevo memory what-if --run first --k 1": ("first", what_if),
    "diagevo memory log c2 --run first --format jsonl": ("first", logged),
    "diagevo runs list --json": ("first", listed),
    "diagevo db status": ("first", status),
    "diagevo ingest jsonl examples/sql_eval.jsonl --run sql": ("sql", ingest),
    "diagevo diagnose --run sql --local": ("sql", diagnosed),
    "diagevo memory show --run sql": ("sql", shown),
    "diagevo runs show sql": ("sql", run_shown),
}
"""By command: the run, and what it prints: all of it, or the parts that must stand there in this order."""
NOT_HERE = {
    "diagevo memory why": "word for word in tests/cli/memory/test_screens.py",
    "diagevo memory schedule --run first --round 3 --format csv -o": "a file of the figures of the table",
    "diagevo memory what-if --run first --tau": "in tests/memory/audit/test_whatif.py, by hand",
    "diagevo memory verify --deep": "as without it, with counts of texts",
    "diagevo train --plan": "of no run",
    "diagevo config show": "of no run",
    "diagevo init": "of no run",
    "diagevo eval show --benchmarks": "of no run",
    "diagevo ablate plan": "of no run",
    "diagevo report build": "names files; its figures: tests/report/test_figures.py",
    "diagevo view --export": "its pages: tests/view/test_first_page.py",
    "diagevo view --report": "its page: tests/view/test_report_page.py",
}


def test_every_command_of_the_pages_is_held_against_the_database_or_says_why_not() -> None:
    named = {line for lines in COMMANDS.values() for line in lines}
    left = {line for line in named - BY_SQL.keys() if not line.startswith(tuple(NOT_HERE))}
    assert left == set()
    assert {line for line in BY_SQL if line not in named} == set()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page, lines in COMMANDS.items() if BY_SQL.keys() & set(lines)])
def test_what_a_page_s_commands_print_is_in_the_database(
    page: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(home, tmp_path / "home"))
    monkeypatch.setenv("DIAGEVO_HOME", "runs")
    for line in COMMANDS[page]:
        if line.startswith(("diagevo train", "diagevo view", "diagevo report", "diagevo ablate")):
            continue
        done = invoke(*shlex.split(line)[1:])
        assert done.exit_code == 0, done.stderr
        if line not in BY_SQL:
            continue
        run, told = BY_SQL[line]
        with closing(sqlite3.connect("runs/diagevo.db")) as connection:
            expected = told(Sql(connection, run))
        printed = squeezed(done.stderr + done.stdout)
        if isinstance(expected, str):
            assert printed.removeprefix("run first ") == expected
        for part in expected if isinstance(expected, list) else []:
            assert part in printed, line
