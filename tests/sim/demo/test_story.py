"""The story: what is told, and that it is told once."""

from typing import Any

from heeler.sim.demo.story import Story, sink_line


def told(story: Story, kind: str, data: dict[str, Any]) -> list[str]:
    return [text for text, _ in story.on(kind, data)]


def sample(reasons: list[int | None], clocks: list[float | None], state: list[str] | None = None) -> dict[str, Any]:
    count = len(reasons)
    return {
        "node": "n007",
        "gpu": {"uuid": [f"GPU-{i}" for i in range(count)], "index": list(range(count))},
        "mean": {},
        "min": {"sm_clock_mhz": clocks},
        "last": {"clock_event_reasons": reasons},
        "state": state or ["ok"] * count,
        "job": ["81000", None][:count],
    }


def finding(**more: Any) -> dict[str, Any]:
    return {
        "id": "f1",
        "kind": "gpu_lag",
        "state": "open",
        "severity": "warning",
        "confidence": 0.8,
        "advice": "observe",
        "summary": "GPU 3 on n007 runs at 1,155 MHz",
        "evidence": [
            {"metric": "sm_clock_mhz", "value": 1155, "unit": "MHz", "peers_median": 1980.0, "peers": 127, "windows": 3}
        ],
        **more,
    }


def test_a_slowdown_is_told_once_and_once_more_when_it_is_over() -> None:
    story = Story()
    assert told(story, "JobSample", sample([0x4, 0x1], [1980.0, 345.0])) == []
    line = "seen: GPU 0 on n007 (job 81000) runs at 1,155 MHz: SW thermal slowdown and HW thermal slowdown"
    assert told(story, "JobSample", sample([0x60, 0x1], [1155.0, 345.0])) == [line]
    assert told(story, "JobSample", sample([0x60, 0x1], [1150.0, 345.0])) == []
    assert told(story, "JobSample", sample([0x4, 0x1], [1980.0, 345.0])) == [
        "seen: GPU 0 on n007 (job 81000) runs: no slowdown any more"
    ]


def test_an_unread_mask_says_nothing() -> None:
    story = Story()
    told(story, "JobSample", sample([0x60, 0x1], [1155.0, 345.0]))
    assert told(story, "JobSample", sample([None, None], [None, None])) == []
    assert told(story, "JobSample", sample([0x60, 0x1], [1155.0, 345.0])) == []


def test_a_lost_gpu_is_told_once() -> None:
    story = Story()
    lost = sample([0x4, None], [1980.0, None], ["ok", "lost"])
    assert told(story, "JobSample", lost) == ["seen: GPU 1 on n007 is lost: no value can be read"]
    assert told(story, "JobSample", lost) == []


def test_a_port_is_told_when_it_changes_and_not_when_it_is_first_seen() -> None:
    def ports(state: str, downed: int) -> dict[str, Any]:
        port = {"device": "mlx5_0", "port": 1, "state": state, "counters": {"link_downed": downed}}
        return {"node": "n007", "ports": [port]}

    story = Story()
    assert told(story, "IbSample", ports("active", 0)) == []
    assert told(story, "IbSample", ports("down", 1)) == [
        "seen: n007 port mlx5_0/1 goes from active to down, link_downed 1"
    ]
    assert told(story, "IbSample", ports("down", 1)) == []


def test_a_kernel_line_is_told_with_the_state_of_its_gpu() -> None:
    data = {"node": "n007", "kind": "xid", "code": 79, "raw": "4,9,1,-;NVRM: Xid: 79", "gpu_state": "lost"}
    line = "seen: n007 kernel log, xid 79: NVRM: Xid: 79; read at once, the GPU is lost"
    assert told(Story(), "KernelEvent", data) == [line]


def test_a_finding_is_told_with_evidence_and_again_only_when_it_says_more() -> None:
    story = Story()
    first = told(story, "Finding", finding())
    assert first[0].startswith("finding: gpu_lag, warning: GPU 3 on n007 runs at 1,155 MHz")
    assert "1155 MHz, 127 peers 1980 MHz" in first[1].replace(",155", "155").replace(",980", "980")
    assert told(story, "Finding", finding(state="update", confidence=0.9)) == []
    firmer = told(story, "Finding", finding(state="update", severity="critical", advice="drain_after_job"))
    assert len(firmer) == 1
    assert "advice drain_after_job" in firmer[0]
    closed = told(story, "Finding", finding(state="closed", close_reason="recovered"))
    assert closed == ["finding closed (recovered): GPU 3 on n007 runs at 1,155 MHz"]


def test_what_the_drainer_says_is_told_once_dry_runs_marked() -> None:
    action = {
        "id": "a1",
        "node": "n007",
        "verdict": "proposed",
        "dry_run": True,
        "why": "because",
        "reason": "heeler:f1",
    }
    story = Story()
    assert told(story, "DrainAction", action) == [
        "drain proposed (dry run): n007, for a finding: because",
        "    reason that Slurm would show: heeler:f1",
    ]
    assert told(story, "DrainAction", action) == []


def test_the_sink_is_told_when_logs_came_or_many_points() -> None:
    assert sink_line({}, {"points": 900, "logs": 0, "metrics": {}}) is None
    line = sink_line({"points": 900}, {"points": 1900, "logs": 1, "metrics": {"a": 1}})
    assert line is not None
    assert line[0] == "sink received 1 log record and 1,000 data points (1 metrics, 1,900 in all)"
    assert sink_line({}, {"points": 200_000, "metrics": {}}) is not None
