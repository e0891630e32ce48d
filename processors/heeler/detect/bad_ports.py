"""Ports in trouble as the cause of a lag for which the GPU itself shows none: a slow or lost rail holds its node up.

Which rail a GPU uses nobody says, so it is a likely cause, never a reason to drain for the lag: the port has a finding
of its own.
"""

from collections.abc import Mapping
from typing import Any

from heeler.detect.causes import WORDS
from heeler.detect.findings import Draft

KINDS = {
    "rail_degraded": "a port at a low rate",
    "ib_down": "a port that is down",
    "ib_flap": "a port that loses its link",
}
CONFIDENCE = 0.6
MOST = 256


class BadPorts:
    """The open findings of ports of one job's nodes."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[str, Mapping[str, Any]] = {}

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn of a port."""
        if finding["kind"] not in KINDS:
            return
        if finding["state"] == "closed":
            self.open.pop(finding["id"], None)
        elif len(self.open) < MOST:
            self.open[finding["id"]] = finding

    def explain(self, draft: Draft) -> None:
        """Name a port of the same node where nothing else explains a lag that is no older than its trouble."""
        if draft.cause != "unknown" or draft.kind != "gpu_lag":
            return
        node = draft.entity.get("node")
        mine = [f for f in self.open.values() if f["entity"].get("node") == node and f["first_ts"] <= draft.data_ts]
        if not mine:
            return
        port = min(mine, key=lambda finding: (finding["first_ts"], finding["id"]))
        draft.cause, draft.confidence = str(port["kind"]), max(draft.confidence, CONFIDENCE)
        said = f"{KINDS[port['kind']]} ({port['entity'].get('port', '?')})"
        draft.summary = draft.summary.replace(WORDS["unknown"], said)
        draft.evidence = [*draft.evidence, {"metric": "finding", "value": port["id"], "text": port["summary"]}]
