"""What a model's program may consist of: an allow-list over its syntax tree, its builtins and its modules.

A ban list would have to name every escape. Here anything not listed is refused: a kind of node, an attribute,
a builtin, a module, a name in a module.
"""

import ast
import builtins
import math
import types
from collections.abc import Iterator, Mapping
from string import Formatter

PROGRAM_CHARACTERS = 16_384


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NODES = _names(
    """Module Expression Expr FunctionDef ClassDef Return Delete Assign AugAssign AnnAssign For While If Match
    match_case MatchValue MatchSingleton MatchSequence MatchMapping MatchStar MatchAs MatchOr Raise Try
    Assert ExceptHandler Import ImportFrom alias Global Nonlocal Pass Break Continue BoolOp NamedExpr
    BinOp UnaryOp Lambda IfExp Dict Set ListComp SetComp DictComp GeneratorExp comprehension Yield
    YieldFrom Compare Call keyword FormattedValue JoinedStr Constant Attribute Subscript Starred Name
    List Tuple Slice arguments arg Load Store Del And Or Add Sub Mult MatMult Div Mod Pow LShift RShift
    BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn"""
)
_METHODS = _names(
    """__init__ __repr__ __str__ __len__ __getitem__ __setitem__ __contains__ __iter__ __next__ __call__
    __bool__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __add__ __sub__ __mul__ __neg__ __mod__"""
)
"""Special methods that a class may define. None of them can be read."""
BUILTINS = _names(
    """abs all any ascii bin bool bytes callable chr classmethod complex dict divmod enumerate filter float
    format frozenset hex int isinstance issubclass iter len list map max min next object oct ord pow
    property range repr reversed round set slice sorted staticmethod str sum super tuple zip True False
    None NotImplemented ArithmeticError AssertionError AttributeError Exception IndexError KeyError
    LookupError NotImplementedError OverflowError RecursionError RuntimeError StopIteration TypeError
    UnicodeError ValueError ZeroDivisionError print type"""
)
MODULES: Mapping[str, str] = {
    "__future__": "annotations",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "collections": "Counter OrderedDict defaultdict deque",
    "copy": "copy deepcopy",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile "
    "filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest",
    "json": "dumps loads",
    "math": " ".join(name for name in dir(math) if not name.startswith("_")),
    "operator": "add and_ concat contains eq floordiv ge getitem gt itemgetter le lt mod mul ne neg not_ or_ "
    "pow sub truediv xor",
    "re": "A ASCII DOTALL I IGNORECASE M MULTILINE S VERBOSE X compile escape findall finditer fullmatch "
    "match search split sub subn",
    "statistics": "fmean mean median median_high median_low mode multimode pstdev pvariance stdev variance",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation "
    "whitespace",
    "sys": "maxsize",
    "typing": "Any Callable Dict FrozenSet Generator Hashable Iterable Iterator List Mapping Optional "
    "Sequence Set Text Tuple Type Union",
    "collections.abc": "Callable Generator Hashable Iterable Iterator Mapping Sequence",
}
"""The modules that a program may import, with their names."""
ALSO_LOADED = {"collections": ("heapq",), "statistics": ("heapq",)}
"""What a module imports only on use, which a sandboxed process cannot."""
HINTS = ("typing", "collections.abc")
"""Modules of which only the names are needed: the real ones would compile strings in annotations."""

_BY_STRING = frozenset(("format", "format_map"))
"""They read the attributes that a string names."""
_OF_VALUES = (
    frozenset(
        name
        for kind in (str, bytes, int, float, complex, list, tuple, dict, set, frozenset, range, slice)
        for name in dir(kind)
        if not name.startswith("_")
    )
    - _BY_STRING
)
_OF_OBJECTS = _names(
    """appendleft popleft extendleft rotate maxlen most_common elements subtract total move_to_end
    default_factory group groups groupdict span end string pattern from_iterable cache_clear cache_info args
    setter limit_denominator normalize quantize sqrt is_nan close send"""
)
_OF_INTERPRETER = frozenset(
    name for kind in (*vars(types).values(), type) if isinstance(kind, type) for name in dir(kind)
)
"""Frames, code, generators, tracebacks …: a name of theirs is none that a program may give its own."""


class ProgramRefused(Exception):
    """The program is not run, or its result does not count: a kind of `executor.Refusal`, and why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(kind, why)
        self.kind, self.why = kind, why


def _banned(why: str) -> ProgramRefused:
    return ProgramRefused("banned", why)


def check_program(tree: ast.AST) -> None:
    """Raises ProgramRefused if a program has anything not listed above.

    Names come from the tree, where Python has already normalized them (NFKC).
    """
    nodes = list(ast.walk(tree))
    bound = {name for node in nodes for name in _bound(node)}
    given = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    of_classes = {
        name for n in nodes if isinstance(n, ast.ClassDef) for part in n.body for name in _bound(part)
    }
    imported = {name for names in MODULES.values() for name in names.split()}
    attributes = _OF_VALUES | _OF_OBJECTS | imported | ((given | of_classes) - _OF_INTERPRETER - _BY_STRING)
    methods = {id(part) for node in nodes if isinstance(node, ast.ClassDef) for part in node.body}
    for node in nodes:
        kind = type(node).__name__
        if kind not in _NODES:
            raise _banned(f"{kind} is not allowed")
        if isinstance(node, ast.Attribute):
            _check_attribute(node, attributes)
        elif isinstance(node, ast.Name):
            if node.id == "__name__" and isinstance(node.ctx, ast.Load):
                continue
            if hasattr(builtins, node.id) and node.id not in BUILTINS | bound:
                raise _banned(f"the name {node.id} is not allowed")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            _check_import(node)
            continue
        elif isinstance(node, ast.ClassDef) and node.keywords:
            raise _banned("keywords of a class are not allowed")
        special = isinstance(node, ast.FunctionDef) and id(node) in methods and node.name in _METHODS
        if not special and not isinstance(node, ast.Attribute | ast.Constant):
            for name in _strings(node):
                if name.startswith("__") or (name == "super" and not _read(node)):
                    raise _banned(f"the name {name} is not allowed")


def _read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _strings(node: ast.AST) -> Iterator[str]:
    """All names in any field of a node: a later Python may have more fields."""
    for _, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield item


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _check_attribute(node: ast.Attribute, allowed: frozenset[str] | set[str]) -> None:
    name, value = node.attr, node.value
    if name == "__init__" and isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        if value.func.id == "super":
            return
    elif name == "format" and isinstance(value, ast.Constant) and isinstance(value.value, str):
        if _plain_fields(value.value):
            return
    elif name in allowed and not name.startswith("__"):
        return
    raise _banned(f"the attribute {name} is not allowed")


def _plain_fields(text: str) -> bool:
    """Whether the replacement fields of a format string name only values, not their attributes."""
    try:
        fields = [(name, spec) for _, name, spec, _ in Formatter().parse(text) if name is not None]
    except ValueError:
        return True  # str.format will refuse it too
    return all((not n or n.isidentifier() or n.isdecimal()) and _plain_fields(s or "") for n, s in fields)


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in MODULES or "." in alias.name or (alias.asname or "").startswith("__"):
                raise _banned(f"import {alias.name} is not allowed")
        return
    if node.level or node.module is None or node.module not in MODULES:
        raise _banned(f"import from {'.' * node.level}{node.module or ''} is not allowed")
    for alias in node.names:
        allowed = MODULES[node.module].split()
        if (alias.name != "*" and alias.name not in allowed) or (alias.asname or "").startswith("__"):
            raise _banned(f"{node.module}.{alias.name} is not allowed")
