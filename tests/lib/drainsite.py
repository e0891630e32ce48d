"""A bus with a Slurm feed's words on it, and drainers in this process or as processes of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from drainworld import controller, inbound, node
from fakescontrol import FakeScontrol
from waiting import Reader, until

from heeler.bus import Bus, BusSettings, decode, encode, subjects
from heeler.drain.hooks import ExecHook
from heeler.drain.scontrol import Scontrol
from heeler.drain.settings import load_policy
from heeler.drain.shell import Drainer
from heeler.drain.step import DrainStep

QUICK = {"settle_s": 0.1, "retry_after_s": 600.0}


class Site:
    """A bus with the Slurm feed's words on it, and a reader of what drainers say."""

    def __init__(self, bus: Bus, actions: Reader, scontrol: FakeScontrol) -> None:
        self.bus = bus
        self.reader = actions
        self.scontrol = scontrol
        self.count = 0
        self.asked: list[dict[str, Any]] = []

    async def say(self, kind: str, data: dict[str, Any]) -> None:
        """Publish a message."""
        self.count += 1
        message = inbound(kind, data)
        await self.bus.publish_acked(message.subject, kind, encode(kind, data), f"{kind}.{self.count}.{data['ts']}")

    async def feed(self, nodes: int = 60) -> None:
        """Say what the Slurm feed would."""
        now = time.time_ns()
        await self.say("ClusterState", controller(now))
        for n in range(1, nodes + 1):
            await self.say("NodeState", node(f"n{n:03d}", now))
        await until(self._has_nodes, "the last-value stream of nodes")

    async def _has_nodes(self) -> bool:
        return (await self.bus.js.stream_info("NODES")).state.messages >= 60

    @property
    def actions(self) -> list[dict[str, Any]]:
        """What drainers have said so far."""
        return [decode("DrainAction", payload) for payload in self.reader.data]

    @property
    def told(self) -> list[tuple[str, str, str]]:
        """Node, verdict and rule of what drainers said."""
        return [(action["node"], action["verdict"], action["rule"]) for action in self.actions]

    @property
    def steps(self) -> list[tuple[str, str, str]]:
        """Step, verdict and rule of what drainers said."""
        return [(action.get("step", "drain"), action["verdict"], action["rule"]) for action in self.actions]

    async def shows(self, name: str) -> None:
        """Say what the feed would of a node, as the program in the place of scontrol has it now."""
        found = self.scontrol[name]
        state, *flags = found["state"].split("+")
        more = {"reason": found["reason"], "reason_user": found["user"]} if found.get("reason") else {}
        if more:
            more["reason_ts"] = found["ts"] * 1_000_000_000
        await self.say("NodeState", node(name, time.time_ns(), state.lower(), tuple(flags), **more))

    async def answers(self, name: str, outcome: Callable[[], str], verdict: str = "pass") -> None:
        """Answer requests for checks as a node's health service would."""

        async def on(payload: bytes) -> tuple[str, bytes]:
            asked = decode("HealthRequest", payload)
            self.asked.append(asked)
            results = [{"check": check, "outcome": outcome(), "why": "so"} for check in asked["checks"]]
            run = {
                "v": 1,
                "cluster": asked["cluster"],
                "node": name,
                "ts": time.time_ns(),
                "boot": "b",
                "seq": 1,
                "run": asked["id"],
                "phase": "request",
                "verdict": verdict,
                "why": "so",
                "results": results,
            }
            return "HealthRun", encode("HealthRun", run)

        await self.bus.answer(subjects.health_request(self.bus.cluster, name), on)

    async def hears(self, *verdicts: str) -> None:
        """Wait until drainers have said these verdicts, in this order and no others before."""
        await until(lambda: len(self.told) >= len(verdicts), f"{verdicts}, heard {self.told}")
        assert [verdict for _, verdict, _ in self.told] == list(verdicts)


@asynccontextmanager
async def running(
    settings: BusSettings,
    site: Site,
    name: str,
    dry_run: bool,
    limits: dict[str, Any],
    lifecycle: dict[str, Any] | None = None,
    rules: list[dict[str, Any]] | None = None,
    hooks: dict[str, ExecHook] | None = None,
) -> AsyncIterator["Instance"]:
    """Run a drainer in this process."""
    bus = await Bus.connect(settings, name)
    found = load_policy(limits={**QUICK, **limits}, lifecycle=lifecycle, rules=rules)
    step = DrainStep(found, dry_run=dry_run, actor=name, tick_s=0.1, waits_for_activation=True, hooks=hooks or ())
    slurm = None if dry_run else Scontrol.of(str(site.scontrol.program), "", 1.0)
    instance = Instance(Drainer(bus, step, name, slurm, resume_every_s=0.3, hooks=hooks))
    try:
        yield instance
    finally:
        await instance.stop()
        await bus.close()


class Instance:
    """A drainer that runs."""

    def __init__(self, drainer: Drainer) -> None:
        self.drainer = drainer
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(drainer.run(self._stop))

    @property
    def active(self) -> bool:
        """Is it the one that acts?"""
        return self.drainer.active.is_set()

    async def stop(self) -> None:
        """End it in good order; raises what it raised."""
        self._stop.set()
        await self._task


class Process:
    """An armed drainer as a process of its own."""

    def __init__(
        self,
        folder: Path,
        url: str,
        program: Path,
        drain: str = "",
        limits: str = "",
        lifecycle: str = "",
        bus: str = "",
        timeout_s: float = 1.0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "drain.toml"
        config.write_text(
            f'[bus]\nservers = ["{url}"]\ncluster = "north"\n{bus}\n[log]\nformat = "json"\n'
            f'[drain]\ndry_run = false\nscontrol = "{program}"\ntick_s = 0.1\n'
            f"command_timeout_s = {timeout_s}\n{drain}\n"
            f"[drain.limits]\nsettle_s = 0.1\n{limits}\n{lifecycle}\n"
        )
        self.log = folder / "log"
        with self.log.open("ab") as log:
            argv = [sys.executable, "-m", "heeler.drain", "--config", str(config)]
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)

    async def is_active(self) -> None:
        """Wait until it acts."""
        await until(lambda: '"active"' in self.log.read_text(), f"active: {self.log.read_text()[-2000:]}")

    async def ends(self) -> int:
        """Wait for its end; returns the exit status."""
        await until(lambda: self._process.poll() is not None, "its end")
        return int(self._process.returncode)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self._process.pid, number)

    def close(self) -> None:
        """End it at once, whatever state it is in."""
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.wait()
