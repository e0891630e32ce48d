"""What an answer of Slurm changes: a pure comparison with what was published before.

Known is the last message of each job or node, as it stands in the last-value streams JOBS and NODES. So a feed that
starts again reads it back from there, repeats nothing, and ends the jobs that ended meanwhile.

An id is made of the run, the new content and the time of the message before. The same change found twice (a feed that
died before the stream's word came) has one id; a job or node that returns to an earlier state has a new one.

An outage changes nothing: no function here takes one.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import escape, subjects
from heeler.slurm.jobs import AnyJob, JobsAnswer, job_message
from heeler.slurm.nodes import NodesAnswer, node_message
from heeler.slurm.publication import Publication

Message = Mapping[str, Any]
Known = Mapping[str, Message]

_DIGITS = re.compile(r"(\d+)", re.ASCII)
HOUR_NS = 3600 * 1_000_000_000
REPUBLISH_NS = 24 * HOUR_NS
RECENT_NS = HOUR_NS  # a job that began and ended between two polls is told only so long
# A job or node that comes back needs the message of its end for a new id: longer than the stream looks for twins.
KEEP_ENDED_NS = 2 * HOUR_NS

# What says nothing new by itself: when and why a message was written, and a load that never stands still.
VOLATILE = frozenset(("ts", "event", "cpu_load"))
GPU_KEYS = ("gpus", "gpus_source", "gpus_per_node")
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
    exclusive_owns: bool = False,
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
        new = job_message(
            job,
            cluster=cluster,
            event="started",
            ts_ns=now_ns,
            node_gpus=node_gpus,
            exclusive_owns=exclusive_owns,
        )
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


def is_over(message: Message) -> bool:
    """Whether this is the last word on a job that has ended, or a node that is gone."""
    return _ended(message) or _gone(message)


def node_gpus(known: Known) -> dict[str, int]:
    """Return how many GPUs each known node has, where that is known."""
    return {name: message["gpus_total"] for name, message in known.items() if "gpus_total" in message}


def _job_messages(before: Message | None, job: AnyJob, new: Message, now_ns: int, republish_ns: int) -> list[Message]:
    """Return what one row of the answer gives to publish, oldest first."""
    live = None if before is None or _ended(before) else before
    if job.state.holds:
        if live is None:
            return [new]
        if not _same_run(live, new):
            return [_requeued(live, job, now_ns), new]
        new = _completing(live, new) if job.state.name == "COMPLETING" else new
        changed = _differs(live, new) or now_ns - live["ts"] >= republish_ns
        return [{**new, "event": "changed"}] if changed else []
    if job.state.ended:
        return _job_has_ended(before, live, job, new, now_ns)
    # Waiting again is an end of the run before; a state that is not known says nothing.
    return [_requeued(live, job, now_ns)] if live is not None and job.state.name != "UNKNOWN" else []


def _job_has_ended(
    before: Message | None, live: Message | None, job: AnyJob, new: Message, now_ns: int
) -> list[Message]:
    if live is not None and _same_run(live, new):
        return [_end(live, now_ns, job.state.name, job.end_ts_ns)]
    messages = [] if live is None else [_requeued(live, job, now_ns)]
    told = before is not None and _same_run(before, new)
    recent = job.end_ts_ns is not None and now_ns - job.end_ts_ns < RECENT_NS
    if not told and recent and job.start_ts_ns is not None and job.nodes:
        messages.append({**new, "event": "ended"})
    return messages


def _completing(live: Message, new: Message) -> Message:
    """Return what a run that completes still has: of the nodes that it had, and their GPUs as they were.

    A run gives its nodes back as their epilogs end. Slurm then lists the others only, and no longer tells their GPUs.
    """
    if not set(new["nodes"]) <= set(live["nodes"]):
        return new
    given_back = {*live.get("released", ()), *live["nodes"]} - set(new["nodes"])
    about = {key: live[key] for key in GPU_KEYS if key in live} if live.get("gpus_source") != "unknown" else {}
    return {
        **{key: value for key, value in new.items() if not about or key not in GPU_KEYS},
        **about,
        **({"released": sorted(given_back)} if given_back else {}),
    }


def _requeued(live: Message, job: AnyJob, now_ns: int) -> Message:
    """Return the end of a run whose job waits or runs again: what ended it, as far as the job itself tells.

    Slurm names the node whose failure ended a run until the next such failure, so only a new name says something.
    """
    node = job.failed_node
    by_node = (
        node is not None and node != live.get("failed_node") and node in (*live["nodes"], *live.get("released", ()))
    )
    end = {**_end(live, now_ns, "NODE_FAIL" if by_node else "REQUEUED")}
    if job.restarts is not None and job.restarts > live.get("restarts", job.restarts):
        end["requeued"] = True
    if by_node:
        end["failed_node"] = node
    return end


def _end(live: Message, now_ns: int, state: str, end_ts_ns: int | None = None) -> Message:
    """Return the end of a run: its nodes and GPUs as they were while it ran."""
    end = {} if end_ts_ns is None else {"end_ts": end_ts_ns}
    ran = {key: value for key, value in live.items() if key not in ("released", "failed_node")}
    if live.get("released"):
        ran["nodes"] = sorted({*live["nodes"], *live["released"]}, key=_in_order)
    return {**ran, "event": "ended", "ts": now_ns, "state": state, **end}


def _in_order(name: str) -> list[tuple[int, str]]:
    """Return what sorts names as Slurm does: n2 before n10."""
    return [(int(part) if at % 2 else 0, part) for at, part in enumerate(_DIGITS.split(name))]


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
