"""Settings of a process: one TOML file into frozen dataclasses, every fault at once.

A dataclass used as a section may have a ``validate`` method that raises ConfigError. Unknown sections and
keys are errors: a typo in a threshold must not go unseen.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from heeler.bus import BusSettings, ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How a process logs."""

    level: str = "info"
    format: str = "auto"  # auto: console on a terminal, else json

    def validate(self) -> None:
        """Raise ConfigError for a level or format that does not exist."""
        if self.level not in ("debug", "info", "warning", "error"):
            raise ConfigError(f"level: {self.level!r}: one of debug, info, warning, error")
        if self.format not in ("auto", "json", "console"):
            raise ConfigError(f"format: {self.format!r}: one of auto, json, console")


def read_toml(path: Path | str | None) -> dict[str, Any]:
    """Return the tables of a TOML file; empty without a path. Raises ConfigError."""
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: {err}") from None


def load(tables: Mapping[str, Any], sections: Mapping[str, type[Any]]) -> dict[str, Any]:
    """Return one instance for each section. Raises ConfigError with every fault there is."""
    faults = [f"{name}: unknown section" for name in sorted(tables.keys() - sections.keys())]
    found: dict[str, Any] = {}
    for name, kind in sections.items():
        table = tables.get(name, {})
        try:
            found[name] = BusSettings.load(table) if kind is BusSettings else build(kind, table, name)
        except ConfigError as err:
            faults.append(str(err))
    if faults:
        raise ConfigError("; ".join(faults))
    return found


def build(kind: type[T], table: Any, where: str) -> T:
    """Return a dataclass instance from a TOML table. Raises ConfigError with every fault of the table."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: not a table")
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    faults = [f"{where}.{key}: unknown key" for key in sorted(table.keys() - known.keys())]
    values: dict[str, Any] = {}
    for name, f in known.items():
        if name not in table:
            if f.default is MISSING and f.default_factory is MISSING:
                faults.append(f"{where}.{name}: missing")
            continue
        try:
            values[name] = convert(table[name], hints[name], f"{where}.{name}")
        except ConfigError as err:
            faults.append(str(err))
    if faults:
        raise ConfigError("; ".join(faults))
    made = kind(**values)
    if hasattr(made, "validate"):
        try:
            made.validate()
        except ConfigError as err:
            raise ConfigError(f"{where}.{err}") from None
    return made


def convert(value: Any, hint: Any, where: str) -> Any:
    """Return a TOML value as the type of its field. Raises ConfigError."""
    origin = get_origin(hint)
    if origin is UnionType or str(origin) == "typing.Union":
        return convert(value, next(a for a in get_args(hint) if a is not type(None)), where)
    if is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, where)
    if origin in (tuple, list, frozenset):
        if not isinstance(value, list):
            raise ConfigError(f"{where}: not a list")
        return origin(_convert_all({f"{where}[{at}]": item for at, item in enumerate(value)}, get_args(hint)[0]))
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: not a table")
        items = _convert_all({f"{where}.{key}": item for key, item in value.items()}, get_args(hint)[1])
        return dict(zip(value, items, strict=True))
    return _scalar(value, hint, where)


def _convert_all(values: Mapping[str, Any], hint: Any) -> list[Any]:
    """Convert several values, by their place. Raises ConfigError with the faults of all."""
    items, faults = [], []
    for where, value in values.items():
        try:
            items.append(convert(value, hint, where))
        except ConfigError as err:
            faults.append(str(err))
    if faults:
        raise ConfigError("; ".join(faults))
    return items


def _scalar(value: Any, hint: Any, where: str) -> Any:
    if hint is float and type(value) is int:
        return float(value)
    if hint is not Any and type(value) is not hint:
        raise ConfigError(f"{where}: {value!r} is not {getattr(hint, '__name__', hint)}")
    return value
