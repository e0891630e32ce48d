"""The bus contract of Heeler and its one Python client."""

from heeler.bus import subjects_gen as subjects
from heeler.bus.client import Bus, BusClosedError, TooLargeError
from heeler.bus.codec import BusError, DecodeError, EncodeError, Suffix, check, decode, encode, extend
from heeler.bus.consume import Consumer, ConsumerSpec, Delivery, consume, snapshot
from heeler.bus.messages import (
    AgentStatus,
    ClusterState,
    DeadLetter,
    DrainAction,
    Finding,
    GpuSample,
    IbSample,
    Inventory,
    JobEvent,
    JobKernelEvent,
    JobSample,
    KernelEvent,
    NodeState,
    PrologEvent,
)
from heeler.bus.settings import BusSettings, ConfigError
from heeler.bus.subjects_gen import ROUTES
from heeler.bus.tokens import SHARDS, TokenError, escape, shard_of, unescape

__all__ = [
    "ROUTES",
    "SHARDS",
    "AgentStatus",
    "Bus",
    "BusClosedError",
    "BusError",
    "BusSettings",
    "ClusterState",
    "ConfigError",
    "Consumer",
    "ConsumerSpec",
    "DeadLetter",
    "DecodeError",
    "Delivery",
    "DrainAction",
    "EncodeError",
    "Finding",
    "GpuSample",
    "IbSample",
    "Inventory",
    "JobEvent",
    "JobKernelEvent",
    "JobSample",
    "KernelEvent",
    "NodeState",
    "PrologEvent",
    "Suffix",
    "TokenError",
    "TooLargeError",
    "check",
    "consume",
    "decode",
    "encode",
    "escape",
    "extend",
    "shard_of",
    "snapshot",
    "subjects",
    "unescape",
]
