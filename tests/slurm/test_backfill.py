"""Windows of accounting: every second asked for once, halves where it is too much, and on after any end."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.slurm import progress
from heeler.slurm.accounting import FIRST_S, MIN_STEP_S, OVERLAP_S, Cursor, publications, state_path
from heeler.slurm.backfill import MAX_TROUBLE, Backfill, chunks, merged, missing
from heeler.slurm.clients import Clients
from heeler.slurm.errors import CommandFailedError, CommandTimeoutError
from heeler.slurm.sacct import NS, Window
from heeler.slurm.sacct_text import Records

HOUR = 3600
AWAY = CommandFailedError(("sacct",), 1, "sacct: error: Problem talking to the database: Connection refused")
SLOW = CommandTimeoutError(("sacct",), "no answer in 1 s")
SPANS = st.lists(st.tuples(st.integers(-50, 150), st.integers(1, 60)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


def run(end_s: int, job: str = "1", **changes: Any) -> dict[str, Any]:
    return {"v": 1, "job_id": job, "run": str(end_s - 10), "state": "COMPLETED", "end_ts": end_s * NS, **changes}


class Asked:
    """Accounting with a run each 100 s, that fails where it is told to."""

    def __init__(self, fails: Callable[[Window], Exception | None] = lambda _: None) -> None:
        self.windows: list[Window] = []
        self.published: list[int] = []
        self.fails = fails

    async def ask(self, window: Window) -> Records:
        self.windows.append(window)
        if (error := self.fails(window)) is not None:
            raise error
        return Records(tuple(run(at, str(at)) for at in range(window.start_s, window.end_s) if at % 100 == 0))

    async def publish(self, records: Records) -> None:
        self.published += [record["end_ts"] // NS for record in records.records]

    def backfill(self, whole: Window, step_s: int = HOUR, state: Path | None = None) -> Backfill:
        return Backfill(self.ask, self.publish, whole, step_s, state, pause_s=0.0, max_wait_s=0.0)


@given(SPANS, st.integers(1, 40))
def test_chunks_take_in_each_missing_second_once(done: list[tuple[int, int]], step: int) -> None:
    whole = Window(0, 100)
    asked = [second for chunk in chunks(whole, done, step) for second in range(chunk.start_s, chunk.end_s)]
    covered = {second for start, end in done for second in range(start, end)}
    assert asked == [second for second in range(100) if second not in covered]
    assert all(0 < chunk.end_s - chunk.start_s <= step for chunk in chunks(whole, done, step))
    assert missing(whole, [*done, (0, 100)]) == []
    assert merged(merged(done)) == merged(done)


async def test_a_window_is_published_whole_and_each_run_once(tmp_path: Path) -> None:
    asked = Asked()
    summary = await asked.backfill(Window(0, 3 * HOUR + 50), state=tmp_path / "s").run()
    assert asked.published == list(range(0, 3 * HOUR + 50, 100))
    assert (summary.complete, summary.chunks, summary.records) == (True, 4, 109)


async def test_what_is_done_is_not_asked_for_again(tmp_path: Path) -> None:
    whole, state = Window(0, 4 * HOUR), tmp_path / "state"
    first = Asked(lambda window: AWAY if window.start_s == HOUR else None)
    summary = await first.backfill(whole, state=state).run()
    assert not summary.complete
    assert [chunk for chunk, _ in summary.failed] == [Window(HOUR, 2 * HOUR)]
    second = Asked()
    summary = await second.backfill(whole, state=state).run()
    assert second.windows == [Window(HOUR, 2 * HOUR)]
    assert (summary.complete, summary.skipped_s) == (True, 3 * HOUR)
    assert sorted(first.published + second.published) == list(range(0, 4 * HOUR, 100))


@pytest.mark.parametrize("at", range(1, 9))
async def test_an_end_at_any_point_loses_no_run(tmp_path: Path, at: int) -> None:
    whole, state = Window(0, 4 * HOUR), tmp_path / "state"
    first, calls = Asked(), 0

    def dying(done: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def step(what: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise asyncio.CancelledError
            return await done(what)

        return step

    work = first.backfill(whole, state=state)
    work.ask, work.publish = dying(work.ask), dying(work.publish)
    with pytest.raises(asyncio.CancelledError):
        await work.run()
    second = Asked()
    assert (await second.backfill(whole, state=state).run()).complete
    assert sorted({*first.published, *second.published}) == list(range(0, 4 * HOUR, 100))


async def test_what_is_too_much_is_asked_for_in_halves() -> None:
    asked = Asked(lambda window: SLOW if window.end_s - window.start_s > 1000 else None)
    summary = await asked.backfill(Window(0, 2 * HOUR)).run()
    assert summary.complete
    assert asked.published == list(range(0, 2 * HOUR, 100))


async def test_accounting_that_is_always_too_slow_ends_in_named_failures() -> None:
    asked = Asked(lambda _: SLOW)
    summary = await asyncio.wait_for(asked.backfill(Window(0, 600), 600).run(), 60)
    assert not summary.complete
    assert summary.failed
    assert len(summary.failed) <= MAX_TROUBLE


async def test_a_broken_state_file_means_from_the_beginning(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text('{"done": [[0, ')
    asked = Asked()
    assert (await asked.backfill(Window(0, HOUR), state=state).run()).skipped_s == 0


def test_a_state_is_whole_or_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "deep/state"
    progress.save(path, {"done": 1})
    with pytest.raises(TypeError):
        progress.save(path, {"done": object()})
    assert progress.load(path) == {"done": 1}
    assert [found.name for found in path.parent.iterdir()] == ["state"]


def test_a_cursor_goes_on_with_an_overlap_and_repeats_nothing(tmp_path: Path) -> None:
    path, now = tmp_path / "cursor", 1_800_000_000
    cursor = Cursor.load(path, now)
    window = cursor.window(now)
    assert window.start_s == now - FIRST_S - OVERLAP_S
    while cursor.done_s < now:
        window = cursor.window(now)
        cursor.stored(window, [run(now - 5)] if window.end_s == now else [])
    again = cursor.window(now + 60)
    assert again == Window(now - OVERLAP_S, now + 60)
    late, changed = run(now - 20, "2"), run(now - 5, comment="set later")
    assert cursor.new([run(now - 5), late]) == [late]
    assert cursor.new([changed]) == [changed]
    assert Cursor.load(path, now + 60).done_s == now


def test_nothing_moves_until_the_stream_has_it() -> None:
    cursor = Cursor(1_800_000_000)
    first = cursor.window(1_800_000_600)
    cursor.new([run(1_800_000_100)])
    assert cursor.window(1_800_000_600) == first


def test_after_an_outage_the_whole_time_is_asked_for() -> None:
    cursor, now = Cursor(1_800_000_000), 1_800_000_000 + 30 * HOUR
    windows = []
    while cursor.done_s < now:
        windows.append(cursor.window(now))
        cursor.stored(windows[-1], [])
    assert merged([(w.start_s, w.end_s) for w in windows]) == [(1_800_000_000 - OVERLAP_S, now)]


def test_a_slow_accounting_is_asked_for_less_and_never_for_nothing() -> None:
    cursor = Cursor(1_800_000_000)
    for _ in range(20):
        cursor.shrink()
    assert cursor.window(1_900_000_000).end_s == 1_800_000_000 + MIN_STEP_S


def test_a_cursor_of_the_future_or_of_rubbish_is_not_believed(tmp_path: Path) -> None:
    for value in ({"done_s": 2_000_000_000}, {"done_s": "x"}, [1], None):
        progress.save(tmp_path / "c", value)
        assert Cursor.load(tmp_path / "c", 1_800_000_000).done_s == 1_800_000_000 - FIRST_S


def test_a_run_has_one_subject_and_its_content_one_id() -> None:
    records = Records((run(100), run(100), run(100, state="FAILED")), source="sacct")
    one, same, other = (*publications("c", records, 5),)
    later = publications("c", Records((run(100),), source="json"), 9)[0]
    assert one.subject == other.subject == later.subject
    assert one.id == same.id == later.id
    assert one.id != other.id


def test_the_state_lies_where_systemd_says() -> None:
    assert state_path(Clients(), {}) is None
    assert state_path(Clients(), {"STATE_DIRECTORY": "/var/lib/heeler"}) == Path(
        "/var/lib/heeler/accounting-slurm.json"
    )
