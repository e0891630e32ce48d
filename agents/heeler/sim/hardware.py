"""What a GPU is: levels and limits per model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuModel:
    """Constants of one product. Power in watts, clocks in MHz, temperatures in degrees Celsius."""

    name: str
    power_limit_w: float
    idle_w: float  # no context
    context_w: float  # a process holds memory but runs nothing
    wait_w: float  # spinning in a collective, waiting for a slower rank
    sm_clock_max_mhz: float
    sm_clock_idle_mhz: float
    mem_clock_mhz: float
    fb_total_bytes: int
    temp_slowdown_c: float
    pcie_gen: int
    pcie_width: int = 16
    nvlinks: int = 18
    driver: str = "570.124.06"
    cuda: str = "12.8"
    vbios: str = "96.00.A5.00.01"


H100 = GpuModel(
    name="NVIDIA H100 80GB HBM3",
    power_limit_w=700.0,
    idle_w=71.5,
    context_w=120.0,
    wait_w=205.0,
    sm_clock_max_mhz=1980.0,
    sm_clock_idle_mhz=345.0,
    mem_clock_mhz=2619.0,
    fb_total_bytes=85_520_809_984,
    temp_slowdown_c=89.0,
    pcie_gen=5,
)

MODELS: dict[str, GpuModel] = {
    "h100": H100,
    "h200": GpuModel(
        name="NVIDIA H200",
        power_limit_w=700.0,
        idle_w=76.0,
        context_w=124.0,
        wait_w=215.0,
        sm_clock_max_mhz=1980.0,
        sm_clock_idle_mhz=345.0,
        mem_clock_mhz=3201.0,
        fb_total_bytes=150_754_820_096,
        temp_slowdown_c=89.0,
        pcie_gen=5,
    ),
    "a100": GpuModel(
        name="NVIDIA A100-SXM4-80GB",
        power_limit_w=400.0,
        idle_w=60.0,
        context_w=85.0,
        wait_w=130.0,
        sm_clock_max_mhz=1410.0,
        sm_clock_idle_mhz=210.0,
        mem_clock_mhz=1593.0,
        fb_total_bytes=85_899_345_920,
        temp_slowdown_c=90.0,
        pcie_gen=4,
        nvlinks=12,
        driver="550.144.03",
        cuda="12.4",
        vbios="92.00.45.00.03",
    ),
    "b200": GpuModel(
        name="NVIDIA B200",
        power_limit_w=1000.0,
        idle_w=140.0,
        context_w=190.0,
        wait_w=310.0,
        sm_clock_max_mhz=1965.0,
        sm_clock_idle_mhz=120.0,
        mem_clock_mhz=3996.0,
        fb_total_bytes=191_503_532_032,
        temp_slowdown_c=91.0,
        pcie_gen=5,
        driver="580.82.07",
        cuda="13.0",
        vbios="97.00.B9.00.0F",
    ),
}
