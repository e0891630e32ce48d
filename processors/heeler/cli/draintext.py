"""What `heeler drain` says to people. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from heeler.detect.findings import duration
from heeler.drain.ask import Left

FRESH_NS = 900 * 1_000_000_000  # a node that has heard nothing newer of its breaker enforces nothing
SHOWN = 20
Facts = Mapping[str, Any]
WORDS = {
    "proposed": "would be drained, were this no dry run",
    "approved": "is drained now",
    "refused": "is not drained",
    "hold": "nothing is done now",
}
MARKS = {True: "yes", False: "NO", None: "?"}


def stopped(standing: Facts) -> bool:
    """Say whether something stops the drainer, or enforcement on nodes."""
    return bool(standing["pause"] or standing["breaker"]["state"] == "open" or standing["prologs"]["state"] == "open")


def status(standing: Facts) -> list[str]:
    """Return how things stand."""
    return [
        *_who(standing),
        *_breakers(standing),
        *_approvals(standing),
        *_cases(standing),
        *_drains(standing),
        *_budgets(standing),
    ]


def _who(found: Facts) -> Iterator[str]:
    now = found["now_ns"]
    armed = "dry run: it drains nothing" if found["dry_run"] else "armed: it drains"
    since = f", active for {duration(now - found['active_ns'])}" if found["active_ns"] is not None else ""
    yield f"drainer: {found['instance']}{since}, lease for {found['lease_s']:g} s more; {armed}"
    pause = found["pause"]
    if pause is None:
        yield "paused: no"
    else:
        until = f"for {duration(pause['until_ns'] - now)} more" if pause["until_ns"] is not None else "until resumed"
        yield f"paused: by {pause['actor']} {duration(now - pause['since_ns'])} ago, {until}: {pause['why']}"
    if found["slurm"] is not None:
        yield f"Slurm: its state is not known, so nothing is done: {found['slurm']}"


def _breakers(found: Facts) -> Iterator[str]:
    for title, one in (("drainer", found["breaker"]), ("prologs", found["prologs"])):
        since, actor = one.get("since_ns"), one.get("actor")
        when = f" for {duration(found['now_ns'] - since)}" if since else ""
        by = f" by {actor}" if actor else ""
        yield f"breaker of the {title}: {one['state']}{when}{by}: {one['why']}".replace("the prologs", "prologs")
    held = found["prologs"]
    for what in ("failed", "drained"):
        if held.get(what, {}).get("used"):
            one = held[what]
            yield f"  {what} prologs, nodes that count: {one['used']} of {one['limit']}: {', '.join(one['nodes'])}"


def _approvals(found: Facts) -> Iterator[str]:
    approvals, now = found.get("approvals"), found["now_ns"]
    if approvals is None:  # an older drainer
        return
    yield f"waits for a person's yes: {len(approvals['waiting']) or 'none'}"
    for one in approvals["waiting"][:SHOWN]:
        left = f"can be given for {duration(one['until_ns'] - now)} more, and longer if detect confirms it again"
        yield f"  {one['node']} {one['finding_id']}, for {duration(now - one['since_ns'])}: {one['summary']}"
        yield f"    heeler drain approve {one['finding_id']}   ({left})"
    for one in approvals["given"][:SHOWN]:
        good = f"good for {duration(one['until_ns'] - now)} more"
        ago = duration(now - one["at_ns"])
        yield f"  {one['node']} {one['finding_id']}: approved by {one['actor']} {ago} ago, {good}, not drained yet"


def _cases(found: Facts) -> Iterator[str]:
    yield f"open findings that ask for a drain: {found['cases_total'] or 'none'}"
    for case in found["cases"][:SHOWN]:
        yield f"  {case['node']} {case['finding_id']}: {case['summary']}"
        yield f"    {case['verdict']} ({case['rule']}): {case['why']}"
    yield from _more(found["cases_total"])


def _drains(found: Facts) -> Iterator[str]:
    yield f"drains that stand: {found['drains_total'] or 'none'}"
    for one in found["drains"][:SHOWN]:
        if one["dry_run"]:
            how = "proposed only"
        elif one["ours"] is None:
            how = "not seen in Slurm's states yet"
        else:
            how = "ours" if one["ours"] else "not ours any more: reason, author or time is another"
        ago = duration(found["now_ns"] - one["since_ns"])
        yield f"  {one['node']} {ago} ago for {one['finding_id']} ({one['evidence']} evidence): {how}"
    yield from _more(found["drains_total"])


def _more(total: int) -> Iterator[str]:
    if total > SHOWN:
        yield f"  and {total - SHOWN} more: --json has up to 200"


def _budgets(found: Facts) -> Iterator[str]:
    nodes = found["nodes"]
    yield f"budgets, with {nodes['size']} nodes that count:"
    for one in found["budgets"]:
        yield f"  {one['about']}: {one['used']} of {one['limit']:g}, {one['left']} left"


def explained(answer: Facts) -> list[str]:
    """Return what would happen, and why."""
    return list(_explained(answer))


def _explained(answer: Facts) -> Iterator[str]:
    node = answer.get("node")
    if node is not None:
        yield f"{node['name']}: {node['slurm']}, heard {node['seen_s']:.0f} s ago{_reason(node)}"
        if node["left_alone"] is not None:
            yield f"  left alone: {node['left_alone']}"
        for one in node["drains"]:
            dry = " (dry run)" if one["dry_run"] else ""
            yield f"  our drain for {one['finding_id']}{dry}: {one['state']}"
        yield from _stay(node["stay"])
    if not answer["cases"]:
        yield answer["why"]
    for case in answer["cases"]:
        yield f"{case['finding_id']} on {case['node'] or 'no node'}: {case['summary']}"
        yield f"  {WORDS[case['verdict']]} ({case['rule']}): {case['why']}"
        for check in case["checks"]:
            yield f"    {MARKS[check['ok']]:3} {check['check']}: {check['why']}"


def _stay(stay: Facts | None) -> Iterator[str]:
    if stay is None:
        return
    after = stay["next"]
    yield f"  out of service by us for {stay['finding_id']}, {stay['checks_passed']} checks passed in a row"
    yield "  next: " + (f"{after['step']} {after['verdict']}: {after['why']}" if after else "nothing to say or do now")
    if stay["stays"] is not None:
        yield f"  not given back ({stay['stays']['rule']}): {stay['stays']['why']}"


def _reason(node: Facts) -> str:
    return f", reason {node['reason']!r} by {node['reason_user'] or 'nobody known'}" if node["reason"] else ""


def left(found: Left) -> list[str]:
    """Return what stands on the bus where no drainer answers."""
    return list(_left(found))


def _left(found: Left) -> Iterator[str]:
    yield "drainer: none answers; " + (
        f"the lease is held by {found.holder}" if found.holder else "none holds the lease"
    )
    yield from found.faults
    if found.hand is not None:
        pause, own = found.hand.paused(found.now_ns), found.hand.breakers.get("drain")
        if pause is not None:
            yield f"paused: by {pause.actor} {duration(found.now_ns - pause.at_ns)} ago: {pause.why}"
        if own is not None:
            state = "open" if own.on else "closed"
            yield f"breaker of the drainer: {state} for {duration(found.now_ns - own.at_ns)} by {own.actor}: {own.why}"
    if found.prologs is None:
        yield "breaker of prologs: none stands, so nodes enforce nothing"
        return
    breaker, age_ns = found.prologs.breaker, found.now_ns - found.prologs.ts_ns
    yield f"breaker of prologs: {breaker.state} for {duration(found.now_ns - breaker.since_ns)}: {breaker.why}"
    stale = ": too old, so nodes enforce nothing" if age_ns > FRESH_NS else ""
    yield f"  kept by {found.prologs.keeper or 'nobody known'}, {duration(age_ns)} ago{stale}"
