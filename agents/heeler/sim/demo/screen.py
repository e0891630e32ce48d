"""Lines on the terminal: coloured where it is one, plain text elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO

from heeler.cli.common import safe

try:
    from rich.console import Console
    from rich.text import Text
except ImportError:  # the extra `console` is not installed: plain text does as well
    Console = None  # type: ignore[assignment,misc]

STYLES = {
    "head": "bold",
    "step": "cyan",
    "seen": "yellow",
    "fault": "bold magenta",
    "finding": "bold red",
    "drain": "bold blue",
    "sink": "green",
    "good": "bold green",
    "bad": "bold red",
    "dim": "dim",
    "": "",
}


class Screen:
    """Writes lines with the time since the start in front."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.began = time.monotonic()
        self.fancy = Console is not None and self.out.isatty()
        self._console = Console(file=self.out, highlight=False, soft_wrap=True) if self.fancy else None

    def clock(self) -> str:
        """Return the time since the start as MM:SS."""
        seconds = int(time.monotonic() - self.began)
        return f"{seconds // 60:02d}:{seconds % 60:02d}"

    def line(self, text: str, style: str = "", *, stamp: bool = True) -> None:
        """Write one line."""
        words = f"{self.clock()}  {text}" if stamp else text
        # What comes from nodes is shown, never obeyed: no control characters reach the terminal.
        words = safe(words)
        if self._console is not None:
            self._console.print(Text(words, style=STYLES[style]))
        else:
            print(words, file=self.out, flush=True)

    def block(self, lines: Iterable[str], style: str = "dim") -> None:
        """Write lines without the time."""
        for line in lines:
            self.line(line, style, stamp=False)

    def raw(self, text: str) -> None:
        """Write one line as it is, for programs."""
        print(text, file=self.out, flush=True)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show that something is under way, and how long it took."""
        began = time.monotonic()
        if self._console is not None:
            with self._console.status(Text(what)):
                yield
        else:
            self.line(f"{what} ...", "step")
            yield
        self.line(f"{what}: {time.monotonic() - began:.1f} s", "step")
