"""From messages to points and records."""

from typing import Any

import pytest
from goldens import good, schema
from otlpsamples import T0, WINDOW, agent_status, drain_action, finding, ib_sample, job_sample, kernel_event

from heeler.bus import decode
from heeler.otlp import logs, names, names_node
from heeler.otlp.map import LOGS, METRICS, agent_points, gpu_points, ib_points
from heeler.otlp.names import Kind
from heeler.otlp.points import Points

WHO = {
    "hw.id": "GPU-n1-0",
    "hw.type": "gpu",
    "hw.name": "gpu0",
    "hw.model": "NVIDIA H100 80GB HBM3",
    "host.name": "n1",
    "heeler.cluster": "north",
    "heeler.gpu.index": 0,
    "slurm.job.id": "81234",
    "slurm.user": "alice",
    "slurm.account": "ml",
    "slurm.partition": "gpu",
}


def find(points: Points, metric: str, **tags: str) -> list[dict[str, Any]]:
    wanted = {key.replace("__", "."): value for key, value in tags.items()}
    return [p for p in points.flat() if p["metric"] == metric and wanted.items() <= p["attributes"].items()]


def test_units_are_base_units_and_counters_are_not_gauges() -> None:
    points = gpu_points(job_sample(gpus=1))
    seen = {
        (p["metric"], p["unit"], p["kind"], p["value"])
        for p in points.flat()
        if not p["metric"].startswith("hw.status")
    }
    assert seen == {
        ("hw.power", "W", "gauge", 402.0),
        ("hw.gpu.utilization", "1", "gauge", 0.97),
        ("hw.gpu.memory.usage", "By", "updowncounter", 85520809984),
        ("hw.gpu.memory.limit", "By", "updowncounter", 85899345920),
        ("hw.gpu.memory.utilization", "1", "gauge", 85520809984 / 85899345920),
        ("heeler.gpu.clock.frequency", "Hz", "gauge", 1980e6),
        ("hw.temperature", "Cel", "gauge", 55.5),
        ("hw.energy", "J", "counter", 1000.5),
        ("hw.errors", "{error}", "counter", 7),
        ("heeler.gpu.slowdown.time", "s", "counter", 2.5),
        ("heeler.gpu.clock.event_reasons", "1", "gauge", 8),
    }


def test_every_point_says_whose_it_is() -> None:
    for point in gpu_points(job_sample(gpus=1)).flat():
        assert point["attributes"].items() >= WHO.items()
        assert point["ts"] == T0


def test_a_point_has_its_own_attributes_beside_the_gpus() -> None:
    points = gpu_points(job_sample(gpus=1))
    assert find(points, "hw.errors")[0]["attributes"] == {**WHO, "error.type": "corrected"}
    assert find(points, "hw.gpu.utilization")[0]["attributes"] == {**WHO, "hw.gpu.task": "general"}


def test_what_was_not_read_has_no_point() -> None:
    sample = job_sample(mean={"power_w": [None, 300.0], "temp_c": [None, None]}, last={}, state=["unknown", None])
    points = gpu_points(sample)
    assert [(p["metric"], p["attributes"]["hw.id"]) for p in points.flat()] == [("hw.power", "GPU-n1-1")]
    assert len(points) == 1


def test_an_attribute_that_is_not_known_is_left_out() -> None:
    sample = job_sample(
        gpu={"uuid": ["GPU-a"], "index": [None], "model": [None]},
        mean={"power_w": [1.0]},
        last={},
        state=["ok"],
        job=[None],
        jobs={},
    )
    assert find(gpu_points(sample), "hw.power")[0]["attributes"] == {
        "hw.id": "GPU-a",
        "hw.type": "gpu",
        "host.name": "n1",
        "heeler.cluster": "north",
    }


@pytest.mark.parametrize("about", [{}, {"81234": {}}, {"81234": {"user": "", "account": None, "partition": 7}}])
def test_a_job_of_which_nothing_more_is_known_is_still_named(about: dict[str, Any]) -> None:
    found = find(gpu_points(job_sample(gpus=1, jobs=about)), "hw.power")[0]["attributes"]
    assert {key for key in found if key.startswith("slurm.")} == {"slurm.job.id"}


