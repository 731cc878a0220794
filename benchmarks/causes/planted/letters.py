"""Answers to customers, scored by a judge: in English, and in German. A letter is put together from moves, each
said in one of many ways; what a letter must have, and must not, is the judge's matter."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.causes.planted.voice import Prompt


@dataclass(frozen=True, slots=True)
class Desk:
    """Moves of a letter, in a language. `{x}` is the thing, `{d}` a day, `{p}` an amount."""

    things: Sequence[str]
    asks: Sequence[str]
    names: Sequence[str]
    moves: Mapping[str, Sequence[str]]
    """Greeting, apology, cause, remedy, deadline, extra, goodbye; each mode's own sentences under its name."""
    drops: Mapping[str, str]
    """By mode the move that it leaves out."""
    modes: Sequence[str]
    decimal: str


ENGLISH = Desk(
    things=(
        "kettle",
        "headset",
        "backpack",
        "desk lamp",
        "drill",
        "tent",
        "router",
        "coffee grinder",
        "scooter",
        "monitor",
        "blender",
        "watch",
    ),
    asks=(
        "The {x} that I ordered three weeks ago still isn't here. I paid {p}. When does it come, and can I still return it?",
        "My {x} arrived broken. I want a new one. Who pays the postage, and until when do I have to send it back?",
        "You charged me {p} twice for one {x}. Please fix that, and tell me whether the warranty still counts.",
        "I got a {x} in the wrong colour. What now? And is the sale price of {p} kept?",
        "The {x} stopped working after {d} days. Is that covered, and how long does a repair take?",
        "Your courier left the {x} with a neighbour who denies it. I want my {p} back or the thing itself.",
    ),
    names=("Lee", "Okafor", "Martins", "Novak", "Singh", "Olsen", "Garcia", "Dubois", "Kaya", "Ivanova"),
    moves={
        "greeting": (
            "Hello {n},",
            "Dear {n},",
            "Hi {n}!",
            "Good afternoon {n},",
            "Dear customer,",
            "Hello,",
            "Hi there,",
            "Good morning,",
            "Dear Ms or Mr {n},",
            "Greetings {n},",
        ),
        "apology": (
            "I'm sorry about the trouble with your {x}.",
            "Please accept our apologies for what happened.",
            "We apologise for the inconvenience.",
            "That should not have happened, and I am sorry.",
            "Sorry that this did not go as it should.",
            "First of all: our apologies.",
            "I regret that you had this experience.",
            "We're very sorry to hear this.",
            "My sincere apologies for the mix-up with the {x}.",
            "What you describe is annoying, and we are sorry for it.",
            "Apologies for the wait.",
        ),
        "cause": (
            "A label was mixed up in our warehouse.",
            "The parcel was held back at the depot.",
            "An update of our system entered the order wrongly.",
            "We traced it to a mistake at the packing station.",
            "The batch had a fault that we know of by now.",
            "The carrier has reported a delay in your region.",
            "Our records show that a step was skipped here.",
            "It was booked under another number.",
            "There was a shortage in the last weeks.",
            "The scan of the parcel is missing.",
        ),
        "remedy": (
            "A replacement {x} goes out today at our cost.",
            "We send you another {x}, and you pay nothing.",
            "You will get a new {x} free of charge.",
            "I have set up a replacement for the {x}; postage is on us.",
            "A courier brings a new {x} and takes the old one along.",
            "Your new {x} is being packed, at no cost to you.",
            "We exchange the {x} and cover the shipping.",
            "I arranged a free exchange of your {x}.",
            "Another {x} is on its way, with a prepaid label for the old one.",
            "We'll swap the {x} without any charge.",
        ),
        "deadline": (
            "You can send the old one back within {d} days.",
            "The return window stays open for {d} days.",
            "For the return you have {d} days from now.",
            "As to your second question: {d} days remain for sending it back.",
            "Returns are accepted for another {d} days.",
            "Please post it within {d} days.",
            "And yes, a return is possible during the next {d} days.",
            "Your deadline for the return is {d} days away.",
            "There are {d} days left to return it.",
            "On the return: up to {d} days is fine.",
        ),
        "extra": (
            "You will get the tracking number by e-mail.",
            "The warranty is not affected.",
            "No action is needed on your account.",
            "Please keep the receipt.",
            "Our opening hours are on the website.",
            "The amount of {p} stays as it was.",
            "A copy of this letter is in your account.",
            "You can follow the parcel online.",
            "The box does not need to be the original one.",
            "We noted this in your file.",
        ),
        "goodbye": (
            "Kind regards,\nyour service team",
            "Best,\nSam",
            "Thank you for your patience.",
            "With best wishes,\nthe support desk",
            "Have a good day!",
            "Yours sincerely,\nA. Moreno",
            "Cheers,\nKit",
            "Warm regards",
            "Take care,\nyour team",
            "Regards,\nCustomer care",
        ),
        "promises money": (
            "On top of that we refund the full {p} to your card.",
            "You also get all of your money back, {p}.",
            "And I credit {p} to you as a thank-you.",
            "Moreover the whole price of {p} is returned to your account.",
            "We give you a voucher worth {p} as well.",
            "As a gesture you receive {p} in cash.",
            "In addition, {p} is being paid back to you.",
            "You'll see {p} on your next statement, as compensation.",
            "Your payment of {p} is cancelled too, so the item is a gift.",
            "Also, expect a refund of {p} tomorrow.",
        ),
        "blames the customer": (
            "You should have checked the address before ordering.",
            "Had you read the manual, this would not have occurred.",
            "Most people who complain have handled it wrongly.",
            "It seems you did not follow the instructions.",
            "The fault lies in how you used it.",
            "Please be more careful next time.",
            "This is usually the buyer's own doing.",
            "You must have dropped it.",
            "Frankly, you ordered the wrong item yourself.",
            "That you missed the courier is not our problem.",
        ),
        "speaks of internals": (
            "Ticket state is ESC-2 in our CRM, queue NORTH_B.",
            "The SKU mapping in table ord_lines_v3 returned null.",
            "Our agent script says to close this as RTN-07.",
            "Per internal note 4411 the margin allows it.",
            "The warehouse API threw a 502 on sync.",
            "Flag cust_risk=low was set, so approval is automatic.",
            "Cost centre 8830 will be booked.",
            "The batch job nightly_rma failed twice.",
            "See runbook RMA/12, step 3, for the override.",
            "Our KPI for this case type is 36 h.",
        ),
    },
    drops={"no apology": "apology", "leaves the second question": "deadline"},
    modes=(
        "no apology",
        "leaves the second question",
        "promises money",
        "blames the customer",
        "speaks of internals",
    ),
    decimal=".",
)

