"""slurmrestd as a source: what it says is read as the commands' JSON is, and what is no answer is an outage."""

import asyncio
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fakeslurm import FakeSlurm
from slurmdata import answer, job_row, node_row, recorded
from slurmsandbox import Sandbox

from heeler.bus import ConfigError
from heeler.slurm.clients import Clients
from heeler.slurm.collect import Table
from heeler.slurm.errors import RestError
from heeler.slurm.jobs import JobsAnswer
from heeler.slurm.nodes import NodesAnswer
from heeler.slurm.rest import choose, read_token
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import Outage, SlurmSource

OPENAPI: dict[str, Any] = {
    "paths": {f"/{api}/v0.0.{n}/{what}": {} for n in (38, 40) for api, what in (("slurm", "jobs"), ("slurmdb", "qos"))}
}
TOKEN = "eyJhbGciOiJIUzI1NiJ9.secret-part.sig"

Answers = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers as the server's table says."""

    server: "Server"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
        self.server.answer(self)

    def give(self, body: str | bytes | dict[str, Any], status: int = 200, *, length: int | None = None) -> None:
        data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A real HTTP server with made-up answers; `answer` may be changed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.openapi: dict[str, Any] = OPENAPI
        self.jobs: Answers = lambda handler: handler.give(answer(jobs=[job_row()]))
        self.nodes: Answers = lambda handler: handler.give(answer(nodes=[node_row()]))

    def answer(self, handler: Handler) -> None:
        if handler.path == "/openapi/v3":
            handler.give(self.openapi)
        elif handler.path.endswith("/jobs"):
            self.jobs(handler)
        elif handler.path.endswith("/nodes"):
            self.nodes(handler)
        else:
            handler.give("not found", 404)

    def handle_error(self, *_args: Any) -> None:
        """Say nothing of clients that went away."""

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"SLURM_JWT={TOKEN}\n")
    return path


def source_of(server: Server, token: Path, source: str = "rest", **changes: Any) -> SlurmSource:
    settings = SlurmSettings(
        source=source,
        rest_url=f"http://127.0.0.1:{server.server_address[1]}",
        rest_user="heeler",
        token_file=str(token),
        **{"timeout_s": 10.0, **changes},
    )
    settings.validate()
    return SlurmSource(Clients(settings))


async def test_the_newest_known_version_is_asked_with_user_and_token(server: Server, token: Path) -> None:
    source = source_of(server, token)
    polled = await source.jobs()
    assert isinstance(polled.answer, JobsAnswer)
    assert ([job.id for job in polled.answer.jobs], polled.source) == (["481"], "slurmrestd v0.0.40")
    assert isinstance((await source.nodes()).answer, NodesAnswer)
    assert server.paths == ["/openapi/v3", "/slurm/v0.0.40/jobs", "/slurm/v0.0.40/nodes"], "versions are asked for once"
    assert {headers["x-slurm-user-token"] for _, headers in server.seen} == {TOKEN}
    assert {headers["x-slurm-user-name"] for _, headers in server.seen} == {"heeler"}


async def test_a_renewed_token_is_used_at_once(server: Server, token: Path) -> None:
    source = source_of(server, token)
    await source.jobs()
    token.write_text("second.token.x")
    await source.jobs()
    assert server.seen[-1][1]["x-slurm-user-token"] == "second.token.x"


