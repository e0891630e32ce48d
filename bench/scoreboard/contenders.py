"""Who is compared: Heeler's real step, and three ways that others use. All see the same windows.

A contender names victims as (node, GPU) or (node, None), at the time at which it first does so.
"""

import warnings
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from heeler.bus import check
from heeler.detect import DetectStep
from heeler.detect.peers import middle
from heeler.detect.thresholds import Thresholds
from heeler.engine import Inbound, Keyed
from heeler.sim.fleet import Array
from scoreboard.play import METRICS, Step, opening
from scoreboard.scenario import EPOCH_NS, Scenario

POWER, CLOCK, SM, TENSOR, UTIL, TEMP = range(len(METRICS))


@dataclass(frozen=True, slots=True)
class Alarm:
    """A contender names a victim; (None, None) is the job as a whole."""

    at_s: float
    node: int | None
    gpu: int | None
    kind: str = ""
    cause: str = ""
    advice: str = ""


class Contender(Protocol):
    """One of those who are compared."""

    def begin(self, scenario: Scenario) -> None:
        """Start afresh."""

    def take(self, step: Step) -> list[Alarm]:
        """Look at a window and return whom it names now that it did not name before."""


@dataclass
class Heeler:
    """The step of detect as it runs in production, with its own findings read back."""

    thresholds: Thresholds | None = None
    keyed: Keyed = field(init=False)
    _nodes: dict[str, int] = field(default_factory=dict)
    _gpus: dict[str, tuple[int, int]] = field(default_factory=dict)
    _advice: dict[str, str] = field(default_factory=dict)

    def begin(self, scenario: Scenario) -> None:
        """Start a new process."""
        self.keyed = Keyed(DetectStep(self.thresholds))
        self._advice = {}
        self._nodes = dict(scenario.fleet.index)
        self._gpus = {
            uuid: (at, gpu) for at, node in enumerate(scenario.fleet.nodes) for gpu, uuid in enumerate(node.uuids)
        }
        for message in opening(scenario):
            self.keyed.on(message)

    def take(self, step: Step) -> list[Alarm]:
        """Feed the messages."""
        found: list[Alarm] = []
        for message in step.messages:
            self._said([event for _, event in self.keyed.on(message)], message.ts_ns, found)
        return found

    def _said(self, events: list[Any], ts_ns: int, found: list[Alarm]) -> None:
        for event in events:
            data = check("Finding", dict(event.data))
            back = Inbound("Finding", event.subject, data, max(ts_ns, self.keyed.now_ns))
            if data["state"] != "closed" and self._advice.get(data["id"]) != data["advice"]:
                self._advice[data["id"]] = data["advice"]
                found.append(self._alarm(data, ts_ns))
            self._said([event for _, event in self.keyed.on(back)], ts_ns, found)

    def _alarm(self, data: dict[str, Any], ts_ns: int) -> Alarm:
        entity = data["entity"]
        at_s = (ts_ns - EPOCH_NS) / 1e9
        node, gpu = self._gpus.get(entity.get("gpu_uuid", ""), (self._nodes.get(entity.get("node", "")), None))
        return Alarm(at_s, node, gpu, data["kind"], data.get("cause", ""), data["advice"])


@dataclass
class FixedLimits:
    """Limits as node health checks have them: application clocks, temperature. GCM 0.0.2's defaults where it has one.

    An idle GPU is left out, which GCM does not do, since its checks run between jobs.
    """

    clock_mhz: float = 1155.0
    temp_c: float = 84.0
    _named: set[tuple[int, int]] = field(default_factory=set)

    def begin(self, scenario: Scenario) -> None:  # noqa: ARG002
        """Forget."""
        self._named = set()

    def take(self, step: Step) -> list[Alarm]:
        """Compare each GPU with the limits."""
        values = step.values
        busy = (values[UTIL] > 0.1) & step.mine.astype(bool)
        bad = busy & ((values[CLOCK] < self.clock_mhz) | (values[TEMP] > self.temp_c))
        return _new(bad, self._named, step)


