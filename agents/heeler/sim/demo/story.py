"""From messages of the bus to lines of the story: pure, and without any label of the simulator."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.console.why import evidence

Message = Mapping[str, Any]
Line = tuple[str, str]  # text, style

REASONS = {0x8: "HW slowdown", 0x20: "SW thermal slowdown", 0x40: "HW thermal slowdown", 0x80: "HW power brake"}
SHOWN_EVIDENCE = 4
QUIET_KERNEL = frozenset(("gpu_uuid",))


@dataclass(slots=True)
class Story:
    """What has been told already, so that a thing is told once."""

    reasons: dict[tuple[str, str], int] = field(default_factory=dict)  # (node, GPU) -> bits
    lost: set[tuple[str, str]] = field(default_factory=set)
    ports: dict[tuple[str, str], str] = field(default_factory=dict)  # (node, port) -> state
    findings: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # id -> (state, severity, advice)
    actions: set[str] = field(default_factory=set)

    def on(self, kind: str, data: Message) -> Iterator[Line]:
        """Yield the lines that a message is worth."""
        teller = {
            "JobSample": self._sample,
            "IbSample": self._ports,
            "KernelEvent": self._kernel,
            "Finding": self._finding,
            "DrainAction": self._action,
        }.get(kind)
        if teller is not None:
            yield from teller(data)

    def _sample(self, data: Message) -> Iterator[Line]:
        node, gpu = data["node"], data["gpu"]
        bits = data["last"].get("clock_event_reasons", [])
        # The lowest of the window: its mean would mix the time before the fault with that after it.
        clocks = data.get("min", {}).get("sm_clock_mhz", [None] * len(gpu["uuid"]))
        for position, (uuid, mask) in enumerate(zip(gpu["uuid"], bits, strict=False)):
            bad = (mask or 0) & sum(REASONS)
            if mask is not None and bad != self.reasons.get((node, uuid), 0):
                self.reasons[node, uuid] = bad
                words = " and ".join(name for bit, name in REASONS.items() if bad & bit) or "no slowdown any more"
                clock = clocks[position]
                at = f" at {clock:,.0f} MHz" if clock is not None and bad else ""
                yield f"seen: {_gpu(data, position)} runs{at}: {words}", "seen"
        for position, state in enumerate(data.get("state", [])):
            where = (node, gpu["uuid"][position])
            if state == "lost" and where not in self.lost:
                self.lost.add(where)
                yield f"seen: {_gpu(data, position)} is lost: no value can be read", "seen"

    def _ports(self, data: Message) -> Iterator[Line]:
        for port in data["ports"]:
            name = f"{port['device']}/{port['port']}"
            state = port.get("state", "unknown")
            before = self.ports.get((data["node"], name))
            self.ports[data["node"], name] = state
            if before is not None and before != state:
                downed = port.get("counters", {}).get("link_downed")
                count = f", link_downed {downed}" if downed is not None else ""
                yield f"seen: {data['node']} port {name} goes from {before} to {state}{count}", "seen"

    def _kernel(self, data: Message) -> Iterator[Line]:
        if data["kind"] in QUIET_KERNEL:
            return
        code = f" {data['code']}" if "code" in data else ""
        state = f"; read at once, the GPU is {data['gpu_state']}" if data.get("gpu_state") else ""
        who = "driver" if data.get("witness") == ["nvml"] else "kernel log"
        text = (data.get("raw") or data.get("text", "")).rpartition(",-;")[2]
        said = f": {text[:160]}" if text else ""
        yield f"seen: {data['node']} {who}, {data['kind']}{code}{said}{state}", "seen"

    def _finding(self, data: Message) -> Iterator[Line]:
        now = (data["state"], data["severity"], data["advice"])
        before = self.findings.get(data["id"])
        self.findings[data["id"]] = now
        if data["state"] == "closed":
            yield f"finding closed ({data.get('close_reason', 'no reason given')}): {data['summary']}", "finding"
            return
        if before is not None and before[1:] == now[1:]:
            return
        head = "finding" if before is None else "finding, firmer"
        sure = f"confidence {data['confidence']:.2f}, advice {data['advice']}"
        yield f"{head}: {data['kind']}, {data['severity']}: {data['summary']} ({sure})", "finding"
        if before is None:
            for item in data["evidence"][:SHOWN_EVIDENCE]:
                yield f"    evidence: {evidence(item)}", "dim"

    def _action(self, data: Message) -> Iterator[Line]:
        if data["id"] in self.actions:
            return
        self.actions.add(data["id"])
        dry = " (dry run)" if data["dry_run"] else ""
        yield (
            f"drain {data['verdict']}{dry}: {data['node']}, for {data.get('kind', 'a finding')}: {data['why']}",
            "drain",
        )
        if data.get("reason") and data["verdict"] == "proposed":
            yield f"    reason that Slurm would show: {data['reason']}", "dim"


def _gpu(data: Message, position: int) -> str:
    index = data["gpu"].get("index")
    number = index[position] if index is not None and index[position] is not None else position
    job = data.get("job", [None] * len(data["gpu"]["uuid"]))[position]
    return f"GPU {number} on {data['node']}" + (f" (job {job})" if job else "")


def sink_line(before: Mapping[str, Any], now: Mapping[str, Any]) -> Line | None:
    """Return what the sink received since last told, or None when that is nothing worth a line."""
    logs = now.get("logs", 0) - before.get("logs", 0)
    points = now.get("points", 0) - before.get("points", 0)
    if logs <= 0 and points < 100_000:
        return None
    more = f"{logs} log record{'s' if logs != 1 else ''} and " if logs > 0 else ""
    metrics = len(now.get("metrics", {}))
    return f"sink received {more}{points:,} data points ({metrics} metrics, {now.get('points', 0):,} in all)", "sink"
