"""Physics with units: one to three steps, some of them thought and not said, in ever other words and signs."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.causes.planted.voice import OPENERS, Prompt, voice

MODES = (
    "does not convert",
    "converts the wrong way",
    "drops the square",
    "leaves out the half",
    "takes the end for the difference",
)
BODIES = ("car", "tram", "cyclist", "cart", "boulder", "lorry", "sledge", "drone", "ferry", "skater")
PLACES = (
    "on a level road",
    "in a laboratory",
    "near the harbour",
    "at the test site",
    "on a dry day",
    "downtown",
)
LIQUIDS = (("water", 4186), ("oil", 1970), ("ethanol", 2440), ("glycerine", 2430), ("milk", 3930))
DEVICES = ("kettle", "pump", "heater", "winch", "oven", "compressor", "lift motor", "saw")
SAID = (
    "Converting first, {}",
    "In SI units this is {}",
    "{}",
    "We have {}",
    "Let us write {}",
    "Now {}",
    "So {}",
    "This gives {}",
    "{}, which we need next",
    "That means {}",
)
ENDS = (
    "The result is {} {}.",
    "Answer: {} {}",
    "**{} {}**",
    "Therefore we obtain {} {}.",
    "It comes to {} {}.",
    "\\boxed{{{}\\ \\text{{{}}}}}",
    "So about {} {}.",
    "Final answer: {} {}",
    "#### {} {}",
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value as it is given, and what it is divided by in SI."""

    name: str
    value: float
    unit: str
    si: str
    by: float


def number(value: float) -> str:
    """Four significant digits."""
    text = f"{value:.4g}"
    return f"{float(text):.0f}" if "e+" in text else text


def prompt(rng: random.Random) -> Prompt:
    return rng.choice((_kinetic, _braking, _heat, _distance, _work, _spring))(rng)


def _kinetic(rng: random.Random) -> Prompt:
    mass = Quantity("m", rng.randrange(150, 9_500, 50), "g", "kg", 1_000)
    speed = Quantity("v", rng.randrange(9, 140), "km/h", "m/s", 3.6)
    asked = (
        f"A {rng.choice(BODIES)} of {mass.value:,.0f} g moves at {speed.value:.0f} km/h {rng.choice(PLACES)}. "
        "How much kinetic energy does it have, in joules?"
    )

    def steps(m: float, v: float, mode: str | None) -> tuple[list[str], float]:
        half, square = (1 if mode == MODES[3] else 0.5), (v if mode == MODES[2] else v * v)
        power = number(v) if mode == MODES[2] else f"{number(v)}²"
        factor = "" if mode == MODES[3] else "0.5 * "
        return [f"E = {factor}{number(m)} * {power} = {number(half * m * square)}"], half * m * square

    return _asked(asked, (mass, speed), MODES[:4], steps, "J")


def _braking(rng: random.Random) -> Prompt:
    speed = Quantity("v", rng.randrange(18, 150), "km/h", "m/s", 3.6)
    slows = rng.randrange(15, 90) / 10
    asked = (
        f"Travelling at {speed.value:.0f} km/h, the driver of a {rng.choice(BODIES)} brakes evenly with "
        f"{slows} m/s². How many metres does it take to stop?"
    )

    def steps(v: float, mode: str | None) -> tuple[list[str], float]:
        twice, square = (1 if mode == MODES[3] else 2), (v if mode == MODES[2] else v * v)
        power = number(v) if mode == MODES[2] else f"{number(v)}²"
        under = f"{slows}" if mode == MODES[3] else f"(2 * {slows})"
        return [f"s = {power} / {under} = {number(square / twice / slows)}"], square / twice / slows

    return _asked(asked, (speed,), MODES[:4], steps, "m")


def _heat(rng: random.Random) -> Prompt:
    liquid, capacity = rng.choice(LIQUIDS)
    mass = Quantity("m", rng.randrange(80, 4_000, 20), "g", "kg", 1_000)
    start = rng.randrange(8, 40)
    end = start + rng.randrange(12, 55)
    asked = (
        f"{mass.value:,.0f} g of {liquid} (c = {capacity} J/(kg·K)) are warmed from {start} °C to {end} °C. "
        "What heat is needed, in joules?"
    )

    def steps(m: float, mode: str | None) -> tuple[list[str], float]:
        change = end if mode == MODES[4] else end - start
        before = [] if mode == MODES[4] else [f"ΔT = {end} - {start} = {change}"]
        heat = m * capacity * change
        return [*before, f"Q = {number(m)} * {capacity} * {change} = {number(heat)}"], heat

    return _asked(asked, (mass,), (MODES[4], MODES[1], MODES[0]), steps, "J")


def _distance(rng: random.Random) -> Prompt:
    speed = Quantity("v", rng.randrange(11, 190), "km/h", "m/s", 3.6)
    seconds = rng.randrange(5, 95)
    asked = (
        f"A {rng.choice(BODIES)} keeps a speed of {speed.value:.0f} km/h for {seconds} s {rng.choice(PLACES)}. "
        "Which distance in metres does it cover?"
    )

    def steps(v: float, mode: str | None) -> tuple[list[str], float]:
        return [f"s = {number(v)} * {seconds} = {number(v * seconds)}"], v * seconds

    return _asked(asked, (speed,), MODES[:2], steps, "m")


