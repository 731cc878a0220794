"""A small program whose rows and text are hostile: what the tests of printing run, here and on a terminal."""

from fractions import Fraction
from pathlib import Path

from diagevo.cli import listing, options  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.call import CommandContext  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render.result import Result  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.render.table import columns  # pyright: ignore[reportMissingImports]  (cli/, as installed)

from diagevo.memory.history import AsOf

HOSTILE = "[bold]x[/bold] \x1b[31mred | pipe\nsecond line"
ROWS = [
    {"id": "c1", "p": Fraction(1, 3), "what": HOSTILE, "more": {"n": 1}},
    {"id": "c22", "p": None, "what": "é", "more": {"n": 2}},
]
COLUMNS = columns("id, p: probability, what")


@options.command("list", example="diagevo list", rows=True)
def listed(call: CommandContext) -> Result:
    """List."""
    return Result(ROWS, COLUMNS, run="a", as_of=AsOf(3, 812, 812), title="two causes")


@options.command("one", example="diagevo one")
def one(call: CommandContext) -> Result:
    """One."""
    data = {"p": Fraction(2, 3), "path": Path("x")}
    return Result(data, text=f"p {HOSTILE}", run="a", as_of=AsOf(3, 812, 812))


app = listing.Group({name: options.BUILT[name] for name in ("list", "one")})
