"""Checks of the kernel's log: links that flap, disks that fail, machine checks, PCIe errors, kills for memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.health.checks.files import maybe, maybe_int, maybe_names, uptime_s
from heeler.health.checks.findings import Findings
from heeler.health.checks.pcie import gpus_by_address
from heeler.health.kmsg import read_log
from heeler.health.kmsg_words import events_of, plain
from heeler.health.model import Case, Check, Context, Evidence, Probe, Verdict

_MOST_EVENTS = 20_000
_LEAST_REACH_US = 600 * 1_000_000
_INFINIBAND = 32  # ARPHRD_INFINIBAND of the kernel's net types


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How far back the log is looked through."""

    window_s: float = 3600.0  # 0: as far back as the log reaches


@dataclass(frozen=True, slots=True)
class LinkFlapsSettings:
    """Links that go down again and again."""

    window_s: float = 3600.0  # 0: as far back as the log reaches
    settle_s: float = 300.0  # after boot, when links come up, nothing counts
    warn_downs: int = 1  # of one interface
    rdma_bad_downs: int = 3  # of one InfiniBand or RoCE interface; 0: never bad
    ethernet_bad_downs: int = 0  # of one other interface; 0: never bad
    ignore: tuple[str, ...] = ()  # interfaces that may go down


@dataclass(frozen=True, slots=True)
class IoErrorsSettings:
    """Disks that fail."""

    window_s: float = 0.0  # 0: as far back as the log reaches
    bad_errors: int = 1  # of one device
    ignore: tuple[str, ...] = ("fd", "sr", "loop", "ram", "zram")  # beginnings of names of devices without worth


@dataclass(frozen=True, slots=True)
class MceSettings:
    """Machine checks."""

    window_s: float = 0.0  # 0: as far back as the log reaches
    warn_corrected: int = 1
    bad_corrected: int = 0  # 0: corrected ones are never bad


@dataclass(frozen=True, slots=True)
class PcieAerSettings:
    """Errors of PCIe in the log."""

    window_s: float = 0.0  # 0: as far back as the log reaches
    warn_corrected: int = 10  # of one device
    bad_nonfatal: int = 1  # of one device


