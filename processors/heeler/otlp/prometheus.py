"""What Prometheus calls a metric that it gets over OTLP: names with units and suffixes, labels with underscores.

As its OTLP receiver and the OpenTelemetry Collector's exporter do it unless told otherwise (strategy
UnderscoreEscapingWithSuffixes). For dashboards and alerts, whose queries are held against what we emit.
"""

import re
from collections.abc import Mapping
from typing import Final

from heeler.otlp.names import Kind

_UNITS: Final[Mapping[str, str]] = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER: Final[Mapping[str, str]] = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_WORDS = re.compile(r"[^A-Za-z0-9]+")


def metric_name(name: str, unit: str, kind: Kind) -> str:
    """Return the name of a metric."""
    words = [word for word in _WORDS.split(name) if word]
    main, _, per = unit.partition("/")
    if "{" not in main:
        words += [word for word in _WORDS.split(_UNITS.get(main, main)) if word and word not in words]
    if per and "{" not in per:
        found = _PER.get(per, per)
        words += ["per", found] if found not in words else []
    if kind is Kind.COUNTER:
        words = [*(word for word in words if word != "total"), "total"]
    if unit == "1" and kind is Kind.GAUGE:
        words = [*(word for word in words if word != "ratio"), "ratio"]
    made = "_".join(words)
    return f"_{made}" if made[:1].isdigit() else made


def label_name(name: str) -> str:
    """Return the name of an attribute as a label."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"key_{made}" if made[:1].isdigit() else made
