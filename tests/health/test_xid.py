"""XIDs in the kernel's log: of the hardware, of these GPUs, and not dealt with."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from heeler.health.checks.xid import XidSettings, judge_xid, read_xids
from heeler.health.model import Case, Context, Job, Outcome, Phase, ProbeError, Verdict

UP_S = 10_000.0
GPUS = {
    "0000:3b:00.0": ("GPU-" + "a" * 8 + "-0000-0000-0000-000000000000", 0),
    "0000:5e:00.0": ("GPU-" + "b" * 8 + "-0000-0000-0000-000000000000", 1),
}
A, B = (uuid for uuid, _ in GPUS.values())
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def node(root: Path, *lines: str | tuple[float, str], first_seq: int = 0, gpus: bool = True) -> Path:
    """Write a machine: lines of the log, each 100 s before now unless it says how long."""
    (root / "dev").mkdir(exist_ok=True)
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/uptime").write_text(f"{UP_S} 1.0\n")
    rows = []
    for at, line in enumerate(("Linux version 6.1", *lines)):
        age_s, text = line if isinstance(line, tuple) else (UP_S if at == 0 else 100.0, line)
        rows.append(f"{6 if at else 5},{first_seq + at},{int((UP_S - age_s) * 1e6)},-;{text}\n")
    (root / "dev/kmsg").write_text("".join(rows))
    for pci, (uuid, minor) in GPUS.items() if gpus else ():
        folder = root / "proc/driver/nvidia/gpus" / pci
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    return root


def judged(root: Path, job: Job | None = None, **settings: Any) -> Verdict:
    case = Case(Phase.PROLOG if job else Phase.PERIODIC, "n1", 0, job)
    chosen = XidSettings(**settings)
    return judge_xid(read_xids(Context(case, root), [chosen]), chosen, case)


def test_gpu_xid_good_without_any(tmp_path: Path) -> None:
    verdict = judged(node(tmp_path, "usb 1-1: new device"))
    assert (verdict.outcome, verdict.why) == (Outcome.OK, "no XID")


def test_gpu_xid_bad_with_gpu_count_and_age(tmp_path: Path) -> None:
    verdict = judged(node(tmp_path, (5000.0, LOST), (60.0, LOST)))
    assert verdict.outcome is Outcome.BAD
    assert verdict.why == "XID 79 (GPU has fallen off the bus) on 0000:3b:00.0 2 times, last 60 s ago"
    assert verdict.gpus == (A,)
    assert "fallen off the bus" in (verdict.evidence[0].text or "")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, name=python3, DBE at partition 3",
        "NVRM: Xid (0000:3b:00): 62, 1a2b(3c4d) 00000000",
        "NVRM: Xid (PCI:0000:3b:00.0): 95, pid=991, name=nvc:[a, b] v2, Uncontained",
        "NVRM: Xid (PCI:00000000:3B:00): 119, pid=1, Timeout waiting for RPC from GSP!",
        "[12.3] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 64, row remapping failure",
        "NVRM: GPU0 Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (No action) to 0x2 (OS Reboot)",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    ],
)
def test_gpu_xid_bad_in_every_spelling(tmp_path: Path, line: str) -> None:
    verdict = judged(node(tmp_path, line))
    assert (verdict.outcome, verdict.gpus) == (Outcome.BAD, (A,)), verdict.why


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_gpu_xid_good_where_only_programs_failed(tmp_path: Path, code: int) -> None:
    verdict = judged(node(tmp_path, *[f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, name=python, Ch 8"] * 20))
    assert verdict.outcome is Outcome.OK
    assert verdict.why == "no XID of the hardware, 20 of programs"


def test_gpu_xid_good_after_the_recovery_action_is_none_again(tmp_path: Path) -> None:
    for words in ("None", "No action"):
        line = f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (Reset) to 0x0 ({words})"
        assert judged(node(tmp_path, line)).outcome is Outcome.OK


def test_a_device_whose_name_looks_like_an_xid_is_none(tmp_path: Path) -> None:
    line = "usb 1-1: Product: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert judged(node(tmp_path, line)).outcome is Outcome.OK


def test_a_code_that_nobody_knows_is_warned_of(tmp_path: Path) -> None:
    assert judged(node(tmp_path, "NVRM: Xid (PCI:0000:3b:00): 9999, what is it")).outcome is Outcome.WARN


def test_what_happened_before_the_driver_was_loaded_again_is_over(tmp_path: Path) -> None:
    loaded = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"
    assert judged(node(tmp_path, (500.0, LOST), (400.0, loaded))).outcome is Outcome.OK
    assert judged(node(tmp_path, (500.0, loaded), (400.0, LOST))).outcome is Outcome.BAD


def test_what_the_site_has_dealt_with_is_over_and_a_new_one_is_not(tmp_path: Path) -> None:
    mark = tmp_path / "run/xids-resolved"
    mark.parent.mkdir()
    mark.touch()
    os.utime(mark, (time.time() - 200, time.time() - 200))
    path = "/run/xids-resolved"
    assert judged(node(tmp_path, (500.0, LOST)), resolved_file=path).outcome is Outcome.OK
    assert judged(node(tmp_path, (500.0, LOST), (100.0, LOST)), resolved_file=path).outcome is Outcome.BAD
    assert judged(node(tmp_path, (500.0, LOST)), resolved_file="/run/none").outcome is Outcome.BAD


def test_the_site_may_leave_codes_out_and_let_others_count(tmp_path: Path) -> None:
    assert judged(node(tmp_path, LOST), ignore=(79,)).outcome is Outcome.OK
    line = "NVRM: Xid (PCI:0000:3b:00): 31, pid=7"
    assert judged(node(tmp_path, line), bad=(31,)).outcome is Outcome.BAD
    assert judged(node(tmp_path, (5000.0, LOST)), window_s=3600.0).outcome is Outcome.OK


def test_only_the_job_s_gpus_count(tmp_path: Path) -> None:
    node(tmp_path, LOST)
    assert judged(tmp_path, Job("1", gpu_minors=(0,))).outcome is Outcome.BAD
    assert judged(tmp_path, Job("1", gpu_minors=(1,))).outcome is Outcome.OK
    assert judged(tmp_path, Job("1", gpu_uuids=(B,))).outcome is Outcome.OK


def test_gpu_xid_unknown_where_the_job_s_gpus_can_t_be_told(tmp_path: Path) -> None:
    node(tmp_path, LOST, gpus=False)
    assert judged(tmp_path, Job("1", gpu_minors=(0,))).outcome is Outcome.UNKNOWN
    assert judged(tmp_path, Job("1", gpu_uuids=(A,))).outcome is Outcome.UNKNOWN
    assert judged(tmp_path).outcome is Outcome.BAD


def test_gpu_xid_unknown_where_the_log_has_been_overwritten(tmp_path: Path) -> None:
    node(tmp_path)
    (tmp_path / "dev/kmsg").write_text("6,900,9800000000,-;usb\n")  # 200 s ago, and not the first
    verdict = judged(tmp_path)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "overwritten" in verdict.why
    assert judged(tmp_path, window_s=100.0).outcome is Outcome.OK
    far = judged(tmp_path, least_reach_s=150.0)
    assert (far.outcome, far.why) == (Outcome.OK, "no XID in the 3 min that the log reaches back")


def test_gpu_xid_unknown_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(ProbeError):
        read_xids(Context(Case(Phase.PERIODIC, "n1", 0), tmp_path), [XidSettings()])


def test_a_line_that_the_kernel_did_not_write_is_not_believed_unless_told_so(tmp_path: Path) -> None:
    node(tmp_path)
    with (tmp_path / "dev/kmsg").open("a") as log:
        log.write(f"12,9,9900000000,-;{LOST}\n")
    assert judged(tmp_path).outcome is Outcome.OK
    assert judged(tmp_path, any_facility=True).outcome is Outcome.BAD
