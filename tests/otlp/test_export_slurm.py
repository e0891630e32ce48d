"""Tables, health checks and accounting, from a real bus to a real receiver."""

from typing import Any

import pytest
from otlplab import all_acked, exporting, once, publish, to, value
from otlpsamples import T0
from slurmtables import health_result, health_run, job_record, table
from waiting import until

from heeler.bus import Bus
from heeler.otlp.map import METRICS
from heeler.otlp.names_tables import ABOUT, OF_USERS
from heeler.otlp.settings import SlurmSettings
from heeler.sim.receiver import Receiver

pytestmark = pytest.mark.bus
S = 1_000_000_000
SCHED: dict[str, list[Any]] = {
    "since_ts": [T0 - 100 * S], "jobs_started": [7], "main_cycles": [40], "agent_queue": [0], "jobs_failed": [None],
    "rpcs_by_type": [{"REQUEST_PING": 5, "REQUEST_NODE_INFO": 9}], "rpcs_by_user": [{"ada": 3}],
}  # fmt: skip
TABLES = (
    table("sched", SCHED),
    table("partitions", {"partition": ["train", "debug"], "state": ["UP", "DRAIN"], "node_count": [4, 1]}),
    table("nodes", {"node": ["n1", "n2"], "available": [True, None], "gpus": [8, 8], "gpus_used": [0, None]}),
    table("licenses", {"license": ["ansys"], "total": [50], "used": [0]}),
    table("storage", {"path": ["/home"], "why": [None], "total_bytes": [1 << 50], "fs_type": ["nfs4"]}),
    table("jobs", {"job_id": ["1", "2"], "cpus": [4, 4]}),
    table("qos", {"qos": ["high"], "priority": [1000], "max_jobs_per_user": [None]}),
)


def points_of(kind: str, data: dict[str, Any]) -> int:
    return sum(len(points) for points in METRICS[kind](data) if points.scope[0] not in OF_USERS)


def arrived(receiver: Receiver, metric: str, **tags: Any) -> list[dict[str, Any]]:
    wanted = {key.replace("__", "."): tag for key, tag in tags.items()}
    return [p for p in receiver.points if p["metric"] == metric and wanted.items() <= p["attributes"].items()]


async def test_every_table_and_check_arrives_once_and_without_a_fault(bus: Bus, receiver: Receiver) -> None:
    messages = [("SlurmTable", one) for one in TABLES]
    messages += [("HealthResult", health_result()), ("HealthResult", health_result("ok", seq=3, check="gpu_ecc"))]
    messages += [("HealthRun", health_run())]
    expected = sum(points_of(kind, data) for kind, data in messages)
    async with exporting(bus, to(receiver)):
        for kind, data in messages:
            await publish(bus, kind, data)
        await publish(bus, "JobRecord", job_record())
        await publish(bus, "JobRecord", job_record("RUNNING", job_id="482"))
        await until(lambda: receiver.counts["points"] >= expected and receiver.counts["logs"] >= 3, "all")
        await until(lambda: all_acked(bus), "acks")
    assert (receiver.counts["faults"], receiver.counts["points"], receiver.counts["logs"]) == (0, expected, 3)
    assert once(receiver)
    assert {log["event"] for log in receiver.logs} == {"heeler.health.check", "heeler.health.run", "heeler.slurm.job"}
    (started,) = arrived(receiver, "heeler.slurm.sched.jobs_started")
    assert (started["kind"], started["value"], started["start_ts"]) == ("counter", 7, T0 - 100 * S)
    assert arrived(receiver, "heeler.slurm.sched.jobs_failed") == []
    assert [p["value"] for p in arrived(receiver, "heeler.slurm.node.available")] == [1]
    assert [p["value"] for p in arrived(receiver, "heeler.slurm.node.gpus_used", host__name="n1")] == [0]
    assert arrived(receiver, "heeler.slurm.node.gpus_used", host__name="n2") == []
    assert [p["value"] for p in arrived(receiver, "heeler.slurm.table.rows", heeler__slurm__table="jobs")] == [2]
    bad = arrived(
        receiver, "heeler.health.check.state", heeler__health__check="gpu_temp", heeler__health__outcome="bad"
    )
    assert [p["value"] for p in bad] == [1]


async def test_series_of_users_come_only_where_they_are_wanted(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver), slurm=SlurmSettings(users=True)):
        await publish(bus, "SlurmTable", TABLES[0])
        await until(lambda: bool(arrived(receiver, "heeler.slurm.sched.rpcs.by_user", slurm__user="ada")), "the user")
    assert receiver.counts["faults"] == 0


async def test_job_records_stay_away_where_they_are_not_wanted(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver), slurm=SlurmSettings(job_records=False)):
        await publish(bus, "JobRecord", job_record())
        await publish(bus, "HealthRun", health_run())
        await until(lambda: receiver.counts["logs"] >= 1, "the run")
        await until(lambda: all_acked(bus, job_records=False), "acks")
    assert {log["event"] for log in receiver.logs} == {"heeler.health.run"}


async def test_a_table_with_too_many_rows_is_cut_and_the_rest_is_counted(bus: Bus, receiver: Receiver) -> None:
    many = table("licenses", {"license": [f"l{i}" for i in range(12)], "total": [1] * 12})
    async with exporting(bus, to(receiver), slurm=SlurmSettings(series_rows=5)) as context:
        await publish(bus, "SlurmTable", many)
        await until(lambda: len(arrived(receiver, "heeler.slurm.license.total")) == 5, "five")
        assert value(context, "otlp_series_over_total.collector_metrics") == 7


async def test_only_the_first_part_of_a_table_without_series_is_read(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver)) as context:
        for part in range(5):
            await publish(bus, "SlurmTable", table("jobs", {"job_id": ["1"]}, part=part, parts=5, total_rows=5))
        await publish(bus, "HealthRun", health_run("pass"))
        await until(lambda: bool(arrived(receiver, "heeler.health.run.state")), "the run after it")
        await until(lambda: bool(arrived(receiver, "heeler.slurm.table.rows")), "the table")
        await until(lambda: all_acked(bus), "acks")
        assert value(context, "otlp_received_total.collector_metrics") == 2


async def test_a_second_result_within_the_interval_is_not_held_back(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver), every_s=60):
        await publish(bus, "HealthResult", health_result("ok"))
        await publish(bus, "HealthResult", health_result("bad", seq=2, ts=T0 + S))
        await until(lambda: len(arrived(receiver, "heeler.health.check.state")) == 10, "both")


def test_descriptions_go_with_the_metrics() -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from heeler.otlp.wire import Rows, payloads

    (payload,) = payloads("metrics", METRICS["SlurmTable"](TABLES[3]), 1 << 20, Rows())
    request = ExportMetricsServiceRequest.FromString(payload.data())
    found = {m.name: m.description for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert found["heeler.slurm.license.used"] == ABOUT["heeler.slurm.license.used"] == "In use."
