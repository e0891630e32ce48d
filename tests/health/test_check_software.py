"""Modules, packages, services, repositories: whole names, and what a tool that fails does not show."""

import subprocess
from pathlib import Path

import pytest
from healthkit import check_of, machine, prints, run, tool

from heeler.bus import ConfigError
from heeler.health.checks.software import (
    CHECKS,
    DnfReposSettings,
    FabricManagerSettings,
    ModulesSettings,
    PackagesSettings,
    ServicesSettings,
)
from heeler.health.model import Check, Outcome

MODULES = """nvidia_uvm 4710400 12 - Live 0x0000000000000000 (POE)
nvidia 70000000 90 nvidia_uvm, Live 0x0000000000000000 (POE)
mlx5_ib 500000 0 - Live 0x0
mlx5_core 900000 1 mlx5_ib, Live 0x0
gdrdrv 28672 0 - Loading 0x0
"""


def check(name: str) -> Check:
    return check_of(CHECKS, name)


# modules


def test_modules_good_by_whole_names_and_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/modules": MODULES, "sys/module/nvme/x": ""})
    settings = ModulesSettings(("nvidia", "nvidia-uvm", "nvme"), {"mlx5": 2})
    assert run(check("modules"), root, settings).outcome is Outcome.OK


def test_modules_bad_where_one_is_missing_loading_or_only_a_part_of_a_name(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/modules": MODULES})
    verdict = run(check("modules"), root, ModulesSettings(("nvidia_peermem", "gdrdrv", "mlx5"), {"nvidia": 3}))
    assert verdict.outcome is Outcome.BAD
    assert verdict.why == (
        "nvidia_peermem is not loaded; gdrdrv is Loading; mlx5 is not loaded; 2 modules nvidia*, not 3"
    )


def test_modules_unknown_without_the_list_or_with_garbage(tmp_path: Path) -> None:
    assert run(check("modules"), tmp_path, ModulesSettings(("a",))).outcome is Outcome.UNKNOWN
    built_in = machine(tmp_path / "a", {"sys/module/nvme/x": ""})
    assert run(check("modules"), built_in, ModulesSettings(("nvme",))).outcome is Outcome.OK
    assert run(check("modules"), built_in, ModulesSettings(("nvidia",))).outcome is Outcome.BAD
    root = machine(tmp_path, {"proc/modules": "garbage\n"})
    assert run(check("modules"), root, ModulesSettings(("a",))).outcome is Outcome.UNKNOWN
    assert run(check("modules"), "/", ModulesSettings()).outcome is Outcome.UNKNOWN


# packages

RPM = r"""#!/bin/sh
rc=0
for name; do case "$name" in
nvidia-driver) printf 'nvidia-driver\t3:580.95.05-1.el9\n';;
kernel) printf 'kernel\t(none):5.14.0-427.el9\nkernel\t(none):5.14.0-503.el9\n';;
-*|%*) ;;
*) echo "package $name is not installed"; rc=$((rc+1));;
esac; done; exit $rc"""


@pytest.mark.parametrize(
    "wanted",
    [
        {"nvidia-driver": "580.95.05"},
        {"nvidia-driver": "580.95.05-1.el9"},
        {"nvidia-driver": "3:580.95.05-1.el9"},
        {"nvidia-driver": "", "kernel": "5.14.0-503.el9"},
    ],
)
def test_packages_good_by_rpm(tmp_path: Path, wanted: dict[str, str]) -> None:
    tool(tmp_path / "bin", "rpm", RPM.partition("\n")[2])
    assert run(check("packages"), tmp_path, PackagesSettings(wanted), tools=tmp_path / "bin").outcome is Outcome.OK


def test_packages_bad_by_rpm(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "rpm", RPM.partition("\n")[2])
    wanted = PackagesSettings({"nvidia-driver": "570.1", "dcgm": "", "gone": "1"})
    verdict = run(check("packages"), tmp_path, wanted, tools=tmp_path / "bin")
    assert verdict.outcome is Outcome.BAD
    assert verdict.why == "nvidia-driver is 3:580.95.05-1.el9, not 570.1; dcgm is not installed; gone is not installed"


@pytest.mark.parametrize(
    "script",
    [
        "echo 'error: rpmdb: damaged header' >&2; exit 1",
        "exit 127",
        "echo garbage; exit 0",
        "sleep 30",
    ],
)
def test_packages_unknown_where_the_tool_fails(tmp_path: Path, script: str) -> None:
    tool(tmp_path / "bin", "rpm", script)
    verdict = run(check("packages"), tmp_path, PackagesSettings({"a": ""}), tools=tmp_path / "bin", timeout_s=1.0)
    assert verdict.outcome is Outcome.UNKNOWN
    none = run(check("packages"), tmp_path, PackagesSettings({"a": ""}), tools=tmp_path / "none")
    assert "dpkg-query is not installed" in none.why


@pytest.mark.skipif(not Path("/var/lib/dpkg/status").exists(), reason="no dpkg")
def test_packages_good_and_bad_by_the_real_dpkg() -> None:
    argv = ["dpkg-query", "-W", "-f=${Version}", "dpkg"]
    version = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert run(check("packages"), "/", PackagesSettings({"dpkg": version, "bash": ""})).outcome is Outcome.OK
    verdict = run(check("packages"), "/", PackagesSettings({"dpkg": "0.1", "no-such-package": ""}))
    assert verdict.why == f"dpkg is {version}, not 0.1; no-such-package is not installed"
    assert run(check("packages"), "/", PackagesSettings({"no-such-package": ""})).outcome is Outcome.BAD


def test_a_name_that_is_an_option_is_refused() -> None:
    for settings in (PackagesSettings({"--all": ""}), ServicesSettings(("-H evil",)), FabricManagerSettings("a b")):
        with pytest.raises(ConfigError, match="is no name"):
            settings.validate()


# services


def show(
    name: str, state: str, sub: str = "running", load: str = "loaded", result: str = "success", restarts: int = 0
) -> str:
    return (
        f"NRestarts={restarts}\nResult={result}\nId={name}.service\nNames={name}.service {name}-alias.service\n"
        f"LoadState={load}\nActiveState={state}\nSubState={sub}\n"
    )


def services(root: Path, *blocks: str) -> Path:
    prints(root / "bin", "systemctl", "\n".join(blocks))
    return root / "bin"


def test_services_good_several_at_once_and_under_another_name(tmp_path: Path) -> None:
    tools = services(tmp_path, show("slurmd", "active"), show("munge", "active"))
    wanted = ServicesSettings(("slurmd", "munge.service", "munge-alias"))
    assert run(check("services"), tmp_path, wanted, tools=tools).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("block", "outcome", "why"),
    [
        (show("a", "failed", "failed", result="exit-code"), Outcome.BAD, "a is failed (exit-code)"),
        (show("a", "inactive", "dead"), Outcome.BAD, "a is inactive"),
        (show("a", "inactive", "dead", load="not-found"), Outcome.BAD, "a: there is no such service"),
        (show("a", "activating", "auto-restart"), Outcome.WARN, "a is activating"),
        (show("a", "active", restarts=6), Outcome.WARN, "a was restarted 6 times"),
        (show("b", "active"), Outcome.UNKNOWN, "a: systemctl said nothing of it"),
    ],
)
def test_services_bad_where_it_does_not_run(tmp_path: Path, block: str, outcome: Outcome, why: str) -> None:
    verdict = run(check("services"), tmp_path, ServicesSettings(("a",), 5), tools=services(tmp_path, block))
    assert (verdict.outcome, verdict.why) == (outcome, why)


