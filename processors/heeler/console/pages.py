"""The answers behind the pages of a node, a job and a finding: pure, from the model and what was read for them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heeler.console import health, why
from heeler.console.facts import Facts, Message
from heeler.console.fleet import FIRST_JOB, JOB_NONE, JOB_SEVERAL, NO_CELL, ROW, STATE_NAMES
from heeler.console.fold import KIND, incidents_of
from heeler.console.frames import action_row, finding_row, job_row
from heeler.console.lanes import checks_now, timeline
from heeler.console.model import SEVERITIES, Job, Model

HOUR_NS = 3600 * 1_000_000_000
MOST_ROWS = 400
LAGGARDS = 12
MOST_MEMBERS = 200
COMPARED = ("sm_clock_mhz", "sm_active_ratio", "tensor_active_ratio", "power_w", "util_ratio", "temp_c")


def node_page(model: Model, name: str, facts: Facts, states: Sequence[Message], hours: float) -> dict[str, Any]:
    """Return all that the page of a node shows."""
    start = facts.now_ns - int(hours * HOUR_NS)
    jobs = [job for job in (*model.jobs.values(), *model.ended.values()) if name in job.nodes]
    running = [job for job in jobs if job.id in model.jobs]
    state = facts.nodes[0] if facts.nodes else None
    agent = facts.agents[0] if facts.agents else None
    return {
        "node": name,
        "known": facts.known() or name in model.fleet.number,
        "now": facts.now_ns,
        "start": start,
        "slurm": None if state is None else dict(state),
        "drained_by": [] if state is None else [line.strip() for line in health.drained_by(facts, state)],
        "agent": None if agent is None else _agent(agent),
        "gpus": _gpus(model, name, facts.now_ns),
        "jobs": [job_row(job) for job in running],
        "findings": [finding_row(model, one) for one in facts.findings],
        "actions": [action_row(one) for one in facts.actions],
        "checks": checks_now(facts),
        "items": timeline(facts, states, jobs, start),
        "unreadable": facts.unreadable,
    }


def _agent(status: Message) -> dict[str, Any]:
    bad = {
        name: f"{one.get('state', 'unknown')}" + (f": {one['why']}" if isinstance(one.get("why"), str) else "")
        for name, one in status["collectors"].items()
        if one.get("state") != "ok"
    }
    return {"ts": status["ts"], "version": status.get("version"), "not_ok": bad}


def _gpus(model: Model, name: str, now_ns: int) -> list[dict[str, Any]]:
    fleet = model.fleet
    number = fleet.number.get(name)
    if number is None:
        return []
    node = fleet.nodes[number]
    found = []
    for at, uuid in enumerate(node.uuids):
        cell = node.start + at
        if uuid is None or fleet.state[cell] == NO_CELL:
            continue
        found.append(
            {
                "uuid": uuid,
                "index": node.indices[at],
                "state": STATE_NAMES[fleet.state[cell]],
                "severity": int(fleet.severity[cell]),
                "age_s": (now_ns - int(fleet.heard[cell])) / 1e9 if fleet.heard[cell] else None,
                "job": _job_of(model, int(fleet.job[cell])),
                "values": fleet.values(cell),
            }
        )
    return sorted(found, key=lambda one: (one["index"] is None, one["index"] or 0))


def _job_of(model: Model, number: int) -> str | None:
    """Return who holds a GPU, as words: "" nobody, None not known."""
    if number == JOB_NONE:
        return ""
    if number == JOB_SEVERAL:
        return "several"
    job = model.job_number(number) if number >= FIRST_JOB else None
    return None if job is None else job.id


def job_page(model: Model, name: str, facts: Facts, summaries: Sequence[Message] = ()) -> dict[str, Any]:
    """Return all that the page of a job shows."""
    job = model.job(name)
    findings = [one for one in model.findings.values() if name in (one.get("job_id"), *one.get("jobs", ()))]
    cells = _cells_of(model, job)
    nodes = sorted(job.nodes) if job is not None and job.of_slurm else _nodes_of(model, cells)
    return {
        "job": name,
        "known": job is not None or bool(findings) or facts.known() or bool(summaries),
        "now": facts.now_ns,
        "used": _used(summaries),
        "row": None if job is None else job_row(job),
        "qos": None if job is None else job.about.get("qos"),
        "end_ts": None if job is None else job.end_ts,
        "gpus": len(cells),
        "nodes_all": len(nodes),
        "nodes": _node_rows(model, nodes, cells),
        "peers": {metric: _spread(model, cells, metric) for metric in COMPARED},
        "behind": _behind(model, cells),
        "findings": [finding_row(model, one) | {"lost": lost(one, len(cells), facts.now_ns)} for one in findings],
        "actions": [action_row(one) for one in facts.actions],
        "records": [line.strip() for line in health.job(facts)][:20],
        "unreadable": facts.unreadable,
    }


def _used(summaries: Sequence[Message]) -> dict[str, Any] | None:
    """Return what the newest run's GPU time was used for, in hours: None where nobody has counted it."""
    if not summaries:
        return None
    newest = max(summaries, key=lambda one: (int(one.get("start_ts", 0)), int(one["ts"])))
    hours = {
        name: newest[f"{name}_gpu_s"] / 3600 if f"{name}_gpu_s" in newest else None
        for name in ("allocated", "active", "idle", "unknown", "lost")
    }
    return {"hours": hours, "final": newest["final"], "until_ts": newest["until_ts"]}


