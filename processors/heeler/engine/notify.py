"""A word with systemd, by datagrams to the socket that it names (sd_notify(3)). Else nothing is said."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"
STATUS_S = 2.0  # between two looks at what there is to say


@dataclass(frozen=True, slots=True)
class Notifier:
    """Says to systemd how the process is doing."""

    address: str = ""
    watchdog_s: float = 0.0  # within which systemd wants to hear that we are alive; 0: it does not

    @classmethod
    def of(cls, env: Mapping[str, str], pid: int) -> "Notifier":
        """Return one as the environment wants it. What is meant for another process is not for us."""
        usec, meant_for = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
        ours = usec.isascii() and usec.isdigit() and meant_for in ("", str(pid))
        return cls(env.get("NOTIFY_SOCKET", ""), int(usec) / 1e6 if ours else 0.0)

    def say(self, *lines: str) -> None:
        """Send some of NAME=value in one datagram. A systemd that does not listen is no concern of ours."""
        if not (self.address and lines):
            return
        # A leading @ is an address without a file, whose first byte is 0.
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), address)

    async def keep(self, status: Callable[[], str]) -> None:
        """Say that we are alive, and what is new in one line for `systemctl status`, until cancelled.

        A loop that stands still says nothing; then systemd ends the process, and starts another.
        """
        told = ""
        while self.address:
            now = f"STATUS={' '.join(status().split())}"
            self.say(*([WATCHDOG] if self.watchdog_s else []), *([now] if now != told else []))
            told = now
            await asyncio.sleep(min(self.watchdog_s / 3 or STATUS_S, STATUS_S))


def from_environment() -> Notifier:
    """Return the one of this process."""
    return Notifier.of(os.environ, os.getpid())
