"""Checks of access: SSH to other hosts, keys of this one, passwords, and what a user may read or write."""

import os
import pwd
import re
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from heeler.bus import ConfigError
from heeler.health.checks.files import read_bytes
from heeler.health.checks.findings import Findings
from heeler.health.checks.tool import run_tool
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*")
_KEY = re.compile(r"\b(ssh-[\w@.-]+|ecdsa-[\w@.-]+|sk-[\w@.-]+) ([A-Za-z0-9+/]{16,}={0,2})")
_ACCESS = {"read": os.R_OK, "write": os.W_OK, "execute": os.X_OK}
_GRADES = {"P": "set", "PS": "set", "L": "locked", "LK": "locked", "NP": "none"}


def check_host(host: str) -> None:
    """Raise ConfigError for a host that a tool would take for an option, or that can be none."""
    if not _HOST.fullmatch(host):
        raise ConfigError(f"{host!r} is no host")


@dataclass(frozen=True, slots=True)
class SshConnectionSettings:
    """Hosts that this node must reach by SSH without a question."""

    hosts: tuple[str, ...]
    connect_timeout_s: int = 5

    def validate(self) -> None:
        """Raise ConfigError for what is no host."""
        for host in self.hosts:
            check_host(host)


@dataclass(frozen=True, slots=True)
class SshCertsSettings:
    """A host whose SSH keys must be those that FreeIPA has."""

    host: str

    def validate(self) -> None:
        """Raise ConfigError for what is no host."""
        check_host(self.host)


@dataclass(frozen=True, slots=True)
class PasswordStatusSettings:
    """The password of a user."""

    user: str = "root"
    status: str = "set"  # set, locked or none; PS, P, LK, L and NP mean the same

    def validate(self) -> None:
        """Raise ConfigError for a status that does not exist."""
        check_host(self.user)
        if self.wanted not in ("set", "locked", "none"):
            raise ConfigError(f"status: {self.status!r}: one of set, locked, none, {', '.join(_GRADES)}")

    @property
    def wanted(self) -> str:
        """The status in our words."""
        return _GRADES.get(self.status.upper(), self.status)


@dataclass(frozen=True, slots=True)
class PathAccessSettings:
    """A path that a user must be able to use."""

    path: str
    user: str = "root"
    operation: str = "write"  # read, write or execute

    def validate(self) -> None:
        """Raise ConfigError for an operation that does not exist."""
        if self.operation not in _ACCESS:
            raise ConfigError(f"operation: {self.operation!r}: one of {', '.join(_ACCESS)}")


