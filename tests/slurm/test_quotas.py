"""Quotas: the built-in reader of JSON lines, and readers of others."""

import pwd
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from heeler.bus.tables import check_columns
from heeler.bus.tables_gen import TABLES
from heeler.slurm import quotas
from heeler.slurm.clients import Clients
from heeler.slurm.errors import OutageError
from heeler.slurm.quotas import Quota
from heeler.slurm.rows import Unreadable
from heeler.slurm.settings import QuotaSettings, SlurmSettings

LINES = '{"user": 0, "used": 4096, "sample_time": 1700000000, "directory": "/home"}\n'


def clients(reader: str, **settings: str) -> Clients:
    return Clients(SlurmSettings(quotas=QuotaSettings(reader, settings)))


def plugged(settings: dict[str, str]) -> tuple[list[Quota], list[Unreadable]]:
    return [Quota("/scratch", user="alice", used_bytes=int(settings["used"]), hard_limit_bytes=10)], []


async def test_lines_become_rows_with_the_users_names(tmp_path: Path) -> None:
    path = tmp_path / "quota.jsonl"
    path.write_text(LINES + '\n{"user": 4000000001, "used": 0, "sample_time": 0, "directory": "/home"}\n')
    table = await quotas.collect(clients("pure", file=str(path)))
    check_columns(TABLES["quotas"], table.columns, table.rows)
    assert table.columns["user"] == [pwd.getpwuid(0).pw_name, None]
    assert table.columns["user_id"] == [0, 4000000001]
    assert table.columns["used_bytes"] == [4096, 0]
    assert table.columns["sampled_ts"] == [1700000000 * 10**9, None]
    assert table.columns["hard_limit_bytes"] == [None, None]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        '{"user": 1}',
        "[]",
        '{"user": "x", "used": 1, "directory": "/h"}',
        '{"user": 1, "used": -5, "directory": "/h"}',
        '{"used": 1, "directory": "/h"}',
        '{"user": 1, "used": 1, "directory": ""}',
        '{"user": 1, "used": 1, "directory": "/h", "sample_time": 99999999999999}',
    ],
)
def test_a_bad_line_is_named_and_the_others_are_read(line: str) -> None:
    found, unreadable = quotas.parse_pure(f"{LINES}{line}\n{LINES}")
    assert len(found) == 2
    (bad,) = unreadable
    assert bad.name == "line 2"
    assert line[:20] in bad.why or "99999999999999" in bad.why


def test_sizes_that_are_sentinels_to_slurm_are_sizes_here() -> None:
    sizes = [(1 << 32) - 2, (1 << 32) - 1, (1 << 63) - 1]
    lines = "\n".join(f'{{"user": 7, "used": {size}, "directory": "/h"}}' for size in sizes)
    assert [quota.used_bytes for quota in quotas.parse_pure(lines)[0]] == sizes


async def test_no_file_is_an_outage_and_no_empty_table(tmp_path: Path) -> None:
    with pytest.raises(OutageError, match="FileNotFoundError"):
        await quotas.collect(clients("pure", file=str(tmp_path / "none")))
    with pytest.raises(OutageError, match="file"):
        await quotas.collect(clients("pure"))


async def test_a_plug_in_reads_other_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:plugged", quotas.GROUP)
    monkeypatch.setattr(quotas, "entry_points", lambda **wanted: [point] if wanted["name"] == "mine" else [])
    monkeypatch.setattr(EntryPoint, "load", lambda _self: plugged)
    table = await quotas.collect(clients("mine", used="7"))
    assert (table.columns["user"], table.columns["used_bytes"], table.source) == (["alice"], [7], "mine")
    with pytest.raises(OutageError, match="no reader 'yours'"):
        await quotas.collect(clients("yours"))
