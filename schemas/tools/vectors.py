"""Write the golden vectors, which the test suites of all languages read.

    python schemas/tools/vectors.py            write schemas/vectors/
    python schemas/tools/vectors.py --check    exit 1 if a file on disk differs

    vectors/<message>/<case>.msgpack, .json       must decode, to this value (unknown keys are not in it)
    vectors/<message>/bad/<case>.msgpack, .txt    must be refused, for this reason
    vectors/tokens.json                           {"good": [[name, token]], "bad": [name]}
    vectors/shards.json                           [[key, shard]]

The decoded values of two languages are compared, never bytes. Binary is {"$bin": "<base64>"} in JSON.
"""

import base64
import copy
import json
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
from gen import load, snake
from vector_node import NODE, TS, spread
from vector_values import MAXIMAL, TYPICAL

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "vectors"
COLUMNAR = ("GpuSample", "JobSample")
Schema = dict[str, Any]
Case = tuple[bytes, Any]

TOKENS = {
    "good": [
        ["gpu-a07", "gpu-a07"],
        ["Node_01", "Node_01"],
        ["0", "0"],
        ["-", "-"],
        ["_", "_"],
        ["gpu-a07.example.org", "gpu-a07=2Eexample=2Eorg"],
        ["..", "=2E=2E"],
        ["*", "=2A"],
        [">", "=3E"],
        [" ", "=20"],
        ["a b", "a=20b"],
        ["=", "=3D"],
        ["=2E", "=3D2E"],
        ["a/b:c", "a=2Fb=3Ac"],
        ["$JS", "=24JS"],
        ["81234_7+1", "81234_7=2B1"],
        ["~%{}|\\\"'`", "=7E=25=7B=7D=7C=5C=22=27=60"],
        ["räck3", "r=C3=A4ck3"],
        ["ra\u0308ck3", "ra=CC=88ck3"],
        ["節点7", "=E7=AF=80=E7=82=B97"],
        ["🚀", "=F0=9F=9A=80"],
        ["\u00a0\u0085", "=C2=A0=C2=85"],
        ["\ufeffx", "=EF=BB=BFx"],
        ["n" * 200, "n" * 200],
        ["." * 66 + "nn", "=2E" * 66 + "nn"],
    ],
    "bad": ["", "\n", "\u0000", "a\tb", "a\u001bb", "a\u007f", "n" * 201, "." * 67, "🚀" * 17],
}
SHARD_KEYS = [
    "",
    "a",
    "gpu-a07",
    "gpu-a07.example.org",
    "81234",
    "81235",
    "81234_7",
    "räck3",
    "節点7",
    "🚀",
    "n" * 300,
]


def minimal(kind: str, schema: Schema) -> Any:
    """Return the required keys alone, on every level."""
    return bare(schema, {**TYPICAL[kind], **({"gpu": {"uuid": ["GPU-0"]}} if kind in COLUMNAR else {})}, kind)


def bare(schema: Schema, value: Any, kind: str = "") -> Any:
    """Return a value with nothing in it that the schema does not ask for."""
    if schema.get("type") == "object" and "properties" in schema:
        keep = {k: bare(schema["properties"][k], value[k]) for k in schema.get("required", [])}
        if kind in COLUMNAR:
            keep |= {"mean": {}, "last": {}}
            if kind == "JobSample":
                keep["job"] = [None]
        return keep
    if schema.get("type") == "array" and schema.get("items", {}).get("type") == "object":
        return [bare(schema["items"], value[0])]
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        key = next(iter(value), None)
        return {} if key is None else {key: bare(schema["additionalProperties"], value[key])}
    return value


def objects(schema: Schema, value: Any) -> Iterator[tuple[Schema, dict[str, Any]]]:
    """Yield every object with named properties in a value, with its schema, the outermost first."""
    if isinstance(value, dict) and schema.get("type") == "object":
        named = schema.get("properties")
        if named is not None:
            yield schema, value
        rest = schema.get("additionalProperties")
        for key in list(value):
            inner = (named or {}).get(key, rest if isinstance(rest, dict) else {})
            yield from objects(inner, value[key])
    elif isinstance(value, list):
        for item in value:
            yield from objects(schema.get("items", {}), item)


