"""Programs as models write them for Absolute Zero, each with a call and the value that it must give."""

HONEST: list[tuple[str, str, object]] = [
    ("def f(a):\n    return a", '"Hello world"', "Hello world"),
    ("def f(a: int, b: int = 2) -> int:\n    return a * b", "3", 6),
    ("def f(a, b):\n    return a + b", "b=1, a=2", 3),
    ("def f(nums):\n    return sum(int(d) for d in str(sum(nums)))", "[19, 28]", 11),
    (
        "def f(nums):\n    total = 0\n    for i in range(len(nums)):\n"
        "        for j in range(i, len(nums)):\n            total += sum(nums[i:j + 1])\n    return total",
        "[1, 2, 3]",
        20,
    ),
    (
        "class Tracker:\n    def __init__(self, nums):\n        self.nums = nums\n        self.state = 0\n"
        "    def update(self):\n        for n in self.nums:\n            self.state += n ** 2\n"
        "    def get_final_state(self):\n        return self.state\n"
        "def f(nums):\n    t = Tracker(nums)\n    t.update()\n    return t.get_final_state()",
        "[1, 2, 3]",
        14,
    ),
    (
        "class Node:\n    def __init__(self, value, children=None):\n        self.value = value\n"
        "        self.children = children or []\ndef build(d):\n"
        "    return Node(d, [build(d - 1), build(d - 1)]) if d else Node(0)\n"
        "def depth(n):\n    return 1 + max((depth(c) for c in n.children), default=0)\n"
        "def f(d):\n    return depth(build(d))",
        "4",
        5,
    ),
    (
        "class Shape:\n    def area(self):\n        raise NotImplementedError('no')\n"
        "class Square(Shape):\n    def __init__(self, side):\n        super().__init__()\n"
        "        self._side = side\n    def area(self):\n        return self._side ** 2\n"
        "def f(n):\n    return [Square(i).area() for i in range(n)]",
        "4",
        [0, 1, 4, 9],
    ),
    (
        "class P:\n    def __init__(self, x):\n        self.x = x\n    def __eq__(self, o):\n"
        "        return self.x == o.x\n    def __lt__(self, o):\n        return self.x < o.x\n"
        "    def __add__(self, o):\n        return P(self.x + o.x)\n    def __len__(self):\n"
        "        return self.x\ndef f(a, b):\n    p = P(a) + P(b)\n"
        "    return [len(p), P(a) < P(b), P(a) == P(a), max(P(a), P(b)).x]",
        "1, 2",
        [3, True, True, 2],
    ),
    (
        "class Temperature:\n    def __init__(self, c):\n        self._c = c\n    @property\n    def f(self):\n"
        "        return self._c * 9 / 5 + 32\n    @staticmethod\n    def zero():\n        return 0\n"
        "    @classmethod\n    def of(cls, c):\n        return cls(c)\n"
        "def f(c):\n    return Temperature.of(c).f + Temperature.zero()",
        "100",
        212.0,
    ),
    (
        "import math\ndef f(n):\n    return math.isqrt(n), math.gcd(n, 12), round(math.pi, 3)",
        "18",
        (4, 6, 3.142),
    ),
    ("from math import sqrt, ceil\ndef f(n):\n    return ceil(sqrt(n))", "10", 4),
    (
        "from collections import Counter\ndef f(s):\n    return Counter(s).most_common(2)",
        "'aabbbc'",
        [("b", 3), ("a", 2)],
    ),
    (
        "from collections import defaultdict\ndef f(ws):\n    d = defaultdict(list)\n    for w in ws:\n"
        "        d[len(w)].append(w)\n    return dict(d)",
        "['a', 'bb', 'c']",
        {1: ["a", "c"], 2: ["bb"]},
    ),
    (
        "from collections import deque\ndef f(n):\n    q = deque([0])\n    seen = []\n    while q:\n"
        "        x = q.popleft()\n        seen.append(x)\n        if x < n:\n"
        "            q.extend([2 * x + 1, 2 * x + 2])\n    return seen[:5]",
        "3",
        [0, 1, 2, 3, 4],
    ),
    (
        "import heapq\ndef f(a):\n    heapq.heapify(a)\n    return [heapq.heappop(a) for _ in range(2)]",
        "[5, 1, 3]",
        [1, 3],
    ),
    (
        "from heapq import nlargest\ndef f(a):\n    return nlargest(2, a, key=lambda x: -x)",
        "[5, 1, 3]",
        [1, 3],
    ),
    (
        "import bisect\ndef f(a, x):\n    bisect.insort(a, x)\n    return a, bisect.bisect_left(a, x)",
        "[1, 3], 2",
        ([1, 2, 3], 1),
    ),
    (
        "from itertools import permutations, groupby\ndef f(s):\n    return sorted({''.join(p) for p in permutations(s)})",
        "'aab'",
        ["aab", "aba", "baa"],
    ),
    (
        "import itertools\ndef f(a):\n    return [(k, len(list(g))) for k, g in itertools.groupby(a)]",
        "[1, 1, 2]",
        [(1, 2), (2, 1)],
    ),
    (
        "from itertools import chain\ndef f(a):\n    return list(chain.from_iterable(a))",
        "[[1], [2, 3]]",
        [1, 2, 3],
    ),
    (
        "from functools import reduce, lru_cache\n@lru_cache(maxsize=None)\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\ndef f(n):\n    return reduce(lambda a, b: a + b, map(fib, range(n)))",
        "30",
        1346268,
    ),
    (
        "import re\ndef f(s):\n    return re.sub(r'(\\w)(\\d)', r'\\2\\1', s), re.findall('[a-z]+', s)",
        "'a1b2'",
        ("1a2b", ["a", "b"]),
    ),
    (
        "import re\ndef f(s):\n    m = re.search(r'(?P<y>\\d{4})-(\\d\\d)', s)\n    return m.group('y'), m.groups(), m.span()",
        "'on 2024-05'",
        ("2024", ("2024", "05"), (3, 10)),
    ),
    (
        "from typing import List, Dict, Optional\ndef f(a: List[int], d: Optional[Dict[str, 'int']] = None) -> List[int]:\n    return a[::-1]",
        "[1, 2]",
        [2, 1],
    ),
    (
        "from __future__ import annotations\nfrom typing import *\ndef f(a: Sequence[Nothing]):\n    return len(a)",
        "[1]",
        1,
    ),
    (
        "import string\ndef f(s):\n    return ''.join(chr((ord(c) - 97 + 3) % 26 + 97) if c in string.ascii_lowercase else c for c in s)",
        "'xyz!'",
        "abc!",
    ),
    (
        "import copy\ndef f(a):\n    b = copy.deepcopy(a)\n    b[0][0] = 9\n    return a, b",
        "[[1]]",
        ([[1]], [[9]]),
    ),
    (
        "import json\ndef f(d):\n    return json.loads(json.dumps(d, sort_keys=True))",
        "{'a': [1, None]}",
        {"a": [1, None]},
    ),
    (
        "from fractions import Fraction\ndef f(n):\n    s = sum(Fraction(1, i) for i in range(1, n))\n    return s.numerator, s.denominator",
        "4",
        (11, 6),
    ),
    ("from decimal import Decimal\ndef f(a):\n    return str(Decimal(a) + Decimal('0.2'))", "'0.1'", "0.3"),
    (
        "import statistics\ndef f(a):\n    return statistics.median(a), statistics.mean(a)",
        "[1, 2, 6]",
        (2, 3),
    ),
    (
        "from operator import itemgetter\ndef f(a):\n    return sorted(a, key=itemgetter(1), reverse=True)",
        "[(1, 2), (2, 3)]",
        [(2, 3), (1, 2)],
    ),
    (
        "import sys\ndef f(a):\n    best = -sys.maxsize\n    for x in a:\n        best = max(best, x)\n    return best",
        "[3, 7]",
        7,
    ),
    (
        "def f(n):\n    def gen():\n        a, b = 0, 1\n        while True:\n            yield a\n            a, b = b, a + b\n    g = gen()\n    return [next(g) for _ in range(n)]",
        "6",
        [0, 1, 1, 2, 3, 5],
    ),
    (
        "def f(s):\n    try:\n        return int(s)\n    except (ValueError, TypeError) as e:\n        return type(e) == ValueError, str(e.args[0])[:7]\n    finally:\n        s = None",
        "'x'",
        (True, "invalid"),
    ),
    (
        "def f(a):\n    match a:\n        case []: return 'none'\n        case [x]: return x\n        case [x, *rest] if rest: return {'first': x, 'rest': rest}\n        case {'k': v}: return v",
        "[1, 2, 3]",
        {"first": 1, "rest": [2, 3]},
    ),
    ("def f(a):\n    return [y for x in a if (y := x * x) > 3]", "[1, 2, 3]", [4, 9]),
    (
        "def f(name, n):\n    return f'{name!r:>6}|{n:08.3f}|{n:{5}}|' + '{}-{k:>3}'.format(name, k=n) + '%s %d' % (name, n)",
        "'ab', 2",
        "  'ab'|0002.000|    2|ab-  2ab 2",
    ),
    (
        "def f(m):\n    return [list(r) for r in zip(*m)], {k: v for k, v in enumerate(m[0])}",
        "[[1, 2], [3, 4]]",
        ([[1, 3], [2, 4]], {0: 1, 1: 2}),
    ),
    (
        "def f(*args, key=None, **rest):\n    return args, key, sorted(rest.items())",
        "1, 2, key='k', z=3",
        ((1, 2), "k", [("z", 3)]),
    ),
    (
        "count = 0\ndef f(n):\n    global count\n    def add():\n        nonlocal n\n        n += 1\n    add()\n    count += n\n    return count",
        "4",
        5,
    ),
    (
        "def f(n):\n    if n < 0:\n        raise ValueError('negative')\n    assert n >= 0, 'no'\n    return bin(n), hex(n), oct(n), bytes([n]), complex(n, 1)",
        "10",
        ("0b1010", "0xa", "0o12", b"\n", 10 + 1j),
    ),
    (
        "def f(s):\n    return set(s), frozenset(s) == set(s), s.title(), s.zfill(6), s.partition('b')",
        "'abc'",
        ({"a", "b", "c"}, True, "Abc", "000abc", ("a", "b", "c")),
    ),
    (
        "def f(a):\n    del a[0]\n    a.insert(0, 9)\n    a.sort(key=lambda x: -x)\n    print('sorted', a)\n    return a",
        "[1, 2]",
        [9, 2],
    ),
    (
        "def f(n):\n    primes = [True] * (n + 1)\n    for i in range(2, int(n ** 0.5) + 1):\n        if primes[i]:\n            primes[i * i::i] = [False] * len(primes[i * i::i])\n    return [i for i in range(2, n + 1) if primes[i]]",
        "20",
        [2, 3, 5, 7, 11, 13, 17, 19],
    ),
    ("def f(n):\n    return 1 if n <= 1 else n * f(n - 1)", "20", 2432902008176640000),
    (
        "def hanoi(n, a, b, c):\n    if n == 0:\n        return 0\n    return hanoi(n - 1, a, c, b) + 1 + hanoi(n - 1, c, b, a)\ndef solve(n):\n    return hanoi(n, 'a', 'b', 'c')",
        "5",
        31,
    ),
    ("def f(input, list=None, id=3):\n    return [input, list, id]", "1", [1, None, 3]),
    ("def f(é, ñandú=1):\n    return é + ñandú", "1", 2),
    ("def f(x):\n    return 'naïve ☃ 😀' + x", "'ß'", "naïve ☃ 😀ß"),
    ("def f(x):\n    return x\nif __name__ == '__main__':\n    print(f(1))", "()", ()),
    ("def f(x):\n    return set()", "None", set()),
    ("import re\ndef f(s):\n    return re.compile(s * 9999, 128).match(s)", "'a'", None),
    ("import statistics\ndef f(a):\n    return statistics.mode(a)", "[1, 2, 2]", 2),
    (
        "import re\ndef f(s):\n    return [(m.start(), m.end()) for m in re.finditer('[0-9]+', s)]",
        "'a12b3'",
        [(1, 3), (4, 5)],
    ),
    (
        "from decimal import Decimal\ndef f(s):\n    return str(Decimal(s).normalize())",
        "'1.250'",
        "1.25",
    ),
    (
        "from copy import copy, deepcopy\nfrom collections import Counter, OrderedDict, defaultdict, deque\n"
        "from decimal import Decimal\nfrom fractions import Fraction\nfrom functools import partial\n"
        "class P:\n    def __init__(self, x):\n        self.x = x\nclass L(list):\n    pass\n"
        "def f(a):\n    p, l = P(a), L([a])\n    q, l.tag = deepcopy(p), 't'\n    q.x.append(9)\n"
        "    d, m = deepcopy(defaultdict(list, {1: a})), deepcopy(l)\n    d[2].append(1)\n    m[0].append(5)\n"
        "    return [p.x, q.x, copy(p).x is a, dict(d), list(m), m.tag, list(deepcopy(deque(a))), "
        "dict(copy(Counter('aa'))), dict(deepcopy(OrderedDict(b=1))), deepcopy(Fraction(1, 2)) == 0.5, "
        "str(deepcopy(Decimal('1.5'))), deepcopy(partial(pow, 2))(3), list(copy(iter(a))), "
        "deepcopy(ValueError(1, a)).args]",
        "[0]",
        [
            [0],
            [0, 9],
            True,
            {1: [0], 2: [1]},
            [[0, 5]],
            "t",
            [0],
            {"a": 2},
            {"b": 1},
            True,
            "1.5",
            8,
            [0],
            (1, [0]),
        ],
    ),
    ("f = lambda x: x\ndef g(x):\n    return f(x) + 1", "1", 2),
]
