"""heeler health: ask a node's health service, or run checks on this one as `heeler-health` does."""

import json
import secrets
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from heeler.bus import Bus, BusError, DecodeError, decode, encode, subjects
from heeler.cli.common import answered, bus_options, connected, plain, run, say

SPARE_S = 2.0  # the node's answer travels
LOCAL = {
    "run": "Run checks on this node.",
    "list": "List the checks.",
    "explain": "Say what a check does and its settings.",
    "policy": "Check or print the policy.",
    "report": "Tell the bus what another script has found.",
    "manifest": "Print what hardware this machine has.",
}
STATUS = {"pass": 0, "fail": 1, "would_fail": 1, "refused": 3}
SILENT = 3


@click.group()
def health() -> None:
    """Check nodes: this one, or another over the bus."""


@health.command()
@click.argument("node")
@click.argument("checks", nargs=-1, required=True, metavar="CHECK...")
@bus_options
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=1.0), default=60.0, show_default=True, help="Seconds."
)
@click.option("--why", "reason", default="asked by hand", show_default=True, help="For the node's log.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as one JSON object.")
def ask(
    node: str,
    checks: tuple[str, ...],
    url: str | None,
    config_path: str | None,
    timeout_s: float,
    reason: str,
    *,
    as_json: bool,
) -> None:
    """Have NODE run checks now and print what they found.

    A node runs what its policy lists under `request`, all names asked for or none. Exit status: 0 nothing is bad,
    1 something is or the bus is away, 3 the node refused or does not answer.
    """

    async def main() -> Mapping[str, Any] | None:
        async with connected(url, config_path, "health") as bus:
            with answered():
                return await request(bus, node, checks, reason, timeout_s)

    answer = run(main())
    if answer is None:
        click.echo(
            f"{node} does not answer: no heeler-health serve there, or none of that name, in {timeout_s:g} s", err=True
        )
        sys.exit(SILENT)
    if as_json:
        click.echo(json.dumps(plain(answer), ensure_ascii=False))
    else:
        for line in lines(answer):
            say(line)
    sys.exit(status_of(answer))


async def request(
    bus: Bus, node: str, checks: tuple[str, ...], reason: str, timeout_s: float
) -> Mapping[str, Any] | None:
    """Return the node's HealthRun; None where nobody answers. Raises BusError for an answer that is none."""
    now_ns = time.time_ns()
    asked = {
        "v": 1,
        "cluster": bus.cluster,
        "node": node,
        "ts": now_ns,
        "id": f"ask-{secrets.token_hex(8)}",
        "checks": list(checks),
        "why": reason,
        "deadline_ts": now_ns + int(timeout_s * 1e9),
    }
    subject = subjects.health_request(bus.cluster, node)
    found = await bus.request(subject, "HealthRequest", encode("HealthRequest", asked), timeout_s=timeout_s + SPARE_S)
    if found is None:
        return None
    try:
        return decode("HealthRun", found)
    except DecodeError as err:
        raise BusError(f"what {node} answered is no HealthRun: {err}") from err


def lines(answer: Mapping[str, Any]) -> list[str]:
    """Return an answer for people: a line for each check, then the verdict."""
    told = [
        f"{one['outcome']:8} {one['check']}: {one.get('why') or ''}".rstrip(": ") for one in answer.get("results") or ()
    ]
    return [*told, f"{answer['node']}: {answer['verdict']}: {answer.get('why') or ''}".rstrip(": ")]


def status_of(answer: Mapping[str, Any]) -> int:
    """Return the exit status for an answer: a result that is bad counts whatever the policy would enforce."""
    if any(one.get("outcome") == "bad" for one in answer.get("results") or ()):
        return 1
    return STATUS.get(answer["verdict"], SILENT)


def _local(name: str, about: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @health.command(name, help=about, short_help=about, context_settings=settings, add_help_option=False)
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(words: tuple[str, ...]) -> None:
        from heeler.health.cli import main as local  # noqa: PLC0415 - asking another node needs none of it

        local([name, *words])


for _name, _about in LOCAL.items():
    _local(_name, _about)
