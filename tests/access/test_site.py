"""Real servers, as `heeler bus config` configures them: who may do what, and that real programs can do their work."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bussite import BusSite, running
from certs import Authority
from fake_nvml import FakeNvml
from fakeslurm import FakeSlurm
from goldens import good
from needs import need
from nodeagent import agent_command
from otlpsamples import job_sample
from slurmdata import answer, job_row, node_row
from waiting import until

from heeler.bus import Bus, BusError, decode, encode, snapshot, subjects
from heeler.bus.admin import init
from heeler.bus.claims import Claims, hear
from heeler.bus.values import standing
from heeler.sim.receiver import Receiver

pytestmark = [pytest.mark.bus, pytest.mark.timeout(180)]

FAULTS = '[[fault]]\nat = "4s"\nkind = "gpu_lost"\n'


@pytest.fixture
def single(tmp_path: Path) -> Iterator[BusSite]:
    need("openssl")
    with running(BusSite(tmp_path / "site")) as found:
        yield found


@asynccontextmanager
async def as_user(site: BusSite, user: str, at: str = "nats-1", *, inbox: str = "") -> AsyncIterator[Bus]:
    connection = "heeler-cli" if user in ("heeler-reader", "heeler-admin", "ann") else user
    bus = await Bus.connect(site.settings(user, at, inbox), connection, give_up_after_s=20.0)
    try:
        yield bus
    finally:
        await bus.close()


async def made(site: BusSite, replicas: int = 1) -> None:
    async with as_user(site, "heeler-admin") as bus:
        await init(bus, scale=0.002, replicas=replicas)


@contextmanager
def program(site: BusSite, *argv: str | Path, env: dict[str, str] | None = None) -> Iterator[Path]:
    """Run a program to the end of the block; it must end in order. Gives its log."""
    log = site.folder / f"{Path(argv[-1]).stem}.log"
    with log.open("ab") as out:
        process = subprocess.Popen(list(map(str, argv)), stdout=out, stderr=out, env={**os.environ, **(env or {})})
    try:
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()
    assert "ermission" not in log.read_text(), log.read_text()[-2000:]


def processor(site: BusSite, name: str, more: str = "") -> tuple[str | Path, ...]:
    return (sys.executable, "-m", "heeler.cli.main", "run", name, "--config", site.toml(f"heeler-{name}", more))


async def refused(site: BusSite, count: int, what: str) -> None:
    await until(lambda: len(site.refused()) >= count, f"{what}: {site.refused()}", 10.0)


async def test_the_road_of_a_fault_goes_through_programs_that_may_do_no_more_than_their_part(single: BusSite) -> None:
    await made(single)
    faults = single.folder / "faults.toml"
    faults.write_text(FAULTS)
    receiver = Receiver()
    receiver.start()
    sink = f'[[otlp.sinks]]\nkind = "otlp"\nname = "collector"\nendpoint = "{receiver.grpc_url}"\n'
    drain = "[drain]\ntick_s = 0.5\n[drain.limits]\nsettle_s = 2.0\n"
    taker = '[otlp_in]\ngrpc = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n'
    sim = (sys.executable, "-m", "heeler.cli.main", "sim", "--cluster", "north", "--nodes", "8", "--window", "1s",
           "--status-every", "2s", "--faults", faults, "--config", single.toml("heeler-admin"))  # fmt: skip
    try:
        with ExitStack() as stack:
            others = {"drain": drain, "otlp": sink, "otlp-in": taker}
            for name, more in ({"enrich": "", "detect": "", "summary": "", "lemon": ""} | others).items():
                stack.enter_context(program(single, *processor(single, name, more)))
            stack.enter_context(program(single, *sim))
            async with as_user(single, "heeler-reader") as bus:

                async def proposed() -> bool:
                    found = [decode("DrainAction", one.data) for one in await snapshot(bus, "DRAIN", (">",))]
                    return any(one["verdict"] == "proposed" for one in found)

                await until(proposed, "a drain that is proposed", 90.0)
                await until(lambda: receiver.counts["points"] > 0 and receiver.counts["logs"] > 0, "points and logs")
                assert set(await standing(bus, "breakers")) == {"north.prolog"}
    finally:
        receiver.stop()
    assert single.refused() == []


async def test_heeler_slurm_does_all_its_work(single: BusSite, tmp_path: Path) -> None:
    await made(single)
    slurm = FakeSlurm(tmp_path / "slurm")
    slurm.says("scontrol", answer(nodes=[node_row("gn1")]))
    slurm.says("squeue", answer(jobs=[job_row()]))
    config = single.toml("heeler-slurm", f'[slurm]\nbin_dir = "{slurm.folder}"\njobs_interval_s = 0.2\n')
    with program(single, sys.executable, "-m", "heeler.slurm.agent", "--config", config):
        async with as_user(single, "heeler-reader") as bus:

            async def all_there() -> bool:
                kinds = {one.subject.split(".")[4] for one in await snapshot(bus, "EVENTS", (">",))}
                return kinds >= {"job", "node"} and {"north.job.481", "north.node.gn1"} <= {
                    *await standing(bus, "job_map")
                }

            await until(all_there, "jobs, nodes and the job map")
    assert single.refused() == []


async def test_a_node_answers_people_who_may_ask_and_hears_only_of_itself(single: BusSite, tmp_path: Path) -> None:
    await made(single)
    (tmp_path / "outbox").mkdir()
    policy = tmp_path / "health.toml"
    policy.write_text(
        f'cluster = "north"\noutbox = "{tmp_path}/outbox"\ncache = "{tmp_path}/cache"\nrequest = ["uptime"]\n'
    )
    state = {"v": 1, "cluster": "north", "node": "n1", "ts": time.time_ns(), "event": "seen", "state": "IDLE",
             "flags": []}  # fmt: skip
    async with as_user(single, "heeler-admin") as bus:
        await bus.publish_acked(subjects.node_state("north", "n1"), "NodeState", encode("NodeState", state), "1")
        key = "$KV.breakers.north.prolog"
        value = {"state": "closed", "why": "few", "ts_ns": time.time_ns(), "cluster": "north"}
        await bus.client.publish(key, json.dumps(value).encode())
        await bus.client.flush()
    config = single.toml("n1-health", f'[serve]\npolicy = "{policy}"\nnode = "n1"\ninterval_s = 0\n')
    with program(single, sys.executable, "-m", "heeler.health.cli", "serve", "--config", config):
        ask = ("health", "ask", "n1", "uptime", "--timeout", "20", "--config", single.toml("ann"))
        command = (sys.executable, "-m", "heeler.cli.main", *map(str, ask))

        async def answered() -> bool:
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            return "uptime" in done.stdout

        await until(answered, "an answer")
        await until(lambda: (tmp_path / "cache/node.json").exists() and (tmp_path / "cache/breaker.json").exists())
    assert single.refused() == []
    async with as_user(single, "n1-health") as bus:
        await bus.client.subscribe("heeler.v1.north.health.request.n2")
        await bus.client.publish("heeler.v1.north.health.result.n1", b"x")
        await refused(single, 2, "another's requests, and a message past the outbox")


async def agent_runs(site: BusSite, folder: Path, user: str, at: str) -> None:
    """Let the real agent of a node say all it has to say."""
    fake = FakeNvml(folder)
    settings = site.settings(user, at)
    argv = agent_command(folder, cluster="north", node=user, url=settings.servers[0], library=fake.library)
    config = folder / "agent.toml"
    config.write_text(
        config.read_text().replace(
            "[kmsg]", f'[nats.tls]\nca = "{settings.ca}"\ncert = "{settings.cert}"\nkey = "{settings.key}"\n[kmsg]'
        )
    )
    with program(site, *argv, env=fake.env()) as log:
        async with as_user(site, "heeler-reader") as bus:
            with (folder / "kmsg").open("a") as lines:
                lines.write("4,2,2000,-;NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=a, words\n")

            async def all_has_come() -> bool:
                kinds = {
                    one.subject.removeprefix("heeler.v1.north.")
                    for stream in ("SAMPLES", "EVENTS", "AGENTS")
                    for one in await snapshot(bus, stream, (">",), start=1)
                }
                wanted = ("gpu.sample", "host.sample", "kernel.event", "agent.status", "agent.inventory")
                return kinds >= {f"{kind}.{user}" for kind in wanted}

            await until(all_has_come, f"all of the agent's messages: {log.read_text()[-500:]}")
        assert "not taken" not in log.read_text(), "an ack did not come back"


async def test_an_agent_speaks_for_its_node_and_no_other(single: BusSite, tmp_path: Path) -> None:
    need("agent")
    await made(single)
    await agent_runs(single, tmp_path, "n1", "nats-1")
    assert single.refused() == []
    async with as_user(single, "n1") as bus:
        forbidden = (
            "heeler.v1.north.gpu.sample.n2",
            "heeler.v1.south.gpu.sample.n1",
            "heeler.v1.north.job.sample.0.n1",
            "heeler.v1.north.finding.gpu_lag.n1.x",
            "heeler.v1.north.drain.action.n1",
            "heeler.v1.north.health.request.n1",
            "$KV.breakers.north.prolog",
            "$KV.job_map.north.node.n1",
            "$JS.API.STREAM.INFO.EVENTS",
            "$JS.ACK.SAMPLES.enrich-SAMPLES.1.1.1.1.1",
            "_INBOX_n2.x",
        )
        for subject in forbidden:
            await bus.client.publish(subject, b"x")
        await refused(single, len(forbidden), "what an agent may not")
        for subject in ("heeler.v1.north.>", "_INBOX_n2.>", "_INBOX_heeler-cli.>", "$KV.breakers.>"):
            await bus.client.subscribe(subject)
        await refused(single, len(forbidden) + 4, "what an agent may not hear")
    async with as_user(single, "heeler-reader") as bus:
        said = [one.subject for stream in ("FINDINGS", "DRAIN") for one in await snapshot(bus, stream, (">",), start=1)]
        assert said == []


@pytest.mark.parametrize("user", ["heeler-reader", "heeler-subscriber"])
async def test_who_reads_hears_all_and_writes_nothing(single: BusSite, user: str) -> None:
    await made(single)
    payload = encode("JobSample", job_sample())
    subject = subjects.job_sample("north", "3", "n1")
    async with as_user(single, user) as bus, as_user(single, "heeler-admin") as operator:
        heard: list[str] = []

        async def on(message: object) -> None:
            heard.append(str(getattr(message, "subject", "")))

        await bus.subscribe("heeler.v1.north.>", on)
        await bus.client.flush()
        await operator.publish_acked(subject, "JobSample", payload, "1")
        await until(lambda: set(heard) == {subject}, "a message")  # twice, where the first ack was late
        assert await bus.last("JOBSAMPLES", subject) == payload
        assert single.refused() == []
        forbidden = (
            subject,
            "heeler.v1.north.finding.gpu_lag.n1.x",
            "$KV.breakers.north.prolog",
            "$JS.API.STREAM.PURGE.JOBSAMPLES",
            "$JS.API.STREAM.DELETE.JOBSAMPLES",
            "$JS.API.STREAM.MSG.DELETE.JOBSAMPLES",
            "$JS.API.STREAM.UPDATE.JOBSAMPLES",
            "$JS.API.STREAM.CREATE.MINE",
            "$JS.API.CONSUMER.DELETE.SAMPLES.enrich-SAMPLES",
            "$JS.API.CONSUMER.MSG.NEXT.SAMPLES.enrich-SAMPLES",
            "$JS.API.CONSUMER.DURABLE.CREATE.SAMPLES.mine",
            "$JS.API.CONSUMER.CREATE.SAMPLES.enrich-SAMPLES",
            "$JS.ACK.SAMPLES.enrich-SAMPLES.1.1.1.1.1",
            "_INBOX_heeler-detect.x",
        )
        for one in forbidden:
            await bus.client.publish(one, b"{}")
        await refused(single, len(forbidden), "what a reader may not")
        assert (await operator.js.stream_info("JOBSAMPLES")).state.messages == 1


async def test_commands_of_people_work_with_the_rights_of_a_reader(single: BusSite) -> None:
    await made(single)
    config = str(single.toml("heeler-reader"))
    for words in (("why", "node", "n1"), ("events", "--since", "1h"), ("bus", "status")):
        command = (sys.executable, "-m", "heeler.cli.main", *words, "--config", config)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
        # 3: nothing is known of this node, which is what the bus was asked.
        assert done.returncode == (3 if words[0] == "why" else 0), (words, done.stderr, done.stdout)
    assert single.refused() == []


async def test_an_operator_commands_the_drainer_under_his_own_name_only(single: BusSite) -> None:
    await made(single)
    with program(single, *processor(single, "drain")):
        command = (sys.executable, "-m", "heeler.cli.main", "drain", "trip-breaker", "drain", "--why", "racks move",
                   "--config", str(single.toml("ann")))  # fmt: skip

        async def done() -> bool:
            found = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            return found.returncode == 0

        await until(done, "an answer of the drainer")
        async with as_user(single, "heeler-reader") as bus:
            (said,) = [decode("DrainAction", one.data) for one in await snapshot(bus, "DRAIN", (">",), start=1)]
            assert (said["actor"], said["command"]) == ("ann", "trip_breaker")
        assert single.refused() == []
    async with as_user(single, "ann") as bus:
        for subject in ("drain.command.bob", "drain.question.bob", "drain.action.n1"):
            await bus.client.publish(f"heeler.v1.north.{subject}", b"x")
        await refused(single, 3, "another's name")


async def test_the_web_page_reads_all_it_shows(single: BusSite) -> None:
    await made(single)
    with program(single, *processor(single, "console", '[console]\nlisten = "127.0.0.1:0"\n')) as log:
        await until(lambda: '"serving"' in log.read_text(), "the page")
        await asyncio.sleep(1.0)
    assert single.refused() == []


async def test_without_a_certificate_of_the_site_nobody_gets_in(single: BusSite, tmp_path: Path) -> None:
    good = replace(single.settings("heeler-reader"), connect_timeout_s=1.0)
    stranger = Authority(tmp_path / "stranger").issue("heeler-admin.test")
    for settings in (
        replace(good, cert=None, key=None),
        replace(good, cert=str(stranger[0]), key=str(stranger[1])),
        replace(single.settings("nobody"), connect_timeout_s=1.0),
    ):
        with pytest.raises((TimeoutError, OSError, BusError)):
            await Bus.connect(settings, "x", give_up_after_s=1.0)


async def test_a_lost_server_of_three_stops_nobody(tmp_path: Path) -> None:
    need("openssl")
    with running(BusSite(tmp_path / "site", servers=3)) as site:
        await until_cluster(site)
        await made(site, replicas=3)
        everywhere = replace(site.settings("n1"), servers=tuple(one.url for one in site.servers.values()))
        agent = await Bus.connect(everywhere, "n1")
        try:
            await agent.publish_acked(*event("1"))
            async with as_user(site, "heeler-reader") as reader:
                cluster = (await reader.js.stream_info("EVENTS")).cluster
                assert cluster is not None
            site.servers[str(cluster.leader)].kill()
            await asyncio.wait_for(agent.publish_acked(*event("2")), 60)
            left = next(name for name in site.servers if name != cluster.leader)
            async with as_user(site, "heeler-reader", left) as reader:
                found = await snapshot(reader, "EVENTS", (">",), start=1, timeout_s=60.0)
            assert [decode("KernelEvent", one.data)["text"] for one in found] == ["1", "2"]
        finally:
            await agent.close()


def event(text: str) -> tuple[str, str, bytes, str]:
    payload = {**golden("KernelEvent"), "cluster": "north", "node": "n1", "text": text}
    return subjects.kernel_event("north", "n1"), "KernelEvent", encode("KernelEvent", payload), text


async def until_cluster(site: BusSite) -> None:
    """Wait until the servers of a cluster have a leader for streams."""

    async def led() -> bool:
        async with as_user(site, "heeler-admin") as bus:
            try:
                await bus.js.account_info()
            except (BusError, TimeoutError, Exception):  # noqa: BLE001 - whatever it says, not yet
                return False
            return True

    await until(led, "a leader", 60.0)


async def test_a_certificate_of_a_node_makes_no_server(tmp_path: Path) -> None:
    need("openssl")
    with running(BusSite(tmp_path / "site", servers=3)) as site:
        await until_cluster(site)
        port = site.site.servers[0].cluster_port
        said = await asyncio.to_thread(_as_a_server, site, "n1", port)
        assert "Authorization Violation" in said, said
        assert "PONG" not in said
        said = await asyncio.to_thread(_as_a_server, site, "nats-2", port)
        assert "PONG" in said, "with a server's own certificate the same words are taken"


def _as_a_server(site: BusSite, user: str, port: int) -> str:
    """Speak to a route's port as a server would; return what it answers."""
    cert, key = site.authority.issue(user, f"{user}.test")
    context = ssl.create_default_context(cafile=str(site.authority.ca))
    context.load_cert_chain(cert, key)
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.settimeout(5)
        with context.wrap_socket(plain, server_hostname="localhost") as tls:
            words = {"verbose": False, "tls_required": True, "name": "X", "cluster": site.site.name, "headers": True}
            tls.sendall(b"CONNECT " + json.dumps(words).encode() + b"\r\nPING\r\n")
            said = b""
            with suppress(TimeoutError, OSError):
                while b"PONG" not in said and (more := tls.recv(65536)):
                    said += more
            return said.decode(errors="replace")


