"""Translation of notices into German, with a glossary of the prompt's own, marks that stay and a polite address."""

import random
from dataclasses import dataclass

from benchmarks.causes.planted.voice import Prompt

MODES = (
    "ignores the glossary",
    "says du",
    "translates a placeholder",
    "leaves the number in English",
    "leaves out the warning",
)


@dataclass(frozen=True, slots=True)
class Noun:
    word: str
    gender: str

    def nominative(self) -> str:
        return f"{ {'m': 'der', 'f': 'die', 'n': 'das'}[self.gender] } {self.word}"

    def accusative(self) -> str:
        return f"{ {'m': 'den', 'f': 'die', 'n': 'das'}[self.gender] } {self.word}"

    def dative(self) -> str:
        return f"{ {'m': 'dem', 'f': 'der', 'n': 'dem'}[self.gender] } {self.word}"


TERMS = {
    "dashboard": (Noun("Übersicht", "f"), Noun("Dashboard", "n"), Noun("Startseite", "f")),
    "account": (Noun("Konto", "n"), Noun("Account", "m"), Noun("Zugang", "m")),
    "invoice": (Noun("Rechnung", "f"), Noun("Faktura", "f"), Noun("Abrechnung", "f")),
    "subscription": (Noun("Abonnement", "n"), Noun("Vertrag", "m"), Noun("Bezug", "m")),
    "device": (Noun("Gerät", "n"), Noun("Endgerät", "n"), Noun("Apparat", "m")),
    "backup": (Noun("Sicherung", "f"), Noun("Backup", "n"), Noun("Datensicherung", "f")),
    "warehouse": (Noun("Lager", "n"), Noun("Depot", "n"), Noun("Warenhaus", "n")),
    "supplier": (Noun("Lieferant", "m"), Noun("Zulieferer", "m"), Noun("Anbieter", "m")),
    "meter": (Noun("Zähler", "m"), Noun("Messgerät", "n"), Noun("Messer", "n")),
    "licence": (Noun("Lizenz", "f"), Noun("Genehmigung", "f"), Noun("Erlaubnis", "f")),
}
MARKS = {
    "user_name": ("benutzername", "nutzer_name", "name"),
    "order_id": ("bestell_id", "bestellnummer", "auftrag_id"),
    "due_date": ("fälligkeitsdatum", "datum", "frist"),
    "city": ("stadt", "ort"),
    "link": ("verweis", "adresse"),
    "ticket": ("vorgang", "anfrage"),
}
OPENINGS = ("Hello {{{mark}}},", "Dear {{{mark}}},", "Notice for {{{mark}}}:")
GREETINGS = (
    "Guten Tag {{{mark}}},",
    "Hallo {{{mark}}},",
    "Sehr geehrte Kundschaft ({{{mark}}}),",
    "Hinweis für {{{mark}}}:",
)
CHECKS = (
    (
        "please check {term} today.",
        (
            "bitte prüfen Sie heute {acc}.",
            "wir bitten Sie, {acc} heute zu prüfen.",
            "kontrollieren Sie bitte heute {acc}.",
        ),
        (
            "bitte prüfe heute {acc}.",
            "wir bitten dich, {acc} heute zu prüfen.",
            "kontrolliere bitte heute {acc}.",
        ),
    ),
    (
        "you can now open {term} online.",
        (
            "Sie können {acc} jetzt online öffnen.",
            "ab sofort öffnen Sie {acc} online.",
            "{nom} lässt sich nun von Ihnen online öffnen.",
        ),
        (
            "du kannst {acc} jetzt online öffnen.",
            "ab sofort öffnest du {acc} online.",
            "{nom} lässt sich nun von dir online öffnen.",
        ),
    ),
    (
        "we have changed something in {term} for you.",
        (
            "wir haben in {dat} etwas für Sie geändert.",
            "in {dat} gibt es eine Änderung für Sie.",
            "für Sie wurde in {dat} etwas angepasst.",
        ),
        (
            "wir haben in {dat} etwas für dich geändert.",
            "in {dat} gibt es eine Änderung für dich.",
            "für dich wurde in {dat} etwas angepasst.",
        ),
    ),
)
SUMS = (
    (
        "The amount is {} EUR.",
        ("Der Betrag ist {} EUR.", "Es geht um {} EUR.", "Die Summe beträgt {} EUR.", "Das macht {} EUR."),
    ),
    (
        "The total comes to {} EUR.",
        ("Insgesamt sind es {} EUR.", "Die Gesamtsumme ist {} EUR.", "Zusammen ergibt das {} EUR."),
    ),
    ("There are {} EUR open.", ("Es sind {} EUR offen.", "Offen sind noch {} EUR.", "Ausstehend: {} EUR.")),
)
WARNINGS = (
    (
        "Never share your password.",
        (
            "Geben Sie Ihr Passwort nie weiter.",
            "Teilen Sie Ihr Kennwort niemandem mit.",
            "Ihr Passwort bleibt bei Ihnen.",
        ),
        (
            "Gib dein Passwort nie weiter.",
            "Teile dein Kennwort niemandem mit.",
            "Dein Passwort bleibt bei dir.",
        ),
    ),
    (
        "Do not unplug anything meanwhile.",
        (
            "Ziehen Sie inzwischen keinen Stecker.",
            "Trennen Sie währenddessen nichts vom Strom.",
            "Bitte lassen Sie solange alles angeschlossen.",
        ),
        (
            "Zieh inzwischen keinen Stecker.",
            "Trenne währenddessen nichts vom Strom.",
            "Bitte lass solange alles angeschlossen.",
        ),
    ),
    (
        "Late answers cannot be accepted.",
        (
            "Verspätete Antworten können wir nicht annehmen.",
            "Spätere Rückmeldungen zählen nicht.",
            "Wer zu spät antwortet, wird nicht berücksichtigt.",
        ),
        (
            "Verspätete Antworten können wir nicht annehmen.",
            "Spätere Rückmeldungen zählen nicht.",
            "Wer zu spät antwortet, wird nicht berücksichtigt.",
        ),
    ),
)
LASTS = (
    (
        "You reach us at any time.",
        (
            "Sie erreichen uns jederzeit.",
            "Wir sind immer für Sie da.",
            "Melden Sie sich, wann immer Sie möchten.",
        ),
        ("Du erreichst uns jederzeit.", "Wir sind immer für dich da.", "Melde dich, wann immer du möchtest."),
    ),
    (
        "Thank you for your patience.",
        ("Danke für Ihre Geduld.", "Wir danken Ihnen für die Geduld.", "Vielen Dank, dass Sie warten."),
        ("Danke für deine Geduld.", "Wir danken dir für die Geduld.", "Vielen Dank, dass du wartest."),
    ),
)
BEFORE = (
    "Übersetzung:",
    "Here is the German text:",
    "**Deutsch**",
    "Sure, the translation:",
    "Hier der Text:",
    "",
    "",
    "",
    "",
)
AFTER = ("", "", "", "", "(Die Marken bleiben unverändert.)", "Let me know if the tone fits.")


