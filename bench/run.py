"""All benchmarks, one after the other, so that none disturbs another. About twelve minutes.

Each prints its own table and, as its last line, JSON.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = (
    ("the engine beside a bare nats-py loop", "engine.py"),
    ("the step of detect without a bus", "detect_step.py", "--quick"),
    ("the exporter beside the OpenTelemetry SDK", "otlp_points.py"),
    ("the agent beside a plain loop", "agent.py"),
    ("ten checks in front of a job beside GCM", "health.py"),
    ("from the kernel log to the bus", "kmsg.py"),
    ("fault, finding, action", "latency.py"),
    ("from an XID 79 to the command that drains its node", "drain_latency.py"),
    ("all jobs of a cluster beside GCM's squeue", "squeue.py"),
    ("how often slurmctld is asked as the cluster grows", "slurmctld.py"),
    ("the web page with 12,500 nodes", "console.py"),
)


def main() -> int:
    """Return 1 when one failed."""
    failed = 0
    for title, script, *options in BENCHMARKS:
        print(f"\n{title}: bench/{script} {' '.join(options)}", flush=True)
        failed += subprocess.run([sys.executable, HERE / script, *options], check=False).returncode != 0
    return min(1, failed)


if __name__ == "__main__":
    sys.exit(main())
