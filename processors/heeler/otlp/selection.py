"""Which metrics go out: what a dashboard of a fleet needs, unless a site wants others."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from heeler.otlp.points import Points

# A third of the series of a node of 8 GPUs. Left out is what hardly changes (limits, modes, generations), the detail
# behind a sum (each NVLink, each kind of a PCIe error), and what tells of an overall state that is here already.
# A test holds this against the queries of all dashboards and alerts.
SELECTED: Final = (
    *("hw.status", "hw.power", "hw.energy", "hw.temperature", "hw.errors"),
    *("hw.gpu.utilization", "hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.network.*"),
    *("heeler.gpu.sm.active", "heeler.gpu.tensor.active", "heeler.gpu.dram.active"),
    *("heeler.gpu.clock.frequency", "heeler.gpu.slowdown.time", "heeler.gpu.job.info"),
    *("heeler.gpu.pcie.throughput", "heeler.gpu.pcie.replays", "heeler.gpu.pcie.width", "heeler.gpu.pcie.width.limit"),
    *("heeler.gpu.nvlink.throughput", "heeler.gpu.nvlink.errors"),
    *("heeler.gpu.nvlink.links", "heeler.gpu.nvlink.links_up"),
    *("heeler.gpu.remap.pending", "heeler.gpu.remap.failed", "heeler.gpu.remapped_rows"),
    *("heeler.mig.status", "heeler.mig.power", "heeler.mig.energy", "heeler.mig.errors", "heeler.mig.memory.*"),
    *("heeler.network.xmit_wait", "heeler.network.carrier.changes", "heeler.network.bond.*"),
    *("system.*", "heeler.host.pressure", "heeler.host.threads.*", "heeler.pcie.errors"),
    *("heeler.nvswitch.[!l]*",),  # all but heeler.nvswitch.link.*
    *("heeler.agent.memory.usage", "heeler.agent.cpu.time", "heeler.agent.clock.offset", "heeler.agent.spool.events"),
    *("heeler.agent.dropped_*", "heeler.agent.collector.up"),
    *("heeler.health.*", "heeler.slurm.*", "heeler.storage.*", "heeler.quota.*"),
    *("DCGM_*",),
)  # fmt: skip


class Selection:
    """Lets columns through whose metric is wanted. ``wanted`` are patterns, or the words ``selected`` and ``all``."""

    def __init__(self, wanted: Sequence[str], without: Sequence[str] = ()) -> None:
        self._wanted = tuple(pattern for word in wanted for pattern in _patterns(word))
        self._without = tuple(without)
        self._everything = self._wanted == ("*",) and not self._without
        self._known: dict[str, bool] = {}

    def keep(self, points: Points) -> Points | None:
        """Return the points that are wanted; None where none are."""
        if self._everything:
            return points
        columns = [column for column in points.columns if self._is_wanted(column[0].name)]
        if len(columns) == len(points.columns):
            return points
        points.columns = columns
        return points if columns else None

    def _is_wanted(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = _matches(name, self._wanted) and not _matches(name, self._without)
            self._known[name] = known
        return known


def _patterns(word: str) -> tuple[str, ...]:
    return {"selected": SELECTED, "all": ("*",)}.get(word, (word,))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
