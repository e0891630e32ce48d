"""A test that needs what is not here is skipped with a reason, and fails in CI."""

import needs
import pytest


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_what_is_missing_skips_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setitem(needs.NEEDS, "moon", lambda: "no moon tonight")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no moon tonight"):
        needs.need("moon")


def test_what_is_there_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(needs.NEEDS, "sun", lambda: None)
    needs.need("sun")


def test_slurm_without_its_programs_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "SLURM_PROGRAMS", ("no-such-daemon",))
    why = needs.missing_slurm()
    assert why is not None
    assert "no-such-daemon" in why
