"""What a node, its PCIe devices and its NVSwitches become."""

from typing import Any

import pytest
from goldens import schema
from otlpsamples import host_sample, switch_sample

from heeler.otlp import names_node
from heeler.otlp.map_node import host_points, switch_points
from heeler.otlp.points import Points

NODE = {"host.name": "n1", "heeler.cluster": "north"}


def table(made: list[Points]) -> dict[tuple[str, str], tuple[Any, str, str]]:
    """Metric and its own attributes -> value, unit, kind; attributes of the node and device left out."""
    return {
        (p["metric"], ",".join(str(v) for k, v in p["attributes"].items() if k not in NODE and "pci" not in k)): (
            p["value"],
            p["unit"],
            p["kind"],
        )
        for one in made
        for p in one.flat()
    }


def test_a_nodes_processors_load_and_memory_have_conventional_names_and_units() -> None:
    found = table(host_points(host_sample())[:1])
    assert found[("system.cpu.logical.count", "")] == (224, "{cpu}", "updowncounter")
    assert found[("system.cpu.utilization", "user")] == (0.31, "1", "gauge")
    assert found[("system.cpu.utilization", "interrupt")] == (0.01, "1", "gauge")
    assert found[("system.cpu.load_average.1m", "")] == (71.5, "{thread}", "gauge")
    assert found[("heeler.host.threads.uninterruptible", "")] == (3, "{thread}", "gauge")
    assert found[("system.memory.limit", "")] == (2000, "By", "updowncounter")
    assert found[("system.memory.usage", "cached")] == (400, "By", "updowncounter")
    assert found[("system.memory.linux.available", "")] == (1200, "By", "updowncounter")
    assert found[("heeler.host.hugepages.limit", "")] == (8, "By", "updowncounter")
    assert found[("system.paging.usage", "free")] == (60, "By", "updowncounter")


def test_what_is_used_follows_from_what_is_known_and_the_states_add_up_to_the_limit() -> None:
    found = table(host_points(host_sample()))
    assert found[("system.memory.usage", "used")][0] == 1000
    assert found[("system.paging.usage", "used")][0] == 4
    states = [value for (metric, _), (value, _, _) in found.items() if metric == "system.memory.usage"]
    assert sum(states) == 2000


@pytest.mark.parametrize("lost", ["total", "free", "buffers", "cached"])
def test_nothing_is_used_where_a_part_is_not_known(lost: str) -> None:
    memory = {key: value for key, value in host_sample()["memory_bytes"].items() if key != lost}
    assert ("system.memory.usage", "used") not in table(host_points(host_sample(memory_bytes=memory)))


def test_pressure_is_a_share_of_each_window_and_a_time_that_grows() -> None:
    found = table(host_points(host_sample()))
    assert found[("heeler.host.pressure", "io,full,10s")] == (0.25, "1", "gauge")
    assert found[("heeler.host.pressure", "io,full,300s")] == (1.0, "1", "gauge")
    assert found[("heeler.host.pressure.time", "io,full")] == (12.5, "s", "counter")


def test_time_of_guests_is_not_counted_twice() -> None:
    found = table(host_points(host_sample()))
    assert ("system.cpu.utilization", "guest") not in found
    assert found[("heeler.host.cpu.guest", "")][0] == 0.3


def test_a_sample_without_anything_has_no_points() -> None:
    bare = {key: host_sample()[key] for key in ("v", "cluster", "node", "ts", "boot", "seq")}
    (made,) = host_points(bare)
    assert len(made) == 0
    assert made.ids == ["host"]


def test_pcie_errors_are_those_of_their_device() -> None:
    _, devices = host_points(host_sample())
    points = [(p["metric"], p["attributes"], p["value"]) for p in devices.flat()]
    gpu = {**NODE, "heeler.pci.address": "0000:3b:00.0", "heeler.pci.class": "gpu"}
    disk = {**NODE, "heeler.pci.address": "0000:86:00.0", "heeler.pci.class": "nvme"}
    disk["heeler.pci.parent"] = "0000:85:00.0"
    assert points == [
        ("heeler.pcie.errors", {**gpu, "error.type": "correctable"}, 3),
        ("heeler.pcie.errors", {**gpu, "error.type": "nonfatal"}, 0),
        ("heeler.pcie.errors", {**disk, "error.type": "fatal"}, 1),
        ("heeler.pcie.errors.kind", {**gpu, "error.type": "RxErr"}, 3),
    ]


