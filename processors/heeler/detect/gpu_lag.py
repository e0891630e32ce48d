"""The lagging GPU: when a job may be judged at all, and how long something must stand out before it is said.

State is bounded: some windows of flags for each GPU of the job, some levels of the job itself. All of it follows
from the last `memory_s` of samples, so a cold start ends where a warm instance stands.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heeler.detect.bad_ports import BadPorts
from heeler.detect.causes import OF_CLOCK
from heeler.detect.findings import SECOND_NS, Book, Draft, Open
from heeler.detect.history import ALERT, FED, LEAST_WINDOWS, LINKED, PHYSICAL, STRONG, History
from heeler.detect.judge import Judged, Verdict, judge, nothing_odd
from heeler.detect.lag_words import Mass, gpu_draft, job_draft, node_draft
from heeler.detect.own_past import look_back
from heeler.detect.pace import Pace, words
from heeler.detect.peers import middle
from heeler.detect.thresholds import LagThresholds, PaceThresholds
from heeler.detect.traits import Traits, Usual
from heeler.detect.windows import (
    CLOCK,
    GEN,
    GEN_MAX,
    MEMORY,
    POWER,
    SM,
    TENSOR,
    UTIL,
    WIDTH,
    WIDTH_MAX,
    Floats,
    Windows,
    mend,
)
from heeler.detect.xid_table import XidTable
from heeler.engine import NOTHING, Event, Inbound

TOMBSTONE_NS = 600 * SECOND_NS
KINDS = ("gpu_lag", "job_slow")
UNSEEN = frozenset(("unknown", "host_starved"))  # causes of which no reading tells, only the lag itself
USUAL_EVERY = 6  # windows between two looks at what is usual; at whole multiples, so that all instances agree
LEAST_ACTIVITY = (0.02, 0.05, 100.0)  # tensor, SM, power: below, a fraction of it means nothing


@dataclass(slots=True)
class Level:
    """What one busy window of the whole job was like."""

    end_ns: int
    activity: tuple[float, ...]  # tensor, SM, power
    active_share: float


class GpuLag:
    """The state of one job."""

    def __init__(self, job: str, t: LagThresholds, table: XidTable, pace: PaceThresholds) -> None:
        self.job, self.t, self.table = job, t, table
        self.pace = Pace(pace)
        self.ports = BadPorts()
        self.windows = Windows(t)
        self.history = History(max(t.drain_after_s, t.alert_span_s))
        self.models: NDArray[np.intp] = np.zeros(0, np.intp)
        self.nodes: NDArray[np.intp] = np.zeros(0, np.intp)
        self.start_ns = 0  # of the job, as Slurm says
        self.first_ns = 0  # of the first window seen
        self.restart_ns = 0  # when it was last busy again after being idle
        self.idle_since_ns = 0
        self.memory_bytes = 0.0  # that a GPU of the job held when it was last busy
        self.let_go = False  # the memory was freed since
        self.event_ts = 0
        self.ended_ns = 0
        self.levels: deque[Level] = deque()
        self.usual = Level(0, (math.nan,) * 3, math.nan)
        self.traits = Traits(int(t.trailing_s * SECOND_NS))
        self.one_model = True
        self.masses: deque[Mass] = deque()
        self.broken: dict[str, int] = {}  # GPUs with a hard fault of another kind, by `_names`
        self.touched_ns = 0  # server time of the newest message

    # What is read.

    def on(self, book: Book, message: Inbound) -> Sequence[Event]:
        """Take a message in."""
        self.touched_ns = max(self.touched_ns, message.ts_ns)
        if message.kind == "JobSample":
            return self._sample(book, message.data, message.ts_ns)
        if message.kind == "JobEvent":
            return self._job_event(book, message.data, message.ts_ns)
        if message.kind == "JobKernelEvent":
            return self._kernel_event(book, message.data, message.ts_ns)
        return self._finding(book, message.data, message.ts_ns)

    def _sample(self, book: Book, sample: Mapping[str, Any], server_ns: int) -> Sequence[Event]:
        if self.ended_ns or not self.windows.add(sample, self.job, server_ns):
            return NOTHING
        ripe = self.windows.ripe(server_ns)
        return self._close(book, ripe, server_ns) if ripe else NOTHING

    def _job_event(self, book: Book, event: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        if event["ts"] < self.event_ts:
            return NOTHING
        self.event_ts = event["ts"]
        start = event.get("start_ts", 0)
        if event["event"] == "ended":
            self.ended_ns = now_ns
            return book.close_kinds(KINDS, now_ns, "the job ended")
        if self.ended_ns or (
            self.start_ns and start and start != self.start_ns
        ):  # requeued: another run of the same id
            self._anew()
        self.start_ns = start or self.start_ns
        return NOTHING

    def _anew(self) -> None:
        """Forget what was seen of an earlier run."""
        fresh = GpuLag(self.job, self.t, self.table, self.pace.t)
        fresh.event_ts, fresh.touched_ns, fresh.broken = self.event_ts, self.touched_ns, self.broken
        fresh.ports = self.ports
        self.__dict__.update(fresh.__dict__)

    def _kernel_event(self, book: Book, event: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        if event["kind"] == "gpu_lost" or (event["kind"] == "xid" and self.table.is_hard(event)):
            return self._break(book, _names(event["node"], event.get("uuid"), event.get("pci")), now_ns)
        return NOTHING

    def _finding(self, book: Book, finding: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        if self.ended_ns:
            return book.close_kinds(KINDS, now_ns, "the job ended")
        self.ports.learn(finding)
        if finding["kind"] not in ("xid", "gpu_lost") or finding["advice"] in ("none", "observe"):
            return NOTHING
        names = _names_in(finding["entity"])
        if finding["state"] == "closed":
            for name in names:
                self.broken.pop(name, None)
            return NOTHING
        return self._break(book, names, now_ns)

    def _break(self, book: Book, names: set[str], now_ns: int) -> Sequence[Event]:
        """Remember a GPU with a hard fault: its lag has a finding of its own already."""
        self.broken.update(dict.fromkeys(names, now_ns))
        events: list[Event] = []
        for found in book.of_kind("gpu_lag"):
            if names & _names_in(found.message["entity"]):
                events += book.close(found.key, now_ns, "the GPU has a hard fault, see its own finding")
        return events

    # Time.

    def tick(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Close windows whose nodes stay away, and findings that nobody will say more about."""
        events: list[Event] = []
        ripe = self.windows.ripe(now_ns) if self.windows.open else []
        if ripe:
            events += self._close(book, ripe, now_ns)
        if book.all:
            events += self._orphans(book, now_ns)
        return events

    def due_ns(self) -> int:
        """Return the next time at which a tick does something; far away when there is none."""
        return self.windows.due

    def idle(self, now_ns: int) -> bool:
        """Say whether the job can be forgotten."""
        if self.ended_ns:
            return now_ns - self.ended_ns > TOMBSTONE_NS
        return now_ns - self.touched_ns > self.t.orphan_s * SECOND_NS + TOMBSTONE_NS

    def _orphans(self, book: Book, now_ns: int) -> list[Event]:
        limit = int(self.t.orphan_s * SECOND_NS)
        events: list[Event] = []
        for found in book.of_kind(*KINDS):
            data_ts = max(found.message.get("data_ts", 0), found.notes.get("seen_ns", 0))
            adopted = found.notes.setdefault("since_ns", now_ns)
            if now_ns - max(data_ts, adopted) > limit:
                events += book.close(found.key, now_ns, "no more data")
        return events

    # A window.

    def _close(self, book: Book, ripe: Sequence[int], now_ns: int) -> list[Event]:
        events: list[Event] = []
        for number in ripe:
            window, before = self.windows.take(number)
            mend(window)
            if len(self.models) < window.shape[1]:
                names = sorted({gpu.model for gpu in self.windows.gpus})
                self.models = np.array([names.index(gpu.model) for gpu in self.windows.gpus])
                self.one_model = len(names) == 1
                numbers = {name: at for at, name in enumerate(self.windows.nodes)}
                self.nodes = np.array([numbers.get(gpu.node, -1) for gpu in self.windows.gpus])
            judged = self._judged(book, number, window, before)
            if judged is not None:
                events += self._conclude(book, number, judged, now_ns)
        return events

    def _judged(self, book: Book, number: int, window: Floats, before: Floats | None) -> Judged | None:
        """Return the verdicts of a window; None where none may be given, or nobody stands out."""
        end_ns = self.windows.end_ns(number)
        self.first_ns = self.first_ns or end_ns
        self.history.begin(number, self.windows.window_ns, window.shape[1])
        util = window[UTIL]
        busy = util >= self.t.idle_util_ratio
        count, everyone = int(np.count_nonzero(busy)), len(util)
        reported = everyone if count == everyone else everyone - int(np.count_nonzero(np.isnan(util)))
        if not reported:
            return None
        if 2 * count < reported:
            self._idle(window, before, end_ns)
            return None
        self._busy(end_ns)
        all_busy = count == everyone
        head = window[:5] if all_busy else window[:5, busy]
        median = middle(head)
        masked, dim = self._masked(median, count / reported, number)
        if masked:
            return None
        if not dim:
            self.pace.note(end_ns, median)
            if number % USUAL_EVERY == 0:
                self.traits.note(end_ns, window[:5])
            self._note_well(number, window)
        few = count < self.t.min_peers
        if all_busy and self.one_model and not few and not book.all and nothing_odd(window, median, self.t):
            return None
        active, window_ns = np.flatnonzero(busy), self.windows.window_ns
        found = judge(window, before, active, self.models, self.nodes, window_ns, self.t, watched=bool(book.all))
        if dim:
            return self._in_the_dim(found)
        usual = self.traits.usual(end_ns - int(self.t.alert_span_s * SECOND_NS), everyone)
        for at in [at for at, v in found.verdicts.items() if v.alone and self._always_so(book, v, window, usual)]:
            del found.verdicts[at]
        if found.few.any():
            look_back(found, window, before, active, median, self._as_opened(book, usual), window_ns, self.t)
        return found

    def _note_well(self, number: int, window: Floats) -> None:
        """Remember who is fed, and whose link is as good as it can be: what was before is over then."""
        util = window[UTIL]
        self.history.mark_all(number, util >= (1.0 - self.t.fed_ratio) * np.nanmax(util), FED)
        linked = (window[GEN] >= window[GEN_MAX]) & (window[WIDTH] >= window[WIDTH_MAX])
        self.history.mark_all(number, linked, LINKED)

    def _always_so(self, book: Book, verdict: Verdict, window: Floats, usual: Usual) -> bool:
        """Say whether a GPU that differs in one metric alone, without a cause, has done so since it was first seen."""
        at, row = verdict.column, verdict.metric
        if book.get(f"gpu_lag|{self.windows.gpus[at].uuid}") is not None:
            return False
        change = usual.beside(row, at, window) - 1.0
        return verdict.gap_ratio < self.t.one_metric_ratio if math.isnan(change) else abs(change) < self.t.alert_ratio

    def _as_opened(self, book: Book, usual: Usual) -> Usual:
        """Return what is usual, for GPUs with a finding what was so when it was opened."""
        for found in book.of_kind("gpu_lag"):
            at = self.windows.place.get(found.message["entity"].get("gpu_uuid", ""))
            if at is not None:
                kept = found.notes.setdefault("usual", (usual.value[:, at].copy(), usual.scatter[:, at].copy()))
                usual = Usual(usual.value.copy(), usual.scatter.copy(), usual.looks)
                usual.value[:, at], usual.scatter[:, at] = kept
        return usual

    def _in_the_dim(self, judged: Judged) -> Judged:
        """Keep what no checkpoint and no evaluation does: a clock or a link that is held down holds up the whole job.

        Where a GPU is five times slower, all of the job does a fifth, which looks like a checkpoint.
        """
        judged.clear[:] = False
        judged.verdicts = {
            at: v
            for at, v in judged.verdicts.items()
            if (v.physical and v.cause.name in (*OF_CLOCK, "pcie_degraded"))
            or (v.metric == CLOCK and v.gap_ratio >= self.t.dim_clock_ratio)
        }
        return judged

    def _idle(self, window: Floats, before: Floats | None, end_ns: int) -> None:
        """Take in that the job does nothing, and whether it let go of its memory."""
        if not self.idle_since_ns:
            self.idle_since_ns = end_ns
            self.memory_bytes = 0.0 if before is None else float(middle(before[[MEMORY]])[0])
        held = float(middle(window[[MEMORY]])[0])
        self.let_go = self.let_go or held < self.t.restart_memory_ratio * self.memory_bytes

    def _busy(self, end_ns: int) -> None:
        """Take in that the job works; after a pause it may have been restarted."""
        if not self.idle_since_ns:
            return
        if self.let_go or end_ns - self.idle_since_ns >= self.t.restart_idle_s * SECOND_NS:
            self.restart_ns = end_ns
            self.traits.clear()
        self.idle_since_ns, self.let_go = 0, False

    def _masked(self, median: Floats, share: float, number: int) -> tuple[bool, bool]:
        """Say whether nothing can be said of a window: warm-up, or the end; and whether it may be a checkpoint."""
        end_ns, levels = self.windows.end_ns(number), self.levels
        since = end_ns - int(self.t.trailing_s * SECOND_NS)
        while levels and levels[0].end_ns <= since:
            levels.popleft()
        if number % USUAL_EVERY == 0 or len(levels) <= 2 * USUAL_EVERY:
            self.usual = _usual(levels)
        activity = (float(median[TENSOR]), float(median[SM]), float(median[POWER]))
        levels.append(Level(end_ns, activity, share))
        # A job whose start nobody told ran before we looked, as a rule: Slurm tells new ones within a poll.
        since_start = self.t.warmup_s if self.start_ns or self.restart_ns else self.t.warmup_untold_s
        began = max(self.start_ns or self.first_ns, self.restart_ns)
        return (
            end_ns - began < since_start * SECOND_NS or share < self.t.tail_ratio * self.usual.active_share,
            _fraction(activity, self.usual.activity) < self.t.checkpoint_ratio,
        )

    def _conclude(self, book: Book, number: int, judged: Judged, now_ns: int) -> list[Event]:
        """Remember a window's verdicts and say what has lasted."""
        end_ns = self.windows.end_ns(number)
        verdicts = {at: v for at, v in judged.verdicts.items() if not self._is_broken(at)}
        verdicts = self._without_shared(verdicts, judged)
        alone = {at: v for at, v in verdicts.items() if v.alone}
        if alone and self._mass(alone, judged, end_ns) is not None:
            verdicts = {at: v for at, v in verdicts.items() if not v.alone}  # bursts of the load, nobody's fault
        mass = self._mass(verdicts, judged, end_ns) if verdicts else None
        events: list[Event] = []
        if book.all:
            events += self._look_after(book, judged, end_ns, now_ns)
        if mass is not None:
            self.masses.append(mass)
        elif verdicts:
            self._flag(number, verdicts)
            events += self._say(book, number, verdicts, now_ns)
        if self.masses:
            events += self._say_mass(book, mass, end_ns, now_ns)
        return events

    def _is_broken(self, column: int) -> bool:
        gpu = self.windows.gpus[column]
        return bool(self.broken) and not self.broken.keys().isdisjoint(_names(gpu.node, gpu.uuid, gpu.pci))

    def _flag(self, number: int, verdicts: Mapping[int, Verdict]) -> None:
        for at, verdict in verdicts.items():
            strong = STRONG if verdict.gap_ratio >= self.t.drain_ratio else 0
            self.history.mark(number, at, ALERT | strong | (PHYSICAL if verdict.physical else 0))

    def _without_shared(self, verdicts: dict[int, Verdict], judged: Judged) -> dict[int, Verdict]:
        """Drop what half a node shares without a cause: a pipeline stage, not the GPUs."""
        odd: dict[str, list[int]] = {}
        for at, verdict in verdicts.items():
            if not verdict.physical and verdict.cause.name != "host_starved":
                odd.setdefault(self.windows.gpus[at].node, []).append(at)
        for node, columns in odd.items():
            if len(columns) >= 2 and 2 * len(columns) >= self._gpus_on(node, judged):
                verdicts = {at: v for at, v in verdicts.items() if at not in columns}
        return verdicts

    def _gpus_on(self, node: str, judged: Judged) -> int:
        known = self.windows.nodes.get(node)
        return int(np.count_nonzero(judged.known[known.columns])) if known is not None else 0

    def _mass(self, verdicts: Mapping[int, Verdict], judged: Judged, end_ns: int) -> Mass | None:
        """Return what is wrong with the job as a whole, when too many stand out to blame any of them."""
        nodes = {self.windows.gpus[at].node for at in verdicts}
        everywhere = len(self.windows.nodes) >= 2 and len(nodes) == len(self.windows.nodes)
        most = 2 * len(verdicts) >= judged.known.sum()
        allowed = max(self.t.mass_nodes, math.ceil(self.t.mass_share * len(self.windows.nodes)))
        if len(nodes) <= allowed and not (everywhere and most):
            return None
        said = [v for v in verdicts.values() if v.cause.name == judged.trouble]
        cause = judged.trouble if 2 * len(said) >= len(verdicts) else "unknown"
        return Mass(end_ns, cause, len(verdicts), int(judged.known.sum()))

    # What is said.

    def _say(self, book: Book, number: int, verdicts: Mapping[int, Verdict], now_ns: int) -> list[Event]:
        """Report what stands out now and has done so for long enough, or is open already."""
        columns = sorted(verdicts)
        bits = self.history.recent(number, self.t.alert_span_s, columns)
        alert = (bits & ALERT) > 0
        for i, at in enumerate(columns):
            # A loader that stutters is no slow host, and a link that sleeps between steps is no bad one.
            unfed = FED if verdicts[at].is_unfed(self.t.alert_ratio) else 0
            well = np.flatnonzero(bits[:, i] & (LINKED if verdicts[at].cause.name == "pcie_degraded" else unfed))
            alert[: well[-1] + 1 if len(well) else 0, i] = False
        sure, unsure = (self.history.windows(s) for s in (self.t.alert_after_s, self.t.alert_after_unknown_s))
        needed = {at: unsure if verdicts[at].cause.name in UNSEEN else sure for at in columns}
        lasting = {at: int(np.argmax(alert[:, i])) for i, at in enumerate(columns) if alert[:, i].sum() >= needed[at]}
        oldest = number - len(alert) + 1
        seen = {at: (int(alert[:, i].sum()), len(alert)) for i, at in enumerate(columns)}
        by_node: dict[str, list[int]] = {}
        for at in columns:
            by_node.setdefault(self.windows.gpus[at].node, []).append(at)
        events: list[Event] = []
        for node, members in by_node.items():
            first = {at: self.windows.end_ns(oldest + lasting[at] - 1) for at in members if at in lasting}
            if self._together(book, node, members):
                groups = [(f"gpu_lag|node:{node}", members)]
            else:
                groups = [(f"gpu_lag|{self.windows.gpus[at].uuid}", [at]) for at in members]
            for key, group in groups:
                events += self._report(book, key, number, group, verdicts, first, seen, now_ns)
        return events

    def _together(self, book: Book, node: str, members: Sequence[int]) -> bool:
        """Say whether a node's GPUs have one finding: half of them or more stand out, for one reason."""
        if book.get(f"gpu_lag|node:{node}"):
            return True
        if any(book.get(f"gpu_lag|{self.windows.gpus[at].uuid}") for at in members):
            return False
        known = self.windows.nodes[node].columns
        count = known.stop - known.start if isinstance(known, slice) else len(known)
        return len(members) >= 2 and 2 * len(members) >= count

    def _report(
        self,
        book: Book,
        key: str,
        number: int,
        group: Sequence[int],
        verdicts: Mapping[int, Verdict],
        first: Mapping[int, int],
        seen: Mapping[int, tuple[int, int]],
        now_ns: int,
    ) -> Sequence[Event]:
        known, end_ns = book.get(key), self.windows.end_ns(number)
        lasting = [at for at in group if at in first]
        if known is None:
            if not lasting or 2 * len(lasting) < len(group):
                return NOTHING
            # What was closed needs as long again; windows from before the close are history.
            if book.closed_ns(key) > end_ns - int(self.t.alert_span_s * SECOND_NS):
                return NOTHING
        first_ts = known.first_ts if known is not None else min(first[at] for at in lasting)
        drain = self._drainable(number, group, first_ts)
        gpus = self.windows.gpus
        if key.startswith("gpu_lag|node:"):
            shown = [(gpus[at], verdicts[at]) for at in group]
            draft = node_draft(gpus[group[0]].node, shown, self.job, first_ts, end_ns, seen[group[0]], drain=drain)
        else:
            at = group[0]
            draft = gpu_draft(gpus[at], verdicts[at], self.job, first_ts, end_ns, seen[at], drain=drain)
        return self._with_impact(book, draft, now_ns)

    def _with_impact(self, book: Book, draft: Draft, now_ns: int) -> Sequence[Event]:
        """Report a finding with what it costs the job."""
        known = book.get(draft.key)
        said = None if known is None else known.message.get("impact", {})
        self.ports.explain(draft)
        draft.impact = self.pace.impact(draft.first_ts, draft.data_ts, said)
        if longer := words(draft.impact, self.pace.t.said_above):
            job = "" if draft.summary.endswith(f"{self.job}.") else "; the job"
            draft.summary = f"{draft.summary.removesuffix('.')}{job}{longer}."
        return book.report(draft, now_ns)

    def _drainable(self, number: int, group: Sequence[int], first_ts: int) -> bool:
        """Say whether a drain may be advised: far behind, for long, and with a physical signal besides."""
        if self.windows.end_ns(number) - first_ts < self.t.drain_after_s * SECOND_NS:
            return False
        both = STRONG | PHYSICAL
        bits = self.history.recent(number, self.t.drain_after_s, group)
        share = ((bits & both) == both).mean(axis=0)
        return bool(np.count_nonzero(share >= self.t.drain_share) * 2 > len(group))

    def _say_mass(self, book: Book, mass: Mass | None, end_ns: int, now_ns: int) -> Sequence[Event]:
        masses, key = self.masses, f"job_slow|job:{self.job}"
        keep_ns = int(max(self.t.alert_span_s, self.t.clear_after_s) * SECOND_NS)
        while masses and masses[0].end_ns <= end_ns - keep_ns:
            masses.popleft()
        if mass is None:
            return NOTHING
        recent = [m for m in masses if m.end_ns > end_ns - int(self.t.alert_span_s * SECOND_NS)]
        known = book.get(key)
        if known is None and (
            len(recent) < self.history.windows(self.t.alert_after_s)
            or book.closed_ns(key) > end_ns - int(self.t.alert_span_s * SECOND_NS)
        ):
            return NOTHING
        first_ts = known.first_ts if known is not None else recent[0].end_ns - self.windows.window_ns
        seen = (len(recent), self.history.windows(self.t.alert_span_s))
        return self._with_impact(book, job_draft(self.job, mass, first_ts, seen), now_ns)

    # What is over.

    def _look_after(self, book: Book, judged: Judged, end_ns: int, now_ns: int) -> list[Event]:
        """Close what has been healthy for long enough. A window in which a GPU was not judged says nothing of it."""
        events: list[Event] = []
        clear_ns = int(self.t.clear_after_s * SECOND_NS)
        for found in book.of_kind(*KINDS):
            if end_ns <= found.first_ts:  # history, read again
                continue
            found.notes["seen_ns"] = end_ns
            if found.message["kind"] == "job_slow":
                last = max([found.message.get("data_ts", 0), *(m.end_ns for m in self.masses)])
                over = end_ns - last >= clear_ns
            else:
                over = self._clean_since(found, judged, end_ns) <= end_ns - clear_ns
            if over:
                events += book.close(found.key, now_ns, f"healthy for {self.t.clear_after_s:.0f} s")
        return events

    def _clean_since(self, found: Open, judged: Judged, end_ns: int) -> int:
        entity = found.message["entity"]
        if entity["type"] == "node":
            node = self.windows.nodes.get(entity.get("node", ""))
            columns: Any = node.columns if node is not None else []
        else:
            place = self.windows.place.get(entity.get("gpu_uuid", ""))
            columns = [] if place is None else [place]
        known, clear = judged.known[columns], judged.clear[columns]
        if known.any() and not clear[known].all():
            found.notes.pop("clean_since", None)
        elif known.any():
            found.notes.setdefault("clean_since", end_ns)
        return int(found.notes.get("clean_since", end_ns))


