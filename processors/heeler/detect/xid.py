"""XID and SXid incidents, and GPUs that do not answer: what they mean and when they are over.

One cause makes one finding: what a GPU writes within a burst belongs together (48, 63, 94 and the 45s that follow),
and so do XID 79 and the readings that find the GPU gone. The driver's own verdict (XID 154, NVML's recovery action)
outranks the table.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heeler.detect.divided import is_part
from heeler.detect.findings import SECOND_NS, Book, Draft, Open, duration, of_jobs
from heeler.detect.incident import LOST, LOST_ROW, Incident, Seen, from_finding
from heeler.detect.node_context import NodeContext
from heeler.detect.thresholds import XidThresholds
from heeler.detect.xid_judge import Judgement, Past, judge
from heeler.detect.xid_table import Row, XidTable, is_injected, number
from heeler.engine import NOTHING, Event, Inbound

KINDS = ("xid", "sxid", "gpu_lost")
EVENTS = frozenset(KINDS)
GONE = frozenset(("lost", "hung"))
MAX_PAST = 256
RECOVERY_XID = 154


class Xid:
    """The state of one node."""

    def __init__(self, t: XidThresholds, table: XidTable) -> None:
        self.t, self.table = t, table
        self.burst_ns = int(t.burst_s * SECOND_NS)
        self.past: dict[str, list[Past]] = {}  # by finding id
        self.cleared: dict[str, int] = {}  # by GPU: what is older is over
        self.cleared_all = 0
        self.followers: dict[str, tuple[int, Mapping[str, Any]]] = {}  # by GPU: a line that waits for its cause

    def on(self, book: Book, node: NodeContext, message: Inbound) -> Sequence[Event]:
        """Take a message in."""
        if message.kind == "JobSample":
            return self._sample(book, node, message)
        return self._line(book, node, message)

    def rebooted(self, book: Book, boot: str, now_ns: int) -> list[Event]:
        """Close what a reboot ends: the hardware starts anew, and says so again if it is still broken."""
        over = [found for found in book.of_kind(*KINDS) if self._incident(found).boot not in ("", boot)]
        return self._close(book, over, now_ns, "the node was rebooted")

    def resumed(self, book: Book, now_ns: int) -> list[Event]:
        """Close what an operator has looked at: only what comes after counts."""
        self.cleared_all = max(self.cleared_all, now_ns)
        return self._close(book, book.of_kind(*KINDS), now_ns, "the node was put back into service")

    def tick(self, book: Book, now_ns: int) -> list[Event]:
        """Close what heals by itself."""
        quiet_ns = int(self.t.soft_close_s * SECOND_NS)
        over = [
            found
            for found in book.of_kind(*KINDS)
            if found.message["advice"] in ("none", "observe") and now_ns - self._incident(found).data_ts > quiet_ns
        ]
        return self._close(book, over, now_ns, f"nothing more for {duration(quiet_ns)}")

    # Lines of the kernel log.

    def _line(self, book: Book, node: NodeContext, message: Inbound) -> Sequence[Event]:
        event, now_ns = message.data, message.ts_ns
        ts, gpu = min(event["ts"], now_ns), self._gpu_of(event, node)
        if event["kind"] == "gpu_lost":
            event = {**event, "code": LOST, "gpu_state": "lost"}
        over = ts <= max(self.cleared.get(gpu, 0), self.cleared_all)
        if event["kind"] not in EVENTS or event.get("code") is None or over:
            return NOTHING
        row = LOST_ROW if event["code"] == LOST else self.table.judge(event)
        events = self._cancel(book, gpu, row, now_ns)
        incident = self._joined(book, gpu, event, ts, row)
        if incident is None and row.follower:
            self.followers[gpu] = (ts, event)
            return events
        if incident is None:
            incident = self._begin(gpu, event, ts)
        elif incident.counted(event, ts):
            return events
        incident.add(row, event, ts, self.burst_ns)
        if event["code"] == RECOVERY_XID and event["kind"] == "xid":
            incident.recovery = number(event.get("detail", {}).get("to"))
        return [*events, *self._report(book, node, incident, now_ns)]

    def _cancel(self, book: Book, gpu: str, row: Row, now_ns: int) -> list[Event]:
        """Close what a code takes back."""
        open_ = [(found, self._incident(found)) for found in book.of_kind(*KINDS)] if row.cancels else []
        over = [found for found, i in open_ if i.gpu == gpu and not i.codes.keys().isdisjoint(row.cancels)]
        return self._close(book, over, now_ns, f"XID {row.codes[0]}: {row.meaning}")

    def _gpu_of(self, event: Mapping[str, Any], node: NodeContext) -> str:
        if event["kind"] == "sxid":
            return ""
        pci = event.get("pci", "")
        return str(event.get("uuid") or node.uuid_of_pci.get(pci) or pci)

    def _joined(self, book: Book, gpu: str, event: Mapping[str, Any], ts: int, row: Row) -> Incident | None:
        """Return the open incident that a line belongs to."""
        code, test = event["code"], _test(event)
        kinds = ("sxid",) if event["kind"] == "sxid" else ("xid", "gpu_lost")
        mine = [self._incident(o) for o in book.of_kind(*kinds)]
        mine = [i for i in mine if i.gpu == gpu and i.test == test]
        for incident in reversed(mine):
            gone = LOST in incident.codes or incident.lost > 0 or 79 in incident.codes
            if (
                abs(ts - incident.last_ts) <= self.burst_ns
                or code in incident.codes
                or row.follower
                or (gone and code in (LOST, 79))
            ):
                return incident
        return None

    def _begin(self, gpu: str, event: Mapping[str, Any], ts: int) -> Incident:
        code, kind = event["code"], "gpu_lost" if event["code"] == LOST else event["kind"]
        incident = Incident(gpu, code, kind, ts, ts, boot=event["boot"], test=_test(event))
        waiting = self.followers.pop(gpu, None)
        if waiting is not None and abs(ts - waiting[0]) <= self.burst_ns:
            incident.add(self.table.judge(waiting[1]), waiting[1], waiting[0], self.burst_ns)
        return incident

    # Samples.

    def _sample(self, book: Book, node: NodeContext, message: Inbound) -> Sequence[Event]:
        sample = message.data
        states, actions = sample.get("state"), sample["last"].get("recovery_action")
        calm = (not states or states.count("ok") == len(states)) and (not actions or not any(actions))
        if calm and not book.all:
            return NOTHING
        if message.ts_ns - sample["ts"] > 2 * self.burst_ns:  # news of long ago
            return NOTHING
        uuids = sample["gpu"]["uuid"]
        events: list[Event] = []
        several: Mapping[str, list[str]] = sample.get("several", {})
        for at, uuid in enumerate(uuids):
            if is_part(sample, at):  # what is wrong with its GPU is said once, of the GPU
                continue
            state = states[at] if states else None
            action = actions[at] if actions else None
            holder = sample["job"][at]
            jobs = [holder] if holder is not None else list(several.get(str(at), ()))
            if state in GONE:
                events += self._gone(book, node, uuid, state, sample, jobs, message.ts_ns)
            elif state == "ok":
                events += self._fine(book, node, uuid, message.ts_ns)
            if action is not None:
                events += self._recovery(book, node, uuid, int(action), sample, jobs, message.ts_ns)
        return events

    def _of_gpu(self, book: Book, uuid: str, node: NodeContext) -> list[tuple[Open, Incident]]:
        names = {uuid, node.pci_of_uuid.get(uuid, uuid)}
        found = [(o, self._incident(o)) for o in book.of_kind("xid", "gpu_lost")]
        return [(o, i) for o, i in found if i.gpu in names and not i.test]

    def _gone(
        self,
        book: Book,
        node: NodeContext,
        uuid: str,
        state: str,
        sample: Mapping[str, Any],
        jobs: list[str],
        server_ns: int,
    ) -> Sequence[Event]:
        """Take in that a reading found the GPU gone: that confirms an incident, or is one."""
        mine = self._of_gpu(book, uuid, node)
        ts = min(sample["ts"], server_ns)
        incident = next((i for _, i in mine if 79 in i.codes or LOST in i.codes), mine[-1][1] if mine else None)
        if incident is None:
            event = {"code": LOST, "kind": "gpu_lost", "boot": sample["boot"], "jobs": jobs}
            incident = self._begin(uuid, event, ts)
        if LOST not in incident.codes:
            incident.codes[LOST] = Seen(LOST, LOST_ROW, first_ts=ts)
        seen = incident.codes[LOST]
        if ts <= seen.last_ts:  # redelivered
            return NOTHING
        seen.count, seen.episodes, seen.last_ts, seen.text = seen.count + 1, 1, ts, f"reading says {state}"
        incident.lost += state == "lost"
        incident.hung += state == "hung"
        incident.jobs += [job for job in jobs if job not in incident.jobs]
        incident.data_ts = max(incident.data_ts, ts)
        return self._report(book, node, incident, server_ns)

    def _fine(self, book: Book, node: NodeContext, uuid: str, server_ns: int) -> list[Event]:
        """Close a finding of a GPU that was gone and has answered for long enough."""
        events: list[Event] = []
        for found, incident in self._of_gpu(book, uuid, node):
            if not incident.confirmed or server_ns <= incident.data_ts:
                continue
            since = found.notes.setdefault("fine_since", server_ns)
            if since <= incident.data_ts:
                since = found.notes["fine_since"] = server_ns
            if server_ns - since >= self.t.lost_clear_s * SECOND_NS:
                events += self._close(book, [found], server_ns, "the GPU answers again")
        return events

    def _recovery(
        self,
        book: Book,
        node: NodeContext,
        uuid: str,
        action: int,
        sample: Mapping[str, Any],
        jobs: list[str],
        server_ns: int,
    ) -> Sequence[Event]:
        """NVML's recovery action is the driver's own verdict, like XID 154."""
        mine = self._of_gpu(book, uuid, node)
        incident = mine[-1][1] if mine else None
        before = incident.recovery if incident is not None else None
        if action == (before or 0):
            return NOTHING
        ts = min(sample["ts"], server_ns)
        event = {
            "code": RECOVERY_XID,
            "kind": "xid",
            "boot": sample["boot"],
            "jobs": jobs,
            "witness": ["nvml"],
            "text": f"recovery action {action}",
        }
        if incident is None:
            incident = self._begin(uuid, event, ts)
        row = self.table.judge(event)
        incident.add(row, event, ts, self.burst_ns)
        incident.recovery = action
        return self._report(book, node, incident, server_ns)

    # Findings that come back.

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn from a finding of the bus what is over, and what happened in the last day."""
        if finding["kind"] not in EVENTS:
            return
        incident = from_finding(finding, self.table)
        self._remember(str(finding["id"]), incident)
        if finding["state"] == "closed":
            self.cleared[incident.gpu] = max(self.cleared.get(incident.gpu, 0), finding["ts"])

    def _remember(self, finding_id: str, incident: Incident) -> None:
        if incident.test:
            return
        self.past[finding_id] = [
            Past(incident.gpu, s.code, s.place, tuple(incident.jobs), s.episodes, s.last_ts)
            for s in incident.codes.values()
        ]
        newest = max(p.last_ts for entries in self.past.values() for p in entries)
        since = newest - int(self.t.repeat_span_s * SECOND_NS)
        if len(self.past) > MAX_PAST or any(e[0].last_ts < since for e in self.past.values()):
            kept = sorted(self.past.items(), key=lambda item: item[1][0].last_ts)[-MAX_PAST:]
            self.past = {k: v for k, v in kept if v[0].last_ts >= since}

    def _incident(self, found: Open) -> Incident:
        """Return the incident behind an open finding; from the finding itself when it was read back."""
        incident = found.notes.get("incident")
        if incident is None:
            incident = found.notes["incident"] = from_finding(found.message, self.table)
        assert isinstance(incident, Incident)
        return incident

    def _close(self, book: Book, over: Iterable[Open], now_ns: int, why: str) -> list[Event]:
        events: list[Event] = []
        for found in over:
            incident = self._incident(found)
            self.cleared[incident.gpu] = max(self.cleared.get(incident.gpu, 0), incident.last_ts)
            events += book.close(found.key, now_ns, why)
        return events

    def _past(self) -> list[Past]:
        return [past for entries in self.past.values() for past in entries]

    # What is said.

    def _report(self, book: Book, node: NodeContext, incident: Incident, now_ns: int) -> Sequence[Event]:
        known = book.get(f"{incident.kind}|{incident.ident}")
        if incident.recovery == 0 and set(incident.codes) == {RECOVERY_XID}:
            return self._close(book, [known] if known else [], now_ns, "the driver needs no recovery any more")
        judgement = judge(incident, self._past(), self.table, self.t)
        draft = self._draft(incident, judgement, node)
        events = book.report(draft, now_ns)
        known = book.get(draft.key)
        if known is not None:
            known.notes["incident"] = incident
            self._remember(known.id, incident)
        return events

    def _draft(self, incident: Incident, judgement: Judgement, node: NodeContext) -> Draft:
        jobs = incident.jobs or (node.running() if not incident.gpu else [])
        gone = judgement.code == LOST
        count = sum(seen.count for seen in incident.codes.values())
        return Draft(
            kind=incident.kind,
            ident=incident.ident,
            entity=self._entity(incident, node),
            severity=judgement.severity,
            confidence=judgement.confidence,
            advice=judgement.advice,
            cause=judgement.cause,
            summary=self._summary(incident, judgement, node, jobs),
            first_ts=incident.first_ts,
            data_ts=incident.data_ts,
            evidence=incident.evidence(),
            jobs=jobs,
            code=None if gone else judgement.code,
            count=count,
        )

    def _entity(self, incident: Incident, node: NodeContext) -> dict[str, Any]:
        gpu = incident.gpu
        entity: dict[str, Any] = {"type": "gpu" if gpu else "node", "node": node.name}
        if gpu in node.pci_of_uuid or gpu.startswith(("GPU-", "MIG-")):
            entity["gpu_uuid"] = gpu
        elif gpu:
            entity["pci"] = gpu
        if gpu in node.pci_of_uuid:
            entity["pci"] = node.pci_of_uuid[gpu]
        if gpu in node.index_of_uuid:
            entity["gpu_index"] = node.index_of_uuid[gpu]
        # What takes the incident up again after a restart.
        entity |= {"boot": incident.boot, "opener": incident.opener, "event_seq": incident.seq}
        entity |= {"lost": incident.lost, "hung": incident.hung, "fine": incident.fine}
        if incident.nvml_seq >= 0:
            entity["nvml_seq"] = incident.nvml_seq
        if incident.test:
            entity["test"] = incident.test
        return entity

    def _summary(self, incident: Incident, judgement: Judgement, node: NodeContext, jobs: Sequence[str]) -> str:
        gpu = incident.gpu
        if not gpu:
            who = f"NVSwitch of {node.name}" if incident.kind == "sxid" else node.name
        elif gpu in node.index_of_uuid:
            who = f"GPU {node.index_of_uuid[gpu]} ({gpu[:12]}…) on {node.name}"
        else:
            who = f"GPU {gpu} on {node.name}"
        name = "SXid" if incident.kind == "sxid" else "XID"
        code = "" if judgement.code == LOST else f"{name} {judgement.code}, "
        rest = sorted(set(incident.codes) - {judgement.code, LOST})
        also = f", with {', '.join(map(str, rest))}" if rest else ""
        worst = incident.codes[judgement.code]
        times = f", {worst.count} times" if worst.count > 1 and judgement.code != LOST else ""
        return f"{who}: {code}{judgement.words}{times}{also}{of_jobs(jobs)}."


def _test(event: Mapping[str, Any]) -> str:
    """Return why an event is no real one; empty for a real one."""
    if event.get("trusted") is False:
        return "untrusted"
    return "injected" if is_injected(event.get("detail", {})) else ""
