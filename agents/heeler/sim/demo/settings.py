"""What the demo was asked for."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

# Variables that would send our processes to somebody's real bus or collector.
FOREIGN = ("HEELER_", "OTEL_", "NATS_")


class DemoError(Exception):
    """The demo can't go on; says why in one line."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One run. `once` ends by itself; `faults` False only watches a healthy fleet."""

    nodes: int
    seed: int
    once: bool
    faults: bool
    real_agents: int
    window_s: float = 2.0
    cluster: str = "demo"

    def validate(self) -> None:
        """Raise DemoError with every value that makes no demo."""
        problems = []
        if not 18 <= self.nodes <= 12_500:
            problems.append(f"NODES={self.nodes}: 18 to 12500, since a job of 16 nodes is part of it")
        if not 0 <= self.real_agents <= 16:
            problems.append(f"REAL_AGENTS={self.real_agents}: 0 to 16")
        if not 1.0 <= self.window_s <= 2.0:
            problems.append(f"window {self.window_s:g} s: 1 to 2, for which the demo's thresholds are made")
        if problems:
            raise DemoError("; ".join(problems))


def clean_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for our processes: without anything that points at another bus or collector."""
    kept = {key: value for key, value in env.items() if not key.startswith(FOREIGN)}
    # One thread each is plenty for these sizes, and ten processes share the machine.
    return kept | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
