"""One line of time out of many kinds of messages: pure, each entry one plain sentence.

A `Timeline` remembers what it has told, so that what is only said again (a finding that is confirmed each minute, a
check that fails each five minutes, a kernel event that enrich has written jobs onto) is told once.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.console.words import ago

Message = Mapping[str, Any]

KINDS = ("check", "drain", "finding", "job", "kernel", "node")
USUAL = ("check", "drain", "finding", "kernel")
REMEMBERED = 200_000  # of each sort: a fleet's open findings and checks, never the history of a year
_TEXT = 200
_NODES = 3
_NOT_WELL = frozenset(("warn", "bad", "unknown"))
_VERDICTS = {
    "proposed": "proposes to drain {node}",
    "refused": "does not drain {node}",
    "approved": "was allowed to drain {node}",
    "done": "drained {node}",
    "verified": "sees that {node} is drained",
    "failed": "could not drain {node}",
    "undrained": "gave {node} back",
}
_RUNS = {"fail": "failed", "would_fail": "would have failed if it were enforced", "refused": "was not run"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened."""

    ts: int  # ns: when it happened, as its own message says
    kind: str
    says: str
    severity: str = ""  # of findings; others have none
    node: str | None = None
    jobs: tuple[str, ...] = ()
    data: Message = field(default_factory=dict)
    id: str = ""  # the same for two messages that tell of one thing

    def of_node(self, node: str) -> bool:
        """Say whether it happened on a node, or to a job there."""
        return node == self.node or node in self.data.get("nodes", ())

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        found = {"ts": self.ts, "kind": self.kind, "severity": self.severity, "node": self.node, "jobs": self.jobs}
        return {key: value for key, value in found.items() if value} | {"says": self.says, "data": self.data}


class Memory(OrderedDict[tuple[str, ...], Any]):
    """The newest things told; the oldest go."""

    def swap(self, key: tuple[str, ...], value: Any) -> Any:
        """Remember a value and return the one before."""
        before = self.pop(key, None)
        self[key] = value
        if len(self) > REMEMBERED:
            self.popitem(last=False)
        return before


class Timeline:
    """Turns messages into entries, in the order in which they come."""

    def __init__(self) -> None:
        self._findings = Memory()
        self._checks = Memory()
        self._nodes = Memory()
        self._jobs = Memory()
        self._tellers: dict[str, Callable[[Message], Iterator[Entry]]] = {
            "Finding": self._finding,
            "DrainAction": _drain,
            "KernelEvent": _kernel,
            "JobKernelEvent": _kernel,
            "HealthResult": self._check,
            "HealthRun": _run,
            "JobEvent": self._job,
            "NodeState": self._node,
        }

    def on(self, kind: str, data: Message) -> Iterator[Entry]:
        """Yield what a message is worth telling."""
        teller = self._tellers.get(kind)
        if teller is not None:
            yield from teller(data)

    def _finding(self, data: Message) -> Iterator[Entry]:
        now = (data["severity"], data["advice"])
        before = self._findings.swap((_cluster(data), data["id"]), (data["state"], *now))
        jobs = _jobs(data)
        summary = data["summary"].rstrip(". ")
        if data["state"] == "closed":
            if before is not None and before[0] == "closed":
                return
            why = data.get("close_reason", "no reason given")
            says = f"Closed after {ago(data['ts'] - data['first_ts'])} ({why}): {summary}."
        elif data["state"] == "open" and (before is None or before[0] == "closed"):
            says = f"{summary} ({_about(data, jobs)})."
        elif before is not None and before[1:] != now:
            says = f"Now {data['severity']}, advice {_plain(data['advice'])}: {summary}."
        else:
            return
        yield Entry(data["ts"], "finding", says, data["severity"], data.get("node"), jobs, data)

    def _check(self, data: Message) -> Iterator[Entry]:
        key = (_cluster(data), data["node"], data["check"], data["phase"], data.get("job_id") or "")
        before = self._checks.swap(key, data["outcome"])
        if data["outcome"] == before:
            return
        if data["outcome"] in _NOT_WELL:
            says = f"Check {data['check']} on {data['node']} is {data['outcome']}{_around(data)}: {_dot(data['why'])}"
        elif before in _NOT_WELL and data["outcome"] == "ok":
            says = f"Check {data['check']} on {data['node']} is ok again{_around(data)}."
        else:
            return
        yield Entry(data["ts"], "check", says, "", data["node"], _jobs(data), data)

    def _job(self, data: Message) -> Iterator[Entry]:
        now = (data["event"], data.get("restarts"), data.get("start_ts"))
        before = self._jobs.swap((_cluster(data), data["job_id"]), now)
        if data["event"] == "changed" or now == before:
            return
        nodes = list(data["nodes"])
        where = f" on {len(nodes)} node{'s' if len(nodes) != 1 else ''}: {_some(nodes)}" if nodes else ""
        who = f" of {data['user']}" if data.get("user") else ""
        state = f" ({data['state']})" if data["event"] == "ended" and data.get("state") else ""
        says = f"Job {data['job_id']}{who} {data['event']}{state}{where}."
        node = nodes[0] if len(nodes) == 1 else None
        yield Entry(data["ts"], "job", says, "", node, (data["job_id"],), data)

    def _node(self, data: Message) -> Iterator[Entry]:
        now = ("+".join((data["state"], *data["flags"])), data.get("reason") or "", data.get("event") == "gone")
        before = self._nodes.swap((_cluster(data), data["node"]), now)
        if now == before:
            return
        reason = ""
        if data.get("reason"):
            reason = f': "{data["reason"]}", set by {data.get("reason_user", "somebody")}'
        became = "is no longer in Slurm" if now[2] else f"is {now[0]} in Slurm"
        yield Entry(data["ts"], "node", f"{data['node']} {became}{reason}.", "", data["node"], (), data)


