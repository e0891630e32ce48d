"""One run of the demo: from its first process to its last, and the verdict."""

import asyncio
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import structlog

from heeler.bus import BusError
from heeler.sim.demo import verdict
from heeler.sim.demo.cluster import Cluster, thresholds_text
from heeler.sim.demo.director import Director, connect
from heeler.sim.demo.screen import Screen
from heeler.sim.demo.settings import DemoError, Settings, clean_environment
from heeler.sim.demo.supervisor import Supervisor
from heeler.sim.demo.tools import Tools, find


class Demo:
    """One run from its first to its last process."""

    def __init__(self, settings: Settings, screen: Screen, run_dir: Path) -> None:
        self.settings = settings
        self.screen = screen
        self.run_dir = run_dir
        self.tools: Tools = find()
        self.supervisor = Supervisor(run_dir, clean_environment())
        self.cluster = Cluster(settings, self.tools, self.supervisor, screen, time.time_ns())
        self.set_up_s = 0.0
        self.told = False
        self.report = ""  # the JSON line, printed when all else has ended

    def greet(self) -> None:
        """Say what will happen and how to have it again."""
        say, settings = self.screen.line, self.settings
        say(f"Heeler demo: {settings.nodes} nodes, SEED={settings.seed} draws the victims", "head", stamp=False)
        say(f"logs of every process: {self.run_dir}/logs", "dim", stamp=False)
        if self.tools.lack:
            say(f"{self.tools.lack}: all nodes are simulated, none has a real agent", "bad", stamp=False)
        for program in ("detect", "drain"):
            say(f"thresholds of {program} in this demo (heeler/{program}/demo.toml):", "head", stamp=False)
            lines = thresholds_text(program).strip().splitlines()
            self.screen.block(f"    {line}" for line in lines if line)

    async def run(self) -> int:
        """Return the exit status."""
        began = time.monotonic()
        await self.cluster.start_bus()
        bus = await connect(self.cluster)
        director = Director(self.cluster, self.screen, bus)
        try:
            await self.cluster.start_processors()
            await director.watch.start()
            await self.cluster.start_fleet()
            await director.baseline()
            self.set_up_s = time.monotonic() - began
            return await self._play(director)
        finally:
            await director.watch.stop()
            await bus.close()

    async def _play(self, director: Director) -> int:
        teller = asyncio.create_task(director.tell_sink())
        try:
            await (director.faults() if self.settings.faults else director.healthy())
            await self._why(director)
            self.told = True
            if not self.settings.once:
                self._summary(director)
                self._look()
                await asyncio.Event().wait()
            await asyncio.sleep(2.0)
        finally:
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)
        await director.settle()
        return self._judge(director)

    def _summary(self, director: Director) -> None:
        """Say how long each answer took."""
        for label in director.labels:
            one = verdict.answer(label, director.watch.findings, director.watch.actions)
            times = f"finding after {_after(one.finding_s)}, the drainer's word after {_after(one.action_s)}"
            self.screen.line(f"{label['kind']} on {label['node']}: {times}", "good")

    def _look(self) -> None:
        """Say how to look at what runs now."""
        self.screen.line(
            "the cluster keeps running; Ctrl-C ends it. Look at it in a browser, or in another terminal:", "head"
        )
        bin_dir = self.tools.python.parent
        for line in (
            self.cluster.page_url(),
            f"export HEELER_NATS_URL={self.cluster.url} HEELER_CLUSTER={self.settings.cluster} PATH={bin_dir}:$PATH",
            "heeler top",
        ):
            self.screen.line(f"    {line}", stamp=False)

    async def _why(self, director: Director) -> None:
        """End the story with the answers that people get."""
        if not director.labels:
            return
        label = director.labels[0]
        questions = [("node", label["node"])] + ([("job", label["job_id"])] if label["job_id"] else [])
        for kind, name in questions:
            self.screen.line(f"$ heeler why {kind} {name}", "head", stamp=False)
            command = self.tools.heeler("why", kind, name, "--url", self.cluster.url)
            done = await asyncio.to_thread(
                subprocess.run,
                command,
                capture_output=True,
                text=True,
                env=self.supervisor.env,
                timeout=30,
                check=False,
            )
            self.screen.block((f"    {line}" for line in (done.stdout or done.stderr).splitlines()), "")

    def _judge(self, director: Director) -> int:
        watch = director.watch
        exported, passage = watch.exported, watch.passage
        answers = [verdict.answer(label, watch.findings, watch.actions) for label in director.labels]
        problems = verdict.problems_of(answers) + verdict.strangers(director.labels, watch.findings)
        problems += [f"sink: {difference}" for difference in exported.differences()]
        if exported.faulty:
            problems.append(f"sink: {exported.faulty} faulty points or records")
        if lost := passage.lost():
            problems.append(f"{lost} of {len(passage.into)} samples were lost in enrich")
        if self.settings.faults and len(director.labels) < 3:
            problems.append(f"only {len(director.labels)} faults were injected")
        for problem in problems:
            self.screen.line(problem, "bad")
        good = not problems
        self.screen.line(
            "all that was expected has arrived" if good else "something is missing", "good" if good else "bad"
        )
        self.report = json.dumps(self._report(director, answers, problems))
        return 0 if good else 1

    def _report(
        self,
        director: Director,
        answers: list[verdict.Answer],
        problems: list[str],
    ) -> dict[str, Any]:
        watch = director.watch
        exported, passage = watch.exported, watch.passage
        opened = [f for f in watch.findings if f.data["state"] == "open"]
        return {
            "ok": not problems,
            "seed": self.settings.seed,
            "nodes": self.settings.nodes,
            "real_agents": len(self.cluster.real),
            "set_up_s": round(self.set_up_s, 1),
            "faults": [one.report() for one in answers],
            "killed": director.kills,
            "counts": {
                "samples": len(passage.into),
                "samples_lost": passage.lost(),
                "sample_twins": passage.twins,
                "findings": len(opened),
                "actions": len(watch.actions),
                "points_expected": exported.points(exported.expected),
                "points_received": exported.points(exported.received),
                "logs_expected": exported.expected["logs"],
                "logs_received": exported.received["logs"],
                "spans_received": exported.received["spans"],
            },
            "cpu_s": {name: round(used, 2) for name, used in director.cpu_s.items()},
            "problems": problems,
        }