def drip(handler: Handler) -> None:
    """Send a byte now and then, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (lambda h: h.give("", 500), "status 500"),
        (lambda h: h.give("", 503), "status 503"),
        (lambda h: h.give({"errors": [{"error": "Unable to contact slurm controller"}]}, 500), "Unable to contact"),
        (lambda h: h.give({"errors": [{"description": "Authentication failure"}]}, 401), "Authentication failure"),
        (lambda h: h.give(""), "empty answer"),
        (lambda h: h.give("<html><body>502 Bad Gateway</body></html>"), "no JSON object"),
        (lambda h: h.give({"jobs": [], "errors": [{"error": "db down"}]}), "db down"),
        (lambda h: h.give({"errors": []}), "no list of jobs"),
        (lambda h: h.give('{"jobs": [', 200, length=5000), "ended"),
        (lambda h: h.give('{"jobs": ['), "not JSON"),
        (lambda h: h.give("see there", 302), "status 302"),
        (drip, "no answer in 0.5 s"),
        (lambda h: time.sleep(3), "no answer in 0.5 s"),
    ],
)
async def test_what_is_no_answer_is_an_outage_with_its_reason(
    server: Server, token: Path, says: Answers, why: str
) -> None:
    server.jobs = says
    started = time.monotonic()
    polled = await source_of(server, token, timeout_s=0.5).jobs()
    assert isinstance(polled.answer, Outage)
    if why != "ended":
        assert why in polled.answer.why
    assert TOKEN not in polled.answer.why
    assert time.monotonic() - started < 2.5


async def test_an_empty_cluster_is_an_answer(server: Server, token: Path) -> None:
    server.jobs = lambda handler: handler.give(answer(jobs=[]))
    polled = await source_of(server, token).jobs()
    assert isinstance(polled.answer, JobsAnswer)
    assert polled.answer.jobs == ()


async def test_an_answer_that_is_said_to_be_partial_ends_no_job(server: Server, token: Path) -> None:
    partial = {**answer(jobs=[job_row()]), "warnings": [{"description": "response truncated at 1 job"}]}
    server.jobs = lambda handler: handler.give(partial)
    polled = await source_of(server, token).jobs()
    assert isinstance(polled.answer, JobsAnswer)
    assert [row.name for row in polled.answer.unreadable] == [None], "such an answer ends no job by its absence"
    assert "truncated" in polled.answer.unreadable[0].why


async def test_where_slurmrestd_is_away_the_commands_are_asked_and_their_words_are_the_last(
    server: Server, token: Path, tmp_path: Path
) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    fake.says("squeue", answer(jobs=[job_row(7)]))
    source = source_of(server, token, "auto", bin_dir=str(fake.folder))
    server.jobs = lambda handler: handler.give("", 500)
    polled = await source.jobs()
    assert isinstance(polled.answer, JobsAnswer)
    assert ([job.id for job in polled.answer.jobs], polled.source) == (["7"], "squeue --json")
    asked = len(server.seen)
    await source.jobs()
    assert len(server.seen) == asked, "what works is kept"
    fake.says("squeue", "", err="Unable to contact slurm controller (connect failure)", rc=1)
    polled = await source.jobs()
    assert isinstance(polled.answer, Outage)
    assert "Unable to contact" in polled.answer.why


async def test_after_a_change_of_slurms_version_slurmrestd_is_tried_again(
    server: Server, token: Path, tmp_path: Path
) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    fake.says("squeue", answer(jobs=[job_row(7)]))
    server.jobs = lambda handler: handler.give("", 500)
    source = source_of(server, token, "auto", bin_dir=str(fake.folder))
    await source.jobs()
    fake.says("squeue", recorded("24.11/squeue_json.json"))
    await source.jobs()
    server.jobs = lambda handler: handler.give(answer(jobs=[job_row(8)]))
    polled = await source.jobs()
    assert polled.source == "slurmrestd v0.0.40"


async def test_a_cancelled_question_leaves_no_thread_behind(server: Server, token: Path) -> None:
    server.jobs = lambda _handler: time.sleep(30)
    source = source_of(server, token, timeout_s=20.0)
    asking = asyncio.create_task(source.jobs())
    while not any(path.endswith("/jobs") for path in server.paths):
        await asyncio.sleep(0.02)
    asking.cancel()
    started = time.monotonic()
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 10)
    assert time.monotonic() - started < 5


async def test_a_socket_that_is_not_there_is_an_outage(tmp_path: Path) -> None:
    source = SlurmSource(Clients(SlurmSettings(source="rest", rest_url=f"unix://{tmp_path}/no.sock")))
    polled = await source.jobs()
    assert isinstance(polled.answer, Outage)
    assert "No such file" in polled.answer.why


async def test_over_a_unix_socket_no_token_is_sent(tmp_path: Path) -> None:
    class Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True
        seen: ClassVar[list[str]] = []

    class UnixHandler(Handler):
        server: Any

        def address_string(self) -> str:
            return "unix"

        def do_GET(self) -> None:
            self.server.seen.append(str(self.headers))
            self.give(OPENAPI if "openapi" in self.path else answer(jobs=[job_row(9)]))

    with Unix(str(tmp_path / "s"), UnixHandler) as unix:
        threading.Thread(target=unix.serve_forever, daemon=True).start()
        source = SlurmSource(Clients(SlurmSettings(source="rest", rest_url=f"unix://{tmp_path}/s")))
        polled = await source.jobs()
        unix.shutdown()
    assert isinstance(polled.answer, JobsAnswer)
    assert not any("SLURM" in headers.upper() for headers in Unix.seen)


def test_of_the_versions_offered_the_newest_known_is_taken_or_else_the_newest() -> None:
    assert choose({37, 38, 40}) == 40
    assert choose({40, 42, 99}) == 42
    assert choose({98, 99}) == 99


async def test_an_api_that_is_not_offered_is_said(server: Server, token: Path) -> None:
    server.openapi = {"paths": {"/slurm/v0.0.36/jobs": {}}}
    polled = await source_of(server, token).jobs()
    assert isinstance(polled.answer, Outage)
    assert "offers no /slurm/" in polled.answer.why


@pytest.mark.parametrize("text", ["", "two words", "line\r\nX-Injected: 1", "\x00"])
def test_what_is_no_token_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(RestError) as caught:
        read_token(str(path))
    assert "Injected" not in str(caught.value)
    with pytest.raises(RestError, match="No such file"):
        read_token(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"source": "rest"}, "needs rest_url"),
        ({"source": "pigeon"}, "source"),
        ({"rest_url": "ftp://x"}, "rest_url"),
        ({"rest_url": "http://x:99999"}, "rest_url"),
        ({"rest_url": "unix:relative"}, "rest_url"),
        ({"rest_url": "https://head:6820"}, "token_file"),
    ],
)
def test_settings_of_rest_are_checked(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SlurmSettings(**changes).validate()


@pytest.mark.slurm
async def test_a_real_slurmrestd_says_what_the_commands_say(accounted: Sandbox, tmp_path: Path) -> None:
    job = accounted.submit("sleep 60", "--nodes=2", "--gres=gpu:4")
    accounted.wait_job(job, "RUNNING")
    array = accounted.submit("sleep 60", "--array=1-9%2", "--gres=gpu:h100:8", "--exclusive")
    path = tmp_path / "token"
    path.write_text(accounted.rest.token())
    conf: dict[str, Any] = {"conf": str(accounted.conf), "bin_dir": "/usr/bin"}
    tcp: dict[str, Any] = {"rest_url": accounted.rest.url, "rest_user": "root", "token_file": str(path)}
    sources = {
        "unix": SlurmSettings(source="rest", rest_url=f"unix://{accounted.rest.socket}"),
        "tcp": SlurmSettings(source="rest", **tcp),
        "json": SlurmSettings(source="json", **conf),
        "text": SlurmSettings(source="text", **conf),
    }
    jobs, nodes = {}, {}
    for name, settings in sources.items():
        settings.validate()
        source = SlurmSource(Clients(settings))
        polled = await source.jobs(time.time_ns(), with_table=True)
        assert isinstance(polled.answer, JobsAnswer), (name, polled.answer)
        assert polled.answer.unreadable == ()
        told = rows(polled.answer.table)
        jobs[name] = {one: told[one] for one in (job, array)}  # those of other tests end, and are forgotten meanwhile
        more = await source.nodes(with_table=True)
        assert isinstance(more.answer, NodesAnswer), (name, more.answer)
        nodes[name] = rows(more.answer.table)
    assert jobs["unix"][job]["gpu_indices"] == ["n001=0-3", "n002=0-3"]
    alike = (
        "name",
        "state",
        "nodes",
        "gpus_requested",
        "tres_per_node",
        "array_tasks",
        "job_ref",
        "priority",
        "submit_ts",
    )
    for name, found in jobs.items():
        assert {i: [row[k] for k in alike] for i, row in found.items()} == {
            i: [row[k] for k in alike] for i, row in jobs["json"].items()
        }, name
    alike = ("state", "flags", "gpus", "cpus", "cpus_idle", "memory_bytes", "partitions", "version", "boot_ts")
    for name, found in nodes.items():
        assert {i: [row[k] for k in alike] for i, row in found.items()} == {
            i: [row[k] for k in alike] for i, row in nodes["json"].items()
        }, name
    path.write_text("eyJhbGciOiJIUzI1NiJ9.wrong.token")
    polled = await SlurmSource(Clients(sources["tcp"])).jobs()
    assert isinstance(polled.answer, Outage)


def rows(table: Table | None) -> dict[str, dict[str, Any]]:
    """Return a table as rows by its first column."""
    assert table is not None
    names = list(table.columns)
    return {values[0]: dict(zip(names, values, strict=True)) for values in zip(*table.columns.values(), strict=True)}
