"""GCM's squeue: its client, its parser, its stdout sink. Runs in GCM's own environment, see bench/squeue.py.

    PATH=<folder with a squeue> python gcm_squeue.py

Prints {"jobs", "cpu_s", "rss_mib"} on stderr; what the sink writes goes to stdout.
"""

import json
import logging
import sys
import time
from pathlib import Path


def main() -> None:
    """Read all jobs once, and write them as GCM's command with its default sink does."""
    from gcm.exporters.stdout import Stdout  # type: ignore[import-not-found]  # noqa: PLC0415
    from gcm.monitoring.sink.protocol import (  # type: ignore[import-not-found]  # noqa: PLC0415
        DataType,
        SinkAdditionalParams,
    )
    from gcm.monitoring.slurm.client import SlurmCliClient  # type: ignore[import-not-found]  # noqa: PLC0415
    from gcm.schemas.log import Log  # type: ignore[import-not-found]  # noqa: PLC0415

    started = time.process_time()
    attributes = {"cluster": "bench", "collection_unixtime": 1_796_000_000}
    found = SlurmCliClient().squeue(
        derived_cluster_fetcher=lambda _row: "bench", logger=logging.getLogger("bench"), attributes=attributes
    )
    jobs, batch, sink = 0, [], Stdout()
    for job in found:
        batch.append(job)
        jobs += 1
        if len(batch) == 1000:  # about what its default of a megabyte makes
            sink.write(Log(ts=1_796_000_000, message=batch), SinkAdditionalParams(data_type=DataType.LOG))
            batch = []
    sink.write(Log(ts=1_796_000_000, message=batch), SinkAdditionalParams(data_type=DataType.LOG))
    cpu_s = time.process_time() - started
    # Not ru_maxrss: that starts with the parent's.
    rss = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"jobs": jobs, "cpu_s": cpu_s, "rss_mib": rss}), file=sys.stderr)


if __name__ == "__main__":
    main()
