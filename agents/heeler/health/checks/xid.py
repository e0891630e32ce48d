"""XIDs of the node's GPUs since boot: which of them, how often, how long ago, and whether they still count.

What a code means is the table of detection (heeler/detect/xid.toml), so that a prolog and a finding agree. An error of
a program never counts. One of the hardware counts until the driver was loaded again, or the site says by a file that
it was dealt with: a reset of a GPU leaves no line in the log.
"""

import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from heeler.health.checks.files import uptime_s
from heeler.health.checks.findings import Findings
from heeler.health.checks.pcie import address_of, gpus_by_address
from heeler.health.gpu_map import by_driver
from heeler.health.kmsg import Record, read_log
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

# With and without PCI:, with a function or not, with what MIG adds: the driver has written all of these. At the
# beginning only, behind the kernel's own brackets: a device or a process may have a name that looks like one.
_XID = re.compile(
    r"^(?:\[[^\]]{0,40}\]\s*)*NVRM:\s*(?:GPU\d+\s+)?Xid\s*\((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?[^)]*\):\s*(\d{1,5})\b(.*)"
)
_LOADED = re.compile(r"NVRM: loading NVIDIA UNIX")
# The number counts: the words for it differ between drivers.
_RECOVERY = re.compile(r"changed from \S+ \([^)]*\) to (0x[0-9a-fA-F]+|\d+)\b")
_MOST_EVENTS = 5000
RECOVERY_ACTION = 154


@dataclass(frozen=True, slots=True)
class XidSettings:
    """Which XIDs count."""

    window_s: float = 0.0  # 0: since boot
    least_reach_s: float = 3600.0  # a log that has been overwritten since says nothing; a long one is believed so far
    repeats: int = 3  # of one that counts on repetition only
    ignore: tuple[int, ...] = ()
    bad: tuple[int, ...] = ()  # codes that the site wants to count in any case
    resolved_file: str | None = None  # XIDs from before its last change are dealt with
    any_facility: bool = False  # believe lines that the kernel has not written itself: for tests


def read_xids(context: Context, asked: Sequence[XidSettings]) -> dict[str, Any]:
    """Return the XIDs of /dev/kmsg with what the table says of each, and what has made earlier ones void."""
    log = read_log(context)
    any_facility = any(one.any_facility for one in asked)
    now_us = int(uptime_s(context) * 1e6)
    events: list[dict[str, Any]] = []
    loaded_us: int | None = None
    for record in log.records:
        if not (record.kernel or any_facility):
            continue
        if _LOADED.search(record.text):
            loaded_us = record.mono_us
        elif event := parse_xid(record):
            events.append(event)
    minors = {str(minor): uuid for minor, uuid in by_driver(context.root).items()}
    return {
        "now_us": now_us,
        "covers_us": log.covers_us(now_us),
        "lost": log.lost,
        "events": events[-_MOST_EVENTS:],
        "loaded_us": loaded_us,
        "resolved_us": _resolved(context, asked, now_us),
        "gpus": gpus_by_address(context.root),
        "minors": minors,
        "table": _table() if events else {},
    }


def parse_xid(record: Record) -> dict[str, Any] | None:
    """Return the XID of a record; None for another line."""
    found = _XID.match(record.text)
    if found is None:
        return None
    return {
        "code": int(found[2]),
        "pci": address_of(found[1]),
        "at_us": record.mono_us,
        "text": found[3].lstrip(", ")[:300],
    }


def _resolved(context: Context, asked: Sequence[XidSettings], now_us: int) -> int | None:
    """Return when the site last said that XIDs are dealt with, in microseconds since boot."""
    changed = []
    for path in {one.resolved_file for one in asked if one.resolved_file}:
        with suppress(OSError):
            changed.append((context.root / path.lstrip("/")).stat().st_mtime)
    return None if not changed else now_us - int((time.time() - max(changed)) * 1e6)


def _table() -> dict[str, dict[str, str]]:
    """Return code -> class, drain and meaning, as detection has them."""
    # Found without importing detection, whose libraries are not on every node and take their time.
    spec = find_spec("heeler.detect")
    folders = () if spec is None else spec.submodule_search_locations or ()
    try:
        path = next(file for folder in folders if (file := Path(folder) / "xid.toml").is_file())
        rows = tomllib.loads(path.read_text())["xid"]
    except (StopIteration, OSError, ValueError, KeyError) as err:
        raise ProbeError("missing", f"the table of XIDs: {err}") from None
    return {
        str(code): {"class": row["class"], "drain": row["drain"], "meaning": row["meaning"]}
        for row in rows
        for code in row["codes"]
    }


