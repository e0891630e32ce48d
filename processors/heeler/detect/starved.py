"""Nodes whose GPUs wait for their host: all of them run kernels less of the time than those of the other nodes.

Waiting for another rank happens in a kernel, so pipeline stages and ranks that wait have the same utilisation as
everyone; what waits for data, for a checkpoint's disk or for a CPU runs no kernel. Pure.
"""

from dataclasses import dataclass

import numpy as np

from heeler.detect.peers import Places
from heeler.detect.thresholds import LagThresholds
from heeler.detect.windows import Floats


@dataclass(frozen=True, slots=True)
class Starved:
    """A node that is behind: its GPUs that were judged, their usual utilisation, and that of the others' nodes."""

    columns: Places
    util_ratio: float
    others_ratio: float
    others_mad: float
    others: int  # GPUs on the other nodes


def starved_nodes(util: Floats, nodes: Places, active: Places, t: LagThresholds) -> list[Starved]:
    """Return the nodes that are behind, at most half of all. `util` and `nodes` are over all GPUs of the job."""
    here, names = util[active], nodes[active]
    known = ~np.isnan(here)
    here, names, active = here[known], names[known], active[known]
    if not len(here) or here.min() > (1.0 - t.alert_ratio) * here.max():
        return []
    found = np.unique(names)
    usual = np.array([np.median(here[names == name]) for name in found])
    best = np.array([here[names == name].max() for name in found])
    # The better half says what is possible; a slow node's best GPU must be behind it too.
    possible = float(np.median(np.sort(usual)[len(usual) // 2 :]))
    low = best <= (1.0 - t.alert_ratio) * possible
    count = int(np.count_nonzero(low))
    if count == 0 or 2 * count > len(found) or possible < t.load_util_ratio:
        return []
    others = here[~np.isin(names, found[low])]
    middle = float(np.median(others))
    spread = float(np.median(np.abs(others - middle)))
    return [
        Starved(active[names == found[at]], float(usual[at]), middle, spread, len(others))
        for at in np.flatnonzero(low).tolist()
    ]
