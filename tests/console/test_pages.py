"""What the pages of a node, a job and a finding say, from values: pure."""

from typing import Any

import pytest
from consolekit import T0, S, finding, inbound, job_event, node_state, sample

from heeler.console import pages
from heeler.console.facts import Facts
from heeler.console.lanes import timeline
from heeler.console.model import Model
from heeler.console.settings import ConsoleSettings


def model(*messages: tuple[str, dict[str, Any]]) -> Model:
    found = Model(ConsoleSettings())
    for kind, data in messages:
        found.on(inbound(kind, data))
    found.tick(T0 + S)
    return found


def test_a_job_page_names_who_lags_and_leaves_out_who_is_not_read() -> None:
    clocks = [1980.0, 1155.0, None, 1975.0, 1980.0, 1980.0, 1980.0, 1980.0]
    found = model(
        ("JobEvent", job_event(nodes=("n1", "n2", "n3"))),
        ("JobSample", sample("n1", mean={"sm_clock_mhz": clocks})),
        ("JobSample", sample("n2")),
    )
    page = pages.job_page(found, "81", Facts(T0))
    assert [(one["node"], one["index"]) for one in page["behind"]] == [("n1", 1)]
    assert page["behind"][0]["deviation_ratio"] == pytest.approx(-0.4167, abs=1e-3)
    assert page["peers"]["sm_clock_mhz"]["known"] == 15
    assert page["peers"]["tensor_active_ratio"] == {"known": 0}
    rows = {one["node"]: one for one in page["nodes"]}
    assert rows["n3"]["gpus"] == 0
    assert rows["n3"]["sm_clock_mhz"] is None  # not 0


def test_a_job_without_readings_claims_nothing() -> None:
    found = model(("JobEvent", job_event()), ("JobSample", sample(mean={"sm_clock_mhz": None})))
    page = pages.job_page(found, "81", Facts(T0))
    assert page["behind"] == []
    assert page["peers"]["sm_clock_mhz"] == {"known": 0}


def test_a_large_job_has_a_bounded_page_with_the_worst_first() -> None:
    nodes = tuple(f"n{number:04}" for number in range(600))
    found = model(("JobEvent", job_event(nodes=nodes)), ("JobSample", sample("n0599", state=["lost"] + ["ok"] * 7)))
    page = pages.job_page(found, "81", Facts(T0))
    assert (len(page["nodes"]), page["nodes_all"]) == (pages.MOST_ROWS, 600)
    assert page["nodes"][0]["node"] == "n0599"


@pytest.mark.parametrize(
    ("changes", "share", "by"),
    [
        ({"impact": {"job_slowdown_ratio": 1.25}}, 0.2, "pace"),
        ({"kind": "hang", "evidence": []}, 1.0, "still"),
        ({}, 0.4167, "gap"),
    ],
)
def test_the_cost_is_what_detect_says_or_a_bound(changes: dict[str, Any], share: float, by: str) -> None:
    cost = pages.lost(finding(first_ts=T0 - 3600 * S, **changes), 128, T0)
    assert cost == {"gpu_hours": pytest.approx(128 * share), "share": pytest.approx(share), "by": by}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "xid"},
        {"evidence": []},
        {"evidence": [{"metric": "sm_clock_mhz", "value": 1155}]},
        {"evidence": [{"metric": "temp_c", "value": 90, "deviation_ratio": 0.4}]},
    ],
)
def test_where_nothing_tells_the_cost_is_not_known(changes: dict[str, Any]) -> None:
    assert pages.lost(finding(**changes), 128, T0) is None
    assert pages.lost(finding(), 0, T0) is None  # of a job without GPUs that we know


def test_a_node_that_only_slurm_names_has_no_readings() -> None:
    found = model(("NodeState", node_state()))
    page = pages.node_page(found, "n1", Facts(T0), [], 6.0)
    assert page["known"] is True
    assert page["gpus"] == []
    assert page["slurm"] is None  # what was not asked of the bus is not made up
    assert pages.node_page(found, "other", Facts(T0), [], 6.0)["known"] is False


def test_who_holds_a_gpu_is_a_job_nobody_several_or_not_known() -> None:
    data = sample(several={"2": ["81", "82"]})
    data["job"] = ["81", None, None] + ["81"] * 5
    found = model(("JobSample", data), ("NodeState", node_state("n2")))
    gpus = pages.node_page(found, "n1", Facts(T0), [], 6.0)["gpus"]
    assert [one["job"] for one in gpus[:4]] == ["81", "", "several", "81"]
    found.fleet.job[0] = 0
    assert pages.node_page(found, "n1", Facts(T0), [], 6.0)["gpus"][0]["job"] is None


