"""The schedulers' own counters: from ``sdiag``, one row. They count since `since_ts`, when they last were reset."""

import re
from collections.abc import Mapping
from typing import Any

from heeler.slurm import jsonfix
from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.fields import NOT_TOLD
from heeler.slurm.jsonnumbers import epoch_ns, integer
from heeler.slurm.rows import version_of

NAME = "sched"
US = 1000  # nanoseconds in Slurm's unit

TOP, MAIN, MAIN_EXIT, BACKFILL, BACKFILL_EXIT = (
    "",
    "Main schedule statistics",
    "Main scheduler exit",
    "Backfilling stats",
    "Backfill exit",
)
# Column, key in JSON (a dot: in a map), section and label in text, what a whole number is multiplied by; 0 is a time.
COUNTERS: tuple[tuple[str, str, str, str, int], ...] = (
    ("since_ts", "req_time_start", TOP, "Data since", 0),
    ("server_threads", "server_thread_count", TOP, "Server thread count", 1),
    ("agents", "agent_count", TOP, "Agent count", 1),
    ("agent_threads", "agent_thread_count", TOP, "Agent thread count", 1),
    ("agent_queue", "agent_queue_size", TOP, "Agent queue size", 1),
    ("dbd_agent_queue", "dbd_agent_queue_size", TOP, "DBD Agent queue size", 1),
    ("jobs_submitted", "jobs_submitted", TOP, "Jobs submitted", 1),
    ("jobs_started", "jobs_started", TOP, "Jobs started", 1),
    ("jobs_completed", "jobs_completed", TOP, "Jobs completed", 1),
    ("jobs_canceled", "jobs_canceled", TOP, "Jobs canceled", 1),
    ("jobs_failed", "jobs_failed", TOP, "Jobs failed", 1),
    ("jobs_counted_ts", "job_states_ts", TOP, "Job states ts", 0),
    ("jobs_pending", "jobs_pending", TOP, "Jobs pending", 1),
    ("jobs_running", "jobs_running", TOP, "Jobs running", 1),
    ("main_cycle_last_ns", "schedule_cycle_last", MAIN, "Last cycle", US),
    ("main_cycle_max_ns", "schedule_cycle_max", MAIN, "Max cycle", US),
    ("main_cycle_mean_ns", "schedule_cycle_mean", MAIN, "Mean cycle", US),
    ("main_cycle_sum_ns", "schedule_cycle_sum", MAIN, "", US),
    ("main_cycles", "schedule_cycle_total", MAIN, "Total cycles", 1),
    ("main_cycles_per_minute", "schedule_cycle_per_minute", MAIN, "Cycles per minute", 1),
    ("main_depth_mean", "schedule_cycle_mean_depth", MAIN, "Mean depth cycle", 1),
    ("main_depth_sum", "schedule_cycle_depth", MAIN, "", 1),
    ("main_queue", "schedule_queue_length", MAIN, "Last queue length", 1),
    ("main_exit_end_of_queue", "schedule_exit.end_job_queue", MAIN_EXIT, "End of job queue", 1),
    ("main_exit_queue_depth", "schedule_exit.default_queue_depth", MAIN_EXIT, "Hit default_queue_depth", 1),
    ("main_exit_max_job_start", "schedule_exit.max_job_start", MAIN_EXIT, "Hit sched_max_job_start", 1),
    ("main_exit_licenses", "schedule_exit.licenses", MAIN_EXIT, "Blocked on licenses", 1),
    ("main_exit_max_rpcs", "schedule_exit.max_rpc_cnt", MAIN_EXIT, "Hit max_rpc_cnt", 1),
    ("main_exit_max_time", "schedule_exit.max_sched_time", MAIN_EXIT, "Timeout (max_sched_time)", 1),
    (
        "backfilled_jobs_since_start",
        "bf_backfilled_jobs",
        BACKFILL,
        "Total backfilled jobs (since last slurm start)",
        1,
    ),
    ("backfilled_jobs", "bf_last_backfilled_jobs", BACKFILL, "Total backfilled jobs (since last stats cycle start)", 1),
    (
        "backfilled_het_components",
        "bf_backfilled_het_jobs",
        BACKFILL,
        "Total backfilled heterogeneous job components",
        1,
    ),
    ("backfill_cycles", "bf_cycle_counter", BACKFILL, "Total cycles", 1),
    ("backfill_last_ts", "bf_when_last_cycle", BACKFILL, "Last cycle when", 0),
    ("backfill_cycle_last_ns", "bf_cycle_last", BACKFILL, "Last cycle", US),
    ("backfill_cycle_max_ns", "bf_cycle_max", BACKFILL, "Max cycle", US),
    ("backfill_cycle_mean_ns", "bf_cycle_mean", BACKFILL, "Mean cycle", US),
    ("backfill_cycle_sum_ns", "bf_cycle_sum", BACKFILL, "", US),
    ("backfill_depth_last", "bf_last_depth", BACKFILL, "Last depth cycle", 1),
    ("backfill_depth_try_last", "bf_last_depth_try", BACKFILL, "Last depth cycle (try sched)", 1),
    ("backfill_depth_mean", "bf_depth_mean", BACKFILL, "Depth Mean", 1),
    ("backfill_depth_try_mean", "bf_depth_mean_try", BACKFILL, "Depth Mean (try depth)", 1),
    ("backfill_depth_sum", "bf_depth_sum", BACKFILL, "", 1),
    ("backfill_depth_try_sum", "bf_depth_try_sum", BACKFILL, "", 1),
    ("backfill_queue_last", "bf_queue_len", BACKFILL, "Last queue length", 1),
    ("backfill_queue_mean", "bf_queue_len_mean", BACKFILL, "Queue length mean", 1),
    ("backfill_queue_sum", "bf_queue_len_sum", BACKFILL, "", 1),
    ("backfill_table_last", "bf_table_size", BACKFILL, "Last table size", 1),
    ("backfill_table_mean", "bf_table_size_mean", BACKFILL, "Mean table size", 1),
    ("backfill_table_sum", "bf_table_size_sum", BACKFILL, "", 1),
    ("backfill_exit_end_of_queue", "bf_exit.end_job_queue", BACKFILL_EXIT, "End of job queue", 1),
    ("backfill_exit_max_job_start", "bf_exit.bf_max_job_start", BACKFILL_EXIT, "Hit bf_max_job_start", 1),
    ("backfill_exit_max_job_test", "bf_exit.bf_max_job_test", BACKFILL_EXIT, "Hit bf_max_job_test", 1),
    ("backfill_exit_state_changed", "bf_exit.state_changed", BACKFILL_EXIT, "System state changed", 1),
    (
        "backfill_exit_table_size",
        "bf_exit.bf_node_space_size",
        BACKFILL_EXIT,
        "Hit table size limit (bf_node_space_size)",
        1,
    ),
    ("backfill_exit_max_time", "bf_exit.bf_max_time", BACKFILL_EXIT, "Timeout (bf_max_time)", 1),
    # 1000 calls of it.
    ("gettimeofday_1000_ns", "gettimeofday_latency", TOP, "Latency for 1000 calls to gettimeofday()", US),
)
_RPC = re.compile(r"\s+(?P<name>\S.*?)\s*\(\s*(?P<id>\d+)\)\s+count:(?P<count>\d+)")
_TIME = re.compile(r"total_time:(\d+)")
_EPOCH = re.compile(r"\((\d{6,11})\)\s*$")
_BY_TYPE = "Remote Procedure Call statistics by message type"
_BY_USER = "Remote Procedure Call statistics by user"
_PENDING = "Pending RPC statistics"
_RPC_COLUMNS = ("rpcs_by_type", "rpc_time_ns_by_type", "rpcs_by_user", "rpc_time_ns_by_user", "rpcs_pending_by_type")


