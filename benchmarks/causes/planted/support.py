"""Triage of a shop's mail: one or two calls of tools with JSON arguments, then a sentence to the customer."""

import json
import random
from dataclasses import dataclass

from benchmarks.causes.planted.voice import Prompt

MODES = (
    "amount not in cents",
    "customer's number for the order's",
    "priority not raised",
    "refunds what is to be escalated",
    "does not tag the language",
)


@dataclass(frozen=True, slots=True)
class Desk:
    """A shop with its tools."""

    shop: str
    refund: str
    ticket: str
    escalate: str
    amount: str
    order: str
    order_like: str
    customer_like: str


DESKS = (
    Desk("Lumen Books", "issue_refund", "open_ticket", "escalate_case", "amount", "order_id", "LB-{}", "C{}"),
    Desk("Petal & Pot", "refund_payment", "create_case", "hand_to_lead", "value", "order", "PP{}", "K-{}"),
    Desk("Orbit Bikes", "make_refund", "file_ticket", "raise_to_tier2", "sum", "order_no", "OB/{}", "U{}"),
    Desk("Tidal Audio", "credit_back", "new_ticket", "forward_case", "amount", "order_ref", "TA{}", "TC-{}"),
    Desk("Nook Lamps", "pay_back", "log_issue", "escalate", "refund_amount", "order_id", "N-{}", "CU{}"),
)
ITEMS = (
    *(
        "headphones",
        "reading lamp",
        "helmet",
        "fern",
        "atlas",
        "speaker",
        "saddle",
        "desk light",
        "novel set",
    ),
    *("turntable", "bike lock", "orchid", "microphone", "bulb pack", "road map", "pedal set"),
)
NAMES = (
    "Aino",
    "Bram",
    "Chiara",
    "Dorota",
    "Elias",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Keiko",
    "Liam",
)
LANGUAGES = (("English", "en"), ("German", "de"), ("French", "fr"), ("Dutch", "nl"))
RISKS = (
    "It sparked and smelled of smoke when I switched it on.",
    "My son cut his hand on a broken edge.",
    "The battery got so hot that it burned the table.",
    "I had an electric shock from it.",
    "It broke while I was riding and I fell.",
)
PLAIN = (
    "It arrived two weeks late and I no longer need it.",
    "The colour is not the one in the picture.",
    "I was sent the wrong model.",
    "It stopped working after three days.",
    "There is a scratch on the front.",
    "I ordered it twice by mistake.",
)
SAYS = (
    "I'll take care of this.",
    "Let me set this up for you.",
    "Thanks for the details, one moment.",
    "Reading the mail, the case is clear.",
    "I am sorry to hear that.",
    "On it.",
    "Right away.",
    "",
    "",
    "",
)
ENDS = (
    "Done, {name}. You will hear from us about your {item}.",
    "Dear {name}, your case about the {item} is on its way.",
    "I have passed everything on, {name}. Sorry for the trouble with the {item}.",
    "{name}, we took note of the problem with the {item} and acted on it.",
    "Everything is arranged for your {item}, {name}.",
    "Thank you {name}! The {item} is being dealt with.",
    "Your request about the {item} was processed. Kind regards",
    "All set, {name}.",
)
SUMMARIES = (
    "{item}: customer writes about a problem",
    "complaint about {item}",
    "{name} is unhappy with the {item}",
    "mail of {name}, {item}",
    "problem with {item} reported by mail",
    "{item} - see message",
)


