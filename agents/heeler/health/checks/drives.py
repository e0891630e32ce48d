"""Checks of drives: what they say of themselves through smartctl, and the state of NVMe controllers from /sys."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.checks.files import maybe, maybe_names
from heeler.health.checks.findings import Findings
from heeler.health.checks.manifest import first_number, manifest_facts
from heeler.health.checks.tool import run_tool
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

# The bits of smartctl's exit status. It ends with others than 0 for healthy drives too.
_NOT_ASKED = 0b0000_0011  # its options, or the device could not be opened
_FAILING, _BELOW, _BELOW_ONCE = 1 << 3, 1 << 4, 1 << 5
_NVME_WARNINGS = (
    "spare is low",
    "temperature",
    "reliability is degraded",
    "read-only",
    "backup failed",
    "memory region",
)
_SIZES = {"K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


@dataclass(frozen=True, slots=True)
class BlockdevSettings:
    """Drives and what they may have used up. Without `devices` those of the manifest, else all of the machine."""

    devices: tuple[str, ...] = ()  # nvme0n1, sda ...
    manifest: str = ""  # its path; the usual places otherwise
    warn_used_percent: float = 80.0  # of the life that the maker gives it
    bad_used_percent: float = 100.0
    warn_media_errors: int = 1


@dataclass(frozen=True, slots=True)
class NvmeSettings:
    """NVMe controllers."""

    count: int = 0  # so many must be there; 0: any number


def read_drives(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Smartctl -x -j of each drive, side by side; /sys/block; the manifest."""
    manifests = {one.manifest: manifest_facts(context, one.manifest) for one in asked if not one.devices}
    found = maybe_names(context.root / "sys/block") or []
    drives = [
        name
        for name in found
        if name.startswith(("nvme", "sd")) and (context.root / f"sys/block/{name}/device").exists()
    ]
    wanted = {
        name for one in asked for name in (one.devices or _of_manifest(manifests[one.manifest]["found"]) or drives)
    }
    answers: dict[str, Any] = {}

    def ask(name: str) -> None:
        try:
            answers[name] = parse_smart(run_tool(context, ("smartctl", "-x", "-j", f"/dev/{name}")))
        except ProbeError as err:
            answers[name] = {"error": str(err)}

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in sorted(wanted)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(context.timeout_s)
    none = {"error": "smartctl did not answer"}
    return {
        "there": found,
        "drives": drives,
        "manifests": manifests,
        "answers": {name: answers.get(name, none) for name in sorted(wanted)},
    }


def _of_manifest(manifest: Mapping[str, Any] | None) -> list[str]:
    disks = (manifest or {}).get("disks", {})
    return [str(one["blockdev"]).removeprefix("/dev/") for one in disks.values() if one.get("blockdev")]


