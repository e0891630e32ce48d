"""Sinks of others: the example of docs/sinks.md in the real process, and plug-ins that do everything wrong."""

import asyncio
import json
import os
import signal
import sys
import threading
import tomllib
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from natsserver import NatsServer
from otlplab import QUICK, Post, publish
from otlpsamples import finding
from structlog.testing import capture_logs
from waiting import until

from heeler.bus import Bus
from heeler.otlp.lane import Lane
from heeler.otlp.points import Content
from heeler.otlp.sinks import Lines, Receipt, StdoutSink
from heeler.otlp.wire import Signal

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(__file__).parent / "plugin"
BAD = """
import nowhere_at_all
"""
NO_SINK = """
def make(settings):
    return object()

def leave(settings):
    raise SystemExit("not today")

class Raises:
    def __init__(self, settings):
        pass
    def prepare(self, signal, items):
        from heeler.otlp.sinks import lines
        return [lines(items)]
    def send(self, request):
        raise SystemExit("out of here")
    def close(self):
        raise ZeroDivisionError
"""


def installed(site: Path) -> None:
    """The example as pip leaves it, its entry points from its pyproject.toml, and a package that does it all wrong."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    points = {group: dict(named) for group, named in project["entry-points"].items()}
    (site / "heeler_sink_example").mkdir(parents=True)
    (site / "heeler_sink_example/__init__.py").write_text((PLUGIN / "heeler_sink_example/__init__.py").read_text())
    (site / "bad_sink.py").write_text(BAD)
    (site / "odd_sink.py").write_text(NO_SINK)
    odd = {"bad": "bad_sink:make", "odd": "odd_sink:make", "leaves": "odd_sink:leave", "raises": "odd_sink:Raises"}
    _dist(site, project["name"], points)
    _dist(site, "odd-sinks", {"heeler.sinks": odd})


def _dist(site: Path, name: str, points: dict[str, dict[str, str]]) -> None:
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    text = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in of.items()) for group, of in points.items()]
    (info / "entry_points.txt").write_text("\n".join(text))


class Takes(BaseHTTPRequestHandler):
    """Takes JSON lines, once it has been unavailable for one request."""

    got: list[tuple[str, dict[str, Any]]]
    answers: list[int]

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            key = self.headers.get("Authorization", "")
            self.got.extend((key, json.loads(line)) for line in body.splitlines())
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def taker() -> Iterator[ThreadingHTTPServer]:
    class Own(Takes):
        got: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012 - of this server
        answers = [503]  # noqa: RUF012

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def argv(config: Path) -> list[str]:
    return [sys.executable, "-m", "heeler.cli.main", "run", "otlp", "--config", str(config)]


def environment(site: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}


def config_of(folder: Path, server: NatsServer, *sinks: str) -> Path:
    path = folder / "otlp.toml"
    bus = f'[bus]\nservers = ["{server.url}"]\ncluster = "north"\n[log]\nformat = "json"\n'
    path.write_text(
        bus + "[otlp]\nlinger_s = 0.05\nstop_s = 0.2\n" + "".join(f"[[otlp.sinks]]\n{sink}\n" for sink in sinks)
    )
    return path


def told(log: Path, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


@pytest.mark.bus
async def test_the_example_is_loaded_by_name_and_bad_ones_hurt_nobody(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, taker: ThreadingHTTPServer
) -> None:
    installed(tmp_path / "site")
    url = f"http://127.0.0.1:{taker.server_address[1]}/heeler"
    config = config_of(
        tmp_path,
        nats_server,
        f'kind = "jsonhttp"\nsignals = ["logs", "traces"]\nmax_backoff_s = 0.2\n'
        f'options = {{url = "{url}", token = "s"}}',
        'kind = "bad"',
        'kind = "odd"',
        'kind = "leaves"',
        'kind = "raises"\nsignals = ["logs"]\nmax_backoff_s = 0.1',
        f'kind = "file"\nsignals = ["logs"]\npath = "{tmp_path}/out"',
    )
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *argv(config), env=environment(tmp_path / "site"), stdout=out, stderr=out
        )
    try:
        for number in range(1, 4):
            await publish(bus, "Finding", finding(number))
        got = taker.RequestHandlerClass.got  # type: ignore[attr-defined]
        await until(lambda: len(got) == 3 + 9 or process.returncode is not None, "the example's lines")
        await until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text().count("\n") == 3, "file")
        await until(lambda: bool(told(log, "sink_unavailable")), "what the raising one says")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0, log.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert {key for key, _ in got} == {"Bearer s"}
    assert sorted(line["span"] for _, line in got if "span" in line)[:3] == ["detect"] * 3
    assert {line["attributes"]["heeler.finding.id"] for _, line in got if "log" in line} == {"f1", "f2", "f3"}
    broken = {line["sink"]: line["error"] for line in told(log, "sink_broken")}
    assert broken == {
        "bad": "sink bad: bad_sink:make: ModuleNotFoundError: No module named 'nowhere_at_all'",
        "odd": "sink odd: odd_sink:make: made a object, which has no prepare, send, close",
        "leaves": "sink leaves: odd_sink:leave: SystemExit: not today",
    }
    outages = {line["sink"]: line["error"] for line in told(log, "sink_unavailable")}
    assert outages == {"jsonhttp": "HTTP 503", "raises": "RuntimeError: SystemExit: out of here"}
    (stopped,) = [line for line in told(log, "lane_stopped") if line["sink"] == "raises"]
    assert (stopped["unsent_messages"], stopped["sent"]) == (3, 0)  # they are in the stream
    assert [line["sink"] for line in told(log, "sink_not_closed")] == ["raises"]
    assert "Traceback" not in log.read_text()


@pytest.mark.bus
async def test_without_any_sink_that_works_the_process_ends_and_says_why(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    assert bus.cluster == "north"
    installed(tmp_path / "site")
    config = config_of(tmp_path, nats_server, 'kind = "bad"', 'kind = "jsonhttp"\noptions = {colour = "red"}')
    process = await asyncio.create_subprocess_exec(
        *argv(config), env=environment(tmp_path / "site"), stderr=asyncio.subprocess.PIPE
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), 40)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 2
    lines = [line for line in said.decode().splitlines() if line.startswith("heeler otlp: ")]
    assert lines == [
        "heeler otlp: sink bad: bad_sink:make: ModuleNotFoundError: No module named 'nowhere_at_all'",
        "heeler otlp: sink jsonhttp: heeler_sink_example:JsonHttp: options: ['colour']: url, and token if need be",
    ]


def test_the_page_shows_what_is_tested() -> None:
    page = (ROOT / "docs/sinks.md").read_text()
    assert f"```python\n{(PLUGIN / 'heeler_sink_example/__init__.py').read_text()}```" in page
    assert f"```toml\n{(PLUGIN / 'pyproject.toml').read_text()}```" in page


class Wrong(StdoutSink):
    """A plug-in that does one thing wrong, and then not any more."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.sent = what, 0

    def prepare(self, signal: Signal, items: Sequence[Content]) -> Any:
        made = super().prepare(signal, items)
        if self.what == "requests" and (found := self.wrong()):
            return found
        return (one for one in made)  # a generator is as good as a list

    def send(self, request: Lines) -> Any:
        if (found := self.wrong()) is not None and self.what != "requests":
            if isinstance(found, BaseException):
                raise found
            return found
        self.sent += 1
        return Receipt()

    def wrong(self) -> Any:
        what, self.what = self.what, ""
        return {
            "none": 0,
            "text": "done",
            "requests": [object()],
            "stop": StopIteration("a bare next()"),
            "exit": SystemExit(3),
            "interrupt": KeyboardInterrupt(),
        }.get(what)


@pytest.mark.parametrize("what", ["none", "text", "requests", "stop", "exit", "interrupt"])
async def test_what_a_plug_in_does_otherwise_is_an_outage_that_loses_nothing(what: str) -> None:
    sink = Wrong(what)
    lane = Lane("test", "metrics", sink, QUICK)
    post = Post(lane)
    running = asyncio.create_task(lane.run())
    with capture_logs() as logs:
        await post.put("n1")
        await until(lambda: post.done == ["n1"] or running.done(), "sent")
        await lane.stop(running, 1)
    assert (post.done, post.poison, sink.sent) == (["n1"], [], 1)
    assert (lane.tally.outages, lane.tally.failures) == (1, 1)
    assert [one["event"] for one in logs if one["log_level"] == "error"] == ["sink_unavailable"]
