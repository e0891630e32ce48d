"""heeler drain: look at the drainer, and the operator's hand on it."""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from heeler.bus import Bus
from heeler.cli import draintext
from heeler.cli.common import answered, bus_options, connected, plain, run, say
from heeler.cli.simulate import simulate
from heeler.cli.since import Span
from heeler.drain import ask
from heeler.drain.hand import BREAKERS

REFUSED = 3
NOBODY = 4

Command = Callable[..., Any]


def hand_options(command: Command) -> Command:
    """Add the options of every command of this group."""
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)
    as_whom = "Your name on the bus; else the one that its permissions give you, else your login."
    return bus_options(click.option("--as", "actor", metavar="NAME", help=as_whom)(command))


WHY = click.option("--why", default=None, help="For the record, and for whoever looks next.")
WHY_NEEDED = click.option("--why", required=True, help="For the record, and for whoever looks next.")
WHICH = click.argument("breaker", type=click.Choice(BREAKERS))


@click.group()
def drain() -> None:
    """Look at the drainer, and steer it.

    Everything goes over the bus to the active drainer, which publishes each command as a DrainAction with your name.
    """


drain.add_command(simulate)


@drain.command()
@hand_options
def status(url: str | None, config_path: str | None, actor: str | None, *, as_json: bool) -> None:
    """Say who drains, what stops it, what is open, what is drained, and what the budgets have left.

    Exit status: 0 a drainer is active and nothing stops it, 1 no bus, 3 it is paused or a breaker is open, 4 no
    drainer answers.
    """

    async def work(bus: Bus) -> tuple[Mapping[str, Any] | None, ask.Left | None]:
        found = await ask.question(bus, await ask.who(bus, actor), "status")
        return found, await ask.look(bus) if found is None else None

    answer, left = _on_bus(url, config_path, work)
    if answer is None:
        _print(as_json, left.plain(), draintext.left(left))
        sys.exit(NOBODY)
    if answer["outcome"] != "done":
        _refused(as_json, answer)
    standing = answer["standing"]
    _print(as_json, {"answered": True, **standing}, draintext.status(standing))
    sys.exit(REFUSED if draintext.stopped(standing) else 0)


@drain.command()
@hand_options
@click.option("--for", "for_s", type=Span(), default=None, help="For so long: 90s, 30m, 2h, 7d; else until resumed.")
@WHY
def pause(
    url: str | None, config_path: str | None, actor: str | None, for_s: float | None, why: str | None, *, as_json: bool
) -> None:
    """Have the drainer do nothing, while it goes on reading. What it has already begun with a node ends first.

    Exit status: 0 paused, 1 no bus, 3 refused, 4 no drainer answers.
    """
    _command(url, config_path, actor, "pause", as_json=as_json, for_s=for_s, why=why)


@drain.command()
@hand_options
@WHY
def resume(url: str | None, config_path: str | None, actor: str | None, why: str | None, *, as_json: bool) -> None:
    """End a pause. Findings that are still open are answered at once.

    Exit status: 0 resumed, 1 no bus, 3 refused (it is not paused), 4 no drainer answers.
    """
    _command(url, config_path, actor, "resume", as_json=as_json, why=why)


@drain.command()
@click.argument("finding")
@hand_options
@WHY
def approve(
    finding: str, url: str | None, config_path: str | None, actor: str | None, why: str | None, *, as_json: bool
) -> None:
    """Say yes to the drain that FINDING asks for, where a rule of the policy has `approval = true`.

    Everything else that the policy asks for still has to hold, now and for as long as `limits.approval_s`. Exit status:
    0 approved, 1 no bus, 3 refused (no such open finding, no approval asked for, or acted on), 4 no drainer answers.
    """
    _command(url, config_path, actor, "approve", as_json=as_json, finding_id=finding, why=why)


@drain.command()
@click.argument("name", metavar="FINDING|NODE")
@hand_options
def explain(name: str, url: str | None, config_path: str | None, actor: str | None, *, as_json: bool) -> None:
    """Say what would happen to a finding or a node now, and why: every check of the policy with its numbers.

    Exit status: 0 explained, 1 no bus, 3 nothing is known of that name, 4 no drainer answers.
    """

    async def work(bus: Bus) -> tuple[Mapping[str, Any] | None, str]:
        who = await ask.who(bus, actor)
        return await ask.question(bus, who, "explain", name), who

    answer = _needed(as_json, *_on_bus(url, config_path, work))
    if answer["outcome"] != "done":
        _refused(as_json, answer)
    _print(as_json, {"answered": True, **answer}, draintext.explained(answer))


@drain.command("reset-breaker")
@WHICH
@hand_options
@WHY_NEEDED
def reset_breaker(
    breaker: str, url: str | None, config_path: str | None, actor: str | None, why: str, *, as_json: bool
) -> None:
    """Close a breaker: `drain` lets the drainer act again, `prolog` lets nodes enforce their health checks again.

    Look first at why it opened: heeler drain status. What failed before the reset is not counted again. Exit status:
    0 closed, 1 no bus, 3 refused (it is closed already), 4 no drainer answers.
    """
    _command(url, config_path, actor, "reset_breaker", as_json=as_json, breaker=breaker, why=why)


@drain.command("trip-breaker")
@WHICH
@hand_options
@WHY_NEEDED
def trip_breaker(
    breaker: str, url: str | None, config_path: str | None, actor: str | None, why: str, *, as_json: bool
) -> None:
    """Open a breaker by hand: `drain` stops the drainer, `prolog` stops enforcement of health checks on all nodes.

    Exit status: 0 open, 1 no bus, 3 refused (it is open already), 4 no drainer answers.
    """
    _command(url, config_path, actor, "trip_breaker", as_json=as_json, breaker=breaker, why=why)


def _command(
    url: str | None, config_path: str | None, actor: str | None, what: str, *, as_json: bool, **more: Any
) -> None:
    async def work(bus: Bus) -> tuple[Mapping[str, Any] | None, str]:
        name = await ask.who(bus, actor)
        return await ask.command(bus, name, what, **more), name

    answer = _needed(as_json, *_on_bus(url, config_path, work))
    if answer["outcome"] != "done":
        _refused(as_json, answer)
    _print(as_json, {"answered": True, **answer}, [answer["why"]])


def _needed(as_json: bool, answer: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """Return the answer, or end where nobody gave one."""
    if answer is not None:
        return answer
    why = (
        f"no drainer answers {name!r}: none is active (heeler drain status says more), or this user of the bus may not "
        f"speak to it under that name"
    )
    _print(as_json, {"answered": False, "actor": name, "why": why}, [why], err=True)
    sys.exit(NOBODY)


def _refused(as_json: bool, answer: Mapping[str, Any]) -> None:
    line = f"refused ({answer.get('rule') or 'no word why'}): {answer['why']}"
    _print(as_json, {"answered": True, **answer}, [line], err=True)
    sys.exit(REFUSED)


def _print(as_json: bool, value: Mapping[str, Any], lines: list[str], *, err: bool = False) -> None:
    if as_json:
        click.echo(json.dumps(plain(dict(value)), ensure_ascii=False))
        return
    for line in lines:
        say(line, err=err)


def _on_bus(url: str | None, config_path: str | None, work: Callable[[Bus], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with connected(url, config_path, "drain-hand") as bus:
            with answered():
                return await work(bus)

    return run(main())
