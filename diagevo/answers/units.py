"""Units of measure behind a number: which words they are, and which words are the same unit."""

import re

_FAMILIES = """
m meter meters metre metres
cm centimeter centimeters centimetre centimetres
mm millimeter millimeters millimetre millimetres
km kilometer kilometers kilometre kilometres
ft foot feet
in inch inches
yd yard yards
mi mile miles
g gram grams gm
kg kilogram kilograms kilo kilos
mg milligram milligrams
lb lbs pound pounds
oz ounce ounces
l L liter liters litre litres
ml mL milliliter milliliters
gal gallon gallons
s sec secs second seconds
min mins minute minutes
h hr hrs hour hours
day days
week weeks
month months
yr yrs year years
degree degrees deg
radian radians rad
N newton newtons
J joule joules
W watt watts
V volt volts
A ampere amperes amp amps
K kelvin kelvins
Hz hertz
Pa pascal pascals
dollar dollars usd buck bucks
cent cents
mph
am a.m. AM A.M.
pm p.m. PM P.M.
unit units
"""
CANONICAL = {name: line.split()[0] for line in _FAMILIES.strip().splitlines() for name in line.split()}
"""Each spelling of a unit and the one it is compared by."""

MAX_UNIT = 200
"""How much of the end of a text may be a number's unit, in characters."""

SQUARE, CUBIC = frozenset({"square", "sq", "sq."}), frozenset({"cubic", "cu", "cu."})
AMBIGUOUS = frozenset(name for name in CANONICAL if len(name) == 1) | {"in", "min"}
"""Units that could be unknowns: 5m, 0.64N."""

_NAME = r"(?:[ap]\.m\.|[AP]\.M\.|[A-Za-z]+(?:['-][A-Za-z]{2,})*\.?)"
_POWER = r"(?:\s*+(?:\^|\*\*)\s*+(?:-?\d|\{\s*+-?\d\s*+\}))?"
_MORE = rf"(?:(?:\s*+(?:/|\\cdot)\s*+|\s++){_NAME}{_POWER})*"
_TAIL = re.compile(
    rf"(?P<value>.*?(?:[\d)}}\]!|%]|\\pi|[A-Za-z](?=\s)))(?P<gap>\s*+)(?P<unit>(?<![A-Za-z\\]){_NAME}{_POWER}{_MORE})\s*+",
    re.DOTALL,
)
_ATOM = re.compile(
    rf"(?P<over>/|\bper\b)?\s*+(?:\\cdot\s*+)?(?P<name>{_NAME})(?:\s*+(?:\^|\*\*)\s*+(?:\{{\s*+)?(?P<power>-?\d)\s*+\}}?)?"
)
_OVER = re.compile(r"/ ++|//")
_VOWEL = re.compile("[aeiouyAEIOUY]")
_SHORT_LIST = """\
the and for not are was its can all one two six ten men day way odd yes red cup cat dog car egg box bag
pen pie ton toy set row net bit per sum boy ant map key bus bed hat jar lot mat nut pan pot tie zip new
old big out off far low sea sky ice tea hen cow pig bee fox owl bat bar kid mom dad son now but has had
may our who
"""
_SHORT_WORDS = frozenset(_SHORT_LIST.split())


def is_word(name: str) -> bool:
    """An English word rather than a product of unknowns: `apples`, `Bob`, `odd`; not `ABC`, `xyz`, `abx`."""
    if name.isupper() and len(name) < 5:
        return False
    if len(name) == 3:
        return name.istitle() or name in _SHORT_WORDS
    return len(name) >= 4 and _VOWEL.search(name) is not None


def is_unit(word: str) -> bool:
    """Whether a word is a known unit of measure or part of one."""
    return word in CANONICAL or word.lower() in SQUARE | CUBIC


def split_unit(text: str) -> tuple[str, str, bool]:
    """Value, canonical unit and whether the unit may be an unknown instead. No unit: (text, "", False).

    Known units and their spellings have one canonical form ("square centimeters" is "cm^2"); any other words
    behind a number count as a unit too ("12 apples"), with the words themselves as the canonical form.
    """
    match = _TAIL.fullmatch(text[-MAX_UNIT:])
    if match is None:
        return text, "", False
    parts: list[str] = []
    power = 1
    known = True
    names = []
    for atom in _ATOM.finditer(match["unit"]):
        name = atom["name"]
        bare = name if name in CANONICAL else name.rstrip(".")
        if bare.lower() in SQUARE or bare.lower() in CUBIC:
            power = 2 if bare.lower() in SQUARE else 3
            continue
        if bare == "per":
            parts.append("/")
            continue
        canonical = CANONICAL.get(bare) or (CANONICAL.get(bare.lower()) if len(bare) > 2 else None)
        if canonical is None and not (is_word(bare) and (match["gap"] or names)):
            return text, "", False  # 5ab is a product
        known &= canonical is not None
        names.append(bare)
        exponent = int(atom["power"]) if atom["power"] else power
        power = 1
        parts.append(
            ("/" if atom["over"] else "")
            + (canonical or bare.lower())
            + (f"^{exponent}" if exponent != 1 else "")
        )
    if not names:
        return text, "", False
    ambiguous = all(name in AMBIGUOUS for name in names)
    unit = _OVER.sub("/", " ".join(parts))
    return f"{text[:-MAX_UNIT]}{match['value']}".strip(), unit if known else f"?{unit}", ambiguous
