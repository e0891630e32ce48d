"""What the page knows, from sequences of messages: pure."""

import numpy as np
from consolekit import T0, S, action, cluster_state, finding, inbound, job_event, node_state, sample

from heeler.console.fleet import JOB_NONE, JOB_SEVERAL, JOB_UNKNOWN, LAYERS, LOST, NO_CELL, OK, STALE, UNKNOWN, UNREAD
from heeler.console.model import Model
from heeler.console.model import node_state as state_of
from heeler.console.settings import ConsoleSettings

LAYER = {name: at for at, name in enumerate(LAYERS)}


def model(**settings: int) -> Model:
    return Model(ConsoleSettings(**settings))  # type: ignore[arg-type]


def told(*messages: tuple[str, dict]) -> Model:  # type: ignore[type-arg]
    found = model()
    for kind, data in messages:
        found.on(inbound(kind, data))
    found.tick(T0 + S)
    return found


def test_a_sample_becomes_cells_side_by_side() -> None:
    found = told(("JobSample", sample("n1")), ("JobSample", sample("n2", gpus=4, job=None)))
    fleet, layers = found.fleet, found.fleet.layers()
    assert fleet.state[:16].tolist() == [OK] * 12 + [NO_CELL] * 4
    assert fleet.job[8:12].tolist() == [JOB_NONE] * 4
    assert found.job_number(int(fleet.job[0])).id == "81"  # type: ignore[union-attr]
    assert layers[LAYER["activity"], 0] == 180
    assert layers[LAYER["temperature"], 0] == 60
    assert layers[LAYER["power"], 0] == 100  # 350 of 700 W
    assert layers[LAYER["clock"], 0] == 200


def test_what_was_not_read_is_unread_and_never_zero() -> None:
    mean = {"sm_active_ratio": None, "util_ratio": [0.0] + [None] * 7, "power_w": [350.0] * 8}
    found = told(
        ("JobSample", sample(mean=mean, last={"power_limit_w": [0.0] + [None] * 7}, state=[None, "odd"] + ["ok"] * 6))
    )
    layers = found.fleet.layers()
    assert layers[LAYER["activity"], 0] == UNREAD
    assert layers[LAYER["utilisation"], :2].tolist() == [0, UNREAD]
    assert layers[LAYER["power"], :2].tolist() == [UNREAD, UNREAD]  # of a limit of 0, and of none
    assert layers[LAYER["memory"], 0] == UNREAD
    assert found.fleet.state[:3].tolist() == [UNKNOWN, UNKNOWN, OK]
    assert found.fleet.values(1)["util_ratio"] is None


def test_a_sample_without_states_leaves_them_unknown() -> None:
    data = sample()
    del data["state"]
    assert told(("JobSample", data)).fleet.state[0] == UNKNOWN


def test_a_silent_node_grows_stale_and_its_readings_are_forgotten() -> None:
    found = told(("JobSample", sample()))
    found.tick(T0 + 44 * S)
    assert found.fleet.state[0] == OK
    found.tick(T0 + 46 * S)
    assert found.fleet.state[:8].tolist() == [STALE] * 8
    assert (found.fleet.layers()[2:, :8] == UNREAD).all()
    found.on(inbound("JobSample", sample(at=60)))
    found.tick(T0 + 61 * S)
    assert found.fleet.state[0] == OK


def test_long_windows_are_not_stale_before_three_of_them() -> None:
    found = told(("JobSample", sample(window_ns=60 * S)))
    found.tick(T0 + 170 * S)
    assert found.fleet.state[0] == OK
    found.tick(T0 + 190 * S)
    assert found.fleet.state[0] == STALE


def test_what_a_node_kept_through_an_outage_is_old_when_it_comes() -> None:
    found = model()
    found.on(inbound("JobSample", sample(at=0), ts_ns=T0 + 600 * S))
    found.tick(T0 + 601 * S)
    assert found.fleet.state[0] == STALE


