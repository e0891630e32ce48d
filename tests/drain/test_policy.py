"""Each rule of the policy, on both of its sides."""

from typing import Any

import pytest
from drainworld import CLUSTER, T0, Cluster, S, controller, lag, node, told, xid

from heeler.drain.settings import load_policy

MINUTE, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S


def only(actions: list[dict[str, Any]]) -> tuple[str, str]:
    assert len(actions) == 1, told(actions)
    return actions[0]["verdict"], actions[0]["rule"]


def test_hard_evidence_is_proposed_at_its_first_word() -> None:
    (action,) = Cluster().say("Finding", xid())
    assert (action["verdict"], action["rule"], action["dry_run"]) == ("proposed", "hard_evidence", True)
    assert action["reason"] == "heeler:xid:xid-n001-79 GPU 3 on n001 has fallen off the bus (XID 79)"
    assert (action["node"], action["finding_id"], action["kind"]) == ("n001", "xid-n001-79", "xid")


def test_soft_evidence_that_has_all_it_needs_is_proposed() -> None:
    (action,) = Cluster().say("Finding", lag())
    assert (action["verdict"], action["rule"], action["job_id"]) == ("proposed", "soft_evidence", "81234")
    assert "thermal_slowdown" in action["why"]


def test_an_armed_drainer_approves_instead() -> None:
    (action,) = Cluster(dry_run=False).say("Finding", xid())
    assert (action["verdict"], action["dry_run"]) == ("approved", False)


@pytest.mark.parametrize("code", [48, 64, 79, 95])
def test_the_four_hardware_xids_are_hard_evidence(code: int) -> None:
    assert only(Cluster().say("Finding", xid(code=code))) == ("proposed", "hard_evidence")


@pytest.mark.parametrize("code", [13, 31, 45, 74, 119])
def test_other_xids_go_to_a_person_even_if_the_finding_asks_for_a_drain(code: int) -> None:
    assert only(Cluster().say("Finding", xid(code=code))) == ("refused", "person")


@pytest.mark.parametrize("kind", ["gpu_lost", "remap_failed"])
def test_a_lost_gpu_and_a_failed_remap_are_hard_evidence(kind: str) -> None:
    assert only(Cluster().say("Finding", xid(kind=kind))) == ("proposed", "hard_evidence")


@pytest.mark.parametrize("kind", ["agent_silent", "a_kind_of_next_year"])
def test_a_kind_without_a_rule_is_only_observed(kind: str) -> None:
    assert only(Cluster().say("Finding", xid(kind=kind))) == ("refused", "observe")


@pytest.mark.parametrize("advice", ["none", "observe", "unknown"])
def test_a_finding_that_asks_for_nothing_gets_no_answer(advice: str) -> None:
    cluster = Cluster()
    assert cluster.say("Finding", xid(advice=advice)) == []
    assert cluster.pass_to(T0 + MINUTE) == []


def test_advice_for_a_person_is_left_to_a_person() -> None:
    assert only(Cluster().say("Finding", xid(advice="person"))) == ("refused", "person")


@pytest.mark.parametrize(("confidence", "verdict"), [(0.9, "proposed"), (0.89, "refused")])
def test_hard_evidence_needs_its_confidence(confidence: float, verdict: str) -> None:
    (action,) = Cluster().say("Finding", xid(confidence=confidence))
    assert action["verdict"] == verdict
    if verdict == "refused":
        assert action["rule"] == "confidence"
        assert "0.89" in action["why"]
        assert "0.90" in action["why"]


# Whether a finding can be believed.


@pytest.mark.parametrize("state", ["closed", "unknown"])
def test_a_closed_finding_never_acts(state: str) -> None:
    cluster = Cluster()
    assert cluster.say("Finding", xid(state=state)) == []
    assert cluster.pass_to(T0 + MINUTE) == []


def test_a_finding_that_was_closed_stays_so_when_its_opening_comes_late() -> None:
    cluster = Cluster()
    cluster.say("Finding", xid(state="closed", ts=T0 + S))
    assert cluster.say("Finding", xid(ts=T0), at=T0 + 2 * S) == []