def test_index_zero_is_an_index() -> None:
    assert find(gpu_points(job_sample(gpus=1)), "hw.power")[0]["attributes"]["heeler.gpu.index"] == 0


def test_a_gpu_sample_without_jobs_is_mapped_too() -> None:
    sample = {key: value for key, value in job_sample(gpus=1).items() if key not in ("job", "jobs", "shard")}
    assert "slurm.job.id" not in find(gpu_points(sample), "hw.power")[0]["attributes"]


@pytest.mark.parametrize(("state", "good", "failed"), [("ok", 1, 0), ("lost", 0, 1), ("hung", 0, 1)])
def test_a_gpu_that_is_lost_or_hung_has_failed(state: str, good: int, failed: int) -> None:
    points = gpu_points(job_sample(gpus=1, state=[state]))
    assert find(points, "hw.status", hw__state="ok")[0]["value"] == good
    assert find(points, "hw.status", hw__state="failed")[0]["value"] == failed


def test_memory_of_size_zero_has_no_utilisation() -> None:
    points = gpu_points(job_sample(gpus=1, mean={"fb_used_bytes": [5], "fb_total_bytes": [0]}))
    assert find(points, "hw.gpu.memory.utilization") == []


def test_a_column_of_a_newer_agent_goes_out_with_the_unit_of_its_name() -> None:
    points = gpu_points(job_sample(gpus=1, mean={"vreg_temp_c": [50.0], "video_clock_mhz": [1500]}, last={"foo": [1]}))
    assert find(points, "heeler.gpu.vreg_temp")[0]["unit"] == "Cel"
    assert find(points, "heeler.gpu.video_clock")[0]["value"] == 1500e6
    assert find(points, "heeler.gpu.foo")[0]["kind"] == "gauge"


@pytest.mark.parametrize("column", ["", "Ünicode", "a b", "a" * 100, "x\n", "9lives", 'q"'])
def test_a_column_that_can_be_no_name_is_counted_and_costs_nothing_else(column: str) -> None:
    points = gpu_points(job_sample(gpus=2, mean={column: [1.0, 2.0], "power_w": [3.0, 4.0]}))
    assert points.skipped == 2
    assert len(find(points, "hw.power")) == 2


def test_ended_jobs_leave_no_series_behind() -> None:
    before = find(gpu_points(job_sample(gpus=1)), "hw.power")
    after = find(gpu_points(job_sample(gpus=1, window=1, job=[None], jobs={})), "hw.power")
    assert before[0]["attributes"]["slurm.job.id"] == "81234"
    assert not any(key.startswith("slurm.") for key in after[0]["attributes"])


def test_port_counters_are_cumulative_with_directions() -> None:
    points = ib_points(ib_sample())
    sent = find(points, "hw.network.io", network__io__direction="transmit")[0]
    assert (sent["value"], sent["unit"], sent["kind"]) == (10_000, "By", "counter")
    assert find(points, "hw.errors", error__type="port_rcv_errors", network__io__direction="receive")[0]["value"] == 2
    assert find(points, "hw.errors", error__type="link_downed")[0]["value"] == 1
    assert find(points, "heeler.network.rx_new_thing")[0]["value"] == 4
    assert sent["attributes"] == {
        "hw.id": "mlx5_0/1",
        "hw.type": "network",
        "hw.name": "mlx5_0/1",
        "hw.network.physical_address": "a0:b1",
        "host.name": "n1",
        "heeler.cluster": "north",
        "heeler.network.link_layer": "infiniband",
        "network.io.direction": "transmit",
    }


def test_a_saturated_counter_says_nothing() -> None:
    points = ib_points(ib_sample(saturated=["link_downed"]))
    assert find(points, "hw.errors", error__type="link_downed") == []
    assert len(find(points, "hw.errors", error__type="port_rcv_errors")) == 1


@pytest.mark.parametrize(
    ("state", "up", "speed"), [("active", [1], [50e9]), ("down", [0], []), ("init", [0], []), ("unknown", [], [])]
)
def test_link_speed_counts_only_while_the_port_is_active(state: str, up: list[int], speed: list[float]) -> None:
    points = ib_points(ib_sample(state=state))
    assert [p["value"] for p in find(points, "hw.network.up")] == up
    assert [p["value"] for p in find(points, "hw.network.bandwidth.limit")] == speed