@dataclass
class ZScore:
    """Modified z-score over the job's GPUs, metric by metric, above 3.5 in three windows in a row."""

    limit: float = 3.5
    in_a_row: int = 3
    _named: set[tuple[int, int]] = field(default_factory=set)
    _runs: Array | None = None

    def begin(self, scenario: Scenario) -> None:  # noqa: ARG002
        """Forget."""
        self._named, self._runs = set(), None

    def take(self, step: Step) -> list[Alarm]:
        """Score each GPU."""
        values = np.where(step.mine.astype(bool), step.values[:TEMP], np.nan)
        flat = values.reshape(len(values), -1)
        median = middle(flat)[:, None]
        mad = middle(np.abs(flat - median))[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            odd = np.abs(0.6745 * (flat - median) / np.where(mad > 0, mad, np.nan)) > self.limit
        odd = odd.reshape(values.shape)
        if self._runs is None:
            self._runs = np.zeros(odd.shape)
        self._runs = np.where(odd, self._runs + 1, 0)
        return _new((self._runs >= self.in_a_row).any(axis=0), self._named, step)


@dataclass
class MinderLike:
    """After Minder (NSDI'25) without its denoising network: per metric the distance of each GPU's last eight windows.

    Sums of pairwise distances of min-max scaled vectors, their z-score over the job, and the same GPU on top of one
    metric for four minutes. The limit is tuned on the tuning seeds.
    """

    limit: float = 2.5
    span: int = 8
    lasting: int = 24
    _named: set[tuple[int, int]] = field(default_factory=set)
    _past: deque[Array] = field(default_factory=deque)
    _runs: Array | None = None

    def begin(self, scenario: Scenario) -> None:  # noqa: ARG002
        """Forget."""
        self._named, self._runs = set(), None
        self._past = deque(maxlen=self.span)

    def take(self, step: Step) -> list[Alarm]:
        """Measure the distances."""
        mine = np.flatnonzero(step.mine.reshape(-1))
        values = step.values[:TEMP].reshape(TEMP, -1)[:, mine]
        self._past.append(values)
        if len(self._past) < self.span or len(mine) < 3:
            return []
        past = np.stack(self._past)  # (windows, metrics, GPUs)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            low, high = np.nanmin(past, axis=(0, 2)), np.nanmax(past, axis=(0, 2))
            scaled = (past - low[None, :, None]) / np.where(high > low, high - low, np.nan)[None, :, None]
        scaled = np.nan_to_num(scaled, nan=0.5)
        score = np.stack([_distance_z(scaled[:, metric]) for metric in range(TEMP)])
        top = (score >= self.limit) & (score == score.max(axis=1, keepdims=True))
        if self._runs is None or self._runs.shape != top.shape:
            self._runs = np.zeros(top.shape)
        self._runs = np.where(top, self._runs + 1, 0)
        named = np.zeros(step.values.shape[1:], bool)
        named.reshape(-1)[mine] = (self._runs >= self.lasting).any(axis=0)
        return _new(named, self._named, step)


def _distance_z(vectors: Array) -> Array:
    """Return the z-score of each column's summed distance to sampled others."""
    count = vectors.shape[1]
    others = vectors[:, :: max(1, count // 64)]
    squares = (vectors**2).sum(axis=0)[:, None] + (others**2).sum(axis=0)[None] - 2 * vectors.T @ others
    sums = np.sqrt(np.maximum(squares, 0)).sum(axis=1)
    spread = sums.std()
    found: Array = (sums - sums.mean()) / spread if spread > 0 else np.zeros(count)
    return found


def _new(bad: Any, named: set[tuple[int, int]], step: Step) -> list[Alarm]:
    found = []
    for node, gpu in np.argwhere(bad).tolist():
        if (node, gpu) not in named:
            named.add((node, gpu))
            found.append(Alarm(step.end_s, node, gpu))
    return found
