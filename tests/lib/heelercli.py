"""The `heeler` command as a person runs it, on the bus of cluster ``north``."""

import os
import subprocess
import sys
from pathlib import Path

HEELER = Path(sys.executable).parent / "heeler"


def environment(url: str | None = None) -> dict[str, str]:
    """Return the environment of a person whose bus is at a URL."""
    return {**os.environ, "HEELER_CLUSTER": "north", "NO_COLOR": "1"} | ({"HEELER_NATS_URL": url} if url else {})


def heeler(*args: str, url: str | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which must have this exit status."""
    env = environment(url)
    done = subprocess.run([HEELER, *args], capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done
