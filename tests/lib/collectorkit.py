"""A real OpenTelemetry Collector and a real Prometheus, built from their Go modules (tests/otelcol)."""

import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from natsserver import free_port
from needs import need
from waiting import until_sync

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/otelcol"
START_S = 60.0


@lru_cache(maxsize=1)
def build() -> None:
    """Build both, unless that is done; skip the test where there is no Go that can."""
    need("go_126")
    done = subprocess.run([ROOT / "deploy/dev/otelcol.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


class Process:
    """A program that is started, killed and started again."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.folder, self.log = name, folder, folder / f"{name}.log"
        self.argv: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        assert self._process is None, "runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.argv, stdout=log, stderr=log)
        until_sync(self._up, f"{self.name} does not start: {self.log}", START_S)
        return self

    def _up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-3000:]
        return self.ready()

    def ready(self) -> bool:
        """Say whether it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it in good order: what it holds goes out."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Collector(Process):
    """Takes OTLP on two ports and writes all that arrives to a file; more by ``extra``, laid over its configuration."""

    def __init__(
        self, folder: Path, extra: Mapping[str, Any] | None = None, tls: Mapping[str, str] | None = None
    ) -> None:
        build()
        super().__init__("otelcol", folder)
        self.grpc_port, self.http_port = free_port(), free_port()
        self.out = folder / "arrived.jsonl"
        scheme = "https" if tls else "http"
        self.grpc_url, self.http_url = (f"{scheme}://127.0.0.1:{port}" for port in (self.grpc_port, self.http_port))
        about: dict[str, Any] = {"tls": tls} if tls else {}
        protocols = {
            "grpc": {"endpoint": f"127.0.0.1:{self.grpc_port}", **about},
            "http": {"endpoint": f"127.0.0.1:{self.http_port}", **about},
        }
        pipeline = {"receivers": ["otlp"], "processors": ["memory_limiter", "batch"], "exporters": ["file"]}
        config: dict[str, Any] = {
            "receivers": {"otlp": {"protocols": protocols}},
            "processors": {"memory_limiter": {"check_interval": "1s", "limit_mib": 500}, "batch": {"timeout": "50ms"}},
            # Appends: the file outlives the process.
            "exporters": {"file": {"path": str(self.out), "append": True, "flush_interval": "50ms"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"metrics": pipeline, "logs": pipeline, "traces": pipeline},
            },
        }
        path = folder / "otelcol.yaml"
        path.write_text(json.dumps(laid_over(config, extra or {})))  # JSON is YAML
        self.argv = [str(BUILT / "otelcol"), "--config", str(path)]

    def ready(self) -> bool:
        """Say whether it has started since the last start."""
        text = self.log.read_text()
        return "Everything is ready" in text.rpartition("Starting otelcol")[2]

    def arrived(self, signal: str) -> list[dict[str, Any]]:
        """Return the requests of a signal that were written: resourceMetrics, resourceLogs or resourceSpans."""
        if not self.out.exists():
            return []
        whole = [line for line in self.out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        return [found for line in whole if signal in (found := json.loads(line))]


class Prometheus(Process):
    """Takes OTLP, and scrapes and judges what its configuration says."""

    def __init__(self, folder: Path, config: Mapping[str, Any], *options: str) -> None:
        build()
        super().__init__("prometheus", folder)
        self.port = free_port()
        self._config, self._path = config, folder / "prometheus.yml"
        self.configure({})
        self.url = f"http://127.0.0.1:{self.port}"
        self.argv = [
            str(BUILT / "prometheus"),
            f"--config.file={self._path}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-otlp-receiver",
            *options,
        ]

    def configure(self, more: Mapping[str, Any]) -> None:
        """Write its configuration, with more over it."""
        self._path.write_text(json.dumps(laid_over(self._config, more)))

    def ready(self) -> bool:
        """Say whether it takes and answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, query: str, at_s: float | None = None) -> list[Any]:
        """Return the answer to a query. Raises HTTPError for one that is none."""
        about = {"query": query, **({"time": repr(at_s)} if at_s is not None else {})}
        return list(self.get("query", about)["result"])

    def get(self, path: str, about: Mapping[str, Any] | None = None) -> Any:
        """Return what the API says."""
        asked = urllib.parse.urlencode(about or {}, doseq=True)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{asked}", timeout=30) as answer:
            return json.load(answer)["data"]


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with another over it."""
    found = dict(below)
    for key, value in above.items():
        old = found.get(key)
        found[key] = laid_over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


def plain(value: Mapping[str, Any]) -> Any:
    """Return an attribute's value in OTLP's JSON as Python's."""
    if not value:
        return None
    kind, found = next(iter(value.items()))
    if kind == "intValue":
        return int(found)
    if kind == "arrayValue":
        return [plain(one) for one in found.get("values", ())]
    if kind == "kvlistValue":
        return attributes(found.get("values", ()))
    return found


def attributes(pairs: Any) -> dict[str, Any]:
    """Return attributes as a map."""
    return {pair["key"]: plain(pair["value"]) for pair in pairs or ()}


def points(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each data point in OTLP's JSON as a flat map, like `heeler.sim.receiver` does."""
    for request in requests:
        for resource in request["resourceMetrics"]:
            about = attributes(resource["resource"].get("attributes"))
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    yield from _points(metric, about)


def _points(metric: Mapping[str, Any], resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    form = next(key for key in ("gauge", "sum", "histogram", "summary", "exponentialHistogram") if key in metric)
    data = metric[form]
    kind = form if form != "sum" else "counter" if data.get("isMonotonic") else "updowncounter"
    for point in data["dataPoints"]:
        whole = point.get("asInt")
        yield {
            "metric": metric["name"],
            "unit": metric.get("unit", ""),
            "kind": kind,
            "value": point.get("asDouble") if whole is None else int(whole),
            "ts": int(point["timeUnixNano"]),
            "start_ts": int(point.get("startTimeUnixNano", 0)),
            "temporality": data.get("aggregationTemporality"),
            "ended": bool(point.get("flags", 0) & 1),
            "attributes": attributes(point.get("attributes")),
            "resource": resource,
        }


def records(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each log record as a flat map."""
    for request in requests:
        for resource in request["resourceLogs"]:
            for scope in resource["scopeLogs"]:
                for record in scope["logRecords"]:
                    yield {
                        "event": record.get("eventName", ""),
                        "severity": record.get("severityNumber", 0),
                        "severity_text": record.get("severityText", ""),
                        "body": plain(record["body"]),
                        "ts": int(record["timeUnixNano"]),
                        "attributes": attributes(record.get("attributes")),
                    }


def spans(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each span as OTLP's JSON has it."""
    for request in requests:
        for resource in request["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                yield from scope["spans"]


class Heeler(Process):
    """``heeler run NAME`` with a configuration."""

    def __init__(self, folder: Path, program: str, toml: str) -> None:
        super().__init__(program, folder)
        self.port = free_port()
        config = folder / f"{program}.toml"
        config.write_text(toml)
        self.argv = [sys.executable, "-m", "heeler.cli.main", "run", program, "--config", str(config)]
        self.argv += ["--listen", f"127.0.0.1:{self.port}"]

    def ready(self) -> bool:
        """Say whether it is on the bus."""
        return self.metric("heeler_bus_connected") == 1

    def metric(self, name: str) -> float | None:
        """Return the sum of one of its own metrics; None while it does not answer or has none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found) if found else None


@contextmanager
def running(*processes: Process) -> Iterator[None]:
    """Run all of them; they end in the opposite order."""
    started: list[Process] = []
    try:
        for process in processes:
            started.append(process)
            process.start()
        yield
    finally:
        for process in reversed(started):
            process.stop()
