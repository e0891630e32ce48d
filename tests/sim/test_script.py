"""Fault scripts: what they may say, and how victims are drawn."""

import json

import pytest
from simlab import EPOCH_NS, cluster, large_job

from heeler.sim.control import Control
from heeler.sim.script import Casting, ScriptError, Spec, duration_ns, parse
from heeler.sim.units import NS_PER_S


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("0s", 0), ("1.5s", 1.5)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration_ns(text) == seconds * NS_PER_S


@pytest.mark.parametrize("text", ["", "90", "s", "5 minutes", "-3s", "3s later"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ScriptError, match="no duration"):
        duration_ns(text)


def test_all_mistakes_of_a_script_are_told_at_once() -> None:
    script = """
        speed = 3
        [[fault]]
        kind = "meteor"
        [[fault]]
        kind = "thermal"
        when = "3s"
        params = {clock_mhz = "low", wind = 3}
    """
    with pytest.raises(ScriptError) as err:
        parse(script)
    words = str(err.value)
    assert all(part in words for part in ("unknown key 'speed'", "fault 1: unknown kind 'meteor'", "fault 2", "when"))


def test_text_where_a_number_belongs_is_refused() -> None:
    with pytest.raises(ScriptError, match="no number"):
        parse('[[fault]]\nkind = "thermal"\nparams = {clock_mhz = "low"}')


def test_what_is_no_toml_is_refused_in_one_line() -> None:
    with pytest.raises(ScriptError):
        parse("[[fault]")


def test_victims_follow_from_the_seed_and_no_node_is_drawn_twice() -> None:
    simulation = cluster()
    jobs = simulation.schedule.active(EPOCH_NS)

    def draw(seed: int) -> list[tuple[int, int | None]]:
        casting = Casting(simulation.fleet, seed)
        faults = [casting.cast(Spec("thermal", target={"job_nodes": 16}), jobs, EPOCH_NS) for _ in range(12)]
        return [(fault.node, fault.gpu) for fault in faults]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert len({node for node, _ in draw(1)}) == 12


def test_a_target_narrows_the_choice() -> None:
    simulation = cluster()
    jobs, job = simulation.schedule.active(EPOCH_NS), large_job(simulation)
    names = [simulation.fleet.nodes[node].name for node in job.nodes[:2]]
    casting = Casting(simulation.fleet, 1)
    fault = casting.cast(Spec("thermal", target={"among": names, "gpu": 3}), jobs, EPOCH_NS)
    assert (simulation.fleet.nodes[fault.node].name in names, fault.gpu, fault.job_id) == (True, 3, job.id)
    fault = casting.cast(Spec("ib_flap", target={"job": job.id, "port": 6}), jobs, EPOCH_NS)
    assert (fault.node in job.nodes, fault.port, fault.gpu) == (True, 6, None)
    fault = casting.cast(Spec("zombie"), jobs, EPOCH_NS)
    assert fault.job_id is None
    assert all(fault.node not in running.nodes for running in jobs)
    fault = casting.cast(Spec("agent_silent", target={"node": names[0]}), jobs, EPOCH_NS)
    assert (simulation.fleet.nodes[fault.node].name, fault.gpu) == (names[0], None)


def test_a_target_that_nothing_fits_is_an_error_and_not_a_random_victim() -> None:
    simulation = cluster()
    with pytest.raises(ScriptError, match="nothing fits"):
        Casting(simulation.fleet, 1).cast(Spec("thermal", target={"job_nodes": 900}), [], EPOCH_NS)
    with pytest.raises(ScriptError, match="nothing fits"):
        Casting(simulation.fleet, 1).cast(Spec("thermal", target={"node": "n999"}), [], EPOCH_NS)


def test_an_order_becomes_a_fault_and_is_answered_with_the_truth() -> None:
    simulation = cluster()
    control = Control(simulation, Casting(simulation.fleet, 1))
    fault, answer = control.order(json.dumps({"kind": "thermal", "target": {"job_nodes": 16}}), EPOCH_NS + 5)
    assert fault is not None
    assert simulation.faults == [fault]
    assert (answer["kind"], answer["at_ns"], answer["gpu_index"]) == ("thermal", EPOCH_NS + 5, fault.gpu)
    assert answer["gpu_uuid"] == simulation.fleet.nodes[fault.node].uuids[answer["gpu_index"]]


@pytest.mark.parametrize(
    "line", ["", "nonsense", "[]", '{"kind": "meteor"}', '{"kind": "hang", "target": {"job": "1"}}']
)
def test_a_bad_order_changes_nothing_and_says_why(line: str) -> None:
    simulation = cluster()
    fault, answer = Control(simulation, Casting(simulation.fleet, 1)).order(line, EPOCH_NS)
    assert fault is None
    assert answer["error"]
    assert simulation.faults == []
