"""heeler sim: a simulated fleet, live or into a capture."""

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from heeler.bus import BusError, BusSettings, ConfigError
from heeler.engine import config
from heeler.engine.process import Context, Program, serve, set_up_logs
from heeler.sim.control import Control
from heeler.sim.faults import Fault
from heeler.sim.fleet import MAX_NODES, make_fleet
from heeler.sim.hardware import MODELS
from heeler.sim.jobs import make_schedule
from heeler.sim.live import Live, as_metrics, stdin_lines
from heeler.sim.mirror import Mirror
from heeler.sim.recorder import record, write_labels
from heeler.sim.script import Casting, ScriptError, duration_ns, parse
from heeler.sim.simulation import Pace, Simulation, timeline

CAPTURE_EPOCH_NS = 1_767_225_600 * 1_000_000_000  # 2026-01-01: a capture does not depend on when it was made


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    nodes: int
    seed: int
    model: str
    cluster: str
    window_ns: int
    status_ns: int
    life_s: float | None
    epoch_ns: int
    mirrors: dict[str, Path]
    parts: frozenset[str]
    faults: str


def build(options: Options) -> tuple[Simulation, Casting]:
    """Return the simulation with the faults of its script. Raises ScriptError, ValueError."""
    fleet = make_fleet(options.nodes, options.seed, cluster=options.cluster, model=MODELS[options.model])
    strange = sorted(set(options.mirrors) - set(fleet.index))
    if strange:
        raise ScriptError(f"no node {', '.join(strange)}")
    first = tuple(options.mirrors)
    schedule = make_schedule(fleet, options.epoch_ns, mean_life_s=options.life_s, first_nodes=first)
    simulation = Simulation(
        fleet,
        schedule,
        Pace(options.window_ns, options.status_ns),
        muted=frozenset(fleet.index[name] for name in first),
        parts=options.parts,
    )
    casting = Casting(fleet, options.seed)
    for spec in parse(options.faults):
        start_ns = options.epoch_ns + spec.after_ns
        simulation.inject(casting.cast(spec, schedule.active(start_ns), options.epoch_ns))
    return simulation, casting


@click.command()
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), default=64, show_default=True)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The same seed gives the same cluster and victims."
)
@click.option("--model", type=click.Choice(sorted(MODELS)), default="h100", show_default=True)
@click.option("--cluster", default="sim", show_default=True)
@click.option("--window", default="10s", show_default=True, help="Length of a sample's window.")
@click.option("--status-every", default="60s", show_default=True, help="Between two AgentStatus of a node.")
@click.option("--job-life", help="Mean life of a job; without it jobs run for ever.")
@click.option("--faults", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Fault script (TOML).")
@click.option(
    "--capture", type=click.Path(dir_okay=False, path_type=Path), help="Write a capture instead of publishing."
)
@click.option("--duration", default="10m", show_default=True, help="How much time a capture holds.")
@click.option(
    "--labels", type=click.Path(dir_okay=False, path_type=Path), help="Write the ground truth here (JSON lines)."
)
@click.option("--parts", type=click.Choice(["all", "agents", "slurm"]), default="all", show_default=True)
@click.option("--epoch", type=int, help="Start in ns since the epoch; two processes of one cluster share it.")
@click.option("--mirror", multiple=True, metavar="NODE=DIR", help="A real agent speaks for NODE and reads DIR.")
@click.option("--control", is_flag=True, help="Take faults as JSON lines on stdin, answer on stdout.")
@click.option("--url", help="nats://HOST:PORT; else HEELER_NATS_URL, else the config file.")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="TOML file with [bus] and [log].")
@click.option("--listen", help="HOST:PORT of the endpoint with /metrics and /healthz.")
def sim_cli(**given: Any) -> None:
    """Simulate a fleet of GPU nodes with jobs and faults, live on the bus or into a capture.

    Live it runs until interrupted. With --capture it writes --duration of a cluster's life, faster than real time.
    """
    try:
        options = _options(given)
        simulation, casting = build(options)
    except (ScriptError, ValueError) as err:
        raise click.ClickException(str(err)) from None
    if given["labels"]:
        with given["labels"].open("w") as out:
            write_labels(simulation.fleet, simulation.faults, out)
    if given["capture"]:
        _capture(simulation, given["capture"], options.epoch_ns + duration_ns(given["duration"]))
        return
    sys.exit(_live(simulation, casting, options, given))


def _options(given: dict[str, Any]) -> Options:
    epoch_ns = given["epoch"] or (CAPTURE_EPOCH_NS if given["capture"] else time.time_ns())
    mirrors = dict(item.partition("=")[::2] for item in given["mirror"])
    script: Path | None = given["faults"]
    return Options(
        nodes=given["nodes"],
        seed=given["seed"],
        model=given["model"],
        cluster=given["cluster"],
        window_ns=duration_ns(given["window"]),
        status_ns=duration_ns(given["status_every"]),
        life_s=duration_ns(given["job_life"]) / 1e9 if given["job_life"] else None,
        epoch_ns=epoch_ns,
        mirrors={name: Path(path) for name, path in mirrors.items()},
        parts=frozenset(("agents", "slurm")) if given["parts"] == "all" else frozenset((given["parts"],)),
        faults=script.read_text() if script else "",
    )


def _capture(simulation: Simulation, path: Path, until_ns: int) -> None:
    faults: list[Fault] = list(simulation.faults)
    count = record(timeline(simulation, until_ns), path)
    size = path.stat().st_size
    words = f"{count} messages, {size / 2**20:.1f} MiB, {len(faults)} faults in {path}"
    click.echo(words, err=True)


def _live(simulation: Simulation, casting: Casting, options: Options, given: dict[str, Any]) -> int:
    async def main(context: Context) -> None:
        # A process that is the Slurm feed alone needs to know which nodes are real, since it places their job.
        shown = options.mirrors if "agents" in options.parts else {}
        mirrors = {name: Mirror(path) for name, path in shown.items()}
        live = Live(context.bus, simulation, Control(simulation, casting), mirrors)
        context.metrics["sim"] = lambda: as_metrics(live)
        await live.run(context.stop, await stdin_lines() if given["control"] else None)

    try:
        tables = config.read_toml(given["config_path"])
        bus_table = {**tables.get("bus", {}), "cluster": options.cluster}
        if given["url"]:
            bus = BusSettings.load({**bus_table, "servers": given["url"]}, env={})
        else:
            bus = BusSettings.load(bus_table)
        settings = config.load({"log": tables.get("log", {})}, {"log": config.LogSettings})
    except ConfigError as err:
        click.echo(f"heeler sim: {err}", err=True)
        return 2
    set_up_logs(settings["log"])
    program = Program("sim", "A simulated fleet.", main)
    try:
        asyncio.run(serve(program, {"bus": bus, **settings}, given["listen"]))
    except BusError as err:
        click.echo(f"heeler sim: {err}", err=True)
        return 1
    return 0