def good(kind: str, schema: Schema) -> dict[str, Case]:
    """Return what must decode: case -> (bytes, value that a reader sees)."""
    small, typical, full = minimal(kind, schema), TYPICAL[kind], MAXIMAL[kind]
    check_complete(kind, schema, full)
    cases = {
        "typical": (pack(typical), typical),
        "minimal": (pack(small), small),
        "maximal": (pack(full), full),
        "wide": (wide(typical), typical),
    }

    more = copy.deepcopy(typical)
    for _, found in objects(schema, more):
        if not is_columns(found, more):
            found["future_text"] = "from a later version"
    more |= {
        "future_number": 7,
        "future_map": {"a": [1, None, {"b": True}]},
        "future_bin": b"\x00\xff",
        "future_null": None,
    }
    cases["unknown_field"] = (pack(more), typical)

    nulls = copy.deepcopy(small)
    for inner, found in objects(schema, nulls):
        if not is_columns(found, nulls):
            found.update(dict.fromkeys(k for k in inner["properties"] if k not in inner.get("required", [])))
    cases["nulls"] = (pack(nulls), small)

    raw, seen, enums = copy.deepcopy(full), copy.deepcopy(full), False
    for (inner, was), (_, becomes) in zip(objects(schema, raw), objects(schema, seen), strict=True):
        for key, prop in inner["properties"].items():
            if "enum" in prop and key in was:
                was[key], becomes[key], enums = f"future_{key}", "unknown", True
    if enums:
        cases["unknown_enum"] = (pack(raw), seen)
    if kind in COLUMNAR:
        cases |= good_columns(kind, small, typical)
    return cases


def is_columns(found: dict[str, Any], message: dict[str, Any]) -> bool:
    """Say whether an object is a table of columns of a message."""
    return any(found is message.get(group) for group in ("mean", "min", "max", "last"))


def good_columns(kind: str, small: Any, typical: Any) -> dict[str, Case]:
    """Return the cases that only messages with one value per GPU have."""
    none = {**small, "gpu": {"uuid": []}, "mean": {"power_w": []}, "last": {"pcie_replays": []}}
    if kind == "JobSample":
        none["job"] = []
    unread = {**typical, "mean": {"power_w": [None] * 8}, "last": {}}
    column = {**typical, "mean": {**typical["mean"], "future_ratio": spread(0.5, 8)}}
    twice = pack({**typical, "seq": 1})
    head, count = (1, twice[0] & 0x0F) if twice[0] < 0x90 else (3, int.from_bytes(twice[1:3], "big"))
    twice = b"\xde" + (count + 1).to_bytes(2, "big") + twice[head:] + pack("seq") + pack(typical["seq"])
    return {
        "key_twice": (twice, typical),  # the last one counts: enrich adds keys without looking
        "no_gpus": (pack(none), none),
        "nothing_read": (pack(unread), unread),
        "unknown_column": (pack(column), column),
    }


def check_complete(kind: str, schema: Schema, full: Any) -> None:
    """Stop if the maximal value lacks a key of the schema."""
    for inner, found in objects(schema, full):
        if lacking := inner["properties"].keys() - found.keys():
            sys.exit(f"maximal {kind} lacks {', '.join(sorted(lacking))}")