@pytest.mark.parametrize(("answers_after_s", "rule"), [(119, "hard_evidence"), (121, "stale")])
def test_a_finding_must_have_been_confirmed_in_the_last_two_minutes(answers_after_s: int, rule: str) -> None:
    cluster = Cluster(slurm_age_s=3600.0)
    cluster.say("ClusterState", controller(T0, "down"))
    assert only(cluster.say("Finding", xid()))[1] == "slurm_unknown"
    said = cluster.pass_to(T0 + answers_after_s * S)
    said += cluster.pass_to(T0 + (answers_after_s + 1) * S) + cluster.pass_to(T0 + 200 * S)
    assert told(said)[0] == ("n001", "proposed" if rule == "hard_evidence" else "refused", rule)
    assert ("n001", "proposed", "hard_evidence") not in told(said)[1:]


@pytest.mark.parametrize(
    ("gap_s", "rule"), [(120, "hard_evidence"), (121, "late"), (-120, "hard_evidence"), (-121, "late")]
)
def test_a_finding_that_reached_the_bus_long_after_it_was_written_is_late(gap_s: int, rule: str) -> None:
    stamp = T0 + 130 * S
    cluster = Cluster()
    cluster.alive(stamp)
    assert only(cluster.say("Finding", xid(ts=stamp - gap_s * S), at=stamp))[1] == rule


@pytest.mark.parametrize(("age_s", "rule"), [(300, "hard_evidence"), (301, "old_data")])
def test_hard_evidence_from_data_that_came_late_is_refused(age_s: int, rule: str) -> None:
    assert only(Cluster().say("Finding", xid(data_ts=T0 - age_s * S)))[1] == rule


def test_hard_evidence_that_was_fresh_when_it_came_stays_good() -> None:
    cluster = Cluster()
    cluster.say("ClusterState", controller(T0 + S, "down"))
    assert only(cluster.say("Finding", xid(ts=T0 + 2 * S)))[1] == "slurm_unknown"
    for minute in range(1, 20):
        cluster.say("Finding", xid(ts=T0 + minute * MINUTE, state="update", first_ts=T0, data_ts=T0))
    cluster.alive(T0 + 20 * MINUTE)
    assert only(cluster.say("Finding", xid(ts=T0 + 20 * MINUTE, first_ts=T0, data_ts=T0)))[1] == "hard_evidence"


@pytest.mark.parametrize(("age_s", "rule"), [(120, "soft_evidence"), (121, "old_data")])
def test_soft_evidence_must_be_of_now(age_s: int, rule: str) -> None:
    assert only(Cluster().say("Finding", lag(data_ts=T0 - age_s * S)))[1] == rule


def test_a_finding_older_than_the_drainers_memory_goes_to_a_person() -> None:
    assert only(Cluster().say("Finding", xid(first_ts=T0 - 8 * DAY, data_ts=T0))) == ("refused", "beyond_memory")


# Whether Slurm's state is known.


@pytest.mark.parametrize("state", ["down", "unknown"])
def test_nothing_is_done_while_the_controller_does_not_answer(state: str) -> None:
    cluster = Cluster()
    cluster.say("ClusterState", controller(T0, state))
    (action,) = cluster.say("Finding", xid())
    assert (action["verdict"], action["rule"]) == ("refused", "slurm_unknown")
    assert state in action["why"]


@pytest.mark.parametrize(("age_s", "rule"), [(120, "hard_evidence"), (121, "slurm_unknown")])
def test_old_knowledge_of_slurm_is_no_knowledge(age_s: int, rule: str) -> None:
    ts = T0 + age_s * S
    assert only(Cluster().say("Finding", xid(ts=ts)))[1] == rule


def test_a_feed_that_speaks_but_has_not_reached_slurm_knows_nothing() -> None:
    cluster = Cluster()
    cluster.say("ClusterState", controller(T0, last_success_ts=T0 - 121 * S))
    assert only(cluster.say("Finding", xid()))[1] == "slurm_unknown"


def test_without_any_word_of_the_feed_nothing_is_done() -> None:
    cluster = Cluster()
    cluster.world.controller.feeds.clear()
    assert only(cluster.say("Finding", xid())) == ("refused", "slurm_unknown")


