"""A port in trouble explains a lag for which the GPU itself shows no cause, and no other."""

from typing import Any

import pytest
from samples import (
    DDP_SMALL,
    T0,
    Change,
    Columns,
    Inbound,
    Job,
    Played,
    S,
    ib_sample,
    job_event,
    job_samples,
    merged,
    play,
    thermal,
)

from heeler.detect import DetectStep

JOB = Job(nodes=8, level=DDP_SMALL)
FAULT = 30


def waits(*, node: int, gpu: int, since: int = FAULT) -> Change:
    """A GPU that does less than its peers, and nothing of its own says why."""

    def change(window: int, c: Columns) -> None:
        if window >= since:
            for name in ("power_w", "sm_active_ratio", "tensor_active_ratio"):
                c[name][node, gpu] *= 0.6

    return change


def ports(*, node: int, since: int = FAULT, until: int = 1 << 30, count: int = 60, down: bool = False) -> list[Inbound]:
    found = []
    for at in range(count):
        for number in range(JOB.nodes):
            bad = number == node and since <= at < until
            odd: dict[str, Any] = {"state": "down"} if down else {"rate_gbps": 200.0}
            told = [{"rate_gbps": 400.0} | (odd if bad and port == 2 else {}) for port in range(8)]
            found.append(ib_sample(JOB.node(number), told, ts_ns=T0 + (at + 1) * 10 * S + number, seq=at))
    return found


def run(change: Change, *streams: list[Inbound]) -> Played:
    return play(DetectStep(), merged([job_event(JOB)], job_samples(JOB, windows=60, change=change), *streams))


@pytest.mark.parametrize(("down", "cause"), [(False, "rail_degraded"), (True, "ib_down")])
def test_a_port_of_the_same_node_is_named_as_the_cause(down: bool, cause: str) -> None:
    played = run(waits(node=3, gpu=2), ports(node=3, down=down))
    last = played.of("gpu_lag")[-1]
    assert (last["cause"], last["advice"], last["confidence"]) == (cause, "observe", 0.6)
    assert "mlx5_2/1" in last["summary"]
    (port,) = played.opened(cause)
    assert [e["value"] for e in last["evidence"] if e["metric"] == "finding"] == [port["id"]]


def test_a_port_of_another_node_explains_nothing() -> None:
    assert {f["cause"] for f in run(waits(node=3, gpu=2), ports(node=5)).of("gpu_lag")} == {"unknown"}


def test_what_the_gpu_says_itself_comes_first() -> None:
    played = run(thermal(node=3, gpu=2, ratio=0.6, since=FAULT), ports(node=3))
    assert {f["cause"] for f in played.of("gpu_lag")} == {"thermal_slowdown"}


def test_a_port_that_is_in_order_again_is_the_cause_no_more() -> None:
    slow = ports(node=3, until=40, count=100)
    played = play(
        DetectStep(), merged([job_event(JOB)], job_samples(JOB, windows=100, change=waits(node=3, gpu=2)), slow)
    )
    assert played.of("gpu_lag")[-1]["cause"] == "unknown"
