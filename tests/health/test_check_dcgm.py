"""DCGM: every GPU's result, of DCGM 3 and 4, and what an exit status does not show."""

import json
from pathlib import Path
from typing import Any

import pytest
from healthkit import case, check_of, machine, run, tool

from heeler.bus import ConfigError
from heeler.health.checks.dcgm import CHECKS, DcgmDiagSettings, DcgmHostSettings, NvlinkErrorsSettings
from heeler.health.checks.dcgm_text import parse_diag, parse_discovery
from heeler.health.model import Case, Check, Job, Outcome, Phase, Verdict

UUIDS = [f"GPU-0000000{at}-77c0-4e1b-9f20-a1b2c3d40000" for at in range(2)]
ALL = DcgmDiagSettings(gpus="all")


def check(name: str) -> Check:
    return check_of(CHECKS, name)


def discovery() -> str:
    line = "+--------+------------------------------+\n"
    rows = "".join(
        f"| {at}      | Name: NVIDIA H100 80GB HBM3 |\n|        | PCI Bus ID: 00000000:{at}8:00.0 |\n"
        f"|        | Device UUID: {uuid} |\n{line}"
        for at, uuid in enumerate(UUIDS)
    )
    return f"2 GPUs found.\n{line}| GPU ID | Device Information           |\n{line}{rows}0 NvSwitches found.\n"


def dcgmi(root: Path, text: str, rc: int = 0) -> Path:
    folder = root / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "discovery.txt").write_text(discovery())
    (folder / "out.txt").write_text(text)
    tool(
        folder,
        "dcgmi",
        f'cd {folder}; echo "$@" >> argv\ncase $1 in discovery) cat discovery.txt;; *) cat out.txt; exit {rc};; esac',
    )
    return folder


def v3(*results: dict[str, Any], **more: Any) -> str:
    tests = [{"name": "Memory", "results": list(results)}, {"name": "Denylist", "results": [{"status": "Pass"}]}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}, **more})


def v4(*results: dict[str, Any]) -> str:
    rows = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": at, **one} for at, one in enumerate(results)]
    tests = [{"name": "memory", "results": rows, "test_summary": {"status": "Pass"}}]
    tests += [{"name": "cpu", "results": [{"entity_group": "CPU", "entity_id": 0, "status": "Skip"}]}]
    return json.dumps(
        {
            "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]},
            "metadata": {"version": "4.2.3"},
        }
    )


PASS3 = v3({"gpu_id": "0", "status": "PASS"}, {"gpu_id": "1", "status": "PASS"})


def diag(root: Path, text: str, rc: int = 0, settings: DcgmDiagSettings = ALL) -> Verdict:
    return run(check("dcgm_diag"), root, settings, tools=dcgmi(root, text, rc))


# dcgm_diag


@pytest.mark.parametrize(
    "text",
    [
        PASS3,
        v3({"gpu_ids": "0,1", "status": "Pass"}),
        v4({"status": "Pass"}, {"status": "Pass", "info": ["Allocated 80 GB"]}),
        f"Successfully ran diagnostic.\n{PASS3}\n",
    ],
)
def test_dcgm_diag_good_of_dcgm_3_and_4(tmp_path: Path, text: str) -> None:
    assert diag(tmp_path, text).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("text", "rc"),
    [
        (
            v3(
                {"gpu_id": "0", "status": "Pass"},
                {"gpu_id": "1", "status": "Fail", "warnings": [{"warning": "bad row", "error_id": 5}]},
            ),
            205,
        ),
        (v3({"gpu_ids": "0", "status": "Pass"}, {"gpu_ids": "1", "status": "FAIL", "info": "bad row"}), 226),
        (v4({"status": "Pass"}, {"status": "Fail", "warnings": [{"warning": "bad row", "error_category": 9}]}), 226),
        (v4({"status": "Pass"}, {"status": "Fail", "info": ["bad row"]}), 0),
    ],
)
def test_dcgm_diag_bad_where_not_the_first_gpu_fails(tmp_path: Path, text: str, rc: int) -> None:
    verdict = diag(tmp_path, text, rc)
    assert verdict.outcome is Outcome.BAD
    assert verdict.gpus == (UUIDS[1],)
    assert "GPU 1 fail: bad row" in verdict.why
    assert verdict.evidence[0].gpu_index == 1


