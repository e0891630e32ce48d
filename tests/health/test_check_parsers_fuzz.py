"""Parsers of checks, given anything: a value, or the error that they promise; never another."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heeler.health.checks.dcgm_text import (
    parse_diag,
    parse_discovery,
    parse_health,
    parse_link_errors,
    parse_link_status,
)
from heeler.health.checks.drives import parse_smart
from heeler.health.checks.ipmi import holding, parse_sel, parse_sensors
from heeler.health.checks.manifest import parse_manifest, wanted_rdma_ports
from heeler.health.checks.memory import parse_module
from heeler.health.checks.mounts import parse_fstab, parse_mountinfo
from heeler.health.checks.nccl import parse_run
from heeler.health.checks.pcie import address_of
from heeler.health.checks.process import parse_stat
from heeler.health.checks.slurm import parse_ping
from heeler.health.checks.software import parse_show
from heeler.health.checks.tool import Output
from heeler.health.kmsg import parse_record
from heeler.health.kmsg_words import meaning_of
from heeler.health.model import ProbeError

TEXTS: dict[str, tuple[Callable[[str], Any], tuple[type[Exception], ...]]] = {
    "diag": (parse_diag, (ValueError,)),
    "discovery": (parse_discovery, ()),
    "health": (parse_health, (ValueError,)),
    "link_errors": (parse_link_errors, (ValueError,)),
    "link_status": (parse_link_status, (ValueError,)),
    "sel": (lambda text: holding(parse_sel(text)), (ProbeError,)),
    "sensors": (parse_sensors, (ProbeError,)),
    "mountinfo": (parse_mountinfo, (ValueError,)),
    "fstab": (parse_fstab, (ValueError,)),
    "run": (parse_run, ()),
    "stat": (parse_stat, ()),
    "ping": (parse_ping, (ProbeError,)),
    "show": (parse_show, (ProbeError,)),
    "words": (meaning_of, ()),
    "address": (address_of, ()),
    "smart": (lambda text: parse_smart(Output(("smartctl",), 0, text, "")), (ProbeError,)),
    "manifest": (
        lambda text: wanted_rdma_ports(parse_manifest(text.encode(errors="replace"), Path("m.json"))),
        (ProbeError,),
    ),
}
# Pieces that lead deep into the parsers.
PIECES = st.sampled_from(
    [
        " ",
        "\n",
        "|",
        ",",
        "'",
        '"',
        "0",
        "-1",
        "999999999999999999999",
        "1 | 05/01/2025 | 10:00:00 | Fan | x | Asserted\n",
        "ID,Name,Type,State,Reading,Units,Event\n",
        "1,FAN,Fan,Nominal,1,RPM,'OK'\n",
        "gpuId 0:\n",
        "U D X _\n",
        "GPUs:\n",
        "Slurmctld(primary) at a is UP\n",
        "Id=a.service\nActiveState=active\n",
        "I/O error, dev sda, sector 1 ",
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 1: 8c00",
        "Out of memory: Killed process 1 (a",
        ")",
        "(",
        "21 1 0:1 / / rw - ext4 /dev/x rw\n",
        "\\040",
        "# Avg bus bandwidth : 1.5\n",
        "| 0 | Device UUID: GPU-\n",
        "+---+\n",
        "\x00",
    ]
)
ANY_TEXT = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=30).map("".join))
KEYS = st.sampled_from(
    [
        "DCGM Diagnostic",
        "test_categories",
        "tests",
        "results",
        "status",
        "gpu_id",
        "warnings",
        "info",
        "category",
        "name",
        "body",
        "children",
        "value",
        "Overall Health",
        "Link 0",
        "CRC Data Error",
        "smart_status",
        "passed",
        "smartctl",
        "messages",
        "device",
        "nvme_smart_health_information_log",
        "critical_warning",
        "pci",
        "ib",
        "interfaces",
        "mlx",
        "eth",
        "disks",
        "user_capacity",
        "bytes",
    ]
)
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=25,
)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def never_another(name: str, text: str) -> None:
    parse, promised = TEXTS[name]
    with contextlib.suppress(*promised):
        parse(text)


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_is_a_value_or_the_promised_error(name: str) -> None:
    @QUICK
    @given(ANY_TEXT)
    def holds(text: str) -> None:
        never_another(name, text)

    holds()


@pytest.mark.parametrize("name", ["diag", "health", "link_errors", "smart", "manifest"])
def test_any_json_is_a_value_or_the_promised_error(name: str) -> None:
    @QUICK
    @given(ANY_JSON)
    def holds(value: Any) -> None:
        never_another(name, json.dumps(value))

    holds()


@QUICK
@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_none(data: bytes) -> None:
    parse_record(data)
    parse_record(b"4,1,2,-;" + data)
    parse_module(data)
    parse_module(b"\x11\x28" + data)
