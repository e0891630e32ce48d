"""The memory of a GPU: what its samples say of it, from the first error to the part that has to go.

uncorrectable error -> a row waits to be remapped -> reset when the job ends -> in force again, or failed -> replace.
The error numbers 48, 63, 64, 94 and 95 tell of the same: one incident holds both (see `xid`). Counts that stood there
before mean nothing, only growth and the driver's flags do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from heeler.detect.xid_table import Row

ERRORS, PENDING, PAGES, FAILED = -2, -3, -4, -5  # stand where an XID would stand
ROWS: Final[Mapping[int, Row]] = {
    ERRORS: Row((ERRORS,), "uncorrectable memory errors", "pending", "reset the GPU after its job", class_="APP"),
    PENDING: Row((PENDING,), "a memory row waits to be remapped", "pending", "reset the GPU after its job"),
    PAGES: Row((PAGES,), "memory pages wait to be retired", "pending", "reboot the node after its job"),
    FAILED: Row((FAILED,), "the remapping of a memory row has failed", "yes", "replace the GPU", class_="HW"),
}
NAMES: Final[Mapping[int, str]] = {
    ERRORS: "uncorrectable_errors",
    PENDING: "remap_pending",
    PAGES: "retired_pages_pending",
    FAILED: "remap_failed",
}
CODES: Final[Mapping[str, int]] = {name: code for code, name in NAMES.items()}
FLAGS: Final = (("remap_pending", PENDING), ("retired_pages_pending", PAGES), ("remap_failed", FAILED))
COUNTER: Final = "ecc_uncorrected_volatile"
COLUMNS: Final = frozenset((COUNTER, *(name for name, _ in FLAGS)))
XIDS: Final = frozenset((48, 63, 64, 94, 95, 140))  # of the same
COMPANY: Final = frozenset((43, 45, 154, 171, 172))  # may stand beside and change nothing


@dataclass(slots=True)
class Counted:
    """The error counters of some GPUs as last read."""

    uuids: Sequence[str]
    boot: str
    ts: int
    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a sample says of the memory of its GPUs, by row: what is so or not, errors that came, who was reset."""

    flags: Mapping[int, Mapping[int, bool]]
    grown: Mapping[int, int]
    reset: frozenset[int]


NOTHING_SAID: Final = Memory({}, {}, frozenset())


class MemoryReader:
    """Compares the samples of a node; a healthy one costs a few comparisons."""

    def __init__(self) -> None:
        self.before: dict[str, Counted] = {}

    def read(self, sample: Mapping[str, Any], *, watched: bool) -> Memory:
        """Return what is to be said; while something is open (`watched`), the flags that are not set too."""
        last = sample["last"]
        grown, reset = self._counter(sample, last.get(COUNTER))
        flags: dict[int, dict[int, bool]] = {}
        for name, code in FLAGS:
            column = last.get(name)
            if column is None or not (watched or any(column)):
                continue
            for at, value in enumerate(column):
                if value is not None:
                    flags.setdefault(at, {})[code] = value > 0
        return Memory(flags, grown, reset) if flags or grown or reset else NOTHING_SAID

    def _counter(self, sample: Mapping[str, Any], values: Any) -> tuple[dict[int, int], frozenset[int]]:
        uuids = sample["gpu"]["uuid"]
        if values is None or not uuids:
            return {}, frozenset()
        before = self.before.get(uuids[0])
        if before is None or before.boot != sample["boot"] or before.uuids != uuids:
            if len(self.before) > len(uuids) + 64:  # MIG devices come and go
                self.before.clear()
            self.before[uuids[0]] = Counted(uuids, sample["boot"], sample["ts"], values)
            return {}, frozenset()
        if sample["ts"] <= before.ts:  # redelivered
            return {}, frozenset()
        before.ts = sample["ts"]
        if values == before.values:
            return {}, frozenset()
        pairs = [(at, now, was) for at, (now, was) in enumerate(zip(values, before.values, strict=True))]
        # A value that could not be read leaves the one before it to compare with.
        before.values = [was if now is None else now for _, now, was in pairs]
        known = [(at, now, was) for at, now, was in pairs if now is not None and was is not None]
        return {at: int(now - was) for at, now, was in known if now > was}, frozenset(
            at for at, now, was in known if now == 0 < was
        )
