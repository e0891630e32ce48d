"""The types of a health check.

A probe reads the machine; it may hang, fail or lie, so it runs in a child of its own. A check judges what was read: a
pure function that can be tested on values. What could not be read is `Unread`, and its checks say unknown.

A new check is one judge and one line in the table:

    Check("uptime", "The node has been up long enough.", UPTIME, judge_uptime, UptimeSettings)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

Value = str | int | float | bool | None


class Outcome(StrEnum):
    """What a check says. `unknown` is neither good nor bad: it could not tell. `off` was not asked."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNKNOWN = "unknown"
    OFF = "off"


class Phase(StrEnum):
    """What a run of checks is for."""

    PROLOG = "prolog"
    EPILOG = "epilog"
    TASK_PROLOG = "task_prolog"
    PERIODIC = "periodic"
    NAGIOS = "nagios"
    APP = "app"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen: what, its value, and what it was held against."""

    what: str
    value: Value = None
    limit: Value = None
    unit: str | None = None
    gpu_uuid: str | None = None
    gpu_index: int | None = None
    pci: str | None = None
    device: str | None = None  # port, disk, mount, process, service
    text: str | None = None  # the words it was read from


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says: the outcome, one sentence for people, and what it rests on."""

    outcome: Outcome
    why: str
    evidence: tuple[Evidence, ...] = ()
    gpus: tuple[str, ...] = ()  # UUIDs that it concerns
    perf: Mapping[str, float] = field(default_factory=dict)  # numbers for graphs, unit in the name


def ok(why: str, *evidence: Evidence, **perf: float) -> Verdict:
    """Return that all is well."""
    return Verdict(Outcome.OK, why, evidence, perf=perf)


def warn(why: str, *evidence: Evidence, **perf: float) -> Verdict:
    """Return that somebody should look at it."""
    return Verdict(Outcome.WARN, why, evidence, _gpus(evidence), perf)


def bad(why: str, *evidence: Evidence, **perf: float) -> Verdict:
    """Return that it is broken, on evidence."""
    return Verdict(Outcome.BAD, why, evidence, _gpus(evidence), perf)


def unknown(why: str, *evidence: Evidence, **perf: float) -> Verdict:
    """Return that it can't be told."""
    return Verdict(Outcome.UNKNOWN, why, evidence, perf=perf)


def _gpus(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.gpu_uuid for one in evidence if one.gpu_uuid))


Failure = Literal["missing", "denied", "failed", "unreadable", "timeout", "hung"]


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read, and why. `hung`: the child could not even be killed."""

    kind: Failure
    why: str


class ProbeError(Exception):
    """Raised by a probe that can't read what it is for."""

    def __init__(self, kind: Failure, why: str) -> None:
        super().__init__(why)
        self.kind: Failure = kind


@dataclass(frozen=True, slots=True)
class Job:
    """The Slurm job that a run is about, as its environment tells."""

    id: str
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    gpu_minors: tuple[int, ...] | None = None  # SLURM_JOB_GPUS: device minors, not NVML indices; None: not said
    gpu_uuids: tuple[str, ...] | None = None  # where the environment has UUIDs
    array_job_id: str | None = None
    array_task_id: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What a judge may know besides the facts: the run, not the machine."""

    phase: Phase
    node: str
    now_ns: int
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Where a probe reads. Everything is injectable, so that a folder of files can stand for a machine."""

    case: Case
    root: Path = Path("/")  # of proc, sys, etc and dev
    env: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None  # PATH of the tools; the environment's otherwise
    timeout_s: float = 10.0  # what is left for the probe


@dataclass(frozen=True, slots=True)
class Probe:
    """Reads a part of the machine, once for all checks that need it.

    `read(context, asked)` runs in a forked child; `asked` are the settings of the chosen checks that use the probe, so
    that it reads what they need (mounts, services, devices). It returns plain values (maps, lists, texts, numbers) and
    raises ProbeError for what it can't read. Its timeout ends it with everything it has started.
    A `library` that takes time to import is imported once, before the children of those that use it are forked.
    """

    name: str
    read: Callable[[Context, Sequence[Any]], Any]
    timeout_s: float = 10.0
    library: str | None = None


@dataclass(frozen=True, slots=True)
class NoSettings:
    """A check without settings."""


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """The settings of a check that nobody knows: whatever a policy says of it is left alone."""


Judge = Callable[[Any, Any, Case], Verdict]


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its probe's facts, judged. `judge(facts, settings, case)` is pure and quick.

    `hardware`: a bad outcome is positive evidence against the hardware, so a policy may let it fail a prolog.
    `needs_settings`: it means nothing without settings of the site (a list of mounts), so it is in no default profile.
    `hold_s`: what it finds may heal by itself; a periodic run drains only after so long, or what the policy says.
    """

    name: str
    about: str
    probe: Probe
    judge: Judge
    settings: type = NoSettings
    hardware: bool = False
    needs_settings: bool = False
    hold_s: float = 0.0
