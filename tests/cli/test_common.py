"""What all commands do with words of others, and with a bus that does not answer."""

import pytest

from heeler.bus import BusError
from heeler.cli.common import answered, safe, say

HOSTILE = "n1\x1b[2J\x1b]0;owned\x07\r\n\u202egnp.exe\x9b31m\x00"


def test_what_others_wrote_is_shown_and_never_obeyed() -> None:
    shown = safe(HOSTILE)
    assert shown == "n1?[2J?]0;owned????gnp.exe?31m?"
    assert safe("räck3 節点7 🚀 °C") == "räck3 節点7 🚀 °C"


def test_a_line_is_said_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"node {HOSTILE}")
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("error", [TimeoutError(), OSError("gone")])
def test_what_the_bus_does_not_answer_is_one_line(error: Exception) -> None:
    with pytest.raises(BusError, match=r"^the bus does not answer: (TimeoutError|gone)$"), answered():
        raise error


def test_another_fault_stays_what_it_is() -> None:
    with pytest.raises(KeyError), answered():
        raise KeyError("x")
