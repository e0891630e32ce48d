"""The step of summary on sequences of messages."""

from collections.abc import Sequence
from typing import Any

import pytest

from heeler.bus import decode, encode, subjects
from heeler.engine import Inbound, Keyed
from heeler.summary.run import gpus_of
from heeler.summary.step import SummaryStep

S = 1_000_000_000
T0 = 1_800_000_000 * S


def inbound(kind: str, subject: str, data: dict[str, Any], at: float) -> Inbound:
    return Inbound(kind, subject, decode(kind, encode(kind, data)), T0 + int(at * S))


def job(event: str = "started", at: float = 0, *, name: str = "7", start: float | None = 0, **more: Any) -> Inbound:
    nodes = more.pop("nodes", ["n1", "n2"])
    data = {
        "v": 1, "cluster": "c", "ts": T0 + int(at * S), "event": event, "job_id": name, "nodes": nodes,
        "gpus": {node: [0, 1] for node in nodes}, "gpus_source": "slurm_index", "user": "ada", "state": "RUNNING",
        **more,
    }  # fmt: skip
    if start is not None:
        data["start_ts"] = T0 + int(start * S)
    return inbound("JobEvent", subjects.job_event("c", name), data, at)


def sample(end: float, node: str = "n1", util: Sequence[float | None] = (1.0, 1.0), **more: Any) -> Inbound:
    at = more.pop("at", end)
    data = {
        "v": 1, "cluster": "c", "node": node, "ts": T0 + int(end * S), "boot": "b", "seq": int(end), "reads": 10,
        "window_ns": 10 * S, "gpu": {"uuid": ["GPU-a", "GPU-b"]}, "shard": 1, "job": ["7", "7"], "last": {},
        "mean": {"util_ratio": list(util), "power_w": [500.0, 500.0]}, **more,
    }  # fmt: skip
    return inbound("JobSample", subjects.job_sample("c", "1", node), data, at)


class Lab:
    """A step, and what it has published."""

    def __init__(self) -> None:
        self.keyed = Keyed(SummaryStep())
        self.out: list[dict[str, Any]] = []
        self.ids: list[str] = []

    def feed(self, *messages: Inbound, context: bool = False) -> "Lab":
        for message in messages:
            self._keep([event for _, event in self.keyed.on(message, context=context)])
        return self

    def until(self, at: float) -> "Lab":
        self._keep([event for _, event in self.keyed.advance(T0 + int(at * S))])
        return self

    def _keep(self, events: list[Any]) -> None:
        for event in events:
            encode("JobSummary", event.data)
            self.out.append(dict(event.data))
            self.ids.append(event.id)

    @property
    def last(self) -> dict[str, Any]:
        return self.out[-1]


def windows(first: int, last: int, node: str = "n1", **more: Any) -> list[Inbound]:
    return [sample(end, node, **more) for end in range(first + 10, last + 1, 10)]


def in_order(*messages: list[Inbound]) -> list[Inbound]:
    return sorted((m for some in messages for m in some), key=lambda m: m.ts_ns)


