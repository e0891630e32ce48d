"""The policy of a site: which checks run when, with which settings, and what their outcomes mean. One TOML file.

cluster = "north"

[profiles.prolog]
checks = ["gpu_count", "gpu_ecc_uncorrected"]
timeout_s = 30

[checks.gpu_count]
expected = 8
enforce = ["prolog"]

[[groups]]
nodes = "dgx[01-16]"
[groups.checks.gpu_count]
expected = 16
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from heeler.bus import ConfigError
from heeler.engine.config import build
from heeler.health.epilog import KillSettings
from heeler.health.judging import Chosen, Result
from heeler.health.model import Check, NotBuilt, Outcome, Phase

T = TypeVar("T")
PATH = Path("/etc/heeler/health.toml")
Action = Literal["fail", "warn", "unknown", "ignore"]
DEFAULT_ACTIONS: dict[Outcome, Action] = {
    Outcome.OK: "ignore",
    Outcome.WARN: "warn",
    Outcome.BAD: "fail",
    Outcome.UNKNOWN: "unknown",
    Outcome.OFF: "ignore",
}
_ON = {"on_bad": Outcome.BAD, "on_warn": Outcome.WARN, "on_unknown": Outcome.UNKNOWN}
_ABOUT_A_CHECK = ("enabled", "enforce", "timeout_s", "hold_s", *_ON)
_TOP = (
    "cluster",
    "node",
    "outbox",
    "cache",
    "plugins",
    "request",
    "profiles",
    "checks",
    "groups",
    "slurm",
    "leftovers",
)


@dataclass(frozen=True, slots=True)
class Profile:
    """The checks of a phase and the time they have together."""

    checks: tuple[str, ...] = ()
    timeout_s: float = 30.0

    def validate(self) -> None:
        """Raise ConfigError for a time that is none."""
        if not 0.1 <= self.timeout_s <= 3600:
            raise ConfigError(f"timeout_s: {self.timeout_s}: from 0.1 to 3600")


@dataclass(frozen=True, slots=True)
class Rule:
    """What the policy says of one check."""

    settings: Any
    enabled: bool = True
    enforce: frozenset[Phase] = frozenset()
    actions: Mapping[Outcome, Action] = field(default_factory=lambda: DEFAULT_ACTIONS)
    timeout_s: float | None = None
    hold_s: float = 0.0  # a periodic run drains for it only after so long


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """Where Slurm's commands and slurm.conf are, if not where they are looked for."""

    bin_dir: str | None = None
    conf: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A site's policy as it holds for one node."""

    rules: Mapping[str, Rule]
    profiles: Mapping[str, Profile]
    checks: Mapping[str, Check]
    cluster: str | None = None
    node: str | None = None
    outbox: Path = Path("/var/spool/heeler/outbox")
    cache: Path = Path("/run/heeler")
    request: tuple[str, ...] = ()  # what may be asked for over the bus
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    leftovers: KillSettings = field(default_factory=KillSettings)
    digest: str = ""

    def chosen(self, names: Sequence[str]) -> tuple[list[Chosen], list[Check]]:
        """Return the checks of names or profiles: those to run, and those that are switched off. Raises ConfigError."""
        found: dict[str, None] = {}
        for name in names:
            for each in self.profiles[name].checks if name in self.profiles else (name,):
                if each not in self.checks:
                    raise ConfigError(f"no check or profile {each!r}")
                found[each] = None
        run = [Chosen(self.checks[name], self.rules[name].settings) for name in found if self.rules[name].enabled]
        return run, [self.checks[name] for name in found if not self.rules[name].enabled]

    def action(self, result: Result) -> Action:
        """Return what the outcome of a check means."""
        return self.rules[result.check.name].actions[result.verdict.outcome]

    def enforces(self, name: str, phase: Phase) -> bool:
        """Say whether a check may fail a prolog or epilog."""
        return phase in self.rules[name].enforce


def read_policy(path: Path) -> dict[str, Any]:
    """Return the tables of a policy; empty where there is no file: then the defaults hold. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return {}
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: {err}") from None


def plugins_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the plug-ins that a policy names."""
    names = table.get("plugins", [])
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def make_policy(
    table: Mapping[str, Any], node: str, checks: Sequence[Check], defaults: Mapping[str, Profile]
) -> Policy:
    """Return the policy of a TOML table. Raises ConfigError with every fault there is."""
    faults = [f"{key}: unknown key" for key in table if key not in _TOP]
    known = {check.name: check for check in checks}
    merged = _for_node(table, node, faults)
    rules = {name: _rule(check, merged.pop(name, {}), faults) for name, check in known.items()}
    faults += [f"checks.{name}: no such check" for name in merged]
    profiles = dict(defaults)
    for name, says in _tables(table, "profiles", faults).items():
        try:
            profiles[name] = build(Profile, says, f"profiles.{name}")
        except ConfigError as err:
            faults.append(str(err))
    for name, profile in profiles.items():
        faults += [f"profiles.{name}: no such check: {each}" for each in profile.checks if each not in known]
    request = _texts(table, "request", faults)
    if request is None:
        periodic = profiles.get("periodic")
        request = ("periodic", *periodic.checks) if periodic else ()
    faults += [f"request: no such check or profile: {name}" for name in request if name not in {**known, **profiles}]
    _texts(table, "plugins", faults)
    plain = {key: _text(table, key, faults) for key in ("cluster", "node", "outbox", "cache")}
    slurm = _section(SlurmSettings, table, "slurm", faults)
    leftovers = _section(KillSettings, table, "leftovers", faults)
    if faults:
        raise ConfigError("; ".join(faults))
    folders = {key: Path(text) for key in ("outbox", "cache") if (text := plain[key])}
    digest = hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return Policy(
        rules,
        profiles,
        known,
        plain["cluster"],
        plain["node"],
        request=request,
        slurm=slurm,
        leftovers=leftovers,
        digest=f"sha256:{digest}",
        **folders,
    )


