"""What goes over the wire to a page: pure. A snapshot first, then what has changed, numbered.

A snapshot is a little-endian u32 (length of the head), the head as JSON, padding to a multiple of four, then the
cells: the jobs as u32, and each of LAYERS as u8. A change is JSON; its cells are base64 of: u32 count of nodes, their
numbers as u32, then each of LAYERS as u8 for all cells of these nodes; and likewise for jobs: u32 count, cells as u32,
jobs as u32.
"""

import json
from binascii import b2a_base64
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heeler.console.fleet import FIRST_JOB, JOB_NONE, JOB_SEVERAL, LAYERS, NO_CELL, STATE_NAMES, Bytes
from heeler.console.fold import KIND
from heeler.console.model import NODE_STATES, SEVERITIES, Job, Model

SHOWN_ACTIONS = 50
_FINDING = (
    *("id", "kind", "state", "severity", "confidence", "node", "job_id", "cause", "first_ts", "ts", "data_ts"),
    *("summary", "advice", "code", "count", "close_reason", "incident"),
)
_ACTION = ("id", "finding_id", "node", "ts", "verdict", "dry_run", "why", "reason", "actor", "kind", "job_id")


def finding_row(model: Model, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list shows of a finding."""
    row = {key: message[key] for key in _FINDING if key in message}
    entity = message["entity"]
    row["entity"] = {key: entity[key] for key in ("type", "gpu_uuid", "gpu_index", "port", "pci") if key in entity}
    if message["kind"] == KIND:
        row["members"] = entity.get("members", [])
    row["cells"] = model.cells_of(message)
    return row


def job_row(job: Job) -> list[Any]:
    """Return what a list shows of a job."""
    about = job.about
    return [
        job.number,
        job.id,
        *(about.get(key) for key in ("name", "user", "account", "partition")),
        job.state if job.of_slurm else None,
        job.start_ts,
        len(job.nodes) if job.of_slurm else None,
    ]


def action_row(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list shows of a drain action."""
    return {key: message[key] for key in _ACTION if key in message}


def counts(model: Model) -> dict[str, Any]:
    """Return the sums of the first line: GPUs by state and use, nodes by Slurm's state, findings by severity."""
    fleet = model.fleet
    state, job = fleet.state[: fleet.used], fleet.job[: fleet.used]
    there = state != NO_CELL
    of_state = np.bincount(state[there], minlength=len(STATE_NAMES))
    told = state[there] == STATE_NAMES.index("ok")
    mine = job[there]
    by_node = {NODE_STATES[number]: count for number, count in Counter(fleet.slurm).items()}
    by_severity = Counter(
        message["severity"] if message["severity"] in SEVERITIES else "unknown" for message in model.findings.values()
    )
    return {
        "gpus": {"all": int(there.sum()), **{name: int(of_state[at]) for at, name in enumerate(STATE_NAMES)}},
        "ok": {
            "in_job": int((told & ((mine >= FIRST_JOB) | (mine == JOB_SEVERAL))).sum()),
            "free": int((told & (mine == JOB_NONE)).sum()),
        },
        "nodes": {"all": len(fleet.names) - by_node.pop("gone", 0), **by_node},
        "findings": dict(by_severity),
        "jobs": len(model.jobs),
    }


class Frames:
    """What pages were told so far, and what they must be told next."""

    def __init__(self, model: Model, run: str = "") -> None:
        self.model = model
        self._run = run  # tells this process from the one before it: a page must not mix the two
        self.seq = 0
        self._epoch = -1
        self._layers: Bytes = np.zeros((len(LAYERS), 0), np.uint8)
        self._jobs: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._nodes = 0
        self._snapshot: bytes | None = None
        self._nodes_text: bytes | None = None  # the part of a snapshot that is long and seldom changes
        self._now_ns = 0

    def advance(self, now_ns: int, status: Mapping[str, Any]) -> bytes:
        """Let time pass and return the next change, as JSON."""
        model, fleet = self.model, self.model.fleet
        model.tick(now_ns)
        self.seq += 1
        self._snapshot, self._now_ns = None, now_ns
        frame: dict[str, Any] = {
            "seq": self.seq,
            "epoch": f"{self._run}.{fleet.epoch}",
            "now": now_ns,
            "status": status,
        }
        frame["counts"] = counts(model)
        layers, jobs = fleet.layers(), fleet.job[: fleet.used].copy()
        changes = model.take_changes()
        added = range(self._nodes, len(fleet.nodes))
        if added or changes.nodes or fleet.epoch != self._epoch:
            self._nodes_text = None
        if fleet.epoch == self._epoch:
            if added:
                frame["added"] = self._node_columns(added)
            frame |= self._cells(layers, jobs)
            known = [fleet.number[name] for name in changes.nodes if name in fleet.number]
            if known := [number for number in known if number < self._nodes]:
                frame["nodes"] = {"number": known, **self._node_columns(known)}
        frame |= self._lists(changes.jobs, changes.findings, changes.actions)
        self._epoch, self._layers, self._jobs, self._nodes = fleet.epoch, layers, jobs, len(fleet.nodes)
        return _json(frame)

    def _cells(self, layers: Bytes, jobs: NDArray[np.uint32]) -> dict[str, str]:
        """Return the cells that differ from those that pages have."""
        fleet = self.model.fleet
        old_layers, old_jobs = _grown(self._layers, fleet.used, 0), _grown(self._jobs, fleet.used, 0)
        old_layers[0, self._layers.shape[1] :] = NO_CELL
        found = {}
        changed = np.flatnonzero((layers != old_layers).any(axis=0))
        if len(changed):
            numbers = np.unique(fleet.node[changed])
            cells = np.concatenate([_of_node(fleet.nodes[number]) for number in numbers.tolist()])
            head = np.concatenate([[len(numbers)], numbers]).astype("<u4").tobytes()
            found["cells"] = _base64(head + layers[:, cells].tobytes())
        moved = np.flatnonzero(jobs != old_jobs)
        if len(moved):
            found["jobs_of"] = _base64(np.concatenate([[len(moved)], moved, jobs[moved]]).astype("<u4").tobytes())
        return found

    def _node_columns(self, numbers: Iterable[int]) -> dict[str, list[Any]]:
        fleet, nodes = self.model.fleet, self.model.nodes
        which = [fleet.nodes[number] for number in numbers]
        names = [fleet.names[node.number] for node in which]
        return {
            "name": names,
            "room": [node.room for node in which],
            "state": [fleet.slurm[node.number] for node in which],
            "partitions": [nodes[name].get("partitions", []) if name in nodes else [] for name in names],
        }

    def _lists(self, jobs: set[str], findings: set[str], actions: int) -> dict[str, Any]:
        model = self.model
        found: dict[str, Any] = {}
        if jobs:
            found["jobs"] = [job_row(model.jobs[job]) for job in jobs if job in model.jobs]
            found["jobs_gone"] = [job for job in jobs if job not in model.jobs]
        if findings:
            found["findings"] = [
                finding_row(model, model.findings[name]) for name in findings if name in model.findings
            ]
            found["findings_gone"] = [name for name in findings if name not in model.findings]
            found["closed"] = self._closed()
        if actions:
            found["actions"] = self._actions()
        return found

    def _closed(self) -> list[dict[str, Any]]:
        return [finding_row(self.model, message) for message in reversed(self.model.closed.values())][:SHOWN_ACTIONS]

    def _actions(self) -> list[dict[str, Any]]:
        return [action_row(message) for message in list(self.model.actions)[:SHOWN_ACTIONS]]

    def snapshot(self, status: Mapping[str, Any]) -> bytes:
        """Return all that pages were told up to the last change."""
        if self._snapshot is None:
            model = self.model
            head = {
                "seq": self.seq,
                "epoch": f"{self._run}.{self._epoch}",
                "now": self._now_ns,
                "status": status,
                "layers": LAYERS,
                "states": STATE_NAMES,
                "node_states": NODE_STATES,
                "cells": self._layers.shape[1],
                "counts": counts(model),
                "jobs": [job_row(job) for job in model.jobs.values()],
                "findings": [finding_row(model, message) for message in model.findings.values()],
                "closed": self._closed(),
                "actions": self._actions(),
            }
            if self._nodes_text is None:
                self._nodes_text = _json(self._node_columns(range(self._nodes)))
            text = _json(head)[:-1] + b',"nodes":' + self._nodes_text + b"}"
            text += b" " * (-len(text) % 4)
            parts = (len(text).to_bytes(4, "little"), text, self._jobs.astype("<u4").tobytes(), self._layers.tobytes())
            self._snapshot = b"".join(parts)
        return self._snapshot


def _of_node(node: Any) -> NDArray[np.intp]:
    return np.arange(node.start, node.start + node.room)


def _grown(array: NDArray[Any], size: int, empty: int) -> NDArray[Any]:
    out = np.full((*array.shape[:-1], size), empty, array.dtype)
    out[..., : array.shape[-1]] = array
    return out


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
