"""Checks of file systems: how full, how large, mounted where they should be, and what must or must not be there.

A dead server makes any look at its mount hang, so each place is looked at in a thread of its own, which is left behind
when it does not come back in time. The probe's process ends all the same.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.files import read_text
from heeler.health.checks.findings import Findings
from heeler.health.checks.mounts import Mount, clean_point, on_top, parse_fstab, parse_mountinfo
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda have, want: have > want,
    "<": lambda have, want: have < want,
    ">=": lambda have, want: have >= want,
    "<=": lambda have, want: have <= want,
    "=": lambda have, want: have == want,
}
_GONE = ("ENOENT", "ENOTDIR")


@dataclass(frozen=True, slots=True)
class DiskUsageSettings:
    """How full file systems may be."""

    volumes: tuple[str, ...] = ("/",)
    warn_percent: float = 80.0
    bad_percent: float = 85.0
    inodes: bool = True  # look at those too


@dataclass(frozen=True, slots=True)
class DiskSizeSettings:
    """How large a file system should be."""

    volume: str
    value: float
    operator: str = ">="  # >, <, =, <= or >=
    unit: str = "G"  # K, M, G or T: 1024, 1024² ...; sizes are rounded to whole units, upwards

    def validate(self) -> None:
        """Raise ConfigError for an operator or unit that does not exist."""
        if self.operator not in _COMPARE:
            raise ConfigError(f"operator: {self.operator!r}: one of {' '.join(_COMPARE)}")
        if self.unit not in _UNITS:
            raise ConfigError(f"unit: {self.unit!r}: one of {' '.join(_UNITS)}")


@dataclass(frozen=True, slots=True)
class FstabSettings:
    """What /etc/fstab wants mounted."""

    only: tuple[str, ...] = ()  # these mount points; none: all that are neither noauto nor nofail


@dataclass(frozen=True, slots=True)
class MountedSettings:
    """Directories on which a file system must be mounted."""

    directories: tuple[str, ...]
    kinds: tuple[str, ...] = ()  # of file systems, any of them; none: any kind
    writable: bool = False  # a small file is written and removed there


@dataclass(frozen=True, slots=True)
class ReadOnlySettings:
    """File systems that the kernel has made read-only after an error."""

    ignore: tuple[str, ...] = ()  # mount points


@dataclass(frozen=True, slots=True)
class FilesSettings:
    """Files that must be there."""

    paths: tuple[str, ...]
    should_not_exist: bool = False  # then they must not


@dataclass(frozen=True, slots=True)
class FileCountSettings:
    """Files of a directory, as credentials that a service has put there."""

    directory: str
    min_count: int
    pattern: str = "*"  # for their names


def at_each(context: Context, paths: Sequence[str], look: Callable[[str], Any]) -> dict[str, Any]:
    """Return what a look at each path brought: {"value"} or {"error", "why"}; `timeout` where it did not come back."""
    found: dict[str, Any] = {}
    deadline = time.monotonic() + max(context.timeout_s * 0.8, 0.05)

    def one(path: str) -> None:
        try:
            found[path] = {"value": look(path)}
        except OSError as err:
            found[path] = {"error": _code(err), "why": err.strerror or str(err)}

    threads = {path: threading.Thread(target=one, args=(path,), daemon=True) for path in dict.fromkeys(paths)}
    for thread in threads.values():
        thread.start()
    for path, thread in threads.items():
        thread.join(max(deadline - time.monotonic(), 0.0))
        if thread.is_alive():
            found[path] = {"error": "timeout", "why": f"no answer in {context.timeout_s * 0.8:.1f} s"}
    return dict(found)


def _code(err: OSError) -> str:
    names = {FileNotFoundError: "ENOENT", NotADirectoryError: "ENOTDIR", PermissionError: "EACCES"}
    return names.get(type(err), f"errno {err.errno}")


def read_usage(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Statvfs of each volume."""
    paths = [path for one in asked for path in (one.volumes if isinstance(one, DiskUsageSettings) else (one.volume,))]

    def look(path: str) -> dict[str, int]:
        found = os.statvfs(context.root / path.lstrip("/"))
        return {
            "total_bytes": found.f_blocks * found.f_frsize,
            "used_bytes": (found.f_blocks - found.f_bfree) * found.f_frsize,
            "free_bytes": found.f_bavail * found.f_frsize,
            "inodes": found.f_files,
            "free_inodes": found.f_favail,
            "used_inodes": found.f_files - found.f_ffree,
        }

    return {"volumes": at_each(context, paths, look)}