def test_a_port_named_twice_has_its_points_once() -> None:
    sample = ib_sample()
    sample["ports"] *= 2
    assert len(find(ib_points(sample), "hw.network.up")) == 1


def test_agents_and_their_collectors_have_points() -> None:
    points = agent_points(agent_status())
    assert [p["value"] for p in find(points, "heeler.agent.collector.up", heeler__collector="nvml")] == [1]
    assert find(points, "heeler.agent.collector.up", heeler__collector="ib") == []
    assert find(points, "heeler.agent.collector.duration")[0]["value"] == pytest.approx(0.003)
    assert find(points, "heeler.agent.dropped_samples")[0]["value"] == 3
    assert points.start_ns == T0 - 5 * WINDOW


def test_a_ports_netdev_and_bond_are_read() -> None:
    port: dict[str, Any] = {
        "carrier": True,
        "carrier_changes": 7,
        "carrier_down_count": 3,
        "speed_mbps": 400_000,
        "bond": "bond0",
    }
    points = ib_points(ib_sample(**port))
    assert find(points, "heeler.network.carrier")[0]["value"] == 1
    lost = find(points, "heeler.network.carrier.losses")[0]
    assert (lost["value"], lost["kind"]) == (3, "counter")
    assert find(points, "heeler.network.interface.speed")[0]["value"] == 50e9
    assert lost["attributes"]["heeler.network.bond"] == "bond0"


def test_a_bond_and_its_members_are_up_or_not() -> None:
    slaves = [{"netdev": "eth0", "mii_status": "up", "link_failures": 2}, {"netdev": "eth1", "mii_status": "down"}]
    sample = {**ib_sample(), "bonds": [{"name": "bond0", "mii_status": "up", "slaves": slaves}, {"name": "bond1"}]}
    _, bonds = METRICS["IbSample"](sample)
    found = [(p["attributes"].get("network.interface.name"), p["value"]) for p in find(bonds, "heeler.network.bond.up")]
    assert found == [(None, 1), ("eth0", 1), ("eth1", 0)]
    (failures,) = find(bonds, "heeler.network.bond.link_failures")
    assert (failures["value"], failures["attributes"]["heeler.network.bond"]) == (2, "bond0")


def test_nvlinks_that_a_sample_names_have_points_beside_those_of_their_gpu() -> None:
    links = [[1, 4, False, {"crc_errors": 3, "symbol_ber": 1e-9, "new_thing": 5}], [0, 17, None, {}], [0, 2, True, {}]]
    gpus, points = METRICS["JobSample"](job_sample(nvlinks=links))
    assert len(gpus) == len(gpu_points(job_sample()))
    up = {(p["attributes"]["hw.id"], p["attributes"]["heeler.nvlink.link"]): p["value"] for p in points.flat()
          if p["metric"] == "heeler.gpu.nvlink.link.up"}  # fmt: skip
    assert up == {("GPU-n1-1", 4): 0, ("GPU-n1-0", 2): 1}
    (crc,) = find(points, "heeler.gpu.nvlink.link.errors", error__type="crc")
    assert (crc["value"], crc["kind"], crc["attributes"]["slurm.job.id"]) == (3, "counter", "81234")
    assert find(points, "heeler.gpu.nvlink.link.symbol_errors.ratio")[0]["value"] == 1e-9
    assert find(points, "heeler.gpu.nvlink.link.new_thing")[0]["value"] == 5


@pytest.mark.parametrize(
    "row", [[], [0], [9, 1, True, {}], [0, "1", True, {}], [0, 1, "up", {}], [0, 1, True, []], [-1, 1, True, {}]]
)
def test_a_row_that_is_no_link_costs_nothing_else(row: list[Any]) -> None:
    _, points = METRICS["JobSample"](job_sample(nvlinks=[row, [0, 1, True, {"crc_errors": "many", "x y": 1}]]))
    assert [p["metric"] for p in points.flat()] == ["heeler.gpu.nvlink.link.up"]


def test_power_says_whether_it_is_a_mean_or_of_the_moment() -> None:
    def kinds(*kind: str | None) -> list[str | None]:
        sample = job_sample(gpu={"uuid": ["GPU-a", "GPU-b"], "power_kind": list(kind)})
        return [p["attributes"].get("heeler.power.kind") for p in find(gpu_points(sample), "hw.power")]

    assert kinds("average", "average") == ["average", "average"]
    assert kinds(None, None) == [None, None]
    assert kinds("instant", "average") == ["average", "instant"]
    assert kinds("instant", None) == [None, "instant"]


