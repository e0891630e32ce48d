"""What health checks and accounting say, in plain sentences: pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heeler.console.facts import Facts, Message
from heeler.console.reasons import origin
from heeler.console.words import ago, number, span

_SHOWN_RUNS = 3
_SHOWN_CHECKS = 8
_SHOWN_EVIDENCE = 3
_SHOWN_RECORDS = 3
_CHECKS = re.compile(r"heeler:(prolog|epilog|task_prolog|periodic|request):([A-Za-z0-9_.-]+)(?::|\Z)")
_DRAINER = re.compile(r"heeler:([A-Za-z0-9_.-]+):([A-Za-z0-9_.-]+)(?: |\Z)")
_SLURM = re.compile(r"(prolog|epilog) (error|failed)", re.IGNORECASE)
_TAKES_NONE = frozenset(("DRAIN", "FAIL", "NOT_RESPONDING"))
_AWAY = frozenset(("down", "error"))
_RANK = {"bad": 0, "unknown": 1, "warn": 2}


def drained_by(facts: Facts, state: Message) -> Iterator[str]:
    """Say whose a node's reason is, as far as the reason itself and the runs of checks tell."""
    reason = state.get("reason") or ""
    if found := _CHECKS.match(reason):
        phase, check = found.groups()
        yield f"    the {phase}'s check {check} failed{_run_of(facts, reason)}"
    elif found := _DRAINER.match(reason):
        kind, finding = found.groups()
        yield f"    by Heeler's drainer, for finding {finding} ({kind})"
    elif found := _SLURM.match(reason):
        phase = found[1].lower()
        failed = [run for run in facts.health_runs if run["phase"] == phase and run["verdict"] == "fail"]
        told = f"; its checks failed {_when(facts, failed[0])}: {failed[0]['why']}" if failed else ""
        none = "" if failed else "; no run of Heeler's checks failed here in the last 24 h"
        yield f"    Slurm's own words for a failed {phase}{told}{none}"
    elif reason and _TAKES_NONE & frozenset(state["flags"]) | _AWAY & {state["state"]}:
        whose = origin(reason, state.get("reason_user"))
        yield f"    by {whose.by}: {whose.means}; look at: {whose.look}"
    elif _TAKES_NONE & frozenset(state["flags"]):
        yield "    Slurm tells no reason"


def _run_of(facts: Facts, reason: str) -> str:
    mine = [run for run in facts.health_runs if run.get("reason") == reason]
    return f" {_when(facts, mine[0])}{_for(mine[0])}" if mine else ", in a run that the bus no longer has"


def node(facts: Facts) -> Iterator[str]:
    """Say what the last runs came to, and which checks are not well."""
    if not facts.health_runs and not facts.health_results:
        yield "  health: no check has run here in the last 24 h"
        return
    yield from _runs(facts, named=False)
    yield from checks(facts)


def job(facts: Facts) -> Iterator[str]:
    """Say what the checks around a job came to, where, and what accounting has of it."""
    if facts.health_runs:
        yield from _runs(facts, named=True)
        yield from checks(facts)
    elif facts.jobs and not facts.unseen_nodes:
        yield "  health: no check ran around this job in the last 24 h"
    if facts.unseen_nodes:
        yield f"  health: {facts.unseen_nodes} of its nodes were not looked at; ask for one: heeler why node NODE"
    for record in facts.records[:_SHOWN_RECORDS]:
        yield f"  accounting: {_record(facts, record)}"
    if len(facts.records) > _SHOWN_RECORDS:
        yield f"  accounting: {len(facts.records) - _SHOWN_RECORDS} earlier runs of this job"


def _runs(facts: Facts, *, named: bool) -> Iterator[str]:
    """Tell the newest run, and the newest of those that did not pass."""
    newest = facts.health_runs[:1]
    bad = [run for run in facts.health_runs if run["verdict"] != "pass"]
    told = [*newest, *(run for run in bad if run not in newest)][: _SHOWN_RUNS + 1]
    for run in told:
        where = f"{run['node']}: " if named else ""
        yield f"  health: {where}{run['phase']} {_when(facts, run)}{_for(run)} {_verdict(run)}"
    if (more := len([run for run in bad if run not in told])) > 0:
        yield f"  health: {more} more runs did not pass in the last 24 h"


