"""Checks of software: kernel modules, packages, services, repositories."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.files import maybe_int, maybe_names, read_text
from heeler.health.checks.findings import Findings
from heeler.health.checks.tool import find_tool, run_tool
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.+:@\\-]*")
_NVIDIA, _BRIDGE = 0x10DE, 0x0680
_SHOWN = "Id,Names,LoadState,ActiveState,SubState,Result,NRestarts"


def check_names(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that a tool would take for an option, or that can be none."""
    for name in names:
        if not _PLAIN_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name")


@dataclass(frozen=True, slots=True)
class ModulesSettings:
    """Kernel modules that must be loaded."""

    modules: tuple[str, ...] = ()  # whole names; built-in ones count
    counts: dict[str, int] = field(default_factory=dict)  # beginning of names -> how many at least


@dataclass(frozen=True, slots=True)
class PackagesSettings:
    """Packages that must be installed."""

    packages: dict[str, str]  # name -> version, with or without release; empty: any

    def validate(self) -> None:
        """Raise ConfigError for a name that is none."""
        check_names(list(self.packages))


@dataclass(frozen=True, slots=True)
class ServicesSettings:
    """Services of systemd that must run."""

    services: tuple[str, ...]
    max_restarts: int = 0  # by systemd itself; 0: any number

    def validate(self) -> None:
        """Raise ConfigError for a name that is none."""
        check_names(self.services)


@dataclass(frozen=True, slots=True)
class FabricManagerSettings:
    """The service that sets up NVSwitches."""

    service: str = "nvidia-fabricmanager.service"

    def validate(self) -> None:
        """Raise ConfigError for a name that is none."""
        check_names((self.service,))


@dataclass(frozen=True, slots=True)
class DnfReposSettings:
    """Repositories of packages that must answer."""

    min_repos: int = 1