def judge_xid(facts: Mapping[str, Any], settings: XidSettings, case: Case) -> Verdict:
    """Say whether an XID of the hardware stands against one of the GPUs that the run is about."""
    mine = _job_gpus(facts, case)
    if case.job is not None and mine is None:
        return unknown("which GPUs are this job's is not known")
    since_us = max(
        facts["loaded_us"] or 0,
        facts["resolved_us"] or 0,
        facts["now_us"] - int(settings.window_s * 1e6) if settings.window_s else 0,
    )
    findings = Findings()
    kept: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for event in facts["events"]:
        uuid = facts["gpus"].get(event["pci"])
        if mine is not None and uuid is not None and uuid not in mine:
            continue
        if event["at_us"] >= since_us and event["code"] not in settings.ignore:
            kept.setdefault((event["pci"], event["code"]), []).append(event)
    for (pci, code), events in kept.items():
        _weigh(findings, facts, settings, pci, code, events, known=mine is None or pci in facts["gpus"])
    findings.perf["xids"] = float(sum(map(len, kept.values())))
    wanted_us = facts["now_us"] - since_us
    reach = (
        ""
        if not facts["lost"] or facts["covers_us"] >= wanted_us
        else f" in the {_age(facts['covers_us'] / 1e6)} that the log reaches back"
    )
    if reach and facts["covers_us"] < min(wanted_us, settings.least_reach_s * 1e6):
        findings.unknown(f"the log reaches back {_age(facts['covers_us'] / 1e6)} only: older lines are overwritten")
    programs = sum(map(len, kept.values()))
    return findings.verdict((f"no XID of the hardware, {programs} of programs" if programs else "no XID") + reach)


def _weigh(
    findings: Findings,
    facts: Mapping[str, Any],
    settings: XidSettings,
    pci: str,
    code: int,
    events: Sequence[Mapping[str, Any]],
    *,
    known: bool,
) -> None:
    """Add what one code on one GPU means to the findings, if it means anything."""
    row = facts["table"].get(str(code))
    last = events[-1]
    age = _age((facts["now_us"] - last["at_us"]) / 1e6)
    uuid = facts["gpus"].get(pci)
    times = f" {len(events)} times, last" if len(events) > 1 else ""
    meaning = f" ({row['meaning']})" if row else ""
    words = f"XID {code}{meaning} on {pci}{times} {age} ago"
    seen = Evidence("xid", code, None, gpu_uuid=uuid, pci=pci, text=last["text"])
    weight = _weight(row, code, len(events), settings, last["text"])
    if weight == "bad" and not known:
        findings.unknown(f"{words}: whether that GPU is this job's is not known", seen)
    elif weight == "bad":
        findings.bad(words, seen)
    elif weight == "warn":
        findings.warn(words, seen)


def _weight(row: Mapping[str, str] | None, code: int, times: int, settings: XidSettings, text: str) -> str:
    if code in settings.bad:
        return "bad"
    if row is None:
        return "warn"  # a code that the table does not know stays visible
    if code == RECOVERY_ACTION:
        changed = _RECOVERY.search(text)
        return "warn" if changed is None else "bad" if int(changed[1], 16) else ""
    if row["class"] in ("APP", "INFO"):
        return ""
    if row["drain"] == "yes" or (row["drain"] == "repeat" and times >= settings.repeats):
        return "bad"
    return "warn"


def _job_gpus(facts: Mapping[str, Any], case: Case) -> set[str] | None:
    """Return the UUIDs of the job's GPUs; None where there is no job, or they can't be told."""
    job = case.job
    if job is None:
        return None
    if job.gpu_uuids is not None:
        return set(job.gpu_uuids)
    if job.gpu_minors is None:
        return None
    uuids = {facts["minors"].get(str(minor)) for minor in job.gpu_minors}
    return None if None in uuids else {uuid for uuid in uuids if uuid}


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


XIDS = Probe("xids", read_xids, 5.0)
CHECKS = (
    Check(
        "gpu_xid",
        "The kernel's log has no XID of the hardware since the driver was loaded.",
        XIDS,
        judge_xid,
        XidSettings,
        hardware=True,
    ),
)
