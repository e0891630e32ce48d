"""Bandwidth between GPUs and nodes, by nccl-tests under mpirun: one run of all, all pairs, or a ring of pairs."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.findings import Findings
from heeler.health.checks.tool import run_tool
from heeler.health.model import Case, Check, Context, Evidence, Phase, Probe, ProbeError, Verdict, unknown

OPERATIONS = ("all_gather", "all_reduce", "alltoall", "broadcast", "reduce", "reduce_scatter", "sendrecv")
MODES = ("single", "pairwise", "pairwise_quick")
_BANDWIDTH = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?(?:e[+-]?\d{1,2})?)\s*$", re.MULTILINE)
_WRONG = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s*(OK|FAILED)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """Which tests, where, and how fast they must be."""

    tests_folder: str  # of nccl-tests: all_reduce_perf ...
    critical_gbs: float  # average bus bandwidth in GB/s below which it is bad
    warn_gbs: float = 0.0  # below which it is a warning; 0: none
    operations: tuple[str, ...] = ("all_reduce",)
    mode: str = "single"  # single, pairwise (all pairs), pairwise_quick (neighbours, and the last with the first)
    hosts: str = ""  # a list of hosts as gpu[01-04]; empty: this one
    gpus_per_node: int = 8
    np: int = 0  # processes of one run; 0: gpus_per_node for each host
    nvlink: bool = False  # leave NVLink and shared memory on; without, the network is measured
    mpirun: str = "mpirun"
    mpi_options: tuple[str, ...] = ("-mca", "coll_hcoll_enable", "0", "--bind-to", "numa")
    exports: tuple[str, ...] = ("NCCL_IB_PCI_RELAXED_ORDERING=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "NCCL_DEBUG=WARN")
    options: tuple[str, ...] = ("-g", "1", "-b", "32M", "-e", "1G", "-f", "2")
    run_timeout_s: float = 300.0  # of each run

    def validate(self) -> None:
        """Raise ConfigError for an operation or mode that does not exist."""
        faults = [
            f"operations: {each!r}: one of {', '.join(OPERATIONS)}"
            for each in self.operations
            if each not in OPERATIONS
        ]
        if self.mode not in MODES:
            faults.append(f"mode: {self.mode!r}: one of {', '.join(MODES)}")
        if faults:
            raise ConfigError("; ".join(faults))


def groups_of(hosts: Sequence[str], mode: str) -> list[tuple[str, ...]]:
    """Return the hosts of each run."""
    if mode == "single" or len(hosts) < 2:
        return [tuple(hosts)]
    if mode == "pairwise":
        return list(itertools.combinations(hosts, 2))
    pairs: list[tuple[str, ...]] = list(itertools.pairwise(hosts))
    return pairs if len(hosts) == 2 else [*pairs, (hosts[-1], hosts[0])]


def argv_of(settings: NcclSettings, hosts: Sequence[str], operation: str) -> list[str]:
    """Return the command of a run."""
    slots = ",".join(f"{host}:{settings.gpus_per_node}" for host in hosts)
    exports = list(settings.exports)
    if not settings.nvlink:
        exports += ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"]
    return [
        settings.mpirun,
        *settings.mpi_options,
        *(("--host", slots) if hosts else ()),
        "-np",
        str(settings.np or settings.gpus_per_node * max(len(hosts), 1)),
        *(part for each in exports for part in ("-x", each)),
        f"{settings.tests_folder.rstrip('/')}/{operation}_perf",
        *settings.options,
    ]


def parse_run(text: str) -> dict[str, Any]:
    """Return bandwidth in GB/s and wrong values of what a test prints; None for what it does not."""
    bandwidths, wrong = _BANDWIDTH.findall(text), _WRONG.findall(text)
    return {
        "gbs": float(bandwidths[-1]) if len(bandwidths) == 1 else None,
        "wrong": int(wrong[-1][0]) if wrong else None,
    }


def read_nccl(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Mpirun of nccl-tests."""
    if context.case.phase in (Phase.PROLOG, Phase.TASK_PROLOG):
        raise ProbeError("failed", "a job begins on these GPUs")
    settings: NcclSettings = asked[0]
    runs = []
    for hosts, operation in itertools.product(groups_of(_hosts(settings.hosts), settings.mode), settings.operations):
        one: dict[str, Any] = {"operation": operation, "hosts": list(hosts)}
        try:
            done = run_tool(context, argv_of(settings, hosts, operation), timeout_s=settings.run_timeout_s)
            one |= {"rc": done.rc, "said": done.said, **parse_run(done.stdout)}
        except ProbeError as err:
            one |= {"rc": None, "said": str(err), "gbs": None, "wrong": None}
        runs.append(one)
    return {"runs": runs}


def _hosts(text: str) -> list[str]:
    if not text:
        return []
    from heeler.slurm.errors import ParseError  # noqa: PLC0415 - few runs have this check
    from heeler.slurm.hostlist import expand  # noqa: PLC0415

    try:
        return list(expand(text))
    except ParseError as err:
        raise ProbeError("failed", f"hosts: {err}") from None


def judge_nccl(facts: Any, settings: NcclSettings, _case: Case) -> Verdict:
    """Bad: a run is slower than the limit, or computed wrong values. Warn: below the higher limit.

    Unknown: it could not run, or printed no bandwidth. Each run is told.
    """
    found = Findings()
    for one in facts["runs"]:
        where = f"{one['operation']} {' '.join(one['hosts'])}".strip()
        gbs = one["gbs"]
        shown = Evidence("bus_bandwidth", gbs, settings.critical_gbs, "GB/s", device=where, text=one["said"])
        if one["wrong"]:
            found.bad(f"{where}: {one['wrong']} wrong values", Evidence("wrong_values", one["wrong"], 0, device=where))
        if one["rc"] != 0 or gbs is None:
            why = f"ended with {one['rc']}: {one['said']}" if one["rc"] is not None else one["said"]
            found.unknown(f"{where}: {why if one['rc'] != 0 else 'no bandwidth printed'}", shown)
            continue
        found.perf[f"{where.replace(' ', '_')}_gbs"] = gbs
        if gbs < settings.critical_gbs:
            found.bad(f"{where}: {gbs:g} GB/s", shown)
        elif gbs < settings.warn_gbs:
            found.warn(f"{where}: {gbs:g} GB/s", shown)
    if not facts["runs"]:
        return unknown("nothing was run")
    return found.verdict(
        f"{len(facts['runs'])} runs, the slowest {min(one['gbs'] or 0 for one in facts['runs']):g} GB/s"
    )


CHECKS = (
    Check(
        "nccl",
        "Collectives between GPUs are as fast as they should be.",
        Probe("nccl", read_nccl, timeout_s=600.0),
        judge_nccl,
        NcclSettings,
        needs_settings=True,
    ),
)