async def test_nodes_of_a_rack_speak_through_its_leaf_server(tmp_path: Path) -> None:
    need("openssl")
    need("agent")
    with running(BusSite(tmp_path / "site", racks={"r1": "n[11-12]"})) as site:
        await made(site)
        await agent_runs(site, tmp_path, "n11", "rack-r1")
        assert site.refused() == []
        async with as_user(site, "n11", "rack-r1") as bus:
            await bus.client.publish("heeler.v1.north.gpu.sample.n12", b"x")
            await refused(site, 1, "another node of the rack")
        direct = replace(site.settings("n11", "nats-1"), connect_timeout_s=1.0)
        with pytest.raises((TimeoutError, OSError, BusError)):
            await Bus.connect(direct, "n11", give_up_after_s=1.0)


async def test_through_a_leaf_server_events_are_acknowledged_and_requests_answered(tmp_path: Path) -> None:
    need("openssl")
    with running(BusSite(tmp_path / "site", racks={"r1": "n[11-12]"})) as site:
        await made(site)
        async with as_user(site, "n11", "rack-r1") as agent:
            for number in range(3):
                payload = {**golden("KernelEvent"), "cluster": "north", "node": "n11", "text": str(number)}
                subject = subjects.kernel_event("north", "n11")
                await agent.publish_once(subject, "KernelEvent", encode("KernelEvent", payload), f"{number}")
        async with as_user(site, "n12-health", "rack-r1") as node, as_user(site, "ann") as operator:

            async def answer(asked: bytes) -> tuple[str, bytes]:
                return "HealthRun", asked + b" answered"

            subject = subjects.health_request("north", "n12")
            await node.answer(subject, answer)
            await node.client.flush()

            async def answered() -> bool:
                return await operator.request(subject, "HealthRequest", b"asked", timeout_s=1.0) == b"asked answered"

            await until(answered, "an answer by way of the leaf server")
            assert await node.last("NODES", subjects.node_state("north", "n12")) is None, "it is told: there is none"
            heard: list[bytes] = []
            await hear(node, "breakers", "north.prolog", heard.append)
            await node.client.flush()

            async def told() -> bool:
                async with as_user(site, "heeler-drain") as drain:
                    await (await drain.bucket("breakers")).put("north.prolog", b"open")
                return b"open" in heard

            await until(told, "the breaker by way of the leaf server")
            claim = await (await Claims.open(node, "breakers")).get("north.prolog")
            assert claim is not None
            assert claim.value == b"open"
        assert site.refused() == []


