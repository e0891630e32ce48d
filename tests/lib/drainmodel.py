"""A cluster as it is, beside the drainer's picture of it: what the drainer was allowed to do, and did."""

from dataclasses import dataclass, field
from typing import Any

from drainworld import T0, Cluster, S, controller, lag, node, xid
from hypothesis import strategies as st

HOUR, DAY = 3600 * S, 86_400 * S

NODES = st.integers(1, 6)
FRESH = ("fault", "lag")  # a new finding, the likeliest thing to lead to a drain
OPS = st.one_of(
    *[st.tuples(st.just(what), NODES) for what in FRESH * 2],
    st.tuples(st.just("wait"), st.sampled_from([S, 45 * S, 130 * S, 20 * 60 * S, 2 * HOUR, 25 * HOUR])),
    st.tuples(st.just("older"), st.integers(0, 5), st.sampled_from(["update", "closed"])),
    st.tuples(st.just("late"), NODES, st.sampled_from([121, 600, 7200])),
    st.tuples(st.just("again"), st.integers(0, 20)),
    st.tuples(st.just("operator"), NODES, st.sampled_from(["drains", "resumes", "resumes", "downs", "reserves"])),
    st.tuples(st.just("controller"), st.sampled_from(["up", "up", "down"])),
    st.tuples(st.just("restart")),
)
# The packaged budgets, and ones that leave the others room to bind.
LIMITS: list[dict[str, Any]] = [{}, {"drained_ratio": 1.0}, {"drained_ratio": 1.0, "unavailable_ratio": 1.0}]


