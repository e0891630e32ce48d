"""Whatever the contract allows can be told: each golden vector goes through everything that speaks to people."""

from typing import Any

import goldens
import pytest

from heeler.bus import ROUTES, decode
from heeler.cli.topscreen import VIEWS, Look, Status, screen
from heeler.console import why
from heeler.console.accounts import report, run_of
from heeler.console.facts import Facts, Message
from heeler.console.gpus import Found, keep
from heeler.console.model import Model
from heeler.console.overview import overview
from heeler.console.settings import ConsoleSettings
from heeler.console.timeline import Timeline
from heeler.engine import Inbound

S = 1_000_000_000


def vectors(kind: str) -> list[dict[str, Any]]:
    folder = goldens.SCHEMAS / "vectors" / goldens.snake(kind)
    return [decode(kind, path.read_bytes()) for path in sorted(folder.glob("*.msgpack"))]


VECTORS = {kind: vectors(kind) for kind in ROUTES}
NOW = max(data["ts"] for data in VECTORS["Finding"]) + S


@pytest.mark.parametrize("kind", sorted(ROUTES))
def test_events_tell_every_message_in_one_line_or_not_at_all(kind: str) -> None:
    for data in VECTORS[kind]:
        for entry in Timeline().on(kind, data):
            assert entry.says.strip()
            assert entry.as_json()["ts"] == data["ts"]


@pytest.mark.parametrize("view", VIEWS)
def test_top_shows_a_fleet_of_all_of_them(view: str) -> None:
    model = Model(ConsoleSettings())
    for kind in ("JobSample", "JobEvent", "NodeState", "Finding", "DrainAction", "ClusterState"):
        for data in VECTORS[kind]:
            model.on(Inbound(kind, "", data, data["ts"]))
    model.tick(NOW)
    lines = screen(overview(model, NOW), Status("nats://x"), Look(view), 120, 60)
    assert all(line.plain.isprintable() and line.cell_len <= 120 for line in lines)


def test_why_answers_from_all_of_them() -> None:
    for name in ("minimal", "typical", "maximal", "unknown_enum"):
        one: dict[str, list[Message]] = {
            kind: [decode(kind, path.read_bytes())]
            for kind in ROUTES
            if (path := goldens.SCHEMAS / "vectors" / goldens.snake(kind) / f"{name}.msgpack").exists()
        }
        facts = Facts(
            NOW, one.get("Finding", []), one.get("DrainAction", []), one.get("JobEvent", []), one.get("NodeState", []),
            one.get("JobKernelEvent", []), one.get("AgentStatus", []), one.get("HealthRun", []),
            one.get("HealthResult", []), one.get("JobRecord", []),
        )  # fmt: skip
        for tell in (why.node, why.job):
            assert all(isinstance(line, str) for line in tell("x", facts))
        sample = VECTORS["JobSample"][0]
        uuid = sample["gpu"]["uuid"][0]
        facts.gpus, facts.samples = [Found("n", {"uuid": uuid})], [sample]
        keep(facts, uuid)
        lines = list(why.gpu(uuid, facts))
        assert lines[0].startswith(f"gpu {uuid}")
        assert why.as_json(facts)["gpus"]


def test_reports_are_made_of_all_of_them() -> None:
    runs = [run_of(record, None) for record in VECTORS["JobRecord"]]
    runs += [run_of(None, summary) for summary in VECTORS["JobSummary"]]
    runs += [run_of(record, summary) for record in VECTORS["JobRecord"] for summary in VECTORS["JobSummary"]]
    told = report("user", [run for run in runs if run], VECTORS["Finding"], 0, NOW * 2, NOW)
    total = told.total
    assert total.runs
    assert total.active_s + total.idle_s + total.unknown_s == pytest.approx(total.allocated_s)
    assert total.as_json()["allocated_gpu_h"] == pytest.approx(total.allocated_s / 3600)
