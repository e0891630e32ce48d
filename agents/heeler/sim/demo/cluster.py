"""Starts the processes of a run: the bus, the sink, the processors, the agents, the fleet."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from heeler.sim.demo.screen import Screen
from heeler.sim.demo.settings import DemoError, Settings
from heeler.sim.demo.supervisor import Child, Supervisor
from heeler.sim.demo.tools import Tools
from heeler.sim.fleet import make_fleet, stream

STORE_SCALE = 0.004  # of every stream's max_bytes: a few hundred MiB in all
DETECTORS = ("detect-1", "detect-2")
PROCESSORS = ("enrich", *DETECTORS, "drain", "summary", "otlp", "console")
RECEIVER = "receiver"
FLEET, FEED = "sim", "slurm-feed"


@dataclass(slots=True)
class Cluster:
    """Everything that runs, and where it is."""

    settings: Settings
    tools: Tools
    supervisor: Supervisor
    screen: Screen
    epoch_ns: int
    url: str = ""
    receiver: dict[str, str] = field(default_factory=dict)
    real: tuple[str, ...] = ()  # nodes for which a real agent speaks

    @property
    def run_dir(self) -> Path:
        """Where logs, configurations and stores are."""
        return self.supervisor.run_dir

    @property
    def sim(self) -> Child:
        """Return the simulated fleet, which takes orders for faults."""
        return self.supervisor.children[FLEET]

    async def start_bus(self) -> None:
        """Start nats-server on a free port and create the streams."""
        with self.screen.step("starting nats-server with JetStream"):
            store = self.run_dir / "nats"
            argv = (str(self.tools.nats_server), "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store))
            child = await self.supervisor.start("nats-server", (*argv, "--ports_file_dir", str(self.run_dir)))
            await self.supervisor.logged("nats-server", "Server is ready")
            ports = self.run_dir / f"{self.tools.nats_server.name}_{child.pid}.ports"
            self.url = json.loads(ports.read_text())["nats"][0]
        with self.screen.step("creating streams and buckets (heeler bus init)"):
            command = self.tools.heeler("bus", "init", "--url", self.url, "--scale", str(STORE_SCALE))
            await self._once("bus-init", command)

    async def _once(self, name: str, argv: tuple[str, ...]) -> None:
        child = await self.supervisor.start(name, argv)
        child.expected_end = True
        if child.process is not None and (status := await child.process.wait()) != 0:
            raise DemoError(f"{name} ended with status {status}: {child.last_words()} (log: {child.log})")

    async def start_processors(self) -> None:
        """Start the sink and every processor, each a process of its own, and wait until they read."""
        with self.screen.step("starting the OTLP receiver"):
            receiver = await self.supervisor.start(
                RECEIVER, self.tools.module("heeler.sim.receiver", "--check-every", "8"), talks=True
            )
            assert receiver.process is not None
            assert receiver.process.stdout is not None
            line = await receiver.process.stdout.readline()
            if not line:
                raise DemoError(f"the receiver says nothing: {receiver.last_words()} (log: {receiver.log})")
            self.receiver = json.loads(line)
        with self.screen.step(f"starting {', '.join(PROCESSORS)}"):
            for name in PROCESSORS:
                program = name.partition("-")[0]
                path = self._write(f"{name}.toml", self.processor_tables(program))
                command = self.tools.heeler("run", program, "--config", str(path), "--listen", "127.0.0.1:0")
                await self.supervisor.start(name, command)
            for name in PROCESSORS:
                await self.supervisor.logged(name, "endpoint", timeout_s=40.0)
        await self.supervisor.logged("console", "serving")
        self.screen.line(f"a web page of it: {self.page_url()}", "head")

    def page_url(self) -> str:
        """Return where the console serves its page, as it has said."""
        log = self.supervisor.children["console"].log.read_text(errors="replace")
        line = next(line for line in log.splitlines() if '"serving"' in line)
        return str(json.loads(line)["url"])

    def processor_tables(self, program: str) -> dict[str, Any]:
        """Return the configuration of a processor: the demo's thresholds where there are some."""
        tables: dict[str, Any] = thresholds(program)
        tables["bus"] = {"servers": [self.url], "cluster": self.settings.cluster}
        tables["log"] = {"format": "json"}
        if program == "console":
            tables["console"] = {"listen": "127.0.0.1:0"}
        if program == "otlp":
            # Quick, and everything: what people look at here is over in minutes.
            quick = {"every_s": 0.0, "metrics": ["all"]}
            tables["otlp"] = {**quick, "sinks": [{"kind": "otlp", "endpoint": self.receiver["grpc"]}]}
        return tables

    async def start_fleet(self) -> None:
        """Start the real agents on fake GPUs, the simulated rest of the fleet, and the Slurm feed."""
        settings = self.settings
        self.real = self._draw_real()
        common = ["--nodes", str(settings.nodes), "--seed", str(settings.seed), "--cluster", settings.cluster]
        common += ["--epoch", str(self.epoch_ns), "--window", f"{settings.window_s:g}s", "--url", self.url]
        for name in self.real:
            common += ["--mirror", f"{name}={self.node_dir(name)}"]
        with self.screen.step(f"starting the simulated fleet of {settings.nodes} nodes and the Slurm feed"):
            labels = ("--control", "--status-every", "2s")
            await self.supervisor.start(
                FLEET, self.tools.module("heeler.sim", *common, "--parts", "agents", *labels), talks=True
            )
            await self.supervisor.start(FEED, self.tools.module("heeler.sim", *common, "--parts", "slurm"))
            await self.supervisor.logged(FLEET, "sim_started", timeout_s=40.0)
            await self.supervisor.logged(FEED, "sim_started", timeout_s=40.0)
        if self.real:
            with self.screen.step(f"starting {len(self.real)} real heeler-agents: {', '.join(self.real)}"):
                for name in self.real:
                    await self._start_agent(name)

    def _draw_real(self) -> tuple[str, ...]:
        count = self.settings.real_agents if self.tools.agent else 0
        fleet = make_fleet(self.settings.nodes, self.settings.seed)
        chosen = stream(self.settings.seed, "real agents").choice(len(fleet.nodes), count, replace=False)
        return tuple(fleet.nodes[i].name for i in sorted(chosen.tolist()))

    def node_dir(self, name: str) -> Path:
        """Return where a real agent's node lies as files."""
        return self.run_dir / "nodes" / name

    async def _start_agent(self, name: str) -> None:
        root, fleet = self.node_dir(name), make_fleet(self.settings.nodes, self.settings.seed)
        assert self.tools.agent is not None
        assert self.tools.library is not None
        window = f"{self.settings.window_s:g}s"
        tables: dict[str, Any] = {
            "cluster": self.settings.cluster,
            "node": name,
            "boot_id": fleet.nodes[fleet.index[name]].boot,
            "state_dir": str(root / "state"),
            "proc": str(root / "proc"),
            "sys": str(root / "sys"),
            "interval": "500ms",
            "window": window,
            "status_interval": "2s",
            "nats": {"servers": [self.url], "connect_jitter": "0s"},
            "kmsg": {"path": str(root / "kmsg")},
            "nvml": {"library": str(self.tools.library), "retry": "1s"},
            "ib": {"interval": "1s"},
        }
        (root / "state").mkdir(parents=True, exist_ok=True)
        path = self._write(f"agent-{name}.toml", tables)
        env = {"HEELER_FAKE_NVML": str(root / "nvml.scenario")}
        await self.supervisor.start(f"agent-{name}", (str(self.tools.agent), "run", "-config", str(path)), env=env)

    def _write(self, name: str, tables: Mapping[str, Any]) -> Path:
        folder = self.run_dir / "config"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(as_toml(tables))
        return path

    async def order(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Inject a fault and return the simulator's word on where it is. Raises DemoError."""
        process = self.sim.process
        if process is None or process.stdin is None or process.stdout is None:
            raise DemoError("the simulator takes no orders")
        process.stdin.write(json.dumps(entry).encode() + b"\n")
        await process.stdin.drain()
        answer: dict[str, Any] = json.loads(await process.stdout.readline() or b'{"error": "the simulator ended"}')
        if "error" in answer:
            raise DemoError(f"fault refused: {answer['error']}")
        return answer


def thresholds(program: str) -> dict[str, Any]:
    """Return the demo's thresholds of a processor, empty where it has none."""
    if program not in ("detect", "drain"):
        return {}
    return tomllib.loads(thresholds_text(program))


def thresholds_text(program: str) -> str:
    """Return the demo's thresholds as they stand in their file."""
    return files(f"heeler.{program}").joinpath("demo.toml").read_text()


def as_toml(tables: Mapping[str, Any], prefix: str = "") -> str:
    """Return nested maps as TOML: enough of it for our configurations."""
    plain = {key: value for key, value in tables.items() if not isinstance(value, Mapping)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, value in tables.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{key}"
            lines += ["", f"[{name}]", as_toml(value, f"{name}.").rstrip()]
    return "\n".join(lines).lstrip("\n") + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)
