"""The statistics of peers: robust, blind to what was not read, and wary of roles."""

import numpy as np
import pytest

from heeler.detect.peers import middle, relative, roles, spread, z_scores

RNG = np.random.default_rng(1)


def rows(*values: np.ndarray) -> np.ndarray:
    """Return (5, GPUs) with the given tensor activities and other rows that say nothing."""
    (tensor,) = values
    table = np.full((5, len(tensor)), np.nan)
    table[3] = tensor
    return table


@pytest.mark.parametrize("size", [1, 2, 5, 8, 33])
def test_the_median_is_numpys_and_skips_what_was_not_read(size: int) -> None:
    values = RNG.random((6, size))
    values[RNG.random((6, size)) < 0.3] = np.nan
    values[0] = np.nan
    found = middle(values)
    assert np.isnan(found[0])
    for row, line in zip(found[1:], values[1:], strict=True):
        expected = np.nan if np.isnan(line).all() else np.nanmedian(line)
        assert row == pytest.approx(expected, nan_ok=True)


def test_one_wild_peer_does_not_move_the_others() -> None:
    values = np.array([[100.0, 101, 99, 100, 100, 5000]])
    group = spread(values)
    gap = relative(values, group.median)
    assert np.abs(gap[0, :5]).max() < 0.02
    assert abs(z_scores(values, group)[0, 5]) > 100


def test_gpus_that_pace_each_other_to_the_digit_do_not_make_z_explode() -> None:
    values = np.array([[100.0] * 7 + [100.4]])
    assert abs(z_scores(values, spread(values))[0, 7]) < 3.5


def test_a_median_of_nothing_or_zero_says_nothing() -> None:
    values = np.array([[0.0] * 8, [np.nan] * 8])
    assert np.isnan(relative(values, spread(values).median)).all()
    assert np.isnan(z_scores(values, spread(values))).all()


@pytest.mark.parametrize(
    ("tensor", "sizes"),
    [
        ([0.107] * 8, [8]),
        ([0.107] * 8 + [0.156] * 8, [8, 8]),
        ([0.107] * 6 + [0.156] * 2, [6, 2]),
        ([0.107] * 15 + [0.156], [16]),
        ([0.107] * 14 + [0.2] * 2, [16]),
        ([0.10] * 8 + [0.15] * 8 + [0.25] * 8 + [0.35] * 8, [8, 8, 8, 8]),
        ([0.3], [1]),
    ],
)
def test_roles_are_large_groups_with_a_wide_gap(tensor: list[float], sizes: list[int]) -> None:
    noise = 1 + 0.005 * np.random.default_rng(2).standard_normal(len(tensor))
    found = roles(rows(np.array(tensor) * noise), 0.25, 0.10)
    assert sorted(map(len, found)) == sorted(sizes)
    assert sorted(int(at) for role in found for at in role) == list(range(len(tensor)))


def test_a_wide_spread_without_a_gap_is_one_role() -> None:
    assert len(roles(rows(np.linspace(0.1, 0.2, 32)), 0.25, 0.10)) == 1


def test_roles_need_a_column_that_all_have() -> None:
    tensor = np.array([0.1] * 8 + [0.2] * 8)
    tensor[3] = np.nan
    assert len(roles(rows(tensor), 0.25, 0.10)) == 1
