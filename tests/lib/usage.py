"""What a process has used."""

import os
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int, what: str = "VmRSS") -> float:
    """Return the resident memory of a process, MiB.

    RssAnon is the part that is not the program itself, VmHWM the most that it ever was.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) / 1024
