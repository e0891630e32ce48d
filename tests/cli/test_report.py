"""`heeler report` on a real bus."""

import csv
import io
import json
import time
from typing import Any

import pytest
from heelercli import heeler
from natsserver import NatsServer

from heeler.bus import Bus, encode, subjects
from heeler.cli.report import Asked, lines
from heeler.console.accounts import Report, Sums

S = 1_000_000_000
NOW = time.time_ns() // S * S
H = 3600 * S


async def a_run(bus: Bus, job: str, user: str, *, ended_h: int, hours: int, **more: Any) -> None:
    end = NOW - ended_h * H
    start = end - hours * H
    run = str(start // S)
    record = {
        "v": 1, "cluster": "north", "ts": end, "job_id": job, "run": run, "state": "COMPLETED", "user": user,
        "account": "vision", "partition": "h100", "start_ts": start, "end_ts": end, "elapsed_s": hours * 3600.0,
        "gpus": 8, "node_count": 1, "name": "=cmd()\x1b[2J", **more,
    }  # fmt: skip
    await bus.publish_acked(
        subjects.job_record("north", job, run), "JobRecord", encode("JobRecord", record), f"r{job}{run}"
    )
    if user == "ada":
        told = {
            "v": 1, "cluster": "north", "ts": end, "job_id": job, "run": run, "final": True, "until_ts": end,
            "start_ts": start, "end_ts": end, "active_gpu_s": hours * 3600.0 * 6, "idle_gpu_s": hours * 3600.0,
            "energy_j": 3.6e6 * hours, "energy_gpu_s": hours * 3600.0 * 7,
        }  # fmt: skip
        subject = subjects.job_summary("north", job, run)
        await bus.publish_acked(subject, "JobSummary", encode("JobSummary", told), f"s{job}{run}")


@pytest.mark.bus
async def test_what_a_team_needs_to_justify_its_budget(bus: Bus, nats_server: NatsServer) -> None:
    await a_run(bus, "7", "ada", ended_h=2, hours=10)
    await a_run(bus, "8", "ada", ended_h=20, hours=10, array_job_id="5", shown_id="5_3")
    await a_run(bus, "9", "bob", ended_h=5, hours=1)
    hang = {
        "v": 1, "cluster": "north", "id": "f1", "kind": "hang", "state": "closed", "severity": "warning",
        "confidence": 0.9, "entity": {"type": "job", "job_id": "7"}, "job_id": "7", "first_ts": NOW - 4 * H,
        "ts": NOW - 3 * H, "evidence": [], "advice": "person", "summary": "job 7 hangs",
    }  # fmt: skip
    await bus.publish_acked(subjects.finding("north", "hang", "_", "f1"), "Finding", encode("Finding", hang), "f1")

    def report(*args: str, code: int = 0) -> Any:
        return json.loads(heeler("report", *args, "--json", url=nats_server.url, code=code).stdout)

    found = report("user")
    assert [row["user"] for row in found["rows"]] == ["ada", "bob"]
    ada, bob = found["rows"]
    assert (ada["allocated_gpu_h"], ada["active_gpu_h"], ada["idle_gpu_h"], ada["unknown_gpu_h"]) == (160, 120, 20, 20)
    assert (bob["allocated_gpu_h"], bob["idle_gpu_h"], bob["unknown_gpu_h"], bob["energy_kwh"]) == (8, 0, 8, None)
    assert ada["energy_kwh"] == pytest.approx(20)
    assert found["total"]["allocated_gpu_h"] == 168
    assert (ada["lost_to_faults_gpu_h"], ada["findings"]) == (8, {"warning": 1})
    assert report("user", "ada", "--since", "16h")["total"]["allocated_gpu_h"] == 80
    assert [row["job"] for row in report("account", "vision")["rows"]] == ["7", "8", "9"]
    assert report("job", "7")["total"]["runs"] == 1
    assert [row["job"] for row in report("job", "5")["rows"]] == ["8"]
    assert report("job", "5_3")["total"]["runs"] == 1
    assert report("user", "--cluster", "south")["total"]["runs"] == 0
    assert report("user", "--cluster", "north")["total"]["runs"] == 3
    assert report("partition", "none", code=3)["total"]["runs"] == 0

    text = heeler("report", "user", "--top", "1", url=nats_server.url).stdout
    assert "... and 1 more" in text
    assert [line.split()[:3] for line in text.splitlines() if line.startswith(("ada", "total"))] == [
        ["ada", "2", "160.0"], ["total", "3", "168.0"],
    ]  # fmt: skip
    assert "\x1b" not in heeler("report", "job", "7", url=nats_server.url).stdout
    rows = list(csv.DictReader(io.StringIO(heeler("report", "user", "ada", "--csv", url=nats_server.url).stdout)))
    assert [(row["job"], row["allocated_gpu_h"], row["findings_warning"]) for row in rows] == [
        ("7", "80.000", "1"), ("8", "80.000", "0"),
    ]  # fmt: skip
    assert rows[0]["name"] == "'=cmd()?[2J"


@pytest.mark.bus
async def test_nothing_and_wrong_words_are_told(bus: Bus, nats_server: NatsServer) -> None:
    assert "no run is known" in heeler("report", "user", url=nats_server.url).stdout
    assert "no run is known" in heeler("report", "job", "7", url=nats_server.url, code=3).stdout
    assert heeler("report", "user", "--csv", url=nats_server.url).stdout.startswith("user,runs,")
    heeler("report", "user", "--json", "--csv", url=nats_server.url, code=2)
    heeler("report", "team", url=nats_server.url, code=2)
    heeler("report", "user", "--since", "1h", "--until", "2h", url=nats_server.url, code=2)
    assert "no bus at" in heeler("report", "user", url="nats://127.0.0.1:1", code=1).stderr


def test_a_narrow_terminal_gets_rows_of_80_columns() -> None:
    sums = Sums(12, 0, 3.6e6 * 12, 3.6e6 * 11, 3.6e6, 3.6e6, 0.0, 3600.0)
    told = Report(sums, {"a-user-with-a-long-name": sums}, [])
    for line in list(lines(told, Asked("user", None, 0, NOW), 5, narrow=True))[1:4]:
        assert len(line) <= 80
        assert len(line.split()) >= 8
