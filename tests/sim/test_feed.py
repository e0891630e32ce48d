"""The simulated Slurm feed and the schedule behind it."""

from collections import Counter

import pytest
from simlab import EPOCH_NS, cluster

from heeler.bus import check
from heeler.sim.fleet import GPUS_PER_NODE, make_fleet
from heeler.sim.jobs import make_schedule
from heeler.sim.slurm import SlurmFeed
from heeler.sim.units import NS_PER_S

MINUTE = 60 * NS_PER_S


@pytest.mark.parametrize("nodes", [1, 2, 3, 8, 16, 17, 64, 300])
def test_no_gpu_has_two_jobs_and_every_fleet_has_work(nodes: int) -> None:
    fleet = make_fleet(nodes, 5)
    held = [
        (node, gpu) for job in make_schedule(fleet, EPOCH_NS).active(EPOCH_NS) for node in job.nodes for gpu in job.gpus
    ]
    assert held
    assert len(held) == len(set(held))


def test_a_fleet_has_a_job_of_16_nodes_a_shared_node_and_idle_ones() -> None:
    fleet = make_fleet(64, 5)
    jobs = make_schedule(fleet, EPOCH_NS).active(EPOCH_NS)
    assert len(jobs[0].nodes) == 16
    assert [job.gpus for job in jobs if not job.whole_nodes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert len({node for job in jobs for node in job.nodes}) < 64


def test_named_nodes_are_put_into_the_largest_job() -> None:
    fleet = make_fleet(64, 5)
    jobs = make_schedule(fleet, EPOCH_NS, first_nodes=("n060", "n002", "n033")).active(EPOCH_NS)
    assert {fleet.index[name] for name in ("n060", "n002", "n033")} <= set(jobs[0].nodes)
    assert len(jobs[0].nodes) == 16


@pytest.mark.parametrize("count", [0, 12_501])
def test_a_fleet_of_impossible_size_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="12500"):
        make_fleet(count, 1)


def test_every_job_starts_once_ends_once_and_its_nodes_are_taken_again() -> None:
    fleet = make_fleet(32, 5)
    feed = SlurmFeed(fleet, make_schedule(fleet, EPOCH_NS, mean_life_s=600))
    events: dict[str, list[str]] = {}
    running: dict[str, list[str]] = {}
    for minute in range(120):
        for out in feed.poll(EPOCH_NS + minute * MINUTE):
            check(out.kind, out.data)
            if out.kind == "JobEvent":
                events.setdefault(out.data["job_id"], []).append(out.data["event"])
                running[out.data["job_id"]] = out.data["nodes"] if out.data["event"] != "ended" else []
        held = Counter(node for nodes in running.values() for node in set(nodes))
        shared = [job.nodes for job in feed.schedule.active(EPOCH_NS + minute * MINUTE) if not job.whole_nodes]
        assert max(held.values()) <= (2 if shared else 1)
    assert len(events) > 15
    for seen in events.values():
        without = [event for event in seen if event != "changed"]
        assert without in (["started"], ["started", "ended"])


def test_the_feed_repeats_nothing_that_did_not_change() -> None:
    fleet = make_fleet(16, 5)
    feed = SlurmFeed(fleet, make_schedule(fleet, EPOCH_NS))
    first = Counter(out.kind for out in feed.poll(EPOCH_NS))
    assert first["NodeState"] == 16
    later = [out for minute in range(1, 50) for out in feed.poll(EPOCH_NS + minute * MINUTE)]
    assert {out.kind for out in later} == {"ClusterState"}
    again = Counter(out.kind for out in feed.poll(EPOCH_NS + 61 * MINUTE))
    assert again["NodeState"] == 16
    assert again["JobEvent"] == first["JobEvent"]


def test_gpus_are_named_by_minor_as_slurm_does_and_not_by_index() -> None:
    for seed in range(30):
        fleet = make_fleet(64, seed)
        jobs = make_schedule(fleet, EPOCH_NS).active(EPOCH_NS)
        for job in jobs:
            node = fleet.nodes[job.nodes[0]]
            if not job.whole_nodes and node.minors != list(range(GPUS_PER_NODE)):
                feed = SlurmFeed(fleet, make_schedule(fleet, EPOCH_NS))
                event = next(o.data for o in feed.poll(EPOCH_NS) if o.data.get("job_id") == job.id)
                assert event["gpus"][node.name] == sorted(node.minors[gpu] for gpu in job.gpus)
                assert event["gpus"][node.name] != list(job.gpus)
                return
    pytest.fail("no shared node with shuffled minors in thirty fleets")


def test_a_killed_job_ends_failed_at_that_time() -> None:
    simulation = cluster()
    feed = SlurmFeed(simulation.fleet, simulation.schedule)
    list(feed.poll(EPOCH_NS))
    job = simulation.schedule.active(EPOCH_NS)[0]
    simulation.schedule.kill(job.id, EPOCH_NS + 3)
    ended = [o.data for o in feed.poll(EPOCH_NS + MINUTE) if o.kind == "JobEvent"]
    assert [(e["job_id"], e["event"], e["state"], e["end_ts"]) for e in ended] == [
        (job.id, "ended", "FAILED", EPOCH_NS + 3)
    ]


def test_node_states_follow_the_jobs() -> None:
    simulation = cluster()
    feed = SlurmFeed(simulation.fleet, simulation.schedule)
    states = Counter(o.data["state"] for o in feed.poll(EPOCH_NS) if o.kind == "NodeState")
    busy = {node for job in simulation.schedule.active(EPOCH_NS) for node in job.nodes}
    assert states == {"allocated": len(busy), "idle": 64 - len(busy)}
