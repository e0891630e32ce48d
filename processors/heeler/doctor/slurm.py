"""Slurm, judged: reachable, and set so that a failing prolog drains its node and starts the job elsewhere."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heeler.doctor.model import Desk, Line
from heeler.slurm.nodes import Node

DESK = Desk("slurm")
TESTED = (22, 5)
OFFSET_WARN_S, OFFSET_BAD_S = 3.0, 60.0  # the controller's time is read to the second
NS_PER_S = 1_000_000_000
NO_TIMEOUT = 65_534
CHECK_EVERY_S = 60
SPARE_S = 10
UNSET = ("", "(null)", "none", "n/a")

Config = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Accounting:
    """Whether slurmdbd answers; None where it was not asked."""

    error: str | None = None
    queue: int | None = None  # messages that the controller keeps for it


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """What was read of Slurm."""

    error: str | None = None
    config: Config = field(default_factory=dict)
    ping: str = ""
    offset_s: float | None = None  # this machine's clock minus the controller's
    nodes: Sequence[Node] | None = None
    nodes_why: str = ""
    accounting: Accounting | None = None


def parse_config(text: str) -> dict[str, str]:
    """Return the settings of `scontrol show config`; the first of two that have one name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_\[\]/]*", key.strip()):
            found.setdefault(key.strip(), value.strip())
    return found


def words(value: str | None) -> list[str]:
    """Return the words of a list of settings, in small letters."""
    return [word.strip().lower() for word in re.split(r"[,;]", value or "") if word.strip().lower() not in UNSET]


def number(value: str | None) -> int | None:
    """Return the number that a setting begins with, such as 60 of `60 sec`."""
    match = re.match(r"\s*(\d+)", value or "")
    return int(match[1]) if match else None


def judge(facts: SlurmFacts, deadlines_s: Mapping[str, int]) -> Iterator[Line]:
    """Say how Slurm is. `deadlines_s`: how long our Prolog and Epilog may take."""
    if facts.error is not None:
        advice = "name its commands and slurm.conf (--slurm-bin, --slurm-conf), or run this where Slurm's commands work"
        yield DESK.bad("reachable", facts.error, advice)
        return
    config = facts.config
    yield from _controllers(facts.ping)
    yield _version(config.get("SLURM_VERSION"))
    yield _clock(facts.offset_s)
    yield from _accounting(config, facts.accounting)
    yield from _hooks(config)
    yield from _timeouts(config, deadlines_s)
    yield from _periodic(config)
    yield from _gres(config)
    yield from _cgroups(config)


def _controllers(ping: str) -> Iterator[Line]:
    found = re.findall(r"^Slurmctld\((\w+)\) at (\S+) is (\w+)", ping, re.MULTILINE)
    if not found:
        yield DESK.unknown("controllers", f"`scontrol ping` says {ping.strip()[:100]!r}")
    for role, host, state in found:
        if state == "UP":
            yield DESK.ok("controller", f"{role} {host} is up")
        else:
            yield DESK.bad("controller", f"{role} {host} is {state.lower()}", f"start slurmctld on {host}")


def _version(version: str | None) -> Line:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    if not match:
        return DESK.unknown("version", f"can't be read from {version!r}")
    if (int(match[1]), int(match[2])) < TESTED:
        return DESK.warn("version", f"Slurm {version}", "Heeler is tested with 22.05 and newer")
    return DESK.ok("version", f"Slurm {version}")


def _clock(offset_s: float | None) -> Line:
    if offset_s is None:
        return DESK.unknown("controller clock", "the time of its answer can't be read")
    says = f"this machine is about {offset_s:+.0f} s off the controller's clock"
    if abs(offset_s) > OFFSET_BAD_S:
        return DESK.bad("controller clock", says, "start chronyd or ntpd on both: munge refuses what is off by 300 s")
    if abs(offset_s) > OFFSET_WARN_S:
        return DESK.warn("controller clock", says, "let chronyd or ntpd correct it")
    return DESK.ok("controller clock", says)


def _accounting(config: Config, found: Accounting | None) -> Iterator[Line]:
    kind = config.get("AccountingStorageType", "")
    if "slurmdbd" not in kind:
        advice = "set AccountingStorageType=accounting_storage/slurmdbd for job records, accounts and QOS"
        yield DESK.warn("accounting", f"AccountingStorageType is {kind or 'not set'}", advice)
        return
    if found is None:
        yield DESK.unknown("accounting", "slurmdbd was not asked")
    elif found.error is not None:
        yield DESK.bad("accounting", f"slurmdbd does not answer: {found.error}", "start slurmdbd; look at its database")
    elif found.queue:
        says = f"the controller keeps {found.queue} messages for slurmdbd"
        yield DESK.warn("accounting", says, "if that grows, slurmdbd or its database can't keep up")
    else:
        yield DESK.ok("accounting", "slurmdbd answers")


