"""Mounts as the kernel tells them, and as /etc/fstab wants them."""

import re
from dataclasses import dataclass

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: where, what kind, of what, and how."""

    point: str
    kind: str
    source: str
    options: tuple[str, ...]  # of this mount
    super_options: tuple[str, ...]  # of the file system

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written here."""
        return "ro" in self.options or "ro" in self.super_options


@dataclass(frozen=True, slots=True)
class Wanted:
    """A line of /etc/fstab."""

    source: str
    point: str
    kind: str
    options: tuple[str, ...]

    @property
    def must_be_mounted(self) -> bool:
        """Whether a node without it is not as its owner wants it."""
        if self.kind in ("swap", "ignore") or self.point in ("none", "swap"):
            return False
        # Those are mounted when somebody asks for them, or may be missing.
        return not {"noauto", "nofail", "x-systemd.automount", "comment=systemd.automount"} & set(self.options)


def unescape(text: str) -> str:
    r"""Undo `\040` and the like, in bytes: names need not be ASCII."""
    if "\\" not in text:
        return text
    raw = _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
    try:
        return raw.encode("latin-1").decode(errors="replace")
    except UnicodeEncodeError:
        return raw


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts of /proc/self/mountinfo in their order. Raises ValueError for a line that is none."""
    found = []
    for line in text.splitlines():
        head, dash, tail = line.partition(" - ")
        first, last = head.split(" "), tail.split(" ")
        if not dash or len(first) < 6 or len(last) < 3:
            raise ValueError(line[:200])
        found.append(
            Mount(unescape(first[4]), last[0], unescape(last[1]), tuple(first[5].split(",")), tuple(last[2].split(",")))
        )
    return found


def parse_fstab(text: str) -> list[Wanted]:
    """Return the lines of /etc/fstab. Raises ValueError for a line that is none."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 3:
            raise ValueError(line[:200])
        options = tuple(words[3].split(",")) if len(words) > 3 else ("defaults",)
        point = clean_point(unescape(words[1]))
        found.append(Wanted(unescape(words[0]), point, words[2], options))
    return found


def clean_point(path: str) -> str:
    """Return a path without a slash at its end and without doubled ones."""
    parts = [part for part in path.split("/") if part and part != "."]
    return "/" + "/".join(parts) if path.startswith("/") else path


def on_top(mounts: list[Mount]) -> dict[str, Mount]:
    """Return what is seen at each point: of several mounts on one another the last."""
    return {mount.point: mount for mount in mounts}
