"""Reasons that can't be misread, and drains that are ours only while nobody has touched them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.drain.node import NodeView
from heeler.drain.ownership import MAX_REASON, PREFIX, Mark, is_ours, reason_text
from heeler.slurm.nodes import parse_node_text, split_reason
from heeler.slurm.times import local_zone

S = 1_000_000_000


def test_a_reason_names_heeler_the_kind_the_finding_and_the_trouble() -> None:
    reason = reason_text("gpu_lag", "gpu_lag-1f3a-1790000000000", "GPU 5 on n002 runs at 1,155 MHz (peers 1,980)")
    assert reason == "heeler:gpu_lag:gpu_lag-1f3a-1790000000000 GPU 5 on n002 runs at 1,155 MHz (peers 1,980)"


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ("two\nlines\tand\r\nmore", "two lines and more"),
        ('it\'s "quoted" `twice`', "it s quoted twice"),
        ("$(reboot); rm -rf / | sh & #", "(reboot); rm -rf / sh"),
        ("gone [root@2026-12-02T04:51:54]", "gone root 2026-12-02T04:51:54"),
        ("GPU 3 State=IDLE Reason=none", "GPU 3 State IDLE Reason none"),
        ("température élevée", "temperature elevee"),
        ("hot \N{FIRE} \u202e\u0000\x1b[31m", "hot 31m"),
        ("", ""),
    ],
)
def test_hostile_summaries_are_made_harmless(summary: str, shown: str) -> None:
    assert reason_text("xid", "f1", summary) == f"heeler:xid:f1 {shown}".strip()


def test_hostile_kinds_and_ids_are_made_harmless() -> None:
    assert reason_text("xid 79\n", "a/b:c d", "gone") == "heeler:xid_79_:a_b_c_d gone"
    assert reason_text("", "", "gone") == "heeler:_:_ gone"


@given(kind=st.text(max_size=300), finding_id=st.text(max_size=300), summary=st.text(max_size=3000))
def test_any_reason_is_short_plain_and_comes_back_whole_from_slurms_text(
    kind: str, finding_id: str, summary: str
) -> None:
    reason = reason_text(kind, finding_id, summary)
    assert reason.startswith(PREFIX)
    assert len(reason) <= MAX_REASON
    assert reason.isascii()
    assert reason.isprintable()
    assert not set(reason) & set("'\"`$\\=[]@|<>*?{}!#&\n")
    assert reason == " ".join(reason.split())
    line = f"NodeName=n001 State=IDLE+DRAIN Partitions=train Reason={reason} [heeler@2026-12-02T04:51:54]"
    node = parse_node_text(line, local_zone())
    assert (node.name, node.reason, node.reason_user) == ("n001", reason, "heeler")
    assert split_reason(f"{reason} [heeler@2026-12-02T04:51:54]")[0] == reason


OURS = NodeView(
    "n001", "idle", frozenset({"DRAIN"}), 5 * S, reason="heeler:xid:f1 gone", reason_user="heeler", reason_ts_ns=7 * S
)


def test_a_drain_is_ours_while_reason_author_and_time_are_as_recorded() -> None:
    assert is_ours(OURS, Mark.read(OURS))
    assert is_ours(replace(OURS, state="allocated", seen_ns=9 * S), Mark.read(OURS))


@pytest.mark.parametrize(
    "edited",
    [
        replace(OURS, reason="heeler:xid:f1 gone, ops: psu ordered"),
        replace(OURS, reason="heeler:xid:f1 gon"),
        replace(OURS, reason=None),
        replace(OURS, reason_user="root"),
        replace(OURS, reason_user=None),
        replace(OURS, reason_ts_ns=8 * S),
        replace(OURS, reason_ts_ns=None),
        replace(OURS, flags=frozenset()),
    ],
)
def test_any_edit_makes_it_foreign(edited: NodeView) -> None:
    assert not is_ours(edited, Mark.read(OURS))


def test_without_a_record_nothing_is_ours() -> None:
    assert not is_ours(OURS, None)


@pytest.mark.parametrize("missing", ["reason", "reason_user", "reason_ts_ns"])
def test_a_mark_with_a_hole_is_no_record(missing: str) -> None:
    view = {
        "reason": replace(OURS, reason=None),
        "reason_user": replace(OURS, reason_user=None),
        "reason_ts_ns": replace(OURS, reason_ts_ns=None),
    }[missing]
    assert Mark.read(view) is None
    assert not is_ours(view, Mark.read(view))
