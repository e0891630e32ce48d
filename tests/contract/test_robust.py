"""Whatever arrives, the decoder answers with a message or a DecodeError."""

import copy
from typing import Any

import goldens
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heeler.bus import ROUTES, DecodeError, check, decode, encode

KINDS = sorted(ROUTES)
SEEDS = [(kind, raw) for kind in KINDS for case, raw, _ in goldens.good(kind) if case in ("typical", "wide", "minimal")]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.binary(max_size=2), inner, max_size=4)
    ),
    max_leaves=8,
)


def attempt(kind: str, raw: bytes) -> dict[str, Any] | None:
    try:
        return decode(kind, raw)
    except DecodeError:
        return None


@pytest.mark.parametrize("kind", KINDS)
@given(raw=st.binary(max_size=64))
@settings(max_examples=50)
def test_arbitrary_bytes(kind: str, raw: bytes) -> None:
    attempt(kind, raw)


@given(seed=st.sampled_from(SEEDS), data=st.data())
@settings(max_examples=400, suppress_health_check=[HealthCheck.large_base_example, HealthCheck.data_too_large])
def test_good_bytes_with_some_of_them_changed(seed: tuple[str, bytes], data: st.DataObject) -> None:
    kind, raw = seed
    mutable = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        mutable[data.draw(st.integers(0, len(mutable) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(mutable)) | st.just(len(mutable)))
    attempt(kind, bytes(mutable[:cut]))


@given(seed=st.sampled_from(SEEDS), data=st.data(), value=VALUES)
@settings(max_examples=400)
def test_a_good_message_with_one_value_replaced(seed: tuple[str, bytes], data: st.DataObject, value: Any) -> None:
    kind, raw = seed
    message = msgpack.unpackb(raw)
    at: Any = message
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        inner = at[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            at[key] = value
            break
        at = inner
    found = attempt(kind, msgpack.packb(message))
    if found is not None:
        assert decode(kind, encode(kind, found)).keys() == found.keys()


@given(kind=st.sampled_from(KINDS), value=VALUES)
@settings(max_examples=200)
def test_any_value_is_checked_once_and_for_all(kind: str, value: Any) -> None:
    try:
        once = check(kind, copy.deepcopy(value))
    except DecodeError:
        return
    assert check(kind, copy.deepcopy(once)) == once


@pytest.mark.parametrize("kind", KINDS)
def test_the_check_is_idempotent_on_every_vector(kind: str) -> None:
    for _, raw, _ in goldens.good(kind):
        once = check(kind, msgpack.unpackb(raw))
        before = copy.deepcopy(once)
        assert check(kind, once) == before


def test_deep_nesting_is_refused_and_ends_nothing() -> None:
    for depth in (100, 1_000, 100_000):
        attempt("KernelEvent", b"\x81\xa1x" + b"\x91" * depth + b"\xc0")


def test_a_length_that_lies_allocates_nothing() -> None:
    for head in (b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"):
        assert attempt("KernelEvent", head) is None
        assert attempt("KernelEvent", b"\x81\xa1x" + head) is None
