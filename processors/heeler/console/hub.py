"""Pages that are open: each gets the same bytes; one that does not keep up is cut off and may come back."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

HELD = 8  # updates that may wait for one page


@dataclass(eq=False, slots=True)
class Client:
    """One open page. `abort` breaks its connection off, whatever waits to be written."""

    abort: Callable[[], None]
    queue: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(HELD))


class Hub:
    """All open pages."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.clients: set[Client] = set()
        self.dropped = 0

    def join(self, abort: Callable[[], None]) -> Client | None:
        """Return a new client, or None where there are too many."""
        if len(self.clients) >= self.most:
            return None
        client = Client(abort)
        self.clients.add(client)
        return client

    def leave(self, client: Client) -> None:
        """Forget a client."""
        self.clients.discard(client)

    def send(self, data: bytes) -> None:
        """Hand an update to every client."""
        for client in list(self.clients):
            try:
                client.queue.put_nowait(data)
            except asyncio.QueueFull:
                self.dropped += 1
                self._cut(client)
                client.abort()

    def close(self) -> None:
        """Let all clients go."""
        for client in list(self.clients):
            self._cut(client)

    def _cut(self, client: Client) -> None:
        """Take what waits from a client, and end it."""
        self.leave(client)
        while not client.queue.empty():
            client.queue.get_nowait()
        client.queue.put_nowait(None)
