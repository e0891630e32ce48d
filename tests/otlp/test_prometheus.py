"""Names as Prometheus makes them: those of its documentation and of the collector's own tests."""

import pytest

from heeler.otlp.names import Kind
from heeler.otlp.prometheus import label_name, metric_name


@pytest.mark.parametrize(
    ("name", "unit", "kind", "wanted"),
    [
        ("hw.power", "W", Kind.GAUGE, "hw_power_watts"),
        ("hw.energy", "J", Kind.COUNTER, "hw_energy_joules_total"),
        ("hw.temperature", "Cel", Kind.GAUGE, "hw_temperature_celsius"),
        ("hw.network.io", "By", Kind.COUNTER, "hw_network_io_bytes_total"),
        ("hw.network.bandwidth.limit", "By/s", Kind.UPDOWN, "hw_network_bandwidth_limit_bytes_per_second"),
        ("hw.network.up", "1", Kind.UPDOWN, "hw_network_up"),
        ("hw.errors", "{error}", Kind.COUNTER, "hw_errors_total"),
        ("hw.gpu.utilization", "1", Kind.GAUGE, "hw_gpu_utilization_ratio"),
        ("hw.fan.speed_ratio", "1", Kind.GAUGE, "hw_fan_speed_ratio"),
        ("system.cpu.load_average.1m", "{thread}", Kind.GAUGE, "system_cpu_load_average_1m"),
        ("heeler.gpu.clock.event.time", "s", Kind.COUNTER, "heeler_gpu_clock_event_time_seconds_total"),
        ("messages.total", "{message}", Kind.COUNTER, "messages_total"),
        ("uptime.seconds", "s", Kind.GAUGE, "uptime_seconds"),
        ("1st.value", "", Kind.GAUGE, "_1st_value"),
    ],
)
def test_units_and_kinds_become_suffixes(name: str, unit: str, kind: Kind, wanted: str) -> None:
    assert metric_name(name, unit, kind) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("slurm.job.id", "slurm_job_id"), ("hw.sensor_location", "hw_sensor_location"), ("0x", "key_0x")],
)
def test_attributes_become_labels(name: str, wanted: str) -> None:
    assert label_name(name) == wanted