def test_search_prefers_the_exact_and_the_beginning() -> None:
    found = model(
        *(("NodeState", node_state(name)) for name in ("gpu-10", "gpu-1", "x-gpu-1")), ("JobEvent", job_event("1"))
    )
    assert [one["name"] for one in pages.found_by(found, "gpu-1")] == ["gpu-1", "gpu-10", "x-gpu-1"]
    assert pages.found_by(found, "ADA") == [{"kind": "job", "name": "1", "about": "train ada"}]
    assert pages.found_by(found, "  ") == []
    assert len(pages.found_by(found, "g", most=2)) == 2


def test_states_of_a_node_become_stretches_and_what_is_said_again_is_one() -> None:
    history = [
        node_state(at=0),
        node_state(at=60),
        node_state(at=120, flags=["DRAIN"], reason="bad"),
        node_state(at=180, state="idle", flags=["DRAIN"], reason="bad"),
    ]
    items = timeline(Facts(T0 + 300 * S), history, [], T0)
    assert [(one["from"] - T0, one["to"] and one["to"] - T0, one["level"]) for one in items] == [
        (0, 120 * S, 0),
        (120 * S, 180 * S, 2),
        (180 * S, None, 2),
    ]


def test_a_time_line_keeps_what_lasts_and_drops_what_is_over() -> None:
    facts = Facts(T0)
    facts.findings = [
        finding("old", at=-7200, state="closed", first_ts=T0 - 9000 * S),
        finding("lasting", at=-10, first_ts=T0 - 9000 * S),
    ]
    found = model(("JobEvent", job_event("1", event="ended", end_ts=T0 - 8000 * S)), ("JobEvent", job_event("2")))
    jobs = [*found.jobs.values(), *found.ended.values()]
    items = timeline(facts, [], jobs, T0 - 3600 * S)
    assert {one.get("finding") or one.get("job") for one in items} == {"lasting", "2"}


def test_curves_of_a_job_are_those_of_its_findings_and_of_its_slowest() -> None:
    clocks = [1980.0] * 6 + [1500.0, 1200.0]
    found = model(
        ("JobEvent", job_event()), ("JobSample", sample(mean={"sm_clock_mhz": clocks})), ("Finding", finding())
    )
    job = found.jobs["81"]
    assert pages.laggards(found, job) == [("n1", "GPU-n1-3"), ("n1", "GPU-n1-7"), ("n1", "GPU-n1-6")]
    assert pages.laggards(model(("JobEvent", job_event())), job) == []


def test_gpu_time_is_that_of_the_newest_run_and_unknown_where_nobody_counted() -> None:
    found = model(("JobEvent", job_event()))
    runs = [
        {"ts": 2, "start_ts": 5, "final": True, "until_ts": 9, "active_gpu_s": 1.0, "idle_gpu_s": 1.0},
        {"ts": 3, "start_ts": 7, "final": False, "until_ts": 9, "allocated_gpu_s": 7200.0, "active_gpu_s": 3600.0,
         "idle_gpu_s": 0.0},
    ]  # fmt: skip
    used = pages.job_page(found, "81", Facts(T0), runs)["used"]
    assert used["hours"] == {"allocated": 2.0, "active": 1.0, "idle": 0.0, "unknown": None, "lost": None}
    assert pages.job_page(found, "81", Facts(T0))["used"] is None


def test_kernel_events_checks_and_drains_have_their_lanes_and_no_made_up_judgement() -> None:
    facts = Facts(T0)
    facts.events = [{"ts": T0 - 5 * S, "kind": "xid", "code": 79, "text": "fallen off the bus"}]
    facts.health_runs = [{"ts": T0 - 4 * S, "phase": "prolog", "verdict": "fail", "why": "gpu_count"},
                         {"ts": T0 - 3 * S, "phase": "epilog", "verdict": "strange", "why": "?"}]  # fmt: skip
    facts.health_results = [
        {"ts": T0 - 4 * S, "check": "gpu_count", "phase": "prolog", "outcome": "bad", "why": "7 of 8"},
        {"ts": T0 - 2 * S, "check": "gpu_count", "phase": "prolog", "outcome": "ok", "why": "8 of 8"},
    ]
    facts.actions = [{"ts": T0 - S, "verdict": "refused", "dry_run": True, "why": "too young", "node": "n1"}]
    items = timeline(facts, [], [], T0 - 60 * S)
    assert [(one["lane"], one["level"], one["text"]) for one in items] == [
        ("kernel", None, "xid 79: fallen off the bus"),
        ("checks", 3, "prolog fail: gpu_count"),
        ("checks", 3, "gpu_count bad (prolog): 7 of 8"),
        ("checks", None, "epilog strange: ?"),
        ("drain", 1, "refused (dry run): too young"),
    ]
