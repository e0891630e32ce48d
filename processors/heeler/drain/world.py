"""What the drainer knows when it decides: open cases, nodes, Slurm's controller, its own past."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.drain.fleet import Fleet
from heeler.drain.hand import Hand
from heeler.drain.history import Effect, History
from heeler.drain.incidents import Incidents
from heeler.drain.prolog_breaker import Breaker
from heeler.drain.stay import Stays

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Case:
    """An open finding that asks for a drain. Times but ``finding``'s own are the bus server's."""

    finding: Mapping[str, Any]
    node: str
    confirmed_ns: int
    onset_ns: int
    confirmations: int = 0  # messages about it since this instance is active
    data_lag_ns: int = 0  # how old its data were when we first heard of them

    @property
    def id(self) -> str:
        """The finding's id."""
        return str(self.finding["id"])


@dataclass(slots=True)
class Controller:
    """What the Slurm feeds say of the controller: for each, the newest answer."""

    feeds: dict[str, tuple[Mapping[str, Any], int]] = field(default_factory=dict)

    def put(self, message: Mapping[str, Any], ts_ns: int) -> None:
        """Take in a ClusterState; an older one than is known is dropped."""
        known = self.feeds.get(message["feed"])
        if known is None or message["ts"] >= known[0]["ts"]:
            self.feeds[message["feed"]] = (message, ts_ns)

    def trouble(self, now_ns: int, max_age_s: float) -> str | None:
        """Return why Slurm's state is not known now, or None if one feed knows it."""
        if not self.feeds:
            return "no Slurm feed has said anything"
        return min((_trouble(*known, now_ns, max_age_s) for known in self.feeds.values()), key=len) or None


def _trouble(message: Mapping[str, Any], ts_ns: int, now_ns: int, max_age_s: float) -> str:
    feed = message["feed"]
    if message["controller"] != "up":
        return f"feed {feed!r} says the controller is {message['controller']}"
    # How old the knowledge was when the feed spoke, plus how long ago that was: no two clocks are compared.
    age_s = (now_ns - ts_ns + max(0, message["ts"] - message.get("last_success_ts", message["ts"]))) / SECOND_NS
    if age_s > max_age_s:
        return f"feed {feed!r} has known nothing new for {age_s:.0f} s (at most {max_age_s:g} s)"
    return ""


@dataclass(slots=True)
class World:
    """Everything one decision looks at, besides the finding itself."""

    dry_run: bool
    fleet: Fleet = field(default_factory=Fleet)
    history: History = field(default_factory=History)
    hand: Hand = field(default_factory=Hand)
    prologs: Breaker | None = None  # the breaker of prologs, which the shell keeps
    stays: Stays = field(default_factory=Stays)
    controller: Controller = field(default_factory=Controller)
    cases: dict[str, Case] = field(default_factory=dict)
    incidents: Incidents = field(default_factory=Incidents)
    closed: dict[str, int] = field(default_factory=dict)  # finding id: time of its closing, by its own clock
    ended: dict[str, int] = field(default_factory=dict)  # node: when the last finding ended that asked for something
    hard_onsets: dict[str, tuple[int, str]] = field(default_factory=dict)  # finding id: onset, node; closed ones too
    active_ns: int | None = None  # since when this instance may act
    pruned_ns: int = 0

    def __post_init__(self) -> None:
        self.stays.dry_run = self.dry_run

    def take(self, action: Mapping[str, Any], ts_ns: int) -> None:
        """Take in a DrainAction, ours or another instance's. The same one twice changes nothing."""
        self.history.apply(action, ts_ns)
        self.stays.apply(action, ts_ns)
        self.hand.apply(action)

    def retract(self, action: Mapping[str, Any], now_ns: int) -> None:
        """Undo an action that was taken in here but never went out."""
        self.history.retract(action, now_ns)
        self.stays.retract(action)

    def activate(self, now_ns: int) -> None:
        """Begin to act: nothing said before counts as confirmed."""
        self.active_ns = now_ns
        for case in self.cases.values():
            case.confirmations = 0

    def standing(self, now_ns: int, grace_ns: int, forget_ns: int) -> list[Effect]:
        """Return the drains that stand now: real ones as Slurm shows them, proposed ones while the finding is open.

        A real one counts until Slurm, after showing it or well after it was made, shows the node without a drain.
        """
        found = []
        for effect in self.history.counted(dry_run=self.dry_run):
            if effect.state != "standing":
                continue
            if effect.dry_run:
                if effect.finding_id in self.cases and now_ns - effect.ts_ns < forget_ns:
                    found.append(effect)
                continue
            view = self.fleet.nodes.get(effect.node)
            shown = view is not None and (effect.seen or view.seen_ns > effect.ts_ns + grace_ns)
            if view is None or view.draining or not shown:
                found.append(effect)
        return found

    def failing_together(self, onset_ns: int, window_ns: int, enough: int) -> int:
        """Return the most nodes with hard evidence that began within one window that holds this onset.

        Stops counting once a window has more than ``enough``.
        """
        near = sorted(item for item in self.hard_onsets.values() if abs(item[0] - onset_ns) <= window_ns)
        times = [when for when, _ in near]
        most = 0
        for first, when in enumerate(times):
            if when > onset_ns or most > enough:
                break
            if when + window_ns >= onset_ns:
                last = bisect_left(times, when + window_ns + 1)
                most = max(most, len({node for _, node in near[first:last]}))
        return most
