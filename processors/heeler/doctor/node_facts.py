"""This node, read for the doctor."""

import contextlib
import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heeler.bus import ConfigError
from heeler.doctor.node import HOOKS, Cache, NodeFacts, Nvml, Outbox, Rules, Script
from heeler.health.breaker import read_breaker
from heeler.health.policy import Policy
from heeler.health.run import load_site
from heeler.slurm.nodes import Node

NS = 1_000_000_000
NVML_S = 10.0
ADMIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/heeler/bin"
PROGRAMS = ("heeler-agent", "heeler-health")
UNSET = ("", "(null)", "none")
OUTBOX, CACHES = Path("/var/spool/heeler/outbox"), Path("/run/heeler")

COUNT = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where this node keeps what heeler-health reads and writes; None: where its policy says."""

    policy: Path
    outbox: Path | None = None
    caches: Path | None = None


def read(name: str, config: Mapping[str, str], nodes: Sequence[Node] | None, paths: Paths) -> NodeFacts:
    """Read everything. `config` and `nodes` are Slurm's, as far as they are known."""
    rules, site = read_policy(paths.policy, name)
    outbox = paths.outbox or (site.outbox if site else OUTBOX)
    caches = paths.caches or (site.cache if site else CACHES)
    path = f"{os.environ.get('PATH', '')}:{ADMIN_PATH}"
    own = [node for node in nodes or () if node.name == name]
    return NodeFacts(
        name=name,
        programs={program: shutil.which(program, path=path) for program in PROGRAMS},
        scripts={hook: read_scripts(setting_of(config, hook)) for hook in HOOKS} if config else {},
        nvml=read_nvml(),
        gres_gpus=own[0].gpus_total if own else None,
        outbox=read_outbox(outbox, time.time_ns()),
        caches=[read_cache(caches / f"{one}.json", time.time_ns()) for one in ("breaker", "node")],
        policy=rules,
        breaker=read_breaker(caches / "breaker.json", time.time_ns()),
    )


def read_policy(path: Path, node: str) -> tuple[Rules, Policy | None]:
    """Return what heeler-health would make of its policy, and the policy where it can be used."""
    try:
        site = load_site(path, node)
    except ConfigError as err:
        return Rules(str(path), faults=str(err).split("; ")), None
    enforced = [
        f"{check} ({', '.join(sorted(rule.enforce))})"
        for check, rule in sorted(site.rules.items())
        if rule.enforce and rule.enabled
    ]
    shown = str(path) if path.exists() else f"{path} (not there: defaults)"
    return Rules(shown, enforced), site


def setting_of(config: Mapping[str, str], name: str) -> str:
    """Return a setting that may be a list: newer versions show `Prolog[0]`, `Prolog[1]` ..."""
    return ",".join(value for key, value in config.items() if key.partition("[")[0] == name)


def read_scripts(setting: str) -> list[Script]:
    """Return the scripts of a setting: one, several between commas, or a pattern."""
    found: list[Script] = []
    for part in setting.split(","):
        name = part.strip()
        if name.lower() in UNSET:
            continue
        found += [read_script(Path(path)) for path in sorted(glob.glob(name)) or [name]]  # noqa: PTH207
    return found


def read_script(path: Path) -> Script:
    """Return a script: what it says, and who may change it."""
    try:
        real = path.resolve(strict=True)
        state = real.stat()
    except OSError:
        return Script(str(path), exists=False)
    text = ""
    with contextlib.suppress(OSError):
        text = real.read_text(errors="replace")[: 1 << 16]
    executable = stat.S_ISREG(state.st_mode) and bool(state.st_mode & stat.S_IXUSR)
    writable = tuple(str(one) for one in (real, *real.parents) if _others_may_change(one))
    return Script(str(path), True, executable, state.st_uid, writable, text)


def _others_may_change(path: Path) -> bool:
    state = path.stat()
    # In a folder with the sticky bit, such as /tmp, nobody can replace a file of another.
    sticky = stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_ISVTX
    group = state.st_mode & stat.S_IWGRP and state.st_gid != 0
    return not sticky and bool(group or state.st_mode & stat.S_IWOTH or state.st_uid != 0)


def read_nvml(timeout_s: float = NVML_S) -> Nvml:
    """Count GPUs in a process of its own, which may hang in the driver: then it is left behind."""
    process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
        [sys.executable, "-c", COUNT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        return Nvml(error=f"no answer in {timeout_s:g} s: the driver hangs")
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    text = out.decode(errors="replace").strip()
    if process.returncode != 0 or not text.isdigit():
        lines = err.decode(errors="replace").strip().splitlines()
        return Nvml(error=lines[-1] if lines else f"exit status {process.returncode}")
    return Nvml(int(text))


def read_outbox(path: Path, now_ns: int) -> Outbox:
    """Return how many messages wait, and for how long. Their names begin with their time."""
    try:
        names = [name for name in os.listdir(path) if name.endswith(".msg") and not name.startswith(".")]  # noqa: PTH208
    except OSError as err:
        return Outbox(str(path), error=err.strerror or str(err))
    times = [int(name.partition("-")[0]) for name in names if name.partition("-")[0].isdigit()]
    oldest_s = (now_ns - min(times)) / NS if times else None
    return Outbox(str(path), len(names), oldest_s)


def read_cache(path: Path, now_ns: int) -> Cache:
    """Return how old a cache file is, by what stands in it."""
    name = f"{path.stem} cache"
    try:
        ts_ns = json.loads(path.read_bytes())["ts_ns"]
        age_s = (now_ns - ts_ns) / NS
    except OSError as err:
        return Cache(name, str(path), error=err.strerror or str(err))
    except (ValueError, KeyError, TypeError):
        return Cache(name, str(path), error="not what heeler-health writes")
    return Cache(name, str(path), age_s)
