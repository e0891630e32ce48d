"""What becomes of a request: checked, stamped, sent to all sinks, and answered for what they said.

Nothing is kept here: a sender is told that its points are taken after every sink has taken them, so none is lost if
this process ends, and an outage of a sink is the sender's to wait for. What is under way at once is bounded; more is
refused at once, with the time after which to come again.
"""

import asyncio
import queue
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from heeler.otlp.raw import RawMetrics
from heeler.otlp.sinks import Rejected, Sink, TooLarge, Unavailable

log = structlog.get_logger("heeler.otlp_in")

Verdict = Literal["taken", "bad", "too_large", "busy", "away"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the sender is told. ``rejected``: points that a sink refused for good."""

    verdict: Verdict
    message: str = ""
    after_s: float | None = None
    rejected: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)  # points by what is known of who has them


class Outlet:
    """A sink, over so many connections of its own as may be used at once."""

    def __init__(self, label: str, sinks: Sequence[Sink]) -> None:
        self.label = label
        self._all = list(sinks)
        self._free: queue.SimpleQueue[Sink] = queue.SimpleQueue()
        for sink in sinks:
            self._free.put(sink)

    def send(self, raw: RawMetrics) -> int:
        """Send all points, in smaller requests where it must be; returns how many were refused. Raises Unavailable."""
        sink = self._free.get()
        try:
            rejected = 0
            waiting: deque[Any] = deque(sink.prepare("metrics", [raw]))  # type: ignore[list-item]
            while waiting:
                part = waiting.popleft()
                try:
                    rejected += sink.send(part).rejected
                except TooLarge as error:
                    halves = part.halves()
                    if halves is not None:
                        waiting.extendleft(reversed(halves))
                    elif error.after_s is not None:
                        raise Unavailable(str(error), error.after_s) from error
                    else:
                        rejected += part.count
                except Rejected as error:
                    log.warning("request_rejected", sink=self.label, points=part.count, error=str(error)[:500])
                    rejected += part.count
            return rejected
        finally:
            self._free.put(sink)

    def close(self) -> None:
        """Close all connections."""
        for sink in self._all:
            sink.close()


class Relay:
    """Takes the bytes of requests, as many at once as there is room for."""

    def __init__(
        self,
        stamp: Callable[[ExportMetricsServiceRequest], Counter[str]],
        outlets: Sequence[Outlet],
        *,
        most_requests: int,
        most_bytes: int,
        retry_s: float,
    ) -> None:
        self.requests: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.held, self.held_bytes = 0, 0
        self._stamp, self._outlets = stamp, list(outlets)
        self._most_requests, self._most_bytes, self._retry_s = most_requests, most_bytes, retry_s
        self._threads = ThreadPoolExecutor(most_requests, "otlp-in")
        self._away = False

    async def take(self, data: bytes) -> Reply:
        """Do with a request all there is to do. Never raises for what is in it, or for a sink."""
        if self.held >= self._most_requests or self.held_bytes + len(data) > self._most_bytes:
            return self._told(Reply("busy", "too much is under way", self._retry_s))
        self.held += 1
        self.held_bytes += len(data)
        task = asyncio.get_running_loop().run_in_executor(self._threads, self._work, data)
        task.add_done_callback(lambda _: self._let_go(len(data)))  # also where the sender has gone away meanwhile
        return self._told(await asyncio.shield(task))

    def _let_go(self, size: int) -> None:
        self.held -= 1
        self.held_bytes -= size

    def _told(self, reply: Reply) -> Reply:
        self.requests[reply.verdict] += 1
        self.points.update({**reply.counts, "rejected": reply.rejected})
        if reply.verdict == "away" and not self._away:
            log.error("sink_unavailable", error=reply.message)
        elif reply.verdict == "taken" and self._away:
            log.info("sink_available")
        if reply.verdict in ("away", "taken"):
            self._away = reply.verdict == "away"
        return reply

    def _work(self, data: bytes) -> Reply:
        try:
            request = ExportMetricsServiceRequest.FromString(data)
        except DecodeError as error:
            return Reply("bad", f"no ExportMetricsServiceRequest: {error}")
        counts = self._stamp(request)
        raw = RawMetrics(request)
        rejected = 0
        if len(raw):
            try:
                rejected = max(outlet.send(raw) for outlet in self._outlets)
            except Unavailable as error:
                return Reply("away", str(error)[:500], self._retry_s if error.after_s is None else error.after_s)
            except Exception as error:  # a plug-in's bug must not lose what the sender still has
                log.exception("sink_failed")
                return Reply("away", f"{type(error).__name__}: {error}"[:500], self._retry_s)
        return Reply("taken", "a sink refused points" if rejected else "", rejected=rejected, counts=counts)

    def close(self) -> None:
        """Close the sinks; a request that is under way ends by its own time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for outlet in self._outlets:
            outlet.close()
