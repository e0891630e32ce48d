"""A way to a server that can be cut: nothing passes, nobody is told, and what was sent meanwhile comes late.

That is what a broken switch does to a TCP connection: both ends go on, and when it heals the old bytes arrive.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator


class CutProxy:
    """Passes on what comes to a free port of 127.0.0.1, unless it is cut."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._passes = threading.Event()
        self._passes.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self.url = f"nats://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through from now on."""
        self._passes.clear()

    def heal(self) -> None:
        """Let all through again, first what was held back."""
        self._passes.set()

    def close(self) -> None:
        """End all connections."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.heal()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._behind))
                self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def cut_proxy(port: int) -> Iterator[CutProxy]:
    """Run a proxy before a port of this machine while the block runs."""
    made = CutProxy(port)
    try:
        yield made
    finally:
        made.close()
