"""What an answer of Slurm changes: a pure comparison with what was published before.

Known is the last message of each job or node, as it stands in the last-value streams JOBS and NODES. So a feed that
starts again reads it back from there, repeats nothing, and ends the jobs that ended meanwhile.

An id is made of the run, the new content and the time of the message before. The same change found twice (a feed that
died before the stream's word came) has one id; a job or node that returns to an earlier state has a new one.

An outage changes nothing: no function here takes one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import escape, subjects
from heeler.slurm.jobs import Job, JobsAnswer, job_message
from heeler.slurm.nodes import NodesAnswer, node_message
from heeler.slurm.publication import Publication

Message = Mapping[str, Any]
Known = Mapping[str, Message]

HOUR_NS = 3600 * 1_000_000_000
REPUBLISH_NS = 24 * HOUR_NS
RECENT_NS = HOUR_NS  # a job that began and ended between two polls is told only so long
# A job or node that comes back needs the message of its end for a new id: longer than the stream looks for twins.
KEEP_ENDED_NS = 2 * HOUR_NS

# What says nothing new by itself: when and why a message was written, and a load that never stands still.
VOLATILE = frozenset(("ts", "event", "cpu_load"))
RUN = ("restarts", "submit_ts", "start_ts")


@dataclass(frozen=True, slots=True)
class Change:
    """What to publish, and what is known once it is."""

    publications: Sequence[Publication] = ()
    known: Known = field(default_factory=dict)


def diff_jobs(
    known: Known,
    answer: JobsAnswer,
    *,
    cluster: str,
    now_ns: int,
    node_gpus: Mapping[str, int] | None = None,
    republish_ns: int = REPUBLISH_NS,
) -> Change:
    """Compare a complete answer with the known jobs.

    A job that holds nodes has started; one that no longer does, or is not in the answer, has ended. A requeued job
    is two runs. A job whose row could not be read stays as it was; if it can't even be told which job that is,
    no job ends by its absence in this round.
    """
    out: list[Publication] = []
    after: dict[str, Message] = {}
    for job in answer.jobs:
        before = known.get(job.id)
        if before is None and not (job.state.holds or job.state.ended):
            continue
        new = job_message(job, cluster=cluster, event="started", ts_ns=now_ns, node_gpus=node_gpus)
        messages = _job_messages(before, job, new, now_ns, republish_ns)
        out += [_job_publication(cluster, before, message) for message in messages]
        last = messages[-1] if messages else before
        if last is not None:
            after[job.id] = last
    unreadable = {row.name for row in answer.unreadable}
    for job_id, before in known.items():
        if job_id in after:
            continue
        if _ended(before):
            if now_ns - before["ts"] < KEEP_ENDED_NS:
                after[job_id] = before
            continue
        if job_id in unreadable or None in unreadable:
            after[job_id] = before
            continue
        # It is gone for longer than Slurm keeps ended jobs, so how and when it ended is not known.
        after[job_id] = _end(before, now_ns, "UNKNOWN")
        out.append(_job_publication(cluster, before, after[job_id]))
    return Change(out, after)


def diff_nodes(
    known: Known, answer: NodesAnswer, *, cluster: str, now_ns: int, republish_ns: int = REPUBLISH_NS
) -> Change:
    """Compare a complete answer with the known nodes: seen, changed, gone."""
    out: list[Publication] = []
    after: dict[str, Message] = {}
    for node in answer.nodes:
        before = known.get(node.name)
        live = before is not None and not _gone(before)
        new = node_message(node, cluster=cluster, event="changed" if live else "seen", ts_ns=now_ns)
        if before is not None and live and not _differs(before, new) and now_ns - before["ts"] < republish_ns:
            after[node.name] = before
            continue
        after[node.name] = new
        out.append(_node_publication(cluster, before, new))
    unreadable = {row.name for row in answer.unreadable}
    for name, before in known.items():
        if name in after:
            continue
        if _gone(before):
            if now_ns - before["ts"] < KEEP_ENDED_NS:
                after[name] = before
            continue
        if name in unreadable or None in unreadable:
            after[name] = before
            continue
        new = {**before, "event": "gone", "ts": now_ns, "state": "unknown", "flags": [], "available": False}
        after[name] = new
        out.append(_node_publication(cluster, before, new))
    return Change(out, after)


def live_nodes(known: Known) -> int:
    """Return how many known nodes there are now."""
    return sum(not _gone(message) for message in known.values())


def live_jobs(known: Known) -> int:
    """Return how many known jobs hold resources."""
    return sum(not _ended(message) for message in known.values())


def node_gpus(known: Known) -> dict[str, int]:
    """Return how many GPUs each known node has, where that is known."""
    return {name: message["gpus_total"] for name, message in known.items() if "gpus_total" in message}


def _job_messages(before: Message | None, job: Job, new: Message, now_ns: int, republish_ns: int) -> list[Message]:
    """Return what one row of the answer gives to publish, oldest first."""
    live = None if before is None or _ended(before) else before
    if job.state.holds:
        if live is None:
            return [new]
        if not _same_run(live, new):
            return [_end(live, now_ns, "REQUEUED"), new]
        changed = _differs(live, new) or now_ns - live["ts"] >= republish_ns
        return [{**new, "event": "changed"}] if changed else []
    if job.state.ended:
        return _job_has_ended(before, live, job, new, now_ns)
    # Waiting again is an end of the run before; a state that is not known says nothing.
    return [_end(live, now_ns, "REQUEUED")] if live is not None and job.state.name != "UNKNOWN" else []


def _job_has_ended(before: Message | None, live: Message | None, job: Job, new: Message, now_ns: int) -> list[Message]:
    if live is not None and _same_run(live, new):
        return [_end(live, now_ns, job.state.name, job.end_ts_ns)]
    messages = [] if live is None else [_end(live, now_ns, "REQUEUED")]
    told = before is not None and _same_run(before, new)
    recent = job.end_ts_ns is not None and now_ns - job.end_ts_ns < RECENT_NS
    if not told and recent and job.start_ts_ns is not None and job.nodes:
        messages.append({**new, "event": "ended"})
    return messages


def _end(live: Message, now_ns: int, state: str, end_ts_ns: int | None = None) -> Message:
    """Return the end of a run: its nodes and GPUs as they were while it ran."""
    end = {} if end_ts_ns is None else {"end_ts": end_ts_ns}
    return {**live, "event": "ended", "ts": now_ns, "state": state, **end}


def _ended(message: Message) -> bool:
    return message.get("event") == "ended"


def _gone(message: Message) -> bool:
    return message.get("event") == "gone"


def _same_run(one: Message, other: Message) -> bool:
    return all(one.get(key) == other.get(key) for key in RUN)


def _content(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in VOLATILE}


def _differs(before: Message, new: Message) -> bool:
    return _content(before) != _content(new)


def _digest(before: Message | None, new: Message) -> str:
    previous = before["ts"] if before is not None else 0
    text = json.dumps([previous, _content(new)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _job_publication(cluster: str, before: Message | None, new: Message) -> Publication:
    job = new["job_id"]
    parts = (
        "JobEvent",
        escape(cluster),
        job,
        new.get("start_ts", 0),
        new.get("restarts", 0),
        new["event"],
        _digest(before, new),
    )
    return Publication("JobEvent", subjects.job_event(cluster, job), ".".join(map(str, parts)), new)


def _node_publication(cluster: str, before: Message | None, new: Message) -> Publication:
    node = new["node"]
    msg_id = f"NodeState.{escape(cluster)}.{escape(node)}.{new['event']}.{_digest(before, new)}"
    return Publication("NodeState", subjects.node_state(cluster, node), msg_id, new)