@dataclass
class Model:
    """The cluster as it is, and what the drainer was allowed to do to it."""

    size: int
    dry_run: bool
    limits: dict[str, Any]
    now: int = T0
    cluster: Cluster = field(init=False)
    said: list[tuple[str, dict[str, Any], int]] = field(default_factory=list)
    truth: dict[str, tuple[str, tuple[str, ...], str | None]] = field(default_factory=dict)
    drains: list[dict[str, Any]] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)
    up: bool = True

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.size, dry_run=self.dry_run, **self.limits)
        self.truth = {f"n{n:03d}": ("allocated", (), None) for n in range(1, self.size + 1)}

    def say(self, kind: str, data: dict[str, Any], at: int | None = None) -> None:
        self.now = max(self.now + 1, at or 0)
        if self.up:
            self.check(self.cluster.say("ClusterState", controller(self.now)))
        if kind == "Finding" and data["ts"] > max(self.open.get(data["id"], 0), 0) and self.now - data["ts"] < 120 * S:
            if data["state"] == "closed":
                self.open.pop(data["id"], None)
            else:
                self.open[data["id"]] = data["ts"]
        self.said.append((kind, data, self.now))
        self.check(self.cluster.say(kind, data, self.now))

    def set(self, name: str, state: str, flags: tuple[str, ...] = (), reason: str | None = None) -> None:
        self.truth[name] = (state, flags, reason)
        self.say("NodeState", node(name, self.now, state, flags, reason=reason, reason_user="x" if reason else None))

    def wait(self, span: int) -> None:
        self.now += span
        said = self.cluster.pass_to(self.now) if self.up else self.cluster._keep(self._tick())
        self.check(said)

    def _tick(self) -> list[Any]:
        return [event for _, event in self.cluster.keyed.advance(self.now)]

    def check(self, actions: list[dict[str, Any]]) -> None:
        acts = ("proposed",) if self.dry_run else ("approved",)
        assert {a["verdict"] for a in actions} <= {*acts, "refused", "tripped"}
        for action in actions:
            if action["verdict"] in acts:
                self.judge(action)
        for action in [a for a in actions if a["verdict"] == "approved"]:
            self.set(action["node"], "allocated", ("DRAIN",), action["reason"])

    def judge(self, action: dict[str, Any]) -> None:
        name, ts = action["node"], action["ts"]
        assert self.truth[name] == ("allocated", (), None), "touched a node that is not in plain service"
        assert self.up or ts - action["finding_ts"] <= 120 * S
        assert action["finding_id"] in self.open, "acted on a finding that is closed, late or unknown"
        assert ts - action["finding_ts"] <= 120 * S, "acted on a finding that nobody confirmed"
        assert action["finding_id"] not in {d["finding_id"] for d in self.drains}, "acted twice on one finding"
        past = self.drains
        hard = action["rule"] == "hard_evidence"
        same = [d for d in past if (d["rule"] == "hard_evidence") == hard and ts - d["ts"] < HOUR]
        assert len(same) < 3
        if not hard:
            job = [d for d in past if d["rule"] != "hard_evidence" and d["job_id"] == action["job_id"]]
            assert all(ts - d["ts"] >= 1800 * S for d in job)
        here = [d["ts"] for d in past if d["node"] == name]
        assert all(ts - when >= DAY for when in here)
        assert len([when for when in here if ts - when < 7 * DAY]) < 2
        gone = {n for n, (state, flags, _) in self.truth.items() if state == "down" or "DRAIN" in flags}
        assert len(gone) <= max(2, self.limits.get("unavailable_ratio", 0.1) * self.size)
        ours = {
            n for n, (_, flags, reason) in self.truth.items() if "DRAIN" in flags and (reason or "")[:7] == "heeler:"
        }
        assert len(ours) < max(1, int(self.limits.get("drained_ratio", 0.02) * self.size))
        others = [n for n, (state, flags, _) in self.truth.items() if n != name and not flags and state == "allocated"]
        assert others, "took the last node of the partition"
        self.drains.append(action)

    def do(self, op: tuple[Any, ...]) -> None:
        match op:
            case ("wait", span):
                self.wait(span)
            case ("fault", n):
                self.say("Finding", xid(self.name(n), self.now, id=f"x{len(self.said)}"))
            case ("lag", n):
                self.say("Finding", lag(self.name(n), self.now, job=f"j{n % 2}", id=f"l{len(self.said)}"))
            case ("older", back, state) if self.findings:
                known = self.findings[-1 - back % len(self.findings)]
                self.say("Finding", {**known, "ts": self.now, "data_ts": self.now, "state": state})
            case ("late", n, gap_s):
                self.say("Finding", xid(self.name(n), self.now - gap_s * S, id=f"late{n}"))
            case ("again", back) if self.findings:
                self.say("Finding", self.findings[-1 - back % len(self.findings)])
            case ("operator", n, deed):
                self.operate(self.name(n), deed)
            case ("controller", state):
                self.up = state == "up"
                self.say("ClusterState", controller(self.now, state))
            case ("restart",):
                self.restart()

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [data for kind, data, _ in self.said if kind == "Finding"]

    def operate(self, name: str, deed: str) -> None:
        if deed == "drains":
            self.set(name, "idle", ("DRAIN",), "ADMIN: psu swap")
        elif deed == "resumes":
            self.set(name, "allocated")
        elif deed == "downs":
            self.set(name, "down", (), "Not responding")
        else:
            self.set(name, "allocated", ("RESERVED",))

    def name(self, n: int) -> str:
        return f"n{1 + n % self.size:03d}"

    def restart(self) -> None:
        """A new instance reads the streams: the last word on each subject, and the drainer's own history."""
        old = self.cluster
        self.cluster = Cluster(0, dry_run=self.dry_run, **self.limits)
        self.cluster.world.active_ns = None
        last = {
            (kind, d["node"] if kind == "NodeState" else d["id"]): (kind, d, at)
            for kind, d, at in self.said
            if kind in ("NodeState", "Finding")
        }
        for n in range(1, self.size + 1):
            self.cluster.say("NodeState", node(f"n{n:03d}", T0 - 99 * S), T0 - 99 * S)
        for kind, data, at in last.values():
            assert self.cluster.say(kind, data, at) == []
        self.cluster.events = old.events
        for event in old.events:
            assert not isinstance(event.data, bytes)
            assert self.cluster.say("DrainAction", dict(event.data)) == []
        self.now += S
        self.cluster.keyed.now_ns = max(self.cluster.keyed.now_ns, self.now)
        self.cluster.world.activate(self.now)
