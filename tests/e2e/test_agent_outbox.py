"""What heeler-health leaves in the outbox reaches the bus exactly once, however the bus comes and goes."""

import os
import subprocess
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from natsserver import NatsServer
from needs import need
from nodeagent import agent_command
from waiting import until

from heeler.bus import Bus, BusSettings, decode, snapshot, subjects
from heeler.bus.admin import init
from heeler.health.outbox import Letter, Outbox

pytestmark = [pytest.mark.bus, pytest.mark.timeout(120)]

HEAD = {"v": 1, "cluster": "north", "node": "gn1", "ts": 1, "boot": "b", "run": "r", "phase": "prolog"}


def result(seq: int) -> Letter:
    message = {**HEAD, "seq": seq, "check": "gpu_count", "outcome": "ok", "why": "8 of 8"}
    return Letter(subjects.health_result("north", "gn1"), "HealthResult", f"HealthResult.north.gn1.b.r.{seq}", message)


def started(job: str) -> Letter:
    head = {key: HEAD[key] for key in ("v", "cluster", "node", "ts", "boot")}
    message = {**head, "seq": 1, "event": "started", "job_id": job}
    return Letter(subjects.prolog_event("north", "gn1"), "PrologEvent", f"PrologEvent.north.gn1.b.{job}.1", message)


async def test_results_left_while_the_bus_is_away_arrive_exactly_once(tmp_path: Path, nats_server: NatsServer) -> None:
    need("agent")
    folder = tmp_path / "outbox"
    folder.mkdir(mode=0o750)
    outbox = Outbox(folder)
    fake = FakeNvml(tmp_path)
    bus = await Bus.connect(BusSettings(servers=(nats_server.url,), cluster="north"), "test")
    await init(bus, scale=0.002)
    argv = agent_command(tmp_path, cluster="north", node="gn1", url=nats_server.url, library=fake.library)

    async def found() -> list[str]:
        all_of_them = await snapshot(bus, "EVENTS", ("health.result.gn1", "prolog.event.gn1"), start=1, timeout_s=40.0)
        return [
            decode(kind, one.data).get("job_id") or str(decode(kind, one.data)["seq"])
            for one in all_of_them
            for kind in ("PrologEvent" if ".prolog." in one.subject else "HealthResult",)
        ]

    with (tmp_path / "agent.log").open("ab") as out:
        agent = subprocess.Popen(argv, env=os.environ | fake.env(), stdout=out, stderr=out)
    try:
        outbox.put([result(0)])

        async def first_came() -> bool:
            return await found() == ["0"]

        await until(first_came, "the first result")
        nats_server.kill()
        outbox.put([result(seq) for seq in range(1, 41)])
        outbox.put([started("81234")])
        agent.kill()  # and the agent dies with all of it waiting
        agent.wait()
        nats_server.start()
        with (tmp_path / "agent.log").open("ab") as out:
            agent = subprocess.Popen(argv, env=os.environ | fake.env(), stdout=out, stderr=out)

        async def folder_is_empty() -> bool:
            return not list(folder.glob("*.msg"))

        await until(folder_is_empty, "an empty outbox")
        came = await found()
        assert sorted(came) == sorted(["0", "81234", *map(str, range(1, 41))])
        assert came.index("81234") == 1
    finally:
        agent.terminate()
        agent.wait(20)
        await bus.close()
