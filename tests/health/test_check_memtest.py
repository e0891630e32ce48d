"""gpu_memtest: only GPUs that nobody has, each by its UUID; wrong values are found whatever the exit status."""

from pathlib import Path

import pytest
from healthkit import case, check_of, machine, run, tool
from hypothesis import given
from hypothesis import strategies as st

from heeler.bus import ConfigError
from heeler.health.checks.memtest import CHECKS, MemtestSettings, argv_of, parse_memtest
from heeler.health.model import Job, Outcome, Phase, Verdict

CHECK = check_of(CHECKS, "gpu_memtest")
UUIDS = [f"GPU-0000000{at}-77c0-4e1b-9f20-a1b2c3d40000" for at in range(2)]
ALL = MemtestSettings(gpus="all")
# As cuda_memtest 1.2.3 prints it.
HEAD = """[12/03/2026 01:40:01][node01][0]:Running cuda memtest, version 1.2.3
[12/03/2026 01:40:01][node01][0]:num_gpus=1
[12/03/2026 01:40:02][node01][0]:Device name=NVIDIA H100 80GB HBM3, global memory size=85029158912, serial=1
[12/03/2026 01:40:02][node01][0]:major=9, minor=0
[12/03/2026 01:40:02][node01][0]:Attached to device 0 successfully.
[12/03/2026 01:40:02][node01][0]:Allocated 4096 MB
"""
WORDS = {1: "Own address test", 2: "Moving inversions, ones&zeros", 7: "Random number sequence"}
GOOD = HEAD + "".join(
    f"[12/03/2026 01:40:03][node01][0]:Test{test} [{about}]\n"
    f"[12/03/2026 01:40:04][node01][0]:Test{test} finished in 0.6 seconds\n"
    for test, about in WORDS.items()
)
PASSED = GOOD + "main thread: Program exits\n"
WRONG = """[12/03/2026 01:40:03][node01][0]:ERROR: NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15
[12/03/2026 01:40:03][node01][0]:ERROR: The unit serial number is 1
[12/03/2026 01:40:03][node01][0]:ERROR: (move_inv_read) 3 errors found in block 128
[12/03/2026 01:40:03][node01][0]:ERROR: the last 3 error addresses are:\t0x7f3\t0x7f4\t0x7f5\t
[12/03/2026 01:40:03][node01][0]:ERROR: 0th error, expected value=0xff, current value=0xfb, diff=0x4
[12/03/2026 01:40:03][node01][0]:ERROR: (move_inv_read) 1 errors found in block 256
"""


def gpus(root: Path) -> Path:
    return machine(
        root,
        {
            f"proc/driver/nvidia/gpus/0000:{at}8:00.0/information": f"GPU UUID: \t {uuid}\nDevice Minor: \t {at}\n"
            for at, uuid in enumerate(UUIDS)
        },
    )


def memtest(root: Path, out: str, err: str = "", rc: int = 0, settings: MemtestSettings = ALL) -> Verdict:
    """Run it with GPU 0 well and GPU 1 as it is said."""
    tools = gpus(root) / "bin"
    tools.mkdir(exist_ok=True)
    name = settings.program
    for file, text in (("good", PASSED), ("out", out), ("err", err)):
        (tools / file).write_text(text)
    other = f'case "$CUDA_VISIBLE_DEVICES" in {UUIDS[0]}) cat {tools}/good; exit 0;; esac'
    said = f'echo "$CUDA_VISIBLE_DEVICES $@" >> {tools}/argv'
    tool(tools, name, f"{said}\n{other}\ncat {tools}/out; cat {tools}/err >&2; exit {rc}")
    return run(CHECK, root, settings, tools=tools)


def test_gpu_memtest_good(tmp_path: Path) -> None:
    verdict = memtest(tmp_path, PASSED)
    assert (verdict.outcome, verdict.why) == (Outcome.OK, "2 GPUs, 4096 MiB of each: no wrong value")
    called = (tmp_path / "bin/argv").read_text().splitlines()
    assert sorted(line.split()[0] for line in called) == UUIDS
    assert {line.partition(" ")[2] for line in called} == {" ".join(argv_of(ALL)[1:])}


@pytest.mark.parametrize("rc", [0, 255])
def test_gpu_memtest_bad_where_values_came_back_wrong_whatever_the_exit_status(tmp_path: Path, rc: int) -> None:
    verdict = memtest(tmp_path, GOOD, WRONG, rc)
    assert (verdict.outcome, verdict.gpus) == (Outcome.BAD, (UUIDS[1],))
    assert verdict.why == f"{UUIDS[1]}: 4 wrong values in move_inv_read"
    assert verdict.evidence[0].value == 4


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("uncorrectable ECC error encountered", Outcome.BAD),
        ("uncorrectable NVLink error detected during the execution", Outcome.BAD),
        ("hardware stack error", Outcome.BAD),
        ("out of memory", Outcome.UNKNOWN),
        ("all CUDA-capable devices are busy or unavailable", Outcome.UNKNOWN),
        ("no CUDA-capable device is detected", Outcome.UNKNOWN),
    ],
)
def test_gpu_memtest_bad_only_for_errors_of_the_hardware(tmp_path: Path, error: str, outcome: Outcome) -> None:
    line = f"[12/03/2026 01:40:03][node01][0]:ERROR: CUDA error: {error}, line 140, file cuda_memtest.cu\n"
    assert memtest(tmp_path, HEAD + line, line, 214).outcome is outcome


