"""The kernel's log: what each kernel's words mean, by device and within a window."""

from pathlib import Path

import pytest
from healthkit import check_of, machine, run

from heeler.health.checks.kernel_log import (
    CHECKS,
    IoErrorsSettings,
    LinkFlapsSettings,
    LogSettings,
    MceSettings,
    PcieAerSettings,
)
from heeler.health.kmsg import parse_record
from heeler.health.kmsg_words import meaning_of
from heeler.health.model import Check, Outcome

UP_S = 100_000.0
NETS = {
    "sys/class/net/ib0/type": "32\n",
    "sys/class/net/ib0/device/uevent": "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:12:00.0\n",
    "sys/class/net/enp3s0/type": "1\n",
    "sys/class/net/enp3s0/device/uevent": "PCI_SLOT_NAME=0000:03:00.0\n",
    "sys/class/net/roce0/type": "1\n",
    "sys/class/net/roce0/device/uevent": "PCI_SLOT_NAME=0000:44:00.0\n",
    "sys/class/infiniband/mlx5_1/device/net/roce0/x": "",
    "sys/class/net/veth1234/type": "1\n",
}


def log(root: Path, *lines: str, age_s: float = 60.0, first_seq: int = 0, oldest_s: float = 0.0) -> Path:
    start = [f"6,{first_seq},{int(oldest_s * 1e6)},-;Linux version 6.1.0 on librenode"]
    stamp = int((UP_S - age_s) * 1e6)
    records = start + [
        line if line[:2].strip().isdigit() or "," in line[:4] else f"4,{first_seq + at + 1},{stamp},-;{line}"
        for at, line in enumerate(lines)
    ]
    return machine(root, {"dev/kmsg": "\n".join(records) + "\n", "proc/uptime": f"{UP_S} 1.0\n", **NETS})


def check(name: str) -> Check:
    return check_of(CHECKS, name)


DOWN = "mlx5_core 0000:12:00.0 ib0: Link down"


# link_flaps


def test_link_flaps_good_where_links_only_came_up(tmp_path: Path) -> None:
    root = log(
        tmp_path, "mlx5_core 0000:12:00.0 ib0: Link up", "IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready"
    )
    verdict = run(check("link_flaps"), root)
    assert verdict.outcome is Outcome.OK
    assert verdict.perf["link_downs"] == 0


def test_link_flaps_good_where_ib_or_eth_is_only_a_part_of_another_word(tmp_path: Path) -> None:
    root = log(
        tmp_path,
        "systemd-networkd[8]: veth1234: Lost carrier",
        "librenode: something has lost its carrier",
        "fib: Link is Down",
    )
    assert run(check("link_flaps"), root).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("mlx5_core 0000:12:00.0 ib0: Link down", "ib0"),
        ("mlx5_core 0000:12:00.0: Port module event: module 0, Cable unplugged", "0000:12:00.0"),
        ("ixgbe 0000:03:00.0 enp3s0: NIC Link is Down", "enp3s0"),
        ("igb 0000:03:00.0 enp3s0: igb: enp3s0 NIC Link is Down", "enp3s0"),
        ("tg3 0000:03:00.0: enp3s0: Link is down", "enp3s0"),
        ("e1000e: enp3s0 NIC Link is Down", "enp3s0"),
        ("bond0: (slave enp3s0): link status definitely down, disabling slave", "enp3s0"),
        ("bonding: bond0: link status definitely down for interface enp3s0, disabling it", "enp3s0"),
        ("systemd-networkd[8]: enp3s0: Lost carrier", "enp3s0"),
        ("r8169 0000:03:00.0 enp3s0: Link is Down", "enp3s0"),
    ],
)
def test_link_flaps_bad_lines_of_all_drivers_name_their_device(tmp_path: Path, line: str, device: str) -> None:
    verdict = run(check("link_flaps"), log(tmp_path, line))
    assert verdict.outcome is Outcome.WARN
    assert verdict.evidence[0].device == device
    assert verdict.evidence[0].value == 1


@pytest.mark.parametrize("net", ["ib0", "roce0"])
def test_link_flaps_bad_where_an_rdma_link_goes_down_again_and_again(tmp_path: Path, net: str) -> None:
    lines = [f"mlx5_core 0000:12:00.0 {net}: Link down", f"mlx5_core 0000:12:00.0 {net}: Link up"] * 3
    verdict = run(check("link_flaps"), log(tmp_path, *lines))
    assert verdict.outcome is Outcome.BAD
    assert f"{net} (rdma) went down 3 times" in verdict.why


