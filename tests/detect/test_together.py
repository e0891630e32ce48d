"""What several nodes show at about the same time, from one cause, is one incident, and holds nobody's node to blame."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outages import names, port_samples, program_errors, running, topology
from samples import (
    CLUSTER,
    T0,
    Columns,
    Inbound,
    Job,
    Played,
    S,
    agent_status,
    cold_twin,
    inventory,
    job_event,
    job_samples,
    kernel_event,
    merged,
    node_state,
    play,
)

from heeler.detect import DetectStep, Thresholds
from heeler.detect.findings import Book
from heeler.detect.places import Places
from heeler.detect.thresholds import IncidentThresholds
from heeler.detect.together import Together

NODES = names(32)
LEAVES = {"leaf1": NODES[:16], "leaf2": NODES[16:]}
DRAINS = {"drain_after_job", "drain_now", "reset", "reboot", "rma"}


def run(*streams: list[Inbound], until_s: int = 900) -> Played:
    return play(DetectStep(), merged(*streams), until_ns=T0 + until_s * S)


def reboot_of_a_leaf(*, nodes: int = 16, begins: int = 10, windows: int = 4, of: int = 60) -> list[Inbound]:
    return port_samples(NODES, lambda node, _rail, at: node < nodes and begins <= at < begins + windows, of)


def test_a_leaf_switch_that_starts_again_is_one_incident_and_no_drain() -> None:
    played = run(topology(LEAVES), running(32, 4), reboot_of_a_leaf())
    (opened,) = played.opened("incident")
    incident = played.of("incident", state="update")[0]
    assert (opened["id"], opened["first_ts"]) == (incident["id"], incident["first_ts"])
    assert opened["ts"] - opened["first_ts"] <= 40 * S
    assert incident["ts"] - opened["ts"] <= 5 * S  # who comes later is named at once
    assert incident["cause"] == "links_lost"
    assert (incident["entity"]["type"], incident["entity"]["places"]) == ("switch", ["switch:leaf1"])
    assert incident["entity"]["nodes"] == NODES[:16]
    assert (incident["count"], incident["advice"], incident["confidence"]) == (16, "observe", 0.9)
    assert "node" not in incident
    assert incident["first_ts"] == min(f["first_ts"] for f in played.of("ib_down"))
    assert incident["summary"] == (
        "16 nodes behind switch leaf1 lost InfiniBand or Ethernet links within 9 s: a switch, its power or its cables, "
        "and hardly the nodes; jobs 81000, 81004, 81008, 81012."
    )
    nodes = incident["evidence"][0]
    assert (nodes["metric"], nodes["value"], nodes["peers"]) == ("nodes", 16, 16)
    assert not [f for f in played.of() if f["advice"] in DRAINS]
    last = played.last("incident")[incident["id"]]
    assert (last["state"], last["close_reason"]) == ("closed", "all are over: the port is active again")
    assert {f["state"] for f in played.last().values()} == {"closed"}


def test_members_name_their_incident_as_long_as_it_is_open() -> None:
    played = run(topology(LEAVES), running(32, 4), reboot_of_a_leaf(windows=20))
    (incident,) = played.opened("incident")
    after = [f for f in played.of("ib_down") if f["ts"] > incident["ts"] + 10 * S]
    assert after
    assert {f.get("incident") for f in after} == {incident["id"]}
    listed = set(played.of("incident", state="update")[0]["entity"]["members"])
    assert listed == {f["id"] for f in played.opened("ib_down")}


def test_a_leaf_that_stays_away_is_for_a_person_and_its_nodes_are_not_drained() -> None:
    played = run(topology(LEAVES), running(32, 4), reboot_of_a_leaf(windows=100, of=90))
    assert {f["advice"] for f in played.of("ib_down")} == {"observe"}
    said = played.of("incident")
    assert {f["id"] for f in said} == {said[0]["id"]}
    assert said[-1]["advice"] == "person"
    person = next(f for f in said if f["advice"] == "person")
    assert 240 <= (person["ts"] - person["first_ts"]) / S <= 250


def test_a_switch_that_flaps_asks_for_no_drain_of_its_nodes() -> None:
    moments = (10, 14, 18, 40)
    played = run(topology(LEAVES), running(32, 4), port_samples(NODES, lambda n, _r, at: n < 16 and at in moments, 90))
    assert len(played.opened("ib_flap")) == 32
    assert len(played.opened("incident")) == 1
    assert not [f for f in played.of() if f["advice"] in DRAINS]


def test_a_port_that_flaps_alone_asks_for_a_drain_a_minute_later() -> None:
    played = run(
        topology(LEAVES),
        running(32, 4),
        port_samples(NODES, lambda n, r, at: (n, r) == (3, 1) and at in (10, 14, 18), 60),
    )
    (opened,) = played.opened()
    assert (opened["kind"], opened["advice"]) == ("ib_flap", "observe")
    drains = [f for f in played.of("ib_flap") if f["advice"] == "drain_after_job"]
    assert 60 <= (drains[0]["ts"] - opened["ts"]) / S <= 70


def test_what_is_left_when_the_others_are_well_is_its_own_trouble_again() -> None:
    def down(node: int, rail: int, at: int) -> bool:
        return node < 16 and at >= 10 and (at < 14 or (node, rail) == (7, 1))

    played = run(topology(LEAVES), running(32, 4), port_samples(NODES, down, 90))
    (closed,) = played.of("incident", state="closed")
    assert closed["close_reason"] == "15 of 16 nodes are well again: what is left on n0007 has a finding of its own"
    rest = played.of("ib_down")[-1]
    assert (rest["node"], rest["advice"], "incident" in rest) == ("n0007", "drain_after_job", False)
    assert not [f for f in played.of("ib_down") if f["advice"] in DRAINS and f["ts"] < closed["ts"]]
    assert len(played.opened("incident")) == 1


def test_without_a_known_topology_only_the_time_speaks_and_that_is_said() -> None:
    played = run(running(32, 4), reboot_of_a_leaf())
    (incident,) = played.opened("incident")
    assert (incident["entity"]["type"], incident["confidence"]) == ("unknown", 0.5)
    assert "only the time connects them" in incident["summary"]
    assert not [f for f in played.of() if f["advice"] in DRAINS]


@pytest.mark.parametrize(("nodes", "known", "incidents"), [(4, False, 0), (2, True, 0), (3, True, 1), (5, False, 1)])
def test_how_many_make_one_cause(nodes: int, known: bool, incidents: int) -> None:
    told = topology(LEAVES) if known else []
    alive = [agent_status(node, ts_ns=T0 + at * 30 * S) for node in NODES for at in range(30)]
    played = run(told, alive, running(32, 4), reboot_of_a_leaf(nodes=nodes))
    assert len(played.opened("incident")) == incidents
    assert len({f["node"] for f in played.opened("ib_down")}) == nodes


def test_three_of_a_cluster_of_four_are_enough() -> None:
    alive = [agent_status(node, ts_ns=T0 + at * 30 * S) for node in NODES[:4] for at in range(30)]
    samples = port_samples(NODES[:4], lambda n, _r, at: n < 3 and 10 <= at < 15, 60)
    assert len(run(alive, running(4, 4), samples).opened("incident")) == 1


def test_ports_that_go_one_by_one_over_an_hour_are_none() -> None:
    def down(node: int, rail: int, at: int) -> bool:
        return rail == 0 and 10 + 6 * node <= at < 30 + 6 * node

    played = run(topology(LEAVES), running(32, 4), port_samples(NODES, down, 230), until_s=2600)
    assert len(played.opened("ib_down")) == 32
    assert not played.opened("incident")


def test_several_leaves_at_once_are_one_incident_of_what_lies_above_them() -> None:
    played = run(topology(LEAVES), running(32, 4), port_samples(NODES, lambda _n, _r, at: 10 <= at < 14, 60))
    (incident,) = played.last("incident").values()
    assert sorted(incident["entity"]["places"]) == ["switch:leaf1", "switch:leaf2"]
    assert incident["summary"].startswith("32 nodes behind 2 switches lost")


def test_another_port_elsewhere_at_that_time_is_no_part_of_it() -> None:
    def down(node: int, rail: int, at: int) -> bool:
        return (node < 16 and 10 <= at < 60) or ((node, rail) == (20, 0) and at >= 11)

    played = run(topology(LEAVES), running(32, 4), port_samples(NODES, down, 60))
    (incident,) = played.last("incident").values()
    assert incident["count"] == 16
    other = [f for f in played.of("ib_down") if f["node"] == "n0020"]
    assert not [f for f in other if "incident" in f]
    assert other[-1]["advice"] == "drain_after_job"


def test_a_topology_in_parts_counts_when_it_is_whole() -> None:
    told = topology(LEAVES, parts=3)
    whole = run(told, running(32, 4), reboot_of_a_leaf())
    assert whole.opened("incident")[0]["entity"]["places"] == ["switch:leaf1"]
    assert run(told[:2], running(32, 4), reboot_of_a_leaf()).opened("incident")[0]["entity"]["places"] == []


# Errors of programs.


@pytest.mark.parametrize("code", [13, 31, 43])
def test_a_program_that_fails_on_all_nodes_of_a_job_is_one_incident_that_blames_no_node(code: int) -> None:
    job = Job(nodes=16)
    states = [node_state(job.node(n), ts_ns=T0) for n in range(16)]
    played = run([inventory(job, n) for n in range(16)], states, running(16, 16), program_errors(job, [code, 45]))
    (incident,) = played.opened("incident")
    last = played.last("incident")[incident["id"]]
    assert (incident["cause"], incident["entity"]["type"], incident["job_id"]) == ("program", "job", job.id)
    assert (incident["advice"], incident["severity"]) == ("none", "info")
    assert last["summary"] == (
        f"Job {job.id}: 128 GPUs of 16 nodes had errors of its program (XID {code}): no node is to blame."
    )
    assert last["count"] == 16
    assert {f.get("incident") for f in played.last("xid").values()} == {incident["id"]}
    assert {f["advice"] for f in played.of()} == {"none"}
    assert {f["state"] for f in run(
        [inventory(job, n) for n in range(16)], program_errors(job, [code, 45]), until_s=1800
    ).last().values()} == {"closed"}  # fmt: skip


def test_eight_gpus_of_one_node_are_one_incident_of_their_job_too() -> None:
    job = Job(nodes=1)
    assert len(run([inventory(job, 0)], program_errors(job, [31])).opened("incident")) == 1


def test_two_jobs_that_fail_at_once_are_two_incidents() -> None:
    jobs = [Job(id="7", nodes=2), Job(id="8", nodes=2, first_node=2)]
    told = [program_errors(job, [31]) for job in jobs]
    assert {f["job_id"] for f in run(*told).opened("incident")} == {"7", "8"}


def test_hardware_that_shows_itself_on_one_of_them_keeps_its_advice() -> None:
    job = Job(nodes=8)
    hard = kernel_event(job.node(3), 95, ts_ns=T0 + 102 * S, seq=900, uuid=job.uuid(3, 2), jobs=[job.id])
    played = run([inventory(job, n) for n in range(8)], program_errors(job, [43, 45]), [hard])
    sick = [f for f in played.last("xid").values() if f["advice"] in DRAINS]
    assert [(f["node"], f["code"], f["advice"]) for f in sick] == [("n0003", 95, "drain_now")]
    assert "incident" not in sick[0]


# NVLink, power, heat, agents.


def test_nvlink_errors_over_the_nodes_of_a_block_are_one_incident_and_keep_their_own_advice() -> None:
    lines = [
        kernel_event(
            node, 149, ts_ns=T0 + (100 + at) * S, seq=1, uuid=f"GPU-{at}",
            text="NETIR_LINK_DOWN Fatal XC0 i0 Link 09 (0x1 0x0 0x0 0x0 0x0 0x0)",
            detail={"unit": "NETIR_LINK_DOWN", "severity": "Fatal", "link": 9},
        )
        for at, node in enumerate(NODES[:6])
    ]  # fmt: skip
    alone = run(lines[:1])
    played = run(topology({"rack7": NODES[:18]}, kind="block"), lines)
    (incident,) = played.opened("incident")
    assert (incident["cause"], incident["entity"]["places"]) == ("nvlink_fabric", ["block:rack7"])
    assert {f["advice"] for f in played.of("xid")} == {f["advice"] for f in alone.of("xid")}


@pytest.mark.parametrize("per_job", [1, 2, 6])
def test_a_power_brake_on_a_rack_is_one_incident_and_no_drain(per_job: int) -> None:
    def brake(window: int, columns: Columns) -> None:
        if window >= 40:
            columns["clock_event_reasons"][:] = 0x80 | 0x8
            columns["sm_clock_mhz"][:] = 600.0

    jobs = [Job(id=str(n), nodes=per_job, first_node=n) for n in range(0, 12, per_job)]
    samples = [job_samples(job, windows=90, change=brake if job.first_node < 6 else ()) for job in jobs]
    starts = [job_event(job, ts_ns=job.start_ns) for job in jobs]
    told = [node_state(f"n{n:04d}", ts_ns=T0, features=["h100", "rack-a" if n < 6 else "rack-b"]) for n in range(12)]
    step = DetectStep(Thresholds(incident=IncidentThresholds(rack_features=("rack-*",))))
    played = play(step, merged(told, starts, *samples))
    (incident,) = played.last("incident").values() if per_job < 6 else played.last("job_slow").values()
    if per_job < 6:
        assert (incident["cause"], incident["entity"]["places"]) == ("power", ["rack:rack-a"])
        assert incident["entity"]["nodes"] == names(6)
    assert not [f for f in played.of() if f["advice"] in DRAINS]


def test_a_rack_whose_agents_fall_silent_is_one_incident() -> None:
    lines = [
        agent_status(node, ts_ns=T0 + at * 30 * S + n * S // 2)
        for at in range(30)
        for n, node in enumerate(NODES)
        if not (n < 6 and 8 <= at < 20)
    ]
    played = run(topology({"rack1": NODES[:6], "rack2": NODES[6:]}, kind="block"), lines)
    (incident,) = played.opened("incident")
    assert (incident["cause"], incident["count"]) == ("agents_silent", 6)
    assert played.last("incident")[incident["id"]]["state"] == "closed"


# Laws.


@pytest.mark.parametrize("cut", [105, 133, 141, 150, 171, 205, 260, 333, 480, 700])
def test_a_cold_start_says_what_a_warm_instance_says(cut: int) -> None:
    def down(node: int, rail: int, at: int) -> bool:
        return node < 16 and at >= 10 and (at < 30 or (node < 2 and rail == 0))

    messages = merged(topology(LEAVES), running(32, 4), port_samples(NODES, down, 80))
    warm = play(DetectStep(), messages)
    assert warm.opened("incident")
    last = messages[-1].ts_ns
    said = [f for f in cold_twin(DetectStep(), messages, warm, T0 + cut * S) if f["ts"] <= last]
    expected = [f for f in warm.of() if T0 + cut * S < f["ts"] <= last]

    def order(finding: dict[str, Any]) -> tuple[int, str]:  # of what several keys say at one tick
        return finding["ts"], finding["id"]

    assert sorted(said, key=order) == sorted(expected, key=order)


FINDINGS = [
    f
    for f in play(
        DetectStep(), merged(topology(LEAVES), running(32, 4), reboot_of_a_leaf(windows=10)), until_ns=T0 + 900 * S
    ).findings
    if f.data["kind"] == "ib_down"
]
FACTS = ("id", "state", "first_ts", "advice", "count", "cause")


def incidents_of(messages: list[Inbound]) -> list[tuple[Any, ...]]:
    played = play(DetectStep(), [*topology(LEAVES), *messages], until_ns=T0 + 900 * S)
    return [tuple(f[name] for name in FACTS) for f in played.of("incident") if f["state"] != "update"]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(FINDINGS) - 1), st.integers(0, 600)), max_size=40))
def test_findings_that_come_twice_or_late_open_nothing_anew(again: list[tuple[int, int]]) -> None:
    expected = incidents_of(FINDINGS)
    assert [state for _, state, *_ in expected] == ["open", "closed"]
    twins = [replace(FINDINGS[at], ts_ns=FINDINGS[at].ts_ns + after * S) for at, after in again]
    assert incidents_of(merged(FINDINGS, twins)) == expected


def test_what_is_remembered_is_bounded_and_forgotten() -> None:
    t = IncidentThresholds()
    together = Together(t, Places(), lambda: 0, {})
    book = Book(30.0)
    book.cluster = CLUSTER
    (model,) = [f.data for f in FINDINGS[:1]]
    for number in range(20_000):
        ts = T0 + number * S
        told = {"id": f"ib_down-{number}", "node": f"n{number % 100}", "first_ts": ts, "ts": ts}
        together.learn({**model, **told})
        together.learn({**model, **told, "ts": ts + S, "state": "closed"})
        if number % 50 == 0:
            together.tick(book, ts)
    assert len(together.members) <= (t.keep_s + 100)
    together.tick(book, ts + int(2 * t.keep_s) * S)
    assert not together.members
    assert not together.taken
    for number in range(20_000):
        together.learn({**model, "id": str(number), "first_ts": T0 + number * S, "ts": T0 + number * S})
    assert len(together.members) <= 16_384
