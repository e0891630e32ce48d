"""The page's server on a real bus: what it answers, whom it refuses, what it says when the bus goes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from consolekit import Page, S, action, cluster_state, finding, get, job_event, node_state, publish, sample, serving
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, BusError

pytestmark = pytest.mark.bus


def recent(message: dict[str, Any], seconds_ago: float = 1.0) -> dict[str, Any]:
    return message | {"ts": time.time_ns() - int(seconds_ago * S)}


async def fill(bus: Bus) -> None:
    await publish(bus, "NodeState", *(recent(node_state(node)) for node in ("n1", "n2")))
    await publish(bus, "JobEvent", recent(job_event(nodes=("n1", "n2"))))
    await publish(bus, "ClusterState", recent(cluster_state()))
    for ago in (30, 20, 10):
        slow = [1980.0] * 3 + [1155.0] + [1980.0] * 4
        await publish(
            bus, "JobSample", recent(sample("n1", mean={"sm_clock_mhz": slow}), ago), recent(sample("n2"), ago)
        )
    await publish(bus, "Finding", recent(finding(first_ts=time.time_ns() - 25 * S)))
    await publish(bus, "DrainAction", recent(action()))
    # The streams of newest messages are filled from the others, a moment later.
    for stream, subject in {
        "NODES": "slurm.node.n2",
        "JOBS": "slurm.job.81",
        "FINDINGS_LAST": "finding.gpu_lag.n1.f1",
    }.items():

        async def there(stream: str = stream, subject: str = subject) -> bool:
            return await bus.last(stream, f"heeler.v1.north.{subject}") is not None

        await until(there, stream)


async def frames(url: str, count: int, session: aiohttp.ClientSession) -> AsyncIterator[dict[str, Any]]:
    async with session.get(f"{url}/api/stream") as answer:
        assert answer.status == 200
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
                count -= 1
                if not count:
                    return


async def test_a_page_gets_all_that_is_known_and_then_what_changes(bus: Bus) -> None:
    await fill(bus)
    async with serving(bus) as (url, _), aiohttp.ClientSession(read_bufsize=1 << 22) as session:
        _, _, body = await get(f"{url}/api/snapshot")
        page = Page(body)
        assert page.nodes["name"] == ["n1", "n2"]
        assert page.findings["f1"]["cells"] == [3]
        assert page.head["counts"]["gpus"]["ok"] == 16
        await publish(bus, "Finding", recent(finding(), 0) | {"state": "closed", "close_reason": "well"})
        async for frame in frames(url, 50, session):
            if frame.get("findings_gone") == ["f1"]:
                break
        else:
            pytest.fail("the close never came")


async def test_answers_for_a_node_a_job_a_finding_and_a_search(bus: Bus) -> None:
    await fill(bus)
    async with serving(bus) as (url, _):
        _, _, node = await get(f"{url}/api/node", params={"name": "n1"})
        assert [one["values"]["sm_clock_mhz"] for one in node["gpus"]][2:5] == [1980.0, 1155.0, 1980.0]
        assert node["gpus"][3]["job"] == "81"
        assert node["gpus"][0]["values"]["fb_used_bytes"] is None
        assert {one["lane"] for one in node["items"]} == {"jobs", "slurm", "findings", "drain"}
        _, _, job = await get(f"{url}/api/job", params={"name": "81"})
        assert [(one["node"], one["index"]) for one in job["behind"]] == [("n1", 3)]
        assert job["findings"][0]["lost"]["by"] == "gap"
        _, _, found = await get(f"{url}/api/finding", params={"id": "f1"})
        assert "1,155 MHz, 15 peers 1,980 MHz (-42%)" in found["evidence"][0]["words"]
        _, _, plot = await get(f"{url}/api/finding_plot", params={"id": "f1"})
        (curve,) = plot["plots"][0]["curves"]
        assert [value for value in curve["values"] if value is not None] == [1155.0] * 3
        assert (plot["peers"], plot["victims"]) == (15, 1)
        _, _, hits = await get(f"{url}/api/search", params={"q": "gpu-n2-7"})
        assert hits == [{"kind": "gpu", "name": "GPU-n2-7", "node": "n2"}]


async def test_what_is_not_known_is_said_so(bus: Bus) -> None:
    async with serving(bus) as (url, _):
        for path, status in {
            "/api/node?name=nope": 404,
            "/api/job?name=nope": 404,
            "/api/finding?id=nope": 404,
            "/api/node?name=n1&hours=soon": 400,
            "/api/node": 400,
            f"/api/node?name={'x' * 600}": 400,
            "/api/other": 404,
            "/static/..%2Fprogram.py": 404,
            "/static/model.py": 404,
        }.items():
            found, _, body = await get(f"{url}{path}")
            assert found == status, path
            assert body["error"], path


async def test_it_only_answers_to_its_own_name_and_only_to_reading(bus: Bus) -> None:
    async with serving(bus, hosts=("heeler.example",)) as (url, _), aiohttp.ClientSession() as session:
        for host, status in {"evil.example": 421, "heeler.example": 200, "localhost:80": 200, "": 421}.items():
            assert (await get(f"{url}/", headers={"Host": host}))[0] == status, host
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, f"{url}/api/node?name=n1") as answer:
                assert answer.status == 405
        _, headers, _ = await get(f"{url}/")
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_files_are_sent_once_and_small(bus: Bus) -> None:
    async with serving(bus) as (url, _), aiohttp.ClientSession(auto_decompress=False) as session:
        async with session.get(f"{url}/static/style.css", headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            etag = answer.headers["ETag"]
        assert (await get(f"{url}/static/style.css", headers={"If-None-Match": etag}))[0] == 304


async def test_a_page_that_does_not_keep_up_is_cut_off_and_the_others_go_on(bus: Bus) -> None:
    async with serving(bus, every_s=0.1) as (url, context), aiohttp.ClientSession(read_bufsize=1 << 22) as session:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(f"GET /api/stream HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        values = context.metrics["console"]
        await until(lambda: values()["console_pages"] == 1, "the slow page")
        # Job names of half a megabyte a second, which nobody reads.
        long = "x" * 60_000

        async def flood() -> None:
            for number in range(10_000):
                await publish(bus, "JobEvent", recent(job_event(f"j{number}", name=long), 0))
                await asyncio.sleep(0.002)

        task = asyncio.create_task(flood())
        try:
            await until(lambda: values()["console_pages_cut_total"] == 1, "the cut")
            assert len([one async for one in frames(url, 3, session)]) == 3
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            writer.close()
        assert reader is not None


async def test_pages_are_bounded(bus: Bus) -> None:
    async with serving(bus, most_pages=1) as (url, _), aiohttp.ClientSession(read_bufsize=1 << 22) as session:
        async for _ in frames(url, 1, session):
            status, _, body = await get(f"{url}/api/stream")
            assert (status, "too many pages" in body["error"]) == (503, True)


async def test_a_lost_bus_is_said_at_once_and_a_found_one_too(bus: Bus, nats_server: NatsServer) -> None:
    await fill(bus)
    async with serving(bus, every_s=5.0) as (url, _), aiohttp.ClientSession(read_bufsize=1 << 22) as session:
        states: list[float | None] = []
        began = 0.0
        async for frame in frames(url, 1000, session):
            lost = frame["status"]["bus_lost_s"]
            if not states:
                nats_server.kill()
                began = time.monotonic()
            states.append(lost)
            if lost is not None and len(states) == 2:
                assert time.monotonic() - began < 3  # not at the next turn, five seconds later
                nats_server.start()
            if len(states) > 2 and lost is None:
                break
        assert states[0] is None


async def test_a_frozen_bus_is_lost_as_well(bus: Bus, nats_server: NatsServer) -> None:
    async with serving(bus) as (url, _), aiohttp.ClientSession(read_bufsize=1 << 22) as session:
        nats_server.freeze()
        try:
            async for frame in frames(url, 200, session):
                if frame["status"]["bus_lost_s"] is not None:
                    break
            else:
                pytest.fail("nothing was said of it")
            status, _, body = await get(f"{url}/api/node", params={"name": "n9"})
            assert (status, "does not answer" in body["error"]) == (503, True)
        finally:
            nats_server.thaw()


async def test_messages_that_can_not_be_used_are_counted(bus: Bus) -> None:
    async with serving(bus) as (url, context):
        await bus.js.publish("heeler.v1.north.job.sample.1.n1", b"\xc1")
        await until(lambda: context.metrics["console"]()["console_unreadable_total"] == 1, "the count")
        assert (await get(f"{url}/api/snapshot"))[0] == 200


async def test_of_several_clusters_one_can_be_chosen(bus: Bus) -> None:
    await fill(bus)
    south = recent(node_state("s1")) | {"cluster": "south"}
    await publish(bus, "NodeState", south)
    async with serving(bus, cluster="north") as (url, _):
        assert Page((await get(f"{url}/api/snapshot"))[2]).nodes["name"] == ["n1", "n2"]
    async with serving(bus) as (url, _):
        page = Page((await get(f"{url}/api/snapshot"))[2])
        assert page.head["status"]["clusters"] == ["north", "south"]


async def test_a_port_that_is_taken_is_said_in_one_line(bus: Bus) -> None:
    async with serving(bus) as (url, _):
        with pytest.raises(BusError, match=r"console.listen: 127.0.0.1:\d+: .*in use"):
            async with serving(bus, listen=url.removeprefix("http://")):
                pass