def _section(kind: type[T], table: Mapping[str, Any], name: str, faults: list[str]) -> T:
    try:
        return build(kind, table.get(name, {}), name)
    except ConfigError as err:
        faults.append(str(err))
        return kind()


def _rule(check: Check, table: Mapping[str, Any], faults: list[str]) -> Rule:
    where = f"checks.{check.name}"
    actions = dict(DEFAULT_ACTIONS)
    for key, outcome in _ON.items():
        if key in table:
            if table[key] in get_args(Action):
                actions[outcome] = table[key]
            else:
                faults.append(f"{where}.{key}: {table[key]!r}: one of {', '.join(get_args(Action))}")
    enabled = table.get("enabled", True)
    if not isinstance(enabled, bool):
        faults.append(f"{where}.enabled: {enabled!r} is not bool")
    timeout_s, hold_s = (_number(table, key, where, faults) for key in ("timeout_s", "hold_s"))
    settings: Any = None
    try:
        rest = {key: value for key, value in table.items() if key not in _ABOUT_A_CHECK}
        settings = None if check.settings is NotBuilt else build(check.settings, rest, where)
    except ConfigError as err:
        # A check that means nothing without settings is no fault as long as nobody gives it any.
        if table or not check.needs_settings:
            faults.append(str(err))
        enabled = False if not table else enabled
    hold_s = check.hold_s if hold_s is None else hold_s
    return Rule(settings, bool(enabled), _phases(table.get("enforce", []), where, faults), actions, timeout_s, hold_s)


def _number(table: Mapping[str, Any], key: str, where: str, faults: list[str]) -> float | None:
    value = table.get(key)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
        return value
    faults.append(f"{where}.{key}: {value!r} is not a number of seconds")
    return None


def _phases(value: Any, where: str, faults: list[str]) -> frozenset[Phase]:
    if isinstance(value, bool):
        return frozenset((Phase.PROLOG, Phase.EPILOG)) if value else frozenset()
    try:
        phases = frozenset(Phase(each) for each in value)
        if phases <= {Phase.PROLOG, Phase.EPILOG, Phase.PERIODIC}:
            return phases
    except (ValueError, TypeError):
        pass
    faults.append(f"{where}.enforce: {value!r}: a list of prolog, epilog and periodic")
    return frozenset()


def _for_node(table: Mapping[str, Any], node: str, faults: list[str]) -> dict[str, dict[str, Any]]:
    """Return what is said of each check, the groups that the node is in going over the rest, the last one first."""
    found = {name: dict(says) for name, says in _tables(table, "checks", faults).items()}
    groups = table.get("groups", [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        faults.append("groups: not a list of tables")
        return found
    for at, group in enumerate(groups):
        where = f"groups[{at}]"
        faults += [f"{where}.{key}: unknown key" for key in group if key not in ("nodes", "checks")]
        if not isinstance(group.get("nodes"), str):
            faults.append(f"{where}.nodes: missing, or not text")
        elif _is_in(node, group["nodes"], where, faults):
            for name, says in _tables(group, "checks", faults, f"{where}.").items():
                found[name] = {**found.get(name, {}), **says}
    return found


def _is_in(node: str, hosts: str, where: str, faults: list[str]) -> bool:
    # Policies without groups, which are most, need not wait for ClusterShell.
    from heeler.slurm.errors import ParseError  # noqa: PLC0415
    from heeler.slurm.hostlist import expand_set  # noqa: PLC0415

    try:
        return node in expand_set(hosts)
    except ParseError as err:
        faults.append(f"{where}.nodes: {err}")
        return False


def _tables(table: Mapping[str, Any], key: str, faults: list[str], where: str = "") -> dict[str, dict[str, Any]]:
    value = table.get(key, {})
    if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
        return value
    faults.append(f"{where}{key}: not a table of tables")
    return {}


def _texts(table: Mapping[str, Any], key: str, faults: list[str]) -> tuple[str, ...] | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    faults.append(f"{key}: not a list of texts")
    return ()


def _text(table: Mapping[str, Any], key: str, faults: list[str]) -> str | None:
    value = table.get(key)
    if value is None or (isinstance(value, str) and value):
        return value
    faults.append(f"{key}: {value!r} is not text")
    return None
