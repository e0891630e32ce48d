"""From a fault to a finding and an action: the demo, several times, each with other victims.

Times are those of the demo's thresholds; the xid row has none, so its time is that of the road itself: kernel log,
agent, bus, enrich, detect, bus, drain.

python bench/latency.py [--runs 3]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

TIMEOUT_S = 240


def once(seed: int) -> dict[str, Any]:
    """Return the report of one demo."""
    environment = {**os.environ, "DEMO": "once", "FAULTS": "all", "SEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-m", "heeler.sim.demo"],
        env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def main() -> dict[str, dict[str, float]]:
    """Print the times; returns them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    times: dict[str, dict[str, list[float]]] = {}
    for seed in range(1, runs + 1):
        for fault in once(seed)["faults"]:
            row = times.setdefault(fault["kind"], {"finding_s": [], "finding_to_action_s": []})
            for name, values in row.items():
                values.append(fault[name])
    print(f"{'fault':10} {'to finding':>11} {'to action':>10}   median s of {runs} runs")
    found = {kind: {name: statistics.median(values) for name, values in row.items()} for kind, row in times.items()}
    for kind, median in found.items():
        print(f"{kind:10} {median['finding_s']:11.3f} {median['finding_to_action_s']:10.3f}")
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
