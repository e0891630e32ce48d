"""What the doctor says of a site, from facts: what is wrong is named with what to do, and unknown is not ok."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from heeler.bus import ROUTES
from heeler.doctor import bus, node, slurm
from heeler.doctor.model import Grade, Line, exit_status
from heeler.health.breaker import Breaker
from heeler.slurm.nodes import Node
from heeler.slurm.state import parse_node_state

NS = 1_000_000_000
NOW = 1_800_000_000 * NS
OPEN: dict[str, Any] = {}

BUS = bus.BusFacts(
    servers=("nats://one:4222",),
    version="2.12.1",
    offset_s=0.01,
    within_s=0.001,
    permissions=OPEN,
    streams={
        "EVENTS": bus.Made(
            {"max_age": 10, "max_bytes": 100, "subjects": ["a"]}, {"max_age": 10, "max_bytes": 100, "subjects": ["a"]}
        )
    },
    buckets={"breakers": bus.Made({"ttl": 0}, {"ttl": 0})},
    agents_ts_ns={"n1": NOW - NS, "n2": NOW - 30 * NS},
    now_ns=NOW,
)

CONFIG = {
    "SLURM_VERSION": "24.11.5",
    "PrologFlags": "Alloc,Contain",
    "SchedulerParameters": "bf_interval=30,nohold_on_prolog_fail",
    "PrologEpilogTimeout": "120",
    "HealthCheckProgram": "/usr/share/heeler/slurm/healthcheck.sh",
    "HealthCheckInterval": "300 sec",
    "GresTypes": "gpu",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu",
    "ProctrackType": "proctrack/cgroup",
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainDevices": "yes",
    "JobRequeue": "1",
    "SlurmdUser": "root(0)",
}
SLURM = slurm.SlurmFacts(
    config=CONFIG,
    ping="Slurmctld(primary) at ctl1 is UP\n",
    offset_s=0.4,
    nodes=(Node("n1", parse_node_state("IDLE"), gpus_total=8),),
    accounting=slurm.Accounting(None, 0),
)
SCRIPT = node.Script(
    "/usr/share/heeler/slurm/prolog.sh", text="heeler-health run\ndeadline_s=${HEELER_DEADLINE_S:-40}\n"
)
NODE = node.NodeFacts(
    name="n1",
    programs={"heeler-agent": "/usr/bin/heeler-agent"},
    scripts={"Prolog": (SCRIPT,), "Epilog": (SCRIPT,), "HealthCheckProgram": (), "TaskProlog": ()},
    nvml=node.Nvml(8),
    gres_gpus=8,
    outbox=node.Outbox("/o"),
    caches=(node.Cache("breaker cache", "/run/heeler/breaker.json", 12.0),),
)


def not_ok(lines: Iterable[Line]) -> list[tuple[str, str]]:
    found = list(lines)
    for line in found:
        if line.grade is Grade.BAD:
            assert line.advice, line
    return [(line.what, str(line.grade)) for line in found if line.grade is not Grade.OK]


def test_a_site_as_it_should_be_is_ok_everywhere() -> None:
    assert not_ok(bus.judge(BUS, "agent", "north", "n1")) == []
    assert not_ok(bus.judge_agents(BUS, ["n1", "n2"])) == []
    assert not_ok(slurm.judge(SLURM, node.DEADLINES_S)) == []
    assert not_ok(node.judge(NODE)) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"error": "connection refused"}, [("reachable", "bad")]),
        ({"version": "2.9.10"}, [("server version", "bad")]),
        ({"version": "2.10.0"}, []),
        ({"version": None}, [("server version", "unknown")]),
        ({"offset_s": 2.0}, [("clock", "warn")]),
        ({"offset_s": -200.0}, [("clock", "bad")]),
        ({"offset_s": 2.0, "within_s": 1.5}, []),  # the road was slow: no evidence
        ({"offset_s": None}, [("clock", "unknown")]),
        ({"streams": {"EVENTS": bus.Made({"max_age": 10}, None)}}, [("stream EVENTS", "bad")]),
        ({"streams": {"EVENTS": bus.Made({"max_age": 10}, None, "denied")}}, [("stream EVENTS", "unknown")]),
        ({"streams": {"EVENTS": bus.Made({"max_bytes": 10}, {"max_bytes": 5})}}, [("streams", "warn")]),
        ({"streams": {"EVENTS": bus.Made({"max_bytes": 10}, {"max_bytes": -1})}}, []),
        ({"streams": {"EVENTS": bus.Made({"max_bytes": 10}, {"max_bytes": 20})}}, []),
        ({"streams": {"EVENTS": bus.Made({"subjects": ["a", "b"]}, {"subjects": ["a"]})}}, [("stream EVENTS", "bad")]),
        ({"buckets": {"leases": bus.Made({"ttl": 5}, {"ttl": 0})}}, [("bucket leases", "bad")]),
        ({"permissions": None}, [("permissions of agent", "unknown")]),
        ({"permissions": {"publish": {"allow": ["heeler.v1.north.gpu.sample.n1"]}}}, [("permissions of agent", "bad")]),
        ({"permissions": {"publish": {"deny": ["heeler.>"]}}}, [("permissions of agent", "bad")]),
        ({"permissions": {"publish": {"allow": ["heeler.v1.north.*.*.n1"]}}}, []),
    ],
)
def test_the_bus(change: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert not_ok(bus.judge(replace(BUS, **change), "agent", "north", "n1")) == found


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (["n1"], [("agents", "warn")]),
        (["n1", "n2", "n3"], [("agents", "bad")]),
        (None, [("agents", "unknown")]),
    ],
)
def test_agents_and_nodes(nodes: list[str] | None, found: list[tuple[str, str]]) -> None:
    assert not_ok(bus.judge_agents(BUS, nodes)) == found


def test_a_silent_agent_is_named() -> None:
    facts = replace(BUS, agents_ts_ns={"n1": NOW, "n2": NOW - 400 * NS})
    lines = list(bus.judge_agents(facts, ["n1", "n2"]))
    assert [line.grade for line in lines] == [Grade.BAD]
    assert "n2" in lines[0].says


@pytest.mark.parametrize(
    ("pattern", "subject", "falls"),
    [
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
        (">", "a", True),
        ("a.*", "a.b.c", False),
    ],
)
def test_subjects_fall_under_patterns(pattern: str, subject: str, *, falls: bool) -> None:
    assert bus.matches(pattern, subject) is falls


def test_roles_publish_what_the_contract_says() -> None:
    contract = yaml.safe_load((Path(__file__).resolve().parents[2] / "schemas/subjects.yaml").read_text())["messages"]
    writes = {name: set() for name in bus.WRITES}  # type: ignore[var-annotated]
    for kind, message in contract.items():
        for writer in message["writers"]:
            role = {"heeler-agent": "agent", "heeler-slurm": "slurm", "heeler-health": "agent"}.get(writer, writer)
            if role in writes:
                writes[role].add(kind)
    assert {role: set(kinds) for role, kinds in bus.WRITES.items()} == writes
    assert all(kind in ROUTES for kinds in bus.WRITES.values() for kind in kinds)


def changed(**change: str | None) -> slurm.SlurmFacts:
    config = {**CONFIG, **change}
    return replace(SLURM, config={key: value for key, value in config.items() if value is not None})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"PrologFlags": "(null)"}, [("PrologFlags", "bad")]),
        ({"PrologFlags": None}, [("PrologFlags", "bad")]),
        ({"PrologFlags": "Contain"}, []),
        ({"PrologFlags": "X11"}, []),
        ({"PrologFlags": "alloc"}, []),
        ({"SchedulerParameters": "(null)"}, [("nohold_on_prolog_fail", "bad")]),
        ({"SchedulerParameters": "defer,nohold_on_prolog_failure"}, [("nohold_on_prolog_fail", "bad")]),
        ({"PrologEpilogTimeout": "65534"}, []),
        ({"PrologEpilogTimeout": "30"}, [("Epilog timeout", "bad"), ("Prolog timeout", "bad")]),
        ({"PrologEpilogTimeout": "60 sec"}, [("Epilog timeout", "bad")]),
        ({"PrologEpilogTimeout": None, "PrologTimeout": "30", "EpilogTimeout": "100"}, [("Prolog timeout", "bad")]),
        ({"HealthCheckProgram": "(null)"}, [("HealthCheckProgram", "warn")]),
        ({"HealthCheckInterval": "0 sec"}, [("HealthCheckProgram", "bad")]),
        ({"HealthCheckInterval": "15 sec"}, [("HealthCheckProgram", "warn")]),
        ({"GresTypes": "(null)"}, [("GresTypes", "bad")]),
        ({"AccountingStorageTRES": "cpu,mem"}, [("AccountingStorageTRES", "warn")]),
        ({"AccountingStorageTRES": "cpu,gres/gpu:h100"}, []),
        ({"ProctrackType": "proctrack/linuxproc"}, [("cgroups", "warn")]),
        ({"TaskPlugin": "task/affinity"}, [("cgroups", "warn")]),
        ({"ConstrainDevices": "no"}, [("ConstrainDevices", "warn")]),
        ({"ConstrainDevices": None}, [("ConstrainDevices", "unknown")]),
        ({"SLURM_VERSION": "20.11.9"}, [("version", "warn")]),
        ({"SLURM_VERSION": "25.05.0-0rc1"}, []),
        ({"SLURM_VERSION": None}, [("version", "unknown")]),
        ({"JobRequeue": "0"}, [("JobRequeue", "warn")]),
        ({"SlurmdUser": "slurm(64030)"}, [("SlurmdUser", "warn")]),
        ({"AccountingStorageType": "(null)"}, [("accounting", "warn")]),
    ],
)
def test_settings_of_slurm(change: dict[str, str | None], found: list[tuple[str, str]]) -> None:
    assert not_ok(slurm.judge(changed(**change), node.DEADLINES_S)) == found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"error": "no scontrol"}, [("reachable", "bad")]),
        ({"offset_s": 10.0}, [("controller clock", "warn")]),
        ({"offset_s": -400.0}, [("controller clock", "bad")]),
        ({"offset_s": None}, [("controller clock", "unknown")]),
        ({"accounting": slurm.Accounting("refused")}, [("accounting", "bad")]),
        ({"accounting": slurm.Accounting(None, 500)}, [("accounting", "warn")]),
        ({"accounting": None}, [("accounting", "unknown")]),
        ({"ping": "nonsense"}, [("controllers", "unknown")]),
        ({"ping": "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n"}, [("controller", "bad")]),
    ],
)
def test_the_state_of_slurm(change: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert not_ok(slurm.judge(replace(SLURM, **change), node.DEADLINES_S)) == found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"exists": False}, "bad"),
        ({"executable": False}, "bad"),
        ({"owner_uid": 1000}, "bad"),
        ({"writable_by": ("/usr/share/heeler",)}, "bad"),
        ({"text": "exit 0"}, "warn"),
    ],
)
def test_scripts(change: dict[str, Any], found: str) -> None:
    scripts = {**NODE.scripts, "Prolog": (replace(SCRIPT, **change),)}
    assert [grade for _, grade in not_ok(node.judge(replace(NODE, scripts=scripts)))] == [found]


def test_no_prolog_at_all_is_said() -> None:
    scripts = {**NODE.scripts, "Prolog": ()}
    assert not_ok(node.judge(replace(NODE, scripts=scripts))) == [("Prolog", "warn")]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"nvml": node.Nvml(None, "hangs")}, [("NVML", "bad")]),
        ({"nvml": node.Nvml(7)}, [("NVML", "bad")]),
        ({"nvml": node.Nvml(0), "gres_gpus": 8}, [("NVML", "bad")]),
        ({"gres_gpus": None}, [("NVML", "unknown")]),
        ({"programs": {"heeler-health": None}}, [("heeler-health", "bad")]),
        ({"outbox": node.Outbox("/o", error="no such folder")}, [("outbox", "unknown")]),
        ({"outbox": node.Outbox("/o", 3, 5.0)}, []),
        ({"outbox": node.Outbox("/o", 3, 90.0)}, [("outbox", "warn")]),
        ({"outbox": node.Outbox("/o", 3000, 9000.0)}, [("outbox", "bad")]),
        ({"caches": (node.Cache("breaker cache", "/b", None, "none"),)}, [("breaker cache", "bad")]),
        ({"caches": (node.Cache("breaker cache", "/b", 1000.0),)}, [("breaker cache", "bad")]),
        ({"policy": node.Rules("/p", faults=("checks.x: no such check",))}, [("policy", "bad")]),
        ({"policy": node.Rules("/p"), "breaker": Breaker("unknown", "no file")}, []),
        ({"policy": node.Rules("/p", ("a",)), "breaker": Breaker("unknown", "no file")}, [("breaker", "bad")]),
        ({"policy": node.Rules("/p", ("a",)), "breaker": Breaker("open", "3 nodes")}, [("breaker", "warn")]),
        ({"policy": node.Rules("/p", ("a",)), "breaker": Breaker("closed", "")}, []),
    ],
)
def test_the_node(change: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert not_ok(node.judge(replace(NODE, **change))) == found


def test_the_deadline_is_read_from_the_script() -> None:
    slow = replace(SCRIPT, text="deadline_s=${HEELER_DEADLINE_S:-300}\n")
    assert node.deadlines_s({"Prolog": (slow,)}) == {"Prolog": 300, "Epilog": 90}
    folder = Path(__file__).resolve().parents[2] / "deploy/slurm"
    delivered = {
        hook: (node.Script("x", text=(folder / f"{hook.lower()}.sh").read_text()),) for hook in ("Prolog", "Epilog")
    }
    assert node.deadlines_s(delivered) == node.DEADLINES_S
    assert all(script.ours for scripts in delivered.values() for script in scripts)


def line(grade: Grade) -> Line:
    return Line("bus", "x", grade, "")


@pytest.mark.parametrize(
    ("grades", "status"),
    [
        ([], 0),
        ([Grade.OK, Grade.WARN], 0),
        ([Grade.OK, Grade.UNKNOWN], 3),
        ([Grade.UNKNOWN, Grade.BAD], 1),
    ],
)
def test_the_exit_status_tells_the_worst(grades: list[Grade], status: int) -> None:
    assert exit_status(map(line, grades)) == status