def judge_disk_usage(facts: Any, settings: DiskUsageSettings, _case: Case) -> Verdict:
    """Bad or warn: a volume, or its inodes, is fuller than the limits. A volume that is not there is bad.

    Unknown: it does not answer. Percent are those of `df`: of what users may have.
    """
    found = Findings()
    for path in settings.volumes:
        one = facts["volumes"][path]
        if "value" not in one:
            _unanswered(path, one, found)
            continue
        value = one["value"]
        shares = [("space", _percent(value["used_bytes"], value["free_bytes"]))]
        if settings.inodes:
            shares.append(("inodes", _percent(value["used_inodes"], value["free_inodes"])))
        for what, percent in shares:
            if percent is None:
                continue  # file systems without inodes of their own, as btrfs
            found.perf[f"{path}_{what}_used_percent"] = percent
            if percent > settings.warn_percent:
                over = percent > settings.bad_percent
                limit = settings.bad_percent if over else settings.warn_percent
                shown = Evidence(f"{what}_used", percent, limit, "%", device=path)
                (found.bad if over else found.warn)(f"{path}: {percent:g} % of {what} used", shown)
    return found.verdict(f"{', '.join(settings.volumes)}: not too full")


def _percent(used: int, free: int) -> float | None:
    return round(100 * used / (used + free), 1) if used + free > 0 else None


def _unanswered(path: str, one: dict[str, Any], found: Findings) -> None:
    if one["error"] in _GONE:
        found.bad(f"{path} is not there", Evidence("path", None, device=path, text=one["why"]))
    else:
        found.unknown(f"{path}: {one['why']}", Evidence("path", None, device=path, text=one["error"]))