def test_dcgm_diag_bad_only_warns_where_a_test_warns_and_not_for_excluded_ones(tmp_path: Path) -> None:
    warned = v3({"gpu_id": "0", "status": "Warn", "warnings": "persistence mode"}, {"gpu_id": "1", "status": "Pass"})
    assert diag(tmp_path, warned).outcome is Outcome.WARN
    failed = v3({"gpu_id": "0", "status": "Fail"}, {"gpu_id": "1", "status": "Pass"})
    excluded = DcgmDiagSettings(gpus="all", exclude=("Memory",))
    assert diag(tmp_path, failed, 226, excluded).outcome is Outcome.UNKNOWN  # something else failed, by its status
    assert diag(tmp_path, failed, 0, excluded).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("text", "rc"),
    [
        ("", 0),
        ("Error: unable to establish a connection to the specified host: localhost\n", 235),
        ('{"DCGM GPU Diagnostic": {"runtime_error": "another instance runs"}}', 226),
        ("{}", 0),
        ("[]", 0),
        ('{"DCGM Diagnostic": {"test_categories": []}}', 0),
        (PASS3, 226),
        (v3({"gpu_id": "0", "status": "Skip"}, {"gpu_id": "1", "status": "Skip"}).replace("Pass", "Skip"), 0),
        (v3({"gpu_id": "0", "status": "Pass"}), 0),
        (v3({"gpu_id": "0", "status": "Pass"}, {"gpu_id": "1", "status": "Inconclusive"}), 0),
        (PASS3, 127),
        ('{"DCGM GPU Diagnostic": {"test_categories": [', 0),
    ],
)
def test_dcgm_diag_unknown(tmp_path: Path, text: str, rc: int) -> None:
    assert diag(tmp_path, text, rc).outcome is Outcome.UNKNOWN


def test_dcgm_diag_unknown_without_dcgmi_or_gpus(tmp_path: Path) -> None:
    assert "dcgmi is not installed" in run(check("dcgm_diag"), tmp_path, ALL, tools=tmp_path / "none").why
    tool(tmp_path / "bin", "dcgmi", "echo '0 GPUs found.'")
    assert run(check("dcgm_diag"), tmp_path, ALL, tools=tmp_path / "bin").outcome is Outcome.UNKNOWN


def of_job(phase: Phase) -> Case:
    return case(phase, node="node01", job=Job("81", gpu_minors=(1,)))


def node(root: Path, state: str, used: str, phase: Phase, settings: DcgmDiagSettings | None = None) -> Verdict:
    tools = dcgmi(root, v3({"gpu_id": "1", "status": "Pass"}))
    tool(tools, "scontrol", f"echo 'NodeName=node01 State={state} Gres=gpu:h100:2 GresUsed={used}'")
    machine(
        root,
        {
            f"proc/driver/nvidia/gpus/0000:{at}8:00.0/information": f"GPU UUID: \t {uuid}\nDevice Minor: \t {at}\n"
            for at, uuid in enumerate(UUIDS)
        },
    )
    return run(check("dcgm_diag"), root, settings or DcgmDiagSettings(), tools=tools, about=of_job(phase))


def test_dcgm_diag_takes_only_gpus_that_nobody_has(tmp_path: Path) -> None:
    assert node(tmp_path / "a", "MIXED+COMPLETING", "gpu:h100:1(IDX:0)", Phase.EPILOG).outcome is Outcome.OK
    assert "diag -j -r 1 -i 1\n" in (tmp_path / "a/bin/argv").read_text()


@pytest.mark.parametrize(
    ("state", "used", "phase", "settings"),
    [
        ("MIXED", "gpu:h100:1(IDX:1)", Phase.EPILOG, None),
        ("MIXED", "gpu:h100:1(IDX:0)", Phase.PROLOG, None),
        ("IDLE", "gpu:h100:0(IDX:N/A)", Phase.PERIODIC, None),
        ("MIXED", "gpu:h100:1(IDX:0)", Phase.EPILOG, DcgmDiagSettings(level=2)),
        ("MIXED", "gpu:h100:1(IDX:0)", Phase.EPILOG, DcgmDiagSettings(gpus="all")),
    ],
)
def test_dcgm_diag_unknown_and_not_run_in_any_doubt(
    tmp_path: Path, state: str, used: str, phase: Phase, settings: DcgmDiagSettings | None
) -> None:
    assert node(tmp_path, state, used, phase, settings).outcome is Outcome.UNKNOWN
    assert "diag" not in (tmp_path / "bin/argv").read_text()


def test_settings_that_mean_nothing_are_refused() -> None:
    for settings in (
        DcgmDiagSettings(level=5),
        DcgmDiagSettings(gpus="some"),
        DcgmHostSettings("--x"),
        NvlinkErrorsSettings("-e"),
    ):
        with pytest.raises(ConfigError):
            settings.validate()