def _work(rng: random.Random) -> Prompt:
    power = rng.randrange(200, 2_600, 50)
    lasts = Quantity("t", rng.randrange(2, 50), "min", "s", 1 / 60)
    asked = (
        f"A {rng.choice(DEVICES)} of {power} W runs for {lasts.value:.0f} min. How much energy in J is used?"
    )

    def steps(t: float, mode: str | None) -> tuple[list[str], float]:
        return [f"W = {power} * {number(t)} = {number(power * t)}"], power * t

    return _asked(asked, (lasts,), MODES[:2], steps, "J")


def _spring(rng: random.Random) -> Prompt:
    stiff = rng.randrange(40, 900, 10)
    start = rng.randrange(2, 9)
    longer = Quantity("x", rng.randrange(3, 28), "cm", "m", 100)
    asked = (
        f"A spring with k = {stiff} N/m and a rest length of {start} dm is stretched by {longer.value:.0f} cm. "
        "Which energy in joules does it store?"
    )

    def steps(x: float, mode: str | None) -> tuple[list[str], float]:
        half, square = (1 if mode == MODES[3] else 0.5), (x if mode == MODES[2] else x * x)
        power = number(x) if mode == MODES[2] else f"{number(x)}²"
        factor = "" if mode == MODES[3] else "1/2 * "
        return [f"U = {factor}{stiff} * {power} = {number(half * stiff * square)}"], half * stiff * square

    return _asked(asked, (longer,), MODES[:4], steps, "J")


def _asked(
    question: str,
    given: tuple[Quantity, ...],
    modes: tuple[str, ...],
    steps: Callable[..., tuple[list[str], float]],
    unit: str,
) -> Prompt:
    right = steps(*(each.value / each.by for each in given), None)[1]

    def write(rng: random.Random, mode: str | None) -> tuple[str, None, tuple[str, ...]]:
        wrong = rng.randrange(len(given))
        lines, values = [], []
        for place, each in enumerate(given):
            here = place == wrong and mode in MODES[:2]
            value = each.value / each.by
            if here:
                value = each.value if mode == MODES[0] else each.value * each.by
            values.append(value)
            if not here or mode != MODES[0]:
                lines.append(_converted(each, value, mode == MODES[1] and here, rng))
        body, result = steps(*values, mode)
        if mode == "":
            body, result = _odd(body, result, rng)
        return _worded([*lines, *body], result, unit, rng)

    return Prompt(question, modes, write, number(right))


def _converted(each: Quantity, value: float, wrongly: bool, rng: random.Random) -> str:
    by, sign = (each.by, "/") if each.by >= 1 else (1 / each.by, "*")
    if wrongly:
        sign = "*" if sign == "/" else "/"
    given = f"{each.value:.0f}"
    shape = rng.choice(
        ("{n} = {v} {u} = {v} {s} {b} {i} = {r} {i}", "{v} {s} {b} = {r} {i}", "{n} = {v} {s} {b} = {r}")
    )
    return shape.format(n=each.name, v=given, u=each.unit, i=each.si, s=sign, b=number(by), r=number(value))


def _odd(body: list[str], result: float, rng: random.Random) -> tuple[list[str], float]:
    """Something that nobody planned."""
    match rng.randrange(4):
        case 0:
            off = result * rng.choice((1.1, 0.93, 1.27, 0.8))
            return [*body[:-1], f"{body[-1].rpartition(' = ')[0]} = {number(off)}"], off
        case 1:
            return [
                *body,
                f"with a loss of 10%: {number(result)} * 0.9 = {number(result * 0.9)}",
            ], result * 0.9
        case 2:
            return [*body, f"rounded to {round(result, -2):.0f}"], round(result, -2)
        case _:
            g = 9.81
            return [*body, f"times g: {number(result)} * {g} = {number(result * g)}"], result * g


def _worded(
    body: list[str], result: float, unit: str, rng: random.Random
) -> tuple[str, None, tuple[str, ...]]:
    speaking = voice(rng, OPENERS)
    lines = []
    for count, each in enumerate(body, start=1):
        text = rng.choice(SAID).format(each).replace(" * ", f" {speaking.signs['*']} ")
        lines.append(speaking.numbering.format(count) + text.replace(" / ", f" {speaking.signs['/']} "))
    end = rng.choice(ENDS).format(number(result), unit)
    thinks = rng.random() < 0.4
    traits = (*speaking.traits, f"end {end[:8]}", f"thinks {thinks}")
    if thinks:
        idle = rng.choice(
            ("Let me see.", "Okay, units first.", "Hmm.", "The formula is known.", "I should be careful.")
        )
        return "\n".join(["<think>", idle, *lines, "</think>", end]), None, traits
    opener = [speaking.opener] if speaking.opener else []
    return "\n".join([*opener, *lines, end]), None, traits
