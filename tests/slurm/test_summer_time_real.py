"""Accounting over the hours that summer time doubles or leaves out, on a real slurmdbd, wherever the feed may run."""

import asyncio
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from natsserver import NatsServer
from slurmsandbox import Sandbox
from waiting import until_sync

from heeler.bus import Bus, decode, snapshot
from heeler.slurm.clients import Clients
from heeler.slurm.sacct import Sacct, Window
from heeler.slurm.settings import SlurmSettings

pytestmark = [pytest.mark.slurm, pytest.mark.bus, pytest.mark.timeout(180)]
HOUR = 3600
# (zone, the time at which its clocks changed)
CHANGES = {
    "Berlin in autumn": ("Europe/Berlin", datetime(2025, 10, 26, 1, 0, tzinfo=UTC)),
    "Berlin in spring": ("Europe/Berlin", datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),
    "New York in autumn": ("America/New_York", datetime(2025, 11, 2, 6, 0, tzinfo=UTC)),
    "Lord Howe, half an hour, in autumn": ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, 0, tzinfo=UTC)),
}
# When runs end, beside the change: on each side of it, and twice at the same time of the local clock.
ENDS_S = (-HOUR, -HOUR // 2, -1, 0, HOUR // 2, HOUR)


@pytest.fixture(scope="module")
def moved(accounting_cluster: Sandbox) -> dict[str, dict[str, int]]:
    """Runs that ended around each change, as slurmdbd has them: job -> seconds since the epoch, by change."""
    cluster = accounting_cluster
    jobs = [cluster.submit("true") for _ in range(len(CHANGES) * len(ENDS_S))]

    def ended() -> set[str]:
        rows = cluster.run("sacct", "-anXP", "--starttime=now-1hour", "-o", "jobid,state").split()
        return {row.removesuffix("|COMPLETED") for row in rows}

    until_sync(lambda: set(jobs) <= ended(), "all runs are in accounting", 90.0)
    found: dict[str, dict[str, int]] = {}
    for name, (_, change) in CHANGES.items():
        found[name] = {}
        for at in ENDS_S:
            job, end_s = jobs.pop(), int(change.timestamp()) + at
            found[name][job] = end_s
            cluster.accounting.sql(
                f"update sandbox_job_table set time_submit={end_s - 60}, time_eligible={end_s - 60},"
                f" time_start={end_s - 60}, time_end={end_s} where id_job={job};"
                f"update sandbox_step_table s join sandbox_job_table j using (job_db_inx)"
                f" set s.time_start={end_s - 60}, s.time_end={end_s} where j.id_job={job}"
            )
    return found


async def ends(cluster: Sandbox, window: Window) -> dict[str, int]:
    """Return what ended in a window: job -> seconds since the epoch."""
    settings = SlurmSettings(conf=str(cluster.conf), bin_dir="/usr/bin", timeout_s=20.0)
    answer = await Sacct(Clients(settings, "c")).ended(window)
    assert not answer.unreadable
    return {record["job_id"]: record["end_ts"] // 10**9 for record in answer.records}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["the feed is there", "the feed is in another zone"])
async def test_each_run_is_in_one_chunk_and_has_its_own_time(
    accounting_cluster: Sandbox,
    moved: dict[str, dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    *,
    elsewhere: bool,
) -> None:
    zone, change = CHANGES[name]
    monkeypatch.setenv("TZ", "Asia/Kolkata" if elsewhere else zone)
    time.tzset()
    first = int((change - timedelta(hours=2)).timestamp())
    seen: list[tuple[str, int]] = []
    for start_s in range(first, first + 4 * HOUR, HOUR // 2):
        window = Window(start_s, start_s + HOUR // 2)
        found = await ends(accounting_cluster, window)
        assert all(window.start_s <= end_s < window.end_s for end_s in found.values())
        seen += found.items()
    assert sorted(seen) == sorted(moved[name].items())
    monkeypatch.undo()
    time.tzset()


def test_the_local_clock_would_not_tell_them_apart(moved: dict[str, dict[str, int]]) -> None:
    zone, _ = CHANGES["Berlin in autumn"]
    local = [f"{datetime.fromtimestamp(at, ZoneInfo(zone)):%H:%M:%S}" for at in moved["Berlin in autumn"].values()]
    assert len(set(local)) < len(local), "two of them ended at the same time of the local clock"


@pytest.mark.parametrize(
    ("begin", "end", "wanted"),
    [
        ("2025-10-26T02:00+02:00", "2025-10-26T03:00+02:00", (-HOUR, -HOUR // 2, -1)),
        ("2025-10-26T02:00+01:00", "2025-10-26T03:00+01:00", (0, HOUR // 2)),
        ("2026-03-29T01:59:59+01:00", "2026-03-29T03:00:01+02:00", (-1, 0)),
    ],
    ids=["the first hour of two", "the second hour of two", "over the hour that is not there"],
)
async def test_a_backfill_takes_a_window_by_its_offset(
    accounting_cluster: Sandbox,
    moved: dict[str, dict[str, int]],
    bus: Bus,
    nats_server: NatsServer,
    begin: str,
    end: str,
    wanted: tuple[int, ...],
) -> None:
    argv = [sys.executable, "-m", "heeler.cli.main", "slurm", "backfill", "--url", nats_server.url]
    argv += ["--from", begin, "--to", end, "--step=10m", "--pause=0"]
    env = {**os.environ, "SLURM_CONF": str(accounting_cluster.conf), "HEELER_CLUSTER": "north", "TZ": "Europe/Berlin"}
    done = await asyncio.to_thread(subprocess.run, argv, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    name = "Berlin in autumn" if "2025" in begin else "Berlin in spring"
    change_s = int(CHANGES[name][1].timestamp())
    told = [
        decode("JobRecord", found.data)["job_id"]
        for found in await snapshot(bus, "RECORDS", ("slurm.record.*.*",), start=1)
    ]
    assert sorted(told) == sorted(job for job, end_s in moved[name].items() if end_s - change_s in wanted)
