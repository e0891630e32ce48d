"""From a message of the bus to data points or a log record: pure, and nothing is made up.

What was not read has no point. An attribute that isn't known is left out: it is never "" or 0.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from heeler.otlp import names
from heeler.otlp.logs import drain_action, finding, kernel_event
from heeler.otlp.map_cluster import cluster_points
from heeler.otlp.map_dcgm import dcgm_sample
from heeler.otlp.map_health import result_log, result_points, run_log, run_points
from heeler.otlp.map_jobs import job_log
from heeler.otlp.map_node import host_points, switch_points
from heeler.otlp.map_tables import table_points
from heeler.otlp.names import Metric
from heeler.otlp.points import Attributes, LogEntry, Number, Points, scaled

Data = Mapping[str, Any]
Columns = list[tuple[Metric, list[Number | None]]]


def gpu_sample(data: Data) -> list[Points]:
    """Return the points of a GpuSample or JobSample: a row for each GPU, and one for each NVLink that is named."""
    found = gpu_points(data)
    links = data.get("nvlinks")
    return [found, link_points(data, found, links)] if links else [found]


def gpu_points(data: Data) -> Points:
    """Return the points of the GPUs in a sample, MIG devices among them."""
    gpu = data["gpu"]
    uuids: list[str] = gpu["uuid"]
    columns: Columns = []
    skipped = 0
    for group, table in names.GPU.items():
        for column, values in data.get(group, {}).items():
            metric = table.get(column) or names.unlisted(group, column)
            if metric is None:
                skipped += len(values)
            else:
                columns.append((metric, scaled(values, metric.scale)))
    mean = data["mean"]
    if "fb_used_bytes" in mean and "fb_total_bytes" in mean:
        shares = [
            used / total if used is not None and total else None
            for used, total in zip(mean["fb_used_bytes"], mean["fb_total_bytes"], strict=True)
        ]
        columns.append((names.MEMORY_UTILIZATION, shares))
    if "state" in data:
        columns += _status(data["state"])
    parents = gpu.get("parent")
    if parents is not None and any(parents):
        columns = _apart(columns, parents)
    if "power_kind" in gpu:
        columns = _by_kind(columns, gpu["power_kind"])
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
    if _at(gpu, "parent", row):
        found += _mig(gpu, row)
    if job:
        found.append(("slurm.job.id", job))
        about = data.get("jobs", {}).get(job, {})
        for key in ("user", "account", "partition"):
            value = about.get(key)
            if isinstance(value, str) and value:
                found.append((f"slurm.{key}", value))
    return tuple(found)


def job_apart(data: Data) -> list[Points]:
    """Return the points of a GpuSample or JobSample without jobs, and of each GPU's job one that says which it is.

    A GPU without a job has a row too, so that the job that it had before is seen to be over.
    """
    made = gpu_sample(data)
    info = Points(
        scope=("gpu_job", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=made[0].ids,
        attributes=made[0].attributes,
        columns=[(names.JOB_INFO, [1 if _at(data, "job", row) else None for row in range(len(made[0].ids))])],
    )
    for points in made:
        points.attributes = [
            tuple([one for one in attributes if not one[0].startswith("slurm.")]) for attributes in points.attributes
        ]
    return [*made, info]


def _mig(gpu: Data, row: int) -> Attributes:
    """Return which part of which GPU a MIG device is."""
    about = (("parent", "hw.parent"), ("gi", "heeler.mig.gi"), ("ci", "heeler.mig.ci"))
    found = [(name, _at(gpu, key, row)) for key, name in (*about, ("profile", "heeler.mig.profile"))]
    return tuple((name, value) for name, value in found if value is not None)


def _apart(columns: Columns, parents: Sequence[str | None]) -> Columns:
    """Give MIG devices metrics of their own for what adds up: their GPU has it already."""
    out: Columns = []
    for metric, values in columns:
        if names.adds_up(metric):
            pairs = list(zip(values, parents, strict=True))
            out.append((metric, [None if parent else value for value, parent in pairs]))
            out.append((names.of_mig(metric), [value if parent else None for value, parent in pairs]))
        else:
            out.append((metric, values))
    return out


def _by_kind(columns: Columns, kinds: Sequence[str | None]) -> Columns:
    """Say of hw.power what it is, a mean of the driver's or the moment's: the two must not be compared."""
    found = [(at, values) for at, (metric, values) in enumerate(columns) if metric.name == "hw.power"]
    for at, values in found:
        metric = columns[at][0]
        different = set(kinds)
        if len(different) == 1:
            (kind,) = different
            columns[at] = (names.of_kind(metric, "heeler.power.kind", kind) if kind else metric, values)
            continue
        columns[at] = (metric, [None if kind else value for value, kind in zip(values, kinds, strict=True)])
        columns += [
            (
                names.of_kind(metric, "heeler.power.kind", kind),
                [value if one == kind else None for value, one in zip(values, kinds, strict=True)],
            )
            for kind in sorted(filter(None, different))
        ]
    return columns


def link_points(data: Data, gpus: Points, links: Sequence[Sequence[Any]]) -> Points:
    """Return the points of the NVLinks that a sample names: those that are down, unread, or have counted something.

    Rows without a GPU or a number are no rows; a counter that is no number has no point.
    """
    rows = {(row[0], row[1]): row for row in links if _is_link(row, len(gpus.ids))}
    counters = dict.fromkeys(name for row in rows.values() for name in row[3])
    up = [None if row[2] is None else int(row[2]) for row in rows.values()]
    columns: Columns = [(names.LINK_UP, list(up))]
    skipped = 0
    for name in counters:
        metric = names.of_link(name)
        if metric is None:
            skipped += len(rows)
        else:
            columns.append((metric, scaled([_number(row[3].get(name)) for row in rows.values()], metric.scale)))
    return Points(
        scope=("nvlink", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=[f"{gpus.ids[at]}/{link}" for at, link in rows],
        attributes=[(*gpus.attributes[at], ("heeler.nvlink.link", link)) for at, link in rows],
        columns=columns,
        skipped=skipped,
    )


def _is_link(row: Sequence[Any], gpus: int) -> bool:
    """Say whether a row is one: its type allows anything."""
    return (
        len(row) >= 4
        and type(row[0]) is int
        and 0 <= row[0] < gpus
        and type(row[1]) is int
        and row[2] in (True, False, None)
        and isinstance(row[3], Mapping)
        and all(isinstance(name, str) for name in row[3])
    )


def _number(value: Any) -> Number | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return value if good else None


def _at(data: Data, key: str, row: int) -> Any:
    """Return one entry of a list that may be missing."""
    values = data.get(key)
    return None if values is None else values[row]


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
    columns.append((names.NETWORK_LIMIT, scaled(speed, names.NETWORK_LIMIT.scale)))
    for key, metric in names.PORT.items():
        values: list[Number | None] = [port.get(key) for port in rows]
        columns.append((metric, scaled(values, metric.scale)))
    return Points(
        scope=("ib", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=list(ports),
        attributes=[_port(data, name, port) for name, port in ports.items()],
        columns=columns,
        skipped=skipped,
    )


def ib_sample(data: Data) -> list[Points]:
    """Return the points of an IbSample: a row for each port, and one for each bond and each of its members."""
    bonds = data.get("bonds")
    return [ib_points(data), bond_points(data, bonds)] if bonds else [ib_points(data)]


def bond_points(data: Data, bonds: Sequence[Data]) -> Points:
    """Return the points of bonds and their members: whether they are up, and how often a member's link failed."""
    rows: dict[str, tuple[Data, Attributes]] = {}
    for bond in bonds:
        name = bond["name"]
        base: Attributes = (
            ("host.name", data["node"]),
            ("heeler.cluster", data["cluster"]),
            ("heeler.network.bond", name),
        )
        rows[name] = (bond, base)
        for slave in bond.get("slaves", ()):
            rows[f"{name}/{slave['netdev']}"] = (slave, (*base, ("network.interface.name", slave["netdev"])))
    up = [None if (status := one.get("mii_status")) is None else int(status == "up") for one, _ in rows.values()]
    failures = [one.get("link_failures") for one, _ in rows.values()]
    return Points(
        scope=("bond", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=list(rows),
        attributes=[about for _, about in rows.values()],
        columns=[(names.BOND["up"], list(up)), (names.BOND["link_failures"], failures)],
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
    for key, attribute in (
        ("guid", "hw.network.physical_address"),
        ("netdev", "network.interface.name"),
        ("bond", "heeler.network.bond"),
    ):
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
        (metric, [*scaled([data[key]], metric.scale), *blank])
        for key, metric in names.AGENT.items()
        if data.get(key) is not None
    ]
    for key, metric in names.COLLECTOR.items():
        values: list[Number | None] = [None, *(collector.get(key) for collector in collectors.values())]
        columns.append((metric, scaled(values, metric.scale)))
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


def agent_status(data: Data) -> list[Points]:
    """Return the points of an AgentStatus."""
    return [agent_points(data)]


METRICS: Mapping[str, Callable[[Data], list[Points]]] = {
    "JobSample": gpu_sample,
    "GpuSample": gpu_sample,
    "IbSample": ib_sample,
    "HostSample": host_points,
    "SwitchSample": switch_points,
    "AgentStatus": agent_status,
    "HealthResult": result_points,
    "HealthRun": run_points,
    "SlurmTable": table_points,
    "ClusterState": cluster_points,
}


def metrics_by(gpu_names: str, jobs: str = "attributes") -> Mapping[str, Callable[[Data], list[Points]]]:
    """Return how each kind becomes points, with GPUs under our names, those of dcgm-exporter, or both.

    ``jobs``: whether a GPU's job is in the attributes of all its points, or told by a metric of its own.
    """
    ours = job_apart if jobs == "info" else gpu_sample
    found: dict[str, Callable[[Data], list[Points]]] = dict(METRICS)
    for kind in ("JobSample", "GpuSample"):
        found[kind] = ours
        if gpu_names == "dcgm":
            found[kind] = dcgm_sample
        elif gpu_names == "both":
            found[kind] = lambda data: [*ours(data), *dcgm_sample(data)]
    return found


# None: there is nothing to say of this one.
LOGS: Mapping[str, Callable[[Data], LogEntry | None]] = {
    "JobKernelEvent": kernel_event,
    "KernelEvent": kernel_event,
    "Finding": finding,
    "DrainAction": drain_action,
    "HealthResult": result_log,
    "HealthRun": run_log,
    "JobRecord": job_log,
}
