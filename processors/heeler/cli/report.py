"""heeler report: what a team's GPUs did, for its budget."""

import csv
import json
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from heeler.bus import Bus
from heeler.cli.common import answered, bus_options, cluster_option, connected, plain, run, safe, say
from heeler.cli.since import Since
from heeler.console.accounts import KINDS, Report, Run, Sums, report
from heeler.console.accounts_read import Books, books

NOT_KNOWN = 3
HEAD = ("runs", "allocated", "active", "idle", "unknown", "lost", "kWh", "findings")
WIDTHS = (6, 11, 11, 10, 10, 9, 10, 8)
NARROW = (5, 9, 9, 8, 8, 7, 8)  # without the findings, for terminals of 80 columns
WIDE = 110


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for."""

    kind: str
    name: str | None
    since_ns: int
    until_ns: int
    cluster: str | None = None


@click.command(name="report")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", required=False, metavar="[ID]")
@bus_options
@click.option("--since", type=Since(), help="From when on: 7d, 12h, or a time.  [default: 7d; of one job: all of it]")
@click.option("--until", type=Since(), help="Up to when.  [default: now]")
@cluster_option
@click.option("--top", "most", type=click.IntRange(min=0), default=20, show_default=True, help="Rows; 0: all.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with all rows.")
@click.option("--csv", "as_csv", is_flag=True, help="All rows as CSV with a header.")
def command(
    kind: str,
    name: str | None,
    url: str | None,
    config_path: str | None,
    since: int | None,
    until: int | None,
    cluster: str | None,
    most: int,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Report GPU-hours of jobs, users, accounts or partitions, or of one of them.

    Allocated is active, idle and unknown together. Unknown: nobody observed the GPUs; it is never counted as idle.
    Lost: what faults took of it, at least. A run counts with the part of it that lies in the window. Times are UTC.
    Exit status: 0 reported, 1 no bus, 2 wrong options, 3 nothing is known of that ID.
    """
    if as_json and as_csv:
        raise click.UsageError("--json or --csv, not both")
    now_ns = time.time_ns()
    default = 0 if kind == "job" and name else now_ns - 7 * 86400 * 10**9
    asked = Asked(kind, name, default if since is None else since, now_ns if until is None else until, cluster)
    if asked.since_ns >= asked.until_ns:
        raise click.UsageError("--since is not before --until")

    async def main() -> Books:
        async with connected(url, config_path, "report") as bus:
            with answered():
                return await read(bus, asked)

    found = run(main())
    told = report(kind, chosen(found, asked), found.findings, asked.since_ns, asked.until_ns, now_ns)
    if as_json:
        click.echo(json.dumps(plain(as_object(told, asked)), ensure_ascii=False))
    elif as_csv:
        write_csv(told, asked)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
        for line in lines(told, asked, most, narrow=width < WIDE):
            say(line)
    if found.unreadable:
        say(f"({found.unreadable} messages could not be read)", err=True)
    sys.exit(NOT_KNOWN if name and not told.total.runs else 0)


async def read(bus: Bus, asked: Asked) -> Books:
    """Read what the answer needs: of a job first what is its own; under an array's id, what Slurm calls so."""
    if asked.kind == "job" and asked.name:
        found = await books(bus, max(1, asked.since_ns), asked.name)
        if found.records or found.summaries:
            return found
    return await books(bus, max(1, asked.since_ns))


def chosen(found: Books, asked: Asked) -> Iterable[Run]:
    """Return the runs that are asked for."""
    runs = [one for one in found.runs() if asked.cluster in (None, one.cluster)]
    if asked.name is None:
        return runs
    if asked.kind == "job":
        wanted = found.named(asked.name)
        return [one for one in runs if one.job in wanted]
    return [one for one in runs if (getattr(one, asked.kind) or "?") == asked.name]


def as_object(told: Report, asked: Asked) -> dict[str, Any]:
    """Return the report as one object."""
    window = {"kind": asked.kind, "id": asked.name, "since_ts": asked.since_ns, "until_ts": asked.until_ns}
    if asked.name is None:
        rows = [{asked.kind: name, **sums.as_json()} for name, sums in told.groups.items()]
    else:
        rows = [{**about(one), **sums.as_json()} for one, sums in told.runs]
    return {**window, "total": told.total.as_json(), "rows": rows}


