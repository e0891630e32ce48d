"""What happened to one node in four weeks, as far as it tells good nodes from lemons. Bounded, and pure.

The features are those of a published study of two large clusters: jobs that exclude the node, kinds of XID, tickets,
times out of service, jobs of several nodes and of this node alone that it ended, and how often the latter is.

A job of many nodes that Slurm ends for a failed node says nothing of most of them: it counts for the node that was in
trouble of its own around that time. What takes many nodes out at once is nobody's own trouble.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heeler.detect.findings import SECOND_NS
from heeler.lemon.settings import LemonSettings

DAY_NS = 86_400 * SECOND_NS
MOST = 64  # of each kind: far above every limit
MOST_JOBS = 512
FEATURES = (
    "xid_kinds",
    "out_of_service",
    "tickets",
    "multi_node_failures",
    "single_node_failures",
    "excluded_by_jobs",
)
WORDS = {
    "xid_kinds": "{} kinds of XID",
    "out_of_service": "{} times out of service",
    "tickets": "{} tickets",
    "multi_node_failures": "{} jobs of several nodes lost",
    "single_node_failures": "{} jobs of its own lost",
    "excluded_by_jobs": "excluded by {} jobs",
}


@dataclass(slots=True)
class Score:
    """The features of a node, and which are above their limit."""

    values: dict[str, int]
    over: list[str]
    single_jobs: int
    first_ts: int

    @property
    def failure_ratio(self) -> float | None:
        """Share of the jobs that had this node alone and were lost; None without any."""
        return self.values["single_node_failures"] / self.single_jobs if self.single_jobs else None


@dataclass(slots=True)
class History:
    """Times are those of the bus server, by what tells one happening from another."""

    xids: dict[str, int] = field(default_factory=dict)  # newest of each code
    outs: dict[str, int] = field(default_factory=dict)
    tickets: dict[str, int] = field(default_factory=dict)
    multi: dict[str, int] = field(default_factory=dict)
    single: dict[str, int] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    suspects: dict[str, int] = field(default_factory=dict)  # lost jobs of several nodes, whose culprit is not known
    doubtful: dict[str, int] = field(default_factory=dict)  # jobs of this node alone that failed, for whatever reason
    ended: dict[str, int] = field(default_factory=dict)  # jobs that had this node alone, newest ones
    days: dict[int, int] = field(default_factory=dict)  # how many of them by day
    trouble_ns: int = 0  # newest trouble of its own
    out: bool | None = None

    def trouble(self, ts: int, t: LemonSettings) -> None:
        """Note trouble of its own: jobs that were lost around it were lost by it."""
        self.trouble_ns = max(self.trouble_ns, ts)
        near_ns = int(t.around_s * SECOND_NS)
        for waiting, lost in ((self.suspects, self.multi), (self.doubtful, self.single)):
            for run in [run for run, at in waiting.items() if abs(ts - at) <= near_ns]:
                keep(lost, run, waiting.pop(run))

    def lost(self, run: str, ts: int, nodes: int, *, by_node: bool, t: LemonSettings) -> None:
        """Note a job that ended in failure. `by_node`: Slurm says that a node failed."""
        near = self.trouble_ns and ts - self.trouble_ns <= t.around_s * SECOND_NS
        if nodes == 1:
            keep(self.single if by_node or near else self.doubtful, run, ts)
        elif by_node:
            keep(self.multi if near else self.suspects, run, ts)

    def ran(self, run: str, ts: int) -> None:
        """Note a job that had this node alone and ended, however."""
        if run in self.ended:
            return
        keep(self.ended, run, ts, MOST_JOBS)
        self.days[ts // DAY_NS] = self.days.get(ts // DAY_NS, 0) + 1

    def note_out(self, ts: int) -> None:
        """Note that it went out of service."""
        keep(self.outs, str(ts), ts)

    def note_tickets(self, tickets: Sequence[str], ts: int) -> None:
        """Note tickets that Slurm's reason names."""
        for ticket in tickets:
            keep(self.tickets, ticket, self.tickets.get(ticket, ts))

    def note_excluded(self, job: str, ts: int) -> None:
        """Note that a job was submitted so that it would not run here."""
        keep(self.excluded, job, ts)

    def forget(self, since_ns: int) -> None:
        """Drop what is older."""
        for known in (
            self.xids, self.outs, self.tickets, self.multi, self.single, self.excluded, self.suspects, self.doubtful,
            self.ended,
        ):  # fmt: skip
            for name in [name for name, ts in known.items() if ts <= since_ns]:
                del known[name]
        for day in [day for day in self.days if (day + 1) * DAY_NS <= since_ns]:
            del self.days[day]

    def score(self, t: LemonSettings, masses: Sequence[tuple[int, int]]) -> Score:
        """Hold the features against their limits. `masses`: when many nodes went out of service at once."""
        own = [ts for ts in self.outs.values() if not any(begin <= ts <= end for begin, end in masses)]
        counted: Mapping[str, int] = {
            "xid_kinds": len(self.xids),
            "out_of_service": len(own),
            "tickets": len(self.tickets),
            "multi_node_failures": len(self.multi),
            "single_node_failures": len(self.single),
            "excluded_by_jobs": len(self.excluded),
        }
        over = [name for name in FEATURES if counted[name] >= getattr(t, name)]
        ran = max(sum(self.days.values()), len(self.single))
        if "single_node_failures" in over and len(self.single) < t.single_node_failure_ratio * ran:
            over.remove("single_node_failures")
        told = [*own, *(ts for known in (self.xids, self.multi, self.single) for ts in known.values())]
        return Score(dict(counted), over, ran, min(told, default=0))


def keep(known: dict[str, int], name: str, ts: int, most: int = MOST) -> None:
    """Remember the newest of something; of too many the oldest goes."""
    known[name] = max(ts, known.get(name, 0))
    if len(known) > most:
        del known[min(known, key=lambda other: (known[other], other))]
