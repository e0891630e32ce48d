"""What the checks of GPUs read on a node of the fake NVML library, without a process of its own for each test."""

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fake_nvml import FakeNvml

from heeler.health.gpu_read import GPUS, read_gpus
from heeler.health.model import Case, Context, Job, Phase, Probe
from heeler.health.runner import run_probes


def read_facts(fake: FakeNvml, timeout_s: float = 4.0) -> Any:
    """Return the facts of the probe as a run gets them, or Unread."""

    def read(context: Context, asked: Sequence[Any]) -> Mapping[str, Any]:
        os.environ.update(fake.env())
        ctypes.CDLL(str(fake.library))  # by its soname nvidia-ml-py then finds this one
        return read_gpus(context, asked)

    probe = Probe(GPUS.name, read, timeout_s)
    context = Context(Case(Phase.PERIODIC, "n1", 0))
    return run_probes({probe.name: (probe, [])}, context, time.monotonic() + timeout_s + 2)[probe.name].facts


def case(phase: Phase = Phase.PERIODIC, *minors: int, uuids: tuple[str, ...] | None = None) -> Case:
    """Return a run; with minors or UUIDs it is about a job."""
    job = Job("81234", gpu_minors=minors or None, gpu_uuids=uuids) if minors or uuids else None
    return Case(phase, "n1", 0, job)
