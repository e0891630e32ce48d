"""The golden vectors of schemas/vectors, as values."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
VECTORS = SCHEMAS / "vectors"


def load(path: Path) -> Any:
    """Return the value of a JSON file, with its binary."""
    return json.loads(path.read_text(), object_hook=_binary)


def _binary(found: dict[str, Any]) -> Any:
    return base64.b64decode(found["$bin"]) if found.keys() == {"$bin"} else found


def snake(kind: str) -> str:
    """GpuSample -> gpu_sample."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).lstrip("_")


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a message."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{snake(kind)}.v1.schema.json").read_text())
    return found


def good(kind: str) -> Iterator[tuple[str, bytes, Any]]:
    """Yield the case, the bytes and the value of every vector that must decode."""
    for path in sorted((VECTORS / snake(kind)).glob("*.msgpack")):
        yield path.stem, path.read_bytes(), load(path.with_suffix(".json"))


def bad(kind: str) -> Iterator[tuple[str, bytes, str]]:
    """Yield the case, the bytes and the reason of every vector that must be refused."""
    for path in sorted((VECTORS / snake(kind) / "bad").glob("*.msgpack")):
        yield path.stem, path.read_bytes(), path.with_suffix(".txt").read_text().strip()


def known(rules: dict[str, Any], value: Any) -> Any:
    """Return a decoded value without the keys that the schema does not name."""
    if isinstance(value, dict) and "properties" in rules:
        named, rest = rules["properties"], rules.get("additionalProperties")
        return {
            key: known(named.get(key, rest if isinstance(rest, dict) else {}), item)
            for key, item in value.items()
            if key in named or isinstance(rest, dict)
        }
    if isinstance(value, dict) and isinstance(rules.get("additionalProperties"), dict):
        return {key: known(rules["additionalProperties"], item) for key, item in value.items()}
    if isinstance(value, list):
        return [known(rules.get("items", {}), item) for item in value]
    return value
