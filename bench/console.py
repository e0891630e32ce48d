"""The web page with 12,500 nodes of 8 GPUs on the bus: real processes, a real Chromium.

A simulated fleet and enrich fill a real bus; the console is a process of its own. Then a page is opened several times
(first paint, and the first picture of all GPUs), and one stays open for a while: how long its frames take while every
GPU is told anew every ten seconds, and what it costs the console.

python bench/console.py [--nodes 12500] [--seconds 30] [--opens 3]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))

from natsserver import NatsServer, free_port
from needs import chromium, missing_browser
from usage import cpu_s, rss_mib

PER_GPU = """() => new Promise(done => {
  const gaps = [], long = [], began = performance.now();
  const watch = new PerformanceObserver(list => long.push(...list.getEntries().map(one => one.duration)));
  watch.observe({entryTypes: ['longtask']});
  const {frames} = window.heelerMap;
  Object.assign(frames, {draws: 0, ms: 0, most: 0});
  let last = null;
  const turn = now => {
    if (last !== null) gaps.push(now - last);
    last = now;
    if (now - began < SECONDS * 1000) requestAnimationFrame(turn);
    else {
      watch.disconnect();
      done({gaps, long, frames: {...frames}, heap: performance.memory?.usedJSHeapSize ?? null});
    }
  };
  requestAnimationFrame(turn);
})"""


@contextmanager
def processes(nodes: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A bus, a fleet, enrich and a console, until the block ends."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = NatsServer(folder / "nats")
        port = free_port()
        (folder / "console.toml").write_text(f'[console]\nlisten = "127.0.0.1:{port}"\n')
        environment = {**os.environ, "HEELER_NATS_URL": server.url, "HEELER_CLUSTER": "sim"}
        heeler = ["-m", "heeler.cli.main", "run"]
        started: list[subprocess.Popen[bytes]] = []

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            with (folder / f"{len(started)}.log").open("wb") as log:
                made = subprocess.Popen([sys.executable, *arguments], env=environment, stdout=log, stderr=log)
            started.append(made)
            return made

        try:
            server.start()
            server.init_bus(0.08)
            start(*heeler, "enrich")
            start("-m", "heeler.sim", "--nodes", str(nodes), "--window", "10s")
            console = start(*heeler, "console", "--config", str(folder / "console.toml"))
            url = f"http://127.0.0.1:{port}"
            wait_for_fleet(url, nodes)
            yield url, console
        finally:
            for one in started:
                one.kill()
                one.wait()
            server.kill()


def wait_for_fleet(url: str, nodes: int) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until:
        try:
            head = head_of(url)
            if head["status"]["ready"] and head["counts"]["gpus"]["ok"] >= 0.99 * 8 * nodes:
                return
        except OSError:
            pass
        time.sleep(1)
    raise TimeoutError("the console has not seen the fleet")


def head_of(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/api/snapshot", timeout=20) as answer:
        data = answer.read()
    head: dict[str, Any] = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    return head


def opened(browser: Any, url: str) -> tuple[Any, dict[str, float]]:
    """Open the page afresh; returns it with its times in ms."""
    page = browser.new_context(viewport={"width": 1600, "height": 1000}).new_page()
    page.goto(url)
    for _ in range(600):
        if (first := page.evaluate("window.heelerMap?.frames.first ?? null")) is not None:
            break
        time.sleep(0.05)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
    return page, {"first_paint_ms": paint, "first_picture_ms": first}


def watched(page: Any, seconds: float, layer: str, console: subprocess.Popen[bytes]) -> dict[str, float]:
    """Watch an open page; returns how its frames were, and what the console took meanwhile."""
    page.select_option(".controls select >> nth=0", layer)
    began, cpu = time.monotonic(), cpu_s(console.pid)
    found = page.evaluate(PER_GPU.replace("SECONDS", str(seconds)))
    took = time.monotonic() - began
    gaps = sorted(found["gaps"])
    draws = max(1, found["frames"]["draws"])
    return {
        "frames_per_s": len(gaps) / took,
        "frame_p50_ms": gaps[len(gaps) // 2],
        "frame_p99_ms": gaps[int(len(gaps) * 0.99)],
        "frame_most_ms": gaps[-1],
        "draw_mean_ms": found["frames"]["ms"] / draws,
        "draw_most_ms": found["frames"]["most"],
        "long_tasks": len(found["long"]),
        "console_cpu_ratio": (cpu_s(console.pid) - cpu) / took,
        "console_rss_mib": rss_mib(console.pid),
        "page_heap_mib": (found["heap"] or 0) / 2**20,
    }


def main() -> dict[str, Any]:
    """Print the table; returns it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--opens", type=int, default=3)
    options = parser.parse_args()
    if why := missing_browser():
        print(f"not measured: {why}")
        return {}
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - said above where it is missing

    result: dict[str, Any] = {"nodes": options.nodes}
    with processes(options.nodes) as (url, console), sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for _ in range(options.opens):
            page, times = opened(browser, url)
            for name, value in times.items():
                result.setdefault(name, []).append(value)
        for layer in ("state", "activity"):
            result[layer] = watched(page, options.seconds, layer, console)
        browser.close()
    for name in ("first_paint_ms", "first_picture_ms"):
        result[name] = statistics.median(result[name])
        print(f"{name:20} {result[name]:8.0f}   median of {options.opens}")
    for layer in ("state", "activity"):
        for name, value in result[layer].items():
            print(f"{layer:10} {name:20} {value:8.2f}")
    return result


if __name__ == "__main__":
    print(json.dumps(main()))