def test_a_finding_is_a_record_with_its_evidence() -> None:
    entry = logs.finding(finding())
    assert (entry.severity, entry.severity_text, entry.ts_ns) == (17, "ERROR", T0 + WINDOW)
    assert entry.body.startswith("GPU 0 on n1")
    assert entry.attributes["heeler.finding.id"] == "f1"
    assert entry.attributes["hw.id"] == "GPU-n1-0"
    assert entry.attributes["heeler.gpu.index"] == 0
    assert entry.attributes["heeler.finding.evidence"][0]["peers"] == 511
    assert not {"heeler.finding.close_reason", "heeler.finding.incident"} & entry.attributes.keys()
    assert logs.finding(finding(incident="i1")).attributes["heeler.finding.incident"] == "i1"


@pytest.mark.parametrize(("severity", "number"), [("info", 9), ("warning", 13), ("critical", 17), ("unknown", 0)])
def test_severities_are_those_of_open_telemetry(severity: str, number: int) -> None:
    assert logs.finding(finding(severity=severity)).severity == number


def test_a_drain_that_was_only_proposed_says_so() -> None:
    assert logs.drain_action(drain_action()).body == "n1: drain proposed (dry run): lagging GPU"
    assert logs.drain_action(drain_action(verdict="failed")).severity == 17
    order = logs.drain_action(drain_action(verdict="ordered", node="*", command="pause", actor="jane", dry_run=False))
    assert order.body == "jane: pause ordered: lagging GPU"
    assert "host.name" not in order.attributes, "it concerns no node"
    assert order.attributes["heeler.drain.command"] == "pause"
    assert logs.drain_action(drain_action(verdict="tripped", node="*")).severity == 17


def test_a_kernel_line_is_not_judged() -> None:
    entry = logs.kernel_event(kernel_event())
    assert entry.severity == 0
    assert entry.body.startswith("NVRM: Xid")
    assert entry.attributes["heeler.kernel.code"] == 79
    assert entry.attributes["slurm.job.id"] == "81234"


def test_what_only_nvml_saw_has_words_and_its_witness() -> None:
    event = {key: value for key, value in kernel_event().items() if key not in ("raw", "text", "code")}
    entry = logs.kernel_event({**event, "kind": "gpu_event", "witness": ["nvml"], "detail": {"event": "poison"}})
    assert entry.body == "gpu_event poison"
    assert entry.attributes["heeler.kernel.witness"] == ["nvml"]
    assert "heeler.kernel.code" not in entry.attributes


def test_a_kernel_line_of_two_jobs_names_both_and_no_single_one() -> None:
    entry = logs.kernel_event(kernel_event(jobs=["1", "2"]))
    assert entry.attributes["slurm.job.ids"] == ["1", "2"]
    assert "slurm.job.id" not in entry.attributes


def test_every_column_of_the_contract_has_a_name() -> None:
    listed = {(group, column) for group, table in names.GPU.items() for column in table}
    for group in ("mean", "min", "max", "last"):
        columns = _schema_columns(group)
        assert columns == {column for which, column in listed if which == group}


def _schema_columns(group: str) -> set[str]:
    return set(schema("GpuSample")["properties"][group]["properties"])


@pytest.mark.parametrize("group", ["mean", "min", "max", "last"])
def test_the_unit_of_a_metric_follows_from_the_unit_of_its_column(group: str) -> None:
    scaled = {"MHz": ("Hz", 1e6), "ns": ("s", 1e-9)}
    for column, about in schema("GpuSample")["properties"][group]["properties"].items():
        metric = names.GPU[group][column]
        assert (metric.unit, metric.scale) == scaled.get(about["x-unit"], (about["x-unit"], None)), column


# What is no number of the port itself: who it is, and what is mapped by hand.
PORT_BY_HAND = {
    *("device", "port", "guid", "netdev", "link_layer", "pci", "bond", "lid", "sm_lid", "phys_state", "operstate"),
    *("state", "rate_gbps", "counters", "saturated", "absent"),
}