def test_the_table_of_gpus_and_a_result_of_no_gpu() -> None:
    assert parse_discovery(discovery()) == dict(enumerate(UUIDS))
    assert parse_discovery("garbage") == {}
    assert [one["gpu"] for one in parse_diag(PASS3)] == [0, 1, None]


# dcgm_health


def test_dcgm_health_good_bad_and_unknown(tmp_path: Path) -> None:
    def says(overall: str, rc: int = 0, **more: Any) -> Verdict:
        text = json.dumps({"body": {"Overall Health": {"value": overall}, **more}, "header": ["Health Monitor Report"]})
        return run(check("dcgm_health"), tmp_path, tools=dcgmi(tmp_path, text, rc))

    assert says("Healthy").outcome is Outcome.OK
    gpu = {"GPU": {"children": {"1": {"children": {"Memory": {"value": "uncorrectable error"}}}}}}
    verdict = says("Failure", 0, **gpu)
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "Failure: GPU 1 Memory: uncorrectable error")
    assert says("Warning").outcome is Outcome.WARN
    assert says("Sideways").outcome is Outcome.UNKNOWN
    watches = "Error: Health watches not enabled. Please enable watches. \n"
    assert run(check("dcgm_health"), tmp_path, tools=dcgmi(tmp_path, watches, 0)).outcome is Outcome.UNKNOWN
    assert run(check("dcgm_health"), tmp_path, tools=dcgmi(tmp_path, "", 235)).outcome is Outcome.UNKNOWN


# dcgm_nvlink_errors


def links(value: Any, name: str = "CRC Data Error") -> str:
    children = {"CRC FLIT Error": {"value": "0"}, "Replay Error": {"value": "0"}, name: {"value": value}}
    return json.dumps(
        {
            "body": {"Link 0": {"children": children}, "Link 1": {"children": children}},
            "header": ["NVLINK Error Counts"],
        }
    )


def test_dcgm_nvlink_errors_good_bad_and_unknown(tmp_path: Path) -> None:
    def says(text: str, rc: int = 0, settings: NvlinkErrorsSettings | None = None) -> Verdict:
        return run(check("dcgm_nvlink_errors"), tmp_path, settings, tools=dcgmi(tmp_path, text, rc))

    assert says(links("0")).outcome is Outcome.OK
    verdict = says(links("7"))
    assert (verdict.outcome, verdict.gpus) == (Outcome.BAD, tuple(UUIDS))
    assert "GPU 0 Link 0: 7 crc_data errors" in verdict.why
    assert says(links("7"), settings=NvlinkErrorsSettings(max_crc_data=7)).outcome is Outcome.OK
    assert says(links("3", "Recovery Error")).outcome is Outcome.BAD
    # Numbers that stand for none are no counts.
    for blank in ("2147483632", "9223372036854775794", "N/A", "Not Supported"):
        assert says(links(blank)).outcome is Outcome.OK
    nothing = '{"body": {"Link 0": {"children": {"CRC Data Error": {"value": "Not Supported"}}}}}'
    for text, rc in ((nothing, 0), ('{"body": {}}', 0), ("", 0), ("[]", 0), (links("0"), 1)):
        assert says(text, rc).outcome is Outcome.UNKNOWN


# dcgm_nvlink_status

STATUS = """+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U U U _ _
    gpuId 1:
        {}
NvSwitches:
    physicalId 8:
        {}
Key: Up=U, Down=D, Disabled=X, Not Supported=_
"""


def test_dcgm_nvlink_status_good_bad_and_unknown(tmp_path: Path) -> None:
    def says(text: str, rc: int = 0) -> Verdict:
        return run(check("dcgm_nvlink_status"), tmp_path, tools=dcgmi(tmp_path, text, rc))

    verdict = says(STATUS.format("U U U U _ _", "U U U _"))
    assert (verdict.outcome, verdict.perf["links_up"]) == (Outcome.OK, 11)
    verdict = says(STATUS.format("U D U X _ _", "U U U _"))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "GPU 1 link 1 is down; GPU 1 link 3 is disabled")
    assert verdict.gpus == (UUIDS[1],)
    verdict = says(STATUS.format("U U U U _ _", "U D U _"))
    assert (verdict.why, verdict.gpus) == ("NvSwitch 8 link 1 is down", ())
    none = STATUS.format("_ _ _ _ _ _", "_").replace("U U U U _ _", "_ _ _ _ _ _")
    for text, rc in ((none, 0), ("", 0), ("garbage", 0), (STATUS.format("", "U"), 0), (STATUS.format("U", "U"), 2)):
        assert says(text, rc).outcome is Outcome.UNKNOWN
