"""The step of summary: samples with jobs and what Slurm says of jobs in, a JobSummary of each run out."""

from collections.abc import Iterable, Mapping

from heeler.bus import Choice, escape, subjects
from heeler.engine import NOTHING, Event, Inbound, Input, Result
from heeler.summary.run import SETTLE_NS, SLICE_NS, Run, S
from heeler.summary.tally import MEANS, TOPS

FORGET_NS = 900 * S  # a run so long after its end: until then a late twin must find it closed
NAMELESS_NS = 3600 * S  # samples of a job that Slurm's feed does not name
ENDLESS_NS = 35 * 86400 * S


class SummaryStep:
    """Counts GPU seconds by job. The state of a key is a `Run`."""

    name = "summary"
    inputs = (Input("JobSample"), Input("JobEvent", "last"), Input("JobSummary", "last"))
    tick_s: float | None = 10.0
    # A slice is published at the latest so long after its begin, and begins anew from there.
    memory_s = (SLICE_NS + SETTLE_NS) / S + 600.0
    choices: Mapping[str, Choice] = {
        "JobSample": Choice(
            frozenset(("state", "job")),
            {"mean": frozenset((*MEANS, *TOPS)), "gpu": frozenset(("parent",))},
        )
    }

    def keys(self, message: Inbound) -> Iterable[str]:
        """Return the jobs that a message concerns; two clusters on one bus may use the same ids."""
        family = f"job {escape(message.data['cluster'])}"
        if message.kind == "JobSample":
            return [f"{family}:{job}" for job in dict.fromkeys(message.data["job"]) if job is not None]
        return (f"{family}:{message.data['job_id']}",)

    def on(self, key: str, state: Run | None, message: Inbound, now_ns: int) -> Result:
        """Count a window, or learn of a run."""
        data = message.data
        if message.kind == "JobSample":
            run = state or Run(data["cluster"], key.partition(":")[2])
            run.heard_ns = now_ns
            if not run.final:
                run.sample(data)
            return run, NOTHING
        if message.kind == "JobSummary":
            return _on_summary(state, data), NOTHING
        return _on_event(state, data, now_ns)

    def tick(self, key: str, state: Run, now_ns: int) -> Result:  # noqa: ARG002
        """Close what is ripe and publish it; forget what is over."""
        if _is_over(state, now_ns):
            return None, NOTHING
        border = state.border(now_ns)
        if border is None:
            return state, NOTHING
        return state, _closed(state, border, now_ns)


def _on_summary(state: Run | None, data: Mapping[str, object]) -> Run | None:
    """Take over what was published of the same run, unless more is known here."""
    start, until = data.get("start_ts"), data["until_ts"]
    if not isinstance(start, int) or not isinstance(until, int):
        return state
    run = state or Run(str(data["cluster"]), str(data["job_id"]))
    if run.start_ns is None or (run.start_ns // S == start // S and until >= run.until_ns):
        run.adopt(data)
    return run


def _on_event(state: Run | None, data: Mapping[str, object], now_ns: int) -> Result:
    start, ended = data.get("start_ts"), data["event"] == "ended"
    if not isinstance(start, int):  # it waits, or waits again
        return state, NOTHING
    end = data.get("end_ts") or data["ts"]
    assert isinstance(end, int)
    if state is None and ended and end < now_ns - FORGET_NS:
        return None, NOTHING  # history that the streams keep
    events: tuple[Event, ...] = ()
    if state is not None and state.start_ns is not None and state.start_ns // S != start // S:
        if start < state.start_ns:
            return state, NOTHING
        if not state.final:  # started anew, and nobody has told the end of the run before
            state.end_ns = state.end_ns or start
            events = _closed(state, state.end_ns, now_ns)
        state = None
    run = state or Run(str(data["cluster"]), str(data["job_id"]))
    run.heard_ns = now_ns
    if not run.final:
        run.learn(data)
    return run, events


def _closed(run: Run, border: int, now_ns: int) -> tuple[Event, ...]:
    run.close(border)
    if run.without_gpus():
        return ()
    subject = subjects.job_summary(run.cluster, run.job, run.name)
    event_id = f"JobSummary.{run.cluster}.{run.job}.{run.name}.{border // S}.{int(run.final)}"
    return (Event("JobSummary", subject, run.message(now_ns), event_id),)


def _is_over(run: Run, now_ns: int) -> bool:
    if run.start_ns is None:
        return now_ns - run.heard_ns > NAMELESS_NS
    if run.final:
        return now_ns - (run.end_ns or run.until_ns) > FORGET_NS
    return now_ns - max(run.heard_ns, run.until_ns) > ENDLESS_NS
