"""Plausible messages of everything but a node for the golden vectors, and the tables of all types."""

from typing import Any

from vector_node import (
    JOBS_OF_EVENT,
    NODE,
    SECOND,
    TS,
    U64_MAX,
    UNICODE_NODE,
    agent_status,
    agent_status_maximal,
    gpu_sample,
    gpu_sample_maximal,
    host_sample,
    host_sample_maximal,
    ib_sample,
    ib_sample_maximal,
    inventory,
    inventory_maximal,
    job_sample,
    job_sample_maximal,
    kernel_event,
    kernel_event_maximal,
    prolog_event,
    prolog_event_maximal,
    switch_sample,
    switch_sample_maximal,
    uuid,
)
from vector_site import (
    drain_answer,
    drain_answer_maximal,
    drain_command,
    drain_command_maximal,
    drain_question,
    drain_question_maximal,
    health_request,
    health_request_maximal,
    health_result,
    health_result_maximal,
    health_run,
    health_run_maximal,
    job_record,
    job_record_maximal,
    job_summary,
    job_summary_maximal,
    slurm_table,
    slurm_table_maximal,
)


def job_event() -> dict[str, Any]:
    """Return the start of a job of two nodes."""
    return {
        "v": 1,
        "cluster": "north",
        "ts": TS,
        "event": "started",
        "job_id": "81234",
        "user": "ada",
        "account": "vision",
        "partition": "h100",
        "qos": "normal",
        "name": "pretrain",
        "state": "RUNNING",
        "start_ts": TS - SECOND,
        "nodes": ["gpu-a07", "gpu-a08"],
        "gpus": {"gpu-a07": [0, 1, 2, 3], "gpu-a08": [4, 5, 6, 7]},
        "gpus_source": "slurm_index",
    }


def job_event_maximal() -> dict[str, Any]:
    """Every key; an array task on many nodes."""
    nodes = [f"räck{i}" for i in range(64)]
    return {
        **job_event(),
        "event": "ended",
        "array_job_id": "81200",
        "array_task_id": "34",
        "het_job_id": "81199",
        "user": "åse",
        "name": "訓練 🚀",
        "state": "COMPLETED",
        "submit_ts": TS - 60 * SECOND,
        "end_ts": TS,
        "restarts": 3,
        "nodes": nodes,
        "released": ["räck64"],
        "gpus": {node: list(range(8)) for node in nodes},
        "gpus_source": "whole_node",
        "gpus_per_node": 8,
        "exclusive": True,
        "requeueable": False,
        "requeued": True,
        "failed_node": "gn02",
        "batch": True,
    }


def node_state() -> dict[str, Any]:
    """Return a drained node that still runs a job."""
    return {
        "v": 1,
        "cluster": "north",
        "node": NODE,
        "ts": TS,
        "event": "changed",
        "state": "mixed",
        "flags": ["DRAIN"],
        "available": False,
        "reason": "heeler: xid 79 on GPU 3",
        "reason_user": "heeler",
        "reason_ts": TS - SECOND,
        "gpus_total": 8,
        "gpus_used": 4,
        "cpu_load": 12.5,
    }


def node_state_maximal() -> dict[str, Any]:
    """Every key, with a flag that this version does not know."""
    return {
        **node_state(),
        "node": UNICODE_NODE,
        "flags": ["DRAIN", "NOT_RESPONDING", "BREWING"],
        "unknown_flags": ["BREWING"],
        "reason": "Lüfter defekt, siehe Ticket",
        "partitions": ["h100", "debug"],
        "features": ["ib", "nvme"],
        "gres": "gpu:h100:8(S:0-1)",
        "gres_used": "gpu:h100:4(IDX:0-3)",
        "cpu_load": 0,
        "boot_ts": TS - 86400 * SECOND,
        "reservation": "maint_42",
    }


def cluster_state() -> dict[str, Any]:
    """Return a controller that answers."""
    return {
        "v": 1,
        "cluster": "north",
        "feed": "slurm-0",
        "ts": TS,
        "controller": "up",
        "last_success_ts": TS,
        "jobs": 812,
        "nodes": 1024,
    }


def cluster_state_maximal() -> dict[str, Any]:
    """Return a controller that does not."""
    return {
        **cluster_state(),
        "controller": "down",
        "why": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "jobs": U64_MAX,
        "nodes": U64_MAX,
        "source": "squeue --json",
        "slurm_version": "24.11.5",
        "duration_ns": U64_MAX,
        "unreadable": {"jobs": 2},
        "outages": {"jobs": "squeue: exit status 1", "users": "sacctmgr: no answer in 300 s"},
    }


def finding() -> dict[str, Any]:
    """Return a GPU that lags behind its peers."""
    return {
        "v": 1,
        "cluster": "north",
        "id": "gpu_lag-3f9a1c",
        "kind": "gpu_lag",
        "state": "open",
        "severity": "warning",
        "confidence": 0.93,
        "entity": {"type": "gpu", "node": NODE, "gpu_uuid": uuid(3), "gpu_index": 3},
        "node": NODE,
        "job_id": "81234",
        "cause": "thermal_slowdown",
        "first_ts": TS - 300 * SECOND,
        "ts": TS,
        "data_ts": TS - SECOND,
        "evidence": [
            {
                "metric": "sm_clock_mhz",
                "value": 1410,
                "unit": "MHz",
                "peers_median": 1755,
                "peers_mad": 7.5,
                "peers": 63,
                "deviation_ratio": -0.1966,
                "windows": 27,
                "of_windows": 30,
            },
            {"metric": "log", "text": "thermal slowdown active"},
        ],
        "impact": {},
        "advice": "drain_after_job",
        "summary": "GPU 3 of gpu-a07 runs 20 % below its 63 peers, slowed down for heat.",
    }


