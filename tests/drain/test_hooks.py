"""Programs and webhooks of the site's own: what they are given, how they fail, and how they end."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from heeler.bus import ConfigError
from heeler.drain.backend import LeaseTooShortError
from heeler.drain.hooks import ExecHook, ExecSettings, NotifySettings, Webhook, sign
from heeler.drain.notify import Notifier
from heeler.drain.settings import DrainSettings
from heeler.engine.config import build
from heeler.slurm.errors import SlurmError

ORDER = {"v": 1, "id": "xid-n001-79.reset", "node": "n001", "step": "reset", "verdict": "proposed", "why": "é" * 3000}


def script(folder: Path, text: str) -> str:
    path = folder / "hook"
    path.write_text(f"#!{sys.executable}\nimport json, os, subprocess, sys, time\nfolder = {str(folder)!r}\n{text}\n")
    path.chmod(0o755)
    return str(path)


# Programs.


async def test_a_program_gets_the_order_whole_and_no_credentials(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HEELER_NATS_PASSWORD", "secret")
    text = "json.dump([json.load(sys.stdin), dict(os.environ), sys.argv[1:]], open(folder + '/got', 'w')); print('ok')"
    done = await ExecHook((script(tmp_path, text), "a b", "$HOME"), 10.0).send(ORDER)
    assert (done.problem, done.said) == ("", "ok")
    order, env, argv = json.loads((tmp_path / "got").read_text())
    assert order == ORDER
    assert argv == ["a b", "$HOME"]
    assert "HEELER_NATS_PASSWORD" not in env
    assert "PATH" in env


async def test_a_program_that_fails_is_told_in_its_words(tmp_path: Path) -> None:
    hook = ExecHook((script(tmp_path, "sys.exit('GPU 3 does not reset')"),), 10.0)
    assert "ended with 1: GPU 3 does not reset" in (await hook.send(ORDER)).problem


async def test_a_program_that_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    text = (
        "child = subprocess.Popen(['sleep', '600']); open(folder + '/pid', 'w').write(str(child.pid)); time.sleep(600)"
    )
    hook = ExecHook((script(tmp_path, text),), 1.0)
    began = time.monotonic()
    with pytest.raises(SlurmError):
        await hook.send(ORDER)
    assert time.monotonic() - began < 8.0
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5.0
    while alive(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_program_is_not_run_on_a_lease_that_is_too_short_and_may_outlast_a_long_one(tmp_path: Path) -> None:
    hook = ExecHook((script(tmp_path, "open(folder + '/ran', 'a').write('x')"),), 60.0)
    with pytest.raises(LeaseTooShortError):
        await hook.run(ORDER, (time.monotonic() + 1.0, 2.0))
    assert not (tmp_path / "ran").exists()
    assert (await hook.run(ORDER, (time.monotonic() + 30.0, 2.0))).problem == ""
    assert (tmp_path / "ran").read_text() == "x"


async def test_a_killed_program_is_not_known_to_have_failed(tmp_path: Path) -> None:
    hook = ExecHook((script(tmp_path, "os.kill(os.getpid(), 9)"),), 10.0)
    with pytest.raises(SlurmError, match="killed"):
        await hook.send(ORDER)


async def test_a_program_that_is_not_there_is_a_typed_error() -> None:
    with pytest.raises(SlurmError):
        await ExecHook(("/nowhere/hook",), 1.0).send(ORDER)


# Webhooks.


class Receiver(ThreadingHTTPServer):
    """Answers with what it is told to, and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"


