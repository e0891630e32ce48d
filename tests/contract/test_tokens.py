"""Names from outside become subject tokens, and keys find their shards."""

import json
from typing import Any

import goldens
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.bus import ROUTES, TokenError, escape, shard_of, subjects, unescape
from heeler.bus.tokens import MAX_TOKEN, SHARDS

TOKENS: dict[str, Any] = json.loads((goldens.VECTORS / "tokens.json").read_text())
SHARD_VECTORS: list[tuple[str, int]] = json.loads((goldens.VECTORS / "shards.json").read_text())


@pytest.mark.parametrize(("name", "token"), TOKENS["good"])
def test_a_name_becomes_its_token_and_comes_back(name: str, token: str) -> None:
    assert escape(name) == token
    assert unescape(token) == name


@pytest.mark.parametrize("name", TOKENS["bad"])
def test_a_name_that_cannot_be_a_token_is_refused(name: str) -> None:
    with pytest.raises(TokenError):
        escape(name)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "a.b",
        "*",
        "a b",
        "ä",
        "=",
        "=2",
        "=2e",
        "=41",
        "=GG",
        "=+1",
        "=-1",
        "= 1",
        "=C3",
        "=00",
        "=7F",
        "\ud800",
    ],
)
def test_a_token_that_escape_never_writes_is_refused(token: str) -> None:
    with pytest.raises(TokenError):
        unescape(token)


def test_a_lone_surrogate_is_no_name() -> None:
    with pytest.raises(TokenError):
        escape("\ud800")


@given(st.text())
def test_any_name_comes_back_or_is_refused(name: str) -> None:
    try:
        token = escape(name)
    except TokenError:
        return
    assert unescape(token) == name
    assert 0 < len(token) <= MAX_TOKEN
    assert not set(token) & set(".*> \t\r\n")
    assert token.isascii()


@given(st.text(alphabet=st.sampled_from("=0123456789ABCDEFabcdef+- .*>gäé\ud800\x00"), max_size=12) | st.text())
def test_any_token_is_the_token_of_a_name_or_refused(token: str) -> None:
    try:
        name = unescape(token)
    except TokenError:
        return
    assert escape(name) == token


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_names_never_share_a_token(one: str, other: str) -> None:
    try:
        assert (escape(one) == escape(other)) == (one == other)
    except TokenError:
        return


@pytest.mark.parametrize(("key", "shard"), SHARD_VECTORS)
def test_a_key_finds_its_shard(key: str, shard: int) -> None:
    assert shard_of(key) == shard
    assert 0 <= shard < SHARDS


def test_every_route_has_a_subject_function_with_its_number_of_tokens() -> None:
    for kind, route in ROUTES.items():
        build = getattr(subjects, goldens.snake(kind))
        names = [f"n.{i}" for i in range(route.subject.count("<"))]
        subject = build("my cluster", *names)
        assert subject.startswith("heeler.v1.my=20cluster.")
        rest = subject.split(".")[3:]
        pattern = route.pattern.split(".")
        assert len(rest) == len(pattern)
        assert all(want in ("*", got) for got, want in zip(rest, pattern, strict=True))
        if not route.stream:
            continue  # request and reply
        captured = [
            subjects.STREAMS[route.stream].subjects,
            *([(subjects.STREAMS[route.last].filter,)] if route.last else []),
        ]
        assert all(route.pattern in patterns for patterns in captured)
