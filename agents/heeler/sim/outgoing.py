"""A message on its way out of the simulator, and when it is due."""

from dataclasses import dataclass
from typing import Any

from heeler.bus import ROUTES


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message of the contract; `id` is its Nats-Msg-Id where its stream is written with ack."""

    due_ns: int
    kind: str
    subject: str
    data: dict[str, Any]
    id: str = ""

    @property
    def acked(self) -> bool:
        """Say whether the stream's word is waited for."""
        return ROUTES[self.kind].acked