def read_ssh(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Ssh HOST exit, to all hosts at once."""
    found: dict[str, Any] = {}

    def one(host: str, limit_s: int) -> None:
        options = ("BatchMode=yes", f"ConnectTimeout={limit_s}", "StrictHostKeyChecking=yes", "LogLevel=ERROR")
        argv = ("ssh", "-n", "-T", *(part for option in options for part in ("-o", option)), "--", host, "exit")
        try:
            done = run_tool(context, argv)
            found[host] = {"rc": done.rc, "said": done.said}
        except ProbeError as err:
            found[host] = {"kind": err.kind, "said": str(err)}

    hosts = {host: each.connect_timeout_s for each in asked for host in each.hosts}
    threads = [threading.Thread(target=one, args=pair, daemon=True) for pair in hosts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(context.timeout_s)
    return {"hosts": {host: found.get(host, {"kind": "timeout", "said": "no answer"}) for host in hosts}}


_OUR_FAULT = ("Bad configuration option", "bad permissions", "Bad owner or permissions", "unknown option", "usage: ssh")


def judge_ssh_connection(facts: Any, settings: SshConnectionSettings, _case: Case) -> Verdict:
    """Bad: a host can't be reached, or does not let us in. Unknown: ssh itself can't be run, or did not end."""
    found = Findings()
    for host in settings.hosts:
        one = facts["hosts"][host]
        shown = Evidence("ssh", one.get("rc"), 0, device=host, text=one["said"])
        if "kind" in one or any(words in one["said"] for words in _OUR_FAULT):
            found.unknown(f"{host}: {one['said']}", shown)
        elif one["rc"] != 0:
            found.bad(f"{host}: {one['said']}", shown)
    return found.verdict(f"{len(settings.hosts)} hosts let us in")


def parse_keys(text: str) -> dict[str, str]:
    """Return fingerprint -> type of the public keys in a text. Raises ProbeError for one that is cut."""
    import base64  # noqa: PLC0415 - few sites have this check
    import hashlib  # noqa: PLC0415

    found = {}
    for kind, blob in _KEY.findall(text):
        try:
            raw = base64.b64decode(blob, validate=True)
        except ValueError:
            raise ProbeError("unreadable", f"no public key: {kind} {blob[:40]}...") from None
        digest = base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
        found[f"SHA256:{digest}"] = kind
    return found


def read_ssh_certs(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Ipa host-show --raw and ssh-keyscan of the host."""
    hosts: dict[str, Any] = {}
    for host in dict.fromkeys(one.host for one in asked):
        done = run_tool(context, ("ipa", "host-show", host, "--raw"), timeout_s=context.timeout_s / 2)
        if done.rc == 2 and "host not found" in f"{done.stdout}{done.stderr}":
            hosts[host] = {"listed": False}
            continue
        listed = parse_keys(done.checked().stdout)
        served = parse_keys(run_tool(context, ("ssh-keyscan", "-4", "--", host)).stdout) if listed else {}
        hosts[host] = {"listed": True, "ipa": listed, "served": served}
    return {"hosts": hosts}


def judge_ssh_certs(facts: Any, settings: SshCertsSettings, _case: Case) -> Verdict:
    """Bad: FreeIPA does not know the host, or has a key that the host has not. Unknown: one does not answer."""
    found, one = Findings(), facts["hosts"][settings.host]
    if not one["listed"]:
        found.bad(f"FreeIPA does not know {settings.host}", Evidence("host", None, device=settings.host))
    elif not one["ipa"]:
        found.bad(f"FreeIPA has no key of {settings.host}", Evidence("keys", 0, device=settings.host))
    elif not one["served"]:
        found.unknown(f"{settings.host} shows no key", Evidence("keys", 0, device=settings.host))
    else:
        for print_, kind in one["ipa"].items():
            if print_ not in one["served"]:
                shown = Evidence("key", print_, device=settings.host, text=kind)
                found.bad(f"{settings.host} does not have the {kind} key of FreeIPA", shown)
    return found.verdict(f"{len(one.get('ipa', ()))} keys of {settings.host} as in FreeIPA")


def read_passwords(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """/etc/shadow; passwd -S where a user is not in it."""
    users = list(dict.fromkeys(one.user for one in asked))
    try:
        lines = read_bytes(context.root / "etc/shadow").decode(errors="replace").splitlines()
    except OSError:
        lines = []
    known = {name: _grade(secret) for name, secret, *_ in (line.split(":") for line in lines if line.count(":") >= 2)}
    found: dict[str, Any] = {}
    for user in users:
        found[user] = {"status": known[user]} if user in known else _ask_passwd(context, user)
    return {"users": found}


def _grade(secret: str) -> str:
    if not secret:
        return "none"
    return "locked" if secret[0] in "!*" else "set"


def _ask_passwd(context: Context, user: str) -> dict[str, Any]:
    try:
        done = run_tool(context, ("passwd", "-S", "--", user)).checked()
    except ProbeError as err:
        return {"error": str(err)}
    words = done.stdout.split()
    grade = _GRADES.get(words[1]) if len(words) > 1 and words[0] == user else None
    return {"status": grade} if grade else {"error": f"passwd -S: {done.stdout!r:.100}"}


def judge_password_status(facts: Any, settings: PasswordStatusSettings, _case: Case) -> Verdict:
    """Bad: the password is not as it should be: set, locked or none."""
    found, one = Findings(), facts["users"][settings.user]
    if "error" in one:
        found.unknown(one["error"], Evidence("password", None, settings.wanted, device=settings.user))
    elif one["status"] != settings.wanted:
        shown = Evidence("password", one["status"], settings.wanted, device=settings.user)
        found.bad(f"the password of {settings.user} is {one['status']}, not {settings.wanted}", shown)
    return found.verdict(f"the password of {settings.user} is {settings.wanted}")


def read_access(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Ask the kernel, in a child that has become the user for good."""
    found = [
        {"path": one.path, "user": one.user, "operation": one.operation, **_try(context, one)}
        for one in dict.fromkeys(asked)
    ]
    return {"tries": found}


def _try(context: Context, one: PathAccessSettings) -> dict[str, Any]:
    try:
        entry = pwd.getpwnam(one.user)
    except KeyError:
        return {"error": f"there is no user {one.user}"}
    if os.geteuid() not in (0, entry.pw_uid):
        return {"error": f"only root can become {one.user}"}
    path = context.root / one.path.lstrip("/")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _ask_as(entry, str(path), _ACCESS[one.operation], writer)
    os.close(writer)
    try:
        answer = _answer_in(reader, context.timeout_s * 0.7)
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        if os.waitpid(pid, os.WNOHANG)[0] == 0 and answer is not None:
            os.waitpid(pid, 0)
    if answer is None:
        return {"error": "no answer"}
    if answer.isdigit():
        return {"errno": int(answer), "why": os.strerror(int(answer)) if answer != "0" else ""}
    return {"error": answer or "its child ended without a word"}


def _answer_in(pipe: int, seconds: float) -> str | None:
    import select  # noqa: PLC0415 - few sites have this check

    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return os.read(pipe, 1000).decode(errors="replace") if poll.poll(seconds * 1000) else None


def _ask_as(entry: pwd.struct_passwd, path: str, mode: int, pipe: int) -> NoReturn:
    """Become the user for good, with all of its groups, and tell what the kernel says: 0 or an error's number."""
    words = "its child failed"
    try:
        if os.geteuid() == 0:
            os.initgroups(entry.pw_name, entry.pw_gid)
            os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
            os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        words = str(_errno(path, mode))
    except OSError as err:
        words = f"can't become {entry.pw_name}: {err.strerror}"
    finally:
        os.write(pipe, words.encode())
        os._exit(0)


def _errno(path: str, mode: int) -> int:
    """Return why not, as far as the kernel tells: os.access only says yes or no."""
    import errno  # noqa: PLC0415 - few sites have this check

    try:
        os.stat(path)  # noqa: PTH116 - the child does as little as can be
    except OSError as err:
        return err.errno or errno.EIO
    if os.access(path, mode):
        return 0
    return errno.EROFS if mode == os.W_OK and os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES


def judge_path_access(facts: Any, settings: PathAccessSettings, _case: Case) -> Verdict:
    """Bad: the user may not, or the path is not there. Unknown: nobody could become the user, or nothing answered."""
    found = Findings()
    one = next(
        one
        for one in facts["tries"]
        if (one["path"], one["user"], one["operation"]) == (settings.path, settings.user, settings.operation)
    )
    said = f"{settings.user} {settings.operation} {settings.path}"
    if "error" in one:
        found.unknown(f"{said}: {one['error']}", Evidence(settings.operation, None, device=settings.path))
    elif one["errno"]:
        found.bad(
            f"{said}: {one['why']}", Evidence(settings.operation, one["why"], device=settings.path, text=settings.user)
        )
    return found.verdict(f"{settings.user} may {settings.operation} {settings.path}")


CHECKS = (
    Check(
        "ssh_connection",
        "Other hosts can be reached by SSH.",
        Probe("ssh", read_ssh, timeout_s=15.0),
        judge_ssh_connection,
        SshConnectionSettings,
        needs_settings=True,
    ),
    Check(
        "ssh_certs",
        "A host's SSH keys are those of FreeIPA.",
        Probe("ssh_certs", read_ssh_certs, timeout_s=30.0),
        judge_ssh_certs,
        SshCertsSettings,
        needs_settings=True,
    ),
    Check(
        "password_status",
        "A user's password is set, or locked, as it should be.",
        Probe("passwords", read_passwords, timeout_s=5.0),
        judge_password_status,
        PasswordStatusSettings,
    ),
    Check(
        "path_access",
        "A user may read or write a path.",
        Probe("path_access", read_access, timeout_s=8.0),
        judge_path_access,
        PathAccessSettings,
        needs_settings=True,
    ),
)