def bad(kind: str, schema: Schema) -> dict[str, tuple[bytes, str]]:
    """Return what must be refused: case -> (bytes, reason)."""
    typical = TYPICAL[kind]
    packed = pack(typical)

    def but(**changes: Any) -> bytes:
        return pack({**typical, **changes})

    cases = {
        "empty": (b"", "no bytes at all"),
        "truncated": (packed[:-3], "the last three bytes are missing"),
        "trailing_bytes": (packed + b"\x00", "one byte too many"),
        "not_a_map": (pack(list(typical.values())), "an array, not a map"),
        "int_key": (pack({**typical, 7: "seven"}), "a key is an integer"),
        "bin_key": (pack({**typical, b"seven": 7}), "a key is binary"),
        "wrong_type": (but(cluster=7), "cluster is an integer"),
        "bin_for_str": (but(cluster=b"north"), "cluster is binary"),
        "negative_ts": (but(ts=-1), "ts is before 1970"),
        "float_for_int": (but(ts=float(TS)), "ts is a float"),
        "wrong_version": (but(v=2), "v is 2"),
        "null_required": (but(ts=None), "ts is null, which is absent, and it is required"),
    }
    if kind == "KernelEvent":  # one message will do for what all have in common
        cases |= {
            "half": (packed[: len(packed) // 2], "only the first half arrived"),
            "twice": (packed * 2, "two messages in one payload"),
            "not_msgpack": (b"\xc1", "0xc1 is never used"),
            "not_a_map_null": (b"\xc0", "null, not a map"),
            "not_a_map_json": (json.dumps({"v": 1}).encode(), "JSON, not MessagePack"),
            "bad_utf8": (packed.replace(b"\xa5north", b"\xa5nor\xff\xfe"), "cluster is not UTF-8"),
            "empty_cluster": (but(cluster=""), "cluster is empty"),
            "string_for_int": (but(ts=str(TS)), "ts is a string"),
            "bool_for_int": (but(v=True), "v is a boolean"),
        }
    for key in dict.fromkeys(("v", "cluster", schema["required"][-1])):
        rest = {k: v for k, v in typical.items() if k != key}
        cases[f"missing_{key}"] = (pack(rest), f"{key} is required")
    for key, prop in schema["properties"].items():
        if "enum" in prop and key in schema["required"]:
            cases["enum_not_a_string"] = (but(**{key: 3}), f"{key} is an integer")
    cases |= {case: (but(**changes), why) for case, (changes, why) in BAD_NESTED.get(kind, {}).items()}
    if kind in COLUMNAR:
        cases |= {case: (but(**changes), why) for case, (changes, why) in bad_columns(kind).items()}
    return cases


NAN, INF = float("nan"), float("inf")
_ENTITY = TYPICAL["Finding"]["entity"]
BAD_NESTED: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "IbSample": {
        "missing_slave": ({"bonds": [{"name": "bond0", "slaves": [{}]}]}, "netdev of a slave is required"),
        "missing_ports_device": ({"ports": [{"port": 1}]}, "device of a port is required"),
        "ports_not_maps": ({"ports": ["mlx5_0"]}, "a port is a string"),
        "negative_counter": (
            {"ports": [{"device": "mlx5_0", "port": 1, "counters": {"x": -1}}]},
            "a counter is negative",
        ),
        "float_counter": (
            {"ports": [{"device": "mlx5_0", "port": 1, "counters": {"x": 1.0}}]},
            "a counter is a float",
        ),
        "nan_rate": ({"ports": [{"device": "mlx5_0", "port": 1, "rate_gbps": NAN}]}, "rate_gbps is NaN"),
    },
    "HostSample": {
        "ratio_string": ({"cpu_ratio": {"user": "31%"}}, "a ratio is a string"),
        "negative_bytes": ({"memory_bytes": {"total": -1}}, "a size is negative"),
        "missing_aer_pci": ({"aer": [{"correctable": 1}]}, "pci of a device is required"),
        "pressure_number": ({"pressure": {"io_some": 0.5}}, "the pressure of a resource is a number"),
        "nan_load": ({"load1": NAN}, "load1 is NaN"),
    },
    "SwitchSample": {
        "missing_link": ({"links": [{"switch": 0}]}, "link is required"),
        "value_string": ({"switches": [{"switch": 0, "values": {"temp_c": "41"}}]}, "a value is a string"),
    },
    "KernelEvent": {"witness_not_a_list": ({"witness": "kmsg"}, "witness is a string")},
    "AgentStatus": {
        "collectors_list": ({"collectors": []}, "collectors is an array"),
        "bin_key_nested": ({"collectors": {b"nvml": {"state": "ok"}}}, "a key of collectors is binary"),
        "nan_cpu": ({"cpu_s": NAN}, "cpu_s is NaN"),
    },
    "Inventory": {
        "missing_gpus_uuid": ({"gpus": [{"index": 0}]}, "uuid of a GPU is required"),
        "missing_mig_uuid": (
            {"gpus": [{"uuid": "GPU-0", "mig_devices": [{"gi": 1}]}]},
            "uuid of a MIG device is required",
        ),
    },
    "PrologEvent": {"float_index": ({"indices": [0.0]}, "an index is a float")},
    "HealthResult": {
        "evidence_value_map": ({"evidence": [{"what": "x", "value": {}}]}, "the value of the evidence is a map"),
        "missing_evidence_what": ({"evidence": [{"value": 1}]}, "what was seen is required"),
        "perf_nan": ({"perf": {"temp_max_c": NAN}}, "a number is NaN"),
    },
    "HealthRun": {
        "missing_killed_pid": ({"killed": [{"comm": "python"}]}, "pid of a process is required"),
        "missing_result_check": ({"results": [{"outcome": "ok", "why": "fine"}]}, "check of a result is required"),
    },
    "HealthRequest": {"check_empty": ({"checks": [""]}, "a check has no name")},
    "SlurmTable": {"column_not_a_list": ({"columns": {"job_id": "81234"}}, "a column is a string")},
    "JobRecord": {
        "missing_step": ({"steps": [{"name": "bash"}]}, "step of a step is required"),
        "tres_text": ({"alloc_tres": {"mem": "500G"}}, "an amount is a string"),
    },
    "JobSummary": {
        "active_negative": ({"active_gpu_s": -1}, "active_gpu_s is negative"),
        "mean_nan": ({"means": {"power_w": NAN}}, "a mean is NaN"),
    },
    "JobEvent": {
        "gpus_not_lists": ({"gpus": {"gpu-a07": 8}}, "the indices of a node are an integer"),
        "bool_is_int": ({"exclusive": 1}, "exclusive is an integer"),
    },
    "NodeState": {
        "null_flag": ({"flags": ["DRAIN", None]}, "a flag is null"),
        "inf_load": ({"cpu_load": INF}, "cpu_load is infinite"),
    },
    "JobKernelEvent": {"jobs_ints": ({"jobs": [81234]}, "a job is an integer")},
    "Finding": {
        "confidence_above_one": ({"confidence": 1.5}, "confidence is above 1"),
        "confidence_nan": ({"confidence": NAN}, "confidence is NaN"),
        "missing_entity_type": ({"entity": {"node": NODE}}, "type of the entity is required"),
        "missing_evidence_metric": ({"evidence": [{"value": 1}]}, "metric of the evidence is required"),
        "evidence_value_map": (
            {"evidence": [{"metric": "x", "value": {}}]},
            "the value of the evidence is a map",
        ),
        "evidence_value_nan": (
            {"evidence": [{"metric": "x", "value": NAN}]},
            "the value of the evidence is NaN",
        ),
        "entity_index_negative": ({"entity": {**_ENTITY, "gpu_index": -1}}, "gpu_index is negative"),
    },
    "DrainAction": {"dry_run_string": ({"dry_run": "no"}, "dry_run is a string")},
    "DeadLetter": {"payload_string": ({"payload": "hello"}, "payload is a string, not binary")},
}


def bad_columns(kind: str) -> dict[str, tuple[dict[str, Any], str]]:
    """Return the changes of a message that its columns must not have."""
    typical = TYPICAL[kind]
    mean, last, gpu = typical["mean"], typical["last"], typical["gpu"]

    def column(*values: Any) -> dict[str, Any]:
        return {"mean": {**mean, "power_w": [*values, *mean["power_w"][len(values) :]]}}

    cases: dict[str, tuple[dict[str, Any], str]] = {
        "nan": (column(NAN), "power_w holds NaN"),
        "inf": (column(INF), "power_w holds infinity"),
        "neg_inf": (column(-INF), "power_w holds minus infinity"),
        "inf_both": (column(INF, -INF), "power_w holds both infinities"),
        "bool_in_column": (column(True), "power_w holds a boolean"),
        "string_in_column": (column("612.4"), "power_w holds a string"),
        "list_in_column": (column([612.4]), "power_w holds a list"),
        "column_length": (
            {"mean": {**mean, "temp_c": mean["temp_c"][:-1]}},
            "temp_c has 7 entries for 8 GPUs",
        ),
        "column_length_last": ({"last": {**last, "pstate": [0] * 9}}, "pstate has 9 entries for 8 GPUs"),
        "column_null": ({"mean": {**mean, "temp_c": None}}, "temp_c is null, not a list"),
        "column_map": ({"mean": {**mean, "temp_c": {}}}, "temp_c is a map, not a list"),
        "columns_list": ({"mean": []}, "mean is an array"),
        "bin_column_name": ({"mean": {**mean, b"x": [0] * 8}}, "a column's name is binary"),
        "duplicate_uuid": ({"gpu": {**gpu, "uuid": [gpu["uuid"][0]] * 8}}, "all GPUs have the same UUID"),
        "uuid_length": ({"gpu": {**gpu, "uuid": gpu["uuid"][:-1]}}, "7 UUIDs for columns of 8"),
        "uuid_null": ({"gpu": {**gpu, "uuid": [*gpu["uuid"][:-1], None]}}, "a UUID is null"),
        "missing_gpu_uuid": ({"gpu": {"index": [0] * 8}}, "uuid of gpu is required"),
        "index_length": ({"gpu": {**gpu, "index": [0]}}, "index has 1 entry for 8 GPUs"),
        "index_float": ({"gpu": {**gpu, "index": [0.0] * 8}}, "an index is a float"),
        "parent_length": ({"gpu": {**gpu, "parent": [None]}}, "parent has 1 entry for 8 GPUs"),
        "nvlinks_not_lists": ({"nvlinks": [{"link": 1}]}, "an NVLink is a map"),
        "state_length": ({"state": ["ok"]}, "state has 1 entry for 8 GPUs"),
    }
    if kind == "JobSample":
        cases["job_length"] = ({"job": ["81234"]}, "job has 1 entry for 8 GPUs")
        cases["job_int"] = ({"job": [81234] * 8}, "a job is an integer")
        cases["job_source_length"] = ({"job_source": []}, "job_source has no entry for 8 GPUs")
        cases["jobs_not_maps"] = ({"jobs": {"81234": "ada"}}, "what is known of a job is a string")
    return cases


def pack(value: Any) -> bytes:
    """Return a value in the shortest form of MessagePack."""
    packed: bytes = msgpack.packb(value)
    return packed


def wide(value: Any) -> bytes:  # noqa: PLR0911
    """Return a value in the longest form of MessagePack, map keys in reverse: the same to every reader."""
    if value is None or isinstance(value, bool):
        return pack(value)
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value) if value < 1 << 63 else struct.pack(">BQ", 0xCF, value)
    if isinstance(value, float):
        short = struct.pack(">f", value)
        return b"\xca" + short if struct.unpack(">f", short)[0] == value else struct.pack(">Bd", 0xCB, value)
    if isinstance(value, str):
        return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(value, list):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(wide, value))
    pairs = b"".join(wide(key) + wide(value[key]) for key in reversed(value))
    return struct.pack(">BI", 0xDF, len(value)) + pairs


