"""Numbers that are not written in plain decimal digits, and the units of measure behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_MARKED = re.compile(
    r"(?<!\d)(?P<whole>\d*+)\.(?P<fixed>\d*+)\s*+(?:"
    r"\\dot\s*+\{?\s*+(?P<first>\d)\s*+\}?(?:(?P<between>\d*+)\\dot\s*+\{?\s*+(?P<last>\d)\s*+\}?)?"
    r"|\\(?:overline|bar)\s*+\{?\s*+(?P<barred>\d++)\s*+\}?"
    r"|\((?P<bracketed>\d++)\)(?![\w(^!]))"
)
_ENDLESS = re.compile(r"(?<![\d.])(?P<whole>\d*+)\.(?P<digits>\d++)\s*+(?:\.{3}|…|\\[lc]?dots(?![A-Za-z]))")
_BASED = re.compile(r"(?<![\w.])0(?:[xX][0-9A-Fa-f]++|[bB][01]++|[oO][0-7]++)(?![\w.])")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(?P<whole>\d++|\d{1,3}(?:[. ]\d{3})++),(?P<part>\d++)(?![\d.,])")
_PARTED = re.compile("[. ]")
_GROUPED = re.compile(r"(?<![\w,.'])\d{1,3}(?:(?:_\d{3})++|(?:'\d{3})++)(?![\w'])")

_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
SMALL_NUMBERS = {name: value for value, name in enumerate(_ONES.split())} | {
    name: 10 * value for value, name in enumerate(_TENS.split(), 2)
}
_LARGE = {"dozen": 12, "thousand": 1000, "lakh": 10**5, "million": 10**6, "crore": 10**7, "billion": 10**9,
          "trillion": 10**12}  # fmt: skip
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
          "ninth": 9, "tenth": 10}  # fmt: skip
_PARTS |= {"halves": 2} | {f"{name}s": value for name, value in _PARTS.items()}
_GAPS = re.compile(r"[\s-]++")
_NUMBER_WORDS = re.compile(r"[A-Za-z\s-]{3,150}")


def _repeating(whole: str, fixed: str, cycle: str) -> str:
    """0.1 and the cycle 6 as the fraction 15/90."""
    value = int((whole + fixed + cycle) or 0) - int((whole + fixed) or 0)
    return f"\\frac{{{value}}}{{{'9' * len(cycle) + '0' * len(fixed)}}}"


def _marked(match: re.Match[str]) -> str:
    cycle = match["barred"] or match["bracketed"]
    if cycle is None:
        cycle = match["first"] + (match["between"] or "") + (match["last"] or "")
    return _repeating(match["whole"], match["fixed"], cycle)


def _endless(match: re.Match[str]) -> str:
    """0.1666… where the last digits repeat; what does not repeat is not known to its end."""
    digits = match["digits"]
    best = max(range(1, min(len(digits) // 2, 20) + 1), key=lambda n: (_periodic(digits, n), -n), default=0)
    covered = _periodic(digits, best) if best else 0
    if covered < 2 * best or not best:
        return f"{match['whole']}.{digits}\\dots "
    start = len(digits) - covered
    return _repeating(match["whole"], digits[:start], digits[start : start + best])


def _periodic(digits: str, length: int) -> int:
    """How many digits at the end repeat with this length."""
    covered = length
    while covered < len(digits) and digits[-covered - 1] == digits[length - covered - 1]:
        covered += 1
    return covered


def plain_numbers(text: str) -> str:
    r"""0.\dot{3}, 0.(3), 0.333…, 0x1F, 0b101, 9_500 as fractions and decimal digits."""
    text = _ENDLESS.sub(_endless, text)
    text = _MARKED.sub(_marked, text)
    text = _BASED.sub(lambda match: str(int(match[0], 0)), text)
    return _GROUPED.sub(lambda match: match[0].replace("_", "").replace("'", ""), text)


def with_decimal_comma(text: str) -> str | None:
    """A text with its one comma as a decimal point: 3,14 and 1.234,56, but not 1,234 and (1,2)."""
    commas = text.count(",")
    found = _DECIMAL_COMMA.search(text) if commas == 1 else None
    if found is None or any(bracket in text for bracket in ("(", "[", "\\{")):
        return None
    whole, part = found["whole"], found["part"]
    if whole.isdigit() and len(part) == 3 and len(whole) < 4 and whole[0] != "0":
        return None
    return f"{text[: found.start()]}{_PARTED.sub('', whole)}.{part}{text[found.end() :]}"


def number_words(text: str) -> str | None:
    """`twenty-five`, `a hundred and five`, `two thirds`, `half a dozen` in digits; None for other texts."""
    if not _NUMBER_WORDS.fullmatch(text):
        return None
    words = [word for word in _GAPS.split(text.strip().lower()) if word != "and"]
    sign = "-" if words and words[0] in ("minus", "negative") else ""
    words = words[1:] if sign else words
    parts = [word for word in words if word in _PARTS]
    if len(parts) == 1:
        top, bottom = words[: words.index(parts[0])], words[words.index(parts[0]) + 1 :]
        over = _PARTS[parts[0]]
        if top[-1:] == ["a"]:  # one and a half
            value = over * (_whole(top[:-1]) or 0) + 1 if len(top) == 1 or _whole(top[:-1]) else None
        else:
            value = _whole(top) if top else 1
        times = _whole(bottom) if bottom else 1
        return None if value is None or times is None else f"{sign}{value * times}/{over}"
    value = _whole(words)
    return None if value is None else f"{sign}{value}"


def _whole(words: list[str]) -> int | None:
    total = current = 0
    room = 10**15
    """What the next word must stay below: "one two" is no number."""
    if not words:
        return None
    for i, word in enumerate(words):
        if word in ("a", "an") and i == 0:
            current, room = 1, 0
        elif word in SMALL_NUMBERS:
            value = SMALL_NUMBERS[word]
            if value >= room or (value == 0 and len(words) > 1):
                return None
            current += value
            room = 10 if value >= 20 else 0
        elif word == "hundred" and 0 < current < 100:
            current, room = current * 100, 100
        elif word in _LARGE and current:
            total, current, room = total + current * _LARGE[word], 0, 1000
        else:
            return None
    return None if words[-1] in ("a", "an") else total + current


_TABLE = """
m meter meters metre metres
g gram grams gm
s sec secs second seconds
L l liter liters litre litres = 1/1000 m^3
N newton newtons = 1000 g m s^-2
J joule joules = 1000 g m^2 s^-2
W watt watts = 1000 g m^2 s^-3
Pa pascal pascals = 1000 g m^-1 s^-2
Hz hertz = 1 s^-1
V volt volts
A ampere amperes amp amps
Ω ohm ohms
mol mole moles
eV
B byte bytes
bit bits
cal calorie calories = 4.184 J
Wh = 3600 J
ft foot feet = 0.3048 m
in inch inches = 0.0254 m
yd yard yards = 0.9144 m
mi mile miles = 1609.344 m
kilo kilos = 1000 g
tonne tonnes = 1000000 g
lb lbs pound pounds = 453.59237 g
oz ounce ounces = 28.349523125 g
cc = 1/10^6 m^3
gal gallon gallons = 0.003785411784 m^3
qt quart quarts = 0.000946352946 m^3
pint pints = 0.000473176473 m^3
ha hectare hectares = 10000 m^2
acre acres = 4046.8564224 m^2
min mins minute minutes = 60 s
h hr hrs hour hours = 3600 s
day days = 86400 s
week weeks = 604800 s
month months
yr yrs year years = 12 month
decade decades = 120 month
century centuries = 1200 month
mph = 1609.344/3600 m s^-1
kph kmh kmph = 1000/3600 m s^-1
degree degrees deg
arcminute arcminutes arcmin = 1/60 degree
arcsecond arcseconds arcsec = 1/3600 degree
radian radians rad = 180/\\pi degree
revolution revolutions rev = 360 degree
kelvin kelvins K
celsius centigrade = 1 kelvin
fahrenheit = 5/9 kelvin
dB decibel decibels
USD dollar dollars usd buck bucks
EUR euro euros eur
GBP gbp quid
JPY yen jpy
INR rupee rupees Rs Rs. rs
cent cents ¢ = 1/100 USD
am a.m. AM A.M.
pm p.m. PM P.M.
unit units
percentage-points
"""
CURRENCIES = "USD|EUR|GBP|JPY|INR"
"""The codes that currencies are normalised to, as a pattern."""
_PREFIXES = {"k": "1000", "c": "1/100", "m": "1/1000", "d": "1/10", "u": "1/10^6", "n": "1/10^9",
             "M": "10^6", "G": "10^9", "T": "10^{12}"}  # fmt: skip
_PREFIX_WORDS = {"kilo": "k", "centi": "c", "milli": "m", "deci": "d", "micro": "u", "nano": "n",
                 "mega": "M", "giga": "G", "tera": "T"}  # fmt: skip
_PREFIXED = "m g s L N J W Pa Hz V A Ω mol eV B bit cal Wh"
_ZERO = {"celsius": "273.15", "fahrenheit": "459.67"}
"""What is added to a temperature before it is scaled."""

MULTIPLIERS = {
    "dozen": "12", "dozens": "12", "hundred": "100", "thousand": "1000", "k": "1000", "K": "1000",
    "grand": "1000", "lakh": "10^5", "lakhs": "10^5", "lac": "10^5", "crore": "10^7", "crores": "10^7",
    "million": "10^6", "mn": "10^6", "billion": "10^9", "bn": "10^9", "trillion": "10^{12}",
    "ppm": "1/10^6", "ppb": "1/10^9",
}  # fmt: skip
"""Words behind a number that multiply it."""

_LETTERS = {"K": "thousand", "M": "million", "B": "billion"}
"""What multiplies an amount of money: $2M."""

MAX_UNIT = 200
"""How much of the end of a text may be a number's unit, in characters."""

