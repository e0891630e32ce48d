"""One run of checks, from the policy to the exit status: the shell around the pure parts."""

import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.health import VERSION, letters, report
from heeler.health.around import MARK_S, Around
from heeler.health.breaker import read_breaker
from heeler.health.broken import stand_ins
from heeler.health.judging import Chosen, Result, judge_all, off
from heeler.health.model import Case, Check, Context, Phase, Probe
from heeler.health.origin import origin_of, run_id
from heeler.health.outbox import Letter, Outbox, OutboxError
from heeler.health.policy import Policy, make_policy, plugins_of, read_policy
from heeler.health.runner import run_probes
from heeler.health.slurm_env import job_of, node_of
from heeler.health.table import PROFILES, all_checks
from heeler.health.verdict import AROUND_JOBS, Run, decide

SPARE_S = 0.5  # of the time a run has, for what follows the probes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run is asked for on the command line."""

    names: tuple[str, ...]
    phase: Phase
    policy: Path
    job_id: str | None = None
    timeout_s: float | None = None
    fail_status: int = 1
    as_json: bool = False
    run_id: str | None = None
    root: Path = Path("/")


@dataclass(frozen=True, slots=True)
class Done:
    """A run that has come to its end."""

    run: Run
    about: letters.About
    more: Mapping[str, Any]
    status: int


def load_site(path: Path, node: str) -> Policy:
    """Return the policy with the checks that it names. Raises ConfigError."""
    table = read_policy(path)
    checks, faults = all_checks(plugins_of(table))
    for fault in faults:
        sys.stderr.write(f"heeler-health: {fault}\n")
    if faults:
        checks = (*checks, *stand_ins(table, (check.name for check in checks), faults))
    return make_policy(table, node, checks, PROFILES)


def health_run(wanted: Wanted, env: Mapping[str, str]) -> int:
    """Run the checks, print, leave the results in the outbox; return the exit status."""
    started = time.monotonic()
    host = socket.gethostname()
    node = node_of(env, host)
    try:
        policy = load_site(wanted.policy, node)
        chosen, without = policy.chosen(wanted.names or (wanted.phase.value,))
    except ConfigError as err:
        return _own_fault(wanted, str(err))
    done = _run(wanted, env, policy, policy.node or node, (chosen, without), started)
    _print(wanted, done)
    # A task's prolog is the job's user: what users could write into the outbox, they could make up.
    if wanted.phase is not Phase.TASK_PROLOG:
        put(policy, letters.letters(done.about, done.run, done.more))
    return done.status


def _run(
    wanted: Wanted,
    env: Mapping[str, str],
    policy: Policy,
    node: str,
    checks: tuple[Sequence[Chosen], Sequence[Check]],
    started: float,
) -> Done:
    job = job_of(env, wanted.job_id)
    now_ns = time.time_ns()
    case = Case(wanted.phase, node, now_ns, job)
    checks_s = policy.profiles[wanted.phase.value].timeout_s
    if wanted.phase not in AROUND_JOBS:  # there a script's deadline is for all of it, and checks are for seconds
        checks_s = wanted.timeout_s or checks_s
    deadline = started + (wanted.timeout_s or checks_s + MARK_S) - SPARE_S
    tools = _where_tools_are(env, policy)
    context = Context(case, wanted.root, tools, tools.get("PATH"), checks_s)
    origin = origin_of(policy, env, node, wanted.root)
    around = Around(policy, origin, context, deadline, lambda sent: put(policy, sent))
    around.begin()
    cleared = around.clear()
    chosen, without = checks
    asked = _asked(chosen, policy)
    asked |= around.probes(asked)
    read = run_probes(asked, around.context, min(time.monotonic() + checks_s, around.probes_deadline))
    around.learn(read)
    case = around.case
    results: list[Result] = [
        *judge_all(chosen, read, case),
        *(off(check, "switched off by policy") for check in without),
    ]
    breaker = read_breaker(policy.cache / "breaker.json", now_ns)
    run = decide(results, policy, wanted.phase, case.job.gpu_uuids if case.job else None, breaker)
    status = report.exit_status(run, wanted.phase, wanted.fail_status)
    slurm = _slurm_state(policy.cache / "node.json", now_ns)
    about = letters.about(origin, case, wanted.run_id or run_id(now_ns), slurm)
    more: dict[str, Any] = {
        "duration_ns": int((time.monotonic() - started) * 1e9),
        "exit_code": status,
        "version": VERSION,
        "policy": policy.digest,
        "gpus": list(case.job.gpu_uuids) if case.job and case.job.gpu_uuids else None,
        "killed": cleared.killed() or None,
        **around.end(run, breaker),
    }
    return Done(run, about, more, status)


