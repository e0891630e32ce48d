"""What the rules of a node share: its jobs, its boot, its GPUs, and what Slurm says of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Flags under which a node may be silent or lose its links without a fault.
QUIET_FLAGS = frozenset(
    (
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_UP",
        "POWER_DRAIN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "REBOOT_CANCELED",
        "NOT_RESPONDING",
        "MAINTENANCE",
        "MAINT",
        "FUTURE",
        "DYNAMIC_FUTURE",
    )
)
QUIET_STATES = frozenset(("down", "error", "future"))
KEEP_JOBS = 512
RESUMED = "the node was put back into service"


def is_quiet(state: Mapping[str, Any]) -> bool:
    """Say whether Slurm knows the node to be away, so that its silence is no news."""
    return state.get("event") == "gone" or state["state"] in QUIET_STATES or not QUIET_FLAGS.isdisjoint(state["flags"])


@dataclass(slots=True)
class NodeContext:
    """Facts about one node; nothing here is ever said."""

    name: str
    jobs: dict[str, int] = field(default_factory=dict)  # running job: when it was last said
    ended: dict[str, int] = field(default_factory=dict)  # job: when it was said to have ended
    users: dict[str, str] = field(default_factory=dict)  # whose a job is or was, of the newest jobs
    boot: str = ""
    boot_seen_ns: int = 0  # server time of the newest message of this boot
    uuid_of_pci: dict[str, str] = field(default_factory=dict)
    index_of_uuid: dict[str, int] = field(default_factory=dict)
    pci_of_uuid: dict[str, str] = field(default_factory=dict)
    state_ts: int = 0
    quiet: bool = False
    drained: bool | None = None
    touched_ns: int = 0

    def job_event(self, event: Mapping[str, Any]) -> None:
        """Learn that a job runs here, or no longer."""
        job, ts = event["job_id"], event["ts"]
        if event.get("user"):
            self.users.pop(job, None)
            self.users[job] = event["user"]
            if len(self.users) > KEEP_JOBS:
                del self.users[next(iter(self.users))]
        if ts < max(self.ended.get(job, 0), self.jobs.get(job, 0)):
            return
        if event["event"] == "ended" or self.name not in event["nodes"]:
            self.jobs.pop(job, None)
            self.ended[job] = ts
            while len(self.ended) > KEEP_JOBS:
                del self.ended[next(iter(self.ended))]
        else:
            self.ended.pop(job, None)
            self.jobs[job] = ts

    def running(self) -> list[str]:
        """Return the jobs on the node, sorted."""
        return sorted(self.jobs)

    def inventory(self, gpus: list[dict[str, Any]]) -> None:
        """Learn which GPUs the node has."""
        for gpu in gpus:
            uuid = gpu["uuid"]
            if "pci" in gpu:
                self.uuid_of_pci[gpu["pci"]] = uuid
                self.pci_of_uuid[uuid] = gpu["pci"]
            if gpu.get("index") is not None:
                self.index_of_uuid[uuid] = gpu["index"]

    def booted(self, boot: str, server_ns: int) -> bool | None:
        """Learn a boot id: True when the node was rebooted, False when nothing changed, None for an older boot."""
        if not boot or boot == self.boot:
            self.boot_seen_ns = max(self.boot_seen_ns, server_ns)
            return False
        if server_ns < self.boot_seen_ns:
            return None
        before, self.boot, self.boot_seen_ns = self.boot, boot, server_ns
        return bool(before)

    def node_state(self, state: Mapping[str, Any]) -> bool:
        """Learn what Slurm says; True when someone has just put a drained node back into service."""
        if state["ts"] < self.state_ts:
            return False
        self.state_ts = state["ts"]
        self.quiet = is_quiet(state)
        if state["state"] == "unknown":
            return False
        before, self.drained = self.drained, "DRAIN" in state["flags"]
        return before is True and not self.drained
