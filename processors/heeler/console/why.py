"""Answers in plain sentences: pure, from `Facts` to lines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from heeler.bus import escape
from heeler.console import gpus, health
from heeler.console.facts import Facts, Message, nodes_of
from heeler.console.words import ago, number

_UNITS = {"1": "", "W": " W", "MHz": " MHz", "Cel": " °C", "By": " B", "By/s": " B/s", "s": " s", "ns": " ns"}
_SHOWN_EVENTS = 5
_SHOWN_ACTIONS = 5


def node(name: str, facts: Facts) -> Iterator[str]:
    """Say why a node is in trouble, or that it is not."""
    yield f"node {name}: {_verdict(facts)}"
    yield from _several(facts)
    yield from _slurm_node(facts)
    yield from _agent(facts)
    for job in facts.jobs:
        yield f"  job {job['job_id']} runs here{_by(job)}"
    yield from _findings(facts)
    yield from health.node(facts)
    yield from _actions(facts, "nothing was drained, and nothing was refused")
    yield from _events(facts)
    yield from _further(
        f"heeler events --node {quote(name)} --since 1d{_of(facts)}",
        f"heeler drain explain {quote(name)}",
        f"scontrol show node {quote(name)}",
        f"heeler tap 'job.sample.*.{escape(name)}'",
    )


def job(name: str, facts: Facts) -> Iterator[str]:
    """Say why a job is slow or in danger, or that nothing is known against it."""
    yield f"job {name}: {_verdict(facts)}"
    yield from _several(facts)
    for event in facts.jobs:
        nodes = event["nodes"] or nodes_of(facts)
        state = event.get("state", "state unknown")
        yield f"  {state}{_by(event)} on {len(nodes)} node{'s' if len(nodes) != 1 else ''}: {_some(nodes)}"
        if "start_ts" in event:
            ended = f", ended {ago(facts.now_ns - event['end_ts'])} ago" if "end_ts" in event else ""
            yield f"  started {ago(facts.now_ns - event['start_ts'])} ago{ended}"
    if not facts.jobs:
        nodes = nodes_of(facts)
        yield "  Slurm's feed has not named this job" + (f"; accounting has it on {_some(nodes)}" if nodes else "")
    yield from _findings(facts)
    yield from health.job(facts)
    yield from _actions(facts, "no node of it was drained for these findings")
    yield from _events(facts, named=True)
    over = bool(facts.jobs or facts.records) and all(event["event"] == "ended" for event in facts.jobs)
    said = quote(name)
    slurm = f"sacct -j {said} -o JobID,State,ExitCode,Reason,NodeList" if over else f"scontrol show job {said} -d"
    yield from _further(
        f"heeler events --job {said} --since 1d{_of(facts)}", f"heeler report job {said}{_of(facts)}", slurm
    )


def gpu(uuid: str, facts: Facts) -> Iterator[str]:
    """Say what is known against a GPU."""
    many, unknown = len(facts.gpus) > 1, not facts.known()
    yield f"gpu {uuid}: " + ("not the name of one GPU" if many else _verdict(facts))
    yield from gpus.place(facts)
    if many or unknown:
        return
    node = facts.gpus[0].node if facts.gpus else next((f["node"] for f in facts.findings if "node" in f), None)
    if facts.gpus:
        yield from _slurm_node(facts)
    yield from _findings(facts)
    yield from health.checks(facts)
    yield from _actions(facts, "nothing was drained for it, and nothing was refused")
    yield from _events(facts)
    if node is not None:
        full = facts.gpus[0].gpu["uuid"] if facts.gpus else uuid
        yield from _further(
            f"heeler why node {quote(node)}{_of(facts)}",
            f"heeler events --node {quote(node)} --since 1d{_of(facts)}",
            f"on {node}: nvidia-smi -q -i {quote(full)}",
        )


def open_findings(facts: Facts) -> list[Message]:
    """Return the findings that are open, the worst first."""
    rank = {"critical": 0, "warning": 1, "info": 2}
    found = [f for f in facts.findings if f["state"] != "closed"]
    return sorted(found, key=lambda f: (rank.get(f["severity"], 3), f["first_ts"]))


def as_json(facts: Facts) -> dict[str, Any]:
    """Return everything behind an answer."""
    return {
        "gpus": [{"node": found.node, **found.gpu} for found in facts.gpus], "samples": facts.samples,
        "open_findings": open_findings(facts),
        "closed_findings": [f for f in facts.findings if f["state"] == "closed"],
        "incidents": list(facts.incidents.values()),
        "drain_actions": facts.actions, "jobs": facts.jobs, "node": facts.nodes[:1], "agent": facts.agents[:1],
        "kernel_events": facts.events, "health_runs": facts.health_runs, "health_results": facts.health_results,
        "job_records": facts.records, "nodes_not_looked_at": facts.unseen_nodes, "unreadable": facts.unreadable,
    }  # fmt: skip


def _several(facts: Facts) -> Iterator[str]:
    """Say that this is about things of the same name on several clusters, where it is."""
    if len(found := facts.clusters()) > 1:
        yield f"  of clusters {', '.join(found)} together: --cluster NAME asks about one"


def _verdict(facts: Facts) -> str:
    count = len(open_findings(facts))
    if not facts.known():
        return "not known on this bus"
    if count == 0:
        return "no open finding"
    return f"{count} open finding{'s' if count > 1 else ''}"


def _slurm_node(facts: Facts) -> Iterator[str]:
    if not facts.nodes:
        yield "  Slurm: not known (its feed has not named this node)"
        return
    state = facts.nodes[0]
    text = "+".join((state["state"], *state["flags"]))
    reason = ""
    if state.get("reason"):
        who = state.get("reason_user", "somebody")
        when = f", {ago(facts.now_ns - state['reason_ts'])} ago" if "reason_ts" in state else ""
        reason = f': "{state["reason"]}", set by {who}{when}'
    yield f"  Slurm: {text}{reason}"
    yield from health.drained_by(facts, state)


def _agent(facts: Facts) -> Iterator[str]:
    if not facts.agents:
        yield "  agent: has never reported"
        return
    status = facts.agents[0]
    bad = [f"{name} {c.get('state', 'unknown')}" for name, c in status["collectors"].items() if c.get("state") != "ok"]
    age = ago(facts.now_ns - status["ts"])
    yield f"  agent: reported {age} ago; " + (", ".join(bad) if bad else "all collectors ok")


def _findings(facts: Facts) -> Iterator[str]:
    for finding in open_findings(facts):
        yield f"  {finding['severity']}: {finding['summary']}"
        age = ago(facts.now_ns - finding["first_ts"])
        sure, advice = finding["confidence"], finding["advice"]
        yield f"    {finding['kind']}, open for {age}, confidence {sure:.2f}, advice {advice}"
        incident = facts.incidents.get(finding.get("incident", ""))
        if incident is not None:
            yield f"    not alone: {incident['summary']}"
        for item in finding["evidence"][:6]:
            yield f"    evidence: {evidence(item)}"
    closed = [f for f in facts.findings if f["state"] == "closed"]
    for finding in closed[:3]:
        why = finding.get("close_reason", "no reason given")
        yield f"  closed {ago(facts.now_ns - finding['ts'])} ago: {finding['summary']} ({why})"


def evidence(item: Mapping[str, Any]) -> str:
    """Return one piece of evidence as words."""
    if item.get("text"):
        return f"{item['metric']}: {item['text']}"
    unit = _UNITS.get(item.get("unit", ""), f" {item.get('unit', '')}".rstrip())
    words = f"{item['metric']} {number(item.get('value'))}{unit}"
    if "peers_median" in item:
        words += f", {item.get('peers', 'its')} peers {number(item['peers_median'])}{unit}"
    if "deviation_ratio" in item:
        words += f" ({item['deviation_ratio']:+.0%})"
    if "windows" in item:
        of = f" of {item['of_windows']}" if "of_windows" in item else ""
        words += f", in {item['windows']}{of} windows"
    return words


def _actions(facts: Facts, none: str) -> Iterator[str]:
    if not facts.actions:
        yield f"  drain: {none}"
    for action in facts.actions[:_SHOWN_ACTIONS]:
        dry = " (dry run)" if action["dry_run"] else ""
        age = ago(facts.now_ns - action["ts"])
        yield f"  {action.get('step', 'drain')} {action['verdict']}{dry} {age} ago: {action['node']}: {action['why']}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _events(facts: Facts, *, named: bool = False) -> Iterator[str]:
    for event in facts.events[:_SHOWN_EVENTS]:
        where = f" on {event['node']}" if named else ""
        code = f" {event['code']}" if "code" in event else ""
        who = "driver" if event.get("witness") == ["nvml"] else "kernel log"
        text = event.get("text") or event.get("raw") or event.get("detail", {}).get("event")
        said = f": {text[:160]}" if isinstance(text, str) and text else ""
        yield f"  {who}{where} {ago(facts.now_ns - event['ts'])} ago: {event['kind']}{code}{said}"


def _further(*commands: str) -> Iterable[str]:
    yield "  look further: " + "; ".join(commands)


def _of(facts: Facts) -> str:
    """Return the option that asks of the same cluster, where one was named."""
    return "" if facts.cluster is None else f" --cluster {quote(facts.cluster)}"


def _by(event: Message) -> str:
    user = f" of {event['user']}" if event.get("user") else ""
    return f"{user} ({event['name']})" if event.get("name") else user
