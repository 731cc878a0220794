"""Chat mathematics: word problems over several steps, each response its own wording of its own working.

A mistake is made while working, not put into a right solution: what follows is computed from it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.causes.planted.voice import Prompt, equation, laid_out, number, voice

NAMES = [
    "Ana",
    "Ben",
    "Chidi",
    "Dora",
    "Emeka",
    "Farah",
    "Goran",
    "Hana",
    "Ivo",
    "Jun",
    "Kemal",
    "Lena",
    "Mateo",
    "Nia",
    "Omar",
    "Priya",
    "Quentin",
    "Rosa",
    "Sven",
    "Tala",
]
MODES = ("adds for each", "no unit conversion", "percent as amount", "stops early", "leaves out a deduction")
WORDS = {
    "*": (
        "{eq} {what}",
        "Multiplying gives {eq}, which is {what}",
        "To get {what}, compute {eq}",
        "{What}: {eq}",
        "There we have {what}: {eq}",
        "{a} times {b} makes {c}, so that is {what}",
        "For {what} take {a} and multiply by {b}: {c}",
        "We find {what} as {eq}",
        "Since it is {b} for every one of {a}, {what} comes to {c}",
        "Now {eq}. This is {what}",
        "The product {eq} tells us {what}",
    ),
    "+": (
        "{eq} {what}",
        "Adding gives {eq}, which is {what}",
        "To get {what}, compute {eq}",
        "{What}: {eq}",
        "Together {a} and {b} make {c}, so that is {what}",
        "For {what} add {b} to {a}: {c}",
        "We find {what} as {eq}",
        "Summing up, {eq} is {what}",
        "Now {eq}. This is {what}",
        "{a} plus {b} comes to {c}, that is {what}",
        "The sum {eq} tells us {what}",
    ),
    "-": (
        "{eq} {what}",
        "Subtracting gives {eq}, which is {what}",
        "To get {what}, compute {eq}",
        "{What}: {eq}",
        "Take {b} away from {a} and {c} remains as {what}",
        "For {what} subtract {b}: {eq}",
        "We find {what} as {eq}",
        "That leaves {eq} as {what}",
        "Now {eq}. This is {what}",
        "{a} less {b} is {c}, so this is {what}",
        "The difference {eq} tells us {what}",
    ),
    "/": (
        "{eq} {what}",
        "Dividing gives {eq}, which is {what}",
        "To get {what}, compute {eq}",
        "{What}: {eq}",
        "{a} split by {b} is {c}, so that is {what}",
        "For {what} divide {a} by {b}: {c}",
        "We find {what} as {eq}",
        "Sharing {a} over {b} makes {c} as {what}",
        "Now {eq}. This is {what}",
        "{a} over {b} comes to {c}, that is {what}",
        "The quotient {eq} tells us {what}",
    ),
}


@dataclass(slots=True)
class Working:
    """Works a problem out, in a given way of going wrong."""

    rng: random.Random
    mode: str | None
    steps: list[tuple[str, float, float, float, str]] = field(default_factory=list)
    wrong: int | None = None
    slip: int = -1

    def _do(self, sign: str, a: float, b: float, what: str) -> float:
        result = {"*": a * b, "+": a + b, "-": a - b, "/": a / b if b else a}[sign]
        if len(self.steps) == self.slip:
            result += self.rng.choice((-1, 1)) * self.rng.choice((1, 2, 3, 7, 9, 10, 20, 100))
            self.wrong = len(self.steps)
        result = round(result, 2)
        self.steps.append((sign, a, b, result, what))
        return result

    def _errs(self, mode: str, chance: float = 1.0) -> bool:
        if self.mode != mode or self.wrong is not None or self.rng.random() > chance:
            return False
        self.wrong = len(self.steps)
        return True

    def each(self, a: float, b: float, what: str) -> float:
        """b for each of a."""
        return self._do("+" if self._errs("adds for each") else "*", a, b, what)

    def times(self, a: float, b: float, what: str) -> float:
        return self._do("*", a, b, what)

    def plus(self, a: float, b: float, what: str) -> float:
        return self._do("+", a, b, what)

    def less(self, a: float, b: float, what: str) -> float:
        """A deduction that the question names, and that may be forgotten."""
        return a if self._errs("leaves out a deduction") else self._do("-", a, b, what)

    def minus(self, a: float, b: float, what: str) -> float:
        return self._do("-", a, b, what)

    def over(self, a: float, b: float, what: str) -> float:
        return self._do("/", a, b, what)

    def converted(self, a: float, factor: float, what: str) -> float:
        return a if self._errs("no unit conversion") else self._do("*", a, factor, what)

    def cut(self, a: float, percent: float, what: str, left: str) -> float:
        """a without its share."""
        if self._errs("percent as amount"):
            return self._do("-", a, percent, left)
        if self.rng.random() < 0.4:
            return self._do("*", a, 1 - percent / 100, left)
        return self._do("-", a, self._do("*", a, percent / 100, what), left)


Problem = tuple[str, Callable[[Working], float], tuple[str, ...]]
"""The question, how it is worked out, and the modes that can happen in it."""


def _boxes(rng: random.Random) -> Problem:
    who, n, k, f = rng.choice(NAMES), rng.randint(4, 14), rng.randint(6, 24), rng.choice((2, 3, 4, 5))
    things, broken = rng.choice(("mugs", "candles", "marbles", "tiles", "pears", "bulbs")), rng.randint(2, 9)
    asked = rng.choice(
        (
            f"{who} gets {n} boxes with {k} {things} in each. {broken} of the {things} turn out broken and are "
            f"thrown away. The rest is shared equally by {f} people. How many {things} does each get?",
            f"Each of {n} boxes that {who} opens holds {k} {things}. After {broken} broken {things} are thrown out, "
            f"{f} people share what is left. What is one person's share?",
        )
    )

    def work(on: Working) -> float:
        total = on.each(n, k, f"the {things} in all boxes")
        return on.over(on.less(total, broken, f"the {things} that are whole"), f, "what each person gets")

    return asked, work, ("adds for each", "stops early", "leaves out a deduction")


def _pump(rng: random.Random) -> Problem:
    rate, hours, leak = rng.randint(3, 15), rng.randint(2, 6), rng.randint(20, 90)
    what = rng.choice(("pump", "hose", "pipe", "spring"))
    asked = (
        f"A {what} fills a tank at {rate} litres per minute. It runs for {hours} hours, and in that time {leak} "
        "litres leak out. How many litres are in the tank, which was empty?"
    )

    def work(on: Working) -> float:
        minutes = on.converted(hours, 60, "the minutes")
        return on.less(on.each(minutes, rate, "the litres that flow in"), leak, "the litres in the tank")

    return asked, work, ("no unit conversion", "adds for each", "leaves out a deduction")


def _shop(rng: random.Random) -> Problem:
    who, n, price, off = (
        rng.choice(NAMES),
        rng.randint(2, 7),
        rng.randint(12, 60),
        rng.choice((5, 10, 15, 20, 30)),
    )
    what, cash = rng.choice(("shirts", "lamps", "books", "chairs", "bags")), 500
    asked = (
        f"{who} buys {n} {what} at ${price} apiece. At the till everything is {off}% off. {who} pays with ${cash}. "
        "How much change is due?"
    )

    def work(on: Working) -> float:
        total = on.each(n, price, f"the price of all {what}")
        return on.minus(cash, on.cut(total, off, "the discount", "the reduced price"), "the change")

    return asked, work, ("percent as amount", "adds for each", "stops early")


def _wage(rng: random.Random) -> Problem:
    who, wage, hours, days = rng.choice(NAMES), rng.randint(11, 32), rng.randint(4, 9), rng.randint(3, 22)
    tax, rent = rng.choice((10, 12, 15, 20, 25)), rng.randint(5, 30)
    asked = (
        f"{who} earns ${wage} an hour and works {hours} hours a day on {days} days. {tax}% of the pay goes to tax, "
        f"and ${rent} to a union. What does {who} keep?"
    )

    def work(on: Working) -> float:
        pay = on.times(on.each(days, hours, "the hours worked"), wage, "the pay before tax")
        return on.less(on.cut(pay, tax, "the tax", "the pay after tax"), rent, "what is kept")

    return asked, work, ("percent as amount", "adds for each", "leaves out a deduction", "stops early")


def _fence(rng: random.Random) -> Problem:
    gap, cost = rng.choice((20, 25, 40, 50)), rng.randint(3, 12)
    metres = rng.randint(4, 30) * gap / 10
    what = rng.choice(("fence", "wall", "path", "border"))
    asked = (
        f"A {what} is {metres:g} metres long and is made of pieces of {gap} centimetres. A piece costs ${cost}. "
        f"What do all pieces cost?"
    )

    def work(on: Working) -> float:
        pieces = on.over(on.converted(metres, 100, "the length in centimetres"), gap, "the pieces")
        return on.each(pieces, cost, "the price of all pieces")

    return asked, work, ("no unit conversion", "stops early", "adds for each")


def _pupils(rng: random.Random) -> Problem:
    n, share, ill = rng.randint(3, 20) * 20, rng.choice((15, 20, 30, 40, 60)), rng.randint(3, 15)
    event = rng.choice(("a trip", "a concert", "a match", "a museum day"))
    asked = (
        f"{n} pupils are signed up for {event}. {share}% of them come on foot, the rest by bus. On the day {ill} of "
        "those who would take the bus are ill. A seat on the bus is $4. What do the seats that are used cost?"
    )

    def work(on: Working) -> float:
        riders = on.cut(n, share, "the pupils on foot", "the pupils for the bus")
        return on.each(on.less(riders, ill, "the pupils on the bus"), 4, "the price of the seats")

    return asked, work, ("percent as amount", "leaves out a deduction", "adds for each", "stops early")


def _baking(rng: random.Random) -> Problem:
    who, n, grams, kilos = rng.choice(NAMES), rng.randint(5, 30), rng.randint(20, 90), rng.randint(4, 9)
    what = rng.choice(("rolls", "cakes", "buns", "pies"))
    asked = (
        f"{who} has {kilos} kilograms of flour and bakes {n} {what}, for each of which {grams} grams are needed. "
        "How many grams of flour are left?"
    )

    def work(on: Working) -> float:
        have = on.converted(kilos, 1000, "the grams of flour at first")
        return on.minus(have, on.each(n, grams, "the grams that are used"), "the grams left")

    return asked, work, ("no unit conversion", "adds for each", "stops early")


def _reading(rng: random.Random) -> Problem:
    who, a, b, days = rng.choice(NAMES), rng.randint(5, 25), rng.randint(6, 30), rng.randint(4, 12)
    pages, skipped = (a + b) * days + rng.randint(60, 200), rng.randint(8, 40)
    asked = (
        f"A novel has {pages} pages, of which {skipped} are an appendix that {who} does not read. {who} reads {a} "
        f"pages each morning and {b} each evening, for {days} days. How many pages remain to be read?"
    )

    def work(on: Working) -> float:
        daily = on.plus(a, b, "the pages of a day")
        read = on.each(days, daily, "the pages that are read")
        return on.minus(
            on.less(pages, skipped, "the pages without the appendix"), read, "the pages that remain"
        )

    return asked, work, ("adds for each", "leaves out a deduction", "stops early")


def _savings(rng: random.Random) -> Problem:
    who, start, share, weeks = (
        rng.choice(NAMES),
        rng.randint(4, 30) * 50,
        rng.choice((5, 10, 20, 25)),
        rng.randint(3, 9),
    )
    asked = (
        f"{who} has saved ${start} and spends {share}% of it on a present. After that {who} puts $15 aside every "
        f"week for {weeks} weeks. How much is there in the end?"
    )

    def work(on: Working) -> float:
        left = on.cut(start, share, "the present", "what is left after the present")
        return on.plus(left, on.each(weeks, 15, "what is put aside"), "the savings in the end")

    return asked, work, ("percent as amount", "adds for each", "stops early")


def _walk(rng: random.Random) -> Problem:
    who, hours, speed, rest = rng.choice(NAMES), rng.randint(2, 5), rng.randint(40, 90), rng.randint(10, 50)
    asked = (
        f"{who} is out for {hours} hours, of which {rest} minutes are breaks, and walks {speed} metres per minute "
        "otherwise. How many metres is the walk?"
    )

    def work(on: Working) -> float:
        minutes = on.converted(hours, 60, "the minutes outside")
        return on.each(on.less(minutes, rest, "the minutes of walking"), speed, "the metres")

    return asked, work, ("no unit conversion", "leaves out a deduction", "adds for each")


PROBLEMS = (_boxes, _pump, _shop, _wage, _fence, _pupils, _baking, _reading, _savings, _walk)


def _tells(work: Callable[[Working], float], mode: str, truth: float) -> bool:
    """Whether it gives another result: 40 is 40% of 100."""
    return abs(work(Working(random.Random(0), mode)) - truth) > 0.01


def prompt(rng: random.Random) -> Prompt:
    question, work, modes = rng.choice(PROBLEMS)(rng)
    right = Working(random.Random(0), None)
    truth = work(right)
    modes = tuple(mode for mode in modes if mode == "stops early" or _tells(work, mode, truth))

    def write(rng: random.Random, mode: str | None) -> tuple[object, int | None, tuple[str, ...]]:
        while True:
            on = Working(rng, mode)
            if mode == "":  # unplanned: a slip of its own, somewhere
                on.slip = rng.randrange(len(right.steps))
            result = work(on)
            if mode == "stops early":
                on.steps.pop()
                result, on.wrong = on.steps[-1][3], len(on.steps)
            if (abs(result - truth) > 0.01) == (mode is not None):
                break
        speaking = voice(rng)
        body = []
        for sign, a, b, c, what in on.steps:
            told = rng.choice(WORDS[sign])
            slots = {
                "a": number(a, speaking),
                "b": number(b, speaking),
                "c": number(c, speaking),
                "what": what,
            }
            said = told.format(eq=equation(a, sign, b, c, speaking), What=what[0].upper() + what[1:], **slots)
            body.append(f"{said[0].upper()}{said[1:]}.")
        text, places = laid_out(body, speaking, rng, speaking.closer.format(number(result, speaking)))
        wrong = None if on.wrong is None else [*places, text.count("\n")][min(on.wrong, len(places))]
        return text, wrong, speaking.traits

    return Prompt(question, modes, write, number(truth, voice(random.Random(1))).replace(",", ""))
