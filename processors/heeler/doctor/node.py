"""This node, judged: scripts that nobody else can change, NVML, and what the agent and the service keep fresh."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heeler.doctor.model import Desk, Line
from heeler.health.breaker import Breaker

DESK = Desk("node")
DEADLINES_S = {"Prolog": 40, "Epilog": 90}  # of our scripts as they are delivered
HOOKS = ("Prolog", "Epilog", "HealthCheckProgram", "TaskProlog")
OUTBOX_WARN_S, OUTBOX_BAD_S = 60.0, 900.0
CACHE_AGE_S = 900.0
_DEADLINE = re.compile(r"^deadline_s=\$\{HEELER_DEADLINE_S:-(\d+)\}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A file that slurm.conf names."""

    path: str
    exists: bool = True
    executable: bool = True
    owner_uid: int = 0
    writable_by: tuple[str, ...] = ()  # the file and folders above it that others than root may change
    text: str = ""

    @property
    def ours(self) -> bool:
        """Say whether it calls heeler-health."""
        return "heeler" in self.text


@dataclass(frozen=True, slots=True)
class Nvml:
    """What NVML says: how many GPUs, or why it can't."""

    count: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outbox:
    """The folder in which heeler-health leaves messages for the agent."""

    path: str
    waiting: int = 0
    oldest_s: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Cache:
    """A file that `heeler-health serve` keeps fresh."""

    name: str
    path: str
    age_s: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What heeler-health makes of its policy here: what it enforces, or the faults for which it does nothing."""

    path: str
    enforced: Sequence[str] = ()
    faults: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was read of this node."""

    name: str
    programs: Mapping[str, str | None] = field(default_factory=dict)
    scripts: Mapping[str, Sequence[Script]] = field(default_factory=dict)
    nvml: Nvml | None = None
    gres_gpus: int | None = None
    outbox: Outbox | None = None
    caches: Sequence[Cache] = ()
    policy: Rules | None = None
    breaker: Breaker | None = None


def judge(facts: NodeFacts) -> Iterator[Line]:
    """Say how this node is."""
    for program, path in sorted(facts.programs.items()):
        if path is None:
            yield DESK.bad(program, "not installed", f"install the package of {program}")
        else:
            yield DESK.ok(program, path)
    for hook, scripts in facts.scripts.items():
        yield from _hook(hook, scripts)
    if facts.nvml is not None:
        yield _nvml(facts.nvml, facts.gres_gpus)
    if facts.outbox is not None:
        yield _outbox(facts.outbox)
    for cache in facts.caches:
        yield _cache(cache)
    if facts.policy is not None:
        yield _policy(facts.policy)
        if facts.breaker is not None:
            yield _breaker(facts.breaker, facts.policy.enforced)


def deadlines_s(scripts: Mapping[str, Sequence[Script]]) -> dict[str, int]:
    """Return how long our Prolog and Epilog may take: as their scripts say, else as they are delivered."""
    found = dict(DEADLINES_S)
    for hook in found:
        for script in scripts.get(hook, ()):
            if match := _DEADLINE.search(script.text):
                found[hook] = int(match[1])
    return found


def _hook(hook: str, scripts: Sequence[Script]) -> Iterator[Line]:
    if not scripts:
        if hook in DEADLINES_S:
            advice = f"set {hook} to the script in deploy/slurm"
            yield DESK.warn(hook, "not set: Heeler does not hear of jobs here at once, and checks nothing", advice)
        return
    for script in scripts:
        yield _script(hook, script)
    if hook in DEADLINES_S and not any(script.ours for script in scripts):
        advice = "call heeler-health from it as deploy/slurm does, or add our script"
        yield DESK.warn(hook, "none of its scripts calls heeler-health", advice)


def _script(hook: str, script: Script) -> Line:
    what = f"{hook} {script.path}"
    drains = "" if hook == "HealthCheckProgram" else ": jobs fail and nodes drain"
    if not script.exists:
        return DESK.bad(what, f"there is no such file{drains}", "install it on every node, or correct slurm.conf")
    if not script.executable:
        return DESK.bad(what, f"it can't be executed{drains}", f"chmod 755 {script.path}")
    if script.owner_uid != 0:
        says = f"it belongs to user {script.owner_uid}, who can become root with it"
        return DESK.bad(what, says, f"chown root:root {script.path}")
    if script.writable_by:
        says = f"others than root may change {', '.join(script.writable_by)}, and become root with it"
        return DESK.bad(what, says, "chmod go-w; keep it in a folder that only root may write")
    return DESK.ok(what, "executable, and only root may change it")


def _nvml(nvml: Nvml, gres_gpus: int | None) -> Line:
    if nvml.count is None:
        return DESK.bad("NVML", nvml.error or "no answer", "install the NVIDIA driver; try nvidia-smi")
    if gres_gpus is None:
        return DESK.unknown("NVML", f"{nvml.count} GPUs; how many Slurm has for this node is not known")
    if nvml.count != gres_gpus:
        says = f"NVML finds {nvml.count} GPUs, Slurm has {gres_gpus} for this node"
        return DESK.bad("NVML", says, "look for a lost GPU in the kernel log, or correct Gres= of the node")
    return DESK.ok("NVML", f"{nvml.count} GPUs, as many as Slurm has")


def _outbox(outbox: Outbox) -> Line:
    if outbox.error:
        return DESK.unknown("outbox", f"{outbox.path}: {outbox.error}", "heeler-health makes it at its first run")
    if not outbox.waiting:
        return DESK.ok("outbox", f"{outbox.path} is empty")
    age_s = outbox.oldest_s or 0.0
    says = f"{outbox.waiting} messages wait in {outbox.path}, the oldest for {age_s:.0f} s"
    advice = "is heeler-agent running, and connected to the bus? `systemctl status heeler-agent`"
    if age_s > OUTBOX_BAD_S:
        return DESK.bad("outbox", says, advice)
    return DESK.warn("outbox", says, advice) if age_s > OUTBOX_WARN_S else DESK.ok("outbox", says)


def _cache(cache: Cache) -> Line:
    advice = "start heeler-health.service: without it no failed prolog counts"
    if cache.age_s is None:
        return DESK.bad(cache.name, f"{cache.path}: {cache.error or 'not there'}", advice)
    if cache.age_s > CACHE_AGE_S:
        return DESK.bad(cache.name, f"{cache.path} is {cache.age_s:.0f} s old", advice)
    return DESK.ok(cache.name, f"{cache.path} is {cache.age_s:.0f} s old")


def _policy(policy: Rules) -> Line:
    if policy.faults:
        says = f"{policy.path}: {'; '.join(policy.faults)}"
        return DESK.bad("policy", says, "correct it (`heeler-health policy check`): until then no check runs")
    if not policy.enforced:
        return DESK.ok("policy", f"{policy.path}: nothing is enforced, so no check fails a job")
    return DESK.ok("policy", f"{policy.path}: enforced are {', '.join(policy.enforced)}")


def _breaker(breaker: Breaker, enforced: Sequence[str]) -> Line:
    if breaker.state == "open":
        advice = "look at what failed, then reset the breaker"
        return DESK.warn("breaker", f"open, so nothing is enforced: {breaker.why}", advice)
    if breaker.state == "closed":
        return DESK.ok("breaker", "closed")
    if enforced:
        advice = "start heeler-health.service on this node"
        return DESK.bad("breaker", f"not known, so nothing is enforced: {breaker.why}", advice)
    return DESK.ok("breaker", "not known, and nothing is to be enforced")
