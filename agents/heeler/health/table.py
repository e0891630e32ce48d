"""The table of checks: one line each. A family of checks is a module with its probes, its judges and its CHECKS."""

from collections.abc import Mapping, Sequence

from heeler.health import gpu_checks, gpu_processes, uptime
from heeler.health.checks import (
    access,
    cpu,
    dcgm,
    drives,
    infiniband,
    ipmi,
    kernel_log,
    memory,
    memtest,
    nccl,
    pcie,
    process,
    slurm,
    software,
    storage,
    xid,
)
from heeler.health.model import Check, Phase
from heeler.health.policy import Profile

CHECKS: tuple[Check, ...] = (
    *uptime.CHECKS,
    *gpu_processes.CHECKS,
    *gpu_checks.CHECKS,
    *xid.CHECKS,
    *kernel_log.CHECKS,
    *process.CHECKS,
    *cpu.CHECKS,
    *memory.CHECKS,
    *infiniband.CHECKS,
    *pcie.CHECKS,
    *storage.CHECKS,
    *software.CHECKS,
    *slurm.CHECKS,
    *access.CHECKS,
    *drives.CHECKS,
    *ipmi.CHECKS,
    *dcgm.CHECKS,
    *memtest.CHECKS,
    *nccl.CHECKS,
)

# What is asked of GPUs before a job gets them. It says nothing of a GPU at rest that only holds under load.
GPU = (
    "gpu_reachable",
    "gpu_recovery_action",
    "gpu_xid",
    "gpu_ecc_uncorrected",
    "gpu_row_remap_failed",
    "gpu_row_remap_pending",
    "gpu_retired_pages",
    "gpu_pcie",
    "gpu_nvlink",
    "gpu_fabric",
)
HEALTHY = (
    *GPU,
    "gpu_ecc_corrected",
    "gpu_row_remap",
    "gpu_nvlink_errors",
    "gpu_temperature",
    "gpu_clock_events",
    "gpu_persistence",
    "gpu_vbios",
    "uptime",
)
# The rest of the node, by checks that mean something without settings and on any hardware.
NODE = ("fabric_manager", "mounts", "read_only")
WHOLE_NODE = (
    *NODE,
    "io_errors",
    "mce",
    "pcie_aer",
    "link_flaps",
    "oom",
    "nvme",
    "cpu_online",
    "disk_usage",
    "zombies",
    "dstate",
)
# What each phase runs where the policy says nothing else.
PROFILES: Mapping[str, Profile] = {
    Phase.PROLOG.value: Profile(("gpu_leftover_processes", *GPU, *NODE), 20.0),
    Phase.EPILOG.value: Profile(("gpu_leftover_processes", "gpu_memory_returned", *GPU, *NODE), 30.0),
    Phase.TASK_PROLOG.value: Profile((), 10.0),
    Phase.PERIODIC.value: Profile((*HEALTHY, *WHOLE_NODE), 60.0),
    Phase.NAGIOS.value: Profile((*HEALTHY, *WHOLE_NODE), 60.0),
    Phase.APP.value: Profile((*HEALTHY, *WHOLE_NODE), 60.0),
    Phase.REQUEST.value: Profile((*HEALTHY, *WHOLE_NODE), 60.0),
}
PLUGINS = "heeler.health.checks"


def all_checks(plugins: Sequence[str]) -> tuple[tuple[Check, ...], list[str]]:
    """Return our checks and those of the plug-ins that the policy names, and what is wrong with plug-ins.

    A plug-in is an entry point of the group `heeler.health.checks` that gives a sequence of Check.
    """
    if not plugins:
        return CHECKS, []
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and few have plug-ins

    known = {point.name: point for point in entry_points(group=PLUGINS)}
    found = {check.name: check for check in CHECKS}
    faults: list[str] = []
    for name in plugins:
        if name not in known:
            faults.append(f"plugins: no entry point {name!r} in {PLUGINS}")
            continue
        try:
            more = tuple(known[name].load())
        except Exception as err:  # noqa: BLE001 - somebody else's code
            faults.append(f"plugins: {name}: {type(err).__name__}: {err}")
            continue
        for check in more:
            if not isinstance(check, Check) or check.name in found:
                faults.append(f"plugins: {name}: not a check, or its name is taken: {check!r:.100}")
            else:
                found[check.name] = check
    return tuple(found.values()), faults
