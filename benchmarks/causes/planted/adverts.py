"""Extraction to YAML: an advert of a flat, and a document with the fields that a schema names."""

import json
import random
from typing import Any

from benchmarks.causes.planted.voice import Prompt

MODES = (
    "warm rent for the cold one",
    "says yes or no in words",
    "lists what is not there",
    "leaves the phone as it is written",
    "flattens the contact",
)
STREETS = (
    "Elm Row",
    "Quay Street",
    "Mill Lane",
    "Garden Close",
    "North Parade",
    "Station Road",
    "Abbey Hill",
)
TOWNS = ("Leith", "Cork", "Bath", "Ghent", "Delft", "Malmö", "Porto", "Tartu", "Brno", "Graz")
PEOPLE = ("Mrs Adeyemi", "Mr Costa", "Ms Dahl", "Mr Evans", "Mrs Fontaine", "Ms Georgiou", "Mr Hashimoto")
FEATURES = (
    *("balcony", "cellar", "lift", "dishwasher", "bathtub", "fitted kitchen", "parking space", "garden"),
    *("floor heating", "storage room", "guest toilet", "fireplace"),
)
FRAMES = (
    "{rooms}-room flat in {town}, {street}. {size} m². Rent {cold} EUR cold, {warm} EUR with heating. "
    "{has} {lacks} {pets} Call {who}: {phone}.",
    "TO LET: {street}, {town}. {size} square metres, {rooms} rooms. {has} {pets} {lacks} "
    "Monthly {warm} EUR all in ({cold} EUR without utilities). Contact: {who}, {phone}",
    "Nice flat ({rooms} rooms, {size} m²) at {street} in {town}! {lacks} {has} The basic rent is {cold} EUR; "
    "with utilities you pay {warm} EUR. {pets} Viewings: {who}, tel. {phone}",
    "{who} lets {rooms} rooms of {size} m² in {street}, {town}. {pets} {has} {lacks} {cold} EUR plus costs, "
    "{warm} EUR in total. Phone {phone}.",
)
TASK = (
    "\n\nGive the advert as YAML with the fields address (street, town), rooms, size, rent (cold, in EUR), features (a list of "
    "what the flat has), pets (true or false) and contact (name, phone as +CC and digits only)."
)
INTROS = (
    "Here is the YAML:",
    "Extracted fields:",
    "Sure.",
    "The advert as a document:",
    "This is what I found in the text.",
    "As requested:",
    "# advert",
    "",
    "",
    "",
)
CLOSERS = ("", "", "", "", "I left out what the schema does not name.", "Let me know if a field is missing.")


def prompt(rng: random.Random) -> Prompt:
    has = rng.sample(FEATURES, rng.randint(3, 5))
    lacks = has.pop()
    cold = rng.randrange(420, 1_900, 5)
    warm = cold + rng.randrange(60, 350, 5)
    country, area, rest = (
        rng.choice(("44", "49", "351", "32", "46")),
        rng.randrange(20, 990),
        rng.randrange(10**5, 10**7),
    )
    written = rng.choice(
        (f"00{country} {area}/{rest}", f"+{country} ({area}) {rest}", f"+{country}-{area}-{rest}")
    )
    pets = rng.random() < 0.5
    right: dict[str, Any] = {
        "address": {"street": f"{rng.choice(STREETS)} {rng.randint(1, 90)}", "town": rng.choice(TOWNS)},
        "rooms": rng.randint(1, 6),
        "size": rng.randint(24, 160),
        "rent": cold,
        "features": has,
        "pets": pets,
        "contact": {"name": rng.choice(PEOPLE), "phone": f"+{country}{area}{rest}"},
    }
    advert = rng.choice(FRAMES).format(
        **right["address"],
        rooms=right["rooms"],
        size=right["size"],
        cold=cold,
        warm=warm,
        has=rng.choice(("It has {}.", "With {}.", "There is {}.")).format(", ".join(has)),
        lacks=rng.choice(("There is no {}.", "Please note: without {}.", "{} not included.")).format(lacks),
        pets=rng.choice(
            ("Pets are welcome.", "Pets allowed.") if pets else ("No pets.", "Sorry, no animals.")
        ),
        who=right["contact"]["name"],
        phone=written,
    )

    def write(rng: random.Random, mode: str | None) -> tuple[str, None, tuple[str, ...]]:
        found = json.loads(json.dumps(right))
        match mode:
            case "warm rent for the cold one":
                found["rent"] = warm
            case "says yes or no in words":
                words = (
                    ("allowed", "welcome", "with permission")
                    if pets
                    else ("not allowed", "none", "not welcome")
                )
                found["pets"] = rng.choice(words)
            case "lists what is not there":
                found["features"].insert(rng.randint(0, len(has)), rng.choice((lacks, lacks, f"no {lacks}")))
            case "leaves the phone as it is written":
                found["contact"]["phone"] = written
            case "flattens the contact":
                contact = found.pop("contact")
                found |= rng.choice(
                    (
                        {"contact_name": contact["name"], "contact_phone": contact["phone"]},
                        {"contact": contact["name"], "phone": contact["phone"]},
                        {"name": contact["name"], "phone": contact["phone"]},
                    )
                )
            case "":
                _unplanned(found, rng)
        return _worded(found, rng)

    return Prompt(f"{advert}{TASK}", MODES, write, _yaml(right, 2, lambda text: text))


def _unplanned(found: dict[str, Any], rng: random.Random) -> None:
    match rng.randrange(6):
        case 0:
            found["rooms"] += rng.choice((-1, 1, 2))
        case 1:
            found["features"].pop()
        case 2:
            found["address"]["town"] = rng.choice(TOWNS)
        case 3:
            found["size"] = f"about {found['size']}"
        case 4:
            found["address"] = f"{found['address']['street']}, {found['address']['town']}"
        case _:
            found[rng.choice(("floor", "deposit", "currency"))] = rng.choice((1, "EUR", "unknown"))


def _worded(found: dict[str, Any], rng: random.Random) -> tuple[str, None, tuple[str, ...]]:
    names = list(found)
    if rng.random() < 0.4:
        rng.shuffle(names)
    quote = rng.choice((lambda text: text, lambda text: f'"{text}"', lambda text: f"'{text}'"))
    text = _yaml({name: found[name] for name in names}, rng.choice((2, 4)), quote)
    intro, closer, fence = (
        rng.choice(INTROS),
        rng.choice(CLOSERS),
        rng.choice(("```yaml", "```", "```yml", "")),
    )
    if not fence:
        intro = closer = ""
    lines = [intro, fence, text, "```" if fence else "", closer]
    return (
        "\n".join(line for line in lines if line),
        None,
        (f"intro {intro[:12]}", f"fence {fence}", f"closer {closer[:9]}"),
    )


def _yaml(value: dict[str, Any], wide: int, quote: Any) -> str:
    lines = []
    for name, of in value.items():
        if isinstance(of, dict):
            lines += [f"{name}:", *(f"{' ' * wide}{key}: {_scalar(each, quote)}" for key, each in of.items())]
        elif isinstance(of, list):
            lines += [f"{name}:", *(f"{' ' * wide}- {_scalar(each, quote)}" for each in of)]
        else:
            lines.append(f"{name}: {_scalar(of, quote)}")
    return "\n".join(lines)


def _scalar(value: object, quote: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if value.startswith("+") and quote("") == "" else quote(value)
    return str(value)
