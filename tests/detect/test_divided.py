"""GPUs that are divided: nobody's peers, no stragglers, and one fault stays one."""

from dataclasses import replace
from typing import Any

import pytest
from samples import (
    DDP,
    T0,
    Inbound,
    Job,
    Played,
    S,
    inventory,
    job_event,
    job_samples,
    kernel_event,
    merged,
    play,
    thermal,
)

from heeler.detect import DetectStep
from heeler.detect.divided import whole_gpus

JOB = Job(nodes=4, level=DDP)
WINDOWS = 45


def part(parent: str, number: int) -> str:
    return f"MIG-{parent[4:]}-{number}"


def divide(message: Inbound, *gpus: int, parts: int = 2, rows: bool = True, **more: Any) -> Inbound:
    """A sample in which some GPUs are divided: their utilisation is unread, and their parts have rows at the end."""
    data = message.data
    gpu, count = data["gpu"], len(data["gpu"]["uuid"])
    children = [(at, number) for at in gpus for number in range(parts)] if rows else []

    def column(name: str, values: list[Any]) -> list[Any]:
        unread = ("util_ratio", "sm_active_ratio", "tensor_active_ratio")
        mine = [None if at in gpus and name in unread else value for at, value in enumerate(values)]
        # A part is read as far as it can be: a little activity and memory, which no peer may be measured by.
        own = {"sm_active_ratio": 0.02, "tensor_active_ratio": 0.01, "fb_used_bytes": 1e9, "util_ratio": 0.97}
        return [*mine, *[own.get(name)] * len(children)]

    none = [None] * len(children)
    made = {
        **data,
        "gpu": {
            **{name: [*values, *none] for name, values in gpu.items()},
            "uuid": [*gpu["uuid"], *(part(gpu["uuid"][at], number) for at, number in children)],
            "model": [*gpu["model"], *[JOB.model] * len(children)],
            "parent": [*[None] * count, *(gpu["uuid"][at] for at, _ in children)],
        },
        "mean": {name: column(name, values) for name, values in data["mean"].items()},
        "last": {
            **{name: [*values, *none] for name, values in data["last"].items()},
            "mig_mode": [*(int(at in gpus) for at in range(count)), *none],
        },
        "state": [*data["state"], *(data["state"][at] for at, _ in children)],
        "job": [*data["job"], *(data["job"][at] for at, _ in children)],
        **more,
    }
    made.pop("job_source", None)
    return replace(message, data=made)


def run(*streams: list[Inbound]) -> Played:
    return play(DetectStep(), merged([job_event(JOB, ts_ns=T0 - 3600 * S)], *streams))


def test_parts_and_divided_gpus_are_no_stragglers() -> None:
    samples = [divide(m, 2, 5) if m.data["node"] == JOB.node(1) else m for m in job_samples(JOB, windows=WINDOWS)]
    assert not run(samples).findings


def test_a_divided_gpu_is_no_straggler_even_where_its_parts_have_no_rows_here() -> None:
    """They are in messages of their jobs' shards. What is read of the whole looks like a lagging GPU."""
    samples = [divide(m, 2, rows=False) if m.data["node"] == JOB.node(1) else m for m in job_samples(JOB, windows=60)]
    for message in samples:
        if message.data["node"] == JOB.node(1):
            low = {"util_ratio": 0.9, "sm_active_ratio": 0.1, "tensor_active_ratio": 0.05, "power_w": 200.0}
            for name, value in low.items():
                message.data["mean"][name][2] = value
    assert not run(samples).findings


def test_a_real_straggler_beside_a_divided_gpu_is_found_alone() -> None:
    change = thermal(node=1, gpu=3, ratio=0.6, since=5)
    samples = [
        divide(m, 2) if m.data["node"] == JOB.node(1) else m for m in job_samples(JOB, windows=60, change=change)
    ]
    (found,) = run(samples).opened("gpu_lag")
    assert (found["kind"], found["entity"]["gpu_uuid"], found["entity"]["gpu_index"]) == (
        "gpu_lag",
        JOB.uuid(1, 3),
        3,
    )


def test_rows_that_come_and_go_are_no_silence_and_break_nothing() -> None:
    def turn(message: Inbound) -> Inbound:
        window = message.data["seq"]
        if message.data["node"] != JOB.node(1) or window % 3 == 0:
            return message
        return divide(message, 2, parts=1 + window % 3, rows=window % 2 == 0)

    played = run([turn(m) for m in job_samples(JOB, windows=60)])
    assert not played.findings


def test_a_job_that_has_parts_only_is_not_compared() -> None:
    step = DetectStep()
    message = divide(job_samples(JOB, windows=1)[0], *range(8))
    assert not play(step, [message]).findings
    alone = Job("77", nodes=1)
    whole = job_samples(alone, windows=1)[0]
    held = divide(whole, 0, job=[None] * 8 + ["77"] * 2)
    player = play(step, [held])
    assert not player.findings


def test_which_rows_are_whole() -> None:
    message = job_samples(JOB, windows=1)[0]
    assert whole_gpus(message.data) is None
    assert whole_gpus(divide(message, 1, parts=1).data) == [True, False, *[True] * 6, False]
    unread = divide(message, 1, parts=1).data
    unread["last"]["mig_mode"] = [None] * 9
    assert whole_gpus(unread) == [True, False, *[True] * 6, False]
    assert whole_gpus({**message.data, "gpu": {**message.data["gpu"], "parent": [None] * 8}}) is None


@pytest.mark.parametrize("rows", [True, False])
def test_a_lost_gpu_is_one_finding_that_names_the_jobs_of_its_parts(rows: bool) -> None:
    samples = job_samples(JOB, windows=3, states=lambda _, n: ["ok"] * 3 + ["lost"] + ["ok"] * 4 if n == 0 else None)
    owners = [None if at == 3 else JOB.id for at in range(8)] + (["11", "12"] if rows else [])
    divided = [
        divide(m, 3, rows=rows, job=owners, several={"3": ["11", "12"]}) if m.data["node"] == JOB.node(0) else m
        for m in samples
    ]
    played = play(DetectStep(), merged([inventory(JOB, 0)], divided))
    (finding,) = played.last().values()
    assert (finding["kind"], finding["entity"]["gpu_uuid"], finding["jobs"]) == (
        "gpu_lost",
        JOB.uuid(0, 3),
        ["11", "12"],
    )


def test_a_part_that_is_gone_is_no_lost_gpu() -> None:
    samples = [m for m in job_samples(JOB, windows=6) if m.data["node"] == JOB.node(0)]
    played = play(DetectStep(), [divide(m, 3, parts=2 if m.data["seq"] < 3 else 1) for m in samples])
    assert not played.findings


def test_an_xid_of_an_instance_is_its_gpus() -> None:
    line = kernel_event(JOB.node(0), 48, ts_ns=T0 + S, seq=1, uuid=JOB.uuid(0, 3), gi=1, ci=0, jobs=["11"])
    (finding,) = play(DetectStep(), merged([inventory(JOB, 0)], [line])).last().values()
    assert (finding["entity"]["gpu_uuid"], finding["jobs"]) == (JOB.uuid(0, 3), ["11"])
