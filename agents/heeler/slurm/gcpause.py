"""Work on a large answer without Python's search for cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the search for cycles: among a million new values it takes a quarter of the time and finds none.

    It is off for all threads, for the second or two of one answer. Where two answers are read at the same time, the
    first that is done turns it on again: that costs the other some time, and nothing else.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