def test_link_flaps_good_where_it_was_before_the_window_or_at_boot_or_may_be(tmp_path: Path) -> None:
    assert run(check("link_flaps"), log(tmp_path / "old", DOWN, age_s=7200)).outcome is Outcome.OK
    boot = log(tmp_path / "boot", DOWN, age_s=UP_S - 20)
    assert run(check("link_flaps"), boot, LinkFlapsSettings(window_s=0)).outcome is Outcome.OK
    assert (
        run(check("link_flaps"), log(tmp_path / "may", DOWN), LinkFlapsSettings(ignore=("ib0",))).outcome is Outcome.OK
    )


def test_link_flaps_good_where_somebody_else_than_the_kernel_wrote_it(tmp_path: Path) -> None:
    assert run(check("link_flaps"), log(tmp_path, f"12,5,{int(UP_S * 1e6)},-;{DOWN}")).outcome is Outcome.OK


def test_link_flaps_unknown_where_the_log_lost_the_window(tmp_path: Path) -> None:
    verdict = run(check("link_flaps"), log(tmp_path, "usb 1-1: new", first_seq=900, oldest_s=UP_S - 600, age_s=1))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "goes back only 10 min" in verdict.why


def test_link_flaps_unknown_where_there_is_no_log_or_nothing_in_it(tmp_path: Path) -> None:
    assert run(check("link_flaps"), machine(tmp_path, {"proc/uptime": "1.0 1.0"})).outcome is Outcome.UNKNOWN
    garbage = machine(tmp_path, {"dev/kmsg": "no kernel log\n\n"})
    assert "no record" in run(check("link_flaps"), garbage).why


def test_a_new_link_down_is_told_where_the_rest_of_the_window_is_lost(tmp_path: Path) -> None:
    root = log(tmp_path, *[DOWN] * 3, first_seq=900, oldest_s=UP_S - 600)
    assert run(check("link_flaps"), root).outcome is Outcome.BAD


# io_errors


def test_io_errors_good_where_disks_are_only_spoken_of(tmp_path: Path) -> None:
    root = log(
        tmp_path,
        "sd 0:0:0:0: [sda] Attached SCSI disk",
        "nvme nvme0: 8/0/0 default/read/poll queues",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "blk_update_request: operation not supported error, dev nvme0n1, sector 5 op 0x9:(WRITE_ZEROES)",
        "blk_update_request: I/O error, dev fd0, sector 0",
        "Buffer I/O error on dev sr0, logical block 0, async page read",
        "XFS (nvme0n1p1): Ending clean mount",
        "ata1.00: ATA-11: disk",
        "ata1.00: LPM support disabled",
    )
    assert run(check("io_errors"), root).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("end_request: I/O error, dev sda, sector 1234", "sda"),  # 3.10
        ("end_request: critical target error, dev sdb, sector 5", None),
        ("blk_update_request: I/O error, dev nvme0n1, sector 0", "nvme0n1"),  # 4.x
        (
            "blk_update_request: critical medium error, dev sda, sector 9 op 0x0:(READ) flags 0x0 phys_seg 1",
            "sda",
        ),
        ("print_req_error: I/O error, dev sdb, sector 77", "sdb"),  # 4.14 to 5.0
        ("I/O error, dev nvme1n1, sector 42 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2", "nvme1n1"),  # 6.x
        ("critical medium error, dev nvme1n1, sector 42 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", "nvme1n1"),
        ("timeout error, dev dm-3, sector 42 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2", "dm-3"),
        ("Buffer I/O error on device sda1, logical block 3", "sda1"),
        ("Buffer I/O error on dev dm-0, logical block 5, async page read", "dm-0"),
        ("lost page write due to I/O error on md0", "md0"),
        ("nvme nvme0: I/O 5 QID 3 timeout, aborting", "nvme0"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "nvme0"),
        ("nvme nvme2: Removing after probe failure status: -19", "nvme2"),
        ("nvme0n1: Read(0x2) @ LBA 5, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR", "nvme0n1"),
        ("sd 2:0:0:0: [sdb] Sense Key : Medium Error [current]", "sdb"),
        ("sd 2:0:0:0: [sdb] tag#3 Sense Key : Hardware Error [current]", "sdb"),
        ("ata1.00: failed command: READ FPDMA QUEUED", "ata1.00"),
        ("ata1.00: disabled", "ata1.00"),
        ("EXT4-fs error (device sda2): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0", "sda2"),
        ("EXT4-fs (sda2): Remounting filesystem read-only", "sda2"),
        ("Aborting journal on device sda2-8.", "sda2-8"),
        ('XFS (nvme0n1p1): metadata I/O error in "xfs_buf" at daddr 0x5 len 8 error 5', "nvme0n1p1"),
        ("XFS (dm-1): Corruption of in-memory data detected.  Shutting down filesystem", "dm-1"),
        ("BTRFS error (device sdc): bdev /dev/sdc errs: wr 1, rd 0, flush 0, corrupt 0, gen 0", "sdc"),
    ],
)
def test_io_errors_bad_words_of_all_kernels_name_their_device(tmp_path: Path, line: str, device: str | None) -> None:
    verdict = run(check("io_errors"), log(tmp_path, line))
    assert verdict.outcome is (Outcome.BAD if device else Outcome.OK)
    assert not device or verdict.evidence[0].device == device