def _verdict(run: Message) -> str:
    why, reason = run["why"], run.get("reason")
    match run["verdict"]:
        case "pass":
            counts = ", ".join(f"{count} {outcome}" for outcome, count in run.get("counts", {}).items() if count)
            return f"passed: {counts}" if counts else "passed"
        case "fail":
            return f"failed: {why}" + (f'; the node was drained with "{reason}"' if reason else "")
        case "would_fail":
            off = run.get("enforcement", "unknown").replace("_", " ")
            return f"would have failed (enforcement: {off}): {why}"
        case "refused":
            return f"was not run: {why}"
    return f"came to {run['verdict']}: {why}"


def checks(facts: Facts) -> Iterator[str]:
    """Tell the checks whose last word is not that all is well, the worst first."""
    last: dict[tuple[str, str, str], Message] = {}
    for result in facts.health_results:  # the newest first
        last.setdefault((result["node"], result["check"], result["phase"]), result)
    wrong = sorted(
        (one for one in last.values() if one["outcome"] in _RANK), key=lambda one: (_RANK[one["outcome"]], -one["ts"])
    )
    for result in wrong[:_SHOWN_CHECKS]:
        since = _since(facts, result, list(last.values()))
        phase = result["phase"]
        yield f"  check {result['check']} {result['outcome']} {_when(facts, result)} ({phase}): {result['why']}{since}"
        for item in result.get("evidence", [])[:_SHOWN_EVIDENCE]:
            yield f"    evidence: {seen(item)}"
    if len(wrong) > _SHOWN_CHECKS:
        yield f"  {len(wrong) - _SHOWN_CHECKS} more checks are not well"


def _since(facts: Facts, result: Message, last: Sequence[Message]) -> str:
    """Say that the same check was well later, in another phase: it may have looked at other GPUs."""
    later = [
        one
        for one in last
        if one["outcome"] == "ok"
        and one["ts"] > result["ts"]
        and (one["node"], one["check"]) == (result["node"], result["check"])
    ]
    if not later:
        return ""
    newest = max(later, key=lambda one: int(one["ts"]))
    return f"; since then ok ({newest['phase']}, {_when(facts, newest)})"


def seen(item: Mapping[str, Any]) -> str:
    """Return one piece of evidence as words."""
    unit = f" {item['unit']}" if item.get("unit") and item["unit"] != "1" else ""
    words = str(item["what"])
    if "value" in item:
        words += f" {number(item['value'])}{unit}"
    if item.get("limit") is not None:
        words += f", limit {number(item['limit'])}{unit}"
    place = [
        f"GPU {item['gpu_index']}" if "gpu_index" in item else "",
        str(item.get("gpu_uuid") or ""),
        str(item.get("pci") or ""),
        str(item.get("device") or ""),
    ]
    where = " ".join(filter(None, place))
    if where:
        words += f" ({where})"
    return f"{words}: {item['text'][:160]}" if item.get("text") else words


def _record(facts: Facts, record: Message) -> str:
    state = record["state"]
    by = f" by {record['cancelled_by']}" if record.get("cancelled_by") else ""
    ran = f", ran {span(record['elapsed_s'])}" if "elapsed_s" in record else ""
    nodes = f" on {record['nodes']}" if record.get("nodes") else ""
    ended = f", ended {ago(facts.now_ns - record['end_ts'])} ago" if "end_ts" in record else ""
    code = f", exit status {record['exit_code']}" if "exit_code" in record else ""
    signal = f", signal {record['signal']}" if record.get("signal") else ""
    return f"{state}{by}{ran}{nodes}{ended}{code}{signal}"


def _when(facts: Facts, message: Message) -> str:
    return f"{ago(facts.now_ns - message['ts'])} ago"


def _for(run: Message) -> str:
    return f" for job {run['job_id']}" if run.get("job_id") else ""