def laggards(model: Model, job: Job, most: int = 4) -> list[tuple[str, str]]:
    """Return (node, UUID) of the GPUs whose curves are worth a look: those with findings, then the slowest."""
    fleet = model.fleet
    cells = _cells_of(model, job)
    marked = cells[np.argsort(-fleet.severity[cells].astype(int), kind="stable")]
    named = [_who(model, int(cell)) for cell in marked[:most] if fleet.severity[cell]]
    slow = [(row["node"], row["uuid"]) for row in _behind(model, cells)]
    return list(dict.fromkeys(one for one in (*named, *slow) if one[1] is not None))[:most]


def _who(model: Model, cell: int) -> tuple[str, str | None]:
    node = model.fleet.nodes[int(model.fleet.node[cell])]
    return model.fleet.names[node.number], node.uuids[cell - node.start]


def _cells_of(model: Model, job: Job | None) -> NDArray[np.intp]:
    if job is None:
        return np.zeros(0, np.intp)
    fleet = model.fleet
    held = (fleet.job[: fleet.used] == job.number) & (fleet.state[: fleet.used] != NO_CELL)
    return np.flatnonzero(held)


def _nodes_of(model: Model, cells: NDArray[np.intp]) -> list[str]:
    return sorted(model.fleet.names[number] for number in np.unique(model.fleet.node[cells]).tolist())


def _spread(model: Model, cells: NDArray[np.intp], metric: str) -> dict[str, Any]:
    """Return the middle and the ends of a metric over a job's GPUs, and how many told it."""
    values = model.fleet.raw[ROW[metric], cells]
    known = values[~np.isnan(values)]
    if not len(known):
        return {"known": 0}
    low, p10, middle, p90, high = np.percentile(known, (0, 10, 50, 90, 100)).tolist()
    return {"known": len(known), "min": low, "p10": p10, "median": middle, "p90": p90, "max": high}


def _node_rows(model: Model, nodes: Sequence[str], cells: NDArray[np.intp]) -> list[dict[str, Any]]:
    """Return rows of a job's nodes, a bounded number: those in trouble, those without any GPU seen, then the others."""
    fleet = model.fleet
    numbers, at = np.unique(fleet.node[cells], return_inverse=True)
    gpus = np.bincount(at, minlength=len(numbers))
    not_ok = np.bincount(at, weights=fleet.state[cells] != STATE_NAMES.index("ok"), minlength=len(numbers)).astype(int)
    severity = np.zeros(len(numbers), np.intp)
    np.maximum.at(severity, at, fleet.severity[cells])
    hottest = np.full(len(numbers), np.nan)
    np.fmax.at(hottest, at, fleet.raw[ROW["temp_c"], cells])
    means = {metric: _means(fleet.raw[ROW[metric], cells], at, len(numbers)) for metric in COMPARED[:4]}
    seen = {fleet.names[number] for number in numbers.tolist()}
    unseen = [name for name in nodes if name not in seen]
    nothing = dict.fromkeys((*COMPARED[:4], "temp_max_c"))
    unread: list[dict[str, Any]] = [
        {"node": name, "gpus": 0, "not_ok": 0, "severity": 0, **nothing} for name in unseen[:MOST_ROWS]
    ]
    order = np.lexsort((numbers, means["sm_clock_mhz"], -not_ok, -severity))[:MOST_ROWS].tolist()
    rows: list[dict[str, Any]] = [
        {
            "node": fleet.names[int(numbers[one])],
            "gpus": int(gpus[one]),
            "not_ok": int(not_ok[one]),
            "severity": int(severity[one]),
            **{metric: _known(mean[one]) for metric, mean in means.items()},
            "temp_max_c": _known(hottest[one]),
        }
        for one in order
    ]
    troubled = sum(row["not_ok"] > 0 or row["severity"] > 0 for row in rows)
    return [*rows[:troubled], *unread, *rows[troubled:]][:MOST_ROWS]


def _means(values: NDArray[np.float64], at: NDArray[np.intp], count: int) -> NDArray[np.float64]:
    """Return the mean of each node's known values; NaN where none is known."""
    known = ~np.isnan(values)
    total = np.bincount(at[known], weights=values[known], minlength=count)
    number = np.bincount(at[known], minlength=count)
    mean: NDArray[np.float64] = np.divide(total, number, out=np.full(count, np.nan), where=number > 0)
    return mean


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


