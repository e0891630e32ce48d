"""Host lists: Slurm's rules of padding and order, a cap, and folding that loses no name."""

import tracemalloc
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.slurm.errors import ParseError
from heeler.slurm.hostlist import MAX_NAMES, expand, expand_set, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gn[009-011]", ["gn009", "gn010", "gn011"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("cn[001,003-004,006]", ["cn001", "cn003", "cn004", "cn006"]),
        ("rk[1-2]n[01-03]", ["rk1n01", "rk1n02", "rk1n03", "rk2n01", "rk2n02", "rk2n03"]),
        ("rack-a1.z+q_s[11,17]", ["rack-a1.z+q_s11", "rack-a1.z+q_s17"]),
        ("a:b[1-2]", ["a:b1", "a:b2"]),
        ("n[01-2]-ib,login", ["n01-ib", "n02-ib", "login"]),
        ("n[3]", ["n3"]),
        ("n1", ["n1"]),
        (" n[1-2] ", ["n1", "n2"]),
        ("n[1-010]", [f"n{i}" for i in range(1, 11)]),
    ],
)
def test_a_list_expands_as_slurm_expands_it(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["", "(null)", "None assigned", "N/A", "n/a", "None", "  ", None, "Unknown", "NULL", "None Assigned"]
)
def test_a_list_that_is_not_there_has_no_names(text: str | None) -> None:
    assert expand(text) == []


@pytest.mark.parametrize("text", ["(Resources)", "(ReqNodeNotAvail, UnavailableNodes:n[1-2])", "(none)"])
def test_a_reason_in_the_place_of_nodes_is_no_node(text: str) -> None:
    assert expand(text) == []


def test_overlaps_stay_in_the_list_and_count_once_as_nodes() -> None:
    assert expand("x[1-3,2-4]") == ["x1", "x2", "x3", "x2", "x3", "x4"]
    assert expand_set("x[1-3,2-4]") == ("x1", "x2", "x3", "x4")


@pytest.mark.parametrize(
    "text",
    ["a[0-999999999].b[0-9]", "a[0-65536]", "a[0-255]b[0-255]c[0-255]", "a[" + "0-60000," * 500 + "1]"],
)
def test_a_huge_list_is_refused_before_it_is_made(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ParseError, match="more than 65536"):
            expand(text)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_largest_list_that_is_allowed_expands() -> None:
    assert len(expand(f"n[1-{MAX_NAMES}]")) == MAX_NAMES


@pytest.mark.parametrize(
    "text",
    [
        "n[1-2",
        "n1-2]",
        "n[[1-2]]",
        "n[]",
        "n[a-b]",
        "n[5-3]",
        "n[1-2-3]",
        "n[-1]",
        "a b",
        "n1,,n2",
        ",n1",
        "n[1,]",
        "[1-2]",
        "n/1",
        "n[1-99999999999999999999]",
        "n*",
        "@all",
        "n1!n2",
        "n\x001",
        "ñ[1-2]",
        "x" * 300,
        "n[0" + "0" * 300 + "1]",
    ],
)
def test_what_is_no_list_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        expand(text)
    assert repr(caught.value.text)[1:-1][:5] in str(caught.value)


def test_widths_are_kept_apart_when_folding() -> None:
    names = {"c08", "c09", "c010", "c10"}
    assert set(expand(fold(names))) == names
    assert fold(["n1", "n2", "n3"]) == "n[1-3]"
    assert fold([]) == ""


def test_thousands_of_nodes_fold_and_come_back() -> None:
    names = {f"rack{rack}-gn{node:02d}.site" for rack, node in product(range(1, 101), range(100))}
    folded = fold(names)
    assert set(expand(folded)) == names
    assert len(folded) < 10_000


@pytest.mark.parametrize("name", ["", "a b", "n[1]", "n1,n2", "none", "n/1", "@all"])
def test_what_is_no_name_is_not_folded(name: str) -> None:
    with pytest.raises(ParseError):
        fold(["n1", name])


NUMBERED = st.builds(
    lambda prefix, number, width, suffix: f"{prefix}{str(number).zfill(width)}{suffix}",
    st.sampled_from(["n", "gn-", "rack1.", "a:b_", "x9y", "-", "0"]),
    st.integers(0, 120),
    st.integers(0, 5),
    st.sampled_from(["", "-ib", "s1", "+z", ".007"]),
)
PLAIN = st.text("abz019-._+:", min_size=1, max_size=8).filter(lambda name: name not in ("n/a", "none"))


@given(st.sets(NUMBERED | PLAIN, max_size=40))
def test_no_set_of_names_changes_by_folding(names: set[str]) -> None:
    assert set(expand(fold(names))) == names


@given(st.text("n0123456789-,[]()*+:. ", max_size=30) | st.text(max_size=20))
def test_any_text_gives_names_or_a_parse_error(text: str) -> None:
    try:
        names = expand(text)
    except ParseError:
        return
    assert all(names)
    assert len(names) <= MAX_NAMES
