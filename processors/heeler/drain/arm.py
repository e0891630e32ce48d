"""Whether a drainer may be armed here at all."""

import os
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

import structlog

from heeler.bus import Bus, BusError, BusSettings
from heeler.drain.settings import DrainSettings

log = structlog.get_logger("heeler.drain")


class WillNotArmError(BusError):
    """The place is not safe for a drainer that acts; says what to change."""


async def require_arms(settings: DrainSettings, bus: BusSettings) -> None:
    """Raise WillNotArmError for a drainer that runs as root, or on a bus on which anyone can speak."""
    if os.geteuid() == 0 and not settings.allow_root:
        raise WillNotArmError("dry_run = false as root: run as a user of its own with AdminLevel=Operator in Slurm")
    if settings.allow_anonymous_bus:
        return
    anonymous = replace(bus, servers=tuple(map(_bare, bus.servers)), creds=None, nkey=None, cert=None, key=None)
    if not await _is_refused(anonymous):
        raise WillNotArmError("dry_run = false on a bus that takes anonymous connections: anyone could forge a finding")


async def _is_refused(anonymous: BusSettings) -> bool:
    """Say whether the server turns us away for want of credentials. Raises WillNotArmError if it can't be told."""
    try:
        bus = await Bus.connect(anonymous, "heeler-drain-probe", give_up_after_s=0.0)
    except Exception as err:  # every way of not connecting ends here, and only one of them is good
        if "authorization" in f"{type(err).__name__} {err}".lower():
            return True
        raise WillNotArmError(f"can't tell whether the bus takes anonymous connections: {err!r}") from err
    await bus.close()
    return False


def _bare(url: str) -> str:
    """Return a server's address without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