def _names(node: str, uuid: str | None, pci: str | None) -> set[str]:
    """Return what a GPU may be called: a kernel line has no UUID, and a PCI address is one of a node's only."""
    return {name for name in (uuid, f"{node}/{pci}" if pci else None) if name}


def _names_in(entity: Mapping[str, Any]) -> set[str]:
    return _names(entity.get("node", ""), entity.get("gpu_uuid"), entity.get("pci"))


def _usual(levels: Sequence[Level]) -> Level:
    """Return the medians of what the windows of a job were like; NaN for too few."""
    tensor, sm, power = (_median([level.activity[at] for level in levels]) for at in range(3))
    return Level(0, (tensor, sm, power), _median([level.active_share for level in levels]))


def _fraction(activity: Sequence[float], usual: Sequence[float]) -> float:
    """Return the activity over the job's usual one, by the best counter that both have; NaN without any."""
    for now, before, least in zip(activity, usual, LEAST_ACTIVITY, strict=True):
        if before > least and not math.isnan(now):
            return now / before
    return math.nan


def _median(values: Sequence[float]) -> float:
    """Return the median of what was read; NaN for too few."""
    found = sorted(value for value in values if value == value)  # noqa: PLR0124 - NaN is not equal to itself
    return found[len(found) // 2] if len(found) >= LEAST_WINDOWS else math.nan
