"""Production thresholds over a cluster's half hour, through enrich and detect as `heeler replay` runs them.

The cluster comes from the simulator, which knows nothing of the rules: levels, noise, pipeline stages, rank 0 quirks,
checkpoints and shared nodes are its own.
"""

from typing import Any

import pytest

from heeler.detect import DetectStep
from heeler.engine import Pipeline
from heeler.enrich.step import EnrichStep
from heeler.sim.cli import Options, build
from heeler.sim.faults import Fault
from heeler.sim.recorder import captured
from heeler.sim.simulation import timeline

Faults = list[tuple[Fault, str]]
MIN = 60 * 1_000_000_000
EPOCH = 1_760_000_000 * 1_000_000_000


def findings(script: str, *, seed: int, minutes: int, nodes: int = 24) -> tuple[list[dict[str, Any]], Faults]:
    """Return (findings, the faults that were there and their nodes) of a simulated cluster."""
    options = Options(
        nodes=nodes,
        seed=seed,
        model="h100",
        cluster="sim",
        window_ns=MIN // 6,
        status_ns=MIN,
        life_s=None,
        epoch_ns=EPOCH,
        mirrors={},
        parts=frozenset(("agents", "slurm")),
        faults=script,
    )
    simulation, _ = build(options)
    faults = [(fault, simulation.fleet.nodes[fault.node].name) for fault in simulation.faults]
    pipeline = Pipeline([EnrichStep(), DetectStep()])
    said: list[dict[str, Any]] = []
    for message in map(captured, timeline(simulation, EPOCH + minutes * MIN)):
        made = pipeline.feed(message.subject, message.headers, message.data, message.ts_ns)
        said += [m.data for m in made if m.kind == "Finding"]
    assert pipeline.counters.dead == 0
    return said, faults


@pytest.mark.parametrize("seed", [11, 12])
def test_a_healthy_half_hour_has_no_finding(seed: int) -> None:
    said, _ = findings("", seed=seed, minutes=30)
    assert said == []


@pytest.mark.parametrize("clock_mhz", [1570, 1386, 1188])
def test_a_thermal_victim_is_found_within_a_minute_with_the_right_cause(clock_mhz: int) -> None:
    script = (
        f'[[fault]]\nat = "8m"\nkind = "thermal"\ntarget = {{job_nodes = 16}}\nparams = {{clock_mhz = {clock_mhz}}}\n'
    )
    said, ((fault, _),) = findings(script, seed=clock_mhz, minutes=14, nodes=32)
    opened = [f for f in said if f["state"] == "open"]
    assert [(f["kind"], f["cause"]) for f in opened] == [("gpu_lag", "thermal_slowdown")]
    assert opened[0]["entity"]["gpu_index"] == fault.gpu
    assert opened[0]["ts"] - fault.at_ns <= MIN
    early = [f for f in said if f["ts"] - fault.at_ns < 4 * MIN]
    assert {f["advice"] for f in early} == {"observe"}
    assert said[-1]["advice"] == "drain_after_job"


TRAPS = """
[[fault]]
at = "6m"
kind = "checkpoint"
for = "1m"
[[fault]]
at = "7m"
kind = "job_slow"
for = "6m"
[[fault]]
at = "8m"
kind = "cpu_starved"
for = "5m"
[[fault]]
at = "9m"
kind = "xid"
params = {code = 31}
[[fault]]
at = "10m"
kind = "xid"
params = {code = 43, count = 5}
[[fault]]
at = "14m"
kind = "hang"
"""


def test_no_trap_leads_to_a_drain() -> None:
    said, _ = findings(TRAPS, seed=5, minutes=18, nodes=32)
    assert {f["advice"] for f in said} <= {"none", "observe"}
    lagging = {(f["entity"]["type"], f["cause"]) for f in said if f["kind"] == "gpu_lag"}
    assert lagging <= {("node", "host_starved")}  # the host is slow, none of its GPUs


HARD = """
[[fault]]
at = "7m"
kind = "gpu_lost"
[[fault]]
at = "8m"
kind = "ib_flap"
[[fault]]
at = "9m"
kind = "agent_silent"
for = "4m"
"""


def test_one_cause_makes_one_finding() -> None:
    said, faults = findings(HARD, seed=9, minutes=16, nodes=32)
    opened = sorted((f["kind"], f["node"]) for f in said if f["state"] == "open" and f["kind"] != "hang")
    kinds = {"gpu_lost": "xid", "ib_flap": "ib_flap", "agent_silent": "agent_silent"}
    assert opened == sorted((kinds[fault.kind], node) for fault, node in faults)
    lost = next(f for f in said if f["kind"] == "xid")
    assert (lost["code"], lost["advice"], lost["confidence"]) == (79, "drain_now", 0.99)
    # The job that waits for the lost GPU for ever is no other cause: it says whose fault it is, and asks for nothing.
    hang = next(f for f in said if f["kind"] == "hang")
    assert (hang["cause"], hang["advice"]) == ("gpu_fault", "observe")
    assert lost["id"] in [item.get("value") for item in hang["evidence"]]