SQUARE, CUBIC = frozenset({"square", "sq", "sq."}), frozenset({"cubic", "cu", "cu."})


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measure. (value + `zero`) · `scale` is the value in the base units `dimension`.

    Known units of one dimension are converted into each other. The dimension of words that are no unit
    ("12 apples") is these words, and `scale` is empty.
    """

    dimension: tuple[tuple[str, int], ...]
    scale: str = ""
    zero: str = ""
    ambiguous: bool = False
    """It could be an unknown instead: `5m`."""


def _table() -> tuple[dict[str, str], dict[str, Unit]]:
    canonical: dict[str, str] = {}
    units: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        names, _, worth = line.partition(" = ")
        first, *others = names.split()
        scale, *bases = worth.split() or ["1", first]
        dimension: dict[str, int] = {}
        for base in bases:
            name, _, power = base.partition("^")
            inner = units.get(name, Unit(((name, 1),), "1"))
            scale = scale if inner.scale == "1" else f"{scale}*{inner.scale}"
            for part, of_it in inner.dimension:
                dimension[part] = dimension.get(part, 0) + of_it * int(power or 1)
        units[first] = Unit(tuple(sorted(dimension.items())), scale, _ZERO.get(first, ""))
        canonical |= dict.fromkeys([first, *others], first)
        if first in _PREFIXED.split():
            for prefix, factor in _PREFIXES.items():
                units[prefix + first] = Unit(units[first].dimension, f"{factor}*{scale}")
                canonical.setdefault(prefix + first, prefix + first)
            longer = [name for name in others if len(name) > 3]
            for word, prefix in _PREFIX_WORDS.items():
                canonical |= dict.fromkeys([word + name for name in longer], prefix + first)
    canonical |= {"ml": "mL", "ul": "uL", "cl": "cL", "dl": "dL", "kilometre": "km"}
    return canonical, units


CANONICAL, UNITS = _table()
"""Each spelling of a unit and the one it is compared by; what that is worth."""

AMBIGUOUS = frozenset(name for name in CANONICAL if len(name) == 1) | {"in", "min", "ms", "k", "K", "mn"}
"""Units that could be unknowns: 5m, 0.64N."""

_NAME = r"(?:[ap]\.m\.|[AP]\.M\.|[^\W\d_]+(?:['-][^\W\d_]{2,})*\.?|¢)"
_POWER = r"(?:\s*+(?:\^|\*\*)\s*+(?:-?\d|\{\s*+-?\d\s*+\}))?"
_MORE = rf"(?:(?:\s*+(?:/|\\cdot)\s*+|\s++){_NAME}{_POWER})*"
_TAIL = re.compile(
    rf"(?P<value>.*?(?:[\d)}}\]!|%]|\\pi|[A-Za-z](?=\s)))(?P<gap>\s*+)(?P<unit>(?<![A-Za-z\\]){_NAME}{_POWER}{_MORE})\s*+",
    re.DOTALL,
)
_ATOM = re.compile(
    rf"(?P<over>/|\bper\b)?\s*+(?:\\cdot\s*+)?(?P<name>{_NAME})(?:\s*+(?:\^|\*\*)\s*+(?:\{{\s*+)?(?P<power>-?\d)\s*+\}}?)?"
)
_CURRENCY = re.compile(rf"(?P<sign>[-+]?)\s*+(?P<name>{CURRENCIES}|Rs\.?)\s*+(?P<value>[-+]?[\d.\\(].*)")
_STEP = re.compile(
    r"(?P<value>\d++(?:\.\d++)?)\s*+(?P<name>[A-Za-z]++\.?|''?|\")\s*+(?:(?:,|and(?![a-z]))\s*+)?"
)
_BOUND = re.compile(r"\\(?:sum|prod|int|lim)(?![A-Za-z])")
"""What binds a letter, which is then no unit."""
_VOWEL = re.compile("[aeiouyAEIOUY]")
_SHORT_LIST = """\
the and for not are was its can all one two six ten men day way odd yes red cup cat dog car egg box bag
pen pie ton toy set row net bit per sum boy ant map key bus bed hat jar lot mat nut pan pot tie zip new
old big out off far low sea sky ice tea hen cow pig bee fox owl bat bar kid mom dad son now but has had
may our who
"""
_SHORT_WORDS = frozenset(_SHORT_LIST.split())
_PART_NAMES = "halves third thirds fourths fifth fifths sixths sevenths eighths ninths tenth tenths"
_DIVIDING = frozenset(_PART_NAMES.split())
"""Words that divide a number, which are no unit of it."""
_LINKS = frozenset({"of", "a", "an", "in", "at"})
"""Small words inside a unit of words: "1/3 of the total"."""


def is_word(name: str) -> bool:
    """A word rather than a product of unknowns: `apples`, `Bob`, `odd`, `東京`; not `ABC`, `xyz`, `abx`."""
    if not name.isascii():
        return True
    if name.isupper() and len(name) < 5:
        return False
    if len(name) == 3:
        return name.istitle() or name in _SHORT_WORDS
    return len(name) >= 4 and _VOWEL.search(name) is not None


def is_unit(word: str) -> bool:
    """Whether a word is a known unit of measure or part of one, or multiplies a number."""
    return word in CANONICAL or word.lower() in SQUARE | CUBIC | MULTIPLIERS.keys()


def _known(name: str) -> str | None:
    """The spelling that a unit is compared by."""
    bare = name if name in CANONICAL else name.rstrip(".")
    return CANONICAL.get(bare) or (CANONICAL.get(bare.lower()) if len(bare) > 2 else None)


def split_unit(text: str) -> tuple[str, Unit | None]:
    """A number's value and unit; (text, None) where it has no unit. Multipliers go into the value.

    Any words behind a number are its unit ("12 apples"); letters that may be a product are not (5ab).
    """
    currency = _CURRENCY.fullmatch(text)
    if currency:
        value = currency["value"]
        if value[-1] in "KMB" and value[-2:-1].isdigit():
            value = f"{value[:-1]} {_LETTERS[value[-1]]}"
        return split_unit(f"{currency['sign']}{value} {currency['name']}")
    match = _TAIL.fullmatch(text[-MAX_UNIT:])
    read = match and _atoms(match["unit"], bool(match["gap"]))
    if match is None or not read:
        return text, None
    times, unit = read
    value = f"{text[:-MAX_UNIT]}{match['value']}".strip()
    if unit.ambiguous and (_BOUND.search(value) or (times and not value[-1].isdigit())):
        return text, None
    return f"({value})*{times}" if times else value, unit


@lru_cache(4096)
def _atoms(text: str, apart: bool) -> tuple[str, Unit] | None:
    """What a unit's words multiply its number by, and the unit; None for letters that may be a product."""
    times: list[str] = []
    scales: list[str] = []
    words: list[str] = []
    names: list[str] = []
    dimension: dict[str, int] = {}
    power, sign, zero, linked = 1, 1, "", False
    for atom in _ATOM.finditer(text):
        name = atom["name"]
        if name.rstrip(".").lower() in SQUARE | CUBIC:
            power = 2 if name.rstrip(".").lower() in SQUARE else 3
            continue
        if name == "per":
            sign = -1
            continue
        if name in _DIVIDING:
            return None
        canonical, factor = _known(name), MULTIPLIERS.get(name) or MULTIPLIERS.get(name.lower())
        linked = canonical is None and name in _LINKS and apart
        if canonical is None and factor is None and not linked and not (is_word(name) and (apart or names)):
            return None
        names.append(name)
        exponent = (int(atom["power"]) if atom["power"] else power) * (-1 if atom["over"] else sign)
        power = sign = 1
        if factor is not None and canonical is None:
            if exponent != 1:
                return None  # 5 k^2 is no thousand
            times.append(factor)
        elif canonical is None:
            words += [] if linked or name == "the" else [name.casefold().rstrip(".").removesuffix("s")]
        else:
            unit = UNITS[canonical]
            zero = unit.zero
            if unit.scale != "1":
                scales.append(f"({unit.scale})^{{{exponent}}}" if exponent != 1 else f"({unit.scale})")
            for base, of_it in unit.dimension:
                dimension[base] = dimension.get(base, 0) + of_it * exponent
    if not names or linked:
        return None
    ambiguous = all(name in AMBIGUOUS for name in names)
    if words:
        return "*".join(times), Unit(tuple((word, 0) for word in sorted(words)))
    known = tuple(sorted((base, exponent) for base, exponent in dimension.items() if exponent))
    return "*".join(times), Unit(known, "*".join(scales) or "1", zero if len(names) == 1 else "", ambiguous)


