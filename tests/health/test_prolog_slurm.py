"""The prolog on a real Slurm: a bad GPU of this job drains the node with our reason, and nothing else ever does."""

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from natsserver import wait_for
from needs import need
from slurmhealth import HealthSite
from slurmsandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]

ENFORCED = '[checks.gpu_leftover_processes]\nenforce = ["prolog"]\nsettle_s = 0.0\n'
OPERATOR = "ADMIN: psu swap, do not touch"
NOBODY = 65534


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthSite]:
    need("slurm")
    folder = tmp_path_factory.mktemp("site")
    settings = HealthSite.settings(folder) | {"PrologEpilogTimeout": "60"}
    sandbox = Sandbox(nodes=2, gpus=4, settings=settings)
    made = HealthSite(folder, sandbox)
    # A process of a user that is in no job.
    made.stranger = subprocess.Popen(["sleep", "1000"], user=NOBODY)
    try:
        sandbox.start()
        yield made
    finally:
        sandbox.stop()
        made.stranger.kill()
        made.stranger.wait()


@pytest.fixture
def site(cluster: HealthSite) -> HealthSite:
    cluster.reset()
    cluster.slurm.reset()
    cluster.reset()  # what the cancelled jobs' epilogs have sent
    return cluster


def leave_a_process(site: HealthSite, node: str, gpu: int = 0) -> None:
    assert site.stranger is not None
    site.nvml[node].add(f"{gpu} process {site.stranger.pid} 1048576")


def submit(site: HealthSite, *options: str, command: str = "hostname; sleep 0.1") -> str:
    return site.slurm.submit(command, "--gres=gpu:2", *options)


def ran(site: HealthSite, job: str, node: str, timeout_s: float = 60.0) -> None:
    site.slurm.wait_job(job, "COMPLETED", timeout_s=timeout_s)
    assert site.slurm.run("squeue", "--states=all", "-h", "-o", "%N", "-j", job).strip() == node


def test_a_healthy_job_runs_and_is_told_at_once(site: HealthSite) -> None:
    job = submit(site, "-w", "n001")
    ran(site, job, "n001")
    runs = [site.run_of("n001", "prolog", job), site.run_of("n001", "epilog", job)]
    events = site.sent("n001", "PrologEvent")
    assert [one["event"] for one in events if "uuids" in one] == ["started", "ended"]
    assert {one["job_id"] for one in events} == {job}
    assert all(one["indices"] == [0, 1] for one in events)
    assert all(len(one["uuids"]) == 2 for one in events if "uuids" in one)
    assert events[0]["ts"] < site.sent("n001", "HealthResult")[0]["ts"] + 1
    assert [one["verdict"] for one in runs] == ["pass", "pass"]
    assert runs[0]["gpus"] == events[1]["uuids"]
    assert [one["phase"] for one in site.sent("n001", "HealthRun")] == ["prolog", "epilog"], "no word of the tasks'"
    assert site.slurm.node("n001").flags == ()


def test_the_uuids_are_those_of_the_jobs_minors_not_of_nvmls_indices(site: HealthSite) -> None:
    site.nvml["n001"].write("gpus 4\nseed n001\n0 minor 3\n1 minor 2\n2 minor 1\n3 minor 0\n")
    first = submit(site, "-w", "n001", command="sleep 30")
    second = submit(site, "-w", "n001", command="sleep 30")
    runs = [site.run_of("n001", "prolog", first), site.run_of("n001", "prolog", second)]
    found = {one["job_id"]: one for one in site.sent("n001", "PrologEvent") if "uuids" in one}
    uuids = [*found[first]["uuids"], *found[second]["uuids"]]
    assert [found[first]["indices"], found[second]["indices"]] == [[0, 1], [2, 3]]
    assert [one["gpus"] for one in runs] == [found[first]["uuids"], found[second]["uuids"]]
    assert len(set(uuids)) == 4


