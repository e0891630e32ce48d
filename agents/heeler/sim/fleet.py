"""Who the nodes, GPUs and ports of a simulated cluster are, and how each GPU differs from its peers for life."""

import hashlib
import uuid
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from heeler.sim.hardware import H100, GpuModel

Array = npt.NDArray[np.float64]

GPUS_PER_NODE = 8
RAILS = 8
MAX_NODES = 12_500
_BUSES = (0x1B, 0x3B, 0x43, 0x52, 0x9B, 0xBB, 0xC3, 0xD1)
_HCAS = ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9")


@dataclass(frozen=True, slots=True)
class Node:
    """Identity of one node; every list has one entry per GPU or rail."""

    name: str
    boot: str
    uuids: list[str]
    pcis: list[str]
    minors: list[int]
    serials: list[str]
    guids: list[str]
    hcas: tuple[str, ...] = _HCAS


@dataclass(frozen=True, slots=True)
class Traits:
    """What makes a GPU the same GPU over time: arrays of shape (nodes, GPUs), stable for a seed."""

    power: Array  # factor on power
    activity: Array  # factor on tensor activity
    sm: Array  # factor on SM activity
    clock: Array  # factor on the highest clock that it holds under load
    ambient_c: Array  # temperature at no power
    c_per_w: Array  # thermal resistance
    rail: Array  # factor on a rail's traffic, (nodes, rails)
    phase: Array  # (nodes,) how late the node's agent publishes, 0 to 1


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cluster without jobs."""

    cluster: str
    seed: int
    nodes: tuple[Node, ...]
    traits: Traits
    model: GpuModel = H100
    index: dict[str, int] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """(nodes, GPUs per node)."""
        return len(self.nodes), GPUS_PER_NODE


def digest(seed: int, *parts: object) -> bytes:
    """Return 16 bytes that depend on the seed and the parts alone."""
    return hashlib.blake2b(repr((seed, *parts)).encode(), digest_size=16).digest()


def stream(seed: int, *parts: object) -> np.random.Generator:
    """Return a random stream of its own for a purpose: drawing more for one does not move another."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest(seed, *parts), "big")))


def make_fleet(count: int, seed: int, *, cluster: str = "sim", model: GpuModel = H100) -> Fleet:
    """Return a fleet of `count` nodes, always the same one for the same arguments.

    Raises ValueError outside 1 to 12,500 nodes.
    """
    if not 1 <= count <= MAX_NODES:
        raise ValueError(f"{count} nodes: 1 to {MAX_NODES} can be simulated")
    width = max(3, len(str(count)))
    nodes = tuple(_node(seed, f"n{i + 1:0{width}d}") for i in range(count))
    index = {node.name: i for i, node in enumerate(nodes)}
    return Fleet(cluster, seed, nodes, _traits(count, seed), model, index)


def _node(seed: int, name: str) -> Node:
    boot = str(uuid.UUID(bytes=digest(seed, "boot", name)))
    uuids = [f"GPU-{uuid.UUID(bytes=digest(seed, 'gpu', name, i))}" for i in range(GPUS_PER_NODE)]
    guids = [digest(seed, "hca", name, i)[:8].hex() for i in range(RAILS)]
    serials = [str(int.from_bytes(digest(seed, "serial", name, i)[:5], "big")) for i in range(GPUS_PER_NODE)]
    # On some boards /dev/nvidiaN is not in the order of NVML: what Slurm's IDX means must be looked up.
    minors = list(range(GPUS_PER_NODE))
    if digest(seed, "minors", name)[0] < 32:
        minors = minors[4:] + minors[:4]
    return Node(
        name=name,
        boot=boot,
        uuids=uuids,
        pcis=[f"0000:{bus:02x}:00" for bus in _BUSES],
        minors=minors,
        serials=serials,
        guids=[":".join(guid[i : i + 4] for i in range(0, 16, 4)) for guid in guids],
    )


def _traits(count: int, seed: int) -> Traits:
    rng = stream(seed, "traits")
    shape = (count, GPUS_PER_NODE)

    def spread(sigma: float) -> Array:
        """Factor around one, cut at two sigma: products are sorted before they are sold."""
        return 1.0 + sigma * np.clip(rng.standard_normal(shape), -2.0, 2.0)

    return Traits(
        power=spread(0.0025),
        activity=spread(0.0065),
        sm=spread(0.005),
        clock=1.0 - rng.uniform(0.0, 0.008, shape),
        ambient_c=rng.uniform(28.0, 34.0, shape),
        c_per_w=rng.uniform(0.0433, 0.0556, shape),
        rail=np.where(rng.random((count, RAILS)) < 0.1, 0.97, 1.0),
        phase=rng.random(count),
    )
