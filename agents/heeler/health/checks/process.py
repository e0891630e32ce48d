"""Checks of processes: zombies that nobody reaps, threads that hang in the kernel, and daemons that must be there."""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.files import maybe, pids, read_bytes, uptime_s
from heeler.health.checks.findings import Findings
from heeler.health.model import Case, Check, Context, Evidence, Probe, Verdict

_TICKS = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of a task's flags
_LOOK_AGAIN_S = 1.0
_LAST_RUN = re.compile(r"^se\.exec_start\s*:\s*(\d+\.\d+)$", re.MULTILINE)
_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ZombiesSettings:
    """Processes that have ended and are not reaped."""

    older_than_s: float = 300.0  # since the process was started
    bad_count: int = 0  # so many are bad; 0: they are only warned of


@dataclass(frozen=True, slots=True)
class DstateSettings:
    """Threads that wait in the kernel and can't be interrupted."""

    warn_s: float = 60.0
    bad_s: float = 300.0
    names: tuple[str, ...] = ()  # patterns for names of processes; none: all
    kernel_threads: bool = False  # look at those too

    def validate(self) -> None:
        """Raise ConfigError for a pattern that is none."""
        for name in self.names:
            try:
                re.compile(name)
            except re.error as err:
                raise ConfigError(f"names: {name!r}: {err}") from None


@dataclass(frozen=True, slots=True)
class RunningProcessSettings:
    """Daemons that must be there."""

    names: tuple[str, ...]  # the name of the process, its program, or the script that it runs
    min_count: int = 1  # of each


def parse_stat(text: str) -> dict[str, Any] | None:
    """Return name, state, parent, flags and start of /proc/PID/stat; None for what is none. Names may hold anything."""
    head, mark, rest = text.rpartition(")")
    fields = rest.split()
    if not mark or "(" not in head or len(fields) < 20:
        return None
    try:
        return {
            "comm": head.partition("(")[2],
            "state": fields[0],
            "ppid": int(fields[1]),
            "flags": int(fields[6]),
            "start": int(fields[19]),
        }
    except ValueError:
        return None


