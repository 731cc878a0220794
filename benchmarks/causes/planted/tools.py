"""Agents with tools: whole conversations, with a simulated user and the tools' answers between the turns."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.causes.planted.mathematics import NAMES
from benchmarks.causes.planted.voice import Prompt

MODES = (
    "does not look the customer up",
    "date not in ISO form",
    "does not ask before it acts",
    "takes an error for success",
    "hands over to a person",
)


@dataclass(frozen=True, slots=True)
class World:
    """A desk with its tools: a record is looked up by a customer, read, and changed."""

    desk: str
    find: str
    read: str
    thing: str
    ids: str
    change: str
    verb: str
    done: str


WORLDS = (
    World(
        "an airline",
        "find_user_by_name_zip",
        "get_reservation",
        "booking",
        "BK",
        "move_flight",
        "move",
        "moved",
    ),
    World(
        "an online shop",
        "lookup_customer",
        "get_order_details",
        "order",
        "#W",
        "reschedule_delivery",
        "reschedule",
        "rescheduled",
    ),
    World("a hotel", "search_guest", "fetch_stay", "stay", "HT-", "change_arrival", "change", "changed"),
    World(
        "a clinic",
        "identify_patient",
        "read_appointment",
        "appointment",
        "AP",
        "shift_appointment",
        "shift",
        "shifted",
    ),
    World(
        "a car hire",
        "match_driver",
        "show_rental",
        "rental",
        "R-",
        "postpone_pickup",
        "postpone",
        "postponed",
    ),
    World(
        "a library", "get_member_by_card", "view_loan", "loan", "L", "extend_due_date", "extend", "extended"
    ),
)
HELLOS = (
    "Hello! How can I help you today?",
    "Hi there, thanks for getting in touch.",
    "Good morning, I'd be happy to help.",
    "Thank you for your message.",
    "Welcome! Let me take a look.",
    "I can certainly help with that.",
    "Sure, let me see what I can do.",
    "Thanks for reaching out to us.",
    "Of course.",
    "Happy to assist you with this.",
    "Let me check this for you right away.",
    "",
)
ASKS = (
    "I would {verb} your {thing} {id} to {date}. Shall I go ahead?",
    "Your {thing} {id} can be {done} to {date}. Do you confirm (yes/no)?",
    "To be sure: {thing} {id}, new date {date}. Is that right?",
    "Before I {verb} {id}: the new date would be {date}. May I proceed?",
    "So that is {date} for {thing} {id}. Please confirm.",
    "Do you want me to {verb} {id} to {date}?",
    "I have {id} open. New date {date}, correct?",
    "Just checking: {verb} the {thing} to {date}, yes?",
    "The change is free of charge: {id} to {date}. Is this what you want?",
    "Can I {verb} {thing} {id} so that it falls on {date}?",
)
YESES = (
    "Yes, please.",
    "yes",
    "That's right, go ahead.",
    "Yep.",
    "Correct, thank you.",
    "Please do.",
    "Sure.",
    "Yes, that works for me.",
    "Exactly.",
    "OK, do it.",
)
ENDS = (
    "All done: your {thing} {id} is now {done} to {date}.",
    "I have {done} {id} to {date}. Anything else?",
    "Your {thing} has been {done}; the new date is {date}.",
    "That worked. {id} is set for {date}.",
    "Everything is arranged for {date}. Have a nice day!",
    "Your new date is {date}. You will get an e-mail shortly.",
    "Good news, {id} was {done} to {date}.",
    "It is {done}: {date}. Let me know if you need more.",
    "Finished. The {thing} {id} now says {date}.",
    "{id}: {done}, {date}. Thank you for your patience.",
)
HANDS = (
    "I am sorry, this is beyond what I can do. A colleague will take over.",
    "Let me transfer you to a human agent.",
    "I will pass this on to one of our specialists.",
    "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.",
    "For this request I need to connect you with the team.",
    "One moment, I am handing you over to a member of staff.",
    "Somebody from our office will look into it and call you.",
    "This has to be handled by a person. I am forwarding it.",
    "I'd rather have an expert answer this, please stay in the line.",
    "My colleague can help you with that; transferring now.",
)
ERRORS = (
    {"error": "temporarily unavailable, call again"},
    {"error": "lock held by another session, retry"},
    {"status": "failed", "reason": "stale version: read the record again, then retry"},
    {"error": "timeout after 30 s; nothing was changed"},
    {"ok": False, "message": "write conflict, try again"},
)
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def prompt(rng: random.Random) -> Prompt:
    world, who, number = rng.choice(WORLDS), rng.choice(NAMES), rng.randint(1000, 9999)
    month, day, ident, code = (
        rng.randint(1, 12),
        rng.randint(13, 28),
        f"{world.ids}{number}",
        rng.randint(10000, 99999),
    )
    iso, said = f"2025-{month:02}-{day:02}", f"{MONTHS[month - 1]} {day}"
    fails = rng.random() < 0.5
    wants = rng.choice(
        (
            f"Hi, this is {who}, zip {code}. I need my {world.thing} {ident} to be on {said}, 2025.",
            f"Please {world.verb} {ident} to {said} 2025. My name is {who}, postal code {code}.",
            f"I'm {who} ({code}). Can the {world.thing} {ident} be {world.done} to {said}, 2025?",
            f"{said} 2025 would suit me better for {ident}. {who}, {code}.",
        )
    )
    policy = (
        f"You serve the customers of {world.desk}. Look the customer up first. Dates for tools are YYYY-MM-DD. Have every change "
        "confirmed before you make it. If a tool fails, call it again. Hand over to a person only where no tool applies."
    )
    question = [{"role": "system", "content": policy}, {"role": "user", "content": wants}]
    modes = (*MODES[:3], *(MODES[3:4] if fails else ()), MODES[4])

    def write(rng: random.Random, mode: str | None) -> tuple[object, int | None, tuple[str, ...]]:
        slots = {"thing": world.thing, "id": ident, "verb": world.verb, "done": world.done}
        slots["date"] = rng.choice((said, f"{said}, 2025", iso, f"{day} {MONTHS[month - 1]}"))
        made = _Made(rng)
        hello, end = rng.choice(HELLOS), rng.choice(ENDS)
        if rng.random() < 0.3 and hello:
            made.says(
                hello
                + rng.choice(
                    (
                        " Could you give me your postal code again?",
                        " May I have your name, please?",
                        " What is it about?",
                    )
                )
            )
            made.user(
                rng.choice(
                    (
                        f"{who}, {code}",
                        f"I said it already: {who}, {code}.",
                        f"Sure: {code}",
                        f"It's about {ident}.",
                    )
                )
            )
            hello = ""
        if mode != "does not look the customer up":
            made.calls(
                world.find,
                _mixed(rng, {"name": who, "zip": str(code)}),
                {"user_id": f"{who.lower()}_{number}", "zip": str(code)},
                hello,
            )
        if mode == "hands over to a person":
            if rng.random() < 0.6:
                made.calls(world.read, {"id": ident}, {"id": ident, "date": "2025-01-02", "status": "open"})
            if rng.random() < 0.6:
                made.calls("transfer_to_human", {"summary": f"{who} wants {ident} on {iso}"}, {"ok": True})
            made.says(rng.choice(HANDS))
            return made.turns, None, (f"hello {hello[:10]}",)
        made.calls(
            world.read,
            {"id": ident},
            {"id": ident, "date": "2025-01-02", "status": rng.choice(("open", "active", "confirmed"))},
        )
        if rng.random() < 0.25:
            made.calls(
                "get_policy",
                {"topic": rng.choice(("changes", world.thing, "fees"))},
                {"text": "Changes are free up to a day before."},
            )
        if mode != "does not ask before it acts":
            made.says(rng.choice(ASKS).format(**slots))
            made.user(rng.choice(YESES))
        date, target = iso, ident
        if mode == "date not in ISO form":
            date = rng.choice(
                (f"{month:02}/{day}/2025", f"{day}.{month:02}.2025", f"{said}, 2025", f"{month}/{day}/25")
            )
        if mode == "":
            odd = rng.randrange(5)
            date = iso if odd else f"2025-{month:02}-{(day + rng.choice((1, 7, 2))) % 28 + 1:02}"
            target = f"{world.ids}{number + rng.randint(1, 70)}" if odd == 1 else ident
            if odd == 2:
                made.calls("cancel_everything", {"id": ident}, {"ok": True})
            if odd == 3:
                made.says(
                    rng.choice(
                        ("That will be 45 euros.", "You have no right to this.", "As an AI I find this hard.")
                    )
                )
            if odd == 4:
                made.says("")
                return made.turns, None, (f"hello {hello[:10]}",)
        arguments = _mixed(
            rng, {"id": target, "date": date, **({"note": "by phone"} if rng.random() < 0.2 else {})}
        )
        if fails:
            made.calls(world.change, arguments, rng.choice(ERRORS))
        if not fails or mode != "takes an error for success":
            made.calls(
                world.change,
                arguments,
                {"ok": True, "id": target, "date": date},
                rng.choice(("", "", "Let me try that again.")) if fails else "",
            )
        made.says(end.format(**slots))
        return made.turns, None, (f"hello {hello[:10]}", f"end {end[:10]}")

    return Prompt(question, modes, write)


class _Made:
    """The turns after the first message."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.turns: list[dict[str, object]] = []

    def says(self, text: str) -> None:
        self.turns.append({"role": "assistant", "content": text})

    def user(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def calls(
        self, tool: str, arguments: Mapping[str, object], result: Mapping[str, object], text: str = ""
    ) -> None:
        call = {
            "id": f"call_{self._rng.randrange(10**6):06}",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        self.turns.append({"role": "assistant", "content": text, "tool_calls": [call]})
        self.turns.append({"role": "tool", "name": tool, "content": json.dumps(result)})


def _mixed(rng: random.Random, arguments: Mapping[str, object]) -> dict[str, object]:
    return dict(rng.sample(sorted(arguments.items()), len(arguments)))
