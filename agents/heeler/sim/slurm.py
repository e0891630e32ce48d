"""The Slurm feed of a simulated cluster: what `heeler-slurm` would publish about jobs and nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from heeler.bus import subjects
from heeler.sim.fleet import GPUS_PER_NODE, Fleet
from heeler.sim.jobs import Job, Schedule
from heeler.sim.messages import Message
from heeler.sim.outgoing import Outgoing
from heeler.sim.units import NS_PER_S

FEED = "sim"
PARTITION = "gpu"
STATE_EVERY_NS = 10 * NS_PER_S
REFRESH_NS = 3600 * NS_PER_S


@dataclass(slots=True)
class SlurmFeed:
    """Publishes every job and node at first, then what changed, and every ten seconds that it is alive."""

    fleet: Fleet
    schedule: Schedule
    _jobs: dict[str, Job] = field(default_factory=dict)
    _states: dict[int, Message] = field(default_factory=dict)
    _next_state_ns: int = 0
    _next_refresh_ns: int = 0

    def poll(self, now_ns: int) -> Iterator[Outgoing]:
        """Yield what a poll of the controller at this time would make known."""
        running = {job.id: job for job in self.schedule.active(now_ns)}
        refresh = now_ns >= self._next_refresh_ns
        if refresh:
            self._next_refresh_ns = now_ns + REFRESH_NS
        for job_id, job in self._jobs.items():
            if job_id not in running:
                yield self._job(job, "ended", now_ns)
        for job_id, job in running.items():
            if job_id not in self._jobs:
                yield self._job(job, "started", now_ns)
            elif refresh:
                yield self._job(job, "changed", now_ns)
        self._jobs = running
        yield from self._nodes(running, now_ns, refresh=refresh)
        if now_ns >= self._next_state_ns:
            self._next_state_ns = now_ns + STATE_EVERY_NS
            yield self._cluster(now_ns)

    def _job(self, job: Job, event: str, now_ns: int) -> Outgoing:
        message = job_event(self.fleet, job, event, now_ns, self.schedule.killed.get(job.id))
        subject = subjects.job_event(self.fleet.cluster, job.id)
        moment = message.get("end_ts") if event == "ended" else now_ns
        return Outgoing(now_ns, "JobEvent", subject, message, f"JobEvent/{job.id}/{event}/{moment}")

    def _nodes(self, running: dict[str, Job], now_ns: int, *, refresh: bool) -> Iterator[Outgoing]:
        used: dict[int, int] = {}
        for job in running.values():
            for node in job.nodes:
                used[node] = used.get(node, 0) + len(job.gpus)
        for node in range(len(self.fleet.nodes)):
            facts = _node_facts(used.get(node, 0))
            before = self._states.get(node)
            if before == facts and not refresh:
                continue
            self._states[node] = facts
            name = self.fleet.nodes[node].name
            message = {
                "v": 1,
                "cluster": self.fleet.cluster,
                "node": name,
                "ts": now_ns,
                "event": "seen" if before is None else "changed",
                **facts,
            }
            subject = subjects.node_state(self.fleet.cluster, name)
            yield Outgoing(now_ns, "NodeState", subject, message, f"NodeState/{name}/{now_ns}")

    def _cluster(self, now_ns: int) -> Outgoing:
        message: Message = {
            "v": 1,
            "cluster": self.fleet.cluster,
            "feed": FEED,
            "ts": now_ns,
            "controller": "up",
            "last_success_ts": now_ns,
            "jobs": len(self._jobs),
            "nodes": len(self.fleet.nodes),
            "source": "simulated",
            "duration_ns": 40_000_000,
        }
        subject = subjects.cluster_state(self.fleet.cluster, FEED)
        return Outgoing(now_ns, "ClusterState", subject, message, f"ClusterState/{FEED}/{now_ns}")


def _node_facts(gpus_used: int) -> Message:
    state = "idle" if not gpus_used else "allocated" if gpus_used >= GPUS_PER_NODE else "mixed"
    return {
        "state": state,
        "flags": [],
        "unknown_flags": [],
        "available": True,
        "partitions": [PARTITION],
        "gres": f"gpu:h100:{GPUS_PER_NODE}",
        "gres_used": f"gpu:h100:{gpus_used}",
        "gpus_total": GPUS_PER_NODE,
        "gpus_used": gpus_used,
    }


def job_event(fleet: Fleet, job: Job, event: str, now_ns: int, killed_ns: int | None = None) -> Message:
    """Return the JobEvent of a job, its GPUs as the minors that Slurm's IDX means."""
    names = [fleet.nodes[node].name for node in job.nodes]
    gpus = {fleet.nodes[node].name: sorted(fleet.nodes[node].minors[gpu] for gpu in job.gpus) for node in job.nodes}
    message: Message = {
        "v": 1,
        "cluster": fleet.cluster,
        "ts": now_ns,
        "event": event,
        "job_id": job.id,
        "user": job.user,
        "account": job.account,
        "partition": PARTITION,
        "qos": "normal",
        "name": job.name,
        "state": "RUNNING",
        "submit_ts": job.start_ns - 60 * NS_PER_S,
        "start_ts": job.start_ns,
        "restarts": 0,
        "nodes": names,
        "gpus": gpus,
        "gpus_source": "slurm_index",
        "gpus_per_node": len(job.gpus),
        "exclusive": job.whole_nodes,
        "requeueable": True,
        "batch": True,
    }
    if event == "ended":
        message["state"] = "FAILED" if killed_ns is not None else "COMPLETED"
        message["end_ts"] = killed_ns if killed_ns is not None else job.end_ns or now_ns
    return message