def _drain(data: Message) -> Iterator[Entry]:
    verdict, node = data["verdict"], data["node"]
    if "command" in data or verdict == "tripped":
        where = None if node == "*" else node  # of the whole cluster
        yield Entry(data["ts"], "drain", f"{_order(data)}: {_dot(data['why'])}", "", where, (), data)
        return
    words = _VERDICTS.get(verdict, f"says {verdict} of {{node}}").format(node=node)
    dry = " (dry run)" if data["dry_run"] else ""
    yield Entry(data["ts"], "drain", f"The drainer {words}{dry}: {_dot(data['why'])}", "", node, _jobs(data), data)


def _order(data: Message) -> str:
    """Return who wanted what of the drainer, or that it opened its own breaker."""
    if data["verdict"] == "tripped":
        return f"The drainer opens its own breaker{' (dry run)' if data['dry_run'] else ''}"
    command = str(data["command"]).replace("_", " ")
    if data["verdict"] == "refused":
        return f"The drainer refuses {data['actor']}'s {command}"
    return f"{data['actor']} commands the drainer: {command}"


def _kernel(data: Message) -> Iterator[Entry]:
    code = f" {data['code']}" if "code" in data else ""
    at = f" at {place}" if (place := data.get("pci") or data.get("uuid")) else ""
    times = f", {data['count']} times" if data.get("count", 1) > 1 else ""
    text = data.get("text") or data.get("raw") or data.get("detail", {}).get("event")
    said = f": {text[:_TEXT].rstrip()}" if isinstance(text, str) and text else ""
    read = f"; read again, the GPU is {data['gpu_state']}" if data.get("gpu_state") else ""
    who = "driver" if data.get("witness") == ["nvml"] else "kernel"
    jobs = _jobs(data)
    hit = f" (job {_some(list(jobs))})" if jobs else ""
    says = f"The {who} of {data['node']} reports {data['kind']}{code}{at}{times}{hit}{said}{read}"
    twin = f"{_cluster(data)} {data['node']} {data['boot']} {data['seq']}"
    yield Entry(data["ts"], "kernel", _dot(says), "", data["node"], jobs, data, twin)


def _run(data: Message) -> Iterator[Entry]:
    if data["verdict"] not in _RUNS:
        return
    job = f" of job {data['job_id']}" if data.get("job_id") else ""
    drained = f'; the node was drained with "{data["reason"]}"' if data.get("reason") else ""
    says = f"The {data['phase']}{job} on {data['node']} {_RUNS[data['verdict']]}: {data['why'].rstrip('. ')}{drained}."
    yield Entry(data["ts"], "check", says, "", data["node"], _jobs(data), data)


def _cluster(data: Message) -> str:
    """Return whose node, job or finding it is: names are the same on several clusters."""
    return str(data.get("cluster") or "")


def _jobs(data: Message) -> tuple[str, ...]:
    found = [str(job) for job in data.get("jobs") or ()]
    if data.get("job_id"):
        found.insert(0, str(data["job_id"]))
    return tuple(dict.fromkeys(found))


def _about(data: Message, jobs: tuple[str, ...]) -> str:
    parts = [data["severity"], f"advice {_plain(data['advice'])}"]
    if data.get("cause") not in (None, "unknown"):
        parts.append(f"cause {_plain(data['cause'])}")
    if jobs and not all(job in data["summary"] for job in jobs):
        parts.append(f"job {_some(list(jobs))}")
    return ", ".join(parts)


def _around(data: Message) -> str:
    job = f", job {data['job_id']}" if data.get("job_id") else ""
    return f" ({data['phase']}{job})"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NODES} more" if len(names) > _NODES else ""
    return ", ".join(names[:_NODES]) + more


def _plain(word: str) -> str:
    return word.replace("_", " ")


def _dot(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
