"""Adds to each data point who holds its GPU or node: pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from heeler.otlpin.holders import Found, Gpu


@dataclass(frozen=True, slots=True)
class Keys:
    """Attributes that name a node and a GPU, the first that is there counts; those of a point go before its resource's.

    The defaults are those of dcgm-exporter, of the semantic conventions, of Kubernetes and of Prometheus' receivers.
    """

    node: tuple[str, ...] = (
        *("Hostname", "hostname", "host.name", "k8s.node.name", "node", "nodename"),
        *("server.address", "net.host.name", "instance", "service.instance.id"),
    )
    uuid: tuple[str, ...] = ("UUID", "uuid", "gpu_uuid", "gpu.uuid", "hw.id")
    index: tuple[str, ...] = ("gpu", "gpu_index", "gpu.index", "heeler.gpu.index")
    pci: tuple[str, ...] = ("pci_bus_id", "gpu_pci_bus_id", "pci.bus.id")
    instance: tuple[str, ...] = ("GPU_I_ID", "heeler.mig.gi")


Attributes = Mapping[str, str | int]
OfNode = Callable[[str], Found]
OfGpu = Callable[[str, Gpu], Found]


def stamp(request: ExportMetricsServiceRequest, keys: Keys, of_node: OfNode, of_gpu: OfGpu) -> Counter[str]:
    """Add what is known to all points of a request; returns how many became what. What is unknown stays as it was."""
    counts: Counter[str] = Counter()
    known: dict[tuple[str, Gpu | None], Found] = {}
    for resource in request.resource_metrics:
        about = _read(resource.resource.attributes)
        for point in points(resource):
            own = _read(point.attributes)
            node, gpu = node_of(own, about, keys), gpu_of(own, about, keys)
            if node is None:
                counts["no_node"] += 1
                continue
            found = known.get((node, gpu))
            if found is None:
                found = known[node, gpu] = of_node(node) if gpu is None else of_gpu(node, gpu)
            counts[found.what] += 1
            if found.attributes:
                _put(point.attributes, found.attributes)
    return counts


def points(resource: Any) -> Iterator[Any]:
    """Yield all data points of a resource, whatever their kind."""
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            if kind is not None:
                yield from getattr(metric, kind).data_points


def node_of(own: Attributes, about: Attributes, keys: Keys) -> str | None:
    """Return the node that a point is of, without a port behind it."""
    value = _first(own, keys.node)
    value = _first(about, keys.node) if value is None else value
    if value is None:
        return None
    name, colon, port = str(value).rpartition(":")
    return name if colon and port.isdigit() else str(value)


def gpu_of(own: Attributes, about: Attributes, keys: Keys) -> Gpu | None:
    """Return the GPU that a point is of, None where it is of none."""
    for attributes in (own, about):
        uuid = _first(attributes, keys.uuid)
        uuid = uuid if isinstance(uuid, str) and uuid.startswith(("GPU-", "MIG-")) else None
        index, pci = _number(_first(attributes, keys.index)), _first(attributes, keys.pci)
        if uuid is not None or index is not None or pci is not None:
            instance = None if (uuid or "").startswith("MIG-") else _number(_first(attributes, keys.instance))
            return Gpu(uuid, index, str(pci) if pci is not None else None, instance)
    return None


def _first(attributes: Attributes, names: Iterable[str]) -> str | int | None:
    return next((attributes[name] for name in names if name in attributes and attributes[name] != ""), None)


def _number(value: str | int | None) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 10 else None


def _read(attributes: Iterable[Any]) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        if kind in ("string_value", "int_value"):
            found[one.key] = getattr(one.value, kind)
    return found


def _put(attributes: Any, new: Iterable[tuple[str, str]]) -> None:
    """Set attributes, in the place of those of the same names."""
    there = {one.key: one for one in attributes}
    for key, value in new:
        one = there.get(key)
        if one is None:
            one = attributes.add()
            one.key = key
        one.value.string_value = value
