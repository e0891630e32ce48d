"""What a prolog may know of the bus without a bus: files that the service on the node keeps fresh."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def breaker_file(value: bytes, cluster: str) -> dict[str, Any] | None:
    """Return what breaker.json holds for the bus's value; None where that is none, or is another cluster's.

    `ts_ns` is the keeper's own time: a keeper that is gone makes the file old, whoever copies it.
    """
    try:
        found = json.loads(value)
        state, ts_ns, theirs = found["state"], found["ts_ns"], found["cluster"]
    except (ValueError, KeyError, TypeError):
        return None
    if state not in ("open", "closed") or type(ts_ns) is not int or theirs != cluster:
        return None
    return {"state": state, "why": str(found.get("why", ""))[:500], "ts_ns": ts_ns}


def node_file(state: Mapping[str, Any], heard_ns: int) -> dict[str, Any]:
    """Return what node.json holds for a NodeState: the state as Slurm writes it, its reason, and when it was heard."""
    words = "+".join((str(state["state"]).upper(), *state["flags"]))
    return {"state": words, "reason": state.get("reason"), "ts_ns": heard_ns}


def keep(path: Path, value: Mapping[str, Any]) -> bool:
    """Write a file in one step, readable by all; returns whether that went well."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(value))
        new.chmod(0o644)
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        return False
    return True
