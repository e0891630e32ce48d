"""XID and SXid incidents, and GPUs that do not answer: what they mean and when they are over.

One cause makes one finding: what a GPU writes within a burst belongs together (48, 63, 94 and the 45s that follow),
and so do XID 79 and the readings that find the GPU gone. The driver's own verdict (XID 154, NVML's recovery action)
outranks the table.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heeler.detect import ecc
from heeler.detect.divided import GONE, is_part, jobs_at
from heeler.detect.findings import SECOND_NS, Book, Draft, Open, duration, of_jobs
from heeler.detect.incident import FABRIC_XIDS, FIRST_SXID, LOST, LOST_ROW, Incident, Seen, from_finding
from heeler.detect.node_context import RESUMED, NodeContext
from heeler.detect.thresholds import XidThresholds
from heeler.detect.xid_judge import Judgement, Past, judge
from heeler.detect.xid_links import is_injected, number
from heeler.detect.xid_table import Row, XidTable
from heeler.engine import NOTHING, Event, Inbound

KINDS = ("xid", "sxid", "gpu_lost", "ecc")
EVENTS = frozenset(KINDS)
MAX_PAST = 256
RECOVERY_XID = 154
FOLLOWERS = frozenset((43, 45))  # what a broken link does to the programs that use it
MOST_WAITING = 32
STATES = ecc.COLUMNS | {"recovery_action"}


class Xid:
    """The state of one node."""

    def __init__(self, t: XidThresholds, table: XidTable) -> None:
        self.t, self.table = t, table
        self.burst_ns = int(t.burst_s * SECOND_NS)
        self.past: dict[str, list[Past]] = {}  # by finding id
        self.cleared: dict[str, int] = {}  # by GPU: what is older is over
        self.cleared_all = 0
        self.memory = ecc.MemoryReader()
        self.calm = False  # the last sample said nothing, and one that shows the same says nothing either
        self.known: dict[str, set[int]] = {}  # by GPU: states of its memory that an operator has put up with
        self.followers: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}  # by GPU: lines that wait for their cause

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
        return self._close(book, book.of_kind(*KINDS), now_ns, RESUMED)

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
        if row.location:
            event = {**event, "users": [node.users.get(job, "") for job in event.get("jobs", ())]}
        events = self._cancel(book, gpu, row, now_ns)
        incident = self._joined(book, gpu, event, ts, row)
        if incident is None and row.follower:
            self._wait(gpu, ts, event)
            return events
        if incident is None:
            incident = self._begin(gpu, event, ts)
        elif incident.counted(event, ts, gpu):
            return events
        incident.add(row, event, ts, self.burst_ns, gpu)
        # A text that can't be read says nothing: what the driver said before stands.
        action = number(event.get("detail", {}).get("to"))
        if event["code"] == RECOVERY_XID and event["kind"] == "xid" and action is not None:
            incident.recoveries[gpu] = action
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
        open_ = [i for i in map(self._incident, book.of_kind("xid", "sxid", "gpu_lost", "ecc")) if i.test == test]
        # Switches have no GPU; neither has a line whose GPU nobody knows, and that is none of theirs.
        alike = [i for i in open_ if i.gpu == gpu and (i.kind == "sxid") == (event["kind"] == "sxid")]
        for incident in reversed(alike):
            gone = LOST in incident.codes or incident.lost > 0 or 79 in incident.codes
            if (
                abs(ts - incident.last_ts) <= self.burst_ns
                or (code in incident.codes and not row.follower)
                or (gone and code in (LOST, 79))
                or (incident.of_memory and code in ecc.XIDS)
            ):
                return incident
        return self._of_fabric(open_, gpu, event, ts, row)

    def _of_fabric(
        self, open_: Sequence[Incident], gpu: str, event: Mapping[str, Any], ts: int, row: Row
    ) -> Incident | None:
        """Return the incident of the fabric that a line belongs to: one bad link or switch shows on several GPUs."""
        code, fabric = event["code"], [i for i in reversed(open_) if i.of_fabric]
        near = [i for i in fabric if abs(ts - i.last_ts) <= self.burst_ns and row.drain != "never"]
        if event["kind"] == "sxid":
            return next((i for i in fabric if i in near or code in i.codes), None)
        if code in FABRIC_XIDS:
            return next((i for i in fabric if i in near or gpu in i.gpus), None)
        asked = fabric if code == RECOVERY_XID else []
        if code in FOLLOWERS:
            asked = [i for i in fabric if abs(ts - i.last_ts) <= self.burst_ns]
        return next((i for i in asked if gpu in i.gpus), None)

    def _begin(self, gpu: str, event: Mapping[str, Any], ts: int) -> Incident:
        code, kind = event["code"], "gpu_lost" if event["code"] == LOST else event["kind"]
        incident = Incident(gpu, code, kind, ts, ts, boot=event["boot"], test=_test(event))
        for before, waiting in self.followers.pop(gpu, ()):
            if abs(ts - before) <= self.burst_ns and waiting["boot"] == event["boot"]:
                incident.add(self.table.judge(waiting), waiting, before, self.burst_ns)
        return incident

    def _wait(self, gpu: str, ts: int, event: Mapping[str, Any]) -> None:
        """Keep a line that is none of its own until its cause comes, if it does."""
        kept = [item for item in self.followers.pop(gpu, ()) if abs(ts - item[0]) <= self.burst_ns][-MOST_WAITING:]
        if all((item["boot"], item["seq"]) != (event["boot"], event["seq"]) for _, item in kept):
            kept.append((ts, event))
        self.followers[gpu] = kept
        while len(self.followers) > MOST_WAITING:
            del self.followers[next(iter(self.followers))]

    # Samples.

    def _sample(self, book: Book, node: NodeContext, message: Inbound) -> Sequence[Event]:
        sample = message.data
        states, actions = sample.get("state"), sample["last"].get("recovery_action")
        calm = (not states or states.count("ok") == len(states)) and (not actions or not any(actions))
        memory = self.memory.read(sample, watched=bool(book.all or self.known))
        self.calm = calm and not book.all and memory is ecc.NOTHING_SAID
        if self.calm:
            return NOTHING
        if message.ts_ns - sample["ts"] > 2 * self.burst_ns:  # news of long ago
            return NOTHING
        uuids = sample["gpu"]["uuid"]
        events: list[Event] = []
        for at, uuid in enumerate(uuids):
            if is_part(sample, at):  # what is wrong with its GPU is said once, of the GPU
                continue
            state = states[at] if states else None
            action = actions[at] if actions else None
            jobs = jobs_at(sample, at)
            if state in GONE:
                events += self._gone(book, node, uuid, state, sample, jobs, message.ts_ns)
            elif state == "ok":
                events += self._fine(book, node, uuid, message.ts_ns)
            if action is not None:
                events += self._recovery(book, node, uuid, int(action), sample, jobs, message.ts_ns)
            if at in memory.flags or at in memory.grown or at in memory.reset:
                events += self._memory(book, node, uuid, memory, at, sample, jobs, message.ts_ns)
        return events

    def _of_gpu(self, book: Book, uuid: str, node: NodeContext) -> list[tuple[Open, Incident]]:
        names = {uuid, node.pci_of_uuid.get(uuid, uuid)}
        found = [(o, self._incident(o)) for o in book.of_kind("xid", "gpu_lost", "ecc")]
        return [(o, i) for o, i in found if i.gpu in names and not i.test]

    def _shared_with(self, book: Book, uuid: str) -> list[tuple[Open, Incident]]:
        """Return incidents of the fabric that show on a GPU too."""
        found = [(o, self._incident(o)) for o in book.of_kind("xid", "sxid")]
        return [(o, i) for o, i in found if uuid in i.gpus and not i.test]

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
            if self._lasts(found, incident, "fine_since", server_ns):
                events += self._close(book, [found], server_ns, "the GPU answers again")
        return events

    def _lasts(self, found: Open, incident: Incident, note: str, server_ns: int) -> bool:
        """Say whether a GPU has been well for long enough since its incident last spoke; `note` keeps since when."""
        since = int(found.notes.setdefault(note, server_ns))
        if since <= incident.data_ts:
            since = found.notes[note] = server_ns
        return server_ns - since >= self.t.lost_clear_s * SECOND_NS

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
        mine = self._of_gpu(book, uuid, node) or self._shared_with(book, uuid)
        incident = mine[-1][1] if mine else None
        before = incident.recoveries.get(uuid) if incident is not None else None
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
        incident.add(row, event, ts, self.burst_ns, uuid)
        incident.recoveries[uuid] = action
        return self._report(book, node, incident, server_ns)

    def _memory(
        self,
        book: Book,
        node: NodeContext,
        uuid: str,
        memory: ecc.Memory,
        at: int,
        sample: Mapping[str, Any],
        jobs: list[str],
        server_ns: int,
    ) -> Sequence[Event]:
        """Take in what a sample says of a GPU's memory: it belongs to what the kernel log said of it, or is its own."""
        flags, grown = memory.flags.get(at, {}), memory.grown.get(at, 0)
        known = self.known.get(uuid, set())
        known -= {code for code, on in flags.items() if not on}
        if not known:
            self.known.pop(uuid, None)
        said = [code for code, on in flags.items() if on and code not in known] + [ecc.ERRORS] * (grown > 0)
        if not said:
            return self._healed(book, node, uuid, flags, server_ns, reset=at in memory.reset)
        mine = [i for _, i in self._of_gpu(book, uuid, node)]
        ts = min(sample["ts"], server_ns)
        incident = next((i for i in mine if i.of_memory or not ecc.XIDS.isdisjoint(i.codes)), None)
        if incident is None:
            incident = next((i for i in reversed(mine) if abs(ts - i.last_ts) <= self.burst_ns), None)
        if incident is None:
            event = {"code": max(said, key=lambda c: ecc.ROWS[c].rank), "kind": "ecc", "boot": sample["boot"]}
            incident = self._begin(uuid, event, ts)
        fresh = [self._seen_memory(incident, code, ts, grown) for code in said]
        if not any(fresh):
            return NOTHING
        incident.data_ts = max(incident.data_ts, ts)
        incident.jobs += [job for job in jobs if job not in incident.jobs]
        return self._report(book, node, incident, server_ns)

    def _seen_memory(self, incident: Incident, code: int, ts: int, grown: int) -> bool:
        """Take a state of the memory in; say whether the reading is new."""
        seen = incident.codes.get(code)
        if seen is None:
            seen = incident.codes[code] = Seen(code, ecc.ROWS[code], first_ts=ts, episodes=1)
            seen.count = 0 if code == ecc.ERRORS else 1
        if ts <= seen.last_ts:
            return False
        seen.last_ts = ts
        seen.count += grown if code == ecc.ERRORS else 0
        return True

    def _healed(
        self,
        book: Book,
        node: NodeContext,
        uuid: str,
        flags: Mapping[int, bool],
        server_ns: int,
        *,
        reset: bool,
    ) -> list[Event]:
        """Close what a reset of the GPU has put right, once its memory has been in order for long enough."""
        events: list[Event] = []
        for found, incident in self._of_gpu(book, uuid, node):
            of_flags = {code for code in incident.codes if code in ecc.ROWS and code != ecc.ERRORS}
            if incident.codes.keys() - {*ecc.ROWS, *ecc.XIDS, *ecc.COMPANY}:
                continue
            if reset and not of_flags and ecc.ERRORS in incident.codes:  # the driver counts anew
                events += self._close(book, [found], server_ns, "the GPU was reset")
            if not of_flags or any(flags.get(code) is not False for code in of_flags):
                continue
            if self._lasts(found, incident, "reset_since", server_ns):
                events += self._close(book, [found], server_ns, "the GPU was reset and its memory is in order")
        return events

    # Findings that come back.

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn from a finding of the bus what is over, and what happened in the last day."""
        if finding["kind"] not in EVENTS:
            return
        incident = from_finding(finding, self.table)
        self._remember(str(finding["id"]), incident)
        if finding["state"] == "closed":
            if finding.get("close_reason") == RESUMED:
                self._put_up_with(incident)
            for gpu in (incident.gpu, *incident.gpus):
                self.cleared[gpu] = max(self.cleared.get(gpu, 0), finding["ts"])

    def _remember(self, finding_id: str, incident: Incident) -> None:
        if incident.test:
            return
        self.past[finding_id] = [
            Past(incident.gpu, s.code, dict(s.places), tuple(incident.jobs), s.episodes, s.last_ts)
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
            for gpu in (incident.gpu, *incident.gpus):
                self.cleared[gpu] = max(self.cleared.get(gpu, 0), incident.last_ts)
            if why == RESUMED:
                self._put_up_with(incident)
            events += book.close(found.key, now_ns, why)
        return events

    def _put_up_with(self, incident: Incident) -> None:
        """Remember what an operator has seen of a GPU's memory: it is said again when it was gone in between."""
        if codes := {code for code in incident.codes if code in ecc.ROWS}:
            self.known.setdefault(incident.gpu, set()).update(codes)

    def _past(self) -> list[Past]:
        return [past for entries in self.past.values() for past in entries]

    # What is said.

    def _report(self, book: Book, node: NodeContext, incident: Incident, now_ns: int) -> Sequence[Event]:
        known = book.get(f"{incident.kind}|{incident.ident}")
        needless = incident.recoveries and not any(incident.recoveries.values())
        if needless and set(incident.codes) == {RECOVERY_XID}:
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
            code=judgement.code if judgement.code >= 0 else None,
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
        if incident.gpus:  # whose fault it is, nobody knows: a link has two ends
            entity = {"type": "node", "node": node.name, "first_gpu": gpu}
            entity["gpus"] = [name for name in (gpu, *incident.gpus) if name]
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
        if incident.gpus:
            count = len(incident.gpus) + bool(gpu)
            who = f"{count} GPU{'s' * (count > 1)}{' and NVSwitch' * any(c >= FIRST_SXID for c in incident.codes)}"
            who = f"{who} of {node.name}"
        elif not gpu:
            who = f"NVSwitch of {node.name}" if incident.kind == "sxid" else node.name
        elif gpu in node.index_of_uuid:
            who = f"GPU {node.index_of_uuid[gpu]} ({gpu[:12]}…) on {node.name}"
        else:
            who = f"GPU {gpu} on {node.name}"
        name = "SXid" if judgement.code >= FIRST_SXID else "XID"
        code = "" if judgement.code < 0 else f"{name} {judgement.code}, "
        rest = sorted(code for code in incident.codes if code >= 0 and code != judgement.code)
        also = f", with {', '.join(map(str, rest))}" if rest else ""
        worst = incident.codes[judgement.code]
        times = f", {worst.count} times" if worst.count > 1 and judgement.code != LOST else ""
        return f"{who}: {code}{judgement.words}{times}{also}{of_jobs(jobs)}."


def _test(event: Mapping[str, Any]) -> str:
    """Return why an event is no real one; empty for a real one."""
    if event.get("trusted") is False:
        return "untrusted"
    return "injected" if is_injected(event.get("detail", {})) else ""
