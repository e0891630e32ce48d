"""Whatever happens, in whatever order: no budget is exceeded, no foreign drain touched, nothing done twice."""

from typing import Any

import pytest
from drainmodel import LIMITS, OPS, Model
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("limits", LIMITS)
@settings(max_examples=40, deadline=None)
@given(size=st.sampled_from([2, 4, 12, 60]), ops=st.lists(OPS, max_size=50))
def test_no_history_makes_the_drainer_break_its_rules(
    dry_run: bool, limits: dict[str, Any], size: int, ops: list[tuple[Any, ...]]
) -> None:
    model = Model(size, dry_run, limits)
    for op in ops:
        model.do(op)
