"""heeler drain simulate: a policy over a capture, and what it would have cost and saved."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from heeler.cli.common import say
from heeler.cli.replay import MADE, steps
from heeler.detect.findings import duration
from heeler.drain.settings import DrainSettings, load_policy
from heeler.drain.simulate import Simulation
from heeler.drain.step import DrainStep
from heeler.engine import Pipeline, capture, config
from heeler.engine.intake import Refused, intake
from heeler.engine.step import kind_of

SEEN = ("JobEvent", "NodeState", "Inventory")
SHOWN = 50
Facts = Mapping[str, Any]


@click.command()
@click.argument("file", metavar="CAPTURE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--policy", type=click.Path(exists=True, dir_okay=False), help="Policy file; else the packaged policy.")
@click.option("--rules", type=click.Path(exists=True, dir_okay=False), help="TOML file with [detect] and [drain].")
@click.option("--detect", is_flag=True, help="Find anew by today's rules, also where the capture holds findings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(file: Path, policy: str | None, rules: str | None, *, detect: bool, as_json: bool) -> None:
    """Say what the drainer would have done in CAPTURE, why not, and what that would have cost and saved.

    The findings are those of the capture; where it holds none, enrich and detect run over it. Nothing is drained, and
    no bus is needed. Exit status: 0 done, 1 the capture can't be read.
    """
    try:
        anew = detect or not any(kind_of(message.subject) == "Finding" for message in capture.read(file))
        found = simulated(file, policy, rules, anew=anew)
    except capture.CaptureError as err:
        raise click.ClickException(str(err)) from err
    told = {**found.plain(), "findings": "found anew" if anew else "of the capture"}
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    for line in lines(told):
        say(line)


def simulated(file: Path, policy: str | None, rules: str | None, *, anew: bool) -> Simulation:
    """Run the drainer, and whatever has to find first, over a capture."""
    settings = config.build(DrainSettings, config.read_toml(rules).get("drain", {}), "drain")
    drain = DrainStep(load_policy(policy), tick_s=settings.tick_s) if policy else DrainStep.of(settings)
    chain = [*(steps("enrich,detect", rules) if anew else []), drain]
    pipeline, found = Pipeline(chain), Simulation()
    own = {kind for step in chain for kind in MADE.get(step.name, ())}
    for message in capture.read(file):
        kind = kind_of(message.subject)
        found.pass_to(message.ts_ns)
        if kind in own:
            continue
        if kind in SEEN:
            try:
                seen = intake(message.subject, message.headers, message.data, message.ts_ns)
            except Refused:
                continue
            found.take(seen.kind, seen.data, seen.ts_ns)
        for made in pipeline.feed(message.subject, message.headers, message.data, message.ts_ns):
            found.take(made.kind, made.data, made.ts_ns)
    for made in pipeline.finish(found.end_ns):
        found.take(made.kind, made.data, made.ts_ns)
    return found


def lines(told: Facts) -> list[str]:
    """Return it for people."""
    return list(_lines(told))


def _lines(told: Facts) -> Iterator[str]:
    totals = told["totals"]
    counts = f"{totals['drains']} drains, {totals['refusals']} refusals"
    yield f"{told['hours']:g} hours, findings {told['findings']}: {counts}"
    for one in told["drains"][:SHOWN]:
        yield from _drain(one, told["begin_ns"])
    if len(told["drains"]) > SHOWN:
        yield f"  and {len(told['drains']) - SHOWN} more: --json has all"
    if told["refusals"]:
        yield "refused, by rule: " + ", ".join(f"{rule} {count}" for rule, count in told["refusals"].items())
    for one in told["breaker_opened"]:
        yield f"the drainer's breaker opens after {duration(one['ts'] - told['begin_ns'])}: {one['why']}"
    if told["followed"]:
        yield "after the drains: " + ", ".join(f"{what} {count}" for what, count in told["followed"].items())
    unknown = totals["gpu_hours_unknown"]
    more = f", and those of {unknown} drains that are not known" if unknown else ""
    yield f"capacity lost: {totals['node_hours']:g} node-hours, {totals['gpu_hours']:g} GPU-hours{more}"
    yield (
        f"job hours saved: {totals['saved_job_hours']:g} of runs that a failing node ended, perhaps "
        f"{totals['perhaps_saved_job_hours']:g} of runs that failed there"
    )
    yield (
        f"job hours harmed: {totals['requeued_job_hours']:g} done again, {totals['moved_job_hours']:g} of runs that "
        f"would have run elsewhere or waited"
    )


def _drain(one: Facts, begin_ns: int) -> Iterator[str]:
    gpus = "unknown" if one["gpu_hours"] is None else f"{one['gpu_hours']:g}"
    when = duration(one["ts"] - begin_ns)
    yield f"  after {when}: {one['node']} for {one['finding_id']} ({one['rule']}): {one['why']}"
    yield (
        f"    lost {one['node_hours']:g} node-hours, {gpus} GPU-hours; {len(one['jobs_left_to_finish'])} jobs finish; "
        f"saved {len(one['saved'])} runs, perhaps {len(one['perhaps_saved'])}, moved {len(one['moved'])}"
    )
