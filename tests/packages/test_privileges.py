"""The agent with the rights that its unit gives it, and no more: another user, one capability, the real kernel log."""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from natsserver import NatsServer
from needs import need
from nodeagent import AGENT, agent_command
from waiting import until

from heeler.bus import Bus, snapshot

UNIT = Path(__file__).resolve().parents[2] / "deploy/systemd/heeler-agent.service"
USER = "64123"  # nobody's

pytestmark = [pytest.mark.bus, pytest.mark.e2e]


def capabilities() -> list[str]:
    """Return what the unit grants, for setpriv."""
    granted = re.findall(r"^AmbientCapabilities=(.*)$", UNIT.read_text(), re.MULTILINE)
    bounds = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert granted == bounds
    return [name.removeprefix("CAP_").lower() for name in " ".join(granted).split()]


def as_service(granted: list[str]) -> list[str]:
    """Return what runs a command with the service's user and just these capabilities."""
    some = ",".join(["-all", *(f"+{name}" for name in granted)])
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    return [*command, f"--inh-caps={some}", f"--ambient-caps={some}", f"--bounding-set={some}"]


class Node:
    """An agent that runs as the service would."""

    def __init__(self, folder: Path, nats: NatsServer, granted: list[str], pid: int = 0) -> None:
        self.fake = FakeNvml(folder)
        self.fake.write(f"gpus 2\n1 process {pid or os.getpid()} 1048576\n")
        self.socket = folder / "control.sock"
        # Another user may not be able to reach this checkout.
        self.agent = Path(shutil.copy(AGENT, folder / "heeler-agent"))
        library = Path(shutil.copy(self.fake.library, folder / self.fake.library.name))
        argv = agent_command(folder, cluster="north", node="n1", url=nats.url, library=library)
        argv[0] = str(self.agent)
        argv += ["-set", "kmsg.path=/dev/kmsg", "-set", "kmsg.any_facility=true"]
        argv += ["-set", f"control_socket={self.socket}"]
        for path in [folder, *folder.iterdir()]:
            os.chown(path, int(USER), int(USER))
        self.log = (folder / "agent.log").open("ab")
        self.process = subprocess.Popen(
            [*as_service(granted), *argv], env=os.environ | self.fake.env(), stdout=self.log, stderr=self.log
        )

    def collectors(self) -> dict[str, dict[str, str]]:
        """Return what `status` says, or nothing before there is one."""
        command = [str(AGENT), "status", "-json", "-socket", str(self.socket)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)["collectors"] if done.returncode == 0 else {}
        assert isinstance(found, dict)
        return found

    async def reaches(self, collector: str, state: str) -> dict[str, str]:
        """Wait for a collector's state; return its row."""

        def so() -> bool:
            return self.collectors().get(collector, {}).get("state") == state

        await until(so, f"{collector} {state}, but {self.collectors()}")
        return self.collectors()[collector]

    def end(self) -> int:
        """End it in good order; return its exit status."""
        self.process.terminate()
        self.log.close()
        return self.process.wait(30)


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that another user can reach; those of pytest are for their owner alone."""
    for parent in tmp_path.parents:
        if parent.name.startswith("pytest-"):
            parent.chmod(0o711)
    (tmp_path / "node").mkdir()
    tmp_path.chmod(0o711)
    return tmp_path / "node"


@pytest.fixture
def job() -> Iterator[int]:
    """A process of another user in the cgroup of a job."""
    need("root")
    roots = [Path(root) for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")]
    root = next(path for path in roots if (path / "cgroup.procs").exists())
    group = root / "slurm/uid_0/job_424242424"
    group.mkdir(parents=True, exist_ok=True)
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        (group / "cgroup.procs").write_text(f"{sleeper.pid}\n")
        yield sleeper.pid
    finally:
        sleeper.kill()
        sleeper.wait()
        for path in (group, group.parent, group.parent.parent):
            with contextlib.suppress(OSError):
                path.rmdir()


async def test_the_named_capabilities_are_enough(
    open_folder: Path, bus: Bus, nats_server: NatsServer, job: int
) -> None:
    need("agent")
    need("root")
    granted = capabilities()
    assert granted == ["syslog"]
    node = Node(open_folder, nats_server, granted, job)
    try:
        await node.reaches("kmsg", "ok")
        await node.reaches("nvml", "ok")
        await node.reaches("host", "ok")
        Path("/dev/kmsg").write_text("<3>NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=heeler-privileges-test, words\n")

        async def has_come() -> bool:
            found = await snapshot(bus, "EVENTS", ("kernel.event.*",), start=1)
            return any(b"heeler-privileges-test" in delivery.data for delivery in found)

        await until(has_come, "the line of the real kernel log")

        async def job_is_known() -> bool:
            found = await snapshot(bus, "SAMPLES", ("gpu.sample.*",), start=1)
            return any(b"424242424" in delivery.data for delivery in found)

        await until(job_is_known, "the job of another user's process")
    finally:
        assert node.end() == 0


async def test_without_them_the_kernel_log_is_said_to_be_closed(
    open_folder: Path, bus: Bus, nats_server: NatsServer
) -> None:
    need("agent")
    need("root")
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "1":
        pytest.skip("kernel.dmesg_restrict is 0: everyone may read the kernel log")
    node = Node(open_folder, nats_server, [])
    try:
        row = await node.reaches("kmsg", "failing")
        assert "not permitted" in row["why"]
        await node.reaches("nvml", "ok")
    finally:
        assert node.end() == 0


async def test_others_may_not_control_the_agent(open_folder: Path, bus: Bus, nats_server: NatsServer) -> None:
    need("agent")
    need("root")
    node = Node(open_folder, nats_server, capabilities())
    try:
        await node.reaches("nvml", "ok")
        node.socket.chmod(0o666)  # even if somebody opened the door
        stranger = ["setpriv", "--reuid=64124", "--regid=64124", "--clear-groups"]
        command = [*stranger, str(node.agent), "release", "10m", "-socket", str(node.socket)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "uid 64124 may not control this agent" in done.stderr
        own = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        released = subprocess.run([*own, *command[4:]], capture_output=True, text=True, check=False)
        assert (released.returncode, released.stdout.split(" until ")[0]) == (0, "GPUs released")
    finally:
        assert node.end() == 0
