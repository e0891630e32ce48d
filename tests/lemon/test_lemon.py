"""Nodes that are in trouble again and again, and those that only look so."""

from collections.abc import Sequence
from typing import Any

import pytest
from samples import (
    CLUSTER,
    T0,
    Inbound,
    Job,
    Played,
    Player,
    S,
    inbound,
    job_event,
    kernel_event,
    merged,
    node_state,
    play,
)

from heeler.bus import ConfigError
from heeler.lemon import LemonStep
from heeler.lemon.excluded import excluded_nodes
from heeler.lemon.program import make_step
from heeler.lemon.settings import LemonSettings
from heeler.lemon.step import NodeKey

DAY = 86_400 * S
HOUR = 3600 * S
NODE = "n0000"


def at(day: float) -> int:
    return T0 + int(day * DAY)


def outage(day: float, *, node: str = NODE, reason: str = "", hours: float = 2.0, **more: Any) -> list[Inbound]:
    """A node that is drained and comes back."""
    told: dict[str, Any] = {"flags": ["DRAIN"], "reason": reason or "gpu trouble", **more}
    return [
        node_state(node, ts_ns=at(day) - HOUR, state="idle"),
        node_state(node, ts_ns=at(day), **told),
        node_state(node, ts_ns=at(day) + int(hours * HOUR), state="idle"),
    ]


def xid(code: int, day: float, *, node: str = NODE, **more: Any) -> Inbound:
    return kernel_event(node, code, ts_ns=at(day), seq=int(day * 1000), uuid="GPU-1", **more)


def lost(job: str, day: float, *, nodes: int = 1, state: str = "NODE_FAIL", first: int = 0) -> Inbound:
    shape = Job(id=job, nodes=nodes, first_node=first, start_ns=at(day) - HOUR)
    return job_event(shape, "ended", ts_ns=at(day), state=state)


def record(job: str, day: float, line: str) -> Inbound:
    data = {
        "v": 1, "cluster": CLUSTER, "ts": at(day), "job_id": job, "run": str(at(day) // S), "state": "COMPLETED",
        "submit_line": line, "submit_ts": at(day),
    }  # fmt: skip
    return inbound("JobRecord", f"heeler.v1.{CLUSTER}.slurm.record.{job}.{data['run']}", data, at(day))


def run(*streams: Sequence[Inbound], until: float = 0.0, settings: LemonSettings | None = None) -> Played:
    return play(LemonStep(settings), merged(*streams), until_ns=at(until) if until else None)


DRAINS = [m for day in (1, 4, 9, 15) for m in outage(day)]
XIDS = [xid(code, day) for code, day in ((48, 1.0), (79, 4.0), (119, 9.0))]
LOST = [lost(str(at_), day) for at_, day in ((1, 1.001), (2, 4.001), (3, 9.001))]


def test_a_node_with_drains_xids_and_lost_jobs_is_a_lemon_for_a_person() -> None:
    played = run(DRAINS, XIDS, LOST, until=16)
    (opened,) = played.opened()
    assert (opened["kind"], opened["node"], opened["advice"]) == ("lemon", NODE, "person")
    assert opened["summary"] == (
        "n0000 is in trouble again and again: "
        "3 kinds of XID, 4 times out of service, 3 jobs of its own lost in 28 days."
    )
    values = {e["metric"]: e["value"] for e in opened["evidence"]}
    assert (values["xid_kinds"], values["out_of_service"], values["single_node_failures"]) == (3, 4, 3)
    assert opened["evidence"][0]["text"] == "xid119, xid48, xid79"
    assert 900 <= (opened["ts"] - at(15)) / S <= 960


@pytest.mark.parametrize("parts", [(DRAINS,), (DRAINS, XIDS), (XIDS, LOST), (DRAINS, LOST)])
def test_two_kinds_of_trouble_are_bad_luck(parts: tuple[list[Inbound], ...]) -> None:
    assert not run(*parts, until=16).findings


def test_what_is_four_weeks_old_counts_no_more() -> None:
    slow = [m for day in (1, 11, 21, 31) for m in outage(day)]
    assert not run(slow, XIDS, LOST, until=32).findings


def test_it_is_over_when_enough_of_it_is_four_weeks_old() -> None:
    healthy = [node_state(NODE, ts_ns=at(16) + day * DAY, state="idle", load=float(day)) for day in range(16)]
    played = run(DRAINS, XIDS, LOST, healthy, until=32)
    assert [f["close_reason"] for f in played.of(state="closed")] == ["no more than others any more"]
    assert 28.9 <= (played.of(state="closed")[0]["ts"] - T0) / DAY <= 29.2


def test_one_xid_that_comes_ten_times_is_one_kind() -> None:
    assert not run(DRAINS, [xid(48, 1 + day) for day in range(10)], LOST, until=16).findings


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68])
def test_errors_of_programs_are_no_trouble_of_the_node(code: int) -> None:
    soft = [xid(code, day) for day in (1.0, 4.0, 9.0)] + [xid(8, 2.0), xid(69, 3.0)]
    assert not run(DRAINS, soft, LOST, until=16).findings