def read_kernel_log(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/dev/kmsg (records of the kernel's own only) and /sys/class/net."""
    log = read_log(context)
    now_us = int(uptime_s(context) * 1e6)
    lines = ((record.mono_us, record.text) for record in log.records if record.kernel)
    events = [plain(event, mono_us) for mono_us, event in events_of(lines)]
    return {
        "now_us": now_us,
        "covers_us": log.covers_us(now_us),
        "lost": log.lost,
        "events": events[-_MOST_EVENTS:],
        "nets": _nets(context.root),
        "gpus": gpus_by_address(context.root),
    }


def _nets(root: Path) -> dict[str, str]:
    """Return interface or PCI address -> rdma, ethernet or virtual. A RoCE interface belongs to an RDMA device."""
    found: dict[str, str] = {}
    folder = root / "sys/class/net"
    rdma = {
        net
        for device in maybe_names(root / "sys/class/infiniband") or ()
        for net in maybe_names(root / "sys/class/infiniband" / device / "device/net") or ()
    }
    for name in maybe_names(folder) or ():
        kind = maybe_int(folder / name / "type")
        if name in rdma or kind == _INFINIBAND:
            found[name] = "rdma"
        else:
            found[name] = "ethernet" if (folder / name / "device").exists() else "virtual"
        address = _address(folder / name / "device/uevent")
        if address and found.get(address) != "rdma":
            found[address] = found[name]
    return found


def _address(uevent: Path) -> str | None:
    for line in (maybe(uevent) or "").splitlines():
        if line.startswith("PCI_SLOT_NAME="):
            return line.partition("=")[2].lower()
    return None


@dataclass(frozen=True, slots=True)
class _Window:
    events: list[dict[str, Any]]
    complete: bool
    words: str


def _within(facts: Mapping[str, Any], window_s: float, *whats: str) -> _Window:
    now_us, covers_us = facts["now_us"], facts["covers_us"]
    since_us = max(now_us - window_s * 1e6, 0) if window_s else 0
    events = [event for event in facts["events"] if event["what"] in whats and event["mono_us"] >= since_us]
    if not window_s:
        # A log that has lost all but its last minutes shows nothing of the time since boot.
        return _Window(events, covers_us >= min(_LEAST_REACH_US, now_us), f"the kernel's log of {_span(covers_us)}")
    complete = covers_us >= min(window_s * 1e6, now_us) - 1e6
    return _Window(events, complete, f"the kernel's log of the last {_span(min(window_s * 1e6, now_us))}")


def _span(microseconds: float) -> str:
    seconds = microseconds / 1e6
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {word}"
    return f"{seconds:.0f} s"


def _age_s(facts: Mapping[str, Any], event: Mapping[str, Any]) -> float:
    return round(float(max(facts["now_us"] - event["mono_us"], 0)) / 1e6, 1)


def _evidence(
    facts: Mapping[str, Any], event: Mapping[str, Any], what: str, count: int, limit: int | None = None
) -> Evidence:
    text = f"{_age_s(facts, event):g} s ago: {event['text']}"
    return Evidence(
        what, count, limit, device=event["device"] or None, gpu_uuid=facts["gpus"].get(event["device"]), text=text
    )


def _done(found: Findings, facts: Mapping[str, Any], window: _Window, well: str) -> Verdict:
    """Return the verdict. A log that has lost its older lines does not show that nothing happened in the window."""
    found.perf["log_covers_s"] = round(facts["covers_us"] / 1e6, 1)
    if not window.complete:
        found.unknown(f"older lines are overwritten: the kernel's log goes back only {_span(facts['covers_us'])}")
    return found.verdict(f"{well} in {window.words}")


def judge_link_flaps(facts: Any, settings: LinkFlapsSettings, _case: Case) -> Verdict:
    """Warn: a link of real hardware went down. Bad: one for RDMA did so several times. Names are those of sysfs."""
    window = _within(facts, settings.window_s, "link_down")
    nets, found = facts["nets"], Findings()
    downs = [
        event
        for event in window.events
        if event["mono_us"] >= settings.settle_s * 1e6 and nets.get(event["device"], "virtual") != "virtual"
    ]
    for device, count in Counter(event["device"] for event in downs).items():
        if device in settings.ignore:
            continue
        last = next(event for event in reversed(downs) if event["device"] == device)
        limit = settings.rdma_bad_downs if nets[device] == "rdma" else settings.ethernet_bad_downs
        why = f"{device} ({nets[device]}) went down {count} times, last {_age_s(facts, last):g} s ago"
        if limit and count >= limit:
            found.bad(why, _evidence(facts, last, "link_downs", count, limit))
        elif count >= settings.warn_downs:
            found.warn(why, _evidence(facts, last, "link_downs", count, settings.warn_downs))
    found.perf["link_downs"] = len(downs)
    return _done(found, facts, window, "no link went down")


def judge_io_errors(facts: Any, settings: IoErrorsSettings, _case: Case) -> Verdict:
    """Bad: a disk, or the file system on it, could not read or write. Warn: fewer times than `bad_errors`."""
    window, found = _within(facts, settings.window_s, "io"), Findings()
    mine = [event for event in window.events if not event["device"].startswith(settings.ignore)]
    for device, count in Counter(event["device"] for event in mine).items():
        last = next(event for event in reversed(mine) if event["device"] == device)
        add = found.bad if count >= settings.bad_errors else found.warn
        add(
            f"{device}: {count} errors, last: {last['severity']}",
            _evidence(facts, last, "io_errors", count, settings.bad_errors),
        )
    found.perf["io_errors"] = len(mine)
    return _done(found, facts, window, "no disk failed")


def judge_mce(facts: Any, settings: MceSettings, _case: Case) -> Verdict:
    """Bad: an uncorrected error of processor or memory. Warn: corrected ones."""
    window, found = _within(facts, settings.window_s, "mce"), Findings()
    uncorrected = [event for event in window.events if event["severity"] == "uncorrected"]
    corrected = len(window.events) - len(uncorrected)
    if uncorrected:
        last = uncorrected[-1]
        found.bad(
            f"{len(uncorrected)} uncorrected hardware errors",
            _evidence(facts, last, "uncorrected", len(uncorrected), 0),
        )
    if corrected:
        last = next(event for event in reversed(window.events) if event["severity"] != "uncorrected")
        limit = settings.bad_corrected
        if limit and corrected >= limit:
            found.bad(f"{corrected} corrected hardware errors", _evidence(facts, last, "corrected", corrected, limit))
        elif corrected >= settings.warn_corrected:
            found.warn(
                f"{corrected} corrected hardware errors",
                _evidence(facts, last, "corrected", corrected, settings.warn_corrected),
            )
    found.perf |= {"uncorrected": len(uncorrected), "corrected": corrected}
    return _done(found, facts, window, "no machine check")


def judge_pcie_aer(facts: Any, settings: PcieAerSettings, _case: Case) -> Verdict:
    """Bad: a fatal error of a PCIe device, or `bad_nonfatal` uncorrected ones. Warn: many corrected ones."""
    window, found = _within(facts, settings.window_s, "aer"), Findings()
    for (device, severity), count in Counter((event["device"], event["severity"]) for event in window.events).items():
        last = next(
            event for event in reversed(window.events) if (event["device"], event["severity"]) == (device, severity)
        )
        limit = {"corrected": settings.warn_corrected, "fatal": 1}.get(severity, settings.bad_nonfatal)
        if count < limit:
            continue
        add = found.warn if severity == "corrected" else found.bad
        add(f"{device}: {count} {severity} PCIe errors", _evidence(facts, last, f"pcie_{severity}", count, limit))
    found.perf["pcie_errors"] = len(window.events)
    return _done(found, facts, window, "no PCIe errors beyond the limits")


def judge_oom(facts: Any, settings: LogSettings, _case: Case) -> Verdict:
    """Warn: the machine itself ran out of memory. What a job's own limit does to that job is only counted."""
    window, found = _within(facts, settings.window_s, "oom"), Findings()
    machine = [event for event in window.events if event["severity"] == "machine"]
    if machine:
        last = machine[-1]
        why = f"the machine ran out of memory and killed {len(machine)} processes, last {last['device']}"
        found.warn(why, _evidence(facts, last, "oom_kills", len(machine), 0))
    limits = len(window.events) - len(machine)
    found.perf |= {"oom_kills_machine": len(machine), "oom_kills_limit": limits}
    return _done(found, facts, window, f"the machine did not run out of memory ({limits} kills by a group's own limit)")


KERNEL_LOG = Probe("kernel_log", read_kernel_log, timeout_s=5.0)
CHECKS = (
    Check("link_flaps", "Network links stay up.", KERNEL_LOG, judge_link_flaps, LinkFlapsSettings),
    Check(
        "io_errors",
        "Disks and their file systems read and write.",
        KERNEL_LOG,
        judge_io_errors,
        IoErrorsSettings,
        hardware=True,
    ),
    Check("mce", "Processor and memory report no hardware errors.", KERNEL_LOG, judge_mce, MceSettings, hardware=True),
    Check(
        "pcie_aer",
        "PCIe devices report no errors in the kernel's log.",
        KERNEL_LOG,
        judge_pcie_aer,
        PcieAerSettings,
        hardware=True,
    ),
    Check("oom", "The machine has not run out of memory.", KERNEL_LOG, judge_oom, LogSettings),
)