def _asked(chosen: Sequence[Chosen], policy: Policy) -> dict[str, tuple[Probe, list[Any]]]:
    """Return each probe once, with the settings of all its checks; a longer time of one check is all checks'."""
    found: dict[str, tuple[Probe, list[Any]]] = {}
    for one in chosen:
        probe, settings = found.setdefault(one.check.probe.name, (one.check.probe, []))
        settings.append(one.settings)
        wants = policy.rules[one.check.name].timeout_s
        if wants is not None:
            found[probe.name] = (replace(probe, timeout_s=wants), settings)
    return found


def _own_fault(wanted: Wanted, why: str) -> int:
    """Say that our own settings are at fault. That drains no node and stops no job."""
    for fault in why.split("; "):
        sys.stderr.write(f"heeler-health: {fault}\n")
    if wanted.phase in (Phase.PROLOG, Phase.EPILOG, Phase.TASK_PROLOG):
        return 0
    if wanted.phase is Phase.NAGIOS:
        sys.stdout.write(f"HEELER UNKNOWN - policy: {why.splitlines()[0]}\n")
    return 3


def _print(wanted: Wanted, done: Done) -> None:
    with suppress(OSError):
        if wanted.as_json:
            out = report.json_lines(done.run, {"run": done.about.run, **done.more})
        elif wanted.phase is Phase.NAGIOS:
            out = [report.nagios(done.run)]
        elif wanted.phase is Phase.TASK_PROLOG:
            out = report.prints(done.run)
        elif wanted.phase in AROUND_JOBS:
            sys.stderr.write("".join(f"{line}\n" for line in report.brief(done.run)))
            return
        else:
            out = report.lines(done.run)
        sys.stdout.write("".join(f"{line}\n" for line in out))
        sys.stdout.flush()


def put(policy: Policy, sent: Sequence[Letter]) -> None:
    """Leave letters for the agent. That it can't be done is said, and is no fault of the job."""
    try:
        dropped = Outbox(policy.outbox).put(sent)
    except OutboxError as err:
        sys.stderr.write(f"heeler-health: results not published: {err}\n")
        return
    if dropped:
        sys.stderr.write(
            f"heeler-health: {policy.outbox} is full: {dropped} older results dropped; does the agent run?\n"
        )


def _where_tools_are(env: Mapping[str, str], policy: Policy) -> dict[str, str]:
    """Return the environment of checks' tools: Slurm's commands are where the policy says."""
    found, slurm = dict(env), policy.slurm
    if slurm.conf:
        found["SLURM_CONF"] = slurm.conf
    if slurm.bin_dir:
        found["PATH"] = f"{slurm.bin_dir}:{env['PATH']}" if env.get("PATH") else slurm.bin_dir
    return found


def _slurm_state(path: Path, now_ns: int) -> dict[str, Any]:
    """Return what the service on this node last heard of the node's state in Slurm."""
    try:
        value = loads(path.read_bytes())
        found = {
            "slurm_state": str(value["state"]),
            "slurm_reason": value.get("reason"),
            "slurm_state_age_s": max(0.0, (now_ns - int(value["ts_ns"])) / 1e9),
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {key: item for key, item in found.items() if isinstance(item, str | float)}
