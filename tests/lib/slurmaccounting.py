"""What a sandbox of Slurm runs beside slurmctld: slurmdbd on MariaDB (accounting) and slurmrestd. See slurmsandbox."""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

ACCOUNT = "research"
CONF = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/run/munge.socket
AccountingStorageTRES={tres}
AccountingStorageEnforce=associations,limits,qos
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightPartition=1000
PriorityWeightJobSize=100
PriorityWeightQOS=1000
"""
JWT_CONF = """AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/etc/jwt.key
"""
DBD_CONF = """DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
CommunicationParameters=NoInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
{jwt}StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=slurm
StoragePass=sandbox
StorageLoc=slurm_acct
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
DebugLevel=info
"""
GRANT = """create database if not exists slurm_acct;
create user if not exists slurm@'127.0.0.1' identified by 'sandbox';
grant all on slurm_acct.* to slurm@'127.0.0.1';
"""
INNODB = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M")
_empty: list[Path] = []  # the empty database, made once by a process and copied after that


class Cluster(Protocol):
    """What is needed of the sandbox."""

    folder: Path
    env: dict[str, str]

    def run(self, *argv: str, timeout_s: float = 30.0) -> str:
        """Run one of Slurm's commands."""

    def launch(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> None:
        """Start a daemon."""

    def wait_for(self, daemon: str, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until a daemon is ready."""

    def succeeds(self, *argv: str) -> bool:
        """Whether a command ends well."""

    def daemon_stop(self, name: str) -> None:
        """End a daemon in good order."""


class Accounting:
    """slurmdbd and its MariaDB, on loopback, in the sandbox's folder."""

    def __init__(self, cluster: Cluster, host: str, ports: tuple[int, int], *, jwt: bool) -> None:
        self._cluster, self._host, self._jwt = cluster, host, jwt
        self._port, self._sql_port = ports
        self._socket = str(cluster.folder / "run/sql.sock")

    def conf(self, tres: str) -> str:
        """Return its lines of slurm.conf."""
        return CONF.format(folder=self._cluster.folder, port=self._port, tres=tres)

    def start(self) -> None:
        """Start both; an account `research` with the users root and nobody is made."""
        folder = self._cluster.folder
        jwt = JWT_CONF.format(folder=folder) if self._jwt else ""
        path = folder / "etc/slurmdbd.conf"
        path.touch(mode=0o600)
        path.write_text(
            DBD_CONF.format(host=self._host, folder=folder, port=self._port, sql_port=self._sql_port, jwt=jwt)
        )
        copy_database(folder / "sql")
        self.start_database()
        self._cluster.run(*self._client(), "-e", GRANT)
        self.start_dbd()
        self.manage("add", "cluster", "sandbox")
        self.manage("add", "account", ACCOUNT, "description=research", "organization=lab")
        self.add_user("root", ACCOUNT, "adminlevel=admin")
        self.add_user("nobody", ACCOUNT)

    def start_database(self) -> None:
        """Start MariaDB."""
        folder = self._cluster.folder
        self._cluster.launch(
            "mariadbd",
            [
                "mariadbd",
                "--no-defaults",
                "--user=root",
                f"--datadir={folder}/sql",
                f"--socket={self._socket}",
                "--bind-address=127.0.0.1",
                f"--port={self._sql_port}",
                f"--pid-file={folder}/run/sql.pid",
                "--innodb-lock-wait-timeout=900",
                "--innodb-flush-log-at-trx-commit=0",
                "--skip-name-resolve",
                *INNODB,
            ],
        )
        self._cluster.wait_for("mariadbd", lambda: self._cluster.succeeds(*self._client(), "-e", "select 1"), 60.0)

    def start_dbd(self) -> None:
        """Start slurmdbd."""
        self._cluster.launch("slurmdbd", ["slurmdbd", "-D"])
        self._cluster.wait_for("slurmdbd", lambda: self._cluster.succeeds("sacctmgr", "-nP", "list", "cluster"), 60.0)

    def stop_dbd(self) -> None:
        """End slurmdbd; slurmctld goes on and keeps what it has to tell."""
        self._cluster.daemon_stop("slurmdbd")

    def manage(self, *words: str) -> str:
        """Run sacctmgr without questions."""
        return self._cluster.run("sacctmgr", "-iQ", *words)

    def add_account(self, name: str, *settings: str, parent: str = "root") -> None:
        """Add an account; settings such as ``fairshare=10`` or ``grptres=gres/gpu=16``."""
        self.manage("add", "account", name, f"parent={parent}", f"description={name}", "organization=lab", *settings)

    def add_user(self, name: str, account: str, *settings: str) -> None:
        """Let a user use an account."""
        self.manage("add", "user", name, f"account={account}", *settings)

    def add_qos(self, name: str, *settings: str) -> None:
        """Add a quality of service; settings such as ``priority=100`` or ``maxtresperuser=gres/gpu=4``."""
        self.manage("add", "qos", name, *settings)

    def sql(self, statement: str) -> str:
        """Change the database itself, to play what no command does."""
        return self._cluster.run(*self._client(), "slurm_acct", "-e", statement)

    def _client(self) -> tuple[str, ...]:
        return ("mariadb", "--no-defaults", "--user=root", f"--socket={self._socket}")


class Rest:
    """slurmrestd twice: on a unix socket for root, and on TCP with JSON Web Tokens."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self._cluster = cluster
        self.socket = cluster.folder / "run/rest.sock"
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def conf(self) -> str:
        """Return its lines of slurm.conf."""
        return JWT_CONF.format(folder=self._cluster.folder)

    def write_key(self) -> None:
        """Write the key of the tokens."""
        path = self._cluster.folder / "etc/jwt.key"
        path.touch(mode=0o600)
        path.write_bytes(os.urandom(32))

    def start(self) -> None:
        """Start both daemons."""
        self.socket.unlink(missing_ok=True)
        env = {**self._cluster.env, "SLURMRESTD_SECURITY": "disable_user_check"}
        unix = ["slurmrestd", "-a", "rest_auth/local", f"unix:{self.socket}"]
        self._cluster.launch("slurmrestd-unix", unix, env)
        # Only a daemon with this variable takes tokens of the callers; it then has no credentials of its own.
        tcp = ["slurmrestd", "-a", "rest_auth/jwt", f"127.0.0.1:{self.port}"]
        self._cluster.launch("slurmrestd-tcp", tcp, {**env, "SLURM_JWT": "daemon"})
        self._cluster.wait_for("slurmrestd-unix", self.socket.exists, 20.0)
        self._cluster.wait_for("slurmrestd-tcp", lambda: listens(self.port), 20.0)

    def stop(self) -> None:
        """End both daemons."""
        self._cluster.daemon_stop("slurmrestd-unix")
        self._cluster.daemon_stop("slurmrestd-tcp")

    def token(self, user: str = "root", lifespan_s: int = 3600) -> str:
        """Return a token of a user for X-SLURM-USER-TOKEN (with X-SLURM-USER-NAME)."""
        said = self._cluster.run("scontrol", "token", f"username={user}", f"lifespan={lifespan_s}")
        return said.strip().partition("SLURM_JWT=")[2]


def listens(port: int) -> bool:
    """Whether something listens on a port of IPv4 loopback; asks the kernel, so that no connection is made."""
    wanted = f"0100007F:{port:04X}"
    return any(
        parts[1] == wanted and parts[3] == "0A"
        for parts in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
    )


def copy_database(target: Path) -> None:
    """Put an empty database there. It takes seconds to make one, so one is made for all sandboxes of this process."""
    if not _empty:
        folder = Path(tempfile.mkdtemp(prefix="hs-sql-", dir="/tmp"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        argv = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={folder}", *INNODB]
        argv += ["--auth-root-authentication-method=socket", "--skip-test-db"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        _empty.append(folder)
    shutil.copytree(_empty[0], target)
