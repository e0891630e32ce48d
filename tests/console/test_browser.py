"""The page in a real Chromium, on a real bus: seen, clicked, and used by keyboard. No console error is forgiven."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from consolekit import S, action, cluster_state, finding, incident, job_event, node_state, publish, sample, serving
from natsserver import NatsServer, free_port
from needs import chromium, need
from waiting import until

from heeler.bus import Bus

pytestmark = [pytest.mark.bus, pytest.mark.timeout(180)]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script>\u202e{{7*7}}"


@pytest.fixture(autouse=True)
def _browser_is_here() -> None:
    need("browser")


class Seen:
    """A page, and all that went wrong on it."""

    def __init__(self, page: Any, base: str) -> None:
        self.page, self.base = page, base
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(base) else self.foreign.append(asked.url))

    async def open(self, address: str = "#/") -> None:
        await self.page.goto(f"{self.base}/{address}")
        await self.so("document.querySelector('#live').textContent.includes('samples')")

    async def so(self, script: str) -> None:
        """Wait until a script says true. Playwright's own waiting needs eval, which the page's policy forbids."""

        async def true() -> bool:
            return bool(await self.page.evaluate(script))

        await until(true, script, 20)

    async def text(self, selector: str) -> str:
        return str(await self.page.inner_text(selector)).replace("\u00a0", " ")

    async def shows(self, selector: str, words: str) -> None:
        async def there() -> bool:
            return words in await self.text(selector)

        try:
            await until(there, words, 20)
        except AssertionError:
            pytest.fail(f"{selector} has no {words!r} but {await self.text(selector)!r}")

    async def over_the_first_gpu(self) -> bool:
        """Point at it where the map is now: it moves down as words come above it. Say whether the page says so."""
        box = await self.page.locator("#map").bounding_box()
        assert box is not None
        await self.page.mouse.move(box["x"] + 3, box["y"] + 25)
        return "GPU 0" in await self.text("#said")

    async def address(self, wanted: str) -> None:
        async def there() -> bool:
            return str(await self.page.evaluate("location.hash")) == wanted

        await until(there, wanted, 20)

    async def keep(self, name: str) -> None:
        """Leave a picture for whoever wants to look: HEELER_SCREENSHOTS names a folder."""
        if folder := os.environ.get("HEELER_SCREENSHOTS"):
            await self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@asynccontextmanager
async def browsing(url: str, **context: Any) -> AsyncIterator[Seen]:
    """A fresh Chromium on the page; at the end nothing may have gone wrong in it."""
    from playwright.async_api import async_playwright

    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        made = await browser.new_context(viewport={"width": 1280, "height": 800}, **context)
        seen = Seen(await made.new_page(), url)
        try:
            yield seen
        finally:
            await browser.close()
        assert seen.errors == []
        assert seen.foreign == []


def at(message: dict[str, Any], seconds_ago: float = 0.0) -> dict[str, Any]:
    return message | {"ts": time.time_ns() - int(seconds_ago * S)}


async def fill(bus: Bus, name: str = "train") -> None:
    """Put twelve nodes on the bus, three jobs, a slow GPU, a lost one, a drained node, one without samples."""
    nodes = [f"n{number:02}" for number in range(1, 13)]
    drained: dict[str, Any] = {
        "state": "idle",
        "flags": ["DRAIN"],
        "reason": f"heeler:xid:f2 {name}",
        "reason_user": name,
    }
    states = [at(node_state(node, partitions=["gpu"] if node < "n09" else [name])) for node in nodes]
    await publish(bus, "NodeState", *states[:11], at(node_state("n12", **drained)), at(node_state("dark")))
    jobs = {"81": nodes[:6], "82": nodes[6:8], "83": nodes[8:11]}
    about: dict[str, Any] = {"name": name, "user": "ada" if name == "train" else name}
    for job, mine in jobs.items():
        await publish(bus, "JobEvent", at(job_event(job, tuple(mine), start_ts=time.time_ns() - 7200 * S, **about)))
    await publish(bus, "ClusterState", at(cluster_state()))
    held = {node: job for job, mine in jobs.items() for node in mine}
    for ago in (40, 30, 20, 10, 1):
        for node in nodes:
            more: dict[str, Any] = {}
            if node == "n03":
                more["mean"] = {"sm_clock_mhz": [1980.0] * 3 + [1155.0 if ago < 30 else 1979.0] + [1980.0] * 4}
            if node == "n07":
                more["state"] = ["ok"] * 5 + ["lost"] + ["ok"] * 2
            await publish(bus, "JobSample", at(sample(node, job=held.get(node), **more), ago))
    lag: dict[str, Any] = {
        "entity": {"type": "gpu", "node": "n03", "gpu_uuid": "GPU-n03-3", "gpu_index": 3},
        "node": "n03",
    }
    summary = f"GPU 3 on n03 runs at 1,155 MHz while its 47 peers run at 1,980 {name}"
    await publish(bus, "Finding", at(finding(first_ts=time.time_ns() - 25 * S, summary=summary, **lag)))
    await publish(bus, "DrainAction", at(action("n03", why=f"why {name}")))
    await publish(
        bus, "JobKernelEvent",
        at({"v": 1, "cluster": "north", "node": "n03", "boot": "b", "seq": 5, "kind": "xid", "code": 31, "jobs": ["81"],
            "text": f"MMU Fault {name}", "shard": 1}, 5),
    )  # fmt: skip

    async def copied() -> bool:
        return all(
            [
                await bus.last("NODES", "heeler.v1.north.slurm.node.dark"),
                await bus.last("JOBS", "heeler.v1.north.slurm.job.83"),
                await bus.last("FINDINGS_LAST", "heeler.v1.north.finding.gpu_lag.n03.f1"),
            ]
        )

    await until(copied, "the streams of newest messages")


async def test_the_fleet_is_told_in_words_and_as_a_picture(bus: Bus) -> None:
    await fill(bus)
    async with serving(bus) as (url, _), browsing(url) as seen:
        await seen.open()
        await seen.shows(".summary", "96 GPUs on 13 nodes: 87 in jobs, 8 free, 1 lost.")
        await seen.shows(".summary", "Nodes: 1 drained. 3 jobs. Open findings: 1 critical.")
        await seen.shows("aside", "GPU 3 on n03 runs at 1,155 MHz")
        colours = await seen.page.evaluate(
            """() => { const map = window.heelerMap, {layout, ratio, image} = map;
            const pixels = new Uint32Array(image.data.buffer);
            const of = (node, gpu) => { const cell = map.store.nodes.start[map.store.nodes.name.indexOf(node)] + gpu;
              return pixels[(layout.y[cell] + 1) * ratio * image.width + (layout.x[cell] + 1) * ratio]; };
            const {named} = map.palette;
            return [of('n01', 0) === named.busy, of('n07', 5) === named.lost, of('n12', 0) === named.free]; }"""
        )
        assert colours == [True, True, True]
        await seen.keep("fleet-light")
        for layer, words in {"activity": "0 %", "temperature": "30 °C", "state": "in a job"}.items():
            await seen.page.select_option(".controls select >> nth=0", layer)
            await seen.shows(".legend", words)
        await seen.page.select_option(".controls select >> nth=1", "job")
        headings = "() => window.heelerMap.layout?.headings.map(one => one.text)"
        await seen.so(f"({headings})()?.[0].startsWith('81')")
        assert await seen.page.evaluate(headings) == [
            "81  train of ada",
            "83  train of ada",
            "82  train of ada",
            "No job",
        ]


async def test_by_keyboard_from_the_map_to_a_node_and_back(bus: Bus) -> None:
    await fill(bus)
    async with serving(bus) as (url, _), browsing(url) as seen:
        await seen.open()
        press = seen.page.keyboard.press
        await seen.so("window.heelerMap?.layout?.strips.length")
        await press("m")
        await seen.shows("#said", "GPU 0: ok, job 81 train of ada")
        first = await seen.text("#said")
        await press("ArrowDown")
        await seen.shows("#said", f"{first.split()[0]} GPU 1:")
        await press("ArrowRight")
        assert not (await seen.text("#said")).startswith(first.split()[0])
        await press("n")
        await seen.shows("#said", "n03 GPU 3")
        await press("n")
        await seen.shows("#said", "n07 GPU 5: lost, job 82 train of ada")
        await press("Enter")
        await seen.address("#/node/n07")
        await seen.shows("table", "lost")
        await press("g")
        await seen.address("#/")
        await press("/")
        await seen.page.keyboard.type("n03")
        await press("Enter")  # at once: what was found for "n0" must not be taken
        await seen.address("#/node/n03")
        await seen.shows("main", "MMU Fault")
        await press("/")
        await seen.page.keyboard.type("n")
        await seen.shows("#found", "node n02")
        await press("ArrowDown")
        await press("Enter")
        await seen.address("#/node/n02")
        await press("?")
        assert await seen.page.is_visible("#keys")
        await press("Escape")
        assert not await seen.page.is_visible("#keys")


async def test_by_pointer_to_a_finding_its_plot_its_job_and_its_node(bus: Bus) -> None:
    await fill(bus)
    async with serving(bus) as (url, _), browsing(url) as seen:
        await seen.open()
        await seen.page.click("aside .findings a")
        await seen.address("#/finding/f1")
        await seen.shows("main", "At most")
        await seen.page.wait_for_selector(".plots svg .victim")
        await seen.shows("figure output", "1,155 MHz; peers 1,980 MHz")
        await seen.shows(".plots", "47 peers")
        await seen.keep("finding-light")
        await seen.page.focus("figure svg")
        before = await seen.text("figure output")
        await seen.page.keyboard.press("ArrowLeft")
        assert await seen.text("figure output") != before
        await seen.page.click("main .facts a >> text=81")
        await seen.address("#/job/81")
        await seen.shows("main", "42 %")
        await seen.shows("main", "not counted: no job summary on the bus")
        await seen.shows(".plots", "47 peers")
        await seen.page.wait_for_selector(".plots svg .median", state="attached")
        await seen.keep("job-light")
        await seen.page.click("main table >> nth=0 >> text=n03")
        await seen.address("#/node/n03")
        await seen.shows(".events", "xid 31")
        await seen.page.wait_for_selector("svg.timeline rect.kernel")
        await seen.keep("node-light")
        box = await seen.page.locator("header .mark").bounding_box()
        assert box is not None
        await seen.page.click("nav a >> text=Fleet")
        await seen.so("window.heelerMap?.layout?.strips.length")
        await until(seen.over_the_first_gpu, "GPU 0", 20)
        await seen.page.mouse.down()
        await seen.page.mouse.up()
        await seen.shows("h1", "node n")


async def test_findings_of_one_cause_stand_under_their_incident(bus: Bus) -> None:
    ports = [finding(f"p{n}", summary=f"port mlx5_0 of n0{n} is down", incident="i1") for n in range(3)]
    ports[2].pop("incident")  # the incident lists it, and it has not been said again since
    lone = finding("x", severity="info", summary="GPU 2 of n05 is slow")
    cause = incident("i1", "p0", "p1", "p2")
    await fill(bus)
    await publish(bus, "Finding", *map(at, [*ports, lone, cause]))
    async with serving(bus) as (url, _), browsing(url) as seen:
        await seen.open("#/findings")
        await seen.shows("main details summary", "3 findings of it")
        assert not await seen.page.is_visible("text=port mlx5_0 of n01 is down")
        assert await seen.page.is_visible("text=GPU 2 of n05 is slow")
        await seen.page.focus("main details summary")
        await seen.page.keyboard.press("Enter")
        assert await seen.page.is_visible("text=port mlx5_0 of n01 is down")
        await publish(bus, "Finding", at(cause | {"summary": "3 nodes lost links: leaf1 is dead"}, 0))
        await seen.shows("main", "leaf1 is dead")
        assert await seen.page.is_visible("text=port mlx5_0 of n01 is down")  # what was unfolded stays so
        await seen.so("document.activeElement.tagName === 'SUMMARY'")
        await seen.keep("incident-light")
        await seen.page.click("main .findings a >> text=leaf1 is dead")
        await seen.shows("main", "Its findings")
        await seen.keep("incident-page-light")
        await seen.page.click("main .findings a >> text=port mlx5_0 of n02 is down")
        await seen.shows("main .facts", "leaf1 is dead")


async def test_hostile_names_stay_text(bus: Bus) -> None:
    await fill(bus, HOSTILE)
    async with serving(bus) as (url, _), browsing(url) as seen:
        dialogs: list[Any] = []
        seen.page.on("dialog", lambda dialog: dialogs.append(dialog))  # noqa: PLW0108 - it wants a function
        for address in (
            "#/",
            "#/findings",
            "#/node/n03",
            "#/node/n12",
            "#/job/81",
            "#/finding/f1",
            f"#/node/{HOSTILE}",
            "#/%E0%A4%A",
        ):
            await seen.open(address)
            await asyncio.sleep(0.6)
            assert await seen.page.title() != "owned"
            assert "\u202e" not in await seen.text("body")
            assert (
                await seen.page.evaluate("document.querySelectorAll('main img, main script, header img').length") == 0
            )
        await seen.open("#/job/81")
        await seen.shows("main", "<script>alert(1)</script>")
        await seen.open()
        await seen.page.select_option(".controls select >> nth=1", "job")
        await seen.page.focus("#search")
        await seen.page.keyboard.type("<img")
        await seen.shows("#found", "<img src=x")
        await seen.keep("hostile")
        assert dialogs == []
        # A page that names what is not there is told so by the server; that is the one error to be expected here.
        seen.errors[:] = [one for one in seen.errors if "404" not in one]


async def test_light_and_dark_follow_the_system_and_the_button(bus: Bus) -> None:
    await fill(bus)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    async with serving(bus) as (url, _), browsing(url, color_scheme="dark") as seen:
        await seen.open()
        dark = await seen.page.evaluate(ground)
        await seen.so("window.heelerMap?.layout")
        await seen.keep("fleet-dark")
        await seen.page.click("#theme")
        light = await seen.page.evaluate(ground)
        assert light != dark
        pixel = "() => new Uint32Array(window.heelerMap.image.data.buffer)[0] & 255"
        await seen.so(f"({pixel})() > 200")  # the picture as well
        await seen.page.reload()
        assert await seen.page.evaluate(ground) == light  # the choice is kept
        await seen.page.keyboard.press("t")
        assert await seen.page.evaluate(ground) == dark
        for address in ("node/n03", "job/81", "finding/f1"):
            await seen.open(f"#/{address}")
            await asyncio.sleep(1.5)
            await seen.keep(f"{address.split('/')[0]}-dark")


async def test_it_is_live_and_says_when_it_is_not(bus: Bus, nats_server: NatsServer) -> None:
    await fill(bus)
    async with serving(bus) as (url, context), browsing(url) as seen:
        await seen.open()
        await seen.shows(".summary", "1 lost")
        await publish(bus, "JobSample", at(sample("n07", job="82")))
        await seen.shows(".summary", "88 in jobs, 8 free. ")
        assert await seen.text("#trouble") == ""
        nats_server.kill()
        await seen.shows("#trouble", "The bus has been away")
        await seen.shows("#live", "not live")
        await seen.keep("bus-lost")
        nats_server.start()
        await seen.so("document.querySelector('#trouble').textContent === ''")
        context.stop.set()
        await seen.shows("#trouble", "what you see is")
        assert await seen.page.locator(".picture.old").count() == 1
        # The browser itself says that the connection broke.
        seen.errors[:] = [one for one in seen.errors if "ERR_" not in one]


async def test_a_console_that_is_started_anew_is_followed(bus: Bus) -> None:
    await fill(bus)
    port = free_port()
    async with serving(bus, listen=f"127.0.0.1:{port}") as (url, context), browsing(url) as seen:
        await seen.open()
        await seen.shows(".summary", "1 lost")
        context.stop.set()
        await seen.shows("#trouble", "what you see is")
        await publish(bus, "JobSample", at(sample("n07", job="82")))
        async with serving(bus, listen=f"127.0.0.1:{port}"):
            await seen.shows(".summary", "88 in jobs, 8 free. ")
            await seen.so("document.querySelector('#trouble').textContent === ''")
            seen.errors[:] = [one for one in seen.errors if "ERR_" not in one]


async def test_without_any_message_nothing_is_claimed(bus: Bus) -> None:
    async with serving(bus) as (url, _), browsing(url) as seen:
        await seen.open()
        await seen.shows(".summary", "no GPU has been told of yet")
        await seen.shows("#trouble", "No GPU sample is on the bus")
        await seen.shows("#trouble", "No Slurm feed has reported")


PLACED = """async ([nodes, room, mode]) => {
  const {groups, place} = await import('/static/layout.js');
  const {Store} = await import('/static/store.js');
  const store = new Store();
  const cells = nodes * room, states = new Uint8Array(cells).fill(1), jobs = new Uint32Array(cells);
  for (let i = 0; i < cells; i += 1) jobs[i] = i % 97 === 0 ? 1 : 3 + Math.floor(i / 8 / (1 + (i >> 15)));
  const column = make => Array.from({length: nodes}, (_, i) => make(i));
  store.load({seq: 1, epoch: 1, now: 0, cells, layers: ['state'], states: ['unknown', 'ok'], node_states: ['unknown'],
    nodes: {name: column(i => `n${i}`), room: column(() => room), state: column(() => 0),
            partitions: column(i => [`p${i % 3}`])},
    jobs: [], findings: [], closed: [], actions: [], counts: null, status: null}, jobs, {state: states});
  const layout = place(store, groups(store, mode), 1000, 700);
  const taken = new Uint8Array(layout.width * layout.height);
  let wrong = 0;
  for (let cell = 0; cell < cells; cell += 1) {
    const {x, y, size} = {x: layout.x[cell], y: layout.y[cell], size: layout.size};
    if (x < 0 || x + size > layout.width || y + size > layout.height) { wrong += 1; continue; }
    for (let r = 0; r < size; r += 1) for (let c = 0; c < size; c += 1) {
      const at = (y + r) * layout.width + x + c;
      if (taken[at]) wrong += 1;
      taken[at] = 1;
    }
  }
  return {wrong, size: layout.size, height: layout.height};
}"""


@pytest.mark.parametrize("mode", ["partition", "job", "none"])
@pytest.mark.parametrize(("nodes", "room"), [(1, 1), (7, 16), (300, 8), (12_500, 8)])
async def test_every_gpu_has_a_place_of_its_own(bus: Bus, mode: str, nodes: int, room: int) -> None:
    async with serving(bus) as (url, _), browsing(url) as seen:
        await seen.open()
        found = await seen.page.evaluate(PLACED, [nodes, room, mode])
        assert found["wrong"] == 0
        assert found["height"] <= 700 or found["size"] == 2
