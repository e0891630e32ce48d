"""Checks by DCGM: its diagnostics (DCGM 3 and 4), its health watches, and NVLinks. All GPUs' results are read.

A diagnostic takes GPUs for itself, so it gets only those that are allocated to nobody (see free_gpus.py).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.dcgm_text import (
    DIAG_RESULTS,
    parse_diag,
    parse_discovery,
    parse_health,
    parse_link_errors,
    parse_link_status,
)
from heeler.health.checks.findings import Findings
from heeler.health.checks.free_now import free_now, refuse_all_around_jobs
from heeler.health.checks.tool import Output, run_tool
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

_HOST = re.compile(r"[A-Za-z0-9_./\[][\w.:/\[\]-]*")


@dataclass(frozen=True, slots=True)
class DcgmDiagSettings:
    """Which diagnostic, on which GPUs."""

    level: int = 1  # 1 (seconds) to 4 (an hour)
    gpus: str = "free"  # free: those that Slurm has allocated to nobody; all: for a machine without Slurm
    exclude: tuple[str, ...] = ()  # names of tests or categories whose results don't count
    host: str = ""  # of nv-hostengine; dcgmi's own default otherwise
    parameters: str = ""  # dcgmi's -p

    def validate(self) -> None:
        """Raise ConfigError for a level or word that does not exist."""
        if not 1 <= self.level <= 4:
            raise ConfigError(f"level: {self.level}: 1 to 4")
        if self.gpus not in ("free", "all"):
            raise ConfigError(f"gpus: {self.gpus!r}: free or all")
        check_host(self.host)


@dataclass(frozen=True, slots=True)
class DcgmHostSettings:
    """Where nv-hostengine listens."""

    host: str = ""  # dcgmi's own default otherwise

    def validate(self) -> None:
        """Raise ConfigError for what is no host."""
        check_host(self.host)


@dataclass(frozen=True, slots=True)
class NvlinkErrorsSettings:
    """Errors that NVLinks may have counted."""

    host: str = ""  # of nv-hostengine; dcgmi's own default otherwise
    max_crc_data: int = 0
    max_crc_flit: int = 0
    max_replay: int = 0
    max_recovery: int = 0

    def validate(self) -> None:
        """Raise ConfigError for what is no host."""
        check_host(self.host)


def check_host(host: str) -> None:
    """Raise ConfigError for a host that dcgmi would take for an option."""
    if host and not _HOST.fullmatch(host):
        raise ConfigError(f"host: {host!r} is no host")


def _host(host: str) -> tuple[str, ...]:
    return ("--host", host) if host else ()


def _discover(context: Context, host: str) -> dict[int, str]:
    """Return DCGM's number -> UUID of each GPU. Raises ProbeError."""
    done = run_tool(context, ("dcgmi", "discovery", *_host(host), "-l")).checked()
    found = parse_discovery(done.stdout)
    if not found:
        raise ProbeError("unreadable", f"dcgmi discovery -l: no GPU in {done.stdout!r:.100}")
    return found


