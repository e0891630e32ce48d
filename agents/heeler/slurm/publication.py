"""A message for the bus, with its id."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heeler.slurm.packed import Block


@dataclass(frozen=True, slots=True)
class Publication:
    """A message for the bus, with its id."""

    kind: str
    subject: str
    id: str
    message: Mapping[str, Any]
    packed: Block | None = None  # the columns of a part of a large table, which `message` then lacks
