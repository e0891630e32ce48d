"""Links of GPUs that are not what they should be: PCIe narrower or slower than it could be, NVLinks down or in error.

An idle GPU slows its PCIe link down by design, so PCIe is judged under load only. Where all GPUs of a node are alike,
the node was built so. Of NVLinks, bandwidth says nothing (in a ring all are equally slow): states and counters do.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from heeler.detect.findings import Evidence
from heeler.detect.gpu_rule import DrainRule, Reading, Rule, Sight
from heeler.detect.marks import Patience
from heeler.detect.thresholds import LinkThresholds, Thresholds

PCIE = (("pcie_gen", "pcie_gen_max", "1"), ("pcie_width", "pcie_width_max", "{lane}"))
PCIE_ERRORS = ("pcie_replays", "pcie_nonfatal_errors", "pcie_fatal_errors")
NVLINK_RETRIES = ("nvlink_crc_errors", "nvlink_replay_errors")
NVLINK_FAULTS = (
    "nvlink_recovery_errors",
    "nvlink_recoveries_failed",
    "nvlink_integrity_errors",
    "nvlink_xmit_discards",
)
MEANS = frozenset(("util_ratio",))
LASTS = frozenset(
    (*(name for pair in PCIE for name in pair[:2]), *PCIE_ERRORS, *NVLINK_RETRIES, *NVLINK_FAULTS, "nvlink_links_up")
)


def rules(t: Thresholds) -> tuple[Rule, ...]:
    """Return the rules of this file."""
    link = t.link
    below = Patience(link.after_s, link.clear_s, 2 * link.after_s)
    errors = Patience(0.0, link.clear_s, link.errors_span_s, amount=1.0)
    return Pcie(link, below), PcieErrors(link, errors), Nvlink(link, below), NvlinkErrors(link, errors)


class _Link(DrainRule):
    def __init__(self, t: LinkThresholds, patience: Patience) -> None:
        super().__init__(patience, t.drain_after_s, t.few_share)
        self.t = t


class Pcie(_Link):
    """The link to the host is narrower or slower than it could be."""

    kind = "pcie_degraded"
    states = tuple(name for pair in PCIE for name in pair[:2])

    def odd(self, reading: Reading) -> bool:
        """Compare the links with what they could be."""
        last = reading.sample["last"]
        return any(last.get(now) != last.get(most) for now, most, _ in PCIE)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return what is wrong with the link of one GPU under load."""
        util = reading.mean("util_ratio", at)
        if util is None or util < self.t.load_util_ratio:
            return None
        low: list[Evidence] = []
        read = False
        for now, most, unit in PCIE:
            value, best = reading.last(now, at), reading.last(most, at)
            if not value or not best:
                continue
            read = True
            if value < best and not self._built_so(reading, now, most):
                low.append({"metric": now, "value": value, "unit": unit, "best": best})
        if not low:
            return False if read else None
        words = " and ".join(f"{e['metric'].removeprefix('pcie_')} {e['value']:g} of {e['best']:g}" for e in low)
        return Sight("pcie_degraded", f"PCIe {words} under load", low, confidence=0.9, drains=True)

    def _built_so(self, reading: Reading, now: str, most: str) -> bool:
        """Say whether all loaded GPUs of the node are the same way below their best."""
        utils = reading.sample["mean"].get("util_ratio") or ()
        loaded = [at for at, util in enumerate(utils) if util is not None and util >= self.t.load_util_ratio]
        pairs = {(reading.last(now, at), reading.last(most, at)) for at in loaded}
        return len(loaded) >= self.t.least_siblings and len(pairs) == 1


class PcieErrors(_Link):
    """The link to the host counts errors. Replays one by one are normal."""

    kind = "pcie_errors"
    states = PCIE_ERRORS

    def odd(self, reading: Reading) -> bool:
        """Look whether a counter has grown."""
        return reading.grew(PCIE_ERRORS)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return the errors of one GPU's link since its last sample."""
        limits = dict(zip(PCIE_ERRORS, (self.t.pcie_replays, 1, 1), strict=True))
        return _errors(reading, at, limits, "pcie_errors", "PCIe errors")


class Nvlink(_Link):
    """A GPU has fewer NVLinks up than its siblings."""

    kind = "nvlink_degraded"
    states = ("nvlink_links_up",)

    def odd(self, reading: Reading) -> bool:
        """Look whether all have as many links."""
        up = reading.sample["last"].get("nvlink_links_up")
        return bool(up) and up.count(up[0]) != len(up)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Compare the links of one GPU with its siblings'."""
        up = reading.last("nvlink_links_up", at)
        known = [value for value in reading.sample["last"].get("nvlink_links_up") or () if value is not None]
        if up is None or len(known) < self.t.least_siblings:
            return None
        usual, times = Counter(known).most_common(1)[0]
        if up >= usual or 2 * times <= len(known):
            return False
        found: list[Evidence] = [
            {"metric": "nvlink_links_up", "value": up, "unit": "{link}", "peers_median": usual, "peers": len(known) - 1}
        ]
        return Sight("nvlink_down", f"{up:g} of {usual:g} NVLinks are up", found, confidence=0.9, drains=True)


class NvlinkErrors(_Link):
    """NVLinks count errors. Single retries are normal."""

    kind = "nvlink_errors"
    states = (*NVLINK_FAULTS, *NVLINK_RETRIES)

    def odd(self, reading: Reading) -> bool:
        """Look whether a counter has grown."""
        return reading.grew(NVLINK_FAULTS) or reading.grew(NVLINK_RETRIES)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return the errors of one GPU's links since its last sample."""
        limits = dict.fromkeys(NVLINK_RETRIES, self.t.nvlink_retries) | dict.fromkeys(
            NVLINK_FAULTS, self.t.nvlink_faults
        )
        return _errors(reading, at, limits, "nvlink_errors", "NVLink errors")


def _errors(reading: Reading, at: int, limits: Mapping[str, float], cause: str, words: str) -> Sight | bool | None:
    """Return how much of what is allowed the counters grew: 1 in the rule's span is too much."""
    grown: dict[str, Any] = {name: reading.growth(name, at) for name in limits}
    known = {name: count for name, count in grown.items() if count is not None}
    amount = sum(count / limits[name] for name, count in known.items())
    if not known:
        return None
    if not amount:
        return False
    found: list[Evidence] = [
        {"metric": name, "value": int(count), "unit": "{error}"} for name, count in known.items() if count
    ]
    return Sight(cause, words, found, amount=amount, confidence=0.75)
