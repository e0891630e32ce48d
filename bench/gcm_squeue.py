"""GCM's squeue: its client, parser, cutting by size and stdout sink. Runs in its own environment, see bench/squeue.py.

    PATH=<folder with a squeue> python gcm_squeue.py

Prints {"jobs", "cpu_s", "rss_mib" (at most), "base_mib" (before the question)} on stderr; what the sink writes goes to
stdout.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1_000_000  # its option --chunk-size as it comes: 1M


def main() -> None:
    """Read all jobs once, and write them as its command `slurm_job_monitor --once` with its default sink does."""
    from gcm.exporters.stdout import Stdout  # type: ignore[import-not-found]  # noqa: PLC0415
    from gcm.monitoring.sink.protocol import (  # type: ignore[import-not-found]  # noqa: PLC0415
        DataIdentifier,
        DataType,
        SinkAdditionalParams,
    )
    from gcm.monitoring.sink.utils import write_to_sink_with_retries  # type: ignore[import-not-found]  # noqa: PLC0415
    from gcm.monitoring.slurm.client import SlurmCliClient  # type: ignore[import-not-found]  # noqa: PLC0415
    from gcm.monitoring.slurm.derived_cluster import (  # type: ignore[import-not-found]  # noqa: PLC0415
        get_derived_cluster,
    )

    jobs = 0

    def counted(found: Iterable[Any]) -> Iterator[Any]:
        nonlocal jobs
        for job in found:
            jobs += 1
            yield job

    base_mib, started = resident_mib("VmRSS"), time.process_time()
    found = SlurmCliClient().squeue(
        derived_cluster_fetcher=partial(get_derived_cluster, cluster="bench", heterogeneous_cluster_v1=False),
        logger=logging.getLogger("bench"),
        attributes={"cluster": "bench", "collection_unixtime": 1_796_000_000},
    )
    write_to_sink_with_retries(
        write=Stdout().write,
        sink="stdout",
        records=counted(found),
        chunk_size=CHUNK_BYTES,
        retries=2,
        verbose=False,
        log_time=1_796_000_000,
        additional_params=SinkAdditionalParams(data_type=DataType.LOG, data_identifier=DataIdentifier.JOB),
    )
    cpu_s = time.process_time() - started
    figures = {"jobs": jobs, "cpu_s": cpu_s, "rss_mib": resident_mib("VmHWM"), "base_mib": base_mib}
    print(json.dumps(figures), file=sys.stderr)


def resident_mib(key: str) -> float:
    """Return VmRSS (now) or VmHWM (at most). Not ru_maxrss: that starts with the parent's."""
    return int(Path("/proc/self/status").read_text().split(f"{key}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
