"""The fake NVML library, seen through nvidia-ml-py in another process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from fake_nvml import FakeNvml, missing_tool
from nvml_session import NvmlFailed, NvmlSession

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_SUPPORTED, NO_PERMISSION, NOT_LOADED, TIMEOUT, LOST, MISMATCH = 3, 4, 9, 10, 15, 18
INVALID, NOT_FOUND, FUNCTION_NOT_FOUND = 2, 6, 13
WHOLE_GPU = 0xFFFFFFFF

pytestmark = pytest.mark.skipif(missing_tool() is not None, reason=missing_tool() or "")


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path)


@pytest.fixture
def nvml(fake: FakeNvml) -> Iterator[NvmlSession]:
    with NvmlSession(os.environ | fake.env()) as session:
        yield session


def start(fake: FakeNvml, text: str = "", *, init: bool = True) -> NvmlSession:
    fake.write(text)
    return NvmlSession(os.environ | fake.env(), init=init)


# ---- who is there ----


def test_without_a_scenario_there_are_eight_idle_h100s(fake: FakeNvml) -> None:
    env = {k: v for k, v in (os.environ | fake.env()).items() if k != "HEELER_FAKE_NVML"}
    with NvmlSession(env) as nvml:
        assert nvml.get("n.nvmlDeviceGetCount()") == 8
        assert nvml.get("[n.nvmlDeviceGetName(gpu(i)) for i in range(8)]") == ["NVIDIA H100 80GB HBM3"] * 8
        assert nvml.get("n.nvmlDeviceGetUtilizationRates(gpu(0))") == {"gpu": 0, "memory": 0}
        assert nvml.get("n.nvmlDeviceGetCurrentClocksEventReasons(gpu(0))") == 0x1
        assert nvml.get("n.nvmlDeviceGetComputeRunningProcesses(gpu(0))") == []


def test_inventory_says_who_each_gpu_is(fake: FakeNvml) -> None:
    text = "driver 570.86.15\ncuda 12080\ngpus 4\nminor 0 4\n1 vbios 96.00.A5\n2 serial 165002\n3 pci 0001:0a:00.0"
    with start(fake, text) as nvml:
        assert nvml.get("n.nvmlSystemGetDriverVersion()") == "570.86.15"
        assert nvml.get("n.nvmlSystemGetCudaDriverVersion()") == 12080
        assert nvml.get("[n.nvmlDeviceGetMinorNumber(gpu(i)) for i in range(4)]") == [4, 1, 2, 3]
        assert nvml.get("n.nvmlDeviceGetVbiosVersion(gpu(1))") == "96.00.A5"
        assert nvml.get("n.nvmlDeviceGetSerial(gpu(2))") == "165002"
        assert nvml.get("n.nvmlDeviceGetPciInfo(gpu(3)).busId") == "00000001:0A:00.0"
        assert len(set(nvml.get("[n.nvmlDeviceGetUUID(gpu(i)) for i in range(4)]"))) == 4
        assert nvml.get("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(gpu(2))))") == 2
        for address in ("00000001:0A:00.0", "0001:0a:00.0"):
            assert nvml.get(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(b'{address}'))") == 3
        assert nvml.code("gpu(4)") == INVALID
        assert nvml.code("n.nvmlDeviceGetHandleByUUID('GPU-nobody')") == NOT_FOUND


def test_uuids_follow_the_seed(fake: FakeNvml) -> None:
    def uuids(seed: str) -> set[str]:
        with start(fake, f"seed {seed}") as nvml:
            return set(nvml.get("[n.nvmlDeviceGetUUID(gpu(i)) for i in range(2)]"))

    assert uuids("node001") == uuids("node001")
    assert uuids("node001").isdisjoint(uuids("node002"))


def test_order_moves_indices_and_keeps_uuids(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do("held = gpu(2)")
    before = nvml.get("[n.nvmlDeviceGetUUID(gpu(i)) for i in range(8)]")
    fake.write("order 2 0 1 7")
    assert nvml.get("n.nvmlDeviceGetCount()") == 4
    assert nvml.get("[n.nvmlDeviceGetUUID(gpu(i)) for i in range(4)]") == [before[g] for g in (2, 0, 1, 7)]
    assert nvml.get("n.nvmlDeviceGetIndex(held)") == 0
    assert nvml.get("n.nvmlDeviceGetUUID(held)") == before[2]


def test_a_gpu_beyond_the_count_is_lost_to_its_holder(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do("held = gpu(7)")
    fake.write("gpus 7")
    assert nvml.get("n.nvmlDeviceGetCount()") == 7
    assert nvml.code("n.nvmlDeviceGetPowerUsage(held)") == LOST


# ---- what they read ----

READINGS = [
    ("power_w 690", "n.nvmlDeviceGetPowerUsage(gpu(3))", 690_000),
    ("power_limit_w 650", "n.nvmlDeviceGetEnforcedPowerLimit(gpu(3))", 650_000),
    ("temp_c 71", "n.nvmlDeviceGetTemperature(gpu(3), 0)", 71),
    ("temp_c 71", "n.nvmlDeviceGetTemperatureV(gpu(3), 0)", 71),
    ("temp_c 71", "n.nvmlDeviceGetMarginTemperature(gpu(3))", 16),
    ("temp_slowdown_c 83", "n.nvmlDeviceGetTemperatureThreshold(gpu(3), 1)", 83),
    ("sm_clock_mhz 1155", "n.nvmlDeviceGetClockInfo(gpu(3), 1)", 1155),
    ("sm_clock_mhz 1155", "n.nvmlDeviceGetClockInfo(gpu(3), 0)", 1155),
    ("sm_clock_max_mhz 1700", "n.nvmlDeviceGetMaxClockInfo(gpu(3), 1)", 1700),
    ("app_mem_clock_mhz 1500", "n.nvmlDeviceGetApplicationsClock(gpu(3), 2)", 1500),
    ("clock_event_reasons 0x48", "n.nvmlDeviceGetCurrentClocksThrottleReasons(gpu(3))", 0x48),
    ("ecc_uncorrected_volatile 5", "n.nvmlDeviceGetTotalEccErrors(gpu(3), 1, 0)", 5),
    ("ecc_corrected_aggregate 7", "n.nvmlDeviceGetMemoryErrorCounter(gpu(3), 0, 1, 2)", 7),
    ("remap_failed 1", "n.nvmlDeviceGetRemappedRows(gpu(3))", [0, 0, 0, 1]),
    ("retired_pages_dbe 2", "len(n.nvmlDeviceGetRetiredPages(gpu(3), 1))", 2),
    ("pcie_gen 2", "n.nvmlDeviceGetCurrPcieLinkGeneration(gpu(3))", 2),
    ("pcie_width 8", "n.nvmlDeviceGetCurrPcieLinkWidth(gpu(3))", 8),
    ("pcie_rx_mib_s 100", "n.nvmlDeviceGetPcieThroughput(gpu(3), 1)", 102_400),
    ("pcie_replays 12", "n.nvmlDeviceGetPcieReplayCounter(gpu(3))", 12),
    ("fan_pct 44", "n.nvmlDeviceGetFanSpeed(gpu(3))", 44),
    ("persistence 0", "n.nvmlDeviceGetPersistenceMode(gpu(3))", 0),
    ("ecc_mode_pending 0", "n.nvmlDeviceGetEccMode(gpu(3))", [1, 0]),
    ("pstate 8", "n.nvmlDeviceGetPerformanceState(gpu(3))", 8),
]


@pytest.mark.parametrize(("line", "call", "value"), READINGS)
def test_a_value_in_the_scenario_is_what_the_call_returns(
    fake: FakeNvml, nvml: NvmlSession, line: str, call: str, value: Any
) -> None:
    fake.write(f"3 {line}")
    assert nvml.get(call) == value
    other = call.replace("gpu(3)", "gpu(2)")
    assert nvml.code(other) == NOT_SUPPORTED or nvml.get(other) != value


def test_reserved_memory_counts_as_used_in_the_older_call_only(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write("0 fb_total_bytes 1000\n0 fb_used_bytes 600\n0 fb_reserved_bytes 50")
    assert nvml.get("n.nvmlDeviceGetMemoryInfo(gpu(0))") == {"total": 1000, "free": 350, "used": 650}
    new = nvml.get("n.nvmlDeviceGetMemoryInfo(gpu(0), version=n.nvmlMemory_v2)")
    assert (new["used"], new["reserved"], new["free"]) == (600, 50, 350)


def test_a_rewrite_shows_while_the_process_runs(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do("held = gpu(3)")
    for watts in (100, 200, 300):
        fake.set(3, "power_w", watts)
        assert nvml.get("n.nvmlDeviceGetPowerUsage(held)") == watts * 1000
    fake.unset(3, "power_w")
    assert nvml.get("n.nvmlDeviceGetPowerUsage(held)") == 70_000


def test_selectors_name_all_gpus_a_range_or_one(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write("all power_w 500\n2-4 power_w 400 # a comment\n3 power 300")
    watts = nvml.get("[n.nvmlDeviceGetPowerUsage(gpu(i)) // 1000 for i in range(6)]")
    assert watts == [500, 500, 400, 300, 400, 500]


def test_noise_stays_inside_its_bounds(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write("all power_w 500\nnoise 0.02")
    milliwatts = nvml.get("[n.nvmlDeviceGetPowerUsage(gpu(i)) for i in range(8)]")
    assert all(490_000 <= mw <= 510_000 for mw in milliwatts)
    assert len(set(milliwatts)) > 1


def test_field_values_carry_their_own_return_codes(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write(
        "1 mem_temp_c 88\n1 power_average_w 400\n1 power_w 500\n1 energy_mj 10000000\n1 tlimit_shutdown_c -5\n"
        "1 recovery_action 2\n1 remap_pending 1\n1 pcie_replays 3\n1 error pcie_replay_rollovers 4\n"
        "1 unsupported power_limit",
    )
    got = nvml.get("fields(gpu(1), 82, 185, 186, 83, 193, 230, 144, 94, 95, 190, 201, 999)")
    assert {i: v for i, (c, v) in got.items() if c == 0 and i != "83"} == {
        "82": 88, "185": 400_000, "186": 500_000, "193": -5, "230": 2, "144": 1, "94": 3,
    }  # fmt: skip
    assert got["83"][1] >= 10_000_000
    assert {i: c for i, (c, _) in got.items() if c != 0} == {"95": 4, "190": 3, "201": 3, "999": 3}


# ---- counters ----

# The counter moves by rate x time; time is known between the inner and outer pair of clock readings.
BRACKET = """
a = time.monotonic(); x = {read}; b = time.monotonic()
time.sleep(0.05)
c = time.monotonic(); y = {read}; d = time.monotonic()
least, most, moved = c - b, d - a, y - x
"""


@pytest.mark.parametrize(
    ("line", "read", "per_second"),
    [
        ("power_w 500", "n.nvmlDeviceGetTotalEnergyConsumption(gpu(0))", 500_000),
        ("power_w 500", "fields(gpu(0), 191)['191'][1]", 500_000),
        ("clock_event_reasons 0x40", "n.nvmlDeviceGetViolationStatus(gpu(0), 1).violationTime", 1e9),
        ("clock_event_reasons 0x40", "fields(gpu(0), 270)['270'][1]", 1e9),
        ("clock_event_reasons 0x4", "fields(gpu(0), 74)['74'][1]", 1e9),
        ("clock_event_reasons 0x4", "fields(gpu(0), 270)['270'][1]", 0),
        ("nvlink_tx_mib_s 1000", "fields(gpu(0), (138, 0xffffffff))['138'][1]", 1024_000),
        ("nvlink_tx_mib_s 1800", "fields(gpu(0), (138, 5))['138'][1]", 102_400),
    ],
)
def test_counters_grow_with_what_they_count(
    fake: FakeNvml, nvml: NvmlSession, line: str, read: str, per_second: float
) -> None:
    fake.write(f"0 {line}")
    nvml.do(BRACKET.format(read=read))
    least, most, moved = nvml.get("[least, most, moved]")
    assert per_second * least - 1 <= moved <= per_second * most + 1


def test_a_counter_stays_put_when_its_reason_is_gone(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write("0 clock_event_reasons 0x20")
    nvml.get("n.nvmlDeviceGetCount()")
    fake.write("0 clock_event_reasons 0")
    before = nvml.get("fields(gpu(0), 269)['269'][1]")
    assert before > 0
    assert nvml.get("fields(gpu(0), 269)['269'][1]") == before


def test_gpm_gives_the_mean_between_two_samples(fake: FakeNvml) -> None:
    program = """
