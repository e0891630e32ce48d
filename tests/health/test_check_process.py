"""Processes: zombies, threads that hang in the kernel, daemons that must be there. Real ones where it can be."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from healthkit import check_of, machine, run

from heeler.bus import ConfigError
from heeler.health.checks.process import (
    CHECKS,
    DstateSettings,
    RunningProcessSettings,
    ZombiesSettings,
    parse_stat,
)
from heeler.health.model import Check, Outcome, Verdict

TICKS = os.sysconf("SC_CLK_TCK")
UP_S = 10_000


def stat(comm: str, state: str, *, ppid: int = 1, started_s: float = 100, flags: int = 0) -> str:
    rest = [state, str(ppid), "0", "0", "0", "-1", str(flags), *["0"] * 12, str(int(started_s * TICKS)), "0", "0"]
    return f"7 ({comm}) {' '.join(rest)}\n"


def processes(root: Path, **stats: str) -> Path:
    files = {"proc/uptime": f"{UP_S}.0 1.0", "proc/1/stat": stat("init", "S"), "proc/1/task/1/stat": stat("init", "S")}
    return machine(root, files | {f"proc/{pid[1:]}/stat": text for pid, text in stats.items()})


def check(name: str) -> Check:
    return check_of(CHECKS, name)


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for one in made:
        one.kill()
        one.wait()


# zombies


def test_zombies_good_where_there_are_none_or_they_are_young(tmp_path: Path) -> None:
    root = processes(tmp_path, p8=stat("sh", "S"), p9=stat("sh", "Z", started_s=UP_S - 200))
    verdict = run(check("zombies"), root, timeout_s=0.1)
    assert (verdict.outcome, verdict.perf["zombies"]) == (Outcome.OK, 1)


def test_zombies_bad_where_one_is_old_whatever_its_name(tmp_path: Path) -> None:
    root = processes(tmp_path, p8=stat("my job) Z (x", "Z", ppid=9), p9=stat("slurmstepd", "S"))
    verdict = run(check("zombies"), root, timeout_s=0.1)
    assert verdict.outcome is Outcome.WARN
    assert "my job) Z (x (8) is a zombie, started 9900 s ago, child of slurmstepd (9)" in verdict.why
    many = ZombiesSettings(bad_count=1)
    assert run(check("zombies"), root, many, timeout_s=0.1).outcome is Outcome.BAD


def test_zombies_bad_a_real_one_is_seen(children: list[subprocess.Popen[bytes]]) -> None:
    child = subprocess.Popen(["/bin/true"])
    children.append(child)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    verdict = run(check("zombies"), "/", ZombiesSettings(older_than_s=0.0))
    assert verdict.outcome is Outcome.WARN
    assert any(one.device == str(child.pid) for one in verdict.evidence)


def test_zombies_good_one_that_is_reaped_a_moment_later_is_none(children: list[subprocess.Popen[bytes]]) -> None:
    late = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess,time; p=subprocess.Popen(['true']); time.sleep(.6); p.wait(); input()",
        ],
        stdin=subprocess.PIPE,
    )
    children.append(late)
    time.sleep(0.3)
    verdict = run(check("zombies"), "/", ZombiesSettings(older_than_s=0.0))
    assert f"({late.pid})" not in verdict.why


def test_zombies_unknown_where_processes_of_others_are_hidden(tmp_path: Path) -> None:
    verdict = run(check("zombies"), machine(tmp_path, {"proc/uptime": "1 1", "proc/77/stat": stat("me", "S")}))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "hidden" in verdict.why


# dstate


def hanging(
    root: Path, *, last_run_s: float | None, comm: str = "python3", flags: int = 0, switches: int = 5
) -> Verdict:
    files = {
        "proc/8/task/8/stat": stat(comm, "D", flags=flags),
        "proc/8/task/8/status": f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n",
        "proc/8/task/8/wchan": "nfs_wait_client_init_complete",
    }
    if last_run_s is not None:
        files["proc/8/task/8/sched"] = f"{comm} (8, #threads: 1)\n---\nse.exec_start  :  {last_run_s * 1e3:.6f}\n"
    return run(check("dstate"), machine(processes(root), files), timeout_s=0.1)


def test_dstate_good_where_none_waits_or_not_for_long(tmp_path: Path) -> None:
    assert run(check("dstate"), processes(tmp_path / "none"), timeout_s=0.1).outcome is Outcome.OK
    assert hanging(tmp_path / "short", last_run_s=UP_S - 5).outcome is Outcome.OK


def test_dstate_good_where_a_kernel_thread_waits_as_they_do(tmp_path: Path) -> None:
    assert hanging(tmp_path, last_run_s=1, flags=0x00200000).outcome is Outcome.OK


def test_dstate_bad_where_a_thread_has_not_run_for_long_names_where_it_waits(tmp_path: Path) -> None:
    verdict = hanging(tmp_path, last_run_s=UP_S - 900, comm="a b (c)")
    assert verdict.outcome is Outcome.BAD
    assert "a b (c) (8) in nfs_wait_client_init_complete hangs since 900 s" in verdict.why
    assert hanging(tmp_path / "warn", last_run_s=UP_S - 90).outcome is Outcome.WARN


def test_dstate_unknown_where_how_long_can_not_be_read_is_never_bad(tmp_path: Path) -> None:
    assert hanging(tmp_path, last_run_s=None).outcome is Outcome.WARN
    shutil.rmtree(tmp_path / "proc")
    root = machine(processes(tmp_path), {"proc/8/task/8/stat": stat("x", "D")})
    assert run(check("dstate"), root, timeout_s=0.1).outcome is Outcome.UNKNOWN
    assert run(check("dstate"), tmp_path / "nothing").outcome is Outcome.UNKNOWN


def test_dstate_only_the_names_that_the_site_wants(tmp_path: Path) -> None:
    root = machine(
        processes(tmp_path),
        {"proc/8/task/8/stat": stat("rsync", "D"), "proc/8/task/8/sched": "se.exec_start : 1000.0\n"},
    )
    assert run(check("dstate"), root, DstateSettings(names=("^python",)), timeout_s=0.1).outcome is Outcome.OK
    assert run(check("dstate"), root, DstateSettings(names=("^rs",)), timeout_s=0.1).outcome is Outcome.BAD
    with pytest.raises(ConfigError, match="names"):
        DstateSettings(names=("(",)).validate()


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_dstate_bad_a_real_thread_that_hangs_is_seen(tmp_path: Path, children: list[subprocess.Popen[bytes]]) -> None:
    (tmp_path / "hang.c").write_text(
        "#include <unistd.h>\nint main(void){ if (vfork() == 0) { pause(); } return 0; }\n"
    )
    subprocess.run(["cc", "-w", "-o", tmp_path / "hang", tmp_path / "hang.c"], check=True)
    child = subprocess.Popen([tmp_path / "hang"], start_new_session=True)
    children.append(child)
    try:
        time.sleep(0.5)
        verdict = run(check("dstate"), "/", DstateSettings(warn_s=0.4, bad_s=0.6, names=("^hang$",)))
        if "how long can't be read" not in verdict.why:
            assert verdict.outcome is Outcome.BAD
        assert any(one.device == str(child.pid) for one in verdict.evidence)
    finally:
        os.killpg(child.pid, 9)


# running_process


def test_running_process_good_a_real_one_is_found_by_its_name(children: list[subprocess.Popen[bytes]]) -> None:
    children.append(subprocess.Popen(["sleep", "60"]))
    time.sleep(0.1)
    assert run(check("running_process"), "/", RunningProcessSettings(("sleep",))).outcome is Outcome.OK


def test_running_process_good_by_program_script_and_long_name(tmp_path: Path) -> None:
    files = {"proc/8/cmdline": b"/usr/bin/python3\0/opt/tools/agent.py\0--x\0"}
    root = machine(processes(tmp_path, p8=stat("python3", "S"), p9=stat("nvidia-persiste", "S")), files)
    wanted = RunningProcessSettings(("python3", "agent.py", "nvidia-persistenced"))
    assert run(check("running_process"), root, wanted).outcome is Outcome.OK


def test_running_process_bad_where_it_is_not_there_or_only_in_an_argument_or_dead(tmp_path: Path) -> None:
    files = {"proc/8/cmdline": b"grep\0slurmd\0/var/log/slurmd\0", "proc/9/cmdline": b""}
    root = machine(processes(tmp_path, p8=stat("grep", "S"), p9=stat("munged", "Z"), p7=stat("slurmd2", "S")), files)
    verdict = run(check("running_process"), root, RunningProcessSettings(("munged",)))
    assert verdict.outcome is Outcome.BAD
    assert verdict.why == "munged does not run"
    assert run(check("running_process"), root, RunningProcessSettings(("slurm",))).outcome is Outcome.BAD
    two = RunningProcessSettings(("grep",), min_count=2)
    assert run(check("running_process"), root, two).why == "grep: only 1 of 2"


def test_running_process_unknown_without_processes(tmp_path: Path) -> None:
    assert run(check("running_process"), tmp_path, RunningProcessSettings(("x",))).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("text", ["", "1 (x", "1 (x) S", "garbage", "1 (x) S a b c d e f g h i j k l m n o p q r s t"])
def test_what_is_no_stat_is_none(text: str) -> None:
    assert parse_stat(text) is None
