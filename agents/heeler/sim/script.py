"""A fault script: what goes wrong, when and where, as data.

    [[fault]]
    at = "90s"              # after the start; "500ms", "2m", "1h" too
    kind = "thermal"        # a name of heeler.sim.faults.KINDS
    for = "5m"              # absent: until the end
    target = {job_nodes = 16}
    params = {clock_mhz = 1155}

``target`` narrows the choice by ``node`` (a name), ``among`` (names), ``gpu`` (index), ``port`` (rail), ``job``
(id), ``job_nodes`` (a job with at least so many nodes) or ``idle = true``; what it leaves open is drawn from the
seed. No node is drawn twice.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heeler.sim.faults import KINDS, Fault
from heeler.sim.fleet import GPUS_PER_NODE, RAILS, Fleet, stream
from heeler.sim.jobs import Job
from heeler.sim.units import NS_PER_S

_UNITS = {"ms": NS_PER_S // 1000, "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*")
_TARGET_KEYS = {"node", "among", "gpu", "port", "job", "job_nodes", "idle"}
_KEYS = {"at", "kind", "for", "target", "params"}


class ScriptError(ValueError):
    """A fault script that can't be used; lists every mistake."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One entry of a script: a fault whose victim may still be open."""

    kind: str
    after_ns: int = 0
    for_ns: int | None = None
    target: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, float] = field(default_factory=dict)


def duration_ns(text: str) -> int:
    """Return a duration such as ``90s`` or ``1h30m`` in nanoseconds. Raises ScriptError."""
    at, total = 0, 0
    while match := _DURATION.match(text, at):
        total += round(float(match[1]) * _UNITS[match[2]])
        at = match.end()
    if at != len(text) or at == 0:
        raise ScriptError(f"no duration: {text!r}, write 500ms, 90s, 5m or 1h")
    return total


def parse(text: str) -> list[Spec]:
    """Return the entries of a TOML script. Raises ScriptError with every mistake."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ScriptError(str(err)) from None
    mistakes = [f"unknown key {key!r}" for key in table if key != "fault"]
    specs = []
    for number, entry in enumerate(table.get("fault", []), 1):
        try:
            specs.append(spec_of(entry))
        except ScriptError as err:
            mistakes.append(f"fault {number}: {err}")
    if mistakes:
        raise ScriptError("; ".join(mistakes))
    return specs


def spec_of(entry: Any) -> Spec:
    """Return one entry. Raises ScriptError."""
    if not isinstance(entry, dict):
        raise ScriptError("not a table")
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ScriptError(f"unknown kind {kind!r}, one of {', '.join(sorted(KINDS))}")
    target, params = entry.get("target", {}), entry.get("params", {})
    strange = sorted((set(entry) - _KEYS) | (set(target) - _TARGET_KEYS) | (set(params) - set(KINDS[kind].params)))
    if strange:
        raise ScriptError(f"{kind}: unknown key {', '.join(strange)}")
    if not all(type(value) in (int, float) for value in params.values()):
        raise ScriptError(f"{kind}: a parameter is no number")
    lasts = entry.get("for")
    return Spec(
        kind,
        duration_ns(str(entry.get("at", "0s"))),
        None if lasts is None else duration_ns(str(lasts)),
        dict(target),
        dict(params),
    )


ALL_GPUS = tuple(range(GPUS_PER_NODE))
Choice = tuple[int, tuple[int, ...], Job | None]  # node, GPUs that may be hit, job


@dataclass(slots=True)
class Casting:
    """Draws victims; the same seed draws the same ones in the same order."""

    fleet: Fleet
    seed: int
    drawn: int = 0
    used: set[int] = field(default_factory=set)

    def cast(self, spec: Spec, jobs: Sequence[Job], start_ns: int) -> Fault:
        """Return the fault with its victim. Raises ScriptError where nothing fits the target."""
        rng = stream(self.seed, "victim", self.drawn)
        self.drawn += 1
        where = KINDS[spec.kind].target
        choices = self._choices(spec, jobs)
        if not choices:
            raise ScriptError(f"{spec.kind}: nothing fits the target {dict(spec.target)}")
        node, gpus, job = choices[int(rng.integers(len(choices)))]
        self.used.add(node)
        at_ns = start_ns + spec.after_ns
        return Fault(
            kind=spec.kind,
            at_ns=at_ns,
            end_ns=None if spec.for_ns is None else at_ns + spec.for_ns,
            node=node,
            gpu=_pick(rng, gpus, spec.target.get("gpu")) if where == "gpu" else None,
            port=_pick(rng, tuple(range(RAILS)), spec.target.get("port")) if where == "port" else None,
            job_id=job.id if job else None,
            params=spec.params,
        )

    def _choices(self, spec: Spec, jobs: Sequence[Job]) -> list[Choice]:
        target = spec.target
        if target.get("idle") or spec.kind == "zombie":
            busy = {node for job in jobs for node in job.nodes}
            found: list[Choice] = [(node, ALL_GPUS, None) for node in range(len(self.fleet.nodes)) if node not in busy]
        else:
            found = [(node, job.gpus, job) for job in jobs for node in job.nodes if _fits(job, target)]
        names = set(target.get("among", ())) | ({target["node"]} if "node" in target else set())
        if names:
            found = [choice for choice in found if self.fleet.nodes[choice[0]].name in names]
        if "node" in target:  # asked for by name: whatever runs there
            return found or [(i, ALL_GPUS, None) for name, i in self.fleet.index.items() if name == target["node"]]
        return [
            choice for choice in found if choice[0] not in self.used and target.get("gpu", choice[1][0]) in choice[1]
        ]


def _fits(job: Job, target: Mapping[str, Any]) -> bool:
    wanted = target.get("job")
    return bool((wanted is None or job.id == wanted) and len(job.nodes) >= target.get("job_nodes", 1))


def _pick(rng: np.random.Generator, choices: tuple[int, ...], fixed: int | None) -> int:
    return fixed if fixed is not None else choices[int(rng.integers(len(choices)))]