def test_a_second_feed_that_knows_is_enough() -> None:
    cluster = Cluster()
    cluster.say("ClusterState", controller(T0, "down", feed="other"))
    assert only(cluster.say("Finding", xid()))[1] == "hard_evidence"


# Whether the node may be touched.


def test_a_node_that_slurm_never_named_is_left_alone() -> None:
    assert only(Cluster().say("Finding", xid("stranger"))) == ("refused", "node_unknown")


def test_a_node_that_is_gone_is_not_known() -> None:
    cluster = Cluster()
    cluster.say("NodeState", node("n001", event="gone"))
    assert only(cluster.say("Finding", xid())) == ("refused", "node_unknown")


@pytest.mark.parametrize(
    ("state", "flags", "more", "rule"),
    [
        ("down", (), {"reason": "psu swap", "reason_user": "ops"}, "node_down"),
        ("down", ("NOT_RESPONDING",), {"reason": "Not responding", "reason_user": "slurm"}, "node_down"),
        ("error", (), {}, "node_down"),
        ("idle", ("NOT_RESPONDING",), {}, "node_down"),
        ("idle", ("FAIL",), {}, "node_down"),
        ("idle", ("INVALID_REG", "DRAIN"), {}, "node_down"),
        ("idle", ("MAINTENANCE", "RESERVED"), {}, "node_maintenance"),
        ("idle", ("MAINT",), {}, "node_maintenance"),
        ("idle", ("REBOOT_REQUESTED",), {}, "node_maintenance"),
        ("allocated", ("RESERVED",), {}, "node_reserved"),
        ("idle", (), {"reservation": "demo"}, "node_reserved"),
        ("idle", ("CLOUD", "POWERED_DOWN"), {}, "node_powered_down"),
        ("idle", ("POWERING_UP",), {}, "node_powered_down"),
        ("idle", ("DRAIN",), {"reason": "ADMIN: psu swap (ops)", "reason_user": "ops"}, "already_drained"),
        ("mixed", ("DRAIN",), {}, "already_drained"),
        ("allocated", ("COMPLETING", "DRAIN"), {"reason": "heeler:xid:other of another day"}, "already_drained"),
        ("unknown", (), {}, "node_state_unknown"),
        ("idle", ("FROBNICATED",), {}, "node_state_unknown"),
        ("idle", (), {"reason": "look at fan 3", "reason_user": "ops"}, "foreign_reason"),
        ("idle", (), {"partitions": None}, "partition_unknown"),
    ],
)
def test_a_node_in_any_other_state_than_plain_service_is_left_alone(
    state: str, flags: tuple[str, ...], more: dict[str, Any], rule: str
) -> None:
    cluster = Cluster()
    cluster.say("NodeState", node("n001", state=state, flags=flags, **more))
    (action,) = cluster.say("Finding", xid())
    assert (action["verdict"], action["rule"]) == ("refused", rule)
    if "reason" in more:
        assert more["reason"] in action["why"]


@pytest.mark.parametrize("flags", [(), ("PLANNED",), ("COMPLETING",), ("CLOUD",), ("DYNAMIC_NORM",)])
@pytest.mark.parametrize("state", ["idle", "mixed", "allocated"])
def test_a_node_in_plain_service_may_be_drained(state: str, flags: tuple[str, ...]) -> None:
    cluster = Cluster()
    cluster.say("NodeState", node("n001", state=state, flags=flags))
    assert only(cluster.say("Finding", xid()))[0] == "proposed"


def test_a_flag_that_the_operator_calls_benign_does_not_matter() -> None:
    cluster = Cluster(benign_flags=["FROBNICATED"])
    cluster.say("NodeState", node("n001", flags=("FROBNICATED",)))
    assert only(cluster.say("Finding", xid()))[0] == "proposed"


@pytest.mark.parametrize("name", ["n[001-100]", "n001,n002", "--help", "ALL", "all", "n 1", "n1;reboot", "n=1"])
def test_a_name_that_could_be_more_than_one_node_is_never_used(name: str) -> None:
    cluster = Cluster()
    cluster.say("NodeState", node(name))
    assert only(cluster.say("Finding", xid(name, id="f"))) == ("refused", "node_name")