def sample(handle):
    s = n.nvmlGpmSampleAlloc()
    n.nvmlGpmSampleGet(handle, s)
    return s
def metrics(a, b, *ids):
    get = n.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(ids), sample1=a, sample2=b)
    for i, m in enumerate(ids):
        get.metrics[i].metricId = m
    n.nvmlGpmMetricsGet(get)
    return [[get.metrics[i].nvmlReturn, get.metrics[i].value] for i in range(len(ids))]
first = sample(gpu(0))
"""
    with start(
        fake, "0 sm_active_pct 80\n0 tensor_active_pct 40\n0 pcie_tx_mib_s 900\n0 unsupported fp64_active"
    ) as nvml:
        assert nvml.get("n.nvmlGpmQueryDeviceSupport(gpu(0)).isSupportedDevice") == 1
        nvml.do(program + "time.sleep(0.02)")
        codes, values = zip(*nvml.get("metrics(first, sample(gpu(0)), 2, 5, 20, 11, 900)"), strict=True)
        assert codes == (0, 0, 0, NOT_SUPPORTED, NOT_SUPPORTED)
        assert values[:3] == pytest.approx((80, 40, 900))
        fake.set(0, "sm_active_pct", 0)
        [(_, mixed)] = nvml.get("metrics(first, sample(gpu(0)), 2)")
        assert 0 < mixed < 80


def test_boards_before_hopper_have_no_gpm(fake: FakeNvml) -> None:
    with start(fake, "model NVIDIA A100-SXM4-80GB") as nvml:
        assert nvml.get("n.nvmlGpmQueryDeviceSupport(gpu(0)).isSupportedDevice") == 0
        assert nvml.code("n.nvmlGpmSampleGet(gpu(0), n.nvmlGpmSampleAlloc())") == NOT_SUPPORTED


# ---- NVLink ----


def test_a_link_goes_down_and_counts_errors(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write("0 nvlink 5 down\n0 nvlink 4 replay 9\n0 nvlink 14 crc_flit 2")
    assert nvml.get("[n.nvmlDeviceGetNvLinkState(gpu(0), i) for i in range(18)]") == [1] * 5 + [0] + [1] * 12
    assert nvml.get("n.nvmlDeviceGetNvLinkErrorCounter(gpu(0), 4, 0)") == 9
    assert nvml.code("n.nvmlDeviceGetNvLinkState(gpu(0), 18)") == NOT_SUPPORTED
    assert nvml.get("fields(gpu(0), 50, 52, 38, (161, 4), 91)") == {
        "50": [0, 9], "52": [0, 9], "38": [0, 2], "161": [0, 9], "91": [0, 18],
    }  # fmt: skip


def test_blackwell_counts_links_by_other_fields(fake: FakeNvml) -> None:
    with start(fake, "all model NVIDIA B200\n0 nvlink 3 symbol_errors 12") as nvml:
        got = nvml.get(f"fields(gpu(0), 50, (221, 3), (202, {WHOLE_GPU}), (138, 0))")
        assert got == {"50": [3, 0], "221": [0, 12], "202": [0, 0], "138": [3, 0]}
        assert nvml.code("n.nvmlDeviceGetNvLinkErrorCounter(gpu(0), 0, 0)") == NOT_SUPPORTED


# ---- processes and MIG ----


def test_processes_are_listed_with_their_memory(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write(f"1 process 4242 51539607552 python\n1 process {os.getpid()} na\n1 graphics_process 7 10")
    got = nvml.get("n.nvmlDeviceGetComputeRunningProcesses(gpu(1))")
    assert [(p["pid"], p["usedGpuMemory"]) for p in got] == [(4242, 51539607552), (os.getpid(), None)]
    assert [p["pid"] for p in nvml.get("n.nvmlDeviceGetComputeRunningProcesses_v2(gpu(1))")] == [4242, os.getpid()]
    assert [p["pid"] for p in nvml.get("n.nvmlDeviceGetGraphicsRunningProcesses(gpu(1))")] == [7]
    assert nvml.get("n.nvmlDeviceGetComputeRunningProcesses(gpu(0))") == []
    assert nvml.get("n.nvmlSystemGetProcessName(4242)") == "python"
    assert nvml.code("n.nvmlSystemGetProcessName(2**31)") == NOT_FOUND


MIG = "2 mig 1g.10gb 7 0\n2 mig 3g.40gb 1 0\n2/1 fb_used_bytes 1024\n2/1 process 99 1000"
MIG_HANDLES = "mig = [n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(2), i) for i in range(2)]"


def test_mig_devices_have_an_identity_of_their_own(fake: FakeNvml) -> None:
    with start(fake, MIG) as nvml:
        nvml.do(MIG_HANDLES)
        assert nvml.get("n.nvmlDeviceGetMigMode(gpu(2))") == [1, 1]
        assert nvml.get("n.nvmlDeviceGetMigMode(gpu(1))") == [0, 0]
        assert nvml.code("n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(2), 2)") == NOT_FOUND
        assert nvml.get("[n.nvmlDeviceGetGpuInstanceId(m) for m in mig]") == [7, 1]
        assert nvml.get("n.nvmlDeviceGetName(mig[0])") == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert nvml.get("n.nvmlDeviceGetUUID(mig[0])").startswith("MIG-")
        assert nvml.get("n.nvmlDeviceGetIndex(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig[1]))") == 2
        assert nvml.get("n.nvmlDeviceGetAttributes(mig[1]).memorySizeMB") == 40 * 1024
        assert nvml.get("n.nvmlDeviceGetMemoryInfo(mig[1]).used") == 1024


def test_a_mig_parent_has_no_utilisation_and_lists_the_processes_of_its_parts(fake: FakeNvml) -> None:
    with start(fake, "all busy\n" + MIG) as nvml:
        nvml.do(MIG_HANDLES)
        assert nvml.code("n.nvmlDeviceGetUtilizationRates(gpu(2))") == NOT_SUPPORTED
        assert nvml.code("n.nvmlDeviceGetUtilizationRates(mig[0])") == NOT_SUPPORTED
        assert nvml.get("n.nvmlDeviceGetUtilizationRates(gpu(1)).gpu") == 99
        assert nvml.get("n.nvmlDeviceGetComputeRunningProcesses(mig[0])") == []
        [process] = nvml.get("n.nvmlDeviceGetComputeRunningProcesses(gpu(2))")
        assert (process["pid"], process["gpuInstanceId"]) == (99, 1)


def test_a_refused_parent_leaves_its_mig_devices_readable(fake: FakeNvml) -> None:
    with start(fake, MIG + "\n2 error memory 4") as nvml:
        nvml.do(MIG_HANDLES)
        assert nvml.code("n.nvmlDeviceGetMemoryInfo(gpu(2))") == NO_PERMISSION
        assert nvml.get("n.nvmlDeviceGetMemoryInfo(mig[1]).used") == 1024
        fake.add("2 lost")
        assert nvml.code("n.nvmlDeviceGetMemoryInfo(mig[1])") == LOST


# ---- what goes wrong ----


@pytest.mark.parametrize(
    ("line", "call", "code"),
    [
        ("unsupported temp", "n.nvmlDeviceGetTemperature(gpu(5), 0)", NOT_SUPPORTED),
        ("power_w na", "n.nvmlDeviceGetPowerUsage(gpu(5))", NOT_SUPPORTED),
        ("unsupported memory", "n.nvmlDeviceGetMemoryInfo(gpu(5))", NOT_SUPPORTED),
        ("unsupported ecc", "n.nvmlDeviceGetTotalEccErrors(gpu(5), 0, 0)", NOT_SUPPORTED),
        ("error processes 4", "n.nvmlDeviceGetComputeRunningProcesses(gpu(5))", NO_PERMISSION),
        ("error sm_clock 999", "n.nvmlDeviceGetClockInfo(gpu(5), 1)", 999),
        ("error gpm 4", "n.nvmlGpmSampleGet(gpu(5), n.nvmlGpmSampleAlloc())", NO_PERMISSION),
        ("error all 16", "n.nvmlDeviceGetPowerUsage(gpu(5))", 16),
    ],
)
def test_a_call_fails_the_way_the_scenario_says(
    fake: FakeNvml, nvml: NvmlSession, line: str, call: str, code: int
) -> None:
    fake.write(f"5 {line}")
    assert nvml.code(call) == code
    assert nvml.code(call.replace("gpu(5)", "gpu(4)")) == 0


def test_a_word_on_a_field_outranks_one_on_all(fake: FakeNvml, nvml: NvmlSession) -> None:
    fake.write("2 lost\n2 ok handle uuid")
    assert nvml.code("n.nvmlDeviceGetUUID(gpu(2))") == 0
    assert nvml.code("n.nvmlDeviceGetPowerUsage(gpu(2))") == LOST


def test_a_lost_gpu_answers_nothing_and_the_others_go_on(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do("held = gpu(2)")
    fake.write("2 lost")
    assert nvml.get("n.nvmlDeviceGetCount()") == 8
    for call in ("n.nvmlDeviceGetPowerUsage(held)", "n.nvmlDeviceGetUUID(held)", "fields(held, 82)", "gpu(2)"):
        assert nvml.code(call) == LOST
    assert nvml.code("n.nvmlDeviceGetPowerUsage(gpu(3))") == 0
    fake.clear()
    assert nvml.code("n.nvmlDeviceGetPowerUsage(held)") == 0


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("hang power", "n.nvmlDeviceGetPowerUsage(held)"),
        ("hang mem_temp", "fields(held, 230, 82)"),
        ("hang all", "n.nvmlDeviceGetTemperature(held, 0)"),
    ],
)
def test_a_hanging_call_holds_its_own_thread_until_the_scenario_lets_go(
    fake: FakeNvml, nvml: NvmlSession, line: str, call: str
) -> None:
    nvml.do("held = gpu(4)")
    fake.write(f"4 {line}")
    nvml.do(f"done = []\nthread = threading.Thread(target=lambda: done.append({call}), daemon=True)\nthread.start()")
    assert nvml.code("n.nvmlDeviceGetPowerUsage(gpu(3))") == 0
    assert nvml.get("(thread.join(0.1), thread.is_alive(), done)[1:]") == [True, []]
    fake.clear()
    assert nvml.get("(thread.join(60), thread.is_alive(), len(done))[1:]") == [False, 1]


@pytest.mark.parametrize(("line", "code"), [("init_error 9", NOT_LOADED), ("lib_mismatch", MISMATCH)])
def test_init_fails_and_recovers(fake: FakeNvml, line: str, code: int) -> None:
    with start(fake, line, init=False) as nvml:
        assert nvml.code("n.nvmlInit()") == code
        assert nvml.code("n.nvmlDeviceGetCount()") == 1
        fake.clear()
        assert nvml.code("n.nvmlInit()") == 0
        assert nvml.get("n.nvmlDeviceGetCount()") == 8


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gpus 4\n3 wattage 9", "line 2: unknown field 'wattage'"),
        ("3 power_w much", "line 1: 'much' is no number"),
        ("3 utilization 50", "line 1: 'utilization' is a call and has no value"),
        ("order 1 1", "line 1: GPU 1 occurs twice"),
        ("32 lost", "line 1: no GPU '32'"),
        ("driver", "line 1: a value is missing"),
        ("nonsense here", "line 1: unknown line 'nonsense'"),
    ],
)
def test_a_faulty_scenario_is_named_and_changes_nothing(fake: FakeNvml, text: str, complaint: str) -> None:
    with start(fake, "gpus 3") as nvml:
        fake.write(text)
        assert nvml.get("n.nvmlDeviceGetCount()") == 3
        assert nvml.get("n.nvmlDeviceGetCount()") == 3
    assert nvml.stderr.count(complaint) == 1


def test_an_older_driver_lacks_symbols(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, hide=("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMarginTemperature"))
    with start(fake, "0 process 1 10") as nvml:
        assert nvml.code("n.nvmlDeviceGetMarginTemperature(gpu(0))") == FUNCTION_NOT_FOUND
        assert nvml.code("n.nvmlDeviceGetComputeRunningProcesses_v3(gpu(0))") == FUNCTION_NOT_FOUND
        assert nvml.code("n.nvmlDeviceGetComputeRunningProcesses_v2(gpu(0))") == 0


# ---- events ----

LISTEN = """
events = n.nvmlEventSetCreate()
for i in range(8):
    n.nvmlDeviceRegisterEvents(gpu(i), n.nvmlEventTypeXidCriticalError | n.nvmlEventTypeGpuRecoveryAction, events)
