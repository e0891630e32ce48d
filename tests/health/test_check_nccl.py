"""nccl-tests: what is run on which hosts, what is read of the answer, and each run told for itself."""

from pathlib import Path

import pytest
from healthkit import case, check_of, run, tool

from heeler.bus import ConfigError
from heeler.health.checks.nccl import CHECKS, NcclSettings, argv_of, groups_of, parse_run
from heeler.health.model import Outcome, Phase, Verdict

OUT = """# nThread 1 nGpus 1 minBytes 33554432 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong
    33554432       8388608     float     sum      -1   300.10  111.81  195.67      0
# Out of bounds values : {wrong}
# Avg bus bandwidth    : {gbs}
#
"""


def nccl(
    root: Path, script: str, *, mode: str = "single", hosts: str = "", timeout_s: float = 5.0, **more: float
) -> Verdict:
    tools = tool(root / "bin", "mpirun", f'echo "$@" >> {root}/calls\n{script}').parent
    settings = NcclSettings("/opt/nccl-tests", critical_gbs=100.0, mode=mode, hosts=hosts, **more)  # type: ignore[arg-type]
    return run(check_of(CHECKS, "nccl"), root, settings, tools=tools, timeout_s=timeout_s)


def says(gbs: str = "195.67", wrong: str = "0 OK") -> str:
    return f"cat <<'END'\n{OUT.format(gbs=gbs, wrong=wrong)}END"


def test_nccl_good(tmp_path: Path) -> None:
    verdict = nccl(tmp_path, says())
    assert (verdict.outcome, verdict.perf) == (Outcome.OK, {"all_reduce_gbs": 195.67})
    assert "/opt/nccl-tests/all_reduce_perf -g 1" in (tmp_path / "calls").read_text()


def test_nccl_bad_where_it_is_slow_or_computes_wrong_values(tmp_path: Path) -> None:
    assert nccl(tmp_path, says("99.9")).outcome is Outcome.BAD
    assert nccl(tmp_path, says("120.0"), warn_gbs=150.0).outcome is Outcome.WARN
    assert nccl(tmp_path, says(wrong="3 FAILED")).why == "all_reduce: 3 wrong values"


def test_nccl_bad_tells_every_pair_that_is_slow_not_only_the_last(tmp_path: Path) -> None:
    slow = f'case "$*" in *g2:8*) {says("10.0")}\n;; *) {says()}\n;; esac'
    verdict = nccl(tmp_path, slow, mode="pairwise", hosts="g[1-4]")
    assert verdict.outcome is Outcome.BAD
    assert [one.device for one in verdict.evidence] == ["all_reduce g1 g2", "all_reduce g2 g3", "all_reduce g2 g4"]


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "exit 127",
        "echo nothing",
        f"{says('nan')}",
        f"{says()}\n{says()}",
        "sleep 30",
        f"{says()}\nexit 3",
    ],
)
def test_nccl_unknown_where_it_could_not_run_or_said_nothing(tmp_path: Path, script: str) -> None:
    assert nccl(tmp_path, script, timeout_s=1.0).outcome is Outcome.UNKNOWN


def test_nccl_unknown_without_mpirun_or_before_a_job(tmp_path: Path) -> None:
    check = check_of(CHECKS, "nccl")
    settings = NcclSettings("/opt", 1.0)
    assert run(check, tmp_path, settings, tools=tmp_path / "none").outcome is Outcome.UNKNOWN
    assert "a job begins" in run(check, tmp_path, settings, tools=tmp_path, about=case(Phase.PROLOG)).why


def test_the_hosts_of_each_run() -> None:
    assert groups_of(["a", "b", "c"], "single") == [("a", "b", "c")]
    assert groups_of(["a", "b", "c"], "pairwise") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert groups_of(["a", "b", "c"], "pairwise_quick") == [("a", "b"), ("b", "c"), ("c", "a")]
    assert groups_of(["a", "b"], "pairwise_quick") == [("a", "b")]
    assert groups_of([], "pairwise") == [()]


def test_the_command_turns_nvlink_off_unless_it_is_wanted() -> None:
    argv = argv_of(NcclSettings("/t/", 1.0), ("a", "b"), "alltoall")
    assert argv[argv.index("--host") + 1] == "a:8,b:8"
    assert argv[argv.index("-np") + 1] == "16"
    assert "NCCL_P2P_DISABLE=1" in argv
    assert "/t/alltoall_perf" in argv
    assert "NCCL_P2P_DISABLE=1" not in argv_of(NcclSettings("/t", 1.0, nvlink=True), (), "all_reduce")


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"operations: 'x'.*mode: 'y'"):
        NcclSettings("/t", 1.0, operations=("x",), mode="y").validate()
    assert parse_run("") == {"gbs": None, "wrong": None}
