"""A real Prometheus with what we emit, and the queries of all dashboards and alerts.

It scrapes the processors, which run for real, and a page with every metric that the exporter makes, under the names
that Prometheus' OTLP receiver would give them.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from catalogue import every_point
from natsserver import NatsServer, free_port
from needs import need
from queries import ALERTS, unanswered
from waiting import until

from heeler.otlp.prometheus import label_name, metric_name

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PROCESSORS = ("enrich", "detect", "drain", "otlp")


def series() -> dict[str, float]:
    """Return every metric that the exporter makes as Prometheus writes a series, with a value."""
    found: dict[str, float] = {}
    for points in every_point():
        for metric, values in points.columns:
            name = metric_name(metric.name, metric.unit, metric.kind)
            for row, value in enumerate(values):
                if value is not None:
                    about = dict(points.attributes[row] + metric.attributes)
                    labels = ",".join(f"{label_name(key)}={json.dumps(str(one))}" for key, one in about.items())
                    found[f"{name}{{{labels}}}"] = float(value)
    return found


SERIES = sorted(series().items())


class Page(BaseHTTPRequestHandler):
    """Every metric once; counters grow with each look."""

    looks = 0

    def do_GET(self) -> None:
        Page.looks += 1
        grown = ((one, value % 1e6 + 10 * Page.looks if "_total{" in one else value) for one, value in SERIES)
        body = "".join(f"{one} {value}\n" for one, value in grown).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def process(log: Path, *argv: str, env: dict[str, str] | None = None) -> Iterator[None]:
    with log.open("ab") as out:
        started = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **(env or {})})
    try:
        yield
    finally:
        started.terminate()
        try:
            started.wait(10)
        finally:
            started.kill()
            started.wait()


def ask(port: int, query: str) -> list[Any]:
    """Return what Prometheus answers to a query. Raises HTTPError for one that is none."""
    about = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{about}", timeout=10) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
    return found


async def test_prometheus_takes_every_query_and_has_an_answer_to_those_that_ask_for_no_trouble(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    need("prometheus")
    await asyncio.to_thread(nats_server.init_bus, 0.01)
    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, args=(0.05,), daemon=True).start()
    ports = {name: free_port() for name in PROCESSORS}
    port = free_port()
    targets = [f"127.0.0.1:{one}" for one in ports.values()]
    config = {
        "global": {"scrape_interval": "3s", "evaluation_interval": "2s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "heeler-gpus",
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{page.server_address[1]}"]}],
            },
            {"job_name": "heeler-processors", "static_configs": [{"targets": targets}]},
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    (tmp_path / "out").touch()
    sink = f'[otlp]\n[[otlp.sinks]]\nkind = "file"\npath = "{tmp_path}/out"\n'
    (tmp_path / "otlp.toml").write_text(sink)
    env = {"HEELER_NATS_URL": nats_server.url, "HEELER_CLUSTER": "north"}
    with ExitStack() as stack:
        stack.callback(page.server_close)
        stack.callback(page.shutdown)
        for name, own in ports.items():
            argv = [sys.executable, "-m", "heeler.cli.main", "run", name, "--listen", f"127.0.0.1:{own}"]
            argv += ["--config", str(tmp_path / "otlp.toml")] if name == "otlp" else []
            stack.enter_context(process(tmp_path / f"{name}.log", *argv, env=env))
        storage = f"--storage.tsdb.path={tmp_path}/data"
        argv = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", storage]
        stack.enter_context(process(tmp_path / "prometheus.log", *argv, f"--web.listen-address=127.0.0.1:{port}"))

        def scraped() -> bool:
            try:
                # A rate needs two looks, after which everything counts.
                looked = ask(port, "min(sum_over_time(up[1m])) >= 4 and count(up) == 5")
                return bool(looked) and bool(ask(port, "sum(heeler_drain_active) == 1 and sum(heeler_shards_held) > 0"))
            except OSError:
                return False

        await until(lambda: asyncio.to_thread(scraped), "all targets", 90.0)
        wrong = await asyncio.to_thread(unanswered, lambda query: ask(port, query))
        assert not wrong, "\n".join(wrong)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=10) as answer:
            rules = [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]
        assert rules
        assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]
