"""A GPU node made of text: builds the fake NVML library and writes the scenario it follows.

    fake = FakeNvml(tmp_path)
    fake.write("gpus 4\\nall busy")
    fake.set(2, "power_w", 412)
    subprocess.run(command, env=os.environ | fake.env())

`nvml/README.md` describes the scenario's language.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "nvml"
LIBRARY = "libnvidia-ml.so.1"
VARIABLE = "HEELER_FAKE_NVML"

# The library looks at the file at most every 5 ms; after this much every later call sees what was written.
SETTLE_S = 0.006


def missing_tool() -> str | None:
    """Why the library can't be built here, in one line, or None."""
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            return f"the fake NVML library needs {tool}"
    return None


@functools.cache
def build(out: Path = SOURCE / "build", *, hide: tuple[str, ...] = ()) -> Path:
    """Build the library once per process; `hide` leaves symbols out, as an older driver would."""
    command = ["make", "-s", "-C", str(SOURCE), f"OUT={out}", f"HIDE={' '.join(hide)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the fake NVML library doesn't build: {done.stderr.strip()}")
    return out / LIBRARY


class FakeNvml:
    """One fake node: a library and the scenario file in `directory`."""

    def __init__(self, directory: Path, *, hide: tuple[str, ...] = ()) -> None:
        self.library = build(directory / "nvml-build", hide=hide) if hide else build()
        self.path = directory / "nvml.scenario"
        self._base: list[str] = []
        self._set: dict[tuple[str, str], str] = {}
        self.write("")

    def write(self, text: str) -> None:
        """Start over with this scenario; what `set` and `add` said before is gone."""
        self._base = text.splitlines()
        self._set = {}
        self._save()

    def set(self, gpu: int | str, field: str, value: object = "") -> None:
        """Say one thing about GPU `3`, MIG device `"2/0"` or `"all"`, in place of what was said last."""
        self._set[str(gpu), field] = f"{gpu} {field} {value}".rstrip()
        self._save()

    def unset(self, gpu: int | str, field: str) -> None:
        """Take back what `set` said; nothing happens if it said nothing."""
        self._set.pop((str(gpu), field), None)
        self._save()

    def add(self, *lines: str) -> None:
        """Append lines, for what may be said several times: processes, events, hangs."""
        self._base.extend(lines)
        self._save()

    def clear(self) -> None:
        """Go back to eight idle, healthy GPUs."""
        self.write("")

    def env(self) -> dict[str, str]:
        """The variables that make a process load this library and follow this scenario."""
        path = os.environ.get("LD_LIBRARY_PATH")
        folder = str(self.library.parent)
        return {"LD_LIBRARY_PATH": f"{folder}:{path}" if path else folder, VARIABLE: str(self.path)}

    def _save(self) -> None:
        """Replace the file in one step, its time exact, so that no rewrite looks like the one before."""
        new = self.path.with_suffix(".new")
        new.write_text("\n".join([*self._base, *self._set.values(), ""]))
        now = time.time_ns()
        os.utime(new, ns=(now, now))
        new.replace(self.path)
        time.sleep(SETTLE_S)
