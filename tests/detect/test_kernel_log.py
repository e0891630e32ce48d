"""Lines of the kernel log, as drivers of all generations write them, through the agent's parser, enrich and detect."""

import json
import subprocess
from typing import Any

import pytest
from needs import missing_agent
from nodeagent import AGENT

from heeler.bus import encode, subjects
from heeler.detect.program import make_step as detect
from heeler.engine.memory import Pipeline
from heeler.enrich.program import make_step as enrich

pytestmark = pytest.mark.skipif(missing_agent() is not None, reason=str(missing_agent()))

S = 1_000_000_000
T0 = 1_760_000_000 * S
HARD = "0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"
MMU = "MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_3 faulted @ 0x7f_0. Fault is of type FAULT_PDE ACCESS_TYPE_READ"


def findings(*lines: str, until_s: float = 120.0, any_facility: bool = False) -> list[dict[str, Any]]:
    """The last word on each finding that a node's kernel log leads to."""
    options = ["-any-facility"] if any_facility else []
    command = [str(AGENT), "parse", "kmsg", "-cluster", "test", "-node", "n1", "-boot", "b1", *options]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=True, timeout=30)
    chain, last = Pipeline([enrich({}), detect({})]), {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        event["ts"] = T0 + int(event.get("ts_mono_us") or 0) * 1000
        body = encode("KernelEvent", event)
        for made in chain.feed(subjects.kernel_event("test", "n1"), {}, body, event["ts"] + S // 100):
            last[made.data.get("id", "")] = made
    for made in chain.finish(T0 + int(until_s * S)):
        last[made.data.get("id", "")] = made
    assert not chain.refused
    return [made.data for made in last.values() if made.kind == "Finding"]


def counts(finding: dict[str, Any]) -> dict[int | str, int]:
    return {item["value"]: item["count"] for item in finding["evidence"] if "count" in item}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79),
        ("<4>[1.0] NVRM: Xid (0000:3b:00): 62, 1a2b(3c4d) 00000000", 62),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000011, engmask 00000201, intr 20000000", 31),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 43, pid=991, name=nvc:[a, b] v2, Ch 00000008", 43),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 94, pid=1, name=x, text 13", 94),
    ],
)
def test_one_code_on_one_gpu_however_it_is_written(line: str, code: int) -> None:
    (finding,) = findings(line)
    assert (finding["code"], finding["entity"]["pci"]) == (code, "0000:3b:00")


def test_a_loss_in_three_lines_without_a_code_and_the_79_that_follows_are_one_incident() -> None:
    (finding,) = findings(
        "[16.3] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "[16.3] NVRM: (PCI ID: 10de:0000) installed in this system has",
        "[16.3] NVRM: fallen off the bus and is not responding to commands.",
        "[40.0] NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.",
    )
    assert (finding["kind"], finding["advice"]) == ("gpu_lost", "drain_now")


def test_codes_that_follow_each_other_are_counted_each() -> None:
    (finding,) = findings(
        "[1.0] NVRM: Xid (PCI:0000:3b:00): 62, 1a",
        "[1.1] NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=x, Ch 00000010",
        f"[1.2] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=x, Ch 00000010, intr 00000000. {MMU}",
        f"[1.3] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=x, Ch 00000010, intr 00000000. {MMU}",
    )
    assert counts(finding) == {62: 1, 45: 1, 31: 2}
    assert (finding["code"], finding["advice"]) == (62, "drain_now")


@pytest.mark.parametrize(
    ("text", "advice", "cause"),
    [
        ("145, RLW_X Nonfatal XC1 i0 Link 17 (0x01020304 0x00000004 0x0)", "none", "unknown"),
        ("149, NETIR Fatal XC0 i1 Link -1 (0x0 0x0 0x0 0x0 0x0 0x0)", "none", "injected"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 17 (0x000625c6 0x0 0x0 0x0 0x0 0x0)", "drain_now", "link"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x0 0x0 0x0 0x0 0x0)", "observe", "unknown"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x1 0x0 0x0 0x0 0x0)", "none", "unknown"),
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x8 0x0 0x0 0x0 0x0)", "observe", "unknown"),
        ("74, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "drain_now", "link"),
        ("74, NVLink: fatal error detected on link 2(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "none", "unknown"),
        ("74, NVLink: fatal error detected on link 2(0x0, 0x0, 0x0, 0x1, 0x0, 0x0, 0x0)", "observe", "unknown"),
    ],
)
def test_errors_of_links_are_decided_by_the_parts_of_their_line(text: str, advice: str, cause: str) -> None:
    (finding,) = findings(f"[1.0] NVRM: Xid (PCI:0000:3b:00): {text}")
    assert (finding["advice"], finding["cause"]) == (advice, cause)


def test_the_drivers_verdict_outranks_what_the_line_says() -> None:
    (finding,) = findings(
        "[1.0] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0 0x0 0x0)",
        "[1.1] NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    )
    assert (finding["advice"], finding["cause"]) == ("drain_now", "driver_verdict")


def test_a_switch_and_the_links_that_fail_with_it_are_one_finding() -> None:
    (finding,) = findings(
        "[301.4] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        f"[301.5] NVRM: Xid (PCI:0000:71:00): 74, NVLink: fatal error detected on link 2({HARD})",
        f"[301.6] NVRM: Xid (PCI:0000:72:00): 74, NVLink: fatal error detected on link 5({HARD})",
        "[302.0] NVRM: Xid (PCI:0000:72:00): 45, pid=1, name=x, Ch 00000010",
        until_s=400.0,
    )
    assert counts(finding) == {20034: 1, 74: 2, 45: 1}
    assert finding["entity"]["gpus"] == ["0000:71:00", "0000:72:00"]


@pytest.mark.parametrize("code", [13, 31, 43, 68, 109])
def test_a_programs_fault_asks_for_nothing_and_goes_by_itself(code: int) -> None:
    (finding,) = findings(f"[1.0] NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, name=a.out, Ch 00000008", until_s=700.0)
    assert (finding["state"], finding["advice"] in ("none", "observe")) == ("closed", True)


def test_a_cleanup_alone_is_nothing() -> None:
    assert not findings("[1.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=x, Ch 00000010")


def test_a_code_that_no_table_knows_is_seen() -> None:
    (finding,) = findings("[1.0] NVRM: Xid (PCI:0000:3b:00): 199, something new")
    assert (finding["code"], finding["severity"]) == (199, "info")
    assert "something new" in finding["evidence"][0]["text"]


def test_a_look_alike_that_the_kernel_did_not_write_never_drains() -> None:
    forged = "12,55,900,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert not findings(forged)
    (finding,) = findings(forged, any_facility=True)
    assert (finding["advice"], finding["cause"]) == ("none", "untrusted")


def test_a_process_name_cannot_forge_a_code() -> None:
    (finding,) = findings("[1.0] NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=a): 79, b, Ch 00000008")
    assert finding["code"] == 43