def as_json(value: Any) -> str:
    """Return a message as JSON, one top-level key a line."""

    def binary(raw: Any) -> dict[str, str]:
        return {"$bin": base64.b64encode(raw).decode()}

    lines = [
        f"{json.dumps(key)}: {json.dumps(item, ensure_ascii=False, allow_nan=False, default=binary)}"
        for key, item in value.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def files() -> dict[Path, bytes]:
    """Return every file of schemas/vectors/ and what is in it."""
    out = {
        OUT / "tokens.json": (json.dumps(TOKENS, indent=1) + "\n").encode(),
        OUT / "shards.json": (
            json.dumps([[key, zlib.crc32(key.encode()) % 16] for key in SHARD_KEYS], indent=1) + "\n"
        ).encode(),
    }
    for kind, schema in load()[1].items():
        folder = OUT / snake(kind)
        for case, (packed, value) in good(kind, schema).items():
            out[folder / f"{case}.msgpack"] = packed
            out[folder / f"{case}.json"] = as_json(value).encode()
        for case, (packed, why) in bad(kind, schema).items():
            out[folder / "bad" / f"{case}.msgpack"] = packed
            out[folder / "bad" / f"{case}.txt"] = f"{why}\n".encode()
    return out


def main(check: bool) -> int:
    """Write the files, or compare them with those on disk."""
    wanted = files()
    found = {path for path in OUT.rglob("*") if path.is_file()}
    stale = [path for path, body in wanted.items() if path not in found or path.read_bytes() != body]
    left_over = sorted(found - wanted.keys())
    if check:
        for path in (*stale, *left_over):
            print(f"{path.relative_to(ROOT.parent)} is not what schemas/ says: run `make gen`")
        return bool(stale or left_over)
    for path in left_over:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path])
    if stale or left_over:
        print(f"wrote {len(stale)} and removed {len(left_over)} files of schemas/vectors")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
