"""The bus, judged: reachable, new enough, made as declared, open to this role, on time, and heard of by all agents."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import ROUTES, escape
from heeler.bus.subjects_gen import PREFIX
from heeler.doctor.model import Desk, Line

DESK = Desk("bus")
MIN_SERVER = (2, 10)
OFFSET_WARN_S, OFFSET_BAD_S = 1.0, 60.0
SILENT_S = 180.0
NS = 1_000_000_000

# What each role publishes. A test holds it against the writers in schemas/subjects.yaml.
WRITES: Mapping[str, tuple[str, ...]] = {
    "agent": (
        "GpuSample",
        "IbSample",
        "HostSample",
        "SwitchSample",
        "KernelEvent",
        "AgentStatus",
        "Inventory",
        # The agent forwards what heeler-health leaves in the outbox.
        "PrologEvent",
        "HealthResult",
        "HealthRun",
    ),
    "slurm": ("JobEvent", "NodeState", "ClusterState", "SlurmTable", "JobRecord"),
    "enrich": ("JobSample", "JobKernelEvent"),
    "detect": ("Finding",),
    "drain": ("DrainAction", "HealthRequest"),
}


@dataclass(frozen=True, slots=True)
class Made:
    """A stream or bucket: settings declared and found. `found` is None where there is none."""

    declared: Mapping[str, Any]
    found: Mapping[str, Any] | None
    why: str = ""  # why it could not be read


@dataclass(frozen=True, slots=True)
class BusFacts:
    """What was read of the bus."""

    servers: tuple[str, ...]
    error: str | None = None  # why it can't be reached
    version: str | None = None
    offset_s: float | None = None  # this machine's clock minus the server's
    within_s: float | None = None  # how exact that is
    permissions: Mapping[str, Any] | None = None  # as the server tells; empty: everything; None: not told
    streams: Mapping[str, Made] = field(default_factory=dict)
    buckets: Mapping[str, Made] = field(default_factory=dict)
    agents_ts_ns: Mapping[str, int] | None = None  # node -> when it was last heard, by the server's clock
    now_ns: int = 0


def judge(facts: BusFacts, role: str | None = None, cluster: str = "local", node: str = "NODE") -> Iterator[Line]:
    """Say how the bus is."""
    where = ", ".join(facts.servers)
    if facts.error is not None:
        advice = "start nats-server, or name the right one in [bus] servers or HEELER_NATS_URL; look at credentials"
        yield DESK.bad("reachable", f"no bus at {where}: {facts.error}", advice)
        return
    yield DESK.ok("reachable", where)
    yield _version(facts.version)
    yield _clock(facts)
    yield from _made("stream", facts.streams)
    yield from _made("bucket", facts.buckets)
    if role is not None:
        yield _permissions(facts.permissions, role, cluster, node)


def _version(version: str | None) -> Line:
    match = re.search(r"(\d+)\.(\d+)", version or "")
    if not match:
        return DESK.unknown("server version", f"can't be read from {version!r}")
    numbers = (int(match[1]), int(match[2]))
    if numbers < MIN_SERVER:
        return DESK.bad("server version", f"nats-server {version}", "update to 2.10 or newer: 2.9 ignores filters")
    return DESK.ok("server version", f"nats-server {version}")


def _clock(facts: BusFacts) -> Line:
    if facts.offset_s is None:
        advice = "let this user publish $SYS.REQ.USER.INFO"
        return DESK.unknown("clock", "the server does not tell its time", advice)
    says = f"this machine is {facts.offset_s:+.3f} s off the server's clock"
    within = facts.within_s or 0.0
    if abs(facts.offset_s) - within > OFFSET_BAD_S:
        return DESK.bad("clock", says, "start chronyd or ntpd: messages from the future are ignored")
    if abs(facts.offset_s) - within > OFFSET_WARN_S:
        return DESK.warn("clock", says, "let chronyd or ntpd correct it: ages and joins go by time")
    return DESK.ok("clock", says)


LIMITS = ("max_age", "max_bytes", "max_msgs_per_subject")


def _made(kind: str, all_made: Mapping[str, Made]) -> Iterator[Line]:
    fine, small = [], []
    for name, made in sorted(all_made.items()):
        what = f"{kind} {name}"
        if made.why:
            yield DESK.unknown(what, f"can't be read: {made.why}", "does this user have the right to ask?")
            continue
        if made.found is None:
            yield DESK.bad(what, "there is none", "run `heeler bus init`")
            continue
        differ = {key: made.found.get(key) for key, value in made.declared.items() if made.found.get(key) != value}
        smaller = [key for key in differ if key in LIMITS and _less(differ[key], made.declared[key])]
        changed = [key for key in differ if key not in LIMITS]
        shown = ", ".join(f"{key} is {differ[key]}, declared {made.declared[key]}" for key in sorted(differ))
        if changed:
            yield DESK.bad(what, shown, "run `heeler bus init` of the same release as the processes")
        elif smaller:
            small.append(f"{name} ({', '.join(f'{key} {differ[key]}' for key in sorted(smaller))})")
        else:
            fine.append(name)
    if small:
        says = f"keep less than declared: {', '.join(small)}"
        yield DESK.warn(f"{kind}s", says, "meant so on a small disk (--scale); otherwise run `heeler bus init`")
    if fine:
        yield DESK.ok(f"{kind}s", f"as declared: {', '.join(fine)}")


def _less(found: Any, declared: Any) -> bool:
    """Compare limits; none, 0 and -1 are no limit."""

    def bound(value: Any) -> float:
        return float(value) if isinstance(value, int | float) and value > 0 else float("inf")

    return bound(found) < bound(declared)


def _permissions(permissions: Mapping[str, Any] | None, role: str, cluster: str, node: str) -> Line:
    what = f"permissions of {role}"
    if permissions is None:
        return DESK.unknown(what, "the server does not tell", "let this user publish $SYS.REQ.USER.INFO")
    wanted = [subject_of(kind, cluster, node) for kind in WRITES[role]]
    denied = [subject for subject in wanted if not may_publish(permissions, subject)]
    if denied:
        return DESK.bad(what, f"may not publish {', '.join(denied)}", "see the templates in deploy/nats")
    return DESK.ok(what, f"may publish {len(wanted)} kinds of messages")


def subject_of(kind: str, cluster: str, node: str) -> str:
    """Return a subject of a type of message as this node would use it."""
    parts = ROUTES[kind].subject.split(".")
    tokens = [escape(node) if part == "<node>" else "x" if part.startswith("<") else part for part in parts]
    return ".".join([PREFIX, escape(cluster), *tokens])


def may_publish(permissions: Mapping[str, Any], subject: str) -> bool:
    """Say whether the permissions that the server told let a subject through. No list at all is everything."""
    rules = permissions.get("publish")
    if not isinstance(rules, Mapping):
        return True
    allow, deny = rules.get("allow") or (), rules.get("deny") or ()
    if any(matches(str(pattern), subject) for pattern in deny):
        return False
    return not allow or any(matches(str(pattern), subject) for pattern in allow)


def matches(pattern: str, subject: str) -> bool:
    """Say whether a subject falls under a pattern with `*` and `>`."""
    wanted, given = pattern.split("."), subject.split(".")
    for at, word in enumerate(wanted):
        if word == ">":
            return len(given) > at
        if at >= len(given) or word not in ("*", given[at]):
            return False
    return len(wanted) == len(given)


def judge_agents(facts: BusFacts, slurm_nodes: Sequence[str] | None) -> Iterator[Line]:
    """Hold the agents that the bus has heard against the nodes with GPUs that Slurm has."""
    what, heard = "agents", facts.agents_ts_ns
    if heard is None:
        yield DESK.unknown(what, "who was heard can't be read", "does this user have the right to read stream AGENTS?")
        return
    silent = {node: (facts.now_ns - ts_ns) / NS for node, ts_ns in heard.items()}
    silent = {node: age_s for node, age_s in silent.items() if age_s > SILENT_S}
    if slurm_nodes is None:
        says = f"{len(heard) - len(silent)} heard within {SILENT_S:.0f} s, {len(silent)} silent"
        yield DESK.unknown(what, f"{says}; which nodes there are is not known without Slurm")
        return
    missing = sorted(set(slurm_nodes) - set(heard))
    quiet = sorted(set(slurm_nodes) & set(silent))
    strangers = sorted(set(heard) - set(silent) - set(slurm_nodes))
    if missing:
        advice = "install and start heeler-agent there, with the node's name as Slurm has it"
        yield DESK.bad(what, f"never heard: {_some(missing)}", advice)
    if quiet:
        advice = "look at heeler-agent there: `systemctl status heeler-agent`"
        yield DESK.bad(what, f"silent for more than {SILENT_S:.0f} s: {_some(quiet)}", advice)
    if strangers:
        advice = "give agents the names that Slurm has (`node` in agent.toml)"
        yield DESK.warn(what, f"heard, but no node with GPUs of Slurm: {_some(strangers)}", advice)
    if not missing and not quiet:
        yield DESK.ok(what, f"heard from all {len(slurm_nodes)} nodes with GPUs")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