def judge_disk_size(facts: Any, settings: DiskSizeSettings, _case: Case) -> Verdict:
    """Bad: the volume has not the size that it should have."""
    found, one = Findings(), facts["volumes"][settings.volume]
    if "value" not in one:
        _unanswered(settings.volume, one, found)
        return found.verdict("")
    size = -(-one["value"]["total_bytes"] // _UNITS[settings.unit])
    found.perf["size_bytes"] = one["value"]["total_bytes"]
    said = f"{settings.volume}: {size} {settings.unit}"
    if not _COMPARE[settings.operator](size, settings.value):
        shown = Evidence("size", size, settings.value, settings.unit, device=settings.volume)
        found.bad(f"{said}, not {settings.operator} {settings.value:g}", shown)
    return found.verdict(said)


def read_mount_table(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """/proc/self/mountinfo, /etc/fstab, and where a check wants it a small file written."""
    text = read_text(context.root / "proc/self/mountinfo")
    try:
        mounts = on_top(parse_mountinfo(text))
    except ValueError as err:
        raise ProbeError("unreadable", f"mountinfo: {str(err)!r}") from None
    fstab: list[dict[str, Any]] | str | None = None
    if any(isinstance(one, FstabSettings) for one in asked):
        fstab = _fstab(context)
    points = [one["point"] for one in fstab] if isinstance(fstab, list) else []
    points += [clean_point(path) for one in asked if isinstance(one, MountedSettings) for path in one.directories]
    places = [path for one in asked if isinstance(one, MountedSettings) and one.writable for path in one.directories]
    return {
        "mounts": {
            point: _plain(mount) for point, mount in {**mounts, **_behind_links(context, points, mounts)}.items()
        },
        "fstab": fstab,
        "written": at_each(context, places, lambda path: _write(context.root / path.lstrip("/"))) if places else {},
    }


def _behind_links(context: Context, points: Sequence[str], mounts: Mapping[str, Mount]) -> dict[str, Mount]:
    """Return the mounts of points that are links, or lie behind one: the kernel knows them by their real place."""
    root = str(context.root).rstrip("/")
    missing = [point for point in points if point not in mounts]
    real = at_each(context, missing, lambda path: os.path.realpath(f"{root}{path}").removeprefix(root) or "/")
    return {point: mounts[one["value"]] for point, one in real.items() if one.get("value") in mounts}


def _plain(mount: Mount) -> dict[str, Any]:
    mounted_ro = "ro" in mount.options
    return {"kind": mount.kind, "source": mount.source, "ro": mount.read_only, "mounted_ro": mounted_ro}


def _fstab(context: Context) -> list[dict[str, Any]] | str:
    try:
        lines = parse_fstab(read_text(context.root / "etc/fstab"))
    except ProbeError as err:
        return str(err)
    except ValueError as err:
        return f"/etc/fstab: no line of it: {str(err)!r}"
    return [
        {"point": one.point, "source": one.source, "must": one.must_be_mounted, "ro": "ro" in one.options}
        for one in lines
    ]


def _write(folder: Path) -> bool:
    import tempfile  # noqa: PLC0415 - few sites have this check

    with tempfile.NamedTemporaryFile(dir=folder, prefix=".heeler-health-") as file:
        file.write(b"heeler")
        file.flush()
    return True


def judge_fstab(facts: Any, settings: FstabSettings, _case: Case) -> Verdict:
    """Bad: /etc/fstab wants something mounted that is not, or can't be written. Swap, noauto and nofail don't count."""
    found, fstab = Findings(), facts["fstab"]
    if isinstance(fstab, str):
        return unknown(fstab)
    only = {clean_point(path) for path in settings.only}
    wanted = [one for one in fstab if (one["point"] in only if only else one["must"])]
    for one in wanted:
        mount = facts["mounts"].get(one["point"])
        if mount is None:
            found.bad(
                f"{one['point']} is not mounted", Evidence("mount", None, device=one["point"], text=one["source"])
            )
        elif mount["ro"] and not one["ro"] and mount["kind"] not in ("iso9660", "squashfs"):
            found.bad(f"{one['point']} is read-only", Evidence("mount", "ro", "rw", device=one["point"]))
    for missing in sorted(only - {one["point"] for one in fstab}):
        found.unknown(f"{missing} is not in /etc/fstab", Evidence("fstab", None, device=missing))
    return found.verdict(f"{len(wanted)} file systems of /etc/fstab are mounted")


def judge_mounted(facts: Any, settings: MountedSettings, _case: Case) -> Verdict:
    """Bad: nothing is mounted exactly there, or another kind of file system, or it can't be written.

    Unknown: a file system does not answer.
    """
    found = Findings()
    for path in settings.directories:
        mount = facts["mounts"].get(clean_point(path))
        if mount is None:
            found.bad(f"{path} is not mounted", Evidence("mount", None, device=path))
            continue
        if settings.kinds and mount["kind"] not in settings.kinds:
            shown = Evidence("mount", mount["kind"], " or ".join(settings.kinds), device=path)
            found.bad(f"{path} is {mount['kind']}, not {' or '.join(settings.kinds)}", shown)
        if settings.writable and mount["ro"]:
            found.bad(f"{path} is read-only", Evidence("mount", "ro", "rw", device=path))
        elif settings.writable:
            _judge_written(path, facts["written"][path], found)
    return found.verdict(f"{', '.join(settings.directories)}: mounted")


def _judge_written(path: str, one: dict[str, Any], found: Findings) -> None:
    if one.get("error") in ("timeout", "EACCES"):
        found.unknown(
            f"{path}: could not be written: {one['why']}", Evidence("write", None, device=path, text=one["error"])
        )
    elif "error" in one:
        found.bad(f"{path}: can't be written: {one['why']}", Evidence("write", None, device=path, text=one["error"]))


def judge_read_only(facts: Any, settings: ReadOnlySettings, _case: Case) -> Verdict:
    """Bad: the kernel has made the file system of a disk read-only, though it was mounted for writing."""
    found = Findings()
    ignore = {clean_point(path) for path in settings.ignore}
    disks = {
        point: one
        for point, one in facts["mounts"].items()
        if one["kind"] in ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs") and point not in ignore
    }
    for point, one in disks.items():
        # A mount that was asked to be read-only has `ro` of its own; after an error only the file system has.
        if one["ro"] and not one["mounted_ro"]:
            shown = Evidence("mount", "ro", "rw", device=point, text=one["source"])
            found.bad(f"{point} ({one['source']}) has become read-only", shown)
    return found.verdict(f"{len(disks)} file systems of disks, none has become read-only")


def read_paths(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Stat of each path, by its links."""
    paths = [path for one in asked for path in one.paths]

    def look(path: str) -> str:
        mode = (context.root / path.lstrip("/")).stat().st_mode
        return "directory" if stat.S_ISDIR(mode) else "file"

    return {"paths": at_each(context, paths, look)}


def judge_file_exists(facts: Any, settings: FilesSettings, _case: Case) -> Verdict:
    """Bad: a file is missing, or is a directory (with `should_not_exist`: is there). Unknown: that can't be told."""
    return _judge_paths(facts, settings, "file")


def judge_directory_exists(facts: Any, settings: FilesSettings, _case: Case) -> Verdict:
    """Bad: a directory is missing, or is none (with `should_not_exist`: is there). Unknown: that can't be told."""
    return _judge_paths(facts, settings, "directory")


def _judge_paths(facts: Any, settings: FilesSettings, kind: str) -> Verdict:
    found = Findings()
    for path in settings.paths:
        one = facts["paths"][path]
        have = one.get("value")
        if have is None and one["error"] not in _GONE:
            found.unknown(f"{path}: {one['why']}", Evidence(kind, None, device=path, text=one["error"]))
        elif settings.should_not_exist and have == kind:
            found.bad(f"{path} is there", Evidence(kind, have, device=path))
        elif not settings.should_not_exist and have != kind:
            found.bad(f"{path} is {'missing' if have is None else f'a {have}'}", Evidence(kind, have, device=path))
    there = "none is there" if settings.should_not_exist else "there"
    return found.verdict(f"{', '.join(settings.paths)}: {there}")


def read_file_count(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """List the directory."""
    paths = [one.directory for one in asked]
    return {"folders": at_each(context, paths, lambda path: sorted(os.listdir(context.root / path.lstrip("/"))))}  # noqa: PTH208


def judge_file_count(facts: Any, settings: FileCountSettings, _case: Case) -> Verdict:
    """Bad: fewer files of that name than there should be, or no such directory."""
    from fnmatch import fnmatchcase  # noqa: PLC0415 - few sites have this check

    found, one = Findings(), facts["folders"][settings.directory]
    if "value" not in one:
        _unanswered(settings.directory, one, found)
        return found.verdict("")
    count = sum(fnmatchcase(name, settings.pattern) for name in one["value"])
    found.perf["files"] = count
    said = f"{settings.directory}: {count} files {settings.pattern}"
    if count < settings.min_count:
        found.bad(
            f"{said}, not {settings.min_count}", Evidence("files", count, settings.min_count, device=settings.directory)
        )
    return found.verdict(said)


USAGE = Probe("disk_usage", read_usage, timeout_s=5.0)
MOUNTS = Probe("mounts", read_mount_table, timeout_s=5.0)
PATHS = Probe("paths", read_paths, timeout_s=5.0)
CHECKS = (
    Check("disk_usage", "File systems are not too full.", USAGE, judge_disk_usage, DiskUsageSettings),
    Check(
        "disk_size",
        "A file system has the size it should have.",
        USAGE,
        judge_disk_size,
        DiskSizeSettings,
        needs_settings=True,
    ),
    Check("mounts", "All that /etc/fstab wants is mounted.", MOUNTS, judge_fstab, FstabSettings),
    Check(
        "mounted_directory",
        "File systems are mounted on these directories.",
        MOUNTS,
        judge_mounted,
        MountedSettings,
        needs_settings=True,
    ),
    Check(
        "read_only",
        "No file system of a disk has become read-only.",
        MOUNTS,
        judge_read_only,
        ReadOnlySettings,
        hardware=True,
    ),
    Check("file_exists", "Files are there, or are not.", PATHS, judge_file_exists, FilesSettings, needs_settings=True),
    Check(
        "directory_exists",
        "Directories are there, or are not.",
        PATHS,
        judge_directory_exists,
        FilesSettings,
        needs_settings=True,
    ),
    Check(
        "file_count",
        "A directory holds as many files as it should, as credentials of a storage service.",
        Probe("file_count", read_file_count, timeout_s=5.0),
        judge_file_count,
        FileCountSettings,
        needs_settings=True,
    ),
)
