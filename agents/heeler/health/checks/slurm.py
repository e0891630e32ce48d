"""Checks of Slurm as a node sees it: its controllers, its own state, and how much of the cluster is there."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.checks.findings import Findings
from heeler.health.checks.tool import run_tool
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

_PING = re.compile(r"^Slurmctld\((?P<roles>[\w/ -]+)\) at (?P<hosts>\S+) (?:is|are) (?P<states>[\w/]+)", re.MULTILINE)
# Not there by plan: powered down to save power, or not yet bought.
_PLANNED = frozenset(("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"))


@dataclass(frozen=True, slots=True)
class SlurmctldCountSettings:
    """How many controllers should answer."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class NodeSlurmStateSettings:
    """The node's own state."""

    node: str = ""  # its name in Slurm; empty: this node's
    bad: tuple[str, ...] = ()  # base states and flags that are bad: DOWN, DRAIN, FAIL, NOT_RESPONDING ...


@dataclass(frozen=True, slots=True)
class ClusterAvailabilitySettings:
    """How much of the cluster may be out of service."""

    warn_percent: float = 15.0
    bad_percent: float = 25.0


def read_ping(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """Scontrol ping."""
    done = run_tool(context, ("scontrol", "ping"))
    found = parse_ping(done.stdout)
    if not found:
        raise done.failed() if done.rc else ProbeError("unreadable", f"scontrol ping: {done.stdout!r:.100}")
    return {"controllers": found}


def parse_ping(text: str) -> list[list[str]]:
    """Return role, host and state of each controller. Before 20.11 one line had them all, with slashes."""
    found = []
    for line in _PING.finditer(text):
        roles, hosts, states = (line[part].split("/") for part in ("roles", "hosts", "states"))
        if not len(roles) == len(hosts) == len(states):
            raise ProbeError("unreadable", f"scontrol ping: {line[0]!r:.100}")
        found += [list(each) for each in zip(roles, hosts, states, strict=True)]
    return found


def judge_slurmctld_count(facts: Any, settings: SlurmctldCountSettings, _case: Case) -> Verdict:
    """Bad: fewer controllers answer than should."""
    found = Findings()
    up = [one for one in facts["controllers"] if one[2] == "UP"]
    text = ", ".join(f"{role} {host} {state}" for role, host, state in facts["controllers"])
    if len(up) < settings.count:
        found.bad(
            f"{len(up)} of {settings.count} controllers answer ({text})",
            Evidence("slurmctld", len(up), settings.count, text=text),
        )
    found.perf["slurmctld_up"] = len(up)
    return found.verdict(f"{len(up)} controllers answer")


def read_node_state(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Scontrol show node of this node."""
    # Not at the top: most runs have no such check, and the parsers take time to import.
    from heeler.slurm.errors import ParseError  # noqa: PLC0415
    from heeler.slurm.nodes import parse_nodes_text  # noqa: PLC0415
    from heeler.slurm.times import local_zone  # noqa: PLC0415

    found = {}
    for name in dict.fromkeys(one.node or context.case.node for one in asked):
        if not re.fullmatch(r"[\w.-]+", name) or name.startswith("-"):
            raise ProbeError("failed", f"{name!r} is no name of a node")
        done = run_tool(context, ("scontrol", "--oneliner", "show", "node", name)).checked()
        try:
            answer = parse_nodes_text(done.stdout, local_zone())
        except ParseError as err:
            raise ProbeError("unreadable", f"scontrol show node: {err}") from None
        nodes = [one for one in answer.nodes if one.name == name]
        if len(nodes) != 1:
            raise ProbeError("unreadable", f"scontrol show node {name}: {done.stdout!r:.100}")
        state = nodes[0].state
        found[name] = {
            "base": state.base,
            "flags": list(state.flags),
            "available": state.available,
            "unknown": [*state.unknown_flags, *([state.unparsed] if state.unparsed else [])],
            "reason": nodes[0].reason,
            "reason_user": nodes[0].reason_user,
        }
    return {"nodes": found}


def judge_node_slurm_state(facts: Any, settings: NodeSlurmStateSettings, case: Case) -> Verdict:
    """Warn: the node is out of service for jobs: down, drained, in maintenance ... Bad: by the settings."""
    found = Findings()
    one = facts["nodes"][settings.node or case.node]
    said = "+".join((one["base"], *one["flags"]))
    reason = f": {one['reason']} [{one['reason_user']}]" if one["reason"] else ""
    shown = Evidence("slurm_state", said, text=one["reason"])
    wanted = {each.upper() for each in settings.bad}
    if wanted & {one["base"], *one["flags"]}:
        found.bad(f"{said}{reason}", shown)
    elif one["available"] is None:
        found.unknown(f"{said}{reason}", shown)
    elif not one["available"]:
        found.warn(f"{said}{reason}", shown)
    if one["unknown"]:
        found.unknown(f"{said}: {', '.join(one['unknown'])} is not known", shown)
    return found.verdict(said, shown)


def read_cluster(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """Sinfo of all nodes, each counted once."""
    from heeler.slurm.errors import ParseError  # noqa: PLC0415
    from heeler.slurm.state import parse_node_state  # noqa: PLC0415

    done = run_tool(context, ("sinfo", "--all", "--noheader", "--Node", "--format=%N|%T")).checked()
    nodes = {}
    for line in done.stdout.splitlines():
        name, mark, text = line.strip().partition("|")
        if not mark and not name:
            continue
        try:
            state = parse_node_state(text)
        except ParseError as err:
            raise ProbeError("unreadable", f"sinfo: {line!r:.100}: {err}") from None
        nodes[name] = _kind(state.base, frozenset(state.flags), state.available)
    return {"kinds": dict(Counter(nodes.values()))}


def _kind(base: str, flags: frozenset[str], available: bool | None) -> str:
    if base == "FUTURE" or flags & _PLANNED:
        return "planned"
    if available is None:
        return "unknown"
    return "available" if available else "maintenance" if "MAINTENANCE" in flags else "unavailable"


def judge_cluster_availability(facts: Any, settings: ClusterAvailabilitySettings, _case: Case) -> Verdict:
    """Bad or warn: too many nodes are down or drained. Powered-down nodes and planned maintenance are not counted.

    Unknown: there is no node at all, or too many are in a state that is not known.
    """
    kinds = facts["kinds"]
    away, unclear = kinds.get("unavailable", 0), kinds.get("unknown", 0)
    total = away + unclear + kinds.get("available", 0)
    if not total:
        return unknown("Slurm lists no node that should be there")
    found, percent = Findings(), round(100 * away / total, 1)
    found.perf["unavailable_percent"] = percent
    said = f"{away} of {total} nodes are out of service ({percent:g} %)"
    if percent > settings.bad_percent:
        found.bad(said, Evidence("unavailable", percent, settings.bad_percent, "%"))
    elif percent > settings.warn_percent:
        found.warn(said, Evidence("unavailable", percent, settings.warn_percent, "%"))
    if not found.seen and 100 * (away + unclear) / total > settings.warn_percent:
        found.unknown(f"{unclear} of {total} nodes are in a state that is not known", Evidence("unknown", unclear))
    return found.verdict(said)


CHECKS = (
    Check(
        "slurmctld_count",
        "Slurm's controllers answer.",
        Probe("slurm_ping", read_ping, timeout_s=15.0),
        judge_slurmctld_count,
        SlurmctldCountSettings,
    ),
    Check(
        "node_slurm_state",
        "Slurm has the node in service.",
        Probe("slurm_node", read_node_state, timeout_s=15.0),
        judge_node_slurm_state,
        NodeSlurmStateSettings,
    ),
    Check(
        "cluster_availability",
        "Most of the cluster is in service.",
        Probe("slurm_cluster", read_cluster, timeout_s=30.0),
        judge_cluster_availability,
        ClusterAvailabilitySettings,
    ),
)
