"""The table of causes that several nodes may share: which findings are its signs, and what is said of them.

`alone`: enough nodes at about the same time are one cause even where nobody knows what they have in common; else they
must share a place, or be half of the cluster. `holds`: the nodes are hardly at fault, so no drain is advised for what
links, heat or power show on them while the incident is open; what the hardware itself says (XIDs, lost GPUs) stays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from heeler.detect.incident import FABRIC_XIDS, FIRST_SXID
from heeler.detect.thresholds import IncidentThresholds

Finding = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shared:
    """One cause."""

    name: str
    signs: Callable[[Finding], bool]
    span_s: Callable[[IncidentThresholds], float]  # all within this
    what: str  # what the nodes did
    why: str  # what it may be
    of_job: bool = False  # what they share is a job
    alone: bool = True
    holds: bool = False
    advice: str = "person"  # when it lasts


def _of_kinds(*kinds: str) -> Callable[[Finding], bool]:
    return lambda finding: finding["kind"] in kinds


def _slowed(kind: str, *causes: str) -> Callable[[Finding], bool]:
    """Slowed down, as the node says it, or a job that suffers."""
    return lambda f: f["kind"] == kind or (f["kind"] in ("gpu_lag", "job_slow") and f.get("cause") in causes)


def _of_fabric(finding: Finding) -> bool:
    if finding["kind"] in ("nvlink_degraded", "nvlink_errors"):
        return True
    code = finding.get("code", 0)
    of_links = finding["kind"] == "sxid" or code >= FIRST_SXID or code in FABRIC_XIDS
    return finding["kind"] in ("xid", "sxid") and of_links and _real(finding)


def _of_program(finding: Finding) -> bool:
    return finding["kind"] == "xid" and finding.get("cause") == "application" and _real(finding)


def _lost(finding: Finding) -> bool:
    return finding["kind"] == "gpu_lost" or (finding["kind"] == "xid" and finding.get("code") == 79 and _real(finding))


def _real(finding: Finding) -> bool:
    return not finding["entity"].get("test")


SHARED: Final = (
    Shared(
        "links_lost",
        _of_kinds("ib_down", "ib_flap"),
        lambda t: t.links_span_s,
        "lost InfiniBand or Ethernet links",
        "a switch, its power or its cables, and hardly the nodes",
        holds=True,
    ),
    Shared(
        "links_slow",
        _of_kinds("rail_degraded"),
        lambda t: t.links_span_s,
        "have InfiniBand or Ethernet links at a lower rate",
        "a switch or its cables, and hardly the nodes",
        holds=True,
    ),
    Shared(
        "program",
        _of_program,
        lambda t: t.job_span_s,
        "had errors of its program",
        "no node is to blame",
        of_job=True,
        alone=False,
        advice="none",
    ),
    Shared("gpus_lost", _lost, lambda t: t.hardware_span_s, "lost GPUs", "power or cooling of more than a node"),
    Shared(
        "nvlink_fabric",
        _of_fabric,
        lambda t: t.hardware_span_s,
        "have NVLink or NVSwitch errors",
        "the NVLink fabric between them",
        holds=True,
    ),
    Shared(
        "agents_silent",
        lambda finding: finding["kind"] == "agent_silent" and "node" in finding,
        lambda t: t.agents_span_s,
        "have node agents that fell silent",
        "their power or a network",
    ),
    Shared(
        "power",
        _slowed("power", "power_brake", "hw_slowdown"),
        lambda t: t.hardware_span_s,
        "have GPUs slowed down for power",
        "the power of more than a node, and hardly the nodes",
        holds=True,
    ),
    Shared(
        "heat",
        _slowed("thermal", "thermal_slowdown"),
        lambda t: t.heat_span_s,
        "have GPUs slowed down for heat",
        "the cooling of more than a node, and hardly the nodes",
        alone=False,
        holds=True,
    ),
)

BY_NAME: Final[Mapping[str, Shared]] = {cause.name: cause for cause in SHARED}
# Kinds of findings that may be signs.
KINDS: Final = frozenset(
    (
        *("ib_down", "ib_flap", "rail_degraded", "xid", "sxid", "gpu_lost"),
        *("nvlink_degraded", "nvlink_errors", "agent_silent", "power", "thermal", "gpu_lag", "job_slow"),
    )
)
# Findings of which a shared cause takes the advice to drain: links, heat, power. Never what the hardware says itself.
HELD: Final = frozenset(
    ("ib_down", "ib_flap", "rail_degraded", "nvlink_degraded", "nvlink_errors", "power", "thermal", "gpu_lag")
)


def cause_of(finding: Finding) -> Shared | None:
    """Return the cause that a finding may be a sign of."""
    return next((cause for cause in SHARED if cause.signs(finding)), None) if finding["kind"] in KINDS else None