def read_diag(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Dcgmi diag -j of the GPUs that are free, by scontrol show node and the driver's list of GPUs."""
    settings: DcgmDiagSettings = asked[0]
    uuids = _discover(context, settings.host)
    chosen = _chosen(context, settings, uuids)
    argv = ["dcgmi", "diag", *_host(settings.host), "-j", "-r", str(settings.level), "-i", ",".join(map(str, chosen))]
    if settings.parameters:
        argv += ["-p", settings.parameters]
    done = run_tool(context, argv)
    return {
        "uuids": {str(number): uuid for number, uuid in uuids.items()},
        "gpus": chosen,
        "results": diag_results(done),
        "rc": done.rc,
        "said": done.said,
    }


def diag_results(done: Output) -> list[dict[str, Any]]:
    """Return the results of a diagnostic. dcgmi's exit status is not 0 where a test has failed. Raises ProbeError."""
    try:
        return parse_diag(done.stdout)
    except ValueError as err:
        if done.rc:
            raise ProbeError("failed", f"dcgmi diag ended with {done.rc}: {done.said}") from None
        raise ProbeError("unreadable", f"dcgmi diag: {err}") from None


def _chosen(context: Context, settings: DcgmDiagSettings, uuids: dict[int, str]) -> list[int]:
    """Return DCGM's numbers of the GPUs that the diagnostic may have. Raises ProbeError for none, or any doubt."""
    if settings.gpus == "all":
        refuse_all_around_jobs(context.case.phase)
        return sorted(uuids)
    wanted = free_now(context, settings.level)
    numbers = sorted(number for number, uuid in uuids.items() if uuid in wanted)
    if len(numbers) != len(wanted):
        raise ProbeError("failed", "no diagnostic: DCGM does not know all of the GPUs that are free")
    return numbers


def judge_dcgm_diag(facts: Any, settings: DcgmDiagSettings, _case: Case) -> Verdict:
    """Bad: a test failed on any GPU. Warn: a test warns. Unknown: nothing was tested, or dcgmi failed."""
    found, passed, tested = Findings(), 0, set()
    excluded = {each.lower() for each in settings.exclude}
    for one in facts["results"]:
        if {one["test"].lower(), one["category"].lower()} & excluded:
            continue
        gpu = one["gpu"]
        uuid = facts["uuids"].get(str(gpu)) if gpu is not None else None
        where = f"GPU {gpu}" if gpu is not None else one["entity"]
        shown = Evidence(
            "dcgm_diag", one["status"], "pass", gpu_uuid=uuid, gpu_index=gpu, text=one["text"] or one["test"]
        )
        said = f"{one['test']}: {where} {one['status']}" + (f": {one['text']}" if one["text"] else "")
        if one["status"] == "fail":
            found.bad(said, shown)
        elif one["status"] == "warn":
            found.warn(said, shown)
        elif one["status"] not in DIAG_RESULTS:
            found.unknown(said, shown)
        passed += one["status"] == "pass"
        if gpu is not None and one["status"] in ("pass", "fail", "warn"):
            tested.add(gpu)
    missing = [gpu for gpu in facts["gpus"] if gpu not in tested]
    if tested and missing:
        found.unknown(f"no test of GPU {', '.join(map(str, missing))}", Evidence("dcgm_diag", None))
    if not found.seen and not passed:
        return unknown("no test has run")
    if not found.seen and facts["rc"]:
        return unknown(f"dcgmi ended with {facts['rc']}, but no test failed: {facts['said']}")
    return found.verdict(f"level {settings.level}: {passed} results pass")


def read_health(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Dcgmi health -c -j of all GPUs."""
    host = asked[0].host
    done = run_tool(context, ("dcgmi", "health", *_host(host), "-g", "0", "-c", "-j"))
    try:
        overall, details = parse_health(done.stdout)
    except ValueError as err:
        raise done.failed() if done.rc else ProbeError("unreadable", f"dcgmi health: {err}") from None
    return {"overall": overall, "details": details}


def judge_dcgm_health(facts: Any, _settings: DcgmHostSettings, _case: Case) -> Verdict:
    """Bad: DCGM's watches have seen a failure. Warn: a warning. Unknown: no watches are set (dcgmi health -s a)."""
    found, overall = Findings(), facts["overall"].lower()
    shown = Evidence("dcgm_health", facts["overall"], "Healthy", text="; ".join(facts["details"])[:300] or None)
    said = f"{facts['overall']}: {facts['details'][0] if facts['details'] else 'no details'}"
    if overall == "failure":
        found.bad(said, shown)
    elif overall == "warning":
        found.warn(said, shown)
    elif overall != "healthy":
        found.unknown(said, shown)
    return found.verdict("healthy")


def read_link_errors(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Dcgmi nvlink -e -j of each GPU."""
    host = asked[0].host
    found = {}
    uuids = _discover(context, host)
    for number in uuids:
        done = run_tool(context, ("dcgmi", "nvlink", *_host(host), "-j", "-e", "-g", str(number))).checked()
        try:
            found[str(number)] = parse_link_errors(done.stdout)
        except ValueError as err:
            raise ProbeError("unreadable", f"dcgmi nvlink -e -g {number}: {err}") from None
    return {"uuids": {str(number): uuid for number, uuid in uuids.items()}, "errors": found}


def judge_nvlink_errors(facts: Any, settings: NvlinkErrorsSettings, _case: Case) -> Verdict:
    """Bad: a link has counted more errors than it may. Unknown: a GPU's links tell no count at all."""
    limits = {
        "crc_data": settings.max_crc_data,
        "crc_flit": settings.max_crc_flit,
        "replay": settings.max_replay,
        "recovery": settings.max_recovery,
    }
    found, told = Findings(), 0
    for gpu, links in facts["errors"].items():
        known = 0
        for link, counts in links.items():
            for kind, limit in limits.items():
                count = counts.get(kind)
                known += count is not None
                if count is not None and count > limit:
                    uuid = facts["uuids"].get(gpu)
                    shown = Evidence(f"nvlink_{kind}", count, limit, gpu_uuid=uuid, gpu_index=int(gpu), device=link)
                    found.bad(f"GPU {gpu} {link}: {count} {kind} errors", shown)
        told += known
        if not known:
            found.unknown(f"GPU {gpu}: no count of its links", Evidence("nvlink", None, gpu_index=int(gpu)))
    if not told:
        return unknown("no link tells a count")
    return found.verdict(f"{len(facts['errors'])} GPUs, no link errors beyond the limits")


def read_link_status(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Dcgmi nvlink -s."""
    host = asked[0].host
    done = run_tool(context, ("dcgmi", "nvlink", *_host(host), "-s")).checked()
    try:
        links = parse_link_status(done.stdout)
    except ValueError as err:
        raise ProbeError("unreadable", f"dcgmi nvlink -s: {err}") from None
    return {"links": links, "uuids": {str(number): uuid for number, uuid in _uuids(context, host)}}


def _uuids(context: Context, host: str) -> Iterator[tuple[int, str]]:
    try:
        yield from _discover(context, host).items()
    except ProbeError:
        return  # the links are told without the GPUs' UUIDs


def judge_nvlink_status(facts: Any, _settings: DcgmHostSettings, _case: Case) -> Verdict:
    """Bad: a link is down or disabled. Unknown: no GPU has links that could be up."""
    found, up = Findings(), 0
    for one in facts["links"]:
        states = one["states"]
        up += states.count("U")
        for at, state in enumerate(states):
            if state in ("D", "X"):
                said = f"{one['kind']} {one['number']} link {at} is {'down' if state == 'D' else 'disabled'}"
                gpu = one["number"] if one["kind"] == "GPU" else None
                uuid = facts["uuids"].get(str(gpu)) if gpu is not None else None
                found.bad(said, Evidence("nvlink", state, "U", gpu_uuid=uuid, gpu_index=gpu, device=f"link {at}"))
    if not up and not found.seen:
        return unknown("no NVLink that could be up")
    found.perf["links_up"] = up
    return found.verdict(f"{up} links are up")


CHECKS = (
    Check(
        "dcgm_diag",
        "DCGM's diagnostic passes on GPUs that are free.",
        Probe("dcgm_diag", read_diag, timeout_s=120.0),
        judge_dcgm_diag,
        DcgmDiagSettings,
        hardware=True,
    ),
    Check(
        "dcgm_health",
        "DCGM's health watches see nothing.",
        Probe("dcgm_health", read_health, timeout_s=15.0),
        judge_dcgm_health,
        DcgmHostSettings,
        hardware=True,
    ),
    Check(
        "dcgm_nvlink_errors",
        "NVLinks have counted no errors, by DCGM.",
        Probe("dcgm_nvlink_errors", read_link_errors, timeout_s=30.0),
        judge_nvlink_errors,
        NvlinkErrorsSettings,
        hardware=True,
    ),
    Check(
        "dcgm_nvlink_status",
        "NVLinks are up, by DCGM.",
        Probe("dcgm_nvlink_status", read_link_status, timeout_s=15.0),
        judge_nvlink_status,
        DcgmHostSettings,
        hardware=True,
    ),
)
