"""The limits of a lemon."""

import re
from dataclasses import dataclass, fields

from heeler.bus import ConfigError


@dataclass(frozen=True, slots=True)
class LemonSettings:
    """``[lemon]``: what a node may have in `days` days, and how many of these limits make it a lemon."""

    days: int = 28  # the bus keeps events for 30
    least_features: int = 3  # so many at or above their limit, of those below; being excluded alone counts for little
    xid_kinds: int = 3  # different XIDs of the hardware
    out_of_service: int = 4  # drained, down or not responding, unless planned, or with many others at once
    tickets: int = 2  # different ones, in Slurm's reasons
    multi_node_failures: int = 2  # jobs that Slurm ended for a failed node while this one was in trouble
    single_node_failures: int = 3  # jobs that had this node alone, likewise, or failed while it was in trouble ...
    single_node_failure_ratio: float = 0.05  # ... and this share of all such jobs
    excluded_by_jobs: int = 10  # jobs submitted with --exclude
    around_s: float = 600.0  # trouble and a lost job this far apart belong together
    mass_nodes: int = 4  # more nodes than this out of service ...
    mass_span_s: float = 600.0  # ... within this: a network, the power, an operator; not the nodes
    settle_s: float = 900.0  # a node must be a lemon for so long before it is said
    ticket_pattern: str = r"\b(?:[A-Z]{2,10}-\d{1,9}|(?:INC|RITM|CHG|TKT)\d{3,12}|[Tt]icket ?#?\d{1,9})\b"
    xid_table: str = ""  # a table of XIDs over the packaged one

    def validate(self) -> None:
        """Raise ConfigError with every fault."""
        faults = [
            f"{f.name}: {getattr(self, f.name)} is out of range"
            for f in fields(self)
            if isinstance(getattr(self, f.name), int | float) and getattr(self, f.name) <= 0
        ]
        faults += ["days: more than 28, which the bus keeps with a margin"] if self.days > 28 else []
        try:
            re.compile(self.ticket_pattern)
        except re.error as err:
            faults.append(f"ticket_pattern: {err}")
        if faults:
            raise ConfigError("; ".join(faults))
