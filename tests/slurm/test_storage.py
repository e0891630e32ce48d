"""File systems: which are asked, what they say, and one that hangs, which is real: a FUSE that nobody serves."""

import asyncio
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heeler.bus.tables import check_columns
from heeler.bus.tables_gen import TABLES
from heeler.slurm import storage
from heeler.slurm.clients import Clients
from heeler.slurm.collect import Table
from heeler.slurm.errors import OutageError
from heeler.slurm.mounts import mount_of, parse_mountinfo, unescape
from heeler.slurm.settings import SlurmSettings, StorageSettings

INFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
36 35 98:0 /sub\040dir /mnt/my\040data rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue
40 35 0:50 / /scratch rw - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch rw,flock
41 35 0:51 / /scratch/fast rw - nfs4 srv:/fast ro
42 35 0:52 / /scratch ro - tmpfs tmpfs ro
43 35 0:53 / /odd\134name\011x ro - tmpfs  ro
"""


def asked(mounts: str, *patterns: str, **links: str) -> list[storage.Asked]:
    found, errors = parse_mountinfo(mounts)
    assert errors == []
    return storage.choose(found, patterns, links)


async def collect(clients: Clients) -> Table:
    table = await storage.collect(clients)
    check_columns(TABLES["storage"], table.columns, table.rows)
    return table


def clients(**changes: Any) -> Clients:
    return Clients(SlurmSettings(storage=StorageSettings(**changes)))


def test_a_line_of_mountinfo_is_read_whole() -> None:
    mount = parse_mountinfo(INFO)[0][1]
    assert (mount.mount_id, mount.parent_id, mount.device) == (36, 35, "98:0")
    assert (mount.root, mount.mount_point) == ("/sub dir", "/mnt/my data")
    assert (mount.options, mount.optional_fields) == (("rw", "noatime"), ("master:1", "shared:7"))
    assert (mount.fs_type, mount.source, mount.super_options) == ("ext3", "/dev/root", ("rw", "errors=continue"))


def test_spaces_tabs_and_backslashes_of_paths_are_octal() -> None:
    assert unescape(r"/a\040b\011c\134d\012") == "/a b\tc\\d\n"
    odd = parse_mountinfo(INFO)[0][-1]
    assert (odd.mount_point, odd.source) == ("/odd\\name\tx", "")


def test_a_line_that_is_none_is_counted_and_the_others_are_read() -> None:
    mounts, errors = parse_mountinfo(INFO + "44 35 nonsense\n\n45 x 0:1 / / rw - a b c\n")
    assert len(mounts) == 6
    assert ["nonsense" in str(errors[0]), "45 x" in str(errors[1])] == [True, True]


def test_patterns_match_the_whole_place_and_the_last_mount_there_counts() -> None:
    (found,) = asked(INFO, "/scratch")
    assert (found.path, found.mount and found.mount.fs_type) == ("/scratch", "tmpfs")
    assert [one.path for one in asked(INFO, "/scratch.*", "/scratch", "/mnt/.*")] == [
        "/scratch",
        "/scratch/fast",
        "/mnt/my data",
    ]
    assert asked(INFO, "scratch") == []


def test_the_mount_of_a_path_is_the_deepest_above_it() -> None:
    mounts, _ = parse_mountinfo(INFO)
    found = mount_of("/scratch/fast/x", mounts)
    assert found is not None
    assert found.source == "srv:/fast"
    beside = mount_of("/scratch/fastest", mounts)
    assert beside is not None
    assert beside.mount_point == "/scratch"


async def test_what_is_mounted_here_has_its_sizes() -> None:
    table = await collect(clients(mounts=("/", "/proc")))
    rows = {
        path: dict(zip(table.columns, values, strict=True))
        for path, values in zip(table.columns["path"], zip(*table.columns.values(), strict=True), strict=True)
    }
    root, said = rows["/"], os.statvfs("/")
    assert root["why"] is None
    assert root["total_bytes"] == said.f_blocks * said.f_frsize
    assert root["fragment_size_bytes"] == said.f_frsize
    assert root["available_bytes"] <= root["free_bytes"] <= root["total_bytes"]
    assert root["name_max"] == said.f_namemax
    assert rows["/proc"]["fs_type"] == "proc"


async def test_links_of_a_folder_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/proc")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "file").touch()
    table = await collect(clients(links=str(tmp_path)))
    assert table.columns["path"] == [str(tmp_path / "data"), str(tmp_path / "gone")]
    assert table.columns["fs_type"][0] == "proc"
    data, gone = table.columns["why"]
    assert data is None
    assert "errno 2" in gone
    assert table.columns["total_bytes"][1] is None, "and not 0"


async def test_no_mountinfo_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(OutageError, match="storage"):
        await storage.collect(clients(mounts=("/",), mountinfo=str(tmp_path / "none")))


def test_a_number_that_wrapped_around_is_not_known() -> None:
    found = dict.fromkeys(storage.NAMES, 4096) | {"f_bavail": (1 << 64) - 5, "f_files": (1 << 64) - 1}
    row = storage.row_of(storage.Asked("/x", "/x", None), found, None)
    assert (row["available_bytes"], row["files"], row["free_bytes"]) == (None, None, 4096 * 4096)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A mount whose server never answers: whoever asks it waits in the kernel."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and FUSE")
    place = tmp_path / "hangs"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"nobody", str(place).encode(), b"fuse", 0, options) != 0:
        os.close(device)
        pytest.skip(f"FUSE can't be mounted: {os.strerror(ctypes.get_errno())}")
    yield place
    libc.umount2(str(place).encode(), 2)
    os.close(device)


async def test_a_mount_that_hangs_holds_up_no_other_and_says_so(hanging: Path) -> None:
    some = clients(mounts=(str(hanging), "/"), timeout_s=1.0)
    started = time.monotonic()
    table = await asyncio.wait_for(collect(some), 30)
    took = time.monotonic() - started
    at = table.columns["path"].index(str(hanging))
    assert table.columns["why"][at] == "no answer in 1 s"
    assert table.columns["total_bytes"][at] is None
    assert table.columns["fs_type"][at] == "fuse"
    assert table.columns["total_bytes"][1 - at]
    assert took >= 1.0, "it did hang"


async def test_a_reader_that_no_signal_ends_is_left_and_not_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in the kernel that ignores SIGKILL can't be made here: one that is only told to stop stands for it."""
    readers = storage.Readers()
    monkeypatch.setattr(storage, "PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr(subprocess.Popen, "send_signal", lambda *_: None)
    assert readers.read("/x", 0.2) == (None, "no answer in 0.2 s")
    stuck = readers._stuck["/x"][0]
    assert (readers.read("/x", 0.2)[1] or "").startswith("hangs since")
    assert readers._stuck["/x"][0] is stuck
    monkeypatch.undo()
    stuck.kill()
    stuck.wait()
    assert readers.read("/", 20)[1] is None
    found, why = readers.read("/x", 20)
    assert found is None
    assert "errno 2" in (why or ""), "asked again once the old one has ended"
