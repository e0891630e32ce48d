"""File systems: exact places, octal escapes, dead mounts that don't answer, what /etc/fstab does not mean."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from healthkit import case, check_of, machine, run

from heeler.bus import ConfigError
from heeler.health.checks import storage
from heeler.health.checks.mounts import parse_fstab, parse_mountinfo
from heeler.health.checks.storage import (
    CHECKS,
    DiskSizeSettings,
    DiskUsageSettings,
    FileCountSettings,
    FilesSettings,
    FstabSettings,
    MountedSettings,
    ReadOnlySettings,
    at_each,
    judge_disk_size,
    judge_disk_usage,
)
from heeler.health.model import Check, Context, Outcome

GIB = 1 << 30


def check(name: str) -> Check:
    return check_of(CHECKS, name)


def volume(used: int, free: int, *, used_inodes: int = 1, free_inodes: int = 99) -> dict[str, Any]:
    return {
        "value": {
            "total_bytes": used + free,
            "used_bytes": used,
            "free_bytes": free,
            "inodes": used_inodes + free_inodes,
            "used_inodes": used_inodes,
            "free_inodes": free_inodes,
        }
    }


# disk_usage


def test_disk_usage_good_of_this_machine_and_as_df_says() -> None:
    verdict = run(check("disk_usage"), "/", DiskUsageSettings(("/",), 99.9, 100.0))
    assert verdict.outcome is Outcome.OK
    df = subprocess.run(["df", "--output=pcent", "/"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert abs(verdict.perf["/_space_used_percent"] - int(df.rstrip("%"))) <= 1.1


@pytest.mark.parametrize(
    ("one", "outcome", "why"),
    [
        (volume(80, 20), Outcome.OK, ""),
        (volume(81, 19), Outcome.WARN, "/d: 81 % of space used"),
        (volume(86, 14), Outcome.BAD, "/d: 86 % of space used"),
        (volume(1, 99, used_inodes=90, free_inodes=10), Outcome.BAD, "/d: 90 % of inodes used"),
        (volume(1, 99, used_inodes=0, free_inodes=0), Outcome.OK, ""),
        ({"error": "ENOENT", "why": "No such file or directory"}, Outcome.BAD, "/d is not there"),
        ({"error": "timeout", "why": "no answer in 4.0 s"}, Outcome.UNKNOWN, "/d: no answer"),
        ({"error": "EACCES", "why": "Permission denied"}, Outcome.UNKNOWN, "/d: Permission denied"),
    ],
)
def test_disk_usage_good_bad_and_unknown(one: dict[str, Any], outcome: Outcome, why: str) -> None:
    verdict = judge_disk_usage({"volumes": {"/d": one}}, DiskUsageSettings(("/d",)), case())
    assert verdict.outcome is outcome
    assert why in verdict.why


def test_disk_usage_bad_outranks_a_volume_that_does_not_answer() -> None:
    volumes = {"/a": {"error": "timeout", "why": "x"}, "/b": volume(99, 1)}
    assert judge_disk_usage({"volumes": volumes}, DiskUsageSettings(("/a", "/b")), case()).outcome is Outcome.BAD


def test_a_place_that_hangs_costs_its_time_only_and_the_others_answer() -> None:
    def look(path: str) -> str:
        if path == "/dead":
            time.sleep(5)
        return path

    context = Context(case(), timeout_s=0.5)
    started = time.monotonic()
    found = at_each(context, ["/dead", "/a", "/b"], look)
    assert time.monotonic() - started < 2
    assert found["/a"] == {"value": "/a"}
    assert found["/dead"]["error"] == "timeout"


# disk_size


@pytest.mark.parametrize(
    ("operator", "value", "unit", "outcome"),
    [
        (">=", 1024, "G", Outcome.OK),
        ("=", 1, "T", Outcome.OK),
        (">", 1, "T", Outcome.BAD),
        ("<", 1048577, "M", Outcome.OK),
        ("<=", 1073741823, "K", Outcome.BAD),
    ],
)
def test_disk_size_good_and_bad(operator: str, value: float, unit: str, outcome: Outcome) -> None:
    facts = {"volumes": {"/d": volume(24 * GIB, 1000 * GIB)}}
    assert judge_disk_size(facts, DiskSizeSettings("/d", value, operator, unit), case()).outcome is outcome


def test_disk_size_unknown_where_it_does_not_answer() -> None:
    facts = {"volumes": {"/d": {"error": "timeout", "why": "no answer"}}}
    assert judge_disk_size(facts, DiskSizeSettings("/d", 1), case()).outcome is Outcome.UNKNOWN
    with pytest.raises(ConfigError, match="operator"):
        DiskSizeSettings("/d", 1, "!=").validate()
    with pytest.raises(ConfigError, match="unit"):
        DiskSizeSettings("/d", 1, "=", "P").validate()


# mounts

INFO = r"""21 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
30 21 0:25 / /data rw,relatime shared:2 - nfs4 srv:/data rw,vers=4.2
31 21 0:26 / /data2 rw,relatime - lustre 10.0.0.1@o2ib:/fs rw
32 21 259:3 / /scratch/my\040disk rw,relatime - xfs /dev/nvme1n1 rw,attr2
33 21 0:40 / /sw ro,nosuid - nfs srv:/sw ro
34 21 259:2 /var/lib /bind rw - ext4 /dev/nvme0n1p2 rw
"""
FSTAB = r"""# comment
UUID=aa   /                  ext4  errors=remount-ro 0 1
srv:/data /data/             nfs4  defaults,_netdev 0 0
/dev/nvme1n1 /scratch/my\040disk xfs defaults
UUID=bb   none               swap  sw 0 0
LABEL=x   /old               ext4  noauto 0 0
LABEL=y   /maybe             ext4  nofail 0 0
srv:/auto /auto              nfs   x-systemd.automount 0 0
/var/lib  /bind              none  bind 0 0
srv:/sw   /sw                nfs   ro 0 0
"""


def mounted(root: Path, info: str = INFO, fstab: str = FSTAB) -> Path:
    return machine(root, {"proc/self/mountinfo": info, "etc/fstab": fstab})


def test_mounts_good_with_escapes_swap_noauto_nofail_automount_and_bind(tmp_path: Path) -> None:
    verdict = run(check("mounts"), mounted(tmp_path))
    assert (verdict.outcome, verdict.why) == (Outcome.OK, "5 file systems of /etc/fstab are mounted")


def test_mounts_good_where_a_mount_point_is_a_link_and_bad_where_a_bind_is_missing(tmp_path: Path) -> None:
    root = machine(mounted(tmp_path / "a", INFO, "srv:/data /home nfs defaults\n"), {"home": "->data", "data/x": ""})
    assert run(check("mounts"), root).outcome is Outcome.OK
    assert run(check("mounted_directory"), root, MountedSettings(("/home",))).outcome is Outcome.OK
    assert run(check("mounted_directory"), root, MountedSettings(("/data/x",))).outcome is Outcome.BAD
    gone = mounted(tmp_path / "b", INFO.replace(" /bind rw", " /elsewhere rw"))
    assert run(check("mounts"), gone).why == "/bind is not mounted"


def test_mounts_bad_where_one_is_not_mounted_or_became_read_only(tmp_path: Path) -> None:
    info = INFO.replace("/scratch/my\\040disk rw", "/elsewhere rw").replace(
        "ext4 /dev/nvme0n1p2 rw,errors", "ext4 /dev/nvme0n1p2 ro,errors"
    )
    verdict = run(check("mounts"), mounted(tmp_path, info))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "/ is read-only; /scratch/my disk is not mounted")


def test_mounts_bad_data2_is_not_data(tmp_path: Path) -> None:
    info = "\n".join(line for line in INFO.splitlines() if " /data " not in line)
    assert run(check("mounts"), mounted(tmp_path, info), FstabSettings(("/data/",))).why == "/data is not mounted"


def test_mounts_good_and_unknown_by_a_list_of_the_site(tmp_path: Path) -> None:
    root = mounted(tmp_path)
    assert run(check("mounts"), root, FstabSettings(("/sw",))).outcome is Outcome.OK
    assert run(check("mounts"), root, FstabSettings(("/maybe",))).outcome is Outcome.BAD
    assert run(check("mounts"), root, FstabSettings(("/never",))).outcome is Outcome.UNKNOWN


def test_mounts_unknown_with_garbage_or_without_the_files(tmp_path: Path) -> None:
    assert run(check("mounts"), mounted(tmp_path / "a", "garbage\n")).outcome is Outcome.UNKNOWN
    assert run(check("mounts"), mounted(tmp_path / "b", INFO, "one word\n")).outcome is Outcome.UNKNOWN
    assert run(check("mounts"), machine(tmp_path / "c", {"proc/self/mountinfo": INFO})).outcome is Outcome.UNKNOWN
    assert run(check("mounts"), tmp_path / "d").outcome is Outcome.UNKNOWN


def test_the_mounts_of_this_machine_are_read() -> None:
    found = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    assert {one.point for one in found} >= {"/", "/proc"}
    parse_fstab(Path("/etc/fstab").read_text() if Path("/etc/fstab").exists() else "")


# mounted_directory


def test_mounted_directory_good_bad_and_unknown(tmp_path: Path) -> None:
    root = mounted(tmp_path)
    name = check("mounted_directory")
    assert run(name, root, MountedSettings(("/data", "/data2/", "/scratch/my disk"))).outcome is Outcome.OK
    gone = mounted(tmp_path / "b", "\n".join(line for line in INFO.splitlines() if " /data " not in line))
    assert run(name, gone, MountedSettings(("/data",))).why == "/data is not mounted"
    assert run(name, root, MountedSettings(("/data/sub",))).outcome is Outcome.BAD
    assert (
        run(name, root, MountedSettings(("/data",), kinds=("lustre", "beegfs"))).why
        == "/data is nfs4, not lustre or beegfs"
    )
    assert run(name, root, MountedSettings(("/sw",), writable=True)).why == "/sw is read-only"
    assert run(name, tmp_path / "none", MountedSettings(("/data",))).outcome is Outcome.UNKNOWN


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "ro disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], capture_output=True, check=False
    ).returncode:
        pytest.skip("nothing may be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_mounted_directory_bad_a_real_read_only_mount_is_seen(read_only: Path) -> None:
    name = check("mounted_directory")
    assert run(name, "/", MountedSettings((str(read_only),))).outcome is Outcome.OK
    assert run(name, "/", MountedSettings((str(read_only),), writable=True)).why == f"{read_only} is read-only"
    subprocess.run(["mount", "-o", "remount,rw", read_only], check=True)
    assert run(name, "/", MountedSettings((str(read_only),), writable=True)).outcome is Outcome.OK
    assert list(read_only.iterdir()) == []


def test_mounted_directory_unknown_where_a_write_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_write", lambda _path: time.sleep(3))
    verdict = run(
        check("mounted_directory"), mounted(tmp_path), MountedSettings(("/data",), writable=True), timeout_s=0.2
    )
    assert verdict.outcome is Outcome.UNKNOWN


# read_only


def test_read_only_good_bad_and_unknown(tmp_path: Path) -> None:
    assert run(check("read_only"), mounted(tmp_path / "a")).outcome is Outcome.OK
    info = INFO.replace("xfs /dev/nvme1n1 rw", "xfs /dev/nvme1n1 ro")
    root = mounted(tmp_path / "b", info)
    verdict = run(check("read_only"), root)
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "/scratch/my disk (/dev/nvme1n1) has become read-only")
    assert run(check("read_only"), root, ReadOnlySettings(("/scratch/my disk",))).outcome is Outcome.OK
    wanted = INFO.replace("my\\040disk rw", "my\\040disk ro").replace("xfs /dev/nvme1n1 rw", "xfs /dev/nvme1n1 ro")
    assert run(check("read_only"), mounted(tmp_path / "c", wanted)).outcome is Outcome.OK
    assert run(check("read_only"), tmp_path / "d").outcome is Outcome.UNKNOWN


# file_exists, directory_exists


def test_file_exists_good_bad_and_unknown(tmp_path: Path) -> None:
    root = machine(tmp_path, {"a/file": "x", "link": "->a/file", "broken": "->nowhere"})
    name = check("file_exists")
    assert run(name, root, FilesSettings(("/a/file", "/link"))).outcome is Outcome.OK
    assert run(name, root, FilesSettings(("/no",))).why == "/no is missing"
    assert run(name, root, FilesSettings(("/broken",))).outcome is Outcome.BAD
    assert run(name, root, FilesSettings(("/a",))).why == "/a is a directory"
    assert run(name, root, FilesSettings(("/no",), should_not_exist=True)).outcome is Outcome.OK
    assert run(name, root, FilesSettings(("/a/file",), should_not_exist=True)).why == "/a/file is there"
    assert run(name, root, FilesSettings(("/" + "x" * 300,))).outcome is Outcome.UNKNOWN


def test_directory_exists_good_bad_and_unknown(tmp_path: Path) -> None:
    root = machine(tmp_path, {"a/file": "x"})
    name = check("directory_exists")
    assert run(name, root, FilesSettings(("/a",))).outcome is Outcome.OK
    assert run(name, root, FilesSettings(("/a/file",))).why == "/a/file is a file"
    assert run(name, root, FilesSettings(("/a",), should_not_exist=True)).outcome is Outcome.BAD
    assert run(name, root, FilesSettings(("/" + "x" * 300,), should_not_exist=True)).outcome is Outcome.UNKNOWN


# file_count


def test_file_count_good_bad_and_unknown(tmp_path: Path) -> None:
    root = machine(tmp_path, {f"cred/bulk_{at}": "" for at in range(3)} | {"cred/other": ""})
    name = check("file_count")
    assert run(name, root, FileCountSettings("/cred", 3, "*bulk*")).outcome is Outcome.OK
    assert run(name, root, FileCountSettings("/cred", 4, "*bulk*")).why == "/cred: 3 files *bulk*, not 4"
    assert run(name, root, FileCountSettings("/none", 1)).outcome is Outcome.BAD
    assert run(name, root, FileCountSettings("/" + "x" * 300, 1)).outcome is Outcome.UNKNOWN
