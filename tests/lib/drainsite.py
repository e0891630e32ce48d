"""A bus with a Slurm feed's words on it, and drainers in this process or as processes of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from drainworld import controller, inbound, node, policy
from fakescontrol import FakeScontrol
from waiting import Reader, until

from heeler.bus import Bus, BusSettings, decode, encode
from heeler.drain.scontrol import Scontrol
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

    async def hears(self, *verdicts: str) -> None:
        """Wait until drainers have said these verdicts, in this order and no others before."""
        await until(lambda: len(self.told) >= len(verdicts), f"{verdicts}, heard {self.told}")
        assert [verdict for _, verdict, _ in self.told] == list(verdicts)


@asynccontextmanager
async def running(
    settings: BusSettings, site: Site, name: str, dry_run: bool, limits: dict[str, Any]
) -> AsyncIterator["Instance"]:
    """Run a drainer in this process."""
    bus = await Bus.connect(settings, name)
    step = DrainStep(policy(**{**QUICK, **limits}), dry_run=dry_run, actor=name, tick_s=0.1, waits_for_activation=True)
    slurm = None if dry_run else Scontrol.of(str(site.scontrol.program), "", 1.0)
    instance = Instance(Drainer(bus, step, name, slurm, resume_every_s=0.3))
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

    def __init__(self, folder: Path, url: str, program: Path, drain: str = "", limits: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "drain.toml"
        config.write_text(
            f'[bus]\nservers = ["{url}"]\ncluster = "north"\n[log]\nformat = "json"\n'
            f'[drain]\ndry_run = false\nscontrol = "{program}"\ncommand_timeout_s = 1.0\ntick_s = 0.1\n{drain}\n'
            f"[drain.limits]\nsettle_s = 0.1\n{limits}\n"
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
