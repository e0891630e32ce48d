"""SSH, keys, passwords, and what a user may do: asked of the kernel by a child that has become the user."""

import os
import shutil
from pathlib import Path

import pytest
from healthkit import check_of, machine, prints, run, tool

from heeler.bus import ConfigError
from heeler.health.checks.access import (
    CHECKS,
    PasswordStatusSettings,
    PathAccessSettings,
    SshCertsSettings,
    SshConnectionSettings,
)
from heeler.health.model import Check, Outcome, Verdict

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


def check(name: str) -> Check:
    return check_of(CHECKS, name)


# ssh_connection

SSH = """for host; do :; [ "$host" = exit ] || last=$host; done
case "$last" in good) exit 0;; refused) echo 'ssh: connect to host refused port 22: Connection refused' >&2; exit 255;;
config) echo '/etc/ssh/ssh_config line 3: Bad configuration option: x' >&2; exit 255;;
slow) sleep 20;; esac; exit 1"""


def test_ssh_connection_good_bad_and_unknown(tmp_path: Path) -> None:
    tools = tool(tmp_path / "bin", "ssh", SSH).parent

    def to(*hosts: str) -> Verdict:
        return run(check("ssh_connection"), tmp_path, SshConnectionSettings(hosts), tools=tools, timeout_s=1.0)

    assert to("good").outcome is Outcome.OK
    verdict = to("good", "refused")
    assert (verdict.outcome, verdict.evidence[0].device) == (Outcome.BAD, "refused")
    assert "Connection refused" in verdict.why
    assert to("slow").outcome is Outcome.UNKNOWN
    assert to("config").outcome is Outcome.UNKNOWN
    none = run(check("ssh_connection"), tmp_path, SshConnectionSettings(("good",)), tools=tmp_path / "none")
    assert none.outcome is Outcome.UNKNOWN


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh")
def test_ssh_connection_bad_by_the_real_ssh() -> None:
    verdict = run(check("ssh_connection"), "/", SshConnectionSettings(("127.0.0.1",), 2))
    assert verdict.outcome in (Outcome.BAD, Outcome.OK)
    assert (
        verdict.outcome is Outcome.OK
        or "refused" in verdict.why
        or "denied" in verdict.why
        or "verification" in verdict.why
    )


def test_a_host_that_is_an_option_is_refused() -> None:
    for settings in (
        SshConnectionSettings(("-oProxyCommand=x",)),
        SshCertsSettings("a b"),
        PasswordStatusSettings("--x"),
    ):
        with pytest.raises(ConfigError, match="is no host"):
            settings.validate()


# ssh_certs

ED = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
RSA = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7"
HOST = f"  fqdn: n1\n  ipasshpubkey: {ED} root@n1\n  ipasshpubkey: {RSA}\n  sshpubkeyfp: x\n"


def certs(root: Path, ipa: str, scan: str, rc: int = 0) -> Verdict:
    prints(root / "bin", "ipa", ipa, rc)
    prints(root / "bin", "ssh-keyscan", scan)
    return run(check("ssh_certs"), root, SshCertsSettings("n1"), tools=root / "bin")


def test_ssh_certs_good(tmp_path: Path) -> None:
    verdict = certs(
        tmp_path, HOST, f"# n1:22 SSH-2.0\nn1 {RSA}\nn1 {ED}\nn1 ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlz\n"
    )
    assert verdict.outcome is Outcome.OK


def test_ssh_certs_bad_where_a_key_of_ipa_is_not_the_hosts_or_ipa_does_not_know_it(tmp_path: Path) -> None:
    verdict = certs(tmp_path, HOST, f"n1 {RSA}\n")
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "n1 does not have the ssh-ed25519 key of FreeIPA")
    assert certs(tmp_path, "ipa: ERROR: n1: host not found\n", "", 2).why == "FreeIPA does not know n1"
    assert certs(tmp_path, "  fqdn: n1\n", "").outcome is Outcome.BAD


def test_ssh_certs_unknown_where_one_does_not_answer(tmp_path: Path) -> None:
    assert certs(tmp_path, "ipa: ERROR: cannot connect to 'https://ipa'\n", "", 1).outcome is Outcome.UNKNOWN
    assert certs(tmp_path, HOST, "").outcome is Outcome.UNKNOWN
    assert certs(tmp_path, HOST.replace(ED, ED + "A"), f"n1 {RSA}\n").outcome is Outcome.UNKNOWN
    assert run(check("ssh_certs"), tmp_path, SshCertsSettings("n1"), tools=tmp_path / "none").outcome is Outcome.UNKNOWN


# password_status

SHADOW = "root:$y$j9T$abc:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\nold:!$6$x:1:::::::\nopen::1::::::\n"


def test_password_status_good_bad_and_unknown(tmp_path: Path) -> None:
    root = machine(tmp_path, {"etc/shadow": SHADOW})

    def of(user: str, status: str, tools: Path | None = None) -> Verdict:
        settings = PasswordStatusSettings(user, status)
        settings.validate()
        return run(check("password_status"), root, settings, tools=tools or tmp_path / "none")

    assert of("root", "PS").outcome is Outcome.OK
    assert of("daemon", "LK").outcome is Outcome.OK
    assert of("old", "locked").outcome is Outcome.OK
    assert of("open", "NP").outcome is Outcome.OK
    verdict = of("open", "set")
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "the password of open is none, not set")
    assert of("ldap", "set").outcome is Outcome.UNKNOWN
    assert (
        of("ldap", "P", prints(tmp_path / "bin", "passwd", "ldap P 01/01/2025 0 99999 7 -1\n").parent).outcome
        is Outcome.OK
    )
    assert of("ldap", "P", prints(tmp_path / "bin", "passwd", "ldap LK 2025-01-01\n").parent).outcome is Outcome.BAD
    assert of("ldap", "P", prints(tmp_path / "bin", "passwd", "ldap ?? x\n").parent).outcome is Outcome.UNKNOWN
    with pytest.raises(ConfigError, match="status"):
        PasswordStatusSettings("root", "good").validate()


# path_access


@root_only
def test_path_access_good_and_bad_as_another_user(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "public").mkdir(mode=0o755)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)

    def may(operation: str, name: str) -> Verdict:
        settings = PathAccessSettings(str(tmp_path / name), "nobody", operation)
        settings.validate()
        return run(check("path_access"), "/", settings)

    assert may("read", "public").outcome is Outcome.OK
    assert may("write", "shared").outcome is Outcome.OK
    verdict = may("write", "public")
    assert (verdict.outcome, verdict.evidence[0].value) == (Outcome.BAD, "Permission denied")
    assert may("read", "private").outcome is Outcome.BAD
    assert may("read", "nothing").evidence[0].value == "No such file or directory"
    assert os.geteuid() == 0  # the child became the user, not we


def test_path_access_good_as_oneself_and_unknown_for_a_user_that_is_none(tmp_path: Path) -> None:
    import pwd

    me = pwd.getpwuid(os.geteuid()).pw_name
    assert run(check("path_access"), "/", PathAccessSettings(str(tmp_path), me)).outcome is Outcome.OK
    verdict = run(check("path_access"), "/", PathAccessSettings(str(tmp_path), "no-such-user"))
    assert (verdict.outcome, "there is no user" in verdict.why) == (Outcome.UNKNOWN, True)
    with pytest.raises(ConfigError, match="operation"):
        PathAccessSettings("/x", operation="delete").validate()
