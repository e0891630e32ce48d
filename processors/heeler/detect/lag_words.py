"""What a lag finding says: entity, evidence, confidence, advice and the one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heeler.detect.causes import WORDS
from heeler.detect.findings import Draft, Evidence, duration, of_jobs
from heeler.detect.judge import Verdict
from heeler.detect.windows import CLOCK, POWER, SM, TENSOR, UTIL, Gpu

NAMES = {
    POWER: ("power_w", "W"),
    CLOCK: ("sm_clock_mhz", "MHz"),
    SM: ("sm_active_ratio", "1"),
    TENSOR: ("tensor_active_ratio", "1"),
    UTIL: ("util_ratio", "1"),
}
CONFIDENCE = {
    "thermal_slowdown": 0.9,
    "power_brake": 0.9,
    "hw_slowdown": 0.9,
    "power_limit_low": 0.85,
    "clocks_locked": 0.85,
    "pcie_degraded": 0.8,
    "ecc_errors": 0.75,
    "nvlink_errors": 0.75,
    "low_clock": 0.7,
    "host_starved": 0.6,
    "unknown": 0.5,
}
ALONE = 0.7  # without peers a cause is what the GPU says itself
ONE_METRIC = 0.4  # a single metric differs and nothing says why
LINK_ONLY = 0.6  # a narrow link without any lag seen
SUSTAINED = 0.05  # more for what has lasted


@dataclass(frozen=True, slots=True)
class Mass:
    """A window in which too many stood out at once."""

    end_ns: int
    cause: str
    gpus: int
    of_gpus: int


def confidence_of(verdict: Verdict, *, sustained: bool) -> float:
    """Return how sure a verdict is."""
    base = ONE_METRIC if verdict.alone else CONFIDENCE[verdict.cause.name]
    if verdict.peers == 0:
        base = min(base, ALONE)
    if verdict.gap_ratio == 0.0:
        base = min(base, LINK_ONLY)
    return min(0.99, base + (SUSTAINED if sustained and verdict.physical else 0.0))


def gpu_draft(
    gpu: Gpu, verdict: Verdict, job: str, first_ts: int, data_ts: int, seen: tuple[int, int], *, drain: bool
) -> Draft:
    """Return the finding of one GPU. `seen` is (windows in which it stood out, windows looked at)."""
    entity: dict[str, Any] = {"type": "gpu", "node": gpu.node, "gpu_uuid": gpu.uuid, "job_id": job}
    if gpu.index is not None:
        entity["gpu_index"] = gpu.index
    if gpu.pci is not None:
        entity["pci"] = gpu.pci
    name = f"GPU {gpu.index if gpu.index is not None else '?'} ({_short(gpu.uuid)}) on {gpu.node}"
    why = f"{WORDS[verdict.cause.name]} for {duration(data_ts - first_ts)}"
    return Draft(
        kind="gpu_lag",
        ident=gpu.uuid,
        entity=entity,
        severity="critical" if drain else "warning",
        confidence=confidence_of(verdict, sustained=drain),
        advice="drain_after_job" if drain else "observe",
        cause=verdict.cause.name,
        summary=f"{name} {compared(verdict)}: {why}{of_jobs([job])}.",
        first_ts=first_ts,
        data_ts=data_ts,
        evidence=evidence_of(verdict, seen),
        jobs=[job],
    )


def node_draft(
    node: str,
    verdicts: Sequence[tuple[Gpu, Verdict]],
    job: str,
    first_ts: int,
    data_ts: int,
    seen: tuple[int, int],
    *,
    drain: bool,
) -> Draft:
    """Return the one finding of a node whose GPUs stand out together."""
    verdict = sorted((v for _, v in verdicts), key=lambda v: v.gap_ratio)[len(verdicts) // 2]
    which = ", ".join(str(g.index) if g.index is not None else _short(g.uuid) for g, _ in verdicts)
    why = f"{WORDS[verdict.cause.name]} for {duration(data_ts - first_ts)}"
    shown = [*evidence_of(verdict, seen), {"metric": "gpus", "value": which}]
    return Draft(
        kind="gpu_lag",
        ident=f"node:{node}",
        entity={"type": "node", "node": node, "job_id": job},
        severity="critical" if drain else "warning",
        confidence=confidence_of(verdict, sustained=drain),
        advice="drain_after_job" if drain else "observe",
        cause=verdict.cause.name,
        summary=f"GPUs {which} on {node}: the typical one {compared(verdict)}: {why}{of_jobs([job])}.",
        first_ts=first_ts,
        data_ts=data_ts,
        evidence=shown,
        jobs=[job],
    )


def job_draft(job: str, mass: Mass, first_ts: int, seen: tuple[int, int]) -> Draft:
    """Return the finding of a whole job: too many at once to blame any of them."""
    known = mass.cause != "unknown"
    what = "are slowed down" if known else "stand out from their peers"
    why = WORDS[mass.cause] if known else "workload or fabric"
    lasted = duration(mass.end_ns - first_ts)
    shown = {"metric": "gpus_affected", "value": mass.gpus, "unit": "1", "peers": mass.of_gpus}
    return Draft(
        kind="job_slow",
        ident=f"job:{job}",
        entity={"type": "job", "job_id": job},
        severity="warning",
        confidence=0.6,
        advice="observe",
        cause=mass.cause,
        summary=f"{mass.gpus} of {mass.of_gpus} GPUs of job {job} {what} at once for {lasted}: {why}, none is blamed.",
        first_ts=first_ts,
        data_ts=mass.end_ns,
        evidence=[shown | {"windows": seen[0], "of_windows": seen[1]}],
        jobs=[job],
    )


PHRASES = {
    CLOCK: "runs at {value:,.0f} MHz while its {peers} peers run at {median:,.0f}",
    POWER: "draws {value:,.0f} W while its {peers} peers draw {median:,.0f} W",
    SM: "has {value:.0%} of its SM cycles active while its {peers} peers have {median:.0%}",
    TENSOR: "has its tensor cores busy {value:.1%} of the time while its {peers} peers have {median:.1%}",
    UTIL: "runs kernels {value:.0%} of the time while its {peers} peers do {median:.0%}",
}
PAST_PHRASES = {
    CLOCK: "runs at {value:,.0f} MHz where {median:,.0f} were usual",
    POWER: "draws {value:,.0f} W where {median:,.0f} W were usual",
    SM: "has {value:.0%} of its SM cycles active where {median:.0%} were usual",
    TENSOR: "has its tensor cores busy {value:.1%} of the time where {median:.1%} were usual",
    UTIL: "runs kernels {value:.0%} of the time where {median:.0%} were usual",
}
ALONE_PHRASE = "runs at {value:,.0f} MHz under load"
LINK_PHRASE = "has a slower PCIe link than its {peers} peers"


def compared(verdict: Verdict) -> str:
    """Return the comparison as the middle of a sentence."""
    if verdict.peers:
        phrase = PHRASES.get(verdict.metric, LINK_PHRASE)
    else:
        phrase = ALONE_PHRASE if np.isnan(verdict.peers_median) else PAST_PHRASES[verdict.metric]
    return phrase.format(value=verdict.value, median=verdict.peers_median, peers=verdict.peers)


def evidence_of(verdict: Verdict, seen: tuple[int, int]) -> list[Evidence]:
    """Return the readings behind a verdict, the deciding one first."""
    rows = sorted(verdict.windowed, key=lambda item: item[0] != verdict.metric)
    found: list[Evidence] = []
    for row, value, median, mad in rows:
        name, unit = NAMES[row]
        item: Evidence = {"metric": name, "value": round(value, 4), "unit": unit}
        if verdict.peers:
            item |= {"peers_median": round(median, 4), "peers_mad": round(mad, 4), "peers": verdict.peers}
            if median > 0:
                item["deviation_ratio"] = round(value / median - 1.0, 4)
        elif median > 0:
            item |= {"usual": round(median, 4), "deviation_ratio": round(value / median - 1.0, 4)}
        found.append(item)
    if not found and verdict.metric in NAMES and not np.isnan(verdict.value):
        name, unit = NAMES[verdict.metric]
        found.append({"metric": name, "value": round(verdict.value, 4), "unit": unit})
    if found:
        found[0] |= {"windows": seen[0], "of_windows": seen[1]}
    return found + verdict.cause.evidence


def _short(uuid: str) -> str:
    return f"{uuid[:12]}…" if len(uuid) > 13 else uuid
