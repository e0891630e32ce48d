"""A simulated node as files: what a real agent would read there."""

from pathlib import Path

import pytest
from simlab import cluster, fault, large_job, run

from heeler.sim.hostfiles import Host
from heeler.sim.mirror import KMSG, SCENARIO, Mirror
from heeler.sim.units import NS_PER_S


def scenario(root: Path) -> dict[tuple[str, str], str]:
    """Return {(GPU, field): value}."""
    found = {}
    for line in (root / SCENARIO).read_text().splitlines():
        words = line.split()
        if words[0].isdigit():
            found[words[0], words[1]] = " ".join(words[2:])
    return found


def test_the_victims_values_reach_the_scenario_and_those_of_waiting_peers_too(tmp_path: Path) -> None:
    simulation = cluster()
    node = large_job(simulation).nodes[1]
    mirror = Mirror(tmp_path)
    run(simulation, 1)
    mirror.show(simulation, node, simulation.now_ns)
    before = scenario(tmp_path)
    fault(simulation, "thermal")
    run(simulation, 2)
    mirror.show(simulation, node, simulation.now_ns)
    after = scenario(tmp_path)
    assert after["5", "sm_clock_mhz"] == "1155"
    assert int(after["5", "clock_event_reasons"]) & 0x60 == 0x60
    assert float(after["4", "power_w"]) < 0.9 * float(before["4", "power_w"])
    assert float(after["4", "util_pct"]) == 100.0
    assert after["5", "uuid"] == before["5", "uuid"] == simulation.fleet.nodes[node].uuids[5]


def test_a_gpu_is_lost_in_the_scenario_from_the_moment_of_the_fault(tmp_path: Path) -> None:
    simulation = cluster()
    node = large_job(simulation).nodes[1]
    mirror = Mirror(tmp_path)
    run(simulation, 1)
    mirror.show(simulation, node, simulation.now_ns)
    assert ("5", "lost") not in scenario(tmp_path)
    made = fault(simulation, "gpu_lost")
    mirror.show(simulation, node, made.at_ns + 1)  # no window has passed since
    assert ("5", "lost") in scenario(tmp_path)


def test_kernel_lines_are_records_in_a_file_of_their_own(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    assert (tmp_path / KMSG).read_text() == ""
    mirror.kernel_line("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    mirror.kernel_line("another")
    first, second = (tmp_path / KMSG).read_text().splitlines()
    header, _, text = first.partition(";")
    priority, number, micros, flags = header.split(",")
    assert (int(priority) >> 3, flags, text[:9]) == (0, "-", "NVRM: Xid")  # facility 0: the kernel itself
    assert int(second.split(",")[1]) == int(number) + 1
    assert int(micros) > 0


def test_ports_look_like_those_of_sysfs(tmp_path: Path) -> None:
    simulation = cluster(window_s=2)
    node = large_job(simulation).nodes[1]
    mirror = Mirror(tmp_path)
    run(simulation, 1)
    mirror.show(simulation, node, simulation.now_ns)
    port = tmp_path / "sys/class/infiniband" / simulation.fleet.nodes[node].hcas[2] / "ports/1"
    assert (port / "state").read_text() == "4: ACTIVE\n"
    assert (port / "rate").read_text() == "400 Gb/sec (4X NDR)\n"
    words = int((port / "counters/port_xmit_data").read_text())
    downs = int((port / "counters/link_downed").read_text())
    fault(simulation, "ib_flap", params={"count": 1, "down_s": 4})
    run(simulation, 1)
    mirror.show(simulation, node, simulation.now_ns)
    assert (port / "state").read_text() == "1: DOWN\n"
    assert (port / "phys_state").read_text() == "2: Polling\n"
    assert int((port / "counters/link_downed").read_text()) == downs + 1
    run(simulation, 3)
    mirror.show(simulation, node, simulation.now_ns)
    assert (port / "state").read_text() == "4: ACTIVE\n"
    assert simulation.window is not None
    sent = int((port / "counters/port_xmit_data").read_text())
    assert sent == int(simulation.window.port["port_xmit_data"][node, 2]) // 4 > words


def test_processes_belong_to_the_job_by_their_cgroup(tmp_path: Path) -> None:
    simulation = cluster()
    job = large_job(simulation)
    run(simulation, 1)
    Mirror(tmp_path).show(simulation, job.nodes[0], simulation.now_ns)
    processes = [value.split() for (_, name), value in scenario(tmp_path).items() if name == "process"]
    assert len(processes) == 8
    for pid, used, _ in processes:
        assert f"/slurmstepd.scope/job_{job.id}/" in (tmp_path / "proc" / pid / "cgroup").read_text()
        assert int(used) > 50 << 30


def test_a_reader_never_finds_half_a_file_and_unchanged_files_are_left_alone(tmp_path: Path) -> None:
    simulation = cluster()
    node = large_job(simulation).nodes[0]
    mirror = Mirror(tmp_path)
    run(simulation, 1)
    mirror.show(simulation, node, simulation.now_ns)
    state = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state"
    written = state.stat().st_mtime_ns
    run(simulation, 1)
    mirror.show(simulation, node, simulation.now_ns + NS_PER_S)
    assert state.stat().st_mtime_ns == written
    assert not list(tmp_path.rglob("*.new"))


@pytest.mark.parametrize("kind", ["h100", "h200", "a100", "b200"])
def test_every_model_has_levels_of_its_own(kind: str) -> None:
    from heeler.sim.fleet import make_fleet
    from heeler.sim.hardware import MODELS
    from heeler.sim.jobs import make_schedule
    from heeler.sim.simulation import Simulation

    fleet = make_fleet(20, 1, model=MODELS[kind])
    simulation = Simulation(fleet, make_schedule(fleet, NS_PER_S))
    run(simulation, 1)
    assert simulation.window is not None
    power = simulation.window.mean["power_w"]
    assert MODELS[kind].idle_w * 0.9 < power.min() < power.max() <= MODELS[kind].power_limit_w * 1.01
    assert simulation.window.mean["sm_clock_mhz"].max() <= MODELS[kind].sm_clock_max_mhz


def test_what_a_nodes_processors_do_only_grows_and_follows_its_jobs() -> None:
    host = Host(100.0)

    def times(now_s: int, *, busy: bool) -> list[int]:
        stat = dict(host.files(now_s * NS_PER_S, busy=busy))["stat"]
        return [int(word) for word in stat.splitlines()[0].split()[1:6]]

    before, one, two, three = times(10, busy=False), times(11, busy=True), times(12, busy=True), times(13, busy=False)
    for earlier, later in ((before, one), (one, two), (two, three)):
        grown = [b - a for a, b in zip(earlier, later, strict=True)]
        assert min(grown) >= 0
        assert sum(grown) == pytest.approx(6400, abs=6)  # of 64 processors in a second
    assert two[0] - one[0] > 10 * (three[0] - two[0])


def test_a_mirrored_node_has_the_files_of_its_host(tmp_path: Path) -> None:
    simulation = cluster()
    node = large_job(simulation).nodes[1]
    mirror = Mirror(tmp_path)
    run(simulation, 1)
    mirror.show(simulation, node, simulation.now_ns)
    assert {path.name for path in (tmp_path / "proc").iterdir()} >= {"stat", "loadavg", "meminfo", "pressure"}
    memory = dict(line.split(":") for line in (tmp_path / "proc/meminfo").read_text().splitlines())
    kib = {name: int(value.split()[0]) for name, value in memory.items()}
    assert kib["MemFree"] + kib["Buffers"] + kib["Cached"] < kib["MemTotal"]
