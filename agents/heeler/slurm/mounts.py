"""What is mounted: /proc/self/mountinfo. Reading it touches no file system, so that none can hang it."""

import re
from dataclasses import dataclass

from heeler.slurm.errors import ParseError

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo."""

    mount_id: int
    parent_id: int
    device: str
    root: str
    mount_point: str
    options: tuple[str, ...]
    optional_fields: tuple[str, ...]
    fs_type: str
    source: str
    super_options: tuple[str, ...]


def parse_mountinfo(text: str) -> tuple[list[Mount], list[ParseError]]:
    """Return all mounts, and an error for each line that is none."""
    mounts: list[Mount] = []
    errors: list[ParseError] = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            mounts.append(_mount(line))
        except (ValueError, IndexError):
            errors.append(ParseError("not a mount", line))
    return mounts, errors


def _mount(line: str) -> Mount:
    before, separator, after = line.partition(" - ")
    words, rest = before.split(" "), after.split(" ")
    # A source may be empty, and old kernels leave nothing for it.
    if not separator or len(rest) < 2:
        raise ValueError(line)
    return Mount(
        mount_id=int(words[0]),
        parent_id=int(words[1]),
        device=_device(words[2]),
        root=unescape(words[3]),
        mount_point=unescape(words[4]),
        options=tuple(words[5].split(",")),
        optional_fields=tuple(word for word in words[6:] if word),
        fs_type=rest[0],
        source=unescape(rest[1]),
        super_options=tuple(rest[2].split(",")) if len(rest) > 2 and rest[2] else (),
    )


def _device(text: str) -> str:
    major, _, minor = text.partition(":")
    return f"{int(major)}:{int(minor)}"


def unescape(text: str) -> str:
    r"""Return a path as it is: the kernel writes spaces, tabs, newlines and backslashes as ``\040`` and so on."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def newest_at(mounts: list[Mount]) -> list[Mount]:
    """Return the mount that is seen at each place: the last one there covers those below it."""
    seen = {mount.mount_point: mount for mount in mounts}
    return list(seen.values())


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount on which an absolute path lies, by its name alone."""
    best: Mount | None = None
    for mount in newest_at(mounts):
        at = mount.mount_point.rstrip("/")
        inside = path == mount.mount_point or path.startswith(f"{at}/")
        if inside and (best is None or len(mount.mount_point) > len(best.mount_point)):
            best = mount
    return best
