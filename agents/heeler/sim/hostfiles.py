"""The files of /proc that say what a simulated node's processors and memory are doing."""

from collections.abc import Iterator

CPUS = 64
HZ = 100  # of the kernel's counts of CPU time
MEMORY_KIB = 2 << 30
# Shares of user, nice, system, idle, iowait: data loaders that feed eight GPUs, and a node without a job.
TRAINING = (0.30, 0.0, 0.02, 0.67, 0.01)
IDLE = (0.005, 0.0, 0.005, 0.99, 0.0)
WAITED = 0.002  # share of the time in which something waits for a resource while a job runs


class Host:
    """Counts what a node's processors did. What is counted never falls."""

    def __init__(self, up_s: float) -> None:
        self._now_ns = 0
        self._ticks = [up_s * HZ * CPUS * share for share in IDLE]
        self._waited_us = 0.0

    def files(self, now_ns: int, *, busy: bool) -> Iterator[tuple[str, str]]:
        """Let time pass and yield (path below /proc, text)."""
        passed_ns = now_ns - self._now_ns if self._now_ns else 0
        self._now_ns = now_ns
        shares = TRAINING if busy else IDLE
        grown = passed_ns / 1e9 * HZ * CPUS
        self._ticks = [ticks + grown * share for ticks, share in zip(self._ticks, shares, strict=True)]
        self._waited_us += passed_ns / 1e3 * WAITED if busy else 0.0
        running = 1 + int(shares[0] * CPUS)
        yield "stat", self._stat(running)
        yield "loadavg", f"{running}.00 {running}.00 {running}.00 {running}/4096 4242\n"
        yield "meminfo", _memory(MEMORY_KIB // 4 if busy else MEMORY_KIB // 64)
        share = f"{WAITED * 100 if busy else 0:.2f}"
        for resource in ("cpu", "memory", "io"):
            line = f"avg10={share} avg60={share} avg300={share} total={int(self._waited_us)}"
            yield f"pressure/{resource}", f"some {line}\nfull {line}\n"

    def _stat(self, running: int) -> str:
        lines = [f"cpu  {' '.join(str(int(ticks)) for ticks in self._ticks)} 0 0 0 0 0"]
        one = " ".join(str(int(ticks) // CPUS) for ticks in self._ticks)
        lines += [f"cpu{number} {one} 0 0 0 0 0" for number in range(CPUS)]
        return "\n".join([*lines, f"procs_running {running}", "procs_blocked 0", ""])


def _memory(used_kib: int) -> str:
    cached, buffers = MEMORY_KIB // 32, MEMORY_KIB // 1024
    free = MEMORY_KIB - used_kib - cached - buffers
    lines = {
        "MemTotal": MEMORY_KIB,
        "MemFree": free,
        "MemAvailable": free + cached,
        "Buffers": buffers,
        "Cached": cached,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 64,
        "Writeback": 0,
        "SUnreclaim": MEMORY_KIB // 512,
    }
    return "".join(f"{name}: {value:>14} kB\n" for name, value in lines.items())