def finding_maximal() -> dict[str, Any]:
    """Every key of everything."""
    evidence = {**finding()["evidence"][0], "value": "überhitzt", "text": "hot", "peers": U64_MAX}
    entity = {"pci": "0000:3b:00", "port": "mlx5_0/1", "job_id": "81234", "node": UNICODE_NODE}
    return {
        **finding(),
        "state": "closed",
        "severity": "critical",
        "confidence": 1,
        "entity": {**finding()["entity"], **entity},
        "node": UNICODE_NODE,
        "jobs": [str(81234 + i) for i in range(64)],
        "evidence": [evidence] * 3,
        "impact": {"job_slowdown_ratio": 1.25},
        "advice": "drain_now",
        "code": 145,
        "count": U64_MAX,
        "close_reason": "node drained",
        "incident": "incident-5f3c2a91d0-1767220000000",
    }


def drain_action() -> dict[str, Any]:
    """Return a node that would have been drained."""
    return {
        "v": 1,
        "cluster": "north",
        "id": "drain-3f9a1c-1",
        "finding_id": "gpu_lag-3f9a1c",
        "node": NODE,
        "ts": TS,
        "verdict": "proposed",
        "dry_run": True,
        "reason": "heeler: gpu_lag on GPU 3",
        "why": "confidence 0.93 and 27 of 30 windows",
        "rule": "gpu_lag",
        "actor": "drain-0",
    }


def drain_action_maximal() -> dict[str, Any]:
    """Every key."""
    return {
        **drain_action(),
        "node": UNICODE_NODE,
        "verdict": "verified",
        "dry_run": False,
        "actor": "jürgen@example.org",
        "finding_ts": TS - SECOND,
        "kind": "gpu_lag",
        "job_id": "81234",
        "before": {"state": "allocated", "flags": [], "reason": None},
        "after": {
            "state": "allocated",
            "flags": ["DRAIN"],
            "reason": "heeler: gpu_lag",
            "gpus_used": U64_MAX,
        },
        "command": "approve",
        "breaker": "drain",
        "until_ts": TS + SECOND,
        "step": "check",
        "next": "undrain",
        "round": U64_MAX,
        "action": "drain_now",
        "advice": "reboot",
        "jobs": ["81234", "81235"],
        "answer": {"checks": {"gpu_count": "ok"}},
    }


def dead_letter() -> dict[str, Any]:
    """Bytes that are no MessagePack."""
    return {
        "v": 1,
        "cluster": "north",
        "ts": TS,
        "subject": "heeler.v1.north.gpu.sample.gpu-a07",
        "stream": "SAMPLES",
        "stream_seq": 99_812,
        "type": "GpuSample/1",
        "why": "undecodable",
        "error": "not MessagePack: ExtraData: unpack(b) received extra data.",
        "by": "enrich",
        "payload": b"\x00\x01\xfe\xffhello",
    }


def dead_letter_maximal() -> dict[str, Any]:
    """As large as a kept payload gets."""
    return {
        **dead_letter(),
        "stream_seq": U64_MAX,
        "error": "ungültig 🚫",
        "payload": bytes(range(256)) * 256,
    }


TYPICAL: dict[str, Any] = {
    "GpuSample": gpu_sample(),
    "IbSample": ib_sample(),
    "HostSample": host_sample(),
    "SwitchSample": switch_sample(),
    "KernelEvent": kernel_event(),
    "AgentStatus": agent_status(),
    "Inventory": inventory(),
    "PrologEvent": prolog_event(),
    "HealthResult": health_result(),
    "HealthRun": health_run(),
    "HealthRequest": health_request(),
    "JobEvent": job_event(),
    "NodeState": node_state(),
    "ClusterState": cluster_state(),
    "SlurmTable": slurm_table(),
    "JobRecord": job_record(),
    "JobSummary": job_summary(),
    "JobSample": job_sample(),
    "JobKernelEvent": {**kernel_event(), **JOBS_OF_EVENT},
    "Finding": finding(),
    "DrainAction": drain_action(),
    "DrainCommand": drain_command(),
    "DrainQuestion": drain_question(),
    "DrainAnswer": drain_answer(),
    "DeadLetter": dead_letter(),
}
MAXIMAL: dict[str, Any] = {
    "GpuSample": gpu_sample_maximal(),
    "IbSample": ib_sample_maximal(),
    "HostSample": host_sample_maximal(),
    "SwitchSample": switch_sample_maximal(),
    "KernelEvent": kernel_event_maximal(),
    "AgentStatus": agent_status_maximal(),
    "Inventory": inventory_maximal(),
    "PrologEvent": prolog_event_maximal(),
    "HealthResult": health_result_maximal(),
    "HealthRun": health_run_maximal(),
    "HealthRequest": health_request_maximal(),
    "JobEvent": job_event_maximal(),
    "NodeState": node_state_maximal(),
    "ClusterState": cluster_state_maximal(),
    "SlurmTable": slurm_table_maximal(),
    "JobRecord": job_record_maximal(),
    "JobSummary": job_summary_maximal(),
    "JobSample": job_sample_maximal(),
    "JobKernelEvent": {
        **kernel_event_maximal(),
        "jobs": ["81234", "81235"],
        "jobs_source": "slurm_index",
        "shard": 15,
    },
    "Finding": finding_maximal(),
    "DrainAction": drain_action_maximal(),
    "DrainCommand": drain_command_maximal(),
    "DrainQuestion": drain_question_maximal(),
    "DrainAnswer": drain_answer_maximal(),
    "DeadLetter": dead_letter_maximal(),
}
