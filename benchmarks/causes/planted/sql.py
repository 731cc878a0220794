"""Text to SQL: a query is composed anew for each response: aliases, case, layout, joins, subqueries, prose."""

import random
import re
from dataclasses import dataclass

from benchmarks.causes.planted.voice import Prompt

MODES = (
    "inner join drops rows",
    "counts duplicates",
    "filters rows, not groups",
    "compares with NULL",
    "wrong end of the order",
)


@dataclass(frozen=True, slots=True)
class Schema:
    parent: str
    parents: str
    name: str
    child: str
    amount: str
    attribute: str
    nullable: str
    missing: str
    noun: str


SCHEMAS = (
    Schema(
        "customer", "customers", "name", "orders", "total", "city", "shipped_at", "not yet shipped", "orders"
    ),
    Schema(
        "author",
        "authors",
        "name",
        "books",
        "pages",
        "language",
        "translator",
        "without a translator",
        "books",
    ),
    Schema(
        "teacher",
        "teachers",
        "surname",
        "courses",
        "credits",
        "room",
        "exam_date",
        "without an exam date",
        "courses",
    ),
    Schema(
        "doctor",
        "doctors",
        "full_name",
        "visits",
        "fee",
        "diagnosis",
        "discharged_on",
        "not discharged",
        "visits",
    ),
    Schema("airline", "airlines", "code", "flights", "seats", "origin", "landed_at", "not landed", "flights"),
    Schema("band", "bands", "title", "albums", "sales", "label", "producer", "without a producer", "albums"),
    Schema("seller", "sellers", "shop", "listings", "price", "category", "sold_at", "unsold", "listings"),
    Schema("team", "teams", "nick", "matches", "goals", "stadium", "referee", "without a referee", "matches"),
    Schema(
        "branch", "branches", "town", "loans", "principal", "currency", "repaid_on", "not repaid", "loans"
    ),
    Schema(
        "museum",
        "museums",
        "title",
        "paintings",
        "value",
        "period",
        "restored_on",
        "never restored",
        "paintings",
    ),
    Schema(
        "depot", "depots", "label", "parcels", "weight", "carrier", "delivered_at", "not delivered", "parcels"
    ),
    Schema("kennel", "kennels", "owner", "dogs", "age", "breed", "adopted_on", "not adopted", "dogs"),
)
BEFORE = (
    "Here is the query:",
    "Sure, this should do it:",
    "You can use the following SQL.",
    "The query below answers the question.",
    "This one should work on the given tables.",
    "One way to write it:",
    "I'd join the two tables and go from there.",
    "To answer this we look at both tables.",
    "SQL:",
    "Let me write that for you.",
    "Based on the schema:",
    "",
    "",
    "",
)
AFTER = (
    "This returns one row per group.",
    "Let me know if you need another column.",
    "Explanation: rows are combined on the foreign key and then reduced.",
    "It runs on PostgreSQL and SQLite.",
    "Adjust the names if your schema differs.",
    "The alias is only for readability.",
    "Hope this helps!",
    "Note that an index on the key makes it faster.",
    "That is all that is needed here.",
    "You may want to add a semicolon in some clients.",
    "",
    "",
    "",
    "",
)
ALIASES = (("a", "b"), ("p", "c"), ("t1", "t2"), ("x", "y"), ("m", "d"), ("l", "r"))
_KEYWORD = re.compile(r"\b[A-Z]{2,}\b")
COUNTS = ("n", "cnt", "total_count", "num", "how_many", "amount_of", "c", "count_all", "k", "result")