def _hooks(config: Config) -> Iterator[Line]:
    flags = words(config.get("PrologFlags"))
    # Contain implies Alloc, and X11 implies Contain.
    if {"alloc", "contain", "x11"} & set(flags):
        yield DESK.ok("PrologFlags", f"{config['PrologFlags']}: the prolog runs when a job is given its nodes")
    else:
        says = (
            "without Alloc a prolog runs when the first step starts on a node: a job fails in place of starting later"
        )
        yield DESK.bad("PrologFlags", says, "set PrologFlags=Alloc (or Contain)")
    if "nohold_on_prolog_fail" in words(config.get("SchedulerParameters")):
        yield DESK.ok("nohold_on_prolog_fail", "a job whose prolog fails starts elsewhere")
    else:
        advice = "add nohold_on_prolog_fail to SchedulerParameters"
        yield DESK.bad("nohold_on_prolog_fail", "a job whose prolog fails is held until somebody releases it", advice)
    if number(config.get("JobRequeue")) == 0:
        says = "JobRequeue=0: a batch job whose prolog fails is lost unless it asked for --requeue"
        yield DESK.warn("JobRequeue", says, "set JobRequeue=1")
    user = config.get("SlurmdUser", "")
    if user and not user.startswith("root"):
        advice = "run slurmd as root, or leave killing and drains off"
        yield DESK.warn("SlurmdUser", f"prologs run as {user}: they can't see or end others' processes", advice)


def _timeouts(config: Config, deadlines_s: Mapping[str, int]) -> Iterator[Line]:
    for name, deadline_s in sorted(deadlines_s.items()):
        # One setting for both until 24.11, one each since.
        key = next((key for key in (f"{name}Timeout", "PrologEpilogTimeout") if key in config), "PrologEpilogTimeout")
        limit_s = number(config.get(key))
        what = f"{name} timeout"
        if limit_s is None or limit_s >= NO_TIMEOUT:
            yield DESK.ok(what, f"{key} is not set; our script gives up after {deadline_s} s by itself")
        elif limit_s <= deadline_s:
            advice = f"set {key} to {deadline_s + SPARE_S} or more, or HEELER_DEADLINE_S in the script to less"
            yield DESK.bad(what, f"{key}={limit_s} s, and our script may take {deadline_s} s: Slurm drains", advice)
        else:
            yield DESK.ok(what, f"{key}={limit_s} s, our script takes {deadline_s} s at most")


def _periodic(config: Config) -> Iterator[Line]:
    program = config.get("HealthCheckProgram", "")
    interval_s = number(config.get("HealthCheckInterval"))
    if program.lower() in UNSET:
        advice = "set HealthCheckProgram and HealthCheckInterval=300, or run checks by a timer"
        yield DESK.warn("HealthCheckProgram", "not set: nodes without jobs are not checked by Slurm", advice)
    elif not interval_s:
        says = f"{program} never runs: HealthCheckInterval is {config.get('HealthCheckInterval') or 'not set'}"
        yield DESK.bad("HealthCheckProgram", says, "set HealthCheckInterval=300")
    elif interval_s < CHECK_EVERY_S:
        says = f"{program} every {interval_s} s"
        yield DESK.warn("HealthCheckProgram", says, "300 s is enough: it takes time from jobs")
    else:
        yield DESK.ok("HealthCheckProgram", f"{program} every {interval_s} s")


def _gres(config: Config) -> Iterator[Line]:
    if "gpu" in words(config.get("GresTypes")):
        yield DESK.ok("GresTypes", "gpu")
    else:
        advice = "set GresTypes=gpu, and Gres= of the nodes"
        yield DESK.bad("GresTypes", "Slurm knows no GPUs: no job can be told to hold one", advice)
    if any(word.startswith("gres/gpu") for word in words(config.get("AccountingStorageTRES"))):
        yield DESK.ok("AccountingStorageTRES", "gres/gpu is accounted for")
    else:
        advice = "add gres/gpu to AccountingStorageTRES"
        yield DESK.warn("AccountingStorageTRES", "job records have no GPUs", advice)


def _cgroups(config: Config) -> Iterator[Line]:
    track, task = config.get("ProctrackType", ""), words(config.get("TaskPlugin"))
    if track == "proctrack/cgroup" and "task/cgroup" in task:
        yield DESK.ok("cgroups", f"{track}, {config.get('TaskPlugin')}")
    else:
        says = f"ProctrackType={track}, TaskPlugin={config.get('TaskPlugin')}: the job of a process can't be told"
        yield DESK.warn("cgroups", says, "set ProctrackType=proctrack/cgroup and TaskPlugin=task/cgroup,task/affinity")
    devices = config.get("ConstrainDevices", "").lower()
    if devices == "yes":
        yield DESK.ok("ConstrainDevices", "a job sees its own GPUs only")
    elif devices:
        advice = "set ConstrainDevices=yes in cgroup.conf"
        yield DESK.warn("ConstrainDevices", "a job can use the GPUs of others", advice)
    else:
        yield DESK.unknown("ConstrainDevices", "`scontrol show config` does not tell; look into cgroup.conf")
