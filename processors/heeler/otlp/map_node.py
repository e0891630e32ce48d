"""From HostSample and SwitchSample to data points: as pure and as truthful as `heeler.otlp.map`."""

from collections.abc import Iterable, Mapping
from typing import Any

from heeler.otlp import names, names_node
from heeler.otlp.names import Metric
from heeler.otlp.points import Attributes, Number, Points, scaled

Data = Mapping[str, Any]
Column = tuple[Metric, list[Number | None]]


def host_points(data: Data) -> list[Points]:
    """Return the points of a HostSample: those of the node, and a row for each PCIe device that counts errors."""
    values: list[tuple[Metric | None, Number | None]] = [
        (metric, data.get(key)) for key, metric in names_node.HOST.items()
    ]
    values += [(names_node.CPU.get(mode), ratio) for mode, ratio in data.get("cpu_ratio", {}).items()]
    values += _memory(data.get("memory_bytes", {}))
    for key, numbers in data.get("pressure", {}).items():
        values += [(names_node.pressure(key, name), number) for name, number in numbers.items()]
    found = Points(
        scope=("host", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=["host"],
        attributes=[_who(data)],
        columns=[(metric, [number]) for metric, number in values if metric is not None and number is not None],
        skipped=sum(metric is None for metric, _ in values),
    )
    devices = data.get("aer", ())
    return [found, _aer(data, devices)] if devices else [found]


def _who(data: Data) -> Attributes:
    return (("host.name", data["node"]), ("heeler.cluster", data["cluster"]))


def _memory(memory: Mapping[str, int]) -> Iterable[tuple[Metric | None, Number | None]]:
    """Yield each kind of memory, and what is used, where all is known that it follows from."""
    for name, number in memory.items():
        yield names_node.memory(name), number
    for metric, whole, parts in (
        (names_node.MEMORY_USED, "total", ("free", "buffers", "cached")),
        (names_node.SWAP_USED, "swap_total", ("swap_free",)),
    ):
        if memory.keys() >= {whole, *parts}:
            used = memory[whole] - sum(memory[part] for part in parts)
            yield metric, used if used >= 0 else None


def _aer(data: Data, devices: Iterable[Data]) -> Points:
    rows = list({device["pci"]: device for device in devices}.values())
    kinds = dict.fromkeys(kind for device in rows for kind in device.get("errors", {}))
    columns: list[Column] = [(metric, [row.get(key) for row in rows]) for key, metric in names_node.AER.items()]
    columns += [
        (
            names.of_kind(names_node.AER_KIND, "error.type", kind),
            [row.get("errors", {}).get(kind) for row in rows],
        )
        for kind in kinds
    ]
    return Points(
        scope=("aer", data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=[row["pci"] for row in rows],
        attributes=[(*_who(data), *_device(row)) for row in rows],
        columns=columns,
    )


def _device(row: Data) -> Attributes:
    found = (("pci", "address"), ("class", "class"), ("parent", "parent"))
    return tuple((f"heeler.pci.{name}", row[key]) for key, name in found if row.get(key))


def switch_points(data: Data) -> list[Points]:
    """Return the points of a SwitchSample: a row for each switch, and one for each link."""
    switches = {one["switch"]: one for one in data["switches"]}
    made = [
        _values(data, "switch", {str(number): (_switch(number, one), one) for number, one in switches.items()}),
        _values(
            data,
            "switch_link",
            {
                f"{one['switch']}/{one['link']}": (
                    (*_switch(one["switch"], switches.get(one["switch"], {})), ("heeler.nvswitch.link", one["link"])),
                    one,
                )
                for one in data.get("links", ())
            },
        ),
    ]
    return [one for one in made if one.ids]


def _switch(number: int, one: Data) -> Attributes:
    found: list[tuple[str, str | int]] = [("hw.id", one.get("uuid") or f"nvswitch{number}")]
    found.append(("heeler.nvswitch.index", number))
    if one.get("pci"):
        found.append(("heeler.pci.address", one["pci"]))
    return tuple(found)


def _values(data: Data, scope: str, rows: Mapping[str, tuple[Attributes, Data]]) -> Points:
    things = [one for _, one in rows.values()]
    columns: list[Column] = []
    skipped = 0
    for name in dict.fromkeys(name for one in things for name in one.get("values", {})):
        numbers = [one.get("values", {}).get(name) for one in things]
        metric = names_node.switch(name, link=scope == "switch_link")
        if metric is None:
            skipped += len(numbers) - numbers.count(None)
        else:
            columns.append((metric, scaled(numbers, metric.scale)))
    return Points(
        scope=(scope, data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=list(rows),
        attributes=[(*_who(data), *about) for about, _ in rows.values()],
        columns=columns,
        skipped=skipped,
    )
