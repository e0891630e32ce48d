"""Node agents that say nothing any more. One state for the cluster: only there is it plain who is silent alone.

When many fall silent at once it is the bus, a network or this detector that was cut off, and no agent is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from heeler.detect.findings import SECOND_NS, Book, Draft, duration
from heeler.detect.node_context import is_quiet
from heeler.detect.thresholds import AgentThresholds
from heeler.engine import NOTHING, Event, Inbound

KIND = "agent_silent"
ALL = "agent_silent|all"


@dataclass(slots=True)
class Agent:
    """One node's agent."""

    heard_ns: int = 0
    interval_ns: int = 0
    patience_ns: int = 0  # silence that is none yet
    quiet: bool = False  # Slurm knows the node to be away
    awake_ns: int = 0  # since when it does not
    state_ts: int = 0

    @property
    def since_ns(self) -> int:
        """Since when it could have been heard and was not."""
        return max(self.heard_ns, self.awake_ns)


class AgentSilent:
    """The agents of a cluster."""

    def __init__(self, t: AgentThresholds) -> None:
        self.t = t
        self.agents: dict[str, Agent] = {}
        self.heard_ns = 0  # newest message of all: whether the stream itself is alive
        self.mass_s = 0.0  # for how long many have been missing while the stream was alive
        self.mass_ns = 0  # when many were missing last
        self.last_tick_ns = 0

    def on(self, message: Inbound) -> Sequence[Event]:
        """Take a message in."""
        if message.kind == "Finding":
            return NOTHING
        data = message.data
        agent = self.agents.get(data["node"])
        if message.kind == "NodeState":
            if agent is not None or is_quiet(data):
                agent = agent or self.agents.setdefault(data["node"], Agent(patience_ns=self._patience_ns(0)))
                if data["ts"] >= agent.state_ts:
                    was, agent.quiet, agent.state_ts = agent.quiet, is_quiet(data), data["ts"]
                    agent.awake_ns = message.ts_ns if was and not agent.quiet else agent.awake_ns
            return NOTHING
        if agent is None:
            agent = self.agents[data["node"]] = Agent()
            agent.patience_ns = self._patience_ns(0)
        agent.heard_ns = max(agent.heard_ns, message.ts_ns)
        self.heard_ns = max(self.heard_ns, message.ts_ns)
        interval = data.get("interval_ns") if message.kind == "AgentStatus" else None
        if interval and interval != agent.interval_ns:
            agent.interval_ns, agent.patience_ns = interval, self._patience_ns(interval)
        return NOTHING

    def tick(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Look who is silent."""
        watched, missing = self._look(book, now_ns)
        events: list[Event] = []
        if missing or book.all:
            events += self._mass(book, missing, watched, now_ns)
        for node in missing:
            agent = self.agents[node]
            # After an outage they come back one by one: nobody is named until all had the time.
            if now_ns - max(agent.since_ns, self.mass_ns) > agent.patience_ns:
                events += self._say(book, node, now_ns)
        events += self._back(book, now_ns)
        self.last_tick_ns = now_ns
        return events

    def _look(self, book: Book, now_ns: int) -> tuple[int, list[str]]:
        """Return how many agents should be heard, and who of them has been missing for a while."""
        missing, old, watched = [], [], 0
        for node, agent in self.agents.items():
            # Those that one outage cuts off fall silent up to an interval apart: half the patience sees them all.
            silent_ns = now_ns - agent.heard_ns
            watched += agent.heard_ns > 0 and not agent.quiet
            if silent_ns <= agent.patience_ns // 2:
                continue
            if agent.heard_ns and not agent.quiet and now_ns - agent.awake_ns > agent.patience_ns // 2:
                missing.append(node)
            if min(silent_ns, now_ns - agent.state_ts) >= self.t.forget_s * SECOND_NS:
                old.append(node)
        for node in old:
            if not book.get(f"{KIND}|{node}"):
                del self.agents[node]
        return watched, [node for node in missing if node in self.agents]

    def _patience_ns(self, interval_ns: int) -> int:
        interval_ns = interval_ns or int(self.t.default_interval_s * SECOND_NS)
        return max(int(self.t.silent_after_s * SECOND_NS), int(self.t.silent_intervals * interval_ns))

    def _mass(self, book: Book, silent: Sequence[str], known: int, now_ns: int) -> list[Event]:
        """Count how long too many have been silent while the stream itself was alive."""
        if len(silent) <= max(self.t.mass_agents, self.t.mass_share * known):
            self.mass_s = 0.0
            return list(book.close(ALL, now_ns, "the agents are heard again"))
        passed_s = (now_ns - self.last_tick_ns) / SECOND_NS if self.last_tick_ns else 0.0
        alive = now_ns - self.heard_ns <= self.t.default_interval_s * SECOND_NS
        self.mass_s += passed_s if alive else 0.0
        self.mass_ns = now_ns
        if self.mass_s < self.t.silent_after_s and not book.get(ALL):
            return []
        first = now_ns - int(self.mass_s * SECOND_NS)
        known_open = book.get(ALL)
        first = known_open.first_ts if known_open is not None else first
        shown = ", ".join(sorted(silent)[:10])
        return list(
            book.report(
                Draft(
                    kind=KIND,
                    ident="all",
                    entity={"type": "agent"},
                    severity="warning",
                    confidence=0.7,
                    advice="person",
                    cause="many_silent",
                    summary=f"{len(silent)} of {known} node agents are silent at once: the bus or a network.",
                    first_ts=first,
                    data_ts=now_ns,
                    evidence=[
                        {"metric": "agents_silent", "value": len(silent), "unit": "1", "peers": known, "text": shown}
                    ],
                ),
                now_ns,
            )
        )

    def _say(self, book: Book, node: str, now_ns: int) -> Sequence[Event]:
        agent, known = self.agents[node], book.get(f"{KIND}|{node}")
        silent_ns = now_ns - agent.heard_ns
        return book.report(
            Draft(
                kind=KIND,
                ident=node,
                entity={"type": "agent", "node": node},
                severity="warning",
                confidence=0.8,
                advice="observe",
                cause="silent",
                summary=f"The agent on {node} has said nothing for {duration(silent_ns)}.",
                first_ts=known.first_ts if known is not None else agent.since_ns,
                data_ts=now_ns,
                evidence=[{"metric": "silent_s", "value": round(silent_ns / SECOND_NS, 1), "unit": "s"}],
            ),
            now_ns,
        )

    def _back(self, book: Book, now_ns: int) -> list[Event]:
        events: list[Event] = []
        for found in book.of_kind(KIND):
            node = found.message["entity"].get("node")
            if node is None:
                continue
            agent = self.agents.get(node)
            if agent is None:
                # Read back, but nothing of that node has been read: it waits a day like any other.
                if now_ns - found.message.get("data_ts", found.first_ts) > self.t.forget_s * SECOND_NS:
                    events += book.close(found.key, now_ns, "the node is not known any more")
            elif agent.quiet:
                events += book.close(found.key, now_ns, "Slurm knows the node to be away")
            elif agent.heard_ns > found.first_ts and now_ns - agent.heard_ns <= agent.patience_ns:
                events += book.close(found.key, now_ns, "the agent is heard again")
        return events
