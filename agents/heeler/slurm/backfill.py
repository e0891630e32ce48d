"""Backfill: accounting of any window, in chunks, one after the other; to be killed and started again at any point.

A file says which parts of the window are on the bus. What was published twice is one message on the stream: the
subject is the job's run, the id is of the content.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heeler.slurm import progress
from heeler.slurm.errors import CommandTimeoutError, OutputTooLargeError, SlurmError
from heeler.slurm.sacct import Window
from heeler.slurm.sacct_text import Records

MIN_CHUNK_S = 60
MAX_TROUBLE = 5  # outages one after the other: then slurmdbd is away, and the rest is left for the next run

Spans = list[tuple[int, int]]


def merged(spans: Spans) -> Spans:
    """Return spans in order, those that touch as one."""
    out: Spans = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        elif start < end:
            out.append((start, end))
    return out


def missing(whole: Window, done: Spans) -> Spans:
    """Return the parts of a window that are not done."""
    out: Spans = []
    at = whole.start_s
    for start, end in merged(done):
        if start > at:
            out.append((at, min(start, whole.end_s)))
        at = max(at, end)
    if at < whole.end_s:
        out.append((at, whole.end_s))
    return [(start, end) for start, end in out if start < end]


def chunks(whole: Window, done: Spans, step_s: int) -> Iterator[Window]:
    """Yield what is left of a window, in pieces of at most a step that begin at whole steps of the window."""
    for start, end in missing(whole, done):
        at = start
        while at < end:
            border = whole.start_s + ((at - whole.start_s) // step_s + 1) * step_s
            yield Window(at, min(border, end))
            at = min(border, end)


@dataclass(slots=True)
class Summary:
    """What a run of the backfill did."""

    records: int = 0
    chunks: int = 0
    unreadable: list[str] = field(default_factory=list)
    failed: list[tuple[Window, str]] = field(default_factory=list)
    skipped_s: int = 0  # seconds of the window that an earlier run had done
    given_up: bool = False

    @property
    def complete(self) -> bool:
        """Whether the whole window is on the bus."""
        return not self.failed and not self.given_up


@dataclass(slots=True)
class Backfill:
    """Asks chunk by chunk; `publish` returns once the stream has all of it."""

    ask: Callable[[Window], Awaitable[Records]]
    publish: Callable[[Records], Awaitable[None]]
    whole: Window
    step_s: int
    state: Path | None = None
    pause_s: float = 0.5
    max_rate: float | None = None  # records a second
    max_wait_s: float = 10.0  # after a failed chunk
    tell: Callable[[str], None] = lambda _: None
    done: Spans = field(default_factory=list)

    async def run(self) -> Summary:
        """Do what is left of the window."""
        self._load()
        left = sum(end - start for start, end in missing(self.whole, self.done))
        summary = Summary(skipped_s=self.whole.end_s - self.whole.start_s - left)
        todo = list(chunks(self.whole, self.done, self.step_s))[::-1]
        trouble = 0
        while todo:
            chunk = todo.pop()
            try:
                await self._one(chunk, summary)
                trouble = 0
            except (CommandTimeoutError, OutputTooLargeError) as err:
                if chunk.end_s - chunk.start_s >= 2 * MIN_CHUNK_S:
                    middle = (chunk.start_s + chunk.end_s) // 2
                    todo += [Window(middle, chunk.end_s), Window(chunk.start_s, middle)]
                    self.tell(f"{chunk}: {err}; asking for halves")
                    continue
                trouble = self._failed(summary, chunk, str(err), trouble)
            except SlurmError as err:
                trouble = self._failed(summary, chunk, str(err), trouble)
            if trouble >= MAX_TROUBLE:
                summary.given_up = bool(todo)
                break
            if todo:
                await asyncio.sleep(max(self.pause_s, min(2.0**trouble, self.max_wait_s) if trouble else 0.0))
        return summary

    def _failed(self, summary: Summary, chunk: Window, why: str, trouble: int) -> int:
        summary.failed.append((chunk, why))
        self.tell(f"{chunk}: failed: {why}")
        return trouble + 1

    async def _one(self, chunk: Window, summary: Summary) -> None:
        started = time.monotonic()
        records = await self.ask(chunk)
        await self.publish(records)
        self.done = merged([*self.done, (chunk.start_s, chunk.end_s)])
        if self.state is not None:
            progress.save(self.state, {"done": self.done})
        summary.records += len(records.records)
        summary.chunks += 1
        summary.unreadable += [f"{row.name or '?'}: {row.why}" for row in records.unreadable]
        self.tell(f"{chunk}: {len(records.records)} records")
        if self.max_rate:
            await asyncio.sleep(max(len(records.records) / self.max_rate - (time.monotonic() - started), 0.0))

    def _load(self) -> None:
        value: Any = None if self.state is None else progress.load(self.state)
        spans = value.get("done") if isinstance(value, dict) else None
        if isinstance(spans, list):
            pairs = [span for span in spans if isinstance(span, list) and len(span) == 2]
            self.done = merged([(int(start), int(end)) for start, end in pairs])