def read_zombies(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """/proc/PID/stat of all processes; where there are zombies old enough, those still there a second later."""
    first, now_s = _zombies(context), uptime_s(context)
    oldest_s = max((now_s - one["start"] / _TICKS for one in first), default=-1.0)
    if oldest_s + _LOOK_AGAIN_S > min((one.older_than_s for one in asked), default=0.0):
        time.sleep(min(_LOOK_AGAIN_S, context.timeout_s / 4))
        again = {(one["pid"], one["start"]) for one in _zombies(context)}
        first = [one for one in first if (one["pid"], one["start"]) in again]
    return {"uptime_s": uptime_s(context), "zombies": first}


def _zombies(context: Context) -> list[dict[str, Any]]:
    found = []
    for pid in pids(context):
        stat = parse_stat(maybe(context.root / f"proc/{pid}/stat") or "")
        if stat and stat["state"] == "Z":
            parent = parse_stat(maybe(context.root / f"proc/{stat['ppid']}/stat") or "")
            found.append({"pid": pid, **stat, "parent": parent["comm"] if parent else None})
    return found


def judge_zombies(facts: Any, settings: ZombiesSettings, _case: Case) -> Verdict:
    """Warn: a process has ended, is old and is reaped by nobody. Bad: as many as `bad_count`."""
    found = Findings()
    old = []
    for one in facts["zombies"]:
        age_s = round(facts["uptime_s"] - one["start"] / _TICKS, 1)
        if age_s > settings.older_than_s:
            old.append((age_s, one))
    for age_s, one in sorted(old, key=lambda each: -each[0]):
        add = found.bad if settings.bad_count and len(old) >= settings.bad_count else found.warn
        parent = f"child of {one['parent'] or '?'} ({one['ppid']})"
        add(
            f"{one['comm']} ({one['pid']}) is a zombie, started {age_s:g} s ago, {parent}",
            Evidence("zombie_age", age_s, settings.older_than_s, "s", device=f"{one['pid']}", text=one["comm"]),
        )
    found.perf["zombies"] = len(facts["zombies"])
    return found.verdict(f"no zombie older than {settings.older_than_s:g} s")


def read_dstate(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/proc/PID/task/TID/stat, sched, status and wchan: who waits in the kernel, and since when it did not run."""
    first = _waiting(context)
    if first:
        time.sleep(min(_LOOK_AGAIN_S, context.timeout_s / 4))
        now = _waiting(context)
        # Who ran meanwhile waits for a disk that works; who is where it was hangs, for as long as is known.
        first = {key: one for key, one in now.items() if key in first and one["switches"] == first[key]["switches"]}
    return {"uptime_s": uptime_s(context), "waiting": list(first.values())}


def _waiting(context: Context) -> dict[str, dict[str, Any]]:
    found = {}
    for pid in pids(context):
        folder = context.root / f"proc/{pid}/task"
        try:
            threads = os.listdir(folder)  # noqa: PTH208 - names, not paths
        except OSError:
            continue
        for thread in threads:
            stat = parse_stat(maybe(folder / thread / "stat") or "")
            if stat and stat["state"] == "D":
                one = {"pid": pid, "tid": int(thread), **stat, **_where(folder / thread)}
                found[f"{thread} {stat['start']}"] = one
    return found


def _where(folder: Path) -> dict[str, Any]:
    last_run = _LAST_RUN.search(maybe(folder / "sched") or "")
    switches = [int(count) for count in _SWITCHES.findall(maybe(folder / "status") or "")]
    return {
        "last_run_s": float(last_run[1]) / 1e3 if last_run else None,
        "switches": sum(switches) if switches else None,
        "wchan": (maybe(folder / "wchan") or "").strip("0\n ") or None,
    }


def judge_dstate(facts: Any, settings: DstateSettings, _case: Case) -> Verdict:
    """Bad: a thread has waited for `bad_s` and can't be interrupted. Warn: for `warn_s`, or nobody knows how long."""
    found = Findings()
    patterns = [re.compile(name) for name in settings.names]
    mine = [
        one
        for one in facts["waiting"]
        if (settings.kernel_threads or not one["flags"] & _KERNEL_THREAD)
        and (not patterns or any(pattern.search(one["comm"]) for pattern in patterns))
    ]
    for one in mine:
        place = f"{one['comm']} ({one['tid']})" + (f" in {one['wchan']}" if one["wchan"] else "")
        shown = Evidence("uninterruptible", None, settings.bad_s, "s", device=str(one["tid"]), text=place)
        age_s = facts["uptime_s"] - one["start"] / _TICKS
        if one["last_run_s"] is None:
            if age_s >= settings.warn_s and one["switches"] is not None:
                found.warn(f"{place} hangs, for how long can't be read", shown)
            elif age_s >= settings.warn_s:
                found.unknown(f"{place}: whether it moves can't be read", shown)
            continue
        waits_s = round(min(max(facts["uptime_s"] - one["last_run_s"], 0.0), max(age_s, 0.0)), 1)
        shown = Evidence("uninterruptible", waits_s, settings.bad_s, "s", device=str(one["tid"]), text=place)
        if waits_s >= settings.bad_s:
            found.bad(f"{place} hangs since {waits_s:g} s", shown)
        elif waits_s >= settings.warn_s:
            found.warn(f"{place} hangs since {waits_s:g} s", shown)
    found.perf["uninterruptible"] = len(mine)
    return found.verdict("no thread hangs in the kernel")


def read_running(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/proc/PID/stat and cmdline of all processes."""
    names: dict[str, int] = {}
    for pid in pids(context):
        if pid == os.getpid():
            continue
        stat = parse_stat(maybe(context.root / f"proc/{pid}/stat") or "")
        if not stat or stat["state"] in "ZX" or stat["flags"] & _KERNEL_THREAD:
            continue
        for name in {stat["comm"], *_programs(context.root / f"proc/{pid}/cmdline")}:
            names[name] = names.get(name, 0) + 1
    return {"names": names}


def _programs(path: Path) -> set[str]:
    """Return the names of the program and of the script that it runs, if that is one."""
    try:
        words = read_bytes(path).decode(errors="replace").split("\0")
    except OSError:
        return set()
    found = {words[0].rpartition("/")[2]}
    script = next((word for word in words[1:3] if word and not word.startswith("-")), "")
    return found | ({script.rpartition("/")[2]} if "/" in script else set())


def judge_running(facts: Any, settings: RunningProcessSettings, _case: Case) -> Verdict:
    """Bad: a process of the list is not there, or fewer than `min_count`. A name is a whole name, not a part of one."""
    found = Findings()
    for name in settings.names:
        # The kernel keeps 15 characters of a name.
        count = facts["names"].get(name, 0) or facts["names"].get(name[:15], 0)
        if count < settings.min_count:
            shown = Evidence("processes", count, settings.min_count, device=name)
            found.bad(f"{name} does not run" if not count else f"{name}: only {count} of {settings.min_count}", shown)
    return found.verdict(f"{', '.join(settings.names)}: there")


ZOMBIES = Probe("zombies", read_zombies, timeout_s=5.0)
DSTATE = Probe("dstate", read_dstate, timeout_s=5.0)
RUNNING = Probe("processes", read_running, timeout_s=5.0)
CHECKS = (
    Check("zombies", "Processes that have ended are reaped.", ZOMBIES, judge_zombies, ZombiesSettings),
    Check("dstate", "No thread hangs in the kernel.", DSTATE, judge_dstate, DstateSettings),
    Check(
        "running_process",
        "Processes that must be there are.",
        RUNNING,
        judge_running,
        RunningProcessSettings,
        needs_settings=True,
    ),
)
