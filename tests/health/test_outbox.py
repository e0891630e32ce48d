"""Results wait in a folder for the agent; a folder that is full, absent or read-only costs them and nothing else."""

import os
from pathlib import Path

import msgpack
import pytest

from heeler.bus import decode
from heeler.health import outbox
from heeler.health.judging import Result
from heeler.health.letters import About, letters
from heeler.health.model import Check, Evidence, Job, Phase, Probe, bad, ok
from heeler.health.outbox import Letter, Outbox, OutboxError
from heeler.health.report import json_lines
from heeler.health.requests import answer_of
from heeler.health.verdict import Judged, Run

GPU = Check("gpu", "A GPU.", Probe("p", lambda _c, _a: 1), lambda _f, _s, _c: ok("x"), hardware=True)
ABOUT = About("north", "n1", 1760000000000000000, "boot", 7, "run-1", Phase.PROLOG, Job("81234", user="ada"))


def run_of() -> Run:
    verdict = bad("GPU 3 is slow " + "x" * 900, Evidence("width", 8, 16, gpu_uuid="GPU-1", text="y" * 900), width=8)
    return Run("would_fail", "gpu: slow", "off", (Judged(Result(GPU, verdict, 5), "fail"),), None, {"bad": 1})


def prolog(job: str) -> Letter:
    message = {"v": 1, "cluster": "c", "node": "n", "ts": 1, "boot": "b", "seq": 1, "event": "started", "job_id": job}
    return Letter("heeler.v1.c.prolog.event.n", "PrologEvent", f"PrologEvent.{job}", message)


def test_a_run_becomes_messages_that_the_contract_knows(tmp_path: Path) -> None:
    assert Outbox(tmp_path).put(letters(ABOUT, run_of(), {"exit_code": 0, "version": "1"})) == 0
    found = [msgpack.unpackb(path.read_bytes()) for path in sorted(tmp_path.iterdir())]
    assert [one["type"] for one in found] == ["HealthResult/1", "HealthRun/1"]
    assert [one["subject"] for one in found] == ["heeler.v1.north.health.result.n1", "heeler.v1.north.health.run.n1"]
    assert len({one["id"] for one in found}) == 2
    result, run = decode("HealthResult", found[0]["data"]), decode("HealthRun", found[1]["data"])
    assert (result["outcome"], result["job_id"], result["user"], result["fails"]) == ("bad", "81234", "ada", True)
    assert result["evidence"][0]["limit"] == 16
    assert len(result["why"]) == len(result["evidence"][0]["text"]) == 500
    assert (run["verdict"], run["counts"], run["failed"]) == ("would_fail", {"bad": 1}, ["gpu"])
    assert (result["seq"], run["seq"]) == (7, 8)


def test_an_answer_to_a_request_holds_the_results(tmp_path: Path) -> None:
    head = {"v": 1, "cluster": "north", "boot": "boot", "seq": 7, "run": "run-1", "phase": "request"}
    printed = "\n".join(json_lines(run_of(), {"exit_code": 2}))
    found = answer_of(head, printed.encode(), 2, "n1", ABOUT.ts_ns)
    (letter,) = (Letter("s", "HealthRun", "i", found),)
    Outbox(tmp_path).put([letter])
    assert found["results"][0]["check"] == "gpu"


def test_files_are_for_their_owner_alone_and_none_is_seen_half_written(tmp_path: Path) -> None:
    Outbox(tmp_path).put([prolog("1")])
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o640  # the folder gives it the agent's group
    assert path.suffix == ".msg"
    assert not path.name.startswith(".")


def test_names_sort_in_the_order_of_writing(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    for job in range(20):
        box.put([prolog(str(job))])
    ids = [msgpack.unpackb(path.read_bytes())["id"] for path in sorted(tmp_path.iterdir())]
    assert ids == [f"PrologEvent.{job}" for job in range(20)]


def test_the_oldest_results_go_first_and_what_tells_of_jobs_last(tmp_path: Path) -> None:
    box = Outbox(tmp_path, max_files=3)
    box.put([prolog("1")])
    for seq in range(4):
        about = About("north", "n1", 1, "boot", seq, f"r{seq}", Phase.PERIODIC)
        box.put(letters(about, Run("pass", "well", "on", ()), {}))
    assert box.put([prolog("2")]) == 1
    left = [msgpack.unpackb(path.read_bytes())["id"] for path in sorted(tmp_path.iterdir())]
    assert left[0] == "PrologEvent.1"
    assert left[-1] == "PrologEvent.2"
    assert "HealthRun.north.n1.boot.r0.0" not in left


def test_of_very_many_only_some_go_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_DROPPED", 4)
    for number in range(20):
        (tmp_path / f"{number:020d}-1-0001-HealthRun.msg").touch()
    (tmp_path / ".hidden.msg").touch()
    box = Outbox(tmp_path, max_files=10)
    assert [box.put([prolog(str(job))]) for job in range(5)] == [4, 4, 4, 1, 1]
    assert len(list(tmp_path.glob("[0-9]*.msg"))) == 11
    assert (tmp_path / ".hidden.msg").exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutboxError, match="No such file"):
        Outbox(tmp_path / "none").put([prolog("1")])


def test_a_message_that_the_contract_refuses_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutboxError, match="HealthRun"):
        Outbox(tmp_path).put([Letter("s", "HealthRun", "i", {"v": 1})])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, flags, mode=0o777: (
            real("/dev/full", os.O_WRONLY) if str(path).endswith(".msg") else real(path, flags, mode)
        ),
    )
    with pytest.raises(OutboxError, match="No space left"):
        Outbox(tmp_path).put([prolog("1")])
    assert list(tmp_path.iterdir()) == []
