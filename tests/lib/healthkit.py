"""What tests of health checks share: a folder that stands for a machine, tools that are scripts, a run of a check.

A check is run as the runner does it: its probe's facts go through MessagePack, so that what a child could not send home
fails here too, and a ProbeError is the outcome unknown.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack

from heeler.health.model import Case, Check, Context, Job, Phase, ProbeError, Verdict, unknown

NOW_NS = 1_764_700_000_000_000_000


def case(phase: Phase = Phase.PERIODIC, *, node: str = "node01", job: Job | None = None, now_ns: int = NOW_NS) -> Case:
    """Return what a run is about."""
    return Case(phase, node, now_ns, job)


def machine(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a root. A text that begins with -> is a link."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, str) and text.startswith("->"):
            path.symlink_to(text[2:])
        else:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def tool(folder: Path, name: str, script: str) -> Path:
    """Write a stand-in for a tool: a shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    # Written elsewhere and renamed: a fork of another test may hold the file open for writing ("text file busy").
    fresh = folder / f".{name}.{os.getpid()}"
    fresh.write_text(f"#!/bin/sh\n{script}\n")
    fresh.chmod(0o755)
    fresh.rename(path)
    return path


def prints(folder: Path, name: str, text: str, rc: int = 0) -> Path:
    """Write a tool that prints a text and ends."""
    (folder / f"{name}.out").parent.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.out").write_text(text)
    return tool(folder, name, f"cat '{folder / f'{name}.out'}'\nexit {rc}")


def check_of(checks: Sequence[Check], name: str) -> Check:
    """Return a check by its name."""
    return next(check for check in checks if check.name == name)


def run(
    check: Check,
    root: Path | str = "/",
    settings: Any = None,
    *,
    tools: Path | None = None,
    timeout_s: float = 5.0,
    about: Case | None = None,
) -> Verdict:
    """Run a check's probe and judge."""
    about = about or case(now_ns=time.time_ns())
    settings = check.settings() if settings is None else settings
    context = Context(about, Path(root), path=str(tools) if tools else None, timeout_s=timeout_s)
    try:
        facts = check.probe.read(context, [settings])
    except ProbeError as err:
        return unknown(f"could not be read: {err.kind}: {err}")
    facts = msgpack.unpackb(msgpack.packb(facts), strict_map_key=False)
    verdict = check.judge(facts, settings, about)
    assert verdict.why
    return verdict
