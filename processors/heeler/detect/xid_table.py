"""What XID and SXid numbers mean, from a table that the operator may replace."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.detect.thresholds import shipped
from heeler.detect.xid_links import (
    NVLINK4,
    NVLINK5,
    Meaning,
    Nvlink4,
    Nvlink5,
    is_fatal,
    is_injected,
    of_nvlink4,
    of_nvlink5,
)
from heeler.engine import config

CLASSES = ("INFO", "APP", "LINK", "RST", "HW")  # the later outranks the earlier
DRAINS = ("never", "recovery", "repeat", "pending", "yes")
ADVICE = ("none", "observe", "drain_after_job", "drain_now", "reset", "reboot", "rma", "person")


@dataclass(frozen=True, slots=True)
class Row:
    """What a code means."""

    codes: tuple[int, ...]
    meaning: str
    drain: str = "never"
    action: str = ""
    location: bool = False  # counts by place on the chip over distinct jobs
    follower: bool = False  # follows another error and is none of its own
    confirm: bool = False  # believed only with a second witness
    cancels: tuple[int, ...] = ()
    repeat: int = 0  # times that count as repetition; 0: as for all
    rma_after: int = 0  # times at one place after which the part has to go
    class_: str = "INFO"

    @property
    def rank(self) -> int:
        """Return how bad it is, to find the worst of an incident."""
        return CLASSES.index(self.class_) * 10 + DRAINS.index(self.drain) - 100 * self.follower


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery action of the driver asks for."""

    value: int
    advice: str
    meaning: str


@dataclass(frozen=True, slots=True)
class XidTable:
    """The whole table."""

    source: str
    date: str
    xid: tuple[Row, ...] = ()
    sxid: tuple[Row, ...] = ()
    recovery: tuple[Recovery, ...] = ()
    nvlink4: Nvlink4 = field(default_factory=Nvlink4)
    nvlink5: Nvlink5 = field(default_factory=Nvlink5)

    def validate(self) -> None:
        """Raise ConfigError with everything that can't be used."""
        faults = []
        for name, rows in (("xid", self.xid), ("sxid", self.sxid)):
            seen: set[int] = set()
            for row in rows:
                faults += [f"{name}: code {code} stands twice" for code in row.codes if code in seen]
                seen.update(row.codes)
                if row.class_ not in CLASSES:
                    faults.append(f"{name} {row.codes}: class {row.class_!r}: one of {', '.join(CLASSES)}")
                if row.drain not in DRAINS:
                    faults.append(f"{name} {row.codes}: drain {row.drain!r}: one of {', '.join(DRAINS)}")
        faults += [f"recovery {r.value}: advice {r.advice!r}" for r in self.recovery if r.advice not in ADVICE]
        five = self.nvlink5
        drains = [five.fatal_drain, five.fatal_other_drain, five.nonfatal_drain, *(r.drain for r in five.rules)]
        faults += [f"nvlink5: drain {drain!r}" for drain in drains if drain not in DRAINS]
        drains = [self.nvlink4.other_drain, *(r.drain for r in self.nvlink4.rules)]
        faults += [f"nvlink4: drain {drain!r}" for drain in drains if drain not in DRAINS]
        if faults:
            raise ConfigError("; ".join(faults))

    def row(self, kind: str, code: int) -> Row | None:
        """Return the row of a code; None for a code that the table does not know."""
        rows = self.sxid if kind == "sxid" else self.xid
        return next((row for row in rows if code in row.codes), None)

    def judge(self, event: Mapping[str, Any]) -> Row:
        """Return what an event means, its details considered."""
        code, kind, detail = event.get("code", 0), event["kind"], event.get("detail", {})
        row = self.row(kind, code)
        if row is None:
            fatal = kind == "sxid" and is_fatal(detail, event.get("text", ""))
            words = "unknown code, said to be fatal" if fatal else "unknown code"
            return Row((code,), words, "recovery", "look at the line", class_="LINK" if fatal else "INFO")
        if kind == "xid" and code == NVLINK4:
            return _told(row, of_nvlink4(self.nvlink4, detail))
        if kind == "xid" and code in NVLINK5:
            return _told(row, of_nvlink5(self.nvlink5, code, detail, event.get("text", "")))
        return row

    def is_hard(self, event: Mapping[str, Any]) -> bool:
        """Say whether an XID is a fault of the hardware, trusted and not injected."""
        if event.get("trusted") is False or is_injected(event.get("detail", {})):
            return False
        row = self.judge(event)
        return row.class_ in ("HW", "RST", "LINK") and row.drain == "yes"

    def recovery_of(self, value: int) -> Recovery:
        """Return what a recovery action asks for; one that the table does not know is for a person."""
        found = next((r for r in self.recovery if r.value == value), None)
        return found or Recovery(value, "person", f"unknown recovery action {value}")


def _told(row: Row, link: Meaning) -> Row:
    """Return the row of a link error with what its line says besides."""
    return replace(
        row,
        drain=link.drain,
        meaning=link.meaning or row.meaning,
        action=link.action or row.action,
        repeat=link.repeat,
        rma_after=link.rma_after,
    )


def load_table(path: Path | str | None = None) -> XidTable:
    """Return the table of a TOML file, or the packaged one. Raises ConfigError with every fault."""
    if not path:
        return from_tables(tomllib.loads(shipped("xid.toml")), "xid.toml")
    return from_tables(config.read_toml(path), str(path))


def from_tables(tables: Mapping[str, Any], where: str) -> XidTable:
    """Return the table of a parsed file. Raises ConfigError with every fault."""

    def named(rows: Any) -> Any:
        # `class` is no name in Python.
        if not isinstance(rows, list):
            return rows
        return [
            {("class_" if key == "class" else key): value for key, value in row.items()}
            if isinstance(row, dict)
            else row
            for row in rows
        ]

    renamed = {key: named(value) if key in ("xid", "sxid") else value for key, value in tables.items()}
    return config.build(XidTable, renamed, where)