def test_a_failing_prolog_drains_the_node_with_our_reason_and_the_job_runs_elsewhere(site: HealthSite) -> None:
    site.policy("n001", ENFORCED)
    leave_a_process(site, "n001")
    job = submit(site)  # Slurm takes the first node
    wait_for(lambda: "DRAIN" in site.slurm.node("n001").flags, "the node drains")
    time.sleep(1.0)  # Slurm's own drain comes after ours
    node = site.slurm.node("n001")
    assert node.reason is not None
    assert node.reason.startswith("heeler:prolog:gpu_leftover_processes: 1 processes are left on this job s GPUs")
    assert len(node.reason) <= 200
    ran(site, job, "n002")
    run = site.run_of("n001", "prolog", job)
    assert (run["verdict"], run["enforcement"], run["exit_code"]) == ("fail", "on", 99)
    assert run["reason"] == node.reason
    assert run["failed"] == ["gpu_leftover_processes"]


def test_an_operators_drain_outlives_a_failing_prolog(site: HealthSite) -> None:
    site.policy("n001", ENFORCED)
    leave_a_process(site, "n001")
    # The operator drains it between the start of the job and our check.
    site.before(
        "n001",
        f"scontrol update nodename=n001 state=drain reason='{OPERATOR}' 2>/dev/null || "
        f"/usr/bin/scontrol update nodename=n001 state=drain reason='{OPERATOR}'\n",
    )
    job = submit(site)
    ran(site, job, "n002")
    node = site.slurm.node("n001")
    assert (node.reason, "DRAIN" in node.flags) == (OPERATOR, True)
    run = site.run_of("n001", "prolog", job)
    assert run["verdict"] == "fail"
    assert "reason" not in run
    assert "left as it is" in run["why"]


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("0 lost", "gpu_reachable"),
        ("1 ecc_uncorrected_volatile 2", "gpu_ecc_uncorrected"),
        ("0 remap_failed 1", "gpu_row_remap_failed"),
    ],
)
def test_a_broken_gpu_of_this_job_drains_the_node(site: HealthSite, fault: str, check: str) -> None:
    site.policy("n001", f'[checks.{check}]\nenforce = ["prolog"]\n')
    site.nvml["n001"].add(fault)
    job = submit(site)
    ran(site, job, "n002")
    node = site.slurm.node("n001")
    assert "DRAIN" in node.flags
    assert (node.reason or "").startswith(f"heeler:prolog:{check}: ")
    assert site.run_of("n001", "prolog", job)["reason"] == node.reason


@pytest.mark.parametrize("known", [True, False], ids=["known before", "not known"])
@pytest.mark.parametrize("fault", ["3 lost", "3 ecc_uncorrected_volatile 2", "3 hang all"])
def test_a_broken_gpu_of_another_job_keeps_this_one_from_nothing(site: HealthSite, fault: str, *, known: bool) -> None:
    checks = ("gpu_reachable", "gpu_ecc_uncorrected")
    site.policy("n001", "".join(f'[checks.{check}]\nenforce = ["prolog"]\n' for check in checks))
    if known:
        ran(site, submit(site, "-w", "n001", command="true"), "n001")
        site.run_of("n001", "epilog")
    site.nvml["n001"].add(fault)
    began = time.monotonic()
    job = submit(site, "-w", "n001", command="true")
    run = site.run_of("n001", "prolog", job)
    ran(site, job, "n001")
    assert (run["verdict"], "DRAIN" in site.slurm.node("n001").flags) == ("pass", False)
    assert time.monotonic() - began < 25


def broken_policy(site: HealthSite) -> None:
    (site.folder / "n001/health.toml").write_text("[[[ this is no TOML")


def unknown_key(site: HealthSite) -> None:
    site.policy("n001", "[checks.gpu_leftover_proceses]\nenforce = true\n")


def no_policy(site: HealthSite) -> None:
    (site.folder / "n001/health.toml").unlink()


def not_enforced(site: HealthSite) -> None:
    site.policy("n001", '[checks.gpu_leftover_processes]\nenforce = ["epilog"]\nsettle_s = 0.0\n')


def breaker_open(site: HealthSite) -> None:
    site.breaker("n001", "open")


def breaker_old(site: HealthSite) -> None:
    site.breaker("n001", "closed", age_s=1200)


def breaker_missing(site: HealthSite) -> None:
    (site.folder / "n001/breaker.json").unlink()


def no_program(site: HealthSite) -> None:
    (site.folder / "n001/heeler-health").unlink()


