"""Every check of the table: its settings are a table of the policy, and with nothing to read it says no ok."""

import tomllib
from pathlib import Path
from typing import Any

import msgpack
import pytest
from healthkit import case, machine

from heeler.bus import ConfigError
from heeler.engine.config import build
from heeler.health.model import Check, Context, Outcome, ProbeError
from heeler.health.policy import make_policy
from heeler.health.table import CHECKS, PROFILES

# What checks that mean nothing without settings need at least.
NEEDED = {
    "gpu_count": "expected = 8",
    "gpu_uuids": 'expected = ["GPU-0"]',
    "gpu_memtest": "",
    "hca_count": "expected = 8",
    "running_process": 'names = ["slurmd"]',
    "disk_size": 'volume = "/"\nvalue = 100',
    "mounted_directory": 'directories = ["/data"]',
    "file_exists": 'paths = ["/etc/hosts"]',
    "directory_exists": 'paths = ["/etc"]',
    "file_count": 'directory = "/var/cred"\nmin_count = 3',
    "packages": '[packages]\nslurm-slurmd = "24.11.5"',
    "services": 'services = ["slurmd", "munge"]',
    "ssh_connection": 'hosts = ["login1"]',
    "ssh_certs": 'host = "node01"',
    "path_access": 'path = "/scratch"',
    "nccl": 'tests_folder = "/opt/nccl-tests"\ncritical_gbs = 300',
}
BY_NAME = {check.name: check for check in CHECKS}


def test_a_policy_with_settings_for_every_check_is_read() -> None:
    text = "\n".join(
        f"[checks.{name}]\n{says.replace('[packages]', f'[checks.{name}.packages]')}"
        for name, says in NEEDED.items()
        if name in BY_NAME
    )
    text += "\n[checks.ib_links]\ncount = 8\n[checks.ib_counters.warn]\nlink_downed = 3\n"
    text += "[checks.zombies]\nenabled = false\n"
    policy = make_policy(tomllib.loads(text), "node01", CHECKS, PROFILES)
    assert policy.rules["ib_links"].settings.count == 8
    assert policy.rules["ib_counters"].settings.warn == {"link_downed": 3}
    assert policy.rules["packages"].settings.packages == {"slurm-slurmd": "24.11.5"}
    assert all(policy.rules[name].enabled for name in NEEDED if name in BY_NAME)
    assert [check.name for check in policy.chosen(["zombies"])[1]] == ["zombies"]


def test_a_key_that_does_not_exist_is_an_error_for_every_check() -> None:
    for name in BY_NAME:
        with pytest.raises(ConfigError, match=rf"checks\.{name}\.colour"):
            make_policy({"checks": {name: {"colour": "red"}}}, "node01", CHECKS, PROFILES)


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if not check.name.startswith("gpu_")], ids=lambda one: one.name
)
def test_nothing_at_all_to_read_is_never_ok(check: Check, tmp_path: Path) -> None:
    table = tomllib.loads(NEEDED.get(check.name, ""))
    settings: Any = build(check.settings, table, check.name)
    empty = machine(tmp_path, {"nothing": ""})
    about = case()
    try:
        facts = check.probe.read(Context(about, empty, path=str(tmp_path / "no"), timeout_s=2.0), [settings])
    except ProbeError:
        return
    verdict = check.judge(msgpack.unpackb(msgpack.packb(facts), strict_map_key=False), settings, about)
    # A path that is looked for and not there is bad on evidence; the volume / is there on any machine.
    allowed = {"disk_usage", "disk_size", "path_access"}
    assert (
        verdict.outcome is Outcome.UNKNOWN
        or (verdict.outcome is Outcome.BAD and check.needs_settings)
        or check.name in allowed
    )
