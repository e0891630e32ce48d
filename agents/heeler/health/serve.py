"""The service of a node: answers requests for checks, runs the periodic ones, keeps what a prolog has to know.

It runs `heeler-health run` as a child and nothing else: what a request can ask for are names on the policy's list.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from heeler.bus import Bus, ConfigError, DecodeError, decode, encode, escape, subjects
from heeler.bus.claims import Claims, hear
from heeler.bus.client import RETRYABLE
from heeler.engine.process import Context, Program
from heeler.health.caches import breaker_file, keep, node_file
from heeler.health.origin import boot_id, next_seq, run_id
from heeler.health.policy import Policy
from heeler.health.requests import answer_of, grant, id_of, refusal
from heeler.health.run import load_site
from heeler.health.serve_settings import ServeSettings
from heeler.health.slurm_env import node_of

log = structlog.get_logger("heeler.health")

BREAKER = "prolog"
MOST_OUTPUT = 8 << 20
LOOK_EVERY_S = 300.0  # at the bus, beside what it tells by itself


@dataclass(slots=True)
class Service:
    """One node's service."""

    bus: Bus
    settings: ServeSettings
    node: str
    counts: Counter[str] = field(default_factory=Counter)
    running: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until stopped."""
        await self.bus.answer(subjects.health_request(self.bus.cluster, self.node), self.on_request)
        tasks = [asyncio.create_task(self._keep_breaker()), asyncio.create_task(self._keep_node())]
        if self.settings.interval_s:
            tasks.append(asyncio.create_task(self._periodic()))
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
        finally:
            for task in (stopping, *tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Requests

    async def on_request(self, payload: bytes) -> tuple[str, bytes] | None:
        """Answer a request with a HealthRun; None for what is no request."""
        try:
            request = decode("HealthRequest", payload)
        except DecodeError as err:
            self.counts["health_bad_requests_total"] += 1
            log.warning("request_refused", error=str(err))
            return None
        now_ns = time.time_ns()
        head = self._head(request)
        try:
            policy = self._policy()
        except ConfigError as err:
            return self._sent(refusal(head, f"the policy can't be used: {err}"[:400], self.node, now_ns))
        granted = grant(request, policy, self.node, now_ns, busy=self.running.locked())
        if granted.why is not None:
            return self._sent(refusal(head, granted.why, self.node, now_ns))
        until_s = self.settings.run_s
        if "deadline_ts" in request:
            until_s = min(until_s, (request["deadline_ts"] - now_ns) / 1e9)
        async with self.running:
            output, rc = await self._child(("--mode", "request", "--id", head["run"], *granted.names), until_s)
        return self._sent(answer_of(head, output, rc, self.node, time.time_ns()))

    def _head(self, request: Any) -> dict[str, Any]:
        ident = id_of(request) or run_id(time.time_ns())
        head = {"v": 1, "cluster": self.bus.cluster, "boot": boot_id(), "seq": next_seq()}
        return {**head, "run": ident, "phase": "request"}

    def _sent(self, run: dict[str, Any]) -> tuple[str, bytes]:
        self.counts[f"health_requests_total.{run['verdict']}"] += 1
        log.info("request", verdict=run["verdict"], why=run["why"], run=run["run"])
        return "HealthRun", encode("HealthRun", run)

    # Runs

    async def _periodic(self) -> None:
        await asyncio.sleep(random.uniform(0, self.settings.interval_s))
        while True:
            async with self.running:
                _, rc = await self._child(("--mode", "periodic"), self.settings.run_s)
            self.counts[f"health_periodic_total.{'ended' if rc is None else rc}"] += 1
            await asyncio.sleep(self.settings.interval_s * random.uniform(0.9, 1.1))

    async def _child(self, argv: Sequence[str], seconds: float) -> tuple[bytes, int | None]:
        """Run heeler-health and return what it printed and its status; None where it was ended at the deadline."""
        command = (sys.executable, "-m", "heeler.health.cli", "run", "--json", "--policy", self.settings.policy)
        child = await asyncio.create_subprocess_exec(
            *command,
            "--timeout",
            f"{max(seconds - 1.0, 0.5):.1f}",
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            limit=MOST_OUTPUT,
        )
        assert child.stdout is not None
        rc: int | None = None
        output = b""
        try:
            async with asyncio.timeout(max(seconds, 0.5)):
                output = await child.stdout.read(MOST_OUTPUT)
                rc = await child.wait()
        except TimeoutError:
            self.counts["health_runs_ended_total"] += 1
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        return output, rc

    # What a prolog has to know

    async def _keep_breaker(self) -> None:
        """Copy each value of the breaker that the bus tells, and look at it now and then, as at the start."""

        def heard(value: bytes) -> None:
            found = breaker_file(value, self.bus.cluster)
            if found is None or not keep(self._cache / "breaker.json", found):
                self.counts["health_breaker_not_kept_total"] += 1

        key = f"{escape(self.bus.cluster)}.{BREAKER}"
        await hear(self.bus, "breakers", key, heard)
        while True:
            try:
                claim = await (await Claims.open(self.bus, "breakers")).get(key)
                if claim is not None:
                    heard(claim.value)
            except RETRYABLE as err:
                log.warning("breaker_not_read", error=f"{type(err).__name__}: {err}")
            await asyncio.sleep(LOOK_EVERY_S * random.uniform(0.5, 1.0))

    async def _keep_node(self) -> None:
        """Keep this node's state in Slurm as the bus tells it."""
        subject = subjects.node_state(self.bus.cluster, self.node)

        def heard(payload: bytes) -> None:
            with suppress(DecodeError):
                state = decode("NodeState", payload)
                keep(self._cache / "node.json", node_file(state, time.time_ns()))

        await self.bus.subscribe(subject, _taking(heard))
        while True:
            try:
                found = await self.bus.last("NODES", subject)
                if found is not None:
                    heard(found)
            except RETRYABLE as err:
                log.warning("node_not_read", error=f"{type(err).__name__}: {err}")
            await asyncio.sleep(LOOK_EVERY_S * random.uniform(0.5, 1.0))

    @property
    def _cache(self) -> Path:
        with suppress(ConfigError):
            return self._policy().cache
        return Path("/run/heeler")

    def _policy(self) -> Policy:
        return load_site(Path(self.settings.policy), self.node)

    def metrics(self) -> dict[str, float]:
        """Return what was counted."""
        return {name: float(count) for name, count in self.counts.items()}


def _taking(heard: Any) -> Any:
    async def on(message: Any) -> None:
        heard(message.data)

    return on


async def _main(context: Context) -> None:
    settings: ServeSettings = context.settings["serve"]
    node = _node(settings)
    service = Service(context.bus, settings, node)
    context.metrics["health"] = service.metrics
    log.info("serving", node=node, interval_s=settings.interval_s)
    await service.run(context.stop)


def _node(settings: ServeSettings) -> str:
    return settings.node or node_of(os.environ, os.uname().nodename)


PROGRAM = Program(
    "health",
    "Answer requests for checks, and run the periodic ones.",
    _main,
    {"serve": ServeSettings},
    # Each node's own: answers to one must not be heard by another.
    lambda settings: f"{_node(settings['serve'])}-health",
)
