"""States of nodes and jobs, from every spelling that Slurm has for them.

A node has one base state and any number of flags: ``IDLE+DRAIN``, ``idle*``, ``drained``, ``["MIXED", "DRAIN"]``, or
``mixed`` with flags in a field of their own. Unknown words are kept, listed, and break nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from heeler.slurm.errors import ParseError

NODE_BASES = frozenset(("IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE", "UNKNOWN"))

# One character after the state, as sinfo prints it.
NODE_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "-": "PLANNED",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
}

NODE_FLAGS = frozenset(NODE_SUFFIXES.values()) | frozenset(
    (
        "BLOCKED",
        "CLOUD",
        "COMPLETING",
        "DRAIN",
        "DYNAMIC_FUTURE",
        "DYNAMIC_NORM",
        "EXTERNAL",
        "FAIL",
        "INVALID",
        "INVALID_REG",
        "PERFCTRS",
        "POWER_DRAIN",
        "POWER_UP",
        "REBOOT_CANCELED",
        "RESERVED",
        "RESUME",
        "UNDRAIN",
    )
)

_FLAG_ALIASES = {
    "MAINT": "MAINTENANCE",
    "NO_RESPOND": "NOT_RESPONDING",
    "REBOOT": "REBOOT_REQUESTED",
    "RES": "RESERVED",
    "POWERED_UP": "POWER_UP",
    "REBOOT_CANCEL": "REBOOT_CANCELED",
    "NPC": "PERFCTRS",
}

# sinfo's words that fold base and flags into one: (base or None for not said, flags, has jobs or None for not said).
_NODE_WORDS: dict[str, tuple[str | None, tuple[str, ...], bool | None]] = {
    "ALLOC": ("ALLOCATED", (), None),
    "MIX": ("MIXED", (), None),
    "UNK": ("UNKNOWN", (), None),
    "FUTR": ("FUTURE", (), None),
    "ERR": ("ERROR", (), None),
    "DRAINED": (None, ("DRAIN",), False),
    "DRAIN": (None, ("DRAIN",), False),
    "DRAINING": (None, ("DRAIN",), True),
    "DRNG": (None, ("DRAIN",), True),
    "FAIL": (None, ("FAIL",), False),
    "FAILING": (None, ("FAIL",), True),
    "FAILG": (None, ("FAIL",), True),
    "COMPLETING": (None, ("COMPLETING",), True),
    "COMP": (None, ("COMPLETING",), True),
    "MAINT": (None, ("MAINTENANCE",), None),
    "RESERVED": (None, ("RESERVED",), None),
    "RESV": (None, ("RESERVED",), None),
    "PLANNED": (None, ("PLANNED",), None),
    "PLND": (None, ("PLANNED",), None),
    "BLOCKED": (None, ("BLOCKED",), None),
    "BLOCK": (None, ("BLOCKED",), None),
    "INVAL": (None, ("INVALID_REG",), None),
    "BOOT": (None, ("REBOOT_ISSUED",), None),
    "REBOOT": (None, ("REBOOT_REQUESTED",), None),
    "PERFCTRS": (None, ("PERFCTRS",), None),
    "NPC": (None, ("PERFCTRS",), None),
    "POWERED_DOWN": (None, ("POWERED_DOWN",), None),
    "POWERING_DOWN": (None, ("POWERING_DOWN",), None),
    "POW_DN": (None, ("POWERING_DOWN",), None),
    "POWER_DOWN": (None, ("POWER_DOWN",), None),
    "POWERING_UP": (None, ("POWERING_UP",), None),
    "POW_UP": (None, ("POWERING_UP",), None),
}

# A node with one of these is not there for new jobs.
BLOCKING = frozenset(
    (
        "BLOCKED",
        "DRAIN",
        "FAIL",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_DRAIN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
    )
)

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class NodeFlags:
    """A node's state: base, flags in order of the alphabet, and what was not understood."""

    base: str
    flags: tuple[str, ...]
    unknown_flags: tuple[str, ...] = ()
    unparsed: str = ""
    busy: bool | None = None  # has jobs; None where the text does not say

    @property
    def drained(self) -> bool:
        """Set to drain, and without jobs."""
        return "DRAIN" in self.flags and self.busy is False

    @property
    def draining(self) -> bool:
        """Set to drain, and jobs still run there."""
        return "DRAIN" in self.flags and self.busy is True

    @property
    def available(self) -> bool | None:
        """In service for jobs: neither down nor taken out; None where the text was not understood as a whole."""
        if self.base in ("DOWN", "ERROR", "FUTURE") or BLOCKING.intersection(self.flags):
            return False
        return None if self.base == "UNKNOWN" or self.unparsed else True


def parse_node_state(value: str | Iterable[str], flags: Iterable[str] = ()) -> NodeFlags:
    """Return a node's state from its text or list, and from a list of flags where there is one.

    Raises ParseError for what is no text, or is empty.
    """
    first, *others = _words(value) or [""]
    others += _words(flags)
    if not first and not others:
        raise ParseError("empty node state", value)
    base, found, busy, unparsed = _first_word(first)
    unknown: set[str] = set()
    for word in others:
        name, marks, rest = _split_marks(word)
        flag = _FLAG_ALIASES.get(name, name)
        if name in NODE_BASES and base is None:
            base = name  # a list in another order
        elif name:
            (found if flag in NODE_FLAGS else unknown).add(flag)
        found |= marks
        unparsed += [rest] if rest else []
    return NodeFlags(
        base=base or "UNKNOWN",
        flags=tuple(sorted(found | unknown)),
        unknown_flags=tuple(sorted(unknown)),
        unparsed="+".join(unparsed),
        busy=busy if base is None and busy is not None else _busy(base, found),
    )


