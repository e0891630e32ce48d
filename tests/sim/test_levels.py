"""A healthy fleet shows the levels and the noise that healthy fleets were measured to have."""

import numpy as np
import pytest
from simlab import cluster, column, large_job, run

from heeler.sim.physics import POWER_CAP_BIT


def test_a_large_training_job_runs_at_the_measured_levels() -> None:
    simulation = cluster()
    run(simulation, 3)
    job = large_job(simulation)
    assert job.workload.name == "ddp-large"
    low, high = (np.percentile(column(simulation, "power_w", job), q) for q in (5, 95))
    assert 675 < low < high < 700
    assert np.all(column(simulation, "util_ratio", job) == 1.0)
    assert 0.86 < np.median(column(simulation, "sm_active_ratio", job)) < 0.90
    assert 0.57 < np.median(column(simulation, "tensor_active_ratio", job)) < 0.60
    assert np.all(column(simulation, "sm_clock_mhz", job) > 0.98 * 1980)


def test_the_power_cap_bit_is_set_on_every_gpu_of_a_large_job_since_that_is_normal() -> None:
    simulation = cluster()
    run(simulation, 2)
    reasons = column(simulation, "clock_event_reasons", large_job(simulation)).astype(int)
    assert np.all(reasons == POWER_CAP_BIT)


def test_temperatures_differ_by_ten_degrees_and_more_and_each_gpu_keeps_its_own() -> None:
    simulation = cluster()
    run(simulation, 2)
    job = large_job(simulation)
    first = column(simulation, "temp_c", job)
    run(simulation, 20)
    assert 56 < first.min() < 60
    assert 68 < first.max() < 74
    assert np.abs(column(simulation, "temp_c", job) - first).max() < 2.0


def test_idle_gpus_draw_idle_power_and_hold_no_memory_and_no_process() -> None:
    simulation = cluster()
    messages = list(simulation.next_window())
    busy = {node for job in simulation.schedule.active(simulation.now_ns) for node in job.nodes}
    idle = [i for i in range(64) if i not in busy]
    assert idle
    name = simulation.fleet.nodes[idle[0]].name
    sample = next(m.data for m in messages if m.kind == "GpuSample" and m.data["node"] == name)
    assert all(69 < power < 74 for power in sample["mean"]["power_w"])
    assert sample["mean"]["util_ratio"] == [0.0] * 8
    assert sample["last"]["clock_event_reasons"] == [1] * 8
    assert sample["procs"] == []


def test_a_shorter_window_scatters_more() -> None:
    def scatter(window_s: float) -> float:
        simulation = cluster(window_s=window_s)
        job = large_job(simulation)
        seen = []
        for _ in range(40):
            run(simulation, 1)
            seen.append(column(simulation, "tensor_active_ratio", job))
        return float(np.std(np.array(seen), axis=0).mean())

    assert scatter(1.0) > 2.0 * scatter(10.0)


def test_peers_of_a_healthy_job_stay_within_the_floor_of_the_peer_test() -> None:
    simulation = cluster()
    job = large_job(simulation)
    for _ in range(60):
        run(simulation, 1)
        for name in ("power_w", "tensor_active_ratio", "sm_active_ratio"):
            values = column(simulation, name, job)
            assert np.abs(values / np.median(values) - 1.0).max() < 0.10, name


def test_the_noise_is_heavy_enough_that_a_bare_robust_z_score_would_flag_healthy_gpus() -> None:
    simulation = cluster()
    job = large_job(simulation)
    flagged, looked = 0, 0
    for _ in range(100):
        run(simulation, 1)
        node = column(simulation, "tensor_active_ratio", job)[0]
        spread = np.median(np.abs(node - np.median(node)))
        flagged += int((0.6745 * np.abs(node - np.median(node)) / spread > 3.5).sum())
        looked += node.size
    assert 0.0 < flagged / looked < 0.14


def test_pipeline_stages_of_one_healthy_job_differ_by_design() -> None:
    for seed in range(1, 12):
        simulation = cluster(seed=seed)
        jobs = simulation.schedule.active(simulation.now_ns)
        found = [job for job in jobs if job.workload.name == "tp-pp" and len(job.nodes) > 1]
        if found:
            break
    else:
        pytest.fail("no pipelined job in eleven fleets")
    run(simulation, 1)
    tensor = column(simulation, "tensor_active_ratio", found[0]).ravel()
    half = len(tensor) // 2
    assert np.median(tensor[half:]) > 1.35 * np.median(tensor[:half])
    sm = column(simulation, "sm_active_ratio", found[0]).ravel()
    assert sm[0] < 0.93 * np.median(sm[:half])  # rank 0 has more to do than compute


def test_all_ranks_drop_together_at_a_checkpoint() -> None:
    from simlab import fault

    simulation = cluster()
    job = large_job(simulation)
    run(simulation, 1)
    before = column(simulation, "tensor_active_ratio", job)
    fault(simulation, "checkpoint", for_s=30)
    run(simulation, 1)
    after = column(simulation, "tensor_active_ratio", job)
    assert after.max() < 0.3 * before.min()


def test_a_new_job_warms_up() -> None:
    simulation = cluster(life_s=600.0)
    seen: dict[str, list[float]] = {}
    for _ in range(120):
        run(simulation, 1)
        for job in simulation.schedule.active(simulation.now_ns):
            if job.start_ns > simulation.schedule.epoch_ns and job.workload.name.startswith("ddp"):
                seen.setdefault(job.id, []).append(float(np.median(column(simulation, "power_w", job))))
    long_enough = [powers for powers in seen.values() if len(powers) > 20]
    assert long_enough
    assert all(powers[0] < 0.5 * powers[20] for powers in long_enough)