@pytest.mark.parametrize(
    ("out", "rc"),
    [
        ("", 0),
        ("no words that anybody knows\n", 0),
        (GOOD[: GOOD.index("Test7 finished")], 0),  # killed, or cut off
        (PASSED, 1),
        (PASSED, 127),
        ("ERROR: no GPUs found\n", 25),
        (PASSED.replace("Test2 finished", "Test2 ended"), 0),
    ],
)
def test_gpu_memtest_unknown_where_a_test_did_not_end_well(tmp_path: Path, out: str, rc: int) -> None:
    verdict = memtest(tmp_path, out, rc=rc)
    assert verdict.outcome is Outcome.UNKNOWN
    assert UUIDS[1] in verdict.why
    assert UUIDS[0] not in verdict.why


def test_gpu_memtest_unknown_without_the_program_without_gpus_or_in_time(tmp_path: Path) -> None:
    assert "is not installed" in run(CHECK, gpus(tmp_path / "a"), ALL, tools=tmp_path / "none").why
    assert run(CHECK, tmp_path / "b", ALL, tools=tmp_path).outcome is Outcome.UNKNOWN
    tool(tmp_path / "bin", "cuda_memtest", "sleep 30")
    slow = MemtestSettings(gpus="all", run_timeout_s=0.3)
    assert "did not answer in 0.3 s" in run(CHECK, tmp_path / "a", slow, tools=tmp_path / "bin").why


GCM = MemtestSettings("cudaMemTest", gpus="all")


@pytest.mark.parametrize(
    ("text", "rc", "outcome"),
    [
        ("alloc 4 \nCUDA memory test PASSED\n", 0, Outcome.OK),
        ("Test failed in setting mem(error code uncorrectable ECC error encountered)!\n", 1, Outcome.BAD),
        ("Test failed (error code out of memory)!\n", 1, Outcome.UNKNOWN),
        ("Invalid device id or device already in use\n", 1, Outcome.UNKNOWN),
        ("A simple cuda memory testing tool\n", 0, Outcome.UNKNOWN),
    ],
)
def test_gpu_memtest_good_bad_and_unknown_by_the_program_of_gcm(
    tmp_path: Path, text: str, rc: int, outcome: Outcome
) -> None:
    tools = tool(gpus(tmp_path) / "bin", "cudaMemTest", f"echo '{text}'; exit {rc}").parent
    assert run(CHECK, tmp_path, GCM, tools=tools).outcome is outcome
    assert argv_of(GCM) == ["cudaMemTest", "--device=0", "--alloc_mem_gb=4"]


def on_node(root: Path, state: str, used: str, phase: Phase, settings: MemtestSettings) -> Verdict:
    tools = gpus(root) / "bin"
    tool(tools, "scontrol", f"echo 'NodeName=node01 State={state} Gres=gpu:h100:2 GresUsed={used}'")
    (tools / "good").write_text(PASSED)
    tool(tools, "cuda_memtest", f'echo "$CUDA_VISIBLE_DEVICES" >> {tools}/argv; cat {tools}/good')
    return run(CHECK, root, settings, tools=tools, about=case(phase, node="node01", job=Job("81", gpu_minors=(1,))))


def test_gpu_memtest_takes_only_gpus_that_nobody_has(tmp_path: Path) -> None:
    epilog = on_node(tmp_path, "MIXED+COMPLETING", "gpu:h100:1(IDX:0)", Phase.EPILOG, MemtestSettings())
    assert epilog.outcome is Outcome.OK
    assert (tmp_path / "bin/argv").read_text().split() == [UUIDS[1]]


@pytest.mark.parametrize(
    ("state", "used", "phase", "settings"),
    [
        ("MIXED", "gpu:h100:1(IDX:1)", Phase.EPILOG, MemtestSettings()),
        ("MIXED", "gpu:h100:1(IDX:0)", Phase.PROLOG, MemtestSettings()),
        ("IDLE", "gpu:h100:0(IDX:N/A)", Phase.PERIODIC, MemtestSettings()),
        ("MIXED+DRAIN", "gpu:h100:2", Phase.PERIODIC, MemtestSettings()),
        ("MIXED+COMPLETING", "gpu:h100:1(IDX:0)", Phase.EPILOG, MemtestSettings(run_timeout_s=300.0)),
        ("MIXED+COMPLETING", "gpu:h100:1(IDX:0)", Phase.EPILOG, ALL),
    ],
)
def test_gpu_memtest_unknown_and_not_run_in_any_doubt(
    tmp_path: Path, state: str, used: str, phase: Phase, settings: MemtestSettings
) -> None:
    assert on_node(tmp_path, state, used, phase, settings).outcome is Outcome.UNKNOWN
    assert not (tmp_path / "bin/argv").exists()


def test_settings_that_mean_nothing_are_refused() -> None:
    for settings, word in (
        (MemtestSettings("rm"), "program"),
        (MemtestSettings(gpus="some"), "gpus"),
        (MemtestSettings(memory_mib=0), "memory_mib"),
        (MemtestSettings(tests=()), "tests"),
        (MemtestSettings(tests=(11,)), "tests"),
    ):
        with pytest.raises(ConfigError, match=word):
            settings.validate()
    MemtestSettings("/opt/gcm/cudaMemTest").validate()


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = parse_memtest(text)
    assert all(0 <= test <= 99 for test in found["finished"])
