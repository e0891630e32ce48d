"""The reason that a failed run leaves: short, plain, and never over another's."""

from dataclasses import replace

import pytest

from heeler.health.slurm_drain import Marked, mark, reason_text, why_not
from heeler.slurm.errors import CommandFailedError, CommandTimeoutError, SlurmError
from heeler.slurm.nodes import Node
from heeler.slurm.state import parse_node_state

UP = Node("n1", parse_node_state("MIXED"))
REASON = "heeler:prolog:gpu_lost: GPU 3 is lost"


def node(state: str, reason: str | None = None, user: str | None = None) -> Node:
    return Node("n1", parse_node_state(state), reason, user)


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "IDLE+PLANNED", "MIXED+COMPLETING", "IDLE+CLOUD"])
def test_a_node_in_service_without_a_reason_may_be_marked(state: str) -> None:
    assert why_not(node(state), for_job=True) is None
    assert why_not(node(state), for_job=False) is None


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE+DRAIN", "ADMIN: psu swap (ops)"),
        ("ALLOCATED+DRAIN", "heeler:xid:abc GPU 3"),
        ("MIXED+DRAIN", "heeler:prolog:gpu_lost: GPU 3"),
        ("IDLE+DRAIN", None),
        ("DOWN+NOT_RESPONDING", "Not responding"),
        ("DOWN", "Node unexpectedly rebooted"),
        ("UNKNOWN", None),
        ("WONKY", None),
        ("IDLE", "watch the fan"),
        ("ERROR", None),
    ],
)
@pytest.mark.parametrize("for_job", [True, False])
def test_another_hand_on_the_node_is_left_alone(state: str, reason: str | None, *, for_job: bool) -> None:
    assert why_not(node(state, reason, "jane"), for_job=for_job)


@pytest.mark.parametrize("flag", ["MAINTENANCE", "RESERVED", "REBOOT_REQUESTED", "NOT_RESPONDING", "POWERING_DOWN"])
def test_a_run_that_is_about_no_job_leaves_planned_absence_alone(flag: str) -> None:
    assert flag in (why_not(node(f"IDLE+{flag}"), for_job=False) or "")
    assert why_not(node(f"MIXED+{flag}"), for_job=True) is None


class FakeSlurm:
    """A Slurm that does what real ones only do when all goes wrong."""

    def __init__(self, *looks: Node | SlurmError, drain: SlurmError | None = None) -> None:
        self.looks, self.fault, self.drained = list(looks), drain, 0

    def show(self, name: str) -> Node:
        look = self.looks.pop(0)
        if isinstance(look, SlurmError):
            raise look
        return look

    def drain(self, name: str, reason: str) -> None:
        self.drained += 1
        if self.fault:
            raise self.fault


DRAINED = replace(UP, state=parse_node_state("MIXED+DRAIN"), reason=REASON, reason_user="root")
TIMEOUT = CommandTimeoutError(("scontrol",), "no answer in 4 s")


def test_set_and_read_back() -> None:
    assert mark(FakeSlurm(UP, DRAINED), "n1", REASON, for_job=True) == Marked(REASON, "drained with this reason")


def test_an_operators_reason_is_not_touched() -> None:
    slurm = FakeSlurm(node("IDLE+DRAIN", "ADMIN: psu swap", "jane"))
    done = mark(slurm, "n1", REASON, for_job=True)
    assert (done.reason, slurm.drained) == (None, 0)
    assert "psu swap" in done.why


def test_a_controller_that_does_not_answer_stops_nothing() -> None:
    slurm = FakeSlurm(TIMEOUT)
    assert mark(slurm, "n1", REASON, for_job=True).reason is None
    assert slurm.drained == 0


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        (FakeSlurm(UP, UP), "not applied: scontrol reported success"),
        (FakeSlurm(UP, UP, drain=CommandFailedError(("scontrol",), 1, "Access denied")), "Access denied"),
        (FakeSlurm(UP, TIMEOUT), "not verified"),
        (FakeSlurm(UP, replace(DRAINED, reason="ADMIN: disk")), "ADMIN: disk"),
    ],
)
def test_a_drain_that_was_wanted_and_is_not_there_is_told(slurm: FakeSlurm, words: str) -> None:
    done = mark(slurm, "n1", REASON, for_job=True)
    assert done.reason is None
    assert words in done.why


def test_a_command_that_failed_after_it_had_worked_has_worked() -> None:
    done = mark(FakeSlurm(UP, DRAINED, drain=TIMEOUT), "n1", REASON, for_job=True)
    assert done.reason == REASON
    assert "no answer" in done.why


@pytest.mark.parametrize(
    ("check", "why", "text"),
    [
        ("gpu_lost", "GPU 3 is lost", "heeler:prolog:gpu_lost: GPU 3 is lost"),
        ("gpu_lost", "", "heeler:prolog:gpu_lost"),
        ("x", 'a "b" [root@now]\nReason=evil\x00 \u00e9t\u00e9', "heeler:prolog:x: a b root now Reason evil ete"),
        ("", "\u2603", "heeler:prolog:check"),
    ],
)
def test_reasons_are_plain(check: str, why: str, text: str) -> None:
    assert reason_text("prolog", check, why) == text


def test_reasons_are_short() -> None:
    assert len(reason_text("prolog", "x" * 500, "y" * 5000).encode()) <= 200
    assert len(reason_text("prolog", "gpu_lost", "\u00fc" * 5000).encode()) <= 200
