"""docs/gcm-parity.md: every name of GCM has a row, every row is true, and a gap is found."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import commands
import parity
import parity_places
import pytest
from parity_table import Row, known_names, table

from heeler.engine.config import build
from heeler.health.model import Phase
from heeler.health.policy import make_policy
from heeler.health.table import CHECKS, PROFILES
from heeler.otlp.settings import OtlpSettings
from heeler.slurm import config
from heeler.slurm.sacct_text import parse_sacct_text
from heeler.slurm.settings import SlurmSettings

ROOT = Path(__file__).parents[2]
WAY = ROOT / "docs/from-gcm.md"
NAMES = known_names(parity.FOLDER)
ROWS = table(parity.FOLDER)
GOOD = Row("checks", "command x", ("check uptime",))


def test_every_name_of_gcm_has_one_row_and_every_row_is_true() -> None:
    assert parity.all_faults(ROWS, NAMES) == []


def test_the_page_is_up_to_date() -> None:
    assert parity.PAGE.read_text() == parity.page(ROWS, len(NAMES)), "make gen changes it"


def test_a_name_without_a_row_is_a_gap() -> None:
    less = [row for row in ROWS if row.name != "field JobData.USER"]
    assert parity.all_faults(less, NAMES) == ["field JobData.USER: has no row"]
    twice = [*ROWS, next(row for row in ROWS if row.name == "field JobData.USER")]
    assert "field JobData.USER: has 2 rows" in parity.all_faults(twice, NAMES)


@pytest.mark.parametrize(
    "place",
    [
        "function heeler.slurm.sched.NOTHING",
        "function heeler.nowhere.COLLECTOR",
        "column jobs.nothing",
        "column nothing.user",
        "message HealthResult.nothing",
        "message Nothing.why",
        "message GpuSample.mean.nothing",
        "metric hw.nothing",
        "check nothing",
        "setting uptime.nothing",
        "key slurm.nothing",
        "key nothing.level",
        "key agent.nothing",
        "file docs/nothing.md",
        "command heeler-health nothing",
        "command heeler-health run --nothing",
        "command heeler nothing",
        "command heeler-agent nothing",
        "command gcm slurm_monitor",
        "not taken",
        "not taken - because",
        "nothing at all",
        "",
    ],
)
def test_a_place_that_is_not_there_is_a_gap(place: str) -> None:
    assert parity_places.place_fault(place)
    assert parity_places.faults(replace(GOOD, places=(place,)))


@pytest.mark.parametrize(
    "place",
    [
        "function heeler.health.model.Outcome.OK",
        "column jobs.user",
        "message JobRecord.steps.usage_in_tot",
        "message HealthResult.evidence.gpu_uuid",
        "metric system.memory.usage",
        "key otlp.sinks.endpoint",
        "command heeler slurm backfill --from",
        "command heeler-health report --check",
        "command heeler-health serve --print-config",
        "command heeler-agent once",
        "not taken - inside one company",
    ],
)
def test_a_place_that_is_there_is_none(place: str) -> None:
    assert parity_places.place_fault(place) is None


def test_a_row_that_is_not_done_or_without_its_tests_is_a_gap() -> None:
    tests = dict.fromkeys(("good", "bad", "unknown"), "health/test_check_uptime.py::test_uptime_good_of_this_machine")
    assert parity_places.faults(replace(GOOD, tests=tests, needs_tests=True)) == []
    for row in (
        replace(GOOD, differs="not yet"),
        replace(GOOD, places=("not taken - this will come later, not yet",)),
        replace(GOOD, places=()),
        replace(GOOD, needs_tests=True),
        replace(GOOD, tests={k: v for k, v in tests.items() if k != "unknown"}, needs_tests=True),
        replace(GOOD, tests={**tests, "bad": "health/test_check_uptime.py::test_nothing"}),
        replace(GOOD, tests={**tests, "bad": "health/test_nothing.py::test_uptime_good_of_this_machine"}),
    ):
        assert parity_places.faults(row), row


def test_every_check_and_mode_of_gcm_has_tests_of_good_bad_and_unknown() -> None:
    found = [row for row in ROWS if row.section in ("checks", "modes") and row.tests]
    assert all(set(row.tests) == {"good", "bad", "unknown"} for row in found)
    assert len([row for row in found if row.section == "checks"]) == 44 + 13 + 2 + 1
    ours = {place.removeprefix("check ") for row in ROWS for place in row.places if place.startswith("check ")}
    assert ours <= {check.name for check in CHECKS}


def test_fields_of_sacct_are_in_the_record_where_the_table_says() -> None:
    """A row with every field that GCM's record has: none is lost, typed or word for word."""
    fields = [row.name.removeprefix("field Sacct.") for row in ROWS if row.section == "record Sacct"]
    header = (ROOT / "tests/data/slurm/22.05/sacct_all.txt").read_text().splitlines()[0].split("|")
    assert set(fields) - {"derived_cluster"} == set(header)
    places = {row.name.removeprefix("field Sacct."): row.places for row in ROWS if row.section == "record Sacct"}
    values = dict.fromkeys(header, "word") | NUMBERS
    record = parse_sacct_text("|".join(header) + "\n" + "|".join(values[name] for name in header) + "\n").records[0]
    for name in header:
        first = places[name][0].removeprefix("message JobRecord.")
        if first == "fields":
            assert record["fields"][name] == values[name], name
        elif not first.startswith("steps."):
            assert first in record, name
            assert name not in record["fields"], name


