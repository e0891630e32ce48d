"""heeler replay: processors over a capture without a bus, or a capture back onto a bus."""

import asyncio
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from heeler.cli.common import connected, on_interrupt, plain, run
from heeler.cli.compare import differences, episodes
from heeler.engine import Inbound, Pipeline, Step, capture, config

SHOWN = ("Finding", "DrainAction")
# What a step publishes is left out of a capture when the step runs: it would read its own words of that day.
MADE = {
    "enrich": ("JobSample", "JobKernelEvent"),
    "detect": ("Finding",),
    "drain": ("DrainAction",),
    "summary": ("JobSummary",),
}

STEPS = {name: f"heeler.{name}.program" for name in ("enrich", "detect", "drain", "summary", "lemon")}


def steps(names: str, path: str | None) -> list[Step]:
    """Return the steps by name, with the thresholds of a TOML file. Raises click.BadParameter, ConfigError."""
    tables = config.read_toml(path)
    unknown = [name for name in names.split(",") if name not in STEPS]
    if unknown:
        raise click.BadParameter(f"no step {unknown[0]!r}: {', '.join(STEPS)}", param_hint="--through")
    return [importlib.import_module(STEPS[name]).make_step(tables) for name in names.split(",")]


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--through", help="Steps to run, in order, such as enrich,detect,drain.")
@click.option("--rules", type=click.Path(dir_okay=False), help="TOML file with [detect], [drain] and [lemon].")
@click.option("--diff", is_flag=True, help="Print what --rules would have found, missed or said differently.")
@click.option(
    "--against", type=click.Path(dir_okay=False), help="With --diff: compare with this file, not the defaults."
)
@click.option("--json", "as_json", is_flag=True, help="With --diff: print a JSON object for each difference.")
@click.option("--all", "everything", is_flag=True, help="Print every message that the steps publish.")
@click.option("--to", "url", help="Publish the capture to this bus instead.")
@click.option("--speed", default=0.0, help="With --to: 1 keeps the pace of the recording, 0 goes as fast as it can.")
def replay(
    file: Path,
    through: str | None,
    rules: str | None,
    against: str | None,
    url: str | None,
    speed: float,
    *,
    diff: bool,
    as_json: bool,
    everything: bool,
) -> None:
    """Run processors over FILE and print findings and actions as JSON lines.

    With --diff FILE is run twice, and each line says what the rules of --rules would have found (+), missed (-) or
    said differently (~); --through is enrich,detect unless given. Exit status: 0 done, 1 FILE is no capture, or no bus,
    2 wrong options or rules.
    """
    if diff:
        _diff_options(rules, url)
        through = through or "enrich,detect"
    elif against or as_json:
        raise click.UsageError("--against and --json belong to --diff")
    if bool(through) == bool(url):
        raise click.UsageError("--through STEPS or --to URL, one of them")
    try:
        if url:
            run(publish(file, url, speed))
        elif diff:
            print_differences(file, through or "", against, rules, as_json=as_json)
        else:
            replay_through(file, steps(through or "", rules), everything=everything)
    except capture.CaptureError as err:
        raise click.ClickException(str(err)) from err


def _diff_options(rules: str | None, url: str | None) -> None:
    if url:
        raise click.UsageError("--diff compares replays, --to publishes one: one of them")
    if not rules:
        raise click.UsageError("--diff needs --rules: what to compare with the defaults")


def print_differences(file: Path, through: str, against: str | None, rules: str | None, *, as_json: bool) -> None:
    """Run a capture with two sets of rules and print how the outcomes differ; the sums go to stderr."""
    before, after = (
        episodes(made for made in replayed(file, Pipeline(steps(through, path))) if made.kind in SHOWN)
        for path in (against, rules)
    )
    found = differences(before, after)
    for one in found:
        click.echo(json.dumps(one.plain(), ensure_ascii=False) if as_json else one.sentence)
    counts = Counter(one.change for one in found)
    click.echo(
        f"{len(before)} with {against or 'the defaults'}, {len(after)} with {rules}: "
        f"{counts['found']} only now, {counts['missed']} no longer, {counts['changed']} different",
        err=True,
    )


def replayed(file: Path, pipeline: Pipeline) -> Iterator[Inbound]:
    """Feed a capture to steps and yield what they publish."""
    own = {kind for stage in pipeline.stages for kind in MADE.get(stage.step.name, ())}
    last_ns = 0
    for message in capture.read(file):
        last_ns = max(last_ns, message.ts_ns)
        if (message.headers or {}).get("Heeler-Type", "").partition("/")[0] in own:
            continue
        yield from pipeline.feed(message.subject, message.headers, message.data, message.ts_ns)
    yield from pipeline.finish(last_ns)


def replay_through(file: Path, chain: list[Step], *, everything: bool) -> None:
    """Feed a capture to steps and print what they publish; the counts go to stderr."""
    pipeline = Pipeline(chain)
    for made in replayed(file, pipeline):
        show(made.kind, made.ts_ns, made.data, everything=everything)
    counters = pipeline.counters
    click.echo(f"{counters.received} messages, {counters.events} published, {counters.dead} refused", err=True)
    for subject, refused in pipeline.refused[:20]:
        click.echo(f"refused: {subject}: {refused.error}", err=True)


def show(kind: str, ts_ns: int, data: dict[str, object], *, everything: bool) -> None:
    """Print one message that a step published."""
    if everything or kind in SHOWN:
        sys.stdout.write(json.dumps({"type": kind, "ts": ts_ns, "data": plain(data)}, ensure_ascii=False) + "\n")


async def publish(file: Path, url: str, speed: float) -> None:
    """Publish a capture. Its messages keep their bytes; the server stamps them anew, so nothing acts on old news."""
    stop = asyncio.Event()
    on_interrupt(stop)
    count = 0
    async with connected(url, None, "replay") as bus:
        first_ns, began = 0, asyncio.get_running_loop().time()
        for message in capture.read(file):
            first_ns = first_ns or message.ts_ns
            if speed > 0:
                due = began + (message.ts_ns - first_ns) / 1e9 / speed
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            if stop.is_set():
                break
            await bus.client.publish(message.subject, message.data, headers=message.headers or None)
            count += 1
            if count % 500 == 0:
                await bus.client.flush()
        await bus.client.flush()
    click.echo(f"{count} messages published", err=True)
