"""A real Prometheus that takes OTLP from `heeler run otlp`: names, labels, dashboards, alerts, and series that end."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from catalogue import SCOPES, column_values, emitted
from collectorkit import Heeler, Prometheus, build, running
from goldens import good
from natsserver import NatsServer
from otlplab import all_acked, publish
from otlpsamples import ib_sample, job_sample
from queries import ALERTS, unanswered
from slurmtables import table
from waiting import until

from heeler.bus import Bus
from heeler.bus.tables_gen import TABLES
from heeler.otlp import names
from heeler.otlp.reader import KINDS

pytestmark = [pytest.mark.e2e, pytest.mark.bus, pytest.mark.timeout(1500)]
S = 1_000_000_000
# As docs/operations.md says it: several exporters, or one after an outage, send what is older after what is newer.
STORAGE = {"storage": {"tsdb": {"out_of_order_time_window": "30m"}}}


@pytest.fixture(autouse=True, scope="module")
def built() -> None:
    """Build Prometheus, before any test waits for anything."""
    build()


class Exporter(Heeler):
    """``heeler run otlp`` to a Prometheus, everything at once."""

    def __init__(self, folder: Path, server: NatsServer, prometheus: Prometheus) -> None:
        super().__init__(
            folder,
            "otlp",
            f'[bus]\nservers = ["{server.url}"]\ncluster = "north"\n'
            '[otlp]\nevery_s = 0\nmetrics = ["all"]\nlinger_s = 0.1\n'
            "[otlp.slurm]\nusers = true\npartition_accounts = true\n"
            '[[otlp.sinks]]\nkind = "otlp"\nname = "collector"\nprotocol = "http"\nsignals = ["metrics"]\n'
            f'endpoint = "{prometheus.url}/api/v1/otlp"\n',
        )

    def ready(self) -> bool:
        """Say whether it has its places in the streams."""
        return self.metric("heeler_otlp_ready") == 1


def everything(ts_ns: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield messages with every metric, as of a time: each of a node of its own."""
    for kind in KINDS["metrics"]:
        for case, _, value in good(kind) if kind != "SlurmTable" else ():
            own = {"node": f"{value['node']}-{case}"} if "node" in value else {}
            yield kind, {**value, "cluster": "north", "ts": ts_ns, **own}
    yield "IbSample", {**ib_sample(counters=dict.fromkeys(names.IB, 1), carrier=True, carrier_changes=1), "ts": ts_ns}
    for name in TABLES:
        for at, scope in enumerate(SCOPES if name == "stats" else ("",)):
            yield "SlurmTable", table(name, column_values(name, scope), ts_ns, part=at, parts=at + 1)


async def test_every_metric_is_there_under_the_name_that_dashboards_and_alerts_ask_for(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    processors = [
        Heeler(tmp_path, name, f'[bus]\nservers = ["{nats_server.url}"]\ncluster = "north"\n')
        for name in ("enrich", "detect", "drain")
    ]
    targets = {"job_name": "heeler-processors", "static_configs": [{"targets": []}]}
    prometheus = Prometheus(
        tmp_path / "p",
        {
            **STORAGE,
            "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [targets],
        },
    )
    otlp = Exporter(tmp_path, nats_server, prometheus)
    ports = [one.port for one in (*processors, otlp)]
    prometheus.configure(
        {"scrape_configs": [{**targets, "static_configs": [{"targets": [f"127.0.0.1:{p}" for p in ports]}]}]}
    )
    async with AsyncExitStack() as stack:
        for process in (prometheus, otlp, *processors):
            await asyncio.to_thread(process.start)
            stack.callback(process.stop)
        begun = time.time_ns()
        for window in range(3):
            for kind, data in everything(begun - (20 - 10 * window) * S):
                await publish(bus, kind, data)
        await until(lambda: all_acked(bus, signals=("metrics",)), "all is sent")
        assert otlp.metric("heeler_otlp_rejected_total") == 0, otlp.log.read_text()[-2000:]

        def scraped() -> bool:
            looked = prometheus.ask("min(sum_over_time(up[1m])) >= 2 and count(up) == 4")
            return bool(looked and prometheus.ask("sum(heeler_drain_active) == 1 and sum(heeler_shards_held) > 0"))

        await until(lambda: asyncio.to_thread(scraped), "all targets", 90.0)
        there = set(prometheus.get("label/__name__/values"))
        missing = set(emitted()) - there
        assert not missing
        for name, labels in emitted().items():
            found = prometheus.get("series", {"match[]": name})
            assert labels <= {label for series in found for label in series}, name
        assert {name for name in there if name.startswith(("hw_", "system_"))} <= set(emitted())
        wrong = await asyncio.to_thread(unanswered, prometheus.ask)
        assert not wrong, "\n".join(wrong)
        fallen = prometheus.ask('sum by (__name__) (resets({__name__=~"(hw|heeler|system)_.*_total", job=""}[5m])) > 0')
        assert not fallen
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert rules
        assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]


def of_job(job: str, ts_ns: int, node: str = "n1") -> dict[str, Any]:
    about = {job: {"user": "ann", "account": "ml", "partition": "gpu"}}
    return {**job_sample(node), "job": [job] * 2, "jobs": about, "ts": ts_ns, "seq": ts_ns // S}


async def test_the_series_of_a_job_end_as_the_next_job_gets_its_gpus_and_no_sum_counts_them_twice(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    prometheus = Prometheus(tmp_path / "p", STORAGE)
    otlp = Exporter(tmp_path, nats_server, prometheus)
    with running(prometheus, otlp):
        now = time.time_ns()
        for back, job in ((40, "1"), (30, "1"), (20, "2"), (10, "2")):
            await publish(bus, "JobSample", of_job(job, now - back * S))
        await until(lambda: all_acked(bus, signals=("metrics",)), "all is sent")
        assert otlp.metric("heeler_otlp_rejected_total") == 0

        def jobs(back: float) -> dict[str, float]:
            query = "sum by (slurm_job_id) (hw_power_watts)"
            return {
                one["metric"]["slurm_job_id"]: float(one["value"][1]) for one in prometheus.ask(query, now / S - back)
            }

        assert jobs(25) == {"1": 805.0}
        assert jobs(15) == jobs(5) == {"2": 805.0}
        assert float(prometheus.ask("count(hw_energy_joules_total)", now / S - 5)[0]["value"][1]) == 2
