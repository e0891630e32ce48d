"""The engine: everything between a pure step and the bus, written once."""

from heeler.engine.intake import Refused, intake
from heeler.engine.memory import Keyed, Pipeline, run
from heeler.engine.step import NOTHING, Counters, Event, Inbound, Input, Result, Step, key_shard, kind_of

__all__ = [
    "NOTHING",
    "Counters",
    "Event",
    "Inbound",
    "Input",
    "Keyed",
    "Pipeline",
    "Refused",
    "Result",
    "Step",
    "intake",
    "key_shard",
    "kind_of",
    "run",
]
