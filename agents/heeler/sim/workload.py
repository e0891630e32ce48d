"""What jobs look like from outside: the level of every metric while a job of some kind runs.

The figures are of healthy H100 SXM nodes, read at about 9 Hz in the steady phase of real jobs. Power is given as
a share of the board's limit, so that other models follow.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """Means of one rank in the steady phase. Ratios are 0 to 1, traffic in bytes per second."""

    power_ratio: float
    util: float
    sm_active: float
    tensor: float
    sm_occupancy: float
    dram: float
    mem_util: float
    fb_ratio: float
    pcie_tx: float = 15e6
    pcie_rx: float = 15e6
    nvlink: float = 0.0
    ib: float = 0.0  # a rail, each way


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of job.

    ``levels`` has one entry per pipeline stage, ranks being split over the stages in order. ``compute_share`` is
    the part of a step that gets longer in proportion when the SM clock falls. ``rails`` is how many InfiniBand
    rails carry its traffic. ``burst`` multiplies the noise of what is busy in bursts only.
    """

    name: str
    levels: tuple[Level, ...]
    compute_share: float = 0.85
    rails: int = 8
    rank0_quirk: bool = False
    burst: float = 1.0


DDP_LARGE = Workload(
    "ddp-large",
    (Level(0.984, 1.0, 0.880, 0.586, 0.31, 0.44, 0.55, 0.86, nvlink=61e9, ib=1.96e9),),
    compute_share=0.9,
)
DDP_SMALL = Workload(
    "ddp-small",
    (Level(0.786, 0.845, 0.635, 0.1935, 0.27, 0.38, 0.43, 0.41, nvlink=22e9, ib=0.95e9),),
    compute_share=0.7,
)
FSDP_OFFLOAD = Workload(
    "fsdp-offload",
    (Level(0.267, 0.13, 0.090, 0.0565, 0.05, 0.06, 0.05, 0.52, pcie_tx=6.1e9, pcie_rx=7.4e9, ib=0.3e9),),
    compute_share=0.15,
    burst=4.0,
)
TP_PP = Workload(
    "tp-pp",
    (
        Level(0.600, 0.99, 0.460, 0.107, 0.22, 0.30, 0.38, 0.78, nvlink=88e9, ib=3.1e9),
        Level(0.694, 0.97, 0.520, 0.156, 0.24, 0.33, 0.41, 0.82, nvlink=92e9, ib=3.1e9),
    ),
    compute_share=0.6,
    rails=2,
    rank0_quirk=True,
)
INFERENCE = Workload(
    "inference",
    (Level(0.466, 0.71, 0.34, 0.071, 0.16, 0.41, 0.47, 0.91, pcie_tx=0.4e9, pcie_rx=0.3e9),),
    compute_share=0.3,
    rails=0,
    burst=3.0,
)
ALLOCATED_IDLE = Workload("notebook", (Level(0.172, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.03),), rails=0)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (DDP_LARGE, DDP_SMALL, FSDP_OFFLOAD, TP_PP, INFERENCE, ALLOCATED_IDLE)
}
