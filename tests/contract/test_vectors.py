"""The golden vectors decide what the contract means, for every language."""

import copy
import json
from typing import Any

import goldens
import msgpack
import pytest
from jsonschema import Draft202012Validator

from heeler.bus import ROUTES, DecodeError, EncodeError, check, decode, encode, extend
from heeler.bus.codec import Suffix
from heeler.bus.messages import SHAPES
from heeler.bus.wire_gen import WIRE

KINDS = sorted(ROUTES)
GOOD = [pytest.param(k, raw, value, id=f"{k}-{case}") for k in KINDS for case, raw, value in goldens.good(k)]
BAD = [pytest.param(k, raw, why, id=f"{k}-{case}") for k in KINDS for case, raw, why in goldens.bad(k)]


def same(found: Any, wanted: Any) -> bool:
    """Compare as the contract does: 2 and 2.0 are the same number, true and 1 are not the same."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


@pytest.mark.parametrize(("kind", "raw", "value"), GOOD)
def test_a_good_vector_decodes_to_its_value(kind: str, raw: bytes, value: Any) -> None:
    assert same(goldens.known(goldens.schema(kind), decode(kind, raw)), value)


@pytest.mark.parametrize(("kind", "raw", "value"), GOOD)
def test_a_good_vector_survives_a_round_trip(kind: str, raw: bytes, value: Any) -> None:
    message = decode(kind, raw)
    assert same(decode(kind, encode(kind, message)), message)
    assert same(decode(kind, encode(kind, value)), value)


@pytest.mark.parametrize(("kind", "raw", "value"), GOOD)
def test_a_good_vector_is_what_the_schema_says(kind: str, raw: bytes, value: Any) -> None:
    Draft202012Validator(goldens.schema(kind)).validate(value)


@pytest.mark.parametrize(("kind", "raw", "value"), GOOD)
def test_a_checked_message_passes_the_check_unchanged(kind: str, raw: bytes, value: Any) -> None:
    message = decode(kind, raw)
    before = copy.deepcopy(message)
    check(kind, message)
    assert same(message, before)


@pytest.mark.parametrize(("kind", "raw", "why"), BAD)
def test_a_bad_vector_is_refused(kind: str, raw: bytes, why: str) -> None:
    assert why
    assert "\n" not in why
    with pytest.raises(DecodeError):
        decode(kind, raw)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vectors_cover_what_can_go_wrong(kind: str) -> None:
    cases = {case for case, _, _ in goldens.good(kind)}
    assert {"typical", "minimal", "maximal", "wide", "unknown_field", "nulls"} <= cases
    if '"enum"' in json.dumps(goldens.schema(kind)):
        assert "unknown_enum" in cases
    refused = {case for case, _, _ in goldens.bad(kind)}
    assert {"empty", "truncated", "trailing_bytes", "not_a_map", "int_key", "wrong_type", "negative_ts"} <= refused
    assert {"float_for_int", "wrong_version", "missing_v", "missing_cluster"} <= refused
    if kind in ("GpuSample", "JobSample"):
        assert {"nan", "inf", "column_length", "bool_in_column", "duplicate_uuid"} <= refused


def test_no_message_is_missing() -> None:
    folders = {path.name for path in goldens.VECTORS.iterdir() if path.is_dir()}
    assert folders == {goldens.snake(kind) for kind in KINDS}
    assert sorted(SHAPES | WIRE) == KINDS


@pytest.mark.parametrize("case", ["typical", "maximal", "wide", "unknown_field"])
def test_extend_is_decode_and_update(case: str) -> None:
    raw = next(raw for found, raw, _ in goldens.good("GpuSample") if found == case)
    message = decode("GpuSample", raw)
    extra = {"job": [None] * len(message["gpu"]["uuid"]), "jobs": {"81234": {"user": "ada"}}, "shard": 6}
    longer = extend(raw, Suffix(extra))
    assert same(decode("JobSample", longer), message | extra)


@pytest.mark.parametrize("count", [0, 1, 14, 15, 16, 17, 65_530])
@pytest.mark.parametrize("more", [0, 1, 2, 15, 16])
def test_extend_finds_the_right_head_for_any_number_of_keys(count: int, more: int) -> None:
    old = {f"old{i}": i for i in range(count)}
    extra = {f"new{i}": i for i in range(more)}
    if count + more > 0xFFFF:
        with pytest.raises(EncodeError):
            extend(msgpack.packb(old), Suffix(extra))
    else:
        assert msgpack.unpackb(extend(msgpack.packb(old), Suffix(extra))) == old | extra


@pytest.mark.parametrize("raw", [b"", b"\xc0", b"\x91\x01"])
def test_extend_refuses_what_is_no_map(raw: bytes) -> None:
    with pytest.raises(EncodeError):
        extend(raw, Suffix({"a": 1}))


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"v": 1, "cluster": "north", "feed": "f", "ts": 1},
        {"v": 1, "cluster": "north", "feed": "f", "ts": 1, "controller": "up", "jobs": 1.0},
        {"v": 1, "cluster": "north", "feed": "f", "ts": 1, "controller": "up", "why": object()},
        {"v": 1, "cluster": "north", "feed": "f", "ts": 1, "controller": "up", "jobs": 1 << 64},
        {"v": 1, "cluster": "north\ud800", "feed": "f", "ts": 1, "controller": "up"},
    ],
)
def test_a_message_that_breaks_the_contract_is_not_encoded(message: dict[str, Any]) -> None:
    with pytest.raises(EncodeError):
        encode("ClusterState", message)


def test_null_is_not_written() -> None:
    base = {"v": 1, "cluster": "north", "feed": "f", "ts": 1, "controller": "up"}
    assert encode("ClusterState", base | {"why": None}) == encode("ClusterState", base)


def test_a_type_that_nobody_knows_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode("Nonsense", b"\x80")
    with pytest.raises(EncodeError):
        encode("Nonsense", {})


def test_values_at_the_end_of_the_range_are_no_infinity() -> None:
    message = decode("GpuSample", next(raw for case, raw, _ in goldens.good("GpuSample") if case == "minimal"))
    message |= {"gpu": {"uuid": ["a", "b"]}, "mean": {"x": [1.7e308, 1.7e308]}}
    assert decode("GpuSample", encode("GpuSample", message))["mean"]["x"] == [1.7e308, 1.7e308]
