"""Whether the GPUs of a job on one node do anything at all. Pure: a sample in, one small fact out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.thresholds import HangThresholds
from heeler.detect.windows import MOST_RATIO

# What counts as doing something, by column; the first ones settle it for a job that trains.
TRAFFIC = ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
MEANS = (
    "tensor_active_ratio",
    "sm_active_ratio",
    "util_ratio",
    "power_w",
    "fb_used_bytes",
    "dram_active_ratio",
    *TRAFFIC,
)
SHOWN = ("util_ratio", "power_w", "tensor_active_ratio")
MOST = 1e14  # above, a reading that is no ratio is broken


@dataclass(frozen=True, slots=True)
class Stillness:
    """What the job's GPUs on a node do. The rest is only filled in where they are still."""

    still: bool
    gpus: int = 0
    spinning: int = 0  # at full utilisation all the same
    resting: Sequence[int] = ()  # indices of the others
    memory_bytes: float | None = None  # most that one of them holds
    levels: Mapping[str, float] = field(default_factory=dict)


MOVES = Stillness(still=False)


def look(sample: Mapping[str, Any], job: str, t: HangThresholds) -> Stillness | None:
    """Return whether a job's GPUs on a node stand still; None where that can't be said."""
    holders: list[str | None] = sample["job"]
    mean = sample["mean"]
    whole = holders.count(job) == len(holders)
    rows = range(len(holders)) if whole else [at for at, holder in enumerate(holders) if holder == job]
    tensor = mean.get("tensor_active_ratio")
    if rows and tensor is not None:
        first = tensor[rows[0]]
        if first is not None and t.tensor_ratio <= first <= MOST_RATIO:  # a job that works: nothing more to ask
            return MOVES
    return _look_at_all(sample, job, rows, t)


def _look_at_all(sample: Mapping[str, Any], job: str, rows: Sequence[int], t: HangThresholds) -> Stillness | None:
    mean, limits = sample["mean"], sample["last"].get("power_limit_w")
    spinning, resting, known = 0, [], 0
    index = sample["gpu"].get("index")
    for at in rows:
        state = _state(
            {name: _read(name, column[at]) for name in MEANS if (column := mean.get(name))}, limits and limits[at], t
        )
        if state == "moves":
            return MOVES
        if state == "unknown":
            continue
        known += 1
        spinning += state == "spins"
        if state == "rests":
            resting.append(at if index is None or index[at] is None else index[at])
    if not known:
        return None
    levels = {name: value for name in SHOWN if (value := _middle(mean.get(name), rows)) is not None}
    return Stillness(
        still=True, gpus=known, spinning=spinning, resting=resting, memory_bytes=memory_of(sample, job), levels=levels
    )


def _state(values: Mapping[str, Any], limit_w: Any, t: HangThresholds) -> str:
    """Return what one GPU does: moves, spins, rests, or unknown. Utilisation must be known, and one thing besides."""
    util, power = values.get("util_ratio"), values.get("power_w")
    sm = values.get("sm_active_ratio")
    told = [(values.get("tensor_active_ratio"), t.tensor_ratio), (values.get("dram_active_ratio"), t.dram_ratio)]
    told += [(values.get(name), t.traffic_bytes_per_s) for name in TRAFFIC]
    if util is None:
        return "unknown"
    if any(value is not None and value >= least for value, least in told):
        return "moves"
    if power is not None and limit_w and power >= t.power_ratio * limit_w:
        return "moves"
    if util < t.rest_ratio:
        return "moves" if sm is not None and sm >= t.rest_ratio else "rests"
    if util < t.spin_util_ratio or (sm is not None and sm >= t.spin_sm_ratio):
        return "moves"
    witnesses = sum(value is not None for value, _ in told) + (power is not None and bool(limit_w))
    return "spins" if witnesses else "unknown"


def _read(name: str, value: Any) -> Any:
    """Return a reading, None where it can't be true."""
    return value if value is not None and 0 <= value <= (MOST_RATIO if name.endswith("_ratio") else MOST) else None


def memory_of(sample: Mapping[str, Any], job: str) -> float | None:
    """Return the most memory that one of the job's GPUs holds; None where that was not read."""
    column = sample["mean"].get("fb_used_bytes") or ()
    mine = (value for value, holder in zip(column, sample["job"], strict=False) if holder == job)
    return max((value for value in mine if value is not None), default=None)


def _middle(column: Sequence[Any] | None, rows: Sequence[int]) -> float | None:
    values = sorted(value for at in rows if (value := column[at]) is not None) if column else []
    return float(values[len(values) // 2]) if values else None
