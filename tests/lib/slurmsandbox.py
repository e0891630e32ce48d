"""A real Slurm on this machine for tests: munged, slurmctld and several slurmd with pretended GPUs.

    sandbox = Sandbox(nodes=4)
    sandbox.start()
    job = sandbox.submit("sleep 60", "--nodes=2", "--gres=gpu:8")
    sandbox.wait_job(job, "RUNNING")
    sandbox.drain("n003", "psu swap")
    sandbox.stop()

Needs root and the Debian packages slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge (22.05 or newer);
``Sandbox(accounting=True)`` slurmdbd, slurm-wlm-mysql-plugin and mariadb-server as well, ``rest=True`` slurmrestd and
slurm-wlm-jwt-plugin.
Everything is on loopback, on free ports, in one temporary folder, and ends with `stop`. By hand:
``python tests/lib/slurmsandbox.py --nodes 4`` starts one, prints the exports for a shell, and stops it at Ctrl-C.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from slurmaccounting import Accounting, Rest

from heeler.slurm.nodes import Node, parse_node_text
from heeler.slurm.times import local_zone

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOOKS = ("prolog", "epilog", "prolog_ctld", "epilog_ctld")

HOOK = """#!/bin/bash
# Slurm calls this under the name of the hook. A file fail.<hook>[.<node>] beside it makes it fail.
name=$(basename "$0") node=${{SLURMD_NODENAME:-ctld}}
echo "$name node=$node job=${{SLURM_JOB_ID:-}} gpus=${{SLURM_JOB_GPUS:-}}" >>{folder}/log/hooks.log
[ -e {folder}/hooks/fail.$name ] || [ -e {folder}/hooks/fail.$name.$node ] && exit 1
exit 0
"""

CONF = """ClusterName=sandbox
# The address in brackets and the two No...Any keep every daemon on loopback, whatever the host's name resolves to.
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoAddrCache,NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire is also how long a requeued job waits: 120 s unless said.
AuthInfo=socket={folder}/run/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool/%n
SlurmdLogFile={folder}/log/slurmd-%n.log
MailProg=/bin/true
ProctrackType=proctrack/{track}
TaskPlugin=task/{task}
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=1
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,nohold_on_prolog_fail
JobRequeue=1
MinJobAge=300
SlurmdTimeout=20
SlurmctldTimeout=10
KillWait=2
Prolog={folder}/hooks/prolog
Epilog={folder}/hooks/epilog
PrologSlurmctld={folder}/hooks/prolog_ctld
EpilogSlurmctld={folder}/hooks/epilog_ctld
PrologFlags=Alloc
DebugFlags=NO_CONF_HASH
FirstJobId=1
"""

NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1 SocketsPerBoard=2"
    " CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=1000000 Gres={gres} State=UNKNOWN\n"
)


class SandboxError(Exception):
    """The sandbox does not do what it was told; says what the daemon's log ends with."""