def test_io_errors_bad_counts_each_disk_for_itself(tmp_path: Path) -> None:
    lines = ["I/O error, dev sda, sector 1 op 0x0:(READ)"] * 3 + ["I/O error, dev sdb, sector 1 op 0x0:(READ)"]
    verdict = run(check("io_errors"), log(tmp_path, *lines), IoErrorsSettings(bad_errors=3))
    assert verdict.outcome is Outcome.BAD
    assert [(one.device, one.value) for one in verdict.evidence] == [("sda", 3), ("sdb", 1)]


def test_io_errors_unknown_without_a_log(tmp_path: Path) -> None:
    assert run(check("io_errors"), tmp_path).outcome is Outcome.UNKNOWN


def test_io_errors_unknown_where_the_log_has_lost_all_but_the_last_minutes(tmp_path: Path) -> None:
    short = log(tmp_path / "a", "usb 1-1: new", first_seq=900, oldest_s=UP_S - 300, age_s=1)
    assert run(check("io_errors"), short).outcome is Outcome.UNKNOWN
    long = log(tmp_path / "b", "usb 1-1: new", first_seq=900, oldest_s=UP_S - 900, age_s=1)
    assert run(check("io_errors"), long).outcome is Outcome.OK


# mce


def test_mce_good_where_nothing_was_checked(tmp_path: Path) -> None:
    root = log(
        tmp_path,
        "mce: CPU supports 32 MCE banks",
        "EDAC MC: Ver: 3.0.0",
        "EDAC MC0: Giving out device to module i10nm_edac",
    )
    assert run(check("mce"), root).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010090", Outcome.WARN),
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400", Outcome.BAD),
        ("mce: [Hardware Error]: Machine check events logged", Outcome.WARN),
        ("[Hardware Error]: Corrected error, no action required.", Outcome.WARN),
        ("[Hardware Error]: Uncorrected, software restartable error.", Outcome.BAD),
        ("mce: Uncorrected hardware memory error in user-access at 3f9a2c5400", Outcome.BAD),
        ("Memory failure: 0x3f9a2c5: recovery action for dirty LRU page: Recovered", Outcome.BAD),
        ("{3}[Hardware Error]: event severity: corrected", Outcome.WARN),
        ("{3}[Hardware Error]: event severity: recoverable", Outcome.BAD),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", Outcome.WARN),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", Outcome.BAD),
        (
            'EDAC MC0: CE page 0x1, offset 0x0, grain 0, syndrome 0x0, row 3, channel 0, label "": i3200 CE',
            Outcome.WARN,
        ),
    ],
)
def test_mce_bad_only_where_nobody_corrected_it(tmp_path: Path, line: str, outcome: Outcome) -> None:
    assert run(check("mce"), log(tmp_path, line)).outcome is outcome


def test_mce_good_where_the_firmware_tells_of_the_time_before_this_boot(tmp_path: Path) -> None:
    old = ("BERT: Error records from previous boot:", "[Hardware Error]: event severity: fatal")
    assert run(check("mce"), log(tmp_path / "a", *old, "[Hardware Error]:  Error 0, type: fatal")).outcome is Outcome.OK
    new = (*old, "usb 1-1: new", "{1}[Hardware Error]: event severity: fatal")
    assert run(check("mce"), log(tmp_path / "b", *new)).outcome is Outcome.BAD


def test_mce_bad_above_the_sites_limit_of_corrected_ones(tmp_path: Path) -> None:
    lines = ["EDAC MC0: 1 CE memory read error on DIMM#0 (channel:0)"] * 5
    assert run(check("mce"), log(tmp_path, *lines), MceSettings(bad_corrected=5)).outcome is Outcome.BAD


def test_mce_unknown_without_a_log(tmp_path: Path) -> None:
    assert run(check("mce"), tmp_path).outcome is Outcome.UNKNOWN


# pcie_aer


