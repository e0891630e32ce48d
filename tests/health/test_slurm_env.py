"""The job of a prolog, and its GPUs: device minors are believed, numbers that count inside the job never."""

import json
from pathlib import Path

import pytest

from heeler.health.gpu_map import by_cache, by_driver, keep, uuids_of
from heeler.health.slurm_env import indices, job_of, node_of, uuids

UUID = "GPU-5f7f2a1c-0b5e-4c7d-9a3e-000000000001"
OTHER = "GPU-5f7f2a1c-0b5e-4c7d-9a3e-000000000002"

# As Slurm 22.05 gives it to a prolog.
ENV = {
    "SLURM_JOB_GPUS": "5",
    "CUDA_VISIBLE_DEVICES": "0",
    "SLURM_JOB_USER": "jane",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_ID": "81234",
    "SLURM_JOBID": "81234",
    "SLURM_JOB_PARTITION": "train",
    "SLURMD_NODENAME": "n001",
    "SLURM_ARRAY_JOB_ID": "81230",
    "SLURM_ARRAY_TASK_ID": "4",
}


def test_a_prologs_environment() -> None:
    job = job_of(ENV)
    assert job is not None
    assert (job.id, job.user, job.uid, job.partition) == ("81234", "jane", 1000, "train")
    assert (job.gpu_minors, job.gpu_uuids) == ((5,), None), "0 in CUDA_VISIBLE_DEVICES is the job's own count"
    assert (job.array_job_id, job.array_task_id) == ("81230", "4")
    assert node_of(ENV, "host.example.org") == "n001"
    assert node_of({}, "host.example.org") == "host"


@pytest.mark.parametrize("job_id", ["", "0", "x", "12x", "-1", "1 2", "99999999999", "\u0661"])
def test_no_job_is_none(job_id: str) -> None:
    assert job_of({**ENV, "SLURM_JOB_ID": job_id, "SLURM_JOBID": job_id}) is None
    assert job_of({}) is None


def test_an_exclusive_job_that_asked_for_no_gpus_has_none_that_are_known() -> None:
    job = job_of({"SLURM_JOB_ID": "60"})
    assert job is not None
    assert (job.gpu_minors, job.gpu_uuids, job.uid) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0,1,2", (0, 1, 2)),
        ("3-5,0", (0, 3, 4, 5)),
        ("7", (7,)),
        (" 1 , 2 ", (1, 2)),
        ("1,1", (1,)),
        ("", None),
        (None, None),
        ("  ", None),
        ("0,x", None),
        ("0,", None),
        ("5-3", None),
        ("0-99999", None),
        ("0:1", None),
        ("GPU-1", None),
        ("-1", None),
        ("N/A", None),
        ("1.5", None),
    ],
)
def test_indices_are_read_whole_or_not_at_all(text: str | None, found: tuple[int, ...] | None) -> None:
    assert indices(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (UUID, (UUID,)),
        (f"{UUID},{OTHER}", (UUID, OTHER)),
        ("MIG-94c4ef8a-1e7e-5d9c-8a7a-0123456789ab", ("MIG-94c4ef8a-1e7e-5d9c-8a7a-0123456789ab",)),
        (f"MIG-{UUID}/7/0", (f"MIG-{UUID}/7/0",)),
        ("0,1", None),
        (f"0,{UUID}", None),
        ("", None),
        (None, None),
        ("NoDevFiles", None),
    ],
)
def test_uuids_are_uuids(text: str | None, found: tuple[str, ...] | None) -> None:
    assert uuids(text) == found


def information(root: Path, pci: str, minor: object, uuid: str) -> None:
    folder = root / "proc/driver/nvidia/gpus" / pci
    folder.mkdir(parents=True)
    text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Location: \t {pci}\nDevice Minor: \t {minor}\n"
    (folder / "information").write_text(text)


def test_the_driver_tells_minors_in_another_order_than_addresses(tmp_path: Path) -> None:
    information(tmp_path, "0000:3b:00.0", 5, UUID)
    information(tmp_path, "0000:86:00.0", 0, OTHER)
    information(tmp_path, "0000:af:00.0", 2, "GPU-????????-????-????-????-????????????")
    information(tmp_path, "0000:b0:00.0", "x", UUID)
    found = by_driver(tmp_path)
    assert found == {5: UUID, 0: OTHER}
    assert uuids_of((5,), found) == (UUID,)
    assert uuids_of((5, 2), found) is None, "not half of them"
    assert uuids_of((5, 2), found, {5: UUID, 2: OTHER}) == (UUID, OTHER)
    assert uuids_of((), found) is None
    assert by_driver(tmp_path / "none") == {}


def test_what_was_kept_is_good_for_this_boot_only(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    keep(path, "boot-1", {0: UUID, 3: OTHER})
    assert by_cache(path, "boot-1") == {0: UUID, 3: OTHER}
    assert by_cache(path, "boot-2") == {}
    for text in (
        "",
        "[]",
        '{"boot": "boot-1"}',
        '{"boot": "boot-1", "gpus": []}',
        json.dumps({"boot": "boot-1", "gpus": {"x": "y"}}),
    ):
        path.write_text(text)
        assert by_cache(path, "boot-1") == {}
    keep(tmp_path / "no/such/folder.json", "boot-1", {0: UUID})
    assert [one.name for one in tmp_path.iterdir()] == ["gpus.json"]