async def collect(clients: Clients) -> Table:
    """Ask for the counters."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurm", "diag"), parse_json),
            Way("json", ("sdiag", "--all"), parse_json),
            Way("text", ("sdiag", "--all"), parse_text),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    value = jsonfix.loads(data).value
    if value.get("errors"):
        raise ParseError("Slurm reports errors", value["errors"])
    found = value.get("statistics")
    if not isinstance(found, dict) or "server_thread_count" not in found:
        raise ParseError("no list of statistics in the answer", sorted(map(str, value))[:20])
    row: dict[str, Any] = {}
    for column, key, _, _, factor in COUNTERS:
        outer, _, inner = key.partition(".")
        told = found.get(outer)
        if inner:
            told = told.get(inner) if isinstance(told, dict) else None
        row[column] = _count(told, factor)
    row |= _json_rpcs(found, "type") | _json_rpcs(found, "user")
    pending = found.get("pending_rpcs")
    if isinstance(pending, list):
        row["rpcs_pending_by_type"] = {
            _rpc_name(entry, "message_type"): integer(entry.get("count")) or 0 for entry in pending
        }
    return _table(row, version_of(value))


def _json_rpcs(found: Mapping[str, Any], by: str) -> dict[str, Any]:
    entries = found.get("rpcs_by_message_type" if by == "type" else "rpcs_by_user")
    if not isinstance(entries, list):
        return {}
    counts: dict[str, int] = {}
    times: dict[str, int] = {}
    for entry in entries:
        name = _rpc_name(entry, "message_type" if by == "type" else "user")
        counts[name] = integer(entry.get("count")) or 0
        times[name] = (integer(entry.get("total_time")) or 0) * US
    row: dict[str, Any] = {f"rpcs_by_{by}": counts, f"rpc_time_ns_by_{by}": times}
    if by == "type":
        for kind in ("queued", "dropped"):
            if any(kind in entry for entry in entries):
                told = {_rpc_name(entry, "message_type"): integer(entry.get(kind)) or 0 for entry in entries}
                row[f"rpcs_{kind}_by_type"] = {name: count for name, count in told.items() if count}
    return row


def _rpc_name(entry: Any, key: str) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get(key), str) or not entry[key]:
        raise ParseError("not an RPC's statistics", entry)
    name: str = entry[key]
    return name


def parse_text(data: bytes) -> Table:
    """Return the table of ``sdiag --all``. Raises ParseError."""
    told, rpcs = _read_text(data.decode(errors="replace"))
    if (TOP, "Server thread count") not in told:
        raise ParseError("not what sdiag says", data.decode(errors="replace").strip() or "")
    row: dict[str, Any] = {
        column: _text_count(told.get((section, label)), factor) for column, _, section, label, factor in COUNTERS
    }
    for section, by in ((_BY_TYPE, "type"), (_BY_USER, "user")):
        if section in rpcs:
            row[f"rpcs_by_{by}"] = {name: count for name, (count, _) in rpcs[section].items()}
            row[f"rpc_time_ns_by_{by}"] = {name: us * US for name, (_, us) in rpcs[section].items()}
    if _PENDING in rpcs:
        row["rpcs_pending_by_type"] = {name: count for name, (count, _) in rpcs[_PENDING].items()}
    return _table(row, None)


def _read_text(text: str) -> tuple[dict[tuple[str, str], str], dict[str, dict[str, tuple[int, int]]]]:
    """Return the labels' texts by section, and count and microseconds of RPCs by section."""
    told: dict[tuple[str, str], str] = {}
    rpcs: dict[str, dict[str, tuple[int, int]]] = {}
    section = TOP
    for line in filter(str.strip, text.splitlines()):
        section = _section(line, section)
        if section in (_BY_TYPE, _BY_USER, _PENDING):
            into = rpcs.setdefault(section, {})
            if line[0].isspace():
                _text_rpc(line, into)
            continue
        label, _, value = line.strip().partition(":")
        if line.startswith("Data since"):
            label, value = "Data since", line
        told[section, label.strip()] = value.strip()
    return told, rpcs


