"""The drainer's word to other systems: a program of the site's own, or a URL. One small protocol, `Outlet`.

A program gets one JSON object on its standard input. A webhook is posted the same object, signed with a secret over
the time and the body, and tried again for a while; its `Idempotency-Key` is the action's id, so that a receiver can
drop what comes twice.
"""

import asyncio
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import requests
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from heeler.bus import ConfigError
from heeler.drain import guard
from heeler.drain.backend import Done, LeaseTooShortError
from heeler.slurm.command import run_slurm_async
from heeler.slurm.errors import CommandFailedError

START_S = 2.0
SHOWN = 300
OURS = "HEELER_"  # variables that a hook does not get: they hold the drainer's own credentials


class TryAgainError(Exception):
    """The receiver may take it the next time."""


class NotKnownError(CommandFailedError):
    """Nobody can say whether it was done."""


class Outlet(Protocol):
    """Where an action is sent. Never raises for what is on the other side."""

    async def send(self, message: Mapping[str, Any]) -> Done:
        """Send one action; returns what went wrong, in words."""
        ...


@dataclass(frozen=True, slots=True)
class ExecSettings:
    """A program: [drain.hooks.reset], [drain.hooks.reboot], [[drain.notify]]."""

    argv: tuple[str, ...] = ()
    timeout_s: float = 120.0

    def validate(self) -> None:
        """Raise ConfigError for what can't be run."""
        if not self.argv or not self.argv[0].startswith("/"):
            raise ConfigError(f"argv: {list(self.argv)!r}: the program by its whole path, and its arguments")
        if not 0 < self.timeout_s <= 3600:
            raise ConfigError(f"timeout_s: {self.timeout_s!r}: above 0, at most 3600")


@dataclass(frozen=True, slots=True)
class ExecHook:
    """A program of the site's own. Its whole process group ends at the timeout."""

    argv: tuple[str, ...]
    timeout_s: float = 120.0

    async def send(self, message: Mapping[str, Any]) -> Done:
        """Run it, whoever has the lease."""
        return await self.run(message, None)

    async def run(self, message: Mapping[str, Any], lease: tuple[float, float] | None) -> Done:
        """Run it. ``lease``: when ours ends on the monotonic clock, and how much of it must be left at the exec.

        Raises LeaseTooShortError if it was not run.
        """
        command = self.argv
        if lease is not None:
            guarded = (sys.executable, "-I", "-S", str(Path(guard.__file__)))
            command = (*guarded, str(lease[0]), f"{self.timeout_s}:{lease[1]}", *self.argv)
        env = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        body = json.dumps(message, ensure_ascii=False).encode()
        done = await run_slurm_async(command, self.timeout_s + (START_S if lease else 0.0), env, body)
        if done.rc == guard.TOO_LATE and guard.SAID in done.error_text:
            raise LeaseTooShortError(guard.SAID)
        if done.rc < 0:
            raise NotKnownError(done.argv[-len(self.argv) :], done.rc, "it was killed, or ran past its timeout")
        said = (done.error_text.strip() or done.text.strip())[-SHOWN:]
        return Done("" if done.rc == 0 else f"{self.argv[0]} ended with {done.rc}: {said or 'no message'}", said)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL."""

    url: str
    secret: bytes = b""
    timeout_s: float = 10.0
    retry_for_s: float = 300.0
    wait_s: float = 1.0
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, message: Mapping[str, Any]) -> Done:
        """Post it, again and again for a while."""
        return await asyncio.to_thread(self._send, message)

    def _send(self, message: Mapping[str, Any]) -> Done:
        body = json.dumps(message, ensure_ascii=False).encode()
        retrying = Retrying(
            wait=wait_random_exponential(multiplier=self.wait_s, max=30),
            stop=stop_after_delay(self.retry_for_s),
            retry=retry_if_exception_type((TryAgainError, requests.RequestException)),
            retry_error_callback=_gave_up,
        )
        found: Done = retrying(self._post, body, str(message.get("id", "")))
        return found

    def _post(self, body: bytes, ident: str) -> Done:
        stamp = str(int(time.time()))
        headers = {"Content-Type": "application/json", "Idempotency-Key": ident, "X-Heeler-Timestamp": stamp}
        if self.secret:
            headers["X-Heeler-Signature"] = f"sha256={sign(self.secret, stamp, body)}"
        # No redirects: a signed word is for the one that is named, and nobody else.
        answer = requests.post(
            self.url, data=body, headers={**self.headers, **headers}, timeout=self.timeout_s, allow_redirects=False
        )
        if answer.status_code in (408, 425, 429) or answer.status_code >= 500:
            raise TryAgainError(f"status {answer.status_code}")
        return Done("" if answer.ok and answer.status_code < 300 else f"status {answer.status_code}: not tried again")


def sign(secret: bytes, stamp: str, body: bytes) -> str:
    """Return the signature of a body sent at a time: HMAC-SHA256 of `<time>.<body>`, in hexadecimal digits."""
    return hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _gave_up(state: RetryCallState) -> Done:
    error = state.outcome.exception() if state.outcome is not None else None
    why = f"{type(error).__name__}: {error}"[:SHOWN]
    return Done(f"gave up after {state.attempt_number} tries: {why}")


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """[[drain.notify]]: who hears of actions, and of which."""

    url: str = ""
    argv: tuple[str, ...] = ()
    secret_file: str = ""
    timeout_s: float = 10.0
    retry_for_s: float = 300.0
    verdicts: tuple[str, ...] = (
        "proposed",
        "approved",
        "verified",
        "failed",
        "undrained",
        "held",
        "tripped",
        "ordered",
    )
    steps: tuple[str, ...] = ()  # empty: all

    def validate(self) -> None:
        """Raise ConfigError for what can't be meant."""
        faults = []
        if bool(self.url) == bool(self.argv):
            faults.append("url, argv: one of them")
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            faults.append(f"url: {self.url!r}: http:// or https://")
        if self.argv and not self.argv[0].startswith("/"):
            faults.append(f"argv: {list(self.argv)!r}: the program by its whole path, and its arguments")
        if self.secret_file and not self.url:
            faults.append("secret_file: only a url is signed")
        faults += [f"{n}: {getattr(self, n)!r}: above 0" for n in ("timeout_s", "retry_for_s") if getattr(self, n) <= 0]
        if not self.verdicts:
            faults.append("verdicts: empty")
        if faults:
            raise ConfigError("; ".join(faults))

    def outlet(self) -> Outlet:
        """Return where actions go. Raises ConfigError where the secret can't be read."""
        if self.argv:
            return ExecHook(self.argv, self.timeout_s)
        secret = b""
        if self.secret_file:
            try:
                secret = Path(self.secret_file).read_bytes().strip()
            except OSError as err:
                raise ConfigError(f"secret_file: {self.secret_file}: {err.strerror}") from None
            if not secret:
                raise ConfigError(f"secret_file: {self.secret_file}: empty")
        return Webhook(self.url, secret, self.timeout_s, self.retry_for_s)

    def wants(self, message: Mapping[str, Any]) -> bool:
        """Say whether an action is to be sent there."""
        return message["verdict"] in self.verdicts and (not self.steps or message.get("step", "drain") in self.steps)
