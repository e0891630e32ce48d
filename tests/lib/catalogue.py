"""Every metric that the exporter makes, as Prometheus calls it, with the labels that it can have.

By the exporter's own mapping of the golden messages, of a port with all counters, and of each table of Slurm with a
value in every column.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from goldens import good
from otlpsamples import ib_sample
from slurmtables import table

from heeler.bus.tables_gen import TABLES
from heeler.otlp import names
from heeler.otlp.map import METRICS
from heeler.otlp.points import Points
from heeler.otlp.prometheus import label_name, metric_name

VALUES: Mapping[str, Any] = {
    "text": "x", "int": 1, "number": 1.5, "bool": True, "ts": 1_767_225_600_000_000_000, "texts": ["x"],
    "counts": {"x": 1}, "ints": [1],
}  # fmt: skip
SCOPES = ("cluster", "partition", "account", "partition_account")


@lru_cache(maxsize=1)
def emitted() -> Mapping[str, frozenset[str]]:
    """Return the labels of each metric by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for points in every_point():
        for metric, values in points.columns:
            for row, value in enumerate(values):
                if value is not None:
                    about = points.attributes[row] + metric.attributes
                    labels = {label_name(key) for key, _ in about}
                    found[metric_name(metric.name, metric.unit, metric.kind)] |= labels
    return {name: frozenset(labels) for name, labels in found.items()}


def every_point() -> Iterator[Points]:
    """Yield points of all kinds."""
    for kind, mapped in METRICS.items():
        for _, _, value in good(kind):
            yield from mapped(value)
    yield from METRICS["IbSample"](ib_sample(counters=dict.fromkeys(names.IB, 1), carrier=True, carrier_changes=1))
    for name in TABLES:
        for scope in SCOPES if name == "stats" else ("",):
            yield from METRICS["SlurmTable"](table(name, column_values(name, scope)))


def column_values(name: str, scope: str) -> dict[str, list[Any]]:
    """Return a row of a table with a value in every column."""
    return {key: [_value(key, scope, one.kind)] for key, one in TABLES[name].columns.items()}


def _value(column: str, scope: str, kind: str) -> Any:
    if column == "scope":
        return scope
    if column in ("partition", "account") and scope and column not in scope:
        return None
    return {"state": "UP"}.get(column, VALUES[kind])
