"""Makes the Grafana dashboards in deploy/docker/grafana/dashboards from the tables here: `python deploy/dev/dashboards.py`.

JSON of dashboards is long and all alike; this is what differs. A test says when the files are not those that this makes.
"""

# ruff: noqa: E501, INP001 - a query is one line; a script, no package

import json
from pathlib import Path
from typing import Any, NamedTuple

OUT = Path(__file__).resolve().parents[1] / "docker/grafana/dashboards"
SOURCE = {"type": "prometheus", "uid": "prometheus"}


class Panel(NamedTuple):
    """A graph, or one of the other types, of queries with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 12
    kind: str = "timeseries"


class Board(NamedTuple):
    """A dashboard: its variables are labels of a metric."""

    uid: str
    title: str
    variables: tuple[tuple[str, str, str], ...]  # name, label shown, query
    panels: tuple[Panel, ...]


CLUSTER = ("cluster", "Cluster", "label_values(hw_status, heeler_cluster)")
C = 'heeler_cluster=~"$cluster"'


def stat(title: str, unit: str, query: str, width: int = 4) -> Panel:
    """Return one number."""
    return Panel(title, unit, ((query, ""),), width, "stat")


def one(title: str, unit: str, query: str, legend: str, width: int = 12) -> Panel:
    """Return a graph of one query."""
    return Panel(title, unit, ((query, legend),), width)


GPU = "{{host_name}} {{hw_name}}"
PORT = "{{host_name}} {{hw_name}}"

BOARDS = (
    Board(
        "heeler-fleet",
        "Heeler: fleet",
        (CLUSTER,),
        (
            stat("GPUs", "none", f'count(hw_status{{{C}, hw_type="gpu", hw_state="ok"}})'),
            stat("GPUs lost or hung", "none", f'sum(hw_status{{{C}, hw_type="gpu", hw_state="failed"}})'),
            stat("GPUs of jobs", "none", f'count(hw_status{{{C}, hw_type="gpu", hw_state="ok", slurm_job_id!=""}})'),
            stat("Mean use of GPUs of jobs", "percentunit", f'avg(heeler_gpu_sm_active_ratio{{{C}, slurm_job_id!=""}})'),
            stat("Power of GPUs", "watt", f"sum(hw_power_watts{{{C}}})"),
            stat("Nodes whose agents speak", "none", f"count(heeler_agent_memory_usage_bytes{{{C}}})"),
            one("Slowest GPUs: SM clock", "hertz", f'bottomk(8, heeler_gpu_clock_frequency_hertz{{{C}, heeler_clock_domain="sm"}})', GPU),
            one("Power per job", "watt", f'topk(20, sum by (slurm_job_id) (hw_power_watts{{{C}, slurm_job_id!=""}}))', "{{slurm_job_id}}"),
            one("Hottest GPUs", "celsius", f'topk(8, hw_temperature_celsius{{{C}, hw_sensor_location="gpu"}})', GPU),
            one("Slowed down, by cause", "percentunit", f"sum by (heeler_slowdown_cause) (rate(heeler_gpu_slowdown_time_seconds_total{{{C}}}[$__rate_interval]))", "{{heeler_slowdown_cause}}"),
            one("GPU memory in use", "bytes", f"sum(hw_gpu_memory_usage_bytes{{{C}}}) / sum(hw_gpu_memory_limit_bytes{{{C}}})", "share"),
            one("Errors of GPUs", "none", f'sum by (error_type) (increase(hw_errors_total{{{C}, hw_type="gpu"}}[1h]))', "{{error_type}}"),
        ),
    ),
    Board(
        "heeler-job",
        "Heeler: job",
        (CLUSTER, ("job_id", "Slurm job", 'label_values(hw_status{heeler_cluster=~"$cluster"}, slurm_job_id)')),
        (
            stat("GPUs", "none", f'count(hw_status{{{C}, hw_state="ok", slurm_job_id=~"$job_id"}})', 6),
            stat("Nodes", "none", f'count(count by (host_name) (hw_status{{{C}, slurm_job_id=~"$job_id"}}))', 6),
            stat("Power", "watt", f'sum(hw_power_watts{{{C}, slurm_job_id=~"$job_id"}})', 6),
            stat("SM active", "percentunit", f'avg(heeler_gpu_sm_active_ratio{{{C}, slurm_job_id=~"$job_id"}})', 6),
            one("SM clock: each GPU against its peers", "hertz", f'heeler_gpu_clock_frequency_hertz{{{C}, heeler_clock_domain="sm", slurm_job_id=~"$job_id"}}', GPU),
            one("SM active", "percentunit", f'heeler_gpu_sm_active_ratio{{{C}, slurm_job_id=~"$job_id"}}', GPU),
            one("Tensor cores active", "percentunit", f'heeler_gpu_tensor_active_ratio{{{C}, slurm_job_id=~"$job_id"}}', GPU),
            one("DRAM active", "percentunit", f'heeler_gpu_dram_active_ratio{{{C}, slurm_job_id=~"$job_id"}}', GPU),
            one("Power", "watt", f'hw_power_watts{{{C}, slurm_job_id=~"$job_id"}}', GPU),
            one("Memory in use", "bytes", f'hw_gpu_memory_usage_bytes{{{C}, slurm_job_id=~"$job_id"}}', GPU),
            one("NVLink, sent", "Bps", f'heeler_gpu_nvlink_throughput_bytes_per_second{{{C}, network_io_direction="transmit", slurm_job_id=~"$job_id"}}', GPU),
            one("Slowed down by heat or power", "percentunit", f'rate(heeler_gpu_slowdown_time_seconds_total{{{C}, heeler_slowdown_cause=~"thermal|power", slurm_job_id=~"$job_id"}}[$__rate_interval])', GPU + " {{heeler_slowdown_cause}}"),
        ),
    ),
    Board(
        "heeler-node",
        "Heeler: node",
        (CLUSTER, ("node", "Node", 'label_values(heeler_agent_memory_usage_bytes{heeler_cluster=~"$cluster"}, host_name)')),
        (
            one("GPU temperature", "celsius", f'hw_temperature_celsius{{{C}, host_name=~"$node"}}', "{{hw_name}} {{hw_sensor_location}}"),
            one("GPU power", "watt", f'hw_power_watts{{{C}, host_name=~"$node"}}', "{{hw_name}}"),
            one("SM clock", "hertz", f'heeler_gpu_clock_frequency_hertz{{{C}, host_name=~"$node", heeler_clock_domain="sm"}}', "{{hw_name}}"),
            one("GPU use", "percentunit", f'hw_gpu_utilization_ratio{{{C}, host_name=~"$node", hw_gpu_task="general"}}', "{{hw_name}} {{slurm_job_id}}"),
            one("GPU errors in an hour", "none", f'increase(hw_errors_total{{{C}, host_name=~"$node", hw_type="gpu"}}[1h])', "{{hw_name}} {{error_type}}"),
            one("PCIe errors in an hour", "none", f'increase(heeler_pcie_errors_total{{{C}, host_name=~"$node"}}[1h]) > 0', "{{heeler_pci_address}} {{error_type}}"),
            one("CPU", "percentunit", f'system_cpu_utilization_ratio{{{C}, host_name=~"$node", cpu_mode!="idle"}}', "{{cpu_mode}}"),
            one("Memory available", "bytes", f'system_memory_linux_available_bytes{{{C}, host_name=~"$node"}}', "{{host_name}}"),
            one("Pressure", "percentunit", f'heeler_host_pressure_ratio{{{C}, host_name=~"$node", heeler_window="60s"}}', "{{heeler_pressure_resource}} {{heeler_pressure_stall}}"),
            one("Threads that wait in the kernel", "none", f'heeler_host_threads_uninterruptible{{{C}, host_name=~"$node"}}', "{{host_name}}"),
            one("Health checks that are not ok", "none", f'heeler_health_check_state{{{C}, host_name=~"$node", heeler_health_outcome=~"warn|bad|unknown"}} == 1', "{{heeler_health_check}} {{heeler_health_outcome}}"),
            one("Collectors of the agent", "none", f'heeler_agent_collector_up_ratio{{{C}, host_name=~"$node"}}', "{{heeler_collector}}"),
        ),
    ),
    Board(
        "heeler-fabric",
        "Heeler: fabric",
        (CLUSTER,),
        (
            stat("Ports up", "none", f"sum(hw_network_up{{{C}}})", 8),
            stat("Ports down", "none", f"count(hw_network_up{{{C}}} == 0)", 8),
            stat("Throughput of ports, sent", "Bps", f'sum(rate(hw_network_io_bytes_total{{{C}, network_io_direction="transmit"}}[$__rate_interval]))', 8),
            one("Busiest ports, sent", "Bps", f'topk(10, rate(hw_network_io_bytes_total{{{C}, network_io_direction="transmit"}}[$__rate_interval]))', PORT),
            one("Ports below the fleet's rate", "Bps", f"bottomk(10, hw_network_bandwidth_limit_bytes_per_second{{{C}}})", PORT),
            one("Errors of ports in an hour", "none", f'topk(10, increase(hw_errors_total{{{C}, hw_type="network"}}[1h]) > 0)', PORT + " {{error_type}}"),
            one("Links that went down in an hour", "none", f'topk(10, increase(hw_errors_total{{{C}, error_type="link_downed"}}[1h]) > 0)', PORT),
            one("Waiting to send (congestion)", "none", f"topk(10, rate(heeler_network_xmit_wait_total{{{C}}}[$__rate_interval]))", PORT),
            one("Carrier changes in an hour", "none", f"topk(10, increase(heeler_network_carrier_changes_total{{{C}}}[1h]) > 0)", PORT),
            one("NVLinks down", "none", f"topk(10, heeler_gpu_nvlink_links{{{C}}} - heeler_gpu_nvlink_links_up{{{C}}} > 0)", GPU),
            one("NVLink errors in an hour", "none", f"topk(10, increase(heeler_gpu_nvlink_errors_total{{{C}}}[1h]) > 0)", GPU + " {{error_type}}"),
            one("PCIe below its width", "none", f"heeler_gpu_pcie_width_limit{{{C}}} - heeler_gpu_pcie_width{{{C}}} > 0", GPU),
        ),
    ),
    Board(
        "heeler-slurm",
        "Heeler: Slurm",
        (("cluster", "Cluster", "label_values(heeler_slurm_controller_state, heeler_cluster)"),),
        (
            stat("Controller answers", "none", f'min(heeler_slurm_controller_state{{{C}, heeler_slurm_controller="up"}})'),
            stat("Age of its last answer", "s", f"time() - min(heeler_slurm_controller_last_success_seconds{{{C}}})"),
            stat("Nodes", "none", f"sum(heeler_slurm_cluster_nodes{{{C}}})"),
            stat("Nodes that can't be used", "none", f"sum(heeler_slurm_cluster_nodes_unavailable{{{C}}})"),
            stat("GPUs allocated", "percentunit", f"sum(heeler_slurm_cluster_gpus_allocated{{{C}}}) / sum(heeler_slurm_cluster_gpus{{{C}}})"),
            stat("GPUs that jobs wait for", "none", f"sum(heeler_slurm_cluster_gpus_pending{{{C}}})"),
            one("Nodes by state", "none", f"sum by (slurm_node_state) (heeler_slurm_cluster_nodes_by_state{{{C}}})", "{{slurm_node_state}}"),
            one("Jobs by state", "none", f"sum by (slurm_job_state) (heeler_slurm_cluster_jobs_by_state{{{C}}})", "{{slurm_job_state}}"),
            one("Why jobs wait", "none", f"topk(8, sum by (slurm_job_reason) (heeler_slurm_cluster_jobs_pending_by_reason{{{C}}}))", "{{slurm_job_reason}}"),
            one("Runs that ended in the last hour", "none", f"sum by (slurm_job_state) (heeler_slurm_cluster_runs_ended_by_state{{{C}}})", "{{slurm_job_state}}"),
            one("GPUs allocated by partition", "none", f"sum by (slurm_partition) (heeler_slurm_partition_gpus_allocated{{{C}}})", "{{slurm_partition}}"),
            one("GPUs allocated by account", "none", f"topk(12, sum by (slurm_account) (heeler_slurm_account_gpus_allocated{{{C}}}))", "{{slurm_account}}"),
            one("RPCs by type", "reqps", f"topk(8, sum by (slurm_rpc_type) (rate(heeler_slurm_sched_rpcs_by_type_total{{{C}}}[$__rate_interval])))", "{{slurm_rpc_type}}"),
            one("How long each table's question takes", "s", f"max by (heeler_slurm_table) (heeler_slurm_table_duration_seconds{{{C}}})", "{{heeler_slurm_table}}"),
        ),
    ),
    Board(
        "heeler-itself",
        "Heeler: Heeler itself",
        (),
        (
            one("Connected to the bus", "none", "min by (process, instance) (heeler_bus_connected)", "{{process}} {{instance}}"),
            one("Messages received", "cps", "sum by (process) (rate(heeler_received_total[$__rate_interval]))", "{{process}}"),
            one("Events made", "cps", "sum by (process) (rate(heeler_events_total[$__rate_interval]))", "{{process}}"),
            one("Dead letters in an hour", "none", "sum by (process) (increase(heeler_dead_letters_total[1h]))", "{{process}}"),
            one("Why messages were refused", "none", "sum by (process, reason) (increase(heeler_refused_total[1h])) > 0", "{{process}} {{reason}}"),
            one("Shards held", "none", "sum by (process, instance) (heeler_shards_held)", "{{process}} {{instance}}"),
            one("Drainers that are active", "none", "sum by (instance) (heeler_drain_active)", "{{instance}}"),
            one("What the drainer said in an hour", "none", "sum by (reason) (increase(heeler_drain_actions_total[1h]))", "{{reason}}"),
            one("Points sent", "cps", "sum by (reason) (rate(heeler_otlp_sent_total[$__rate_interval]))", "{{reason}}"),
            one("Messages that wait for a sink", "none", "sum by (reason) (heeler_otlp_held_messages)", "{{reason}}"),
            one("Agents: events that wait on disk", "none", "topk(10, heeler_agent_spool_events > 0)", "{{host_name}}"),
            one("Agents: memory", "bytes", "max by (heeler_cluster) (heeler_agent_memory_usage_bytes)", "{{heeler_cluster}}"),
            one("Agents: clocks off the bus's", "s", "topk(10, abs(heeler_agent_clock_offset_seconds))", "{{host_name}}"),
            one("Agents: collectors that fail", "none", "count by (heeler_collector) (heeler_agent_collector_up_ratio == 0)", "{{heeler_collector}}"),
        ),
    ),
)  # fmt: skip


def made(board: Board) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    x = y = tallest = 0
    for number, panel in enumerate(board.panels, 1):
        height = 4 if panel.kind == "stat" else 8
        if x + panel.width > 24:
            x, y, tallest = 0, y + tallest, 0
        panels.append(
            {
                "id": number,
                "type": panel.kind,
                "title": panel.title,
                "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
                "datasource": SOURCE,
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + at), "expr": query, **({"legendFormat": legend} if legend else {})}
                    for at, (query, legend) in enumerate(panel.queries)
                ],
            }
        )
        x, tallest = x + panel.width, max(tallest, height)
    return {
        "uid": board.uid,
        "title": board.title,
        "schemaVersion": 41,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "tags": ["heeler"],
        "links": [{"type": "dashboards", "title": "Heeler", "tags": ["heeler"], "asDropdown": True, "keepTime": True}],
        "templating": {"list": [_variable(*variable) for variable in board.variables]},
        "panels": panels,
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {f"{board.uid.removeprefix('heeler-')}.json": json.dumps(made(board), indent=1) + "\n" for board in BOARDS}


def main() -> None:
    """Write all files."""
    for name, text in files().items():
        (OUT / name).write_text(text)


if __name__ == "__main__":
    main()