def heard():
    seen = []
    while True:
        try:
            e = n.nvmlEventSetWait_v2(events, 60)
        except n.NVMLError as error:
            return seen + [[error.value]]
        seen.append([n.nvmlDeviceGetIndex(e.device), e.eventType, e.eventData])
"""


def test_an_event_is_heard_once(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do(LISTEN)
    assert nvml.get("heard()") == [[TIMEOUT]]
    fake.add("event a 1 xid 79")
    assert nvml.get("heard()") == [[1, 8, 79], [TIMEOUT]]
    fake.add("event b 1 xid 79", "event c 3 recovery_action 2", "event d 3 clock 1")
    assert nvml.get("heard()") == [[1, 8, 79], [3, 0x8000, 2], [TIMEOUT]]
    nvml.do("n.nvmlEventSetFree(events)\nn.nvmlShutdown()\nn.nvmlInit()" + LISTEN)
    assert nvml.get("heard()") == [[TIMEOUT]]


def test_an_xid_line_without_an_id_counts_by_repetition(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do(LISTEN)
    fake.add("1 xid 48")
    assert nvml.get("heard()") == [[1, 8, 48], [TIMEOUT]]
    fake.add("1 xid 48")
    assert nvml.get("heard()") == [[1, 8, 48], [TIMEOUT]]


def test_an_event_wakes_a_thread_that_waits(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do(LISTEN + "got = []\n")
    nvml.do("def listen():\n    got.append(n.nvmlEventSetWait_v2(events, 60_000).eventData)\n")
    nvml.do("thread = threading.Thread(target=listen, daemon=True)\nthread.start()")
    fake.add("event a 0 xid 31")
    assert nvml.get("(thread.join(60), got)[1]") == [31]


def test_waiting_can_be_made_to_fail(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do(LISTEN)
    fake.write("wait_error 15\nevent a 1 xid 79")
    assert nvml.get("heard()") == [[1, 8, 79], [LOST]]


# ---- many at once ----


def test_threads_read_while_the_scenario_changes(fake: FakeNvml, nvml: NvmlSession) -> None:
    nvml.do("""
running, odd, reads = True, [], [0] * 4
def reader(k):
    while running:
        rates = n.nvmlDeviceGetUtilizationRates(gpu(k))
        reads[k] += 1
        if rates.gpu != rates.memory:
            odd.append([rates.gpu, rates.memory])
threads = [threading.Thread(target=reader, args=(k,)) for k in range(4)]
for thread in threads:
    thread.start()
""")
    for pct in range(40):
        fake.write(f"all util_pct {pct}\nall mem_util_pct {pct}")
    nvml.do("running = False\nfor thread in threads:\n    thread.join()")
    assert nvml.get("odd") == []
    assert nvml.get("min(reads)") > 0
    assert nvml.get("n.nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 39


def test_calls_before_init_and_after_shutdown_are_refused(fake: FakeNvml) -> None:
    with start(fake) as nvml:
        nvml.do("held = gpu(0)\nn.nvmlInit()\nn.nvmlShutdown()")
        assert nvml.code("n.nvmlDeviceGetPowerUsage(held)") == 0
        nvml.do("n.nvmlShutdown()")
        with pytest.raises(NvmlFailed, match="nvmlReturn_t 1"):
            nvml.get("n.nvmlDeviceGetPowerUsage(held)")