@pytest.mark.parametrize(
    "script",
    [
        "echo 'System has not been booted with systemd as init system (PID 1).' >&2; exit 1",
        "exit 127",
        "exit 0",
        "echo '[]'",
        "yes",
    ],
)
def test_services_unknown_where_systemctl_fails_or_says_something_else(tmp_path: Path, script: str) -> None:
    tool(tmp_path / "bin", "systemctl", script)
    verdict = run(check("services"), tmp_path, ServicesSettings(("a",)), tools=tmp_path / "bin", timeout_s=2.0)
    assert verdict.outcome is Outcome.UNKNOWN


# fabric_manager


def switches(root: Path, count: int) -> Path:
    files = {
        "sys/bus/pci/devices/0000:00:00.0/class": "0x060000\n",
        "sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n",
    }
    for at in range(count):
        folder = f"sys/bus/pci/devices/0000:0{at + 1}:00.0/"
        files |= {f"{folder}class": "0x068000\n", f"{folder}vendor": "0x10de\n"}
    return machine(root, files)


def test_fabric_manager_good_bad_and_unknown(tmp_path: Path) -> None:
    name = check("fabric_manager")
    assert run(name, switches(tmp_path / "a", 0), tools=tmp_path / "none").why == "no NVSwitch"
    root = switches(tmp_path / "b", 4)
    assert run(name, root, tools=services(tmp_path / "1", show("nvidia-fabricmanager", "active"))).outcome is Outcome.OK
    dead = services(tmp_path / "2", show("nvidia-fabricmanager", "failed"))
    assert run(name, root, tools=dead).why == "nvidia-fabricmanager.service is failed"
    assert run(name, root, tools=tmp_path / "none").outcome is Outcome.UNKNOWN
    assert run(name, machine(tmp_path / "c", {"x": ""}), tools=dead).outcome is Outcome.UNKNOWN


# dnf_repos

REPOS = "Loaded plugins: x\nRepo-id   : baseos\nRepo-name : BaseOS\n\nRepo-id   : appstream\nTotal packages: 9\n"


def test_dnf_repos_good_bad_and_unknown(tmp_path: Path) -> None:
    name = check("dnf_repos")

    def says(script: str) -> tuple[Outcome, str]:
        tool(tmp_path / "bin", "dnf", script)
        verdict = run(name, tmp_path, DnfReposSettings(2), tools=tmp_path / "bin", timeout_s=1.5)
        return verdict.outcome, verdict.why

    assert says(f"printf '{REPOS}'") == (Outcome.OK, "2 repositories answer")
    assert says("printf 'Repo-id : baseos\\n'") == (Outcome.BAD, "1 repositories")
    error = "Error: Failed to download metadata for repo 'cuda-rhel9': Cannot download repomd.xml"
    assert says(f'echo "{error}" >&2; exit 1') == (Outcome.BAD, "cuda-rhel9 does not answer")
    assert says("echo 'ModuleNotFoundError: No module named dnf' >&2; exit 1")[0] is Outcome.UNKNOWN
    assert says("exit 127")[0] is Outcome.UNKNOWN
    assert says("sleep 30")[0] is Outcome.UNKNOWN
