"""Job ids: ``123``, ``123_4``, ``123_[1-10%2]``, ``123+1``, ``123_4.batch`` and scontrol's three fields."""

import re
from dataclasses import dataclass

from heeler.slurm.errors import ParseError

MAX_ID = (1 << 32) - 1
NO_TASK = 0xFFFFFFFE
# Slurm's own numbers of steps, of 20.11 and later and of before.
STEPS = {"4294967290": "interactive", "4294967291": "batch", "4294967292": "extern", "4294967293": "pending"}
STEPS |= {"4294967294": "batch", "4294967295": "extern"}
MAX_TASKS = 4_000_001  # Slurm's own largest MaxArraySize

_ID = re.compile(
    r"(?P<job>\d{1,10})(?:_(?:(?P<task>\d{1,10})|\[(?P<tasks>[^\]]*)(?P<closed>\])?))?(?:\+(?P<het>\d{1,6}))?"
    r"(?:\.(?P<step>[\w+\-]+))?",
    re.ASCII,
)
_SPAN = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_FIELD = re.compile(r"\b(JobId|ArrayJobId|ArrayTaskId|HetJobId|HetJobOffset)=(\S+)")


@dataclass(frozen=True, slots=True)
class JobId:
    """A job, one task of an array, tasks still waiting, or a step.

    ``job`` is the id as written; an array's task has ``raw`` as well where Slurm's own number of it is known.
    ``tasks``: the ranges (first, last, step) of waiting tasks. ``truncated``: Slurm cut the text.
    """

    job: int
    task: int | None = None
    tasks: tuple[tuple[int, int, int], ...] = ()
    throttle: int | None = None
    step: str | None = None
    het_offset: int | None = None
    raw: int | None = None
    truncated: bool = False

    @property
    def task_count(self) -> int:
        """How many waiting tasks."""
        return sum((last - first) // step + 1 for first, last, step in self.tasks)

    def task_ids(self) -> list[int]:
        """Return the waiting tasks' numbers."""
        return [task for first, last, step in self.tasks for task in range(first, last + 1, step)]


def parse_job_id(text: str) -> JobId:
    """Return what an id names. Raises ParseError; there is no job 0."""
    text = text.strip()
    if "=" in text:
        return _parse_fields(text)
    found = _ID.fullmatch(text)
    if not found:
        raise ParseError("not a job id", text)
    tasks, throttle, truncated = _parse_tasks(found["tasks"], text) if found["tasks"] is not None else ((), None, False)
    step = found["step"]
    cut = step is not None and step.endswith("+")
    return JobId(
        job=_job_number(found["job"], text),
        task=int(found["task"]) if found["task"] and int(found["task"]) != NO_TASK else None,
        tasks=tasks,
        throttle=throttle,
        step=step[:-1] if step is not None and cut else STEPS.get(step or "", step),
        het_offset=int(found["het"]) if found["het"] else None,
        truncated=truncated or cut or (found["tasks"] is not None and not found["closed"]),
    )


def _parse_fields(text: str) -> JobId:
    """Read ``JobId=126 ArrayJobId=123 ArrayTaskId=1``: one job under both names."""
    fields = dict(_FIELD.findall(text))
    if "JobId" not in fields:
        raise ParseError("not a job id", text)
    raw = _job_number(fields["JobId"], text)
    array = fields.get("ArrayJobId")
    if array is None:
        offset = fields.get("HetJobOffset")
        leader = fields.get("HetJobId")
        if leader is None:
            return JobId(raw, raw=raw)
        return JobId(_job_number(leader, text), het_offset=_number(offset or "0", text), raw=raw)
    task = fields.get("ArrayTaskId", "")
    if task.isdecimal():
        return JobId(_job_number(array, text), task=_number(task, text), raw=raw)
    tasks, throttle, truncated = _parse_tasks(task, text)
    return JobId(_job_number(array, text), tasks=tasks, throttle=throttle, raw=raw, truncated=truncated)


def _parse_tasks(expression: str, text: str) -> tuple[tuple[tuple[int, int, int], ...], int | None, bool]:
    ranges, percent, limit = expression.partition("%")
    truncated = False
    spans: list[tuple[int, int, int]] = []
    for part in ranges.split(","):
        if part == "...":
            truncated = True
            continue
        found = _SPAN.fullmatch(part.strip())
        if not found:
            raise ParseError(f"not a list of tasks ({part[:40]!r})", text)
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first or step < 1 or last >= MAX_TASKS:
            raise ParseError(f"not a list of tasks ({part!r})", text)
        spans.append((first, last, step))
    if not spans:
        raise ParseError("not a list of tasks", text)
    return tuple(spans), (_number(limit, text) if percent else None), truncated


def _job_number(digits: str, text: str) -> int:
    value = _number(digits, text)
    if not 0 < value <= MAX_ID:
        raise ParseError("not a job id", text)
    return value


def _number(digits: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", digits, re.ASCII):
        raise ParseError("not a number in a job id", text)
    return int(digits)
