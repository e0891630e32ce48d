"""Which way the metrics move on a victim and on its peers, fault by fault."""

import numpy as np
from simlab import cluster, column, fault, large_job, run

NODE, GPU = 1, 5  # where simlab.fault puts it: second node of the job, sixth GPU


def split(values: np.ndarray) -> tuple[float, np.ndarray]:
    """Return (victim, peers)."""
    mask = np.ones(values.shape, bool)
    mask[NODE, GPU] = False
    return float(values[NODE, GPU]), values[mask]


def test_a_thermal_slowdown_lowers_clock_and_power_of_the_victim_and_lets_its_peers_wait() -> None:
    simulation = cluster()
    job = large_job(simulation)
    run(simulation, 2)
    power_before = column(simulation, "power_w", job)
    tensor_before = column(simulation, "tensor_active_ratio", job)
    fault(simulation, "thermal")
    run(simulation, 12)
    slow = simulation.window.slowdown[job.id] if simulation.window else 1.0
    assert 1.4 < slow < 1.8

    clock, peer_clocks = split(column(simulation, "sm_clock_mhz", job))
    assert abs(clock - 1155) < 15
    assert peer_clocks.min() > 1900  # clocks of waiting peers stay up
    victim_reasons, peer_reasons = split(column(simulation, "clock_event_reasons", job))
    assert int(victim_reasons) & 0x60 == 0x60
    assert not np.any(peer_reasons.astype(int) & 0x60)

    power, peer_powers = split(column(simulation, "power_w", job))
    assert power < 0.6 * power_before[NODE, GPU]
    assert np.median(peer_powers) < 0.85 * np.median(power_before)  # they wait
    assert power < 0.85 * np.median(peer_powers)

    tensor, peer_tensors = split(column(simulation, "tensor_active_ratio", job))
    assert abs(np.median(peer_tensors) / np.median(tensor_before) - 1 / slow) < 0.03
    assert abs(tensor / np.median(peer_tensors) - 1980 / 1155) < 0.1  # same work, fewer elapsed cycles

    assert np.all(column(simulation, "util_ratio", job) == 1.0)
    temp, peer_temps = split(column(simulation, "temp_c", job))
    assert temp > 84
    assert np.median(peer_temps) < 65


def test_heat_is_counted_on_the_victim_alone() -> None:
    simulation = cluster()
    job = large_job(simulation)
    fault(simulation, "thermal", after_s=5)
    run(simulation, 2)
    counted, others = split(column(simulation, "violation_thermal_ns", job))
    assert counted == 15e9
    assert not others.any()


def test_other_jobs_do_not_notice() -> None:
    healthy, hurt = cluster(), cluster()
    fault(hurt, "thermal")
    run(healthy, 3)
    run(hurt, 3)
    for job in healthy.schedule.active(healthy.now_ns):
        if job.id != large_job(healthy).id:
            assert np.array_equal(column(healthy, "power_w", job), column(hurt, "power_w", job))


def test_a_host_that_starves_its_gpus_shows_gaps_where_its_peers_spin() -> None:
    simulation = cluster()
    job = large_job(simulation)
    fault(simulation, "cpu_starved")
    run(simulation, 2)
    util, tensor = column(simulation, "util_ratio", job), column(simulation, "tensor_active_ratio", job)
    assert np.all(util[NODE] < 0.75)
    assert np.all(np.delete(util, NODE, axis=0) == 1.0)
    # Nobody's clock fell, so activity falls on all alike: it marks nobody.
    assert abs(np.median(tensor[NODE]) / np.median(np.delete(tensor, NODE, axis=0)) - 1) < 0.05
    assert np.all(column(simulation, "sm_clock_mhz", job) > 1900)


def test_a_power_brake_halves_the_clocks_of_a_whole_node() -> None:
    simulation = cluster()
    job = large_job(simulation)
    fault(simulation, "power_brake")
    run(simulation, 2)
    clocks = column(simulation, "sm_clock_mhz", job)
    assert np.all(clocks[NODE] < 1000)
    assert np.all(np.delete(clocks, NODE, axis=0) > 1900)
    assert np.all(column(simulation, "clock_event_reasons", job)[NODE].astype(int) & 0x80)


def test_locked_clocks_come_with_less_heat_and_no_thermal_bit() -> None:
    simulation = cluster()
    job = large_job(simulation)
    run(simulation, 1)
    before = column(simulation, "temp_c", job)[NODE, GPU]
    fault(simulation, "clock_lock")
    run(simulation, 15)
    reasons, _ = split(column(simulation, "clock_event_reasons", job))
    assert int(reasons) == 0x2
    assert column(simulation, "temp_c", job)[NODE, GPU] < before - 10


def test_a_narrow_pcie_link_shows_its_width_under_load() -> None:
    simulation = cluster()
    job = large_job(simulation)
    fault(simulation, "pcie_width")
    run(simulation, 1)
    width, others = split(column(simulation, "pcie_width", job))
    assert (width, set(others)) == (4, {16})


def test_a_hung_job_keeps_its_utilisation_and_loses_all_else() -> None:
    simulation = cluster()
    job = large_job(simulation)
    fault(simulation, "hang")
    run(simulation, 1)
    assert np.all(column(simulation, "util_ratio", job) == 1.0)
    assert not column(simulation, "tensor_active_ratio", job).any()
    assert not column(simulation, "nvlink_tx_bytes_per_s", job).any()
    assert column(simulation, "power_w", job).max() < 240


def test_a_slow_workload_slows_all_ranks_and_marks_none() -> None:
    simulation = cluster()
    job = large_job(simulation)
    run(simulation, 1)
    before = column(simulation, "tensor_active_ratio", job)
    fault(simulation, "job_slow")
    run(simulation, 1)
    after = column(simulation, "tensor_active_ratio", job)
    assert np.all(after < 0.75 * before)
    assert after.max() / after.min() < 1.15


def test_a_fault_that_ends_leaves_no_trace_but_heat_and_counters() -> None:
    simulation = cluster()
    job = large_job(simulation)
    fault(simulation, "thermal", for_s=20)
    run(simulation, 3)
    assert np.all(column(simulation, "sm_clock_mhz", job) > 1900)
    run(simulation, 30)
    assert column(simulation, "temp_c", job).max() < 74
    assert column(simulation, "violation_thermal_ns", job).max() == 20e9


def test_a_window_that_a_fault_covers_in_part_is_hit_in_part() -> None:
    simulation = cluster()
    job = large_job(simulation)
    fault(simulation, "thermal", after_s=5)
    run(simulation, 1)
    clock, _ = split(column(simulation, "sm_clock_mhz", job))
    assert 1500 < clock < 1620
    assert simulation.window is not None
    assert abs(simulation.window.low["sm_clock_mhz"][job.nodes[NODE], GPU] - 1155) <= 15