def test_an_older_sample_changes_nothing() -> None:
    found = told(("JobSample", sample(at=20, state=["lost"] * 8)), ("JobSample", sample(at=10)))
    assert found.fleet.state[0] == LOST


def test_parts_of_a_shared_node_come_together_by_index() -> None:
    one = sample(gpus=2, job="1", gpu={"uuid": ["GPU-e", "GPU-f"], "index": [4, 5]})
    two = sample(gpus=2, job="2", gpu={"uuid": ["GPU-a", "GPU-b"], "index": [0, 1]})
    found = told(("JobSample", one), ("JobSample", two))
    assert found.fleet.state[:8].tolist() == [OK, OK, NO_CELL, NO_CELL, OK, OK, NO_CELL, NO_CELL]
    assert [found.fleet.cell_of[name] for name in ("GPU-a", "GPU-e")] == [0, 4]


def test_a_gpu_that_was_replaced_takes_the_place_of_the_one_that_is_gone() -> None:
    found = told(("JobSample", sample(at=0)))
    new = sample(at=100)
    new["gpu"]["uuid"][3] = "GPU-new"
    found.on(inbound("JobSample", new))
    assert found.fleet.cell_of["GPU-new"] == 3
    assert "GPU-n1-3" not in found.fleet.cell_of


def test_a_node_with_more_gpus_than_room_moves_its_neighbours_but_loses_nothing() -> None:
    found = told(
        ("JobSample", sample("n1")), ("JobSample", sample("n2", mean={"temp_c": [70.0 + i for i in range(8)]}))
    )
    before = found.fleet.epoch
    more = sample("n1", at=1, gpus=9)
    found.on(inbound("JobSample", more))
    assert found.fleet.epoch > before
    start = found.fleet.nodes[1].start
    assert start == 16
    assert found.fleet.layers()[LAYER["temperature"], start : start + 8].tolist() == list(range(70, 78))
    assert found.fleet.cell_of["GPU-n2-5"] == start + 5
    assert (found.fleet.node[start : start + 8] == 1).all()
    assert found.fleet.state[8:16].tolist() == [OK] + [NO_CELL] * 7


def test_mig_devices_have_no_cell_of_their_own() -> None:
    data = sample(
        gpus=3,
        job=None,
        gpu={"uuid": ["GPU-a", "MIG-1", "MIG-2"], "index": [0, None, None], "parent": [None, "GPU-a", "GPU-a"]},
    )
    data["job"] = [None, "7", "8"]
    data["several"] = {"0": ["7", "8"]}
    found = told(("JobSample", data))
    assert (found.fleet.state[:8] != NO_CELL).sum() == 1
    assert found.fleet.job[0] == JOB_SEVERAL


def test_a_job_ends_and_may_run_again() -> None:
    found = told(("JobEvent", job_event()), ("JobSample", sample()))
    number = int(found.fleet.job[0])
    found.on(inbound("JobEvent", job_event(at=5, event="ended", end_ts=T0 + 5 * S, state="COMPLETED")))
    assert "81" not in found.jobs
    assert found.job("81").end_ts == T0 + 5 * S  # type: ignore[union-attr]
    found.on(inbound("JobEvent", job_event(at=1)))  # late news
    assert "81" not in found.jobs
    found.on(inbound("JobEvent", job_event(at=9)))
    assert found.jobs["81"].end_ts is None
    found.on(inbound("JobSample", sample(at=10)))
    assert int(found.fleet.job[0]) == number


def test_bounds_hold_and_what_is_beyond_is_counted() -> None:
    found = model(most_nodes=2, most_jobs=1, most_findings=1, most_ended=1)
    for at, node in enumerate(("a", "b", "c")):
        found.on(inbound("JobSample", sample(node, job=str(at))))
        found.on(inbound("Finding", finding(f"f{at}")))
    assert found.fleet.names == ["a", "b"]
    assert found.fleet.refused == 1
    assert list(found.jobs) == ["0"]
    assert found.fleet.job[8] == JOB_UNKNOWN
    assert list(found.findings) == ["f0"]
    assert found.beyond == 3
    for at in range(3):
        found.on(inbound("JobEvent", job_event(f"e{at}", event="ended")))
    assert list(found.ended) == ["e2"]