NUMBERS = {
    **dict.fromkeys(("AllocCPUS", "AllocNodes", "ElapsedRaw", "GID", "NCPUS", "NNodes", "NTasks", "Priority"), "7"),
    **dict.fromkeys(("UID", "AssocID", "QOSRAW", "WCKeyID", "ReservationId", "CPUTimeRAW", "TimelimitRaw"), "7"),
    **dict.fromkeys(("Elapsed", "Suspended", "CPUTime", "TotalCPU", "UserCPU", "SystemCPU", "Reserved"), "00:00:07"),
    **dict.fromkeys(("ResvCPU", "AveCPU", "MinCPU", "Timelimit"), "00:00:07"),
    **dict.fromkeys(("Submit", "Eligible", "Start", "End"), "2026-12-03T01:00:00"),
    **dict.fromkeys(("AllocTRES", "ReqTRES", "TRESUsageInTot", "TRESUsageOutTot"), "cpu=1,mem=1G,gres/gpu:h100=2"),
    "DerivedExitCode": "0:0",
    "ExitCode": "0:0",
    "ReqMem": "4G",
    "ConsumedEnergyRaw": "7",
    "JobID": "481",
    "JobIDRaw": "481",
    "State": "CANCELLED by 1001",
    "MaxRSS": "1K",
    "MaxVMSize": "1K",
}


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_settings_of_slurm_that_gcm_names_are_rows_of_the_table_where_slurm_prints_them(version: str) -> None:
    data = (ROOT / f"tests/data/slurm/{version}/scontrol_show_config.txt").read_bytes()
    printed = {line.partition("=")[0].strip() for line in data.decode().splitlines() if " = " in line}
    wanted = {row.name.removeprefix("field ScontrolConfig.") for row in ROWS if row.section == "record ScontrolConfig"}
    found = set(config.parse_text(data).columns["key"])
    assert len(wanted & printed) > 150
    assert wanted & printed <= found


def test_commands_of_the_way_from_gcm_are_there() -> None:
    lines = ours_in(WAY.read_text())
    assert len(lines) > 25
    assert [why for line in lines if (why := commands.fault(line))] == []


def test_checks_settings_and_metrics_of_the_way_from_gcm_are_there() -> None:
    text = WAY.read_text()
    named = set(re.findall(r"`((?:hw|system|heeler\.gpu|heeler\.slurm)\.[a-z_.]+)`", text)) - {"host.name", "hw.id"}
    assert len(named) > 10
    assert named <= parity_places.metrics()


def test_configuration_of_the_way_from_gcm_is_read() -> None:
    policy, slurm, otlp = None, None, None
    for found in tables_in(WAY.read_text()):
        if "profiles" in found:
            policy = make_policy(found, "node01", CHECKS, PROFILES)
        elif "slurm" in found:
            slurm = build(SlurmSettings, found["slurm"], "slurm")
        elif "otlp" in found:
            otlp = build(OtlpSettings, found["otlp"], "otlp")
    assert policy is not None
    assert policy.rules["gpu_count"].settings.expected == 8
    assert policy.rules["gpu_count"].enforce == {Phase.PROLOG}
    assert slurm is not None
    assert (slurm.quotas.reader, slurm.storage.mounts) == ("pure", ("/home", "/scratch.*"))
    assert otlp is not None
    assert otlp.sinks[0].protocol == "http"


def test_a_metric_of_gcm_that_is_none_here_is_a_gap() -> None:
    row = next(row for row in ROWS if row.name == "field SLURMLog.nodes_idle")
    assert parity_places.metric_of(row) == "heeler.slurm.cluster.nodes.by_state{slurm.node.state=idle}"
    account = next(row for row in ROWS if row.name == "field SLURMLogAccountMetrics.total_gpus_alloc")
    assert parity_places.metric_of(account) == "heeler.slurm.account.jobs_gpus"
    assert parity_places.faults(replace(row, places=("column jobs.user",)))


def tables_in(text: str) -> Iterator[dict[str, object]]:
    """Yield the blocks of a page that are TOML with a table."""
    for block in re.findall(r"(?:^(?:    .*)?\n)+", text, re.MULTILINE):
        if re.search(r"^ {4}\[", block, re.MULTILINE):
            yield tomllib.loads(block)


def ours_in(text: str) -> list[str]:
    """Return command lines of ours in blocks and between backticks."""
    found = []
    for raw in text.splitlines():
        line = raw.strip().removeprefix("sudo ").partition(" | ")[0].partition(" # ")[0].partition(" < ")[0]
        pieces = [line] if raw.startswith("    ") else raw.split("`")[1::2]
        found += [piece.strip() for piece in pieces if piece.startswith(("heeler ", "heeler-"))]
    return [line for line in found if " " in line or line in commands.MODULES]