def about(one: Run) -> dict[str, Any]:
    """Return who and when of a run."""
    return {
        "cluster": one.cluster, "job": one.job, "run": one.name, "user": one.user, "account": one.account,
        "partition": one.partition, "name": one.title, "state": one.state, "start_ts": one.start_ns,
        "end_ts": one.end_ns, "gpus": one.gpus,
    }  # fmt: skip


def write_csv(told: Report, asked: Asked) -> None:
    """Write the rows; findings by severity have columns of their own."""
    rows = as_object(told, asked)["rows"]
    for row in rows:
        findings = row.pop("findings")
        row |= {f"findings_{severity}": findings.get(severity, 0) for severity in ("critical", "warning", "info")}
    names = list(rows[0]) if rows else [asked.kind, *Sums().as_json()]
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    """Return a value for a spreadsheet, which must not take a name for a formula."""
    if isinstance(value, str):
        text = safe(value)
        return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return f"{value:.3f}" if isinstance(value, float) else value


def lines(told: Report, asked: Asked, most: int, *, narrow: bool = False) -> Iterable[str]:
    """Yield the report for people."""
    title = f"{asked.kind} {asked.name}" if asked.name else f"all {asked.kind}s"
    since = f"since {day(asked.since_ns)}" if asked.since_ns else "all that is kept"
    yield f"GPU-hours of {title}, {since}, until {day(asked.until_ns)} UTC"
    if not told.total.runs:
        yield "no run is known"
        return
    first = asked.kind if asked.name is None else "job"
    yield _row(first, HEAD, narrow=narrow)
    rows: Sequence[tuple[str, Sums]] = list(told.groups.items())
    if asked.name is not None:
        rows = [(f"{one.job} {one.title or ''}".rstrip(), sums) for one, sums in told.runs]
    shown = rows[:most] if most else rows
    for name, sums in shown:
        yield _row(name, cells(sums), narrow=narrow)
    if len(rows) > len(shown):
        yield f"... and {len(rows) - len(shown)} more"
    yield _row("total", cells(told.total), narrow=narrow)
    yield from notes(told.total)


def cells(sums: Sums) -> list[str]:
    """Return the figures of a row."""
    hours = (sums.allocated_s, sums.active_s, sums.idle_s, sums.unknown_s, sums.lost_s)
    known = sums.runs > sums.runs_unknown
    kwh = f"{sums.energy_j / 3.6e6:,.1f}" if sums.energy_s else "?"
    found = ", ".join(f"{count} {severity}" for severity, count in sums.findings.items())
    return [f"{sums.runs:,}", *(f"{value / 3600:,.1f}" if known else "?" for value in hours), kwh, found or "-"]


def notes(total: Sums) -> Iterable[str]:
    """Yield what the figures do not say by themselves."""
    if total.allocated_s:
        parts = {"active": total.active_s, "busy": total.busy_s, "idle": total.idle_s, "unknown": total.unknown_s}
        shares = ", ".join(f"{name} {value / total.allocated_s:.0%}" for name, value in parts.items())
        yield f"of what was allocated: {shares} (busy is a part of active: windows with half of the time in kernels)"
    if total.energy_s:
        seen = total.energy_s / total.allocated_s if total.allocated_s else 0.0
        yield f"energy is that of GPUs alone, and of {min(1.0, seen):.0%} of the time: the rest was not read"
    if total.node_fail_runs:
        failed = f"{total.node_fail_runs} runs of {total.node_fail_s / 3600:,.1f} GPU-hours"
        yield f"{failed} ended with a node's failure: what they had not saved is lost too"
    if total.runs_unknown:
        yield f"{total.runs_unknown} runs are in no sum: their number of GPUs is not known"


def _row(name: str, figures: Sequence[str], *, narrow: bool) -> str:
    text, size = safe(name), 18 if narrow else 24
    text = text if len(text) <= size else f"{text[: size - 1]}…"
    widths = NARROW if narrow else WIDTHS
    return f"{text:{size}} " + " ".join(f"{figure:>{width}}" for figure, width in zip(figures, widths, strict=False))


def day(ts_ns: int) -> str:
    """Return a time to the minute."""
    return datetime.fromtimestamp(ts_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M")