def _behind(model: Model, cells: NDArray[np.intp]) -> list[dict[str, Any]]:
    """Return the GPUs with the lowest clock against the job's median: what holds the others up, if anything does.

    Clocks, since at a barrier all GPUs of a job show the activity of the slowest; no verdict, which is for detect.
    """
    fleet = model.fleet
    clocks = fleet.raw[ROW["sm_clock_mhz"], cells]
    known = np.flatnonzero(~np.isnan(clocks))
    if len(known) < 2:
        return []
    median = float(np.median(clocks[known]))
    order = known[np.argsort(clocks[known], kind="stable")][:LAGGARDS]
    rows = []
    for at in order.tolist():
        cell = int(cells[at])
        node = fleet.nodes[int(fleet.node[cell])]
        ratio = float(clocks[at]) / median - 1.0 if median > 0 else None
        if ratio is None or ratio > -0.02:
            continue
        rows.append(
            {
                "node": fleet.names[node.number],
                "uuid": node.uuids[cell - node.start],
                "index": node.indices[cell - node.start],
                "severity": int(fleet.severity[cell]),
                "deviation_ratio": ratio,
                "values": fleet.values(cell),
            }
        )
    return rows


def lost(finding: Message, gpus: int, now_ns: int) -> dict[str, Any] | None:
    """Return what a finding has cost a job so far, in GPU-hours; None where nothing tells.

    The job's own slowdown where detect knows it; all of it where the job stands still; else the gap of the slowest to
    its peers, as an upper bound: that much is lost where all GPUs wait for it. `by` says which.
    """
    if not gpus:
        return None
    hours = max(0, now_ns - finding["first_ts"]) / HOUR_NS
    slowdown = (finding.get("impact") or {}).get("job_slowdown_ratio")
    if isinstance(slowdown, int | float) and slowdown > 1:
        return {"gpu_hours": gpus * hours * (1 - 1 / slowdown), "share": 1 - 1 / slowdown, "by": "pace"}
    if finding["kind"] == "hang":
        return {"gpu_hours": gpus * hours, "share": 1.0, "by": "still"}
    gaps = [item["deviation_ratio"] for item in finding["evidence"][:1] if "deviation_ratio" in item]
    if finding["kind"] != "gpu_lag" or not gaps or gaps[0] >= 0:
        return None
    return {"gpu_hours": gpus * hours * -gaps[0], "share": -gaps[0], "by": "gap"}


def finding_page(model: Model, finding: Message, actions: Sequence[Message], now_ns: int) -> dict[str, Any]:
    """Return all that the page of a finding shows, but its plots."""
    job = model.job(finding["job_id"]) if "job_id" in finding else None
    return {
        "now": now_ns,
        "finding": finding_row(model, finding) | {"entity": finding["entity"], "impact": finding.get("impact")},
        "evidence": [dict(item, words=why.evidence(item)) for item in finding["evidence"]],
        "actions": [action_row(one) for one in actions],
        "job": None if job is None else job_row(job),
        "members": [finding_row(model, one) for one in _members(model, finding)[:MOST_MEMBERS]],
        "incident": None if (of := incident_of(model, finding)) is None else {"id": of["id"], "summary": of["summary"]},
        "lost": lost(finding, len(_cells_of(model, job)), now_ns),
        "level": SEVERITIES.get(finding["severity"]),
    }


def incident_of(model: Model, finding: Message) -> Message | None:
    """Return the open incident that a finding belongs to."""
    ident = incidents_of(model.findings.values()).get(finding["id"])
    return None if ident is None else model.findings[ident]


def _members(model: Model, finding: Message) -> list[Message]:
    """Return the findings of an incident that are known, those that are open first."""
    if finding["kind"] != KIND:
        return []
    names = finding["entity"].get("members") or ()
    return [all_of[name] for all_of in (model.findings, model.closed) for name in names if name in all_of]


def found_by(model: Model, text: str, most: int = 12) -> list[dict[str, str]]:
    """Return what a search may mean: nodes, jobs and GPUs whose name begins with, or contains, a text."""
    text = text.strip().lower()
    if not text:
        return []
    found: list[tuple[int, dict[str, str]]] = []
    named = (name for name in model.fleet.names if text in name.lower())
    found.extend((_rank(name, text), {"kind": "node", "name": name}) for name in named)
    for job in (*model.jobs.values(), *model.ended.values()):
        said = " ".join(str(job.about.get(key) or "") for key in ("name", "user"))
        if text in job.id.lower() or text in said.lower():
            found.append((_rank(job.id, text), {"kind": "job", "name": job.id, "about": said.strip()}))
    if len(text) >= 4:
        for uuid, cell in model.fleet.cell_of.items():
            if text in uuid.lower():
                node = model.fleet.names[int(model.fleet.node[cell])]
                found.append((_rank(uuid, text), {"kind": "gpu", "name": uuid, "node": node}))
    found.sort(key=lambda item: (item[0], len(item[1]["name"]), item[1]["name"]))
    return [one for _, one in found[:most]]


def _rank(name: str, text: str) -> int:
    name = name.lower()
    return 0 if name == text else 1 if name.startswith(text) else 2