def _after(seconds: float | None) -> str:
    if seconds is None:
        return "no time: it did not come"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"


async def guarded(demo: Demo) -> int:
    """Run the demo; whatever happens, end everything it started."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1 and main is not None:
            main.cancel()
        else:
            demo.supervisor.kill_all()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    run = asyncio.create_task(demo.run())
    watch = asyncio.create_task(demo.supervisor.watch())
    try:
        done, _ = await asyncio.wait({run, watch}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is not None:
                task.result()
        return run.result()
    except asyncio.CancelledError:
        demo.screen.line("interrupted", "bad")
        return 0 if demo.told and not demo.settings.once else 130
    finally:
        for task in (run, watch):
            task.cancel()
        await asyncio.gather(run, watch, return_exceptions=True)
        await demo.supervisor.stop_all()
        shutil.rmtree(demo.run_dir / "nats", ignore_errors=True)  # the store; logs stay
        demo.screen.line(f"all processes have ended; logs: {demo.run_dir}/logs", "dim")
        if demo.report:
            demo.screen.raw(demo.report)


@click.command()
@click.option("--demo", "mode", envvar="DEMO", type=click.Choice(["watch", "once"]), default="watch", show_envvar=True)
@click.option("--faults", envvar="FAULTS", type=click.Choice(["all", "none"]), default="all", show_envvar=True)
@click.option("--nodes", envvar="NODES", type=int, default=64, show_default=True, show_envvar=True)
@click.option("--seed", envvar="SEED", type=int, help="Default: a new one, which is printed.", show_envvar=True)
@click.option("--real-agents", envvar="REAL_AGENTS", type=int, default=4, show_default=True, show_envvar=True)
@click.option("--window", default=2.0, show_default=True, help="Seconds of a sample's window.")
def main(mode: str, faults: str, nodes: int, seed: int | None, real_agents: int, window: float) -> None:
    """Start a whole cluster on this machine, break things, and tell the story.

    With --demo once it ends by itself, exits 0 only if everything expected has arrived, and prints one JSON
    object as its last line.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # our own connection is no part of the story
    screen = Screen()
    settings = Settings(
        nodes,
        secrets.randbelow(100_000) if seed is None else seed,
        mode == "once",
        faults == "all",
        real_agents,
        window,
    )
    try:
        settings.validate()
        run_dir = Path(tempfile.mkdtemp(prefix="heeler-demo-"))
        demo = Demo(settings, screen, run_dir)
        demo.greet()
        status = asyncio.run(guarded(demo))
    except (DemoError, BusError) as err:
        screen.line(f"heeler demo: {err}", "bad", stamp=False)
        status = 1
    sys.exit(status)
