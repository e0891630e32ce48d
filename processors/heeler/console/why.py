"""Answers in plain sentences: pure, from `Facts` to lines."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from heeler.console.facts import Facts, Message

_UNITS = {"1": "", "W": " W", "MHz": " MHz", "Cel": " °C", "By": " B", "By/s": " B/s", "s": " s", "ns": " ns"}
_SHOWN_EVENTS = 5
_SHOWN_ACTIONS = 5


def node(name: str, facts: Facts) -> Iterator[str]:
    """Say why a node is in trouble, or that it is not."""
    yield f"node {name}: {_verdict(facts)}"
    yield from _slurm_node(facts)
    yield from _agent(facts)
    for job in facts.jobs:
        yield f"  job {job['job_id']} runs here{_by(job)}"
    yield from _findings(facts)
    yield from _actions(facts, "nothing was drained, and nothing was refused")
    yield from _events(facts)
    yield from _further(
        f"heeler tap 'job.sample.*.{name}'", f"scontrol show node {name}", f"heeler tap 'finding.*.{name}.*'"
    )


def job(name: str, facts: Facts) -> Iterator[str]:
    """Say why a job is slow or in danger, or that nothing is known against it."""
    yield f"job {name}: {_verdict(facts)}"
    for event in facts.jobs:
        nodes = event["nodes"]
        shown = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
        state = event.get("state", "state unknown")
        yield f"  {state}{_by(event)} on {len(nodes)} node{'s' if len(nodes) != 1 else ''}: {shown}"
        if "start_ts" in event:
            yield f"  started {_ago(facts.now_ns - event['start_ts'])} ago"
    if not facts.jobs:
        yield "  Slurm's feed has not named this job"
    yield from _findings(facts)
    yield from _actions(facts, "no node of it was drained for these findings")
    yield from _further(f"scontrol show job {name} -d", f"heeler tap 'slurm.job.{name}'")


def gpu(uuid: str, facts: Facts) -> Iterator[str]:
    """Say what is known against a GPU."""
    yield f"gpu {uuid}: {_verdict(facts)}"
    yield from _findings(facts)


def open_findings(facts: Facts) -> list[Message]:
    """Return the findings that are open, the worst first."""
    rank = {"critical": 0, "warning": 1, "info": 2}
    found = [f for f in facts.findings if f["state"] != "closed"]
    return sorted(found, key=lambda f: (rank.get(f["severity"], 3), f["first_ts"]))


def as_json(facts: Facts) -> dict[str, Any]:
    """Return everything behind an answer."""
    return {
        "open_findings": open_findings(facts),
        "closed_findings": [f for f in facts.findings if f["state"] == "closed"],
        "drain_actions": facts.actions, "jobs": facts.jobs, "node": facts.nodes[:1], "agent": facts.agents[:1],
        "kernel_events": facts.events, "unreadable": facts.unreadable,
    }  # fmt: skip


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
        when = f", {_ago(facts.now_ns - state['reason_ts'])} ago" if "reason_ts" in state else ""
        reason = f': "{state["reason"]}", set by {who}{when}'
    yield f"  Slurm: {text}{reason}"


def _agent(facts: Facts) -> Iterator[str]:
    if not facts.agents:
        yield "  agent: has never reported"
        return
    status = facts.agents[0]
    bad = [f"{name} {c.get('state', 'unknown')}" for name, c in status["collectors"].items() if c.get("state") != "ok"]
    age = _ago(facts.now_ns - status["ts"])
    yield f"  agent: reported {age} ago; " + (", ".join(bad) if bad else "all collectors ok")


def _findings(facts: Facts) -> Iterator[str]:
    for finding in open_findings(facts):
        yield f"  {finding['severity']}: {finding['summary']}"
        age = _ago(facts.now_ns - finding["first_ts"])
        sure, advice = finding["confidence"], finding["advice"]
        yield f"    {finding['kind']}, open for {age}, confidence {sure:.2f}, advice {advice}"
        for item in finding["evidence"][:6]:
            yield f"    evidence: {evidence(item)}"
    closed = [f for f in facts.findings if f["state"] == "closed"]
    for finding in closed[:3]:
        why = finding.get("close_reason", "no reason given")
        yield f"  closed {_ago(facts.now_ns - finding['ts'])} ago: {finding['summary']} ({why})"


def evidence(item: Mapping[str, Any]) -> str:
    """Return one piece of evidence as words."""
    if item.get("text"):
        return f"{item['metric']}: {item['text']}"
    unit = _UNITS.get(item.get("unit", ""), f" {item.get('unit', '')}".rstrip())
    words = f"{item['metric']} {_number(item.get('value'))}{unit}"
    if "peers_median" in item:
        words += f", {item.get('peers', 'its')} peers {_number(item['peers_median'])}{unit}"
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
        age = _ago(facts.now_ns - action["ts"])
        yield f"  drain {action['verdict']}{dry} {age} ago: {action['node']}: {action['why']}"


def _events(facts: Facts) -> Iterator[str]:
    for event in facts.events[:_SHOWN_EVENTS]:
        code = f" {event['code']}" if "code" in event else ""
        who = "driver" if event.get("witness") == ["nvml"] else "kernel log"
        text = event.get("text") or event.get("raw") or event.get("detail", {}).get("event")
        said = f": {text[:160]}" if isinstance(text, str) and text else ""
        yield f"  {who} {_ago(facts.now_ns - event['ts'])} ago: {event['kind']}{code}{said}"


def _further(*commands: str) -> Iterable[str]:
    yield "  look further: " + "; ".join(commands)


def _by(event: Message) -> str:
    user = f" of {event['user']}" if event.get("user") else ""
    return f"{user} ({event['name']})" if event.get("name") else user


def _number(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return "unknown" if value is None else str(value)


def _ago(ns: int) -> str:
    seconds = max(0, ns) / 1e9
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