class Answer(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_webhook_is_signed_over_its_time_and_its_body(receiver: Receiver) -> None:
    assert (await Webhook(receiver.url, b"key").send(ORDER)).problem == ""
    [(headers, body)] = receiver.got
    assert json.loads(body) == ORDER
    assert headers["Idempotency-Key"] == ORDER["id"]
    stamp = headers["X-Heeler-Timestamp"]
    assert abs(int(stamp) - time.time()) < 60
    assert headers["X-Heeler-Signature"] == f"sha256={sign(b'key', stamp, body)}"
    assert sign(b"key", stamp, body) != sign(b"key", str(int(stamp) + 1), body)


def test_the_signature_is_plain_hmac_sha256_of_time_point_body() -> None:
    # printf '1790000000.{}' | openssl dgst -sha256 -hmac key
    assert sign(b"key", "1790000000", b"{}") == "099d33989336226b12c85da813adf6100e1bbab1e91bede9a41ddeb7882d66b8"


async def test_a_webhook_is_tried_again_while_the_other_side_is_away_and_under_the_same_id(receiver: Receiver) -> None:
    receiver.statuses = [503, 500, 429]
    assert (await Webhook(receiver.url, wait_s=0.01).send(ORDER)).problem == ""
    assert len(receiver.got) == 4
    assert {headers["Idempotency-Key"] for headers, _ in receiver.got} == {ORDER["id"]}


@pytest.mark.parametrize("status", [400, 401, 404, 301, 308])
async def test_a_refusal_is_final_and_a_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    assert f"status {status}" in (await Webhook(receiver.url, wait_s=0.01).send(ORDER)).problem
    assert len(receiver.got) == 1


async def test_a_webhook_gives_up_and_says_why() -> None:
    done = await Webhook("http://127.0.0.1:9/", retry_for_s=0.2, wait_s=0.01).send(ORDER)
    assert done.problem.startswith("gave up after")
    assert "ConnectionError" in done.problem


# Who hears of what.


async def test_each_line_gets_what_it_wants_and_one_that_stands_still_holds_up_none(
    receiver: Receiver, tmp_path: Path
) -> None:
    posts = NotifySettings(url=receiver.url, verdicts=("proposed",))
    runs = NotifySettings(argv=(script(tmp_path, "time.sleep(600)"),), timeout_s=60.0)
    notifier = Notifier([(posts, posts.outlet()), (runs, runs.outlet())])
    task = asyncio.create_task(notifier.run())
    try:
        for n in range(1010):
            notifier.tell({"id": f"a{n}", "verdict": "refused", "step": "drain"})
        notifier.tell({"id": "b", "verdict": "proposed"})
        deadline = time.monotonic() + 10
        while not receiver.got and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert [headers["Idempotency-Key"] for headers, _ in receiver.got] == ["b"]
        for n in range(1010):
            notifier.tell({"id": f"c{n}", "verdict": "proposed"})
        assert notifier.counts["drain_notices_total.dropped"] > 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_steps_and_verdicts_are_chosen() -> None:
    wanted = NotifySettings(url="http://x/", verdicts=("held",), steps=("person",))
    assert wanted.wants({"verdict": "held", "step": "person"})
    assert not wanted.wants({"verdict": "held"})
    assert not wanted.wants({"verdict": "done", "step": "person"})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"hooks": {"explode": {"argv": ["/bin/true"]}}}, "hooks.explode"),
        ({"hooks": {"reset": {"argv": ["reset-gpu"]}}}, "hooks.reset.argv"),
        ({"hooks": {"reset": {"argv": []}}}, "hooks.reset.argv"),
        ({"hooks": {"reset": {"argv": ["/x"], "timeout_s": 0.0}}}, "hooks.reset.timeout_s"),
        ({"notify": [{}]}, "notify[0].url, argv: one of them"),
        ({"notify": [{"url": "ftp://x"}]}, "notify[0].url"),
        ({"notify": [{"url": "http://x", "argv": ["/x"]}]}, "one of them"),
        ({"notify": [{"argv": ["/x"], "secret_file": "/y"}]}, "secret_file"),
    ],
)
def test_a_hook_that_can_not_be_meant_is_refused_by_name(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(DrainSettings, table, "drain")
    assert words in str(caught.value)


def test_a_secret_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="secret_file"):
        NotifySettings(url="http://x/", secret_file=str(tmp_path / "no")).outlet()
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="empty"):
        NotifySettings(url="http://x/", secret_file=str(tmp_path / "empty")).outlet()
    assert ExecSettings(("/x",)).timeout_s == 120.0