async def test_a_leaf_server_passes_on_no_more_than_its_nodes_may_say(tmp_path: Path) -> None:
    """Whoever owns the leaf server of a rack speaks for its nodes, and not for others, the drainer or Slurm."""
    need("openssl")
    with running(BusSite(tmp_path / "site", racks={"r1": "n[11-12]"})) as site:
        await made(site)
        server = site.servers["rack-r1"]
        users = site.folder / "conf/rack-r1-users.conf"
        users.write_text('accounts { HEELER { users: [ { user: "n11.test" } ] } }\n')
        server.restart()
        async with as_user(site, "n11", "rack-r1") as bus, as_user(site, "heeler-reader") as reader:
            heard: list[str] = []

            async def on(message: object) -> None:
                heard.append(str(getattr(message, "subject", "")))

            await reader.subscribe("heeler.v1.north.>", on)
            await reader.client.flush()
            sample = encode("GpuSample", {**golden("GpuSample"), "cluster": "north", "node": "n11"})

            async def through() -> bool:
                for subject in (
                    *("finding.gpu_lag.n11.x", "drain.action.n11", "slurm.node.n11", "health.request.n11"),
                    *("gpu.sample.n1", "kernel.event.n1", "agent.status.n2"),
                ):
                    await bus.client.publish(f"heeler.v1.north.{subject}", b"x")
                await bus.publish(subjects.gpu_sample("north", "n11"), "GpuSample", sample)
                await bus.client.flush()
                return bool(heard)

            await until(through, "a sample")
            await asyncio.sleep(0.3)
            assert set(heard) == {"heeler.v1.north.gpu.sample.n11"}


def golden(kind: str) -> dict[str, Any]:
    return dict(next(good(kind))[2])