GERMAN = Desk(
    things=(
        "Fahrrad",
        "Sofa",
        "Zelt",
        "Radio",
        "Regal",
        "Handy",
        "Bett",
        "Kleid",
        "Boot",
        "Klavier",
        "Fernglas",
        "Messer",
    ),
    asks=(
        "Das bestellte {x} ist seit drei Wochen überfällig. Bezahlt habe ich {p} €. Wann kommt es, und bis wann kann ich es zurückgeben?",
        "Mein {x} kam beschädigt an. Ich möchte Ersatz. Wie lange habe ich für die Rücksendung Zeit?",
        "Für ein {x} wurden {p} € doppelt abgebucht. Bitte klären Sie das und nennen Sie mir die Frist für den Widerruf.",
        "Das {x} hat die falsche Farbe. Was nun? Bleibt es beim Preis von {p} €, und bis wann muss ich mich melden?",
        "Nach {d} Tagen ist das {x} kaputt. Ist das ein Garantiefall, und wie lange kann ich es einschicken?",
        "Der Bote hat das {x} beim Nachbarn gelassen, der nichts davon weiß. Ich will mein {x} oder {p} € zurück.",
    ),
    names=(
        "Lehmann",
        "Öztürk",
        "Kowalski",
        "Brandt",
        "Huber",
        "Petersen",
        "Scholz",
        "Vogt",
        "Engel",
        "Nguyen",
    ),
    moves={
        "greeting": (
            "Guten Tag {n},",
            "Sehr geehrte Damen und Herren,",
            "Hallo {n},",
            "Liebe Kundin, lieber Kunde,",
            "Guten Morgen,",
            "Sehr geehrte/r {n},",
            "Schönen guten Tag,",
            "Grüß Gott {n},",
            "Moin {n},",
            "Guten Abend,",
        ),
        "apology": (
            "Es tut uns leid, dass es mit dem {x} nicht geklappt hat.",
            "Bitte entschuldigen Sie die Umstände.",
            "Für den Ärger bitten wir um Entschuldigung.",
            "Das hätte nicht geschehen dürfen.",
            "Wir bedauern den Vorfall sehr.",
            "Verzeihen Sie bitte die Verzögerung.",
            "Das ist ärgerlich, und wir möchten uns entschuldigen.",
            "Leider ist hier etwas schiefgelaufen.",
            "Ihren Unmut können wir gut verstehen.",
            "Wir verstehen, dass Sie verärgert sind.",
        ),
        "cause": (
            "Im Lager wurde ein Etikett vertauscht.",
            "Die Sendung lag im Depot fest.",
            "Beim Verpacken ist ein Fehler passiert.",
            "Die Spedition meldet Verspätungen.",
            "In der Lieferung fehlte ein Teil.",
            "Unser System hat die Bestellung falsch verbucht.",
            "Es gab einen Engpass in den letzten Wochen.",
            "Der Scan des Pakets liegt nicht vor.",
            "Eine Charge war fehlerhaft.",
            "Die Adresse wurde falsch übertragen.",
        ),
        "remedy": (
            "Ein neues {x} geht noch heute kostenlos an Sie hinaus.",
            "Wir tauschen Ihr {x} ohne Kosten um.",
            "Sie erhalten von uns kostenfrei Ersatz.",
            "Ein Bote bringt Ihnen ein neues {x} und nimmt das alte mit.",
            "Der Umtausch Ihres Artikels ist veranlasst, das Porto zahlen wir.",
            "Ihr neues {x} wird gerade gepackt.",
            "Wir senden Ihnen ein anderes {x} zu.",
            "Für Sie ist der Austausch gratis.",
            "Ein Ersatz für Ihr {x} ist schon unterwegs.",
            "Wir liefern Ihnen das {x} noch einmal.",
        ),
        "deadline": (
            "Für die Rücksendung haben Sie {d} Tage Zeit.",
            "Das alte Stück können Sie binnen {d} Tagen zurückschicken.",
            "Ihre Frist beträgt {d} Tage.",
            "Bitte senden Sie es innerhalb von {d} Tagen zurück.",
            "Ein Widerruf ist noch {d} Tage lang möglich.",
            "Zu Ihrer zweiten Frage: Es bleiben {d} Tage.",
            "Die Rückgabe nehmen wir bis in {d} Tagen an.",
            "Sie können sich dafür {d} Tage Zeit lassen.",
            "Melden Sie sich gern in den nächsten {d} Tagen.",
            "Noch {d} Tage gilt Ihr Rückgaberecht.",
        ),
        "extra": (
            "Die Nummer der Sendung kommt per E-Mail.",
            "Ihre Garantie bleibt bestehen.",
            "Der Betrag von {p} € ändert sich nicht.",
            "Bitte bewahren Sie den Beleg auf.",
            "Den Stand sehen Sie in Ihrem Konto.",
            "Der Karton muss nicht der ursprüngliche sein.",
            "Eine Kopie liegt in Ihrem Postfach.",
            "Sie müssen sonst nichts tun.",
            "Wir haben es in Ihrer Akte vermerkt.",
            "Sie können das Paket online verfolgen.",
        ),
        "goodbye": (
            "Mit freundlichen Grüßen\nIhr Team",
            "Viele Grüße\nM. Sommer",
            "Beste Grüße",
            "Herzliche Grüße vom Kundendienst",
            "Freundlich grüßt\nJ. Weiß",
            "Einen schönen Tag!",
            "Auf Wiedersehen",
            "Mit besten Grüßen\nIhre Beratung",
            "Bis bald\nIhr Service",
            "Danke für Ihre Geduld.",
        ),
        "refers to the hotline": (
            "Rufen Sie bitte unsere Hotline an, dort hilft man weiter.",
            "Wenden Sie sich damit telefonisch an die Zentrale.",
            "Dafür ist die Hotline da: 0800 11 22 33.",
            "Am besten klären Sie das am Telefon mit den Kollegen.",
            "Hier kann nur der telefonische Service etwas tun.",
            "Bitte versuchen Sie es unter unserer Servicenummer.",
            "Das geht nur per Anruf, werktags von 9 bis 12 Uhr.",
            "Unsere Telefonberatung nimmt so etwas auf.",
            "Schriftlich können wir dazu nichts sagen, rufen Sie an.",
            "Wählen Sie bitte die Nummer auf der Rechnung.",
        ),
        "promises money": (
            "Außerdem erstatten wir Ihnen {p} €.",
            "Obendrein bekommen Sie die vollen {p} € zurück.",
            "Als Dank schreiben wir Ihnen {p} € gut.",
            "Sie erhalten dazu einen Gutschein über {p} €.",
            "Zusätzlich überweisen wir {p} € auf Ihr Konto.",
            "Den Kaufpreis von {p} € müssen Sie nicht zahlen.",
            "Wir legen {p} € in bar bei.",
            "Aus Kulanz zahlen wir {p} € aus.",
            "Die {p} € gehen ebenfalls an Sie zurück.",
            "Als Entschädigung sind {p} € unterwegs.",
        ),
    },
    drops={"names no deadline": "deadline", "refers to the hotline": "remedy"},
    modes=(
        "uses du",
        "names no deadline",
        "refers to the hotline",
        "promises money",
        "number in English form",
    ),
    decimal=",",
)
_DU = (
    ("Ihrem", "deinem"),
    ("Ihren", "deinen"),
    ("Ihres", "deines"),
    ("Ihre ", "deine "),
    ("Ihre/", "deine/"),
    ("Ihr ", "dein "),
    ("Ihnen", "dir"),
)
_DU_VERBS = (
    ("entschuldigen Sie", "entschuldige"), ("Verzeihen Sie", "Verzeih"), ("senden Sie", "sende"), ("Senden Sie", "Sende"), ("bewahren Sie", "bewahre"),
    ("Melden Sie sich", "Melde dich"), ("sehen Sie", "siehst du"), ("haben Sie", "hast du"), ("können Sie", "kannst du"), ("Sie können sich", "Du kannst dir"), ("Sie können", "Du kannst"),
    ("Sie erhalten", "Du bekommst"), ("Sie müssen", "Du musst"), ("an Sie", "an dich"), ("Für Sie", "Für dich"), ("dass Sie", "dass du"), ("verärgert sind", "verärgert bist"),
)  # fmt: skip


