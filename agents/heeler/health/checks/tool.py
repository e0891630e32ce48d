"""Tools that are truly needed, by argv and never by a shell: an answer, or the reason why there is none.

A tool stays in the process group of the probe's child, so that the runner ends it, and all that it has started, when
the probe's time is over. Its own deadline is a little earlier, to be able to say which tool did not answer.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heeler.health.model import Context, ProbeError

if TYPE_CHECKING:
    import subprocess

MOST_BYTES = 16 << 20
GRACE_S = 1.0  # for pipes that a tool's own children hold open
MARGIN_S = 0.2
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MACHINE = Path("/")
NOT_FOUND, NOT_RUN = 127, 126  # what a wrapper says when the real tool is missing or can't be started
# Variables that change what tools of Slurm print; a prolog's environment has some.
STEERING = ("SLURM_", "SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_")
KEPT = ("SLURM_CONF", "SLURM_JWT")


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool wrote, and its exit status (negative: the signal that ended it)."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """The last line of what it complained of, for a reason."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        return lines[-1][:200] if lines else "no words"

    def failed(self) -> ProbeError:
        """Return the error that stands for an exit status that is not believed."""
        words = self.said
        denied = any(
            part in words.lower() for part in ("permission denied", "not permitted", "must be root", "superuser")
        )
        return ProbeError("denied" if denied else "failed", f"{self.argv[0]} ended with {self.rc}: {words}")

    def checked(self) -> "Output":
        """Return self. Raises ProbeError for an exit status other than 0."""
        if self.rc != 0:
            raise self.failed()
        return self


def find_tool(context: Context, name: str) -> str | None:
    """Return the path of a tool; None where there is none."""
    if "/" in name:
        return name if os.access(name, os.X_OK) else None
    for folder in _path(context).split(":"):
        path = Path(folder or ".") / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def run_tool(
    context: Context, argv: Sequence[str], *, timeout_s: float | None = None, most: int = MOST_BYTES
) -> Output:
    """Run a tool and return what it said, whatever its exit status. Raises ProbeError where it did not really run."""
    import subprocess  # noqa: PLC0415 - most runs need no tool, and it takes time to import

    program = find_tool(context, argv[0])
    if program is None:
        raise ProbeError("missing", f"{argv[0]} is not installed")
    limit_s = context.timeout_s - MARGIN_S if context.timeout_s > 2 * MARGIN_S else context.timeout_s
    limit_s = min(limit_s, timeout_s) if timeout_s is not None else limit_s
    try:
        process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(context),
        )
    except PermissionError as err:
        raise ProbeError("denied", f"{argv[0]}: {err.strerror}") from None
    except (OSError, ValueError) as err:
        raise ProbeError("failed", f"{argv[0]}: {err}") from None
    try:
        stdout, stderr = _drain(process, time.monotonic() + limit_s, most)
    except TimeoutError:
        raise ProbeError("timeout", f"{argv[0]} did not answer in {limit_s:.1f} s") from None
    except OverflowError:
        raise ProbeError("unreadable", f"{argv[0]} wrote more than {most} bytes") from None
    finally:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)  # one that hangs in the kernel is left to the runner
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    rc = process.returncode
    if rc in (NOT_FOUND, NOT_RUN):
        raise ProbeError("missing", f"{argv[0]} ended with {rc}: it could not be run")
    return Output(tuple(argv), rc, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def _drain(process: "subprocess.Popen[bytes]", deadline: float, most: int) -> tuple[bytes, bytes]:
    """Read both pipes until the tool has ended. Raises TimeoutError, OverflowError."""
    import selectors  # noqa: PLC0415

    assert process.stdout is not None and process.stderr is not None, "opened with PIPE"  # noqa: PT018
    out, err = bytearray(), bytearray()
    ended = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, out)
            selector.register(process.stderr, selectors.EVENT_READ, err)
            selector.register(ended, selectors.EVENT_READ)
            over = False
            while selector.get_map():
                ready = selector.select(max(deadline - time.monotonic(), 0.0))
                if not ready and time.monotonic() >= deadline:
                    if not over:
                        raise TimeoutError
                    break
                for key, _ in ready:
                    if key.fd == ended:
                        selector.unregister(ended)
                        over, deadline = True, min(deadline, time.monotonic() + GRACE_S)
                        continue
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    key.data.extend(chunk)
                if len(out) + len(err) > most:
                    raise OverflowError
    finally:
        os.close(ended)
    process.wait()
    return bytes(out), bytes(err)


def _path(context: Context) -> str:
    """Return where tools are looked for. A prolog has no PATH, and cron one without sbin."""
    own = context.path or context.env.get("PATH", os.environ.get("PATH", ""))
    if context.root != _MACHINE and context.path:
        return own  # a folder that stands for a machine has no tools but its own
    return f"{own}:{SYSTEM_PATH}" if own else SYSTEM_PATH


def _environment(context: Context) -> dict[str, str]:
    base = context.env or os.environ
    env = {key: value for key, value in base.items() if not key.startswith(STEERING) or key in KEPT}
    # A tool may need others: those of the system stand last, also where a folder stands for the machine.
    env["PATH"] = f"{_path(context)}:{SYSTEM_PATH}"
    env["LC_ALL"] = "C"
    return env