@pytest.mark.parametrize(
    ("limit", "pattern"),
    [("opt_out_nodes", "n00?"), ("opt_out_partitions", "tr*"), ("opt_out_features", "h100")],
)
def test_what_is_on_an_opt_out_list_is_left_alone(limit: str, pattern: str) -> None:
    limits: dict[str, Any] = {limit: [pattern]}
    cluster = Cluster(**limits)
    cluster.say("NodeState", node("n001", features=["h100"]))
    assert only(cluster.say("Finding", xid())) == ("refused", "opted_out")


def test_an_opt_out_list_that_does_not_fit_changes_nothing() -> None:
    cluster = Cluster(opt_out_nodes=["m*"], opt_out_partitions=["debug"], opt_out_features=["a100"])
    assert only(cluster.say("Finding", xid()))[0] == "proposed"


# What the evidence must show.


def test_hard_evidence_can_be_made_to_need_more_confirmations() -> None:
    cluster = Cluster(hard_confirmations=2)
    assert only(cluster.say("Finding", xid())) == ("refused", "unconfirmed")
    assert cluster.say("Finding", xid()) == []  # a twin confirms nothing
    assert only(cluster.say("Finding", xid(ts=T0 + 5 * S, state="update")))[0] == "proposed"


def test_more_than_four_nodes_that_fail_within_a_minute_are_for_a_person() -> None:
    cluster = Cluster(500, hard_per_hour_ratio=1.0, drained_ratio=1.0)
    said = [cluster.say("Finding", xid(f"n{n:03d}", T0 + n * 10 * S, first_ts=T0 + n * 10 * S)) for n in range(1, 7)]
    assert [only(actions)[1] for actions in said] == ["hard_evidence"] * 4 + ["mass_failure"] * 2
    assert "page a person" in said[4][0]["why"]


def test_nodes_that_fail_one_after_the_other_are_not_a_mass() -> None:
    cluster = Cluster(500, hard_per_hour_ratio=1.0, drained_ratio=1.0)
    for n in range(1, 8):
        cluster.alive(T0 + n * 16 * S)
        assert only(cluster.say("Finding", xid(f"n{n:03d}", T0 + n * 16 * S)))[0] == "proposed"


def test_many_findings_of_one_node_are_not_a_mass() -> None:
    cluster = Cluster(500)
    said = [cluster.say("Finding", xid(code=79, id=f"f{n}", ts=T0 + n)) for n in range(8)]
    assert [only(actions)[1] for actions in said] == ["hard_evidence"] + ["already_ours"] * 7


@pytest.mark.parametrize(("life_s", "rule"), [(240, "soft_evidence"), (239, "too_young")])
def test_soft_evidence_must_have_lasted_four_minutes(life_s: int, rule: str) -> None:
    assert only(Cluster().say("Finding", lag(first_ts=T0 - life_s * S)))[1] == rule


def test_a_young_finding_is_acted_on_once_it_is_old_enough() -> None:
    cluster = Cluster()
    assert only(cluster.say("Finding", lag(first_ts=T0)))[1] == "too_young"
    said = []
    for second in range(30, 300, 30):
        said += cluster.alive(T0 + second * S)
        said += cluster.say("Finding", lag(ts=T0 + second * S, first_ts=T0))
    assert told(said) == [("n002", "proposed", "soft_evidence")]


@pytest.mark.parametrize("cause", ["unknown", "none", "", None])
def test_soft_evidence_without_a_physical_cause_is_refused(cause: str | None) -> None:
    rule = {"kind": "gpu_lag", "action": "drain_after_job", "evidence": "soft"}
    own = Cluster(found=load_policy(rules=[rule]))
    assert only(own.say("Finding", lag(cause=cause))) == ("refused", "no_second_signal")
    assert only(Cluster().say("Finding", lag(cause=cause))) == ("refused", "needs_approval")


