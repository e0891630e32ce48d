"""The bus contract of Heeler and its one Python client.

The client is imported when it is first asked for: a prolog, which only writes messages to a folder, has no time for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heeler.bus import subjects_gen as subjects
from heeler.bus.codec import (
    BusError,
    Choice,
    DecodeError,
    EncodeError,
    Suffix,
    check,
    decode,
    decoder_for,
    encode,
    extend,
)
from heeler.bus.messages import (
    AgentStatus,
    ClusterState,
    DeadLetter,
    DrainAction,
    Finding,
    GpuSample,
    HealthRequest,
    HealthResult,
    HealthRun,
    HostSample,
    IbSample,
    Inventory,
    JobEvent,
    JobKernelEvent,
    JobRecord,
    JobSample,
    JobSummary,
    KernelEvent,
    NodeState,
    PrologEvent,
    SlurmTable,
    SwitchSample,
)
from heeler.bus.subjects_gen import ROUTES
from heeler.bus.tokens import SHARDS, TokenError, escape, shard_of, unescape

if TYPE_CHECKING:
    from heeler.bus.client import Bus, BusClosedError, TooLargeError
    from heeler.bus.consumer import Consumer, ConsumerSpec, Delivery, consume, prefix_of, snapshot
    from heeler.bus.settings import BusSettings, ConfigError

__all__ = [
    "ROUTES",
    "SHARDS",
    "AgentStatus",
    "Bus",
    "BusClosedError",
    "BusError",
    "BusSettings",
    "Choice",
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
    "HealthRequest",
    "HealthResult",
    "HealthRun",
    "HostSample",
    "IbSample",
    "Inventory",
    "JobEvent",
    "JobKernelEvent",
    "JobRecord",
    "JobSample",
    "JobSummary",
    "KernelEvent",
    "NodeState",
    "PrologEvent",
    "SlurmTable",
    "Suffix",
    "SwitchSample",
    "TokenError",
    "TooLargeError",
    "check",
    "consume",
    "decode",
    "decoder_for",
    "encode",
    "escape",
    "extend",
    "prefix_of",
    "shard_of",
    "snapshot",
    "subjects",
    "unescape",
]

_LATER = {
    "client": ("Bus", "BusClosedError", "TooLargeError"),
    "consumer": ("Consumer", "ConsumerSpec", "Delivery", "consume", "prefix_of", "snapshot"),
    "settings": ("BusSettings", "ConfigError"),
}
_HOME = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what needs the client on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found
