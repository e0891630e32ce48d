"""InfiniBand and RoCE: spare ports, devices that lack files, counters at their top, nothing there at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from healthkit import check_of, machine, run

from heeler.health.checks.infiniband import (
    CHECKS,
    HcaCountSettings,
    IbCountersSettings,
    IbFirmwareSettings,
    IbInterfacesSettings,
    IbLinksSettings,
    IbPortErrorsSettings,
    judge_ib_port_errors,
)
from heeler.health.model import Check, Outcome, Verdict

EIGHT = IbLinksSettings(ports=tuple(f"mlx5_{at}" for at in range(8)), rate_gbps=400)
MANIFEST = {
    "ib": {
        "link_rate": "400 Gb/sec (4X NDR)",
        "firmware_version": ["28.39.1002"],
        "interfaces": {f"ib{at}": {"mlx": f"mlx5_{at}", "desc": "rail"} for at in range(2)},
    }
}


def check(name: str) -> Check:
    return check_of(CHECKS, name)


def port(
    device: str, state: str = "4: ACTIVE", phys: str = "5: LinkUp", rate: str = "400 Gb/sec (4X NDR)", **counters: Any
) -> dict[str, str]:
    folder = f"sys/class/infiniband/{device}/"
    files = {f"{folder}fw_ver": "28.39.1002\n", f"{folder}ports/1/state": f"{state}\n"}
    files |= {f"{folder}ports/1/phys_state": f"{phys}\n", f"{folder}ports/1/rate": f"{rate}\n"}
    files[f"{folder}ports/1/link_layer"] = "InfiniBand\n"
    return files | {f"{folder}ports/1/counters/{name}": f"{value}\n" for name, value in counters.items()}


DOWN = ("1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)")


def rails(root: Path, *, up: int = 8, spare: int = 10, more: dict[str, str] | None = None) -> Path:
    files: dict[str, str] = {"sys/class/net/lo/type": "772\n"}
    for at in range(up):
        files |= port(f"mlx5_{at}")
    for at in range(up, up + spare):
        files |= port(f"mlx5_{at}", *DOWN)
    return machine(root, files | (more or {}))


# ib_links


def test_ib_links_good_where_spare_ports_are_down(tmp_path: Path) -> None:
    verdict = run(check("ib_links"), rails(tmp_path), EIGHT)
    assert (verdict.outcome, verdict.perf["ports_up"]) == (Outcome.OK, 8)
    assert run(check("ib_links"), tmp_path, IbLinksSettings(count=8, rate_gbps=400)).outcome is Outcome.OK


def test_ib_links_bad_names_the_port_of_the_list_that_is_down(tmp_path: Path) -> None:
    verdict = run(check("ib_links"), rails(tmp_path, up=7, spare=11), EIGHT)
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "mlx5_7/1: DOWN, Polling")
    assert verdict.evidence[0].device == "mlx5_7/1"
    verdict = run(check("ib_links"), tmp_path, IbLinksSettings(count=8))
    assert verdict.outcome is Outcome.BAD
    assert "expected 8 ports up, found 7" in verdict.why


def test_ib_links_bad_without_any_device_good_where_none_is_expected(tmp_path: Path) -> None:
    empty = machine(tmp_path, {"sys/class/net/lo/type": "772"})
    (tmp_path / "sys/class/infiniband").mkdir()
    verdict = run(check("ib_links"), empty, IbLinksSettings(count=8))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "expected 8 ports up, found 0 (no others)")
    assert run(check("ib_links"), empty, IbLinksSettings(count=0)).outcome is Outcome.OK
    assert run(check("ib_links"), empty, EIGHT).outcome is Outcome.BAD
    (tmp_path / "sys/class/infiniband").rmdir()
    assert run(check("ib_links"), empty, IbLinksSettings(count=8)).outcome is Outcome.BAD


def test_ib_links_bad_where_a_port_is_slow(tmp_path: Path) -> None:
    root = rails(tmp_path, up=2)
    (root / "sys/class/infiniband/mlx5_1/ports/1/rate").write_text("200 Gb/sec (4X HDR)\n")
    verdict = run(check("ib_links"), root, IbLinksSettings(ports=("mlx5_0", "mlx5_1/1"), rate_gbps=400))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "mlx5_1/1: 200 Gb/s, not 400")


@pytest.mark.parametrize(
    ("state", "phys", "outcome"),
    [
        ("2: INIT", "5: LinkUp", Outcome.WARN),
        ("3: ARMED", "5: LinkUp", Outcome.WARN),
        ("1: DOWN", "3: Disabled", Outcome.BAD),
        ("1: DOWN", "2: Polling", Outcome.BAD),
        ("4: ACTIVE", "6: LinkErrorRecovery", Outcome.BAD),
        ("", "5: LinkUp", Outcome.UNKNOWN),
    ],
)
def test_ib_links_bad_only_linkup_and_active_is_up(tmp_path: Path, state: str, phys: str, outcome: Outcome) -> None:
    root = machine(tmp_path, port("mlx5_0", state, phys))
    assert run(check("ib_links"), root, IbLinksSettings(ports=("mlx5_0",))).outcome is outcome
    assert run(check("ib_links"), root, IbLinksSettings(count=1)).outcome is outcome


def test_ib_links_good_where_another_device_lacks_its_files(tmp_path: Path) -> None:
    strange = {"sys/class/infiniband/irdma0/node_type": "4: RNIC\n", "sys/class/infiniband/hfi1_0/ports/1/x": "\n"}
    root = rails(tmp_path, up=1, spare=0, more=strange)
    assert run(check("ib_links"), root, IbLinksSettings(ports=("mlx5_0",))).outcome is Outcome.OK


def test_ib_links_unknown_where_a_device_went_away_while_it_was_read(tmp_path: Path) -> None:
    root = machine(tmp_path, {"sys/class/infiniband/mlx5_0/node_type": "1: CA\n"})
    assert run(check("ib_links"), root, IbLinksSettings(ports=("mlx5_0",))).outcome is Outcome.UNKNOWN


def test_ib_links_good_and_bad_by_the_manifest(tmp_path: Path) -> None:
    root = rails(tmp_path, up=2, more={"etc/manifest.json": json.dumps(MANIFEST)})
    assert run(check("ib_links"), root, IbLinksSettings()).outcome is Outcome.OK
    (root / "sys/class/infiniband/mlx5_1/ports/1/phys_state").write_text("2: Polling\n")
    assert run(check("ib_links"), root, IbLinksSettings()).outcome is Outcome.BAD


def test_ib_links_unknown_where_nobody_says_what_should_be_up(tmp_path: Path) -> None:
    assert run(check("ib_links"), rails(tmp_path), IbLinksSettings()).outcome is Outcome.UNKNOWN
    machine(tmp_path, {"etc/manifest.json": "{"})
    verdict = run(check("ib_links"), tmp_path, IbLinksSettings())
    assert verdict.outcome is Outcome.UNKNOWN
    assert "manifest can't be read" in verdict.why
    assert run(check("ib_links"), tmp_path, EIGHT).outcome is Outcome.OK
    assert run(check("ib_links"), tmp_path / "nothing", EIGHT).outcome is Outcome.UNKNOWN


# hca_count


def test_hca_count_good_bad_and_unknown(tmp_path: Path) -> None:
    root = rails(tmp_path / "a", up=8, spare=0)
    assert run(check("hca_count"), root, HcaCountSettings(8)).outcome is Outcome.OK
    verdict = run(check("hca_count"), root, HcaCountSettings(9))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "expected 9 adapters, found 8")
    assert run(check("hca_count"), root, HcaCountSettings(7)).outcome is Outcome.WARN
    assert run(check("hca_count"), root, HcaCountSettings(1, devices="mlx5_0")).outcome is Outcome.OK
    none = machine(tmp_path / "b", {"sys/class/net/lo/type": "772"})
    assert run(check("hca_count"), none, HcaCountSettings(8)).why == "expected 8 adapters, found 0"
    assert run(check("hca_count"), tmp_path / "c", HcaCountSettings(8)).outcome is Outcome.UNKNOWN


# ib_counters


def counted(root: Path, settings: IbCountersSettings | None = None, **counters: Any) -> Verdict:
    return run(check("ib_counters"), machine(root, port("mlx5_0", **counters)), settings or IbCountersSettings())


def test_ib_counters_good(tmp_path: Path) -> None:
    assert counted(tmp_path, symbol_error=3, link_downed=1, port_xmit_data=4294967295).outcome is Outcome.OK


def test_ib_counters_bad_beyond_the_limits(tmp_path: Path) -> None:
    verdict = counted(tmp_path / "a", link_downed=11)
    assert (verdict.outcome, verdict.why) == (Outcome.WARN, "mlx5_0/1 link_downed: 11")
    assert counted(tmp_path / "b", IbCountersSettings(bad={"link_downed": 11}), link_downed=11).outcome is Outcome.BAD


@pytest.mark.parametrize(
    "counter",
    [{"symbol_error": 65535}, {"link_downed": 255}, {"port_rcv_errors": 4294967295}, {"symbol_error": 4294967295}],
)
def test_ib_counters_unknown_where_one_stands_at_its_top(tmp_path: Path, counter: dict[str, int]) -> None:
    verdict = counted(tmp_path, None, **counter)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "at its top" in verdict.why


def test_ib_counters_unknown_where_none_of_its_files_is_there(tmp_path: Path) -> None:
    assert counted(tmp_path / "a", SymbolErrorCounter=0, other=1).outcome is Outcome.UNKNOWN
    assert counted(tmp_path / "b", symbol_error="N/A (no PMA)").outcome is Outcome.UNKNOWN
    assert counted(tmp_path / "c").outcome is Outcome.UNKNOWN
    down = machine(tmp_path / "d", port("mlx5_0", *DOWN, symbol_error=0))
    assert run(check("ib_counters"), down).outcome is Outcome.UNKNOWN


# ib_port_errors


def facts(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    def devices(counters: dict[str, Any]) -> dict[str, Any]:
        return {"mlx5_0": {"ports": {"1": {"phys": "LinkUp", "state": "ACTIVE", "counters": counters}}}}

    return {"before": devices(before), "devices": devices(after), "seconds": 1.0}


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ({"symbol_error": 70000}, {"symbol_error": 70000}, Outcome.OK),
        ({"symbol_error": 5}, {"symbol_error": 6}, Outcome.WARN),
        ({"symbol_error": 5}, {"symbol_error": 500}, Outcome.BAD),
        ({"link_downed": 1}, {"link_downed": 2}, Outcome.BAD),
        ({"symbol_error": 65535}, {"symbol_error": 65535}, Outcome.UNKNOWN),
        ({"link_downed": 9}, {"link_downed": 0}, Outcome.UNKNOWN),
        ({}, {"link_downed": 0}, Outcome.UNKNOWN),
        ({"x": 1}, {"x": 2}, Outcome.UNKNOWN),
    ],
)
def test_ib_port_errors_good_bad_and_unknown_by_growth(
    before: dict[str, Any], after: dict[str, Any], outcome: Outcome
) -> None:
    assert judge_ib_port_errors(facts(before, after), IbPortErrorsSettings(), None).outcome is outcome  # type: ignore[arg-type]


def test_ib_port_errors_good_through_its_probe(tmp_path: Path) -> None:
    root = machine(tmp_path, port("mlx5_0", symbol_error=5))
    assert run(check("ib_port_errors"), root, timeout_s=0.1).outcome is Outcome.OK


# ib_interfaces


def nets(root: Path, *states: str) -> Path:
    files = {"sys/class/net/eth0/type": "1\n", "sys/class/net/eth0/operstate": "up\n"}
    for at, state in enumerate(states):
        files |= {f"sys/class/net/ib{at}/type": "32\n", f"sys/class/net/ib{at}/operstate": f"{state}\n"}
    return machine(root, files)


def test_ib_interfaces_good_bad_and_unknown(tmp_path: Path) -> None:
    eight = nets(tmp_path / "a", *["up"] * 8, "down")
    assert run(check("ib_interfaces"), eight).outcome is Outcome.OK
    seven = nets(tmp_path / "b", *["up"] * 7, "down")
    verdict = run(check("ib_interfaces"), seven)
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "expected 8 interfaces up, found 7 of 8")
    names = IbInterfacesSettings(names=("ib0", "ib7", "ib9"))
    assert run(check("ib_interfaces"), seven, names).why == "ib7 is down; ib9 is not there"
    none = machine(tmp_path / "c", {"sys/class/infiniband/x/y": ""})
    assert run(check("ib_interfaces"), none).outcome is Outcome.UNKNOWN


# ib_firmware


def test_ib_firmware_good_bad_and_unknown(tmp_path: Path) -> None:
    root = rails(tmp_path, up=2, spare=0)
    assert run(check("ib_firmware"), root, IbFirmwareSettings(("28.39.1002", "28.40.1000"))).outcome is Outcome.OK
    verdict = run(check("ib_firmware"), root, IbFirmwareSettings(("28.40.1000",)))
    assert (verdict.outcome, verdict.evidence[0].device) == (Outcome.WARN, "mlx5_0")
    assert run(check("ib_firmware"), root, IbFirmwareSettings()).outcome is Outcome.UNKNOWN
    machine(root, {"etc/manifest.json": json.dumps(MANIFEST)})
    assert run(check("ib_firmware"), root, IbFirmwareSettings()).outcome is Outcome.OK
    for at in range(2):
        (root / f"sys/class/infiniband/mlx5_{at}/fw_ver").write_text("")
    assert run(check("ib_firmware"), root, IbFirmwareSettings()).outcome is Outcome.UNKNOWN
