"""One GPU, by its UUID, the beginning of it, or NODE:INDEX: what the bus knows of it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heeler.bus import Bus, escape, snapshot
from heeler.console.facts import Facts, Message, about_node, checked
from heeler.console.words import ago, number

LEAST = 8  # characters of a UUID that may stand for it
FRESH_NS = 120 * 1_000_000_000
SHOWN = 5
_READINGS = (("util_ratio", "utilisation", 100.0, " %"), ("power_w", "power", 1.0, " W"),
             ("temp_c", "temperature", 1.0, " °C"), ("sm_clock_mhz", "clock", 1.0, " MHz"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """A GPU in a node's inventory."""

    node: str
    gpu: Mapping[str, Any]


def matches(name: str, inventories: Iterable[Message]) -> list[Found]:
    """Return the GPUs, and MIG devices, that a name may mean; the one whose UUID it is, before all others."""
    node, colon, index = name.rpartition(":")
    found: list[Found] = []
    for inventory in inventories:
        for gpu in inventory["gpus"]:
            devices = [{**one, "parent": gpu["uuid"]} for one in gpu.get("mig_devices") or ()]
            for one in (gpu, *devices):
                if one["uuid"] == name:
                    return [Found(inventory["node"], one)]
                if len(name) >= LEAST and one["uuid"].startswith(name):
                    found.append(Found(inventory["node"], one))
            if colon and inventory["node"] == node and index == str(gpu.get("index")):
                found.append(Found(node, gpu))
    return found


def indexed(name: str, findings: Iterable[Message]) -> str | None:
    """Return the UUID of the GPU that a NODE:INDEX was when something was found on it; the newest word counts."""
    node, _, index = name.rpartition(":")
    for entity in (finding["entity"] for finding in findings):
        if entity.get("node") == node and str(entity.get("gpu_index")) == index and entity.get("gpu_uuid"):
            return str(entity["gpu_uuid"])
    return None


async def of_gpu(bus: Bus, name: str, now_ns: int, cluster: str | None = None) -> Facts:
    """Read all that concerns a GPU."""
    facts = Facts(now_ns, cluster=cluster)
    node, colon, _ = name.rpartition(":")
    pattern = f"agent.inventory.{escape(node) if colon and node else '*'}"
    inventories = checked(facts, await snapshot(bus, "AGENTS", (pattern,), cluster=cluster))
    found = matches(name, inventories)
    if not found and colon and node:  # a lost GPU has no index any more, but what was found has the one it had
        told = await snapshot(bus, "FINDINGS_LAST", (f"finding.*.{escape(node)}.*",), cluster=cluster)
        name = indexed(name, checked(facts, told)) or name
        found = matches(name, inventories)
    uuid = found[0].gpu["uuid"] if len(found) == 1 else name
    if len(found) == 1:
        unreadable, facts = facts.unreadable, await about_node(bus, found[0].node, now_ns, cluster)
        facts.unreadable += unreadable
        patterns = (f"job.sample.*.{escape(found[0].node)}",)
        samples = await snapshot(bus, "JOBSAMPLES", patterns, start=now_ns - FRESH_NS, cluster=cluster)
        facts.samples = [one for one in checked(facts, samples) if uuid in one["gpu"]["uuid"]][:1]
    else:
        facts.findings = checked(facts, await snapshot(bus, "FINDINGS_LAST", ("finding.*.*.*",), cluster=cluster))
    facts.gpus = found
    keep(facts, uuid)
    return facts


def keep(facts: Facts, uuid: str) -> None:
    """Leave only what is about one GPU; what its node is like stays."""
    pci = next((found.gpu.get("pci") for found in facts.gpus), None)
    facts.findings = [one for one in facts.findings if _about(one["entity"], uuid)]
    names = {one["id"] for one in facts.findings}
    facts.actions = [one for one in facts.actions if one.get("finding_id") in names]
    facts.events = [one for one in facts.events if one.get("uuid") == uuid or (pci and one.get("pci") == pci)]
    facts.health_results = [
        one
        for one in facts.health_results
        if uuid in one.get("gpus", ()) or any(item.get("gpu_uuid") == uuid for item in one.get("evidence", ()))
    ]
    facts.health_runs = []


def _about(entity: Mapping[str, Any], uuid: str) -> bool:
    gpus = entity.get("gpus")
    named = entity.get("gpu_uuid") or ""
    begins = len(uuid) >= LEAST and named.startswith(uuid)
    return named == uuid or begins or (isinstance(gpus, list) and uuid in gpus)


def place(facts: Facts) -> Iterator[str]:
    """Say where the GPU is and how it does, or which GPUs the name may mean."""
    if len(facts.gpus) > 1:
        yield f"  {len(facts.gpus)} GPUs begin so; name one:"
        for found in facts.gpus[:SHOWN]:
            yield f"    {found.gpu['uuid']} on {found.node}"
        return
    if not facts.gpus:
        yield "  no node's inventory has it"
        return
    found = facts.gpus[0]
    index = f"GPU {found.gpu['index']}" if found.gpu.get("index") is not None else "a GPU"
    if found.gpu.get("parent"):
        index = f"a MIG device of {found.gpu['parent']}"
    about = ", ".join(str(found.gpu[key]) for key in ("pci", "model", "profile") if found.gpu.get(key))
    yield f"  {index} of {found.node}" + (f" ({about})" if about else "")
    yield f"  now: {_now(facts, found.gpu['uuid'])}"


def _now(facts: Facts, uuid: str) -> str:
    if not facts.samples:
        return "nothing was read of it in the last 2 min"
    sample = facts.samples[0]
    row = sample["gpu"]["uuid"].index(uuid)
    states = sample.get("state") or ()
    state = states[row] if row < len(states) and states[row] else "state unknown"
    said = [str(state)]
    for column, name, scale, unit in _READINGS:
        values = sample["mean"].get(column) or ()
        value = values[row] if row < len(values) else None
        said.append(f"{name} " + ("unknown" if value is None else f"{number(value * scale)}{unit}"))
    job = sample["job"][row]
    said.append(f"job {job}" if job else "no job known")
    return f"{', '.join(said)}; read {ago(facts.now_ns - sample['ts'])} ago"
