"""What the simulator publishes fits the contract, absence included."""

from collections import Counter
from pathlib import Path

import pytest
from simlab import EPOCH_NS, cluster, fault, large_job, run

from heeler.bus import check, encode
from heeler.engine import Event, Inbound, Input, intake
from heeler.engine import run as run_step
from heeler.engine.capture import read
from heeler.sim.faults import KINDS
from heeler.sim.outgoing import Outgoing
from heeler.sim.recorder import captured, record
from heeler.sim.simulation import Simulation, timeline
from heeler.sim.units import NS_PER_S


def everything(simulation: Simulation, seconds: float) -> list[Outgoing]:
    return list(timeline(simulation, EPOCH_NS + int(seconds * NS_PER_S)))


@pytest.mark.parametrize("kind", [None, *sorted(KINDS)])
def test_every_message_passes_the_contract_whatever_is_wrong(kind: str | None) -> None:
    simulation = cluster(nodes=20)
    if kind:
        fault(simulation, kind, after_s=12)
    messages = everything(simulation, 60)
    for message in messages:
        taken = captured(message)
        inbound = intake(taken.subject, taken.headers, taken.data, taken.ts_ns)
        assert inbound.kind == message.kind
    kinds = Counter(message.kind for message in messages)
    assert kinds.keys() >= {
        "GpuSample",
        "IbSample",
        "AgentStatus",
        "Inventory",
        "JobEvent",
        "NodeState",
        "ClusterState",
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(seed: int) -> None:
    def payloads(which: int) -> list[bytes]:
        simulation = cluster(nodes=18, seed=which, life_s=300)
        fault(simulation, "thermal", after_s=7)
        return [captured(message).data for message in everything(simulation, 30)]

    assert payloads(seed) == payloads(seed)
    assert payloads(seed) != payloads(seed + 100)


def test_messages_come_in_the_order_of_their_time_and_number() -> None:
    simulation = cluster(nodes=20, life_s=100)
    fault(simulation, "gpu_lost", after_s=33)
    messages = everything(simulation, 120)
    assert [m.due_ns for m in messages] == sorted(m.due_ns for m in messages)
    numbers: dict[str, list[int]] = {}
    for message in messages:
        if "seq" in message.data:
            numbers.setdefault(message.data["node"], []).append(message.data["seq"])
    assert all(len(seen) == len(set(seen)) for seen in numbers.values())


def test_ids_of_acked_messages_are_there_and_never_twice() -> None:
    simulation = cluster(nodes=20, life_s=60)
    fault(simulation, "xid", after_s=5, params={"count": 5})
    messages = everything(simulation, 300)
    acked = [message for message in messages if message.acked]
    assert all(message.id for message in acked)
    assert max(Counter(message.id for message in acked).values()) == 1


def test_a_lost_gpu_has_its_identity_and_no_values() -> None:
    simulation = cluster()
    victim = fault(simulation, "gpu_lost")
    name = simulation.fleet.nodes[victim.node].name
    sample = next(m.data for m in simulation.next_window() if m.kind == "GpuSample" and m.data["node"] == name)
    check("GpuSample", sample)
    assert sample["gpu"]["uuid"][5] == simulation.fleet.nodes[victim.node].uuids[5]
    assert sample["state"] == ["ok"] * 5 + ["lost"] + ["ok"] * 2
    for group in ("mean", "min", "max", "last"):
        for name, column in sample[group].items():
            assert column[5] is None, name
            assert all(value is not None for i, value in enumerate(column) if i != 5), name
    assert 5 not in [process[0] for process in sample["procs"]]


def test_xid_79_is_one_kernel_event_as_the_agent_would_parse_it_and_the_job_hangs() -> None:
    simulation = cluster()
    victim = fault(simulation, "gpu_lost", after_s=3.5)
    events = [m for m in everything(simulation, 20) if m.kind == "KernelEvent"]
    assert len(events) == 1
    event, who = events[0].data, simulation.fleet.nodes[victim.node]
    assert events[0].due_ns == event["ts"] == victim.at_ns
    assert (event["kind"], event["code"], event["gpu_state"], event["trusted"]) == ("xid", 79, "lost", True)
    assert (event["uuid"], event["pci"]) == (who.uuids[5], who.pcis[5])
    assert "pid" not in event
    assert event["raw"] == (
        f"NVRM: Xid (PCI:{who.pcis[5]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    assert simulation.window is not None
    assert simulation.window.mean["tensor_active_ratio"][list(large_job(simulation).nodes)].max() == 0.0


def test_an_application_xid_names_its_process() -> None:
    simulation = cluster()
    fault(simulation, "xid", params={"code": 43})
    event = next(m.data for m in everything(simulation, 10) if m.kind == "KernelEvent")
    assert event["comm"] == "python3"
    assert f"pid={event['pid']}, name=python3" in event["raw"]


def test_a_flapping_port_goes_down_comes_back_and_counts() -> None:
    simulation = cluster(window_s=2)
    victim = fault(simulation, "ib_flap", after_s=3, params={"count": 2, "down_s": 5, "every_s": 20})
    name = simulation.fleet.nodes[victim.node].name
    states, downs, sent = [], [], []
    for message in everything(simulation, 60):
        if message.kind == "IbSample" and message.data["node"] == name:
            port = message.data["ports"][2]
            states.append(port["state"])
            downs.append(port["counters"]["link_downed"])
            sent.append(port["counters"]["port_xmit_data"])
    turns = [a for a, b in zip(states, [*states[1:], ""], strict=True) if a != b]
    assert turns == ["active", "down", "active", "down", "active"]
    assert downs[-1] - downs[0] == 2
    assert sent == sorted(sent)
    assert sent[-1] > sent[0]


def test_traffic_of_healthy_rails_grows_at_the_jobs_rate() -> None:
    simulation = cluster()
    run(simulation, 1)
    assert simulation.window is not None
    job = large_job(simulation)
    before = simulation.window.port["port_xmit_data"][list(job.nodes)].copy()
    run(simulation, 1)
    rate = (simulation.window.port["port_xmit_data"][list(job.nodes)] - before) / 10
    assert 1.85e9 < rate.min() <= rate.max() < 2.05e9


def test_a_silent_agent_says_nothing_and_the_others_go_on() -> None:
    simulation = cluster(nodes=20)
    victim = fault(simulation, "agent_silent", after_s=20)
    name = simulation.fleet.nodes[victim.node].name
    times = [m.due_ns for m in everything(simulation, 120) if m.data.get("node") == name and m.kind == "GpuSample"]
    assert times
    assert max(times) < EPOCH_NS + 40 * NS_PER_S


def test_a_forgotten_process_is_seen_without_a_job() -> None:
    simulation = cluster()
    busy = {node for job in simulation.schedule.active(EPOCH_NS) for node in job.nodes}
    idle = next(i for i in range(64) if i not in busy)
    fault(simulation, "zombie", node=idle)
    name = simulation.fleet.nodes[idle].name
    sample = next(m.data for m in simulation.next_window() if m.kind == "GpuSample" and m.data["node"] == name)
    assert [process[:3] for process in sample["procs"]] == [[5, 9005, None]]
    assert 110 < sample["mean"]["power_w"][5] < 130


def test_muted_nodes_speak_through_real_agents_only() -> None:
    simulation = cluster(nodes=20, muted=frozenset((0, 3)))
    names = {simulation.fleet.nodes[i].name for i in (0, 3)}
    agents = {"GpuSample", "IbSample", "AgentStatus", "Inventory"}
    assert not [m for m in everything(simulation, 30) if m.kind in agents and m.data["node"] in names]


def test_a_capture_holds_every_message_and_replays(tmp_path: Path) -> None:
    class Count:
        name = "count"
        inputs = (Input("GpuSample"),)
        tick_s = None
        memory_s = 0.0

        def keys(self, message: Inbound) -> list[str]:
            return [f"node:{message.data['node']}"]

        def on(self, key: str, state: int | None, message: Inbound, now_ns: int) -> tuple[int, list[Event]]:
            return (state or 0) + 1, [Event("count", key, {}, f"{key}.{now_ns}")]

        def tick(self, key: str, state: int, now_ns: int) -> tuple[int, list[Event]]:
            return state, []

    path = tmp_path / "fleet.capture"
    written = record(everything(cluster(nodes=12), 60), path)
    messages = list(read(path))
    assert len(messages) == written
    assert not list(tmp_path.glob("*.part"))
    taken = [intake(m.subject, m.headers, m.data, m.ts_ns) for m in messages]
    events = run_step(Count(), [m for m in taken if m.kind == "GpuSample"])
    assert len(events) == 12 * 6


def test_nothing_on_the_bus_tells_a_victim() -> None:
    simulation = cluster(nodes=20)
    fault(simulation, "thermal")
    words = ("thermal", "label", "fault", "victim", "truth")
    for message in everything(simulation, 30):
        text = repr({key: value for key, value in message.data.items() if key != "last"})
        assert not any(word in text for word in words), message.kind
        assert encode(message.kind, message.data)