def in_steps(text: str) -> tuple[str, Unit] | None:
    """A value in several units, from the largest down: 1 hour 30 minutes, 5 ft 10 in, 45 degrees 30'."""
    if not text[:1].isdigit() or len(text) > MAX_UNIT:
        return None
    end, found = 0, list[tuple[str, Unit, float]]()
    angle = "degree" in text
    while end < len(text):
        step = _STEP.match(text, end)
        if step is None:
            return None
        end, name = step.end(), step["name"]
        marks = {"'": "arcminute", "''": "arcsecond", '"': "arcsecond"}
        canonical = marks.get(name) if angle else {"'": "ft", "''": "in", '"': "in"}.get(name)
        canonical = canonical or _known(name)
        if canonical is None:
            return None
        unit = UNITS[canonical]
        if "\\" in unit.scale or (found and unit.dimension != found[-1][1].dimension):
            return None
        worth = _worth(canonical)
        if found and worth >= found[-1][2]:
            return None
        found.append((step["value"], unit, worth))
    if len(found) < 2:
        return None
    value = "+".join(f"{value}*{unit.scale}" for value, unit, _ in found)
    return value, Unit(found[0][1].dimension, "1")


@lru_cache(256)
def _worth(name: str) -> float:
    """A scale as a number, to put units in order: its terms are factors and powers of ten only."""
    worth = 1.0
    for factor in UNITS[name].scale.replace("{", "").replace("}", "").split("*"):
        top, _, bottom = factor.partition("/")
        for part, over in ((top, 1), (bottom, -1)):
            base, _, power = part.partition("^")
            worth *= float(base or 1) ** (over * int(power or 1))
    return worth
