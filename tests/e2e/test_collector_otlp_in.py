"""A real Collector scrapes dcgm-exporter and node_exporter, `heeler run otlp-in` adds jobs, a second one has all."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgpack
import pytest
from collectorkit import Collector, Heeler, build, points, running
from goldens import good
from natsserver import NatsServer, free_port
from waiting import until

from heeler.bus import Bus, encode, subjects
from heeler.bus.values import Values

pytestmark = [pytest.mark.e2e, pytest.mark.bus, pytest.mark.timeout(1500)]

MODEL = "NVIDIA H100 80GB HBM3"
PCI = ("1B", "43", "52")


def dcgm() -> str:
    """Return what dcgm-exporter 4 writes of two GPUs, and of two MIG devices of a third."""

    def line(metric: str, gpu: int, value: float, mig: str = "") -> str:
        about = f'gpu="{gpu}",UUID="GPU-a{gpu}",pci_bus_id="00000000:{PCI[gpu]}:00.0",device="nvidia{gpu}"'
        return f'{metric}{{{about},modelName="{MODEL}",{mig}Hostname="n1"}} {value}\n'

    profile = 'GPU_I_PROFILE="3g.40gb",GPU_I_ID="{}",'
    power, energy = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    active = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    return (
        f"# HELP {power} Power draw (in W).\n# TYPE {power} gauge\n{line(power, 0, 512.5)}{line(power, 1, 98.25)}"
        f"# HELP {energy} Total energy consumption since boot (in mJ).\n# TYPE {energy} counter\n"
        f"{line(energy, 0, 8123456789)}"
        f"# HELP {active} Ratio of time the graphics engine is active.\n# TYPE {active} gauge\n"
        f"{line(active, 2, 0.75, profile.format(1))}{line(active, 2, 0.5, profile.format(2))}"
    )


NODE = """\
# HELP node_load1 1m load average.
# TYPE node_load1 gauge
node_load1 7.25
# HELP node_network_receive_bytes_total Network device statistic receive_bytes.
# TYPE node_network_receive_bytes_total counter
node_network_receive_bytes_total{device="eth0"} 123456
# HELP node_btrfs_info Filesystem information
# TYPE node_btrfs_info gauge
node_btrfs_info{block_group_type="data",uuid="7f07c59f-6136-449c-ab87-e1cf2328731b"} 1
"""
ABOUT = {"user": "ann", "account": "ml", "partition": "a"}
ALL = {"slurm.user": "ann", "slurm.account": "ml", "slurm.partition": "a"}


@pytest.fixture(autouse=True, scope="module")
def built() -> None:
    """Build the collector, before any test waits for anything."""
    build()


@pytest.fixture
def exporters() -> Iterator[str]:
    """Both exporters on one port of this machine, at /dcgm and /node."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (dcgm() if self.path.startswith("/dcgm") else NODE).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def scraping(target: str, endpoint: str, protocol: str) -> dict[str, Any]:
    """Return what makes a collector scrape both exporters, as those of n1, and export to an endpoint."""

    def job(name: str, port: int) -> dict[str, Any]:
        relabel = {"target_label": "instance", "replacement": f"n1:{port}"}
        return {
            "job_name": name,
            "metrics_path": f"/{name}",
            "scrape_interval": "1s",
            "static_configs": [{"targets": [target]}],
            "relabel_configs": [relabel],
        }

    scrapes = {"config": {"scrape_configs": [job("dcgm", 9400), job("node", 9100)]}}
    out: dict[str, Any] = {"endpoint": endpoint, "tls": {"insecure": True}, "retry_on_failure": {"max_interval": "1s"}}
    name = {"grpc": "otlp_grpc", "http": "otlp_http"}[protocol]
    own = {"receivers": ["prometheus"], "processors": ["memory_limiter", "batch"], "exporters": [name]}
    return {
        "receivers": {"prometheus": scrapes},
        "exporters": {name: out},
        "service": {"pipelines": {"metrics": own}},
    }


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_metrics_that_a_real_collector_scrapes_get_the_jobs_of_their_gpus_mig_devices_and_nodes(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, exporters: str, protocol: str
) -> None:
    jobs = [
        {"job_id": "7", "gpus_source": "slurm_index", **ABOUT, "uuids": ["GPU-a0"]},
        {"job_id": "8", "gpus_source": "prolog", **ABOUT, "uuids": ["MIG-b1"]},
    ]
    await put(bus, *jobs)
    await inventory(bus)
    second = Collector(tmp_path / "second")
    ports = {"grpc": free_port(), "http": free_port()}
    taker = Heeler(
        tmp_path,
        "otlp-in",
        f'[bus]\nservers = ["{nats_server.url}"]\ncluster = "north"\n[otlp_in]\n'
        + "".join(f'{name} = "127.0.0.1:{port}"\n' for name, port in ports.items())
        + f'[[otlp_in.sinks]]\nkind = "otlp"\nendpoint = {json.dumps(second.grpc_url)}\nsignals = ["metrics"]\n',
    )
    endpoint = f"http://127.0.0.1:{ports[protocol]}" if protocol == "http" else f"127.0.0.1:{ports[protocol]}"
    first = Collector(tmp_path / "first", scraping(exporters, endpoint, protocol))

    def found() -> dict[tuple[str, str], dict[str, Any]]:
        made = {}
        for one in points(second.arrived("resourceMetrics")):
            about = one["attributes"]
            which = about.get("GPU_I_ID") or about.get("UUID") or about.get("device") or about.get("uuid") or ""
            made[one["metric"], which] = one
        return made

    def slurm(metric: str, which: str = "") -> dict[str, Any]:
        about = found()[metric, which]["attributes"]
        return {key: value for key, value in about.items() if key.startswith("slurm.")}

    with running(second, taker, first):
        await until(lambda: {name for name, _ in found()} >= {"DCGM_FI_DEV_POWER_USAGE", "node_load1"}, "both", 60.0)
    assert slurm("DCGM_FI_DEV_POWER_USAGE", "GPU-a0") == {"slurm.job.id": "7", **ALL}
    assert slurm("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-a0") == {"slurm.job.id": "7", **ALL}
    assert slurm("DCGM_FI_DEV_POWER_USAGE", "GPU-a1") == {}, "nobody has it"
    assert slurm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "1") == {"slurm.job.id": "8", **ALL}
    assert slurm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "2") == {}, "nobody has that MIG device"
    shared = {"slurm.job.id": "several", **ALL}
    assert slurm("node_load1") == slurm("node_network_receive_bytes_total", "eth0") == shared
    assert slurm("node_btrfs_info", "7f07c59f-6136-449c-ab87-e1cf2328731b") == shared, "no GPU's UUID"
    power = found()["DCGM_FI_DEV_POWER_USAGE", "GPU-a0"]
    assert (power["value"], power["kind"]) == (512.5, "gauge")
    assert power["attributes"].items() >= {"gpu": "0", "Hostname": "n1", "pci_bus_id": "00000000:1B:00.0"}.items()
    assert found()["node_load1", ""]["value"] == 7.25
    energy = found()["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-a0"]
    assert (energy["value"], energy["kind"], energy["temporality"]) == (8123456789, "counter", 2)


async def put(bus: Bus, *jobs: dict[str, Any]) -> None:
    """Say who has n1, as heeler-slurm does."""
    value = {"v": 1, "cluster": "north", "node": "n1", "ts": time.time_ns(), "jobs": list(jobs)}
    await (await Values.open(bus, "job_map")).put({"north.node.n1": msgpack.packb(value)})


async def inventory(bus: Bus) -> None:
    """Say what n1 has, as its agent does."""
    _, _, base = next(iter(good("Inventory")))
    gpus = [{"uuid": f"GPU-a{at}", "index": at, "minor": at, "model": "NVIDIA H100 80GB HBM3"} for at in range(3)]
    gpus[2]["mig_devices"] = [{"uuid": f"MIG-b{gi}", "gi": gi, "ci": 0} for gi in (1, 2)]
    data = {**base, "cluster": "north", "node": "n1", "ts": time.time_ns(), "gpus": gpus}
    await bus.publish_acked(subjects.inventory("north", "n1"), "Inventory", encode("Inventory", data), "inventory")
