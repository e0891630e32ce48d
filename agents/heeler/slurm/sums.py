"""Sums, means and variances in which what is not known stays not known: less than all would look like a number."""

from collections.abc import Iterable
from typing import Any

Values = Iterable[int | float | None]


def total(values: Values) -> Any:
    """Return the sum, None where a part is not known."""
    found: int | float = 0
    for value in values:
        if value is None:
            return None
        found += value
    return found


def count(answers: Iterable[bool | None]) -> int | None:
    """Return how many are true, None where one may be."""
    found = list(answers)
    return None if None in found else found.count(True)


def mean(values: Values) -> float | None:
    """Return the mean; None of nothing, and where a part is not known."""
    known = _known(values)
    return sum(known) / len(known) if known else None


def variance(values: Values) -> float | None:
    """Return the sample variance (divided by n - 1); None of fewer than two, and where a part is not known."""
    known = _known(values)
    if known is None or len(known) < 2:
        return None
    middle = sum(known) / len(known)
    return sum((value - middle) ** 2 for value in known) / (len(known) - 1)


def _known(values: Values) -> list[int | float] | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return known if len(known) == len(found) else None
