"""Checks by a test of GPUs' memory: patterns are written and read back by a CUDA program.

The program is cuda_memtest (its output says which values came back wrong), or GCM's cudaMemTest, which only allocates
and writes. It takes memory of a GPU for itself, so it gets only GPUs that are allocated to nobody (see free_gpus.py).
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.findings import Findings
from heeler.health.checks.free_now import free_now, refuse_all_around_jobs
from heeler.health.checks.tool import Output, run_tool
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

PROGRAMS = ("cuda_memtest", "cudaMemTest")
TESTS = range(11)  # of cuda_memtest
MIB_PER_GIB = 1024
SHORT_S = 30.0  # what is over sooner may also be run in an epilog
QUICK, LONG = 1, 2  # as levels of a diagnostic
_FINISHED = re.compile(r"\bTest(\d{1,2}) finished in \d+(?:\.\d+)? seconds\s*$", re.MULTILINE)
_WRONG = re.compile(r"ERROR: \((.{1,80}?)\) (\d{1,10}) errors? found in block \d+\s*$", re.MULTILINE)
_CUDA = re.compile(r"CUDA error: (.+?), line \d+, file|error code (.+?)\)!\s*$", re.MULTILINE)
# CUDA's words for errors that the GPU itself has reported; others (no memory left, busy, no driver) prove nothing.
_HARDWARE = re.compile(r"uncorrectable|hardware stack error|nvlink error|\becc\b|contained", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MemtestSettings:
    """Which program, on which GPUs, and how much memory."""

    program: str = "cuda_memtest"  # cuda_memtest or cudaMemTest, or its path
    gpus: str = "free"  # free: those that Slurm has allocated to nobody; all: for a machine without Slurm
    memory_mib: int = 4096  # of each GPU
    tests: tuple[int, ...] = (1, 2, 7)  # of cuda_memtest, 0 to 10
    iterations: int = 10  # of its tests 0 and 10
    run_timeout_s: float = 30.0  # for all GPUs, at the same time; above 30 never in an epilog

    def validate(self) -> None:
        """Raise ConfigError for values that mean nothing."""
        faults = []
        if self.program.rpartition("/")[2] not in PROGRAMS:
            faults.append(f"program: {self.program!r}: {' or '.join(PROGRAMS)}, or a path to one")
        if self.gpus not in ("free", "all"):
            faults.append(f"gpus: {self.gpus!r}: free or all")
        if self.memory_mib < 1 or self.iterations < 1 or not self.run_timeout_s > 0:
            faults.append("memory_mib, iterations, run_timeout_s: above 0")
        if not self.tests or any(test not in TESTS for test in self.tests):
            faults.append(f"tests: {self.tests!r}: from 0 to 10")
        if faults:
            raise ConfigError("; ".join(faults))


def argv_of(settings: MemtestSettings) -> list[str]:
    """Return the command for the one GPU that the program is let see."""
    if settings.program.rpartition("/")[2] == "cudaMemTest":
        return [settings.program, "--device=0", f"--alloc_mem_gb={max(settings.memory_mib // MIB_PER_GIB, 1)}"]
    chosen = [word for test in settings.tests for word in ("--enable_test", str(test))]
    size = ["--max_num_blocks", str(settings.memory_mib)]  # a block is a MiB
    rounds = ["--num_passes", "1", "--num_iterations", str(settings.iterations)]
    return [settings.program, "--device", "0", "--disable_all", *chosen, *size, *rounds]


def parse_memtest(text: str) -> dict[str, Any]:
    """Return of a run: tests that finished, wrong values by test, what CUDA complained of, and `CUDA ... PASSED`."""
    wrong: dict[str, int] = {}
    for test, count in _WRONG.findall(text):
        wrong[test] = wrong.get(test, 0) + int(count)
    error = _CUDA.search(text)
    return {
        "finished": sorted({int(test) for test in _FINISHED.findall(text)}),
        "wrong": wrong,
        "cuda": (error[1] or error[2])[:200] if error else None,
        "passed": "CUDA memory test PASSED" in text,
    }


def read_memtest(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Run a test of memory on each GPU that is free, by scontrol show node and the driver's list of GPUs."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - few runs have this check

    settings: MemtestSettings = asked[0]
    uuids = _chosen(context, settings)
    with ThreadPoolExecutor(len(uuids)) as pool:
        return {"gpus": dict(zip(uuids, pool.map(lambda uuid: _one(context, settings, uuid), uuids), strict=True))}


def _chosen(context: Context, settings: MemtestSettings) -> list[str]:
    if settings.gpus == "free":
        return sorted(free_now(context, QUICK if settings.run_timeout_s <= SHORT_S else LONG))
    from heeler.health.gpu_map import by_driver  # noqa: PLC0415

    refuse_all_around_jobs(context.case.phase)
    if not (found := by_driver(context.root)):
        raise ProbeError("missing", "the driver lists no GPU")
    return sorted(found.values())


def _one(context: Context, settings: MemtestSettings, uuid: str) -> dict[str, Any]:
    """Return what the program said of one GPU. What a prolog's environment says of GPUs must not choose another."""
    env = {**(context.env or os.environ), "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    env.pop("NVIDIA_VISIBLE_DEVICES", None)
    try:
        done: Output = run_tool(replace(context, env=env), argv_of(settings), timeout_s=settings.run_timeout_s)
    except ProbeError as err:
        return {"rc": None, "said": f"{err.kind}: {err}", **parse_memtest("")}
    return {"rc": done.rc, "said": done.said, **parse_memtest(f"{done.stdout}\n{done.stderr}")}


def judge_gpu_memtest(facts: Any, settings: MemtestSettings, _case: Case) -> Verdict:
    """Bad: a value came back wrong, or CUDA reports an error of the hardware. Unknown: a GPU's test did not end well.

    The exit status alone proves nothing: cuda_memtest ends with 0 after it has found errors.
    """
    found = Findings()
    for uuid, one in facts["gpus"].items():
        wrong = sum(one["wrong"].values())
        if wrong:
            tests = ", ".join(one["wrong"])
            shown = Evidence("wrong_values", wrong, 0, gpu_uuid=uuid, text=tests)
            found.bad(f"{uuid}: {wrong} wrong values in {tests}", shown)
        elif one["cuda"] and _HARDWARE.search(one["cuda"]):
            found.bad(f"{uuid}: {one['cuda']}", Evidence("cuda_error", one["cuda"], gpu_uuid=uuid, text=one["said"]))
        elif why := _unfinished(one, settings):
            found.unknown(f"{uuid}: {why}", Evidence("memory_test", None, gpu_uuid=uuid, text=one["said"]))
    if not facts["gpus"]:
        return unknown("no GPU was tested")
    return found.verdict(f"{len(facts['gpus'])} GPUs, {settings.memory_mib} MiB of each: no wrong value")


def _unfinished(one: dict[str, Any], settings: MemtestSettings) -> str | None:
    """Return why a run is no evidence of good memory; None where it is."""
    if one["cuda"]:
        return f"CUDA: {one['cuda']}"
    if one["rc"] != 0:
        return one["said"] if one["rc"] is None else f"ended with {one['rc']}: {one['said']}"
    missing = sorted(set(settings.tests) - set(one["finished"]))
    if one["passed"] or not missing:
        return None
    return f"tests {', '.join(map(str, missing))} did not finish"


CHECKS = (
    Check(
        "gpu_memtest",
        "Memory of GPUs that are free keeps what is written to it.",
        Probe("gpu_memtest", read_memtest, timeout_s=60.0),
        judge_gpu_memtest,
        MemtestSettings,
        hardware=True,
    ),
)
