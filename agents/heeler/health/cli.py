"""The command `heeler-health`. It starts in milliseconds: nothing here imports a bus client, logs or click."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path

from heeler.bus import ConfigError
from heeler.health.model import Check, Phase
from heeler.health.policy import PATH, Policy


def main(argv: Sequence[str] | None = None) -> None:
    """Be `heeler-health`."""
    if argv is None and sys.argv[1:2] == ["run"]:
        gc.disable()  # it ends before garbage matters, and collecting takes a tenth of its time
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["serve"]:
        _serve(words[1:])
    parser = _parser()
    args = parser.parse_args(words)
    try:
        status = args.action(args)
    except ConfigError as err:
        for fault in str(err).split("; "):
            sys.stderr.write(f"heeler-health: {fault}\n")
        status = 2
    except BrokenPipeError:
        status = 1
    sys.exit(status)


def _serve(words: Sequence[str]) -> None:
    """Be the service, which is a process on the bus like others."""
    from heeler.engine.process import main as process_main  # noqa: PLC0415 - a run of checks has no time for it
    from heeler.health.serve import PROGRAM  # noqa: PLC0415

    sys.argv = ["heeler-health serve", *words]
    process_main(PROGRAM)
    sys.exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("heeler-health", description="Checks a node; says ok, warn, bad or unknown.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run checks, or the profile of a mode")
    run.add_argument("names", nargs="*", metavar="CHECK|PROFILE")
    run.add_argument("--mode", choices=[phase.value for phase in Phase], default=Phase.APP.value)
    run.add_argument("--job", help="id of the job; SLURM_JOB_ID otherwise")
    run.add_argument("--timeout", "--deadline", type=float, metavar="S", help="for the whole run")
    run.add_argument("--fail-status", type=int, default=1, metavar="N", help="exit status of a prolog that fails (1)")
    run.add_argument("--json", action="store_true", help="JSON lines")
    run.add_argument("--id", help="id of the run")
    run.add_argument("--root", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    run.set_defaults(action=_run)
    tell = commands.add_parser("report", help="tell the bus what another script has found")
    tell.add_argument("--check", required=True, metavar="NAME")
    tell.add_argument("--outcome", required=True, choices=["ok", "warn", "bad", "unknown"])
    tell.add_argument("--why", required=True, help="one sentence for people")
    tell.add_argument("--mode", choices=[phase.value for phase in Phase], default=Phase.APP.value)
    tell.add_argument("--node", help="this one otherwise")
    tell.add_argument("--job", help="id of the job; SLURM_JOB_ID otherwise")
    tell.set_defaults(action=_report)
    show = commands.add_parser("list", help="list the checks")
    show.set_defaults(action=_list)
    explain = commands.add_parser("explain", help="say what a check does and its settings")
    explain.add_argument("check")
    explain.set_defaults(action=_explain)
    manifest = commands.add_parser("manifest", help="print what hardware this machine has, for checks to compare with")
    manifest.add_argument("--out", type=Path, metavar="FILE", help="write it there, as /etc/heeler/manifest.json")
    manifest.add_argument("--root", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    manifest.set_defaults(action=_manifest)
    policy = commands.add_parser("policy", help="check or print the policy")
    policy.add_argument("what", choices=["check", "print"])
    policy.add_argument("--node", help="as this node has it")
    policy.set_defaults(action=_policy)
    for each in (run, tell, show, explain, policy):
        each.add_argument("--policy", type=Path, default=PATH, metavar="FILE", help=f"policy ({PATH})")
    commands.add_parser("serve", help="answer requests over the bus, run the periodic checks (serve --help)")
    return parser


def _run(args: argparse.Namespace) -> int:
    from heeler.health.run import Wanted, health_run  # noqa: PLC0415 - not for --help

    wanted = Wanted(
        tuple(args.names),
        Phase(args.mode),
        args.policy,
        args.job,
        args.timeout,
        args.fail_status,
        args.json,
        args.id,
        args.root,
    )
    return health_run(wanted, os.environ)


def _report(args: argparse.Namespace) -> int:
    from heeler.health.external import Told, tell  # noqa: PLC0415
    from heeler.health.model import Outcome  # noqa: PLC0415

    told = Told(args.check, Outcome(args.outcome), args.why, Phase(args.mode), args.policy, args.node, args.job)
    return tell(told, os.environ)


def _site(args: argparse.Namespace) -> Policy:
    from heeler.health.run import load_site  # noqa: PLC0415
    from heeler.health.slurm_env import node_of  # noqa: PLC0415

    return load_site(args.policy, getattr(args, "node", None) or node_of(os.environ, os.uname().nodename))


def _list(args: argparse.Namespace) -> int:
    policy = _site(args)
    width = max(map(len, policy.checks))
    for name, check in sorted(policy.checks.items()):
        mark = " (needs settings)" if check.needs_settings else ""
        sys.stdout.write(f"{name:<{width}}  {check.about}{mark}\n")
    return 0


def _explain(args: argparse.Namespace) -> int:
    policy = _site(args)
    check = policy.checks.get(args.check)
    if check is None:
        raise ConfigError(f"no check {args.check!r}")
    rule = policy.rules[check.name]
    in_profiles = [name for name, profile in policy.profiles.items() if check.name in profile.checks]
    out = [
        f"{check.name}: {check.about}",
        f"  reads: {check.probe.name}, at most {rule.timeout_s or check.probe.timeout_s:g} s",
        f"  may fail a prolog: {'where enforced' if check.hardware else 'no'}",
        f"  enforced in: {', '.join(sorted(rule.enforce)) or 'nothing'}",
        f"  runs in: {', '.join(in_profiles) or 'no profile'}",
        *_settings(check, rule.settings),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in out))
    return 0


def _settings(check: Check, settings: object) -> list[str]:
    rows = []
    for field in fields(check.settings):
        value = getattr(settings, field.name, None if field.default is MISSING else field.default)
        rows.append(f"  {field.name} = {value!r}")
    return rows


def _manifest(args: argparse.Namespace) -> int:
    from heeler.health.model import ProbeError  # noqa: PLC0415
    from heeler.health.survey import as_json, survey  # noqa: PLC0415

    try:
        found = survey(args.root)
        if args.out:
            args.out.write_text(as_json(found.manifest))
        else:
            sys.stdout.write(as_json(found.manifest))
    except (ProbeError, OSError) as err:
        sys.stderr.write(f"heeler-health: {err}\n")
        return 1
    for line in found.left_out:
        sys.stderr.write(f"heeler-health: left out: {line}\n")
    return 0


def _policy(args: argparse.Namespace) -> int:
    policy = _site(args)
    if args.what == "check":
        sys.stdout.write(f"{args.policy}: {'good' if args.policy.exists() else 'not there: defaults hold'}\n")
        return 0
    for name, profile in policy.profiles.items():
        sys.stdout.write(f"[profiles.{name}]\nchecks = {list(profile.checks)}\ntimeout_s = {profile.timeout_s:g}\n\n")
    for name, rule in policy.rules.items():
        sys.stdout.write(f"[checks.{name}]\nenabled = {str(rule.enabled).lower()}\n")
        sys.stdout.write(f"enforce = {sorted(phase.value for phase in rule.enforce)}\n")
        for line in _settings(policy.checks[name], rule.settings):
            sys.stdout.write(f"# {line.strip()}\n")
        sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    main()
