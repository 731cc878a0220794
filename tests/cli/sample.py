"""A small program whose rows and text are hostile: what the tests of printing run, here and on a terminal."""

from fractions import Fraction
from pathlib import Path

from diagevo.cli import listing, options  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.call import Call  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render import console as render  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render.rows import print_rows  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render.table import Column  # pyright: ignore[reportMissingImports]  (cli/, as installed)

HOSTILE = "[bold]x[/bold] \x1b[31mred | pipe\nsecond line"
ROWS = [
    {"id": "c1", "p": Fraction(1, 3), "what": HOSTILE, "more": {"n": 1}},
    {"id": "c22", "p": None, "what": "é", "more": {"n": 2}},
]
COLUMNS = (
    Column("id"),
    Column("p", "probability", "right"),
    Column("what"),
)


@options.command("list", example="diagevo list", rows=True)
def listed(call: Call) -> None:
    """List."""
    print_rows(call, COLUMNS, ROWS, run="a", as_of=(3, 812), title="two causes")


@options.command("one", example="diagevo one")
def one(call: Call) -> None:
    """One."""
    data = {"p": Fraction(2, 3), "path": Path("x")}
    render.document(call, data, f"p {HOSTILE}", run="a", as_of=(3, 812))


app = listing.Group({}, commands={name: options.BUILT[name] for name in ("list", "one")})
