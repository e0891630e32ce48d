"""GCM's nvml_monitor with a counter around it: runs in GCM's own environment, see bench/agent.py.

    python gcm_monitor.py REPORT arguments of `gcm nvml_monitor`

REPORT becomes {"start_cpu_s": CPU time until all GPUs were read once, "readings": how often they were} and is written
anew after each reading.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

GPUS = 8


def main() -> None:
    """Run the monitor as its own command does."""
    from gcm.monitoring.accumulate import Accumulator  # type: ignore[import-not-found]  # noqa: PLC0415
    from gcm.monitoring.cli.gcm import main as gcm  # type: ignore[import-not-found]  # noqa: PLC0415

    report, told, start = Path(sys.argv[1]), 0, 0.0
    tell = Accumulator.tell

    def counted(self: Any, value: Any) -> Any:
        nonlocal told, start
        done = tell(self, value)
        told += 1
        if told % GPUS == 0:
            start = start or time.process_time() + sum(os.times()[2:4])
            report.write_text(json.dumps({"start_cpu_s": start, "readings": told // GPUS}))
        return done

    Accumulator.tell = counted
    gcm(["nvml_monitor", *sys.argv[2:]])


if __name__ == "__main__":
    main()