class Daemon:
    """A process of the sandbox, in a session of its own."""

    def __init__(self, name: str, argv: list[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
            )

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it in good order, or after ten seconds at once."""
        if not self.running:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait()


class Sandbox:
    """A Slurm cluster ``sandbox`` with nodes n001, n002, ..., in partitions train (default) and debug.

    ``env`` is the environment in which Slurm's commands find it. ``extra`` is appended to slurm.conf; ``settings``
    stand there in place of the sandbox's own, such as ``{"Prolog": "/path", "HealthCheckInterval": "10"}``.
    With `accounting` there is `sandbox.accounting` (users, accounts, qos), with `rest` `sandbox.rest` (socket, port,
    tokens). `gres_type` is the GPUs' type in Slurm; None: they have none. `gres` is what each node has in slurm.conf in
    place of whole GPUs, and `gres_conf` what stands in gres.conf then, with ``{dev}`` for the folder of the devices.
    """

    def __init__(
        self,
        nodes: int = 4,
        gpus: int = 8,
        cpus: int = 64,
        extra: str = "",
        *,
        prefix: str = "n",
        cgroups: bool = False,
        settings: Mapping[str, str] | None = None,
        cgroup_conf: str = "",
        accounting: bool = False,
        rest: bool = False,
        gres_type: str | None = "h100",
        gres: str | None = None,
        gres_conf: str = "",
    ) -> None:
        self.names = [f"{prefix}{number:03d}" for number in range(1, nodes + 1)]
        self.gpus, self.cpus, self.extra, self.cgroups = gpus, cpus, extra, cgroups
        self.settings, self.cgroup_conf = dict(settings or {}), cgroup_conf
        # Short: a unix socket's path has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="hs-", dir="/tmp"))
        self.conf = self.folder / "etc/slurm.conf"
        self.env = {
            "PATH": SYSTEM_PATH,
            "SLURM_CONF": str(self.conf),
            "LC_ALL": "C",
            "HOME": "/root",
            **({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}),
        }
        self._daemons: dict[str, Daemon] = {}
        self.gres_type, self._gres, self._gres_conf = gres_type, gres, gres_conf
        self.host = socket.gethostname().split(".")[0]
        self._rest = Rest(self, free_ports(1)[0]) if rest else None
        dbd, sql = free_ports(2)
        self._accounting = Accounting(self, self.host, (dbd, sql), jwt=rest) if accounting else None

    @property
    def accounting(self) -> Accounting:
        """Users, accounts and qualities of service."""
        assert self._accounting is not None, "Sandbox(accounting=True)"
        return self._accounting

    @property
    def rest(self) -> Rest:
        """slurmrestd."""
        assert self._rest is not None, "Sandbox(rest=True)"
        return self._rest

    # Life

    def start(self) -> None:
        """Start every daemon and wait until all nodes are idle. Raises SandboxError."""
        try:
            self._write()
            munge = str(self.folder / "run/munge.socket")
            self.launch(
                "munged",
                [
                    "munged",
                    "--foreground",
                    "--num-threads=10",
                    f"--socket={munge}",
                    f"--key-file={self.folder}/etc/munge.key",
                    f"--pid-file={self.folder}/run/munged.pid",
                    f"--seed-file={self.folder}/run/munge.seed",
                    f"--log-file={self.folder}/log/munged.log",
                ],
            )
            self.wait_for("munged", lambda: self.succeeds("munge", "-S", munge, "-n"))
            if self._accounting:
                self._accounting.start()
            self.start_controller()
            for name in self.names:
                self.start_node(name)
            self.wait_for("slurmctld", lambda: set(self._states()) == {"idle"}, 60.0)
            if self._rest:
                self._rest.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything that the sandbox started, jobs too, and remove its folder."""
        with contextlib.suppress(SandboxError, KeyError, subprocess.TimeoutExpired):
            self.thaw_controller()
            self.cancel_all()  # in good order, so that no step is left for this machine's init to reap
        for name in self.names:
            if daemon := self._daemons.get(f"slurmd-{name}"):
                daemon.stop()
            self._kill_steps(name)
        for daemon in reversed(self._daemons.values()):
            daemon.stop()
        self._daemons.clear()
        if self.cgroups:
            self._remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def reset(self) -> None:
        """Cancel all jobs, bring controller and nodes back, and wait until all nodes are idle."""
        for path in (self.folder / "hooks").glob("fail.*"):
            path.unlink()
        self.thaw_controller()
        if not self._daemons["slurmctld"].running:
            self.start_controller()
        for name in self.names:
            if not self._daemons[f"slurmd-{name}"].running:
                self.start_node(name)
        self.cancel_all()
        for name in re.findall(r"ReservationName=(\S+)", self.run("scontrol", "-o", "show", "reservation")):
            self.run("scontrol", "delete", f"reservation={name}")  # one that was gone is back after a crash
        for name in self.names:
            self.succeeds("scontrol", "update", f"nodename={name}", "state=resume")
        self.wait_for("slurmctld", lambda: set(self._states()) == {"idle"}, 60.0)
        if self._accounting:
            # After a slurmdbd that was away slurmctld takes its time, and what it tells late is another test's.
            told = re.compile(r"DBD Agent queue size:\s*0\s")
            self.wait_for("slurmctld", lambda: told.search(self.run("sdiag")) is not None, 150.0)

    # Commands

    def run(self, *argv: str, timeout_s: float = 30.0) -> str:
        """Run one of Slurm's commands and return what it printed. Raises SandboxError."""
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise SandboxError(f"{' '.join(argv)}: exit status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, command: str, *options: str, user: str | None = None) -> str:
        """Submit a batch job that runs a shell command; returns its id. With `user` the job is that user's."""
        who = [f"--uid={user}"] if user else []
        # Numbers begin again with a new state: another user's file of the same name could not be written.
        output = f"--output={self.folder}/jobs/{f'{user}-' if user else ''}%j.out"
        return (
            self.run("sbatch", "--parsable", f"--chdir={self.folder}/jobs", output, *who, *options, f"--wrap={command}")
            .strip()
            .split(";")[0]
            .split("\n")[-1]
        )

    def job_state(self, job: str) -> str:
        """Return a job's state such as RUNNING; empty once Slurm has forgotten it."""
        with contextlib.suppress(SandboxError):
            return self.run("squeue", "--states=all", "-h", "-o", "%T", "-j", job).strip().split("\n")[0]
        return ""

    def wait_job(self, job: str, *states: str, timeout_s: float = 40.0) -> None:
        """Wait until a job is in one of the states."""
        self.wait_for("slurmctld", lambda: self.job_state(job) in states, timeout_s)

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        self.run("scancel", job)

    def cancel_all(self) -> None:
        """Cancel all jobs and wait until none runs or waits."""
        for user in ("root", "nobody"):  # one alone at a time: scancel takes the last
            self.run("scancel", f"--user={user}")
        self.wait_for("slurmctld", lambda: not self.run("squeue", "-h", "-o", "%i").strip(), 40.0)

    def node(self, name: str) -> Node:
        """Return a node as `scontrol show node` has it now."""
        return parse_node_text(self.run("scontrol", "-o", "show", "node", name).strip(), local_zone())

    def drain(self, name: str, reason: str) -> None:
        """Drain a node, as an operator would."""
        self.run("scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason}")

    def resume(self, name: str) -> None:
        """Give a node back to the jobs."""
        self.run("scontrol", "update", f"nodename={name}", "state=resume")

    # Trouble

    def start_controller(self) -> None:
        """Start slurmctld; running jobs go on.

        New jobs get numbers that none had: after a crash it would give those again of which slurmdbd has heard, and
        their runs would be taken for one job's.
        """
        conf = self.conf.read_text()
        self.conf.write_text(
            re.sub(r"(?m)^FirstJobId=(\d+)$", lambda found: f"FirstJobId={int(found[1]) + 1000}", conf)
        )
        self.launch("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        self.wait_for("slurmctld", lambda: self.succeeds("scontrol", "ping"))

    def save(self, job: str) -> None:
        """Wait until slurmctld has written a job down. What it has not is lost with it, and then the job is."""
        path = self.folder / "state/job_state"
        asked_ns = time.time_ns()
        self.run("scontrol", "update", f"jobid={job}", "comment=saved")
        self.wait_for("slurmctld", lambda: path.exists() and path.stat().st_mtime_ns > asked_ns)

    def save_nodes(self) -> None:
        """Wait until slurmctld has written the nodes down: after a crash they are as they were then."""
        path = self.folder / "state/node_state"
        asked_ns = time.time_ns()
        self.run("scontrol", "update", f"nodename={self.names[-1]}", f"comment=saved {asked_ns}")
        self.wait_for("slurmctld", lambda: path.exists() and path.stat().st_mtime_ns > asked_ns)

    def kill_controller(self) -> None:
        """End slurmctld as a crash would."""
        self._daemons["slurmctld"].kill()

    def freeze_controller(self) -> None:
        """Let slurmctld hang: it takes connections and never answers."""
        self._daemons["slurmctld"].process.send_signal(signal.SIGSTOP)

    def thaw_controller(self) -> None:
        """Let slurmctld go on."""
        self._daemons["slurmctld"].process.send_signal(signal.SIGCONT)

    def start_node(self, name: str, *, rebooted: bool = False) -> None:
        """Start a node's slurmd; `rebooted` reports a new boot, as after `kill_node`."""
        argv = ["slurmd", "-D", "-N", name, "-f", str(self.conf), *(["-b"] if rebooted else [])]
        self.launch(f"slurmd-{name}", argv)

    def stop_node(self, name: str) -> None:
        """End a node's slurmd; its jobs run on, as when the daemon dies."""
        self._daemons[f"slurmd-{name}"].stop()

    def kill_node(self, name: str) -> None:
        """End a node's slurmd, its steps and their processes at once, as when the power goes."""
        self._daemons[f"slurmd-{name}"].kill()
        self._kill_steps(name)

    def fail_hook(self, hook: str, node: str | None = None) -> None:
        """Let a hook (prolog, epilog, prolog_ctld, epilog_ctld) fail from now on, everywhere or on one node."""
        assert hook in HOOKS, hook
        (self.folder / "hooks" / ".".join(filter(None, ("fail", hook, node)))).touch()

    @property
    def hooks_log(self) -> str:
        """What the hooks wrote: one line for each call."""
        return (self.folder / "log/hooks.log").read_text()

    # Inside

    def _states(self) -> list[str]:
        try:
            return self.run("sinfo", "-hN", "-p", "debug", "-o", "%T").split()
        except SandboxError:
            return []

    def succeeds(self, *argv: str) -> bool:
        """Whether a command ends well; `scontrol ping` says in words that a controller is down."""
        done = subprocess.run(argv, env=self.env, capture_output=True, timeout=30, check=False)
        return done.returncode == 0 and b"is DOWN" not in done.stdout

    def launch(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> None:
        """Start a daemon of the sandbox."""
        self._daemons[name] = Daemon(name, argv, self.folder / "log" / f"{name}.out", env or self.env)

    def daemon_stop(self, name: str) -> None:
        """End a daemon in good order."""
        self._daemons[name].stop()

    def wait_for(self, daemon: str, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until a daemon is where it should be. Raises SandboxError with the end of its log."""
        until = time.monotonic() + timeout_s
        while not condition():
            found = self._daemons[daemon]
            if not found.running or time.monotonic() > until:
                raise SandboxError(
                    f"{daemon} {'did not get there in time' if found.running else 'ended'}:\n{self._tail(daemon)}"
                )
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        paths = [self.folder / "log" / f"{name}.{ending}" for ending in ("out", "log")]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in paths if path.is_file())

    def _write(self) -> None:
        for name in ("etc", "run", "log", "hooks", "dev", "jobs", "state", "spool"):
            (self.folder / name).mkdir(mode=0o755)
        self.folder.chmod(0o755)
        (self.folder / "jobs").chmod(0o1777)
        for index in range(self.gpus):  # a device must exist for Slurm to count it: a twin of /dev/null will do
            os.mknod(self.folder / f"dev/nvidia{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        key = self.folder / "etc/munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        hook = self.folder / "hooks/hook"
        hook.write_text(HOOK.format(folder=self.folder))
        hook.chmod(0o755)
        for name in HOOKS:
            (self.folder / "hooks" / name).symlink_to("hook")
        (self.folder / "log/hooks.log").touch()
        if self._rest:
            self._rest.write_key()
        host = self.host
        port, *node_ports = free_ports(1 + len(self.names))
        track, task = ("cgroup", "cgroup") if self.cgroups else ("linuxproc", "none")
        conf = CONF.format(host=host, port=port, folder=self.folder, track=track, task=task)
        whole = f"gpu:{self.gres_type}:{self.gpus}" if self.gres_type else f"gpu:{self.gpus}"
        gres = self._gres or whole
        if self._accounting:
            conf += self._accounting.conf(f"gres/gpu,gres/gpu:{self.gres_type}" if self.gres_type else "gres/gpu")
        if self._rest:
            conf += self._rest.conf()
        # A key that stands twice is an error in some versions and a list in others.
        own = [line for line in conf.splitlines(keepends=True) if line.partition("=")[0] not in self.settings]
        ours = [f"{key}={value}\n" for key, value in self.settings.items()]
        lines = [*own, *ours, self.extra.rstrip() + "\n"]
        lines += [
            NODE.format(name=name, host=host, port=at, cpus=self.cpus, cores=self.cpus // 2, gres=gres)
            for name, at in zip(self.names, node_ports, strict=True)
        ]
        everyone = ",".join(self.names)
        lines.append(f"PartitionName=train Nodes={everyone} Default=YES MaxTime=INFINITE State=UP\n")
        lines.append(f"PartitionName=debug Nodes={everyone} MaxTime=1:00:00 State=UP\n")
        self.conf.write_text("".join(lines))
        files = f"{self.folder}/dev/nvidia[0-{self.gpus - 1}]" if self.gpus > 1 else f"{self.folder}/dev/nvidia0"
        kind = f"Type={self.gres_type} " if self.gres_type else ""
        devices = (
            self._gres_conf.format(dev=self.folder / "dev") or f"NodeName={everyone} Name=gpu {kind}File={files}\n"
        )
        (self.folder / "etc/gres.conf").write_text(f"AutoDetect=off\n{devices}")
        # Hardly anything here needs cgroups: proctrack/linuxproc follows processes by their parents.
        old = version(self.env) < (23, 2)
        cgroup = "CgroupAutomount=no\n" if old else "CgroupPlugin=disabled\n"
        if self.cgroups:
            cgroup = f"CgroupPlugin=cgroup/v1\n{self.cgroup_conf}"
        (self.folder / "etc/cgroup.conf").write_text(cgroup)

    def _remove_cgroups(self) -> None:
        """Remove the groups of the nodes, which slurmd leaves behind. One that is not empty is not Slurm's alone."""
        for name in self.names:
            for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
                groups = [top, *(path for path in top.rglob("*") if path.is_dir())]
                for group in sorted(groups, reverse=True):
                    with contextlib.suppress(OSError):
                        group.rmdir()

    def _kill_steps(self, name: str) -> None:
        """Kill a node's steps with their processes. A step outlives its slurmd; it is known by its socket."""
        sockets = set(unix_sockets(f"{self.folder}/spool/{name}/"))
        for pid in sorted(holders(sockets)):
            kill_tree(pid)


def version(env: dict[str, str]) -> tuple[int, int]:
    """Return Slurm's version such as (22, 5)."""
    text = subprocess.run(["slurmctld", "-V"], env=env, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)\.", text)
    assert found, text
    return int(found[1]), int(found[2])


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]


def unix_sockets(prefix: str) -> Iterator[str]:
    """Return the inodes of the unix sockets under a path."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        parts = line.split(None, 7)
        if len(parts) == 8 and parts[7].startswith(prefix):
            yield parts[6]


def holders(inodes: Iterable[str]) -> set[int]:
    """Return the processes that have one of these sockets open."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    found: set[int] = set()
    for entry in Path("/proc").iterdir() if wanted else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if any(str(fd.readlink()) in wanted for fd in (entry / "fd").iterdir()):
                    found.add(int(entry.name))
    return found - {os.getpid()}


def kill_tree(pid: int) -> None:
    """Kill a process and all below it; stopped first, so that it starts nothing new meanwhile."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                kill_tree(int(child))
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Run a sandbox by hand until Ctrl-C."""
    options = argparse.ArgumentParser(description="A throw-away Slurm cluster.")
    options.add_argument("--nodes", type=int, default=4)
    options.add_argument("--gpus", type=int, default=8)
    options.add_argument("--accounting", action="store_true")
    options.add_argument("--rest", action="store_true")
    chosen = options.parse_args()
    sandbox = Sandbox(chosen.nodes, chosen.gpus, accounting=chosen.accounting, rest=chosen.rest)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sandbox.start()
    try:
        print(f"export SLURM_CONF={sandbox.conf}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        sandbox.stop()


if __name__ == "__main__":
    main()