def test_pcie_aer_good_below_the_limit_of_corrected_errors(tmp_path: Path) -> None:
    lines = ["pcieport 0000:00:01.0: AER: enabled with IRQ 30"]
    lines += ["nvme 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)"] * 9
    assert run(check("pcie_aer"), log(tmp_path, *lines)).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("line", "device", "outcome"),
    [
        (
            "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=0008",
            "0000:00:01.0",
            Outcome.BAD,
        ),
        (
            "pcieport 0000:00:01.0: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
            "0000:00:01.0",
            Outcome.BAD,
        ),
        (
            "nvidia 0000:3B:00.0: PCIe Bus Error: severity=Fatal, type=Unaccessible, id=3b00(Unregistered Agent ID)",
            "0000:3b:00.0",
            Outcome.BAD,
        ),
        (
            "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error received: 0000:3b:00.0 (no details found)",
            "0000:3b:00.0",
            Outcome.BAD,
        ),
        ("pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000", "0000:00:01.0", Outcome.BAD),
        (
            "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, id=3b00(Receiver ID)",
            "0000:3b:00.0",
            Outcome.WARN,
        ),
    ],
)
def test_pcie_aer_bad_by_severity_and_device(tmp_path: Path, line: str, device: str, outcome: Outcome) -> None:
    verdict = run(check("pcie_aer"), log(tmp_path, line), PcieAerSettings(warn_corrected=1))
    assert verdict.outcome is outcome
    assert verdict.evidence[0].device == device


def test_pcie_aer_good_where_a_port_only_announces_what_a_device_then_says(tmp_path: Path) -> None:
    root = log(
        tmp_path,
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:3b:00.0",
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
        "nvidia 0000:3b:00.0:   device [10de:2330] error status/mask=00000040/0000a000",
    )
    verdict = run(check("pcie_aer"), root)
    assert (verdict.outcome, verdict.perf["pcie_errors"]) == (Outcome.OK, 1)


def test_pcie_aer_unknown_without_a_log(tmp_path: Path) -> None:
    assert run(check("pcie_aer"), tmp_path).outcome is Outcome.UNKNOWN


# oom


def test_oom_good_where_a_job_met_its_own_limit(tmp_path: Path) -> None:
    root = log(
        tmp_path,
        "Memory cgroup out of memory: Killed process 812 (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
        "Memory cgroup out of memory: Kill process 813 (python) score 1000 or sacrifice child",
        "Killed process 813 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
    )
    verdict = run(check("oom"), root)
    assert (verdict.outcome, verdict.perf["oom_kills_limit"]) == (Outcome.OK, 2)


@pytest.mark.parametrize(
    "line",
    [
        "Out of memory: Killed process 812 (a (b) c) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0",
        "Out of memory: Kill process 812 (a (b) c) score 900 or sacrifice child",
        "Out of memory: Killed process 812, UID 500, (a (b) c) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
    ],
)
def test_oom_bad_where_the_machine_ran_out(tmp_path: Path, line: str) -> None:
    verdict = run(check("oom"), log(tmp_path, line))
    assert verdict.outcome is Outcome.WARN
    assert verdict.evidence[0].value == 1


def test_oom_good_where_it_was_before_the_window(tmp_path: Path) -> None:
    root = log(tmp_path, "Out of memory: Killed process 812 (x) total-vm:9kB", age_s=7200)
    assert run(check("oom"), root).outcome is Outcome.OK
    assert run(check("oom"), root, LogSettings(window_s=0)).outcome is Outcome.WARN


def test_oom_unknown_without_a_log(tmp_path: Path) -> None:
    assert run(check("oom"), tmp_path).outcome is Outcome.UNKNOWN


# the log itself


def test_a_record_is_read_with_escapes_extra_fields_and_dictionary() -> None:
    record = parse_record(b"4,812,99120331,-,caller=T1;name=caf\\xc3\\xa9 x\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0")
    assert record
    assert (record.priority, record.seq, record.mono_us, record.text) == (4, 812, 99120331, "name=café x")


@pytest.mark.parametrize("data", [b"", b";", b"4,1,2;x", b"4,x,2,-;x", b"-4,1,2,-;x", b"4,1,2,-", b"\xff\xfe"])
def test_what_is_no_record_is_none(data: bytes) -> None:
    assert parse_record(data) is None


def test_most_lines_mean_nothing() -> None:
    for text in ("", "usb 1-1: new high-speed USB device", "audit: type=1400", "link", "Link is Down", "x" * 10_000):
        assert meaning_of(text) is None


def test_the_log_of_this_machine_is_read() -> None:
    if not Path("/dev/kmsg").exists():
        pytest.skip("no /dev/kmsg")
    verdict = run(check("oom"), "/", LogSettings(window_s=0))
    assert verdict.outcome is not Outcome.UNKNOWN or "could not be read" in verdict.why