def test_lines_that_are_tests_or_forged_do_not_count() -> None:
    forged = [xid(code, day, trusted=False) for code, day in ((48, 1.0), (79, 4.0), (119, 9.0))]
    assert not run(DRAINS, forged, LOST, until=16).findings


@pytest.mark.parametrize("flag", ["MAINTENANCE", "POWERED_DOWN", "REBOOT_REQUESTED"])
def test_planned_absence_is_no_trouble(flag: str) -> None:
    planned = [m for day in (1, 4, 9, 15) for m in outage(day, flags=["DRAIN", flag])]
    assert not run(planned, XIDS, LOST, until=16).findings


def test_a_drain_that_becomes_down_and_drain_again_is_once() -> None:
    long = [
        node_state(NODE, ts_ns=at(1) - HOUR, state="idle"),
        *(
            node_state(NODE, ts_ns=at(1) + hour * HOUR, state="down" if hour % 2 else "idle", flags=["DRAIN"])
            for hour in range(12)
        ),
    ]
    assert not run(long, XIDS, LOST, until=2).findings


def test_an_outage_of_many_nodes_at_once_is_not_the_nodes() -> None:
    mass = [
        m
        for day in (1, 4, 9, 15)
        for node in range(10)
        for m in outage(day + node / 86_400 * 20, node=f"n{node:04d}", state="down", flags=["NOT_RESPONDING"])
    ]
    assert not run(mass, XIDS, LOST, until=16).findings


def test_a_slurm_outage_says_nothing_of_nodes() -> None:
    unknown = [node_state(NODE, ts_ns=at(day), state="unknown") for day in (1, 4, 9, 15)]
    assert not run(unknown, XIDS, LOST, until=16).findings


def test_jobs_that_fail_by_themselves_are_their_users() -> None:
    failed = [lost(str(n), 1 + n / 10, state="FAILED") for n in range(30)]
    assert not run(DRAINS, XIDS, failed, until=16).findings


def test_a_job_that_failed_while_the_node_was_in_trouble_was_lost_by_it_whatever_came_first() -> None:
    failed = [lost(str(n), day + (0.001 if n % 2 else -0.001), state="FAILED") for n, day in enumerate((1, 4, 9))]
    assert run(DRAINS, XIDS, failed, until=16).opened()


def test_a_large_job_blames_the_node_that_was_in_trouble_and_no_other() -> None:
    jobs = [lost(f"big{n}", day, nodes=64) for n, day in enumerate((1.001, 4.001, 9.001))]
    lines = [*XIDS, *[xid(code, day, node="n0005") for code, day in ((48, 20.0), (79, 21.0), (119, 22.0))]]
    others = [m for day in (2, 6, 12, 18) for m in outage(day, node="n0005")]
    played = run(DRAINS, lines, jobs, others, until=23)
    assert {f["node"] for f in played.of()} == {NODE}
    assert "3 jobs of several nodes lost" in played.of()[-1]["summary"]


def test_a_few_lost_jobs_among_hundreds_that_end_well_are_few() -> None:
    well = [lost(f"ok{n}", 1 + n / 100, state="COMPLETED") for n in range(300)]
    assert not run(DRAINS, XIDS, LOST, well, until=16).findings


def test_different_tickets_count_and_the_same_one_does_not() -> None:
    two = [m for day, ticket in ((1, "OPS-1"), (4, "INC00042")) for m in outage(day, reason=f"see {ticket}")]
    assert run(two, XIDS, LOST, until=16).opened()
    same = [m for day in (1, 4) for m in outage(day, reason="see OPS-1")]
    assert not run(same, XIDS, LOST, until=16).findings