def prompt(rng: random.Random) -> Prompt:
    terms = rng.sample(sorted(TERMS), 3)
    wanted = {term: rng.choice(TERMS[term]) for term in terms}
    mark, amount = rng.choice(sorted(MARKS)), rng.randrange(100_000, 9_900_000)
    check, total, warning, last = (rng.choice(each) for each in (CHECKS, SUMS, WARNINGS, LASTS))
    english, german = f"{amount / 100:,.2f}", f"{amount / 100:,.2f}".translate(str.maketrans(",.", ".,"))
    text = " ".join(
        (
            rng.choice(OPENINGS).format(mark=mark),
            check[0].format(term=f"the {terms[0]}"),
            total[0].format(english),
            warning[0],
            last[0],
        )
    )
    glossary = "\n".join(f"- {term}: {wanted[term].word}" for term in rng.sample(terms, 3))
    question = rng.choice(
        (
            f"Translate into German (Sie). Keep what is in braces. Use the glossary.\n\nGlossary:\n{glossary}\n\nText:\n{text}",
            f"{text}\n\nGive this in German, with a polite address and German number format. Terms to use:\n{glossary}\n"
            "Text in braces stays as it is.",
        )
    )

    def write(rng: random.Random, mode: str | None) -> tuple[str, None, tuple[str, ...]]:
        du = mode == MODES[1]
        noun = wanted[terms[0]]
        if mode == MODES[0]:
            noun = rng.choice([each for each in TERMS[terms[0]] if each != noun])
        kept = rng.choice(MARKS[mark]) if mode == MODES[2] else mark
        number = english if mode == MODES[3] else german

        def said(ways: tuple, **slots: str) -> str:
            """A way of it, in the same order polite and familiar."""
            place = rng.randrange(len(ways[1]))
            return ways[2 if du else 1][place].format(**slots)

        cases = {"nom": noun.nominative(), "acc": noun.accusative(), "dat": noun.dative()}
        parts = [
            rng.choice(GREETINGS[:2] if du else GREETINGS).format(mark=kept),
            said(check, **cases),
            rng.choice(total[1]).format(number),
            said(warning),
            said(last),
        ]
        if mode == MODES[4]:
            parts.pop(3)
        if mode == "":
            parts = _odd(parts, rng)
        before, after = rng.choice(BEFORE), rng.choice(AFTER)
        broken = rng.random() < 0.6
        at = rng.randint(1, 2)
        body = parts if broken else [" ".join(parts[:at]), " ".join(parts[at:])]
        lines = [line for line in (before, *body, after) if line]
        return "\n".join(lines), None, (f"before {before[:9]}", f"after {after[:9]}", f"lines {broken}")

    return Prompt(question, MODES, write)


def _odd(parts: list[str], rng: random.Random) -> list[str]:
    """Something that nobody planned."""
    match rng.randrange(5):
        case 0:
            return [*parts[:1], *parts[2:]]
        case 1:
            return [*parts, rng.choice(("Ihr Team", "Mit besten Wünschen", "Bis bald!"))]
        case 2:
            return [parts[0], parts[2], parts[1], *parts[3:]]
        case 3:
            return [*parts[:2], parts[2].replace("EUR", rng.choice(("USD", "CHF", "Pfund"))), *parts[3:]]
        case _:
            return [*parts[:-1], rng.choice(("Thank you for your patience.", "You reach us at any time."))]
