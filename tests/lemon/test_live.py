"""lemon as a process on a real bus: it reads what the streams have kept, also what came before it was started."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from heelercli import HEELER, environment
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, decode, encode, snapshot, subjects

S = 1_000_000_000


async def findings(bus: Bus) -> list[dict[str, Any]]:
    found = await snapshot(bus, "FINDINGS", ("finding.*.*.*",))
    return [decode("Finding", one.data) for one in found]


@pytest.mark.bus
async def test_a_node_in_trouble_before_it_was_started_is_found(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    now = time.time_ns()
    for at in range(5):
        for step, flags in enumerate(([], ["DRAIN"])):
            ts = now + (2 * at + step) * S
            state = {"v": 1, "cluster": "north", "node": "n1", "ts": ts, "state": "idle", "flags": flags}
            body = encode("NodeState", state)
            await bus.publish_acked(subjects.node_state("north", "n1"), "NodeState", body, f"s{at}.{step}")
        line = {
            "v": 1, "cluster": "north", "node": "n1", "ts": now, "boot": "b", "seq": at, "kind": "xid",
            "code": (48, 79, 119, 64, 95)[at], "trusted": True, "jobs": [], "shard": 1,
        }  # fmt: skip
        body = encode("JobKernelEvent", line)
        await bus.publish_acked(subjects.job_kernel_event("north", "1", "n1"), "JobKernelEvent", body, f"k{at}")
        job = {"v": 1, "cluster": "north", "ts": now, "event": "ended", "job_id": str(at), "nodes": ["n1"],
               "start_ts": now - S, "state": "NODE_FAIL"}  # fmt: skip
        await bus.publish_acked(subjects.job_event("north", str(at)), "JobEvent", encode("JobEvent", job), f"j{at}")
    config = tmp_path / "lemon.toml"
    config.write_text("[lemon]\nsettle_s = 5.0\n")

    process = subprocess.Popen(
        [HEELER, "run", "lemon", "--config", config], stderr=subprocess.DEVNULL, env=environment(nats_server.url)
    )
    try:

        async def said() -> bool:
            return bool(await findings(bus))

        await until(said, "a finding", 90)
    finally:
        process.terminate()
        assert process.wait(15) == 0
    found = (await findings(bus))[0]
    assert (found["kind"], found["node"], found["advice"]) == ("lemon", "n1", "person")
