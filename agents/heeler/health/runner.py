"""Runs probes side by side, each in a child of its own, and ends each at its deadline with all that it has started.

The parent reads pipes and nothing else, so a driver that hangs, a dead mount or a tool that never returns costs no more
than its deadline. A child that waits in the kernel can't be killed: it is left behind, and said so.
"""

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import msgpack

from heeler.health.model import Context, Probe, ProbeError, Unread

MAX_FACTS_BYTES = 16 << 20
GRACE_S = 0.3  # for a killed child to be gone
_CHUNK = 1 << 18


@dataclass(slots=True)
class _Child:
    probe: Probe
    pid: int
    pipe: int
    deadline: float
    data: bytearray = field(default_factory=bytearray)
    over: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """What a probe brought, and how long that took."""

    facts: Any  # Unread where it could not be read
    duration_ns: int


def run_probes(asked: Mapping[str, tuple[Probe, Sequence[Any]]], context: Context, deadline: float) -> dict[str, Read]:
    """Return what each probe read. `asked`: name -> probe and the settings of its checks; `deadline`: monotonic, s.

    Never raises for what a probe does. Call it from a process with one thread: it forks.
    """
    started = time.monotonic_ns()
    for library in {probe.library for probe, _ in asked.values() if probe.library}:
        with contextlib.suppress(ImportError):  # the probe says so, which knows what it means
            import_module(library)
    found: dict[str, Read] = {}
    children: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        for name, (probe, settings) in asked.items():
            try:
                child = _start(probe, settings, context, deadline, list(children))
            except OSError as err:
                found[name] = Read(Unread("failed", f"no child for it: {err.strerror}"), 0)
                continue
            children[child.pipe] = child
            selector.register(child.pipe, selectors.EVENT_READ, name)
        while children:
            now = time.monotonic()
            wait_s = max(0.0, min(child.deadline for child in children.values()) - now)
            for key, _ in selector.select(wait_s):
                _receive(children[key.fd])
            for pipe, child in list(children.items()):
                if child.over or time.monotonic() >= child.deadline:
                    selector.unregister(pipe)
                    del children[pipe]
                    found[child.probe.name] = Read(_end(child), time.monotonic_ns() - started)
    return found


def _start(probe: Probe, settings: Sequence[Any], context: Context, deadline: float, others: Sequence[int]) -> _Child:
    reader, writer = os.pipe()
    now = time.monotonic()
    ends = min(now + min(probe.timeout_s, context.timeout_s), deadline)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _be_child(probe, settings, replace(context, timeout_s=max(ends - now, 0.0)), writer, (reader, *others))
    os.close(writer)
    os.set_blocking(reader, False)
    return _Child(probe, pid, reader, ends)


def _be_child(probe: Probe, settings: Sequence[Any], context: Context, writer: int, foreign: Sequence[int]) -> NoReturn:
    """Read, write the facts, end. Nothing of the parent is touched: neither its pipes nor its exit handlers."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        for pipe in foreign:
            os.close(pipe)
        # slurmd waits until nobody holds the pipes of a prolog: a child that is left behind must not.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        _write(writer, _answer(probe, settings, context))
    finally:
        os._exit(0)


def _answer(probe: Probe, settings: Sequence[Any], context: Context) -> bytes:
    try:
        packed: bytes = msgpack.packb({"facts": probe.read(context, settings)})
    except ProbeError as err:
        return bytes(msgpack.packb({"unread": [err.kind, str(err)[:500]]}))
    except BaseException as err:  # noqa: BLE001 - whatever it is, the parent is told
        return bytes(msgpack.packb({"unread": ["failed", f"{type(err).__name__}: {err}"[:500]]}))
    if len(packed) > MAX_FACTS_BYTES:
        return bytes(msgpack.packb({"unread": ["unreadable", f"more than {MAX_FACTS_BYTES} bytes"]}))
    return packed


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]
    os.close(pipe)


def _receive(child: _Child) -> None:
    with contextlib.suppress(BlockingIOError):
        chunk = os.read(child.pipe, _CHUNK)
        child.data += chunk
        child.over = not chunk or len(child.data) > 2 * MAX_FACTS_BYTES


def _end(child: _Child) -> Any:
    """Kill what is left of a child's group, reap it, and return its facts."""
    os.close(child.pipe)
    if not child.over:
        state = _waits_in(child.pid)
    for kill in (os.killpg, os.kill):  # the second where it has not even come to make its group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child.pid, signal.SIGKILL)
    gone = _reaped(child.pid)
    if child.over:
        return _facts(bytes(child.data))
    took = f"no answer in {child.probe.timeout_s:g} s" if gone else "it can't be killed"
    return Unread("timeout" if gone else "hung", f"{took}{state}")


def _reaped(pid: int) -> bool:
    until = time.monotonic() + GRACE_S
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.002)


def _waits_in(pid: int) -> str:
    """Return where a process waits in the kernel, in words; empty where that can't be read."""
    with contextlib.suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        channel = Path(f"/proc/{pid}/wchan").read_text().strip("0\n ")
        return f" (state {state}{', waits in ' + channel if channel else ''})"
    return ""


def _facts(data: bytes) -> Any:
    try:
        value = msgpack.unpackb(data, strict_map_key=False)
        if "unread" in value:
            kind, why = value["unread"]
            return Unread(kind, why)
        return value["facts"]
    except Exception:  # noqa: BLE001 - a child that was killed from outside may leave anything
        return Unread("failed", "it ended without an answer")
