"""Extraction to JSON: a supplier's letter, and an object with the fields that a schema names.

Unlike the other domains, this one was written by an author of the method that it measures. `alone` has no
reference, so that a response has only its siblings beside it.
"""

import json
import random
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from benchmarks.causes.planted.voice import Prompt

MODES = (
    "takes another date",
    "lists what was cancelled",
    "reads a decimal comma as a point",
    "leaves the date as it is written",
    "leaves out what is empty",
    "gives the number as text",
)
SUPPLIERS = (
    *("Nordwind Handel", "Berger & Söhne", "Papierwerk Ost", "Lindner Technik", "Hafenkontor", "Albrecht KG"),
    *("Rheintal Bedarf", "Moser Logistik", "Seeblick Vertrieb", "Kranz und Partner", "Falke Werkzeuge"),
)
GOODS = (
    *("steel shelf", "desk lamp", "label printer", "pallet jack", "drill set", "work bench", "paper roll"),
    *(
        "tool box",
        "safety vest",
        "cable drum",
        "packing tape",
        "floor mat",
        "air filter",
        "ladder",
        "scanner",
    ),
)
CITIES = ("Bremen", "Kassel", "Lübeck", "Graz", "Basel", "Erfurt", "Mainz", "Rostock", "Ulm", "Linz")
PEOPLE = ("A. Vogt", "M. Keller", "J. Brandt", "S. Huber", "T. Wolf", "L. Sommer", "R. Peters", "K. Engel")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
FRAMES = (
    "{supplier}, {city}\n\nDear customer,\nyour order of {ordered} was confirmed. {goods} {cancelled} The total "
    "comes to {total} EUR and is due on {due}. {contact}",
    "Confirmation from {supplier} ({city}). Ordered: {ordered}. {goods} Please pay {total} EUR by {due}. "
    "{cancelled} {contact}",
    "From: {supplier}\nPlace: {city}\n{contact}\n\nWe thank you for the order placed on {ordered}. {goods} "
    "{cancelled}\nAmount: {total} EUR, payable until {due}.",
)
TASK = (
    "\n\nExtract a JSON object with the fields supplier, city, due (YYYY-MM-DD), total (a number), positions (a "
    "list of article and quantity, without what was cancelled) and contact (null where none is named)."
)
INTROS = (
    "Here is the object:",
    "Extracted from the letter:",
    "Sure, this is the JSON you need.",
    "Below you find the requested fields.",
    "I read the letter and found the following.",
    "The result:",
    "As JSON:",
    "This should be what you are looking for:",
    "",
    "",
)
CLOSERS = ("", "", "", "Tell me if another format suits better.", "All fields are taken from the letter.")


def prompt(rng: random.Random) -> Prompt:
    supplier, city, contact = rng.choice(SUPPLIERS), rng.choice(CITIES), rng.choice([*PEOPLE, None, None])
    ordered = date(2026, rng.randint(1, 10), rng.randint(1, 28))
    due = ordered + timedelta(days=rng.randint(14, 40))
    articles = rng.sample(GOODS, rng.randint(3, 5))
    positions = [{"article": each, "quantity": rng.randint(2, 60)} for each in articles]
    cancelled = positions.pop(rng.randrange(len(positions)))
    total = rng.randint(100_000, 4_000_000) / 100
    goods = " and ".join(f"{each['quantity']} × {each['article']}" for each in positions)
    letter = rng.choice(FRAMES).format(
        supplier=supplier,
        city=city,
        ordered=_spoken(ordered),
        due=_spoken(due),
        total=_german(total),
        goods=f"We deliver {goods}.",
        cancelled=f"As agreed, {cancelled['quantity']} × {cancelled['article']} was cancelled.",
        contact=f"Questions? Ask {contact}." if contact else "",
    )
    right = {
        "supplier": supplier,
        "city": city,
        "due": due.isoformat(),
        "total": total,
        "positions": positions,
        "contact": contact,
    }
    modes = [mode for mode in MODES if contact is None or mode != "leaves out what is empty"]

    def write(rng: random.Random, mode: str | None) -> tuple[str, None, tuple[str, ...]]:
        found = json.loads(json.dumps(right))
        match mode:
            case "takes another date":
                found["due"] = ordered.isoformat()
            case "lists what was cancelled":
                found["positions"].insert(rng.randint(0, len(positions)), dict(cancelled))
            case "reads a decimal comma as a point":
                found["total"] = round(total / 1000, 3)
            case "leaves the date as it is written":
                found["due"] = _spoken(due)
            case "leaves out what is empty":
                found.pop("contact")
            case "gives the number as text":
                found["total"] = f"{total:.2f}"
            case "":
                _unplanned(found, rng)
        return _worded(found, rng)

    return Prompt(f"{letter}{TASK}", tuple(modes), write, json.dumps(right, ensure_ascii=False))


def alone(rng: random.Random) -> Prompt:
    """Without the reference."""
    return replace(prompt(rng), answer=None)


def _unplanned(found: dict[str, Any], rng: random.Random) -> None:
    match rng.randrange(6):
        case 0:
            found["city"] = rng.choice(CITIES)
        case 1:
            found["positions"].pop()
        case 2:
            found["positions"][0]["quantity"] += rng.randint(1, 9)
        case 3:
            found["supplier"] = found["supplier"].upper()
        case 4:
            found["positions"][-1]["article"] = rng.choice(GOODS)
        case _:
            found[rng.choice(["currency", "note", "vat"])] = rng.choice(["EUR", "none", 19])


def _worded(found: dict[str, Any], rng: random.Random) -> tuple[str, None, tuple[str, ...]]:
    names = list(found)
    if rng.random() < 0.5:
        rng.shuffle(names)
    text = json.dumps({name: found[name] for name in names}, indent=rng.choice([1, 2, 4]), ensure_ascii=False)
    fenced = rng.random() < 0.6
    intro, closer = (rng.choice(INTROS), rng.choice(CLOSERS)) if fenced else (rng.choice(INTROS), "")
    text = f"```json\n{text}\n```" if fenced else text
    traits = (f"intro {intro[:12]}", f"fenced {fenced}", f"closer {closer[:12]}")
    return "\n".join(part for part in (intro, text, closer) if part), None, traits


def _spoken(day: date) -> str:
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def _german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