def read_modules(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/proc/modules, /sys/module."""
    loaded = {}
    known = maybe_names(context.root / "sys/module")
    try:
        text = read_text(context.root / "proc/modules")
    except ProbeError as err:
        if err.kind != "missing" or known is None:
            raise
        return {"loaded": None, "known": known}  # a kernel that loads none has some built in
    for line in text.splitlines():
        words = line.split()
        if len(words) < 5:
            raise ProbeError("unreadable", f"/proc/modules: {line!r:.100}")
        loaded[words[0]] = words[4]
    return {"loaded": loaded, "known": known or []}


def judge_modules(facts: Any, settings: ModulesSettings, _case: Case) -> Verdict:
    """Bad: a module is not loaded, or on its way in or out. Names are whole: nvidia is not nvidia_uvm."""
    found, loaded = Findings(), facts["loaded"] or {}
    if not settings.modules and not settings.counts:
        return unknown("which modules there should be is not said")
    for each in settings.modules:
        name = each.replace("-", "_")
        state = loaded.get(name)
        if state is None and name not in facts["known"]:
            found.bad(f"{each} is not loaded", Evidence("module", None, "Live", device=each))
        elif state not in (None, "Live"):
            found.bad(f"{each} is {state}", Evidence("module", state, "Live", device=each))
    for begin, least in settings.counts.items():
        count = sum(name.startswith(begin.replace("-", "_")) and state == "Live" for name, state in loaded.items())
        if count < least:
            found.bad(f"{count} modules {begin}*, not {least}", Evidence("modules", count, least, device=begin))
    return found.verdict("all modules are loaded")


def read_packages(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Rpm -q or dpkg-query -W, whichever keeps the packages of this machine."""
    names = list(dict.fromkeys(name for one in asked for name in one.packages))
    debian = (context.root / "var/lib/dpkg/status").is_file()
    if debian or not find_tool(context, "rpm"):
        argv = ("dpkg-query", "-W", "-f=${binary:Package}\t${Version}\t${db:Status-Status}\n", "--", *names)
        done = run_tool(context, argv)
        if done.rc not in (0, 1):  # 1: some of them are not known
            raise done.failed()
        return {"versions": _dpkg(done.stdout), "answered": bool(done.stdout) or "no packages found" in done.stderr}
    done = run_tool(context, ("rpm", "-q", "--qf", "%{NAME}\t%{EPOCH}:%{VERSION}-%{RELEASE}\n", "--", *names))
    versions = _rpm(done.stdout)
    missing = [line for line in done.stdout.splitlines() if line.endswith("is not installed")]
    if done.rc != len(missing) or len(versions) + len(missing) < len(names):
        raise done.failed()  # a damaged or locked database, not a missing package
    return {"versions": versions, "answered": True}


def _dpkg(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, version, state = (*line.split("\t"), "", "")[:3]
        if state == "installed":
            found.setdefault(name.partition(":")[0], []).append(version)
    return found


def _rpm(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, tab, version = line.partition("\t")
        if tab:
            found.setdefault(name, []).append(version.removeprefix("(none):"))
    return found


def judge_packages(facts: Any, settings: PackagesSettings, _case: Case) -> Verdict:
    """Bad: a package is not installed, or in another version. Unknown: the packages can't be asked for."""
    if not facts["answered"]:
        return unknown("the package manager said nothing")
    found = Findings()
    for name, wanted in settings.packages.items():
        versions = facts["versions"].get(name, [])
        if not versions:
            found.bad(f"{name} is not installed", Evidence("package", None, wanted or None, device=name))
        elif wanted and not any(_same_version(have, wanted) for have in versions):
            shown = Evidence("package", ", ".join(versions), wanted, device=name)
            found.bad(f"{name} is {', '.join(versions)}, not {wanted}", shown)
    return found.verdict(f"{len(settings.packages)} packages as they should be")


def _same_version(have: str, wanted: str) -> bool:
    """Compare epoch and release only where the site names them."""
    forms = {have, have.partition(":")[2] or have}
    forms |= {form.rpartition("-")[0] for form in tuple(forms) if "-" in form}
    return wanted in forms


def read_services(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Systemctl show of all services at once, and where it is asked for /sys/bus/pci for NVSwitches."""
    switches = _switches(context) if any(isinstance(one, FabricManagerSettings) for one in asked) else 0
    names: list[str] = []
    for one in asked:
        if isinstance(one, ServicesSettings):
            names += one.services
        elif switches:
            names.append(one.service)
    facts: dict[str, Any] = {"switches": switches, "services": {}}
    if names:
        names = [name if "." in name else f"{name}.service" for name in dict.fromkeys(names)]
        done = run_tool(context, ("systemctl", "show", "--no-pager", f"--property={_SHOWN}", "--", *names))
        facts["services"] = parse_show(done.checked().stdout)
    return facts


def _switches(context: Context) -> int | None:
    """Return how many NVSwitches there are; None where that can't be read."""
    folder = context.root / "sys/bus/pci/devices"
    try:
        names = maybe_names(folder)
    except ProbeError:
        return None
    if names is None:
        return None
    return sum(
        maybe_int(folder / name / "vendor") == _NVIDIA and (maybe_int(folder / name / "class") or 0) >> 8 == _BRIDGE
        for name in names
    )


def parse_show(text: str) -> dict[str, dict[str, str]]:
    """Return the properties of each unit of `systemctl show`, under all of its names. Raises ProbeError."""
    found: dict[str, dict[str, str]] = {}
    for block in text.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if not values.get("Id") or not values.get("ActiveState"):
            raise ProbeError("unreadable", f"systemctl show: {block!r:.100}")
        for name in {values["Id"], *values.get("Names", "").split()}:
            found[name] = values
    return found


def judge_services(facts: Any, settings: ServicesSettings, _case: Case) -> Verdict:
    """Bad: a service does not run. Warn: it is starting or stopping, or was restarted too often."""
    found = Findings()
    for name in settings.services:
        _judge_service(name, facts["services"], settings.max_restarts, found)
    return found.verdict(f"{', '.join(settings.services)}: active")


def _judge_service(name: str, services: dict[str, dict[str, str]], max_restarts: int, found: Findings) -> None:
    one = services.get(name) or services.get(f"{name}.service")
    if one is None:
        found.unknown(f"{name}: systemctl said nothing of it", Evidence("service", None, "active", device=name))
        return
    state, load, result = one["ActiveState"], one.get("LoadState", ""), one.get("Result", "")
    text = f"{load}, {state} ({one.get('SubState', '')}), {result}"
    shown = Evidence("service", state, "active", device=name, text=text)
    if load == "not-found":
        found.bad(f"{name}: there is no such service", shown)
    elif state in ("activating", "reloading", "deactivating"):
        found.warn(f"{name} is {state}", shown)
    elif state != "active":
        found.bad(f"{name} is {state}" + (f" ({result})" if result not in ("", "success") else ""), shown)
    elif max_restarts and one.get("NRestarts", "").isdigit() and int(one["NRestarts"]) > max_restarts:
        restarts = int(one["NRestarts"])
        found.warn(f"{name} was restarted {restarts} times", Evidence("restarts", restarts, max_restarts, device=name))


def judge_fabric_manager(facts: Any, settings: FabricManagerSettings, _case: Case) -> Verdict:
    """Bad: there are NVSwitches, and the service that sets them up does not run. Ok: there are none."""
    found = Findings()
    if facts["switches"] is None:
        return unknown("whether there are NVSwitches can't be read")
    if facts["switches"]:
        _judge_service(settings.service, facts["services"], 0, found)
    well = f"{facts['switches']} NVSwitches, {settings.service} active" if facts["switches"] else "no NVSwitch"
    return found.verdict(well)


_REPO = re.compile(r"^Repo-id\s*:\s*(\S+)", re.MULTILINE)
_FAILED_REPO = re.compile(
    r"(?:Failed to (?:download metadata|synchronize cache) for repo|"
    r"Errors during downloading metadata for repository|Failure: repodata/repomd.xml from) '?([\w.:-]+)'?"
)


def read_dnf_repos(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """Dnf repolist -v --refresh."""
    done = run_tool(context, ("dnf", "repolist", "-v", "--refresh"))
    text = f"{done.stdout}\n{done.stderr}"
    failed = sorted(set(_FAILED_REPO.findall(text)))
    repos = _REPO.findall(done.stdout)
    if done.rc != 0 and not failed:
        raise done.failed()
    return {"repos": repos, "failed": failed, "rc": done.rc, "said": done.said}


def judge_dnf_repos(facts: Any, settings: DnfReposSettings, _case: Case) -> Verdict:
    """Bad: a repository does not answer, or there are too few. Unknown: dnf itself does not work."""
    found = Findings()
    for name in facts["failed"]:
        found.bad(f"{name} does not answer", Evidence("repository", None, device=name, text=facts["said"]))
    if not facts["failed"] and len(facts["repos"]) < settings.min_repos:
        count = len(facts["repos"])
        found.bad(f"{count} repositories", Evidence("repositories", count, settings.min_repos))
    return found.verdict(f"{len(facts['repos'])} repositories answer")


SERVICES = Probe("services", read_services, timeout_s=10.0)
CHECKS = (
    Check(
        "modules",
        "Kernel modules are loaded.",
        Probe("modules", read_modules, timeout_s=3.0),
        judge_modules,
        ModulesSettings,
        needs_settings=True,
    ),
    Check(
        "packages",
        "Packages are installed, in their versions.",
        Probe("packages", read_packages, timeout_s=20.0),
        judge_packages,
        PackagesSettings,
        needs_settings=True,
    ),
    Check("services", "Services run.", SERVICES, judge_services, ServicesSettings, needs_settings=True),
    Check("fabric_manager", "The service for NVSwitches runs.", SERVICES, judge_fabric_manager, FabricManagerSettings),
    Check(
        "dnf_repos",
        "The repositories of dnf answer.",
        Probe("dnf_repos", read_dnf_repos, timeout_s=120.0),
        judge_dnf_repos,
        DnfReposSettings,
        needs_settings=True,
    ),
)