def test_what_a_newer_agent_reads_of_memory_goes_out_under_its_name_and_what_is_no_name_is_counted() -> None:
    memory = {"zswapped": 7, "Ünicode": 8}
    made = host_points(host_sample(memory_bytes=memory, cpu_ratio={"sleepy": 0.5}, pressure={"gpu_some": {"x": 1}}))
    assert table(made[:1])[("heeler.host.memory.zswapped", "")] == (7, "By", "updowncounter")
    assert made[0].skipped == 3


# What is no number, or is mapped by a table of its own.
BY_HAND = {"v", "cluster", "node", "ts", "boot", "seq", "window_ns", "absent"}
BY_TABLE = {"cpu_ratio", "memory_bytes", "pressure", "aer"}
LISTS = {"uninterruptible"}  # processes come and go: a series for each would have no end


def test_every_key_of_a_host_sample_is_mapped_or_known_not_to_be_a_metric() -> None:
    known = {*names_node.HOST, *BY_HAND, *BY_TABLE, *LISTS}
    assert set(schema("HostSample")["properties"]) == known


@pytest.mark.parametrize("key", ["cpu_ratio", "memory_bytes", "pressure"])
def test_every_word_that_the_schema_names_has_a_metric(key: str) -> None:
    text = schema("HostSample")["properties"][key]["description"]
    words = [word.strip(" .") for word in text.partition(":")[2].split("(")[0].split(",")] if ":" in text else []
    words = words or [word.strip(" .") for word in text.split(",")]
    assert len(words) >= 7
    for word in words:
        if key == "pressure":
            numbers = schema("HostSample")["properties"][key]["additionalProperties"]["properties"]
            assert all(names_node.pressure(word, number) for number in numbers), word
        else:
            assert word in (names_node.CPU if key == "cpu_ratio" else names_node.MEMORY)


def test_switches_and_their_links_have_points_with_the_units_of_their_names() -> None:
    switches, links = switch_points(switch_sample())
    found = [(p["metric"], p["attributes"]["hw.id"], p["value"], p["unit"], p["kind"]) for p in switches.flat()]
    assert found == [
        ("heeler.nvswitch.temp", "SWX-a", 41, "Cel", "gauge"),
        ("heeler.nvswitch.temp", "nvswitch1", 43, "Cel", "gauge"),
        ("heeler.nvswitch.errors", "SWX-a", 2, "{error}", "counter"),
        ("heeler.nvswitch.power", "nvswitch1", 81.5, "W", "gauge"),
    ]
    about = {**NODE, "hw.id": "SWX-a", "heeler.nvswitch.index": 0, "heeler.pci.address": "0000:c4:00"}
    assert links.attributes == [tuple({**about, "heeler.nvswitch.link": 33}.items())]
    linked = [(p["metric"], p["attributes"].get("network.io.direction"), p["unit"], p["kind"]) for p in links.flat()]
    assert linked == [
        ("heeler.nvswitch.link.throughput", "transmit", "By/s", "gauge"),
        ("heeler.nvswitch.link.bytes", "receive", "By", "counter"),
        ("heeler.nvswitch.link.errors", None, "{error}", "counter"),
    ]


def test_a_node_without_links_has_points_of_its_switches_only() -> None:
    assert [one.scope[0] for one in switch_points(switch_sample(links=[]))] == ["switch"]
    assert switch_points(switch_sample(switches=[], links=[])) == []


@pytest.mark.parametrize(
    ("name", "metric", "unit", "attributes"),
    [
        ("voltage_mv", "heeler.nvswitch.voltage", "V", ()),
        ("power_vdd_w", "heeler.nvswitch.power_vdd", "W", ()),
        ("fatal_sxid", "heeler.nvswitch.fatal_sxid", "1", ()),
        ("tx_throughput_raw", "heeler.nvswitch.throughput_raw", "1", (("network.io.direction", "transmit"),)),
        ("non_fatal_errors", "heeler.nvswitch.errors", "{error}", (("error.type", "non_fatal"),)),
        ("errors", "heeler.nvswitch.errors", "{error}", ()),
        ("rx_packets", "heeler.nvswitch.packets", "{packet}", (("network.io.direction", "receive"),)),
    ],
)
def test_a_value_of_a_switch_is_named_by_its_own_name(
    name: str, metric: str, unit: str, attributes: tuple[tuple[str, str], ...]
) -> None:
    found = names_node.switch(name, link=False)
    assert found is not None
    assert (found.name, found.unit, found.attributes) == (metric, unit, attributes)


@pytest.mark.parametrize("name", ["", "Ünicode", "a b", "9lives", "_c"])
def test_what_can_be_no_name_has_no_metric(name: str) -> None:
    assert names_node.switch(name, link=True) is None