def parse_smart(done: Any) -> dict[str, Any]:
    """Return what smartctl's JSON says, missing parts as None. Raises ProbeError for no JSON, or no drive asked."""
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise (
            done.failed() if done.rc else ProbeError("unreadable", f"smartctl: no JSON: {done.stdout!r:.80}")
        ) from None
    if not isinstance(found, dict):
        raise ProbeError("unreadable", f"smartctl: not a map: {done.stdout!r:.80}")
    messages = _get(found, "smartctl", "messages")
    said = [str(one.get("string")) for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
    if done.rc < 0 or done.rc & _NOT_ASKED:
        raise ProbeError("failed", f"smartctl ended with {done.rc}: {'; '.join(said) or 'no words'}")
    log = found.get("nvme_smart_health_information_log")
    log = log if isinstance(log, dict) else None
    used = _get(found, "nvme_smart_health_information_log", "percentage_used")
    for other in (("endurance_used", "current_percent"), ("scsi_percentage_used_endurance_indicator",)):
        used = used if used is not None else _get(found, *other)
    return {
        "rc": done.rc,
        "said": "; ".join(said) or None,
        "model": found.get("model_name"),
        "kind": _get(found, "device", "protocol"),
        "passed": _get(found, "smart_status", "passed"),
        "bytes": first_number(_get(found, "user_capacity", "bytes") or found.get("nvme_total_capacity")),
        "used_percent": first_number(used),
        "has_log": log is not None,
        "critical_warning": _whole(log, "critical_warning"),
        "spare": _whole(log, "available_spare"),
        "spare_limit": _whole(log, "available_spare_threshold"),
        "media_errors": _whole(log, "media_errors"),
    }


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _whole(log: Mapping[str, Any] | None, key: str) -> int | None:
    value = (log or {}).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def judge_blockdev(facts: Any, settings: BlockdevSettings, _case: Case) -> Verdict:
    """Bad: a drive says that it fails, has no spare left, is worn out, is missing, or smaller than it should be.

    Warn: it nears its end, or had errors of its media. Unknown: it does not tell.
    """
    manifest = {"found": None} if settings.devices else facts["manifests"][settings.manifest]
    if "error" in manifest:
        return unknown(f"the manifest can't be read: {manifest['error']}")
    disks = (manifest["found"] or {}).get("disks", {})
    sizes = {
        str(one["blockdev"]).removeprefix("/dev/"): one.get("size") for one in disks.values() if one.get("blockdev")
    }
    names = list(settings.devices) or list(sizes) or facts["drives"]
    if not names:
        return unknown("no drive that can be asked: only virtual ones, or none")
    found = Findings()
    for name in names:
        if name not in facts["there"]:
            found.bad(f"{name} is not there", Evidence("drive", None, device=name))
            continue
        one = facts["answers"][name]
        if "error" in one:
            found.unknown(f"{name}: {one['error']}", Evidence("drive", None, device=name))
            continue
        _judge_health(name, one, found)
        _judge_wear(name, one, settings, found)
        size = _bytes(sizes.get(name))
        if size and one["bytes"] is not None and one["bytes"] < size * 0.99:
            found.bad(
                f"{name}: {one['bytes']:.0f} bytes, not {size:.0f}",
                Evidence("size", one["bytes"], size, "B", device=name),
            )
    return found.verdict(f"{len(names)} drives are well")


def _bytes(value: Any) -> float | None:
    """Return a manifest's size in bytes: a number, or as 3.84T."""
    number = first_number(value)
    unit = value.strip().upper().removesuffix("B")[-1:] if isinstance(value, str) else ""
    return number * _SIZES.get(unit, 1) if number is not None else None


def _judge_health(name: str, one: Mapping[str, Any], found: Findings) -> None:
    text = one["said"] or one["model"]
    warning = one["critical_warning"]
    if one["passed"] is False or one["rc"] & _FAILING:
        found.bad(f"{name} says that it fails", Evidence("smart_status", "failed", "passed", device=name, text=text))
    elif one["rc"] & _BELOW:
        found.bad(f"{name}: a value is below its limit", Evidence("smart_rc", one["rc"], 0, device=name, text=text))
    elif one["passed"] is None and warning is None:
        found.unknown(
            f"{name} does not tell its health", Evidence("smart_status", None, "passed", device=name, text=text)
        )
    elif one["rc"] & _BELOW_ONCE:
        found.warn(
            f"{name}: a value was below its limit once", Evidence("smart_rc", one["rc"], 0, device=name, text=text)
        )
    if warning:
        said = ", ".join(word for at, word in enumerate(_NVME_WARNINGS) if warning >> at & 1) or f"bits {warning:#x}"
        found.bad(f"{name} warns: {said}", Evidence("critical_warning", warning, 0, device=name, text=text))
    if one["kind"] == "NVMe" and not one["has_log"]:
        found.unknown(f"{name} has no health log", Evidence("health_log", None, device=name, text=text))


def _judge_wear(name: str, one: Mapping[str, Any], settings: BlockdevSettings, found: Findings) -> None:
    spare, limit, used, errors = one["spare"], one["spare_limit"], one["used_percent"], one["media_errors"]
    if spare is not None and limit is not None and spare < limit:
        found.bad(f"{name}: {spare} % of its spare left", Evidence("available_spare", spare, limit, "%", device=name))
    if used is not None and used > settings.bad_used_percent:
        shown = Evidence("percentage_used", used, settings.bad_used_percent, "%", device=name)
        found.bad(f"{name}: {used:g} % of its life used", shown)
    elif used is not None and used > settings.warn_used_percent:
        shown = Evidence("percentage_used", used, settings.warn_used_percent, "%", device=name)
        found.warn(f"{name}: {used:g} % of its life used", shown)
    if errors is not None and errors >= settings.warn_media_errors:
        shown = Evidence("media_errors", errors, settings.warn_media_errors, device=name)
        found.warn(f"{name}: {errors} errors of its media", shown)


def read_nvme(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/class/nvme/*/state."""
    folder = context.root / "sys/class/nvme"
    names = maybe_names(folder)
    if names is None and not (context.root / "sys/class").is_dir():
        raise ProbeError("missing", "/sys/class: not there")
    return {"states": {name: maybe(folder / name / "state") or None for name in names or () if name[4:].isdigit()}}


def judge_nvme(facts: Any, settings: NvmeSettings, _case: Case) -> Verdict:
    """Bad: a controller is dead, or fewer are there than should be. Warn: it is being reset or connected."""
    found, states = Findings(), facts["states"]
    for name, state in states.items():
        shown = Evidence("nvme_state", state, "live", device=name)
        if state is None:
            found.unknown(f"{name}: its state can't be read", shown)
        elif state in ("new", "resetting", "connecting", "deleting", "deleting (no IO)"):
            found.warn(f"{name} is {state}", shown)
        elif state != "live":
            found.bad(f"{name} is {state}", shown)
    if len(states) < settings.count:
        found.bad(f"{len(states)} of {settings.count} controllers", Evidence("nvme", len(states), settings.count))
    return found.verdict(f"{len(states)} NVMe controllers")


CHECKS = (
    Check(
        "blockdev",
        "Drives are well, by what they say of themselves.",
        Probe("drives", read_drives, timeout_s=20.0),
        judge_blockdev,
        BlockdevSettings,
        hardware=True,
    ),
    Check(
        "nvme",
        "NVMe controllers are alive.",
        Probe("nvme", read_nvme, timeout_s=3.0),
        judge_nvme,
        NvmeSettings,
        hardware=True,
    ),
)
