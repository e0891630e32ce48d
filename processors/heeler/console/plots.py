"""Evidence as curves: what a finding's GPUs did beside the band of their peers.

`Curves` is pure: samples in, curves out. `read` fills one from the history that the bus keeps, of a bounded number of
nodes of the job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heeler.bus import Bus, Choice, ConsumerSpec, Delivery, decoder_for, escape, prefix_of, shard_of
from heeler.bus.consumer import read_all
from heeler.console.pages import COMPARED
from heeler.engine.intake import Refused, intake

BINS = 240
MOST_CURVES = 8  # victims that get a curve of their own
READ_S = 20.0
KEPT_NS = 1800 * 1_000_000_000  # of samples, on the bus
LEAD_NS = 600 * 1_000_000_000  # of a plot, before the finding began and after it was closed
_CHOICES = {"JobSample": Choice(frozenset(), {"gpu": frozenset(("model", "parent")), "mean": frozenset(COMPARED)})}
_DECODE = decoder_for(_CHOICES)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be plotted. Without `victims` and `victim_node` all GPUs are peers."""

    start_ns: int
    end_ns: int
    job: str | None
    nodes: tuple[str, ...]
    victims: frozenset[str] = frozenset()
    victim_node: str | None = None  # all its GPUs are victims


@dataclass(slots=True)
class Curves:
    """Readings by metric, gathered until `drawn`."""

    asked: Asked
    ts: list[int] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in COMPARED})
    numbers: dict[str, int] = field(default_factory=dict)
    models: dict[int, str | None] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    victims: dict[int, str] = field(default_factory=dict)

    def add(self, sample: Mapping[str, Any]) -> None:
        """Take a sample in: the GPUs of the job, or all where there is none."""
        asked = self.asked
        if not asked.start_ns <= sample["ts"] <= asked.end_ns:
            return
        gpu, job, mean = sample["gpu"], sample["job"], sample["mean"]
        parents, models = gpu.get("parent"), gpu.get("model")
        for row, uuid in enumerate(gpu["uuid"]):
            mine = asked.job is None or job[row] == asked.job
            if not mine or (parents and parents[row] is not None):
                continue
            number = self.numbers.setdefault(uuid, len(self.numbers))
            self.models[number] = models[row] if models else None
            self.ts.append(sample["ts"])
            self.gpus.append(number)
            for name, column in self.values.items():
                found = mean.get(name)
                column.append(None if found is None else found[row])
            self.nodes.add(sample["node"])
            if uuid in asked.victims or sample["node"] == asked.victim_node:
                self.victims[number] = uuid

    def _windows(self, start: int, end: int) -> int:
        """Return how many windows lie between two times: the nodes' windows may end at different moments."""
        per_gpu = len(self.ts) / max(1, len(self.numbers))
        return max(1, round(per_gpu)) if end > start else 1

    def drawn(self, metrics: Sequence[str]) -> dict[str, Any]:
        """Return for each metric the band of the peers (10th, 50th, 90th percentile) and the victims' curves."""
        ts = np.array(self.ts, np.int64)
        gpus = np.array(self.gpus, np.intp)
        # The picture begins with the first reading: what the bus no longer has is no empty space.
        start, end = (int(ts.min()), int(ts.max())) if len(ts) else (self.asked.start_ns, self.asked.end_ns)
        bins = max(1, min(BINS, self._windows(start, end)))
        width = max(1, (end - start) // bins + 1)
        at = (ts - start) // width
        victim_models = {self.models[number] for number in self.victims}
        like = np.array([number not in self.victims and (not victim_models or model in victim_models)
                         for number, model in sorted(self.models.items())], bool)  # fmt: skip
        peers = like[gpus] if len(gpus) else np.zeros(0, bool)
        shown = dict(list(self.victims.items())[:MOST_CURVES])
        plots = []
        for metric in metrics:
            values = np.array(self.values[metric], float)
            known = ~np.isnan(values)
            plots.append(
                {
                    "metric": metric,
                    "band": _band(at[known & peers], values[known & peers], bins),
                    "curves": [
                        {"uuid": uuid, "values": _means(at[mine], values[mine], bins)}
                        for number, uuid in shown.items()
                        for mine in [known & (gpus == number)]
                    ],
                }
            )
        return {
            "start": start,
            "step": width,
            "bins": bins,
            "plots": plots,
            "peers": int(like.sum()),
            "victims": len(self.victims),
            "nodes": len(self.nodes),
        }


def _band(at: Any, values: Any, bins: int) -> list[list[float] | None]:
    found: list[list[float] | None] = [None] * bins
    order = np.argsort(at, kind="stable")
    at, values = at[order], values[order]
    edges = np.searchsorted(at, np.arange(bins + 1))
    for number in range(bins):
        part = values[edges[number] : edges[number + 1]]
        if len(part):
            found[number] = [round(one, 5) for one in np.percentile(part, (10, 50, 90)).tolist()]
    return found


def _means(at: Any, values: Any, bins: int) -> list[float | None]:
    count = np.bincount(at, minlength=bins)[:bins]
    total = np.bincount(at, weights=values, minlength=bins)[:bins]
    return [round(float(t / c), 5) if c else None for t, c in zip(total, count, strict=True)]


def metrics_of(finding: Mapping[str, Any], most: int = 3) -> list[str]:
    """Return what to plot: the metrics of the evidence that samples have, the deciding one first.

    Evidence that is no reading, such as a line of the kernel log, says when; whether the work stopped then is seen in
    activity and power.
    """
    entity = finding["entity"]
    named = dict.fromkeys(item["metric"] for item in finding["evidence"])
    known = [metric for metric in named if metric in COMPARED][:most]
    if known:
        return known
    if finding["kind"] in ("thermal", "power"):
        return ["temp_c", "sm_clock_mhz", "power_w"]
    of_gpus = entity.get("type") in ("gpu", "job") or bool(entity.get("gpus"))
    return ["tensor_active_ratio", "sm_active_ratio", "power_w"] if of_gpus else []


def asked_by(finding: Mapping[str, Any], nodes_of_job: Sequence[str], now_ns: int, most: int) -> Asked | str:
    """Return what to read for the plots of a finding, or why there is nothing to read."""
    entity, job = finding["entity"], finding.get("job_id")
    node = finding.get("node") or entity.get("node")
    first = [] if node is None else [node]
    nodes = spread_out(nodes_of_job, first, most)
    if not metrics_of(finding) or not nodes:
        return "its evidence is no reading that is kept over time"
    end_ns = now_ns if finding["state"] != "closed" else min(now_ns, finding["ts"] + LEAD_NS)
    start_ns = max(now_ns - KEPT_NS, finding["first_ts"] - LEAD_NS)
    if start_ns >= end_ns:
        return "the bus keeps samples for half an hour; this is older"
    named = (entity.get("gpu_uuid"), *(entity.get("gpus") or ()))
    victims = frozenset(uuid for uuid in named if isinstance(uuid, str))
    return Asked(start_ns, end_ns, job if nodes_of_job else None, nodes, victims, None if victims else node)


async def read(bus: Bus, asked: Asked, cluster: str | None = None) -> Curves:
    """Return the curves of the asked nodes from the bus. What can't be read is left out. Raises TimeoutError."""
    curves = Curves(asked)

    async def on(delivery: Delivery) -> None:
        try:
            message = intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns, _DECODE)
        except Refused:
            return
        curves.add(message.data)

    patterns = tuple(
        f"job.sample.{shard_of(asked.job) if asked.job is not None else '*'}.{escape(node)}" for node in asked.nodes
    )
    spec = ConsumerSpec("JOBSAMPLES", patterns, start=asked.start_ns, prefix=prefix_of(cluster))
    await read_all(bus, spec, on, timeout_s=READ_S)
    return curves


def spread_out(nodes: Sequence[str], first: Sequence[str], most: int) -> tuple[str, ...]:
    """Return at most so many nodes: those that must be there, and others evenly taken from all."""
    wanted = list(dict.fromkeys(first))[:most]
    others = [node for node in nodes if node not in wanted]
    room = most - len(wanted)
    if len(others) > room:
        others = [others[at * len(others) // room] for at in range(room)]
    return (*wanted, *others)