def test_every_key_of_a_port_is_mapped_or_known_not_to_be_a_metric() -> None:
    assert set(schema("IbSample")["properties"]["ports"]["items"]["properties"]) == {*names.PORT, *PORT_BY_HAND}


def test_every_number_of_an_agent_status_has_a_name() -> None:
    numbers = {
        key
        for key, about in schema("AgentStatus")["properties"].items()
        if about["type"] in ("integer", "number") and key not in ("v", "ts", "seq", "started_ts", "interval_ns")
    }
    assert numbers == set(names.AGENT)


def test_no_two_columns_make_the_same_series() -> None:
    for tables in (
        [*names.GPU.values(), {"m": names.MEMORY_UTILIZATION}],
        [names.IB, names.PORT],
        [names.AGENT, names.COLLECTOR],
        [names_node.HOST, names_node.CPU, names_node.MEMORY],
    ):
        series = [(metric.name, metric.attributes) for table in tables for metric in table.values()]
        assert len(series) == len(set(series))


def test_a_name_has_one_unit_and_one_kind() -> None:
    tables = [*names.GPU.values(), names.IB, names.PORT, names.BOND, names.AGENT, names.COLLECTOR, names_node.AER]
    tables += [names_node.HOST, names_node.CPU, names_node.MEMORY]
    every = [m for table in tables for m in table.values()]
    every += [names.of_mig(m) for table in names.GPU.values() for m in table.values() if names.adds_up(m)]
    links = (names.of_link(column.removeprefix("nvlink_")) for column in names.GPU["last"] if "nvlink" in column)
    every += [metric for metric in links if metric is not None]
    assert len({metric.name for metric in every}) == len({(m.name, m.unit, m.kind) for m in every})


# Named as the Collector's host receiver names them: the conventions say nothing of load.
LOAD = {"system.cpu.load_average.1m", "system.cpu.load_average.5m", "system.cpu.load_average.15m"}


def test_conventional_names_are_conventional() -> None:
    """Against the package of the conventions: name, unit and instrument."""
    from opentelemetry.semconv._incubating.metrics import hw_metrics, system_metrics

    tables = [*names.GPU.values(), names.IB, names_node.HOST, names_node.CPU, names_node.MEMORY]
    every = [m for table in tables for m in table.values()]
    every += [names.MEMORY_UTILIZATION, names.STATUS_OK, names.NETWORK_UP, names.NETWORK_LIMIT]
    every += [names_node.MEMORY_USED, names_node.SWAP_USED]
    ours = {m.name: m for m in every if m.name.startswith(("hw.", "system.")) and m.name not in LOAD}
    makers = {
        getattr(module, name): getattr(module, f"create_{name.lower()}")
        for module in (hw_metrics, system_metrics)
        for name in dir(module)
        if name.startswith(("HW_", "SYSTEM_"))
    }
    kinds = {"ObservableGauge": Kind.GAUGE, "Counter": Kind.COUNTER, "UpDownCounter": Kind.UPDOWN}
    assert len(ours) > 20
    for name, metric in ours.items():
        maker = makers[name]
        assert kinds[maker.__annotations__["return"].__name__] is metric.kind, name
        assert f'unit="{metric.unit}"' in _source(maker), name


def test_values_of_conventional_attributes_are_conventional() -> None:
    from opentelemetry.semconv._incubating.attributes import hw_attributes, network_attributes

    known = {
        "hw.limit_type": {value.value for value in hw_attributes.HwLimitTypeValues},
        "hw.gpu.task": {value.value for value in hw_attributes.HwGpuTaskValues},
        "network.io.direction": {value.value for value in network_attributes.NetworkIoDirectionValues},
    }
    for table in (*names.GPU.values(), names.IB):
        for metric in table.values():
            for key, value in metric.attributes:
                assert value in known.get(key, {value}), metric


def _source(function: Any) -> str:
    import inspect

    return inspect.getsource(function)


@pytest.mark.parametrize("kind", [*METRICS, *LOGS])
def test_every_golden_vector_can_be_mapped(kind: str) -> None:
    table: Any = {**METRICS, **LOGS}
    vectors = list(good(kind))
    assert vectors
    for _, payload, _ in vectors:
        made = table[kind](decode(kind, payload))
        for one in made if isinstance(made, list) else [made] if made else []:
            assert len(list(one.flat())) == len(one)
