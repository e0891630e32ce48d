"""The table of rules: which family of keys each lives in, what it reads, what it says, how far back it remembers.

A rule sees the columns of a sample that some rule has declared, and no others: what nobody declares is not decoded.

To add a rule: one file with its state class, a line here, thresholds with a reason in ``defaults.toml``, and tests
of its traps. A family's state calls its rules (see `step`); nothing else needs to know of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from heeler.bus import Choice
from heeler.detect import gpu_rule, held, links, slowdown, still, windows, xid
from heeler.detect.thresholds import Thresholds

Family = Literal["job", "node", "cluster"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `memory_s`: how far back a cold start must read so that the rule judges as a warm one does."""

    name: str
    family: Family
    reads: frozenset[str]
    says: frozenset[str]
    memory_s: Callable[[Thresholds], float]
    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)  # of a JobSample, by group


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        name="gpu_lag",
        family="job",
        reads=frozenset(("JobSample", "JobEvent", "JobKernelEvent", "Finding")),
        says=frozenset(("gpu_lag", "job_slow")),
        memory_s=lambda t: t.lag.memory_s,
        columns={
            "mean": frozenset(windows.MEANS),
            "last": frozenset((*windows.COUNTERS, *windows.STEADY, "mig_mode")),
            "gpu": frozenset(("index", "pci", "model", "parent")),
        },
    ),
    Rule(
        name="hang",
        family="job",
        reads=frozenset(("JobSample", "JobEvent", "Finding")),
        says=frozenset(("hang",)),
        memory_s=lambda t: t.hang.memory_s,
        columns={
            "mean": frozenset(still.MEANS),
            "last": frozenset(("power_limit_w",)),
            "gpu": frozenset(("index",)),
        },
    ),
    Rule(
        name="idle",
        family="job",
        reads=frozenset(("JobSample", "JobEvent", "Finding")),
        says=frozenset(("idle_allocation",)),
        memory_s=lambda t: t.idle.after_s + 120.0,
        columns={"mean": frozenset(("util_ratio", "power_w")), "gpu": frozenset(("parent",))},
    ),
    Rule(
        name="xid",
        family="node",
        reads=frozenset(
            ("JobKernelEvent", "JobSample", "NodeState", "JobEvent", "AgentStatus", "Inventory", "Finding")
        ),
        says=frozenset(("xid", "sxid", "gpu_lost", "ecc")),
        # What is older stands in findings, which are read back whatever their age.
        memory_s=lambda t: max(t.xid.burst_s, t.xid.soft_close_s, t.xid.lost_clear_s) + 60.0,
        columns={"last": xid.STATES, "gpu": frozenset(("parent",))},
    ),
    Rule(
        name="slowdown",
        family="node",
        reads=frozenset(("JobSample", "Finding")),
        says=frozenset(("thermal", "power")),
        memory_s=lambda t: gpu_rule.memory_s(slowdown.rules(t)),
        columns={"mean": slowdown.MEANS, "last": slowdown.LASTS, "gpu": frozenset(("index",))},
    ),
    Rule(
        name="links",
        family="node",
        reads=frozenset(("JobSample", "Finding")),
        says=frozenset(("pcie_degraded", "pcie_errors", "nvlink_degraded", "nvlink_errors")),
        memory_s=lambda t: gpu_rule.memory_s(links.rules(t)),
        columns={"mean": links.MEANS, "last": links.LASTS, "gpu": frozenset(("index",))},
    ),
    Rule(
        name="held",
        family="node",
        reads=frozenset(("JobSample", "JobEvent", "NodeState", "Finding")),
        says=frozenset(("leftover", "gpu_silent")),
        memory_s=lambda t: gpu_rule.memory_s(held.rules(t)),
        columns={"mean": held.MEANS, "last": held.LASTS, "gpu": frozenset(("index", "parent"))},
    ),
    Rule(
        name="missing",
        family="node",
        reads=frozenset(("JobSample", "Inventory", "NodeState", "Finding")),
        says=frozenset(("gpu_missing",)),
        memory_s=lambda t: max(t.missing.all_after_s, t.missing.clear_s) + 120.0,
        columns={"gpu": frozenset(("parent",))},
    ),
    Rule(
        name="ib",
        family="node",
        reads=frozenset(("IbSample", "NodeState", "JobEvent", "AgentStatus", "Finding")),
        says=frozenset(("ib_flap", "ib_down")),
        memory_s=lambda t: max(t.ib.flap_span_s, t.ib.flap_clear_s) + 60.0,
    ),
    Rule(
        name="rail_rate",
        family="node",
        reads=frozenset(("IbSample", "NodeState", "JobEvent", "Finding")),
        says=frozenset(("rail_degraded",)),
        memory_s=lambda t: max(2 * t.rail.after_s, t.rail.clear_s) + 120.0,
    ),
    Rule(
        name="rail_flow",
        family="job",
        reads=frozenset(("IbSample", "JobEvent", "Finding")),
        says=frozenset(("rail_slow",)),
        memory_s=lambda t: max(2 * t.rail.slow_after_s, t.rail.clear_s) + 300.0,
    ),
    Rule(
        name="clock",
        family="cluster",
        reads=frozenset(("AgentStatus", "Finding")),
        says=frozenset(("clock_skew",)),
        memory_s=lambda _t: 0.0,  # the newest status of each agent is read whatever its age
    ),
    Rule(
        name="agent_silent",
        family="cluster",
        reads=frozenset(("AgentStatus", "IbSample", "JobSample", "NodeState", "Finding")),
        says=frozenset(("agent_silent",)),
        memory_s=lambda t: 2 * max(t.agent.silent_after_s, t.agent.silent_intervals * t.agent.default_interval_s),
    ),
    Rule(
        name="together",
        family="cluster",
        reads=frozenset(("Finding", "NodeState", "SlurmTable")),
        says=frozenset(("incident",)),
        memory_s=lambda _t: 0.0,  # the newest word on each finding is read whatever its age
    ),
)

CHOICE: Final = Choice(
    keys=frozenset(("state", "several")),
    columns={
        group: frozenset().union(*(rule.columns.get(group, frozenset()) for rule in RULES))
        for group in ("mean", "last", "gpu")
    },
)

FAMILY_OF: Final[Mapping[str, Family]] = {kind: rule.family for rule in RULES for kind in rule.says}

NODE_KINDS: Final = tuple(kind for kind, family in FAMILY_OF.items() if family == "node")


def memory_s(thresholds: Thresholds) -> float:
    """Return the memory of all rules together."""
    return max(rule.memory_s(thresholds) for rule in RULES)


def memory_of(kind: str, thresholds: Thresholds) -> float:
    """Return how far back messages of one kind are needed; 0 for a kind that no rule reads."""
    return max((rule.memory_s(thresholds) for rule in RULES if kind in rule.reads), default=0.0)
