"""What lines of the kernel's log mean, for kernels from 3.10 to 6.18: links, disks, machine checks, PCIe, memory.

Pure: a text in, an event or None out. The words are those of the kernel and its drivers. Whatever a line doesn't say is
not in the event.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_DEV = r"[\w.@-]{1,32}"


@dataclass(frozen=True, slots=True)
class Event:
    """What a line says. `what` is link_down, link_up, io, mce, aer or oom; `severity` as the kernel grades it."""

    what: str
    device: str = ""
    severity: str = ""
    text: str = ""
    pid: int | None = None


_LINKS = (
    # systemd-networkd writes to the kernel's log as long as there is no journal.
    re.compile(rf"^(?:systemd-networkd\[\d+\]: )?(?P<dev>{_DEV}): (?P<word>Lost|Gained) carrier$", re.IGNORECASE),
    re.compile(
        rf"^[\w-]{{1,32}} [0-9a-fA-F:.]{{7,20}} (?P<dev>{_DEV}): (?:{_DEV}: )?(?:{_DEV} )?(?:NIC )?(?:Copper )?"
        r"[Ll]ink (?:is )?(?P<word>[Uu]p|[Dd]own|UP|DOWN)\b"
    ),
    re.compile(
        rf"^[\w-]{{1,32}} [0-9a-fA-F:.]{{7,20}}: (?:[\w.-]{{1,16}}: )?(?P<dev>{_DEV}):? (?:NIC )?(?:Copper )?"
        r"[Ll]ink (?:is )?(?P<word>[Uu]p|[Dd]own|UP|DOWN)\b"
    ),
    re.compile(
        rf"^(?:[\w-]{{1,16}}: )?(?P<dev>{_DEV}):? (?:[\w.-]{{1,16}}: )?(?:NIC )?(?:Copper )?"
        r"[Ll]ink (?:is )?(?P<word>[Uu]p|[Dd]own|UP|DOWN)\b"
    ),
    re.compile(rf"^(?:{_DEV}): \(slave (?P<dev>{_DEV})\): link status definitely (?P<word>up|down)"),
    re.compile(
        rf"^(?:bonding: )?{_DEV}: link status definitely (?P<word>up|down),? for (?:\w+ )?interface (?P<dev>{_DEV})"
    ),
    re.compile(rf"^IPv6: ADDRCONF\(NETDEV_(?:CHANGE|UP)\): (?P<dev>{_DEV}): link becomes (?P<word>ready)"),
)
_MODULE = re.compile(
    r"^mlx5_core (?P<dev>[0-9a-fA-F:.]{7,20})(?: \w+)?: .*Port module event(?:\[\w+\])?: module \d+, (?P<word>.*)$"
)
_NO_INTERFACE = ("NIC", "the", "is", "The")


def link_event(text: str) -> Event | None:
    """Return that a link went up or down, with the name of its interface (or the address of its card)."""
    if "ink" not in text and "arrier" not in text and "module event" not in text:
        return None
    if found := _MODULE.match(text):
        down = any(word in found["word"] for word in ("unplugged", "Power budget", "error", "Error", "High Temp"))
        return Event("link_down" if down else "link_up", found["dev"].lower(), text=text)
    for pattern in _LINKS:
        found = pattern.match(text)
        if found and found["dev"] not in _NO_INTERFACE:
            down = found["word"].lower() in ("down", "lost")
            return Event("link_down" if down else "link_up", found["dev"], text=text)
    return None


_BLOCK = re.compile(
    r"^(?:(?:blk_update_request|print_req_error|end_request): )?"
    r"(?P<kind>[\w/ -]{0,40}? ?[Ee]rror), dev (?P<dev>[\w!./-]{1,64}), sector \d"
)
_BUFFER = re.compile(r"^(?:lost page write due to )?[Bb]uffer I/O error on dev(?:ice)? (?P<dev>[\w!./-]{1,64}),? ")
_LOST_WRITE = re.compile(r"^lost page write due to I/O error on (?P<dev>[\w!./-]{1,64})$")
_NVME = re.compile(r"^nvme (?P<dev>nvme\d{1,4}): (?P<said>.*)$")
_NVME_WORDS = (
    "controller is down",
    "Removing after probe",
    "Disabling device after reset failure",
    "Device not ready",
    "I/O error",
    "I/O Error",
    "timeout",
    "frozen state",
    "fatal status",
    "controller reset failed",
    "Abort status",
)
_NVME_BLOCK = re.compile(r"^(?P<dev>nvme\d{1,4}[nc]\w{1,16}): .*(?:Error|error|Unrecovered|Aborted)")
_SCSI = re.compile(r"^sd [\d:]{7,40}: (?:\[(?P<dev>sd[a-z]{1,4})\])?(?P<said>.*)$")
_SCSI_WORDS = (
    "Medium Error",
    "Hardware Error",
    "Unhandled error code",
    "timing out command",
    "Unrecovered read error",
    "Write error",
)
_ATA = re.compile(r"^(?P<dev>ata\d{1,3}(?:\.\d{1,2})?): (?P<said>.*)$")
_ATA_WORDS = ("failed command:", "exception Emask", "COMRESET failed", "error: { UNC", "SError: {")
_FS = re.compile(
    r"^(?:EXT\d-fs (?:error|warning)? ?\((?:device )?(?P<ext>[^):]{1,64})\)|XFS \((?P<xfs>[^)]{1,64})\)|"
    r"BTRFS:? \w+:? \(device (?P<btrfs>[^): ]{1,64})[^)]*\)|"
    r"Aborting journal on device (?P<jbd>[\w!./-]{1,64}))(?P<said>.*)$"
)
_FS_WORDS = (
    "I/O error",
    "i/o error",
    "Remounting filesystem read-only",
    "hutting down",
    "hut down",
    "orruption",
    "forced readonly",
    "errs: wr",
)
# The device refuses an optional command: nothing is broken.
_HARMLESS = ("operation not supported", "critical target error", "invalid")


def io_event(text: str) -> Event | None:
    """Return that a block device, or the file system on it, failed to read or write."""
    if found := _BLOCK.match(text):
        kind = found["kind"].strip()
        return None if any(word in kind for word in _HARMLESS) else Event("io", found["dev"], kind, text)
    for pattern in (_BUFFER, _LOST_WRITE, _NVME_BLOCK):
        if (found := pattern.match(text)) and found["dev"]:
            return Event("io", found["dev"].rstrip("."), "I/O error", text)
    for pattern, words in ((_NVME, _NVME_WORDS), (_SCSI, _SCSI_WORDS), (_ATA, _ATA_WORDS)):
        if found := pattern.match(text):
            word = next((word for word in words if word in found["said"]), None)
            word = "disabled" if found["said"] == "disabled" else word  # the kernel has given the disk up
            return Event("io", found["dev"] or "sd", word, text) if word else None
    if found := _FS.match(text):
        device = found["ext"] or found["xfs"] or found["btrfs"] or found["jbd"] or ""
        if found["jbd"] or (text.startswith("EXT") and "error (" in text) or any(word in text for word in _FS_WORDS):
            return Event("io", device.rstrip("."), "file system", text)
    return None


_MCE_CPU = re.compile(
    r"^(?:mce: |MCE: )?(?:\[Hardware Error\]: )?CPU (\d+): Machine Check(?: Exception| Event)?: +\S+ "
    r"Bank (\d+): (?:0x)?([0-9a-fA-F]+)"
)
_AMD = re.compile(r"^(?:mce: )?\[Hardware Error\]: (Corrected|Deferred|Uncorrected|Fatal)\b.*\berror\b")
_MCE_LOGGED = re.compile(r"^(?:mce: )?\[Hardware Error\]: Machine check events logged")
_MCE_USER = re.compile(r"^mce: Uncorrected hardware memory error in ")
_MEMORY = re.compile(r"^Memory failure: 0x[0-9a-fA-F]+: (?:recovery action|Killing |Sending SIGBUS)")
_APEI = re.compile(r"^(?:\{\d+\})?\[Hardware Error\]:\s*event severity: ([\w-]+)")
_EDAC = re.compile(r"^EDAC (\S{1,16}): (?:\S+ )?(?:\d+ )?(CE|UE)\b[ :]")
_PANIC = re.compile(
    r"^(?:mce: )?\[Hardware Error\]: Machine check: |^Kernel panic - not syncing: Fatal [Mm]achine [Cc]heck"
)
_UNCORRECTED_BIT = 61  # of a bank's status


def mce_event(text: str) -> Event | None:
    """Return a machine check, or an error that EDAC or the firmware tells; severity corrected or uncorrected."""
    if found := _MCE_CPU.match(text):
        uncorrected = int(found[3], 16) >> _UNCORRECTED_BIT & 1
        return Event("mce", f"cpu {found[1]} bank {found[2]}", "uncorrected" if uncorrected else "corrected", text)
    if found := _EDAC.match(text):
        return Event("mce", found[1], "corrected" if found[2] == "CE" else "uncorrected", text)
    if found := _AMD.match(text):
        return Event("mce", "", "corrected" if found[1] == "Corrected" else "uncorrected", text)
    if (found := _APEI.match(text)) and found[1] != "info":
        # `recoverable` has lost data too: it was corrected by nobody.
        return Event("mce", "firmware", "corrected" if found[1] == "corrected" else "uncorrected", text)
    if _MCE_USER.match(text) or _MEMORY.match(text) or _PANIC.match(text):
        return Event("mce", "memory", "uncorrected", text)
    return Event("mce", "", "corrected", text) if _MCE_LOGGED.match(text) else None


_PCI = r"(?P<dev>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_AER_BUS = re.compile(
    rf"^[\w-]{{1,32}} {_PCI}: (?:AER: )?PCIe Bus Error: severity=(?P<word>\w+)(?: \((?P<degree>[\w-]+)\))?",
    re.IGNORECASE,
)
# What the port says of a message for which it finds no device; else the lines of the device follow and count.
_AER_ROOT = re.compile(
    rf"^[\w-]{{1,32}} {_PCI}: AER: (?:Multiple )?(?P<word>Correct\w+|Uncorrect\w+)(?: \((?P<degree>[\w-]+)\))? error "
    r"(?:message )?received(?:(?:: | from )(?:id=[0-9a-fA-F]{4}|(?P<from>[0-9a-fA-F:.]{7,20})))? \(no details found"
)
_DPC = re.compile(rf"^[\w-]{{1,32}} {_PCI}: (?:AER: )?DPC: containment event")
_GONE = re.compile(
    rf"^[\w-]{{1,32}} {_PCI}: .*(?:device inaccessible|not ready \d+ms after .*; giving up|AER: device recovery failed)"
)


def aer_event(text: str) -> Event | None:
    """Return an error of PCIe, with the device that it is about; severity corrected, nonfatal or fatal."""
    if found := _AER_BUS.match(text) or _AER_ROOT.match(text):
        device = found.groupdict().get("from") or found["dev"]
        return Event("aer", device.lower(), _severity(found["word"], found["degree"]), text)
    if found := _DPC.match(text) or _GONE.match(text):
        return Event("aer", found["dev"].lower(), "fatal", text)
    return None


def _severity(word: str, degree: str | None) -> str:
    if word.lower().startswith("correct"):
        return "corrected"
    graded = (degree or word).lower().replace("-", "").replace("_", "")
    return graded if graded in ("fatal", "nonfatal") else "uncorrected"


# Before 5.0 a line says whom the kernel chose, and one without a beginning whom it killed: the first one counts.
_OOM = re.compile(
    r"^(?P<why>Memory cgroup out|Out) of memory[^:]*: "
    r"Kill(?:ed)? process (?P<pid>\d{1,10}),?(?: UID \d{1,10},)? \((?P<comm>.{0,64})\)(?:,| |$)"
)


def oom_event(text: str) -> Event | None:
    """Return that a process was killed for want of memory; severity `limit` (its group's own) or `machine`."""
    found = _OOM.match(text)
    if not found:
        return None
    return Event("oom", found["comm"], "machine" if found["why"] == "Out" else "limit", text, int(found["pid"]))


MEANINGS: tuple[Callable[[str], Event | None], ...] = (oom_event, mce_event, aer_event, io_event, link_event)


def meaning_of(text: str) -> Event | None:
    """Return what a line of the kernel's log means; None for most."""
    for meaning in MEANINGS:
        event = meaning(text)
        if event:
            return event
    return None


_PREVIOUS_BOOT = "BERT: Error records from previous boot"


def events_of(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Event]]:
    """Return the events of lines, each with its stamp.

    What the firmware kept from before this boot is told at its beginning: that is over, whatever it was.
    """
    of_previous_boot = False
    for mono_us, text in lines:
        if text.startswith(_PREVIOUS_BOOT):
            of_previous_boot = True
        elif not text.startswith("[Hardware Error]"):
            of_previous_boot = False
        event = None if of_previous_boot else meaning_of(text)
        if event:
            yield mono_us, event


def plain(event: Event, mono_us: int) -> dict[str, Any]:
    """Return an event as plain values."""
    return {
        "what": event.what,
        "device": event.device,
        "severity": event.severity,
        "text": event.text[:300],
        "pid": event.pid,
        "mono_us": mono_us,
    }
