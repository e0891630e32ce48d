"""The screen of `heeler top`: pure, from an overview and a size to lines of text.

Columns have fixed widths and are left out from the least needed on where the terminal is narrow, so that nothing
wraps and nothing jumps. What is not known is `?`. What others wrote is made safe before it is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import set_cell_size
from rich.text import Text

from heeler.cli.common import safe
from heeler.console.fold import folded
from heeler.console.overview import SORTS, Row
from heeler.console.words import short

VIEWS = ("all", "findings", "jobs", "nodes")
STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
SLURM_STYLES = {"down": "bold red", "drained": "yellow", "draining": "yellow"}
KEYS = "h help  q quit  Tab or 1-4 view  arrows move  s sort  r reverse  f unfold  p pause"
HELP = (
    ("q, Ctrl-C", "quit"),
    ("Tab, 1 2 3 4", "next view; all, findings, jobs, nodes"),
    ("Up, Down, k, j", "one line; PgUp, PgDn, b, Space: a page; Home, End, g, G: first, last"),
    ("s, S", "sort by the next column, or the one before"),
    ("r", "reverse the order"),
    ("f", "show or hide the findings that belong to an incident"),
    ("p", "pause: the screen stands still, its ages do not"),
    ("h, ?", "this help"),
    ("", ""),
    ("?", "not known: not read, or too old to be true"),
    ("bad", "GPUs that are lost or hung"),
    ("age", "since the newest reading of a row reached the bus"),
    ("", "further: heeler why node|job|gpu NAME, heeler events --follow"),
)


@dataclass(slots=True)
class Look:
    """What the person has chosen."""

    view: str = "all"
    sort: dict[str, int] = field(default_factory=dict)
    reverse: bool = False
    top: int = 0
    paused: bool = False
    help: bool = False
    unfold: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """How the road from the bus is."""

    servers: str
    away_s: float | None = None  # since when the bus is away
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `need` says which ones go first where there is no room: the highest.

    A `width` of 0 takes what is left, and goes without `least` cells.
    """

    head: str
    width: int
    need: int
    cell: Callable[[Row], str]
    right: bool = False
    style: Callable[[Row], str] = lambda _: ""
    least: int = 12

    @property
    def room(self) -> int:
        """What it needs at least."""
        return self.width or self.least


def _text(key: str) -> Callable[[Row], str]:
    return lambda row: "?" if row[key] is None else str(row[key])


def _figure(key: str, form: str = "{:.0f}", scale: float = 1.0) -> Callable[[Row], str]:
    return lambda row: "?" if row[key] is None else form.format(row[key] * scale)


def _span(key: str) -> Callable[[Row], str]:
    return lambda row: "?" if row[key] is None else short(row[key])


def _severity(row: Row) -> str:
    return STYLES.get(row["severity"], "")


def _slurm_style(row: Row) -> str:
    return SLURM_STYLES.get(row["slurm"] or "", "")


def _bad(row: Row) -> str:
    return "bold red" if row["gpus_bad"] else "yellow" if row["gpus_unknown"] else ""


def _what(row: Row) -> str:
    if row["members"]:
        return f"[{row['members']} findings] {row['summary']}"
    return f"└ {row['summary']}" if row["inside"] else str(row["summary"])


def _gpus(row: Row) -> str:
    parts = [f"{row['gpus_bad']} bad"] if row["gpus_bad"] else []
    parts += [f"{row['gpus_unknown']} ?"] if row["gpus_unknown"] else []
    return f"{row['gpus'] or '?'}" + (f" ({', '.join(parts)})" if parts else "")


