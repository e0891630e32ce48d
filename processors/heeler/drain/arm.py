"""Whether a drainer may be armed here at all."""

import os

from heeler.bus import BusError, BusSettings
from heeler.bus.anonymous import takes_anonymous
from heeler.drain.settings import DrainSettings


class WillNotArmError(BusError):
    """The place is not safe for a drainer that acts; says what to change."""


async def require_arms(settings: DrainSettings, bus: BusSettings) -> None:
    """Raise WillNotArmError for a drainer that runs as root, or on a bus on which anyone can speak."""
    if os.geteuid() == 0 and not settings.allow_root:
        raise WillNotArmError("dry_run = false as root: run as a user of its own with AdminLevel=Operator in Slurm")
    if settings.allow_anonymous_bus:
        return
    open_to_all = await takes_anonymous(bus)
    if open_to_all is None:
        raise WillNotArmError("dry_run = false, and whether the bus takes anonymous connections can't be told")
    if open_to_all:
        raise WillNotArmError("dry_run = false on a bus that takes anonymous connections: anyone could forge a finding")