def test_jobs_that_only_samples_name_are_forgotten_with_their_last_gpu() -> None:
    found = told(("JobSample", sample()))
    found.on(inbound("JobSample", sample(at=100, job="82")))
    found.tick(T0 + 200 * S)
    assert list(found.jobs) == ["82"]


def test_the_worst_open_finding_marks_its_gpus_until_it_is_closed() -> None:
    found = told(
        ("JobSample", sample()), ("Finding", finding(severity="warning")), ("Finding", finding("f2", severity="info"))
    )
    assert found.fleet.severity[:8].tolist() == [0, 0, 0, 2, 0, 0, 0, 0]
    found.on(inbound("Finding", finding(at=9, state="closed", close_reason="well again")))
    found.tick(T0 + 10 * S)
    assert found.fleet.severity[3] == 1
    assert [one["id"] for one in found.closed.values()] == ["f1"]
    found.on(inbound("Finding", finding(at=5)))  # told late
    assert list(found.findings) == ["f2"]


def test_a_finding_of_several_gpus_marks_them_all() -> None:
    entity = {"type": "node", "node": "n1", "gpus": ["GPU-n1-0", "GPU-n1-7", "GPU-elsewhere"]}
    found = told(("JobSample", sample()), ("Finding", finding(entity=entity)))
    assert np.flatnonzero(found.fleet.severity[:8]).tolist() == [0, 7]


def test_slurms_word_on_a_node_is_one_of_a_few() -> None:
    said = {
        "allocated": node_state(),
        "draining": node_state(flags=["DRAIN"]),
        "drained": node_state(state="idle", flags=["DRAIN"]),
        "down": node_state(state="idle", flags=["NOT_RESPONDING"]),
        "reserved": node_state(state="idle", flags=["MAINTENANCE"]),
        "gone": node_state(event="gone"),
        "unknown": node_state(state="future"),
    }
    assert {name: state_of(message) for name, message in said.items()} == {name: name for name in said}


def test_nodes_without_gpus_have_no_place_in_the_picture() -> None:
    found = told(("NodeState", node_state("login", gpus_total=0)), ("NodeState", node_state("n1")))
    assert found.fleet.names == ["n1"]
    assert (found.fleet.state[:8] == NO_CELL).all()


def test_actions_and_controllers_are_kept_newest_first() -> None:
    found = told(("DrainAction", action(at=1)), ("DrainAction", action(at=2)), ("ClusterState", cluster_state()))
    assert [one["ts"] - T0 for one in found.actions] == [2 * S, S]
    assert found.controllers["main"]["controller"] == "up"


def test_a_node_that_slurm_no_longer_has_leaves_when_it_is_silent_too() -> None:
    found = told(("NodeState", node_state()), ("JobSample", sample()))
    found.on(inbound("NodeState", node_state(at=1, event="gone")))
    found.tick(T0 + 40 * S)
    assert found.fleet.state[0] == OK  # its agent still speaks
    found.tick(T0 + 200 * S)
    assert (found.fleet.state[:8] == NO_CELL).all()
    found.on(inbound("JobSample", sample(at=300)))
    assert found.fleet.state[0] == OK  # and if it comes back, it is there
    assert told(("NodeState", node_state("old", event="gone"))).fleet.names == []


def test_a_reading_beyond_all_measure_is_the_highest_colour() -> None:
    found = told(
        (
            "JobSample",
            sample(mean={"power_w": [1e308] * 8, "temp_c": [-1e308] * 8}, last={"power_limit_w": [1e-300] * 8}),
        )
    )
    layers = found.fleet.layers()
    assert layers[LAYER["power"], 0] == 250
    assert layers[LAYER["temperature"], 0] == 0
