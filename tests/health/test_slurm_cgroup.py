"""The job of a process, by cgroup: every form that Slurm has, and no forgery."""

from pathlib import Path

import pytest

from heeler.health.slurm_cgroup import AmbiguousError, Jobs, job_of_title, place_of

SLUID = "s5K1KKYAYG5D00"
SCOPE = "/system.slice/slurmstepd.scope/"

FORMS = {
    "v1": (
        (
            "9:memory:/slurm/uid_1000/job_123/step_0/task_0\n8:cpuset:/slurm/uid_1000/job_123/step_0\n"
            "1:name=systemd:/system.slice/slurmd.service\n"
        ),
        "123",
    ),
    "v1, several slurmd": ("4:devices:/slurm_gn001/uid_0/job_77/step_batch\n", "77"),
    "v1, another name at the top": ("4:devices:/hpc/uid_0/job_77/step_batch\n", "77"),
    "v1, in a container": ("4:memory:/docker/0123abcd/slurm/uid_0/job_77/step_batch/task_0\n", "77"),
    "hybrid": ("2:cpu:/slurm/uid_0/job_8/step_0/task_0\n0::/system.slice/slurmd.service\n", "8"),
    "v2": ("0::/system.slice/slurmstepd.scope/job_81234/step_0/user/task_0\n", "81234"),
    "v2, several slurmd": ("0::/system.slice/gn001_slurmstepd.scope/job_9/step_extern/user/task_special\n", "9"),
    "v2, a cgroup namespace": ("0::/../../slurmstepd.scope/job_5/step_0\n", "5"),
    "v2, Slurm in a job of Slurm": (f"0::{SCOPE}job_5/step_0/user/slurmstepd.scope/job_6/x\n", "5"),
    "v2, the group is gone": (f"0::{SCOPE}job_5 (deleted)\n", "5"),
    "SLUID": (f"0::{SCOPE}{SLUID}/step_0/user/task_0\n", SLUID),
    "the last job": ("0::/slurmstepd.scope/job_4294967295/x\n", "4294967295"),
    "no more a job": ("0::/slurmstepd.scope/job_4294967296/x\n", None),
    "a sign": ("0::/slurmstepd.scope/job_+5/x\n", None),
    "a leading zero": ("0::/slurmstepd.scope/job_05/x\n", None),
    "other digits": ("0::/slurmstepd.scope/job_\u0661/x\n", None),
    "almost a SLUID": ("0::/slurmstepd.scope/s5K1KKYAYG5D0/step_0\n", None),
    "the waiting room": ("0::/system.slice/slurmstepd.scope/system\n", None),
    "a login": ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
    "a forgery": ("0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_5/x\n", None),
    "a forgery of version 1": ("1:name=systemd:/user.slice/user-1.slice/user@1.service/slurm/uid_0/job_5\n", None),
    "a name like a job's": ("0::/machine.slice/job_5/x\n", None),
    "far behind slurm": ("0::/slurm/other/job_6\n", None),
    "rubbish": ("::\n\n:::/slurm/job_\nx", None),
    "empty": ("", None),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_job_stands_in_the_cgroup(name: str) -> None:
    text, want = FORMS[name]
    place = place_of(text)
    assert (place and (place.job or place.sluid)) == want


def test_hierarchies_that_name_different_jobs_name_none() -> None:
    with pytest.raises(AmbiguousError, match="job_7"):
        place_of("3:freezer:/slurm/uid_0/job_7/step_0\n4:memory:/slurm/uid_0/job_8/step_0\n")


@pytest.mark.parametrize(
    ("title", "job"),
    [
        ("slurmstepd: [3385.0]\0", "3385"),
        ("slurmstepd: [123.batch]", "123"),
        ("slurmstepd: [40555]", "40555"),
        ("slurmstepd: [5+1.0]", None),
        ("slurmstepd: [x.0]", None),
        ("slurmstepd: [12", None),
        ("/usr/sbin/slurmstepd\0infinity\0", None),
        ("", None),
    ],
)
def test_the_title_of_a_step(title: str, job: str | None) -> None:
    assert job_of_title(title) == job


def process(root: Path, pid: int, cgroup: str, comm: str = "python", cmdline: str = "") -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    (folder / "comm").write_text(comm + "\n")
    (folder / "cmdline").write_text(cmdline)


def test_a_sluid_is_the_job_that_its_slurmstepd_says(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    process(tmp_path, 10, f"{SCOPE}{SLUID}/step_0/user/task_0")
    with pytest.raises(AmbiguousError, match="no slurmstepd"):
        jobs.of(10)
    # A user's process may call itself slurmstepd, but can't enter the daemon's group.
    process(tmp_path, 11, f"{SCOPE}{SLUID}/step_0/user/task_0", "slurmstepd", "slurmstepd: [666.0]\0")
    with pytest.raises(AmbiguousError):
        jobs.of(10)
    process(tmp_path, 12, f"{SCOPE}{SLUID}/step_0/slurm", "slurmstepd", "slurmstepd: [123.0]\0")
    assert jobs.of(10) == "123"
    assert jobs.is_daemon(12)
    assert not jobs.is_daemon(11)


def test_a_process_that_is_gone_is_no_process_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Jobs(tmp_path).of(99)


def test_jobs_with_a_slurmstepd_have_not_ended(tmp_path: Path) -> None:
    process(tmp_path, 20, f"{SCOPE}job_123/step_0/slurm", "slurmstepd", "slurmstepd: [123.0]\0")
    process(tmp_path, 21, f"{SCOPE}job_124/step_0/slurm", "slurmstepd", "slurmstepd: [124.batch]\0")
    process(tmp_path, 22, f"{SCOPE}job_125/step_0/user/task_0", "python", "slurmstepd: [125.0]\0")
    assert Jobs(tmp_path).running() == {"123", "124"}
