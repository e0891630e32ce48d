"""Faults ordered while the simulator runs: one JSON object a line, an entry of a fault script, and its answer."""

import json
from dataclasses import dataclass
from typing import Any

from heeler.sim.faults import Fault
from heeler.sim.messages import label
from heeler.sim.script import Casting, ScriptError, spec_of
from heeler.sim.simulation import Simulation


@dataclass(slots=True)
class Control:
    """Turns ordered lines into faults of a running simulation."""

    simulation: Simulation
    casting: Casting

    def order(self, line: str, now_ns: int) -> tuple[Fault | None, dict[str, Any]]:
        """Return the fault, already added to the simulation, and the answer: its label, or what is wrong."""
        try:
            spec = spec_of(json.loads(line))
            jobs = self.simulation.schedule.active(now_ns)
            fault = self.casting.cast(spec, jobs, now_ns)
        except (json.JSONDecodeError, ScriptError) as err:
            return None, {"error": str(err)}
        self.simulation.inject(fault)
        return fault, dict(label(self.simulation.fleet, fault))
