"""A message for the bus, with its id."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Publication:
    """A message for the bus, with its id."""

    kind: str
    subject: str
    id: str
    message: Mapping[str, Any]
