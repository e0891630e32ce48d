"""The quick start and the page on tuning, followed: their commands run as they are printed."""

import subprocess
import time
from pathlib import Path

import pytest
from consolekit import finding, job_event, node_state, sample
from docpages import ROOT, commands, split
from heelercli import HEELER, environment
from natsserver import NatsServer
from waiting import until_sync

from heeler.bus import Bus, encode, subjects

NODE, JOB, UUID = "n016", "81000", "GPU-n016-6"


def lines(page: str) -> list[list[str]]:
    return [words for block in split(ROOT / "docs" / page)[1] for words in commands(block, "heeler")]


def follow(words: list[str], folder: Path, url: str | None = None) -> str:
    done = subprocess.run(
        [HEELER, *words], cwd=folder, env=environment(url), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"heeler {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


async def fill(bus: Bus) -> None:
    """Say what the demo says of one node, its job and its finding."""
    now = time.time_ns()
    about = {"cluster": "north"}
    data = sample(NODE, ts=now)
    entity = {"type": "gpu", "node": NODE, "gpu_uuid": UUID, "gpu_index": 6}
    found = finding("f1", ts=now, first_ts=now - 10**9, node=NODE, job_id=JOB, jobs=[JOB], entity=entity)
    inventory = {**about, "v": 1, "node": NODE, "ts": now, "boot": "b", "seq": 1, "digest": "d",
                 "gpus": [{"uuid": UUID, "index": 6}]}  # fmt: skip
    job = job_event(JOB, (NODE,), ts=now, start_ts=now - 10**9)
    for kind, subject, message in (
        ("Inventory", subjects.inventory("north", NODE), inventory),
        ("NodeState", subjects.node_state("north", NODE), node_state(NODE, ts=now)),
        ("JobEvent", subjects.job_event("north", JOB), job),
        ("JobSample", subjects.job_sample("north", str(data["shard"]), NODE), data),
        ("Finding", subjects.finding("north", "gpu_lag", NODE, "f1"), found),
    ):
        await bus.publish_acked(subject, kind, encode(kind, message), f"{kind}1")


@pytest.mark.bus
async def test_the_quick_starts_commands_answer(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> None:
    await fill(bus)
    url = nats_server.url
    until_sync(lambda: "1 open finding" in run_why(url))  # the stream of newest values is filled a moment later
    followed = []
    for words in lines("quickstart.md"):
        if words[0] in ("drain", "tap") or "--follow" in words:  # they need a drainer, or wait for what comes
            continue
        told = follow(words, tmp_path, url)
        followed.append(words[0])
        if words[0] in ("why", "events"):
            assert "1,155 MHz" in told, words
    assert set(followed) == {"top", "events", "why", "record", "replay"}
    assert (tmp_path / "demo.capture").stat().st_size > 0


def run_why(url: str) -> str:
    done = subprocess.run(
        [HEELER, "why", "job", JOB], env=environment(url), capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout


def test_tuning_begins_with_a_simulated_incident_and_says_what_a_threshold_changes(tmp_path: Path) -> None:
    for block in split(ROOT / "docs/tuning.md")[1]:
        first = block.text.splitlines()[0]
        if block.language == "toml":
            (tmp_path / first.removeprefix("# ")).write_text(block.text)
    (tmp_path / "before.toml").write_text("[detect.lag]\nalert_ratio = 0.6\ndrain_ratio = 0.6\npower_ratio = 0.6\n")
    told = {}
    for words in lines("tuning.md"):
        if words[0] != "record":
            told[" ".join(words)] = follow(words, tmp_path)
    assert (tmp_path / "truth.jsonl").read_text().count("thermal") == 1
    assert any('"gpu_lag"' in text for line, text in told.items() if "--through" in line)
    against = next(text for line, text in told.items() if "--against" in line)
    assert "+" in against, "a lag that before.toml is blind for"