def _first_word(word: str) -> tuple[str | None, set[str], bool | None, list[str]]:
    """Return base, flags, whether it has jobs, and what is not understood, of the word that names the state."""
    name, found, rest = _split_marks(word)
    unparsed = [rest] if rest else []
    if name in NODE_BASES:
        return name, found, None, unparsed
    if name in _NODE_WORDS:
        base, flags, busy = _NODE_WORDS[name]
        return base, found.union(flags), busy, unparsed
    if (flag := _FLAG_ALIASES.get(name, name)) in NODE_FLAGS:
        return None, found | {flag}, None, unparsed
    return None, found, None, [word] if name else unparsed


def _split_marks(word: str) -> tuple[str, set[str], str]:
    """Split ``idle*~`` into its name in upper case, the flags of its marks, and what is neither."""
    match = _WORD.match(word)
    name = match[0] if match else ""
    rest = word[len(name) :]
    if set(rest) <= NODE_SUFFIXES.keys():
        return name.upper(), {NODE_SUFFIXES[mark] for mark in rest}, ""
    return name.upper(), set(), rest


def _busy(base: str | None, flags: set[str]) -> bool | None:
    if base in ("ALLOCATED", "MIXED") or "COMPLETING" in flags:
        return True
    return None if base in (None, "UNKNOWN") else False


def _words(value: str | Iterable[str]) -> list[str]:
    if isinstance(value, str):
        return [word.strip() for word in value.split("+") if word.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise ParseError("not a node state", value)
    return [part for word in value for part in _words(word)]


JOB_BASES = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "BOOT_FAIL": "BF",
    "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
}

JOB_FLAGS = {
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "EXPEDITING": "EX",
    "LAUNCH_FAILED": "LF",
    "POWER_UP_NODE": "PU",
    "RECONFIG_FAIL": "RC",
    "REQUEUED": "RQ",
    "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH",
    "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD",
    "REVOKED": "RV",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
    "UPDATE_DB": "UD",
}

_JOB_NAMES = JOB_BASES | JOB_FLAGS
_BY_CODE = {code: name for name, code in _JOB_NAMES.items()}
_BY_CODE |= {"REQUEUE": "REQUEUED", "CANCELED": "CANCELLED"}

# States in which a job has its nodes. A job that completes has them until its last epilog is done.
HOLDING = frozenset(("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"))
ENDED = frozenset(JOB_BASES) - {"PENDING", "RUNNING", "SUSPENDED"}

_CANCELLED_BY = re.compile(r"CANCELLED\s+by\b\s*(?:(\d{1,10})$)?.*", re.IGNORECASE)
_BETWEEN_JOB_WORDS = re.compile(r",|\+(?=[A-Za-z])")


@dataclass(frozen=True, slots=True)
class JobFlags:
    """A job's state. ``name`` is what to show; COMPLETING and CONFIGURING go before the base state."""

    name: str
    flags: tuple[str, ...] = ()
    raw: str = ""
    cancelled_by_uid: int | None = None
    unknown_flags: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Has its nodes now."""
        return self.name in HOLDING

    @property
    def ended(self) -> bool:
        """Has ended for good, its nodes given back."""
        return self.name in ENDED


def parse_job_state(value: str | Iterable[str]) -> JobFlags:
    """Return a job's state from its name, code, cut name (``OUT_OF_ME+``) or list of names.

    A flag that is not known, beside a base state that is, is kept and changes nothing: newer versions have more.
    Without a base state it makes the state UNKNOWN with the raw text. Raises ParseError for no text.
    """
    if isinstance(value, str):
        words = [word.strip() for word in _BETWEEN_JOB_WORDS.split(value) if word.strip()]
    elif isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        words = [word.strip() for word in value]
    else:
        raise ParseError("not a job state", value)
    if not words or not all(words):
        raise ParseError("empty job state", value)
    raw = "+".join(words)
    if by := _CANCELLED_BY.fullmatch(words[0]):
        return JobFlags("CANCELLED", (), raw, int(by[1]) if by[1] else None)
    names = [_job_word(word) for word in words]
    bases = [name for name in names if name in JOB_BASES]
    flags = tuple(sorted(name for name in names if name in JOB_FLAGS))
    unknown = tuple(word for word, name in zip(words, names, strict=True) if name is None)
    for shown in ("COMPLETING", "CONFIGURING"):
        if shown in flags:
            return JobFlags(shown, flags, raw, unknown_flags=unknown)
    if len(bases) > 1 or (unknown and not bases):
        return JobFlags("UNKNOWN", flags, raw, unknown_flags=unknown)
    return JobFlags(bases[0] if bases else flags[0], flags, raw, unknown_flags=unknown)


def _job_word(word: str) -> str | None:
    upper = word.upper()
    name = upper if upper in _JOB_NAMES else _BY_CODE.get(upper)
    if name or not upper.endswith("+"):
        return name
    stem = upper[:-1]
    starts = [full for full in _JOB_NAMES if full.startswith(stem)]
    return stem if stem in _JOB_NAMES else starts[0] if stem and len(starts) == 1 else None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as sinfo prints it: the default one has a star."""

    name: str
    default: bool = False


def parse_partition(text: str) -> Partition:
    """Return a partition's name without the star of the default one. Raises ParseError."""
    name = text.strip()
    default = name.endswith("*")
    name = name.removesuffix("*")
    if not name or "*" in name or any(mark.isspace() for mark in name):
        raise ParseError("not a partition", text)
    return Partition(name, default)