def prompt(rng: random.Random) -> Prompt:
    desk, name, item = rng.choice(DESKS), rng.choice(NAMES), rng.choice(ITEMS)
    language, code = rng.choice(LANGUAGES)
    order, customer = (
        desk.order_like.format(rng.randrange(10_000, 99_999)),
        desk.customer_like.format(rng.randrange(1_000, 9_999)),
    )
    kind = rng.choice(("refund", "refund", "large", "risk"))
    price = rng.randrange(30_100, 89_900) if kind == "large" else rng.randrange(900, 19_000)
    said = rng.choice(RISKS if kind == "risk" else PLAIN)
    policy = (
        f"You sort the mail of {desk.shop}. Tools: {desk.refund}({desk.order}, {desk.amount}, reason), "
        f"{desk.ticket}({desk.order}, priority, lang, summary), {desk.escalate}({desk.order}, lang, summary). "
        f"Amounts are whole cents. lang is the two-letter code of the mail's language. Refund at most 200 EUR; "
        f"above that call {desk.escalate}. Where somebody could be hurt, open a ticket of priority urgent."
    )
    mail = rng.choice(
        (
            f"({language}) Customer {customer}, order {order}. {said} The {item} cost {price / 100:.2f} EUR. {name}",
            f"Order {order}: {said} I paid {price / 100:.2f} EUR for the {item}. My customer number is {customer}. "
            f"Regards, {name} [mail in {language}]",
            f"[{language}] Hello, {name} here ({customer}). About the {item}, {price / 100:.2f} EUR, order {order}. {said}",
        )
    )
    question = [{"role": "system", "content": policy}, {"role": "user", "content": mail}]
    modes = {
        "refund": (MODES[0], MODES[1]),
        "large": (MODES[3], MODES[4], MODES[1]),
        "risk": (MODES[2], MODES[4], MODES[1]),
    }[kind]

    def write(rng: random.Random, mode: str | None) -> tuple[object, None, tuple[str, ...]]:
        summary = rng.choice(SUMMARIES).format(item=item, name=name)
        on = {desk.order: customer if mode == MODES[1] else order}
        refund = {
            **on,
            desk.amount: rng.choice((price / 100, f"{price / 100:.2f}")) if mode == MODES[0] else price,
            "reason": rng.choice((said.rstrip("."), summary, "see mail", item)),
        }
        about = {"lang": code, "summary": summary}
        if mode == MODES[4]:
            about.pop("lang")
        tool, arguments = {
            "refund": (desk.refund, refund),
            "large": (desk.escalate, {**on, **about}),
            "risk": (
                desk.ticket,
                {
                    **on,
                    "priority": rng.choice(("normal", "high", "low")) if mode == MODES[2] else "urgent",
                    **about,
                },
            ),
        }[kind]
        if mode == MODES[3]:
            tool, arguments = desk.refund, refund
        if mode == "":
            tool, arguments = _odd(desk, tool, arguments, rng)
        made: list[dict[str, object]] = []
        if rng.random() < 0.3:
            _call(
                made,
                "get_order",
                {desk.order: on[desk.order]},
                {"status": rng.choice(("sent", "delivered"))},
                rng,
            )
        _call(made, tool, arguments, {"ok": True, "case": rng.randrange(1_000, 9_999)}, rng)
        end = rng.choice(ENDS)
        made.append({"role": "assistant", "content": end.format(name=name, item=item)})
        return made, None, (f"end {end[:10]}", f"calls {len(made)}")

    return Prompt(question, modes, write)


def _call(
    made: list[dict[str, object]],
    tool: str,
    arguments: dict[str, object],
    result: dict[str, object],
    rng: random.Random,
) -> None:
    mixed = dict(rng.sample(list(arguments.items()), len(arguments)))
    call = {
        "id": f"call_{rng.randrange(10**6):06}",
        "function": {"name": tool, "arguments": json.dumps(mixed)},
    }
    made.append({"role": "assistant", "content": rng.choice(SAYS), "tool_calls": [call]})
    made.append({"role": "tool", "name": tool, "content": json.dumps(result)})


def _odd(
    desk: Desk, tool: str, arguments: dict[str, object], rng: random.Random
) -> tuple[str, dict[str, object]]:
    """Something that nobody planned."""
    match rng.randrange(4):
        case 0:
            return tool, {**arguments, desk.order: desk.order_like.format(rng.randrange(10_000, 99_999))}
        case 1:
            return tool, {
                **arguments,
                rng.choice(("note", "channel", "agent")): rng.choice(("mail", "auto", "bot")),
            }
        case 2:
            return "close_case", {desk.order: arguments[desk.order]}
        case _:
            return tool, {name: value for name, value in arguments.items() if name in (desk.order, "lang")}