READINGS = (
    Column("util", 5, 1, _figure("util", "{:.0f}%", 100), right=True),
    Column("SM", 5, 5, _figure("active", "{:.0f}%", 100), right=True),
    Column("kW", 6, 4, _figure("power_w", "{:.2f}", 1e-3), right=True),
    Column("°C", 4, 4, _figure("temp_max_c"), right=True),
    Column("MHz", 5, 6, _figure("clock_mhz"), right=True),
)
COLUMNS: Mapping[str, Sequence[Column]] = {
    "findings": (
        Column("severity", 8, 0, _text("severity"), style=_severity),
        Column("open", 5, 1, _span("age_s"), right=True),
        Column("node", 12, 2, _text("node")),
        Column("job", 9, 3, _text("job")),
        Column("kind", 14, 5, _text("kind")),
        Column("advice", 16, 6, lambda row: str(row["advice"]).replace("_", " ")),
        Column("what", 0, 0, _what, style=_severity, least=36),
    ),
    "jobs": (
        Column("job", 10, 0, _text("job"), style=_severity),
        Column("user", 10, 2, _text("user")),
        Column("partition", 10, 7, _text("partition")),
        Column("state", 11, 6, _text("state")),
        Column("time", 6, 3, _span("running_s"), right=True),
        Column("nodes", 6, 3, _text("nodes"), right=True),
        Column("GPUs", 14, 0, _gpus, right=True, style=_bad),
        *READINGS,
        Column("finding", 8, 2, _text("severity"), style=_severity),
        Column("age", 5, 3, _span("age_s"), right=True),
        Column("name", 0, 8, _text("name")),
    ),
    "nodes": (
        Column("node", 14, 0, _text("node"), style=_severity),
        Column("Slurm", 9, 1, _text("slurm"), style=_slurm_style),
        Column("GPUs", 14, 0, _gpus, right=True, style=_bad),
        *READINGS,
        Column("finding", 8, 2, _text("severity"), style=_severity),
        Column("age", 5, 1, _span("age_s"), right=True),
        Column("job", 12, 3, lambda row: ",".join(row["jobs"]) or "-"),
        Column("reason", 0, 8, lambda row: str(row["reason"] or "")),
    ),
}
EMPTY = {"findings": "no open finding", "jobs": "no job is known", "nodes": "no node is known"}


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return a text of exactly so many cells; what is cut off is marked."""
    text = safe(text)
    whole = Text(text).cell_len
    if whole > width:
        return set_cell_size(text, max(0, width - 1)) + "…" if width else ""
    return " " * (width - whole) + text if right else text + " " * (width - whole)


def chosen(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """Return the columns that have room, each with its width; the last one takes the rest."""
    left = list(columns)
    while len(left) > 1 and sum(one.room + 1 for one in left) - 1 > width:
        left.remove(max(left, key=lambda one: one.need))
    used = sum(one.room + 1 for one in left) - 1
    spare = max(0, width - used)
    return [(one, one.width or one.room + spare) for one in left]


def table(name: str, rows: Sequence[Row], width: int, height: int, top: int = 0) -> list[Text]:
    """Return a table of at most so many lines, its head among them."""
    if height < 2:
        return []
    if not rows:
        return [Text(fit(EMPTY[name], width), style="dim")]
    columns = chosen(COLUMNS[name], width)
    head = " ".join(fit(one.head, wide, right=one.right) for one, wide in columns)
    lines = [Text(fit(head, width), style="bold reverse")]
    for row in rows[top : top + height - 1]:
        line = Text(no_wrap=True)
        for at, (one, wide) in enumerate(columns):
            line.append((" " if at else "") + fit(one.cell(row), wide, right=one.right), style=one.style(row))
        lines.append(line)
    return lines


def ordered(name: str, rows: Sequence[Row], look: Look) -> list[Row]:
    """Return rows in the order that was chosen."""
    found = sorted(rows, key=SORTS[name][look.sort.get(name, 0)][1])
    found = found[::-1] if look.reverse else found
    return list(folded(found, unfold=look.unfold)) if name == "findings" else found


def header(seen: Mapping[str, Any], status: Status, width: int) -> list[Text]:
    """Return the lines above the tables: the sums, and how old everything is."""
    gpus, nodes = seen["gpus"], seen["nodes"]
    power = "?" if seen["power_w"] is None else f"{seen['power_w'] / 1e3:,.1f}"
    bad = gpus["lost"] + gpus["hung"]
    dark = gpus["unknown"] + gpus["stale"]
    of_nodes = ", ".join(f"{count} {name}" for name, count in nodes.items() if name != "all" and count)
    findings = ", ".join(f"{seen['findings'][name]} {name}" for name in STYLES if seen["findings"].get(name))
    lines = [
        Text(
            fit(
                f"GPUs {gpus['all']}: {gpus['in_job']} in jobs, {gpus['free']} free, {bad} bad, {dark} ?; {power} kW",
                width,
            )
        ),
        Text(fit(f"nodes {nodes['all']}: {of_nodes or '?'}", width)),
        Text(fit(f"jobs {seen['jobs_running']}; open findings: {findings or 'none'}", width)),
    ]
    ages = ", ".join(f"{name} {'?' if age is None else short(age)}" for name, age in seen["age_s"].items())
    feeds = ", ".join(f"Slurm {one['controller']}, said {short(one['age_s'] or 0)} ago" for one in seen["slurm"])
    more = f"; {seen['beyond']} beyond bounds" if seen["beyond"] else ""
    more += f"; {status.unreadable} unreadable" if status.unreadable else ""
    lines.append(Text(fit(f"newest: {ages}; {feeds or 'Slurm ?'}{more}", width), style="dim"))
    if status.away_s is not None:
        words = f" THE BUS IS AWAY for {short(status.away_s)} ({status.servers}): what is shown is old "
        lines.insert(0, Text(fit(words, width), style="bold white on red"))
    return lines


def screen(seen: Mapping[str, Any], status: Status, look: Look, width: int, height: int) -> list[Text]:
    """Return all lines of the screen."""
    width = max(20, width)
    lines = header(seen, status, width)
    room = height - len(lines) - 1
    foot = KEYS
    if look.help:
        lines += [Text(fit(f"  {key:16} {about}", width)) for key, about in HELP][: max(0, room)]
    elif look.view == "all":
        lines += _all(seen, width, room)
    else:
        rows = ordered(look.view, seen[f"{look.view[:-1]}_rows"], look)
        look.top = max(0, min(look.top, len(rows) - max(1, room - 1)))
        lines += table(look.view, rows, width, room, look.top)
        foot = f"{_place(look, len(rows))}  {KEYS}"
    lines = lines[: height - 1]
    lines += [Text("")] * (height - 1 - len(lines))
    return [*lines, Text(fit(("PAUSED  " if look.paused else "") + foot, width), style="reverse")]


def _place(look: Look, rows: int) -> str:
    """Return where in a view the person is."""
    order = SORTS[look.view][look.sort.get(look.view, 0)][0] + (" reversed" if look.reverse else "")
    return f"{look.view} {min(look.top + 1, rows)} of {rows} by {order}"


def _all(seen: Mapping[str, Any], width: int, room: int) -> list[Text]:
    """Return the three tables one below the other, each as large as it needs to be and the room allows."""
    rows = {name: ordered(name, seen[f"{name[:-1]}_rows"], Look()) for name in COLUMNS}
    wanted = {name: 1 + max(1, len(found)) for name, found in rows.items()}
    shares = _shares(wanted, room - 2)
    lines: list[Text] = []
    for name, found in rows.items():
        part = table(name, found, width, shares[name])
        hidden = len(found) - max(0, len(part) - 1)
        if part and found and hidden > 0:
            part[-1] = Text(fit(f"  and {hidden + 1} more: key {VIEWS.index(name) + 1}", width), style="dim")
        lines += ([Text("")] if lines and part else []) + part
    return lines


def _shares(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """Return how many lines each gets: what it wants, or an equal share of what the others leave."""
    left = dict(wanted)
    shares: dict[str, int] = {}
    while left:
        share = max(0, room) // len(left)
        small = [name for name, lines in left.items() if lines <= share] or None
        if small is None:
            return shares | dict.fromkeys(left, share)
        for name in small:
            shares[name] = left.pop(name)
            room -= shares[name]
    return shares