def test_being_excluded_counts_beside_two_others_and_not_for_two() -> None:
    wary = [record(str(n), 2 + n / 10, f"sbatch --exclude=n[0000-0001] -N 4 run{n}.sh") for n in range(12)]
    assert run(DRAINS, XIDS, wary, until=16).opened()
    assert not run(DRAINS, wary, until=16).findings
    again = [record("7", 2 + n / 10, "sbatch -x n0000 run.sh") for n in range(12)]
    assert not run(DRAINS, XIDS, again, until=16).findings


def test_names_that_people_exclude_and_that_are_no_nodes_leave_nothing_behind() -> None:
    step = LemonStep()
    message = record("1", 1, "sbatch -x nosuchnode run.sh")
    (key,) = step.keys(message)
    assert step.on(key, None, message, message.ts_ns) == (None, ())


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("sbatch --exclude=n1 a.sh", ["n1"]),
        ("sbatch --exclude n[1-2],m3 a.sh", ["n1", "n2", "m3"]),
        ("srun -x n1 -N 2 ./a", ["n1"]),
        ("srun -xn1 ./a", ["n1"]),
        ('sbatch --exclude="n1,n2" a.sh', ["n1", "n2"]),
        ("sbatch --exclude=./bad.txt a.sh", []),
        ("sbatch --exclude=n[1- a.sh", []),
        ("sbatch --exclude=n[1-9999] a.sh", []),
        ("sbatch --exclusive a.sh", []),
        ("sbatch run-x.sh", []),
        ("", []),
        (None, []),
    ],
)
def test_what_a_command_line_excludes(line: str | None, names: list[str]) -> None:
    assert list(excluded_nodes(line)) == names


class Slow(LemonStep):
    """With fewer ticks: four weeks have many."""

    tick_s = 600.0


def cold(messages: list[Inbound], warm: Played, at_ns: int) -> list[dict[str, Any]]:
    """What an instance says that is started then: the newest of each finding, four weeks of events, and on."""
    player = Player(Slow(), echo=False)
    everything = merged(messages, warm.findings)
    known = {m.subject: m for m in everything if m.kind == "Finding" and m.ts_ns <= at_ns}
    player.keyed.now_ns = at_ns - 28 * DAY
    player.feed(known.values(), context=True)
    player.feed(m for m in everything if m.kind != "Finding" and at_ns - 28 * DAY <= m.ts_ns <= at_ns)
    player.advance(at_ns)
    said = len(player.played.findings)
    player.feed(m for m in everything if m.ts_ns > at_ns)
    return [f.data for f in player.played.findings[said:]]


@pytest.mark.parametrize("cut", [2, 8, 14, 15.005, 15.012, 20, 27])
def test_a_cold_start_that_reads_four_weeks_says_what_a_warm_instance_says(cut: float) -> None:
    alive = [node_state("other", ts_ns=at(half / 2), state="idle") for half in range(56)]
    messages = merged(DRAINS, XIDS, LOST, alive)
    warm = play(Slow(), messages)
    assert warm.findings
    last = messages[-1].ts_ns
    said = [f for f in cold(messages, warm, at(cut)) if f["ts"] <= last]
    assert said == [f for f in warm.of() if at(cut) < f["ts"] <= last]


def test_redelivery_changes_nothing() -> None:
    once = run(DRAINS, XIDS, LOST, until=16).opened()
    twice = run(DRAINS, XIDS, LOST, DRAINS, XIDS, LOST, until=16).opened()
    assert [f["evidence"] for f in twice] == [f["evidence"] for f in once]


def test_a_node_that_left_the_cluster_is_forgotten() -> None:
    gone = node_state(NODE, ts_ns=at(17), event="gone", state="unknown")
    assert [f["state"] for f in run(DRAINS, XIDS, LOST, [gone]).of()][-1] == "closed"


def test_memory_is_bounded() -> None:
    step, state = LemonStep(), NodeKey(NODE)
    for n in range(3000):
        message = lost(str(n), n / 200)
        state, _ = step.on(f"node:{NODE}", state, message, message.ts_ns)
    assert len(state.history.single) <= 64
    assert len(state.history.ended) <= 512


def test_every_fault_of_the_settings_is_said() -> None:
    with pytest.raises(ConfigError, match="days") as caught:
        make_step({"lemon": {"days": 60, "tickets": 0, "ticket_pattern": "("}})
    assert "tickets" in str(caught.value)
    assert "ticket_pattern" in str(caught.value)