@pytest.mark.parametrize(
    ("impact", "rule"),
    [
        ({"job_slowdown_ratio": 1.1}, "soft_evidence"),
        ({"job_slowdown_ratio": 1.09}, "job_not_slower"),
        ({"job_slowdown_ratio": None}, "slowdown_unknown"),
        ({}, "slowdown_unknown"),
        (None, "slowdown_unknown"),
    ],
)
def test_soft_evidence_needs_a_job_that_is_really_slower(impact: dict[str, Any] | None, rule: str) -> None:
    assert only(Cluster().say("Finding", lag(impact=impact)))[1] == rule


def test_the_slower_job_can_be_waived() -> None:
    assert only(Cluster(soft_needs_slowdown=False).say("Finding", lag(impact=None)))[1] == "soft_evidence"


def test_hard_evidence_needs_none_of_that() -> None:
    assert only(Cluster().say("Finding", xid(cause=None, impact=None)))[1] == "hard_evidence"


# Budgets.


def proposals(cluster: Cluster, nodes: range, start: int, step: int, make: Any = xid) -> list[str]:
    rules = []
    for place, n in enumerate(nodes):
        ts = start + place * step
        cluster.alive(ts)
        rules.append(only(cluster.say("Finding", make(f"n{n:03d}", ts)))[1])
    return rules


def test_hard_drains_are_at_most_three_an_hour_on_a_small_cluster() -> None:
    cluster = Cluster(200, drained_ratio=0.5)
    assert proposals(cluster, range(1, 6), T0, MINUTE) == ["hard_evidence"] * 3 + ["per_hour"] * 2


def test_hard_drains_are_at_most_one_percent_an_hour_on_a_large_cluster() -> None:
    cluster = Cluster(500, drained_ratio=0.5)
    assert proposals(cluster, range(1, 8), T0, MINUTE) == ["hard_evidence"] * 5 + ["per_hour"] * 2


def test_a_finding_refused_for_the_hour_is_acted_on_when_the_hour_is_over() -> None:
    cluster = Cluster(200, drained_ratio=0.5)
    proposals(cluster, range(1, 5), T0, MINUTE)
    said = []
    for minute in range(4, 65):
        ts = T0 + minute * MINUTE
        said += cluster.alive(ts)
        said += cluster.say("Finding", xid("n004", ts, first_ts=T0 + 3 * MINUTE, data_ts=T0 + 3 * MINUTE))
    assert told(said) == [("n004", "proposed", "hard_evidence")]


def test_soft_drains_are_at_most_three_an_hour() -> None:
    cluster = Cluster(500, drained_ratio=0.5)

    def other_jobs(name: str, ts: int) -> dict[str, Any]:
        return lag(name, ts, job=f"job-{name}")

    assert proposals(cluster, range(1, 6), T0, MINUTE, other_jobs) == ["soft_evidence"] * 3 + ["per_hour"] * 2


def test_a_job_gets_one_soft_drain_in_half_an_hour() -> None:
    cluster = Cluster(500)
    assert proposals(cluster, range(1, 3), T0, MINUTE, lag) == ["soft_evidence", "per_job"]
    cluster.alive(T0 + 31 * MINUTE)
    assert only(cluster.say("Finding", lag("n003", T0 + 31 * MINUTE)))[1] == "soft_evidence"


@pytest.mark.parametrize(("size", "allowed"), [(4, 1), (49, 1), (100, 2), (199, 3)])
def test_two_percent_of_the_nodes_and_at_least_one_are_drained_at_once(size: int, allowed: int) -> None:
    cluster = Cluster(size, hard_per_hour_min=100)
    rules = proposals(cluster, range(1, 5), T0, MINUTE)
    assert rules == ["hard_evidence"] * allowed + ["drained_at_once"] * (4 - allowed)


def test_a_drain_that_bears_our_words_counts_even_if_we_have_no_record_of_it() -> None:
    cluster = Cluster(49)
    cluster.say("NodeState", node("n030", state="idle", flags=("DRAIN",), reason="heeler:xid:old one"))
    assert only(cluster.say("Finding", xid())) == ("refused", "drained_at_once")