def crash(site: HealthSite) -> None:
    site.program("n001", "#!/bin/sh\necho Traceback >&2\nexit 1\n")


def no_outbox(site: HealthSite) -> None:
    site.policy("n001", "")
    folder = site.folder / "n001/outbox"
    text = (site.folder / "n001/health.toml").read_text()
    (site.folder / "n001/health.toml").write_text(text.replace(str(folder), "/proc/no/such/outbox"))


def switched_off(site: HealthSite) -> None:
    site.policy("n001", '[checks.gpu_leftover_processes]\nenabled = false\nenforce = ["prolog"]\n')


def no_library(site: HealthSite) -> None:
    site.nvml["n001"].write("init_error 9\n")


def another_jobs_gpu(site: HealthSite) -> None:
    site.nvml["n001"].write("gpus 4\nseed n001\n")
    leave_a_process(site, "n001", gpu=3)


# What is in the way of a drain, and the word of the HealthRun where there is one.
HARMLESS: dict[Callable[[HealthSite], None], str | None] = {
    not_enforced: "off",
    breaker_open: "breaker_open",
    breaker_old: "breaker_unknown",
    breaker_missing: "breaker_unknown",
    broken_policy: None,
    unknown_key: None,
    no_policy: None,
    no_program: None,
    crash: None,
    no_outbox: None,
    switched_off: "off",
    no_library: "off",
    another_jobs_gpu: "off",
}


@pytest.mark.parametrize("harmless", HARMLESS, ids=lambda one: one.__name__)
def test_the_job_starts_and_the_node_stays(site: HealthSite, harmless: Callable[[HealthSite], None]) -> None:
    site.policy("n001", ENFORCED)
    leave_a_process(site, "n001")
    harmless(site)
    began = time.monotonic()
    job = submit(site, "-w", "n001")
    ran(site, job, "n001", timeout_s=30)
    took_s = time.monotonic() - began
    node = site.slurm.node("n001")
    assert (node.reason, "DRAIN" in node.flags) == (None, False)
    assert took_s < 10
    word = HARMLESS[harmless]
    if word is not None:
        run = site.run_of("n001", "prolog", job)
        assert run["enforcement"] == word
        assert run["verdict"] == (
            "would_fail" if harmless not in (switched_off, no_library, another_jobs_gpu) else "pass"
        )


def test_a_driver_that_hangs_delays_the_job_by_its_deadline_and_no_more(site: HealthSite) -> None:
    alone = "".join(f'[profiles.{name}]\nchecks = ["gpu_leftover_processes"]\n' for name in ("prolog", "epilog"))
    site.policy("n001", alone + ENFORCED + "timeout_s = 2.0\n")
    site.nvml["n001"].write("gpus 4\nhang init\n")
    began = time.monotonic()
    job = submit(site, "-w", "n001", command="true")
    wait_for(lambda: bool(site.sent("n001", "PrologEvent")), "the job is told")
    assert site.sent("n001", "PrologEvent")[0]["job_id"] == job
    assert site.sent("n001", "HealthResult") == [], "the event did not wait for the driver"
    ran(site, job, "n001")
    assert time.monotonic() - began < 15, "two seconds before, and as many after"
    assert "DRAIN" not in site.slurm.node("n001").flags
    [result] = [one for one in site.sent("n001", "HealthResult") if one["phase"] == "prolog"]
    assert (result["outcome"], result["timed_out"]) == ("unknown", True)


def test_a_program_that_never_ends_is_ended_by_the_script(site: HealthSite) -> None:
    site.program("n001", "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n")
    (site.folder / "n001/deadline").write_text("2")
    job = submit(site, "-w", "n001", command="true")
    ran(site, job, "n001", timeout_s=30)
    assert "DRAIN" not in site.slurm.node("n001").flags


def test_a_job_without_gpus_is_not_failed_for_gpus(site: HealthSite) -> None:
    site.policy("n001", ENFORCED)
    leave_a_process(site, "n001")
    job = site.slurm.submit("true", "-w", "n001")
    ran(site, job, "n001")
    assert "DRAIN" not in site.slurm.node("n001").flags
    event = site.sent("n001", "PrologEvent")[0]
    assert "uuids" not in event
    assert "indices" not in event