class Writer:
    """The habits of one query."""

    def __init__(self, rng: random.Random, s: Schema) -> None:
        self.rng, self.s = rng, s
        short = (s.parents[0], s.child[0] if s.child[0] != s.parents[0] else s.child[:2])
        self.p, self.c = rng.choice((*ALIASES, short, short, (s.parents, s.child)))
        self.named = self.p == s.parents
        self.as_ = rng.choice((" ", " ", " AS "))
        self.out = rng.choice(COUNTS)
        self.lower = rng.random() < 0.35
        self.broken = rng.random() < 0.6
        self.inner = rng.choice(("JOIN", "JOIN", "INNER JOIN"))
        self.outer = rng.choice(("LEFT JOIN", "LEFT JOIN", "LEFT OUTER JOIN"))
        self.fence = rng.choice(("```sql", "```", "```SQL", None, None))
        self.flipped = rng.random() < 0.4
        self.key = f"{s.parent}_id"

    def table(self, name: str, alias: str) -> str:
        return name if self.named else f"{name}{self.as_}{alias}"

    def on(self) -> str:
        sides = [f"{self.p}.id", f"{self.c}.{self.key}"]
        return " = ".join(reversed(sides) if self.flipped else sides)

    def joined(self, how: str) -> list[str]:
        s = self.s
        if how == self.inner and self.rng.random() < 0.5:
            return [
                f"FROM {self.table(s.child, self.c)}",
                f"{how} {self.table(s.parents, self.p)} ON {self.on()}",
            ]
        return [
            f"FROM {self.table(s.parents, self.p)}",
            f"{how} {self.table(s.child, self.c)} ON {self.on()}",
        ]

    def label(self) -> str:
        return f"{self.p}.{self.s.name}"

    def grouped(self) -> str:
        return self.rng.choice(
            (
                f"GROUP BY {self.label()}",
                f"GROUP BY {self.p}.id, {self.label()}",
                f"GROUP BY {self.label()}, {self.p}.id",
            )
        )

    def text(self, parts: list[str]) -> tuple[list[str], str]:
        """Lines of the query, and how it is fenced."""
        end = self.rng.choice((";", ";", ""))
        if self.lower:
            parts = [_KEYWORD.sub(lambda found: found[0].lower(), part) for part in parts]
        lines = [*parts] if self.broken else [" ".join(parts)]
        lines[-1] += end
        return lines, self.fence or ""


def prompt(rng: random.Random) -> Prompt:
    s = rng.choice(SCHEMAS)
    kind, k = (
        rng.choice(("counts", "distinct", "having", "missing", "top", "top_all", "missing_counts")),
        rng.randint(2, 9),
    )
    high = rng.choice(("highest", "largest", "greatest"))
    tables = f"Tables: {s.parents}(id, {s.name}), {s.child}(id, {s.parent}_id, {s.amount}, {s.attribute}, {s.nullable})."
    asked, modes = {
        "counts": (
            f"List every {s.parent} with its number of {s.noun}, those that have none included.",
            ("inner join drops rows",),
        ),
        "distinct": (
            f"For each {s.parent}, how many different values of {s.attribute} do its {s.noun} have? Show {s.parents} without {s.noun} too.",
            ("counts duplicates", "inner join drops rows"),
        ),
        "having": (
            f"Which {s.parents} have a sum of {s.amount} above {k * 50} over all their {s.noun}?",
            ("filters rows, not groups",),
        ),
        "missing": (
            f"How many different values of {s.attribute} occur among {s.noun} that are {s.missing} ({s.nullable} is empty)?",
            ("compares with NULL", "counts duplicates"),
        ),
        "missing_counts": (
            f"Which {s.parents} have more than {k} {s.noun} that are {s.missing} ({s.nullable} is empty)?",
            ("compares with NULL", "filters rows, not groups"),
        ),
        "top": (
            f"Which {k} {s.parents} have the {high} sum of {s.amount}?",
            ("wrong end of the order",),
        ),
        "top_all": (
            f"Rank all {s.parents} by their sum of {s.amount}, the {high} first, and give 0 to those without {s.noun}.",
            ("wrong end of the order", "inner join drops rows"),
        ),
    }[kind]
    asked = rng.choice(
        (f"{tables}\n{asked}", f"{asked}\n\nSchema:\n{tables}", f"{tables} {asked} Answer in SQL.")
    )

    def write(rng: random.Random, mode: str | None) -> tuple[object, int | None, tuple[str, ...]]:
        on = Writer(rng, s)
        parts = _query(on, kind, k, mode or None)
        if mode == "":
            parts = _odd(on, parts)
        body, fence = on.text(parts)
        before, after = rng.choice(BEFORE), rng.choice(AFTER)
        lines = [line for line in (before, fence, *body, "```" if fence else "", after) if line]
        traits = (
            f"before {before[:12]}",
            f"after {after[:12]}",
            f"fence {fence}",
            f"alias {on.p}",
            f"lower {on.lower}",
            f"lines {on.broken}",
        )
        return "\n".join(lines), None, traits

    return Prompt(asked, modes, write)