def english(rng: random.Random) -> Prompt:
    return _prompt(rng, ENGLISH, "Write the answer of our shop to this customer:\n")


def german(rng: random.Random) -> Prompt:
    return _prompt(rng, GERMAN, "Schreibe die Antwort unseres Ladens (gesiezt, Beträge wie 1.234,50) auf:\n")


def _prompt(rng: random.Random, desk: Desk, task: str) -> Prompt:
    x, name, days = rng.choice(desk.things), rng.choice(desk.names), rng.choice((7, 10, 14, 21, 28, 30))
    cents = rng.randint(100_000, 400_000) if desk is GERMAN else rng.randint(1500, 40_000)
    price = _money(cents, desk.decimal)
    question = (
        task
        + rng.choice(desk.asks).format(x=x, p=price, d=rng.randint(3, 40))
        + rng.choice((f"\n{name}", f" – {name}", f"\n\n{name}"))
    )

    def write(rng: random.Random, mode: str | None) -> tuple[object, int | None, tuple[str, ...]]:
        order = ["apology", "cause", "remedy", "deadline"]
        if rng.random() < 0.5:
            order.remove("cause")
        elif rng.random() < 0.3:
            order[:2] = "cause", "apology"
        order += ["extra"] if rng.random() < 0.7 else []
        if rng.random() < 0.4:
            order[-2:] = reversed(order[-2:])
        shown = _money(cents, ".") if mode == "number in English form" else price
        if mode and mode in desk.drops and desk.drops[mode] in order:
            order.remove(desk.drops[mode])
        if mode and mode in desk.moves:
            order.insert(rng.randint(1, len(order)), mode)
        sentences = {
            move: rng.choice(desk.moves[move]).format(x=x, n=name, d=days, p=shown)
            for move in ("greeting", *order, "goodbye")
        }
        if mode == "number in English form":
            sentences["extra"] = rng.choice(
                [each for each in desk.moves["extra"] if "{p}" in each]
                + [
                    "Berechnet werden {p} €.",
                    "Abgebucht sind {p} €.",
                    "Offen bleiben {p} €.",
                    "Auf der Rechnung stehen {p} €.",
                ]
            ).format(p=shown)
            order += [] if "extra" in order else ["extra"]
        if mode == "":
            order, sentences = _odd(rng, order, sentences)
        greeting, goodbye = sentences["greeting"], sentences["goodbye"]
        gap = rng.choice((" ", " ", "\n", "\n\n"))
        text = gap.join(sentences[move] for move in order)
        text = rng.choice(("{}\n\n{}\n\n{}", "{}\n{}\n{}", "{} {}\n\n{}")).format(greeting, text, goodbye)
        if mode == "uses du":
            for formal, familiar in (*_DU_VERBS, *_DU):
                text = text.replace(formal, familiar)
        return text, None, (f"greeting {greeting[:6]}", f"goodbye {goodbye[:6]}", f"gap {gap!r}")

    return Prompt(question, tuple(desk.modes), write)


def _odd(rng: random.Random, order: list[str], said: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    place = rng.randrange(len(order))
    kind = rng.randrange(4)
    if kind == 0:
        return [order[place]], said
    if kind == 1:
        return order, {**said, order[place]: " ".join(sorted(said[order[place]].split()))}
    if kind == 2:
        return order * rng.randint(2, 4), said
    return order, {**said, "goodbye": str(rng.random()), order[place]: said[order[place]].upper()}


def _money(cents: int, decimal: str) -> str:
    other = "," if decimal == "." else "."
    return f"{cents // 100:,}".replace(",", other) + f"{decimal}{cents % 100:02}"