def _section(line: str, now: str) -> str:
    """Return the section that a line begins, or the present one."""
    if line[0].isspace():
        return now
    for name in (MAIN_EXIT, MAIN, BACKFILL_EXIT, BACKFILL, _BY_TYPE, _BY_USER, _PENDING):
        if line.startswith(name):
            return name
    return TOP


def _text_rpc(line: str, into: dict[str, tuple[int, int]]) -> None:
    found = _RPC.match(line)
    if found:
        took = _TIME.search(line)
        into[found["name"]] = int(found["count"]), int(took[1]) if took else 0
    elif "count:" in line:
        raise ParseError("not an RPC's statistics", line)


def _text_count(text: str | None, factor: int) -> int | None:
    if text is None:
        return None
    if factor == 0:
        found = _EPOCH.search(text)  # the words before it are in the controller's zone
        return epoch_ns(found[1]) if found else None
    return _count(text.removesuffix("microseconds").strip(), factor)


def _count(value: Any, factor: int) -> int | None:
    if factor == 0:
        return epoch_ns(value)
    found = integer(value)
    return None if found is None else found * factor


def _table(row: dict[str, Any], version: str | None) -> Table:
    """Return the one row; what it lacks is absent, but for times that have not come yet."""
    columns = [*(name for name, *_ in COUNTERS), *_RPC_COLUMNS, "rpcs_queued_by_type", "rpcs_dropped_by_type"]
    absent = {name: NOT_TOLD for name in columns if row.get(name) is None and not name.endswith("_ts")}
    return table_of(NAME, [row], absent=absent, version=version)


COLLECTOR = Collector(NAME, 60.0, collect)