def _query(on: Writer, kind: str, k: int, mode: str | None) -> list[str]:
    s, rng = on.s, on.rng
    join = on.inner if mode == "inner join drops rows" else on.outer
    order = rng.choice(("", " ASC")) if mode == "wrong end of the order" else " DESC"
    is_null = (
        rng.choice(
            (f"{on.c}.{s.nullable} = NULL", f"{on.c}.{s.nullable} = 'NULL'", f"{on.c}.{s.nullable} = ''")
        )
        if mode == "compares with NULL"
        else f"{on.c}.{s.nullable} IS NULL"
    )
    distinct = "" if mode == "counts duplicates" else "DISTINCT "
    total = rng.choice(
        (f"SUM({on.c}.{s.amount})", f"SUM({on.c}.{s.amount})", f"COALESCE(SUM({on.c}.{s.amount}), 0)")
    )
    if kind == "counts":
        if mode is None and rng.random() < 0.25:
            inside = f"(SELECT COUNT(*) FROM {on.table(s.child, on.c)} WHERE {on.on()})"
            return [f"SELECT {on.label()}, {inside} AS {on.out}", f"FROM {on.table(s.parents, on.p)}"]
        return [f"SELECT {on.label()}, COUNT({on.c}.id) AS {on.out}", *on.joined(join), on.grouped()]
    if kind == "distinct":
        return [
            f"SELECT {on.label()}, COUNT({distinct}{on.c}.{s.attribute}) AS {on.out}",
            *on.joined(join),
            on.grouped(),
        ]
    if kind == "missing":
        return [
            f"SELECT COUNT({distinct}{on.c}.{s.attribute}) AS {on.out}",
            f"FROM {on.table(s.child, on.c)}",
            f"WHERE {is_null}",
        ]
    if kind == "having":
        head = rng.choice((f"SELECT {on.label()}", f"SELECT {on.label()}, {total} AS {on.out}"))
        if mode == "filters rows, not groups":
            return [
                head,
                *on.joined(on.inner),
                f"WHERE {on.c}.{s.amount} > {k * 50}",
                *rng.choice(([], [on.grouped()])),
            ]
        return [head, *on.joined(on.inner), on.grouped(), f"HAVING SUM({on.c}.{s.amount}) > {k * 50}"]
    if kind == "missing_counts":
        head = rng.choice((f"SELECT {on.label()}", f"SELECT {on.label()}, COUNT(*) AS {on.out}"))
        if mode == "filters rows, not groups":
            return [head, *on.joined(on.inner), f"WHERE {is_null} AND {on.c}.{s.amount} > {k}", on.grouped()]
        return [head, *on.joined(on.inner), f"WHERE {is_null}", on.grouped(), f"HAVING COUNT(*) > {k}"]
    if kind == "top":
        end = rng.choice((f"LIMIT {k}", f"LIMIT {k}", f"FETCH FIRST {k} ROWS ONLY"))
        by = rng.choice((on.out, total, "2"))
        return [
            f"SELECT {on.label()}, {total} AS {on.out}",
            *on.joined(on.inner),
            on.grouped(),
            f"ORDER BY {by}{order}",
            end,
        ]
    total = f"COALESCE(SUM({on.c}.{s.amount}), 0)"
    return [
        f"SELECT {on.label()}, {total} AS {on.out}",
        *on.joined(join),
        on.grouped(),
        f"ORDER BY {rng.choice((on.out, total, '2'))}{order}",
    ]


def _odd(on: Writer, parts: list[str]) -> list[str]:
    """Something that nobody planned."""
    s, rng = on.s, on.rng
    place = rng.randrange(len(parts))
    found = [
        lambda: [
            part.replace(f".{s.amount}", ".value_of").replace(f".{s.attribute}", ".kind") for part in parts
        ],
        lambda: [*parts[:place], *parts[place + 1 :]] if len(parts) > 2 and place else [*parts, "LIMIT 1"],
        lambda: [part.replace(s.child, f"{s.child}_archive", 1) for part in parts],
        lambda: [*parts, f"OFFSET {rng.randint(1, 40)}"],
        lambda: [
            part.replace("SELECT", f"SELECT {rng.choice(('TOP 5', 'ALL', 'FIRST'))}", 1) for part in parts
        ],
        lambda: [part.replace(f"{on.p}.id", f"{on.p}.{s.parent}_no") for part in parts] + ["-- keyed"],
        lambda: (
            [part.replace("COUNT", "MAX").replace("SUM", rng.choice(("AVG", "MIN"))) for part in parts]
            + [f"-- by {s.amount}"]
        ),
    ]
    return rng.choice(found)()