@pytest.mark.parametrize(
    ("size", "down", "rule"),
    [(10, 2, "hard_evidence"), (10, 3, "breaker"), (50, 5, "hard_evidence"), (50, 6, "breaker")],
)
def test_the_breaker_stops_all_when_too_many_nodes_are_unavailable(size: int, down: int, rule: str) -> None:
    cluster = Cluster(size)
    for n in range(2, 2 + down):
        cluster.say("NodeState", node(f"n{n:03d}", state="down"))
    *opened, action = cluster.say("Finding", xid())
    assert action["rule"] == rule
    assert told(opened) == ([("*", "tripped", "breaker")] if rule == "breaker" else [])
    if rule == "breaker":
        assert f"{down} of {size}" in action["why"]


@pytest.mark.parametrize("flags", [("POWERED_DOWN", "CLOUD"), ("MAINTENANCE", "RESERVED")])
def test_planned_absence_does_not_trip_the_breaker(flags: tuple[str, ...]) -> None:
    cluster = Cluster(50)
    for n in range(10, 40):
        cluster.say("NodeState", node(f"n{n:03d}", state="idle", flags=flags))
    assert only(cluster.say("Finding", xid()))[1] == "hard_evidence"


@pytest.mark.parametrize("flags", [("DRAIN",), ("NOT_RESPONDING",), ("FROBNICATED",)])
def test_drained_silent_and_unknown_nodes_trip_the_breaker(flags: tuple[str, ...]) -> None:
    cluster = Cluster(50)
    for n in range(10, 17):
        cluster.say("NodeState", node(f"n{n:03d}", flags=flags))
    assert told(cluster.say("Finding", xid())) == [("*", "tripped", "breaker"), ("n001", "refused", "breaker")]


def test_the_last_available_node_of_a_partition_stays() -> None:
    cluster = Cluster(50)
    cluster.say("NodeState", node("n001", partitions=["train", "debug"]))
    (action,) = cluster.say("Finding", xid())
    assert action["rule"] == "last_in_partition"
    assert "debug" in action["why"]


def test_the_other_node_of_a_partition_may_go() -> None:
    cluster = Cluster(50)
    for name in ("n001", "n002"):
        cluster.say("NodeState", node(name, partitions=["train", "debug"]))
    assert only(cluster.say("Finding", xid()))[1] == "hard_evidence"


def test_two_drains_just_decided_do_not_empty_a_partition() -> None:
    cluster = Cluster(200)
    for name in ("n001", "n002"):
        cluster.say("NodeState", node(name, partitions=["debug"]))
    assert only(cluster.say("Finding", xid("n001")))[1] == "hard_evidence"
    assert only(cluster.say("Finding", xid("n002", ts=T0 + 1)))[1] == "last_in_partition"


def again(cluster: Cluster, number: int, ts: int) -> str:
    """A new finding of n001 after the last one was closed."""
    cluster.say("Finding", xid(id=f"f{number - 1}", state="closed", ts=ts - 30 * S))
    cluster.alive(ts)
    return only(cluster.say("Finding", xid(id=f"f{number}", ts=ts)))[1]


def test_a_node_is_left_alone_for_a_day_after_a_drain() -> None:
    cluster = Cluster()
    assert again(cluster, 1, T0 + MINUTE) == "hard_evidence"
    assert again(cluster, 2, T0 + 23 * HOUR) == "cooldown"
    assert again(cluster, 3, T0 + 25 * HOUR) == "hard_evidence"


def test_after_two_drains_in_a_week_a_node_is_for_a_person() -> None:
    cluster = Cluster()
    assert again(cluster, 1, T0 + MINUTE) == "hard_evidence"
    assert again(cluster, 2, T0 + 2 * DAY) == "hard_evidence"
    assert again(cluster, 3, T0 + 6 * DAY) == "repeat_offender"
    assert again(cluster, 4, T0 + 8 * DAY) == "hard_evidence"


def test_every_refusal_names_its_cluster_node_and_finding() -> None:
    (action,) = Cluster().say("Finding", xid("stranger"))
    assert (action["cluster"], action["node"], action["finding_id"]) == (CLUSTER, "stranger", "xid-stranger-79")
    assert action["id"] == "xid-stranger-79.refused.node_unknown.dry"
