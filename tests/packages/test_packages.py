"""The agent's .deb and .rpm as `make packages` builds them: what is in them, and what installing one does."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import SOURCE
from needs import need
from packagekit import DIST, ROOT, overlaid, run
from packagekit import package as one

UNIT = "heeler-agent.service"
# As Debian, and as RPM, name the processor that the tests run on.
DEB_HERE, RPM_HERE = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}.get(
    platform.machine(), ("unknown", "unknown")
)
ARM_RUNNER = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def package(kind: str, architecture: str) -> Path:
    """Return the agent's one package of a kind."""
    return one("heeler-agent", kind, architecture)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A machine like this one, in which nothing that happens stays: a root file system laid over our own."""
    need("packages")
    need("overlay")
    with overlaid(tmp_path) as root:
        yield root


EVERYWHERE = {
    "/usr/bin/heeler-agent",
    "/usr/lib/sysusers.d/heeler-agent.conf",
    "/etc/heeler/agent.toml",
    "/usr/share/doc/heeler-agent/operations.md",
    "/usr/share/doc/heeler-agent/dcgm.md",
    "/usr/share/doc/heeler-agent/copyright",
    "/usr/share/doc/heeler-agent/examples/profiling-admin.conf",
    "/usr/share/doc/heeler-agent/examples/agent-permissions.conf",
    "/usr/share/man/man8/heeler-agent.8.gz",
}


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_deb_has_what_a_node_needs(architecture: str) -> None:
    need("packages")
    path = package("deb", architecture)
    assert run("dpkg-deb", "-f", path, "Architecture").strip() == architecture
    assert run("dpkg-deb", "-f", path, "Depends").startswith("libc6 (>= 2.")
    lines = [line.split() for line in run("dpkg-deb", "-c", path).splitlines()]
    files = {line[5].removeprefix("."): line for line in lines if not line[0].startswith("d")}
    assert files.keys() >= EVERYWHERE | {f"/lib/systemd/system/{UNIT}"}
    assert {line[1] for line in lines} == {"root/root"}
    assert files["/etc/heeler/agent.toml"][0] == "-rw-r-----", "the configuration may hold what only the agent may read"
    assert run("dpkg-deb", "-I", path, "conffiles").split() == ["/etc/heeler/agent.toml"]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_rpm_has_what_a_node_needs(architecture: str) -> None:
    need("packages")
    path = package("rpm", architecture)
    assert set(run("rpm", "-qlp", path).split()) >= EVERYWHERE | {f"/usr/lib/systemd/system/{UNIT}"}
    assert run("rpm", "-qp", "--configfiles", path).split() == ["/etc/heeler/agent.toml"]
    assert "glibc >= 2." in run("rpm", "-qp", "--requires", path)


def configured_and_checked(root: Path) -> None:
    """A fresh installation says what it lacks, and is well once it has it."""
    config = root / "etc/heeler/agent.toml"
    user = run("chroot", root, "id", "-u", "heeler-agent").strip()
    group = int(run("chroot", root, "id", "-g", "heeler-agent"))
    assert user != "0"
    assert (config.stat().st_mode & 0o777, config.stat().st_gid) == (0o640, group)
    wants = root / "etc/systemd/system/multi-user.target.wants" / UNIT
    assert not os.path.lexists(wants), "it is enabled before it is configured"
    check = ["chroot", str(root), "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    check += ["heeler-agent", "config", "check", "-config", "/etc/heeler/agent.toml"]
    lacking = subprocess.run(check, capture_output=True, text=True, check=False)
    assert lacking.returncode == 1
    assert "cluster: empty" in lacking.stderr
    config.write_text(config.read_text().replace('cluster = ""', 'cluster = "north"', 1))
    assert run(*check).startswith("well: cluster north")
    verified = subprocess.run(
        ["chroot", str(root), "systemd-analyze", "verify", UNIT], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_deb_installs_upgrades_and_goes(machine: Path) -> None:
    shutil.copy(package("deb", DEB_HERE), machine / "tmp/agent.deb")
    run("chroot", machine, "dpkg", "-i", "/tmp/agent.deb")
    configured_and_checked(machine)
    run("chroot", machine, "dpkg", "-i", "/tmp/agent.deb")
    assert 'cluster = "north"' in (machine / "etc/heeler/agent.toml").read_text(), "an upgrade took our settings"
    run("chroot", machine, "dpkg", "-r", "heeler-agent")
    assert not (machine / "usr/bin/heeler-agent").exists()
    assert (machine / "etc/heeler/agent.toml").exists()
    run("chroot", machine, "dpkg", "-P", "heeler-agent")
    assert not (machine / "etc/heeler/agent.toml").exists()


def test_the_rpm_installs_and_goes(machine: Path) -> None:
    shutil.copy(package("rpm", RPM_HERE), machine / "tmp/agent.rpm")
    run("chroot", machine, "rpm", "-i", "--nodeps", "/tmp/agent.rpm")  # Debian's libc is no package of rpm's
    configured_and_checked(machine)
    run("chroot", machine, "rpm", "-e", "heeler-agent")
    assert not (machine / "usr/bin/heeler-agent").exists()


def test_no_serious_words_from_lintian() -> None:
    need("packages")
    need("lintian")
    done = subprocess.run(
        ["lintian", "--fail-on", "error", *DIST.glob("heeler-agent*.deb")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_is_shut_in_well() -> None:
    need("systemd")
    run("systemd-analyze", "security", "--offline=true", "--threshold=25", ROOT / "deploy/systemd" / UNIT)


def test_the_program_for_arm_reads_a_node(tmp_path: Path) -> None:
    need("packages")
    need("arm")
    agent = ROOT / "build/packages/arm64/heeler-agent"
    assert "linux/arm64 with NVML" in run(*ARM_RUNNER, agent, "version")
    lines = "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    event = json.loads(run(*ARM_RUNNER, agent, "parse", "kmsg", input=lines))
    assert (event["kind"], event["code"]) == ("xid", 79)
    run("make", "-s", "-C", SOURCE, "CC=aarch64-linux-gnu-gcc", f"OUT={tmp_path}")
    words = ["-set", "cluster=c", "-set", "node=n", "-set", f"nvml.library={tmp_path}/libnvidia-ml.so.1"]
    found = json.loads(run(*ARM_RUNNER, agent, "once", *words))
    assert found["AgentStatus"]["collectors"]["nvml"]["state"] == "ok"
    assert len(found["GpuSample"]["mean"]["sm_active_ratio"]) == 8
