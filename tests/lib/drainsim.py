"""A whole site in memory for the drainer: Slurm, streams, a bucket, nodes that answer, an operator; and crashes.

The parts of the drainer are the real ones: the step, the actuator, what follows a drain, the checks. Everything that
they ask of the world goes through one door, `Site.io`, at which the process can be made to die before or after the
thing is done. Nothing waits, so all of it runs in one go.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from drainworld import CLUSTER, T0, S, controller, inbound, node, xid

from heeler.bus import decode, encode
from heeler.bus.claims import Claim
from heeler.drain.act import Actuator
from heeler.drain.actions import Intent, message_of
from heeler.drain.aftercare import Aftercare
from heeler.drain.backend import Done
from heeler.drain.checker import Checker
from heeler.drain.ledger import Ledger
from heeler.drain.node import NodeView
from heeler.drain.requeue import HeldJob
from heeler.drain.settings import Policy, load_policy
from heeler.drain.step import DrainStep
from heeler.engine import Event, Keyed

OURS, OPS = "heeler", "ops"
LIMITS: dict[str, Any] = {
    "settle_s": 0.0,
    "cooldown_s": 0.0,
    "retry_after_s": 0.0,
    "drained_min": 1,
    "drained_ratio": 0.0,
    "unavailable_min": 9,
    "partition_drained_min": 9,
    "attempts": 9,
}
LIFE: dict[str, Any] = {
    "undrain": True,
    "checks": ["gpu_count"],
    "check_interval_s": 0.1,
    "check_passes": 1,
    "check_attempts": 2,
    "return_attempts": 9,
}


@cache
def policy() -> Policy:
    """A policy in which hours do not matter."""
    return load_policy(limits=LIMITS, lifecycle=LIFE)


class CrashError(BaseException):
    """The process dies here."""


class BrokenError(AssertionError):
    """A law was broken."""


@dataclass
class Row:
    """A node as it is in Slurm."""

    state: str = "allocated"
    drained: bool = False
    reason: str | None = None
    user: str | None = None
    ts: int = 0
    boot: int = T0 - 3600 * S
    job: str = ""

    def view(self, name: str, now_ns: int) -> NodeView:
        return NodeView(
            name,
            self.state,
            frozenset({"DRAIN"} if self.drained else ()),
            now_ns,
            self.reason,
            self.user,
            self.ts or None,
            ("train",),
            boot_ts_ns=self.boot,
        )


@dataclass
class Site:
    """The world around the drainer, and the laws that it must keep."""

    policy: Policy
    nodes: dict[str, Row] = field(default_factory=dict)
    now: int = T0
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    actions: dict[str, dict[str, Any]] = field(default_factory=dict)
    bucket: dict[str, Claim] = field(default_factory=dict)
    answer: str = "ok"
    answered: dict[str, str] = field(default_factory=dict)  # node -> its last answer since its last trouble
    passes: dict[str, int] = field(default_factory=dict)  # node -> healthy answers in a row since then
    crash: tuple[int, bool] | None = None  # at which call, and whether the thing is done before
    calls: int = 0
    drained_for: list[str] = field(default_factory=list)
    drains: list[tuple[str, int]] = field(default_factory=list)  # node and time of each drain by us
    requeued: list[str] = field(default_factory=list)
    muted: bool = False  # detect says nothing: no finding is confirmed
    ours: dict[str, tuple[str | None, str | None, int]] = field(default_factory=dict)  # what our drain wrote
    crashed: int = 0

    def io(self, done: bool) -> None:
        """Die here, if told so."""
        if not done:
            self.calls += 1
        if self.crash == (self.calls, done):
            self.crash = None
            self.crashed += 1
            raise CrashError

    def trouble(self, node: str) -> None:
        """What a node has answered before says nothing any more."""
        self.answered.pop(node, None)
        self.passes.pop(node, None)

    # Claims.

    async def get(self, key: str) -> Claim | None:
        self.io(done=False)
        return self.bucket.get(key)

    async def set(self, key: str, value: bytes, standing: Claim | None) -> Claim | None:
        self.io(done=False)
        known = self.bucket.get(key)
        if (known.revision if known else 0) != (standing.revision if standing else 0):
            return None
        self.bucket[key] = Claim(key, value, (known.revision if known else 0) + 1)
        self.io(done=True)
        return self.bucket[key]

    async def all(self, prefix: str) -> list[Claim]:
        return [claim for key, claim in sorted(self.bucket.items()) if key.startswith(prefix)]

    # The bus.

    cluster = CLUSTER

    async def publish(self, event: Event) -> None:
        self.io(done=False)
        data = message_of(event)
        self.actions.setdefault(data["id"], decode("DrainAction", encode("DrainAction", data)))
        self.io(done=True)

    async def request(self, _subject: str, _kind: str, payload: bytes, *, timeout_s: float) -> bytes | None:
        self.io(done=False)
        asked = decode("HealthRequest", payload)
        assert timeout_s > 0
        self.answered[asked["node"]] = self.answer
        self.passes[asked["node"]] = self.passes.get(asked["node"], 0) + 1 if self.answer == "ok" else 0
        if self.answer == "silent":
            self.now += int(timeout_s * S)
            return None
        results = [{"check": check, "outcome": self.answer, "why": "so"} for check in asked["checks"]]
        run = {"v": 1, "cluster": CLUSTER, "node": asked["node"], "ts": self.now, "boot": "b", "seq": 1, "why": "so"}
        run |= {"run": asked["id"], "phase": "request", "verdict": "pass", "results": results}
        return encode("HealthRun", run)

    # Slurm.

    timeout_s = 1.0

    async def show(self, name: str, now_ns: int) -> NodeView:
        self.io(done=False)
        return self.nodes[name].view(name, now_ns)

    async def drain(self, name: str, reason: str, _deadline_s: float) -> Done:
        self.io(done=False)
        row = self.nodes[name]
        finding = reason.split(":")[2].split(" ", maxsplit=1)[0]
        if row.drained or row.reason is not None or row.state == "down":
            raise BrokenError(f"drained {name} over {row}")
        if finding in self.drained_for:
            raise BrokenError(f"drained twice for {finding}")
        if self.findings[finding]["state"] == "closed":
            raise BrokenError(f"drained for {finding}, which is closed")
        self._within_budgets(name)
        self._believable(finding)
        self.nodes[name] = replace(row, drained=True, reason=reason, user=OURS, ts=self.now // S * S)
        self.drained_for.append(finding)
        self.drains.append((name, self.now))
        self.ours[name] = (reason, OURS, self.nodes[name].ts)
        self.trouble(name)
        self.io(done=True)
        return Done()

    async def undrain(self, name: str, _deadline_s: float) -> Done:
        self.io(done=False)
        row = self.nodes[name]
        if not row.drained or (row.reason, row.user, row.ts) != self.ours.get(name):
            raise BrokenError(f"gave {name} back, which is {row}")
        if row.state != "idle":
            raise BrokenError(f"gave {name} back with jobs or down: {row}")
        if self.answered.get(name) != "ok":
            raise BrokenError(f"gave {name} back on the answer {self.answered.get(name)}")
        if self.passes.get(name, 0) < self.policy.lifecycle.check_passes:
            raise BrokenError(f"gave {name} back after {self.passes.get(name, 0)} checks")
        if any(f["node"] == name and f["state"] != "closed" for f in self.findings.values()):
            raise BrokenError(f"gave {name} back with a finding open")
        if "pause" in self.stopped:
            raise BrokenError(f"gave {name} back while paused")
        if sum(node == name for node, _ in self.drains) >= self.policy.limits.repeat_limit:
            raise BrokenError(f"gave {name} back, drained again and again")
        self.nodes[name] = replace(row, drained=False, reason=None, user=None, ts=0)
        del self.ours[name]
        self.io(done=True)
        return Done()

    def _within_budgets(self, name: str) -> None:
        limits, size = self.policy.limits, len(self.nodes)
        if sum(row.user == OURS and row.drained for row in self.nodes.values()) >= limits.most_drained(size):
            raise BrokenError("drained more nodes than the budget has")
        if sum(self.now - ts < 3600 * S for _, ts in self.drains) >= limits.hard_per_hour(size):
            raise BrokenError(f"drained more in an hour than the budget has: {self.drains}")
        if sum(node == name for node, _ in self.drains) >= limits.repeat_limit:
            raise BrokenError(f"drained {name} once more, which is a person's by now")
        if sum(row.drained or row.state == "down" for row in self.nodes.values()) > limits.most_unavailable(size):
            raise BrokenError("drained although so many are unavailable")
        if not any(row.state != "down" and not row.drained for one, row in self.nodes.items() if one != name):
            raise BrokenError(f"drained {name}, the last of its partition")

    def _believable(self, finding: str) -> None:
        if self.findings[finding]["state"] == "closed":
            raise BrokenError(f"acted on {finding}, which is closed")
        if self.now - self.findings[finding]["ts"] > self.policy.limits.confirm_within_s * S:
            raise BrokenError(f"acted on {finding}, which nobody confirms")
        if self.stopped:
            raise BrokenError(f"acted on {finding} although stopped: {self.stopped}")

    @property
    def stopped(self) -> tuple[str, ...]:
        """What stops the drainer, by what was published: pause, breaker."""
        found: dict[str, bool] = {}
        for action in self.actions.values():
            what = action.get("command") if action["verdict"] == "ordered" else action["verdict"]
            if what in ("tripped", "trip_breaker", "reset_breaker"):
                found["breaker"] = what != "reset_breaker"
            elif what in ("pause", "resume"):
                found["pause"] = what == "pause"
        return tuple(name for name, holds in found.items() if holds)

    async def jobs_on(self, name: str) -> list[HeldJob]:
        job = self.nodes[name].job
        return [self._held(job)] if job else []

    async def job(self, job_id: str) -> HeldJob | None:
        return self._held(job_id)

    def _held(self, job: str) -> HeldJob:
        state = "RUNNING" if any(row.job == job for row in self.nodes.values()) else "PENDING"
        return HeldJob(job, state, batch=True, requeueable=True, restarts=self.requeued.count(job))

    async def requeue(self, job: HeldJob, _comment: str, _deadline_s: float) -> Done:
        self.io(done=False)
        name = next((name for name, row in self.nodes.items() if row.job == job.id), "")
        row = self.nodes.get(name)
        if row is None or not row.drained or (row.reason, row.user, row.ts) != self.ours.get(name):
            raise BrokenError(f"requeued {job.id} of {name}, which is {row}")
        mine = [one for one in self.drained_for if self.findings[one].get("job_id") == job.id]
        if not mine:
            raise BrokenError(f"requeued {job.id}, for which no drain was")
        self._believable(mine[-1])
        self.requeued.append(job.id)
        self.nodes[name] = replace(row, state="idle", job="")
        self.io(done=True)
        return Done()


class LongLease:
    """A lease that lasts."""

    ttl_s, remaining_s, held = 30.0, 30.0, True


class Process:
    """One drainer, from its start to its death."""

    def __init__(self, site: Site) -> None:
        self.site = site
        step = DrainStep(site.policy, dry_run=False, actor="one", tick_s=1.0, waits_for_activation=True)
        self.step, self.keyed = step, Keyed(step)
        lease: Any = LongLease()
        door: Any = site
        ledger = Ledger(door, "one", lambda: self.world, site.publish, lambda: site.now)
        self.after = Aftercare(site.policy, door, ledger, lease, look_again_s=0.0)
        self.actuator = Actuator(site.policy, door, ledger, lease, self.after, look_again_s=0.0)
        self.checker = Checker(door, site.policy, "one", lambda: self.world, site.publish, lambda: site.now)
        self.seen: dict[str, NodeView] = {}
        self.hear()
        for finding in site.findings.values():
            self.take("Finding", finding, finding["ts"])
        for action in site.actions.values():
            self.take("DrainAction", action, action["ts"])
        run(self.actuator.resume(CLUSTER))
        self.world.activate(site.now)

    @property
    def world(self) -> Any:
        key = f"cluster:{CLUSTER}"
        if key not in self.keyed.states:
            self.keyed.states[key] = self.step.new_world(None)
        return self.keyed.states[key]

    def hear(self) -> None:
        """What the feed says: that it is alive, and each change."""
        assert self.world is not None
        self.take("ClusterState", controller(self.site.now), self.site.now)
        for name, row in self.site.nodes.items():
            view = replace(row.view(name, 0), seen_ns=0)
            if self.seen.get(name) == view:
                continue
            self.seen[name] = view
            facts = {"reason": row.reason, "reason_user": row.user, "reason_ts": row.ts or None}
            more = {key: value for key, value in facts.items() if value is not None}
            more["boot_ts"] = row.boot
            flags = ("DRAIN",) if row.drained else ()
            self.take("NodeState", node(name, self.site.now, row.state, flags, **more), self.site.now)

    def take(self, kind: str, data: dict[str, Any], at: int) -> None:
        self.handle([event for _, event in self.keyed.on(inbound(kind, data, at))])

    def settle(self) -> None:
        """Let time pass and everything happen that follows of itself."""
        quiet = 0
        for _ in range(60):
            before = (len(self.site.actions), [replace(row) for row in self.site.nodes.values()])
            self.site.now += S
            self.hear()
            for finding in list(self.site.findings.values()):
                if finding["state"] != "closed" and not self.site.muted:
                    finding.update(state="update", ts=self.site.now, data_ts=self.site.now)
                    self.take("Finding", finding, self.site.now)
            self.handle([event for _, event in self.keyed.advance(self.site.now)])
            run(self.actuator.resume(CLUSTER))
            same = before == (len(self.site.actions), list(self.site.nodes.values()))
            quiet = quiet + 1 if same else 0
            if quiet >= 3:
                return
        raise BrokenError(f"never at rest: {list(self.site.actions)[-6:]}")

    def handle(self, events: list[Event]) -> None:
        for event in events:
            data = message_of(event)
            if data["verdict"] != "approved":
                run(self.site.publish(event))
            elif data.get("step") == "check":
                run(self.checker.carry_out(event))
            else:
                run(self.actuator.carry_out(event))


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run what never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise BrokenError("something waited")


CLOSED = "closed"
Happens = Callable[[], None]
OPS_ALL = (
    *(("find", "a"), ("find", "b"), ("close", "a"), ("close", "b")),
    *(("jobs end", "n001"), ("ops drain", "n001"), ("ops resume", "n001"), ("ops drain", "n002"), ("down", "n001")),
    *(("answer", "ok"), ("answer", "bad"), ("answer", "silent")),
)


class Play:
    """A site and its drainer, to which one thing after another happens."""

    def __init__(
        self, found: Policy | None = None, where: tuple[str, str] = ("n001", "n002"), *, nodes: int = 3
    ) -> None:
        self.site = Site(found or policy(), {f"n{n:03d}": Row() for n in range(1, nodes + 1)})
        self.where = dict(zip("ab", where, strict=True))
        self.drainer: Process | None = None
        self.go(lambda: None)

    def go(self, happens: Happens) -> None:
        """Let something happen and all that follows of it; a process that dies is started again."""
        happens()
        for _ in range(4):
            try:
                if self.drainer is None:
                    self.drainer = Process(self.site)
                self.drainer.settle()
            except CrashError:
                self.drainer = None
                self.site.now += S
                continue
            return
        raise BrokenError("it does not come up")

    def rest(self) -> None:
        """Let as much time pass as an answer may take that nobody waits for any more."""
        for _ in range(2):
            self.site.now += 200 * S
            self.go(lambda: None)

    def do(self, op: tuple[str, str]) -> bool:
        """Do one thing; False where it can't be done now."""
        what, name = op
        happens = getattr(self, f"_{what.replace(' ', '_')}")(name)
        if happens is None:
            return False
        self.go(happens)
        return True

    def _find(self, name: str) -> Happens | None:
        site = self.site
        finding = xid(self.where[name], site.now + S, id=name, first_ts=site.now + S)
        return None if name in site.findings else lambda: site.findings.update({name: finding})

    def _close(self, name: str) -> Happens | None:
        site = self.site
        if name not in site.findings or site.findings[name]["state"] == CLOSED:
            return None

        def close() -> None:
            site.now += S
            site.findings[name].update(state=CLOSED, ts=site.now)
            site.trouble(site.findings[name]["node"])
            try:
                if self.drainer is not None:
                    self.drainer.take("Finding", site.findings[name], site.now)
            except CrashError:
                self.drainer = None

        return close

    def _jobs_end(self, name: str) -> Happens | None:
        return self._change(name, state="idle") if self.site.nodes[name].state == "allocated" else None

    def _down(self, name: str) -> Happens:
        return self._change(name, state="idle" if self.site.nodes[name].state == "down" else "down")

    def _ops_drain(self, name: str) -> Happens:
        # In the second of our own drain too: Slurm's times have no finer grain.
        return self._change(name, drained=True, reason="ADMIN: psu", user=OPS, ts=self.site.now // S * S)

    def _ops_resume(self, name: str) -> Happens | None:
        back = self._change(name, drained=False, reason=None, user=None, ts=0)
        return back if self.site.nodes[name].drained else None

    def _answer(self, word: str) -> Happens | None:
        return None if self.site.answer == word else lambda: setattr(self.site, "answer", word)

    def _change(self, name: str, **facts: Any) -> Happens:
        def change() -> None:
            self.site.nodes[name] = replace(self.site.nodes[name], **facts)

        return change

    def check(self) -> None:
        """The laws that hold at rest."""
        site = self.site
        for claim in site.bucket.values():
            intent = Intent.unpack(claim.value)
            if not intent.finished:
                raise BrokenError(f"nobody reports {intent}")
        if len(set(site.drained_for)) != len(site.drained_for):
            raise BrokenError(f"drained for one finding more than once: {site.drained_for}")
        for name, row in site.nodes.items():
            said = [
                a["verdict"] for a in site.actions.values() if a["node"] == name and a.get("step", "drain") == "drain"
            ]
            if row.user == OURS and "verified" not in said:
                raise BrokenError(f"{name} is drained by us, and nobody said so: {said}")

    @property
    def state(self) -> tuple[Any, ...]:
        """What there is but for the hour: two histories with the same go on in the same way."""
        site = self.site
        assert self.drainer is not None
        world = self.drainer.world
        stays = [
            (
                s.node,
                s.finding_id,
                s.held,
                tuple(sorted(s.said)),
                s.misses,
                len(s.passed_ns),
                s.giving_back,
                bool(s.empty_ns),
            )
            for s in world.stays.by_node.values()
        ]
        effects = [(e.finding_id, e.state, e.failures) for e in world.history.effects.values()]
        rows = [(name, row.state, row.drained, row.reason, row.user) for name, row in site.nodes.items()]
        ours = sorted((name, mark[0], mark[2] == site.nodes[name].ts) for name, mark in site.ours.items())
        open_ = sorted((name, finding["state"] == CLOSED) for name, finding in site.findings.items())
        return tuple(map(repr, (rows, stays, sorted(effects), open_, ours, site.answer, sorted(site.answered.items()))))


__all__ = ["OPS_ALL", "BrokenError", "Play"]
