"""Makes the pictures of the documentation anew: `make pictures`.

Each is what a real terminal shows: the program runs on a pseudo-terminal, pyte keeps the screen, Rich draws
it. The live view is taken while a new run of three rounds trains (minutes); the others ask that run, and a
browser looks at it (`pictures_view.py`).
"""

import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

import pyte
from pictures_view import browse
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

HERE = Path(__file__).parent / "pictures"
ASKED = {
    "why": ["memory", "why", "c1"],
    "replay": ["memory", "replay", "--round", "2"],
    "verify": ["memory", "verify"],
    "show": ["memory", "show"],
}
ROWS = 24
FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""Rich's drawings ask a foreign server for a font: ours ask nobody."""


def screen_of(
    argv: list[str], folder: Path, columns: int, rows: int, seen: Callable[[list[str]], bool]
) -> Text:
    """Run a program on a terminal until `seen` says that its screen is the one, or to its end."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIAGEVO_")}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(argv, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    kept = None
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the end, as Linux says it on a terminal
            break
        if not chunk:
            break
        stream.feed(chunk)
        # A screen that is being drawn is not the picture: wait for a pause.
        if kept is None and seen(list(screen.display)) and not select([master], [], [], 0.2)[0]:
            kept = drawn(screen)
    os.close(master)
    if process.wait() != 0:
        sys.exit(f"{' '.join(argv)} ended with {process.returncode}:\n" + "\n".join(screen.display))
    return kept or drawn(screen)


def in_the_middle(lines: list[str]) -> bool:
    """When the picture of the live view is taken: two rounds are behind, the solver is at its fourth step."""
    text = "\n".join(lines)
    return "round 3 of 3" in text and re.search(r"solver +━+╌* +[4-9]/", text) is not None


def drawn(screen: pyte.Screen) -> Text:
    """The screen as styled text, without the empty lines at its end."""
    lines = []
    for row in range(screen.lines):
        line = Text()
        for column in range(screen.columns):
            cell = screen.buffer[row][column]
            style = " ".join(
                word for word in ("bold" * cell.bold, "italic" * cell.italics, _colour(cell.fg)) if word
            )
            line.append(cell.data, style=style)
        line.rstrip()
        lines.append(line)
    while lines and not lines[-1].plain:
        lines.pop()
    return Text("\n").join(lines)


def _colour(name: str) -> str:
    if name == "default":
        return ""
    named = {"brown": "yellow"}  # what pyte calls it
    return (
        f"#{name}"
        if re.fullmatch(r"[0-9a-f]{6}", name)
        else named.get(name, name.replace("bright", "bright_"))
    )


def draw(name: str, title: str, text: Text, columns: int) -> None:
    console = Console(record=True, width=columns, file=StringIO(), legacy_windows=False)
    console.print(text, soft_wrap=False, no_wrap=True, crop=True)
    svg = console.export_svg(
        title=title, theme=MONOKAI, code_format=FONTS.sub("", CONSOLE_SVG_FORMAT), unique_id=name
    )
    (HERE / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(f"{name}.svg: {len(svg) / 1000:.0f} kB", file=sys.stderr)


def main() -> None:
    program = [sys.executable, "-c", "from diagevo.cli.main import app; app()"]
    HERE.mkdir(exist_ok=True)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if len(sys.argv) > 1:
            shutil.copytree(sys.argv[1], folder / "runs")
        else:
            train = ["train", "--run", "first", "--rounds", "3"]
            live = screen_of([*program, *train], folder, 110, 32, in_the_middle)
            draw("train", "$ diagevo train --run first --rounds 3", live, 110)
        for name, asked in ASKED.items():
            shown = screen_of([*program, *asked], folder, 110, 400, lambda _: False)
            lines = shown.split("\n", allow_blank=True)
            if len(lines) > ROWS:
                lines = [*lines[: ROWS - 1], Text("…")]
            draw(name, f"$ diagevo {' '.join(asked)}", Text("\n").join(lines), 110)
        browse(folder / "runs")


if __name__ == "__main__":
    main()