def test_a_run_that_ends_is_summed_up_two_minutes_later() -> None:
    lab = Lab().feed(job(), *in_order(windows(0, 100), windows(0, 100, "n2", util=(0.0, 0.2))))
    lab.feed(job("ended", 100, end_ts=T0 + 100 * S, state="COMPLETED", nodes=[])).until(215)
    assert lab.out == []
    lab.until(240)
    assert len(lab.out) == 1
    found = lab.last
    assert found["final"] is True
    assert (found["run"], found["until_ts"], found["end_ts"]) == (str(T0 // S), T0 + 100 * S, T0 + 100 * S)
    assert (found["allocated_gpu_s"], found["active_gpu_s"], found["idle_gpu_s"], found["unknown_gpu_s"]) == (
        400.0, 300.0, 100.0, 0.0,
    )  # fmt: skip
    assert found["energy_j"] == 400 * 500.0
    assert (found["gpus"], found["node_count"], found["user"], found["state"]) == (4, 2, "ada", "COMPLETED")
    lab.until(4000)
    assert len(lab.out) == 1


def test_what_no_agent_told_is_unknown_and_never_idle() -> None:
    lab = Lab().feed(job(), *windows(0, 50), job("ended", 100, end_ts=T0 + 100 * S)).until(240)
    assert lab.last["active_gpu_s"] == 100.0
    assert lab.last["idle_gpu_s"] == 0.0
    assert lab.last["unknown_gpu_s"] == 300.0


def test_a_job_whose_nodes_have_no_agents_is_all_unknown() -> None:
    lab = Lab().feed(job(), job("ended", 100, end_ts=T0 + 100 * S)).until(240)
    assert (lab.last["allocated_gpu_s"], lab.last["unknown_gpu_s"]) == (400.0, 400.0)
    assert "energy_j" not in lab.last


@pytest.mark.parametrize("source", ["none", "unknown"])
def test_a_job_without_gpus_is_not_summed_up(source: str) -> None:
    more: dict[str, Any] = {"gpus": {}, "gpus_source": source}
    lab = Lab().feed(job(**more), job("ended", 100, end_ts=T0 + 100 * S, **more)).until(2000)
    assert lab.out == []


def test_a_job_on_gpus_that_slurm_did_not_give_is_told() -> None:
    more: dict[str, Any] = {"gpus": {}, "gpus_source": "none"}
    lab = Lab().feed(job(**more), *windows(0, 100), job("ended", 100, end_ts=T0 + 100 * S, **more)).until(240)
    assert (lab.last["allocated_gpu_s"], lab.last["active_gpu_s"], lab.last["beyond_gpu_s"]) == (0.0, 0.0, 200.0)


def test_twins_late_windows_and_windows_beyond_the_run_count_once_or_not_at_all() -> None:
    lab = Lab().feed(
        job(start=5), sample(10), sample(10), sample(30), sample(20, at=31), sample(30, at=32), sample(110)
    )
    lab.feed(job("ended", 111, end_ts=T0 + 105 * S, start=5)).until(300)
    assert lab.last["active_gpu_s"] == 2 * (5 + 10 + 10 + 10 - 5) + 10  # the last window lies half beyond the end
    assert lab.last["allocated_gpu_s"] == 400.0


def test_a_run_is_published_as_it_goes_on_at_a_minute_of_its_own() -> None:
    lab = Lab().feed(job())
    for end in range(10, 3601, 10):
        lab.feed(sample(end), sample(end, "n2"))
    assert [one["final"] for one in lab.out] == [False] * len(lab.out)
    assert 5 <= len(lab.out) <= 6
    gaps = {(b["until_ts"] - a["until_ts"]) // S for a, b in zip(lab.out, lab.out[1:], strict=False)}
    assert gaps == {600}
    for one in lab.out:
        assert one["allocated_gpu_s"] == pytest.approx(4 * (one["until_ts"] - T0) / S)
        assert one["active_gpu_s"] == pytest.approx(one["allocated_gpu_s"])
    assert len(set(lab.ids)) == len(lab.ids)


def test_jobs_are_published_in_different_minutes() -> None:
    minutes = set()
    for name in range(40):
        lab = Lab().feed(job(name=str(name))).until(2000)
        minutes.add(lab.last["until_ts"] // S % 600)
    assert len(minutes) == 10


def test_a_run_that_is_made_smaller_has_each_size_for_its_own_time() -> None:
    lab = Lab().feed(job(), job("changed", 60, nodes=["n1"]), *windows(0, 100))
    lab.feed(job("ended", 101, end_ts=T0 + 100 * S, nodes=["n1"])).until(240)
    assert lab.last["allocated_gpu_s"] == 4 * 60.0 + 2 * 40.0
    assert lab.last["unknown_gpu_s"] == 2 * 60.0, "of the node that it had at first"
    assert (lab.last["gpus"], lab.last["node_count"]) == (2, 1)


def test_each_size_counts_once_where_it_changes_after_a_slice_was_published() -> None:
    lab = Lab().feed(job()).until(2000)
    lab.feed(job("changed", 2100, nodes=["n1"]), job("changed", 2100, nodes=["n1"]), job("changed", 2400)).until(6000)
    lab.feed(job("ended", 6001, end_ts=T0 + 6000 * S)).until(6200)
    assert len(lab.out) > 2
    assert lab.last["allocated_gpu_s"] == 4 * 5700.0 + 2 * 300.0


def test_nodes_that_a_run_gives_back_as_it_completes_are_no_smaller_run() -> None:
    lab = Lab().feed(job(), job("changed", 90, nodes=["n1"], released=["n2"], state="COMPLETING"))
    lab.feed(job("ended", 110, end_ts=T0 + 100 * S)).until(240)
    assert (lab.last["allocated_gpu_s"], lab.last["node_count"]) == (400.0, 2)


def test_a_requeued_job_has_a_summary_for_each_run() -> None:
    lab = Lab().feed(job(), *windows(0, 100))
    lab.feed(job(at=200, start=150), *windows(150, 250), job("ended", 250, start=150, end_ts=T0 + 250 * S)).until(500)
    first, second = lab.out
    assert (first["final"], first["run"], first["active_gpu_s"]) == (True, str(T0 // S), 200.0)
    assert (second["final"], second["run"], second["active_gpu_s"]) == (True, str(T0 // S + 150), 200.0)


def test_windows_that_came_before_slurm_named_the_job_count() -> None:
    lab = Lab().feed(*windows(0, 50), job(at=50), *windows(50, 100), job("ended", 100, end_ts=T0 + 100 * S)).until(240)
    assert lab.last["active_gpu_s"] == 200.0


def test_gpus_that_become_known_later_count_from_the_start() -> None:
    lab = Lab().feed(job(gpus={}, gpus_source="unknown"), *windows(0, 1000)).until(1500)
    assert "allocated_gpu_s" not in lab.last
    lab.feed(job("changed", 1500), job("ended", 1600, end_ts=T0 + 1600 * S)).until(1800)
    assert lab.last["allocated_gpu_s"] == 4 * 1600.0


def test_who_starts_anew_goes_on_from_the_newest_summary_and_ends_with_the_same() -> None:
    """A cold start: the newest of every job and summary first, then the samples that the stream still has."""
    warm = Lab().feed(job())
    history = [sample(end, node, util=(1.0, 0.0)) for end in range(10, 7201, 10) for node in ("n1", "n2")]
    warm.feed(*history)
    newest = warm.last
    cold = Lab()
    cold.keyed.now_ns = T0 + int((7200 - SummaryStep.memory_s) * S)
    context = [job(), inbound("JobSummary", subjects.job_summary("c", "7", newest["run"]), newest, 7200)]
    cold.feed(*context, context=True)
    cold.feed(*(message for message in history if message.ts_ns > cold.keyed.now_ns))
    end = job("ended", 7200, end_ts=T0 + 7200 * S)
    for lab in (warm, cold):
        lab.feed(end).until(7400)
    assert cold.last.keys() == warm.last.keys()
    for key, value in warm.last.items():
        assert cold.last[key] == (value if isinstance(value, str) else pytest.approx(value)), key
    assert cold.ids[-1] == warm.ids[-1]
    assert cold.last["active_gpu_s"] == pytest.approx(2 * 7200)


def test_a_final_summary_is_not_said_again_after_a_restart() -> None:
    warm = Lab().feed(job(), *windows(0, 100), job("ended", 100, end_ts=T0 + 100 * S)).until(240)
    cold = Lab()
    cold.keyed.now_ns = T0 + 50 * S
    final = inbound("JobSummary", subjects.job_summary("c", "7", warm.last["run"]), warm.last, 240)
    cold.feed(final, job("ended", 100, end_ts=T0 + 100 * S), context=True)
    cold.feed(*windows(50, 100)).until(5000)
    assert cold.out == []
    assert cold.keyed.states == {}


def test_jobs_of_two_clusters_with_one_id_are_two_jobs() -> None:
    lab = Lab().feed(job(), *windows(0, 100))
    other = {**job().data, "cluster": "d", "user": "bob"}
    lab.feed(inbound("JobEvent", subjects.job_event("d", "7"), other, 100))
    for one in (job("ended", 100, end_ts=T0 + 100 * S).data, {**other, "event": "ended", "end_ts": T0 + 100 * S}):
        lab.feed(inbound("JobEvent", subjects.job_event(one["cluster"], "7"), one, 101))
    lab.until(300)
    assert sorted((one["cluster"], one["user"], one["active_gpu_s"]) for one in lab.out) == [
        ("c", "ada", 200.0), ("d", "bob", 0.0),
    ]  # fmt: skip


def test_its_own_echo_changes_nothing() -> None:
    lab = Lab().feed(job(), *windows(0, 1500))
    echo = inbound("JobSummary", subjects.job_summary("c", "7", lab.last["run"]), lab.last, 1501)
    lab.feed(echo, *windows(1500, 2000), job("ended", 2000, end_ts=T0 + 2000 * S)).until(2200)
    assert lab.last["active_gpu_s"] == pytest.approx(4000.0)


def test_a_gap_of_the_summary_itself_is_unknown() -> None:
    lab = Lab().feed(job(), *windows(0, 1000)).until(1500)
    cold = Lab()
    cold.keyed.now_ns = T0 + 9000 * S
    before = inbound("JobSummary", subjects.job_summary("c", "7", lab.last["run"]), lab.last, 1500)
    cold.feed(job(), before, context=True)
    cold.feed(*windows(9000, 10_000), job("ended", 10_000, end_ts=T0 + 10_000 * S)).until(10_200)
    assert cold.last["allocated_gpu_s"] == 40_000.0
    assert cold.last["active_gpu_s"] == pytest.approx(2 * (lab.last["until_ts"] - T0) / S + 2000.0)


def test_what_ended_long_ago_is_not_counted_anew() -> None:
    lab = Lab()
    lab.keyed.now_ns = T0 + 90_000 * S
    lab.feed(job("ended", 100, end_ts=T0 + 100 * S), context=True).until(91_000)
    assert lab.out == []
    assert lab.keyed.states == {}


def test_samples_of_a_job_that_slurm_never_names_are_forgotten() -> None:
    lab = Lab().feed(*windows(0, 9000)).until(20_000)
    assert lab.out == []
    assert lab.keyed.states == {}


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ({"gpus": {"a": [0, 1], "b": [3]}, "gpus_source": "slurm_index"}, 3),
        ({"gpus": {"a": [0, 1]}, "gpus_source": "slurm_index"}, None),
        ({"gpus_per_node": 4}, 8),
        ({"gpus_source": "none"}, 0),
        ({"gpus_source": "whole_node"}, None),
        ({}, None),
    ],
)
def test_how_many_gpus_a_job_has(more: dict[str, Any], gpus: int | None) -> None:
    assert gpus_of({"nodes": ["a", "b"], **more}) == gpus
