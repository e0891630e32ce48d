"""What an operator's command line does on the bus: ask the active drainer, command it, look where none answers."""

import getpass
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heeler.bus import Bus, BusError, DecodeError, TokenError, decode, encode, escape, subjects, unescape
from heeler.bus.claims import Claims
from heeler.bus.client import RETRYABLE
from heeler.drain.breaker_keeper import BUCKET, key_of
from heeler.drain.hand import DRAIN, Hand
from heeler.drain.hand_keeper import kept_hand
from heeler.drain.prolog_breaker import Kept

WAIT_S = 5.0
TRIES = 2


@dataclass(frozen=True, slots=True)
class Left:
    """What stands on the bus where no drainer answers."""

    now_ns: int
    holder: str | None  # of the lease
    hand: Hand | None
    prologs: Kept | None
    faults: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it for JSON."""
        kept = self.prologs
        return {
            "answered": False,
            "now_ns": self.now_ns,
            "lease_holder": self.holder,
            "hand": self.hand.pack() if self.hand is not None else None,
            "prologs": None
            if kept is None
            else {
                "state": kept.breaker.state,
                "why": kept.breaker.why,
                "since_ns": kept.breaker.since_ns,
                "keeper": kept.keeper,
                "kept_ns": kept.ts_ns,
            },
            "faults": list(self.faults),
        }


async def who(bus: Bus, given: str | None) -> str:
    """Return the name under which this user may command: the one given, else what the bus allows, else the login."""
    return given or allowed_name(await bus.user_info(), bus.cluster) or getpass.getuser()


def allowed_name(info: Mapping[str, Any], cluster: str) -> str | None:
    """Return the one name that the bus's permissions let a user speak under; None where they fix none."""
    permissions = info.get("permissions")
    publish = permissions.get("publish") if isinstance(permissions, dict) else None
    allow = publish.get("allow") if isinstance(publish, dict) else None
    prefix = subjects.drain_command(cluster, "x").removesuffix("x")
    names = {str(one).removeprefix(prefix) for one in allow or () if str(one).startswith(prefix)}
    try:
        return unescape(names.pop()) if len(names) == 1 else None
    except TokenError:  # a wildcard
        return None


async def now_of(bus: Bus) -> int:
    """Return the bus server's time, or this machine's where the server may not be asked."""
    try:
        return await bus.server_time_ns()
    except (*RETRYABLE, BusError):
        return time.time_ns()


async def question(bus: Bus, actor: str, about: str, name: str | None = None) -> Mapping[str, Any] | None:
    """Return the active drainer's answer, or None where none answers. Raises BusError, RETRYABLE."""
    asked = {"v": 1, "cluster": bus.cluster, "ts": await now_of(bus), "id": _ident(), "about": about}
    asked |= {"name": name} if name is not None else {}
    return await _send(bus, subjects.drain_question(bus.cluster, actor), "DrainQuestion", asked, 1)


async def command(bus: Bus, actor: str, what: str, **more: Any) -> Mapping[str, Any] | None:
    """Return the active drainer's answer to a command, or None where none answers. Raises BusError, RETRYABLE.

    It is sent again under the same id, so it is done once, whatever is lost on the way.
    """
    now_ns = await now_of(bus)
    said = {"v": 1, "cluster": bus.cluster, "ts": now_ns, "id": _ident(), "command": what}
    said |= {"deadline_ts": now_ns + int(TRIES * WAIT_S * 1e9)}
    said |= {key: value for key, value in more.items() if value is not None}
    return await _send(bus, subjects.drain_command(bus.cluster, actor), "DrainCommand", said, TRIES)


async def _send(bus: Bus, subject: str, kind: str, message: Mapping[str, Any], tries: int) -> Mapping[str, Any] | None:
    payload = encode(kind, message)
    for _ in range(tries):
        found = await bus.request(subject, kind, payload, timeout_s=WAIT_S)
        if found is not None:
            try:
                return decode("DrainAnswer", found)
            except DecodeError as err:
                raise BusError(f"what came back is no DrainAnswer: {err}") from err
    return None


def _ident() -> str:
    return f"hand-{secrets.token_hex(8)}"


async def look(bus: Bus) -> Left:
    """Return what stands in the buckets. Raises BusError where `heeler bus init` has not made them, RETRYABLE."""
    lease = await (await Claims.open(bus, "drain_lease")).get(escape(bus.cluster))
    claims = await Claims.open(bus, BUCKET)
    own, prologs = await claims.get(key_of(bus.cluster, DRAIN)), await claims.get(key_of(bus.cluster))
    faults, hand, kept = [], None, None
    try:
        hand = kept_hand(own.value, bus.cluster)[0] if own is not None else None
    except ValueError as err:
        faults.append(f"the drainer's breaker and pause can't be read: {err}")
    try:
        kept = Kept.unpack(prologs.value) if prologs is not None else None
    except ValueError as err:
        faults.append(f"the breaker of prologs can't be read: {err}")
    holder = lease.value.decode(errors="replace") if lease is not None else None
    return Left(await now_of(bus), holder, hand, kept, tuple(faults))
