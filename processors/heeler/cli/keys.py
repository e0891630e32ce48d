"""Keys of a terminal, one at a time."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ESCAPES = {
    "[A": "up", "OA": "up", "[B": "down", "OB": "down", "[C": "right", "[D": "left", "[5~": "pageup",
    "[6~": "pagedown", "[H": "home", "OH": "home", "[1~": "home", "[F": "end", "OF": "end",
    "[4~": "end", "[Z": "backtab",
}  # fmt: skip


def names(typed: str) -> Iterator[str]:
    """Yield the names of the keys in what was typed; an escape that nobody knows is skipped whole."""
    at = 0
    while at < len(typed):
        if typed[at] != "\x1b":
            yield {"\t": "tab", "\r": "enter", "\n": "enter"}.get(typed[at], typed[at])
            at += 1
            continue
        found = next((code for code in ESCAPES if typed.startswith(code, at + 1)), None)
        if found is not None:
            yield ESCAPES[found]
            at += 1 + len(found)
            continue
        at += 1
        if typed[at : at + 1] in ("[", "O"):  # to the letter that ends the escape
            at += 1
            while at < len(typed) and not typed[at].isalpha() and typed[at] != "~":
                at += 1
            at += 1


@contextmanager
def listening(on: Callable[[str], None]) -> Iterator[None]:
    """Hand each key to a function, without echo; the terminal is as it was afterwards."""
    file = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    before = termios.tcgetattr(file)

    def read() -> None:
        typed = os.read(file, 1024)
        if not typed:  # the terminal is gone
            loop.remove_reader(file)
            on("q")
            return
        for name in names(typed.decode(errors="replace")):
            on(name)

    tty.setcbreak(file)
    loop.add_reader(file, read)
    try:
        yield
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)
