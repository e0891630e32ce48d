"""A small cluster for tests of the drainer: messages as the bus would deliver them, at times of the test's choosing."""

from typing import Any

from heeler.bus import encode, subjects
from heeler.drain.settings import Policy, load_policy
from heeler.drain.step import DrainStep
from heeler.engine import Event, Inbound, Keyed, intake

S = 1_000_000_000
T0 = 1_790_000_000 * S
CLUSTER = "north"


def policy(**limits: Any) -> Policy:
    """The packaged policy with some limits changed."""
    return load_policy(limits=limits)


def xid(node: str = "n001", ts: int = T0, code: int = 79, **more: Any) -> dict[str, Any]:
    """A finding of hard evidence, just opened."""
    return {
        "v": 1,
        "cluster": CLUSTER,
        "id": f"xid-{node}-{code}",
        "kind": "xid",
        "state": "open",
        "severity": "critical",
        "confidence": 0.97,
        "entity": {"type": "gpu", "node": node, "gpu_index": 3},
        "node": node,
        "cause": "gpu_lost",
        "first_ts": ts,
        "ts": ts,
        "data_ts": ts,
        "evidence": [{"metric": "xid", "value": code}],
        "advice": "reboot",
        "summary": f"GPU 3 on {node} has fallen off the bus (XID {code})",
        "code": code,
        **more,
    }


def lag(node: str = "n002", ts: int = T0, job: str = "81234", **more: Any) -> dict[str, Any]:
    """A finding of soft evidence that has all it needs: ten minutes old, a cause, a slower job."""
    return {
        "v": 1,
        "cluster": CLUSTER,
        "id": f"gpu_lag-{node}",
        "kind": "gpu_lag",
        "state": "update",
        "severity": "warning",
        "confidence": 0.9,
        "entity": {"type": "gpu", "node": node, "gpu_index": 5},
        "node": node,
        "job_id": job,
        "cause": "thermal_slowdown",
        "first_ts": ts - 600 * S,
        "ts": ts,
        "data_ts": ts,
        "evidence": [{"metric": "sm_clock_mhz", "value": 1155.0, "peers_median": 1980.0, "deviation_ratio": -0.417}],
        "impact": {"job_slowdown_ratio": 1.6},
        "advice": "drain_after_job",
        "summary": f"GPU 5 on {node} runs at 1,155 MHz while its peers run at 1,980",
        **more,
    }


def node(name: str, ts: int = T0, state: str = "allocated", flags: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """What the Slurm feed says of a node."""
    return {
        "v": 1,
        "cluster": CLUSTER,
        "node": name,
        "ts": ts,
        "event": "changed",
        "state": state,
        "flags": list(flags),
        "partitions": ["train"],
        **more,
    }


def controller(ts: int = T0, state: str = "up", **more: Any) -> dict[str, Any]:
    """What the Slurm feed says of its sight of the controller."""
    return {
        "v": 1,
        "cluster": CLUSTER,
        "feed": "slurm",
        "ts": ts,
        "controller": state,
        "last_success_ts": ts,
        **more,
    }


def inbound(kind: str, data: dict[str, Any], ts_ns: int | None = None) -> Inbound:
    """A message as the bus delivers it, stamped at its own time unless told otherwise."""
    if kind == "Finding":
        subject = subjects.finding(data["cluster"], data["kind"], data.get("node") or "_", data["id"])
    elif kind == "NodeState":
        subject = subjects.node_state(data["cluster"], data["node"])
    elif kind == "ClusterState":
        subject = subjects.cluster_state(data["cluster"], data["feed"])
    else:
        subject = subjects.drain_action(data["cluster"], data["node"])
    return intake(subject, None, encode(kind, data), data["ts"] if ts_ns is None else ts_ns)


class Cluster:
    """A drainer's step over a cluster of nodes n001 ..., active since T0 - 100 s and settled."""

    def __init__(self, nodes: int = 100, *, dry_run: bool = True, found: Policy | None = None, **limits: Any) -> None:
        self.step = DrainStep(found or policy(**limits), dry_run=dry_run, tick_s=1.0)
        self.keyed = Keyed(self.step)
        self.events: list[Event] = []
        self.say("ClusterState", controller(T0 - 100 * S))
        for number in range(1, nodes + 1):
            self.say("NodeState", node(f"n{number:03d}", T0 - 99 * S))
        self.alive(T0)

    def say(self, kind: str, data: dict[str, Any], at: int | None = None) -> list[dict[str, Any]]:
        """Deliver a message; returns the actions that it led to."""
        return self._keep([event for _, event in self.keyed.on(inbound(kind, data, at))])

    def alive(self, ts: int) -> list[dict[str, Any]]:
        """The Slurm feed is alive at this time."""
        return self.say("ClusterState", controller(ts))

    def pass_to(self, ts: int) -> list[dict[str, Any]]:
        """Let time pass, with the Slurm feed alive to the end."""
        said = self.alive(ts)
        return said + self._keep([event for _, event in self.keyed.advance(ts)])

    def _keep(self, events: list[Event]) -> list[dict[str, Any]]:
        self.events += events
        return [dict(event.data) for event in events if not isinstance(event.data, bytes)]

    @property
    def world(self) -> Any:
        """The step's state."""
        return self.keyed.states[f"cluster:{CLUSTER}"]


def told(actions: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Node, verdict and rule of some actions."""
    return [(action["node"], action["verdict"], action["rule"]) for action in actions]
