"""summary as a process on a real bus."""

import subprocess
import time
from typing import Any

import pytest
from heelercli import HEELER, environment
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, decode, encode, snapshot, subjects

S = 1_000_000_000


async def summaries(bus: Bus) -> list[dict[str, Any]]:
    found = await snapshot(bus, "SUMMARIES", ("job.summary.*.*",))
    return [decode("JobSummary", one.data) for one in found]


@pytest.mark.bus
async def test_a_job_that_has_ended_gets_its_summary_and_a_restart_says_nothing_else(
    bus: Bus, nats_server: NatsServer
) -> None:
    now = time.time_ns()
    start, end = now - 300 * S, now - 200 * S
    job = {"v": 1, "cluster": "north", "ts": start, "event": "started", "job_id": "7", "nodes": ["n1"],
           "start_ts": start, "gpus": {"n1": [0]}, "gpus_source": "slurm_index", "user": "ada"}  # fmt: skip
    await bus.publish_acked(subjects.job_event("north", "7"), "JobEvent", encode("JobEvent", job), "j1")
    for seq in range(5):  # half of it: the rest nobody saw
        sample = {
            "v": 1, "cluster": "north", "node": "n1", "ts": start + (seq + 1) * 10 * S, "boot": "b", "seq": seq,
            "reads": 10, "window_ns": 10 * S, "gpu": {"uuid": ["GPU-a"]}, "shard": 1, "job": ["7"], "last": {},
            "mean": {"util_ratio": [0.9 if seq < 3 else 0.0], "power_w": [500.0]},
        }  # fmt: skip
        await bus.publish(subjects.job_sample("north", "1", "n1"), "JobSample", encode("JobSample", sample))
    ended = {**job, "ts": end, "event": "ended", "end_ts": end, "state": "COMPLETED"}
    await bus.publish_acked(subjects.job_event("north", "7"), "JobEvent", encode("JobEvent", ended), "j2")

    for again in (False, True):
        process = subprocess.Popen(
            [HEELER, "run", "summary"], stderr=subprocess.DEVNULL, env=environment(nats_server.url)
        )
        try:

            async def said() -> bool:
                return bool(await summaries(bus))

            await until(said, "a summary", 60)
            if again:
                time.sleep(12)  # a tick, in which it could say something else
        finally:
            process.terminate()
            assert process.wait(15) == 0
        (found,) = await summaries(bus)
        assert found["final"] is True
        assert (found["active_gpu_s"], found["idle_gpu_s"], found["unknown_gpu_s"]) == (30.0, 20.0, 50.0)
        assert (found["allocated_gpu_s"], found["energy_j"], found["user"]) == (100.0, 25_000.0, "ada")
