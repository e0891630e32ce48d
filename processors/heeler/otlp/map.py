"""From a message of the bus to data points or a log record: pure, and nothing is made up.

What was not read has no point. An attribute that isn't known is left out: it is never "" or 0.
"""

from collections.abc import Callable, Mapping
from typing import Any

from heeler.otlp import names
from heeler.otlp.logs import drain_action, finding, kernel_event
from heeler.otlp.names import Metric
from heeler.otlp.points import Attributes, LogEntry, Number, Points

Data = Mapping[str, Any]


def gpu_points(data: Data) -> Points:
    """Return the points of a GpuSample or JobSample: a row for each GPU."""
    gpu = data["gpu"]
    uuids: list[str] = gpu["uuid"]
    columns: list[tuple[Metric, list[Number | None]]] = []
    skipped = 0
    for group, table in names.GPU.items():
        for column, values in data.get(group, {}).items():
            metric = table.get(column) or names.unlisted(group, column)
            if metric is None:
                skipped += len(values)
            else:
                columns.append((metric, _scaled(values, metric.scale)))
    mean = data["mean"]
    if "fb_used_bytes" in mean and "fb_total_bytes" in mean:
        shares = [
            used / total if used is not None and total else None
            for used, total in zip(mean["fb_used_bytes"], mean["fb_total_bytes"], strict=True)
        ]
        columns.append((names.MEMORY_UTILIZATION, shares))
    if "state" in data:
        columns += _status(data["state"])
    return Points(
        scope=("gpu", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=uuids,
        attributes=[_gpu(data, gpu, row) for row in range(len(uuids))],
        columns=columns,
        skipped=skipped,
    )


def _gpu(data: Data, gpu: Data, row: int) -> Attributes:
    """Return who a GPU is and who has it."""
    index, model = _at(gpu, "index", row), _at(gpu, "model", row)
    job = _at(data, "job", row)
    found: list[tuple[str, str | int]] = [
        ("hw.id", gpu["uuid"][row]),
        ("hw.type", "gpu"),
        ("host.name", data["node"]),
        ("heeler.cluster", data["cluster"]),
    ]
    if index is not None:
        found += (("hw.name", f"gpu{index}"), ("heeler.gpu.index", index))
    if model:
        found.append(("hw.model", model))
    if job:
        found.append(("slurm.job.id", job))
        about = data.get("jobs", {}).get(job, {})
        for key in ("user", "account", "partition"):
            value = about.get(key)
            if isinstance(value, str) and value:
                found.append((f"slurm.{key}", value))
    return tuple(found)


def _at(data: Data, key: str, row: int) -> Any:
    """Return one entry of a list that may be missing."""
    values = data.get(key)
    return None if values is None else values[row]


def _scaled(values: list[Number | None], scale: float | None) -> list[Number | None]:
    if scale is None:
        return values
    return [None if value is None else value * scale for value in values]


def _status(states: list[str | None]) -> list[tuple[Metric, list[Number | None]]]:
    """Return hw.status: a GPU that is lost or hung has failed; of an unknown one nothing is said."""
    good: dict[str | None, int] = {"ok": 1, "lost": 0, "hung": 0}
    known = [good.get(state) for state in states]
    failed: list[Number | None] = [None if value is None else 1 - value for value in known]
    return [(names.STATUS_OK, list(known)), (names.STATUS_FAILED, failed)]


def ib_points(data: Data) -> Points:
    """Return the points of an IbSample: a row for each port, the first of any twins.

    A counter at the top of its width says nothing any more and has no point. The link speed means something only
    while the port is active.
    """
    ports: dict[str, Data] = {}
    for port in data["ports"]:
        ports.setdefault(f"{port['device']}/{port['port']}", port)
    rows = list(ports.values())
    counters = dict.fromkeys(name for port in rows for name in port.get("counters", {}))
    columns: list[tuple[Metric, list[Number | None]]] = []
    skipped = 0
    for name in counters:
        metric = names.IB.get(name) or names.unlisted_counter(name)
        if metric is None:
            skipped += len(rows)
            continue
        columns.append((metric, [_counter(port, name) for port in rows]))
    up = [None if (state := port.get("state", "unknown")) == "unknown" else int(state == "active") for port in rows]
    speed = [port.get("rate_gbps") if port.get("state") == "active" else None for port in rows]
    columns.append((names.NETWORK_UP, list(up)))
    columns.append((names.NETWORK_LIMIT, _scaled(speed, names.NETWORK_LIMIT.scale)))
    return Points(
        scope=("ib", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=list(ports),
        attributes=[_port(data, name, port) for name, port in ports.items()],
        columns=columns,
        skipped=skipped,
    )


def _counter(port: Data, name: str) -> int | None:
    value: int | None = port.get("counters", {}).get(name)
    return None if name in port.get("saturated", ()) else value


def _port(data: Data, name: str, port: Data) -> Attributes:
    found: list[tuple[str, str | int]] = [
        ("hw.id", name),
        ("hw.type", "network"),
        ("hw.name", name),
        ("host.name", data["node"]),
        ("heeler.cluster", data["cluster"]),
    ]
    for key, attribute in (("guid", "hw.network.physical_address"), ("netdev", "network.interface.name")):
        if port.get(key):
            found.append((attribute, port[key]))
    if port.get("link_layer", "unknown") != "unknown":
        found.append(("heeler.network.link_layer", port["link_layer"]))
    return tuple(found)


def agent_points(data: Data) -> Points:
    """Return the points of an AgentStatus: a row for the agent, and one for each of its collectors."""
    collectors = data["collectors"]
    base: Attributes = (("host.name", data["node"]), ("heeler.cluster", data["cluster"]))
    blank: list[Number | None] = [None] * len(collectors)
    columns = [
        (metric, [*_scaled([data[key]], metric.scale), *blank])
        for key, metric in names.AGENT.items()
        if data.get(key) is not None
    ]
    for key, metric in names.COLLECTOR.items():
        values: list[Number | None] = [None, *(collector.get(key) for collector in collectors.values())]
        columns.append((metric, _scaled(values, metric.scale)))
    # A collector that is off, or has nothing to read here, is neither up nor down.
    good: dict[str | None, int] = {"ok": 1, "failing": 0, "hung": 0}
    columns.append((names.COLLECTOR_UP, [None, *(good.get(one.get("state")) for one in collectors.values())]))
    return Points(
        scope=("agent", data["cluster"], data["node"]),
        boot=f"{data['boot']}/{data.get('started_ts', '')}",
        ts_ns=data["ts"],
        ids=["agent", *(f"collector/{name}" for name in collectors)],
        attributes=[base, *((*base, ("heeler.collector", name)) for name in collectors)],
        columns=columns,
        start_ns=data.get("started_ts"),
    )


METRICS: Mapping[str, Callable[[Data], Points]] = {
    "JobSample": gpu_points,
    "GpuSample": gpu_points,
    "IbSample": ib_points,
    "AgentStatus": agent_points,
}
LOGS: Mapping[str, Callable[[Data], LogEntry]] = {
    "JobKernelEvent": kernel_event,
    "KernelEvent": kernel_event,
    "Finding": finding,
    "DrainAction": drain_action,
}
