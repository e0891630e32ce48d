"""What dcgmi prints, for DCGM 2 to 4. Pure: text in, values out; ValueError for what is no answer."""

import json
import re
from collections.abc import Iterator
from typing import Any

DIAG_RESULTS = frozenset(("pass", "fail", "warn", "skip", "not run"))
_WORDS = {
    "passed": "pass",
    "failed": "fail",
    "warning": "warn",
    "skipped": "skip",
    "notrun": "not run",
    "not_run": "not run",
}
_UUID = re.compile(r"Device UUID: (GPU-[0-9a-fA-F-]{36})")
# Values that stand for none: blank, not found, not supported, no permission.
_BLANK_32 = range(0x7FFFFFF0, 0x80000000)
_BLANK_64 = range(0x7FFFFFFFFFFFFFF0, 0x8000000000000000)


def json_in(text: str) -> dict[str, Any]:
    """Return the JSON map in a text that may say something before it. Raises ValueError."""
    start = text.find("{")
    if start < 0:
        raise ValueError(f"no JSON: {text[:80]!r}")
    found, _ = json.JSONDecoder().raw_decode(text[start:])
    if not isinstance(found, dict):
        raise ValueError("not a map")  # noqa: TRY004 - one error for all that is no answer
    return found


def parse_diag(text: str) -> list[dict[str, Any]]:
    """Return each result of each test: category, test, status, gpu (or None), entity, text.

    DCGM 3 has `DCGM GPU Diagnostic` with gpu_id or gpu_ids, DCGM 4 `DCGM Diagnostic` with entity groups.
    """
    found = json_in(text)
    categories = _categories(found)
    if categories is None:
        raise ValueError(f"no test in it: {_error_in(found) or text[:80]!r}")
    results: list[dict[str, Any]] = []
    for category in categories:
        for test in _maps(category.get("tests")):
            rows = list(_maps(test.get("results")))
            if not rows and isinstance(test.get("test_summary"), dict):
                rows = [test["test_summary"]]
            for row in rows:
                results += _rows(str(category.get("category", "")), str(test.get("name", "?")), row)
    return results


def _categories(found: dict[str, Any]) -> list[dict[str, Any]] | None:
    for key, value in found.items():
        if key.startswith("DCGM") and isinstance(value, dict) and isinstance(value.get("test_categories"), list):
            return list(_maps(value["test_categories"]))
    return None


def _error_in(value: Any) -> str | None:
    """Return what dcgmi complains of in place of results."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if "error" in key.lower() and isinstance(inner, str):
                return inner
            if said := _error_in(inner):
                return said
    return None


def _rows(category: str, test: str, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    status = " ".join(str(row.get("status", "")).lower().split())
    one = {"category": category, "test": test, "status": _WORDS.get(status, status), "text": _text_of(row)}
    group = row.get("entity_group")
    if isinstance(group, str) and group.upper() != "GPU":
        yield {**one, "gpu": None, "entity": f"{group} {row.get('entity_id', '')}".strip()}
        return
    raw = row.get("gpu_ids", row.get("gpu_id", row.get("entity_id")))
    numbers = [int(each) for each in str(raw if raw is not None else "").replace(" ", "").split(",") if each.isdigit()]
    for number in numbers:
        yield {**one, "gpu": number, "entity": "GPU"}
    if not numbers:
        yield {**one, "gpu": None, "entity": "all"}


def _text_of(row: dict[str, Any]) -> str:
    parts = []
    for key in ("warnings", "info"):
        value = row.get(key)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                each = each.get("warning") or each.get("info")  # noqa: PLW2901
            if isinstance(each, str) and each:
                parts.append(each)
    return "; ".join(parts)[:300]


def _maps(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def parse_discovery(text: str) -> dict[int, str]:
    """Return DCGM's number -> UUID of each GPU in the table of `dcgmi discovery -l`."""
    found: dict[int, str] = {}
    number: int | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("+") or len(cells) != 2:
            number = None if line.startswith("+") else number
            continue
        if cells[0].isdigit():
            number = int(cells[0])
        if number is not None and (uuid := _UUID.fullmatch(cells[1])):
            found[number] = uuid[1]
    return found


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return path and value of each row of a table in dcgmi's JSON: maps of name -> {"value", "children"}."""
    if not isinstance(value, dict):
        return
    for name, row in value.items():
        if not isinstance(row, dict):
            continue
        if "value" in row:
            yield (*path, str(name)), row["value"]
        yield from leaves(row.get("children"), (*path, str(name)))


def parse_health(text: str) -> tuple[str, list[str]]:
    """Return the overall word of `dcgmi health -c -j` and what stands behind it."""
    found = json_in(text)
    rows = list(leaves(found.get("body")))
    overall = next((str(value) for path, value in rows if path[-1].lower() in ("overall health", "overall")), None)
    if overall is None:
        raise ValueError(_error_in(found) or f"no overall health: {text[:80]!r}")
    details = [
        f"{' '.join(path)}: {value}" for path, value in rows if path[-1].lower() not in ("overall health", "overall")
    ]
    return overall, details


_KINDS = (("data", "crc_data"), ("flit", "crc_flit"), ("replay", "replay"), ("recovery", "recovery"))


def parse_link_errors(text: str) -> dict[str, dict[str, int | None]]:
    """Return link -> kind -> count (None: not known) of `dcgmi nvlink -e -j`."""
    found: dict[str, dict[str, int | None]] = {}
    body = json_in(text).get("body")
    if not isinstance(body, dict):
        raise ValueError(f"no table in it: {text[:80]!r}")  # noqa: TRY004
    for path, value in leaves(body):
        name = path[-1].lower()
        kind = next((kind for word, kind in _KINDS if word in name and "error" in name), None)
        if kind and len(path) > 1:
            found.setdefault(path[-2], {})[kind] = _count(value)
    return found


def _count(value: Any) -> int | None:
    text = str(value).strip()
    number = int(text) if text.isascii() and text.isdigit() else None
    return None if number is None or number in _BLANK_32 or number in _BLANK_64 else number


def parse_link_status(text: str) -> list[dict[str, Any]]:
    """Return kind (GPU, NvSwitch, CPU), number and the links' states (U, D, X, _) of `dcgmi nvlink -s`."""
    found: list[dict[str, Any]] = []
    kind = "GPU"
    states: list[str] | None = None
    for line in text.splitlines():
        words = line.strip()
        if words.rstrip(": ") in ("GPUs", "NvSwitches", "CPUs"):
            kind = {"GPUs": "GPU", "NvSwitches": "NvSwitch", "CPUs": "CPU"}[words.rstrip(": ")]
        elif match := re.fullmatch(r"(?:gpuId|physicalId|cpuId)\s+(\d+):?", words, re.IGNORECASE):
            states = []
            found.append({"kind": kind, "number": int(match[1]), "states": states})
        elif states is not None and words and set(words) <= set("UDX_ "):
            states += words.split()
    if not found or any(not one["states"] for one in found if one["kind"] == "GPU"):
        raise ValueError(f"no states of links in it: {text[:80]!r}")
    return found
