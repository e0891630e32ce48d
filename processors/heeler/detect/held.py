"""GPUs that something holds though no job does, and GPUs that say nothing while their siblings do."""

from collections.abc import Mapping, Sequence
from typing import Any

from heeler.detect.divided import GONE, is_part, jobs_at
from heeler.detect.findings import Evidence
from heeler.detect.gpu_rule import Advice, Reading, Rule, Sight
from heeler.detect.marks import Patience
from heeler.detect.thresholds import LeftoverThresholds, Thresholds
from heeler.detect.windows import MOST_BYTES

SPOKEN = ("power_w", "temp_c", "util_ratio", "sm_clock_mhz", "fb_used_bytes")
MEANS = frozenset(SPOKEN)
LASTS = frozenset(("mig_mode",))


def rules(t: Thresholds) -> tuple[Rule, ...]:
    """Return the rules of this file."""
    silent = t.silent
    return Leftover(t.leftover), GpuSilent(Patience(silent.after_s, silent.clear_s, 2 * silent.after_s))


class Leftover(Rule):
    """Memory that is still in use on a GPU of no job: a process that survived its job, or one that never had one.

    What a driver, MPS or DCGM's host engine keeps is far less. Only where Slurm has spoken of the node, and nobody
    is working on it.
    """

    kind = "leftover"

    def __init__(self, t: LeftoverThresholds) -> None:
        super().__init__(Patience(t.after_s, t.clear_s, 1.5 * t.after_s))
        self.t = t

    def hot(self, sample: Mapping[str, Any]) -> bool:
        """Say whether any GPU without a job is in use."""
        jobs = sample["job"]
        return None in jobs and any(
            holder is None and _holds(used, self.t.bytes)
            for holder, used in zip(jobs, sample["mean"].get("fb_used_bytes") or (), strict=False)
        )

    def odd(self, reading: Reading) -> bool:
        """Say the same of a reading."""
        return self.hot(reading.sample)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return what holds one GPU."""
        node, sample = reading.node, reading.sample
        if jobs_at(sample, at):
            return False
        used = reading.mean("fb_used_bytes", at)
        known = node.state_ts > 0 and not node.quiet and node.drained is False
        if used is None or used > MOST_BYTES or not known or is_part(sample, at) or reading.last("mig_mode", at):
            return None
        if not _holds(used, self.t.bytes):
            return False
        found: list[Evidence] = [{"metric": "fb_used_bytes", "value": int(used), "unit": "By"}]
        util = reading.mean("util_ratio", at)
        found += [] if util is None else [{"metric": "util_ratio", "value": round(float(util), 4), "unit": "1"}]
        words = f"{used / 2**30:.1f} GiB in use without a job"
        return Sight("leftover", words, found, confidence=0.6 if node.jobs else 0.8)

    def advice(self, lasted_s: float, sights: Sequence[Sight], gpus: int) -> Advice:  # noqa: ARG002 - as the others
        """Whose process it is, a person must see."""
        return "person" if lasted_s >= self.t.person_after_s else "observe"


class GpuSilent(Rule):
    """A GPU of which nothing can be read while the others of the node answer: a gap, and no verdict on its speed."""

    kind = "gpu_silent"

    def hot(self, sample: Mapping[str, Any]) -> bool:
        """Say whether any GPU's power is missing."""
        power = sample["mean"].get("power_w")
        return power is not None and None in power

    def odd(self, reading: Reading) -> bool:
        """Say the same of a reading."""
        return self.hot(reading.sample)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return whether one GPU is silent alone."""
        if is_part(reading.sample, at) or reading.last("mig_mode", at):
            return None
        if any(reading.mean(name, at) is not None for name in SPOKEN):
            return False
        states = reading.sample.get("state")
        gone = states is not None and states[at] in GONE  # that has a finding of its own
        others = [row for row in range(len(reading.sample["job"])) if row != at]
        answering = sum(any(reading.mean(name, row) is not None for name in SPOKEN) for row in others)
        if gone or not answering:
            return None
        found: list[Evidence] = [{"metric": "gpus_answering", "value": answering, "unit": "1"}]
        return Sight("telemetry_gap", "nothing can be read of it while others answer", found, confidence=0.6)

    def advice(self, lasted_s: float, sights: Sequence[Sight], gpus: int) -> Advice:  # noqa: ARG002 - as the others
        """Nothing is known to be wrong."""
        return "observe"


def _holds(used: Any, least: float) -> bool:
    return used is not None and least <= used <= MOST_BYTES
